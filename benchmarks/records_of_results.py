"""The cost of a result's row as a record for Kafka: JSON by Spark alone, and as `tg.kafka.records` makes it.

`python -m benchmarks.records_of_results`, with `PYTHONPATH=src` where tidegate is not installed. The rows of W9 from
Parquet into Spark's sink that writes nothing: no broker takes part. Ways take turns. Decision 0070 quotes the table.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame, DataFrameWriter, SparkSession
from pyspark.sql import functions as F

import tidegate as tg
from benchmarks.in_turns import medians
from benchmarks.inputs import FIRST_MS, SIZE_MS
from benchmarks.options import arguments, save, say, session, size_of, versions
from tidegate.runtime.spark.kafka.formats import as_json
from tidegate.runtime.spark.worker.text_of_times import as_text
from tidegate.spec.columns import END, START, TIMESTAMP

ROWS = {"smoke": 10_000, "default": 2_000_000, "full": 10_000_000}
KEYS, TASKS, TURNS, FRAME = 100_000, 2, 5, 100_000
KEY = ["user", "window"]


def rows(spark: SparkSession, count: int, folder: Path) -> DataFrame:
    """Rows with a user, a window of 2 minutes, count, total and timestamp, as a table emits them."""
    at = F.timestamp_millis(F.lit(FIRST_MS) + (F.col("id") / 20).cast("long"))
    window = F.window(at, "2 minutes")
    spark.range(0, count, 1, TASKS).select(
        F.format_string("user-%07d", (F.rand(1) * KEYS).cast("int")).alias("user"),
        F.struct(window.start.alias("start"), window.end.alias("end")).alias("window"),
        F.col("id").alias("count"),
        (F.rand(2) * 9_999).cast("long").alias("total"),
        at.alias("timestamp"),
    ).write.parquet(str(folder / "rows"))
    return spark.read.parquet(str(folder / "rows"))


def with_text(frame: DataFrame, folder: Path) -> DataFrame:
    """The rows as they come from workers, which have written the times as text."""

    def text(name: str) -> Any:
        return F.date_format(name, "yyyy-MM-dd'T'HH:mm:ss.SSSSSSXXX")

    window = F.struct(text("window.start").alias("start"), text("window.end").alias("end")).alias("window")
    texts = frame.select("user", window, "count", "total", text("timestamp").alias("timestamp"))
    texts.write.parquet(str(folder / "texts"))
    return frame.sparkSession.read.parquet(str(folder / "texts"))


def by_spark(frame: DataFrame, final: bool) -> DataFrame:
    """The same records, with JSON of all columns of key, id and value."""
    name = F.lit("a").alias("name")
    row_id = F.substring(F.sha2(as_json(F.struct(name, *KEY)), 256), 1, 32)
    whole = frame.withColumn("row_id", row_id) if final else frame
    pair = {"key": as_json(F.struct(*KEY)), "value": as_json(F.struct("*"))}
    return whole.select(*(json.cast("binary").alias(name) for name, json in pair.items()))


def to_nothing(frame: DataFrame) -> float:
    return seconds(frame.write.format("noop").mode("overwrite"))


def seconds(writer: DataFrameWriter) -> float:
    began = time.perf_counter()
    writer.save()
    return time.perf_counter() - began


def measure(spark: SparkSession, count: int, folder: Path) -> dict[str, float]:
    """Median seconds by way, less those of reading the rows; the first turn is not counted."""
    made = rows(spark, count, folder)
    given = {"times by Spark": made, "times by workers": with_text(made, folder)}
    ways = {f"{name}, nothing written": frame for name, frame in given.items()}
    for final, kind in ((False, "updates"), (True, "final rows")):
        ways[f"{kind}, JSON by Spark"] = by_spark(made, final)
        ways |= {f"{kind}, {n}": tg.kafka.records(f, key=KEY, final=final, name="a") for n, f in given.items()}
    took = medians({name: partial(to_nothing, frame) for name, frame in ways.items()}, TURNS)
    read = {name: took.pop(f"{name}, nothing written") for name in given}
    return {
        name: each - read["times by workers" if "workers" in name else "times by Spark"] for name, each in took.items()
    }


def in_worker(count: int) -> float:
    """Median seconds in which a worker writes the times of the rows as text, in frames of 100,000 rows."""
    at = pa.array(FIRST_MS + np.arange(count) // 20)
    start = pa.array(at.to_numpy() // SIZE_MS * SIZE_MS)
    rows_ = pa.table({START: start, END: pc.add(start, SIZE_MS), TIMESTAMP: at})
    found = []
    for _ in range(TURNS):
        began = time.perf_counter()
        for _ in as_text(rows_.slice(first, FRAME) for first in range(0, count, FRAME)):
            pass
        found.append(time.perf_counter() - began)
    return median(found)


def main(argv: list[str] | None = None) -> int:
    parser = arguments(argparse.ArgumentParser(description=__doc__), "records-of-results.json")
    parser.add_argument("--full", action="store_true", help="more rows")
    options = parser.parse_args(argv)
    count = ROWS[size_of(options)]
    with session(options) as spark, tempfile.TemporaryDirectory() as folder:
        found = measure(spark, count, Path(folder))
        report: dict[str, Any] = {"rows": count, "seconds": found, "versions": versions(spark)}
    for name, took in found.items():
        say(f"{name:32}{took:8.3f} s  {TASKS * took / count * 1e6:6.2f} µs of a core per row")
    say(f"{'times as text, in a worker':42}{in_worker(count) / count * 1e6:8.2f} µs of a core per row")
    save(report, options.json)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
