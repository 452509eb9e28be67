"""Who competes: the same question to tidegate and to Spark, and the floor below both."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import tidegate as tg
from benchmarks.inputs import GRACE_MS, HALVES, SIZE_MS

SIZE = f"{SIZE_MS} milliseconds"
GRACE = f"{GRACE_MS} milliseconds"

ONE_BATCH = {"maxFilesPerTrigger": str(HALVES)}

_STATE = "org.apache.spark.sql.execution.streaming.state"
_PROVIDER = "spark.sql.streaming.stateStore.providerClass"
_CHANGELOG = "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled"

ROCKSDB = {_PROVIDER: f"{_STATE}.RocksDBStateStoreProvider", _CHANGELOG: "true"}
"""Spark's disk-based store as its guide advises to run it, and what `tg.configure` sets."""
IN_MEMORY = {_PROVIDER: f"{_STATE}.HDFSBackedStateStoreProvider", _CHANGELOG: "false"}
"""Spark's default."""


@dataclass(frozen=True)
class Contestant:
    name: str
    label: str
    frame: Callable[[SparkSession, Path], DataFrame]
    """The question to the Parquet files of a folder."""
    settings: dict[str, str] = field(default_factory=lambda: ROCKSDB)
    answers: bool = True
    """False: computes nothing, is there for comparison."""


def source(spark: SparkSession, folder: Path) -> DataFrame:
    """`folder` as a stream of rows with one file of each source partition per micro-batch."""
    schema = spark.read.parquet(str(folder)).schema
    return spark.readStream.schema(schema).options(**ONE_BATCH).parquet(str(folder))


def tidegate_exact(spark: SparkSession, folder: Path) -> DataFrame:
    events = source(spark, folder)
    return _tidegate(tg.stream(events, key="user", timestamp="ts", partition="partition", offset="offset"))


def tidegate_files(spark: SparkSession, folder: Path) -> DataFrame:
    order: dict[str, Any] = {"partition": "partition", "offset": "offset"}
    return _tidegate(tg.files.source(spark, str(folder), key="user", timestamp="ts", **order, options=ONE_BATCH))


def tidegate_unordered(spark: SparkSession, folder: Path) -> DataFrame:
    return _tidegate(tg.stream(source(spark, folder), key="user", timestamp="ts"))


def _tidegate(stream: tg.KStream) -> DataFrame:
    windows = tg.TimeWindows.of_size_and_grace(SIZE, GRACE)
    totals = stream.group_by_key().windowed_by(windows).agg(count=tg.count(), total=tg.sum("amount"))
    final: DataFrame = totals.suppress(tg.Suppressed.until_window_closes(tg.BufferConfig.unbounded())).to_df()
    return final.select("user", "window", "count", "total")


def spark_native(spark: SparkSession, folder: Path) -> DataFrame:
    return (
        source(spark, folder)
        .withWatermark("ts", GRACE)
        .groupBy("user", F.window("ts", SIZE))
        .agg(F.count("*").alias("count"), F.sum("amount").alias("total"))
    )


def bare_map(spark: SparkSession, folder: Path) -> DataFrame:
    def consume(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        rows = sum(batch.num_rows for batch in batches)
        yield pa.RecordBatch.from_pydict({"rows": pa.array([rows], pa.int64())})

    return source(spark, folder).mapInArrow(consume, "rows long")


CONTESTANTS = (
    Contestant("tidegate", "tidegate, partition and offset given", tidegate_exact),
    Contestant("tidegate_files", "tidegate, the same by tg.files.source", tidegate_files),
    Contestant("tidegate_unordered", "tidegate, without them", tidegate_unordered),
    Contestant("spark_memory", "Spark's own, in-memory store", spark_native, settings=IN_MEMORY),
    Contestant("spark_rocksdb", "Spark's own, RocksDB, changelog", spark_native, settings=ROCKSDB),
    Contestant("floor", "bare mapInArrow (floor)", bare_map, answers=False),
)
