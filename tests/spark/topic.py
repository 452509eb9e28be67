"""DataFrames with the columns of Spark's Kafka source: no broker needed."""

from __future__ import annotations

from datetime import UTC, datetime

from pyspark.sql import DataFrame, SparkSession

COLUMNS = "key binary, value binary, topic string, partition int, offset long, timestamp timestamp, timestampType int"
STAMP = datetime(2026, 1, 1, tzinfo=UTC)


def raw(spark: SparkSession, *pairs: tuple[bytes | None, bytes | None]) -> DataFrame:
    """Records of one partition, by key and value."""
    rows = [
        (None if k is None else bytearray(k), None if v is None else bytearray(v), "t", 0, n, STAMP, 0)
        for n, (k, v) in enumerate(pairs)
    ]
    return spark.createDataFrame(rows, COLUMNS)


def values(spark: SparkSession, *written: bytes | None) -> DataFrame:
    """The same without keys."""
    return raw(spark, *[(None, value) for value in written])
