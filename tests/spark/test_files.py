"""`tg.files.source` gives the rows of `tg.stream` over Spark's own reader, and names a file that it cannot read."""

from __future__ import annotations

import datetime as dt
import os
import shutil
from collections.abc import Callable, Iterator
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from pyarrow import orc
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession

import tidegate as tg
from spark.replay import collect
from tidegate.errors import DefinitionError, InputError
from tidegate.kernel.rows.map_filter import WALL_CLOCK
from tidegate.runtime.spark.files.columnar import Columns, Files
from tidegate.runtime.spark.files.listed import PATH
from tidegate.runtime.spark.frames.arrow import arrow_schema
from tidegate.runtime.spark.row_decoder import Counts

BASE_US = 1_767_225_600_000_000
BATCHES = 4
SCHEMA = pa.schema(
    [
        ("user", pa.string()),
        ("at", pa.timestamp("us", "UTC")),
        ("price", pa.decimal128(10, 2)),
        ("tags", pa.list_(pa.string())),
        ("partition", pa.int32()),
        ("offset", pa.int64()),
        ("unused", pa.float64()),
    ]
)
TIME: dict[str, Any] = {"key": "user", "timestamp": "at", "partition": "partition", "offset": "offset"}


def records(batch: int, partition: int) -> pa.Table:
    """Twelve records: out of order by up to a minute, some too late, a null key, a null time, microseconds."""
    rows = []
    for n in range(12):
        second = batch * 60 + n * 5 - (50 if n % 5 == 0 else 0) - (400 if n == 7 else 0)
        at = None if (batch, n) == (1, 3) else dt.datetime.fromtimestamp(BASE_US / 1e6 + second + 0.000_999, dt.UTC)
        rows.append(
            {
                "user": None if (batch, n) == (2, 4) else f"ü{n % 3}",
                "at": at,
                "price": Decimal(n) / 4,
                "tags": ["a", None],
                "partition": partition,
                "offset": batch * 12 + n,
                "unused": float("nan"),
            }
        )
    return pa.Table.from_pylist(rows, SCHEMA)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    target = tmp_path / "in put"
    target.mkdir()
    for batch in range(BATCHES):
        for partition in range(2):
            write(target, f"{batch}-{partition}.parquet", records(batch, partition), batch)
    return target


