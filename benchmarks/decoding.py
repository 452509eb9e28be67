"""The cost of decoding the records of a topic into rows in a Python worker: by the worker, or by Spark's `from_json`.

`python -m benchmarks.decoding`, with `PYTHONPATH=src` where tidegate is not installed. The records of W7, in Parquet
files with the columns of Spark's Kafka source: no broker takes part.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from benchmarks.in_turns import medians
from benchmarks.inputs import FIRST_MS
from benchmarks.options import arguments, save, say, session, size_of, versions
from tidegate.runtime.spark.frames.arrow import arrow_schema
from tidegate.runtime.spark.kafka.reading import STAMP
from tidegate.runtime.spark.kafka.source import decoded_stream
from tidegate.runtime.spark.row_decoder import Counts

ROWS = {"smoke": 10_000, "default": 2_000_000, "full": 10_000_000}
Rows = Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]
KEYS, PARTITIONS, TASKS, TURNS = 100_000, 4, 2, 5


def topic(spark: SparkSession, rows: int, folder: Path) -> DataFrame:
    """Records with an amount as JSON and a user as key, in the columns of Spark's Kafka source."""
    amount = F.to_json(F.struct((1 + F.rand(2) * 9_999).cast("long").alias("amount")))
    spark.range(rows).select(
        F.format_string("user-%07d", (F.rand(1) * KEYS).cast("int")).cast("binary").alias("key"),
        amount.cast("binary").alias("value"),
        F.lit("events").alias("topic"),
        (F.col("id") % PARTITIONS).cast("int").alias("partition"),
        F.col("id").alias("offset"),
        F.timestamp_millis(F.lit(FIRST_MS) + F.col("id")).alias("timestamp"),
    ).repartition(TASKS).write.parquet(str(folder))
    return spark.read.parquet(str(folder))


def counted(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Number of rows that a worker got (`rows`)."""
    yield pa.record_batch([pa.array([sum(batch.num_rows for batch in batches)])], ["rows"])


def seconds(frame: DataFrame, make: Rows) -> float:
    """Seconds until the workers have all rows that `make` makes of the frame."""
    began = time.perf_counter()
    found = frame.mapInArrow(lambda batches: counted(make(batches)), "rows long").groupBy().sum().first()
    assert found is not None
    assert found[0] > 0
    return time.perf_counter() - began


def measure(spark: SparkSession, rows: int, folder: Path) -> dict[str, float]:
    """Median seconds to get all records, by way; ways take turns, and the first turn is not counted."""
    raw = topic(spark, rows, folder)
    source = decoded_stream(raw, key="user", value="amount long", timestamp=None, name="events")
    columns = ["user", "amount", STAMP, "partition", "offset"]
    by_spark = source.frame.select(*columns)
    frame, row_decoder = source.node.undecoded.for_workers(arrow_schema(by_spark.schema))
    plain = raw.select("key", "value", "timestamp", "partition", "offset")
    ways: dict[str, tuple[DataFrame, Rows]] = {
        "as bytes": (plain, iter),
        "read by Spark": (by_spark, iter),
        "read by the workers": (frame, partial(row_decoder.rows, counts=Counts())),
    }
    return medians({name: partial(seconds, given, make) for name, (given, make) in ways.items()}, TURNS)


def main(argv: list[str] | None = None) -> int:
    parser = arguments(argparse.ArgumentParser(description=__doc__), "decoding.json")
    parser.add_argument("--full", action="store_true", help="more records")
    options = parser.parse_args(argv)
    rows = ROWS[size_of(options)]
    with session(options) as spark, tempfile.TemporaryDirectory() as folder:
        found = measure(spark, rows, Path(folder, "topic"))
        report: dict[str, Any] = {"rows": rows, "seconds": found, "versions": versions(spark)}
    for name, took in found.items():
        say(f"{name:22}{took:8.3f} s  {TASKS * took / rows * 1e6:6.2f} µs of a core per record")
    save(report, options.json)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
