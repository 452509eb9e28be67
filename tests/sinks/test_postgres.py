"""PostgreSQL's column types for Spark's types, and addresses and names, without a server."""

from __future__ import annotations

import pytest

pytest.importorskip("pyspark")

from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    ByteType,
    DataType,
    DateType,
    DayTimeIntervalType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from tidegate.errors import DefinitionError, DefinitionTypeError, TidegateError
from tidegate.runtime.spark.sinks import Postgres
from tidegate.runtime.spark.sinks.outputs import Rows
from tidegate.runtime.spark.sinks.postgres_types import carried, holds


@pytest.mark.parametrize(
    ("kind", "column", "right"),
    [
        (LongType(), "bigint", True),
        (LongType(), "integer", False),
        (LongType(), "double precision", False),
        (LongType(), "numeric", True),
        (LongType(), "numeric(19,0)", True),
        (LongType(), "numeric(20,2)", False),
        (IntegerType(), "double precision", True),
        (ByteType(), "numeric(3,0)", True),
        (FloatType(), "double precision", True),
        (DoubleType(), "real", False),
        (DecimalType(10, 2), "numeric(10,2)", True),
        (DecimalType(10, 2), "numeric(12,4)", True),
        (DecimalType(10, 2), "numeric(11,4)", False),
        (DecimalType(10, 2), "numeric(12,1)", False),
        (DecimalType(10, 2), "numeric", True),
        (DecimalType(10, 2), "double precision", False),
        (StringType(), "text", True),
        (StringType(), "character varying(20)", True),
        (StringType(), "character(20)", False),
        (StringType(), "numeric(10,2)", False),
        (DateType(), "date", True),
        (TimestampType(), "timestamp with time zone", True),
        (TimestampType(), "timestamp without time zone", False),
        (TimestampNTZType(), "timestamp without time zone", True),
        (ArrayType(LongType()), "jsonb", True),
        (ArrayType(LongType()), "bigint[]", False),
    ],
)
def test_a_column_holds_every_value_of_a_type_or_not(kind: object, column: str, right: bool) -> None:
    assert holds(column, kind) == right  # type: ignore[arg-type]


@pytest.mark.parametrize("key", [BinaryType(), ArrayType(LongType()), StructType().add("x", LongType())])
def test_a_type_without_a_column_is_known(key: DataType) -> None:
    """Of a map with such keys Spark's JSON would have addresses of Java."""
    assert carried(DayTimeIntervalType()) is None
    assert carried(MapType(key, LongType())) is None
    assert carried(ArrayType(StructType().add("m", MapType(key, LongType())))) is None
    assert carried(ArrayType(StructType().add("m", MapType(LongType(), key)))) is not None


@pytest.mark.parametrize(
    ("sink", "message"),
    [
        (Postgres("jdbc:mysql://host/db", "t"), "writes to PostgreSQL alone"),
        (Postgres("postgresql://host/db", ""), "`table` is ''"),
        (Postgres("postgresql://host/db", ("a", "b", "c")), "`table` is"),
        (Postgres("postgresql://host/db", "ä" * 32), "of 64 bytes"),
        (Postgres(5, "t"), "`url` is 5"),  # type: ignore[arg-type]
    ],
)
def test_a_wrong_address_or_name_is_refused(sink: Postgres, message: str) -> None:
    with pytest.raises((DefinitionError, DefinitionTypeError), match=message):
        sink.target(None)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("address", "options", "why"),
    [
        ("jdbc:postgresql://127.0.0.1:1/shop", {}, "port 1 failed: Connection refused"),
        ("postgresql://127.0.0.1:1/shop", {"usr": "writer"}, 'invalid connection option "usr"'),
        ("shop", {}, 'missing "=" after "shop"'),
    ],
)
def test_a_database_without_a_connection_is_said(address: str, options: dict[str, str], why: str) -> None:
    pytest.importorskip("psycopg")
    rows = Rows(None, (StructField("k", StringType()),), (), True, "append")
    with pytest.raises(TidegateError, match=r"^tg\.sinks\.jdbc has no connection to the database: ") as refused:
        Postgres(address, "visits", options=options).target(rows)
    assert why in str(refused.value)
    assert str(refused.value).endswith("and correct `url` or `options`, which are those of libpq.")
