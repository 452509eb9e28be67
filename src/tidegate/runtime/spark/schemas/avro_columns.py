"""Avro records as columns: many of one schema at once, resolved to the schema that the reader has.

`resolve` goes through both schemas once, by the rules of Avro's specification, and gives a node that reads. A node
moves a cursor behind its value in each record, and gives the column of the reader.
"""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from tidegate.kernel.columns.arrays import Ints
from tidegate.runtime.spark.frames.arrow import MAX_TIMESTAMP_MS
from tidegate.runtime.spark.schemas.avro import PRIMITIVES, TIMES, Field, Schema, kind_of, short, widened
from tidegate.runtime.spark.schemas.cursor import Cursor, field_of, listed, pieces, placed, structs, texts

SPARE = 4096
"""An array may have so many more elements than bytes, because elements may have no bytes."""

_WIDER = {
    "int": ("long", "float", "double"),
    "long": ("float", "double"),
    "float": ("double",),
    "string": ("bytes",),
    "bytes": ("string",),
}


_SIZES = {"int": 0, "long": 0, "boolean": 1, "float": 4, "double": 8}
"""Bytes of a number, 0 for varints."""


class Node(ABC):
    """Reads one schema; `kind` is the type of its column, `what` its name in reasons."""

    kind: pa.DataType
    what: str

    @abstractmethod
    def read(self, cursor: Cursor) -> pa.Array:
        """The column of the values; moves the cursor behind them."""

    def skip(self, cursor: Cursor) -> None:
        """Move the cursor behind the values as `read` does, without their column."""
        self.read(cursor)


class _Mismatch(Exception):  # noqa: N818 - never leaves this module
    """The writer's schema cannot be resolved to the reader's."""


@dataclass(frozen=True)
class _Unresolved(Node):
    """A schema of the writer that cannot be resolved to the reader's: every record with its value has a fault."""

    kind: pa.DataType
    reason: str
    what: str = ""

    def read(self, cursor: Cursor) -> pa.Array:
        cursor.fault(np.ones(len(cursor), bool), self.reason)
        return pa.nulls(len(cursor), self.kind)


@dataclass(frozen=True)
class _Primitive(Node):
    """Null, booleans, numbers, texts and bytes; `stored` is the writer's, `schema` the reader's."""

    stored: Schema
    schema: Schema
    kind: pa.DataType
    what: str

    def read(self, cursor: Cursor) -> pa.Array:
        return _as(self._stored(cursor), self.stored, self.schema, cursor, self.what)

    def skip(self, cursor: Cursor) -> None:
        if self.stored.kind in ("string", "bytes", "fixed"):
            self._slices(cursor)
        else:
            self._stored(cursor)

    def _stored(self, cursor: Cursor) -> pa.Array:
        kind = self.stored.kind
        if kind == "null":
            return pa.nulls(len(cursor))
        if kind == "boolean":
            said = cursor.fixed("u1", self.what)
            cursor.fault(said > 1, f"{self.what} is neither true nor false")
            return pa.array(said == 1)
        if kind in ("int", "long"):
            return self._whole(cursor)
        if kind in ("float", "double"):
            return pa.array(cursor.fixed("<f4" if kind == "float" else "<f8", self.what))
        return pieces(cursor.data, *self._slices(cursor))

    def _whole(self, cursor: Cursor) -> pa.Array:
        values = cursor.zigzag(self.what)
        if self.stored.kind == "long":
            return pa.array(values)
        beyond = (values < -(2**31)) | (values >= 2**31)
        cursor.fault(beyond, f"{self.what} is beyond an int")
        return pa.array(np.where(beyond, 0, values).astype(np.int32))

    def _slices(self, cursor: Cursor) -> tuple[Ints, Ints]:
        fixed = self.stored.kind == "fixed"
        sizes = np.full(len(cursor), self.stored.size) if fixed else cursor.zigzag(self.what)
        return cursor.slices(sizes, self.what)


