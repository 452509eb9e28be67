"""What the records of a topic cost before anything is aggregated: Spark's `from_json` against reading alone.

`python -m benchmarks.decoding`, with `PYTHONPATH=src` where tidegate is not installed. The records are those of W7, in
Parquet files with the columns of Spark's Kafka source: no broker takes part.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from pathlib import Path
from statistics import median
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from benchmarks.inputs import FIRST_MS
from benchmarks.options import arguments, save, say, session, size_of, versions
from tidegate.runtime.spark.kafka.source import decoded_stream

ROWS = {"smoke": 10_000, "default": 2_000_000, "full": 10_000_000}
KEYS, PARTITIONS, TASKS, TURNS = 100_000, 4, 2, 5


def topic(spark: SparkSession, rows: int, folder: Path) -> DataFrame:
    """Records with an amount as JSON under a user's name, as Spark's Kafka source gives them."""
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


def seconds(frame: DataFrame) -> float:
    began = time.perf_counter()
    frame.write.format("noop").mode("overwrite").save()
    return time.perf_counter() - began


def measure(spark: SparkSession, rows: int, folder: Path) -> dict[str, float]:
    """Seconds to get all records, taking turns after one that is not counted: medians."""
    raw = topic(spark, rows, folder)
    ways = {
        "as bytes": raw,
        "decoded by from_json": raw.select(
            F.col("key").cast("string"), F.from_json(F.col("value").cast("string"), "amount long"), "offset"
        ),
        "as tg.kafka.source gives them": decoded_stream(
            raw, key="user", value="amount long", timestamp=None, name="events"
        ).frame,
    }
    found: dict[str, list[float]] = {name: [] for name in ways}
    for _ in range(1 + TURNS):
        for name, frame in ways.items():
            found[name].append(seconds(frame))
    return {name: median(each[1:]) for name, each in found.items()}


def main(argv: list[str] | None = None) -> int:
    parser = arguments(argparse.ArgumentParser(description=__doc__), "decoding.json")
    parser.add_argument("--full", action="store_true", help="more records")
    options = parser.parse_args(argv)
    rows = ROWS[size_of(options)]
    with session(options) as spark, tempfile.TemporaryDirectory() as folder:
        found = measure(spark, rows, Path(folder, "topic"))
        report: dict[str, Any] = {"rows": rows, "seconds": found, "versions": versions(spark)}
    for name, took in found.items():
        say(f"{name:32}{took:8.3f} s  {TASKS * took / rows * 1e6:6.2f} µs of a core per record")
    save(report, options.json)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
