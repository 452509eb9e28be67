"""Names and types of columns on real Spark: any name in any role, types that are carried, and what is refused."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

import tidegate as tg
from tidegate.testing import TopologyTestDriver

pytest.importorskip("pyspark")

from pyspark import cloudpickle
from pyspark.errors import AnalysisException, PySparkException
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.pandas import types
from pyspark.sql.types import LongType, StringType, StructField, StructType, TimestampType
from pyspark.testing.objects import ExamplePointUDT

from seeds import first
from spark.replay import EPOCH, Replay, collect
from tidegate.runtime.spark.frames.names import CASE_SENSITIVE
from tidegate.runtime.spark.kafka.sink import records as as_records

pytestmark = pytest.mark.spark

# Workers cannot import test modules: send the functions themselves.
cloudpickle.register_pickle_by_value(sys.modules[__name__])

MINUTES = tg.TimeWindows.of_size_with_no_grace("1 minute")
FINAL = tg.Suppressed.until_window_closes(tg.BufferConfig.unbounded())
Names = tuple[str, str, str, str, str]

NAMES: dict[str, Names] = {
    "marks": ("k.a", "t s", "v`b.c", "100%`", "o.f"),
    # Names of Debezium's flattened records, and former internal names of tidegate.
    "underscores": ("__start", "__ts", "__deleted", "__table", "__offset"),
    "plain": ("task", "blob", "empty", "pane", "order"),
}
TYPES = (pa.string(), pa.timestamp("us", "UTC"), pa.int64(), pa.int32(), pa.int64())
ROWS = [("A", 1, 1), ("A", 2, 2), ("B", 3, None), ("A", 61_000, 3), ("A", 4, 9), ("B", 122_000, 4)]


def schema_of(names: Names) -> pa.Schema:
    return pa.schema(list(zip(names, TYPES, strict=True)))


def placed(names: Names, rows: list[tuple[str, int, int | None]] = ROWS) -> list[dict[str, Any]]:
    return [dict(zip(names, (k, ts, v, 0, n), strict=True)) for n, (k, ts, v) in enumerate(rows)]


def stream(source: Any, names: Names, **more: Any) -> tg.KStream:
    key, timestamp, _, partition, offset = names
    return tg.stream(source, key=key, timestamp=timestamp, partition=partition, offset=offset, **more)


def aggregates(source: Any, names: Names, **more: Any) -> tg.KOutputs:
    value = names[2]
    windowed = stream(source, names, **more).filter(pc.field(value) != 7).group_by_key().windowed_by(MINUTES)
    counted = windowed.agg(**{value: tg.sum(value), f"{value}.n": tg.count()})
    return tg.outputs(final=counted.suppress(FINAL).filter(lambda row: True), late=counted.late_records())


def functions(source: Any, names: Names, **more: Any) -> tg.KTable:
    value = names[2]

    def longer(row: dict[str, Any]) -> str:
        return str(row[names[0]]) + "!"

    mapped = stream(source, names, **more).map_values({value: lambda row: (row[value] or 0) * 2}, types={value: "long"})
    return mapped.select_key(longer, name=f"{names[0]}!").group_by_key().reduce(lambda a, b: a + b, value)


def regrouped(source: Any, names: Names, **more: Any) -> tg.KTable:
    key, timestamp, value, partition, offset = names
    order = {"partition": partition, "offset": offset}
    table = tg.table(source, key=key, timestamp=timestamp, name="stream", **order, **more)
    return table.filter(lambda row: row[value] is not None).group_by(value).agg(**{f"{key} n": tg.count()})


def chained(source: Any, names: Names, **more: Any) -> tg.KTable:
    key, _, value, _, _ = names
    first = stream(source, names, **more).group_by_key().windowed_by(MINUTES).agg(**{value: tg.max(value)})
    grouped = first.suppress(FINAL).to_stream().group_by(value)
    return grouped.aggregate(list, lambda _, row, a: [*a, row[key]], type="array<string>", name=f"{value}.keys")


TOPOLOGIES: list[Callable[..., Any]] = [aggregates, functions, regrouped, chained]


def comparable(rows: list[dict[str, Any]], names: Names) -> list[tuple[str, ...]]:
    """Rows without the time column of a late record, which Spark returns as a datetime."""
    return sorted(tuple(f"{n}={row[n]!r}" for n in sorted(row) if n != names[1]) for row in rows)


@pytest.mark.parametrize("topology", TOPOLOGIES, ids=lambda topology: topology.__name__)
@pytest.mark.parametrize("names", first(1, [(names,) for names in NAMES.values()]), ids=NAMES)
def test_columns_of_any_name_in_every_role(
    spark: SparkSession, tmp_path: Path, topology: Callable[..., Any], names: Names
) -> None:
    driver = TopologyTestDriver(topology("events", names, schema=schema_of(names)))
    driver.pipe_batch([{**row, names[1]: EPOCH + timedelta(milliseconds=row[names[1]])} for row in placed(names)])
    wanted = driver.read_output()
    replay = Replay(spark, tmp_path, schema_of(names), lambda frame: topology(frame, names).to_df())
    (got,) = replay.run([placed(names)]).rows
    assert wanted
    assert comparable(got, names) == comparable(wanted, names)


@pytest.mark.parametrize("names", first(1, [(names,) for names in NAMES.values()]), ids=NAMES)
def test_steps_alone_a_store_and_a_sink_keep_the_names(spark: SparkSession, tmp_path: Path, names: Names) -> None:
    key, _, value, partition, _ = names

    def counted(frame: DataFrame) -> tg.KTable:
        store = tg.Materialized.as_("sums").with_retention("1 hour")
        return stream(frame, names).group_by_key().windowed_by(MINUTES).agg(store, **{value: tg.sum(value)})

    replay = Replay(spark, tmp_path, schema_of(names), lambda frame: counted(frame).to_df())
    replay.run([placed(names)])
    found = collect(tg.read_state(spark, str(tmp_path / "checkpoint"), "sums"))
    assert sorted((row[key], row["window"].start, row[value], row["status"]) for row in found) == [
        ("A", 0, 3, "closed"),
        ("A", 60_000, 3, "closed"),
        ("B", 0, None, "closed"),
        ("B", 120_000, 4, "open"),
    ]

    static = spark.read.parquet(str(tmp_path / "in"))
    alone = stream(static, names).filter(lambda row: row[value] == 2)
    others = stream(static, names, name="others").map_values({value: pc.field(partition) + 5})
    assert [row[value] for row in alone.to_df().collect()] == [2]
    merged = alone.merge(others.filter(lambda row: row[key] == "B")).to_df()
    assert merged.columns == list(names)
    assert sorted(row[value] for row in merged.collect()) == [2, 5, 5]

    expected = spark.createDataFrame([("C",)], [key])
    windowed = stream(static, names).group_by_key().windowed_by(MINUTES)
    rows = as_records(windowed.agg(expect_keys=expected, **{value: tg.sum(value)}).suppress(FINAL), headers=[value])
    sent = {(bytes(row["key"]).decode(), bytes(row["value"] or b"").decode()) for row in rows.collect()}
    assert {name for name in (key, value) if not all(f'"{name}":' in text for _, text in sent)} == set()
    assert sum('"C"' in text for text, _ in sent) == 3


def test_an_offset_without_room_names_the_columns(spark: SparkSession) -> None:
    names = NAMES["marks"]
    rows = [("A", EPOCH, 1, 0, 1 << 50)]
    frame = spark.createDataFrame(rows, "a string, b timestamp, c long, d int, e long").toDF(*names)
    with pytest.raises(PySparkException) as caught:
        stream(frame, names).group_by_key().count().to_df().collect()
    assert "a record has 100%` = 0 and o.f = 1125899906842624" in str(caught.value)
    assert 'Use df.withColumn("100%`", F.col("`100%```").cast("long"))' in str(caught.value)


# --- names that Spark cannot tell apart ----------------------------------------------------------------------------


@contextmanager
def case_sensitive(spark: SparkSession, value: str = "true") -> Iterator[None]:
    spark.conf.set(CASE_SENSITIVE, value)
    try:
        yield
    finally:
        spark.conf.set(CASE_SENSITIVE, "false")


def simple(frame: DataFrame, **more: Any) -> tg.KStream:
    return tg.stream(frame, **{"key": "k", "timestamp": "ts", "partition": "p", "offset": "o", **more})


def columns(spark: SparkSession, *more: str) -> DataFrame:
    """Two records with these columns besides; a query, because it has types that Python lacks."""
    given = ["'A' k", "timestamp'2026-01-01' ts", "id v", "0 p", "id o", *more]
    return spark.sql(f"select {', '.join(given)} from range(2)")


def test_names_that_differ_by_case_alone(spark: SparkSession) -> None:
    with pytest.raises(tg.DefinitionError) as caught:
        simple(columns(spark, "2 V"))
    assert str(caught.value) == (
        "The DataFrame has the columns 'v' and 'V', whose names differ by case alone: Spark takes them for one. Rename "
        'one of them, or set spark.conf.set("spark.sql.caseSensitive", "true").'
    )
    with pytest.raises(tg.DefinitionError, match=r"The DataFrame has two columns 'v'\. Rename or drop one of them"):
        simple(columns(spark, "2 v"))
    grouped = simple(columns(spark)).group_by_key()
    for table in (grouped.agg(n=tg.count(), N=tg.sum("v")), grouped.count("K"), grouped.count("Timestamp")):
        with pytest.raises(tg.DefinitionError, match=r"A row of the result has the columns '\w+' and '\w+', whose nam"):
            table.to_df()
    with pytest.raises(tg.DefinitionError, match=r"A record behind the steps has the columns 'k' and 'K'"):
        simple(columns(spark)).map_values({"K": "v"}).to_df()
    with case_sensitive(spark, "True"):  # as Spark takes it from a command line
        assert simple(columns(spark, "2 V"))
    with case_sensitive(spark):
        both = simple(columns(spark, "2 V"))
        (row,) = both.group_by_key().agg(v=tg.sum("v"), V=tg.sum("V"), K=tg.count()).to_df().collect()
        assert (row["k"], row["v"], row["V"], row["K"]) == ("A", 1, 4, 2)
        assert [row["V"] - row["v"] for row in both.filter(lambda row: row["V"] > 0).to_df().collect()] == [2, 1]


def test_fields_of_structs_that_differ_by_case_alone(spark: SparkSession) -> None:
    """Spark finds two fields of such a name."""
    inner = "array(named_struct('A', o, 'a', timestamp'2026-01-03'))"
    times = simple(columns(spark, f"named_struct('a', o, 'A', timestamp'2026-01-02', 'l', {inner}) s"))
    (row,) = times.group_by_key().agg(s=tg.last("s")).to_df().select("s").collect()
    assert tuple(row["s"]) == (1, datetime(2026, 1, 2), [(1, datetime(2026, 1, 3))])  # noqa: DTZ001 - as Spark shows it


def test_quoted_names_that_spark_takes_for_patterns(spark: SparkSession) -> None:
    name = "spark.sql.parser.quotedRegexColumnNames"
    counted = simple(columns(spark)).group_by_key().windowed_by(MINUTES).count()
    spark.conf.set(name, "true")
    try:
        with pytest.raises(tg.TidegateError, match=f"^{name} is true: Spark takes quoted names for patterns"):
            counted.to_df()
    finally:
        spark.conf.unset(name)
    assert counted.to_df().collect()


def test_names_that_differ_by_case_alone_between_operators(spark: SparkSession) -> None:
    """Spark's own error names a column of the kernel, and no remedy."""
    rows = simple(columns(spark)).group_by_key().agg(n=tg.count(), N=tg.sum("v"))
    other = simple(columns(spark).withColumnRenamed("v", "V"), name="other", stream_time="max")
    joined = simple(columns(spark), stream_time="max").join(
        other, tg.JoinWindows.of_time_difference_with_no_grace("1 second")
    )
    for table in (
        rows.to_stream().group_by("n").aggregate(str, lambda k, row, a: a, type="string"),
        rows.group_by("n").aggregate(str, lambda k, row, a: a, lambda k, row, a: a, type="string"),
        joined.group_by_key().agg(x=tg.sum("v"), y=tg.sum("V")),
    ):
        with pytest.raises(
            tg.DefinitionError, match=r"^A row that the operator of '.*' emits has the columns '.' and '.', whose"
        ):
            table.to_df()
    with case_sensitive(spark):
        assert len(joined.group_by_key().agg(x=tg.sum("v"), y=tg.sum("V")).to_df().collect()) == 1
    # Columns that the next operator does not read may have any name.
    assert len(rows.to_stream().group_by("n").count().to_df().collect()) == 1


