"""The columns of a JSON Schema that a registry has."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any
from urllib.parse import unquote

from pyspark.sql.types import (
    ArrayType,
    BooleanType,
    DataType,
    DateType,
    DoubleType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from tidegate.errors import DefinitionError

_PLAIN: dict[str, DataType] = {"integer": LongType(), "number": DoubleType(), "boolean": BooleanType()}
_OF_FORMAT: dict[str, DataType] = {"date-time": TimestampType(), "date": DateType()}
DEEPEST = 30


def columns(text: str, references: Mapping[str, str] | None = None) -> StructType:
    """The columns of an object; `references` has the texts of other schemas that it names.

    Raises DefinitionError for a schema whose values have no one type.
    """
    document = json.loads(text)
    found = _Reader(document, {name: json.loads(other) for name, other in (references or {}).items()}).kind(
        document, "the value", 0
    )
    if not isinstance(found, StructType):
        raise DefinitionError(f"The JSON Schema is of {found.simpleString()}, and no object with properties.")
    return found


@dataclass(frozen=True)
class _Reader:
    """Reads the schemas within a document, which may name schemas within others."""

    document: Any
    others: Mapping[str, Any]

    def kind(self, schema: Any, what: str, depth: int) -> DataType:
        if depth > DEEPEST:
            raise DefinitionError(f"In the JSON Schema {what} contains itself, which no column can.")
        schema = self._of_one(schema, what)
        if "$ref" in schema:
            reader, found = self._referred(schema["$ref"], what)
            return reader.kind(found, what, depth + 1)
        kinds = schema.get("type")
        names = [each for each in ([kinds] if isinstance(kinds, str) else kinds or []) if each != "null"]
        if not names:
            names = ["string"] if _all_texts(schema) else ["object"] if "properties" in schema else []
        if sorted(names) == ["integer", "number"]:
            names = ["number"]
        if len(names) != 1:
            raise _unclear(what)
        return self._of(names[0], schema, what, depth)

    def _of(self, name: str, schema: Any, what: str, depth: int) -> DataType:
        if name in _PLAIN:
            return _PLAIN[name]
        if name == "string":
            return _OF_FORMAT.get(schema.get("format", ""), StringType())
        if name == "array" and isinstance(schema.get("items"), dict):
            return ArrayType(self.kind(schema["items"], f"an element of {what}", depth + 1))
        if name == "object" and schema.get("properties"):
            inner = schema["properties"].items()
            return StructType([StructField(each, self.kind(of, f"`{each}`", depth + 1)) for each, of in inner])
        if name == "object" and isinstance(schema.get("additionalProperties"), dict):
            return MapType(StringType(), self.kind(schema["additionalProperties"], f"a member of {what}", depth + 1))
        raise _unclear(what)

    def _of_one(self, schema: Any, what: str) -> Any:
        """The one schema of `oneOf` or `anyOf` that is not null; `schema` itself if it has neither."""
        if not isinstance(schema, dict):
            raise _unclear(what)
        for several in ("oneOf", "anyOf"):
            if several in schema:
                # Confluent's serializer for Java has a title beside it.
                some = [each for each in schema[several] if not isinstance(each, dict) or each.get("type") != "null"]
                if len(some) != 1:
                    raise _unclear(what)
                return some[0]
        return schema

    def _referred(self, name: str, what: str) -> tuple[_Reader, Any]:
        """The schema of a name, and the reader of its document."""
        file, _, path = name.partition("#")
        reader = replace(self, document=self.others.get(file)) if file else self
        found = reader.document
        for step in [each for each in path.split("/") if each]:
            # As a JSON pointer within a URI is written.
            part = unquote(step).replace("~1", "/").replace("~0", "~")
            found = found.get(part) if isinstance(found, dict) else None
        if found is None:
            raise DefinitionError(f"The JSON Schema of {what} is {name!r}, which is not there.")
        return reader, found


def _all_texts(schema: Any) -> bool:
    return bool(schema.get("enum")) and all(isinstance(each, str | None) for each in schema["enum"])


def _unclear(what: str) -> DefinitionError:
    return DefinitionError(
        f"In the JSON Schema {what} has no one type that a column can have. Say the columns yourself: "
        'tg.kafka.schema_registry(url, schema="user string, ts timestamp").'
    )
