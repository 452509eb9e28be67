"""Random topologies over topics of a real broker: a smoke part of `make test-kafka-random`."""

from __future__ import annotations

import warnings

import pytest

pytest.importorskip("pyspark")
pytest.importorskip("confluent_kafka")
pytest.importorskip("pyspark.sql.streaming.datasource", reason="Spark 4.2 or later")

from pyspark.sql import SparkSession

from hostile.drawn import scenario
from hostile.on_spark import check, stops
from hostile.runs import report
from hostile.topics import CONSUMERS, consumer
from kafka.broker import Broker

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.kafka]

SEEDS = range(1_000)


@pytest.mark.parametrize("clocked", [False, True], ids=["without the wall clock", "with it"])
@pytest.mark.parametrize("name", CONSUMERS)
def test_what_comes_out_is_what_the_oracle_says(spark: SparkSession, broker: Broker, name: str, clocked: bool) -> None:
    warnings.simplefilter("ignore")
    cases = (what for what in (scenario(seed, spark=True) for seed in SEEDS) if what.clocked == clocked)
    found = check(spark, [next(what for what in cases if consumer(what) == name and not stops(what))], broker.servers)
    assert not found, "\n".join(report(finding.what, finding.problem) for finding in found)
