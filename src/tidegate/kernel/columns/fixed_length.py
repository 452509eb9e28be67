"""Strings that all have one length, as ids often do: their bytes, without the place where each begins.

Arrow takes and copies values of fixed size several times as fast as strings.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

MOST_BYTES = 2**31 - 1
"""Bytes of a column whose places have 32 bits."""


def one_length(column: pa.Array) -> int:
    """The length of each string in bytes; 0 if lengths differ, there are nulls or no values, or they are no strings."""
    kind = column.type
    if kind not in (pa.string(), pa.binary(), pa.large_string(), pa.large_binary()):
        return 0
    if column.null_count or not len(column):
        return 0
    places = _places(column)
    length = int(places[1] - places[0])
    return length if (np.diff(places) == length).all() else 0


def as_fixed(column: pa.Array, length: int) -> pa.FixedSizeBinaryArray:
    """The bytes of strings that all have this length, which are not copied."""
    begin = int(_places(column)[0])
    data = column.buffers()[2].slice(begin, length * len(column))
    return pa.Array.from_buffers(pa.binary(length), len(column), [None, data])


def as_strings(fixed: pa.FixedSizeBinaryArray, kind: pa.DataType) -> pa.Array:
    """Strings of type `kind` with these bytes, which are not copied.

    Raises ValueError for nulls, and for more bytes than strings of this type can have.
    """
    length, rows = fixed.type.byte_width, len(fixed)
    width = _width(kind)
    if fixed.null_count or (width is np.int32 and length * rows > MOST_BYTES):
        raise ValueError(f"{rows} strings of {length} bytes, of which {fixed.null_count} are null")
    places = pa.py_buffer((np.arange(rows + 1) * length).astype(width))
    data = fixed.buffers()[1].slice(fixed.offset * length, rows * length)
    return pa.Array.from_buffers(kind, rows, [None, places, data])


def _places(column: pa.Array) -> Any:
    """The place where each string begins, and the place where the last one ends."""
    width = _width(column.type)
    return np.frombuffer(column.buffers()[1], width, column.offset + len(column) + 1)[column.offset :]


def _width(kind: pa.DataType) -> type[np.signedinteger]:
    return np.int64 if kind in (pa.large_string(), pa.large_binary()) else np.int32
