"""The cost of reading a topic of a real broker into rows in a Python worker, with each consumer.

`python -m benchmarks.consuming`, with `PYTHONPATH=src:.` where tidegate is not installed. The records of W7; the
broker's own work is measured too.
"""

from __future__ import annotations

import argparse
import tempfile
from statistics import median
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from tests.kafka.broker import Broker
from tests.kafka.client import Client

import tidegate as tg
from benchmarks.decoding import counted
from benchmarks.inputs import Shape
from benchmarks.measure import progress_of
from benchmarks.options import arguments, save, say, session, size_of, versions
from benchmarks.peers.ours import CONSUMER
from benchmarks.peers.over_kafka import BROKER, BROKER_JVM, connector
from benchmarks.peers.topics import Topics, records_of
from benchmarks.workloads import tumbling
from tidegate.runtime.spark.frames.arrow import arrow_schema
from tidegate.runtime.spark.row_decoder import Counts

CORES, TURNS = 2, 5
COLUMNS = ["user", "amount", "kafka_timestamp", "partition", "offset"]


def rows_of(topics: Topics, shape: Shape, consumer: str) -> DataFrame:
    """A stream of the number of rows (`rows`) of each worker, in micro-batches of `shape.rows` records."""
    source = tg.kafka.source(
        topics.spark,
        topics.servers,
        topics.input(shape),
        key="user",
        value="amount long",
        consumer=consumer,
        options={**CONSUMER[consumer], "maxOffsetsPerTrigger": str(shape.rows)},
    )
    fields = arrow_schema(source.frame.schema)
    frame, row_decoder = source.node.undecoded.for_workers(pa.schema([fields.field(name) for name in COLUMNS]))
    return frame.mapInArrow(lambda batches: counted(row_decoder.rows(batches, Counts())), "rows long")


def seconds(frame: DataFrame) -> float:
    """Median seconds of a micro-batch (`addBatch`), without the first and the last if there are more than two."""
    with tempfile.TemporaryDirectory() as checkpoint:
        query = frame.writeStream.format("noop").option("checkpointLocation", checkpoint).trigger(availableNow=True)
        running = query.start()
        running.awaitTermination()
        took = [each["durationMs"]["addBatch"] / 1000 for each in progress_of(running)]
    return median(took[1:-1] or took)


def measure(spark: SparkSession, shape: Shape, turns: int) -> dict[str, list[float]]:
    """Seconds of a micro-batch in each turn, by consumer; consumers take turns, and the first turn is not counted."""
    found: dict[str, list[float]] = {consumer: [] for consumer in CONSUMER}
    with Broker(BROKER_JVM, BROKER) as broker, Client(spark, broker.servers) as client:
        topics = Topics(spark, broker.servers, client)
        for turn in range(1 + turns):
            for consumer in CONSUMER:
                took = seconds(rows_of(topics, shape, consumer))
                if turn:
                    found[consumer].append(took)
    return found


def main(argv: list[str] | None = None) -> int:
    parser = arguments(argparse.ArgumentParser(description=__doc__), "consuming.json")
    parser.add_argument("--full", action="store_true", help="more records")
    options = parser.parse_args(argv)
    shape = tumbling.SIZES["W1"][size_of(options)]
    with session(options, connector()) as spark:
        found = measure(spark, shape, 1 if options.smoke else TURNS)
        report: dict[str, Any] = {"records": records_of(shape), "batch": shape.rows, "seconds": found}
        report |= {"versions": versions(spark)}
    for consumer, took in found.items():
        per_record = CORES * median(took) / shape.rows * 1e6
        say(f"{consumer:12}{median(took):8.3f} s a batch  {per_record:6.2f} µs of a core per record")
    faster = [one / other for one, other in zip(found["spark"], found["librdkafka"], strict=True)]
    say(f"librdkafka: {median(faster):.2f} times as fast ({min(faster):.2f} to {max(faster):.2f})")
    save(report, options.json)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
