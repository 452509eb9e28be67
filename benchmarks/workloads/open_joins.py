"""J3 and J4: joins in small micro-batches over few and many open records.

J3 has windows much longer than a micro-batch. Open records and keys grow with the window; the pairs of a batch stay the
same, and time should depend only on the batch and its pairs. J4 always has the same window, and nothing closes. Records
that fill the window are loaded first. Then come small batches, which are timed. Then one pair per partition closes all
records, and the emitted rows are compared.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from typing import Any, Protocol

from pyspark.sql import SparkSession

from benchmarks.contestant import Contestant
from benchmarks.join_race import compared, timed
from benchmarks.measure import Digest, Run, run
from benchmarks.options import Options, say
from benchmarks.race import alternate
from benchmarks.two_sides import GRACE_MS, SIDES, Shape, Stretch, write
from benchmarks.workloads.joins import in_memory, on_rocksdb, ours
from benchmarks.workloads.open_entries import SMALL_BATCHES, Found, judged

SMALL_ROWS = 5_000
"""Rows of a side in a timed micro-batch."""
SPAN_MS = 10_000
"""Event time of a timed micro-batch of J3."""
LOAD_ROWS = 500_000
HOW = "left"


@dataclass(frozen=True)
class Point:
    """A number of open records, and an input with them."""

    entries: int
    """Open records of both sides together."""
    shape: Shape
    load: int
    """Number of micro-batches before the timed ones."""


def load(entries: int, span_ms: int) -> Stretch:
    """Micro-batches with `entries` records of both sides together in `span_ms` of event time."""
    of_side = entries // len(SIDES)
    batches = -(-of_side // LOAD_ROWS)
    return Stretch(batches, of_side // batches, span_ms // batches)


def long_window(ratio: int, rows: int, batches: int) -> Point:
    """A window with `ratio` open records for each record of a batch, and a key for each record of a side in it.

    So a record has about two partners with any ratio, one before it and one after it.
    """
    entries = ratio * rows * len(SIDES)
    before = load(entries, ratio * SPAN_MS)
    # A record is open for the window and the grace.
    window_ms = ratio * SPAN_MS - GRACE_MS
    shape = Shape(rows * window_ms // SPAN_MS, window_ms, (before, Stretch(batches, rows, SPAN_MS)))
    return Point(entries, shape, before.batches)


J4_WINDOW_MS, J4_LOAD_MS, J4_SPAN_MS = 3_600_000, 1_800_000, 1_000


def same_window(entries: int, rows: int, batches: int) -> Point:
    """A window of an hour; in half of it `entries` records come; then a record has about one open partner."""
    before = load(entries, J4_LOAD_MS)
    # Records of the small batches stay open too, and matter if `entries` is small: in the middle it is one partner.
    keys = entries // len(SIDES) + rows * batches // 2
    shape = Shape(keys, J4_WINDOW_MS, (before, Stretch(batches, rows, J4_SPAN_MS)))
    return Point(entries, shape, before.batches)


@dataclass(frozen=True)
class OpenJoins:
    """Seconds of a small batch at each of several points; the last may take at most `most` times the first."""

    name: str
    title: str
    point: Callable[[int, int, int], Point]
    """(one of `values`, rows of a side, number of timed micro-batches) -> its point."""
    values: dict[str, tuple[int, ...]]
    slow_up_to: dict[str, int]
    """The most open records for Spark's own join, by the size of the measurement."""
    most: float
    repeat: int = 3
    """Turns of each contestant, unless the command line has `--repeat`."""

    def measure(self, spark: SparkSession, options: Options, folder: Path) -> dict[str, Any]:
        """Run all turns at each point, and return the results as JSON; AssertionError if rows differ."""
        found: list[Found] = []
        agreed = {}
        for value in self.values[options.size]:
            rows = SMALL_ROWS // 50 if options.smoke else SMALL_ROWS
            point = self.point(value, rows, SMALL_BATCHES[options.size])
            files = write(point.shape, folder)
            too_many = point.entries > self.slow_up_to[options.size]
            who = contestants(options, point, too_many)
            for contestant in who if not (options.smoke or found) else ():
                run(spark, contestant, files)  # a turn that is not counted
            here, agreed[str(point.entries)] = at(point, spark, files, who, options.repeat or self.repeat)
            found += here
            for one in here:
                say(f"  {one.entries:12,} open  {one.label:38} {one.median_s:7.3f} s a batch")
            if options.size == "full":
                shutil.rmtree(files)
        bars = [*judged(found, self.most), *against(found)]
        return {"agreement": agreed, "found": [asdict(each) for each in found], "bars": bars}


