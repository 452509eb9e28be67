"""Times and days of Parquet and ORC files as Spark's readers give them, in columns and inside nested values.

ORC has times of a wall clock: Spark takes them in the zone of its process. Spark's times are microseconds; finer digits
are cut off, so that a time becomes an earlier one. Days before 1582-10-15 are of the Julian calendar in ORC, and in
Parquet if Spark 2 wrote it, or a newer one that was told to.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import MAXYEAR, UTC, datetime, timedelta
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tidegate.kernel.columns.arrays import as_type, flags

_FIRST_DAY = -141427
"""1582-10-15, the first day that has the same number in both calendars."""
_MARCH = -719470
"""The first of March in the year 0 of the Julian calendar. Years that begin in March end with their leap day."""

_CHANGES = 2037
"""The last year for which Arrow knows when clocks change: those of later years follow a rule that it does not read."""
_EPOCH, _US, _MINUTE_US = datetime(1970, 1, 1, tzinfo=UTC), timedelta(microseconds=1), 60_000_000

FIRST_YEAR = 1900
"""The first year whose times Spark 2 counted as later ones do, in every zone."""


class OldTimeError(ValueError):
    """A time that Spark 2 counted in another way; `columnar` names the file."""


@dataclass(frozen=True)
class Times:
    """Casts columns of a file to types of Spark.

    zone    zone of times without a zone, UTC if None
    julian  whether days before 1582-10-15 are of the Julian calendar
    old     whether times before 1900 are as Spark 2 counted them: by that calendar, and by the clocks of a zone
    numbers whether times of a wall clock are numbers of microseconds, as Spark writes them to ORC
    """

    zone: str | None = None
    julian: bool = False
    old: bool = False
    numbers: bool = False

    def as_they_are(self, kind: pa.DataType) -> bool:
        """Whether columns of a type have the values of the file."""
        old_days = self.julian and _any_in(kind, pa.types.is_date)
        return not old_days and not (self.old and _any_in(kind, pa.types.is_timestamp))

    def cast(self, column: pa.Array, kind: pa.DataType) -> pa.Array:
        """`column` as `kind`.

        Raises ArrowInvalid or ArrowNotImplementedError if it does not fit, OldTimeError for a time that only Spark can
        read.
        """
        return as_type(self._as_times(column, kind), kind)

    def _as_times(self, column: pa.Array, kind: pa.DataType) -> pa.Array:
        """`column`, with the times in it, at any depth, as in `kind`; other values have the types of the file."""
        found = column.type
        if pa.types.is_timestamp(found) and pa.types.is_timestamp(kind):
            return self._time(column, kind)
        if pa.types.is_timestamp(kind) and _is_number(found) and (kind.tz or not self.numbers):
            raise pa.ArrowInvalid("a number does not say its unit of time")  # Arrow takes it for microseconds
        if self.julian and pa.types.is_date32(found):
            return _gregorian(column)
        if self.as_they_are(kind) and (found == kind or not _any_in(kind, pa.types.is_timestamp)):
            return column
        if pa.types.is_struct(found) and pa.types.is_struct(kind):
            return self._struct(column, kind)
        if pa.types.is_list(found) and pa.types.is_list(kind):
            column = pa.concat_arrays([column])  # children of a slice are whole, its offsets are not
            values = self._as_times(column.values, kind.value_type)
            return _with_children(column, pa.list_(found.value_field.with_type(values.type)), [values])
        if pa.types.is_map(found) and pa.types.is_map(kind):
            column = pa.concat_arrays([column])
            keys, items = self._as_times(column.keys, kind.key_type), self._as_times(column.items, kind.item_type)
            type_ = pa.map_(found.key_field.with_type(keys.type), found.item_field.with_type(items.type))
            pairs = pa.StructArray.from_arrays([keys, items], fields=[type_.key_field, type_.item_field])
            return _with_children(column, type_, [pairs])
        return column

    def _time(self, column: pa.Array, kind: pa.TimestampType) -> pa.Array:
        if self.old and pc.any(pc.less(pc.year(column), FIRST_YEAR)).as_py():
            raise OldTimeError
        if column.type.unit == "ns":
            naive = column.cast(pa.timestamp("ns"))
            whole = pc.floor_temporal(naive, unit="microsecond").cast(pa.timestamp("us"), safe=False)
            column = whole.cast(pa.timestamp("us", column.type.tz))
        if self.zone and kind.tz and column.type.tz is None:
            column = in_zone(column.cast(pa.timestamp("us")), self.zone)
        return column.cast(kind)

    def _struct(self, column: pa.Array, kind: pa.StructType) -> pa.Array:
        fields, values = [], []
        for field in column.type:
            value = column.field(column.type.get_field_index(field.name))
            if kind.get_field_index(field.name) >= 0:
                value = self._as_times(value, kind.field(field.name).type)
            fields.append(field.with_type(value.type))
            values.append(value)
        return pa.StructArray.from_arrays(values, fields=fields, mask=column.is_null())


def in_zone(clocks: pa.Array, zone: str, asked: int = _CHANGES) -> pa.Array:
    """Microseconds of a wall clock in `zone` as instants; Arrow is asked about years up to `asked`, and no later ones.

    An hour that comes twice is the first one, and one that is left out goes on behind it, as for Java. Raises
    ArrowInvalid for a zone that Arrow does not know.
    """
    found = pc.assume_timezone(clocks, zone, ambiguous="earliest", nonexistent="latest")
    years = pc.year(clocks)
    others = flags(pc.and_(pc.greater(years, asked), pc.less_equal(years, MAXYEAR)).fill_null(False))
    if not others.any():
        return found
    try:
        rules = ZoneInfo(zone)
    except (ZoneInfoNotFoundError, ValueError):  # such as +02:00, whose clocks never change
        return found
    numbers = clocks.cast(pa.int64()).fill_null(0).to_numpy()
    minutes, places = np.unique(numbers[others] // _MINUTE_US, return_inverse=True)
    ahead = [(_EPOCH + timedelta(minutes=each)).replace(tzinfo=rules).utcoffset() for each in minutes.tolist()]
    instants = found.cast(pa.int64()).fill_null(0).to_numpy().copy()
    instants[others] = numbers[others] - np.array([each // _US for each in ahead if each is not None])[places]
    return pa.array(instants, mask=flags(clocks.is_null())).cast(found.type)


def _is_number(kind: pa.DataType) -> bool:
    return bool(pa.types.is_integer(kind) or pa.types.is_floating(kind))


def _any_in(kind: pa.DataType, wanted: Callable[[pa.DataType], bool]) -> bool:
    """Whether a type is `wanted`, or has such a type in it, at any depth."""
    return wanted(kind) or any(_any_in(kind.field(at).type, wanted) for at in range(kind.num_fields))


def _gregorian(column: pa.Array) -> pa.Array:
    """Days of the Julian calendar up to 1582-10-04, as the days of the same name in the Gregorian one."""
    numbers = column.cast(pa.int32())
    first = pc.min(numbers).as_py()
    if first is None or first >= _FIRST_DAY:
        return column
    days = numbers.fill_null(0).to_numpy()
    year = (4 * (days.astype(np.int64) - _MARCH) + 3) // 1461
    # The Gregorian calendar has no leap day in three of four century years; in the year 0 it is two days behind.
    found = np.where(days < _FIRST_DAY, days + 2 - year // 100 + year // 400, days).astype(np.int32)
    return pa.array(found, mask=flags(column.is_null())).cast(pa.date32())


def _with_children(column: pa.Array, kind: pa.DataType, children: list[pa.Array]) -> pa.Array:
    """A list or a map with other values: its nulls and offsets stay."""
    return pa.Array.from_buffers(kind, len(column), column.buffers()[:2], column.null_count, 0, children)