def test_merged_streams_have_columns_of_one_type(spark: SparkSession) -> None:
    """A union would cast one of them: with Spark's ANSI mode it fails at a row, without it the row has a null."""
    one, other = simple(columns(spark, "1 x"), name="one"), simple(columns(spark, "'a' x"), name="other")
    for merged in (one.merge(other), one.filter(pc.field("v") >= 0).merge(other.filter(lambda row: True))):
        with pytest.raises(tg.DefinitionError) as caught:
            merged.to_df()
        assert str(caught.value) == "merge: the column 'x' is int in 'one' and string in 'other'. Cast one of them."
    wider = one.merge(simple(columns(spark, "2L x"), name="wider"), simple(columns(spark, "null x"), name="void"))
    assert sorted(map(str, (row["x"] for row in wider.to_df().collect()))) == ["1", "1", "2", "2", "None", "None"]


def test_declared_columns_that_differ_by_case_alone(spark: SparkSession) -> None:
    """Spark's own error of an ambiguous reference names neither the columns nor the remedy."""
    given = {"k": pa.string(), "ts": pa.timestamp("us", "UTC"), "v": pa.int64(), "p": pa.int32(), "o": pa.int64()}
    schema = pa.schema(given)
    for declared in (schema, pa.schema({**given, "V": pa.int32()})):
        with pytest.raises(tg.DefinitionError, match=r"^The DataFrame has the columns 'v' and 'V', whose names differ"):
            simple(columns(spark, "2 V"), schema=declared)
    with pytest.raises(tg.DefinitionError, match=r"^The DataFrame has two columns 'v'\. Rename or drop one of them"):
        simple(columns(spark, "id v"), schema=schema)
    assert simple(columns(spark, "1 x", "2 X"), schema=schema), "columns that are not declared may have any names"
    with case_sensitive(spark):
        assert simple(columns(spark, "2 V"), schema=schema)


