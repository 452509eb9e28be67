"""Decoding and encoding of Kafka's records, on DataFrames with the columns of Spark's source: no broker needed."""

from __future__ import annotations

import json
import random
from typing import Any

import pyarrow as pa
import pytest

import tidegate as tg
from seeds import first
from spark.replay import EPOCH, collect
from spark.topic import STAMP, raw, values

pytest.importorskip("pyspark")

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from tidegate.runtime.spark.frames.arrow import MAX_TIMESTAMP_MS
from tidegate.runtime.spark.kafka.formats import as_json
from tidegate.runtime.spark.kafka.source import decoded_stream, decoded_table
from tidegate.runtime.spark.worker.text_of_times import as_text, texts, with_text
from tidegate.spec.columns import TIMESTAMP

pytestmark = pytest.mark.spark

SCHEMA = "user string, ts timestamp, amount long"
HEADERS = "array<struct<key: string, value: binary>>"


def stream(frame: DataFrame, key: Any = "user", value: Any = SCHEMA, timestamp: str | None = "ts") -> Any:
    return decoded_stream(frame, key=key, value=value, timestamp=timestamp, name="events")


def letters(source: Any) -> list[tuple[int, str]]:
    return [(row["offset"], row["reason"]) for row in source.dead_letters.orderBy("offset").collect()]


GOOD = b'{"user": "A", "ts": "2026-01-01T00:00:01Z", "amount": 5}'


def test_json_values_become_columns_in_exact_order(spark: SparkSession) -> None:
    source = stream(values(spark, GOOD))
    (row,) = source.frame.collect()
    assert row.asDict() == {
        "user": "A",
        "ts": row["ts"],
        "amount": 5,
        "topic": "t",
        "partition": 0,
        "offset": 0,
        "kafka_timestamp": row["kafka_timestamp"],
    }
    assert (source.node.partition, source.node.offset, source.node.key) == ("partition", "offset", ("user",))
    assert isinstance(source, tg.KStream)
    assert repr(source) == "<KafkaStream events>"


FAULTS = [
    (b"\xff\xfe", "the value is not UTF-8"),
    (b"", "the value is not JSON"),
    (b'{"user": ', "the value is not JSON"),
    (b"hello", "the value is not JSON"),
    (b"[1]", "the value is JSON, but not an object"),
    (b"5", "the value is JSON, but not an object"),
    (b"null", "the value is JSON, but not an object"),
    (b'{"user": "A", "amount": "many"}', "in the value, 'amount' is not a bigint"),
    (b'{"ts": "soon", "amount": 1.5}', "in the value, 'ts' is not a timestamp, 'amount' is not a bigint"),
]


def test_what_is_not_json_of_the_schema_is_a_dead_letter(spark: SparkSession) -> None:
    source = stream(values(spark, GOOD, *[value for value, _ in FAULTS], GOOD))
    assert [row["offset"] for row in source.frame.collect()] == [0, len(FAULTS) + 1]
    assert letters(source) == [(offset, reason) for offset, (_, reason) in enumerate(FAULTS, start=1)]
    first = source.dead_letters.where("offset = 1").first()
    assert list(first.asDict()) == ["topic", "partition", "offset", "timestamp", "reason", "key", "value"]
    assert (first["topic"], first["partition"], first["key"], first["value"]) == ("t", 0, None, bytearray(b"\xff\xfe"))


def test_fields_that_are_missing_and_no_value_at_all_are_null(spark: SparkSession) -> None:
    source = stream(values(spark, b"{}", None, b'{"user": null, "more": 1}'))
    assert [(row["user"], row["ts"], row["amount"]) for row in source.frame.collect()] == [(None, None, None)] * 3
    assert letters(source) == []


def test_names_that_results_or_kafka_use_get_in_behind_them(spark: SparkSession) -> None:
    value = b'{"timestamp": 1000, "partition": "north", "window": 1, "user": "A", "offset": 7, "offset_in": 8}'
    schema = "timestamp long, partition string, window int, user string, offset_in int, offset int"
    source = stream(values(spark, value), key=["user", "partition"], value=schema, timestamp="timestamp")
    assert source.frame.columns[:6] == [
        "timestamp_in",
        "partition_in",
        "window_in",
        "user",
        "offset_in",
        "offset_in_in",
    ]
    assert source.node.key == ("user", "partition_in")
    (row,) = source.group_by_key().count().to_df().collect()
    assert (row["user"], row["partition_in"], row["count"]) == ("A", "north", 1)


