"""W9: updates of tumbling windows: the last of each key and window in a batch, and every update."""

from __future__ import annotations

from functools import partial
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import tidegate as tg
from benchmarks.contestant import FILES, SPARKS_OWN, Contestant, ours, sparks_own, streamed
from benchmarks.inputs import Shape, sized, write
from benchmarks.measure import finished
from benchmarks.race import Bar, Race
from benchmarks.workloads.tumbling import GRACE, SIZE, SIZES, spark_native

SMALL = Shape(keys=300, rows=4_000, batches=3, batch_span_ms=120_000)


def table(stream: tg.KStream, caching: bool) -> tg.KTable:
    windows = tg.TimeWindows.of_size_and_grace(SIZE, GRACE)
    kept = tg.Materialized.as_("totals")
    kept = kept if caching else kept.with_caching_disabled()
    return stream.group_by_key().windowed_by(windows).agg(kept, count=tg.count(), total=tg.sum("amount"))


def totals(stream: tg.KStream, caching: bool) -> DataFrame:
    updates: DataFrame = table(stream, caching).to_df()
    return updates.select("user", "window", "count", "total")


def every(spark: SparkSession, folder: Path) -> DataFrame:
    return totals(streamed(spark, folder), caching=False)


EVERY = Contestant("tidegate_every", "tidegate, every update", every, answers=False)
"""Emits more rows than the others, so `check` compares them on an input of its own."""


def check(contestants: list[Contestant], spark: SparkSession, folder: Path) -> dict[str, str]:
    """A sentence on EVERY, if it runs; AssertionError unless its updates are right.

    Each record must emit one update with the count so far, and the last update must be Spark's final row.
    """
    if EVERY not in contestants:
        return {}
    files = write(SMALL, folder)
    name = "every_update"
    with finished(spark, EVERY, files, format="memory", name=name):
        rows = spark.table(name)
        of_window = rows.groupBy("user", "window")
        last = of_window.agg(
            F.max_by("count", "count").alias("count"),
            F.max_by("total", "count").alias("total"),
            F.count("*").alias("updates"),
            F.countDistinct("count").alias("distinct"),
        )
        wanted = (
            spark.read.parquet(str(files))
            .groupBy("user", F.window("ts", SIZE))
            .agg(F.count("*").alias("count"), F.sum("amount").alias("total"))
        )
        whole = last.where("updates = count AND distinct = count").select("user", "window", "count", "total")
        wrong = wanted.exceptAll(whole).count() + whole.exceptAll(wanted).count()
        updates = rows.count()
        spark.catalog.dropTempView(name)
    if wrong or updates != SMALL.rows * SMALL.batches:
        raise AssertionError(f"{updates} updates of {SMALL.rows * SMALL.batches} records; {wrong} windows differ")
    return {EVERY.name: f"{updates:,} updates of as many records, the last of every window equal"}


W9 = Race(
    "W9",
    "updates of tumbling windows of 2 min, 100 k keys, 1 M rows a batch",
    sized(SIZES["W1"]),
    (*ours(partial(totals, caching=True)), EVERY, *sparks_own(spark_native, mode="update")),
    (Bar(2.0, SPARKS_OWN, ("tidegate", FILES, EVERY.name)),),
    check,
    repeat=3,
)
