"""The Spark that tests run on: two cores, two shuffle partitions, RocksDB, UTC, no UI."""

from __future__ import annotations

from typing import Any

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
