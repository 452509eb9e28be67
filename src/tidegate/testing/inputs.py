"""Records as dicts made into the columns that the kernel reads."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tidegate.errors import InputError, in_one_line
from tidegate.instants import MAX_MS, instant_ms
from tidegate.kernel.rows import map_filter
from tidegate.kernel.rows.conversion import MISFITS, converter
from tidegate.plan import Operation, Stream
from tidegate.spec.aggregates import Fold
from tidegate.spec.columns import OURS, ROW, VALUE, check_user_name
from tidegate.spec.steps import MapValues

Record = dict[str, Any]

OWN = (OURS + "partition", OURS + "offset")
"""Columns that the driver adds where the stream has no partition and offset."""

_INDEX = re.compile(r"__index_level_\d+__")
INPUT = OURS + "input"
"""The number of the input of a record whose partitions are told apart by it."""

_DECIMAL = pa.decimal128(38, 18)
_TIMESTAMP = pa.timestamp("us", "UTC")


@dataclass
class Types:
    """The type of each input column: declared, or learned from its first value that is not null."""

    columns: dict[str, pa.DataType] = field(default_factory=dict)
    declared: bool = False
    numbered: bool = False
    """Whether records are of several inputs, each with partitions of its own (`INPUT`)."""

    @classmethod
    def of(cls, schema: pa.Schema | None) -> Types:
        """The types of a declared schema, or none yet."""
        if schema is None:
            return cls()
        return cls({f.name: f.type for f in schema}, declared=True)

    def learn(self, records: Sequence[Record]) -> None:
        """Take in columns, and parts of nested ones, that were not known or had no value yet."""
        unknown = {name for name, kind in self.columns.items() if _unknown(kind)}
        for record in records:
            for name, value in record.items():
                if name == INPUT:
                    continue
                if name not in self.columns:
                    _check_name(name)
                    self.columns[name] = pa.null()
                    unknown.add(name)
                if name.startswith(ROW) and value is not None:
                    self.columns[name] = _grown(self.columns[name], value)
                elif name in unknown and value is not None:
                    self.columns[name] = _with(self.columns[name], _type_of(name, value))
                    if not _unknown(self.columns[name]):
                        unknown.discard(name)

    def learn_schema(self, schema: pa.Schema) -> None:
        """Take in the types of columns that were not known, or had no value yet."""
        for column in schema:
            _check_name(column.name)
            known = self.columns.get(column.name, pa.null())
            if _unknown(known):
                self.columns[column.name] = _with(known, column.type)

    def copy(self) -> Types:
        """The same, learning on its own."""
        return Types(dict(self.columns), self.declared, self.numbered)

    def go_on(self, before: Types) -> None:
        """Know besides what was known before a restart. The records of a cogroup may have other columns now."""
        self.columns |= {n: t for n, t in before.columns.items() if not (self.declared and n.startswith(ROW))}

    def array(self, name: str, records: Sequence[Record], start: int) -> pa.Array:
        """The column `name` of the records. Raises InputError naming the value that does not fit."""
        kind = self.columns.get(name, pa.null())
        convert, values = converter(kind), []
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


@dataclass
class Inputs:
    """The streams that records are piped into, with the types of their columns as they come."""

    branches: tuple[Stream, ...]
    types_of: dict[str, Types] = field(default_factory=dict)

    @classmethod
    def of(cls, branches: tuple[Stream, ...]) -> Inputs:
        """The inputs of a topology."""
        return cls(branches, {branch.name: Types.of(branch.schema) for branch in branches})

    def copy(self) -> Inputs:
        """The same, learning on its own."""
        return Inputs(self.branches, {name: types.copy() for name, types in self.types_of.items()})

    def go_on(self, before: Inputs) -> None:
        """Know besides what was known of inputs of the same name before a restart."""
        for name in self.types_of.keys() & before.types_of.keys():
            self.types_of[name].go_on(before.types_of[name])

    def reads(self, name: str | None) -> bool:
        """Whether records of the input of this name come here; of any, if None."""
        return name is None or any(branch.name == name for branch in self.branches)

    def learn(self, schema: pa.Schema, name: str | None) -> None:
        """Take in the types of a table that is piped into `name`."""
        for stream, types in self.types_of.items():
            if name in (None, stream):
                types.learn_schema(schema)

    def types(self) -> Types:
        """The types behind the steps, as far as schemas and the steps declare them."""
        columns: dict[str, pa.DataType] = {}
        declared = [branch for branch in self.branches if branch.schema is not None and _typed(branch)]
        for branch in declared:
            assert branch.schema is not None
            found = map_filter.run(branch.steps, branch.schema.empty_table()).schema
            columns = {field.name: field.type for field in found} | columns
        return Types(columns, declared=self.branches[0] in declared, numbered=any(map(_numbered, self.branches)))

    def take(self, records: Sequence[Record], name: str | None, start: int) -> list[Record]:
        """The records piped into `name`, after the steps of each stream that begins there, in order."""
        mine = [branch for branch in self.branches if name in (None, branch.name)]
        taken = [entry for branch in mine for entry in self._through(branch, records, start)]
        return [record for _, record in sorted(taken, key=lambda entry: entry[0])]

    def _through(self, stream: Stream, records: Sequence[Record], start: int) -> list[tuple[int, Record]]:
        done = list(enumerate(records))
        if stream.steps:
            types = self.types_of[stream.name]
            types.learn(records)
            columns = {name: types.array(name, records, start) for name in types.columns}
            rows = pa.table(columns | {map_filter.PLACE: pa.array(range(len(records)), pa.int64())})
            # Types that only the values tell must not depend on the other records of the batch.
            alone = any(isinstance(step, MapValues) and not step.typed for step in stream.steps)
            parts = [rows.slice(i, 1) for i in range(len(records))] if alone else [rows]
            stepped = (row for part in parts for row in map_filter.run(stream.steps, part).to_pylist())
            done = [(row.pop(map_filter.PLACE), row) for row in stepped]
        if _numbered(stream):
            done = [(at, {**row, INPUT: stream.number}) for at, row in done]
        return done


def _numbered(stream: Stream) -> bool:
    return stream.number is not None and stream.partition is not None


def _typed(stream: Stream) -> bool:
    return all(step.typed for step in stream.steps if isinstance(step, MapValues))


def as_table(records: Any) -> pa.Table | None:
    """A table or frame that Arrow can read; None for what is none. Raises InputError for a column without a name."""
    if isinstance(records, pa.Array):
        records = pa.chunked_array([records])
    if not hasattr(records, "__arrow_c_stream__"):
        return None
    try:
        table = pa.table(records)
    except (pa.ArrowException, TypeError) as error:
        raise InputError(
            f"What was piped is {in_one_line(records)}, which is no table of records: {error}. Give an Arrow table or "
            "a frame that has the columns of the stream, or records as dicts."
        ) from None
    # An index of pandas without a name is no column.
    return table.select([name for name in table.schema.names if not _INDEX.fullmatch(name)])


def as_records(records: Any) -> list[Record]:
    """The records of a list. Raises InputError for what is no batch of records."""
    if isinstance(records, str | Mapping) or not isinstance(records, Iterable):
        raise InputError(
            f"pipe_batch got {records!r}, which is no batch. Give a list of records (dicts), an Arrow table, or a "
            "pandas frame; one record goes to pipe_input."
        )
    records = list(records)
    for record in records:
        if not isinstance(record, Mapping):
            raise InputError(
                f"A record is {in_one_line(record)} ({type(record).__name__}), not a dict of columns. Give for example "
                '{"user": "A", "ts": 0}.'
            )
    return records


def _check_name(name: str) -> None:
    if name not in OWN and name != VALUE and not name.startswith(ROW):
        check_user_name(name, "A column of the records")


def _unknown(kind: pa.DataType) -> bool:
    """Whether nothing is known of a type, or of a part of it."""
    parts = [kind.field(i).type for i in range(kind.num_fields)] if pa.types.is_nested(kind) else []
    return bool(pa.types.is_null(kind)) or any(map(_unknown, parts))


def _with(known: pa.DataType, found: pa.DataType) -> pa.DataType:
    """What is known of a type, with what a value shows of the parts that are not."""
    schemas = [pa.schema([("x", known)]), pa.schema([("x", found)])]
    try:
        return pa.unify_schemas(schemas).field("x").type
    except pa.ArrowTypeError:
        return known  # the value is refused where its column is made


def _grown(known: pa.DataType, record: Record) -> pa.DataType:
    """What is known of the columns of a record that is one column, with those that this record shows."""
    fields = (
        {known.field(i).name: known.field(i).type for i in range(known.num_fields)} if pa.types.is_struct(known) else {}
    )
    for name, value in record.items():
        before = fields.get(name, pa.null())
        fields[name] = before if value is None or not _unknown(before) else _with(before, _type_of(name, value))
    return pa.struct(list(fields.items()))


def _type_of(name: str, value: Any) -> pa.DataType:
    if isinstance(value, Decimal):
        return _DECIMAL
    if isinstance(value, datetime):
        return _TIMESTAMP
    try:
        return pa.array([value]).type
    except (pa.ArrowException, OverflowError, TypeError, ValueError) as error:
        raise InputError(
            f"The column {name!r} holds {value!r} ({type(value).__name__}), which no column can hold: {error}. "
            "Give a value that Arrow has a type for."
        ) from None


def check_columns(names: Iterable[str | None], records: Sequence[Record], start: int) -> None:
    """Raise InputError for a record that lacks one of these columns, which the stream needs."""
    wanted = [name for name in names if name is not None]
    for i, record in enumerate(records):
        for name in wanted:
            if name not in record:
                raise InputError(
                    f"Record {start + i} has no column {name!r}, which the stream needs; it has "
                    f"{', '.join(repr(given) for given in record if given not in OWN)}. "
                    "Give it a value, or None for a null."
                )


def _check(op: Operation, types: Types, records: Sequence[Record], start: int) -> None:
    stream = op.stream
    check_columns((*op.key, stream.timestamp, stream.partition, stream.offset), records, start)
    for name in _read_by_name(op) if types.columns else ():
        if name not in types.columns:
            known = ", ".join(map(repr, (column for column in types.columns if column not in OWN)))
            raise InputError(
                f"Nothing that was piped has a column {name!r}, which the aggregation reads; the columns are {known}. "
                "Correct the name, or pipe records with that column (None for a null)."
            )
    for name in op.key:
        if pa.types.is_nested(types.columns.get(name, pa.null())):
            raise InputError(
                f"The key column {name!r} is {types.columns[name]}: a key must be of an atomic type. "
                "Give its parts as several key columns."
            )


def _read_by_name(op: Operation) -> tuple[str, ...]:
    """The columns that the aggregates name, and the one that says which row of a table is deleted."""
    named = () if isinstance(op.function, Fold) else op.input_columns(())
    return named if op.deleted is None else (*named, op.deleted)


def to_batch(op: Operation, types: Types, records: Sequence[Record], start: int) -> pa.RecordBatch:
    """The records as k:, v:, ts, partition and offset columns; `start` is the number of the first one."""
    _check(op, types, records, start)
    stream = op.stream
    known = tuple(name for name in types.columns if name not in OWN)
    columns: dict[str, Any] = {f"k:{name}": types.array(name, records, start) for name in op.key}
    for name in op.input_columns(tuple(types.columns)):
        columns[f"v:{name}"] = types.array(name, records, start)
    stamps = [_milliseconds(record[stream.timestamp], stream.timestamp, start + i) for i, record in enumerate(records)]
    if op.skips_null_values and (value := op.counts_as_value(tuple(types.columns))):
        columns["empty"] = pa.array([all(record.get(name) is None for name in value) for record in records])
    columns |= {f"r:{name}": types.array(name, records, start) for name in op.other_columns(known)}
    if f"r:{stream.timestamp}" in columns:  # integers and datetimes may be mixed
        columns[f"r:{stream.timestamp}"] = _as(types.columns[stream.timestamp], stamps)
    if op.deleted is not None:
        flags = [_flag(record.get(op.deleted), op.deleted, start + i) for i, record in enumerate(records)]
        columns["deleted"] = pa.array(flags, pa.bool_())
    columns["ts"] = pa.array(stamps, pa.int64())
    if stream.partition is not None and stream.offset is not None:
        columns["partition"] = _partitions(types, stream.partition, records, start)
        columns["offset"] = types.array(stream.offset, records, start)
    return pa.RecordBatch.from_pydict(columns)


def _partitions(types: Types, name: str, records: Sequence[Record], start: int) -> pa.Array:
    """The partitions of the records; of several inputs each has its own, though they are numbered alike."""
    partitions = types.array(name, records, start)
    if not types.numbered:
        return partitions
    inputs = pa.array([record.get(INPUT) for record in records], pa.int64())
    return pc.binary_join_element_wise(inputs.cast(pa.string()), partitions.cast(pa.string()), ":")


def _as(kind: pa.DataType, stamps: list[int | None]) -> pa.Array:
    if pa.types.is_timestamp(kind):
        return pa.array(stamps, pa.timestamp("ms", kind.tz)).cast(kind)
    # Whole milliseconds also where none of these records has one, as in another map task of the batch.
    return pa.array(stamps, pa.int64())


def _flag(value: Any, name: str, row: int) -> bool:
    """Whether a row of a table is deleted; null is false."""
    if value is None or isinstance(value, bool | np.bool_):
        return bool(value)
    raise InputError(
        f"Record {row}: the column {name!r}, which says whether a row is deleted, holds {value!r} "
        f"({type(value).__name__}), not a boolean. Give True or False."
    )


def _milliseconds(value: Any, name: str, row: int) -> int | None:
    if value is None:
        return None
    if isinstance(value, int | datetime) and not isinstance(value, bool) and abs(ms := instant_ms(value)) <= MAX_MS:
        return ms
    raise InputError(
        f"Record {row}: the timestamp column {name!r} holds {value!r} ({type(value).__name__}). "
        "Give integer milliseconds of at most 64 bits, or a datetime."
    )
