"""The bytes that a value counts in a buffer with a bound (SEMANTICS 6.4), and which values are the same bytes.

A null counts nothing. A string or binary value counts its bytes, every other atomic value the width of its Arrow type
(a boolean one byte). A struct, list or map counts the sum of its parts, and nothing for itself.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tidegate.kernel.columns.arrays import Ints, raw

_BITS = {pa.float32(): pa.int32(), pa.float64(): pa.int64()}


def total(columns: list[pa.Array]) -> Ints:
    """The bytes of each row: the sum over all these columns, of which there is at least one."""
    return np.sum([byte_sizes(column) for column in columns], axis=0, dtype=np.int64)


def of_one_row(columns: list[pa.Array]) -> int:
    """The bytes of a row; each column has one value. A row without columns counts nothing."""
    return sum(int(byte_sizes(column)[0]) for column in columns)


def comparable(column: pa.Array) -> pa.Array:
    """A column that is equal where the bytes are: a NaN is itself, whatever its bits, and -0.0 is not 0.0."""
    if pa.types.is_nested(column.type):
        # Arrow compares no lists and structs.
        return pa.array(map(repr, raw(column).to_pylist()), pa.string())
    if column.type not in _BITS:
        return column
    one_nan = pc.if_else(pc.is_nan(column), pa.scalar(np.nan, column.type), column)
    return one_nan.view(_BITS[column.type])


def byte_sizes(column: pa.Array) -> Ints:
    """The bytes of each value of a column of any type."""
    kind = column.type
    if isinstance(column, pa.ExtensionArray):
        return byte_sizes(column.storage)
    if pa.types.is_null(kind):
        return np.zeros(len(column), np.int64)
    if pa.types.is_dictionary(kind):
        return byte_sizes(column.dictionary_decode())
    if kind in (pa.string_view(), pa.binary_view()):
        column = column.cast(pa.large_binary())
        kind = column.type
    if pa.types.is_struct(kind):
        return total(column.flatten()) if kind.num_fields else np.zeros(len(column), np.int64)
    if pa.types.is_map(kind):
        return byte_sizes(column.cast(pa.list_(pa.struct([kind.key_field, kind.item_field]))))
    if pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind):
        return _of_lists(column)
    is_text = pa.types.is_string(kind) or pa.types.is_large_string(kind)
    if is_text or pa.types.is_binary(kind) or pa.types.is_large_binary(kind) or pa.types.is_fixed_size_binary(kind):
        return _filled(pc.binary_length(column))
    width = max(1, kind.bit_width // 8)
    return np.where(column.is_valid().to_numpy(zero_copy_only=False), width, 0)


def _of_lists(column: pa.Array) -> Ints:
    ends = np.cumsum(lengths := _filled(pc.list_value_length(column)))
    running = np.concatenate(([0], np.cumsum(byte_sizes(column.flatten()))))
    sizes: Ints = running[ends] - running[ends - lengths]
    return sizes


def _filled(numbers: pa.Array) -> Ints:
    """Numbers as numpy, 0 for a null."""
    return pc.fill_null(numbers, 0).to_numpy(zero_copy_only=False).astype(np.int64)
