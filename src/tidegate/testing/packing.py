"""Packs the input of an operator as a map task does."""

from __future__ import annotations

import pyarrow as pa

from tidegate.kernel.exchange.packing import pack
from tidegate.kernel.rows.layout import Layout
from tidegate.kernel.tuning import Tuning
from tidegate.plan import Edge, Operation
from tidegate.testing.column_types import Types
from tidegate.testing.columns import to_batch
from tidegate.testing.records import OWN, Record


def columns_read(op: Operation, types: Types, records: list[Record], start: int) -> pa.Table:
    """The columns of records that an operator reads; `start` is the number of the first record."""
    known = {name: kind for name, kind in types.columns.items() if name not in OWN}
    batch = to_batch(op, types, records, start)
    shown = [f"v:{name}" for name in op.input_columns(tuple(known))]
    shown += [f"r:{name}" for name in op.other_columns(tuple(known))]
    kept = [*(f"k:{name}" for name in op.key), *shown, "empty", "deleted", "ts", "partition", "offset"]
    return pa.Table.from_batches([batch.select([name for name in kept if name in batch.schema.names])])


def with_clock(op: Operation, rows: pa.Table, clock: int | None) -> pa.Table:
    """The rows with a column `wall_clock` (ms), if the operator reads it."""
    if not op.needs_wall_clock:
        return rows
    return rows.append_column("wall_clock", pa.array([clock] * rows.num_rows, pa.int64()))


def packed(
    op: Operation, inputs: list[tuple[Edge, pa.Table]], typed: bool, tuning: Tuning
) -> tuple[Layout, list[bytes]]:
    """The layout of an operator and the blobs of its inputs."""
    layout = Layout.of_inputs(op, [(edge, rows.schema) for edge, rows in inputs], typed=typed, tuning=tuning)
    # The driver is the only map task, so no other task reads offsets that are missing here.
    contiguous = not op.stream.from_upstream
    return layout, [
        blob
        for edge, rows in inputs
        for _, blob in pack(
            layout.of_input(edge, rows.schema), rows.combine_chunks().to_batches(), [0], contiguous=contiguous
        )
    ]
