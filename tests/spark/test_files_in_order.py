"""Ordered files: rows as by Spark's readers, and partitions and offsets that do not depend on luck."""

from __future__ import annotations

import bz2
import gzip
import io
import json
import os
import pickle
import re
import shutil
import warnings
import zlib
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyarrow import orc
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import ArrayType, LongType, MapType, StringType, StructType, TimestampType

import tidegate as tg
from seeds import first
from spark.replay import collect
from spark.test_files import drained
from tidegate.errors import DefinitionError, InputError, TidegateWarning
from tidegate.runtime.spark.delta.log import Log
from tidegate.runtime.spark.files import folder as folders
from tidegate.runtime.spark.files import lines as text
from tidegate.runtime.spark.files.columnar import Columns
from tidegate.runtime.spark.files.folder import Folder, Found
from tidegate.runtime.spark.files.listed import Listed, stretches, typed
from tidegate.runtime.spark.files.place import ROW_BITS
from tidegate.runtime.spark.files.stores import Root

pytest.importorskip("pyspark.sql.streaming.datasource", reason="Spark 4.2 or later")

NS = 1_767_225_600_000_000_000
FIRST_MINUTE = NS // 60_000_000_000
SCHEMA = "user string, ts timestamp, n int"
TIME: dict[str, Any] = {"key": "user", "timestamp": "ts"}
FORMATS = ("json", "csv", "parquet", "orc")


def record(minute: int, n: int = 0, user: str = "A") -> dict[str, Any]:
    return {"user": user, "ts": f"2026-01-01T00:{minute:02}:00Z", "n": n}


def write(path: Path, records: Sequence[dict[str, Any]], ns: int = NS) -> None:
    """A file of the format that its name ends with, modified at `ns`."""
    path.parent.mkdir(parents=True, exist_ok=True)
    kind = path.suffix.removeprefix(".")
    if kind == "json":
        path.write_text("".join(json.dumps(each) + "\n" for each in records))
    elif kind == "csv":
        path.write_text("".join(",".join(map(str, each.values())) + "\n" for each in records))
    else:
        table = pa.Table.from_pylist(list(records))
        naive = pa.array(table["ts"].to_pylist()).cast(pa.timestamp("us", "UTC"))
        if kind == "orc":  # as Spark writes it: a wall-clock time, here of UTC
            naive = naive.cast(pa.timestamp("us"))
        table = table.set_column(1, "ts", naive).set_column(2, "n", table["n"].cast(pa.int32()))
        pq.write_table(table, path, row_group_size=2) if kind == "parquet" else orc.write_table(table, str(path))
    os.utime(path, ns=(ns, ns))


def final(stream: tg.KStream) -> DataFrame:
    windows = tg.TimeWindows.of_size_and_grace("2 minutes", "30 seconds")
    totals = stream.group_by_key().windowed_by(windows).agg(n=tg.count(), last=tg.last("n"))
    rows: DataFrame = totals.suppress(tg.Suppressed.until_window_closes(tg.BufferConfig.unbounded())).to_df()
    return rows


def files(spark: SparkSession, folder: Path, format: str, most: int, **more: Any) -> tg.KStream:
    options = {"maxFilesPerTrigger": str(most), **more.pop("options", {})}
    order = {"ordered": True} if format == "parquet" else {}
    return tg.files.source(
        spark, str(folder), **TIME, **order, format=format, schema=more.pop("schema", SCHEMA), options=options, **more
    )


def minute(row: dict[str, Any]) -> int:
    return int(row["window"].start) // 60_000 % 60


def flat(batches: list[list[dict[str, Any]]]) -> list[Any]:
    return [(minute(row), row["n"], row["last"]) for batch in batches for row in batch]


