"""Conversion of Python values to the values that a column of the declared type stores and returns.

The result of a function is converted to its declared type after every call. If it were converted only when it is
stored, at the end of a batch, results would depend on how the stream is cut into batches. Arrow truncates 2.5 to 2 for
an integer column, at any depth; here a value that does not fit is an error.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from ctypes import c_float
from datetime import datetime
from decimal import Decimal
from math import isfinite
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa

from tidegate.errors import AggregationError

Converter: TypeAlias = Callable[[Any], Any]

MISFITS = (pa.ArrowException, OverflowError, TypeError, ValueError)
"""Errors that a converter raises for a value that does not fit its type."""

_INTEGERS = {kind: np.iinfo(kind.to_pandas_dtype()) for kind in (pa.int8(), pa.int16(), pa.int32(), pa.int64())} | {
    kind: np.iinfo(kind.to_pandas_dtype()) for kind in (pa.uint8(), pa.uint16(), pa.uint32(), pa.uint64())
}


def converter(kind: pa.DataType) -> Converter:
    """A function that converts a value to the value that a column of `kind` would return; None stays None.

    Lists, structs and maps are new objects every time, so that only the caller holds them. A struct has all its fields
    and no others; a map is a list of (key, value) pairs, as Arrow reads it.

    The function raises one of `MISFITS` for a value that the type cannot hold. A number that would be truncated does
    not fit; a double becomes the nearest float.
    """
    convert = _converter(kind)

    def stored(value: Any) -> Any:
        if isinstance(value, pa.Scalar):
            value = value.as_py()
        return None if value is None else convert(value)

    # These types are the most frequent. Their converters find Arrow's scalars themselves, in less time.
    return convert if kind in _INTEGERS or kind == pa.float64() or kind == pa.string() else stored


def _converter(kind: pa.DataType) -> Converter:
    if pa.types.is_dictionary(kind):
        return _converter(kind.value_type)
    if kind in _INTEGERS:
        return _integer(int(_INTEGERS[kind].min), int(_INTEGERS[kind].max), kind)
    if pa.types.is_floating(kind):
        return _float(kind)
    if pa.types.is_string(kind):
        return _string
    if pa.types.is_struct(kind):
        return _struct(kind)
    if pa.types.is_map(kind):
        return _map(kind)
    if pa.types.is_fixed_size_list(kind):
        return _list(kind, kind.list_size)
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return _list(kind)
    if pa.types.is_date(kind) or pa.types.is_timestamp(kind):
        return _instant(kind)
    return _of_arrow(kind)


def as_python(rows: pa.Table, whose: str) -> list[dict[str, Any]]:
    """The rows as dicts of Python values, for `whose` functions.

    Raises AggregationError for an instant that Python's datetimes do not have; Spark's reach further.
    """
    try:
        return rows.to_pylist()
    except OverflowError:
        for name in rows.schema.names:
            column_as_python(rows[name], name, whose)
        raise


def column_as_python(column: Any, name: str, whose: str) -> list[Any]:
    """The values of the column `name`, as `as_python` gives them."""
    try:
        return column.to_pylist()
    except OverflowError:
        raise AggregationError(
            f"{whose} calls Python functions, and the column {name!r} holds an instant that Python's datetimes do not "
            "have: they end with the year 9999. Nothing of this batch was emitted or stored. Filter such records out "
            "before tg.stream(...), or use built-in aggregates and expressions."
        ) from None


def is_nested(kind: pa.DataType) -> bool:
    """Whether values of this type are objects that can be changed."""
    return bool(pa.types.is_nested(kind))


def _of_arrow(kind: pa.DataType) -> Converter:
    return lambda value: pa.scalar(value, kind).as_py()


def _integer(low: int, high: int, kind: pa.DataType) -> Converter:
    def convert(value: Any) -> Any:
        if type(value) is int:
            if low <= value <= high:
                return value
            raise OverflowError(f"a {kind} holds {low} to {high}")
        if value is None:
            return None
        if isinstance(value, pa.Scalar):
            return convert(value.as_py())
        if isinstance(value, bool | np.bool_):
            raise TypeError("a boolean is no number")
        if isinstance(value, float | np.floating | Decimal):
            if not isfinite(value) or int(value) != value:
                raise ValueError("it is no whole number")
            return convert(int(value))
        if isinstance(value, int | np.integer):
            return convert(int(value))
        return pa.scalar(value, kind).as_py()

    return convert


def _float(kind: pa.DataType) -> Converter:
    single, arrow = kind == pa.float32(), _of_arrow(kind)

    def convert(value: Any) -> Any:
        if type(value) is float:
            return value
        if value is None:
            return None
        if isinstance(value, pa.Scalar):
            return convert(value.as_py())
        return arrow(value)

    def nearest(value: Any) -> Any:
        return c_float(value).value if type(value) is float else arrow(value)

    if single:
        return nearest
    return convert if kind == pa.float64() else arrow


def _string(value: Any) -> Any:
    if type(value) is str and value.isascii():
        return value
    if isinstance(value, pa.Scalar):
        value = value.as_py()
    return None if value is None else pa.scalar(value, pa.string()).as_py()


def _instant(kind: pa.DataType) -> Converter:
    """The converter of dates and timestamps. Arrow alone would drop a date's time of day, and nanoseconds."""
    arrow, days = _of_arrow(kind), pa.types.is_date(kind)
    fine = pa.types.is_timestamp(kind) and kind.unit == "ns"

    def convert(value: Any) -> Any:
        if isinstance(value, datetime):
            nanosecond = getattr(value, "nanosecond", 0)
            if days and (value.hour or value.minute or value.second or value.microsecond or nanosecond):
                raise ValueError("it has a time of day")
            if nanosecond and not fine:
                raise ValueError("it has nanoseconds")
        return arrow(value)

    return convert


