"""The columns of a JSON Schema."""

from __future__ import annotations

import json
from typing import Any

import pytest

pytest.importorskip("pyspark")

from tidegate.errors import DefinitionError
from tidegate.runtime.spark.schemas import json_schema


def of(**properties: Any) -> str:
    return json.dumps({"type": "object", "properties": properties})


@pytest.mark.parametrize(
    ("schema", "kind"),
    [
        ({"type": "string"}, "string"),
        ({"type": "integer"}, "bigint"),
        ({"type": "number"}, "double"),
        ({"type": ["integer", "number", "null"]}, "double"),
        ({"type": "boolean"}, "boolean"),
        ({"type": "string", "format": "date-time"}, "timestamp"),
        ({"type": "string", "format": "date"}, "date"),
        ({"type": "string", "format": "email"}, "string"),
        ({"enum": ["a", "b", None]}, "string"),
        ({"oneOf": [{"type": "null"}, {"type": "integer"}]}, "bigint"),
        ({"oneOf": [{"type": "null", "title": "Not included"}, {"type": "integer"}]}, "bigint"),
        ({"oneOf": [{"type": "null", "title": "Not included"}, {"$ref": "place.json#/definitions/x"}]}, "boolean"),
        ({"anyOf": [{"type": "string"}]}, "string"),
        ({"type": "array", "items": {"type": "integer"}}, "array<bigint>"),
        ({"type": "object", "additionalProperties": {"type": "number"}}, "map<string,double>"),
        ({"properties": {"y": {"type": "string"}}}, "struct<y:string>"),
        ({"$ref": "place.json#/definitions/x"}, "boolean"),
    ],
)
def test_what_a_property_is_as_a_column(schema: Any, kind: str) -> None:
    other = json.dumps({"definitions": {"x": {"type": "boolean"}}})
    found = json_schema.columns(of(x=schema), {"place.json": other})
    assert found.simpleString() == f"struct<x:{kind}>"


def test_a_name_is_one_of_the_document_that_it_stands_in() -> None:
    """Both documents define a zip, of another type each; the names of some definitions hold signs of paths and URIs."""
    to = {"properties": {"zip": {"$ref": "#/definitions/zip"}, "x": {"$ref": "#/definitions/a~1b%20~0"}}}
    place = {"definitions": {"to": to, "zip": {"type": "integer"}, "a/b ~": {"type": "number"}}}
    root = {
        "properties": {"to": {"$ref": "place.json#/definitions/to"}, "zip": {"$ref": "#/definitions/zip"}},
        "definitions": {"zip": {"type": "string"}},
    }
    found = json_schema.columns(json.dumps(root), {"place.json": json.dumps(place)})
    assert found.simpleString() == "struct<to:struct<zip:bigint,x:double>,zip:string>"


@pytest.mark.parametrize(
    ("schema", "said"),
    [
        (of(x={}), "`x` has no one type"),
        (of(x={"type": ["string", "integer"]}), "`x` has no one type"),
        (of(x={"oneOf": [{"type": "string"}, {"type": "integer"}]}), "`x` has no one type"),
        (of(x={"type": "object"}), "`x` has no one type"),
        (of(x={"type": "array", "items": True}), "`x` has no one type"),
        (of(x={"$ref": "#/definitions/no"}), "is '#/definitions/no', which is not there"),
        (of(x={"$ref": "#/properties/x"}), "`x` contains itself"),
        ('{"type": "string"}', "is of string, and no object"),
    ],
)
def test_schemas_that_have_no_columns(schema: str, said: str) -> None:
    with pytest.raises(DefinitionError, match=said):
        json_schema.columns(schema)
