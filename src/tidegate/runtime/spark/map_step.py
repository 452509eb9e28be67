"""The map step: Spark calls it in a worker, once per input partition, and it packs the rows into a blob per task."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa

from tidegate.kernel.columns.arrays import as_schema
from tidegate.kernel.exchange.decoding import read
from tidegate.kernel.exchange.packing import pack
from tidegate.kernel.exchange.slices import takes_dictionaries, with_schema
from tidegate.kernel.rows.layout import Layout
from tidegate.plan import Stream
from tidegate.runtime.spark.frames import packed_offset
from tidegate.runtime.spark.row_decoder import Counts, RowDecoder
from tidegate.runtime.spark.worker.gc_freeze import spare_modules
from tidegate.runtime.spark.worker.memory import keep


@dataclass(frozen=True)
class Packer:
    """Packs the rows of an input partition."""

    layout: Layout
    tasks: int
    packs_offset: bool = False
    branch: Stream | None = None
    """The stream whose rows the worker turns into the kernel's columns; None if Spark has done so already."""
    row_decoder: RowDecoder | None = None
    """Decodes records into rows; None if Spark hands over rows."""
    contiguous: bool = False
    """Whether a task reads an unbroken stretch of each partition (`runtime.spark.frames.contiguous`)."""
    given: pa.Schema | None = None
    """The types of rows from Spark in front of steps, with timestamps in UTC; None if there are no such rows."""

    def __call__(self, batches: Iterator[pa.RecordBatch], counts: Counts) -> Iterator[tuple[int, bytes]]:
        spare_modules()
        keep()
        if self.row_decoder is not None:
            batches = yield from self.row_decoder.packed(batches)
            batches = self.row_decoder.keeping_dictionaries(self._kept).rows(batches, counts)
        if self.packs_offset:
            batches = packed_offset.unpacked(batches, self.layout.schema.field("partition").type)
        yield from pack(self.layout, map(self._read, batches), range(self.tasks), self.contiguous)

    def _read(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        if self.branch is None:
            return batch
        rows = pa.Table.from_batches([batch])
        if self.given is not None:
            rows = as_schema(rows, self.given)  # Spark's rows are in the time zone of the session
        rows = read(self.layout.op, self.branch, rows)
        for field in self.layout.schema:
            if field.name not in rows.schema.names:
                rows = rows.append_column(field, pa.nulls(rows.num_rows, field.type))
        rows = with_schema(rows.select(self.layout.schema.names), self.layout)
        return rows.combine_chunks().to_batches()[0]

    @property
    def _kept(self) -> frozenset[str]:
        """The columns that need not be decoded: keys of rows that are combined, if no step reads them."""
        assert self.branch is not None
        keeps = takes_dictionaries(self.layout) and not self.branch.steps
        return frozenset(self.layout.op.key) if keeps else frozenset()
