"""Sorting that makes use of what is in order already, and rows in an order far from that in which they lie."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from tidegate.kernel.columns.arrays import Ints

_MOST_BYTES = 2**31 - 1
"""Of all texts of a column whose places have 32 bits."""


def by_two(first: Ints, second: Ints) -> Ints:
    """The places that put rows in the order of two columns; equal rows stay as they are.

    Rows that come as sorted runs are merged, and those alone are sorted by `second` that are equal by `first` and lie
    in another order. (`np.lexsort` begins with the last column, and so finds no run.)
    """
    return ties_in_order(np.argsort(first, kind="stable"), first, second)


def ties_in_order(order: Ints, first: Ints, second: Ints) -> Ints:
    """`order`, which is that of `first`, with rows that are equal there in the order of `second`; it is changed.

    Rows that are equal in both stay as they stand in it.
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


def far_apart(column: pa.Array, at: Ints) -> pa.Array:
    """The values at these places, of which each may be far from the one before it.

    Arrow takes texts one by one, and each waits for memory; of values of one length it waits for several at once. So
    texts of one length (ids, often) are taken as what they are then, in a tenth of the time.
    """
    length = _one_length(column)
    if not length or length * len(at) > _MOST_BYTES:
        return column.take(pa.array(at))
    _, offsets, data = column.buffers()
    width = _offset_type(column.type)
    begin = int(np.frombuffer(offsets, width, 1, column.offset * np.dtype(width).itemsize)[0])
    fixed = pa.Array.from_buffers(pa.binary(length), len(column), [None, data.slice(begin)])
    taken = fixed.take(pa.array(at)).buffers()[1]
    ends = pa.py_buffer((np.arange(len(at) + 1) * length).astype(width))
    return pa.Array.from_buffers(column.type, len(at), [None, ends, taken])


def _one_length(column: pa.Array) -> int:
    """How many bytes each text has; 0 if they differ, or some are missing, or the values are no texts."""
    kind = column.type
    if kind not in (pa.string(), pa.binary(), pa.large_string(), pa.large_binary()):
        return 0
    if column.null_count or not len(column):
        return 0
    offsets = np.frombuffer(column.buffers()[1], _offset_type(kind), column.offset + len(column) + 1)[column.offset :]
    lengths = np.diff(offsets)
    return int(lengths[0]) if (lengths == lengths[0]).all() else 0


def _offset_type(kind: pa.DataType) -> type[np.signedinteger]:
    return np.int64 if kind in (pa.large_string(), pa.large_binary()) else np.int32