@pytest.mark.parametrize(("format", "most"), first(1, [("json", 1), ("parquet", 3), ("csv", 3), ("orc", 3)]))
def test_eight_files_written_at_once_few_in_a_batch(
    spark: SparkSession, tmp_path: Path, format: str, most: int
) -> None:
    """Spark's own source takes the files in the folder's order: that gives one row, and five late records."""
    for n in (3, 7, 6, 1, 2, 0, 4, 5):
        write(tmp_path / "in" / f"{n}.{format}", [record(n, n)])
    got = drained(final(files(spark, tmp_path / "in", format, most)), tmp_path / "few")
    assert len(got) == -(-8 // most)
    assert flat(got) == [(0, 2, 1), (2, 2, 3), (4, 2, 5)]
    assert flat(drained(final(files(spark, tmp_path / "in", format, 100)), tmp_path / "all")) == flat(got)


@pytest.mark.parametrize("format", first(1, ["json", "parquet"]))
def test_a_restart_in_the_middle(spark: SparkSession, tmp_path: Path, format: str) -> None:
    """Files that come while the query is stopped, of the same time and with names before those that were read."""
    for n in range(4):
        write(tmp_path / "in" / f"{n}.{format}", [record(n, n)])
    first = drained(final(files(spark, tmp_path / "in", format, 3)), tmp_path / "checkpoint")
    for n in range(4, 8):
        write(tmp_path / "in" / f"{n}.{format}", [record(n, n)])
    write(tmp_path / "in" / f"0b.{format}", [record(4, 40)])
    then = drained(final(files(spark, tmp_path / "in", format, 3)), tmp_path / "checkpoint")
    assert flat(first + then) == [(0, 2, 1), (2, 2, 3), (4, 3, 5)]
    assert drained(final(files(spark, tmp_path / "in", format, 3)), tmp_path / "checkpoint") == []


LINES: dict[str, list[bytes]] = {
    "json": [
        b'{"user": "A", "ts": "2026-01-01T00:01:00Z", "n": 1}',
        b'{"user": "B", "ts": "2026-01-01T00:02:00Z", "n": "two"}',
        b"",
        b"  \t ",
        b"nothing",
        b'{"user": "C\xff", "ts": "2026-01-01T00:03:00Z"}',
        b'{"user": "D", "ts": "2026-01-01 00:04:00", "n": 99999999999}',
        b'{"user": null, "more": [1, {"a": 2}], "n": 5}',
        b'{"user": "E", "n": 6',
        b'{"user": "F", "ts": "2026-01-01T00:05:00.123456Z", "n": 6} ',
        b"[1]",
        b"7",
        b'{"user": "G", "ts": "soon", "n": 7}',
    ],
    "csv": [
        b"A,2026-01-01T00:01:00Z,1",
        b"B,2026-01-01T00:02:00Z,two",
        b"",
        b" \t",
        b"nothing",
        b'"C, c",2026-01-01T00:03:00Z,3',
        b'"D ""d""",2026-01-01 00:04:00,99999999999',
        b",,",
        b'"E,2026-01-01T00:05:00Z,6',
        b"F\xff,2026-01-01T00:05:00.123456Z,6",
        b"G,soon,7",
        b"H,2026-01-01T00:05:00Z,6,more",
        b" I , 2026-01-01T00:05:00Z , 6 ",
    ],
}


def odd_folder(folder: Path, format: str) -> list[str]:
    """Files as they occur: names that URIs escape, every line end, byte order marks, compressed ones."""
    lines = LINES[format]
    contents = {
        f"a b.{format}": b"\n".join(lines) + b"\n",
        f"50%25 ü+#?.{format}": b"\r\n".join(lines),
        f"c.{format}": b"\r".join(lines),
        f"d.{format}": b"\xef\xbb\xbf" + b"\n".join(lines[:2]),
        f"e.{format}": b"",
        f"f.{format}": b"\n\r\n\n",
        f"g.{format}.gz": gzip.compress(b"\n".join(lines[:3])) + gzip.compress(b"\n" + lines[-1]),
        f"h.{format}.bz2": bz2.compress(b"\n".join(lines)),
        f"_hidden.{format}": b"x",
        f".hidden.{format}": b"x",
        f"sub/not.{format}": b"x",
    }
    folder.mkdir()
    (folder / "sub").mkdir()
    for at, (name, content) in enumerate(contents.items()):
        (folder / name).write_bytes(content)
        os.utime(folder / name, ns=(NS + at, NS + at))
    return [name for name in contents if "hidden" not in name and "/" not in name]


def plain(frame: DataFrame) -> list[str]:
    return sorted(map(str, collect(frame)))


@pytest.mark.parametrize("mode", ["DROPMALFORMED", "PERMISSIVE"])
@pytest.mark.parametrize("format", ["json", "csv"])
def test_lines_are_judged_as_by_sparks_reader(spark: SparkSession, tmp_path: Path, format: str, mode: str) -> None:
    odd_folder(tmp_path / "in", format)
    schema = SCHEMA + (", _corrupt_record string" if mode == "PERMISSIVE" else "")
    options = {"mode": mode}
    mine = tg.files.ordered(
        spark, str(tmp_path / "in"), format=format, schema=schema, options=options, streaming=False
    ).cache()
    # Without column pruning, so that all columns are judged.
    wanted = spark.read.schema(schema).options(**options).format(format).load(str(tmp_path / "in")).cache()
    assert plain(mine.drop("partition", "offset")) == plain(wanted)
    assert mine.count() > 10


@pytest.mark.parametrize("format", ["json", "parquet", "orc"])
def test_nulls_within_columns_whose_schema_has_none(spark: SparkSession, tmp_path: Path, format: str) -> None:
    records = [record(0) | {"list": [1, None], "map": {"x": 1, "y": None}}, record(1) | {"list": None, "map": None}]
    if format == "json":
        write(tmp_path / "in" / "0.json", records)
    else:
        write(tmp_path / "0.parquet", records)
        table = pq.read_table(tmp_path / "0.parquet")
        at, pairs = table["ts"].cast(pa.timestamp("us")), pa.map_(pa.string(), pa.int64())
        maps = pa.array([[("x", 1), ("y", None)], None], pairs)
        table = table.set_column(1, "ts", at if format == "orc" else table["ts"]).set_column(4, "map", maps)
        (tmp_path / "in").mkdir()
        file = str(tmp_path / "in" / f"0.{format}")
        pq.write_table(table, file) if format == "parquet" else orc.write_table(table, file)
    schema = StructType.fromDDL(SCHEMA)
    schema = schema.add("list", ArrayType(LongType(), False)).add("map", MapType(StringType(), LongType(), False))
    mine = tg.files.ordered(spark, str(tmp_path / "in"), format=format, schema=schema, streaming=False)
    wanted = spark.read.schema(schema).format(format).load(str(tmp_path / "in"))
    assert plain(mine.drop("partition", "offset")) == plain(wanted)


@pytest.mark.parametrize("mode", ["DROPMALFORMED", "PERMISSIVE", "FAILFAST"])
@pytest.mark.parametrize("format", ["json", "csv"])
def test_the_column_for_malformed_lines_is_none_of_the_lines(
    spark: SparkSession, tmp_path: Path, format: str, mode: str
) -> None:
    """It is null where such lines make no rows, even if a line of JSON has a field of its name."""
    (tmp_path / "in").mkdir()
    lines = {
        "json": ['{"user": "A", "ts": "2026-01-01T00:01:00Z", "n": 1, "bad": "own"}', '{"user": "B", "n": "two"}'],
        "csv": ["user,ts,n", "A,2026-01-01T00:01:00Z,1", "B,2026-01-01T00:02:00Z,two", "C,2026-01-01T00:03:00Z,x,3"],
    }[format]
    lines = [line for line in lines if mode != "FAILFAST" or (line[0] not in "BC" and "two" not in line)]
    (tmp_path / "in" / f"0.{format}").write_text("".join(f"{line}\n" for line in lines))
    options = {"mode": mode, "columnNameOfCorruptRecord": "bad", "header": "true"}
    options = {name: value for name, value in options.items() if name != "header" or format == "csv"}
    given: dict[str, Any] = {"format": format, "schema": "user string, bad string, ts timestamp, n int"}
    mine = tg.files.ordered(spark, str(tmp_path / "in"), options=options, streaming=False, **given)
    wanted = spark.read.schema(given["schema"]).options(**options).format(format).load(str(tmp_path / "in")).cache()
    assert plain(mine.drop("partition", "offset")) == plain(wanted)
    stream = tg.files.source(spark, str(tmp_path / "in"), **TIME, options=options, streaming=False, **given)
    for column in ("bad", "n"):  # Spark reads the lines for the one, and Arrow for the other
        [of_a] = [row for row in collect(stream.group_by_key().agg(x=tg.last(column)).to_df()) if row["user"] == "A"]
        assert of_a["x"] == (None if column == "bad" else 1)


def test_the_column_for_malformed_lines_is_no_column_of_files_without_them(spark: SparkSession, tmp_path: Path) -> None:
    """Spark's inference makes it of a malformed line, which is a dead letter here."""
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "0.json").write_text('{"user": "A"}\nnothing\n')
    options = {"columnNameOfCorruptRecord": "bad"}
    frame = tg.files.ordered(spark, str(tmp_path / "in"), format="json", options=options, streaming=False)
    assert frame.columns == ["user", "partition", "offset"]


def test_dead_letters_have_file_and_line(spark: SparkSession, tmp_path: Path) -> None:
    odd_folder(tmp_path / "in", "json")
    stream = tg.files.source(spark, str(tmp_path / "in"), **TIME, format="json", schema=SCHEMA, streaming=False)
    assert isinstance(stream, tg.files.FileStream)
    assert stream.dead_letters is not None
    letters = [row for row in collect(stream.dead_letters) if row["file"].endswith("/in/a b.json")]
    assert [(row["line"], row["reason"]) for row in letters] == [
        (2, "in the line, 'n' is not a int"),
        (5, "the line is not JSON"),
        (6, "the line is not UTF-8"),
        (7, "in the line, 'n' is not a int"),
        (9, "the line is not JSON"),
        (11, "the line is JSON, but not an object"),
        (12, "the line is JSON, but not an object"),
        (13, "in the line, 'ts' is not a timestamp"),
    ]
    assert bytes(letters[1]["value"]) == b"nothing"
    assert [row["offset"] & (2**ROW_BITS - 1) for row in letters] == [row["line"] - 1 for row in letters]


@pytest.mark.parametrize("format", ["json", "csv"])
def test_the_stream_has_the_rows_of_its_frame(spark: SparkSession, tmp_path: Path, format: str) -> None:
    """Arrow reads the plain lines, Spark the others, and the order is theirs."""
    odd_folder(tmp_path / "in", format)

    def firsts(stream: tg.KStream) -> list[str]:
        table = stream.group_by_key().windowed_by(tg.TimeWindows.of_size_with_no_grace("1 hour"))
        return plain(table.agg(n=tg.count(), first=tg.first("n"), last=tg.last("n"), sum=tg.sum("n")).to_df())

    given = {"format": format, "schema": SCHEMA, "streaming": False}
    stream = tg.files.source(spark, str(tmp_path / "in"), **TIME, **given)
    frame = tg.files.ordered(spark, str(tmp_path / "in"), **given)
    assert firsts(stream) == firsts(tg.stream(frame, **TIME, partition="partition", offset="offset"))


def test_failfast_names_file_and_line(spark: SparkSession, tmp_path: Path) -> None:
    write(tmp_path / "in" / "0.json", [record(0)])
    with (tmp_path / "in" / "0.json").open("a") as file:
        file.write("nothing\n")
    stream = files(spark, tmp_path / "in", "json", 1, options={"mode": "failfast"})
    with pytest.raises(StreamingQueryException, match=r"(?s)FAILFAST.*in/0\.json, line 2: the line is not JSON"):
        drained(final(stream), tmp_path / "checkpoint")


def test_the_header_of_each_file(spark: SparkSession, tmp_path: Path) -> None:
    folder = tmp_path / "in"
    folder.mkdir()
    for n, head in enumerate(["User,ts,n", "\n#c\nuser, ts ,n"]):
        (folder / f"{n}.csv").write_text(f"{head}\nA,2026-01-01T00:0{n}:00Z,{n}\n#no\n")
        os.utime(folder / f"{n}.csv", ns=(NS, NS))
    given: dict[str, Any] = {"format": "csv", "streaming": False}
    options = {"header": "true", "comment": "#"}
    frame = tg.files.ordered(spark, str(folder), schema=SCHEMA, options=options, **given)
    assert [(row["n"], row["offset"]) for row in collect(frame.orderBy("offset"))] == [(0, 1), (1, (1 << ROW_BITS) + 3)]
    (folder / "1.csv").unlink()
    other = tg.files.ordered(spark, str(folder), schema="ts timestamp, user string, n int", options=options, **given)
    names = r"(?s)0\.csv begins with the names User, ts, n, and the columns of the stream are ts, user, n"
    with pytest.raises(Exception, match=names):
        collect(other)


