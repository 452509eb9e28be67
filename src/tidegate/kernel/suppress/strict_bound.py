"""The bound of a strict buffer in front of final results: a buffer that exceeds it stops the query.

A buffer holds one entry per key and window from its first record until the window closes. The bound is checked record
by record, as if each had come alone: put the record, let closed windows leave, then compare with the bound
(SEMANTICS 6.2). An entry counts 8 (buffer time) + key + prior + old + new value + 8 (timestamp) bytes.
`kernel.suppress.value_bytes` gives the bytes of a value. The old value is not counted where it equals the prior value
(SEMANTICS 14.9). The prior value is the aggregate before the entry's first record: 0 for a count, the initializer's
value for `aggregate`, otherwise nothing.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tidegate.errors import AggregationError, BufferFullError
from tidegate.kernel.columns.arrays import Ints, array, concat_tables, ints
from tidegate.kernel.columns.groups import previous_rows
from tidegate.kernel.rows import grouping, results
from tidegate.kernel.rows.closing import close_of_starts, is_closed
from tidegate.kernel.rows.conversion import MISFITS, converter
from tidegate.kernel.rows.layout import Layout
from tidegate.kernel.state.state import State
from tidegate.kernel.suppress import suppression_metrics
from tidegate.kernel.suppress.bounded_buffer import exceeds
from tidegate.kernel.suppress.value_bytes import comparable, of_one_row, total
from tidegate.kernel.time.stream_time import NEVER
from tidegate.spec.aggregates import Aggregate, Fold
from tidegate.spec.suppressed import Buffer
from tidegate.spec.windows import SessionWindows

TIMES = 16
"""Bytes of an entry's buffer time and timestamp."""


def entry_bytes(key: Any, prior: Any, old: Any, new: Any) -> Any:
    """The bytes of an entry, from the bytes of its parts (SEMANTICS 14.9); `old` is 0 if it equals `prior`."""
    return TIMES + key + prior + old + new


def waiting_bytes(layout: Layout, rows: pa.Table) -> Ints:
    """The bytes of entries whose old value is not known; `rows` are state rows with `deleted`."""
    done = results.finish(layout.for_kind["updates"], rows)
    key = key_bytes(layout, rows)
    sizes: Ints = entry_bytes(key, prior_bytes(layout), 0, total([array(done[name]) for name in layout.result_types]))
    return sizes


def key_bytes(layout: Layout, rows: pa.Table) -> Ints:
    """The bytes of the key of each entry, with its window; `rows` are state rows."""
    return total([array(rows[name]) for name in layout.keys]) + bounds_bytes(layout)


def bounds_bytes(layout: Layout) -> int:
    """The bytes of the window in an entry's key."""
    return 8 * len(layout.window_order)


def check(
    layout: Layout, state: State, before: pa.Table | None, rows: pa.Table, updates: pa.Table, merged: pa.Table
) -> pa.Table:
    """`merged` with the `bytes` of each entry; raises BufferFullError if any record made too many entries or bytes.

    before, merged  the tables of the touched windows before and after the batch
    rows          the records of the batch, one row per open window, in order; `updates` has the update of each row
    """
    by = [*layout.keys, "start"]
    parts = [
        before.select(by) if before is not None else rows.select(by).slice(0, 0),
        rows.select(by),
        merged.select(by),
    ]
    codes = np.unique(grouping.codes([concat_tables(parts)[name] for name in by]), return_inverse=True)[1]
    n_before, n_both = parts[0].num_rows, parts[0].num_rows + rows.num_rows
    previous, has_previous = previous_rows(codes[:n_both])
    new = (~has_previous[n_before:]).astype(np.int64)
    closes, closing_time = close_of_starts(layout, ints(rows["start"])), ints(rows["closing_time"])
    newest = int(closing_time.max(initial=NEVER))
    # Windows that close within the batch; the entries of other windows stay.
    leading = state.logs.leading(lambda start: is_closed(layout, start, newest))
    starts = np.array(leading, np.int64)
    stored = np.array([(log.rows, log.counts) for log in map(state.logs.__getitem__, leading)], np.int64).reshape(-1, 2)
    totals = state.logs.totals()
    stored_closes = close_of_starts(layout, starts)
    records = after_each(stored_closes, stored[:, 0], closes, new, closing_time) + totals.rows - stored[:, 0].sum()
    sizes = _sizes_of_entries(layout, before, rows, updates, previous, has_previous)
    change = sizes - np.where(has_previous, sizes[previous], 0)
    size = after_each(stored_closes, stored[:, 1], closes, change[n_before:], closing_time)
    compare(layout, state, records, size + totals.counts - stored[:, 1].sum())
    last = np.zeros(int(codes.max(initial=0)) + 1, np.int64)
    last[codes[:n_both]] = sizes  # the last assignment stands
    return merged.append_column("bytes", pa.array(last[codes[n_both:]]))


def compare(layout: Layout, state: State, records: Ints, sizes: Ints) -> None:
    """Raise BufferFullError if the task held more entries or bytes than its share of the bound after any record."""
    assert layout.op.buffer is not None
    buffer = layout.op.buffer.share(state.task, state.tasks)
    peaks = int(records.max(initial=0)), int(sizes.max(initial=0))
    # If time limits follow, the metrics of waiting rows are about the limits. The fill is about the fullest buffer.
    record = suppression_metrics.record_fill if layout.op.all_limits else suppression_metrics.record_peaks
    record(state, layout.op.buffer, *peaks)
    over = np.flatnonzero(exceeds(buffer, records, sizes))
    if len(over):
        at = over[0]
        raise full(layout, state, int(records[at]), int(sizes[at]), "a larger bound")


