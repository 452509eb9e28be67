"""Spark's type strings as Arrow types."""

from __future__ import annotations

import pyarrow as pa
import pytest

from tidegate.errors import DefinitionError, DefinitionTypeError
from tidegate.spec.types import arrow_type

NESTED = pa.struct([("A", pa.decimal128(12, 2)), ("b", pa.map_(pa.int32(), pa.int64())), ("c", pa.date32())])


@pytest.mark.parametrize(
    ("declared", "kind"),
    [
        ("boolean", pa.bool_()),
        ("tinyint", pa.int8()),
        ("smallint", pa.int16()),
        ("int", pa.int32()),
        ("bigint", pa.int64()),
        (" LONG ", pa.int64()),
        ("float", pa.float32()),
        ("double", pa.float64()),
        ("string", pa.string()),
        ("binary", pa.binary()),
        ("date", pa.date32()),
        ("timestamp", pa.timestamp("us", "UTC")),
        ("decimal", pa.decimal128(10, 0)),
        ("decimal(12)", pa.decimal128(12, 0)),
        ("decimal( 12 , 2 )", pa.decimal128(12, 2)),
        ("interval day to second", pa.duration("us")),
        ("INTERVAL HOUR", pa.duration("us")),
        ("map<string,interval day to second>", pa.map_(pa.string(), pa.duration("us"))),
        ("array<array<long>>", pa.list_(pa.list_(pa.int64()))),
        ("map<string,array<double>>", pa.map_(pa.string(), pa.list_(pa.float64()))),
        ("Struct<A:decimal(12,2), b: map<int,long>, c date>", NESTED),
        ("array<struct<at:timestamp_ntz>>", pa.list_(pa.struct([("at", pa.timestamp("us"))]))),
        (pa.struct([("a", pa.int8())]), pa.struct([("a", pa.int8())])),
    ],
)
def test_type_strings(declared: object, kind: pa.DataType) -> None:
    assert arrow_type(declared) == kind


@pytest.mark.parametrize(
    "declared",
    ["", "lnog", "array<lnog>", "map<string>", "struct<>", "struct<long>", "array<a,b>", "decimal(a)", "interval year"],
)
def test_strings_that_are_no_type(declared: str) -> None:
    with pytest.raises(DefinitionError, match=r"`type` is '.*', which is not a type known here\. Use one of boolean, "):
        arrow_type(declared)


def test_types_of_pyspark() -> None:
    types = pytest.importorskip("pyspark.sql.types")
    fields = [types.StructField("A", types.DecimalType(12, 2)), types.StructField("c", types.DateType(), False)]
    fields.insert(1, types.StructField("b", types.MapType(types.IntegerType(), types.LongType())))
    assert arrow_type(types.StructType(fields)) == NESTED
    assert arrow_type(types.DayTimeIntervalType()) == pa.duration("us")


def test_not_even_a_string() -> None:
    with pytest.raises(DefinitionTypeError, match=r"`type` is <class 'int'>\. Use a Spark type string such as"):
        arrow_type(int)


@pytest.mark.parametrize("declared", ["decimal(39)", "decimal(0)", "decimal(4, 5)"])
def test_decimals_that_cannot_be(declared: str) -> None:
    with pytest.raises(DefinitionError) as caught:
        arrow_type(declared)
    assert str(caught.value) == (
        f"`type` is {declared!r}: a decimal has a precision of 1 to 38 digits and a scale of at most that. "
        'Use for example "decimal(38, 18)".'
    )
