"""Avro's schemas, parsed from their JSON texts, and the columns that Spark's `from_avro` would make of them."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import pyarrow as pa

from tidegate.errors import DefinitionError

PRIMITIVES = {
    "null": pa.null(),
    "boolean": pa.bool_(),
    "int": pa.int32(),
    "long": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "bytes": pa.binary(),
    "string": pa.string(),
}
_NAMED = ("record", "error", "enum", "fixed")


class Time(NamedTuple):
    """A logical type of a time.

    stored  the primitive type of its number
    unit    the unit of the number; None if it counts days
    type    the type of its column
    """

    stored: str
    unit: str | None
    type: pa.DataType


TIMES: dict[str, Time] = {
    "date": Time("int", None, pa.date32()),
    "timestamp-millis": Time("long", "ms", pa.timestamp("us", "UTC")),
    "timestamp-micros": Time("long", "us", pa.timestamp("us", "UTC")),
    "local-timestamp-millis": Time("long", "ms", pa.timestamp("us")),
    "local-timestamp-micros": Time("long", "us", pa.timestamp("us")),
}
"""The logical types of times."""
MOST_DIGITS = 38

_Definitions = dict[str, tuple[Any, str]]
"""Named types in JSON by their full names, each with the namespace that it stands in."""


@dataclass(frozen=True)
class Field:
    """A field of a record; `default` is the JSON text of its default, None if it has none."""

    name: str
    schema: Schema
    default: str | None = None
    aliases: tuple[str, ...] = ()


@dataclass(frozen=True)
class Schema:
    """A schema, with its named types in place of their names.

    kind      a primitive, or "record", "enum", "fixed", "array", "map", "union"
    name      of a named type, with its namespace
    aliases   other names of it, with their namespaces
    logical   a logical type that changes the column; a decimal has a precision and a scale
    items     of an array; the values of a map
    """

    kind: str
    name: str = ""
    aliases: tuple[str, ...] = ()
    fields: tuple[Field, ...] = ()
    symbols: tuple[str, ...] = ()
    default: str | None = None
    size: int = 0
    items: Schema | None = None
    branches: tuple[Schema, ...] = ()
    logical: str = ""
    precision: int = 0
    scale: int = 0

    @property
    def is_time(self) -> bool:
        return self.logical in TIMES

    @property
    def some(self) -> tuple[Schema, ...]:
        """The branches of a union that are not null."""
        return tuple(each for each in self.branches if each.kind != "null")

    def field(self, name: str) -> Schema | None:
        """The schema of a record's field, without a null beside it; None if there is no such field."""
        found = next((each.schema for each in self.fields if each.name == name), None)
        return found.some[0] if found is not None and found.kind == "union" and len(found.some) == 1 else found


def parse(text: str, references: Mapping[str, str] | None = None) -> Schema:
    """The schema of a JSON text; `references` has the texts of schemas whose named types it may name.

    Raises DefinitionError for a text that is no schema, or a type that contains itself.
    """
    parser = _Parser(_definitions(references or {}))
    try:
        document = json.loads(text)
    except ValueError:
        document = text  # the name of a primitive may stand without quotes
    return parser.schema(document, "")


def whole(text: str, references: Mapping[str, str]) -> str:
    """The JSON text of a schema, with the named types of `references` where it first names them."""
    if not references:
        return text
    return json.dumps(_Whole(_definitions(references)).of(json.loads(text), ""))


def _definitions(references: Mapping[str, str]) -> _Definitions:
    """The named types of these schemas, those within other types too."""
    found = (each for text in references.values() for each in _defined(json.loads(text), ""))
    return {full: (given, around) for full, given, around in found}


def _defined(given: Any, space: str) -> Iterator[tuple[str, Any, str]]:
    """The named types within a schema: full name, JSON, and the namespace that it stands in."""
    if isinstance(given, list):
        for each in given:
            yield from _defined(each, space)
    elif isinstance(given, dict) and given.get("type") in _NAMED:
        inner, full = _full_name(given, space)
        yield full, given, space
        for each in given.get("fields", ()):
            yield from _defined(each["type"], inner)
    elif isinstance(given, dict):
        for part in ("type", "items", "values"):
            yield from _defined(given.get(part), space)


@dataclass
class _Whole:
    """Writes named types where they are first named; `known` has the full names that are written already."""

    definitions: _Definitions
    known: set[str] = field(default_factory=set)

    def of(self, given: Any, space: str) -> Any:
        if isinstance(given, list):
            return [self.of(each, space) for each in given]
        if isinstance(given, str):
            return self._of_name(given, space)
        kind = given["type"]
        if kind in _NAMED:
            space, full = _full_name(given, space)
            if full in self.known:
                return full
            self.known.add(full)
            fields = [{**each, "type": self.of(each["type"], space)} for each in given.get("fields", ())]
            return {**given, "fields": fields} if fields else given
        inner = {"array": "items", "map": "values"}.get(kind, "type") if isinstance(kind, str) else "type"
        return {**given, inner: self.of(given[inner], space)}

    def _of_name(self, name: str, space: str) -> Any:
        for full in _full_names(name, space):
            if full in self.known:
                break
            if full in self.definitions:
                found, around = self.definitions[full]
                return self.of({**found, "namespace": _full_name(found, around)[0]}, space)
        return name