def test_a_column_that_begins_as_ours_do(spark: SparkSession) -> None:
    with pytest.raises(tg.DefinitionError, match=r"A column of the DataFrame is called 'tidegate:start': names that"):
        simple(columns(spark, "1 `tidegate:start`"))


def test_two_streams_in_one_query_have_names_of_their_own(spark: SparkSession) -> None:
    """Only Spark sees the whole query; docs/semantics.md explains its error."""

    def counted(**more: Any) -> DataFrame:
        return simple(columns(spark, "1 x"), **more).group_by_key().count().to_df()

    with pytest.raises(AnalysisException, match="DUPLICATED_METRICS_NAME"):
        counted().union(counted()).collect()
    assert len(counted(name="clicks").union(counted(name="views")).collect()) == 2


# --- types ---------------------------------------------------------------------------------------------------------

REFUSED = [
    ("parse_json('[1]')", "variant", 'F.to_json("x y")'),
    ("interval '1' month", "interval month", 'F.col("x y").cast("interval month").cast("int")'),
    ("interval '1-2' year to month", "interval year to month", 'F.col("x y").cast("interval month").cast("int")'),
    ("make_interval(1)", "interval", 'F.col("x y").cast("string")'),
    ("'a' collate UTF8_LCASE", "string collate UTF8_LCASE", 'F.collate("x y", "UTF8_BINARY")'),
]


