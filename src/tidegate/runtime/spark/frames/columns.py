"""Checks that the columns of a DataFrame fit their roles in a stream; the errors show the expression to write."""

from __future__ import annotations

from collections.abc import Iterable

from pyspark.sql import DataFrame
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    DataType,
    IntegralType,
    LongType,
    MapType,
    NullType,
    StringType,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from tidegate.errors import DefinitionError, DefinitionTypeError, in_one_line
from tidegate.plan import RESULT_COLUMNS, Stream, check_roles
from tidegate.runtime.spark.frames.names import check_apart, spelled
from tidegate.spec.columns import check_user_name


def check_columns(stream: Stream, deleted: str | None = None) -> None:
    """Raise DefinitionError for a column that is missing, has a type that cannot serve, or a name that results use."""
    if not isinstance(stream.frame, DataFrame):
        raise DefinitionTypeError(
            f"`source` is {in_one_line(stream.frame)} ({type(stream.frame).__name__}), not a Spark DataFrame. "
            "Use one, or the name of an input to be bound later. spark.createDataFrame(frame) makes one."
        )
    fields = stream.frame.schema.fields
    types: dict[str, DataType] = {field.name: field.dataType for field in fields}
    # The deletion column is no value: rows of a result have only their own `deleted`, so its name may be reserved.
    _reserved(name for name in types if name != deleted)
    check_apart([field.name for field in fields], stream.frame.sparkSession, "The DataFrame has")
    check_roles(stream, deleted, types, "DataFrame")
    for name in stream.key:
        _key(name, types[name])
    _timestamp(stream.timestamp, types[stream.timestamp])
    if deleted is not None and not isinstance(types[deleted], BooleanType | NullType):
        raise DefinitionError(
            f"`deleted` is {deleted!r}, a column of {types[deleted].simpleString()}: a row is deleted where a boolean "
            f'column is true. Use df.withColumn("{deleted}", F.col({spelled(deleted)}).cast("boolean")), or a '
            "comparison."
        )
    if stream.partition is not None and stream.offset is not None:
        _order(stream.partition, types[stream.partition], stream.offset, types[stream.offset])


def _reserved(names: Iterable[str]) -> None:
    for name in names:
        check_user_name(name, "A column of the DataFrame")
        if name in RESULT_COLUMNS:
            raise DefinitionError(
                f"The DataFrame has a column {name!r}, a name that rows of a result use themselves "
                f"({', '.join(RESULT_COLUMNS)}). Rename it first: "
                f'df.withColumnRenamed("{name}", "{name}_in").'
            )


def _key(name: str, kind: DataType) -> None:
    if isinstance(kind, ArrayType | MapType | StructType):
        raise DefinitionError(
            f"The key column {name!r} is {kind.simpleString()}: a key must be of an atomic type. "
            f'Give its parts as several key columns, or df.withColumn("{name}", F.to_json({spelled(name)})).'
        )


def _timestamp(name: str, kind: DataType) -> None:
    if isinstance(kind, TimestampType):
        return
    # What "timestamp" and to_timestamp mean is a setting of the session (spark.sql.timestampType).
    if isinstance(kind, TimestampNTZType):
        cast = f'df.withColumn("{name}", F.col({spelled(name)}).cast("timestamp_ltz"))'
        cast += ", read in the time zone of the session"
    elif isinstance(kind, LongType):
        cast = f'df.withColumn("{name}", F.timestamp_millis({spelled(name)})) if it holds epoch milliseconds'
    elif isinstance(kind, StringType):
        cast = f'df.withColumn("{name}", F.to_timestamp_ltz({spelled(name)}))'
    else:
        cast = f'df.withColumn("{name}", F.col({spelled(name)}).cast("timestamp_ltz"))'
    raise DefinitionError(f"The timestamp column {name!r} is {kind.simpleString()}, not a timestamp. Use {cast}.")


def _order(partition: str, partition_type: DataType, offset: str, offset_type: DataType) -> None:
    if not isinstance(partition_type, IntegralType | StringType):
        raise DefinitionError(
            f"The partition column {partition!r} is {partition_type.simpleString()}, not an integer or a string: it "
            f'names the part of the source that a record is of. Use df.withColumn("{partition}", '
            f"{_as_text(partition, partition_type)})."
        )
    if not isinstance(offset_type, IntegralType):
        raise DefinitionError(
            f"The offset column {offset!r} is {offset_type.simpleString()}: offsets are whole numbers that say in "
            f"which order the records of a partition came. "
            f'Use df.withColumn("{offset}", F.col({spelled(offset)}).cast("long")).'
        )


def _as_text(name: str, kind: DataType) -> str:
    """Source of the expression that makes a column text; different values become different texts."""
    if isinstance(kind, BinaryType):
        return f"F.hex({spelled(name)})"
    if isinstance(kind, ArrayType | MapType | StructType):
        return f"F.to_json({spelled(name)})"
    return f'F.col({spelled(name)}).cast("string")'
