"""Times of Parquet and ORC files as Spark's readers give them, in columns and inside nested values.

ORC has times of a wall clock: Spark takes them in the zone of its process. Spark's times are microseconds; finer digits
are cut off, so that a time becomes an earlier one.
"""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc


@dataclass(frozen=True)
class Times:
    """Casts columns of a file to types of Spark. `zone`: the zone of times without a zone, UTC if None."""

    zone: str | None = None

    def cast(self, column: pa.Array, kind: pa.DataType) -> pa.Array:
        """`column` as `kind`; raises ArrowInvalid or ArrowNotImplementedError if it does not fit."""
        return self._as_times(column, kind).cast(kind)

    def _as_times(self, column: pa.Array, kind: pa.DataType) -> pa.Array:
        """`column`, with the times in it, at any depth, as in `kind`; other values have the types of the file."""
        found = column.type
        if pa.types.is_timestamp(found) and pa.types.is_timestamp(kind):
            return self._time(column, kind)
        if found == kind or not _times_in(kind):
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
        if column.type.unit == "ns":
            naive = column.cast(pa.timestamp("ns"))
            whole = pc.floor_temporal(naive, unit="microsecond").cast(pa.timestamp("us"), safe=False)
            column = whole.cast(pa.timestamp("us", column.type.tz))
        if self.zone and kind.tz and column.type.tz is None:
            column = pc.assume_timezone(column, self.zone, ambiguous="earliest", nonexistent="latest")
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


def _times_in(kind: pa.DataType) -> bool:
    """Whether values of a type have times in them, at any depth."""
    if pa.types.is_timestamp(kind):
        return True
    return any(_times_in(kind.field(at).type) for at in range(kind.num_fields))


def _with_children(column: pa.Array, kind: pa.DataType, children: list[pa.Array]) -> pa.Array:
    """A list or a map with other values: its nulls and offsets stay."""
    return pa.Array.from_buffers(kind, len(column), column.buffers()[:2], column.null_count, 0, children)