@pytest.mark.parametrize(("value", "kind", "cast"), REFUSED, ids=[kind for _, kind, _ in REFUSED])
def test_a_type_that_is_not_carried_and_the_cast_to_write(
    spark: SparkSession, value: str, kind: str, cast: str
) -> None:
    frame = columns(spark, f"{value} `x y`")
    reads: list[Callable[[DataFrame], DataFrame]] = [
        lambda df: simple(df).group_by_key().agg(x=tg.last("x y")).to_df(),
        lambda df: simple(df, key="x y").group_by_key().count().to_df(),
        lambda df: simple(df).filter(lambda row: True).to_df(),
        lambda df: simple(df).filter(lambda row: True).group_by_key().count().to_df(),
        lambda df: tg.table(df, key="k", timestamp="ts").to_df(),
    ]
    for read in reads:
        with pytest.raises(tg.DefinitionError) as caught:
            read(frame)
        assert str(caught.value).startswith(f"The column 'x y' is {kind}, which an operator does not carry: ")
        assert f'Use df.withColumn("x y", {cast}), or drop the column if nothing needs it.' in str(caught.value)
        # The code that the message recommends is accepted.
        assert read(eval(f'df.withColumn("x y", {cast})', {"df": frame, "F": F}))
    # Columns that are not read may have any type.
    assert [row["count"] for row in simple(frame).group_by_key().count().to_df().collect()] == [2]


@pytest.mark.parametrize("kind", ["char(3)", "varchar(3)"])
def test_a_text_of_a_length_that_spark_keeps_and_the_cast_to_write(spark: SparkSession, kind: str) -> None:
    kept = "spark.sql.preserveCharVarcharTypeInfo"
    spark.conf.set(kept, "true")
    try:
        frame = columns(spark, f"cast('abc' as {kind}) x")
        if frame.schema["x"].dataType.simpleString() != kind:
            pytest.skip("this Spark makes strings of such columns")
        with pytest.raises(
            tg.DefinitionError, match=r"is (var)?char\(3\), which an operator does not carry: Arrow has no"
        ):
            simple(frame).group_by_key().agg(x=tg.last("x")).to_df()
        cast = frame.withColumn("x", F.col("x").cast("string"))  # the code that the message recommends
        assert [row["x"] for row in simple(cast).group_by_key().agg(x=tg.last("x")).to_df().collect()] == ["abc"]
    finally:
        spark.conf.unset(kept)


