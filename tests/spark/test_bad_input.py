"""Bad input on real Spark: an error that names a remedy, or a count, and never a half-taken batch."""

from __future__ import annotations

import math
import re
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from threading import Lock
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

import tidegate as tg
from tidegate.testing import TopologyTestDriver

pytest.importorskip("pyspark")

from pyspark.errors import PySparkException, StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from spark.replay import Replay, collect, schema_of, with_offsets
from tidegate.runtime.spark.session import config, installed

pytestmark = pytest.mark.spark

MINUTE = 60_000
WINDOWS = tg.TimeWindows.of_size_and_grace("1 minute", "0 seconds")
SCHEMA = schema_of(user=pa.string(), amount=pa.int64())
FINAL = tg.Suppressed.until_window_closes(tg.BufferConfig.unbounded())

Topology = Callable[[DataFrame], DataFrame]


def stream(frame: Any, **arguments: Any) -> tg.KStream:
    named = {"key": "user", "timestamp": "ts", "partition": "partition", "offset": "offset"}
    return tg.stream(frame, **(named | arguments))


def windowed(frame: DataFrame, windows: tg.TimeWindows = WINDOWS, **arguments: Any) -> tg.TimeWindowedKStream:
    return stream(frame, **arguments).group_by_key().windowed_by(windows)


def counts(frame: DataFrame) -> DataFrame:
    return windowed(frame).count().suppress(FINAL).to_df()


def rows(*of: tuple[str | None, int | None]) -> list[dict[str, Any]]:
    return [{"user": user, "ts": ts, "amount": 1} for user, ts in of]


def short(replayed: list[list[dict[str, Any]]]) -> list[list[tuple[Any, ...]]]:
    return [sorted((row["user"], row["window"].start, row["count"]) for row in batch) for batch in replayed]


def refused(replay: Replay, topology: Topology, *batches: list[dict[str, Any]]) -> str:
    """The error of the query that stops on these batches; it must have emitted nothing."""
    for batch in batches:
        replay._write(batch)
    out: list[Any] = []
    query = (
        topology(replay._source())
        .writeStream.outputMode("update")
        .option("checkpointLocation", str(replay.path / "checkpoint"))
        .trigger(availableNow=True)
        .foreachBatch(lambda frame, _: out.extend(collect(frame)))
        .start()
    )
    with pytest.raises(StreamingQueryException) as caught:
        query.awaitTermination(120)
    query.stop()
    assert out == []
    return str(caught.value)


@contextmanager
def setting(spark: SparkSession, name: str, value: str) -> Iterator[None]:
    before = spark.conf.get(name)
    spark.conf.set(name, value)
    try:
        yield
    finally:
        spark.conf.set(name, before)


@pytest.fixture(scope="module")
def events(spark: SparkSession) -> DataFrame:
    text = "user string, ts timestamp, amount long, partition int, offset long, tags array<string>"
    return spark.createDataFrame([], text)


# --- when the stream is made ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("argument", ["key", "timestamp", "partition", "offset"])
def test_a_column_that_does_not_exist(events: DataFrame, argument: str) -> None:
    with pytest.raises(tg.DefinitionError) as caught:
        stream(events, **{argument: "usr"})
    assert str(caught.value) == (
        f"`{argument}` is 'usr', but the DataFrame has no such column. "
        "Its columns are user, ts, amount, partition, offset, tags."
    )


def test_a_column_to_group_by_or_to_aggregate_that_does_not_exist(events: DataFrame) -> None:
    with pytest.raises(tg.DefinitionError, match=r"`key` is 'shop', but the DataFrame has no such column\. Its col"):
        stream(events).group_by("shop")
    makes: list[Callable[[tg.TimeWindowedKStream], tg.KTable]] = [
        lambda table: table.agg(total=tg.sum("amuont")),
        lambda table: table.reduce(max, "amuont", "total"),
    ]
    for make in makes:
        with pytest.raises(tg.DefinitionError) as caught:
            make(windowed(events))
        assert str(caught.value) == (
            "`total` reads the column 'amuont', which the stream does not have. "
            "Its columns are user, ts, amount, partition, offset, tags."
        )


