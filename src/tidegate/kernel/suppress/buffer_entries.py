"""Entries of a bounded buffer: their bytes, and their prior values.

The prior value of an entry is the value of its key before it began to wait. If the bound is one of bytes, the prior
value counts (SEMANTICS 6.4): each row then has the value that it replaces, and an entry keeps that of its first row.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tidegate.kernel.columns.arrays import Ints, array, flags, with_column
from tidegate.kernel.exchange import old_values
from tidegate.kernel.exchange.batch import MadeWindows
from tidegate.kernel.rows import grouping
from tidegate.kernel.rows.layout import Layout
from tidegate.kernel.state.state import State
from tidegate.kernel.suppress import prior_values, strict_bound
from tidegate.kernel.suppress.bounded_buffer import Entries
from tidegate.kernel.suppress.suppression_metrics import SIZE
from tidegate.kernel.suppress.time_buckets import waiting_since
from tidegate.kernel.suppress.value_bytes import byte_sizes, comparable, of_one_row
from tidegate.spec.columns import DELETED, END, OURS, START
from tidegate.spec.windows import SessionWindows

PRIOR = OURS + "prior:"
"""Prefix of the columns with the prior value of an entry whose bytes count; the name of a value column follows."""


class Sizes:
    """The bytes of entries. Rows are numbered: waiting entries first, then the new rows; a number may be an array."""

    def __init__(self, layout: Layout, rows: pa.Table) -> None:
        self.keys = _key_sizes(layout, rows)
        self.values = _value_sizes(layout, rows)
        names = prior_names(rows) if counts_bytes(layout) else []
        self._prior_codes = _value_codes([rows[name] for name in names]) if names else None
        self._priors = _widths(rows, names)
        self._initial = _initial_bytes(layout)

    def of(self, row: Any, prior: Any, waited: Any) -> Any:
        """The bytes of the entry that `row` makes.

        prior   the entry's first row, which has the prior value
        waited  the bytes of the value that the entry had until now, 0 if `row` is its first row
        """
        if self._prior_codes is None:
            return strict_bound.entry_bytes(self.keys[row], self._initial, waited, self.values[row])
        # The value that a row replaces counts unless it equals the entry's prior value.
        other = self._prior_codes[row] != self._prior_codes[prior]
        return strict_bound.entry_bytes(
            self.keys[row], self._priors[prior], other * self._priors[row], self.values[row]
        )


def without_bound(layout: Layout, waiting: list[pa.Table]) -> list[pa.Table]:
    """Rows that waited without a bound (one per key) as entries; their prior values are not known."""
    initial = _initial_bytes(layout)
    return [
        rows.append_column(
            SIZE,
            pa.array(strict_bound.entry_bytes(_key_sizes(layout, rows), initial, 0, _value_sizes(layout, rows))),
        )
        for rows in waiting
    ]


def staying(rows: pa.Table, entries: Entries) -> pa.Table:
    """The rows of the entries that stay, each with the prior value that the first row of its entry has."""
    retained = waiting_since(rows.take(pa.array(entries.rows)), entries.times)
    retained = retained.drop_columns([SIZE]).append_column(SIZE, pa.array(entries.sizes))
    for name in prior_names(retained):
        retained = with_column(retained, name, rows[name].take(pa.array(entries.priors)))
    return retained


def counts_bytes(layout: Layout) -> bool:
    """Whether the bound counts bytes, so that prior values must be known."""
    buffer = layout.op.limit.buffer
    return buffer.bounded and buffer.max_bytes is not None


def prior_names(rows: pa.Table) -> list[str]:
    return [name for name in rows.schema.names if name.startswith(PRIOR)]


def with_prior(layout: Layout, state: State, rows: pa.Table, made: MadeWindows | None, closed_through: int) -> pa.Table:
    """The rows with `PRIOR` columns: the value that each row replaces, the old value of its change (SEMANTICS 1, 6.4).

    made       windows that the batch made of other windows
    closed_through  no further row comes of windows that close up to this stream time (ms)
    """
    (limit,) = layout.op.all_limits
    if layout.op.emits == "final":
        # A window has one final result, which replaces nothing.
        before, has = np.zeros(rows.num_rows, np.int64), np.zeros(rows.num_rows, bool)
        old = rows
    else:
        result_rows = rows.select(layout.result_schema.names)
        found = old_values.replace(layout, state.old_values_of_limit(limit.place), result_rows, closed_through)
        old, before, has = found.rows, found.before, found.has
        if isinstance(layout.op.windows, SessionWindows):
            # A session takes no old value with it; only its tombstone does (SEMANTICS 4).
            has = has & flags(pc.fill_null(rows[DELETED], False))
    began = strict_bound.repeated(_initial(layout), rows.num_rows)
    if made is not None and layout.op.emits != "final":
        bounds = {START: "start", END: "end"} | dict(zip(layout.op.key, layout.keys, strict=True))
        windows = rows.select(list(bounds)).rename_columns(list(bounds.values()))
        has = has & ~prior_values.begin_again(layout, windows, made)
        if not layout.applied_steps:
            began = prior_values.of(layout, windows, made)
    for name, first in zip(layout.result_types, began, strict=True):
        column = array(old[name]).take(pa.array(before)) if old.num_rows else array(rows[name])
        rows = rows.append_column(PRIOR + name, pc.if_else(pa.array(has), column, first))
    return rows


def _initial(layout: Layout) -> list[pa.Array]:
    """The value that a row replaces if its key had none: Kafka Streams emits final results without an old value."""
    if layout.op.emits == "final":
        return [pa.nulls(1, kind) for kind in layout.result_types.values()]
    return strict_bound.initial(layout)


def _initial_bytes(layout: Layout) -> int:
    return of_one_row(_initial(layout))


def _value_codes(columns: list[pa.ChunkedArray]) -> Ints:
    """One number per row, the same for rows with the same values; null is a value like any other."""
    numbers = []
    for column in map(array, columns):
        encoded = comparable(column).dictionary_encode(null_encoding="encode")
        numbers.append(pa.chunked_array([encoded.indices.cast(pa.int64())]))
    return grouping.codes(numbers)


def _key_sizes(layout: Layout, rows: pa.Table) -> Ints:
    return _widths(rows, layout.op.key) + strict_bound.bounds_bytes(layout)


def _value_sizes(layout: Layout, rows: pa.Table) -> Ints:
    return _widths(rows, layout.result_types)


def _widths(rows: pa.Table, columns: Iterable[str]) -> Ints:
    size = np.zeros(rows.num_rows, np.int64)
    for name in columns:
        size = size + byte_sizes(array(rows[name]))
    return size
