"""Rows and numbers on their way out of a task: `runtime/spark/worker/wire.py`."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field

import pandas as pd
import pyarrow as pa
import pytest
from pyspark.sql import SparkSession
from pyspark.sql.pandas.types import _create_converter_from_pandas
from pyspark.sql.types import ArrayType, BinaryType, DoubleType, StructField, StructType

from tidegate.kernel.tuning import Tuning
from tidegate.runtime.spark.flow import observing
from tidegate.runtime.spark.frames.arrow import spark_schema
from tidegate.runtime.spark.worker.as_pandas import as_pandas
from tidegate.runtime.spark.worker.wire import LIST_BYTES, ROWS, WHOLE_ROWS, outgoing, rows_of, wire_schema

SIZES = Tuning()
METRICS = {"records": "sum", "lateness": "sum(late_ms) / sum(records)", "slowest": "max"}


@dataclass
class Told:
    tables: list[pa.Table]
    metrics: dict[str, float] = field(default_factory=dict)
    wake_at: int | None = None

    @property
    def parts(self) -> Iterator[pa.Table]:
        return iter(self.tables)


def sent(table: pa.Table, *more: pa.Table) -> list[pa.Table]:
    return list(outgoing(table.schema, METRICS, Told([table, *more], {"records": 5, "late_ms": 7.5})))


def lists(tables: list[pa.Table]) -> list[list[dict[str, object]]]:
    return [rows for table in tables for rows in column(table).to_pylist() if rows is not None]


def column(table: pa.Table) -> pa.ChunkedArray:
    """The lists of a table; its numbers have none."""
    assert table[ROWS].null_count == len(table) or table[WHOLE_ROWS].null_count == len(table)
    return table[WHOLE_ROWS if table[ROWS].null_count else ROWS]


def test_every_row_is_in_one_list_and_in_order() -> None:
    """For several parts, chunked ones and an empty one; a part larger than a frame; no list exceeds its bound."""
    long = SIZES.frame_rows + SIZES.list_rows + 1
    first = pa.table({"n": pa.chunked_array([[0, 1], [], [2]], pa.int64())})
    tables = sent(first, first.slice(0, 0), pa.table({"n": range(3, long)}))
    found = lists(tables)
    assert [row["n"] for rows in found for row in rows] == list(range(long))
    assert max(map(len, found)) == SIZES.list_rows
    assert max(len(column(table).combine_chunks().flatten()) for table in tables) == SIZES.frame_rows


@pytest.mark.parametrize(("bytes_", "rows"), [(LIST_BYTES // 4, 3), (2 * LIST_BYTES, 1)])
def test_lists_of_wide_rows_are_short(bytes_: int, rows: int) -> None:
    """Spark holds a whole list in memory."""
    found = lists(sent(pa.table({"wide": ["x" * bytes_] * 7})))
    assert {len(each) for each in found[:-1]} == {rows}
    assert sum(map(len, found)) == 7


def test_numbers_leave_last_and_once_each_in_its_column() -> None:
    """A number that a task does not send is null there; a number of two metrics is sent once."""
    table = pa.table({"records": ["a column of the same name"]})
    *_, last = sent(table)
    assert last.to_pylist() == [{ROWS: None, WHOLE_ROWS: None, "records": 5.0, "late_ms": 7.5, "slowest": None}]
    assert wire_schema(table.schema, METRICS).names == last.column_names


def test_columns_of_a_frame_pass_by_the_conversion_of_nested_values() -> None:
    """The conversion would make a NaN in a list a null, and an integer beside a null a float."""
    values = [[math.nan, None], None, []]
    frame = as_pandas(pa.table({"x": pa.array(values, pa.list_(pa.float64()))}))
    convert = _create_converter_from_pandas(ArrayType(DoubleType()))

    def arrow_of(column: pd.Series) -> str:
        return str(pa.Array.from_pandas(convert(column), type=pa.list_(pa.float64())).to_pylist())

    for column in (frame["x"], frame.iloc[:, 0], frame[["x"]].iloc[:, 0]):
        assert arrow_of(column) == "[[nan, None], None, []]"
    assert arrow_of(pd.Series(values)) == "[[None, None], None, []]"


BEYOND_PYTHON = {
    "text that is not UTF-8": pa.array([b"\xff", b"a"]).view(pa.string()),
    "a day past the year 9999": pa.array([2**31 - 1, 0], pa.int32()).view(pa.date32()),
    "an instant past the year 9999": pa.array([2**63 - 1, 0]).cast(pa.timestamp("us", "UTC")),
}


@pytest.mark.parametrize("what", BEYOND_PYTHON)
def test_values_that_python_lacks_pass_by_the_conversion(what: str) -> None:
    """pandas looks at the first value behind the conversion, which is a list of rows."""
    values = BEYOND_PYTHON[what]
    rows = pa.array([[0, 1]]).cast(pa.list_(pa.int64()))
    lists_of = pa.ListArray.from_arrays(rows.offsets, pa.StructArray.from_arrays([values], ["x"]))
    convert = _create_converter_from_pandas(ArrayType(StructType([StructField("x", BinaryType())])))
    column = convert(as_pandas(pa.table({"x": lists_of}))["x"])
    assert pa.Array.from_pandas(column).equals(lists_of)


def test_times_in_maps_take_the_zone_of_the_session_beside_parts_of_no_type() -> None:
    def kind(zone: str) -> pa.DataType:
        parts = pa.list_(pa.struct([("s", pa.struct([("n", pa.int64()), ("v", pa.null())]))]))
        return pa.list_(pa.struct([("m", pa.map_(pa.string(), pa.timestamp("us", zone))), ("x", parts)]))

    def row(*numbers: int) -> dict[str, object]:
        return {"m": [("a", 0)], "x": [{"s": {"n": n, "v": None}} for n in numbers]}

    rows = pa.array([[row(1, 2, 3), row(4)], [row(5, 6, 7, 8)]], kind("UTC"))
    found = pa.Array.from_pandas(as_pandas(pa.table({"x": rows}))["x"], type=kind("Asia/Kolkata"))
    found.validate(full=True)
    assert (found.type, found.to_pylist()) == (kind("Asia/Kolkata"), rows.to_pylist())


SOME_NULL = pa.table({"n": [4, None], "text": ["d", "e"], "inner": [{"x": 1}, {"x": 2}]})
NO_NULL = pa.table({"n": [1, 2, 3], "text": ["a", "b", "c"], "inner": [{"x": 1}, {"x": None}, {"x": 3}]})


def test_rows_without_nulls_have_a_column_of_their_own() -> None:
    """A null inside of a value is no null of its column. A table is sent frame by frame, and so judged."""
    first, second, _ = sent(NO_NULL, SOME_NULL)
    assert (first[ROWS].null_count, second[WHOLE_ROWS].null_count) == (1, 1)
    assert lists([first, second]) == [NO_NULL.to_pylist(), SOME_NULL.to_pylist()]
    (void, _) = sent(pa.table({"n": [1], "void": pa.nulls(1)}))
    assert lists([void]) == [[{"n": 1, "void": None}]]
    late = pa.table({"n": [*range(SIZES.frame_rows), None]})
    assert [table[WHOLE_ROWS].null_count == 0 for table in sent(late)] == [True, False, False]


@pytest.mark.spark
def test_rows_with_and_without_nulls_arrive_in_order(spark: SparkSession) -> None:
    """And every column of the result may be null, whichever way its rows took."""

    def send(_: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for table in sent(NO_NULL, SOME_NULL, NO_NULL):
            yield from table.to_batches()

    schema = NO_NULL.schema
    out = spark.range(0, 1, 1, 1).mapInArrow(send, spark_schema(wire_schema(schema, METRICS)))
    rows = rows_of(observing(out, METRICS, "numbers"), schema)
    wanted = [*NO_NULL.to_pylist(), *SOME_NULL.to_pylist(), *NO_NULL.to_pylist()]
    assert [row.asDict(recursive=True) for row in rows.collect()] == wanted
    assert all(each.nullable for each in rows.schema)


@pytest.mark.spark
def test_metrics_are_evaluated_for_lists_and_not_for_rows(spark: SparkSession) -> None:
    """This makes emitted rows cheap: the lists are unnested above `observe` in the plan."""
    schema = pa.schema([("n", pa.int64())])
    wire = spark.createDataFrame([], spark_schema(wire_schema(schema, METRICS)))
    plan = rows_of(observing(wire, METRICS, "numbers"), schema)._jdf.queryExecution().optimizedPlan().toString()
    assert 0 <= plan.index("Generate inline") < plan.index("CollectMetrics numbers")
