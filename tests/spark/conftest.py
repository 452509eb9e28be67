"""One Spark for the whole session: two cores, two shuffle partitions, RocksDB, UTC, no UI."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator

import pytest

pytest.importorskip("pyspark")

from pyspark import cloudpickle
from pyspark.sql import SparkSession

from spark import toys
from tidegate.runtime.spark.config import configure

# Workers cannot import test modules: send the toys themselves.
cloudpickle.register_pickle_by_value(toys)
# Without it workers run the `python3` on PATH, which need not be the one of this environment.
os.environ.setdefault("PYSPARK_PYTHON", sys.executable)


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    builder = (
        SparkSession.builder.master("local[2]")
        .appName("tidegate-tests")
        .config("spark.ui.enabled", "false")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.sql.streaming.metricsEnabled", "false")
        # A test's query runs for seconds: compiling it well costs more than it saves (an eighth of the whole suite).
        .config("spark.driver.extraJavaOptions", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")
    )
    session = configure(builder).getOrCreate()
    yield session
    session.stop()
