"""The prior value of a window: the value that its first row replaces. A buffer counts its bytes (SEMANTICS 6.4).

For most windows the prior value is the initial aggregate (`strict_bound.initial`). Sliding windows that are made from
other windows are the exception: a left window replaces the aggregate of the window that it continues, a right window
replaces nothing (SEMANTICS 3.1). A left window that is also the right one of the record in front of it has two rows,
each of which replaces the initial aggregate.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tidegate.kernel.columns.arrays import Flags, array, concat_tables
from tidegate.kernel.columns.groups import place_in_group
from tidegate.kernel.exchange.batch import MadeWindows
from tidegate.kernel.rows import grouping
from tidegate.kernel.rows.layout import Layout
from tidegate.kernel.suppress import strict_bound
from tidegate.spec.columns import OURS
from tidegate.spec.windows import SlidingWindows

PRIOR = OURS + "replaced:"
"""Prefix of the columns with prior values; the name of a value column follows."""

NTH = OURS + "nth"
"""The number of an update among the updates of its window in a batch, from 0."""


def counted(layout: Layout) -> bool:
    """Whether windows are made from other windows, in front of a buffer that counts bytes."""
    first = [output.limits[0].how.buffer for output in layout.op.all_outputs if output.limits]
    bytes_held = layout.op.buffer is not None or any(buffer.max_bytes is not None for buffer in first)
    return isinstance(layout.op.windows, SlidingWindows) and bytes_held


def of(layout: Layout, rows: pa.Table, made: MadeWindows | None) -> list[pa.Array]:
    """The prior value of each row's window, one column per value column; `rows` have (key, start, end).

    Windows that were not `made` of others have `strict_bound.initial`.
    """
    initial = strict_bound.repeated(strict_bound.initial(layout), rows.num_rows)
    if made is None or not made.began.num_rows or not rows.num_rows:
        return initial
    known_codes, codes = grouping.codes_of_tables(window_columns(layout), [made.began, rows])
    place = grouping.places(codes, known_codes)
    take, known = pa.array(np.maximum(place, 0)), pa.array(place >= 0)
    return [
        pc.if_else(known, array(made.began[PRIOR + name]).take(take), first)
        for name, first in zip(layout.result_types, initial, strict=True)
    ]


def begin_again(layout: Layout, rows: pa.Table, made: MadeWindows | None) -> Flags:
    """Flags of the updates of a batch, rows with (key, start, end), that make their window again."""
    if made is None or not made.again.num_rows or not rows.num_rows:
        return np.zeros(rows.num_rows, np.bool_)
    names = [*window_columns(layout), NTH]
    again, codes = grouping.codes_of_tables(names, [made.again, numbered(layout, rows.select(window_columns(layout)))])
    found: Flags = np.isin(codes, again)
    return found


def numbered(layout: Layout, rows: pa.Table) -> pa.Table:
    """The updates of a batch, rows with (key, start, end), and `NTH`: the number of each in its window."""
    codes = grouping.codes([rows[name] for name in window_columns(layout)]) if rows.num_rows else np.zeros(0, np.int64)
    return rows.append_column(NTH, pa.array(place_in_group(codes)))


def stored(layout: Layout, buffered: pa.Table, began: list[pa.Array]) -> list[pa.Array]:
    """The prior values of the entries `buffered` (of `keep`; else the initial aggregate), and behind them `began`."""
    # A plan with the aggregates in another order may have stored the columns: take them by name.
    known = [array(buffered[PRIOR + name]) for name in layout.result_types if kept(buffered)]
    known = known or strict_bound.repeated(strict_bound.initial(layout), buffered.num_rows)
    # Stored values may have parts of a type that was not known then: tables are concatenated under one type.
    both = [[pa.table({"v": column}) for column in pair] for pair in zip(known, began, strict=True)]
    return [array(concat_tables(tables)["v"]) for tables in both]


def keep(layout: Layout, entries: pa.Table, began: list[pa.Array]) -> pa.Table:
    """Entries of a buffer with the prior values of their windows as columns, if windows differ in them (`counted`)."""
    if not counted(layout):
        return entries
    for name, column in zip(layout.result_types, began, strict=True):
        entries = entries.append_column(PRIOR + name, column)
    return entries


def kept(rows: pa.Table) -> list[str]:
    """The columns of stored rows with prior values."""
    return [name for name in rows.schema.names if name.startswith(PRIOR)]


def window_columns(layout: Layout) -> list[str]:
    """The columns that name a window of a key."""
    return [*layout.keys, "start", "end"]
