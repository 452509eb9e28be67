"""A query while Java compiles its code: milliseconds of a micro-batch, and seconds of Java's compiler, turn by turn.

`python -m benchmarks.warming`, with `PYTHONPATH=src` where tidegate is not installed. Contestants of W1 run again and
again, each in a process of its own. Decision 0064 quotes the table; with `--conf`, decision 0065 does.

`warm_up` runs before the first workload of `make bench`, so that no workload pays for this.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

import psutil
from pyspark.sql import SparkSession

from benchmarks.contestant import FILES, Contestant
from benchmarks.measure import WARM_UP, run
from benchmarks.options import arguments, save, say, session, versions
from benchmarks.race import Race
from benchmarks.two_sides import first, write
from benchmarks.workloads import doors, joins
from benchmarks.workloads.tumbling import OURS, SPARK, W1

SECONDS = 40
"""Seconds for which each contestant of the warm-up runs, at least."""
CONTESTANTS = (*OURS, SPARK[0])
JOIN = next(race for race in joins.J1 if race.name == "J1-inner-1")
LINES = (doors.D1, doors.D3)
CONTESTANTS_OF_LINES = (FILES, SPARK[0].name)
JOINED_BATCHES = 2
"""Micro-batches of a join in the warm-up; Spark's own join takes some twenty seconds for one."""


def warm_up(
    spark: SparkSession, folder: Path, seconds: int, of_joins: bool = False, of_lines: Sequence[Race] = ()
) -> None:
    """Run W1 for at least `seconds` by each of CONTESTANTS. Java is slow until it has compiled the code of Spark.

    `of_joins`: then also JOIN by each contestant that answers it, because a join runs other code. `of_lines`: then also
    these races, whose readers of lines are other code, by CONTESTANTS_OF_LINES.
    """
    if not seconds:
        return
    _for_seconds(spark, W1.name, CONTESTANTS, W1.write("default", folder), seconds)
    if of_joins:
        files = first(write(JOIN.shapes["default"], folder), JOINED_BATCHES)
        _for_seconds(spark, JOIN.name, [each for each in JOIN.contestants if each.answers], files, seconds)
    for race in of_lines:
        chosen = [each for each in race.contestants if each.name in CONTESTANTS_OF_LINES]
        _for_seconds(spark, race.name, chosen, race.write("default", folder), seconds)


def _for_seconds(spark: SparkSession, name: str, contestants: Sequence[Contestant], files: Path, seconds: int) -> None:
    say(f"\nWarm-up by {name}: {len(contestants)} contestants, {seconds} s each")
    for contestant in contestants:
        for_seconds(seconds, partial(run, spark, contestant, files))


def for_seconds(seconds: float, turn: Callable[[], object]) -> None:
    """Call `turn` again and again until `seconds` have passed."""
    began = time.monotonic()
    while time.monotonic() - began < seconds:
        turn()


def main(argv: list[str] | None = None) -> int:
    parser = arguments(argparse.ArgumentParser(description=__doc__), "warming.json")
    parser.add_argument("--data", type=Path, help="keep the generated input here for the next time")
    parser.add_argument("--only", choices=[each.name for each in CONTESTANTS], help="in this process")
    parser.add_argument("--conf", nargs="+", default=[], help="settings of Spark, such as spark.buffer.pageSize=8m")
    options = parser.parse_args(argv)
    if options.only is not None:
        return alone(options)
    given = sys.argv[1:] if argv is None else argv
    for contestant in CONTESTANTS:
        own = options.json.with_stem(f"{options.json.stem}-{contestant.name}")
        more = ["--only", contestant.name, "--json", str(own)]
        subprocess.run([sys.executable, "-m", "benchmarks.warming", *given, *more], check=True)
    return 0


def alone(options: argparse.Namespace) -> int:
    """Measure one contestant, and save its report."""
    size, turns = ("smoke", 2) if options.smoke else ("default", 12)
    (contestant,) = (each for each in CONTESTANTS if each.name == options.only)
    more = dict(setting.split("=", 1) for setting in options.conf)
    with tempfile.TemporaryDirectory(prefix="tidegate-bench-") as scratch, session(options, more) as spark:
        files = W1.write(size, options.data or Path(scratch))
        report: dict[str, Any] = {"turns": [turn(spark, contestant, files) for _ in range(turns)]}
        report["conf"] = {name: spark.conf.get(name) for name in more}
        report["versions"] = versions(spark)
    show(contestant.label, report["turns"])
    save(report, options.json)
    return 0


def turn(spark: SparkSession, contestant: Contestant, files: Path) -> dict[str, float]:
    """Milliseconds of a micro-batch (median), and seconds of a whole run: of Java's compiler, and of the JVM.

    The compiler's seconds are elapsed time of its threads, together; the JVM's are processor time.
    """
    jvm: Any = spark.sparkContext._jvm  # noqa: SLF001 - pyspark has no other door to the clock of the compiler
    compiler = jvm.java.lang.management.ManagementFactory.getCompilationMXBean()
    process = psutil.Process(int(jvm.java.lang.ProcessHandle.current().pid()))

    def spent() -> tuple[float, float]:
        return compiler.getTotalCompilationTime() / 1e3, sum(process.cpu_times()[:2])

    before = spent()
    batches = run(spark, contestant, files).seconds[WARM_UP:]
    after = spent()
    return {
        "ms": round(median(batches) * 1e3),
        "compiler_s": round(after[0] - before[0], 1),
        "java_s": round(after[1] - before[1], 1),
    }


def show(label: str, found: list[dict[str, float]]) -> None:
    """Print a contestant's turns."""
    say(f"\n  {label}")
    say(f"  {'turn':>6}{'ms a batch':>12}{'s of the compiler':>20}{'s of the processor':>20}")
    for number, one in enumerate(found, 1):
        say(f"  {number:>6}{one['ms']:>12.0f}{one['compiler_s']:>20.1f}{one['java_s']:>20.1f}")


if __name__ == "__main__":
    raise SystemExit(main())
