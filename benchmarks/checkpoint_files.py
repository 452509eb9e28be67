"""Milliseconds that a small file of a checkpoint costs on a local disk, by the ways that Spark, Hadoop and Java offer.

`python -m benchmarks.checkpoint_files`, with `PYTHONPATH=src` where tidegate is not installed. Each way has a process
of its own, because Java reads such settings once; the processes take turns. Decisions 0066 and 0072 quote the table.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

from pyspark.sql import SparkSession

from benchmarks.options import AS_INSTALLED, HADOOPS_OWN, arguments, save, say, session, versions
from tidegate.runtime.spark.session.installed import checkpointing

FILES, SMOKE_FILES = 300, 5


SPARKS_DEFAULT = {f"spark.hadoop.{name}": value for name, value in HADOOPS_OWN.items()}
"""One class of Hadoop's that is named keeps those of tidegate away."""


class Way(NamedTuple):
    """Spark's class for files of checkpoints, and the settings of a session that uses the class."""

    manager: str = "FileContextBasedCheckpointFileManager"
    settings: Mapping[str, str] = {}


WAYS: Mapping[str, Way] = {
    "tidegate's classes, as installed": Way(),
    "Spark's default": Way(settings=SPARKS_DEFAULT),
    "programs started by vfork": Way(
        settings={**SPARKS_DEFAULT, "spark.driver.extraJavaOptions": "-Djdk.lang.Process.launchMechanism=VFORK"}
    ),
    "no checksum files of Hadoop": Way(settings=dict.fromkeys(SPARKS_DEFAULT, "org.apache.hadoop.fs.local.RawLocalFs")),
    "files renamed by Hadoop's FileSystem": Way("FileSystemBasedCheckpointFileManager", SPARKS_DEFAULT),
}


def main(argv: list[str] | None = None) -> int:
    parser = arguments(argparse.ArgumentParser(description=__doc__), "checkpoint-files.json")
    parser.set_defaults(settings=[AS_INSTALLED])
    parser.add_argument("--only", choices=list(WAYS), help="in this process")
    options = parser.parse_args(argv)
    if options.only is not None:
        return alone(options)
    given = sys.argv[1:] if argv is None else argv
    once = list(enumerate(WAYS))
    for turn, (number, name) in enumerate(once if options.smoke else once + once[::-1]):
        own = options.json.with_stem(f"{options.json.stem}-{number}-{turn}")
        subprocess.run(
            [sys.executable, "-m", "benchmarks.checkpoint_files", *given, "--only", name, "--json", str(own)],
            check=True,
        )
    return 0


def alone(options: argparse.Namespace) -> int:
    """Measure one way, and save its report."""
    way, files = WAYS[options.only], SMOKE_FILES if options.smoke else FILES
    with tempfile.TemporaryDirectory(prefix="tidegate-bench-") as scratch, session(options, way.settings) as spark:
        manager = manager_of(spark, way.manager, Path(scratch))
        took = [milliseconds(spark, manager, Path(scratch, str(number)), b"first") for number in range(files)]
        milliseconds(spark, manager, Path(scratch, "0"), b"second")
        kept = Path(scratch, "0").read_text()
        report: dict[str, Any] = {"way": options.only, "ms_a_file": took, "kept": kept, "versions": versions(spark)}
    say(f"  {options.only:40}{median(took):6.1f} ms a file; of two files of one name the {kept} stays")
    save(report, options.json)
    return 0


def manager_of(spark: SparkSession, name: str, folder: Path) -> Any:
    """Spark's manager of checkpoint files in a folder, by the name of its class."""
    found: Any = spark.sparkContext._jvm  # noqa: SLF001 - pyspark has no other door to the classes of Spark
    for part in f"{checkpointing()}.{name}".split("."):
        found = getattr(found, part)
    return found(path_of(spark, folder), spark.sparkContext._jsc.hadoopConfiguration())  # noqa: SLF001


def path_of(spark: SparkSession, path: Path) -> Any:
    jvm: Any = spark.sparkContext._jvm  # noqa: SLF001
    return jvm.org.apache.hadoop.fs.Path(path.as_uri())


def milliseconds(spark: SparkSession, manager: Any, path: Path, content: bytes) -> float:
    """Write a file as Spark writes those of a checkpoint: under another name first."""
    began = time.perf_counter()
    stream = manager.createAtomic(path_of(spark, path), True)
    stream.write(bytearray(content))
    stream.close()
    return (time.perf_counter() - began) * 1e3


if __name__ == "__main__":
    raise SystemExit(main())
