"""The types of PostgreSQL's columns for values of Spark's types, and the way of a value from one to the other."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    ByteType,
    CharType,
    DataType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    MapType,
    ShortType,
    StringType,
    StructType,
    TimestampNTZType,
    TimestampType,
    VarcharType,
)

from tidegate.runtime.spark.kafka.formats import as_json, is_json

_DAY_US = 86_400_000_000

Made = Callable[[str], str]
"""A function from the SQL of a staged value to the SQL of the column's value."""


@dataclass(frozen=True)
class Carried:
    """The way of values of a Spark type to PostgreSQL.

    column  the type of a column that tidegate makes
    staged  the type in which COPY takes the values
    others  types of columns that hold every such value, too
    made    makes the SQL of a value from the SQL of the staged value
    """

    column: str
    staged: str
    arrow: pa.DataType
    others: tuple[str, ...] = ()
    made: Made = lambda staged: staged
    sent: Callable[[Column], Column] = lambda column: column


def _instant(kind: str) -> Made:
    """SQL of a time from microseconds since 1970, as exact intervals of days and of the rest; floats are not exact."""
    zone = "+00" if kind == "timestamptz" else ""
    return lambda staged: (
        f"({kind} '1970-01-01 00:00:00{zone}' + ({staged} / {_DAY_US}) * interval '1 day' "
        f"+ ({staged} % {_DAY_US}) * interval '1 microsecond')"
    )


_PLAIN: dict[type[DataType], Carried] = {
    BooleanType: Carried("boolean", "boolean", pa.bool_()),
    ByteType: Carried("smallint", "smallint", pa.int16(), ("integer", "bigint", "numeric")),
    ShortType: Carried("smallint", "smallint", pa.int16(), ("integer", "bigint", "numeric")),
    IntegerType: Carried("integer", "integer", pa.int32(), ("bigint", "numeric", "double precision")),
    LongType: Carried("bigint", "bigint", pa.int64(), ("numeric",)),
    FloatType: Carried("real", "real", pa.float32(), ("double precision",)),
    DoubleType: Carried("double precision", "double precision", pa.float64()),
    StringType: Carried("text", "text", pa.string(), ("character varying", "citext")),
    BinaryType: Carried("bytea", "text", pa.string(), (), lambda staged: f"decode({staged}, 'hex')", F.hex),
    DateType: Carried("date", "integer", pa.int32(), (), lambda staged: f"(date '1970-01-01' + {staged})", F.unix_date),
    TimestampType: Carried("timestamp with time zone", "bigint", pa.int64(), (), _instant("timestamptz")),
    TimestampNTZType: Carried(
        "timestamp without time zone",
        "bigint",
        pa.int64(),
        (),
        _instant("timestamp"),
    ),
}
_NESTED = Carried("jsonb", "jsonb", pa.string(), ("json",), sent=as_json)


def carried(kind: DataType) -> Carried | None:
    """The way of values of this type; None if PostgreSQL has no column for them."""
    if isinstance(kind, DecimalType):
        return Carried(
            f"numeric({kind.precision},{kind.scale})", "numeric", pa.string(), sent=lambda column: column.cast("string")
        )
    if isinstance(kind, StructType | ArrayType | MapType):
        return _NESTED if is_json(kind) else None
    if isinstance(kind, CharType | VarcharType):
        return _PLAIN[StringType]
    return _PLAIN.get(type(kind))


def holds(column: str, kind: DataType) -> bool:
    """Whether a column of PostgreSQL's type `column` holds every value of a type of Spark."""
    how = carried(kind)
    assert how is not None
    if bounded := re.fullmatch(r"numeric\((\d+),(\d+)\)", column):
        precision, scale = map(int, bounded.groups())
        digits, behind = _digits(kind)
        return digits > 0 and scale >= behind and precision - scale >= digits - behind
    bare = re.sub(r"\(\d+\)$", "", column) if column.startswith("character varying") else column
    return bare in (how.column.partition("(")[0], *how.others)


def _digits(kind: DataType) -> tuple[int, int]:
    """The most digits of a number of this type, and its digits behind the point; (0, 0) for any other type."""
    if isinstance(kind, DecimalType):
        return kind.precision, kind.scale
    whole: dict[type[DataType], int] = {ByteType: 3, ShortType: 5, IntegerType: 10, LongType: 19}
    return whole.get(type(kind), 0), 0