@dataclass(frozen=True)
class _Enum(Node):
    """An enum. `symbols`: the reader's by number of the writer's; None if it has no such symbol and no default."""

    symbols: tuple[str | None, ...]
    what: str
    kind: pa.DataType

    def read(self, cursor: Cursor) -> pa.Array:
        numbers = cursor.zigzag(self.what)
        beyond = (numbers < 0) | (numbers >= len(self.symbols))
        cursor.fault(beyond, f"{self.what} is no symbol of its enum")
        found = pa.array(self.symbols, pa.string()).take(pa.array(np.where(beyond, 0, numbers)))
        unknown = found.is_null().to_numpy(zero_copy_only=False)
        cursor.fault(unknown, f"{self.what} is a symbol that the reader's enum does not have")
        return found


@dataclass(frozen=True)
class _Record(Node):
    """A record. `written`: fields in the writer's order, with the reader's names for them, None for unwanted ones.

    `missing`: fields of the reader that the writer does not write, each with its default as a column of one row.
    """

    written: tuple[tuple[str | None, Node], ...]
    missing: tuple[tuple[str, pa.Array], ...]
    kind: pa.DataType
    what: str

    def read(self, cursor: Cursor) -> pa.Array:
        columns: dict[str, pa.Array] = {}
        for name, node in self.written:
            if name is None:
                node.skip(cursor)
            else:
                columns[name] = node.read(cursor)
        for name, value in self.missing:
            columns[name] = value.take(pa.array(np.zeros(len(cursor), np.int64)))
        return structs([columns[each.name] for each in self.kind], len(cursor), self.kind)

    def skip(self, cursor: Cursor) -> None:
        for _, node in self.written:
            node.skip(cursor)


@dataclass(frozen=True)
class _Union(Node):
    """A union of the writer, each branch resolved to the reader's schema."""

    branches: tuple[Node, ...]
    kind: pa.DataType
    what: str

    def read(self, cursor: Cursor) -> pa.Array:
        parts = []
        for which, node in self._taken(cursor):
            if which is None:
                return node.read(cursor)
            part = cursor.part(which)
            column = node.read(part)
            cursor.join(which, part)
            if column.null_count < len(column):
                parts.append((which, column))
        return placed(parts, len(cursor), self.kind)

    def skip(self, cursor: Cursor) -> None:
        for which, node in self._taken(cursor):
            if which is None:
                node.skip(cursor)
            else:
                part = cursor.part(which)
                node.skip(part)
                cursor.join(which, part)

    def _taken(self, cursor: Cursor) -> list[tuple[Ints | None, Node]]:
        """The branches that occur, each with the numbers of its records; None for all records."""
        numbers = cursor.zigzag(self.what)
        beyond = (numbers < 0) | (numbers >= len(self.branches))
        if beyond.any():
            cursor.fault(beyond, f"{self.what} is no branch of its union")
            numbers = np.where(beyond, 0, numbers)
        there = np.flatnonzero(np.bincount(numbers, minlength=1))
        if len(there) == 1:
            return [(None, self.branches[there[0]])]
        return [(np.flatnonzero(numbers == number), self.branches[number]) for number in there]


@dataclass(frozen=True)
class _Member(Node):
    """A value as the one field of a struct of members that is not null."""

    node: Node
    name: str
    kind: pa.DataType
    what: str

    def read(self, cursor: Cursor) -> pa.Array:
        return _member(self.node.read(cursor), self.name, self.kind)


def _member(values: pa.Array, name: str, kind: pa.DataType) -> pa.Array:
    columns = [values if each.name == name else pa.nulls(len(values), each.type) for each in kind]
    return structs(columns, len(values), kind)


