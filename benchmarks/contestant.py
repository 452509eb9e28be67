"""A contestant: its name, its query over the Parquet files of a folder, and the settings that its own guide advises."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession

import tidegate as tg
from benchmarks.inputs import HALVES
from benchmarks.options import HADOOPS_OWN, is_tuned


def one_batch(files: int) -> dict[str, str]:
    """The option of a source that reads `files` files per micro-batch."""
    return {"maxFilesPerTrigger": str(files)}


ONE_BATCH = one_batch(HALVES)

_STATE = "org.apache.spark.sql.execution.streaming.state"
_PROVIDER = "spark.sql.streaming.stateStore.providerClass"
_CHANGELOG = "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled"

ROCKSDB = {_PROVIDER: f"{_STATE}.RocksDBStateStoreProvider", _CHANGELOG: "true"}
"""Spark's disk-based store with the settings that Spark's guide advises and `tg.configure` sets."""
IN_MEMORY = {_PROVIDER: f"{_STATE}.HDFSBackedStateStoreProvider", _CHANGELOG: "false"}
"""Spark's default."""

FILES = "tidegate_files"
BARE_MAP = "floor"
BARE_OPERATOR = "bare_operator"
SPARKS_OWN = ("spark_memory", "spark_rocksdb")

Frame = Callable[[SparkSession, Path], DataFrame]


@dataclass(frozen=True)
class Contestant:
    name: str
    label: str
    frame: Frame
    """The query over the Parquet files of a folder."""
    settings: dict[str, str] = field(default_factory=lambda: ROCKSDB)
    mode: str = "append"
    batches: int | None = None
    """Number of micro-batches that a slow contestant runs; None: all."""
    answers: bool = True
    """False: it computes nothing, or more than the others, so its rows are not compared."""
    ends_workers: bool = False
    """Whether its Python workers end with its query: they have much memory, and would show it in later contestants."""

    def settings_in(self, spark: SparkSession) -> dict[str, str]:
        """The settings of its query in the session of a benchmark.

        As installed, queries of Spark alone write the files of a checkpoint as Spark does by default. Bare ones do
        not: they bound the queries of tidegate, so they have their settings.
        """
        if is_tuned(spark) or self.name.startswith("tidegate") or self.name in (BARE_MAP, BARE_OPERATOR):
            return self.settings
        return {**HADOOPS_OWN, **self.settings}


def source(spark: SparkSession, folder: Path, files: int = HALVES) -> DataFrame:
    """`folder` as a stream of rows with `files` files per micro-batch."""
    schema = spark.read.parquet(str(folder)).schema
    return spark.readStream.schema(schema).options(**one_batch(files)).parquet(str(folder))


COLUMNS: dict[str, Any] = {"key": "user", "timestamp": "ts", "partition": "partition", "offset": "offset"}
"""The arguments of `tg.stream` that name columns, the same for every input."""


def streamed(spark: SparkSession, folder: Path, files: int = HALVES, **more: Any) -> tg.KStream:
    """The stream of Spark's reader, partition and offset given; `more`: further arguments of `tg.stream`."""
    return tg.stream(source(spark, folder, files), **COLUMNS, **more)


def from_files(spark: SparkSession, folder: Path, files: int = HALVES, **more: Any) -> tg.KStream:
    """The stream of `tg.files.source`, whose workers read the files themselves."""
    return tg.files.source(spark, str(folder), **COLUMNS, options=one_batch(files), **more)


def ours(
    ask: Callable[[tg.KStream], DataFrame], mode: str = "append", files: int = HALVES
) -> tuple[Contestant, Contestant]:
    """The two contestants of tidegate: over Spark's reader, and reading the files itself."""

    def over(door: Callable[..., tg.KStream]) -> Frame:
        return lambda spark, folder: ask(door(spark, folder, files))

    return (
        Contestant("tidegate", "tidegate, partition and offset given", over(streamed), mode=mode),
        Contestant(FILES, "tidegate, the same by tg.files.source", over(from_files), mode=mode),
    )


def sparks_own(frame: Frame, mode: str = "append", batches: int | None = None) -> tuple[Contestant, Contestant]:
    """The two contestants of Spark: with its in-memory store, and with RocksDB."""
    return (
        Contestant("spark_memory", "Spark's own, in-memory store", frame, IN_MEMORY, mode, batches),
        Contestant("spark_rocksdb", "Spark's own, RocksDB, changelog", frame, ROCKSDB, mode, batches),
    )
