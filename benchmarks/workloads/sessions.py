"""W4: final counts and sums of sessions."""

from __future__ import annotations

from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import tidegate as tg
from benchmarks.contestant import SPARKS_OWN, ours, source, sparks_own
from benchmarks.inputs import GRACE_MS, Shape, sized
from benchmarks.race import Bar, Race

GAP_MS = 30_000
GRACE = f"{GRACE_MS} milliseconds"

SIZES = {
    "smoke": Shape(2_000, 10_000, 4),
    "default": Shape(200_000, 1_000_000, 5),
    "full": Shape(200_000, 1_000_000, 20),
}


def final_totals(stream: tg.KStream) -> DataFrame:
    # Spark closes a session when its watermark reaches last + gap, Kafka Streams when time is beyond: 1 ms less grace.
    grace = f"{GRACE_MS - 1} milliseconds"
    windows = tg.SessionWindows.of_inactivity_gap_and_grace(f"{GAP_MS} milliseconds", grace)
    totals = stream.group_by_key().windowed_by(windows).agg(count=tg.count(), total=tg.sum("amount"))
    final: DataFrame = totals.suppress(tg.Suppressed.until_window_closes(tg.BufferConfig.unbounded())).to_df()
    return final.selectExpr(
        "user", "unix_millis(window.start) AS start", "unix_millis(window.end) AS last", "count", "total"
    )


def spark_native(spark: SparkSession, folder: Path) -> DataFrame:
    sessions = (
        source(spark, folder)
        .withWatermark("ts", GRACE)
        .groupBy("user", F.session_window("ts", f"{GAP_MS} milliseconds"))
        .agg(F.count("*").alias("count"), F.sum("amount").alias("total"))
    )
    last = f"unix_millis(session_window.end) - {GAP_MS} AS last"
    return sessions.selectExpr("user", "unix_millis(session_window.start) AS start", last, "count", "total")


W4 = Race(
    "W4",
    "sessions with a gap of 30 s, grace 30 s, 200 k keys, 1 M rows a batch",
    sized(SIZES),
    (*ours(final_totals), *sparks_own(spark_native)),
    (Bar(4.0, SPARKS_OWN),),
    repeat=3,
)
