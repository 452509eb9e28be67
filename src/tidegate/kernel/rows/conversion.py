"""Conversion of Python values to the values that a column of the declared type stores and returns.

The result of a function is converted to its declared type after every call. If it were converted only when it is
stored, at the end of a batch, results would depend on how the stream is cut into batches. Arrow truncates 2.5 to 2 for
an integer column, at any depth; here a value that does not fit is an error.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from ctypes import c_float
from dataclasses import fields, is_dataclass
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from math import inf, isfinite, isinf
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tidegate.errors import AggregationError
from tidegate.kernel.columns.arrays import Column, plain, raw

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

    The function raises one of `MISFITS` for a value that the type cannot hold. A number that would be truncated, or
    become infinite, does not fit; a double becomes the nearest float.
    """
    convert = _converter(kind)

    def stored(value: Any) -> Any:
        if isinstance(value, pa.Scalar):
            value = value.as_py()
        return None if value is None else convert(value)

    # These types are the most frequent. Their converters find Arrow's scalars themselves, in less time.
    return convert if kind in _INTEGERS or kind == pa.float64() or kind == pa.string() else stored


class MisfitError(ValueError):
    """A value of a column does not fit the type; `place` is its row, and `value` its text."""

    def __init__(self, place: int, value: pa.Scalar, error: Exception) -> None:
        super().__init__(str(error))
        self.place, self.value = place, shown(value)


def fitted(column: Column, kind: pa.DataType) -> Column | pa.Array:
    """The values of a column as `converter` converts them; a column that has the type is not copied.

    Raises MisfitError for the first value that does not fit.
    """
    if column.type == kind:
        return column
    column = plain(column)
    if (found := _cast(column, kind)) is not None:
        return found
    convert, values = converter(kind), []
    for place, value in enumerate(column):
        try:
            values.append(convert(value))
        except MISFITS as error:
            raise MisfitError(place, value, error) from error
    return pa.array(values, kind)


_ALIKE: tuple[tuple[Callable[[pa.DataType], bool], ...], ...] = (
    (pa.types.is_integer, pa.types.is_floating, pa.types.is_decimal),
    (pa.types.is_string, pa.types.is_large_string, pa.types.is_string_view),
    (pa.types.is_binary, pa.types.is_large_binary, pa.types.is_binary_view),
    (pa.types.is_date, pa.types.is_timestamp),
    (pa.types.is_time,),
    (pa.types.is_duration,),
)
"""Types of one group say the same in other words: Arrow's cast between them fails where it would lose something."""


def _cast(column: Column, kind: pa.DataType) -> Column | None:
    """The column as Arrow casts it; None if that fails, or if `converter` would convert some value in another way."""
    have = column.type
    alike = any(any(one(have) for one in group) and any(one(kind) for one in group) for group in _ALIKE)
    if not (alike or pa.types.is_null(have)) or (pa.types.is_floating(have) and pa.types.is_decimal(kind)):
        return None
    with suppress(pa.ArrowInvalid, pa.ArrowNotImplementedError):
        if pa.types.is_integer(have) and pa.types.is_decimal(kind):
            # Arrow casts integers only to decimals that hold all of their type.
            return column.cast(pa.decimal128(38, 0)).cast(kind)
        if pa.types.is_decimal(have) and pa.types.is_floating(kind):
            # Arrow's own cast does not give the nearest float; its reading of digits does.
            column = column.cast(pa.string()).cast(pa.float64())
        found = column.cast(kind)
        if pa.types.is_floating(kind) and _infinite(found) > _infinite(column):
            return None
        if not (pa.types.is_timestamp(have) and pa.types.is_date(kind)):
            return found
        # Of a timestamp Arrow drops the time of day, which is a local one in other zones.
        if have.tz in (None, "UTC") and found.cast(have).equals(column):
            return found
    return None


def _infinite(column: Column) -> int:
    """The number of values that are infinite."""
    return pc.sum(pc.is_inf(column)).as_py() or 0 if pa.types.is_floating(column.type) else 0


def shown(value: pa.Scalar) -> str:
    """The value as Python writes it, for errors."""
    try:
        return repr(value.as_py())
    except UnicodeDecodeError:
        return "text that is not UTF-8"
    except OverflowError:
        return "an instant past the year 9999"


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
    if pa.types.is_temporal(kind) and not pa.types.is_interval(kind):
        return _temporal(kind)
    return _decimal(kind) if pa.types.is_decimal(kind) else _of_arrow(kind)


def as_python(rows: pa.Table, whose: str) -> list[dict[str, Any]]:
    """The rows as dicts of Python values, for `whose` functions.

    Raises AggregationError for a value that Python does not have: an instant, as Spark's reach further, or a text.
    """
    try:
        return rows.to_pylist()
    except (OverflowError, UnicodeDecodeError):
        for name in rows.schema.names:
            column_as_python(rows[name], name, whose)
        raise


def column_as_python(column: Any, name: str, whose: str) -> list[Any]:
    """The values of the column `name`, as `as_python` gives them."""
    try:
        return column.to_pylist()
    except OverflowError:
        what, remedy = "an instant that Python's datetimes do not have: they end with the year 9999", "Filter"
    except UnicodeDecodeError:
        what = "a text that is not UTF-8, which no text of Python is"
        remedy = f'Use df.withColumn("{name}", F.make_valid_utf8("{name}")), filter'
    raise AggregationError(
        f"{whose} calls Python functions, and the column {name!r} holds {what}. Nothing of this batch was emitted or "
        f"stored. {remedy} such records out before tg.stream(...), or use built-in aggregates and expressions."
    )


