"""Takes records through the steps of their stream, into the columns for the map step (see kernel.rows.layout)."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tidegate.errors import DefinitionError
from tidegate.kernel.columns.arrays import array, ints
from tidegate.kernel.rows import map_filter
from tidegate.kernel.rows.layout import check_atomic
from tidegate.plan import Operation, Stream
from tidegate.spec.steps import Filter


def read(op: Operation, stream: Stream, rows: pa.Table) -> pa.Table:
    """The kernel's columns of the records in `rows`, which came from `stream`, a branch of the operation's stream.

    Where the stream filters, `kept` says which records go on. The others stay until records are cut into chunks: a gap
    in the offsets would look as if another task had read the missing records.
    """
    place = pa.array(np.arange(rows.num_rows))
    done = map_filter.apply_steps(stream.steps, rows.append_column(map_filter.PLACE, place))
    columns = _columns(op, stream, done)
    if not filters(stream):
        # Merged streams must have the same columns.
        others = any(filters(branch) for branch in op.stream.branches)
        return pa.table(columns | ({"kept": pa.array(np.ones(rows.num_rows, bool))} if others else {}))
    at = np.full(rows.num_rows, -1)
    at[ints(done[map_filter.PLACE])] = np.arange(done.num_rows)
    back = pa.array(at, mask=at < 0)
    columns = {name: column.take(back) for name, column in columns.items()}
    # These columns are not the record's own: records that are filtered out have them too.
    columns |= (_order(stream, rows) if stream.ordered else {}) | _clock(op, rows)
    return pa.table(columns | {"kept": pa.array(at >= 0)})


def filters(stream: Stream) -> bool:
    """Whether a step of the stream removes records."""
    return any(isinstance(step, Filter) for step in stream.steps)


def _columns(op: Operation, stream: Stream, rows: pa.Table) -> dict[str, Any]:
    names = tuple(name for name in rows.schema.names if name not in map_filter.OWN)
    used = [*op.key, op.stream.timestamp, *op.input_columns(names)]
    for name in used:
        if name not in names:
            raise DefinitionError(f"The stream {stream.name!r} has no column {name!r}, only {', '.join(names)}.")
    check_atomic(rows.schema, op.key)
    columns: dict[str, Any] = {f"k:{name}": array(rows[name]) for name in op.key}
    columns |= {f"v:{name}": array(rows[name]) for name in op.input_columns(names)}
    if op.skips_null_values and (value := op.counts_as_value(names)):
        columns["empty"] = pa.array(np.logical_and.reduce([rows[name].is_null().to_numpy() for name in value]))
    columns |= {f"r:{name}": array(rows[name]) for name in op.other_columns(names)}
    if op.deleted is not None:
        columns["deleted"] = array(rows[op.deleted])
    columns["ts"] = milliseconds(array(rows[op.stream.timestamp]))
    return columns | (_order(stream, rows) if stream.ordered else {}) | _clock(op, rows)


def milliseconds(column: pa.Array) -> pa.Array:
    """Timestamps, or integers that are milliseconds already, as int64 milliseconds; null becomes -1."""
    if not pa.types.is_timestamp(column.type):
        return pc.fill_null(column.cast(pa.int64()), -1)
    micros = column.cast(pa.timestamp("us", column.type.tz), safe=False).cast(pa.int64())
    return pa.array(np.floor_divide(pc.fill_null(micros, -1000).to_numpy(), 1000))


def _clock(op: Operation, rows: pa.Table) -> dict[str, Any]:
    return {"wall_clock": array(rows[map_filter.WALL_CLOCK])} if op.needs_wall_clock else {}


def _order(stream: Stream, rows: pa.Table) -> dict[str, Any]:
    assert stream.partition is not None
    assert stream.offset is not None
    return {
        "partition": numbered(stream, array(rows[stream.partition])),
        "offset": array(rows[stream.offset]).cast(pa.int64()),
    }


def numbered(stream: Stream, partition: pa.Array) -> pa.Array:
    """Partitions of a merged stream with the number of their branch: each topic has a partition 0."""
    if stream.number is None:
        return partition
    return pc.binary_join_element_wise(str(stream.number), partition.cast(pa.string()), ":")
