"""The Spark that tests run on: two cores, two shuffle partitions, RocksDB, UTC, no UI."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pyspark
from pyspark.sql import SparkSession

from tidegate.kernel.tuning import Tuning
from tidegate.runtime.spark.config import configure

QUICK_START = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
"""Of a JVM: a test's query runs for seconds, and compiling it well costs more than it saves."""


SMALL = Tuning(
    slice_rows=3,
    close_rows=4,
    part_rows=2,
    compact_rows=5,
    key_windows=(2, 3),
    part_records=2,
    bucket_rows=3,
    page_logs=3,
    fanout=2,
    root_entries=2,
    bucket_segments=2,
    chunk_rows=2,
    fold_rows=1,
    frame_rows=3,
    list_rows=2,
    part_bytes=700,
)
"""Sizes that a handful of records reaches, in the workers of Spark: `attach.to_df(table.node, tuning=SMALL)`."""


def builder(name: str) -> Any:
    """The builder of such a session under this name."""
    return configure(
        SparkSession.builder.master("local[2]")
        .appName(name)
        .config("spark.ui.enabled", "false")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.sql.streaming.metricsEnabled", "false")
        .config("spark.driver.extraJavaOptions", QUICK_START)
    )


def quick(home: Path) -> dict[str, str]:
    """The environment in which a test starts a process that starts JVMs; `home` is a folder to be made."""
    home.mkdir()
    return {**os.environ, "JAVA_TOOL_OPTIONS": QUICK_START, "SPARK_HOME": str(unzipped(home))}


def unzipped(home: Path) -> Path:
    """A SPARK_HOME without pyspark.zip, in which a JVM is started.

    With it each Python process imports pyspark from there, and compiles a hundred modules that the installed package
    has compiled already. Each operator of a query starts one such process, which takes 0.4 s longer.
    """
    for part in ("bin", "jars"):
        (home / part).symlink_to(Path(pyspark.__file__).parent / part)
    return home