@dataclass(frozen=True)
class _Several(Node):
    """Arrays and maps: blocks of elements, each behind its number of elements; a block without elements is the end.

    The first elements of all records are read together, then the second ones, and so on; numbers a block at a time.
    """

    element: Node
    kind: pa.DataType
    what: str
    sizes: int | None = None
    """Bytes of each element that is a number, 0 for varints; None for other elements."""

    def read(self, cursor: Cursor) -> pa.Array:
        owners: list[Ints] = [np.array([], np.int64)]
        found: list[pa.Array] = [pa.array([], self.element.kind)]
        left = self._block(cursor)
        active = np.flatnonzero(left)
        while len(active):
            part = cursor.part(active)
            if self.sizes is None:
                found.append(self.element.read(part))
                owners.append(active)
                left[active] -= 1
            else:
                numbers, of = part.spread(left[active], self.sizes, self.what)
                found.append(self.element.read(numbers))
                owners.append(active[of])
                left[active] = 0
            left[active[part.faulty()]] = 0
            ended = np.flatnonzero((left[active] == 0) & ~part.faulty())
            if len(ended):
                block = part.part(ended)
                left[active[ended]] = self._block(block)
                part.join(ended, block)
            cursor.join(active, part)
            active = active[left[active] > 0]
        return listed(np.concatenate(owners), pa.concat_arrays(found), len(cursor), self.kind)

    def _block(self, cursor: Cursor) -> Ints:
        counts = cursor.zigzag(self.what)
        sized = np.flatnonzero(counts < 0)  # then the size of the block follows, for readers that skip it
        if len(sized):
            part = cursor.part(sized)
            part.zigzag(self.what)
            cursor.join(sized, part)
            counts[sized] = -counts[sized]
        beyond = (counts < 0) | (counts > cursor.left() + SPARE)
        cursor.fault(beyond, f"{self.what} has more elements than bytes")
        counts[beyond | cursor.faulty()] = 0
        return counts


def resolve(writer: Schema, reader: Schema, what: str = "it") -> Node:
    """A node that reads values of `writer` as `reader` has them; a value that does not fit is a fault of its record."""
    try:
        return _resolved(writer, reader, what)
    except _Mismatch as mismatch:
        return _Unresolved(kind_of(reader), str(mismatch), what)


def _resolved(writer: Schema, reader: Schema, what: str) -> Node:
    if writer.kind == "union":
        return _Union(tuple(resolve(each, reader, what) for each in writer.branches), kind_of(reader), what)
    if reader.kind == "union":
        return _into_union(writer, reader, what)
    if writer.kind in _OF_KIND and writer.kind == reader.kind:
        return _OF_KIND[writer.kind](writer, reader, what)
    if not _fits(writer, reader):
        raise _Mismatch(f"{what} is {_said(writer)} for the writer, and {_said(reader)} for the reader")
    return _Primitive(writer, reader, kind_of(reader), what)


def _into_union(writer: Schema, reader: Schema, what: str) -> Node:
    """A node for the reader's first branch of the writer's type, else for the first that the type can become.

    Of named types that differ by their namespaces alone, the branch with the writer's own comes first.
    """
    alike = [each for each in reader.branches if _same(writer, each)]
    branches = sorted(alike, key=lambda each: writer.name not in (each.name, *each.aliases))
    branches += [each for each in reader.branches if each not in branches and _may(writer, each)]
    if not branches:
        raise _Mismatch(f"{what} is {_said(writer)} for the writer, which is no branch of the reader's union")
    branch, one = branches[0], widened(reader)
    kind = kind_of(reader)
    if branch.kind == "null":
        return _Null(kind, what)
    if one is not None:
        # If a union is one column, a value that fits a branch fits the column.
        return _resolved(writer, branch if len(reader.some) == 1 else one, what)
    return _Member(_resolved(writer, branch, what), f"member{reader.some.index(branch)}", kind, what)


@dataclass(frozen=True)
class _Null(Node):
    """No bytes, and no value."""

    kind: pa.DataType
    what: str

    def read(self, cursor: Cursor) -> pa.Array:
        return pa.nulls(len(cursor), self.kind)


def _record(writer: Schema, reader: Schema, what: str) -> Node:
    named = {}
    for each in reader.fields:
        found = next((name for name in (each.name, *each.aliases) if _has(writer, name)), None)
        if found is not None:
            named[found] = each
    written = []
    for field in writer.fields:
        wanted = named.get(field.name)
        at = field_of(what, field.name)
        node = resolve(field.schema, field.schema if wanted is None else wanted.schema, at)
        written.append((None if wanted is None else wanted.name, node))
    read = [each.name for each in named.values()]
    missing = tuple((each.name, _default(each, what)) for each in reader.fields if each.name not in read)
    return _Record(tuple(written), missing, kind_of(reader), what)


def _has(writer: Schema, name: str) -> bool:
    return any(each.name == name for each in writer.fields)


