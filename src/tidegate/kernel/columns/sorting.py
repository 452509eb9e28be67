"""Sorting that makes use of sorted runs, and taking values in an order far from their own."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tidegate.kernel.columns import radix_sort
from tidegate.kernel.columns.arrays import Ints, array, concat_tables
from tidegate.kernel.columns.fixed_length import MOST_BYTES, as_fixed, as_strings, one_length

_PACKED = 62
"""Bits of a number into which columns are packed."""


def by_columns(rows: pa.Table) -> pa.Array:
    """The places that sort rows by their columns, the first column first; nulls come last."""
    return pc.sort_indices(rows, sort_keys=[(name, "ascending") for name in rows.schema.names])


def by_two(first: Ints, second: Ints) -> Ints:
    """The places that sort rows by two columns; equal rows keep their order.

    Sorted runs are merged; only rows that are equal by `first` and out of order are sorted by `second`. (`np.lexsort`
    begins with the last column, and so finds no run.)
    """
    return ties_in_order(np.argsort(first, kind="stable"), first, second)


def ties_in_order(order: Ints, first: Ints, second: Ints) -> Ints:
    """`order`, which sorts by `first`, with rows that are equal there sorted by `second`. Changes `order` in place.

    Rows that are equal in both keep their order.
    """
    sorted_by, then_by = first.take(order), second.take(order)
    same = sorted_by[1:] == sorted_by[:-1]
    astray = same & (then_by[1:] < then_by[:-1])
    if not astray.any():
        return order
    group = np.append(0, np.cumsum(~same))
    mixed = np.zeros(int(group[-1]) + 1, bool)
    mixed[group[1:][astray]] = True
    at = np.flatnonzero(mixed[group])
    found = order[at]
    order[at] = found[np.lexsort((second[found], first[found]))]
    return order


def by_several(columns: Sequence[Ints]) -> Ints:
    """The places that sort rows by several columns of whole numbers; equal rows keep their order.

    Columns that fit are packed into one number, which is sorted at once. (Arrow takes five to forty times as long.)
    """
    numbers: list[Ints] = []
    bits = _PACKED
    for column in reversed(columns):
        low, high = int(column.min(initial=0)), int(column.max(initial=0))
        width = (high - low).bit_length()
        if width > _PACKED:
            numbers, bits = [*numbers, column], _PACKED
        elif bits + width > _PACKED:
            numbers, bits = [*numbers, column - low], width
        elif width:
            numbers[-1] = numbers[-1] + ((column - low) << bits)
            bits += width
    order = np.arange(len(columns[0]))
    for number in numbers:
        order = order[radix_sort.argsort(number[order])]
    return order


def far_apart(column: pa.Array, at: Ints) -> pa.Array:
    """The values at these places, each of which may be far from the place before it.

    Arrow takes texts one by one, and each waits for memory; for values of fixed size it waits for several at once. So
    texts of one length (often ids) are taken as values of fixed size, in a tenth of the time.
    """
    length = one_length(column)
    if not length or length * len(at) > MOST_BYTES:
        return column.take(pa.array(at))
    return as_strings(as_fixed(column, length).take(pa.array(at)), column.type)


def in_one_piece(tables: list[pa.Table], order: Ints | None = None) -> pa.Table:
    """The rows of all tables as one table, in `order` if there is one; frees `tables`."""
    rows = concat_tables(tables)
    tables.clear()
    columns = {}
    for name in rows.schema.names:
        column = array(rows[name])
        rows = rows.drop_columns([name])
        columns[name] = column if order is None else far_apart(column, order)
    return pa.table(columns)
