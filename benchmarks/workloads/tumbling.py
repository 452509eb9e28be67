"""W1 and W2: final counts and sums of tumbling windows, with few keys and with many."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import tidegate as tg
from benchmarks import agreement
from benchmarks.contestant import BARE_MAP, SPARKS_OWN, Contestant, ours, source, sparks_own
from benchmarks.inputs import GRACE_MS, HALVES, SIZE_MS, Shape, sized
from benchmarks.race import Bar, Race

SIZE = f"{SIZE_MS} milliseconds"
GRACE = f"{GRACE_MS} milliseconds"


def totals(stream: tg.KStream) -> tg.KTable:
    """The query of W1, W2 and W9, before any suppression."""
    windows = tg.TimeWindows.of_size_and_grace(SIZE, GRACE)
    return stream.group_by_key().windowed_by(windows).agg(count=tg.count(), total=tg.sum("amount"))


def final_totals(stream: tg.KStream) -> DataFrame:
    final = totals(stream).suppress(tg.Suppressed.until_window_closes(tg.BufferConfig.unbounded()))
    found: DataFrame = final.to_df().select("user", "window", "count", "total")
    return found


def unordered(spark: SparkSession, folder: Path) -> DataFrame:
    return final_totals(tg.stream(source(spark, folder), key="user", timestamp="ts"))


def spark_native(spark: SparkSession, folder: Path, files: int = HALVES) -> DataFrame:
    return window_totals(source(spark, folder, files))


def window_totals(rows: DataFrame) -> DataFrame:
    """The query by Spark's own aggregation."""
    return (
        rows.withWatermark("ts", GRACE)
        .groupBy("user", F.window("ts", SIZE))
        .agg(F.count("*").alias("count"), F.sum("amount").alias("total"))
    )


def bare_map(spark: SparkSession, folder: Path, files: int = HALVES) -> DataFrame:
    def consume(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        rows = sum(batch.num_rows for batch in batches)
        yield pa.RecordBatch.from_pydict({"rows": pa.array([rows], pa.int64())})

    read = source(spark, folder, files).select("user", "ts", "amount", "partition", "offset")
    return read.mapInArrow(consume, "rows long")


def floor(files: int = HALVES) -> Contestant:
    """Rows that reach Python and are only counted."""
    return Contestant(BARE_MAP, "bare mapInArrow (floor)", partial(bare_map, files=files), answers=False)


OURS = ours(final_totals)
SPARK = sparks_own(spark_native)
CONTESTANTS = (
    *OURS,
    Contestant("tidegate_unordered", "tidegate, without them", unordered),
    *SPARK,
    floor(),
)

SIZES = {
    "W1": {
        "smoke": Shape(1_000, 20_000, 3),
        "default": Shape(100_000, 1_000_000, 8),
        "full": Shape(100_000, 1_000_000, 20),
    },
    "W2": {
        "smoke": Shape(5_000, 20_000, 3),
        "default": Shape(2_000_000, 1_000_000, 5),
        "full": Shape(2_000_000, 1_000_000, 20),
    },
}
"""W3, W7, W8 and W9 have the input of W1."""


W1 = Race(
    "W1",
    "tumbling windows of 2 min, grace 30 s, count and sum, 100 k keys, 1 M rows a batch",
    sized(SIZES["W1"]),
    CONTESTANTS,
    (Bar(2.0, SPARKS_OWN), Bar(0.5, (BARE_MAP,))),
    agreement.check,
    repeat=3,
)
W2 = Race("W2", "the same with 2 M keys", sized(SIZES["W2"]), (*OURS, *SPARK), (Bar(4.0, SPARKS_OWN),), repeat=3)