def _default(field: Field, what: str) -> pa.Array:
    if field.default is None:
        where = "" if what == "it" else f" in {what}"
        raise _Mismatch(f"the writer has no field {field.name!r}{where}, and the reader has no default for it")
    return constant(field.schema, json.loads(field.default))


def _array(writer: Schema, reader: Schema, what: str) -> Node:
    assert writer.items is not None
    assert reader.items is not None
    element = resolve(writer.items, reader.items, what)
    sizes = _SIZES.get(writer.items.kind) if isinstance(element, _Primitive) else None
    return _Several(element, kind_of(reader), what, sizes)


def _map(writer: Schema, reader: Schema, what: str) -> Node:
    assert writer.items is not None
    assert reader.items is not None
    text, values = Schema("string"), resolve(writer.items, reader.items, what)
    fields = (("key", _Primitive(text, text, pa.string(), what)), ("value", values))
    pair = pa.struct([pa.field("key", pa.string(), nullable=False), pa.field("value", values.kind)])
    return _Several(_Record(fields, (), pair, what), kind_of(reader), what)


def _enum(writer: Schema, reader: Schema, what: str) -> Node:
    known = tuple(name if name in reader.symbols else reader.default for name in writer.symbols)
    return _Enum(known, what, kind_of(reader))


_OF_KIND = {"record": _record, "array": _array, "map": _map, "enum": _enum}


def _fits(writer: Schema, reader: Schema) -> bool:
    """Whether a primitive or fixed value of the writer's is one of the reader's, promoted or not."""
    if "decimal" in (writer.logical, reader.logical):
        same = (writer.logical, writer.precision, writer.scale) == (reader.logical, reader.precision, reader.scale)
        return same and writer.kind == reader.kind and writer.size == reader.size
    if writer.kind == reader.kind:
        return writer.kind in PRIMITIVES or (writer.kind == "fixed" and writer.size == reader.size)
    return reader.kind in _WIDER.get(writer.kind, ())


def _same(writer: Schema, reader: Schema) -> bool:
    """Whether a branch of the reader's is of the writer's type, by its name if it has one, in any namespace."""
    if writer.kind != reader.kind or writer.logical != reader.logical:
        return False
    return short(writer.name) in map(short, (reader.name, *reader.aliases))


def _may(writer: Schema, reader: Schema) -> bool:
    """Whether a branch of another type or name can be resolved."""
    return writer.kind == reader.kind if writer.kind in _OF_KIND else _fits(writer, reader)


def _said(schema: Schema) -> str:
    if schema.logical == "decimal":
        return f"decimal({schema.precision}, {schema.scale})"
    return schema.logical or " ".join(each for each in (schema.kind, short(schema.name)) if each)


def _as(values: pa.Array, writer: Schema, reader: Schema, cursor: Cursor, what: str) -> pa.Array:
    """Stored values as the reader's column."""
    kind = kind_of(reader)
    if reader.logical == "decimal":
        return _decimals(values, reader, cursor, what)
    if reader.is_time:
        stored, unit, _ = TIMES[reader.logical]
        # By the writer's unit if it has one: the number alone would be another time.
        unit = (TIMES[writer.logical][1] if writer.is_time else None) or unit
        values = values.cast(PRIMITIVES[stored])
        return values.cast(kind) if unit is None else _times(values, unit, kind, cursor, what)
    if pa.types.is_string(kind):
        return texts(values, cursor, what) if pa.types.is_binary(values.type) else values
    # A long may lose digits as a double: Avro promotes it so.
    return values if values.type == kind else values.cast(kind, safe=False)


def _times(values: pa.Array, unit: str, kind: pa.DataType, cursor: Cursor, what: str) -> pa.Array:
    if unit == "ms":
        numbers = values.to_numpy()
        beyond = (numbers > MAX_TIMESTAMP_MS) | (numbers < -MAX_TIMESTAMP_MS)
        cursor.fault(beyond, f"{what} is a time beyond those of Spark")
        values = pa.array(np.where(beyond, 0, numbers))
    return values.cast(pa.timestamp(unit, kind.tz)).cast(kind)