def for_display(rows: pa.Table) -> list[dict[str, Any]]:
    """The rows as dicts for people: a text that is not UTF-8 as bytes, an instant past the year 9999 as a number."""
    columns = []
    for column in rows.columns:
        try:
            columns.append(column.to_pylist())
        except (OverflowError, UnicodeDecodeError):
            columns.append(raw(column).to_pylist())
    return [dict(zip(rows.schema.names, values, strict=True)) for values in zip(*columns, strict=True)]


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
            return _nearest(value, kind) if single else value
        if value is None:
            return None
        if isinstance(value, pa.Scalar):
            return convert(value.as_py())
        if isinstance(value, bool | np.bool_):
            raise TypeError("a boolean is no number")
        if isinstance(value, int | np.integer):
            # Arrow refuses all integers from some size on, also those that the type keeps.
            found: float = convert(float(value))
            if found != int(value):
                raise ValueError(f"the nearest {kind} is {found!r}")
            return found
        if isinstance(value, float | np.floating | Decimal):
            return _nearest(value, kind)
        return arrow(value)

    return arrow if pa.types.is_float16(kind) else convert


def _nearest(value: Any, kind: pa.DataType) -> float:
    """The double or float nearest to a number; raises OverflowError if that is infinite, and the number is not."""
    found = c_float(value).value if kind == pa.float32() else float(value)
    if isinf(found) and abs(value) != inf:
        raise OverflowError(f"the nearest {kind} is {found!r}")
    return found


def _decimal(kind: pa.DataType) -> Converter:
    arrow = _of_arrow(kind)  # Arrow takes no integers of numpy for decimals
    return lambda value: arrow(int(value) if isinstance(value, np.integer) else value)


def _string(value: Any) -> Any:
    if type(value) is str and value.isascii():
        return value
    if isinstance(value, pa.Scalar):
        value = value.as_py()
    return None if value is None else pa.scalar(value, pa.string()).as_py()


def _temporal(kind: pa.DataType) -> Converter:
    """The converter of dates, times, timestamps and durations. Arrow alone would drop what the type has no unit for."""
    arrow, days = _of_arrow(kind), pa.types.is_date(kind)
    unit = "day" if days else kind.unit
    in_micros = _in_micros(kind) if unit in ("s", "ms") else None

    def convert(value: Any) -> Any:
        if isinstance(value, np.generic):
            value = _of_numpy(value)
        if value is None or type(value).__name__ == "NaTType":  # of pandas
            return None
        if isinstance(value, bool | float | Decimal):
            raise TypeError(f"a {type(value).__name__} is no {kind}")
        nanoseconds = getattr(value, "nanosecond", 0) or getattr(value, "nanoseconds", 0)
        if days and isinstance(value, datetime):
            if value.hour or value.minute or value.second or value.microsecond or nanoseconds:
                raise ValueError("it has a time of day")
        elif nanoseconds and unit != "ns":
            raise ValueError("it has nanoseconds")
        elif type(value) is date and pa.types.is_timestamp(kind):
            value = datetime.combine(value, time())
        if in_micros is not None and isinstance(value, datetime | time | timedelta):
            # Arrow refuses to lose digits when it casts an array, not when it makes one.
            return pa.array([value], in_micros).cast(kind)[0].as_py()
        return arrow(value)

    return convert


def _of_numpy(value: np.generic) -> Any:
    """A value of numpy as Python's; NaT is None."""
    if not isinstance(value, np.datetime64 | np.timedelta64):
        return value.item()
    if np.isnat(value):
        return None
    micros = value.astype("datetime64[us]" if isinstance(value, np.datetime64) else "timedelta64[us]")
    if micros != value:
        raise ValueError("it has nanoseconds")
    if isinstance(found := micros.item(), int):
        raise OverflowError("Python's datetimes do not reach it")
    return found


def _in_micros(kind: pa.DataType) -> pa.DataType:
    """The type with microseconds, Python's unit."""
    if pa.types.is_timestamp(kind):
        return pa.timestamp("us", kind.tz)
    return pa.time64("us") if pa.types.is_time(kind) else pa.duration("us")


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
        value = by_name(value)
        if isinstance(value, list) and all(isinstance(pair, tuple) and len(pair) == 2 for pair in value):
            value = dict(value)
        if isinstance(value, Mapping):
            return {name: convert(value.get(name)) for name, convert in converters}
        if not isinstance(value, tuple) or len(value) != len(converters):
            raise TypeError(f"it is no dict with the fields {', '.join(name for name, _ in converters)}")
        return {name: convert(element) for (name, convert), element in zip(converters, value, strict=True)}

    return stored


def by_name(value: Any) -> Any:
    """The fields of a dataclass, a named tuple, or a Row of pyspark with names, as a dict; another value as it is."""
    if is_dataclass(value) and not isinstance(value, type):
        return {field.name: getattr(value, field.name) for field in fields(value)}
    if not isinstance(value, tuple):
        return value
    names = getattr(value, "_fields", None) or getattr(value, "__fields__", None)
    return dict(zip(names, value, strict=True)) if names else value


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