def test_a_time_in_milliseconds_is_one(spark: SparkSession) -> None:
    source = stream(values(spark, b'{"user": "A", "at": 61000}'), value="user string, at long", timestamp="at")
    assert collect(source.group_by_key().count().to_df()) == [{"user": "A", "count": 1, "timestamp": 61_000}]


def test_without_a_time_it_is_kafkas(spark: SparkSession) -> None:
    rows = collect(stream(values(spark, GOOD), timestamp=None).group_by_key().count().to_df())
    assert rows == [{"user": "A", "count": 1, "timestamp": (STAMP - EPOCH).total_seconds() * 1000}]


def test_a_time_without_a_zone_is_utc_whatever_the_session_says(spark: SparkSession) -> None:
    spark.conf.set("spark.sql.session.timeZone", "Asia/Tokyo")
    try:
        source = stream(values(spark, b'{"user": "A", "ts": "1970-01-01T00:00:01", "amount": 1}'))
        assert collect(source.group_by_key().count().to_df())[0]["timestamp"] == 1000
    finally:
        spark.conf.set("spark.sql.session.timeZone", "UTC")


def test_the_key_of_the_record_as_text_and_as_json(spark: SparkSession) -> None:
    frame = raw(spark, (b"A", b'{"v": 1}'), (b"\xff", b'{"v": 1}'), (None, b'{"v": 1}'))
    source = stream(frame, key="user", value="v long", timestamp=None)
    assert [row["user"] for row in source.frame.collect()] == ["A", None]
    assert letters(source) == [(1, "the key is not UTF-8")]
    frame = raw(spark, (b'{"shop": "n", "item": 1}', b'{"v": 1}'), (b"n", b'{"v": 1}'))
    source = stream(frame, key=tg.kafka.json("shop string, item int"), value="v long", timestamp=None)
    assert source.node.key == ("shop", "item")
    assert letters(source) == [(1, "the key is not JSON")]


def test_several_topics_have_partitions_of_their_own(spark: SparkSession) -> None:
    source = decoded_stream(values(spark, GOOD), key="user", value=SCHEMA, timestamp="ts", name="events", several=True)
    assert [row["partition"] for row in source.frame.collect()] == ["t-0"]