def write(folder: Path, name: str, table: pa.Table, batch: int = 0) -> None:
    pq.write_table(table, folder / name, row_group_size=5)
    os.utime(folder / name, (BASE_US // 1_000_000 + batch,) * 2)


def final(stream: tg.KStream) -> DataFrame:
    windows = tg.TimeWindows.of_size_and_grace("1 minute", "30 seconds")
    totals = stream.group_by_key().windowed_by(windows).agg(n=tg.count(), sold=tg.sum("price"), last=tg.last("price"))
    rows: DataFrame = totals.suppress(tg.Suppressed.until_window_closes(tg.BufferConfig.unbounded())).to_df()
    return rows


def drained(out: DataFrame, checkpoint: Path) -> list[list[dict[str, Any]]]:
    """The rows of each micro-batch, sorted."""
    batches: dict[int, list[dict[str, Any]]] = {}
    query = (
        out.writeStream.outputMode("update")
        .option("checkpointLocation", str(checkpoint))
        .trigger(availableNow=True)
        .foreachBatch(lambda frame, batch: batches.__setitem__(batch, sorted(collect(frame), key=str)))
        .start()
    )
    try:
        query.awaitTermination(120)
    finally:
        query.stop()
    return [batches[number] for number in sorted(batches)]


def test_the_same_rows_as_through_sparks_reader(spark: SparkSession, folder: Path, tmp_path: Path) -> None:
    """Batch by batch; the second half of the files comes after a restart."""
    held_back = tmp_path / "held"
    held_back.mkdir()
    for path in sorted(folder.iterdir())[BATCHES:]:
        shutil.move(path, held_back / path.name)
    two_files = {"maxFilesPerTrigger": "2"}
    fields = spark.read.parquet(str(folder)).schema

    def through_spark() -> DataFrame:
        rows = spark.readStream.schema(fields).options(**two_files).parquet(str(folder))
        return final(tg.stream(rows, **TIME))

    def files() -> DataFrame:
        return final(tg.files.source(spark, str(folder), **TIME, options=two_files))

    ways = {"spark": through_spark, "files": files}
    got = {name: drained(out(), tmp_path / name) for name, out in ways.items()}
    for path in held_back.iterdir():
        shutil.move(path, folder / path.name)
    for name, out in ways.items():
        got[name] += drained(out(), tmp_path / name)
    assert got["files"] == got["spark"]
    assert len(got["files"]) == BATCHES
    assert sum(map(len, got["files"])) > 6


def test_steps_merged_streams_late_records_and_a_static_frame(spark: SparkSession, folder: Path) -> None:
    def late_and_final(source: Callable[[str], tg.KStream]) -> DataFrame:
        pricey = source("a").filter(pc.field("offset") > 14).map_values({"price": pc.field("price"), "tags": "tags"})
        stream = pricey.merge(source("b").map_values({"price": "price", "tags": "tags"}))
        windows = tg.TimeWindows.of_size_and_grace("1 minute", "30 seconds")
        counted = stream.group_by_key().windowed_by(windows).agg(n=tg.count(), sold=tg.sum("price"))
        final = counted.suppress(tg.Suppressed.until_window_closes(tg.BufferConfig.unbounded()))
        out: DataFrame = tg.to_df(final=final, late=counted.late_records())
        return out

    rows = spark.read.parquet(str(folder))
    wanted = late_and_final(lambda name: tg.stream(rows, **TIME, name=name))
    got = late_and_final(lambda name: tg.files.source(spark, str(folder), **TIME, name=name, streaming=False))
    assert got.schema == wanted.schema
    found = sorted(collect(got), key=str)
    assert found == sorted(collect(wanted), key=str)
    assert {row["output"] for row in found} == {"final", "late"}


def test_a_cogroup(spark: SparkSession, folder: Path) -> None:
    def sold(key: Any, row: dict[str, Any], total: float) -> float:
        return total + float(row["price"] or 0)

    def tagged(key: Any, row: dict[str, Any], total: float) -> float:
        assert "price" not in row
        return total + 1_000 * len(row["tags"] or [])

    def both(source: Callable[[str], tg.KStream]) -> DataFrame:
        tags = source("b").map_values({"tags": "tags"}).group_by_key()
        table = source("a").group_by_key().cogroup(sold).cogroup(tags, tagged).aggregate(float, type="double")
        out: DataFrame = table.to_df()
        return out

    rows = spark.read.parquet(str(folder))
    wanted = both(lambda name: tg.stream(rows, **TIME, name=name))
    got = both(lambda name: tg.files.source(spark, str(folder), **TIME, name=name, streaming=False))
    assert got.schema == wanted.schema
    found = sorted(collect(got), key=str)
    assert found == sorted(collect(wanted), key=str)
    assert any(row["aggregate"] > 1_000 and row["aggregate"] % 1_000 for row in found)


def test_a_bad_file_stops_the_query_and_a_good_one_in_its_place_goes_on(
    spark: SparkSession, folder: Path, tmp_path: Path
) -> None:
    whole = drained(final(tg.files.source(spark, str(folder), **TIME)), tmp_path / "whole")
    good = (folder / "2-1.parquet").read_bytes()
    (folder / "2-1.parquet").write_bytes(good[:-20])
    with pytest.raises(
        StreamingQueryException, match=r"(?s)InputError: The file file:\S*in put/2-1\.parquet cannot be"
    ):
        drained(final(tg.files.source(spark, str(folder), **TIME)), tmp_path / "checkpoint")
    (folder / "2-1.parquet").write_bytes(good)
    assert drained(final(tg.files.source(spark, str(folder), **TIME)), tmp_path / "checkpoint") == whole


def test_a_folder_without_files_needs_a_schema(spark: SparkSession, tmp_path: Path) -> None:
    with pytest.raises(DefinitionError, match=r'no Parquet file at .*schema="user string, at timestamp"'):
        tg.files.source(spark, str(tmp_path), key="user", timestamp="at")
    given = "user string, at timestamp, partition int, offset long"
    stream = tg.files.source(spark, str(tmp_path), **TIME, schema=given)
    assert final_columns(stream) == ["user", "window", "count", "timestamp"]
    with pytest.raises(DefinitionError, match=r"no such column.*user, at"):
        tg.files.source(spark, str(tmp_path), key="nobody", timestamp="at", schema="user string, at timestamp")


@pytest.mark.parametrize(
    ("schema", "error", "said"),
    [
        ("user strin, ts long", tg.DefinitionError, r"The schema 'user strin, ts long' is no list of .*\"STRIN\""),
        ("user", tg.DefinitionError, "The schema 'user' is no list of columns"),
        (5, tg.DefinitionTypeError, "The schema is 5. Use a text like"),
    ],
)
def test_a_schema_that_is_none_is_refused(
    spark: SparkSession, tmp_path: Path, schema: Any, error: type[Exception], said: str
) -> None:
    envelopes = spark.sql("SELECT 'a' AS key, '{}' AS value, 0 AS partition, 0L AS offset, now() AS timestamp")
    for define in (
        lambda: tg.files.source(spark, str(tmp_path), key="user", timestamp="ts", format="json", schema=schema),
        lambda: tg.debezium.table(envelopes, key="user", row=schema),
        lambda: tg.kafka.Json(schema).fields(spark),
    ):
        with pytest.raises(error, match=said):
            define()


@pytest.mark.parametrize("format", ["json", "csv"])
def test_names_of_a_schema_that_differ_by_case_alone(spark: SparkSession, tmp_path: Path, format: str) -> None:
    given = "user string, User string, at timestamp, partition int, offset long"
    with pytest.raises(DefinitionError, match=r"^The schema of the files has the columns 'user' and 'User', whose nam"):
        tg.files.source(spark, str(tmp_path), **TIME, schema=given, format=format)


def test_a_folder_of_another_format_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "events.csv").write_text("user,at\nA,2024-01-01\n")
    with pytest.raises(DefinitionError, match=r"is not Parquet\. Say what it is: .*format=.json.*when it is complete"):
        tg.files.source(spark, str(tmp_path), key="user", timestamp="at")


def final_columns(stream: tg.KStream) -> list[str]:
    counts = stream.group_by_key().windowed_by(tg.TimeWindows.of_size_with_no_grace("1 minute")).count()
    columns: list[str] = counts.to_df().columns
    return columns


def opened(path: Path, schema: pa.Schema, **columns: Any) -> list[dict[str, Any]]:
    paths = pa.RecordBatch.from_pydict({PATH: [f"file:{path}"], **columns})

    def one() -> Iterator[pa.RecordBatch]:
        yield paths

    return [row for batch in Files(schema).rows(one(), Counts()) for row in batch.to_pylist()]


def test_columns_are_given_the_types_of_the_stream(tmp_path: Path) -> None:
    """Finer timestamps are truncated, small integers become long ones, and the wall clock comes with every row."""
    naive = pa.array([1_000_000_001, None], pa.timestamp("ns"))
    write(tmp_path, "a.parquet", pa.table({"n": pa.array([1, 2], pa.int16()), "at": naive, "more": ["x", "y"]}))
    schema = pa.schema([("at", pa.timestamp("us", "UTC")), ("n", pa.int64())])
    rows = opened(tmp_path / "a.parquet", schema, **{WALL_CLOCK: [5]})
    assert rows == [
        {"at": dt.datetime(1970, 1, 1, 0, 0, 1, tzinfo=dt.UTC), "n": 1, WALL_CLOCK: 5},
        {"at": None, "n": 2, WALL_CLOCK: 5},
    ]


@pytest.mark.parametrize(
    ("schema", "message"),
    [
        (pa.schema([("n", pa.int16())]), r"a\.parquet has a column 'n' that is string, and the stream's is int16"),
        (pa.schema([("m", pa.int16())]), r"a\.parquet has no column 'm', only n\. Write it"),
    ],
)
def test_a_file_of_another_shape_is_named(tmp_path: Path, schema: pa.Schema, message: str) -> None:
    write(tmp_path, "a.parquet", pa.table({"n": ["seven"]}))
    with pytest.raises(InputError, match=message):
        opened(tmp_path / "a.parquet", schema)


PLACES = (
    "User string, s struct<city:string,n:long>, l array<struct<n:long,city:string>>, m map<string,struct<city:string>>"
)


@pytest.mark.parametrize("format", ["parquet", "orc"])
def test_names_have_any_case(spark: SparkSession, tmp_path: Path, format: str) -> None:
    """As for Spark. A struct may have its fields in another order, lack some, and have more."""
    place = pa.struct([("N", pa.int64()), ("City", pa.string()), ("at", pa.int32())])
    kind = pa.schema(
        [("s", place), ("L", pa.large_list(place)), ("m", pa.map_(pa.string(), place)), ("USER", pa.string())]
    )
    rows = [{"N": n, "City": f"c{n}", "at": 0} for n in range(3)]
    table = pa.Table.from_pylist([{"USER": "A", "s": rows[0], "L": [rows[1], None], "m": {"k": rows[2]}}, {}], kind)
    path = tmp_path / f"a.{format}"
    if format == "parquet":
        pq.write_table(table, path)
    else:
        orc.write_table(table.set_column(1, "L", table["L"].cast(pa.list_(place))), str(path))
    wanted = spark.read.schema(PLACES).format(format).load(str(path))
    schema = arrow_schema(wanted.schema)
    columns = Columns(schema, format, kept=frozenset(["User"]))
    found = pa.Table.from_batches(list(columns.rows(lambda: pa.OSFile(str(path)), path.name)))
    assert found.to_pylist() == wanted.toArrow().to_pylist()
    assert found["s"].to_pylist() == [{"city": "c0", "n": 0}, None]
    with pytest.raises(InputError, match=r"no column 'Town', only s, L, m, USER\."):
        list(replace(columns, schema=pa.schema([("Town", pa.string())])).rows(lambda: pa.OSFile(str(path)), "a"))


@pytest.mark.parametrize(("format", "zone"), [("parquet", "UTC"), ("parquet", None), ("orc", "UTC")])
def test_a_number_is_no_time(tmp_path: Path, format: str, zone: str | None) -> None:
    """Epoch milliseconds would be times of January 1970. Spark refuses them in Parquet, and takes seconds in ORC."""
    kind = pa.timestamp("us", zone)
    path, ms = tmp_path / f"a.{format}", 1_767_225_600_000
    table = pa.table({"at": [ms], "s": [{"at": ms}], "l": [[ms]]})
    pq.write_table(table, path) if format == "parquet" else orc.write_table(table, str(path))
    for name, of in (("at", kind), ("s", pa.struct([("at", kind)])), ("l", pa.list_(kind))):
        columns = Columns(pa.schema([(name, of)]), format)
        with pytest.raises(
            InputError, match=rf"a\.{format} has a column '{name}' that is .*int64.*: a number does not"
        ):
            list(columns.rows(lambda: pa.OSFile(str(path)), path.name))


@pytest.mark.parametrize("columns", [["user", "list"], ["list"]])
def test_a_file_that_arrow_reads_in_part(tmp_path: Path, columns: list[str]) -> None:
    """Of a list that is alone in a row group with tiny pages Arrow gives no row, and Spark gives it."""
    table = pa.table({"user": ["a"], "list": pa.array([[1, 2]], pa.list_(pa.int64()))})
    pq.write_table(table, tmp_path / "a.parquet", data_page_size=1)
    with pytest.raises(InputError, match=r"a\.parquet has 1 rows, and Arrow reads 0 of them\..* tg\.stream over spark"):
        opened(tmp_path / "a.parquet", table.select(columns).schema)
    assert opened(tmp_path / "a.parquet", table.select(["user"]).schema) == [{"user": "a"}]
    pq.write_table(table, tmp_path / "a.parquet")
    assert opened(tmp_path / "a.parquet", table.select(columns).schema) == table.select(columns).to_pylist()


def test_a_store_that_arrow_does_not_know() -> None:
    paths = pa.RecordBatch.from_pydict({PATH: ["oss://bucket/a.parquet"]})
    with pytest.raises(InputError, match=r"Arrow knows no store for oss://bucket/a\.parquet"):
        list(Files(pa.schema([("n", pa.int64())])).rows(iter([paths]), Counts()))