def test_a_header_that_is_none(tmp_path: Path) -> None:
    """Python reads no names of more than 128 kB."""
    with pytest.raises(InputError, match=r"The file a\.csv begins with the names x{100}\.\.\., and the columns of the"):
        text.Skipped(blank=b"", header=("user", "ts")).check_header(b"x" * 200_000, "a.csv")


@pytest.mark.parametrize(("sep", "written"), [("\\t", "\t"), ("||", "||")])
def test_the_header_with_separators_that_have_two_characters(
    spark: SparkSession, tmp_path: Path, sep: str, written: str
) -> None:
    lines = [["user", '"ts"', "n"], ["A", "2026-01-01T00:00:00Z", "1"]]
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "0.csv").write_text("".join(written.join(line) + "\n" for line in lines))
    options = {"header": "true", "sep": sep}
    frame = tg.files.ordered(spark, str(tmp_path / "in"), format="csv", schema=SCHEMA, options=options, streaming=False)
    assert [(row["user"], row["n"]) for row in collect(frame)] == [("A", 1)]


@pytest.mark.parametrize("format", first(1, FORMATS))
def test_values_in_names_of_folders(spark: SparkSession, tmp_path: Path, format: str) -> None:
    for n, day in enumerate(["day=2026-01-01", "day=2026-01-02", "day=__HIVE_DEFAULT_PARTITION__"]):
        write(tmp_path / "in" / day / "who=a%20b" / f"0.{format}", [record(n, n)], NS + n)
    schema = SCHEMA + ", day date, who string"
    frame = tg.files.ordered(spark, str(tmp_path / "in"), format=format, schema=schema, streaming=False)
    rows = [(row["n"], str(row["day"]), row["who"]) for row in collect(frame.orderBy("offset"))]
    assert rows == [(0, "2026-01-01", "a b"), (1, "2026-01-02", "a b"), (2, "None", "a b")]
    stream = files(spark, tmp_path / "in", format, 1, schema=schema)
    days = stream.group_by_key().windowed_by(tg.TimeWindows.of_size_with_no_grace("1 hour")).agg(days=tg.max("day"))
    [row] = drained(days.to_df(), tmp_path / "checkpoint")[-1]
    assert str(row["days"]) == "2026-01-02"


@pytest.mark.parametrize("format", first(1, ["json", "parquet"]))
def test_a_folder_with_a_value_that_comes_while_the_query_runs(
    spark: SparkSession, tmp_path: Path, format: str
) -> None:
    """The column was null in records of lines."""
    (tmp_path / "in").mkdir()

    def days() -> DataFrame:
        stream = files(spark, tmp_path / "in", format, 1, schema=SCHEMA + ", day date")
        frame: DataFrame = stream.group_by_key().agg(day=tg.last("day")).to_df()
        return frame

    early = days()
    write(tmp_path / "in" / "Day=2026-01-01" / f"0.{format}", [record(0)])
    with pytest.raises(
        StreamingQueryException, match=rf"InputError: The file \S*0\.{format} lies in a folder Day=\.\.\."
    ):
        drained(early, tmp_path / "checkpoint")
    [[row]] = drained(days(), tmp_path / "checkpoint")
    assert str(row["day"]) == "2026-01-01"


@pytest.mark.parametrize(
    ("format", "name"),
    [("json", "1.json"), ("parquet", "1.parquet"), ("json", "day=2026-01-01/1.json.lz4"), ("json", "day=oops/1.json")],
)
def test_a_file_that_cannot_be_read_under_its_name_is_in_no_planned_batch(
    spark: SparkSession, tmp_path: Path, format: str, name: str
) -> None:
    """A planned batch needs the file under its name: the query could not go on when it had been moved."""
    folder, right = tmp_path / "in", tmp_path / "in" / "day=2026-01-01"
    write(right / f"0.{format}", [record(0)])

    def total() -> DataFrame:
        stream = files(spark, folder, format, 1, schema=SCHEMA + ", day date")
        frame: DataFrame = stream.group_by_key().agg(n=tg.count(), day=tg.last("day")).to_df()
        return frame

    drained(total(), tmp_path / "checkpoint")
    write(folder / f"1.{format}", [record(1)], NS + 1)
    (folder / name).parent.mkdir(exist_ok=True)
    (folder / f"1.{format}").rename(folder / name)
    with pytest.raises(
        StreamingQueryException, match=r"lies in no folder day=\.\.\.|is compressed as \.lz4|day=oops, which is no date"
    ):
        drained(total(), tmp_path / "checkpoint")
    (folder / name).rename(right / f"1.{format}")
    [[row]] = drained(total(), tmp_path / "checkpoint")
    assert row["n"] == 2


@pytest.mark.parametrize("odd", [False, True], ids=["plain", "odd"])
@pytest.mark.parametrize("format", first(1, FORMATS))
def test_names_of_folders_have_any_case_and_dots(spark: SparkSession, tmp_path: Path, format: str, odd: bool) -> None:
    """A column was null, or all lines were malformed, where its folder was written in another case."""
    for n, day in enumerate(["Day=2026-01-01", "DAY=2026-01-02"]):
        lines = [record(n, n, 'B"C' if odd else "A")]
        write(tmp_path / "in" / day / "my.who=x" / f"0.{format}", lines, NS + n)
    schema = SCHEMA + ", day date, `my.who` string"
    given: dict[str, Any] = {"format": format, "schema": schema, "streaming": False}
    frame = tg.files.ordered(spark, str(tmp_path / "in"), **given).drop("partition", "offset")
    wanted = spark.read.schema(schema).format(format).load(str(tmp_path / "in"))
    assert plain(frame) == plain(wanted)
    assert len(plain(frame)) == 2
    order = {"ordered": True} if format == "parquet" else {}
    stream = tg.files.source(spark, str(tmp_path / "in"), **TIME, **order, **given)
    [row] = collect(stream.group_by_key().agg(days=tg.max("day"), who=tg.last("my.who")).to_df())
    assert (str(row["days"]), row["who"]) == ("2026-01-02", "x")


def test_a_folder_of_another_case_is_another_column_where_case_counts(spark: SparkSession, tmp_path: Path) -> None:
    write(tmp_path / "in" / "N=7" / "0.json", [record(0, 1)])
    spark.conf.set("spark.sql.caseSensitive", "true")
    try:
        given: dict[str, Any] = {"format": "json", "schema": SCHEMA + ", `N` int", "streaming": False}
        [row] = collect(tg.files.ordered(spark, str(tmp_path / "in"), **given))
    finally:
        spark.conf.unset("spark.sql.caseSensitive")
    assert (row["n"], row["N"]) == (1, 7)


@pytest.mark.parametrize("format", FORMATS)
def test_columns_that_are_all_in_names_of_folders(spark: SparkSession, tmp_path: Path, format: str) -> None:
    write(tmp_path / "in" / "who=x" / "day=2026-01-01" / f"0.{format}", [record(0), record(1)])
    given: dict[str, Any] = {"format": format, "schema": "day timestamp, who string", "streaming": False}
    if format in ("parquet", "orc"):
        with pytest.raises(DefinitionError, match="All columns of `schema`, day, who, are in names of folders"):
            tg.files.ordered(spark, str(tmp_path / "in"), **given)
    else:
        assert tg.files.ordered(spark, str(tmp_path / "in"), **given).count() == 2


