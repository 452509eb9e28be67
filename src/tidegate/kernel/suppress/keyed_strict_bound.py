"""The bound of a strict buffer in front of final results of sliding windows and sessions (`suppress.strict_bound`).

A window is an entry from its first update until it closes, even if it was deleted or its session went into another one:
Kafka's buffer drops a tombstone when it leaves, not before (SEMANTICS 6.1). So such windows are stored too, as rows
that are `deleted`.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tidegate.kernel.columns.arrays import Flags, Ints, array, concat_tables, flags, ints, with_column
from tidegate.kernel.columns.groups import previous_rows
from tidegate.kernel.rows import grouping, results
from tidegate.kernel.rows.closing import close_of_ends
from tidegate.kernel.rows.layout import Layout
from tidegate.kernel.state.state import State
from tidegate.kernel.suppress import prior_values, strict_bound
from tidegate.kernel.suppress.bounded_buffer import Content
from tidegate.kernel.suppress.value_bytes import total
from tidegate.spec.windows import SessionWindows


def split(layout: Layout, rows: pa.Table) -> tuple[pa.Table, pa.Table | None]:
    """Stored rows as windows, and as entries of the buffer (None if the plan has no buffer).

    Entries are windows with their `bytes`, `deleted` windows too. A store may be older than the bound: then only the
    open windows are known.
    """
    deleted = pa.repeat(pa.scalar(False), rows.num_rows)
    if "deleted" in rows.schema.names:
        # Sessions that `session_batch` merged have a null here.
        deleted = pc.fill_null(rows["deleted"], False)
        rows = rows.drop_columns(["deleted"])
    rows = rows.append_column("deleted", deleted)
    windows = rows.filter(pc.invert(deleted))
    windows = windows.drop_columns([name for name in ("bytes", *prior_values.kept(rows)) if name in rows.schema.names])
    if layout.op.buffer is None or "bytes" in rows.schema.names:
        return windows, None if layout.op.buffer is None else rows
    return windows, rows.append_column("bytes", pa.array(strict_bound.waiting_bytes(layout, rows)))


def check(
    layout: Layout,
    state: State,
    buffered: pa.Table,
    updates: pa.Table,
    began: list[pa.Array],
    begins: Flags,
    closing_times: Ints,
    unread: Content,
) -> pa.Table:
    """The entries after the batch; raises BufferFullError if there were too many entries or bytes after any record.

    buffered       the entries of the buckets that were read (`split`), if open before the batch
    updates        the windows after each record, in order
    began          the prior values of the updates' windows (`prior_values.of`)
    begins         whether each update makes its window again (`prior_values.begin_again`)
    closing_times  the stream time (ms) that decides which windows are closed for the record of each update
    unread         the entries of the buckets that were not read; none of them closes in this batch
    """
    names = prior_values.window_columns(layout)
    both = concat_tables([buffered.select(names), updates.select(names)])
    codes = np.unique(grouping.codes([both[name] for name in names]), return_inverse=True)[1]
    previous, has_previous = previous_rows(codes)
    first = np.unique(codes, return_index=True)[1][codes]
    both_began = prior_values.stored(layout, buffered, began)
    new, n = ~has_previous, buffered.num_rows
    goes_on = has_previous & ~np.concatenate((np.zeros(n, np.bool_), begins))
    sizes = _sizes(layout, buffered, updates, [c.take(pa.array(first)) for c in both_began], previous, goes_on)
    change = sizes - np.where(has_previous, sizes[previous], 0)
    closes = close_of_ends(layout, ints(both["end"]))
    waits = strict_bound.after_each(
        closes[:n], np.ones(n, np.int64), closes[n:], new[n:].astype(np.int64), closing_times
    )
    size = strict_bound.after_each(closes[:n], sizes[:n], closes[n:], change[n:], closing_times)
    strict_bound.compare(layout, state, waits + unread.records, size + unread.size)
    last = np.zeros(int(codes.max(initial=-1)) + 1, np.int64)
    last[codes] = np.arange(len(codes))  # the last assignment stands
    deleted = np.concatenate([flags(buffered["deleted"]), flags(updates["deleted"])])
    entries = both.take(pa.array(last)).append_column("bytes", pa.array(sizes[last]))
    entries = prior_values.keep(layout, entries, [c.take(pa.array(first[last])) for c in both_began])
    return entries.append_column("deleted", pa.array(deleted[last]))


def stored(layout: Layout, windows: pa.Table, entries: pa.Table, opens_after: float) -> pa.Table:
    """The rows to store: windows with their bytes, and deleted entries that have not closed."""
    entry_codes, codes = grouping.codes_of_tables(prior_values.window_columns(layout), [entries, windows])
    at = grouping.places(codes, entry_codes)
    # A window that was closed before this batch is no entry any more.
    place = pa.array(np.maximum(at, 0), mask=at < 0)
    for name in ("bytes", *prior_values.kept(entries)):
        windows = windows.append_column(name, array(entries[name]).take(place))
    windows = with_column(windows, "bytes", pc.fill_null(windows["bytes"], 0))
    deleted = entries.filter(pa.array(flags(entries["deleted"]) & (ints(entries["end"]) >= opens_after)))
    if not deleted.num_rows:
        return windows
    deleted = deleted.append_column("ts", deleted["end"])
    for field in layout.state_fields:
        deleted = deleted.append_column(field.name, pa.nulls(deleted.num_rows, field.type))
    return concat_tables([windows, deleted.select(windows.schema.names)])


def totals(rows: pa.Table, opens_after: float) -> tuple[int, int]:
    """The number of stored rows that are entries of the buffer, and their bytes. Sliding windows outlive the entry."""
    waits = ints(rows["end"]) >= opens_after
    return int(waits.sum()), int(ints(rows["bytes"])[waits].sum())


def _sizes(
    layout: Layout, buffered: pa.Table, updates: pa.Table, began: list[pa.Array], previous: Ints, goes_on: Flags
) -> Ints:
    """The bytes of the entry after each row: first of the `buffered` rows, which have their bytes, then of the updates.

    `began` has the prior value of each row's window; a row that `goes_on` replaces the `previous` row.
    """
    tables = [_values(layout, buffered), _values(layout, updates)] if buffered.num_rows else [_values(layout, updates)]
    values = [pa.chunked_array([array(column) for column in columns]) for columns in zip(*tables, strict=True)]
    values = [array(column) for column in values]
    new, mine = total(values), slice(buffered.num_rows, None)
    # An update of a window replaces the window's row before. In sessions only a tombstone replaces a row.
    as_it_began = strict_bound.same([value.take(pa.array(previous)) for value in values], began)
    old = np.where(goes_on & ~as_it_began, new[previous], 0)[mine]
    if isinstance(layout.op.windows, SessionWindows):
        old = np.where(flags(updates["deleted"]), old, 0)
    sizes = strict_bound.entry_bytes(strict_bound.key_bytes(layout, updates), total(began)[mine], old, new[mine])
    return np.concatenate([ints(buffered["bytes"]), sizes])


def _values(layout: Layout, rows: pa.Table) -> list[pa.ChunkedArray]:
    done = results.finish(layout.for_kind["updates"], rows)
    return [done[name] for name in layout.result_types]
