"""The Arrow types of Spark's columns, with any version of pyspark, and those that Spark reads or lacks."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa
from pyspark.sql import SparkSession
from pyspark.sql.pandas.types import from_arrow_schema, from_arrow_type, to_arrow_schema
from pyspark.sql.types import ArrayType, DataType, MapType, NullType, StructField, StructType

from tidegate.errors import DefinitionError
from tidegate.kernel.columns.arrays import as_schema
from tidegate.spec.columns import public_name

LARGE = "spark.sql.execution.arrow.useLargeVarTypes"

MAX_DIGITS = 38
"""Most digits of Spark's decimals."""

MAX_TIMESTAMP_MS = (2**63 - 1) // 1000
"""The largest timestamp of Spark (ms): Spark counts microseconds in 64 bits."""


def arrow_schema(schema: StructType, *, large: bool = False) -> pa.Schema:
    """The Arrow types of Spark columns; timestamps are in UTC whatever the session's time zone is.

    large  whether text and binary have Arrow's large types (LARGE)
    """
    more: dict[str, Any] = {"prefers_large_types": True} if large else {}
    schema = _with_nullable_voids(schema)
    try:
        return to_arrow_schema(schema, timezone="UTC", **more)
    except TypeError:  # pyspark before 4.2 has no such argument, and takes UTC
        return to_arrow_schema(schema, **more)


def spark_schema(schema: pa.Schema) -> StructType:
    """The Spark types of Arrow columns. A timestamp without a zone has none: to pyspark before 4.2 it is an instant."""
    return from_arrow_schema(schema, prefer_timestamp_ntz=True)


def spark_type(kind: pa.DataType) -> DataType:
    """The Spark type of an Arrow type, as `spark_schema` has it."""
    return from_arrow_type(kind, prefer_timestamp_ntz=True)


def _with_nullable_voids(kind: Any) -> Any:
    """The type with parts of type void that may be null, as all of them are: Spark's `array()` says that none is."""
    if isinstance(kind, ArrayType):
        void = isinstance(kind.elementType, NullType)
        return ArrayType(_with_nullable_voids(kind.elementType), kind.containsNull or void)
    if isinstance(kind, MapType):
        void = isinstance(kind.valueType, NullType)
        parts = _with_nullable_voids(kind.keyType), _with_nullable_voids(kind.valueType)
        return MapType(*parts, kind.valueContainsNull or void)
    if isinstance(kind, StructType):
        return StructType(
            [
                StructField(
                    field.name,
                    _with_nullable_voids(field.dataType),
                    field.nullable or isinstance(field.dataType, NullType),
                    field.metadata,
                )
                for field in kind.fields
            ]
        )
    return kind


def with_large_types(rows: pa.Table) -> pa.Table:
    """The rows, in which text and binary have Arrow's large types."""
    return as_schema(rows, arrow_schema(spark_schema(rows.schema), large=True))


def as_taken(spark: SparkSession) -> Callable[[pa.Table], pa.Table]:
    """Makes a result one that `applyInArrow` takes: where the session has large types, Spark takes these alone."""
    return with_large_types if str(spark.conf.get(LARGE, "false")).lower() == "true" else _as_it_is


def _as_it_is(rows: pa.Table) -> pa.Table:
    return rows


def check_known(schema: pa.Schema, what: str, remedy: str) -> None:
    """Raise DefinitionError for a column whose type Spark lacks; `what` begins the message, `remedy` ends it."""
    for field in schema:
        try:
            arrow_schema(StructType([StructField(field.name, spark_type(field.type))]))
        except (TypeError, ValueError):
            raise DefinitionError(
                f"{what} {public_name(field.name)!r} of type {field.type}, and Spark has no such type. {remedy}"
            ) from None


def as_spark_reads(kind: pa.DataType) -> pa.DataType:
    """The type as which Spark reads values of `kind` from Arrow; a type that Spark lacks stays."""
    if pa.types.is_dictionary(kind):
        return as_spark_reads(kind.value_type)
    if pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind):
        return pa.list_(as_spark_reads(kind.value_type))
    if pa.types.is_struct(kind):
        return pa.struct([(field.name, as_spark_reads(field.type)) for field in kind])
    if pa.types.is_map(kind):  # Spark 4.0 forgets that a value cannot be null, and then refuses the rows
        return pa.map_(as_spark_reads(kind.key_type), as_spark_reads(kind.item_type))
    if pa.types.is_timestamp(kind):
        return pa.timestamp("us", kind.tz)
    if pa.types.is_decimal(kind):
        return pa.decimal128(kind.precision, kind.scale) if kind.precision <= MAX_DIGITS else kind
    return next((read for is_one, read in _READ_AS if is_one(kind)), kind)


def schema_as_spark_reads(schema: pa.Schema) -> pa.Schema:
    """The schema with the types as which Spark reads its columns."""
    return pa.schema([field.with_type(as_spark_reads(field.type)) for field in schema])


_READ_AS = (
    (pa.types.is_large_string, pa.string()),
    (pa.types.is_large_binary, pa.binary()),
    (pa.types.is_fixed_size_binary, pa.binary()),
    (pa.types.is_duration, pa.duration("us")),
    (pa.types.is_time64, pa.time64("ns")),
)
