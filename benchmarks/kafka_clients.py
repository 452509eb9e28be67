"""The cost of a record in Spark's Kafka connector, by settings of Kafka's consumer and producer.

`python -m benchmarks.kafka_clients`, with `PYTHONPATH=src:.` where tidegate is not installed. A real broker and a topic
of four partitions. The records are the rows of W9 as `tg.kafka.records` makes them: written from memory, JSON already,
and read into a sink that writes nothing. Settings take turns. The broker works on the same processors, so its work is
in the numbers. docs/kafka.md and decision 0071 quote the tables.
"""

from __future__ import annotations

import argparse
import tempfile
from functools import partial
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, DataFrameWriter, SparkSession
from tests.kafka.broker import Broker
from tests.kafka.client import Client

import tidegate as tg
from benchmarks.in_turns import medians
from benchmarks.options import arguments, save, say, session, size_of, versions
from benchmarks.peers.over_kafka import BROKER, BROKER_JVM, connector
from benchmarks.peers.topics import PARTITIONS
from benchmarks.records_of_results import KEY, rows, seconds, to_nothing
from tidegate.runtime.spark.kafka.subscription import CONSUMER

ROWS = {"smoke": 10_000, "default": 1_000_000, "full": 5_000_000}
FEW = 1_000
"""Records of a small topic."""
TASKS, TURNS = 2, 5

POLLS = (500, 1_000, 2_000, 5_000, 10_000)
WAIT = {"kafka.fetch.max.wait.ms": "10"}
READ: dict[str, dict[str, str]] = {
    "Spark's connector without options": {},
    **{f"no waits, {polled:,} records a poll": {**WAIT, "kafka.max.poll.records": str(polled)} for polled in POLLS},
    "tg.kafka.source without options": CONSUMER,
}
LARGE_BATCHES = {"kafka.linger.ms": "100", "kafka.batch.size": "262144"}
WRITTEN: dict[str, dict[str, str]] = {
    "without options": {},
    "large batches": LARGE_BATCHES,
    **{kind: {"kafka.compression.type": kind} for kind in ("lz4", "snappy", "zstd", "gzip")},
    "lz4, large batches": {"kafka.compression.type": "lz4", **LARGE_BATCHES},
}


class Topics:
    """Topics of one broker, read and written by Spark's connector."""

    def __init__(self, spark: SparkSession, broker: Broker, client: Client) -> None:
        self._spark, self._broker, self._client = spark, broker, client

    def new(self) -> str:
        return self._client.topic(PARTITIONS)

    def remove(self, topic: str) -> None:
        self._client.remove(topic)

    def writer(self, frame: DataFrame, topic: str, settings: dict[str, str]) -> DataFrameWriter:
        to = {**settings, "kafka.bootstrap.servers": self._broker.servers, "topic": topic}
        return frame.write.format("kafka").options(**to)

    def read(self, topic: str, settings: dict[str, str]) -> DataFrame:
        of = {**settings, "kafka.bootstrap.servers": self._broker.servers, "subscribe": topic}
        whole = self._spark.read.format("kafka").options(**of).load()
        return whole.select("value", "partition", "offset", "timestamp")

    def bytes(self, topic: str) -> int:
        """Bytes of a topic's records at the broker."""
        return sum(log.stat().st_size for log in self._broker.data.glob(f"{topic}-*/*.log"))


def held(spark: SparkSession, count: int, folder: Path) -> DataFrame:
    """The records of `count` rows, in the memory of Spark."""
    tg.kafka.records(rows(spark, count, folder), key=KEY, name="a").write.parquet(str(folder / "records"))
    frame = spark.read.parquet(str(folder / "records")).cache()
    frame.count()
    return frame


def reading(topics: Topics, frame: DataFrame, turns: int) -> dict[str, float]:
    """Median seconds in which Spark reads the records of `frame` from a topic, by settings."""
    topic = topics.new()
    topics.writer(frame, topic, {}).save()
    found = medians({name: partial(to_nothing, topics.read(topic, of)) for name, of in READ.items()}, turns)
    topics.remove(topic)
    return found


def writing(topics: Topics, frame: DataFrame, turns: int) -> dict[str, dict[str, float]]:
    """Median seconds by settings, less those of a sink that writes nothing, and the bytes of the topic."""
    size = {}

    def written(name: str) -> float:
        topic = topics.new()
        took = seconds(topics.writer(frame, topic, WRITTEN[name]))
        size[name] = topics.bytes(topic)
        topics.remove(topic)
        return took

    took = medians({"": partial(to_nothing, frame), **{name: partial(written, name) for name in WRITTEN}}, turns)
    return {name: {"seconds": took[name] - took[""], "bytes": size[name]} for name in WRITTEN}


def main(argv: list[str] | None = None) -> int:
    parser = arguments(argparse.ArgumentParser(description=__doc__), "kafka-clients.json")
    parser.add_argument("--full", action="store_true", help="more records")
    options = parser.parse_args(argv)
    count, turns = ROWS[size_of(options)], 1 if options.smoke else TURNS
    with (
        session(options, connector()) as spark,
        tempfile.TemporaryDirectory() as folder,
        Broker(BROKER_JVM, BROKER) as broker,
        Client(spark, broker.servers) as client,
    ):
        topics, frame = Topics(spark, broker, client), held(spark, count, Path(folder))
        many, few = reading(topics, frame, turns), reading(topics, frame.limit(FEW).repartition(TASKS), turns)
        out = writing(topics, frame, turns)
        report: dict[str, Any] = {"records": count, "read": many, "read_few": few, "written": out}
        report |= {"versions": versions(spark)}
    say(f"read: {count:,} records, and {FEW:,}")
    for name, took in many.items():
        say(f"  {name:34}{took:7.3f} s  {TASKS * took / count * 1e6:6.2f} µs of a core per record  {few[name]:7.3f} s")
    say(f"written: {count:,} records")
    for name, each in out.items():
        per_record = TASKS * each["seconds"] / count * 1e6
        size = each["bytes"] / count
        say(f"  {name:34}{each['seconds']:7.3f} s  {per_record:6.2f} µs of a core per record  {size:6.0f} bytes each")
    save(report, options.json)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
