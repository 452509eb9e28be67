"""Milliseconds of a micro-batch of 1,000 records: tidegate with and without its observed numbers, a stateful Python
operator that does nothing, and Spark's own.

`python -m benchmarks.small_batches`, with `PYTHONPATH=src` where tidegate is not installed. Final windowed totals, all
in turns. Such a batch has little else than costs that do not depend on its rows. Decisions 0062 and 0073 quote the
table. As installed (`--settings as-installed`), Spark's own writes the files of its checkpoint by Spark's defaults.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from statistics import median
from unittest.mock import patch

from pyspark.sql import DataFrame, SparkSession

from benchmarks import bare_operator
from benchmarks.between_tasks import measure
from benchmarks.contestant import Contestant
from benchmarks.inputs import Shape, write
from benchmarks.options import arguments, save, say, session, versions
from benchmarks.workloads.tumbling import OURS, SPARK
from tidegate.runtime.spark import flow
from tidegate.runtime.spark.session.socket_files import ENABLED


def unobserved(contestant: Contestant) -> Contestant:
    """`contestant`, whose numbers nobody observes: `observedMetrics` lacks them."""

    def frame(spark: SparkSession, folder: Path) -> DataFrame:
        with patch.object(flow, "observing", lambda out, *_: out):
            return contestant.frame(spark, folder)

    return replace(contestant, frame=frame)


def main(argv: list[str] | None = None) -> int:
    parser = arguments(argparse.ArgumentParser(description=__doc__), "small_batches.json")
    parser.add_argument("--tcp", action="store_true", help="Spark and Python talk over TCP, not through socket files")
    options = parser.parse_args(argv)
    more = {ENABLED: "false"} if options.tcp else None
    batches, turns = (5, 1) if options.smoke else (50, 5)
    mine = {each.name: each for each in OURS}
    contestants = mine | {f"{name}, not observed": unobserved(each) for name, each in mine.items()}
    contestants |= {each.name: each for each in (bare_operator.CONTESTANT, *SPARK)}
    with tempfile.TemporaryDirectory(prefix="tidegate-bench-") as scratch, session(options, more) as spark:
        files = write(Shape(100, 1_000, batches), Path(scratch))
        found = measure(spark, contestants, files, turns)
        report = {"batches": batches, "ms_a_batch": found, "versions": versions(spark)}
    show(found, [each.name for each in SPARK])
    save(report, options.json)
    return 0


def show(found: Mapping[str, list[float]], sparks_own: list[str]) -> None:
    """Print the median of the turns, and how many times as long as the faster store of Spark it takes in a turn."""
    say(f"  {'':32}{'ms a batch':>11}{'times Spark':>13}")
    for name, took in found.items():
        fastest = [min(found[own][turn] for own in sparks_own) for turn in range(len(took))]
        times = median(mine / least for mine, least in zip(took, fastest, strict=True))
        say(f"  {name:32}{median(took):11.0f}{times:13.2f}")


if __name__ == "__main__":
    raise SystemExit(main())
