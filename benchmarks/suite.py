"""All workloads that need only the package: tidegate against the queries that a PySpark user would run instead.

`make bench` runs all workloads but the joins, `make bench BENCH_ARGS="--only W3"` some of them, `--smoke` a trial,
`--full` the larger sizes. Joins run only by name: `--only J1` or, one race of it, `--only J1-left-1`. `make bench`
measures with Spark's settings as installed, and with tuned settings (`--settings tuned`: these alone). The report is
saved after each workload, and a run with `--resume` measures those that it lacks.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Protocol

from pyspark.sql import SparkSession

from benchmarks.measure import WARM_UP
from benchmarks.options import Options, arguments, keep, save, say, session, size_of, versions
from benchmarks.resuming import COLUMNS, begin, measured_on
from benchmarks.warming import LINES, SECONDS, warm_up
from benchmarks.workloads import (
    doors,
    functions,
    gaps,
    hopping,
    joins,
    large_table,
    latency,
    open_entries,
    open_joins,
    sessions,
    sliding,
    startup,
    time_limit,
    tumbling,
    updates,
    varied,
)


class Workload(Protocol):
    """A workload: its name, its title, and its measurement, which returns JSON."""

    @property
    def name(self) -> str: ...

    @property
    def title(self) -> str: ...

    def measure(self, spark: SparkSession, options: Options, folder: Path) -> dict[str, Any]: ...


WORKLOADS: tuple[Workload, ...] = (
    tumbling.W1,
    tumbling.W2,
    hopping.W3,
    sessions.W4,
    open_entries.W5,
    time_limit.W6,
    updates.W9,
    latency.W10,
    functions.W11,
    sliding.W12,
    gaps.W13,
    doors.D1,
    doors.D2,
    doors.D3,
    startup.START,
    *varied.VARIED,
)
JOINS: tuple[Workload, ...] = (*joins.J1, joins.J1_HOT, joins.J2, open_joins.J3, open_joins.J4, large_table.J6)
"""These run only by name: in each of them Spark's own join takes many minutes."""


def main(argv: list[str] | None = None) -> int:
    parser = arguments(argparse.ArgumentParser(prog="make bench", description=__doc__), "suite.json")
    choices(parser, (*WORKLOADS, *JOINS))
    parser.add_argument("--warm-up", type=int, default=SECONDS, help="seconds of each contestant before all workloads")
    parser.add_argument("--contestants", nargs="+", default=[], help="by name, as the JSON has them; all if left out")
    options = parser.parse_args(argv)
    workloads = (*WORKLOADS, *JOINS) if options.only else WORKLOADS
    seconds = 0 if options.smoke else options.warm_up
    return carry_out(workloads, options, tuple(options.contestants), warm_up_seconds=seconds)


def choices(parser: argparse.ArgumentParser, workloads: tuple[Workload, ...]) -> None:
    """Add the options that choose among `workloads` and their sizes."""
    names = dict.fromkeys(name for each in workloads for name in (family(each.name), each.name))
    parser.add_argument("--only", nargs="+", choices=list(names), default=[], help="workloads")
    parser.add_argument("--repeat", type=int, default=0, help="turns of each contestant, over all workloads")
    parser.add_argument("--without", nargs="+", default=[], help="contestants by name, as the JSON has them")
    parser.add_argument("--full", action="store_true", help="the larger sizes (an hour)")
    parser.add_argument("--resume", action="store_true", help="keep what the report has, and measure the rest")
    parser.add_argument("--data", type=Path, help="keep the generated input here for the next time")


def family(name: str) -> str:
    """The name that chooses several workloads together: J1 chooses J1-inner-1, J1-left-1 and so on."""
    return name.partition("-")[0]


def carry_out(
    workloads: tuple[Workload, ...],
    options: argparse.Namespace,
    contestants: tuple[str, ...],
    more: Mapping[str, str] | None = None,
    warm_up_seconds: int = 0,
) -> int:
    """Measure the chosen `workloads`, and save the report after each; `more`: further settings of Spark. Returns 0.

    ResumeError: the report that the run should resume was measured otherwise.
    """
    chosen = Options(
        size_of(options),
        1 if options.smoke else options.repeat,
        contestants,
        tuple(options.without),
    )
    picked = [
        each for each in workloads if not options.only or each.name in options.only or family(each.name) in options.only
    ]
    report = begin(options.json, settings(options))
    with tempfile.TemporaryDirectory(prefix="tidegate-bench-input-") as scratch:
        folder = options.data or Path(scratch)
        for of_spark in options.settings:
            found = report[COLUMNS[of_spark]]
            left = [each for each in picked if each.name not in found]
            say(f"\nSettings of Spark: {of_spark}; {len(left)} of {len(picked)} workloads to measure")
            if not left:
                continue
            began = time.monotonic()
            with session(options, more, of_spark) as spark:
                measured_on(report, options.json, versions(spark))
                of_lines = [each for each in LINES if each in left]
                warm_up(spark, folder, warm_up_seconds, any(each in JOINS for each in left), of_lines)
                for number, each in enumerate(left, 1):
                    say(f"\n{each.name}  {each.title} ({number} of {len(left)}, {of_spark})")
                    found[each.name] = measured(spark, each, chosen, folder)
                    report["seconds"] += round(time.monotonic() - began)
                    began = time.monotonic()
                    keep(report, options.json)
    say(f"\nWhole run: {report['seconds']} s.")
    save(report, options.json)
    return 0


def measured(spark: SparkSession, workload: Workload, options: Options, folder: Path) -> dict[str, Any]:
    began = time.monotonic()
    found = workload.measure(spark, options, folder)
    day = datetime.now(UTC).date().isoformat()
    return {"title": workload.title, **found, "day": day, "seconds": round(time.monotonic() - began)}


def settings(options: argparse.Namespace) -> dict[str, Any]:
    chosen = {name: value for name, value in vars(options).items() if name not in ("json", "data")}
    return {**chosen, "warm_up_batches": WARM_UP, "shuffle_partitions": 2}


if __name__ == "__main__":
    raise SystemExit(main())
