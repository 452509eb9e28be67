"""Decodes keys or values that begin with the number of their schema, all those of one schema together.

0 | number of the schema, four bytes | for Protobuf the place of the message in its file | the value
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from functools import cache

import numpy as np
import pyarrow as pa

from tidegate.errors import DefinitionError
from tidegate.kernel.columns.arrays import Ints
from tidegate.runtime.spark.schemas import avro, avro_columns, avro_resolution, protobuf
from tidegate.runtime.spark.schemas.cursor import Cursor, pieces, placed
from tidegate.runtime.spark.schemas.registry import AVRO, JSON, PROTOBUF, Registry, Written

HEAD = 5
"""Bytes in front of a value: a zero and the number."""


class Form(ABC):
    """The reader's form of a key or value: `type` is the struct of its columns, `name` the schema's language."""

    name: str
    type: pa.DataType

    @abstractmethod
    def read(self, cursor: Cursor, written: Written) -> pa.Array:
        """The column, of `type`, of records behind their heads, all written by the schema `written`.

        Raises DefinitionError if that schema cannot be read.
        """


@dataclass(frozen=True)
class AvroForm(Form):
    """Avro, resolved to the schema `reader`; a schema that is no record becomes the one field `alone`."""

    reader: avro.Schema
    alone: str
    name: str = AVRO

    @property
    def type(self) -> pa.DataType:
        found = avro.kind_of(self.reader)
        return found if self.reader.kind == "record" else pa.struct([(self.alone, found)])

    def read(self, cursor: Cursor, written: Written) -> pa.Array:
        found = avro_columns.read(cursor, _resolved(self.reader, written))
        if self.reader.kind == "record":
            return found
        return pa.StructArray.from_arrays([found], fields=list(self.type))


@cache
def _resolved(reader: avro.Schema, written: Written) -> avro_columns.Node:
    return avro_resolution.resolve(avro.parse(written.text, dict(written.references)), reader)


@dataclass(frozen=True)
class ProtobufForm(Form):
    """Protobuf, read as the message `reader`, which has the place `indexes` in its file."""

    reader: protobuf.Message
    indexes: tuple[int, ...]
    name: str = PROTOBUF

    @property
    def type(self) -> pa.DataType:
        return self.reader.type

    def read(self, cursor: Cursor, written: Written) -> pa.Array:
        return protobuf.read(cursor, self.reader, self.indexes)


@dataclass(frozen=True)
class JsonForm(Form):
    """The JSON text behind the head, which Spark reads."""

    name: str = JSON

    @property
    def type(self) -> pa.DataType:
        return pa.binary()

    def read(self, cursor: Cursor, written: Written) -> pa.Array:
        return pieces(cursor.data, *cursor.slices(cursor.left(), "it"))


@dataclass(frozen=True)
class Decoded:
    """`rows` are null for null bytes; `reasons` are null for readable bytes; `numbers` are the numbers of schemas."""

    rows: pa.Array
    reasons: pa.Array
    numbers: pa.Array


@dataclass(frozen=True)
class Decoder:
    """Decodes the keys or the values (`what`: "key" or "value") of records in the workers, which ask the registry."""

    registry: Registry
    form: Form
    what: str

    def __call__(self, data: pa.Array) -> Decoded:
        """The decoded bytes. Raises InputError if the registry does not answer."""
        rows, reasons, numbers = self._read(data.drop_null().cast(pa.binary()))
        if not data.null_count:
            return Decoded(rows, reasons, numbers)
        there = np.flatnonzero(data.is_valid().to_numpy(zero_copy_only=False))
        return Decoded(*(placed([(there, each)], len(data), each.type) for each in (rows, reasons, numbers)))

    def _read(self, data: pa.Array) -> tuple[pa.Array, pa.Array, pa.Array]:
        cursor = Cursor.over(data)
        numbers = self._numbers(cursor)
        if len(numbers) and numbers[0] >= 0 and (numbers == numbers[0]).all():
            # One schema, as in most batches: the cursors need not be divided.
            rows = self._of_schema(cursor, int(numbers[0]))
            return rows, self._reasons(cursor, numbers), pa.array(numbers)
        parts: list[tuple[Ints, pa.Array]] = []
        for number in np.unique(numbers[numbers >= 0]).tolist():
            which = np.flatnonzero(numbers == number)
            part = cursor.part(which)
            parts.append((which, self._of_schema(part, number)))
        rows = placed(parts, len(data), self.form.type)
        return rows, self._reasons(cursor, numbers), pa.array(numbers, mask=numbers < 0)

    def _numbers(self, cursor: Cursor) -> Ints:
        """The number of each record's schema, -1 if there is none; moves the cursors behind the numbers."""
        bad = cursor.left() < HEAD
        bad |= cursor.data[cursor.at] != 0
        cursor.fault(bad, "")
        cursor.at = np.minimum(cursor.at + 1, cursor.end)
        numbers = cursor.fixed(">u4", "the head").astype(np.int64)
        return np.where(bad, -1, numbers)

    def _of_schema(self, part: Cursor, number: int) -> pa.Array:
        written = self.registry.schema(number) if number < 2**31 else None
        everyone = np.ones(len(part), bool)
        if written is None:
            part.fault(everyone, _UNKNOWN)
        elif written.kind != self.form.name:
            part.fault(everyone, f"that is {written.kind}, and not {self.form.name}")
        else:
            try:
                return self.form.read(part, written)
            except DefinitionError as error:
                part.fault(everyone, str(error))
        return pa.nulls(len(part), self.form.type)

    def _reasons(self, cursor: Cursor, numbers: Ints) -> pa.Array:
        """The reasons as texts; each pair of schema and reason has one text."""
        codes = cursor.records.codes
        which = np.flatnonzero(codes)
        if not len(which):
            return pa.nulls(len(codes), pa.string())
        pairs = np.stack([codes[which].astype(np.int64), numbers[which]], axis=1)
        found, places = np.unique(pairs, axis=0, return_inverse=True)
        said = pa.array([self._said(cursor.records.reasons[code], number) for code, number in found.tolist()])
        return placed([(which, said.take(pa.array(places.reshape(-1))))], len(codes), pa.string())

    def _said(self, reason: str, number: int) -> str:
        if number < 0:
            return f"the {self.what} does not begin with a zero byte and the number of a schema"
        if reason == _UNKNOWN:
            return f"the {self.what} has schema {number}, which the registry does not have"
        return f"the {self.what} is not {self.form.name.capitalize()} of schema {number}: {reason}"


_UNKNOWN = "unknown"
