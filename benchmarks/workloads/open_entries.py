"""W5: batches of 10,000 records over few and many open entries. The cost of a batch should depend on its size only.

First as many keys as entries are loaded into one window. Then come small batches of random keys in the same window,
which are timed. Then a record closes the window, and the emitted rows are compared.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import tidegate as tg
from benchmarks.contestant import Contestant, ours, source, sparks_own, streamed
from benchmarks.inputs import FIRST_MS, HALVES, key_names, table, write_halves
from benchmarks.measure import Digest, Run, run
from benchmarks.options import Options, say

SIZE, SIZE_MS = "1 hour", 3_600_000
SMALL_ROWS = 10_000
SMALL_BATCHES = {"smoke": 3, "default": 16, "full": 20}
LOAD_ROWS = 1_000_000
WARM_UP = 2
MOST_RATIO = 1.3

ENTRIES = {
    "smoke": (2_000,),
    "default": (100_000, 1_000_000, 10_000_000),
    "full": (100_000, 1_000_000, 10_000_000),
}
SLOW_UP_TO = {"smoke": 2_000, "default": 1_000_000, "full": 10_000_000}
"""The most entries for Spark's own aggregation."""


@dataclass(frozen=True)
class Found:
    """Seconds of the small batches of one contestant over `entries` open entries, and its memory."""

    contestant: str
    label: str
    entries: int
    batch_s: list[float]
    jvm_mib: float
    worker_mib: float

    @property
    def median_s(self) -> float:
        return median(self.batch_s[WARM_UP:])


def final_totals(stream: tg.KStream) -> DataFrame:
    return _columns(_totals(stream).suppress(tg.Suppressed.until_window_closes(tg.BufferConfig.unbounded())).to_df())


def _totals(stream: tg.KStream) -> tg.KTable:
    windows = tg.TimeWindows.of_size_with_no_grace(SIZE)
    return stream.group_by_key().windowed_by(windows).agg(count=tg.count(), total=tg.sum("amount"))


def _columns(rows: DataFrame) -> DataFrame:
    return rows.select("user", "window", "count", "total")


def plain_updates(spark: SparkSession, folder: Path) -> DataFrame:
    table = streamed(spark, folder).group_by_key().agg(count=tg.count(), total=tg.sum("amount"))
    updates: DataFrame = table.to_df()
    return updates.select("user", "count", "total")


def spark_native(spark: SparkSession, folder: Path) -> DataFrame:
    return _columns(
        source(spark, folder)
        .withWatermark("ts", "0 seconds")
        .groupBy("user", F.window("ts", SIZE))
        .agg(F.count("*").alias("count"), F.sum("amount").alias("total"))
    )


FINAL = ours(final_totals)[0]
PLAIN = Contestant("tidegate_table", "tidegate, a table without windows", plain_updates, answers=False)
SPARK = sparks_own(spark_native)


def files(entries: int, batches: int, folder: Path) -> tuple[Path, int]:
    """The folder of the input, and the number of micro-batches that load entries."""
    load = max(1, -(-entries // LOAD_ROWS))

    def tables() -> Iterator[pa.Table]:
        rng = np.random.default_rng(2026)
        offset = 0
        step = SIZE_MS // (load + batches + 2)
        loads = [np.arange(low, min(low + LOAD_ROWS, entries)) for low in range(0, entries, LOAD_ROWS)]
        small = [rng.integers(0, entries, min(SMALL_ROWS, entries)) for _ in range(batches)]
        for number, keys in enumerate([*loads, *small, np.zeros(HALVES, np.int64)]):
            closing = number == load + batches
            ts = FIRST_MS + (SIZE_MS if closing else number * step)
            for half, mine in enumerate(np.array_split(keys, HALVES)):
                stamps = np.full(len(mine), ts, np.int64)
                amount = rng.integers(1, 10_000, len(mine))
                yield table(pa.array(key_names(mine)), stamps, amount, half, offset)
            offset += len(keys)

    return write_halves(folder / f"open-{entries}-{batches}", tables()), load


def timed(one: Run, contestant: Contestant, entries: int, load: int) -> Found:
    seconds = one.seconds[load:-1]
    return Found(contestant.name, contestant.label, entries, seconds, one.jvm_mib, one.worker_mib)


class OpenEntries:
    name = "W5"
    title = "batches of 10 k records with 100 k, 1 M and 10 M entries open; seconds a batch"

    def measure(self, spark: SparkSession, options: Options, folder: Path) -> dict[str, Any]:
        found: list[Found] = []
        agreed = {}
        for entries in ENTRIES[options.size]:
            given, load = files(entries, SMALL_BATCHES[options.size], folder)
            digests: dict[str, Digest] = {}
            for contestant in (FINAL, PLAIN, *SPARK):
                too_many = contestant in SPARK and entries > SLOW_UP_TO[options.size]
                if too_many or not options.wants(contestant.name):
                    continue
                one = run(spark, contestant, given)
                found.append(timed(one, contestant, entries, load))
                if contestant.answers:
                    digests[contestant.name] = Digest.all(one.digests)
                say(f"  {entries:12,} open  {contestant.label:38} {found[-1].median_s:7.3f} s a batch")
            agreed[str(entries)] = _compared(entries, digests)
            if options.size == "full":
                shutil.rmtree(given)
        return {"agreement": agreed, "found": [asdict(each) for each in found], "bars": judged(found, MOST_RATIO)}


def _compared(entries: int, digests: dict[str, Digest]) -> str:
    if len(set(digests.values())) > 1 or any(each.rows != entries for each in digests.values()):
        raise AssertionError(f"with {entries} entries other rows left: {digests}")
    return f"{entries:,} rows, equal in {', '.join(digests)}"


def judged(found: list[Found], most: float) -> list[dict[str, Any]]:
    """For each contestant, the time of a batch over the most entries relative to the fewest, against `most`."""
    verdicts = []
    for name in dict.fromkeys(each.contestant for each in found):
        mine = [each for each in found if each.contestant == name]
        times = round(mine[-1].median_s / mine[0].median_s, 2)
        verdicts.append({"contestant": name, "times": times, "at_most": most, "of": mine[-1].entries})
        worker, jvm = max(each.worker_mib for each in mine), max(each.jvm_mib for each in mine)
        say(
            f"  {mine[0].label}: {times:.2f} times as long with {mine[-1].entries:,} open as with {mine[0].entries:,};"
            f" worker {worker:,.0f} MiB, JVM {jvm:,.0f} MiB"
        )
    return verdicts


W5 = OpenEntries()
