"""Milliseconds of a micro-batch with each setting that has a price and that a running session may change.

`python -m benchmarks.switches`, with `PYTHONPATH=src` where tidegate is not installed. W1 by `tg.files.source` and by
Spark's own aggregation. The settings take turns in one session, which is otherwise as installed.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from statistics import median

from pyspark.sql import DataFrame, SparkSession

from benchmarks.between_tasks import measure
from benchmarks.contestant import FILES, Contestant
from benchmarks.options import AS_INSTALLED, FILES_WITHOUT_FORKS, arguments, save, say, session, versions
from benchmarks.warming import SECONDS, warm_up
from benchmarks.workloads.tumbling import OURS, SPARK, W1
from tidegate.runtime.spark.session.config import FASTER

BOTH = {**FASTER, **FILES_WITHOUT_FORKS}
SWITCHES: Mapping[str, Mapping[str, str]] = {
    AS_INSTALLED: {},
    "no checksum files": FASTER,
    "files renamed by Hadoop's FileSystem": FILES_WITHOUT_FORKS,
    "both": BOTH,
}


def switched(contestant: Contestant, settings: Mapping[str, str]) -> Contestant:
    """`contestant` in a session with `settings`, and with none of the other switches."""

    def frame(spark: SparkSession, folder: Path) -> DataFrame:
        for name in BOTH:
            if name in settings:
                spark.conf.set(name, settings[name])
            else:
                spark.conf.unset(name)
        return contestant.frame(spark, folder)

    return replace(contestant, frame=frame)


def main(argv: list[str] | None = None) -> int:
    parser = arguments(argparse.ArgumentParser(description=__doc__), "switches.json")
    parser.set_defaults(settings=[AS_INSTALLED])
    options = parser.parse_args(argv)
    size, turns = ("smoke", 1) if options.smoke else ("default", 4)
    (ours,) = (each for each in OURS if each.name == FILES)
    contestants = {
        f"{each.name}, {name}": switched(each, settings)
        for each in (ours, SPARK[0])
        for name, settings in SWITCHES.items()
    }
    with tempfile.TemporaryDirectory(prefix="tidegate-bench-") as scratch, session(options) as spark:
        warm_up(spark, Path(scratch), 0 if options.smoke else SECONDS)
        found = measure(spark, contestants, W1.write(size, Path(scratch)), turns)
        report = {"ms_a_batch": found, "versions": versions(spark)}
    for name, took in found.items():
        say(f"  {name:54}{median(took):6.0f} ms a batch ({min(took):.0f} to {max(took):.0f})")
    save(report, options.json)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