def contestants(options: Options, point: Point, too_many: bool) -> list[Contestant]:
    window_ms = point.shape.window_ms
    spark = () if too_many else (in_memory(HOW, window_ms, None), on_rocksdb(HOW, window_ms, 4, None))
    return [each for each in (*ours(HOW, window_ms), *spark) if options.wants(each.name)]


class Measured(Protocol):
    """A point to measure."""

    @property
    def entries(self) -> int:
        """Number of entries of the state."""

    @property
    def load(self) -> int:
        """Number of micro-batches before the timed ones."""


def at(
    point: Measured, spark: SparkSession, files: Path, who: list[Contestant], repeat: int
) -> tuple[list[Found], str]:
    whole: dict[str, list[Run]] = {each.name: [] for each in who}

    def once(contestant: Contestant) -> Run:
        one = run(spark, contestant, files)
        whole[contestant.name].append(one)
        return timed(one)

    runs = alternate(who, repeat, once)
    left = compared({each.label: [Digest.all(one.digests) for one in whole[each.name]] for each in who})
    sentence = f"{left.rows:,} rows, equal in {', '.join(whole)}"
    return [together(each, point, runs[each.name]) for each in who], sentence


def together(contestant: Contestant, point: Measured, runs: list[Run]) -> Found:
    """The turns of one contestant as one: the median time of each batch, the largest memory."""
    seconds = [median(of) for of in zip(*(one.seconds[point.load :] for one in runs), strict=True)]
    jvm, worker = (max(getattr(one, of) for one in runs) for of in ("jvm_mib", "worker_mib"))
    return Found(contestant.name, contestant.label, point.entries, seconds, jvm, worker)


def against(found: list[Found], other: str = "spark_rocksdb_4", at_least: float = 1.0) -> list[dict[str, Any]]:
    """For each contestant of tidegate, its speed over the speed of `other`, at the point with the lowest ratio."""
    theirs = {each.entries: each.median_s for each in found if each.contestant == other}
    verdicts = []
    for name in dict.fromkeys(each.contestant for each in found if each.contestant.startswith("tidegate")):
        times = [
            theirs[each.entries] / each.median_s for each in found if each.contestant == name and each.entries in theirs
        ]
        if times:
            verdicts.append(
                {"contestant": name, "others": [other], "times": round(min(times), 2), "at_least": at_least}
            )
            say(f"  {name} is {min(times):.2f} times as fast as {other} where it is the least")
    return verdicts


J3 = OpenJoins(
    "J3",
    "left joins in windows that hold 10, 100 and 1,000 open records for each of a batch of 10 k; seconds a batch",
    long_window,
    {"smoke": (4, 8), "default": (10, 100, 1_000), "full": (10, 100, 1_000)},
    {"smoke": 10_000, "default": 1_000_000, "full": 10_000_000},
    most=2.0,
)
J4 = OpenJoins(
    "J4",
    "left joins in batches of 10 k records with 100 k and 10 M records open; seconds a batch",
    same_window,
    {"smoke": (1_000, 2_000), "default": (100_000, 10_000_000), "full": (100_000, 10_000_000)},
    {"smoke": 10_000, "default": 100_000, "full": 10_000_000},
    most=1.3,
)