def full(layout: Layout, state: State, records: int, size: int, remedy: str) -> BufferFullError:
    """The error for a buffer that holds this much and must not emit early; `remedy`: the change to restart with."""
    whole: Buffer = layout.op.buffer or layout.op.limit.buffer
    buffer = whole.share(state.task, state.tasks)
    bound_records = "no bound" if buffer.max_records is None else buffer.max_records
    bound_bytes = "no bound" if buffer.max_bytes is None else buffer.max_bytes
    share = f" (the share of one of {state.tasks} tasks of {whole})" if state.tasks > 1 else ""
    return BufferFullError(
        f"{layout.op.buffer_name} buffer exceeded its max capacity. Currently [{records}/{bound_records}] records and "
        f"[{size}/{bound_bytes}] bytes{share}. Nothing of this batch was emitted or stored. Restart from the same "
        f"checkpoint with {remedy}; nothing is lost."
    )


def after_each(stored_closes: Ints, stored: Ints, closes: Ints, change: Ints, closing_time: Ints) -> Ints:
    """The total after each row: `stored`, plus `change` row by row, minus the entries of windows that have closed.

    Windows close at the stream times `stored_closes` and `closes`; `closing_time` of the rows ascends.
    """
    when, leaves = np.concatenate([stored_closes, closes]), np.concatenate([stored, change])
    order = np.argsort(when, kind="stable")
    left = np.concatenate(([0], np.cumsum(leaves[order])))
    closed = np.searchsorted(when[order], closing_time, side="right")
    return int(stored.sum()) + np.cumsum(change) - left[closed]


def _sizes_of_entries(
    layout: Layout,
    before: pa.Table | None,
    rows: pa.Table,
    updates: pa.Table,
    previous: Ints,
    has_previous: Any,
) -> Ints:
    """The bytes of the entry after each row: first of the `before` rows, which have their bytes, then of the batch."""
    known = ints(before["bytes"]) if before is not None else np.zeros(0, np.int64)
    shape = layout.for_kind["final"]  # a tombstone is a null there, as in stored rows
    tables = [results.finish(shape, before)] if before is not None and before.num_rows else []
    tables.append(results.finish(shape, updates))
    done = concat_tables([table.select(list(layout.result_types)) for table in tables])
    values = [array(done[name]) for name in layout.result_types]
    new = total(values)
    initially = repeated(initial(layout), len(previous))
    began = same([value.take(pa.array(previous)) for value in values], initially)
    old = np.where(has_previous & ~began, new[previous], 0)
    key = key_bytes(layout, rows)
    mine = slice(len(known), None)
    sizes = entry_bytes(key, prior_bytes(layout), old[mine], new[mine])
    return np.concatenate([known, sizes])


def same(values: list[pa.Array], others: list[pa.Array]) -> Any:
    """Whether `values` and `others` are equal (`comparable`), column by column, in each row; null equals null."""
    equal = np.ones(len(values[0]), bool)
    for column, other in zip(values, others, strict=True):
        if pa.types.is_null(column.type):
            continue
        one, another = comparable(column), comparable(other)
        both_null = pc.and_(one.is_null(), another.is_null())
        equal &= pc.or_(pc.fill_null(pc.equal(one, another), False), both_null).to_numpy(zero_copy_only=False)
    return equal


def initial(layout: Layout) -> list[pa.Array]:
    """The initial prior value, for a key without a value: a column of one value for each value column.

    It is the initial aggregate. It is null for sessions and for groups of a regrouped table, as in Kafka Streams, for a
    table given as its changes, and behind steps, which are never applied to the initial aggregate.
    """
    kinds = layout.result_types.values()
    nothing = isinstance(layout.op.windows, SessionWindows) or layout.op.stream.changes
    if layout.applied_steps or nothing or not layout.op.aggregations:
        return [pa.nulls(1, kind) for kind in kinds]

    def of(aggregation: Any, kind: pa.DataType) -> Any:
        if isinstance(aggregation, Fold):
            return _initially(aggregation, kind)
        counts = isinstance(aggregation, Aggregate) and aggregation.function == "count"
        return 0 if counts else None

    return [pa.array([of(a, kind)], kind) for (_, a), kind in zip(layout.op.aggregations, kinds, strict=True)]


def _initially(fold: Fold, kind: pa.DataType) -> Any:
    """The initializer's value as a column of `kind` stores it."""
    value = fold.initializer()
    try:
        return converter(kind)(value)
    except MISFITS as error:
        raise AggregationError(
            f"The initializer of {fold} gave {value!r} ({type(value).__name__}), which is not a {kind}: {error}. "
            "Nothing of this batch was emitted or stored. Return that type, or declare another `type`."
        ) from error


def repeated(columns: list[pa.Array], rows: int) -> list[pa.Array]:
    """Columns of one value each, repeated in `rows` rows. (`pa.repeat` cannot repeat a nested value zero times.)"""
    at = pa.array(np.zeros(rows, np.int64))
    return [column.take(at) for column in columns]


def prior_bytes(layout: Layout) -> int:
    """The bytes of `initial`."""
    return of_one_row(initial(layout))
