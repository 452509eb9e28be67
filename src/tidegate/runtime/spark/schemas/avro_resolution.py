"""The resolution of a writer's Avro schema to the reader's: `resolve` goes through both once, by the rules of Avro's
specification, and gives a node that reads (`avro_columns`).
"""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa

from tidegate.runtime.spark.schemas.avro import PRIMITIVES, Field, Schema, kind_of, short, widened
from tidegate.runtime.spark.schemas.avro_columns import (
    Enum,
    Member,
    Node,
    Null,
    Primitive,
    Record,
    Several,
    Union,
    Unresolved,
    as_reader_has,
    member_of,
)
from tidegate.runtime.spark.schemas.cursor import Cursor, field_of, structs

_WIDER = {
    "int": ("long", "float", "double"),
    "long": ("float", "double"),
    "float": ("double",),
    "string": ("bytes",),
    "bytes": ("string",),
}
_SIZES = {"int": 0, "long": 0, "boolean": 1, "float": 4, "double": 8}
"""Bytes of a number, 0 for varints."""


class _Mismatch(Exception):  # noqa: N818 - never leaves this module
    """The writer's schema cannot be resolved to the reader's."""


def resolve(writer: Schema, reader: Schema, what: str = "it") -> Node:
    """A node that reads values of `writer` as `reader` has them; a value that does not fit is a fault of its record."""
    try:
        return _resolved(writer, reader, what)
    except _Mismatch as mismatch:
        return Unresolved(kind_of(reader), str(mismatch), what)


def _resolved(writer: Schema, reader: Schema, what: str) -> Node:
    if writer.kind == "union":
        return Union(tuple(resolve(each, reader, what) for each in writer.branches), kind_of(reader), what)
    if reader.kind == "union":
        return _into_union(writer, reader, what)
    if writer.kind in _OF_KIND and writer.kind == reader.kind:
        return _OF_KIND[writer.kind](writer, reader, what)
    if not _fits(writer, reader):
        raise _Mismatch(f"{what} is {_said(writer)} for the writer, and {_said(reader)} for the reader")
    return Primitive(writer, reader, kind_of(reader), what)


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
        return Null(kind, what)
    if one is not None:
        # If a union is one column, a value that fits a branch fits the column.
        return _resolved(writer, branch if len(reader.some) == 1 else one, what)
    return Member(_resolved(writer, branch, what), f"member{reader.some.index(branch)}", kind, what)


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
    return Record(tuple(written), missing, kind_of(reader), what)


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
    sizes = _SIZES.get(writer.items.kind) if isinstance(element, Primitive) else None
    return Several(element, kind_of(reader), what, sizes)


def _map(writer: Schema, reader: Schema, what: str) -> Node:
    assert writer.items is not None
    assert reader.items is not None
    text, values = Schema("string"), resolve(writer.items, reader.items, what)
    fields = (("key", Primitive(text, text, pa.string(), what)), ("value", values))
    pair = pa.struct([pa.field("key", pa.string(), nullable=False), pa.field("value", values.kind)])
    return Several(Record(fields, (), pair, what), kind_of(reader), what)


def _enum(writer: Schema, reader: Schema, what: str) -> Node:
    known = tuple(name if name in reader.symbols else reader.default for name in writer.symbols)
    return Enum(known, what, kind_of(reader))


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
    made = as_reader_has(stored, schema, schema, cursor, "the default")
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
        return member_of(made, f"member{schema.some.index(branch)}", kind)
    raise _Mismatch(f"{json.dumps(value)} is a default of no branch of its union")