@pytest.mark.parametrize(
    ("kind", "cast", "more"),
    [
        ("string", 'df.withColumn("ts", F.to_timestamp_ltz("ts"))', ""),
        (
            "timestamp_ntz",
            'df.withColumn("ts", F.col("ts").cast("timestamp_ltz"))',
            ", read in the time zone of the session",
        ),
        ("bigint", 'df.withColumn("ts", F.timestamp_millis("ts"))', " if it holds epoch milliseconds"),
        ("date", 'df.withColumn("ts", F.col("ts").cast("timestamp_ltz"))', ""),
    ],
)
def test_a_timestamp_that_is_none_and_the_cast_to_write(spark: SparkSession, kind: str, cast: str, more: str) -> None:
    frame = spark.createDataFrame([], f"user string, ts {kind}")
    with pytest.raises(tg.DefinitionError) as caught:
        tg.stream(frame, key="user", timestamp="ts")
    assert str(caught.value) == f"The timestamp column 'ts' is {kind}, not a timestamp. Use {cast}{more}."
    # The code that the message recommends is accepted, whatever a timestamp is for the session.
    for default in ("TIMESTAMP_LTZ", "TIMESTAMP_NTZ"):
        with setting(spark, "spark.sql.timestampType", default):
            assert tg.stream(eval(cast, {"df": frame, "F": F}), key="user", timestamp="ts")


@pytest.mark.parametrize("name", ["window", "timestamp", "deleted", "output"])
def test_reserved_column_names_and_the_rename_to_write(spark: SparkSession, name: str) -> None:
    frame = spark.createDataFrame([], f"user string, ts timestamp, {name} string")
    with pytest.raises(tg.DefinitionError) as caught:
        tg.stream(frame, key="user", timestamp="ts")
    assert str(caught.value) == (
        f"The DataFrame has a column {name!r}, a name that rows of a result use themselves "
        f'(window, timestamp, deleted, output). Rename it first: df.withColumnRenamed("{name}", "{name}_in").'
    )
    assert tg.stream(frame.withColumnRenamed(name, f"{name}_in"), key="user", timestamp="ts")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            {"key": "tags"},
            "The key column 'tags' is array<string>: a key must be of an atomic type. Give its parts as ",
        ),
        (
            {"partition": "ts"},
            "The partition column 'ts' is timestamp, not an integer or a string: it names the part of the source that ",
        ),
        ({"offset": "user"}, "The offset column 'user' is string: offsets are whole numbers that say in which order "),
    ],
)
def test_columns_of_types_that_cannot_serve(events: DataFrame, arguments: dict[str, str], message: str) -> None:
    with pytest.raises(tg.DefinitionError) as caught:
        stream(events, **arguments)
    assert str(caught.value).startswith(message)


def test_rows_that_are_grouped_by_a_list_are_refused_when_the_plan_is_made(events: DataFrame) -> None:
    rows = tg.stream(events, key="user", timestamp="ts").group_by_key().agg(users=tg.collect_list("user"))
    for grouped in (rows.group_by("users"), rows.to_stream().group_by("users")):
        with pytest.raises(tg.DefinitionError, match=r"^The key column 'users' is list<.*: a key must be of an atomic"):
            grouped.count().to_df()


def test_a_source_that_is_no_dataframe() -> None:
    with pytest.raises(tg.DefinitionTypeError, match=r"`source` is \[\] \(list\), not a Spark DataFrame\. Use one, or"):
        tg.stream([], key="user", timestamp="ts")


# --- when the plan becomes a DataFrame -----------------------------------------------------------------------------


