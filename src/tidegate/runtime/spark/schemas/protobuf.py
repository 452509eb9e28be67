"""Protobuf messages as columns: many at once, by the descriptor that the reader has.

A message has the number of each of its fields, so the reader's descriptor is enough. Fields that the descriptor lacks
are skipped. Fields that are not written have their defaults, or are null where Protobuf tells the two apart.
"""

from __future__ import annotations

from base64 import b64decode
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tidegate.errors import DefinitionError
from tidegate.kernel.columns.arrays import Ints
from tidegate.runtime.spark.schemas.cursor import Cursor, field_of, listed, pieces, placed, signed, structs, texts

TIMESTAMP = "google.protobuf.Timestamp"
# Seconds beyond these are no timestamp: Spark counts microseconds.
MOST_S = (2**63 - 1) // 10**6 - 1
VARINT, EIGHT, PIECE, FOUR = 0, 1, 2, 5
_WIRES = {"double": EIGHT, "fixed64": EIGHT, "sfixed64": EIGHT, "float": FOUR, "fixed32": FOUR, "sfixed32": FOUR}
_WIRES |= dict.fromkeys(("string", "bytes", "message"), PIECE)
_BYTES = {VARINT: 0, EIGHT: 8, FOUR: 4}
_FIXED = {
    "double": "<f8",
    "float": "<f4",
    "fixed32": "<u4",
    "fixed64": "<u8",
    "sfixed32": "<i4",
    "sfixed64": "<i8",
}
_KINDS: dict[str, pa.DataType] = {
    "double": pa.float64(),
    "float": pa.float32(),
    "bool": pa.bool_(),
    "string": pa.string(),
    "bytes": pa.binary(),
    "enum": pa.string(),
    # Numbers without a sign need one bit more.
    **dict.fromkeys(("int32", "sint32", "sfixed32"), pa.int32()),
    **dict.fromkeys(("int64", "sint64", "sfixed64", "uint32", "fixed32"), pa.int64()),
    **dict.fromkeys(("uint64", "fixed64"), pa.decimal128(20, 0)),
}


@dataclass(frozen=True)
class Field:
    """A field of a message; `present`: whether a missing one is null, and not its default."""

    number: int
    name: str
    kind: str
    repeated: bool
    present: bool
    default: Any
    oneof: str
    message: Message | None = None
    symbols: tuple[tuple[int, str], ...] = ()

    @property
    def is_map(self) -> bool:
        return self.message is not None and self.message.entry

    @property
    def type(self) -> pa.DataType:
        """The type of its column."""
        one = _KINDS[self.kind] if self.message is None else self.message.type
        if self.is_map:
            return pa.map_(one[0].type, one[1].type)
        return pa.list_(one) if self.repeated else one


@dataclass(frozen=True)
class Message:
    """A message: its fields in the order of the descriptor; `entry`: whether it is an entry of a map."""

    name: str
    fields: tuple[Field, ...]
    entry: bool = False

    @cached_property
    def type(self) -> pa.DataType:
        """A struct of its fields; a timestamp for the well-known message of that name."""
        if self.name == TIMESTAMP:
            return pa.timestamp("us", "UTC")
        return pa.struct([pa.field(each.name, each.type) for each in self.fields])


def message(descriptor: Any, within: tuple[str, ...] = ()) -> Message:
    """The message of a descriptor of google.protobuf. Raises DefinitionError for a message that contains itself."""
    name = descriptor.full_name
    if name in within:
        raise DefinitionError(f"The Protobuf message {name} contains itself, which no column can.")
    entry = bool(descriptor.GetOptions().map_entry)
    fields = tuple(_field(each, (*within, name), entry) for each in descriptor.fields)
    return Message(name, fields, entry)


