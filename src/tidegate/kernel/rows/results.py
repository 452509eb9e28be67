"""Result rows: aggregates are finished, and rows are in the order in which Kafka Streams emits them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tidegate.kernel.aggregates import Overflow
from tidegate.kernel.columns.arrays import array, as_schema, ints, raw, with_column
from tidegate.kernel.columns.sorting import by_columns
from tidegate.kernel.rows.closing import end_of_starts
from tidegate.kernel.rows.grouping import overflowed
from tidegate.kernel.rows.layout import Layout
from tidegate.kernel.rows.schema_evolution import FROM_THE_START, PLAN_CHANGES
from tidegate.spec.columns import DELETED, END, KIND, START, TIMESTAMP

_BOUNDS = {START: "start", END: "end"}
"""The columns of a state row with the bounds of its window."""


def finish(layout: Layout, rows: pa.Table, sort: bool = False) -> pa.Table:
    """Result rows of state rows (key, start, ts, state; sessions: end). `sort`: in the order in which they leave."""
    if sort:
        rows = rows.take(_in_order(layout, rows))
    columns: dict[str, Any] = {name: rows[f"k:{name}"] for name in layout.op.key}
    if layout.op.windows is not None:
        columns[START] = rows["start"]
        columns[END] = rows["end"] if "end" in rows.schema.names else end_of_starts(layout, ints(rows["start"]))
    if layout.op.function:
        columns[layout.op.aggregations[0][0]] = rows["s:0:0"]
    else:
        for index, (name, _) in enumerate(layout.op.aggregations):
            columns[name] = _finished(layout, rows, index)
        columns |= _unknown(layout, columns, rows[PLAN_CHANGES] if PLAN_CHANGES in rows.schema.names else None)
    columns[TIMESTAMP] = rows["ts"]
    if layout.op.deletes:
        columns[DELETED] = rows["deleted"]
    return as_schema(pa.table(columns), layout.result_schema)


def for_kind(layout: Layout, kind: str, rows: pa.Table, sort: bool = False) -> pa.Table:
    """Result rows of one kind, "updates" or "final"; where the plan makes both, the column `KIND` has the kind.

    Both kinds then have the same columns, so that a batch with rows of one kind alone looks like every other: a final
    result is no tombstone, and says so in `DELETED` if updates have that column.
    """
    done = finish(layout.for_kind[kind], rows, sort)
    if layout.op.emits != "both":
        return done
    if layout.op.deletes and DELETED not in done.schema.names:
        done = done.append_column(DELETED, pa.repeat(pa.scalar(False), done.num_rows))
    return done.append_column(KIND, pa.repeat(kind, done.num_rows))


def _finished(layout: Layout, rows: pa.Table, index: int) -> pa.Array:
    try:
        done = layout.accumulators[index].finish([array(rows[name]) for name in layout.states[index]])
    except Overflow as overflow:
        raise overflowed(layout, rows, overflow, index) from None
    # Some aggregates give 0 or [] for null state, but a tombstone has no value.
    return pc.if_else(rows["deleted"], pa.scalar(None, done.type), done) if layout.op.deletes else done


def known(layout: Layout, rows: pa.Table) -> pa.Table:
    """Final results, with null for aggregates that were added after their windows had begun."""
    for name, column in _unknown(layout, {name: rows[name] for name in rows.schema.names}, None).items():
        rows = with_column(rows, name, column)
    return rows


def _unknown(layout: Layout, columns: dict[str, Any], plan_changes: Any) -> dict[str, Any]:
    """The columns of aggregates that were added to a running plan, null where they were added too late.

    A window that begins after the newest record of that time has all its records; without windows, the number of
    `plan_changes` before a key began decides.
    """
    found = {}
    for (name, _), added_at in zip(layout.op.aggregations, layout.added_at, strict=False):
        if added_at != FROM_THE_START:
            whole = pc.greater(columns[START], added_at) if layout.closes else pc.greater_equal(plan_changes, added_at)
            found[name] = pc.if_else(whole, columns[name], pa.scalar(None, columns[name].type))
    return found


def concat(layout: Layout, parts: list[pa.Table]) -> pa.Table:
    """The rows of all parts; there may be no part."""
    how = "default" if layout.op.emits == "both" else "none"
    return pa.concat_tables(parts, promote_options=how) if parts else layout.result_schema.empty_table()


def in_order(layout: Layout, rows: pa.Table) -> pa.Table:
    """Final results in the order in which they leave."""
    as_state = _BOUNDS | {name: f"k:{name}" for name in layout.op.key}
    bounds = pa.table({named: rows[name] for name, named in as_state.items()})
    return rows.take(_in_order(layout, bounds))


def _in_order(layout: Layout, rows: pa.Table) -> pa.Array:
    """Indices that sort rows by the bounds of their windows (`Layout.window_order`), then by serialized key."""
    sortable = {name: rows[_BOUNDS[name]] for name in layout.window_order}
    sortable |= {name: serial(rows[name]) for name in layout.keys}
    return by_columns(pa.table(sortable))


def serial(column: pa.ChunkedArray) -> Any:
    """A column that sorts as the serialized bytes do: big-endian, unsigned, so negative numbers come last.

    The key of a row that found no partner in a join may be null.
    """
    kind = column.type
    if pa.types.is_signed_integer(kind) or pa.types.is_temporal(kind) or pa.types.is_floating(kind):
        width = kind.bit_width
        whole = array(column)
        bits = whole.view(pa.int64() if width == 64 else pa.int32() if width == 32 else kind)
        unsigned = {8: np.uint8, 16: np.uint16, 32: np.uint32, 64: np.uint64}[width]
        nulls = None if bits.null_count == 0 else bits.is_null().to_numpy(zero_copy_only=False)
        filled = bits if nulls is None else bits.fill_null(0)
        return pa.array(filled.to_numpy(zero_copy_only=False).view(unsigned), mask=nulls)
    if pa.types.is_decimal(kind) or pa.types.is_null(kind) or pa.types.is_boolean(kind):
        return column.cast(pa.string()) if pa.types.is_null(kind) else column
    return raw(column)


def live_rows(layout: Layout, rows: pa.Table) -> pa.Table:
    """Stored rows, with `deleted` false. Deleted rows are left out: they only take room in a bounded buffer."""
    if layout.op.function is not None:
        rows = rows.filter(rows["s:0:0"].is_valid())
    if "deleted" in rows.schema.names:
        rows = rows.drop_columns(["deleted"])
    return marked_live(rows)


def marked_live(rows: pa.Table) -> pa.Table:
    """The rows with a column `deleted` that is false."""
    return rows.append_column("deleted", pa.array(np.zeros(rows.num_rows, bool)))