def _list(kind: Any, size: int | None = None) -> Converter:
    convert = converter(kind.value_type)

    def stored(value: Any) -> list[Any]:
        if isinstance(value, np.ndarray) and value.ndim == 0:
            raise TypeError("it is no list")
        if isinstance(value, str | bytes | bytearray | Mapping) or not isinstance(value, Iterable):
            raise TypeError("it is no list")
        found = [convert(element) for element in value]
        if size is not None and len(found) != size:
            raise ValueError(f"it has {len(found)} elements, not {size}")
        return found

    return stored


def _struct(kind: Any) -> Converter:
    fields = [kind.field(i) for i in range(kind.num_fields)]
    converters = [(field.name, converter(field.type)) for field in fields]

    def stored(value: Any) -> dict[str, Any]:
        if isinstance(value, tuple) and hasattr(value, "_asdict"):
            value = value._asdict()
        if isinstance(value, list) and all(isinstance(pair, tuple) and len(pair) == 2 for pair in value):
            value = dict(value)
        if isinstance(value, Mapping):
            return {name: convert(value.get(name)) for name, convert in converters}
        if not isinstance(value, tuple) or len(value) != len(converters):
            raise TypeError(f"it is no dict with the fields {', '.join(name for name, _ in converters)}")
        return {name: convert(element) for (name, convert), element in zip(converters, value, strict=True)}

    return stored


def _map(kind: Any) -> Converter:
    key, item = converter(kind.key_type), converter(kind.item_type)

    def stored(value: Any) -> list[tuple[Any, Any]]:
        pairs = value.items() if isinstance(value, Mapping) else value
        if isinstance(pairs, str | bytes) or not isinstance(pairs, Iterable):
            raise TypeError("it is no dict, and no list of (key, value) pairs")
        found = []
        for pair in pairs:
            if not isinstance(pair, tuple | list) or len(pair) != 2:
                raise TypeError(f"{pair!r} is no (key, value) pair")
            if pair[0] is None:
                raise ValueError("a key of it is None")
            found.append((key(pair[0]), item(pair[1])))
        return found

    return stored
