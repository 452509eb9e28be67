"""What the first row of a window is told to replace, which a buffer counts in bytes (SEMANTICS 6.4).

That is what the aggregation starts with (`buffers.initial`), but for sliding windows that are made of others: a left
window replaces the aggregate of the window it continues, and a right one nothing (SEMANTICS 3.1).
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tidegate.kernel import buffers, grouping, results
from tidegate.kernel.batch import unite
from tidegate.kernel.grouping import array
from tidegate.kernel.layout import Layout
from tidegate.kernel.lineage import INITIAL, Aggregates, Entry, Update
from tidegate.spec.columns import OURS
from tidegate.spec.windows import SlidingWindows

PRIOR = OURS + "replaced:"
"""Before the name of a value column: the column that holds what was replaced."""


def counted(layout: Layout) -> bool:
    """Whether windows are made of others, in front of a buffer that counts bytes."""
    limit = layout.op.limit
    bytes_held = layout.op.buffer is not None or (limit is not None and limit.buffer.max_bytes is not None)
    return isinstance(layout.op.windows, SlidingWindows) and bytes_held


def made(layout: Layout, aggregates: Aggregates, keys: pa.Table, updates: list[Update]) -> pa.Table:
    """(key, start, end, priors) of the windows among the updates that were made of others."""
    mine = [update for update in updates if update.entry.prior is not INITIAL]
    of = [Update(u.record, Entry(u.entry.start, u.entry.end, u.entry.ts, u.entry.prior)) for u in mine]
    rows = aggregates.table(keys, of)
    done = results.finish(layout.telling["updates"], rows)
    columns: dict[str, Any] = {name: rows[name] for name in _names(layout)}
    for name in layout.result_types:
        column = array(done[name])
        columns[PRIOR + name] = pc.if_else(array(rows["deleted"]), pa.scalar(None, column.type), column)
    return pa.table(columns)


def of(layout: Layout, rows: pa.Table, begun: pa.Table | None) -> list[pa.Array]:
    """For rows with (key, start, end) what each window's first row replaced, a column for each value.

    `begun` has that of some windows (`made`); it is `buffers.initial` of all others.
    """
    initial = buffers.repeated(buffers.initial(layout), rows.num_rows)
    if begun is None or not begun.num_rows or not rows.num_rows:
        return initial
    both = unite([begun.select(_names(layout)), rows.select(_names(layout))])
    codes = np.unique(grouping.codes([both[name] for name in _names(layout)]), return_inverse=True)[1]
    at = np.full(int(codes.max()) + 1, -1, np.int64)
    at[codes[: begun.num_rows]] = np.arange(begun.num_rows)
    place = at[codes[begun.num_rows :]]
    take, known = pa.array(np.maximum(place, 0)), pa.array(place >= 0)
    return [
        pc.if_else(known, array(begun[PRIOR + name]).take(take), first)
        for name, first in zip(layout.result_types, initial, strict=True)
    ]


def stored(layout: Layout, held: pa.Table, began: list[pa.Array]) -> list[pa.Array]:
    """What the windows of entries began with, which say so (`keep`) or are older than that, and behind them `began`."""
    initial = buffers.repeated(buffers.initial(layout), held.num_rows)
    known = [array(held[name]) for name in kept(held)] or initial
    return [array(pa.chunked_array([first, more])) for first, more in zip(known, began, strict=True)]


def keep(layout: Layout, entries: pa.Table, began: list[pa.Array]) -> pa.Table:
    """Entries of a buffer with what their windows began with, where that is not the same for all."""
    if not counted(layout):
        return entries
    for name, column in zip(layout.result_types, began, strict=True):
        entries = entries.append_column(PRIOR + name, column)
    return entries


def kept(rows: pa.Table) -> list[str]:
    """The columns of stored rows that hold what their windows began with."""
    return [name for name in rows.schema.names if name.startswith(PRIOR)]


def _names(layout: Layout) -> list[str]:
    return [*layout.keys, "start", "end"]
