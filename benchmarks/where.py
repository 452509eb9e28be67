"""Splits the time of a micro-batch: scan, Arrow, packing, shuffle, state, kernel, and Spark's work around them.

Each contestant of tidegate runs once to warm up and once with clocks in its workers (`benchmarks/clocked.py`). Both
runs must emit the same rows, if races compare its rows. Spark's event log has the other times. The table has the
micro-batch of median time and the slowest one; the JSON has all. `make bench-where` measures all workloads,
`BENCH_ARGS="--only W1 W3"` some of them, `--smoke` is a trial; `make bench-page` draws them.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from benchmarks import event_log, two_sides
from benchmarks.clock import Record
from benchmarks.clocked import clocked, records
from benchmarks.contestant import Contestant
from benchmarks.event_log import Execution, Key
from benchmarks.inputs import Shape, write
from benchmarks.join_race import JoinRace
from benchmarks.measure import WARM_UP, Digest, digest, finished, progress_of, run
from benchmarks.options import arguments, save, say, session, size_of, versions
from benchmarks.race import Race
from benchmarks.split import WHOLE, as_json, dearest_of, median_of, split
from benchmarks.warming import SECONDS, warm_up
from benchmarks.workloads import (
    doors,
    functions,
    hopping,
    joins,
    open_entries,
    sessions,
    sliding,
    time_limit,
    tumbling,
    updates,
    varied,
)

OPEN = {"smoke": 2_000, "default": 1_000_000, "full": 10_000_000}
"""Entries of W5."""
FEW = {"smoke": (4, 2), "default": (60, 30), "full": (120, 60)}
"""Number of micro-batches with few records, and the first one that counts: Java compiles during dozens of them."""


@dataclass(frozen=True)
class Work:
    """A workload; `write(size, folder)` returns its files and the first micro-batch that counts."""

    name: str
    title: str
    write: Callable[[str, Path], tuple[Path, int]]
    contestants: tuple[Contestant, ...]
    behind: int = 0
    """Number of micro-batches at the end that do not count."""


@dataclass(frozen=True)
class Ran:
    """A clocked run: Spark's progress of the micro-batches that count, and the clocks of its tasks by task id."""

    work: Work
    contestant: Contestant
    progress: list[dict[str, Any]]
    records: dict[int, Record]


def of_race(race: Race) -> Work:
    return Work(race.name, race.title, lambda size, folder: (race.write(size, folder), WARM_UP), ours_of(race))


def ours_of(race: Race | JoinRace) -> tuple[Contestant, ...]:
    """The contestants of tidegate in a race but `tidegate_unordered`, which differs only in sorting."""
    ours = (each for each in race.contestants if each.name.startswith("tidegate") and "unordered" not in each.name)
    return tuple(ours)


def of_join(race: JoinRace) -> Work:
    """The contestants of tidegate in a race of joins, without the micro-batch that closes all."""

    def files(size: str, folder: Path) -> tuple[Path, int]:
        return two_sides.write(race.shapes[size], folder), WARM_UP

    return Work(race.name, race.title, files, ours_of(race), behind=1)


def open_files(size: str, folder: Path) -> tuple[Path, int]:
    files, load = open_entries.files(OPEN[size], open_entries.SMALL_BATCHES[size], folder)
    return files, load + open_entries.WARM_UP


def few_files(size: str, folder: Path) -> tuple[Path, int]:
    """Micro-batches with so few records that they show the fixed cost of a micro-batch."""
    batches, first = FEW[size]
    return write(Shape(100, 1_000, batches), folder), first


def limit_files(size: str, folder: Path) -> tuple[Path, int]:
    return time_limit.write(time_limit.SIZES[size], folder), WARM_UP


WORKS = (
    of_race(tumbling.W1),
    of_race(tumbling.W2),
    of_race(hopping.W3),
    of_race(sessions.W4),
    Work("W5", "batches of 10 k records with many entries open", open_files, (open_entries.FINAL, open_entries.PLAIN)),
    Work("W6", time_limit.W6.title, limit_files, (*time_limit.UNBOUNDED, time_limit.BOUNDED)),
    of_race(updates.W9),
    of_race(functions.W11),
    of_race(sliding.W12),
    of_race(doors.D1),
    of_race(doors.D3),
    Work("EMPTY", "W1 in micro-batches of 1,000 records", few_files, ours_of(tumbling.W1)),
    *(of_race(race) for race in varied.VARIED if race.name in ("V-partitions-2", "V-partitions-16")),
    *(of_join(race) for race in (*joins.J1, joins.J2) if race.name in ("J1-inner-1", "J1-inner-5", "J1-left-1", "J2")),
)


