"""The types of Spark that an operator carries: those that leave Arrow and Python as they came.

A type that Arrow lacks would stop the query with an assertion of pyspark, or leave as another type: a VARIANT as a
struct of two binaries, a collated string without its collation, compared by its bytes, a type that users defined, such
as a vector of Spark's ML, as the type beneath it. So an operator refuses to read a
column of such a type, and the error shows the cast to write. A column that no operator reads may have any type.
"""

from __future__ import annotations

from collections.abc import Iterable

from pyspark.sql import DataFrame
from pyspark.sql.types import ArrayType, DataType, MapType, NullType, StringType, StructType, UserDefinedType

from tidegate.errors import DefinitionError
from tidegate.runtime.spark.frames.names import spelled

BINARY = "UTF8_BINARY"
"""The collation that compares strings by their bytes."""

_COLLATED, _DEFINED = "collated string", "type that users defined"

_CASTS = {
    "VariantType": "F.to_json({name})",
    "YearMonthIntervalType": 'F.col({name}).cast("interval month").cast("int")',
    "CalendarIntervalType": 'F.col({name}).cast("string")',
    "CharType": 'F.col({name}).cast("string")',
    "VarcharType": 'F.col({name}).cast("string")',
    "GeometryType": 'F.call_function("st_asbinary", F.col({name}))',
    "GeographyType": 'F.call_function("st_asbinary", F.col({name}))',
    _COLLATED: f'F.collate({{name}}, "{BINARY}")',
    _DEFINED: "F.to_json(F.struct({name}))",
}
"""Casts to a type that is carried, by the name of the type, because not every Spark has each type."""

_REASONS = {
    _COLLATED: "it compares strings by their bytes",
    _DEFINED: "its rows would have the type beneath it",
}


def check_carried(frame: DataFrame, names: Iterable[str]) -> None:
    """Raise DefinitionError for a column among `names` whose type an operator does not carry."""
    wanted = set(names)
    for field in frame.schema.fields:
        if field.name in wanted:
            _check(field.name, field.dataType)


def _check(name: str, kind: DataType) -> None:
    refused = _refused(kind)
    if refused is None:
        return
    called = kind.simpleString()
    if refused is not kind:
        raise DefinitionError(
            f"The column {name!r} is {called}, and an operator does not carry the {refused.simpleString()} in it. "
            f"Cast it, for example by F.to_json({spelled(name)}), or drop the column if nothing needs it."
        )
    cast = _CASTS[_name(refused)].format(name=spelled(name))
    why = _REASONS.get(_name(refused), "Arrow has no such type")
    raise DefinitionError(
        f"The column {name!r} is {called}, which an operator does not carry: {why}. "
        f'Use df.withColumn("{name}", {cast}), or drop the column if nothing needs it.'
    )


def _refused(kind: DataType) -> DataType | None:
    """`kind`, or the first type inside it, that is not carried; None if all are."""
    if isinstance(kind, ArrayType):
        return _refused(kind.elementType)
    if isinstance(kind, MapType):
        if isinstance(kind.keyType, NullType):  # Arrow has no keys that are null
            return kind.keyType
        return _refused(kind.keyType) or _refused(kind.valueType)
    if isinstance(kind, StructType):
        return next((found for field in kind.fields if (found := _refused(field.dataType)) is not None), None)
    return kind if _name(kind) in _CASTS else None


def _name(kind: DataType) -> str:
    if isinstance(kind, UserDefinedType):
        return _DEFINED
    collated = isinstance(kind, StringType) and getattr(kind, "collation", BINARY) != BINARY
    return _COLLATED if collated else type(kind).__name__
