"""Milliseconds of a micro-batch with each setting that a running session may change.

`python -m benchmarks.switches`, with `PYTHONPATH=src` where tidegate is not installed. W1, and the same query over
batches of 1,000 records, by `tg.files.source` and by Spark's own aggregation. The settings take turns in one session,
which is otherwise as installed.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from pyspark.sql import SparkSession

from benchmarks.between_tasks import measure
from benchmarks.contestant import FILES, Contestant
from benchmarks.inputs import Shape, write
from benchmarks.options import AS_INSTALLED, HADOOPS_OWN, arguments, save, say, session, versions
from benchmarks.warming import SECONDS, warm_up
from benchmarks.workloads.tumbling import OURS, SPARK, W1
from tidegate.runtime.spark.session.config import FASTER

SWITCHES: Mapping[str, Mapping[str, str]] = {
    AS_INSTALLED: {},
    "no checksum files": FASTER,
    "files of a checkpoint by Hadoop alone": HADOOPS_OWN,
    "both": {**FASTER, **HADOOPS_OWN},
}


@dataclass(frozen=True)
class Switched(Contestant):
    """A contestant with these settings alone, whatever others of its kind have as installed."""

    def settings_in(self, spark: SparkSession) -> dict[str, str]:
        return self.settings


def switched(contestant: Contestant, settings: Mapping[str, str]) -> Contestant:
    return Switched(**{**vars(contestant), "settings": {**contestant.settings, **settings}})


def main(argv: list[str] | None = None) -> int:
    parser = arguments(argparse.ArgumentParser(description=__doc__), "switches.json")
    parser.set_defaults(settings=[AS_INSTALLED])
    options = parser.parse_args(argv)
    size, turns, batches = ("smoke", 1, 5) if options.smoke else ("default", 4, 30)
    (ours,) = (each for each in OURS if each.name == FILES)
    contestants = {
        f"{each.name}, {name}": switched(each, settings)
        for each in (ours, SPARK[0])
        for name, settings in SWITCHES.items()
    }
    with tempfile.TemporaryDirectory(prefix="tidegate-bench-") as scratch, session(options) as spark:
        warm_up(spark, Path(scratch), 0 if options.smoke else SECONDS)
        inputs = {
            W1.name: W1.write(size, Path(scratch)),
            "1,000 records": write(Shape(1_000, 1_000, batches), Path(scratch)),
        }
        found = {name: measure(spark, contestants, files, turns) for name, files in inputs.items()}
        report = {"ms_a_batch": found, "versions": versions(spark)}
    for workload, by_contestant in found.items():
        say(f"{workload}, ms a batch:")
        for name, took in by_contestant.items():
            say(f"  {name:54}{median(took):6.0f} ({min(took):.0f} to {max(took):.0f})")
    save(report, options.json)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