@pytest.mark.parametrize("format", first(1, FORMATS))
def test_times_in_names_of_folders(spark: SparkSession, tmp_path: Path, format: str) -> None:
    """A time without a zone is in the session's, as for Spark's reader; whether Spark or Arrow reads the lines."""
    given = {"2026-01-01 00%3A30%3A00": 0, "2026-01-01T02%3A40%3A00+01%3A00": 1, "__HIVE_DEFAULT_PARTITION__": 2}
    for at, n in given.items():
        write(tmp_path / "in" / f"at={at}" / f"{n}.{format}", [record(n, n)], NS + n)
    how = {"format": format, "schema": SCHEMA + ", at timestamp", "streaming": False}
    before = spark.conf.get("spark.sql.session.timeZone")
    assert before == "UTC"
    try:
        for zone, minute in (("UTC", 30), ("America/New_York", 330)):
            spark.conf.set("spark.sql.session.timeZone", zone)
            mine = tg.files.ordered(spark, str(tmp_path / "in"), **how)
            wanted = spark.read.schema(how["schema"]).format(format).load(str(tmp_path / "in"))
            assert plain(mine.select("n", "at")) == plain(wanted.select("n", "at"))
            stream = tg.files.source(spark, str(tmp_path / "in"), key="n", timestamp="at", ordered=True, **how)
            windows = tg.TimeWindows.of_size_and_grace("1 minute", "1 day")
            minutes = stream.group_by_key().windowed_by(windows).count()
            starts = {row["n"]: row["window"].start // 60_000 for row in collect(minutes.to_df())}
            assert starts == {0: FIRST_MINUTE + minute, 1: FIRST_MINUTE + 100}
    finally:
        spark.conf.set("spark.sql.session.timeZone", before)


@pytest.mark.parametrize("format", first(1, FORMATS))
def test_times_in_names_of_folders_are_in_the_zone_of_the_option(
    spark: SparkSession, tmp_path: Path, format: str
) -> None:
    write(tmp_path / "in" / "at=2026-01-01 00%3A30%3A00" / f"0.{format}", [record(0, 0)])
    options = {"timezone": "America/New_York"}
    how: dict[str, Any] = {"format": format, "schema": SCHEMA + ", at timestamp", "streaming": False}
    mine = tg.files.ordered(spark, str(tmp_path / "in"), options=options, **how)
    wanted = spark.read.schema(how["schema"]).options(**options).format(format).load(str(tmp_path / "in"))
    assert plain(mine.select("n", "at")) == plain(wanted.select("n", "at"))
    stream = tg.files.source(spark, str(tmp_path / "in"), key="n", timestamp="at", ordered=True, options=options, **how)
    windows = tg.TimeWindows.of_size_and_grace("1 minute", "1 day")
    [row] = collect(stream.group_by_key().windowed_by(windows).count().to_df())
    assert row["window"].start // 60_000 == FIRST_MINUTE + 330


def test_a_zone_that_only_java_knows() -> None:
    at, instants = "2026-01-01 00:30:00", pa.timestamp("us", "UTC")
    assert typed(at, "at", instants, "a.orc", "+02:00").as_py() == datetime(2025, 12, 31, 22, 30, tzinfo=UTC)
    with pytest.raises(
        InputError, match=r"a\.orc lies in a folder at=2026.* does not know the session's zone GMT\+2\."
    ):
        typed(at, "at", instants, "a.orc", "GMT+2")


@pytest.mark.parametrize("format", first(1, FORMATS))
def test_times_in_names_of_folders_where_clocks_change(spark: SparkSession, tmp_path: Path, format: str) -> None:
    """Times that are left out, that come twice, and of years behind 2037, in which Arrow knows no summer time."""
    times = ["2026-03-08 02:30:00", "2026-11-01 01:30:00", "2040-07-01 00:00:00", "1800-07-01 00:00:00"]
    for n, at in enumerate(times):
        write(tmp_path / "in" / f"at={at.replace(':', '%3A')}" / f"{n}.{format}", [record(n, n)], NS + n)
    spark.conf.set("spark.sql.session.timeZone", "America/New_York")
    try:
        schema = SCHEMA + ", at timestamp"
        order = {"ordered": True} if format == "parquet" else {}
        given: dict[str, Any] = {"format": format, "schema": schema, "streaming": False}
        wanted = spark.read.schema(schema).format(format).load(str(tmp_path / "in"))
        seconds = [row[0] for row in wanted.orderBy("n").select(F.unix_seconds("at")).collect()]
        stream = tg.files.source(spark, str(tmp_path / "in"), key="n", timestamp="ts", **order, **given)
        found = stream.group_by_key().agg(at=tg.last("at")).to_df()
        assert [row[0] for row in found.orderBy("n").select(F.unix_seconds("at")).collect()] == seconds
    finally:
        spark.conf.set("spark.sql.session.timeZone", "UTC")


def test_a_time_of_a_wall_clock_in_the_name_of_a_folder_is_in_no_zone() -> None:
    at, local = "2026-01-01 00:30:00", pa.timestamp("us")
    assert typed(at, "at", local, "a.orc", "Europe/Paris") == pa.scalar(datetime.fromisoformat(at), local)
    assert typed(None, "at", local, "a.orc", "Europe/Paris").as_py() is None


@pytest.mark.parametrize(
    ("value", "kind", "read"),
    [
        ("2026-1-5", pa.date32(), "2026-01-05"),
        ("2026-01-5", pa.date32(), "2026-01-05"),
        ("+5", pa.int32(), "5"),
        ("07", pa.int64(), "7"),
        ("+5", pa.string(), "+5"),
    ],
)
def test_days_and_numbers_in_names_of_folders_as_spark_reads_them(
    tmp_path: Path, value: str, kind: pa.DataType, read: str
) -> None:
    assert str(typed(value, "k", kind, "a", "UTC")) == read
    write(tmp_path / f"k={value}" / "a.json", [record(0)])
    schema = pa.schema([(text.VALUE, pa.binary()), ("k", pa.string())])
    reader = text.Lines(Root(f"file:{tmp_path}"), schema, folders={"k": "k"}, kinds={"k": kind})
    listing = {"path": f"k={value}/a.json", "number": 0, "values": json.dumps({"k": value})}
    [batch] = reader(iter([pa.RecordBatch.from_pylist([listing])]))
    assert batch["k"].to_pylist() == [read]


@pytest.mark.parametrize("format", FORMATS)
def test_a_folder_with_a_value_of_another_type(spark: SparkSession, tmp_path: Path, format: str) -> None:
    write(tmp_path / "in" / "at=yesterday" / f"0.{format}", [record(0, 0)], NS)
    how = {"format": format, "schema": SCHEMA + ", at timestamp", "streaming": False}
    stream = tg.files.source(spark, str(tmp_path / "in"), key="n", timestamp="at", ordered=True, **how)
    counts = stream.group_by_key().windowed_by(tg.TimeWindows.of_size_with_no_grace("1 minute")).count()
    with pytest.raises(Exception, match=rf"InputError: The file \S*at=yesterday/0\.{format} lies in a folder at=yest"):
        counts.to_df().collect()


@pytest.mark.parametrize("format", FORMATS)
def test_files_that_spark_wrote(spark: SparkSession, tmp_path: Path, format: str) -> None:
    """In two folders of values, compressed as it likes to; the columns are found in the files."""
    instant = F.timestamp_micros(F.lit(NS // 1000) + F.col("id") * 1_000_001).alias("ts")
    rows = spark.range(40).select(
        (F.col("id") % 3).cast("string").alias("user"), instant, F.col("id").cast("int").alias("n")
    )
    more = {"compression": "gzip"} if format in ("json", "csv") else {}
    partitioned = rows.withColumn("day", F.to_date("ts")).withColumn("part", F.col("n") % 2)
    partitioned.repartition(3).write.partitionBy("day", "part").options(**more).format(format).save(
        str(tmp_path / "in")
    )
    schema = None if format in ("parquet", "orc") else SCHEMA + ", day date, part int"
    given = {} if schema is None else {"schema": schema}
    mine = tg.files.ordered(spark, str(tmp_path / "in"), format=format, streaming=False, **given)
    wanted = (spark.read.schema(schema) if schema else spark.read).format(format).load(str(tmp_path / "in"))
    columns = ["user", "ts", "n", "day", "part"]
    assert plain(mine.select(columns)) == plain(wanted.select(columns))
    assert mine.select("offset").distinct().count() == 40


def test_text_is_a_frame(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    for n in (1, 0):
        (tmp_path / "in" / f"{n}.log").write_text(f"2026-01-01T00:0{n}:00Z A {n}\n\n")
        os.utime(tmp_path / "in" / f"{n}.log", ns=(NS, NS))
    with pytest.raises(DefinitionError, match=r'tg\.files\.ordered\(spark, path, format="text"\)'):
        tg.files.source(spark, str(tmp_path / "in"), **TIME, format="text")
    frame = tg.files.ordered(spark, str(tmp_path / "in"), format="text", options={"maxFilesPerTrigger": "1"})
    words = F.split("value", " ")
    made = frame.where("value != ''").select(
        words[0].cast("timestamp").alias("ts"),
        words[1].alias("user"),
        words[2].cast("int").alias("n"),
        "partition",
        "offset",
    )
    table = tg.stream(made, **TIME, partition="partition", offset="offset").group_by_key()
    counted = table.windowed_by(tg.TimeWindows.of_size_with_no_grace("1 hour")).agg(last=tg.last("n"), n=tg.count())
    batches = drained(counted.to_df(), tmp_path / "checkpoint")
    assert [(row["last"], row["n"]) for batch in batches for row in batch] == [(0, 1), (1, 2)]


def test_columns_that_are_the_order_themselves(spark: SparkSession, tmp_path: Path) -> None:
    for n, offset in enumerate((1, 0)):
        write(tmp_path / "in" / f"{n}.json", [{**record(n, n), "partition": 0, "offset": offset, "window": "w"}])
    stream = files(
        spark, tmp_path / "in", "json", 9, schema=SCHEMA + ", partition int, offset long, window string",
        partition="partition", offset="offset",
    )  # fmt: skip
    lasts = stream.group_by_key().windowed_by(tg.TimeWindows.of_size_with_no_grace("1 hour")).agg(n=tg.last("n"))
    [[row]] = drained(lasts.to_df(), tmp_path / "checkpoint")
    assert row["n"] == 0
    with pytest.raises(DefinitionError, match="`ordered` is True, and `partition` and `offset` are given"):
        tg.files.source(spark, str(tmp_path), **TIME, ordered=True, partition="partition", offset="offset")
    with pytest.raises(DefinitionError, match="`ordered` is False, which only Parquet can be, and `format` is 'orc'"):
        tg.files.source(spark, str(tmp_path), **TIME, ordered=False, format="orc")


def test_epoch_milliseconds_and_names_that_are_taken(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "0.json").write_text('{"window": "A", "timestamp": 60000, "offset": 7}\n' * 2)
    stream = tg.files.source(
        spark, str(tmp_path / "in"), key="window", timestamp="timestamp", format="json", streaming=False,
        schema="window string, timestamp long, offset int",
    )  # fmt: skip
    table = stream.group_by_key().windowed_by(tg.TimeWindows.of_size_with_no_grace("1 minute"))
    [row] = collect(table.agg(n=tg.sum("offset_in")).to_df())
    assert (row["window_in"], minute(row), row["n"]) == ("A", 1, 14)


@pytest.mark.parametrize("option", first(1, ["timezone", "timeZone", "TIMEZONE"]))
@pytest.mark.parametrize("format", ["json", "csv"])
def test_the_zone_is_an_option_in_any_case(spark: SparkSession, tmp_path: Path, format: str, option: str) -> None:
    line = {"json": '{"user": "A", "ts": "2026-07-01T02:00:00", "n": 1}', "csv": "A,2026-07-01T02:00:00,1"}[format]
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / f"0.{format}").write_text(line + "\n")
    options = {option: "Europe/Paris"}
    stream = tg.files.source(
        spark, str(tmp_path / "in"), **TIME, format=format, schema=SCHEMA, options=options, streaming=False
    )
    wanted = spark.read.schema(SCHEMA).options(**options).format(format).load(str(tmp_path / "in"))
    assert plain(stream.frame.drop("partition", "offset")) == plain(wanted)
    windows = tg.TimeWindows.of_size_with_no_grace("1 minute")
    [row] = collect(stream.group_by_key().windowed_by(windows).count().to_df())
    assert row["window"].start // 60_000 == datetime(2026, 7, 1, tzinfo=UTC).timestamp() // 60


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"multiLine": "true"}, "multiLine: tg.files reads line by line"),
        ({"encoding": "UTF-16"}, "encoding is 'UTF-16'"),
        ({"cleanSource": "delete"}, "'cleanSource', which a source of files in order does not have"),
        ({"maxFilesPerTrigger": "0"}, "`maxFilesPerTrigger` is '0'"),
        ({"mode": "loud"}, "`mode` is 'loud'. Use DROPMALFORMED"),
        ({"recursiveFileLookup": "perhaps"}, "Use true or false"),
    ],
)
def test_options_that_are_not_there(spark: SparkSession, tmp_path: Path, options: dict[str, str], message: str) -> None:
    with pytest.raises(DefinitionError, match=re.escape(message)):
        tg.files.source(spark, str(tmp_path), **TIME, format="json", schema=SCHEMA, options=options)


