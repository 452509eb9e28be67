"""Updates of windows so large that they are stored by key (decision 0056), in the store of Spark and with a restart."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pytest

import tidegate as tg
from tidegate.kernel.tuning import DEFAULT

pytest.importorskip("pyspark")

from pyspark.sql import SparkSession

from spark.replay import Replay, Row, collect, schema_of, with_offsets

pytestmark = pytest.mark.spark

HOUR = 3_600_000
KEYS = 5 * DEFAULT.whole_rows
"""Each of two tasks has more than twice the rows of the largest window that is always stored whole."""


def batches(random: Random) -> list[list[Row]]:
    """All keys, then few of them and some new ones in each batch, then the next window, which closes the first one."""
    few = [random.sample(range(KEYS + 1_000), 300) for _ in range(4)]
    chosen = [range(KEYS), *few, range(3)]
    times = [*range(1, 6), HOUR + 1]
    return with_offsets(
        [
            [{"k": f"k{key}", "ts": at, "x": random.randint(-9, 9)} for key in keys]
            for at, keys in zip(times, chosen, strict=True)
        ]
    )


@pytest.mark.full
def test_updates_of_a_large_window_before_and_after_a_restart(spark: SparkSession, tmp_path: Path) -> None:
    *first, last = batches(Random(56))

    def attached(events: Any) -> Any:
        stream = tg.stream(events, key="k", timestamp="ts", partition="partition", offset="offset", name="stream")
        windows = tg.TimeWindows.of_size_with_no_grace("1 hour")
        return stream.group_by_key().windowed_by(windows).agg(total=tg.sum("x")).to_df()

    sums: Counter[tuple[int, str]] = Counter()
    replay = Replay(spark, tmp_path, schema_of(k=pa.string(), x=pa.int64()), attached)
    for part in (first[:3], first[3:], [last]):
        out = replay.run(part).rows
        for batch, rows in zip(part, out, strict=True):
            touched = {(record["ts"] // HOUR * HOUR, record["k"]) for record in batch}
            for record in batch:
                sums[record["ts"] // HOUR * HOUR, record["k"]] += record["x"]
            assert len(rows) == len(touched)
            assert {_named(row): row["total"] for row in rows} == {key: sums[key] for key in touched}
        stored = collect(tg.read_state(spark, str(tmp_path / "checkpoint")))
        newest = max(start for start, _ in sums)
        is_open = {key: total for key, total in sums.items() if key[0] == newest}
        assert {_named(row): row["total"] for row in stored} == is_open


def _named(row: Row) -> tuple[int, str]:
    return row["window"].start, row["k"]