@pytest.fixture(scope="module")
def source(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> DataFrame:
    return Replay(spark, tmp_path_factory.mktemp("source"), SCHEMA, counts)._source()


def warned(make: Callable[[], Any]) -> list[str]:
    """Our warnings; pyspark has its own about pandas."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        make()
    return [str(one.message) for one in caught if issubclass(one.category, tg.TidegateWarning)]


def test_a_state_store_that_cannot_hold_the_state(spark: SparkSession, source: DataFrame) -> None:
    memory = config.ROCKSDB.replace("RocksDBStateStoreProvider", "HDFSBackedStateStoreProvider")
    with setting(spark, config.PROVIDER, memory):
        with pytest.raises(tg.TidegateError) as caught:
            counts(source)
        assert str(caught.value) == (
            "the state store of this session is HDFSBackedStateStoreProvider, which cannot hold tidegate's state: "
            "Spark needs the RocksDB provider for it. Call `tg.configure(spark)` before the query is made, "
            f"or set {config.PROVIDER} to {config.ROCKSDB}."
        )
        tg.configure(spark)
        counts(source)


def test_a_static_frame_needs_no_state_store(spark: SparkSession, events: DataFrame) -> None:
    with setting(spark, config.PROVIDER, "NoSuchProvider"):
        counts(events)


def test_a_grace_that_a_static_frame_does_not_use(events: DataFrame) -> None:
    def of(grace: str, **order: str) -> Callable[[], DataFrame]:
        unordered = tg.stream(events, key="user", timestamp="ts", **order)
        windows = tg.TimeWindows.of_size_and_grace("1 minute", grace)
        return lambda: unordered.group_by_key().windowed_by(windows).count().to_df()

    [message] = warned(of("5 seconds"))
    assert message.startswith(
        "The grace of 5 seconds is not used: 'stream' is a static DataFrame without partition and"
    )
    assert message.endswith("for the results a stream would have, or windows without grace.")
    assert warned(of("0 seconds")) == []
    assert warned(of("5 seconds", partition="partition", offset="offset")) == []


def test_two_hundred_partitions_warn(spark: SparkSession, source: DataFrame, events: DataFrame) -> None:
    with setting(spark, config.PARTITIONS, "200"):
        assert warned(lambda: counts(source)) == [
            (
                "spark.sql.shuffle.partitions is 200, Spark's default: each is a task with a state store of its own in "
                "every batch. Set it near the number of cores before the query first runs; "
                "its checkpoint keeps the number."
            )
        ]
        counts(events)  # a static frame keeps no state: no warning, which would be an error here


@pytest.mark.parametrize("function", ["aggregator", "step"])
def test_functions_with_more_data_than_spark_hands_over(source: DataFrame, events: DataFrame, function: str) -> None:
    known = frozenset(range(400_000))

    def counted(frame: DataFrame) -> tg.KTable:
        if function == "step":
            return stream(frame).filter(lambda row: row["amount"] in known).group_by_key().count()
        return stream(frame).group_by_key().aggregate(int, lambda _, row, n: n + (row["amount"] in known), type="long")

    with pytest.raises(tg.DefinitionError) as caught:
        counted(source).to_df()
    assert re.fullmatch(
        r"The operator of 'stream' takes \d,\d{3},\d{3} bytes pickled, with its functions and the data that they refer "
        r"to, and Spark hands a stateful operator at most 1,048,576\. Let functions refer to less: join large data "
        r"with the records before tg\.stream, or import it from a module of the workers\. Or set "
        r'spark\.broadcast\.UDFCompressionThreshold to more before Spark starts, for example to "16m"\.',
        str(caught.value),
    )
    assert counted(events).to_df().collect() == []  # functions of static frames may be broadcasts


@pytest.mark.parametrize("value", ["a lock", "a frame"])
def test_functions_that_refer_to_what_cannot_be_pickled(source: DataFrame, events: DataFrame, value: str) -> None:
    given: Any = {"a lock": Lock(), "a frame": events}[value]

    def kept(frame: DataFrame) -> tg.KStream:
        return stream(frame).filter(lambda row: row["amount"] != given)

    plans: list[Callable[[DataFrame], Any]] = [kept, lambda frame: kept(frame).group_by_key().count()]
    for plan in plans:
        for frame in (source, events):
            with pytest.raises(tg.DefinitionError) as caught:
                plan(frame).to_df()
            assert re.match(r"A function of the plan over 'stream' refers to a value that cannot be", str(caught.value))


def test_a_stream_without_partition_and_offset_warns(source: DataFrame, events: DataFrame) -> None:
    def unordered(frame: DataFrame) -> DataFrame:
        grouped = tg.stream(frame, key="user", timestamp="ts", name="clicks").group_by_key()
        return grouped.windowed_by(WINDOWS).count().to_df()

    assert warned(lambda: unordered(source)) == [
        (
            "The stream 'clicks' has no partition and offset, so each micro-batch is taken in timestamp order: "
            "no record is late because of its own batch, and results depend on where batches are cut. Give "
            'partition="partition", offset="offset" for results that do not. Kafka\'s source has both; '
            "tg.files.source(..., ordered=True) and tg.files.ordered make both of files, tg.delta.source of a table "
            "(docs/order.md has each source)."
        )
    ]
    unordered(events)


# --- while it runs: counted ----------------------------------------------------------------------------------------


def test_records_without_key_or_usable_time_are_skipped_and_counted(spark: SparkSession, tmp_path: Path) -> None:
    bad = rows(("A", 0), (None, 5 * MINUTE), ("A", None), ("A", -1), (None, None), ("A", 1), ("B", MINUTE), ("A", 2))
    done = Replay(spark, tmp_path, SCHEMA, counts).run(with_offsets([bad, rows(("B", 2 * MINUTE))]))
    # The null key at five minutes has not moved stream time: A@1 came in time, A@2 came after minute one.
    assert short(done.rows) == [[("A", 0, 2)], [("B", MINUTE, 1)]]
    first, second = done.metrics
    shown = ("records", "bad_timestamp", "null_key", "null_value", "late", "emitted", "stream_time")
    assert [first[name] for name in shown] == [4, 3, 1, 0, 1, 1, MINUTE]
    assert [second[name] for name in shown] == [1, 0, 0, 0, 0, 1, 2 * MINUTE]


# --- while it runs: stopped ----------------------------------------------------------------------------------------


def test_an_aggregator_that_raises_names_key_window_and_record(spark: SparkSession, tmp_path: Path) -> None:
    def divide(_: Any, row: dict[str, Any], total: int) -> int:
        return total + 10 // row["amount"]

    def mended(_: Any, row: dict[str, Any], total: int) -> int:
        return total + (10 // row["amount"] if row["amount"] else 0)

    def topology(aggregator: Any) -> Topology:
        def on(frame: DataFrame) -> DataFrame:
            return windowed(frame).aggregate(int, aggregator, type="long", name="total").suppress(FINAL).to_df()

        return on

    replay = Replay(spark, tmp_path, SCHEMA, topology(mended))
    good, poison, after = with_offsets(
        [
            rows(("A", 1)),
            [{"user": "A", "ts": 2, "amount": 5}, {"user": "B", "ts": 61_000, "amount": 0}],
            rows(("A", 121_000)),
        ]
    )
    replay.run([good])
    message = refused(replay, topology(divide), poison)
    assert "AggregationError" in message
    assert "raised ZeroDivisionError: " in message
    assert "for key 'B', window 60000 to 120000 ms, record {" in message
    assert "'amount': 0, 'ts': " in message
    assert "'partition': 0, 'offset': 2}" in message
    assert "Nothing of this batch was emitted or stored." in message
    # The corrected function goes on from the checkpoint: 10 from the first batch, 2 from the failed one.
    done = replay.run([after])
    assert [(row["user"], row["total"]) for batch in done.rows for row in batch] == [("A", 12), ("B", 0)]


@pytest.mark.parametrize(
    ("kind", "value", "fits"),
    [("long", 2**63 - 1, "int64"), ("decimal(38,0)", Decimal(10**38 - 1), "decimal")],
)
def test_an_overflow_names_key_and_window(spark: SparkSession, kind: str, value: Any, fits: str) -> None:
    data = [("A", datetime(1970, 1, 1, 0, 1, n, tzinfo=UTC), value, 0, n) for n in range(2)]
    frame = spark.createDataFrame(data, f"user string, ts timestamp, amount {kind}, partition int, offset long")
    with pytest.raises(PySparkException) as caught:
        windowed(frame).agg(total=tg.sum("amount")).suppress(FINAL).to_df().collect()
    message = str(caught.value)
    assert (
        "AggregationError: `total` = sum(amount) overflows for key {'user': 'A'}, window starting at 60000" in message
    )
    assert f"does not fit {fits}" in message
    assert "Cast the column to a wider type (double, or decimal(38, 0)) before tg.stream." in message


def test_a_full_strict_buffer_stops_and_a_larger_one_goes_on_without_loss(spark: SparkSession, tmp_path: Path) -> None:
    def bounded(most: int) -> Topology:
        def on(frame: DataFrame) -> DataFrame:
            buffer = tg.BufferConfig.max_records(most).shut_down_when_full()
            held = tg.Suppressed.until_window_closes(buffer).with_name("hold")
            return windowed(frame).count().suppress(held).to_df()

        return on

    first, full, after = with_offsets(
        [
            rows(("A", 0), ("B", 1)),
            # C makes three entries while A and B still wait; D would close them, but comes after C.
            rows(("A", 2), ("C", 3), ("D", 60_000)),
            rows(("D", 120_000)),
        ]
    )
    replay = Replay(spark, tmp_path, SCHEMA, bounded(2))
    assert short(replay.run([first]).rows) == [[]]
    message = refused(replay, bounded(2), full)
    assert "BufferFullError: hold buffer exceeded its max capacity. Currently [3/2] records and [" in message
    assert "/no bound] bytes. Nothing of this batch was emitted or stored. Restart from the same checkpoint" in message
    replay.topology = bounded(3)
    assert short(replay.run([after]).rows) == [[("A", 0, 2), ("B", 0, 1), ("C", 0, 1)], [("D", MINUTE, 1)]]


def test_another_plan_is_refused_and_the_old_one_goes_on(spark: SparkSession, tmp_path: Path) -> None:
    def other(frame: DataFrame) -> DataFrame:
        longer = tg.TimeWindows.of_size_and_grace("2 minutes", "5 seconds")
        return windowed(frame, longer).count("n").suppress(FINAL).to_df()

    first, second, after = with_offsets([rows(("A", 0)), rows(("A", 1)), rows(("A", 60_000))])
    replay = Replay(spark, tmp_path, SCHEMA, counts)
    replay.run([first])
    message = refused(replay, other, second)
    assert (
        "CheckpointError: The checkpoint was written by another plan (aggregation: 'count=count()' -> 'n=count()'; "
        "grace: '0 milliseconds' -> '5 seconds'; windows: 'TimeWindows of 1 minute' -> 'TimeWindows of 2 minutes'). "
        "Nothing was changed: the old plan can go on from it. Restart with the old plan, or give this one a new "
        "checkpointLocation, perhaps after the old one has let everything out (tg.drain)."
    ) in message
    assert short(replay.run([after]).rows) == [[], [("A", 0, 2)]]


def test_another_number_of_partitions_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    first, second, after = with_offsets([rows(("A", 0), ("B", 0), ("C", 0)), rows(("A", 1)), rows(("A", 60_000))])
    replay = Replay(spark, tmp_path, SCHEMA, counts)
    replay.run([first])
    with setting(spark, config.PARTITIONS, "3"):
        message = refused(replay, counts, second)
    assert (
        "CheckpointError: The checkpoint was written by 2 tasks and this query runs 3: keys would be looked for in the "
        "wrong one. Nothing was changed. Set spark.sql.shuffle.partitions to 2 and restart, or start with a new "
        "checkpoint."
    ) in message
    assert short(replay.run([after]).rows) == [[], [("A", 0, 2), ("B", 0, 1), ("C", 0, 1)]]


def test_a_null_offset_is_refused(spark: SparkSession) -> None:
    frame = spark.createDataFrame(
        [("A", datetime(1970, 1, 1, tzinfo=UTC), 0, None)], "user string, ts timestamp, partition int, offset long"
    )
    with pytest.raises(PySparkException, match="has no offset: the column 'offset' is null, and without it nobody can"):
        counts(frame).collect()


@pytest.mark.parametrize(("partition", "offset", "missing"), [(None, 0, "partition"), (0, None, "offset")])
def test_a_null_partition_or_offset_of_a_merged_stream_is_refused(
    spark: SparkSession, partition: int | None, offset: int | None, missing: str
) -> None:
    at, types = datetime(1970, 1, 1, tzinfo=UTC), "user string, ts timestamp, partition int, offset long"
    fine, bad = (spark.createDataFrame([("A", at, p, o)], types) for p, o in ((0, 0), (partition, offset)))
    merged = stream(fine, name="clicks").merge(stream(bad, name="views")).group_by_key().count()
    with pytest.raises(PySparkException, match=f"has no {missing}: the column '{missing}' is null, and without it"):
        merged.to_df().collect()


@pytest.mark.parametrize(
    ("partition", "offset", "refused"),
    [(-1, 0, True), (2**15 - 1, 2**48 - 1, False), (2**15, 0, True), (0, 2**48, True), (0, -1, True)],
)
def test_an_order_that_has_no_room_is_refused(spark: SparkSession, partition: int, offset: int, refused: bool) -> None:
    data = [("A", datetime(1970, 1, 1, tzinfo=UTC), partition, offset)]
    frame = spark.createDataFrame(data, "user string, ts timestamp, partition int, offset long")
    if refused:
        with pytest.raises(PySparkException, match=f"a record has partition = {partition} and offset = {offset}: as"):
            counts(frame).collect()
        # The remedy of the message.
        frame = frame.withColumn("partition", frame["partition"].cast("long"))
    assert [row["count"] for row in counts(frame).collect()] == [1]


# --- values of every type ------------------------------------------------------------------------------------------

NOON = datetime(2024, 7, 1, 12, 0, 0, 123_456, UTC)
KINDS = {
    "b": ("tinyint", pa.int8(), [-128, 127]),
    "s": ("smallint", pa.int16(), [-(2**15), 2**15 - 1]),
    "i": ("int", pa.int32(), [-(2**31), 2**31 - 1]),
    "l": ("bigint", pa.int64(), [-(2**63), 2**63 - 1]),
    "f": ("float", pa.float32(), [-1.5, math.inf]),
    "d": ("double", pa.float64(), [0.1, math.nan]),
    "m": ("decimal(38,10)", pa.decimal128(38, 10), [Decimal("-0.0000000001"), Decimal("9999999999999999.5")]),
    "t": ("string", pa.string(), ["", "zürich ☃"]),
    "ns": ("timestamp", pa.timestamp("us", "UTC"), [NOON, datetime(1900, 1, 1, tzinfo=UTC)]),
    "dt": ("date", pa.date32(), [date(2024, 2, 29), date(1, 1, 1)]),
    "o": ("boolean", pa.bool_(), [True, False]),
    "x": ("binary", pa.binary(), [b"", b"\x00\xff"]),
}
TYPED = pa.schema(
    [(name, kind) for name, (_, kind, _) in KINDS.items()]
    + [(f"v_{name}", kind) for name, (_, kind, _) in KINDS.items()]
    + [("ts", pa.timestamp("us", "UTC")), ("partition", pa.string()), ("offset", pa.int16())]
)


def _typed_rows() -> list[dict[str, Any]]:
    def row(n: int, at: datetime) -> dict[str, Any]:
        values = {name: of[n % 2] for name, (_, _, of) in KINDS.items()}
        return values | {f"v_{name}": value for name, value in values.items()} | {"ts": at, "offset": n}

    return [row(n, NOON.replace(microsecond=999_999)) | {"partition": "p"} for n in range(4)]


def same(one: Any, other: Any) -> bool:
    return one == other or (one != one and other != other)


def test_keys_and_values_of_every_type_come_back_as_they_were(spark: SparkSession) -> None:
    table = pa.Table.from_pylist(_typed_rows(), TYPED)
    with setting(spark, "spark.sql.session.timeZone", "America/New_York"):
        frame = spark.createDataFrame(table).repartition(2, "offset")
        kept = {f"last_{name}": tg.last(f"v_{name}") for name in KINDS}
        result = (
            tg.stream(frame, key=list(KINDS), timestamp="ts", partition="partition", offset="offset")
            .group_by_key()
            .windowed_by(WINDOWS)
            .agg(n=tg.count(), **kept)
            .suppress(FINAL)
            .to_df()
        )
        types = dict(result.dtypes)
        out = result.toArrow().to_pylist()
    assert {name: types[name] for name in KINDS} == {name: kind for name, (kind, _, _) in KINDS.items()}
    assert [row["n"] for row in out] == [2, 2]
    by_flag = {row["o"]: row for row in out}
    for n, flag in enumerate((True, False)):
        for name, (_, _, of) in KINDS.items():
            assert same(by_flag[flag][name], of[n]), name
            assert same(by_flag[flag][f"last_{name}"], of[n]), name
    # Instants do not depend on the session's time zone; the event time is the millisecond that contains the instant.
    assert {row["window"]["start"] for row in out} == {datetime(2024, 7, 1, 12, 0, tzinfo=UTC)}
    assert {row["timestamp"] for row in out} == {datetime(2024, 7, 1, 12, 0, 0, 999_000, UTC)}


def test_state_keeps_every_type_and_no_time_zone(spark: SparkSession, tmp_path: Path) -> None:
    """Keys match in the next batch, read in another time zone; -0.0 equals 0.0 and NaN equals NaN, as for Spark."""

    def topology(frame: DataFrame) -> DataFrame:
        keyed = stream(frame, key=list(KINDS)).group_by_key().windowed_by(WINDOWS)
        return keyed.agg(n=tg.count(), top=tg.max("v_ns")).to_df().select("o", "n", "top", "window", "timestamp")

    def batch(of: list[dict[str, Any]], zero: float) -> list[dict[str, Any]]:
        plain = [{name: value for name, value in row.items() if name not in ("ns", "v_ns", "ts")} for row in of]
        return [row | {"ts": MINUTE, "ns": 5, "v_ns": 7, "f": zero} for row in plain]

    typed = _typed_rows()
    replay = Replay(spark, tmp_path, TYPED, topology)
    first = replay.run([batch(typed[:2], 0.0)]).rows
    with setting(spark, "spark.sql.session.timeZone", "Asia/Kolkata"):
        second = replay.run([batch(typed[2:], -0.0)]).rows
    assert [sorted((row["o"], row["n"]) for row in rows) for rows in first + second] == [
        [(False, 1), (True, 1)],
        [(False, 2), (True, 2)],
    ]
    assert {row["window"].start for rows in first + second for row in rows} == {MINUTE}


def test_event_time_is_an_instant_in_any_session_time_zone(spark: SparkSession) -> None:
    # Half past two in New York on the day the clocks go forward: 06:59:59 and 07:00:00 UTC are one second apart.
    instants = [datetime(2024, 3, 10, 6, 59, 59, tzinfo=UTC), datetime(2024, 3, 10, 7, 0, tzinfo=UTC)]
    data = pa.table(
        {
            "user": ["A", "A"],
            "ts": pa.array(instants, pa.timestamp("us", "UTC")),
            "partition": pa.array([0, 0], pa.int32()),
            "offset": [0, 1],
        }
    )
    found = {}
    for zone in ("UTC", "America/New_York", "Asia/Kathmandu"):
        with setting(spark, "spark.sql.session.timeZone", zone):
            made = counts(spark.createDataFrame(data))
            found[zone] = sorted((row["window"].start, row["timestamp"], row["count"]) for row in collect(made))
    late = int(instants[1].timestamp() * 1000)
    assert found["UTC"] == [(late - MINUTE, late - 1000, 1), (late, late, 1)]
    assert found["America/New_York"] == found["UTC"] == found["Asia/Kathmandu"]


def _with_local_times(source: Any, **more: Any) -> tg.KStream:
    """Steps that read times: by functions, by an expression, and beside a constant in UTC."""
    new_year = pa.scalar(datetime(2026, 1, 1, tzinfo=UTC), pa.timestamp("us", "UTC"))
    mapped = stream(source, **more).map_values(
        {
            "text": lambda row: f"{row['at']} {row['nested'][0]['at']}",
            "hour": pc.hour(pc.field("at")),
            "later": pc.if_else(pc.field("at") > new_year, pc.field("at"), new_year),
        },
        types={"text": "string", "hour": "long"},
    )
    return mapped.select_key(lambda row: row["text"][:10], name="day", type="string")


@pytest.mark.parametrize("zone", ["America/New_York", "GMT+8"])
def test_steps_see_times_in_utc_in_any_session_time_zone(spark: SparkSession, zone: str) -> None:
    at = datetime(2026, 7, 1, 2, 30, tzinfo=UTC)
    instant = pa.timestamp("us", "UTC")
    types = pa.schema(
        {
            "user": pa.string(),
            "ts": instant,
            "at": instant,
            "nested": pa.list_(pa.struct({"at": instant})),
            "partition": pa.int32(),
            "offset": pa.int64(),
        }
    )
    record = {"user": "A", "ts": at, "at": at, "nested": [{"at": at}], "partition": 0, "offset": 0}
    driver = TopologyTestDriver(_with_local_times("events", schema=types))
    driver.pipe_input(record)
    (wanted,) = driver.read_output()
    assert wanted["text"] == "2026-07-01 02:30:00+00:00 2026-07-01 02:30:00+00:00"
    with setting(spark, "spark.sql.session.timeZone", zone):
        steps = _with_local_times(spark.createDataFrame(pa.Table.from_pylist([record], types)))
        (alone,) = steps.to_df().toArrow().to_pylist()
        last = {name: tg.last(name) for name in ("text", "hour", "later")}
        (counted,) = steps.group_by_key().agg(**last).to_df().toArrow().to_pylist()
    names = ("day", "text", "hour", "later")
    assert [{name: row[name] for name in names} for row in (alone, counted)] == [
        {name: wanted[name] for name in names}
    ] * 2


# --- the machine ---------------------------------------------------------------------------------------------------


def test_no_java(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(tg.TidegateError) as caught:
        tg.configure(SparkSession.builder)
    assert str(caught.value) == (
        f"no Java was found (JAVA_HOME is {str(tmp_path)!r}, no `java` on PATH): Spark needs Java 17 or later. "
        "Install one, for example `apt-get install openjdk-17-jre-headless`, and set JAVA_HOME to it."
    )
    monkeypatch.delenv("JAVA_HOME")
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(tg.TidegateError, match=r"no Java was found \(JAVA_HOME is None, no `java` on PATH\)"):
        tg.configure(SparkSession.builder)


@pytest.mark.parametrize(("release", "version"), [('JAVA_VERSION="1.8.0_392"\n', 8), ('JAVA_VERSION="11.0.21"\n', 11)])
def test_an_old_java(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, release: str, version: int) -> None:
    java = _java(tmp_path, "exit 1")
    (tmp_path / "release").write_text(release)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(tg.TidegateError) as caught:
        tg.configure(SparkSession.builder)
    assert str(caught.value) == (
        f"{java} is Java {version}: Spark needs Java 17 or later. Install one and set JAVA_HOME to it."
    )


def test_a_java_without_a_release_file_is_asked(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    _java(tmp_path, "echo 'openjdk version \"11.0.2\" 2019-01-15' >&2")
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(tg.TidegateError, match="is Java 11: Spark needs Java 17 or later"):
        installed.require_java()


def test_a_java_that_serves(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    _java(tmp_path, "exit 1")
    (tmp_path / "release").write_text('JAVA_VERSION="21.0.1"\n')
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    installed.require_java()


def _java(home: Path, script: str) -> Path:
    java = home / "bin" / "java"
    java.parent.mkdir()
    java.write_text(f"#!/bin/sh\n{script}\n")
    java.chmod(0o755)
    return java


# --- text that is not UTF-8 ----------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def no_text(spark: SparkSession) -> DataFrame:
    """Two keys and two values that Spark takes for text, as `CAST(key AS STRING)` of Kafka's bytes."""
    keys = "cast(if(id % 2 = 0, X'FFFE', X'41') as string) user"
    values = "cast(if(id < 3, X'C328', X'80') as string) v"
    return spark.sql(f"select {keys}, {values}, timestamp_seconds(id) ts, 0 partition, id offset from range(5)")


@pytest.mark.parametrize(
    "how",
    [
        tg.Suppressed.until_time_limit("9 s", tg.BufferConfig.max_records(1).emit_early_when_full(), clock="stream"),
        tg.Suppressed.until_time_limit("9 s", tg.BufferConfig.max_bytes(80).emit_early_when_full(), clock="stream"),
        tg.Suppressed.until_window_closes(tg.BufferConfig.max_bytes(9_000).shut_down_when_full()),
    ],
    ids=["records", "bytes", "strict"],
)
def test_text_that_is_not_utf8_passes_a_buffer_with_a_bound(no_text: DataFrame, how: Any) -> None:
    table = windowed(no_text).agg(n=tg.count(), lo=tg.min("v"), all=tg.collect_list("v")).suppress(how)
    rows = table.to_df().select(F.hex("user"), "n", F.hex("lo"), F.expr("transform(all, one -> hex(one))")).collect()
    assert max(tuple(row) for row in rows if row[0] == "FFFE") == ("FFFE", 3, "80", ["C328", "C328", "80"])
    assert max(tuple(row) for row in rows if row[0] == "41") == ("41", 2, "80", ["C328", "80"])


def test_python_functions_and_partitions_refuse_text_that_is_not_utf8(no_text: DataFrame) -> None:
    steps: dict[str, Callable[[], DataFrame]] = {
        "`v` calls Python functions, and the column 'v' holds a text that is not UTF-8": (
            lambda: windowed(no_text).reduce(min, "v").to_df()
        ),
        "calls Python functions, and the column 'user' holds a text that is not UTF-8": (
            lambda: stream(no_text).filter(lambda row: True).to_df()
        ),
        "The partition column 'user' holds a text that is not UTF-8": (
            lambda: windowed(no_text, partition="user").count().to_df()
        ),
    }
    for says, made in steps.items():
        with pytest.raises(PySparkException) as caught:
            made().collect()
        assert says in str(caught.value)
    valid = no_text.withColumns({name: F.make_valid_utf8(name) for name in ("user", "v")})
    assert {row["v"] for row in windowed(valid).reduce(min, "v").to_df().collect()} == {"\ufffd"}