def test_a_type_that_is_not_carried_inside_another(spark: SparkSession) -> None:
    frame = columns(spark, "array(struct(parse_json('1') as a)) x")
    with pytest.raises(tg.DefinitionError) as caught:
        simple(frame).group_by_key().agg(x=tg.last("x")).to_df()
    assert str(caught.value) == (
        "The column 'x' is array<struct<a:variant>>, and an operator does not carry the variant in it. Cast it, for "
        'example by F.to_json("x"), or drop the column if nothing needs it.'
    )


@pytest.mark.parametrize("role", ["key", "value", "step"])
def test_a_type_that_users_define_and_the_cast_to_write(spark: SparkSession, role: str) -> None:
    types = {"k": StringType(), "ts": TimestampType(), "v": ExamplePointUDT(), "p": LongType(), "o": LongType()}
    frame = spark.createDataFrame([], StructType([StructField(name, kind) for name, kind in types.items()]))

    def read(frame: DataFrame) -> DataFrame:
        if role == "step":
            return simple(frame).filter(lambda row: True).to_df()
        return simple(frame, key="v" if role == "key" else "k").group_by_key().agg(x=tg.last("v")).to_df()

    with pytest.raises(tg.DefinitionError) as caught:
        read(frame)
    assert str(caught.value) == (
        "The column 'v' is udt, which an operator does not carry: its rows would have the type beneath it. Use "
        'df.withColumn("v", F.to_json(F.struct("v"))), or drop the column if nothing needs it.'
    )
    assert read(frame.withColumn("v", F.to_json(F.struct("v")))).collect() == []


PARTITIONS = {
    "X'AB'": ("binary", 'F.hex("x.p")'),
    "1.5": ("decimal(2,1)", 'F.col("`x.p`").cast("string")'),
    "date'2026-01-01'": ("date", 'F.col("`x.p`").cast("string")'),
    "timestamp'2026-01-01'": ("timestamp", 'F.col("`x.p`").cast("string")'),
    "array(1)": ("array<int>", 'F.to_json("`x.p`")'),
    "struct(1 as a)": ("struct<a:int>", 'F.to_json("`x.p`")'),
}


@pytest.mark.parametrize(("value", "kind", "cast"), [(v, *told) for v, told in PARTITIONS.items()], ids=PARTITIONS)
def test_a_partition_that_is_no_number_or_text_and_the_cast_to_write(
    spark: SparkSession, value: str, kind: str, cast: str
) -> None:
    cast = cast.replace('F.hex("x.p")', 'F.hex("`x.p`")')
    frame = columns(spark, f"{value} `x.p`")
    with pytest.raises(tg.DefinitionError) as caught:
        simple(frame, partition="x.p")
    assert str(caught.value) == (
        f"The partition column 'x.p' is {kind}, not an integer or a string: it names the part of the source that a "
        f'record is of. Use df.withColumn("x.p", {cast}).'
    )
    assert simple(eval(f'df.withColumn("x.p", {cast})', {"df": frame, "F": F}), partition="x.p")


def test_void_columns_and_intervals_of_days_are_carried(spark: SparkSession) -> None:
    frame = columns(spark, "null n", "interval '1' hour * id i", "interval '2' hour h")
    (row,) = simple(frame).group_by_key().agg(n=tg.last("n"), i=tg.max("i"), c=tg.count()).to_df().collect()
    assert (row["n"], row["i"], row["c"]) == (None, timedelta(hours=1), 2)
    stepped = simple(frame).filter(lambda row: row["n"] is None).to_df()
    assert [(row["i"], row["h"]) for row in stepped.collect()] == [
        (timedelta(0), timedelta(hours=2)),
        (timedelta(hours=1), timedelta(hours=2)),
    ]
    # Arrow has one type for intervals of days, of hours, and so on.
    kinds = {frame.schema["h"].dataType.simpleString(), stepped.schema["h"].dataType.simpleString()}
    assert kinds == {"interval hour", "interval day to second"}
    rows = tg.table(frame, key="k", timestamp="ts", deleted="n").to_df().collect()
    assert [(row["v"], row["deleted"]) for row in rows] == [(0, False), (1, False)]


def test_empty_collections_of_no_type_are_carried(spark: SparkSession) -> None:
    """As `F.array()` makes them: Spark says that none of their values is null, and Arrow's type null is."""
    frame = columns(spark, "array() a", "array(array()) aa", "map('x', array()) m", "struct(array() as i) s")
    wanted = {"a": [], "aa": [[]], "m": {"x": []}, "s": Row(i=[])}
    made = simple(frame).group_by_key().agg(**{name: tg.last(name) for name in wanted}).to_df()
    (row,) = made.collect()
    assert {name: row[name] for name in wanted} == wanted
    assert made.schema["a"].dataType.simpleString() == "array<void>"
    stepped = simple(frame).filter(lambda row: row["a"] == [] and row["s"] == {"i": []}).to_df().collect()
    assert [{name: row[name] for name in wanted} for row in stepped] == [wanted, wanted]
    assert len(tg.table(frame, key="v", timestamp="ts").to_df().collect()) == 2


