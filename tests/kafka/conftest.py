"""A broker and a Spark with the connector, for the whole run; without Kafka's jars the tests say so and are skipped."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator

import pytest

pytest.importorskip("pyspark")

from pyspark.sql import SparkSession
from tools.maven import MavenError

from kafka.broker import Broker, jars
from kafka.client import Client
from spark.lookups import remember
from tidegate.runtime.spark.session.config import configure

os.environ.setdefault("PYSPARK_PYTHON", sys.executable)


@pytest.fixture(scope="session")
def broker() -> Iterator[Broker]:
    try:
        found = Broker()
    except MavenError as error:
        pytest.skip(f"no Kafka broker: {error}")
    with found as running:
        yield running


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    try:
        connector = jars("connector")
    except MavenError as error:
        pytest.skip(f"no Kafka connector: {error}")
    builder = (
        SparkSession.builder.master("local[2]")
        .appName("tidegate-kafka-tests")
        .config("spark.jars", ",".join(str(jar) for jar in connector))
        .config("spark.ui.enabled", "false")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.sql.session.timeZone", "UTC")
    )
    session = configure(builder).getOrCreate()
    with pytest.MonkeyPatch.context() as patch:
        remember(patch)
        yield session
        session.stop()


@pytest.fixture(scope="session")
def client(spark: SparkSession, broker: Broker) -> Iterator[Client]:
    with Client(spark, broker.servers) as made:
        yield made
