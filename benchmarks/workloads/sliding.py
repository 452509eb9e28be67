"""W12: final counts and sums of sliding windows: all records of a key at once, and record by record."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import patch

from pyspark.sql import DataFrame, SparkSession

import tidegate as tg
from benchmarks import agreement
from benchmarks.contestant import Contestant, ours
from benchmarks.inputs import GRACE_MS, Shape, sized, write
from benchmarks.race import Bar, Race
from benchmarks.sliding_rows import DIFFERENCE_MS, closed
from benchmarks.wrapped import wrapped
from tidegate.kernel.windows import sliding_batch
from tidegate.runtime.spark.worker.processor import StageProcessor

SIZES = {
    "smoke": Shape(1_000, 20_000, 3),
    "default": Shape(100_000, 1_000_000, 5),
    "full": Shape(100_000, 1_000_000, 20),
}
SMALL = Shape(keys=500, rows=4_000, batches=3)


def final(stream: tg.KStream) -> tg.KTable:
    windows = tg.SlidingWindows.of_time_difference_and_grace(
        f"{DIFFERENCE_MS} milliseconds", f"{GRACE_MS} milliseconds"
    )
    totals = stream.group_by_key().windowed_by(windows).agg(count=tg.count(), total=tg.sum("amount"))
    return totals.suppress(tg.Suppressed.until_window_closes(tg.BufferConfig.unbounded()))


def final_totals(stream: tg.KStream) -> DataFrame:
    rows: DataFrame = final(stream).to_df()
    return rows.select("user", "window", "count", "total")


@contextmanager
def no_key_at_once() -> Iterator[None]:
    """In this context the process applies all records of sliding windows one by one."""
    with patch.object(sliding_batch, "applies", lambda *_: False):
        yield


class RecordByRecord(StageProcessor):
    """A task that applies all records one by one."""

    def handleInputRows(self, key: Any, rows: Iterator[Any], timerValues: Any) -> Iterator[Any]:  # noqa: N802, N803
        with no_key_at_once():
            yield from super().handleInputRows(key, rows, timerValues)


def record_by_record(contestant: Contestant) -> Contestant:
    """The first micro-batches of `contestant`, with `RecordByRecord` as its stateful step."""
    one_by_one = wrapped(contestant, lambda packer: packer, RecordByRecord)
    return replace(one_by_one, name=ONE_BY_ONE, label="tidegate, record by record", batches=3, ends_workers=True)


def check(contestants: list[Contestant], spark: SparkSession, folder: Path) -> dict[str, str]:
    """A sentence per contestant; AssertionError unless all emit the rows of the direct computation over SMALL."""
    files, right = write(SMALL, folder), closed(SMALL).as_rows()
    for contestant in contestants:
        rows = agreement.streamed(spark, contestant, files)
        if wrong := agreement.differing(rows, right):
            raise AssertionError(f"{contestant.label}: {wrong} of {len(right)} rows differ from the direct computation")
    return {each.name: f"{len(right):,} rows equal to a direct computation" for each in contestants}


ONE_BY_ONE = "record_by_record"
AT_ONCE = ours(final_totals)

W12 = Race(
    "W12",
    "sliding windows of 10 s, grace 30 s, 100 k keys, 1 M rows a batch",
    sized(SIZES),
    (*AT_ONCE, record_by_record(AT_ONCE[1])),
    (Bar(5.0, (ONE_BY_ONE,)),),
    check,
)