def test_a_map_whose_keys_have_no_type_and_the_cast_to_write(spark: SparkSession) -> None:
    frame = columns(spark, "map() m")
    with pytest.raises(tg.DefinitionError) as caught:
        simple(frame).filter(lambda row: True).to_df()
    assert str(caught.value) == (
        "The column 'm' is map<void,void>, and an operator does not carry the void in it. Cast it, for example by "
        'F.to_json("m"), or drop the column if nothing needs it.'
    )
    assert len(simple(frame.withColumn("m", F.to_json("m"))).filter(lambda row: True).to_df().collect()) == 2


def test_null_structs_whose_fields_are_never_null_are_carried(spark: SparkSession) -> None:
    """As `from_avro` makes them of records that may be missing."""
    struct = "if(id = 1, null, struct(id a, timestamp_seconds(id) t)) x"
    frame = columns(spark, struct, "array(if(id = 1, null, struct(id a))) xs")
    assert not any(field.nullable for field in frame.schema["x"].dataType)
    (row,) = simple(frame).group_by_key().agg(x=tg.first("x"), y=tg.last("x"), xs=tg.last("xs")).to_df().collect()
    assert (row["x"].a, row["y"], row["xs"]) == (0, None, [None])
    assert [row["x"] is None for row in simple(frame).filter(lambda row: True).to_df().collect()] == [False, True]
    table = tg.table(frame, key="v", timestamp="ts").map_values({"x": "x"})
    joined = table.outer_join(tg.table(frame.drop("x"), key="v", timestamp="ts", name="other"))
    assert {row["v"]: row["x"] is None for row in joined.to_df().collect()} == {0: False, 1: True}


NEVER_NULL = "split('x y', ' ') tags", "named_struct('a', 1L, 't', timestamp_seconds(1)) s", "map('m', array(1L)) m"
PERHAPS_NULL = (
    "from_json('[\"z\", null]', 'array<string>') tags",
    "from_json('{}', 'a long, t timestamp') s",
    "from_json('{\"n\": null}', 'map<string, array<long>>') m",
)


@pytest.mark.parametrize("turned", [False, True])
def test_merged_streams_whose_types_differ_in_what_may_be_null(spark: SparkSession, turned: bool) -> None:
    one, other = (columns(spark, *made).where(f"v = {v}") for v, made in enumerate((NEVER_NULL, PERHAPS_NULL)))
    assert one.schema["tags"].dataType != other.schema["tags"].dataType
    streams = [simple(one, name="one"), simple(other.select(*reversed(other.columns)), name="other")]
    left, right = reversed(streams) if turned else streams
    merged = left.merge(right).group_by("v")
    wanted = {
        0: (["x", "y"], Row(a=1, t=datetime(1970, 1, 1, 0, 0, 1)), {"m": [1]}),  # noqa: DTZ001 - as Spark gives it
        1: (["z", None], Row(a=None, t=None), {"n": None}),
    }
    rows = merged.agg(tags=tg.last("tags"), s=tg.last("s"), m=tg.last("m")).to_df().collect()
    assert {row["v"]: (row["tags"], row["s"], row["m"]) for row in rows} == wanted
    counted = merged.aggregate(int, lambda k, row, n: n + len(row["tags"]), type="long", name="n")
    assert {row["v"]: row["n"] for row in counted.to_df().collect()} == {0: 2, 1: 2}
    table = tg.table(one, key="v", timestamp="ts", name="table").map_values({"w": "k"})
    looked_up = simple(one, key="v", name="looked_up").map_values({"tags": "tags", "s": "s"}).join(table)
    with_rows = looked_up.merge(simple(other, key="v", name="other")).group_by_key().agg(tags=tg.last("tags"))
    assert {row["v"]: row["tags"] for row in with_rows.to_df().collect()} == {
        v: tags for v, (tags, *_) in wanted.items()
    }


def test_outputs_whose_types_differ_in_what_may_be_null(spark: SparkSession) -> None:
    table = simple(columns(spark, "split('x y', ' ') tags")).group_by("v").agg(tags=tg.last("tags"))
    declared = table.map_values({"tags": lambda row: [None]}, types={"tags": "array<string>"})
    rows = tg.to_df(table=table, declared=declared).where("v = 1").collect()
    assert {row["output"]: row["tags"] for row in rows} == {"table": ["x", "y"], "declared": [None]}


@pytest.mark.parametrize("argument", ["missing", "text"])
def test_deletions_that_are_no_booleans(spark: SparkSession, argument: str) -> None:
    with pytest.raises(tg.DefinitionError, match=r"`deleted` is '(missing', but the Data|text', a column of string)"):
        tg.table(columns(spark, "'false' text"), key="k", timestamp="ts", deleted=argument)