@pytest.mark.parametrize(
    ("format", "options", "message"),
    [
        ("text", {"lineSep": "|"}, "lineSep is '|': tg.files reads UTF-8, and lines that end with a line feed"),
        ("text", {"Encoding": "UTF-16LE"}, "encoding is 'utf-16le'"),
        ("parquet", {"mergeSchema": "true"}, "`options` has 'mergeSchema', which a source of files in order"),
        ("orc", {"mergeschema": "true"}, "`options` has 'mergeschema', which a source of files in order"),
        ("parquet", {"datetimeRebaseMode": "LEGACY"}, "`options` has 'datetimeRebaseMode'"),
    ],
)
def test_options_of_other_formats_that_are_not_there(
    spark: SparkSession, tmp_path: Path, format: str, options: dict[str, str], message: str
) -> None:
    """They were passed over: lines were others than those of Spark's reader, and columns were missing."""
    with pytest.raises(DefinitionError, match=f"(?i){re.escape(message)}"):
        tg.files.ordered(spark, str(tmp_path), format=format, schema=SCHEMA, options=options)


def test_columns_are_those_of_the_files_if_none_are_given(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "0.csv").write_text("user;ts;n\nA;2026-01-01T00:00:00Z;1\n")
    options = {"header": "true", "inferSchema": "true", "sep": ";"}
    frame = tg.files.ordered(spark, str(tmp_path / "in"), format="csv", options=options, streaming=False)
    assert [f.dataType.simpleString() for f in frame.schema] == ["string", "timestamp", "int", "bigint", "bigint"]
    (tmp_path / "in" / "0.csv").write_text('{"user": "A"}\nnothing\n')
    found = tg.files.ordered(spark, str(tmp_path / "in"), format="json", streaming=False)
    assert found.columns == ["user", "partition", "offset"]


def test_a_stream_of_files_is_shown_as_other_streams_are(spark: SparkSession, tmp_path: Path) -> None:
    """All settings of its node stood there, in errors too."""
    stream = tg.files.source(spark, str(tmp_path), **TIME, format="json", schema=SCHEMA)
    assert repr(stream) == "<FileStream files>"
    with pytest.raises(tg.DefinitionTypeError, match=r"^`other` is <FileStream files>, not a table"):
        tg.table("prices", key="user", timestamp="ts").join(stream)  # type: ignore[arg-type]


def test_what_is_not_there(spark: SparkSession, tmp_path: Path) -> None:
    with pytest.raises(DefinitionError, match=r"There is no folder file:.*/nowhere"):
        tg.files.source(spark, str(tmp_path / "nowhere"), **TIME, format="json", schema=SCHEMA)
    with pytest.raises(DefinitionError, match=r"no JSON file at .* to take the columns from"):
        tg.files.source(spark, str(tmp_path), **TIME, format="json")
    with pytest.raises(DefinitionError, match=r"`format` is 'avro'. Use parquet, orc, json, csv, text"):
        tg.files.source(spark, str(tmp_path), **TIME, format="avro")


@pytest.mark.parametrize("format", ["parquet", "json"])
@pytest.mark.parametrize("path", [None, 5, ""])
def test_a_folder_that_is_no_path(spark: SparkSession, format: str, path: Any) -> None:
    said = f"{path!r}, not a path"
    for schema in (SCHEMA, None):
        with pytest.raises(tg.DefinitionTypeError, match=f"`path` is {said}"):
            tg.files.source(spark, path, **TIME, format=format, schema=schema)
        with pytest.raises(tg.DefinitionTypeError, match=f"`path` is {said}"):
            tg.files.ordered(spark, path, format=format, schema=schema)
    with pytest.raises(tg.DefinitionTypeError, match=f"`table` is {said}"):
        tg.delta.source(spark, path, **TIME)


