"""Replays batches of records through a real streaming query: Parquet files in, one micro-batch after the other.

A batch is one file, or several (`inputs` of `Replay.run_split`): Spark reads each as a map task of its own. Files are
written before the query starts and consumed `maxFilesPerTrigger` at a time, in the order of their modification
times, so batches are cut exactly as asked, without sleeps. The checkpoint stays: `run` may be called again with
more batches, which is a restart.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from tidegate import Window
from tidegate.runtime.spark.frames.arrow import spark_schema
from tidegate.runtime.spark.frames.names import col

Row = dict[str, Any]

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
FIRST_FILE_S = 1_600_000_000


@dataclass(frozen=True)
class Replayed:
    """Output of a run: the rows and the metrics of each micro-batch."""

    rows: list[list[Row]]
    metrics: list[Mapping[str, Any]]

    def dropped(self) -> int:
        reasons = ("late", "null_key", "null_value", "bad_timestamp")
        return sum(batch.get(reason) or 0 for batch in self.metrics for reason in reasons)


@dataclass
class Replay:
    """One query: a schema of input columns, the topology on the DataFrame it is bound to, a folder."""

    spark: SparkSession
    path: Path
    schema: pa.Schema
    topology: Callable[[DataFrame], DataFrame]
    files_per_batch: int = 1
    name: str = "stream"
    written: int = field(default=0, init=False)

    def run(self, batches: Sequence[Sequence[Row]]) -> Replayed:
        """Take these batches, each in one file, from where the last run ended."""
        return self.run_split([[batch] for batch in batches])

    def run_split(self, inputs: Sequence[Sequence[Sequence[Row]]]) -> Replayed:
        """Take these batches, each given as its files."""
        for files in inputs:
            if len(files) > self.files_per_batch:
                raise ValueError(f"{len(files)} files in a batch of {self.files_per_batch}")
            # Spark counts files, not batches: empty files fill up a batch.
            for rows in [*files, *[[]] * (self.files_per_batch - len(files))]:
                self._write(rows)
        rows: dict[int, list[Row]] = {}
        query = (
            self.topology(self._source())
            .writeStream.outputMode("update")
            .option("checkpointLocation", str(self.path / "checkpoint"))
            .trigger(availableNow=True)
            .foreachBatch(lambda frame, batch: rows.__setitem__(batch, collect(frame)))
            .start()
        )
        try:
            if not query.awaitTermination(180):
                raise TimeoutError("the query did not end")
            # A query that ends with an error has raised it here.
            metrics = [observed(p.observedMetrics[self.name]) for p in query.recentProgress if p.observedMetrics]
        finally:
            query.stop()
        return Replayed([rows[batch] for batch in sorted(rows)], metrics)

    def _source(self) -> DataFrame:
        (self.path / "in").mkdir(parents=True, exist_ok=True)
        schema = spark_schema(self.schema)
        reader = self.spark.readStream.schema(schema).option("maxFilesPerTrigger", self.files_per_batch)
        return reader.parquet(str(self.path / "in"))

    def _write(self, rows: Sequence[Row]) -> None:
        folder = self.path / "in"
        folder.mkdir(parents=True, exist_ok=True)
        target = folder / f"{self.written:05}.parquet"
        hidden = folder / f".{target.name}"
        pq.write_table(table_of(rows, self.schema), hidden)
        # The source orders files by modification time: seconds apart, so that no clock decides.
        stamp = FIRST_FILE_S + self.written
        os.utime(hidden, (stamp, stamp))
        hidden.rename(target)
        self.written += 1


def table_of(rows: Sequence[Row], schema: pa.Schema) -> pa.Table:
    """Rows as Arrow; integers become timestamps if the schema says so, missing columns become null."""
    columns = []
    for column in schema:
        values = [row.get(column.name) for row in rows]
        if pa.types.is_timestamp(column.type):
            # Not by way of a datetime, which ends in the year 9999.
            micros = pa.array([None if value is None else value * 1_000 for value in values], pa.int64())
            columns.append(micros.cast(column.type))
        else:
            columns.append(pa.array(values, column.type))
    return pa.table(columns, schema=schema)


def schema_of(**columns: pa.DataType) -> pa.Schema:
    """These columns, and those for `with_offsets` and a stream's timestamp."""
    placed = {"ts": pa.timestamp("us", "UTC"), "partition": pa.int32(), "offset": pa.int64()}
    return pa.schema({**columns, **placed})


def collect(frame: DataFrame) -> list[Row]:
    """Rows in the shape of the test driver: windows and timestamps as integer milliseconds."""
    columns = frame.columns  # each time the JVM is asked
    instants = [column for column in ("timestamp", "stream_time") if column in columns]
    plain = [column for column in columns if column not in ("window", *instants)]
    sides = ("start", "end") if "window" in columns else ()
    bounds = [F.unix_millis(F.col(f"window.{side}")).alias(f"replayed:{side}") for side in sides]
    stamps = [F.unix_millis(column).alias(f"replayed:{column}") for column in instants]
    rows = []
    for collected in frame.select(*[col(column) for column in plain], *bounds, *stamps).collect():
        values = collected.asDict()
        made = {**values, **{column: values[f"replayed:{column}"] for column in instants}}
        if sides:
            # An open end is null too, and then the start is not.
            start, end = values["replayed:start"], values["replayed:end"]
            made["window"] = None if start is None else Window(start, end)
        rows.append({column: made[column] for column in columns})
    return rows


def structs_as_dicts(rows: Sequence[Row]) -> list[Row]:
    """Structs as dicts, as functions return them."""
    return [
        {name: each.asDict(recursive=True) if hasattr(each, "asDict") else each for name, each in row.items()}
        for row in rows
    ]


def observed(row: Any) -> dict[str, Any]:
    """A row of observed metrics as a dict, from classic Spark or Connect."""
    return row.asDict() if hasattr(row, "asDict") else dict(zip(row.schema.names, row.values, strict=True))


def with_offsets(batches: Sequence[Sequence[Row]], partition: int = 0) -> list[list[Row]]:
    """The same batches as one source partition with running offsets."""
    offset = 0
    out = []
    for batch in batches:
        out.append([{**row, "partition": partition, "offset": offset + n} for n, row in enumerate(batch)])
        offset += len(batch)
    return out
