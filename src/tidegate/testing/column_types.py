"""The types of record columns: declared by a schema, or learned from values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa

from tidegate.errors import InputError
from tidegate.instants import instant_ms
from tidegate.kernel.columns.arrays import plain_columns, with_each_type
from tidegate.kernel.rows.conversion import MISFITS, Converter, converter
from tidegate.spec.columns import ROW, VALUE, check_user_name
from tidegate.testing.records import INPUT, OWN, Record

_DECIMAL = pa.decimal128(38, 18)
_TIMESTAMP = pa.timestamp("us", "UTC")


@dataclass
class Types:
    """The type of each input column: declared, or learned from its first value that is not null."""

    columns: dict[str, pa.DataType] = field(default_factory=dict)
    declared: bool = False
    numbered: bool = False
    """Whether records come from several inputs, each with its own partitions (`INPUT`)."""
    of_schema: frozenset[str] = frozenset()
    """The columns of the declared schema, after the steps."""

    @classmethod
    def of(cls, schema: pa.Schema | None) -> Types:
        """The types of a declared schema; without a schema none yet."""
        if schema is None:
            return cls()
        columns = {f.name: f.type for f in plain_columns(schema.empty_table()).schema}
        return cls(columns, declared=True, of_schema=frozenset(columns))

    @property
    def known(self) -> bool:
        """Whether the type of each column, and of each part of it, is known."""
        return not any(map(_unknown, self.columns.values()))

    def learn(self, records: Sequence[Record], declared: Mapping[str, pa.DataType] | None = None) -> None:
        """Learn the types of columns, and of parts of nested ones, that were not known or had no value yet.

        `declared`: the types that steps declare of new columns; values do not tell these.
        """
        declared = declared or {}
        unknown = {name for name, kind in self.columns.items() if _unknown(kind)}
        for record in records:
            for name, value in record.items():
                if name == INPUT:
                    continue
                if name not in self.columns:
                    _check_name(name)
                    self.columns[name] = pa.null() if name.startswith(ROW) else declared.get(name, pa.null())
                    if _unknown(self.columns[name]):
                        unknown.add(name)
                if name.startswith(ROW) and value is not None:
                    self.columns[name] = _grown(self.columns[name], value, _fields(declared.get(name)))
                elif name in unknown and value is not None:
                    self.columns[name] = _with(self.columns[name], _type_of(name, value))
                    if not _unknown(self.columns[name]):
                        unknown.discard(name)

    def learn_schema(self, schema: pa.Schema) -> None:
        """Learn the types of columns that were not known or had no value yet."""
        for column in schema:
            _check_name(column.name)
            known = self.columns.get(column.name, pa.null())
            if _unknown(known):
                self.columns[column.name] = _with(known, column.type)

    def copy(self) -> Types:
        """A copy that learns independently."""
        return Types(dict(self.columns), self.declared, self.numbered, self.of_schema)

    def go_on(self, before: Types) -> None:
        """Add the types known before a restart. A declared schema takes the place of the one before it, as on Spark."""
        replaced = self.of_schema | before.of_schema if self.declared and before.declared else frozenset[str]()
        known = {name: kind for name, kind in before.columns.items() if name not in replaced}
        # The records of a cogroup may have other columns now.
        self.columns |= {n: t for n, t in known.items() if not (self.declared and n.startswith(ROW))}

    def array(self, name: str, records: Sequence[Record], start: int, *, instants: bool = False) -> pa.Array:
        """The column `name` of the records. Raises InputError with the value that does not fit.

        `instants`: the column has the timestamps of the records, epoch milliseconds and datetimes in any mixture.
        """
        kind = self.columns.get(name, pa.null())
        convert, values = _of_instants(kind) if instants else converter(kind), []
        for record in records:
            value = record.get(name)
            try:
                values.append(convert(value))
            except MISFITS as error:
                learned = "its declared type" if self.declared else "the type of its first value"
                raise InputError(
                    f"Record {start + len(values)}: the column {name!r} holds {value!r}, which is not a {kind}, "
                    f"{learned}: {error}. Correct the record, or declare the type with "
                    "tg.stream(..., schema=pyarrow.schema(...))."
                ) from None
        return pa.array(values, kind)


def _of_instants(kind: pa.DataType) -> Converter:
    """The converter of a timestamp column of this type."""
    convert = converter(kind)

    def instant(value: Any) -> Any:
        # For Arrow an integer has the unit of the column; for the driver it is milliseconds.
        if pa.types.is_timestamp(kind) and isinstance(value, int | np.integer) and not isinstance(value, bool):
            value = pa.scalar(value, pa.timestamp("ms", kind.tz)).cast(kind)
        elif pa.types.is_integer(kind) and isinstance(value, datetime):
            value = instant_ms(value)
        return convert(value)

    return instant


def _check_name(name: str) -> None:
    if not isinstance(name, str) or (name not in OWN and name != VALUE and not name.startswith(ROW)):
        check_user_name(name, "A column of the records")


def _unknown(kind: pa.DataType) -> bool:
    """Whether a type, or a part of it, is not known."""
    parts = [kind.field(i).type for i in range(kind.num_fields)] if pa.types.is_nested(kind) else []
    return bool(pa.types.is_null(kind)) or any(map(_unknown, parts))


def _with(known: pa.DataType, found: pa.DataType) -> pa.DataType:
    """The type `known`, with its unknown parts taken from `found`."""
    schemas = [pa.schema([("x", known)]), pa.schema([("x", found)])]
    try:
        return pa.unify_schemas(schemas).field("x").type
    except pa.ArrowTypeError:
        return known  # the value is rejected when its column is built


def _grown(known: pa.DataType, record: Record, declared: Mapping[str, pa.DataType]) -> pa.DataType:
    """The struct type of a column of whole records, with the columns of this record added."""
    fields = _fields(known)
    for name, value in record.items():
        before = fields.get(name, declared.get(name, pa.null()))
        fields[name] = before if value is None or not _unknown(before) else _with(before, _type_of(name, value))
    return pa.struct(list(fields.items()))


def _fields(kind: pa.DataType | None) -> dict[str, pa.DataType]:
    """The types of a struct's fields by name; none if `kind` is no struct."""
    if kind is None or not pa.types.is_struct(kind):
        return {}
    return {kind.field(i).name: kind.field(i).type for i in range(kind.num_fields)}


def _wide(kind: pa.DataType) -> pa.DataType:
    """`_DECIMAL` for a decimal with fewer digits: the next value may have more than this one."""
    if not pa.types.is_decimal(kind) or kind.scale > _DECIMAL.scale:
        return kind
    return kind if kind.precision - kind.scale > _DECIMAL.precision - _DECIMAL.scale else _DECIMAL


def _type_of(name: str, value: Any) -> pa.DataType:
    if isinstance(value, Decimal):
        return _DECIMAL
    if isinstance(value, datetime):
        return _TIMESTAMP
    try:
        return with_each_type(pa.array([value]).type, _wide)
    except (pa.ArrowException, OverflowError, TypeError, ValueError) as error:
        raise InputError(
            f"The column {name!r} holds {value!r} ({type(value).__name__}), which no column can hold: {error}. "
            "Give a value that Arrow has a type for."
        ) from None