def test_a_folder_may_be_a_path(spark: SparkSession, tmp_path: Path) -> None:
    write(tmp_path / "in" / "0.json", [record(0, 0), record(1, 1)], NS)
    stream = tg.files.source(spark, tmp_path / "in", **TIME, format="json", schema=SCHEMA, streaming=False)
    lines = tg.files.ordered(spark, tmp_path / "in", format="json", schema=SCHEMA, streaming=False)
    assert stream.frame.count() == lines.count() == 2
    lines.write.parquet(str(tmp_path / "parquet"))
    for ordered in (True, False):
        stream = tg.files.source(spark, tmp_path / "parquet", **TIME, ordered=ordered, streaming=False)
        assert stream.frame.count() == 2
    with pytest.raises(tg.DefinitionError, match="is no Delta table"):
        tg.delta.source(spark, tmp_path / "parquet", **TIME)


@pytest.mark.parametrize("session", [None, "/data/clicks"])
def test_a_session_that_is_none(session: Any) -> None:
    with pytest.raises(tg.DefinitionTypeError, match=f"`spark` is {session!r}, not a SparkSession"):
        tg.files.source(session, "/data/clicks", **TIME)
    with pytest.raises(tg.DefinitionTypeError, match=f"`spark` is {session!r}, not a SparkSession"):
        tg.files.ordered(session, "/data/clicks", format="json")


def test_a_file_that_vanishes_stops_the_query_until_it_is_back(spark: SparkSession, tmp_path: Path) -> None:
    for n in range(3):
        write(tmp_path / "in" / f"{n}.json", [record(n * 3, n)], NS + n)
    path = tmp_path / "in" / "1.json"

    def lose(frame: DataFrame, batch: int) -> None:
        if batch == 0:
            path.rename(tmp_path / "1.json")

    # The offset of the second batch is written before its files are read.
    stream = files(spark, tmp_path / "in", "json", 1)
    broken = path.with_suffix(".gz")
    path.rename(broken)
    os.utime(broken, ns=(NS + 1, NS + 1))
    with pytest.raises(StreamingQueryException, match=r"(?s)InputError: The file file:\S*in/1\.gz cannot be read"):
        drained(final(stream), tmp_path / "checkpoint")
    broken.write_bytes(gzip.compress(json.dumps(record(3, 1)).encode()))
    got = drained(final(files(spark, tmp_path / "in", "json", 1)), tmp_path / "checkpoint")
    assert flat(got) == [(0, 1, 0), (2, 1, 1)]


def test_a_stream_without_order_names_the_helper(spark: SparkSession, tmp_path: Path) -> None:
    write(tmp_path / "in" / "0.parquet", [record(0)])
    stream = tg.files.source(spark, str(tmp_path / "in"), **TIME)
    with pytest.warns(TidegateWarning, match=r"tg\.files\.source\(\.\.\., ordered=True\)"):
        final(stream)


def test_times_of_a_wall_clock_are_in_the_zone_of_the_jvm(tmp_path: Path) -> None:
    """As by Spark's ORC reader; of an hour that occurs twice the first one counts."""
    clock = pa.array([datetime(2026, 7, 1, 12, tzinfo=UTC), datetime(2026, 11, 1, 1, 30, tzinfo=UTC), None])
    clock = clock.cast(pa.timestamp("us"))
    orc.write_table(pa.table({"ts": clock}), str(tmp_path / "a.orc"))
    read = Columns(pa.schema([("ts", pa.timestamp("us", "UTC"))]), "orc", zone="America/New_York")
    [rows] = read.rows(lambda: (tmp_path / "a.orc").open("rb"), "a.orc")
    assert [each and each.hour for each in rows["ts"].to_pylist()] == [16, 5, None]


def test_where_a_timestamp_in_sql_has_no_zone(spark: SparkSession, tmp_path: Path) -> None:
    """By `spark.sql.timestampType`; columns that are declared as instants, and those of the sources, stay instants."""
    from tidegate.runtime.spark.kafka.consumed import Client, Topics

    fields = StructType.fromDDL("user string, ts timestamp_ltz, n int")
    for format in ("csv", "parquet"):
        write(tmp_path / format / f"0.{format}", [record(0), record(1)])
    kinds = ("spark.sql.timestampType", "TIMESTAMP_NTZ"), ("spark.sql.session.timeZone", "Asia/Tokyo")
    before = [spark.conf.get(name) for name, _ in kinds]
    try:
        for name, value in kinds:
            spark.conf.set(name, value)
        for format in ("csv", "parquet"):
            of = tg.files.source(spark, str(tmp_path / format), format=format, schema=fields, streaming=False, **TIME)
            rows = of.group_by_key().agg(last=tg.last("ts")).to_df().select(F.unix_millis("last")).collect()
            assert [at for (at,) in rows] == [FIRST_MINUTE * 60_000 + 60_000]
        of_kafka = Topics(Client("nobody:1"), ("t",), "earliest", None, False, False, 1).frame(spark)
        assert of_kafka.schema["timestamp"].dataType == TimestampType()
    finally:
        for (name, _), value in zip(kinds, before, strict=True):
            spark.conf.set(name, value)


# --- without Spark ----------------------------------------------------------------------------------------------------


def test_too_little_memory_is_no_fault_of_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: Any) -> Any:
        raise pa.ArrowMemoryError("malloc of size 400 failed")

    monkeypatch.setattr(Root, "opened", full)
    root, listing = Root(f"file:{tmp_path}"), pa.RecordBatch.from_pylist([{"path": "a", "number": 0, "values": None}])
    read = text.Lines(root, pa.schema([(text.VALUE, pa.binary())])), Columns(pa.schema([("n", pa.int64())]))
    for rows in (read[0](iter([listing])), read[1].rows(lambda: root.opened("a"), "a")):
        with pytest.raises(
            InputError, match=r"too little memory to read the file \S*a: malloc of size 400 failed\. Give"
        ):
            list(rows)


def hadoops(data: bytes) -> list[bytes]:
    """Lines as Hadoop's reader splits them, one by one."""
    found = re.split(rb"\r\n|\r|\n", data.removeprefix(b"\xef\xbb\xbf"))
    return found if found[-1] else found[:-1]


@given(
    st.lists(st.sampled_from([b"a", b"bc", b"\n", b"\r", b"\xef\xbb\xbf", b"\xc3\xbc"])).map(b"".join),
    st.integers(1, 9),
)
def test_lines_are_hadoops(data: bytes, chunk: int) -> None:
    at = iter(range(0, len(data) + chunk, chunk))

    def read(size: int) -> bytes:
        start = next(at, len(data))
        return data[start : start + size]

    assert [line for part in text.split(read, chunk=chunk) for line in part.to_pylist()] == hadoops(data)


COMPRESSED = {".gz": gzip.compress, ".bz2": bz2.compress, ".deflate": zlib.compress}


@pytest.mark.parametrize("ending", [*COMPRESSED, ".zst"])
@pytest.mark.parametrize("chunk", [3, text.CHUNK])
def test_a_compressed_file_has_one_piece_or_several(tmp_path: Path, ending: str, chunk: int) -> None:
    """As `cat` makes of two files; a cut one is told, wherever it is cut."""
    compress = COMPRESSED.get(ending, lambda data: pa.compress(data, "zstd", asbytes=True))
    pieces = [compress(data) for data in (b"a\nb", b"", b"c\n", b"d" * 100)]
    lines = [b"a", b"bc", b"d" * 100]

    def read(data: bytes) -> list[bytes]:
        (tmp_path / f"a{ending}").write_bytes(data)
        with Root(f"file:{tmp_path}").bytes_of(f"a{ending}") as opened:
            return [line for part in text.split(opened, chunk=chunk) for line in part.to_pylist()]

    assert read(b"".join(pieces)) == lines
    for cut in (len(pieces[0]) - 1, len(b"".join(pieces)) - 1):
        with pytest.raises((EOFError, OSError)):
            read(b"".join(pieces)[:cut])


@pytest.mark.parametrize("ending", ["gz", "bz2", "zst", "deflate"])
def test_a_compressed_file_without_a_byte_has_no_lines(tmp_path: Path, ending: str) -> None:
    (tmp_path / f"a.{ending}").touch()
    reader = text.Lines(Root(f"file:{tmp_path}"), pa.schema([(text.VALUE, pa.binary())]))
    listing = pa.RecordBatch.from_pylist([{"path": f"a.{ending}", "number": 0, "values": None}])
    assert list(reader(iter([listing]))) == []