# Types of Arrow that Spark reads as another one, with a value of each.
READ_AS_OTHERS = {
    "second": (pa.timestamp("s", "UTC"), datetime(2026, 7, 1, 2, 30, 1, tzinfo=UTC)),
    "milli": (pa.timestamp("ms"), datetime(2026, 7, 1, 2, 30, 1, tzinfo=UTC).replace(tzinfo=None)),
    "nano": (pa.timestamp("ns", "UTC"), datetime(2026, 7, 1, 2, 30, 1, tzinfo=UTC)),
    "text": (pa.large_string(), "zürich"),
    "binary": (pa.large_binary(), b"\xff"),
    "fixed": (pa.binary(2), b"ab"),
    "took": (pa.duration("s"), timedelta(hours=1)),
    "coded": (pa.dictionary(pa.int32(), pa.string()), "a"),
    "some": (pa.list_(pa.timestamp("ms", "UTC"), 1), [datetime(2026, 7, 1, tzinfo=UTC)]),
    "parts": (pa.struct({"took": pa.duration("ms"), "text": pa.large_string()}), {"took": timedelta(1), "text": "b"}),
    "pairs": (pa.map_(pa.large_string(), pa.timestamp("s", "UTC")), [("c", datetime(2026, 7, 1, tzinfo=UTC))]),
}
UNKNOWN = [pa.uint8(), pa.uint64(), pa.float16(), pa.date64(), pa.decimal256(40, 2), pa.list_(pa.uint16())]


def test_types_that_spark_reads_as_others_leave_steps_and_operators(spark: SparkSession) -> None:
    def giving(value: Any) -> Any:
        return lambda row: value

    values = {name: giving(value) for name, (_, value) in READ_AS_OTHERS.items()}
    types = {name: kind for name, (kind, _) in READ_AS_OTHERS.items()}
    wanted = {name: value for name, (_, value) in READ_AS_OTHERS.items()}
    steps = simple(columns(spark)).map_values(values, types=types)
    alone = steps.to_df().toArrow().to_pylist()
    assert [{name: row[name] for name in wanted} for row in alone] == [wanted, wanted]
    (last,) = steps.group_by_key().agg(**{name: tg.last(name) for name in wanted}).to_df().toArrow().to_pylist()
    assert {name: last[name] for name in wanted} == wanted


