"""Names of array types, small conversions between Arrow and numpy, concatenation of tables, and selection of rows."""

from __future__ import annotations

from collections.abc import Callable
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


def with_column(rows: Rows, name: str, column: pa.Array | pa.ChunkedArray) -> Rows:
    """The rows with `column` in the place of their column `name`."""
    return rows.set_column(rows.schema.get_field_index(name), name, column)


def decoded(rows: Rows) -> Rows:
    """`rows` with the values of columns that are dictionary-encoded."""
    for at, field in enumerate(rows.schema):
        if pa.types.is_dictionary(field.type):
            rows = rows.set_column(at, field.name, plain(rows.column(at)))
    return rows


def plain_columns(rows: pa.Table) -> pa.Table:
    """`rows` of a user with plain types: the values of dictionaries, text and bytes that are no views, the values that
    an extension stores (of a UUID its bytes), and decimals of 128 bits.

    pandas and polars have categories as dictionaries, and polars has text as views. Arrow cannot select views, and
    groups neither extensions nor smaller decimals.
    """
    for change in (_common, _without_view, _without_dictionary):  # Arrow decodes no dictionary of views.
        schema = pa.schema([_changed(field, change) for field in rows.schema], rows.schema.metadata)
        rows = rows if schema.equals(rows.schema) else rows.cast(schema)
    return rows


def _common(kind: pa.DataType) -> pa.DataType:
    if isinstance(kind, pa.BaseExtensionType):
        return kind.storage_type
    small = pa.types.is_decimal(kind) and kind.bit_width < 128
    return pa.decimal128(kind.precision, kind.scale) if small else kind


def _without_view(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_dictionary(kind):
        return pa.dictionary(kind.index_type, with_each_type(kind.value_type, _without_view), kind.ordered)
    if pa.types.is_string_view(kind):
        return pa.large_string()
    return pa.large_binary() if pa.types.is_binary_view(kind) else kind


def _without_dictionary(kind: pa.DataType) -> pa.DataType:
    return with_each_type(kind.value_type, _without_dictionary) if pa.types.is_dictionary(kind) else kind


def with_each_type(kind: pa.DataType, change: Callable[[pa.DataType], pa.DataType]) -> pa.DataType:
    """The type `kind` with `change` for each of its atomic types."""
    if pa.types.is_struct(kind):
        return pa.struct([_changed(kind.field(at), change) for at in range(kind.num_fields)])
    if pa.types.is_map(kind):
        return pa.map_(_changed(kind.key_field, change), _changed(kind.item_field, change), kind.keys_sorted)
    if pa.types.is_fixed_size_list(kind):
        return pa.list_(_changed(kind.value_field, change), kind.list_size)
    if pa.types.is_large_list(kind):
        return pa.large_list(_changed(kind.value_field, change))
    return pa.list_(_changed(kind.value_field, change)) if pa.types.is_list(kind) else change(kind)


def _changed(field: pa.Field, change: Callable[[pa.DataType], pa.DataType]) -> pa.Field:
    return field.with_type(with_each_type(field.type, change))


def as_type(column: Column, kind: pa.DataType) -> Column:
    """The column cast to a type; a column that has it stays as it is.

    Structs, lists and maps are cast part by part: Arrow's own cast refuses a null struct if one of its fields is never
    null, although a null struct has no fields.
    """
    if column.type == kind:
        return column
    if not pa.types.is_nested(kind):
        return column.cast(kind)
    if isinstance(column, pa.ChunkedArray):
        return pa.chunked_array([as_type(chunk, kind) for chunk in column.chunks], kind)
    alike = pa.types.is_struct, pa.types.is_list, pa.types.is_map
    if not any(is_one(column.type) and is_one(kind) for is_one in alike):
        return column.cast(kind)
    if not pa.types.is_struct(kind):
        column = pa.concat_arrays([column])  # children of a slice are whole, its offsets are not
        values = _pairs(column, kind) if pa.types.is_map(kind) else as_type(column.values, kind.value_type)
        return pa.Array.from_buffers(kind, len(column), column.buffers()[:2], column.null_count, 0, [values])
    if [field.name for field in column.type] != [field.name for field in kind]:
        return column.cast(kind)
    parts = [as_type(column.field(at), field.type) for at, field in enumerate(kind)]
    return pa.StructArray.from_arrays(parts, fields=list(kind), mask=column.is_null())


def raw(column: Column) -> Column:
    """The column with the bytes of texts and the numbers of times, at any depth: Python has a value for each of them.

    Spark has texts that are no UTF-8, and instants past the year 9999. Values are equal if and only if these are.
    """
    return as_type(column, with_each_type(column.type, _raw))


def _raw(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_string(kind):
        return pa.binary()
    if pa.types.is_large_string(kind):
        return pa.large_binary()
    if pa.types.is_date(kind) or pa.types.is_timestamp(kind) or pa.types.is_duration(kind):
        return pa.int32() if kind.bit_width == 32 else pa.int64()
    return kind


def _pairs(column: pa.MapArray, kind: pa.MapType) -> pa.StructArray:
    """The entries of maps as entries of the type `kind`."""
    parts = [as_type(column.keys, kind.key_type), as_type(column.items, kind.item_type)]
    return pa.StructArray.from_arrays(parts, fields=[kind.key_field, kind.item_field])


def as_schema(rows: Rows, schema: pa.Schema) -> Rows:
    """The rows with the columns of `schema`, which have the same names; each column as `as_type` casts it."""
    if rows.schema.names != schema.names:
        raise ValueError(f"rows with the columns {rows.schema.names} are not cast to {schema.names}")
    columns = [as_type(column, kind) for column, kind in zip(rows.columns, schema.types, strict=True)]
    return type(rows).from_arrays(columns, schema=schema)


def concat_tables(tables: list[pa.Table]) -> pa.Table:
    """The rows of tables with the same columns; a column of type null takes the type of the other tables."""
    if len(tables) == 1:
        return tables[0]
    if any(not table.schema.equals(tables[0].schema) for table in tables):
        # A part of type null takes a type too; Arrow's own cast makes other parts of type null too short.
        schema = pa.unify_schemas([table.schema for table in tables])
        tables = [_with_nested(table, schema) for table in tables]
    return pa.concat_tables(tables, promote_options="default")


def _with_nested(rows: pa.Table, schema: pa.Schema) -> pa.Table:
    """The rows, whose nested columns have the types in `schema`."""
    for field in rows.schema:
        if pa.types.is_nested(field.type) and (kind := schema.field(field.name).type) != field.type:
            rows = with_column(rows, field.name, as_type(rows[field.name], kind))
    return rows


def some_rows(rows: pa.Table, at: Ints) -> pa.Table:
    """The rows at these ascending places; no copy if they are all rows."""
    return rows if len(at) == rows.num_rows else rows.take(pa.array(at))


def pieces(rows: pa.Table, sizes: Ints) -> list[pa.Table]:
    """Rows in pieces of these sizes, one after another."""
    return [rows.slice(end - size, size) for end, size in zip(np.cumsum(sizes), sizes, strict=True)]
