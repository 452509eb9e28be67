"""Converts Spark type strings to Arrow types."""

from __future__ import annotations

import re
from typing import Any

import pyarrow as pa

from tidegate.arguments import has
from tidegate.errors import DefinitionError, DefinitionTypeError, in_one_line

_ATOMIC = {
    "boolean": pa.bool_(),
    "bool": pa.bool_(),
    "byte": pa.int8(),
    "tinyint": pa.int8(),
    "short": pa.int16(),
    "smallint": pa.int16(),
    "int": pa.int32(),
    "integer": pa.int32(),
    "long": pa.int64(),
    "bigint": pa.int64(),
    "float": pa.float32(),
    "real": pa.float32(),
    "double": pa.float64(),
    "string": pa.string(),
    "binary": pa.binary(),
    "date": pa.date32(),
    "timestamp": pa.timestamp("us", "UTC"),
    "timestamp_ntz": pa.timestamp("us"),
}
LIKELY = (pa.string(), pa.int64(), pa.float64(), pa.bool_(), pa.timestamp("us", "UTC"), pa.list_(pa.null()))
"""Types that a column may have of which only nulls are known: few functions of Arrow take the type null."""

_DECIMAL = re.compile(r"(?:decimal|numeric|dec)(?:\(\s*(\d+)\s*(?:,\s*(\d+)\s*)?\))?")
_INTERVAL = re.compile(r"interval (?:day|hour|minute|second)(?: to (?:hour|minute|second))?")
_NESTED = re.compile(r"(array|map|struct)\s*<(.+)>", re.IGNORECASE | re.DOTALL)
_FIELD = re.compile(r"\s*(\w+)\s*[:\s]\s*(.+)", re.DOTALL)


def arrow_type(declared: Any) -> pa.DataType:
    """The Arrow type of a Spark type string or of a type of PySpark, or the Arrow type itself.

    Raises DefinitionError for a string that is no type, DefinitionTypeError for anything else.
    """
    if isinstance(declared, pa.DataType):
        return declared
    if has(declared, "simpleString"):
        declared = declared.simpleString()
    if not isinstance(declared, str):
        raise DefinitionTypeError(
            f'`type` is {in_one_line(declared)}. Use a Spark type string such as "long", or a pyarrow type.'
        )
    text = declared.strip().lower()
    if text in _ATOMIC:
        return _ATOMIC[text]
    if _INTERVAL.fullmatch(text):
        return pa.duration("us")
    if decimal := _DECIMAL.fullmatch(text):
        return _decimal(declared, int(decimal.group(1) or 10), int(decimal.group(2) or 0))
    if (nested := _NESTED.fullmatch(declared.strip())) and (kind := _nested(nested.group(1).lower(), nested.group(2))):
        return kind
    raise DefinitionError(
        f"`type` is {declared!r}, which is not a type known here. Use one of {', '.join(_ATOMIC)}, "
        '"decimal(precision, scale)", "interval day to second", "array<...>", "map<..., ...>", '
        '"struct<name:type, ...>", or a pyarrow type such as pyarrow.struct([...]).'
    )


def _nested(kind: str, inside: str) -> pa.DataType | None:
    """The type of an array, a map or a struct with this text between its brackets; None if it has other parts."""
    parts = _parts(inside)
    if kind == "struct":
        fields = [_FIELD.fullmatch(part) for part in parts]
        return pa.struct([(f.group(1), arrow_type(f.group(2))) for f in fields if f]) if all(fields) else None
    if len(parts) != (2 if kind == "map" else 1):
        return None
    types = [arrow_type(part) for part in parts]
    return pa.map_(*types) if kind == "map" else pa.list_(*types)


def _parts(text: str) -> list[str]:
    """The text between the commas that are in no brackets."""
    parts, depth = [""], 0
    for letter in text:
        depth += (letter in "<(") - (letter in ">)")
        if letter == "," and not depth:
            parts.append("")
        else:
            parts[-1] += letter
    return parts


def is_atomic(kind: pa.DataType) -> bool:
    """Whether values of this type have a hash, as keys need. The parts of a nested value, or of an interval, have, and
    what an extension stores: of a UUID its bytes.
    """
    of_parts = pa.types.is_nested(kind) or pa.types.is_interval(kind) or isinstance(kind, pa.BaseExtensionType)
    return not of_parts


def _decimal(declared: str, precision: int, scale: int) -> pa.DataType:
    if not 1 <= precision <= 38 or scale > precision:
        raise DefinitionError(
            f"`type` is {declared!r}: a decimal has a precision of 1 to 38 digits and a scale of at most that. "
            'Use for example "decimal(38, 18)".'
        )
    return pa.decimal128(precision, scale)
