"""J3 and J4: joins in small micro-batches with few and with many records open.

J3 has windows much longer than a micro-batch: as the window grows, so do the records that are open and the keys, and
the pairs of a batch stay the same. Time should follow the batch and its pairs. In J4 the window is as long throughout
and nothing closes. Records that fill the window are loaded first; then come the small batches, which are timed; then
one pair per partition closes all, and the rows that left are compared.
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
"""Of a side in a micro-batch that is timed."""
SPAN_MS = 10_000
"""How far time moves in it."""
LOAD_ROWS = 500_000
HOW = "left"


@dataclass(frozen=True)
class Point:
    """A number of open records, and the input that has them."""

    entries: int
    """Of both sides together."""
    shape: Shape
    load: int
    """Micro-batches that come before those that are timed."""


def load(entries: int, span_ms: int) -> Stretch:
    """Micro-batches with so many records of both sides together, in so much time."""
    of_side = entries // len(SIDES)
    batches = -(-of_side // LOAD_ROWS)
    return Stretch(batches, of_side // batches, span_ms // batches)


def long_window(ratio: int, rows: int, batches: int) -> Point:
    """A window for which `ratio` records are open for each one of a batch, and a key for each record of a side in it.

    A record has about two partners then, one before it and one behind, whatever the ratio.
    """
    entries = ratio * rows * len(SIDES)
    before = load(entries, ratio * SPAN_MS)
    # A record is open until the window and the grace are over.
    window_ms = ratio * SPAN_MS - GRACE_MS
    shape = Shape(rows * window_ms // SPAN_MS, window_ms, (before, Stretch(batches, rows, SPAN_MS)))
    return Point(entries, shape, before.batches)


J4_WINDOW_MS, J4_LOAD_MS, J4_SPAN_MS = 3_600_000, 1_800_000, 1_000


def same_window(entries: int, rows: int, batches: int) -> Point:
    """Windows of an hour, in half of which so many records come; then a record meets about one that is open."""
    before = load(entries, J4_LOAD_MS)
    # Those of the small batches stay open too, and count where there are few: in the middle of them it is one.
    keys = entries // len(SIDES) + rows * batches // 2
    shape = Shape(keys, J4_WINDOW_MS, (before, Stretch(batches, rows, J4_SPAN_MS)))
    return Point(entries, shape, before.batches)


@dataclass(frozen=True)
class OpenJoins:
    """Seconds of a small batch at each of several points; the last may take at most so many times the first."""

    name: str
    title: str
    point: Callable[[int, int, int], Point]
    """Of one of `values`, with the rows of a side and the micro-batches."""
    values: dict[str, tuple[int, ...]]
    slow_up_to: dict[str, int]
    """How many open records Spark's own is given, by size of the measurement."""
    most: float
    repeat: int = 3
    """Turns of each contestant, unless the command line says how many."""

    def measure(self, spark: SparkSession, options: Options, folder: Path) -> dict[str, Any]:
        """Run all turns at each point, and give what was found as JSON; raises AssertionError if rows differ."""
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
    """What is measured at a point."""

    @property
    def entries(self) -> int:
        """Of the state."""

    @property
    def load(self) -> int:
        """Micro-batches that come before those that are timed."""


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
    told = f"{left.rows:,} rows, equal in {', '.join(whole)}"
    return [together(each, point, runs[each.name]) for each in who], told


def together(contestant: Contestant, point: Measured, runs: list[Run]) -> Found:
    """The turns of one contestant as one: of each batch the median, of memory the most."""
    seconds = [median(of) for of in zip(*(one.seconds[point.load :] for one in runs), strict=True)]
    jvm, worker = (max(getattr(one, of) for one in runs) for of in ("jvm_mib", "worker_mib"))
    return Found(contestant.name, contestant.label, point.entries, seconds, jvm, worker)


def against(found: list[Found], other: str = "spark_rocksdb_4", at_least: float = 1.0) -> list[dict[str, Any]]:
    """Each of ours beside another: how many times as fast, at the point where it is the least."""
    theirs = {each.entries: each.median_s for each in found if each.contestant == other}
    told = []
    for name in dict.fromkeys(each.contestant for each in found if each.contestant.startswith("tidegate")):
        times = [
            theirs[each.entries] / each.median_s for each in found if each.contestant == name and each.entries in theirs
        ]
        if times:
            told.append({"contestant": name, "others": [other], "times": round(min(times), 2), "at_least": at_least})
            say(f"  {name} is {min(times):.2f} times as fast as {other} where it is the least")
    return told


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