def _full_names(name: str, space: str) -> tuple[str, str]:
    """The full names that a name may mean within a namespace, the first one first."""
    return (name if "." in name or not space else f"{space}.{name}", name)


def short(name: str) -> str:
    """A name without its namespace."""
    return name.rpartition(".")[2]


def _full_name(given: Mapping[str, Any], space: str) -> tuple[str, str]:
    """The namespace of a named type that is written within another namespace, and its full name."""
    name = str(given.get("name", ""))
    space, _, short = name.rpartition(".") if "." in name else (str(given.get("namespace", space) or ""), "", name)
    return space, f"{space}.{short}" if space else short


@dataclass
class _Parser:
    definitions: _Definitions
    named: dict[str, Schema | None] = field(default_factory=dict)

    def schema(self, given: Any, space: str) -> Schema:
        if isinstance(given, list):
            return Schema("union", branches=tuple(self.schema(each, space) for each in given))
        if isinstance(given, str):
            return Schema(given) if given in PRIMITIVES else self._of_name(given, space)
        if not isinstance(given, dict) or "type" not in given:
            raise DefinitionError(f"{json.dumps(given)[:200]} is no Avro schema: an object has a `type`.")
        kind = given["type"]
        if isinstance(kind, dict | list):
            return self.schema(kind, space)
        if kind in _NAMED:
            return self._named(given, space)
        if kind in ("array", "map"):
            inner = given.get("items" if kind == "array" else "values")
            return Schema(kind, items=self.schema(inner, space))
        if kind in PRIMITIVES:
            return _logical(Schema(kind), given)
        return self.schema(kind, space)

    def _of_name(self, name: str, space: str) -> Schema:
        for full in _full_names(name, space):
            if full not in self.named and full in self.definitions:
                self.schema(*self.definitions[full])
            if full in self.named:
                found = self.named[full]
                if found is None:
                    raise DefinitionError(f"The Avro type {full} contains itself, which no column can.")
                return found
        raise DefinitionError(
            f"The Avro schema has a type {name!r}, which is neither known nor defined in front of it."
        )

    def _named(self, given: dict[str, Any], space: str) -> Schema:
        space, full = _full_name(given, space)
        aliases = tuple(_full_names(str(each), space)[0] for each in given.get("aliases", ()))
        self.named[full] = None
        made = Schema("record" if given["type"] == "error" else given["type"], full, aliases)
        if made.kind == "enum":
            made = replace(made, symbols=tuple(given["symbols"]), default=given.get("default"))
        elif made.kind == "fixed":
            made = _logical(replace(made, size=int(given["size"])), given)
        else:
            made = replace(made, fields=tuple(self._field(each, space) for each in given["fields"]))
        self.named[full] = made
        return made

    def _field(self, given: dict[str, Any], space: str) -> Field:
        schema = self.schema(given["type"], space)
        # Some writers put the logical type beside the type of the field.
        if schema.kind in PRIMITIVES and not schema.logical:
            schema = _logical(schema, given) if isinstance(given["type"], str) else schema
        default = json.dumps(given["default"]) if "default" in given else None
        return Field(given["name"], schema, default, tuple(given.get("aliases", ())))


def _logical(schema: Schema, given: dict[str, Any]) -> Schema:
    """`schema` with its logical type, if that changes the column; types that Avro would ignore are ignored."""
    said = given.get("logicalType")
    if said in TIMES and TIMES[said].stored == schema.kind:
        return replace(schema, logical=said)
    if said == "decimal" and schema.kind in ("bytes", "fixed"):
        precision, scale = int(given.get("precision", 0)), int(given.get("scale", 0))
        if not 0 < precision <= MOST_DIGITS or not 0 <= scale <= precision:
            raise DefinitionError(f"A decimal({precision}, {scale}) of Avro has no column: Spark has up to 38 digits.")
        return replace(schema, logical=said, precision=precision, scale=scale)
    return schema


def kind_of(schema: Schema) -> pa.DataType:
    """The type of the schema's column, as `from_avro` has it."""
    if schema.logical == "decimal":
        return pa.decimal128(schema.precision, schema.scale)
    if schema.is_time:
        return TIMES[schema.logical].type
    if schema.kind == "record":
        return pa.struct([pa.field(each.name, kind_of(each.schema)) for each in schema.fields])
    if schema.kind == "enum":
        return pa.string()
    if schema.kind == "fixed":
        return pa.binary()
    if schema.kind in ("array", "map"):
        assert schema.items is not None
        items = kind_of(schema.items)
        return pa.list_(items) if schema.kind == "array" else pa.map_(pa.string(), items)
    return _of_union(schema) if schema.kind == "union" else PRIMITIVES[schema.kind]


def widened(schema: Schema) -> Schema | None:
    """The one schema whose column a union has; None if each branch has a field of its own."""
    some = schema.some
    if len(some) <= 1:
        return some[0] if some else Schema("null")
    kinds = {each.kind for each in some if not each.logical}
    if len(kinds) == len(some) and kinds in ({"int", "long"}, {"float", "double"}):
        return Schema("long" if "long" in kinds else "double")
    return None


def _of_union(schema: Schema) -> pa.DataType:
    one = widened(schema)
    if one is not None:
        return kind_of(one)
    return pa.struct([pa.field(f"member{i}", kind_of(each)) for i, each in enumerate(schema.some)])
