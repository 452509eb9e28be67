"""The command line of a benchmark, its Spark session, and the versions and machine that its report names."""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

import tidegate as tg
from tidegate.runtime.spark.session.config import FASTER

PACKAGES = ("pyspark", "pyarrow", "pandas", "numpy", "protobuf")

AS_INSTALLED, TUNED = "as-installed", "tuned"
SETTINGS = (AS_INSTALLED, TUNED)
"""As installed: the settings of `tg.configure(builder)`, and Spark's defaults. Tuned: also the settings that have a
price (docs/operations.md), the same for all contestants."""

HADOOPS_OWN = {"fs.AbstractFileSystem.file.impl": "org.apache.hadoop.fs.local.LocalFs"}
"""For one query of a session: Spark's default way to write the files of a checkpoint, which starts programs on a local
disk (decision 0072)."""


@dataclass(frozen=True)
class Options:
    """The size of a measurement (smoke, default or full), its turns, and its contestants."""

    size: str = "default"
    repeat: int = 0
    """Turns of each contestant; 0: the workload's own number."""
    contestants: tuple[str, ...] = ()
    """Their names; all if empty."""
    without: tuple[str, ...] = ()
    """The names of contestants to leave out."""

    def wants(self, contestant: str) -> bool:
        return contestant not in self.without and (not self.contestants or contestant in self.contestants)

    @property
    def smoke(self) -> bool:
        return self.size == "smoke"


def size_of(options: argparse.Namespace) -> str:
    """`Options.size`, given `--smoke` and `--full`."""
    return "smoke" if options.smoke else "full" if options.full else "default"


def arguments(parser: argparse.ArgumentParser, results: str) -> argparse.ArgumentParser:
    """`parser` with the options of every benchmark."""
    parser.add_argument("--smoke", action="store_true", help="small enough for a test: are all the parts there?")
    parser.add_argument("--json", type=Path, default=Path("benchmarks/results") / results)
    parser.add_argument("--master", default="local[2]", help="where Spark runs")
    parser.add_argument("--settings", nargs="+", choices=SETTINGS, default=[TUNED], help="of Spark: what a user has")
    parser.add_argument("--memory", default="8g", help="of the driver's JVM")
    return parser


@contextmanager
def session(
    options: argparse.Namespace, more: Mapping[str, str] | None = None, settings: str = ""
) -> Iterator[SparkSession]:
    """The Spark session of all benchmarks, stopped in the end; `more`: further settings of its start.

    `settings` is one of SETTINGS; if left out, the first of `options.settings`.
    """
    tuned = (settings or options.settings[0]) == TUNED
    # By default workers run the `python3` of the PATH.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    builder = (
        SparkSession.builder.master(options.master)
        .appName("tidegate-bench")
        .config("spark.driver.memory", options.memory)
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.sql.streaming.numRecentProgressUpdates", "10000")
    )
    of_tuned = {"spark.ui.enabled": "false"} if tuned else {}
    for name, value in {**of_tuned, **(more or {})}.items():
        builder = builder.config(name, value)
    spark: SparkSession = tg.configure(builder, faster=tuned).getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    # Some contestants leave out partition and offset to show the effect: no warning is needed.
    warnings.filterwarnings("ignore", category=tg.TidegateWarning)
    try:
        yield spark
    finally:
        spark.stop()


def is_tuned(spark: SparkSession) -> bool:
    """Whether a session of a benchmark has tuned settings."""
    return all(spark.conf.get(name, None) == value for name, value in FASTER.items())


def versions(spark: SparkSession) -> dict[str, str]:
    home = os.environ.get("JAVA_HOME")
    java = str(Path(home, "bin", "java")) if home else "java"
    printed = subprocess.run([java, "-version"], capture_output=True, text=True, check=True).stderr
    return {
        "python": platform.python_version(),
        "java": printed.splitlines()[0],
        "tidegate": tg.__version__,
        "commit": commit(),
        "spark": spark.version,
        "cores": str(os.cpu_count()),
        "platform": platform.platform(),
        **{name: version(name) for name in PACKAGES},
    }


def commit() -> str:
    """The commit of the working tree, with "-dirty" behind it if a file differs; empty without git."""
    asked = ["git", "describe", "--always", "--dirty", "--exclude", "*"]
    try:
        here = Path(__file__).parent
        return subprocess.run(asked, capture_output=True, text=True, check=True, cwd=here).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return ""


def save(report: dict[str, Any], path: Path) -> None:
    keep(report, path)
    say(f"All numbers, versions and settings: {path}")


def keep(report: dict[str, Any], path: Path) -> None:
    """Write the report in one step: a run that is killed leaves the one before."""
    path.parent.mkdir(parents=True, exist_ok=True)
    beside = path.with_suffix(".part")
    beside.write_text(json.dumps(report, indent=1) + "\n")
    beside.replace(path)


def say(line: str) -> None:
    print(line, flush=True)
