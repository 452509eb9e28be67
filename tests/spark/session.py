"""The Spark that tests run on: two cores, two shuffle partitions, RocksDB, UTC, no UI."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyspark
from pyspark.sql import SparkSession

from tidegate.runtime.spark.config import configure


def builder(name: str) -> Any:
    """The builder of such a session under this name."""
    return configure(
        SparkSession.builder.master("local[2]")
        .appName(name)
        .config("spark.ui.enabled", "false")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.sql.streaming.metricsEnabled", "false")
        # A test's query runs for seconds: compiling it well costs more than it saves (an eighth of the whole suite).
        .config("spark.driver.extraJavaOptions", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")
    )


def unzipped(home: Path) -> Path:
    """A SPARK_HOME without pyspark.zip, in which a JVM is started.

    With it each Python process imports pyspark from there, and compiles a hundred modules that the installed package
    has compiled already. Each operator of a query starts one such process, which takes 0.4 s longer.
    """
    for part in ("bin", "jars"):
        (home / part).symlink_to(Path(pyspark.__file__).parent / part)
    return home
