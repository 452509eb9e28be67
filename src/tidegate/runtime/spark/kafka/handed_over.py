"""Records on their way from the worker that reads the plain ones, through Spark, to the worker that joins all."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass
from itertools import chain

import numpy as np
import pyarrow as pa
from pyspark.sql.types import BinaryType, IntegerType, StructField, StructType

from tidegate.kernel.columns.arrays import as_schema
from tidegate.kernel.rows.map_filter import WALL_CLOCK
from tidegate.runtime.spark.row_decoder import Counts, RowDecoder
from tidegate.spec.columns import OURS

PLAIN, AT, TASK = OURS + "plain", OURS + "at", OURS + "task"
"""Columns of what the first worker hands over, in this order: blobs with packed records, then odd and plain records.

         an odd record         plain records of a batch    a blob with packed records
  PLAIN  null                  an Arrow stream of them     the blob
  AT     its place in a batch  their number                their number, in one blob of several
  TASK   null                  null                        the task that gets the blob
"""

HANDED_OVER = StructType(
    [StructField(PLAIN, BinaryType()), StructField(AT, IntegerType()), StructField(TASK, IntegerType())]
)
"""These columns, which are behind the columns of an odd record."""

FirstWorker = Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]
"""Hands over records (`HANDED_OVER`): a `Reader`, or a `read_and_pack.ReadAndPack`."""


@dataclass(frozen=True)
class Joiner(RowDecoder):
    """Puts the plain records and the others together, in the order in which they came."""

    wanted: pa.Schema

    def packed(self, batches: Iterator[pa.RecordBatch]) -> Generator[tuple[int, bytes], None, Iterator[pa.RecordBatch]]:
        for batch in batches:
            blobs = batch.num_rows - batch.column(TASK).null_count
            for task, blob in zip(batch.column(TASK)[:blobs].to_pylist(), batch.column(PLAIN)[:blobs], strict=True):
                yield task, blob.as_py()
            if blobs < batch.num_rows:
                return chain([batch.slice(blobs)], batches)
        return batches

    def rows(self, batches: Iterator[pa.RecordBatch], counts: Counts) -> Iterator[pa.RecordBatch]:
        odd: list[pa.RecordBatch] = []
        for batch in batches:
            start = 0
            for at in np.flatnonzero(batch.column(PLAIN).is_valid()).tolist():
                odd.append(batch.slice(start, at - start))
                yield from self._joined(odd, batch, at)
                odd, start = [], at + 1
            odd.append(batch.slice(start))

    def _joined(self, odd: list[pa.RecordBatch], batch: pa.RecordBatch, at: int) -> Iterator[pa.RecordBatch]:
        clock = [WALL_CLOCK] if WALL_CLOCK in batch.schema.names else []
        # Spark says of the clock that it is never null, and Arrow says of a new column that it may be.
        clocks = (batch.schema.field(name).with_nullable(True) for name in clock)
        schema = pa.schema([*self.wanted, *clocks, (AT, pa.int64())])
        with pa.ipc.open_stream(batch.column(PLAIN)[at].as_buffer()) as stream:
            plain = stream.read_all()
        for name in clock:
            plain = plain.append_column(name, pa.repeat(batch.column(name)[at], plain.num_rows))
        rows = plain.select(schema.names)
        others = pa.Table.from_batches(odd)
        if others.num_rows:
            rows = pa.concat_tables([rows, as_schema(others.select(schema.names), schema)])
            rows = rows.take(pa.array(np.argsort(rows[AT].to_numpy(), kind="stable")))
        yield from rows.drop_columns(AT).combine_chunks().to_batches()


def in_one_row(schema: pa.Schema, data: bytes, records: int, task: int | None = None) -> pa.RecordBatch:
    """A row with records that are read (`HANDED_OVER`); the columns of a record, which `schema` has, are null."""
    none = pa.record_batch([pa.nulls(1, field.type) for field in schema], schema)
    return with_plain(none, pa.array([data], pa.binary()), pa.array([records], pa.int32()), task)


def with_plain(rows: pa.RecordBatch, plain: pa.Array, at: pa.Array, task: int | None = None) -> pa.RecordBatch:
    tasks = pa.array([task] * len(at), pa.int32())
    return pa.record_batch([*rows.columns, plain, at, tasks], [*rows.schema.names, PLAIN, AT, TASK])


def arrow_stream(rows: pa.RecordBatch) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, rows.schema) as writer:
        writer.write_batch(rows)
    return sink.getvalue().to_pybytes()
