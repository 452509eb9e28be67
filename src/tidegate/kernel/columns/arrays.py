"""Names of array types, small conversions between Arrow and numpy, concatenation of tables, and selection of rows."""

from __future__ import annotations

from typing import TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa

Ints = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]
Words = npt.NDArray[np.uint64]
Hashes = Words

Column = TypeVar("Column", pa.Array, pa.ChunkedArray)
Rows = TypeVar("Rows", pa.Table, pa.RecordBatch)


def ints(column: pa.ChunkedArray | pa.Array) -> Ints:
    """An integer column without nulls as numpy."""
    return column.to_numpy().astype(np.int64, copy=False)


def flags(column: pa.ChunkedArray | pa.Array) -> Flags:
    """A column of booleans without nulls, as a mask."""
    mask: Flags = column.to_numpy() if isinstance(column, pa.ChunkedArray) else column.to_numpy(zero_copy_only=False)
    return mask


def array(column: pa.ChunkedArray | pa.Array) -> pa.Array:
    """A column in one piece."""
    if isinstance(column, pa.Array):
        return column
    if column.num_chunks == 1:
        return column.chunk(0)  # `combine_chunks` copies it
    whole = column.combine_chunks()
    return whole.combine_chunks() if isinstance(whole, pa.ChunkedArray) else whole


def plain(column: Column) -> Column:
    """The values of a column that may be dictionary-encoded."""
    return column.cast(column.type.value_type) if pa.types.is_dictionary(column.type) else column


def decoded(rows: Rows) -> Rows:
    """`rows` with the values of columns that are dictionary-encoded."""
    for at, field in enumerate(rows.schema):
        if pa.types.is_dictionary(field.type):
            rows = rows.set_column(at, field.name, plain(rows.column(at)))
    return rows


def concat_tables(tables: list[pa.Table]) -> pa.Table:
    """The rows of tables with the same columns; a column of type null takes the type of the other tables."""
    return pa.concat_tables(tables, promote_options="default") if len(tables) > 1 else tables[0]


def some_rows(rows: pa.Table, at: Ints) -> pa.Table:
    """The rows at these ascending places; no copy if they are all rows."""
    return rows if len(at) == rows.num_rows else rows.take(pa.array(at))


def pieces(rows: pa.Table, sizes: Ints) -> list[pa.Table]:
    """Rows in pieces of these sizes, one after another."""
    return [rows.slice(end - size, size) for end, size in zip(np.cumsum(sizes), sizes, strict=True)]