def _field(given: Any, within: tuple[str, ...], entry: bool) -> Field:
    kind = _TYPES.get(given.type)
    if kind is None:
        raise DefinitionError(f"The Protobuf field {given.full_name} is a group, which is not read.")
    oneof = given.containing_oneof
    return Field(
        number=given.number,
        name=given.name,
        kind=kind,
        repeated=given.is_repeated,
        present=given.has_presence and not entry,
        default=None if given.is_repeated or kind == "message" else given.default_value,
        oneof="" if oneof is None else oneof.name,
        message=message(given.message_type, within) if kind == "message" else None,
        symbols=tuple((each.number, each.name) for each in given.enum_type.values) if kind == "enum" else (),
    )


# The numbers of descriptor.proto.
_TYPES = dict(enumerate(["double", "float", "int64", "uint64", "int32", "fixed64", "fixed32", "bool", "string"], 1)) | {
    11: "message",
    12: "bytes",
    13: "uint32",
    14: "enum",
    15: "sfixed32",
    16: "sfixed64",
    17: "sint32",
    18: "sint64",
}


def place(descriptor: Any) -> tuple[int, ...]:
    """The place of a message in its file: the number of the outermost message around it, then of each inner one."""
    outer = descriptor.containing_type
    if outer is None:
        return (list(descriptor.file.message_types_by_name.values()).index(descriptor),)
    return (*place(outer), list(outer.nested_types).index(descriptor))


def descriptor(binary: str, references: Mapping[str, str], name: str | None) -> Any:
    """The descriptor of a file's message `name`, by default the first, from the registry's serialized form."""
    from google.protobuf import descriptor_pb2, descriptor_pool

    pool = descriptor_pool.DescriptorPool()
    known: set[str] = set()

    def add(text: str) -> Any:
        file = descriptor_pb2.FileDescriptorProto.FromString(b64decode(text, validate=True))
        for needed in file.dependency:
            if needed not in known:
                known.add(needed)
                add(references[needed]) if needed in references else pool.AddSerializedFile(_well_known(needed))
        pool.Add(file)
        return file

    try:
        file = pool.FindFileByName(add(binary).name)
    except (ValueError, KeyError, TypeError) as error:
        raise DefinitionError(
            f"The registry does not say in Protobuf's own form what its schema is ({error}). Give the message as "
            "protoc makes it: tg.kafka.schema_registry(url, schema=Order)."
        ) from error
    found = list(file.message_types_by_name.values())
    if name is None:
        return found[0]
    for each in found:
        if name in (each.name, each.full_name):
            return each
    raise DefinitionError(
        f"`message` is {name!r}, but the schema has no such message. It has {', '.join(each.name for each in found)}."
    )


def _well_known(name: str) -> bytes:
    """A file that comes with Protobuf, such as google/protobuf/timestamp.proto. Raises KeyError for any other."""
    from importlib import import_module

    module = name.removesuffix(".proto").replace("/", ".") + "_pb2"
    if not module.startswith("google.protobuf."):
        raise KeyError(name)
    found: bytes = import_module(module).DESCRIPTOR.serialized_pb
    return found


def read(cursor: Cursor, wanted: Message, indexes: tuple[int, ...]) -> pa.Array:
    """The columns of messages, each behind its place in its file; a place other than `indexes` is a fault."""
    several = cursor.zigzag("the place of the message")
    there = np.zeros(len(cursor), np.int64)  # an empty place means the first message
    fine = (several == 0) & (indexes == (0,))
    longer = np.flatnonzero((several == len(indexes)) & ~fine)
    part = cursor.part(longer)
    for index in indexes:
        there[longer] += part.zigzag("the place of the message") == index
    cursor.join(longer, part)
    fine |= there == len(indexes)
    cursor.fault(~fine, f"it is another message than {wanted.name}")
    return _read(cursor, wanted, "it")


class _Found:
    """The found values of one field: their rows, and numbers or the starts and ends of pieces."""

    def __init__(self) -> None:
        self.rows: list[Ints] = []
        self.values: list[Any] = []
        self.ends: list[Ints] = []

    def add(self, rows: Ints, values: Any, ends: Ints | None = None) -> None:
        self.rows.append(rows)
        self.values.append(values)
        if ends is not None:
            self.ends.append(ends)