def test_a_file_of_zlib_has_nothing_behind_it(tmp_path: Path) -> None:
    """As for Spark's reader."""
    reader = text.Lines(Root(f"file:{tmp_path}"), pa.schema([(text.VALUE, pa.binary())]))
    listing = pa.RecordBatch.from_pylist([{"path": "a.deflate", "number": 0, "values": None}])
    (tmp_path / "a.deflate").write_bytes(zlib.compress(b"a") + b"more")
    with pytest.raises(InputError, match=r"a\.deflate cannot be read: .*incorrect header"):
        list(reader(iter([listing])))


def test_a_long_line_is_looked_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """And not from its beginning again with each of its pieces."""
    data, looked, plain = io.BytesIO(b"a" * 100_000 + b"\nb"), [0], text._with_one_end

    def counted(block: bytes) -> bytes:
        looked[0] += len(block)
        return plain(block)

    monkeypatch.setattr(text, "_with_one_end", counted)
    assert [len(line) for part in text.split(data.read, chunk=100) for line in part.to_pylist()] == [100_000, 1]
    assert looked[0] < 110_000
    monkeypatch.setattr(text, "LONGEST", 50_000)
    with pytest.raises(InputError, match="a line of more than 50,000 bytes"):
        list(text.split(io.BytesIO(b"a" * 60_000).read, chunk=100))


def touched(folder: Path, name: str, ns: int = NS) -> None:
    (folder / name).parent.mkdir(parents=True, exist_ok=True)
    (folder / name).write_text("x")
    os.utime(folder / name, ns=(ns, ns))


def paths(of: Sequence[Listed]) -> list[str]:
    return [each.path for each in of]


def run(folder: Folder, start: dict[str, Any], limit: int | None) -> tuple[list[list[str]], dict[str, Any]]:
    """All batches from `start` on."""
    batches = []
    while (end := json.loads(json.dumps(folder.latest(start, limit)))) != start:
        batches.append(paths(folder.between(start, end)))
        start = end
    return batches, start


def test_a_path_with_a_pattern_says_where_patterns_go(tmp_path: Path) -> None:
    with pytest.raises(
        InputError, match=r"no folder file:.*/\*\.json: .* Give the folder alone, and a pattern of names as"
    ):
        Folder(Root(f"file:{tmp_path}/*.json")).files()


def test_files_come_by_time_and_name_and_once(tmp_path: Path) -> None:
    for name in ("b", "a", "d"):
        touched(tmp_path, name)
    touched(tmp_path, "0", NS + 1)
    folder = Folder(Root(f"file:{tmp_path}"))
    batches, end = run(folder, folder.initial(), 2)
    assert batches == [["a", "b"], ["d", "0"]]
    touched(tmp_path, "c")  # of the same time as files that were read, for this process and for another one
    touched(tmp_path, "a", NS + 9)  # was read already
    for each in (folder, Folder(Root(f"file:{tmp_path}"))):
        assert run(each, end, 2)[0] == [["c"]]


def test_a_file_that_was_read_comes_back(tmp_path: Path) -> None:
    """To the process that has read it, and to one that began while it was away."""
    for name in ("a", "b"):
        touched(tmp_path, name)
    folder = Folder(Root(f"file:{tmp_path}"))
    _, end = run(folder, folder.initial(), 9)
    for each in (folder, Folder(Root(f"file:{tmp_path}"))):
        (tmp_path / "a").unlink()
        assert run(each, end, 9)[0] == []
        touched(tmp_path, "a", NS + 1)
        touched(tmp_path, "c", NS + 2)
        assert run(each, end, 9)[0] == [["c"]]
        (tmp_path / "c").unlink()


def test_the_number_of_a_file_does_not_depend_on_batches(tmp_path: Path) -> None:
    for n in range(7):
        touched(tmp_path, f"{n}")
    for limit in (1, 3, None):
        folder, start, numbers = Folder(Root(f"file:{tmp_path}")), None, []
        start = folder.initial()
        while (end := folder.latest(start, limit)) != start:
            numbers += [(each.path, each.number) for each in folder.between(start, end)]
            start = end
        assert numbers == [(f"{n}", n) for n in range(7)]


def test_after_a_restart_old_files_are_known_by_their_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(folders, "RECENT", 3)
    for n in range(8):
        touched(tmp_path, f"{n}", NS + n)
    root = Root(f"file:{tmp_path}")
    batches, end = run(Folder(root), Folder(root).initial(), 2)
    assert [name for batch in batches for name in batch] == list("01234567")
    touched(tmp_path, "8", NS + 8)
    touched(tmp_path, "6b", NS + 6)
    assert run(Folder(root), end, 9)[0] == [["6b", "8"]]
    (tmp_path / "0").unlink()
    assert run(Folder(root), end, 9)[0] == [["6b", "8"]]
    touched(tmp_path, "0", NS)
    touched(tmp_path, "2b", NS + 2)  # older than the files that are known by name
    with pytest.raises(InputError, match=r"6 files that were modified up to .*, and 5 of that age were read"):
        run(Folder(root), end, 9)
    alive = Folder(root)
    (tmp_path / "2b").unlink()
    _, then = run(alive, end, 9)
    touched(tmp_path, "2b", NS + 2)
    assert run(alive, then, 9)[0] == [["2b"]]


@pytest.mark.parametrize("hidden", [False, True], ids=["a folder without files", "a folder with a hidden file"])
def test_files_of_a_disk_that_comes_back_behind_a_restart_are_not_read_twice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, hidden: bool
) -> None:
    """Where nothing is mounted the folder is there, and empty; then all files that were not recent were read again."""
    monkeypatch.setattr(folders, "RECENT", 3)
    folder, away = tmp_path / "in", tmp_path / "away"
    folder.mkdir()
    for n in range(8):
        touched(folder, f"{n}", NS + n)
    root = Root(f"file:{folder}")
    _, end = run(Folder(root), Folder(root).initial(), 2)
    folder.rename(away)
    folder.mkdir()
    if hidden:
        touched(folder, ".nothing is mounted here")
    began = Folder(root)
    assert began.latest(end, 2) == end
    shutil.rmtree(folder)
    away.rename(folder)
    touched(folder, "8", NS + 8)
    with pytest.raises(InputError, match=r"was empty when the query was started, and has 5 files now that were modif"):
        began.latest(end, 2)
    assert run(Folder(root), end, 2)[0] == [["8"]]


