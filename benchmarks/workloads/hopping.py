"""W3: final counts and sums of hopping windows of ten minutes, one every minute."""

from __future__ import annotations

from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import tidegate as tg
from benchmarks.contestant import SPARKS_OWN, ours, source, sparks_own
from benchmarks.inputs import GRACE_MS, sized
from benchmarks.race import Bar, Race
from benchmarks.workloads.tumbling import SIZES

SIZE, ADVANCE, GRACE = "10 minutes", "1 minute", f"{GRACE_MS} milliseconds"


def final_totals(stream: tg.KStream) -> DataFrame:
    windows = tg.TimeWindows.of_size_and_grace(SIZE, GRACE).advance_by(ADVANCE)
    totals = stream.group_by_key().windowed_by(windows).agg(count=tg.count(), total=tg.sum("amount"))
    final: DataFrame = totals.suppress(tg.Suppressed.until_window_closes(tg.BufferConfig.unbounded())).to_df()
    return final.select("user", "window", "count", "total")


def spark_native(spark: SparkSession, folder: Path) -> DataFrame:
    return (
        source(spark, folder)
        .withWatermark("ts", GRACE)
        .groupBy("user", F.window("ts", SIZE, ADVANCE))
        .agg(F.count("*").alias("count"), F.sum("amount").alias("total"))
    )


W3 = Race(
    "W3",
    "hopping windows of 10 min by 1 min, grace 30 s, 100 k keys, 1 M rows a batch",
    sized(SIZES["W1"]),
    (*ours(final_totals), *sparks_own(spark_native, batches=4)),
    (Bar(10.0, SPARKS_OWN),),
    repeat=3,
)