def _read(cursor: Cursor, wanted: Message, what: str) -> pa.Array:
    fields = {each.number: each for each in wanted.fields}
    found = {number: _Found() for number in fields}
    active = np.flatnonzero(cursor.left() > 0)
    while len(active):
        part = cursor.part(active)
        tags = part.varint("the number of a field")
        for tag in np.unique(tags).tolist():
            which = np.flatnonzero(tags == tag)
            sub = part.part(which)
            _take(sub, fields.get(tag >> 3), tag & 7, active[which], found)
            part.join(which, sub)
        cursor.join(active, part)
        active = active[(cursor.left()[active] > 0) & ~part.faulty()]
    _check_oneofs(cursor, wanted, found)
    columns = [_column(cursor, each, found[each.number], what) for each in wanted.fields]
    return _well(cursor, wanted, columns, what)


def _take(sub: Cursor, field: Field | None, wire: int, rows: Ints, found: dict[int, _Found]) -> None:
    """Read one field of each record of `sub` into `found`, or skip it."""
    what = "a field" if field is None else f"`{field.name}`"
    fits = field is not None and wire == _WIRES.get(field.kind, VARINT)
    packed = field is not None and field.repeated and not fits and wire == PIECE
    if wire == PIECE:
        start, end = sub.slices(sub.varint(what).view(np.int64), what)
        if field is not None and fits:
            found[field.number].add(rows, start, end)
        elif field is not None and packed:
            _unpack(sub, field, rows, start, end, found[field.number])
    elif wire in (VARINT, EIGHT, FOUR):
        values = _number(sub, field.kind if field is not None and fits else "", wire, what)
        if field is not None and fits:
            found[field.number].add(rows, values)
    else:
        sub.fault(np.ones(len(sub), bool), "it has a group, or is no message")


def _number(sub: Cursor, kind: str, wire: int, what: str) -> Any:
    if wire == VARINT:
        return sub.varint(what)
    return sub.fixed(_FIXED.get(kind, "<u8" if wire == EIGHT else "<u4"), what)


def _unpack(sub: Cursor, field: Field, rows: Ints, start: Ints, end: Ints, found: _Found) -> None:
    """Read the packed elements of a repeated field, which lie in one piece, into `found`."""
    inner, wire = sub.within(start, end, np.arange(len(sub))), _WIRES.get(field.kind, VARINT)
    what = f"`{field.name}`"
    if wire == VARINT:
        # A piece that ends within a number has one stop less than numbers.
        stops = sub.records.stops
        counts = np.searchsorted(stops, end) - np.searchsorted(stops, start)
        inner.fault((end > start) & (sub.data[np.maximum(end - 1, 0)] >= 0x80), f"the bytes end within {what}")
    else:
        counts = inner.left() // _BYTES[wire]
        inner.fault(inner.left() % _BYTES[wire] > 0, f"the bytes end within {what}")
    numbers, of = inner.spread(np.where(inner.faulty(), 0, counts), _BYTES[wire], what)
    found.add(rows[of], _number(numbers, field.kind, wire, what))


def _check_oneofs(cursor: Cursor, wanted: Message, found: dict[int, _Found]) -> None:
    """Two fields of a oneof are a fault: the last one would count, but nobody writes two."""
    for name in {each.oneof for each in wanted.fields if each.oneof}:
        fields = np.zeros(len(cursor), np.int64)
        for each in (each for each in wanted.fields if each.oneof == name):
            there = np.zeros(len(cursor), bool)
            for rows in found[each.number].rows:
                there[rows] = True
            fields += there
        cursor.fault(fields > 1, f"it has two fields of {name}")