def _decimals(values: pa.Array, schema: Schema, cursor: Cursor, what: str) -> pa.Array:
    """Decimals of big-endian numbers of any number of bytes; bytes beyond 16 may only repeat the sign."""
    written = Cursor.over(values)
    lengths, last = written.left(), written.end - 1
    beyond = lengths == 0
    signs = np.where(~beyond & (written.data[written.at] >= 0x80), np.uint8(0xFF), np.uint8(0))
    wide = np.repeat(signs[:, None], 16, axis=1)
    for place in range(int(lengths.max(initial=0))):
        byte = np.where(place < lengths, written.data[np.maximum(last - place, 0)], signs)
        if place < 16:
            wide[:, place] = byte
        else:
            beyond |= byte != signs
    beyond |= (wide[:, 15] >= 0x80) != (signs == 0xFF)
    beyond |= ~_within(wide.view("<i8"), schema.precision)
    cursor.fault(beyond, f"{what} is no decimal({schema.precision}, {schema.scale})")
    wide[beyond] = 0
    kind = pa.decimal128(schema.precision, schema.scale)
    return pa.Array.from_buffers(kind, len(values), [None, pa.py_buffer(wide)])


def _within(halves: Any, precision: int) -> Any:
    """Whether numbers of 128 bits (columns: low half, high half) have at most `precision` digits."""
    high, low = halves[:, 1], halves[:, 0].view(np.uint64)
    top, bottom = divmod(10**precision - 1, 2**64)
    least_top, least_bottom = divmod(-(10**precision - 1), 2**64)
    not_above = (high < top) | ((high == top) & (low <= np.uint64(bottom)))
    not_below = (high > least_top) | ((high == least_top) & (low >= np.uint64(least_bottom)))
    return not_above & not_below


def constant(schema: Schema, value: Any) -> pa.Array:
    """The default `value`, as JSON has it, as a column of one row."""
    kind = kind_of(schema)
    if schema.kind == "union":
        return _constant_of_union(schema, value)
    if value is None:
        return pa.nulls(1, kind)
    if schema.kind == "record":
        columns = [
            constant(each.schema, value[each.name]) if each.name in value else _default(each, "the default")
            for each in schema.fields
        ]
        return structs(columns, 1, kind)
    if schema.kind in ("array", "map"):
        return _constant_of_several(schema, value)
    given = value.encode("latin-1") if schema.kind in ("bytes", "fixed") else value
    stored = pa.array([given], PRIMITIVES.get(schema.kind, pa.binary() if schema.kind == "fixed" else pa.string()))
    cursor = Cursor.over(pa.array([b""], pa.binary()))
    made = _as(stored, schema, schema, cursor, "the default")
    if cursor.faulty().any():
        raise _Mismatch(f"{json.dumps(value)} is a default that does not fit: {cursor.records.reasons[-1]}")
    return made


def _constant_of_several(schema: Schema, value: Any) -> pa.Array:
    assert schema.items is not None
    items = [constant(schema.items, each) for each in (value.values() if schema.kind == "map" else value)]
    inner = pa.concat_arrays(items) if items else pa.array([], kind_of(schema.items))
    offsets = pa.array([0, len(inner)], pa.int32())
    if schema.kind == "map":
        return pa.MapArray.from_arrays(offsets, pa.array(list(value), pa.string()), inner, kind_of(schema))
    return pa.ListArray.from_arrays(offsets, inner, kind_of(schema))


def _constant_of_union(schema: Schema, value: Any) -> pa.Array:
    """The default of a union: a value of the first branch; in newer schemas of any branch."""
    kind, one = kind_of(schema), widened(schema)
    if value is None:
        return pa.nulls(1, kind)
    for branch in schema.some:
        try:
            made = constant(branch, value)
        except (pa.ArrowInvalid, pa.ArrowTypeError, AttributeError, TypeError, ValueError):
            continue
        if one is not None:
            return made.cast(kind)
        return _member(made, f"member{schema.some.index(branch)}", kind)
    raise _Mismatch(f"{json.dumps(value)} is a default of no branch of its union")


def read(cursor: Cursor, node: Node) -> pa.Array:
    """The column of `node`; bytes that are left over are a fault."""
    found = node.read(cursor)
    cursor.fault(cursor.left() > 0, "bytes are left over")
    return found