def test_times_without_a_zone_have_none_with_any_pyspark(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    """To pyspark before 4.2 they are instants, unless it is told."""
    for name in ("from_arrow_schema", "from_arrow_type"):
        monkeypatch.setattr(getattr(types, name), "__defaults__", (False,))
    clock = "timestamp_ntz'2026-07-01 02:30:01'"
    frame = columns(spark, f"{clock} at", f"map('a', {clock}) m", f"array({clock}) l")
    names = ["at", "m", "l"]
    stream = simple(frame).map_values({name: name for name in names})
    declared = pa.schema({"k": pa.string(), "ts": pa.timestamp("us", "UTC"), "at": pa.timestamp("us")})
    others = tg.stream(frame, key="k", timestamp="ts", schema=declared).filter(lambda row: True)
    for made in (stream, stream.group_by_key().agg(**{name: tg.last(name) for name in names}), others):
        out = made.to_df()
        found = out.select([name for name in names if name in out.columns])
        assert dict(found.dtypes).items() <= dict(frame.dtypes).items()
        assert found.first() == frame.select(found.columns).first()


def test_text_of_static_frames_where_spark_has_large_types(spark: SparkSession) -> None:
    spark.conf.set("spark.sql.execution.arrow.useLargeVarTypes", "true")
    try:
        keyed = simple(columns(spark, "array('ü', null) t")).filter(pc.field("k") == "A").group_by_key()
        (row,) = keyed.agg(t=tg.last("t"), n=tg.count()).to_df().collect()
    finally:
        spark.conf.unset("spark.sql.execution.arrow.useLargeVarTypes")
    assert (row["k"], row["t"], row["n"]) == ("A", ["ü", None], 2)


@pytest.mark.parametrize("kind", UNKNOWN, ids=str)
def test_types_that_spark_lacks(spark: SparkSession, kind: pa.DataType) -> None:
    frame = columns(spark)
    steps = simple(frame).map_values({"x": lambda row: None}, types={"x": kind})
    lacks = re.escape(f"a column 'x' of type {kind}, and Spark has no such type.")
    with pytest.raises(tg.DefinitionError, match=f"^A record behind the steps has {lacks} Let the step give another"):
        steps.to_df()
    with pytest.raises(tg.DefinitionError, match=f"^A row of the result has {lacks} Let the step or function give an"):
        steps.group_by_key().agg(x=tg.last("x")).to_df()
    declared = pa.schema({"k": pa.string(), "ts": pa.timestamp("us", "UTC"), "x": kind})
    with pytest.raises(tg.DefinitionError, match=f"^`schema` has {lacks} Use a type that Spark has, and cast the col"):
        tg.stream(frame.withColumn("x", F.lit(1)), key="k", timestamp="ts", schema=declared)


def test_a_predicate_that_gives_an_array(spark: SparkSession) -> None:
    def of_columns(row: dict[str, Any]) -> Any:
        return pa.array([row["v"], 1])

    for made in (simple(columns(spark)).filter(of_columns), simple(columns(spark)).filter(of_columns).group_by_key()):
        rows = made if isinstance(made, tg.KStream) else made.count()
        with pytest.raises(PySparkException, match="which is neither true nor false: the function is given one row"):
            rows.to_df().collect()


# --- instants beyond what a double holds ---------------------------------------------------------------------------

LAST_MS = (2**63 - 1) // 1000
"""The last millisecond of Spark's timestamps."""


@pytest.mark.parametrize("how", first(1, ["grace", "limit"]))
def test_the_last_instant_and_endless_durations(spark: SparkSession, tmp_path: Path, how: str) -> None:
    def topology(frame: DataFrame) -> DataFrame:
        # Integers in the file, because Python's datetime ends before Spark's timestamps.
        timed = frame.withColumn("ts", F.timestamp_millis("ms")).drop("ms")
        if how == "grace":
            windows = tg.TimeWindows.of_size_and_grace("1 minute", timedelta.max)
            return simple(timed).group_by_key().windowed_by(windows).count().suppress(FINAL).to_df()
        limit = tg.Suppressed.until_time_limit(timedelta.max, tg.BufferConfig.unbounded(), clock="stream")
        table = tg.table(timed, key="k", timestamp="ts", partition="p", offset="o", name="stream")
        return table.suppress(limit).to_df()

    schema = pa.schema({"k": pa.string(), "ms": pa.int64(), "v": pa.int64(), "p": pa.int32(), "o": pa.int64()})
    times = (5, 2**53 + 1 - 2**53 // 2, LAST_MS - 2, LAST_MS)
    batches = [[{"k": "A", "ms": ms, "v": 1, "p": 0, "o": n}] for n, ms in enumerate(times)]
    done = Replay(spark, tmp_path, schema, topology).run(batches)
    assert done.rows == [[], [], [], []]
    assert [batch["stream_time"] for batch in done.metrics] == list(times)
    assert [batch["late"] for batch in done.metrics] == [0] * 4
    forever = timedelta.max // timedelta(milliseconds=1)
    told, wanted = ("next_close", forever + 60_000) if how == "grace" else ("next_due_stream", forever + 5)
    assert [batch[told] for batch in done.metrics] == [wanted] * 4


# --- values that Python does not have --------------------------------------------------------------------------------

BEYOND_PYTHON = {
    "text": "cast(unhex('FF61') as string)",
    "day": "date_from_unix_date(2147483647)",
    "first": "date_from_unix_date(-2147483648)",
    "at": f"timestamp_millis({LAST_MS})",
    "by_name": f"map('a', timestamp_millis({LAST_MS}))",
    "took": "make_dt_interval(106751991)",
}
SHOWN = (
    "hex(text) text",
    "unix_date(day) day",
    "unix_date(first) first",
    "unix_millis(at) at",
    "unix_millis(by_name['a']) a",
    "took",
)


def test_values_that_python_lacks_leave_a_streaming_operator(spark: SparkSession, tmp_path: Path) -> None:
    def topology(frame: DataFrame) -> DataFrame:
        odd = frame.select("*", *(F.expr(how).alias(name) for name, how in BEYOND_PYTHON.items()))
        last = simple(odd).group_by("k").agg(**{name: tg.last(name) for name in BEYOND_PYTHON})
        return last.to_df().selectExpr("k", *SHOWN)

    schema = pa.schema({"k": pa.string(), "ts": pa.timestamp("us", "UTC"), "p": pa.int32(), "o": pa.int64()})
    batches = [[{"k": "A", "ts": n, "p": 0, "o": n}] for n in range(2)]
    row = {"k": "A", "text": "FF61", "day": 2**31 - 1, "first": -(2**31), "at": LAST_MS, "a": LAST_MS}
    wanted = [row | {"took": timedelta(days=106751991)}]
    replay = Replay(spark, tmp_path, schema, topology)
    assert [replay.run([batch]).rows for batch in batches] == [[wanted], [wanted]]