def _column(cursor: Cursor, field: Field, found: _Found, what: str) -> pa.Array:
    at = field_of(what, field.name)
    rows = np.concatenate(found.rows) if found.rows else np.zeros(0, np.int64)
    if field.repeated:
        values = _values(cursor, field, found, rows, None, at)
        if field.is_map:
            rows, values = _last_of_keys(rows, values)
        return listed(rows, values, len(cursor), field.type)
    # The last value of a field counts.
    last = np.full(len(cursor), -1, np.int64)
    last[rows] = np.arange(len(rows))
    there = np.flatnonzero(last >= 0)
    if field.message is not None and len(there) < len(rows):
        twice = np.bincount(rows, minlength=len(cursor)) > 1
        cursor.fault(twice, f"{at} is there twice")
    parts = [(there, _values(cursor, field, found, rows, last[there], at))]
    if field.message is not None and not field.present and len(there) < len(cursor):
        # An entry of a map without a value: it is an empty message.
        missing = np.flatnonzero(last < 0)
        end = cursor.end[missing]
        parts.append((missing, _read(cursor.within(end.copy(), end, missing), field.message, at)))
    column = placed(parts, len(cursor), field.type)
    if field.present or field.message is not None or len(there) == len(cursor):
        return column
    return pc.fill_null(column, _default(field))


def _last_of_keys(rows: Ints, entries: pa.Array) -> tuple[Ints, pa.Array]:
    """Rows and entries of maps without those whose key comes again in the same row: the last one counts."""
    if not len(rows):
        return rows, entries
    keys = entries.field(0).dictionary_encode().indices.to_numpy().astype(np.int64)
    _, again = np.unique((rows * (keys.max() + 1) + keys)[::-1], return_index=True)
    if len(again) == len(rows):
        return rows, entries
    last = np.sort(len(rows) - 1 - again)
    return rows[last], entries.take(pa.array(last))


def _values(cursor: Cursor, field: Field, found: _Found, rows: Ints, chosen: Ints | None, at: str) -> pa.Array:
    """The found values as a column: all, or the chosen ones."""
    one = field.type.value_type if field.repeated and not field.is_map else field.type
    if not len(rows):
        return pa.array([], field.message.type if field.is_map and field.message else one)
    values = np.concatenate(found.values)
    which = np.arange(len(rows)) if chosen is None else chosen
    values, owners = values[which], rows[which]
    if not found.ends:
        return _numbers(values, field)
    ends = np.concatenate(found.ends)[which]
    inner = cursor.within(values.copy(), ends, owners)
    if field.message is not None:
        return _read(inner, field.message, at)
    column = pieces(cursor.data, values, ends)
    return texts(column, inner, at) if field.kind == "string" else column


def _numbers(values: npt.NDArray[Any], field: Field) -> pa.Array:
    kind = field.kind
    if kind == "bool":
        return pa.array(values != 0)
    if kind in ("sint32", "sint64"):
        values = values & np.uint64(2**32 - 1) if kind == "sint32" else values
        values = signed(values)
    elif kind in ("int32", "enum"):
        values = values.astype(np.uint32).view(np.int32)
    elif kind == "uint32":
        values = values.astype(np.uint32)
    elif kind == "int64":
        values = values.view(np.int64)
    if kind == "enum":
        return _symbols(values, dict(field.symbols))
    if kind in ("uint64", "fixed64"):
        return pa.array(values).cast(pa.decimal128(20, 0))
    return pa.array(values).cast(_KINDS[kind])


def _symbols(numbers: npt.NDArray[Any], names: dict[int, str]) -> pa.Array:
    """The names of an enum's numbers; an unknown number is its own text."""
    found, places = np.unique(numbers, return_inverse=True)
    said = pa.array([names.get(number, str(number)) for number in found.tolist()], pa.string())
    return said.take(pa.array(places.reshape(-1)))


def _default(field: Field) -> pa.Scalar:
    if field.kind == "enum":
        return pa.scalar(dict(field.symbols)[field.default], pa.string())
    return pa.scalar(field.default, field.type)


def _well(cursor: Cursor, wanted: Message, columns: list[pa.Array], what: str) -> pa.Array:
    if wanted.name != TIMESTAMP:
        return structs(columns, len(cursor), wanted.type)
    seconds, nanos = (each.to_numpy() for each in columns)
    beyond = (seconds < -MOST_S) | (seconds > MOST_S) | (nanos < 0) | (nanos >= 10**9)
    cursor.fault(beyond, f"{what} is a time beyond those of Spark")
    return pa.array(np.where(beyond, 0, seconds * 10**6 + nanos // 1000)).cast(wanted.type)