def main(argv: list[str] | None = None) -> int:
    parser = arguments(argparse.ArgumentParser(prog="make bench-where", description=__doc__), "where.json")
    parser.add_argument("--only", nargs="+", choices=[work.name for work in WORKS], default=[], help="workloads")
    parser.add_argument("--full", action="store_true", help="the larger sizes")
    parser.add_argument("--contestants", nargs="+", default=[], help="by name, as the JSON has them; all if left out")
    options = parser.parse_args(argv)
    size = size_of(options)
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="tidegate-bench-where-") as scratch:
        folder = Path(scratch)
        (folder / "log").mkdir()
        with session(options, event_log.settings(folder / "log")) as spark:
            warm_up(spark, folder / "in", 0 if options.smoke else SECONDS)
            ran = [
                each
                for work in WORKS
                if not options.only or work.name in options.only
                for each in runs(spark, work, size, options.contestants, folder)
            ]
            of = versions(spark)
        # The log is complete only after the session.
        found = reported(ran, event_log.executions(folder / "log"))
    chosen = {"smoke": options.smoke, "full": options.full, "only": options.only, "contestants": options.contestants}
    report = {"workloads": found, "settings": chosen, "versions": of, "seconds": round(time.monotonic() - began)}
    save(report, options.json)
    return 0


def runs(spark: SparkSession, work: Work, size: str, chosen: list[str], folder: Path) -> list[Ran]:
    say(f"\n{work.name}  {work.title}")
    contestants = [each for each in work.contestants if not chosen or each.name in chosen]
    files, first = work.write(size, folder / "in") if contestants else (folder, 0)
    return [ran(spark, work, each, files, first, folder / f"{work.name}-{each.name}") for each in contestants]


def ran(spark: SparkSession, work: Work, contestant: Contestant, files: Path, first: int, folder: Path) -> Ran:
    """Run `contestant` without and with clocks; AssertionError if the rows of both runs differ."""
    plain = run(spark, contestant, files)
    with finished(spark, clocked(contestant, folder), files, format="noop") as query:
        progress = progress_of(query)
    if (got := Digest.all([digest(each) for each in progress])) != Digest.all(plain.digests):
        raise AssertionError(f"{contestant.label}: with clocks {got}, without {plain.digests}")
    compared = f"{got.rows:,} rows in both runs" if contestant.answers else "rows not compared"
    say(f"  {contestant.label:40} {compared}")
    with_input = [each for each in progress if each["numInputRows"] > 0]
    return Ran(work, contestant, with_input[first : len(with_input) - work.behind], records(folder))


def reported(runs: list[Ran], executions: dict[Key, Execution]) -> dict[str, Any]:
    """Print the table of each workload, and return the parts of every micro-batch as JSON."""
    found: dict[str, Any] = {}
    for one in runs:
        of_work = found.setdefault(one.work.name, {"title": one.work.title, "contestants": {}})
        batches = [batch(each, executions, one.records) for each in one.progress]
        of_work["contestants"][one.contestant.name] = {"label": one.contestant.label, "batches": batches}
    for name, of_work in found.items():
        say(f"\n{name}  ms of the median batch, of the dearest")
        for contestant in of_work["contestants"].values():
            show(contestant)
    return found


def batch(progress: dict[str, Any], executions: dict[Key, Execution], records: dict[int, Record]) -> dict[str, Any]:
    parts = split(progress["durationMs"], executions[progress["runId"], progress["batchId"]], records)
    return {"batch": progress["batchId"], "ms": progress["durationMs"][WHOLE], "parts": as_json(parts)}


def show(contestant: dict[str, Any]) -> None:
    both = [pick(contestant["batches"]) for pick in (median_of, dearest_of)]
    say(f"  {contestant['label']:44}" + "".join(f"{one['ms']:9,}" for one in both))
    for parts in zip(*(one["parts"] for one in both), strict=True):
        (where, name, _) = parts[0]
        if any(round(ms) for *_, ms in parts):
            say(f"    {where:9} {name:32}" + "".join(f"{ms:9,.0f}" for *_, ms in parts))


if __name__ == "__main__":
    raise SystemExit(main())