def test_a_null_value_deletes_in_a_table_at_kafkas_time(spark: SparkSession) -> None:
    frame = raw(spark, (b"A", b'{"ts": 1000, "v": 1}'), (b"A", None), (b"B", b'{"v": true}'))
    table = decoded_table(frame, key="user", value="ts long, v long", timestamp="ts", name="users")
    stamp = int((STAMP - EPOCH).total_seconds() * 1000)
    assert isinstance(table, tg.KTable)
    rows = [
        {k: v for k, v in row.items() if k in ("user", "v", "deleted", "timestamp")} for row in collect(table.to_df())
    ]
    assert rows == [
        {"user": "A", "v": 1, "timestamp": 1000, "deleted": False},
        {"user": "A", "v": None, "timestamp": stamp, "deleted": True},
    ]
    assert letters(table) == [(2, "in the value, 'v' is not a bigint")]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            {"key": ["user", "shop"]},
            "`key` is 'shop', but the value has no such field. Its fields are user, ts, amount.",
        ),
        ({"key": 5}, "`key` is 5"),
        ({"timestamp": "at"}, "`timestamp` is 'at', but the record has no such field"),
        ({"value": 7}, "`value` is 7"),
        ({"value": '{"type": "string"}'}, "not the JSON text of an Avro record"),
        ({"timestamp": "user"}, "The timestamp column 'user' is string"),
    ],
)
def test_what_cannot_be_read_so_is_refused(spark: SparkSession, arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(tg.TidegateError, match=message):
        stream(values(spark, GOOD), **arguments)


def test_the_key_of_a_table_is_the_records(spark: SparkSession) -> None:
    with pytest.raises(tg.DefinitionTypeError, match="the key of a table is the record's own"):
        decoded_table(values(spark, GOOD), key=["user"], value=SCHEMA, timestamp=None, name="t")  # type: ignore[arg-type]


@pytest.mark.parametrize("kind", ["string", "int", "double"])
def test_the_time_of_a_table_is_a_time_as_that_of_a_stream(spark: SparkSession, kind: str) -> None:
    with pytest.raises(tg.DefinitionError, match=f"The timestamp column 'ts' is {kind}"):
        decoded_table(values(spark, GOOD), key="user", value=f"ts {kind}, v long", timestamp="ts", name="t")


def test_a_spark_without_the_connector_says_what_to_add(spark: SparkSession) -> None:
    with pytest.raises(tg.TidegateError, match=r'"spark.jars.packages", "org.apache.spark:spark-sql-kafka-0-10_2.13:4'):
        tg.kafka.source(spark, "127.0.0.1:1", "t", key="user", value=SCHEMA)


@pytest.mark.parametrize("streaming", [False, True])
def test_a_sink_without_the_connector_says_what_to_add(spark: SparkSession, streaming: bool) -> None:
    """Before its query starts: a query that reads by librdkafka may have no connector so far."""
    rows = spark.readStream.format("rate").load() if streaming else spark.range(1).withColumnRenamed("id", "value")
    with pytest.raises(tg.TidegateError, match=r'"spark.jars.packages", "org.apache.spark:spark-sql-kafka-0-10_2.13:4'):
        tg.kafka.sink(rows, "127.0.0.1:1", "t", key="value")


@pytest.mark.parametrize("topic", ["", [], 5, ["a", None]])
def test_a_topic_is_a_name(spark: SparkSession, topic: Any) -> None:
    with pytest.raises(tg.DefinitionTypeError, match="`topic` is"):
        tg.kafka.source(spark, "127.0.0.1:1", topic, key="user", value=SCHEMA)


@pytest.mark.parametrize("topic", ["a,b", "a, b", ["a,b"]])
@pytest.mark.parametrize("read", [tg.kafka.source, tg.kafka.table])
def test_several_topics_are_a_list(spark: SparkSession, topic: Any, read: Any) -> None:
    """Spark itself would take the text for two topics, whose partitions have the same numbers."""
    with pytest.raises(tg.DefinitionError, match=r"has no comma. Give several topics as a list, \['a', 'b'\]"):
        read(spark, "127.0.0.1:1", topic, key="user", value=SCHEMA)


def test_fields_whose_names_differ_by_case_alone(spark: SparkSession) -> None:
    """Spark finds two fields of such a name in a record."""
    for key, value, what in (
        ("user", "user string, a int, A int", "value"),
        (tg.kafka.json("a int, A int"), "user string", "key"),
    ):
        with pytest.raises(tg.DefinitionError, match=f"The schema of `{what}` has the columns 'a' and 'A', whose nam"):
            decoded_stream(values(spark, GOOD), key=key, value=value, timestamp=None, name="events")


# --- writing records ----------------------------------------------------------------------------------------------


def at(second: int) -> bytes:
    return b'{"user": "A", "ts": "1970-01-01T00:00:%02dZ", "amount": 5}' % second


def counts(spark: SparkSession, *seconds: int) -> tg.KTable:
    windows = tg.TimeWindows.of_size_with_no_grace("2 seconds")
    return stream(values(spark, *[at(second) for second in seconds])).group_by_key().windowed_by(windows).count()


def final(table: tg.KTable) -> tg.KTable:
    return table.suppress(tg.Suppressed.until_window_closes(tg.BufferConfig.unbounded()))


WINDOW = {"start": "1970-01-01T00:00:00.000000Z", "end": "1970-01-01T00:00:02.000000Z"}


def written(frame: DataFrame) -> list[tuple[Any, Any]]:
    return [(bytes(row["key"]), None if row["value"] is None else bytes(row["value"])) for row in frame.collect()]


def test_a_final_row_is_keyed_by_window_and_has_an_id(spark: SparkSession) -> None:
    ((key, value),) = written(tg.kafka.records(final(counts(spark, 0, 1)), name="alerts"))
    row = json.loads(value)
    assert json.loads(key) == {"user": "A", "window": WINDOW}
    assert len(row.pop("row_id")) == 32
    assert row == {"user": "A", "window": WINDOW, "count": 2, "timestamp": "1970-01-01T00:00:01.000000Z"}


def ids(frame: DataFrame) -> list[str]:
    return [json.loads(value)["row_id"] for _, value in written(frame)]


def test_an_id_depends_on_name_key_and_window_alone(spark: SparkSession) -> None:
    first = ids(tg.kafka.records(final(counts(spark, 0, 2)), name="a"))
    assert len(set(first)) == 2
    spark.conf.set("spark.sql.session.timeZone", "Asia/Tokyo")
    try:
        again = ids(tg.kafka.records(final(counts(spark, 0, 1, 1, 2)), name="a", key="user"))
    finally:
        spark.conf.set("spark.sql.session.timeZone", "UTC")
    assert sorted(again) == sorted(first)
    assert not set(ids(tg.kafka.records(final(counts(spark, 0, 2)), name="b"))) & set(first)
    frame = final(counts(spark, 0, 2)).to_df().where("count < 4")
    assert sorted(ids(tg.kafka.records(frame, key="user", final=True, name="a"))) == sorted(first)


def test_updates_have_no_id(spark: SparkSession) -> None:
    ((_, value),) = written(tg.kafka.records(counts(spark, 0)))
    assert "row_id" not in json.loads(value)
    assert "row_id" not in json.loads(written(tg.kafka.records(counts(spark, 0).to_df(), key=["user"]))[0][1])


def test_of_several_outputs_the_final_one_has_ids(spark: SparkSession) -> None:
    table = counts(spark, 0)
    rows = [json.loads(v) for _, v in written(tg.kafka.records(tg.outputs(raw=table, final=final(table))))]
    assert {row["output"]: row["row_id"] is not None for row in rows} == {"raw": False, "final": True}


@pytest.mark.parametrize("final_rows", first(1, [True, False]))
@pytest.mark.parametrize(
    "key", [["user"], ["user", "window"], ["window", "user"], ["window"], ["user", "window", "v", "at", "flag"], ["at"]]
)
def test_records_are_the_json_of_their_columns(spark: SparkSession, key: list[str], final_rows: bool) -> None:
    """Parts of the JSON are written once and put together; ids stay those of earlier versions."""
    texts = ["A", "", 'q"q', "b\\s", "tab\t", "\u2028ü😀", "{}", ",", None]
    rows = [(text, n - 4, None if n % 3 else 1e300 / (n + 1), n % 2 == 0) for n, text in enumerate(texts)]
    at = F.timestamp_micros(F.col("n") * 86_399_999_999)
    made = spark.createDataFrame(rows, "user string, n long, v double, flag boolean").select(
        "user", F.struct(at.alias("start"), F.lit(None).cast("timestamp").alias("end")).alias("window"), "v", "flag",
        at.alias("at"),
    )  # fmt: skip
    identity = list(dict.fromkeys([*key, "window"]))
    text = as_json(F.struct(F.lit("a").alias("name"), *identity))
    whole = made.withColumn("row_id", F.substring(F.sha2(text, 256), 1, 32)) if final_rows else made
    one = F.get_json_object(as_json(F.struct(F.col(key[0]).alias("x"))), "$.x")
    keyed = one if key in (["user"], ["at"]) else as_json(F.struct(*key))
    wanted = whole.select(keyed.cast("binary").alias("key"), as_json(F.struct("*")).cast("binary").alias("value"))
    assert tg.kafka.records(made, key=key, final=final_rows, name="a").collect() == wanted.collect()


def batches_of(stream_: Any) -> Any:
    return stream_.group_by_key().windowed_by(tg.SessionWindows.of_inactivity_gap_with_no_grace("2 seconds"))


RESULTS: dict[str, Any] = {
    "updates": lambda spark: counts(spark, 0, 3, 9),
    "final": lambda spark: final(counts(spark, 0, 3, 9)),
    "sessions": lambda spark: final(batches_of(stream(values(spark, at(1), at(2), at(9)))).count()),
    "no windows": lambda spark: stream(values(spark, at(1), at(2))).group_by_key().count(),
    "no end": lambda spark: (
        stream(values(spark, at(1), at(2))).group_by_key().windowed_by(tg.UnlimitedWindows.start_on(0)).count()
    ),
    "outputs": lambda spark: tg.outputs(raw=(made := counts(spark, 0, 9)), final=final(made)),
    "late": lambda spark: tg.outputs(late=(made := counts(spark, 9, 0)).late_records(), all=made),
}


@pytest.mark.parametrize("name", RESULTS)
def test_records_of_a_result_are_those_of_its_dataframe(spark: SparkSession, name: str) -> None:
    """Workers write the times of a result as text, Spark those of a DataFrame."""
    table = RESULTS[name](spark)
    frame, finals = table.to_df(), name in ("final", "sessions")
    key = [column for column in ("output", "user", "window") if column in frame.columns]
    own = tg.kafka.records(table, name="a")
    if name in ("outputs", "late"):
        written_ = F.get_json_object(F.col("value").cast("string"), "$.row_id")
        own = own.where(written_.isNull())
        frame = frame.where("output != 'final'")
    headers = ["timestamp"] if "timestamp" in frame.columns else []
    theirs = tg.kafka.records(frame, key=key, final=finals, name="a", headers=headers)
    mine = tg.kafka.records(table, name="a", headers=headers)
    wanted = sorted(map(str, theirs.drop("value").collect()))
    assert {*wanted} <= {*map(str, mine.drop("value").collect())}
    without = [json.loads(value) for _, value in written(theirs.select("key", "value"))]
    found = [json.loads(value) for _, value in written(own)]
    for row in found:
        if not finals:
            row.pop("row_id", None)
    assert sorted(map(str, found)) == sorted(map(str, without))
    assert found


TIMES = [0, 1, 999, 1_767_225_600_000, 253_402_300_799_999, 253_402_300_800_000, MAX_TIMESTAMP_MS, None]


def test_times_as_text_are_those_of_json(spark: SparkSession) -> None:
    draw = random.Random(1)
    times = [*TIMES, *(draw.randrange(2 ** draw.randrange(1, 53)) for _ in range(500))]
    frame = spark.createDataFrame([(n, ms) for n, ms in enumerate(times)], "n int, ms long")
    shown = frame.orderBy("n").select(as_json(F.struct(F.timestamp_millis("ms").alias("at")))).collect()
    written_ = texts(pa.chunked_array([times[:9], times[9:]], pa.int64())).to_pylist()
    assert [json.loads(row[0])["at"] for row in shown] == written_
    assert texts(pa.chunked_array([[MAX_TIMESTAMP_MS + 1, 2**63 - 1]])).to_pylist() == [None, None]
    assert texts(pa.chunked_array([], pa.int64())).to_pylist() == []


@pytest.mark.parametrize("rows", [0, 1, 2, 5])
def test_times_become_text_a_part_at_a_time(rows: int) -> None:
    part = pa.table({"k": pa.array(range(rows), pa.int64()), TIMESTAMP: pa.array([1_000] * rows, pa.int64())})
    found = list(as_text([part, part], most=2))
    assert all(each.schema == with_text(part.schema) and each.num_rows <= 2 for each in found)
    assert pa.concat_tables(found)["k"].to_pylist() == [*range(rows)] * 2
    assert pa.concat_tables(found)[TIMESTAMP].to_pylist() == ["1970-01-01T00:00:01.000000Z"] * (2 * rows)


def test_a_single_key_is_text_and_a_deletion_has_no_value(spark: SparkSession) -> None:
    frame = raw(spark, (b"A", b'{"v": 1}'), (b"A", None))
    table = decoded_table(frame, key="user", value="v long", timestamp=None, name="users")
    (first, second) = written(tg.kafka.records(table))
    assert first[0] == second[0] == b"A"
    assert json.loads(first[1])["v"] == 1
    assert "deleted" not in json.loads(first[1])
    assert second[1] is None


def test_headers_are_columns_as_text(spark: SparkSession) -> None:
    frame = tg.kafka.records(final(counts(spark, 0)), name="a", headers=["row_id", "timestamp", "count", "user"])
    (row,) = frame.collect()
    headers = {header["key"]: bytes(header["value"]).decode() for header in row["headers"]}
    assert headers == {
        "row_id": json.loads(row["value"])["row_id"],
        "timestamp": "1970-01-01T00:00:00.000000Z",
        "count": "1",
        "user": "A",
    }


def test_rows_whose_keys_differ_in_the_last_digit_have_different_keys_and_ids(spark: SparkSession) -> None:
    frame = spark.sql(
        "SELECT timestamp_ntz'2026-01-01 00:00:00' + make_dt_interval(0, 0, 0, n * 0.000001) AS at, "
        "cast('123456789012345678.00' AS decimal(20, 2)) + cast(n / 100 AS decimal(2, 2)) AS price, "
        "cast(n / 10000000 AS decimal(10, 7)) AS small FROM range(3) AS t(n)"
    ).select(F.col("at"), F.col("price").cast("decimal(20, 2)"), "small", F.struct("price").alias("nested"))
    headers = ["at", "price", "small", "nested"]
    rows = tg.kafka.records(frame, key="price", headers=headers, final=True, name="a").collect()
    assert [bytes(row["key"]) for row in rows] == [b"123456789012345678.0%d" % n for n in range(3)]
    assert [[bytes(header["value"]).decode() for header in row["headers"]] for row in rows] == [
        [
            f"2026-01-01T00:00:00.00000{n}",
            f"123456789012345678.0{n}",
            f"{n}E-7",
            f'{{"price":123456789012345678.0{n}}}',
        ]
        for n in range(3)
    ]
    kept = tg.kafka.records(frame, key="at", final=True, name="a")
    assert [bytes(row["key"]) for row in kept.collect()] == [b"2026-01-01T00:00:00.00000%d" % n for n in range(3)]
    assert len(set(ids(kept))) == 3
    form = tg.kafka.json(frame.schema)
    read = kept.select(form.decoded(F.col("value"), form.fields(spark)).alias("row")).select("row.*")
    assert read.select(frame.columns).collect() == frame.collect()


def test_keys_that_are_not_utf8_have_ids_of_their_own(spark: SparkSession) -> None:
    """JSON has one character for each of their bytes: rows of two keys had one id. Other ids stay as they are."""
    texts = "VALUES (x'ff'), (x'fe'), (x'41'), (x'ff2c'), (x'fe2c'), (x'efbfbd') AS t(b)"
    frame = spark.sql(f"SELECT b, cast(b AS string) AS user, 'x' AS other FROM {texts}")
    kept = tg.kafka.records(frame.select("user", "other"), key=["user", "other"], final=True, name="a")
    assert len({bytes(row["key"]) for row in kept.collect()}) == 3
    found = ids(kept)
    assert len(set(found)) == 6
    text = F.lit('{"name":"a","user":"A","other":"x"}')
    assert found[2] == frame.select(F.substring(F.sha2(text, 256), 1, 32)).first()[0]


def test_headers_of_nulls_are_null(spark: SparkSession) -> None:
    frame = spark.sql("SELECT 'A' AS user, cast(null AS decimal(9, 2)) AS price, cast(null AS array<int>) AS parts")
    (row,) = tg.kafka.records(frame, key="user", headers=["price", "parts"]).collect()
    assert [header["value"] for header in row["headers"]] == [None, None]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({}, "`key` is missing"),
        (
            {"key": "shop"},
            "`key` is 'shop', but the rows have no such column. They have user, window, count, timestamp",
        ),
        (
            {"key": "user", "headers": ["x"]},
            r"`headers` has 'x', but the rows have no such column. They have user, window, count, timestamp\.$",
        ),
    ],
)
def test_what_cannot_be_written_so_is_refused(spark: SparkSession, arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(tg.DefinitionError, match=message):
        tg.kafka.records(counts(spark, 0).to_df(), **arguments)


def test_maps_whose_keys_are_no_texts_of_json_are_refused(spark: SparkSession) -> None:
    """Spark wrote an address in Java's memory, another one each time."""
    frame = spark.sql("SELECT 'A' AS user, array(map(X'00', 1)) AS parts")
    with pytest.raises(tg.DefinitionError, match="'parts' is array<map<binary,int>>, whose keys JSON cannot have"):
        tg.kafka.records(frame, key="user")


def test_records_behind_steps_alone_are_written_by_their_key(spark: SparkSession) -> None:
    """Without an aggregation there is no operator, and the error said no more."""
    events = stream(values(spark, at(0), at(5))).filter(lambda row: row["ts"].second > 0)
    ((key, value),) = written(tg.kafka.records(events.map_values({"price": "amount"})))
    found = json.loads(value)
    assert (key, found["ts"], found["price"]) == (b"A", "1970-01-01T00:00:05.000000Z", 5)
    assert "row_id" not in found
    ((key, _),) = written(tg.kafka.records(events, key=["user", "offset"], headers=["amount"]))
    assert json.loads(key) == {"user": "A", "offset": 1}
    with pytest.raises(tg.DefinitionError, match="`key` is 'shop', but the rows have no such column"):
        tg.kafka.records(events, key="shop")


def test_other_refusals_of_the_sink(spark: SparkSession) -> None:
    with pytest.raises(tg.DefinitionTypeError, match="`table` is 5"):
        tg.kafka.records(5)
    with pytest.raises(tg.DefinitionError, match="`final` is for a DataFrame"):
        tg.kafka.records(counts(spark, 0), final=True)
    frame = counts(spark, 0).to_df().withColumnRenamed("count", "row_id")
    with pytest.raises(tg.DefinitionError, match="a column 'row_id' already"):
        tg.kafka.records(frame, key="user")


def test_results_written_can_be_read_again(spark: SparkSession) -> None:
    """The source reads the records of the sink: key, window and count come back."""
    out = tg.kafka.records(final(counts(spark, 0, 2)), name="a")
    pairs = written(out)
    schema = "window struct<start: timestamp, end: timestamp>, count long, timestamp timestamp"
    source = stream(raw(spark, *pairs), key=tg.kafka.json("user string"), value=schema, timestamp="timestamp")
    assert letters(source) == []
    rows = sorted(collect(source.group_by_key().agg(n=tg.sum("count")).to_df()), key=str)
    assert rows == [{"user": "A", "n": 2, "timestamp": 2000}]


@pytest.mark.parametrize("read", ["by Spark", "in workers", "behind a step"])
@pytest.mark.parametrize("timestamp", first(1, ["at", None]))
def test_a_record_without_a_value_is_skipped(spark: SparkSession, read: str, timestamp: str | None) -> None:
    """Kafka's own fields are no values: topic, partition, offset, time and headers."""
    written = [b'{"amount": 1, "at": 5}', None, b'{"amount": null, "at": 5}', b"{}", b'{"at": 5}']
    frame = raw(spark, *[(b"A", value) for value in written]).withColumn("headers", F.array().cast(HEADERS))
    # Only Spark reads times as text of a pattern.
    value = tg.kafka.json("amount long, at long", {"dateFormat": "yyyy"} if read == "by Spark" else None)
    source = decoded_stream(frame, key="user", value=value, timestamp=timestamp, name="events")
    assert (source.node.undecoded is None) == (read == "by Spark")
    counted = source.filter(lambda row: True) if read == "behind a step" else source
    rows = counted.group_by_key().count().to_df().collect()
    # If `at` is not the time, it is a value.
    assert [row["count"] for row in rows] == [1 if timestamp else 3]


def test_mapped_values_leave_what_kafka_knows(spark: SparkSession) -> None:
    source = stream(values(spark, GOOD, b'{"user": "B", "ts": "2026-01-01T00:00:01Z"}'))
    doubled = source.map_values({"twice": lambda row: row["amount"] and row["amount"] * 2}, types={"twice": "long"})
    assert doubled.to_df().columns == ["user", "ts", "topic", "partition", "offset", "kafka_timestamp", "twice"]
    rows = doubled.group_by_key().agg(n=tg.count(), topic=tg.last("topic")).to_df().collect()
    assert [(row["user"], row["n"], row["topic"]) for row in rows] == [("A", 1, "t")]
    with pytest.raises(tg.DefinitionError, match="`mapper` sets the column 'topic', which is no value"):
        source.map_values({"topic": "amount"})


def test_a_window_in_the_key_is_a_part_of_the_records_key(spark: SparkSession) -> None:
    windows = tg.TimeWindows.of_size_with_no_grace("1 minute")
    counts = stream(values(spark, GOOD, GOOD)).group_by_key().windowed_by(windows).count()
    (record,) = tg.kafka.records(counts.to_stream().group_by("user", "window").count("times")).collect()
    bounds = {"start": "2026-01-01T00:00:00.000000Z", "end": "2026-01-01T00:01:00.000000Z"}
    assert json.loads(record["key"]) == {"user": "A", "window": bounds}
    assert json.loads(record["value"])["times"] == 1