def test_a_folder_that_was_empty_at_a_restart_takes_newer_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As where somebody removes files that were read."""
    monkeypatch.setattr(folders, "RECENT", 3)
    for n in range(8):
        touched(tmp_path, f"{n}", NS + n)
    root = Root(f"file:{tmp_path}")
    _, end = run(Folder(root), Folder(root).initial(), 2)
    for n in range(8):
        (tmp_path / f"{n}").unlink()
    began = Folder(root)
    assert began.latest(end, 2) == end
    for n in (6, 8, 9):
        touched(tmp_path, f"{n} more", NS + n)
    assert run(began, end, 2)[0] == [["6 more", "8 more"], ["9 more"]]


@pytest.mark.parametrize("ahead", [1, 2])
@pytest.mark.parametrize("deleted", [0, 4])
def test_after_a_restart_files_come_behind_files_of_a_time_ahead(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ahead: int, deleted: int
) -> None:
    """Such a file was the newest of the older ones: files that came while the query was stopped were taken for read."""
    monkeypatch.setattr(folders, "RECENT", 5)
    root = Root(f"file:{tmp_path}")
    for n in range(ahead):
        touched(tmp_path, f"ahead {n}", NS + 1000 + n)
    folder = Folder(root)
    _, end = run(folder, folder.initial(), 2)
    for n in range(12):
        touched(tmp_path, f"{n:02}", NS + n)
        _, end = run(folder, end, 2)
    for n in range(deleted):
        (tmp_path / f"{n:02}").unlink()
    touched(tmp_path, "12", NS + 12)
    found, then = run(Folder(root), end, 2)
    assert found == [["12"]]
    assert then["older"] == 13 - 5
    # Behind their time they leave like any other file.
    for n in range(2000, 2007):
        touched(tmp_path, f"{n}", NS + n)
    found, then = run(Folder(root), then, 2)
    assert [name for batch in found for name in batch] == [f"{n}" for n in range(2000, 2007)]
    assert then["older"] == ahead + 13 + 7 - 5
    assert run(Folder(root), then, 2)[0] == []


def test_a_batch_that_is_run_again_has_the_same_files(tmp_path: Path) -> None:
    for n in range(3):
        touched(tmp_path, f"{n}", NS + n)
    folder = Folder(Root(f"file:{tmp_path}"))
    end = folder.latest(folder.initial(), None)
    touched(tmp_path, "0b", NS)
    again = Folder(Root(f"file:{tmp_path}"))
    assert paths(again.between(again.initial(), end)) == ["0", "1", "2"]
    assert again.between(end, end) == []
    with pytest.raises(InputError, match="is a file of its folder `offsets` missing"):
        again.between({**again.initial(), "taken": 1}, end)


def test_a_checkpoint_of_a_source_of_another_kind_is_refused(tmp_path: Path) -> None:
    """As where Parquet is read in order from some restart on; a bare KeyError came."""
    from tidegate.runtime.spark.files.listing import Listing  # Spark 4.2 or later

    touched(tmp_path, "0")
    folder = Folder(Root(f"file:{tmp_path}"))
    _, end = run(folder, folder.initial(), 1)
    of_table = {"table": "t", "version": 0, "index": 0, "snapshot": True, "taken": 0}
    listing = Listing(folder, 1, 1)
    for offset in (end, listing.initialOffset()):
        assert listing.latestOffset(offset, listing.getDefaultReadLimit()) == end
    for other in ({"logOffset": 3}, of_table):
        with pytest.raises(InputError, match=r"The checkpoint has the offset \{.* of a source of another kind"):
            listing.latestOffset(other, listing.getDefaultReadLimit())
        with pytest.raises(InputError, match="Make the stream as it was"):
            listing.partitions(other, other)


def test_until_what_is_there_now(tmp_path: Path) -> None:
    touched(tmp_path, "0")
    folder = Folder(Root(f"file:{tmp_path}"))
    folder.stop_here()
    touched(tmp_path, "1")
    assert run(folder, folder.initial(), 1)[0] == [["0"]]


def test_a_file_that_grows_is_told_once(tmp_path: Path) -> None:
    touched(tmp_path, "0")
    folder = Folder(Root(f"file:{tmp_path}"))
    _, end = run(folder, folder.initial(), 1)
    (tmp_path / "0").write_text("xy")
    with pytest.warns(TidegateWarning, match=r"/0 had 1 bytes when it was listed, and has 2 now: a file is read once"):
        assert folder.latest(end, 1) == end
    assert folder.latest(end, 1) == end


def test_another_folder_on_a_checkpoint_is_told(tmp_path: Path) -> None:
    """Its files with the names of those that were read are not read; a folder that was moved goes on."""
    for name in ("a/0", "a/1", "b/1", "b/2"):
        touched(tmp_path, name)
    first, other = (Folder(Root(f"file:{tmp_path}/{name}")) for name in "ab")
    _, end = run(first, first.initial(), 9)
    with pytest.warns(
        TidegateWarning, match=r"is of the folder file:\S*/a, and the query reads file:\S*/b now\. A file"
    ):
        found, then = run(other, end, 9)
    assert found == [["2"]]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert run(Folder(other.root), then, 9)[0] == []
        earlier = {name: of for name, of in then.items() if name != "folder"}  # as earlier versions have it
        assert Folder(first.root).latest(earlier, 9) == earlier


def test_which_files_are_seen(tmp_path: Path) -> None:
    for name in (
        "a.json",
        "b.csv",
        "_a.json",
        ".a.json",
        "a.json._COPYING_",
        "k=1/a.json",
        "k=1/j/a.json",
        "_k=2/c.json",
        "s/a.json",
    ):
        touched(tmp_path, name)
    root = Root(f"file:{tmp_path}")
    assert [each.path for each in Folder(root).files()] == ["_k=2/c.json", "a.json", "b.csv", "k=1/a.json"]
    everything = Folder(root, "{a,c}.js*", recursive=True)
    assert [each.path for each in everything.files()] == [
        "_k=2/c.json", "a.json", "k=1/a.json", "k=1/j/a.json", "s/a.json",
    ]  # fmt: skip
    assert everything.values("k=1/a.json") == {}
    touched(tmp_path, "_spark_metadata/0")
    with pytest.raises(InputError, match="written by Spark's own streaming sink"):
        Folder(root).files()


def test_a_folder_that_is_removed_while_files_are_listed_has_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for day in range(3):
        touched(tmp_path, f"day={day}/a")
    folder, below = Folder(Root(f"file:{tmp_path}")), Folder._below

    def removes(self: Folder, store: Any, root: str, inside: str) -> Any:
        if inside == "day=1/":
            shutil.rmtree(tmp_path / inside)
        return below(self, store, root, inside)

    monkeypatch.setattr(Folder, "_below", removes)
    assert [each.path for each in folder.files()] == ["day=0/a", "day=2/a"]
    shutil.rmtree(tmp_path)
    with pytest.raises(InputError, match="There is no folder file:"):
        folder.files()


@pytest.mark.skipif(os.uname().sysname != "Linux", reason="other systems have no such names")
@pytest.mark.parametrize("name", [b"\xff.json", b"day=\xff/a.json"])
def test_a_name_that_is_not_utf8_is_an_error_that_shows_it(tmp_path: Path, name: bytes) -> None:
    path = tmp_path / os.fsdecode(name)
    path.parent.mkdir(exist_ok=True)
    path.touch()
    with pytest.raises(InputError, match=r"has a file or a folder whose name is not UTF-8, b'.*\\xff.*Rename it"):
        Folder(Root(f"file:{tmp_path}")).files()


def test_a_file_is_no_folder(tmp_path: Path) -> None:
    touched(tmp_path, "a.json")
    with pytest.raises(InputError, match=r"There is no folder file:.*/a\.json: .* is it no file"):
        Folder(Root(f"file:{tmp_path}/a.json")).files()
    with pytest.raises(InputError, match=r"/a\.json is no Delta table: it has no folder _delta_log"):
        Log(Root(f"file:{tmp_path}/a.json")).snapshot()


def test_thousands_of_files(tmp_path: Path) -> None:
    for n in range(6000):
        (tmp_path / f"{n:05}").touch()
        os.utime(tmp_path / f"{n:05}", ns=(NS, NS))
    folder = Folder(Root(f"file:{tmp_path}"))
    batches, end = run(folder, folder.initial(), 1000)
    assert [len(batch) for batch in batches] == [1000] * 6
    assert len(json.dumps(end)) < 100_000
    assert run(Folder(Root(f"file:{tmp_path}")), end, 1000)[0] == []


def test_a_look_hashes_each_path_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A backlog is taken in many batches, and each looks at all of its files."""
    for n in range(30):
        (tmp_path / f"{n:05}").touch()
    monkeypatch.setattr(folders, "RECENT", 10)
    folder, hashed, hashes = Folder(Root(f"file:{tmp_path}")), [0], folders._hash
    start = folder.latest(folder.latest(folder.initial(), 20), 1)

    def counted(path: str) -> bytes:
        hashed[0] += 1
        return hashes(path)

    monkeypatch.setattr(folders, "_hash", counted)
    folder.latest(start, 1)
    assert hashed[0] == 30 + 2, "and one of the file before, one of the file behind"


def test_files_that_are_gone_take_few_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    folder = Folder(Root("file:/nowhere"))
    start = folder.initial()
    for day in range(300):
        found = [Found(NS + day, f"day={day}/{n:02}{'-' * 100}", 1) for n in range(100)]
        monkeypatch.setattr(Folder, "files", lambda _, found=found: found)
        start = folder.latest(start, None)
    assert start["taken"] == 30_000
    assert len(pickle.dumps(folder)) < 12 * start["taken"]


@given(st.lists(st.integers(0, 1000), max_size=40), st.integers(1, 9))
def test_tasks_have_files_that_follow_one_another(sizes: list[int], tasks: int) -> None:
    given_files = [Listed(str(n), n, size) for n, size in enumerate(sizes)]
    assigned = stretches(given_files, tasks)
    assert [each for part in assigned for each in part] == given_files
    assert len(assigned) <= tasks
    assert all(assigned)
    fair = (sum(sizes) + len(sizes)) / tasks
    assert all(sum(each.size + 1 for each in part) <= fair + 2 * (max(sizes) + 1) for part in assigned)
