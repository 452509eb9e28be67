"""Avro records as columns: many of one schema at once, by nodes that read.

A node moves a cursor behind its value in each record, and gives the column of the reader (`avro_resolution.resolve`).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from tidegate.kernel.columns.arrays import Ints
from tidegate.runtime.spark.frames.arrow import MAX_TIMESTAMP_MS
from tidegate.runtime.spark.schemas.avro import PRIMITIVES, TIMES, Schema, kind_of
from tidegate.runtime.spark.schemas.cursor import Cursor, listed, pieces, placed, structs, texts

SPARE = 4096
"""An array may have so many more elements than bytes, because elements may have no bytes."""


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


@dataclass(frozen=True)
class Unresolved(Node):
    """A schema of the writer that cannot be resolved to the reader's: every record with its value has a fault."""

    kind: pa.DataType
    reason: str
    what: str = ""

    def read(self, cursor: Cursor) -> pa.Array:
        cursor.fault(np.ones(len(cursor), bool), self.reason)
        return pa.nulls(len(cursor), self.kind)


@dataclass(frozen=True)
class Primitive(Node):
    """Null, booleans, numbers, texts and bytes; `stored` is the writer's, `schema` the reader's."""

    stored: Schema
    schema: Schema
    kind: pa.DataType
    what: str

    def read(self, cursor: Cursor) -> pa.Array:
        return as_reader_has(self._stored(cursor), self.stored, self.schema, cursor, self.what)

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
class Enum(Node):
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
class Record(Node):
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
class Union(Node):
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
class Member(Node):
    """A value as the one field of a struct of members that is not null."""

    node: Node
    name: str
    kind: pa.DataType
    what: str

    def read(self, cursor: Cursor) -> pa.Array:
        return member_of(self.node.read(cursor), self.name, self.kind)


def member_of(values: pa.Array, name: str, kind: pa.DataType) -> pa.Array:
    columns = [values if each.name == name else pa.nulls(len(values), each.type) for each in kind]
    return structs(columns, len(values), kind)


@dataclass(frozen=True)
class Several(Node):
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


@dataclass(frozen=True)
class Null(Node):
    """No bytes, and no value."""

    kind: pa.DataType
    what: str

    def read(self, cursor: Cursor) -> pa.Array:
        return pa.nulls(len(cursor), self.kind)


def as_reader_has(values: pa.Array, writer: Schema, reader: Schema, cursor: Cursor, what: str) -> pa.Array:
    """Stored values as the reader's column."""
    kind = kind_of(reader)
    if reader.logical == "decimal":
        return _decimals(values, reader, cursor, what)
    if reader.is_time:
        time = TIMES[reader.logical]
        # By the writer's unit if it has one: the number alone would be another time.
        unit = (TIMES[writer.logical].unit if writer.is_time else None) or time.unit
        values = values.cast(PRIMITIVES[time.stored])
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


def read(cursor: Cursor, node: Node) -> pa.Array:
    """The column of `node`; bytes that are left over are a fault."""
    found = node.read(cursor)
    cursor.fault(cursor.left() > 0, "bytes are left over")
    return found
