"""Values whose schemas a registry keeps, over frames with the columns of Spark's Kafka source."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterator
from decimal import Decimal
from io import BytesIO
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import tidegate as tg

pytest.importorskip("pyspark")
pytest.importorskip("authlib", reason="pip install 'tidegate[registry]'")

from pyspark.errors import PythonException, StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from schemas.framed import avro, framed
from schemas.loopback import Registry
from spark.replay import observed
from spark.test_kafka_plain import SCHEMA as PLAIN_JSON
from spark.test_kafka_plain import read_both, written
from spark.topic import raw, values
from tidegate.kernel.rows.map_filter import WALL_CLOCK
from tidegate.runtime.spark.frames.arrow import arrow_schema
from tidegate.runtime.spark.kafka.source import decoded_stream, decoded_table
from tidegate.runtime.spark.row_decoder import Counts

pytestmark = pytest.mark.spark

MINUTE = 60_000
START = 1_767_225_600_000  # 2026-01-01
TIME = {"type": "long", "logicalType": "timestamp-millis"}
FIRST = {
    "type": "record",
    "name": "Click",
    "fields": [
        {"name": "user", "type": "string"},
        {"name": "price", "type": "int"},
        {"name": "agent", "type": "string"},
        {"name": "at", "type": TIME},
    ],
}
SECOND = {
    "type": "record",
    "name": "Click",
    "fields": [
        {"name": "who", "type": "string", "aliases": ["user"]},
        {"name": "price", "type": "long"},
        {"name": "country", "type": ["null", "string"], "default": None},
        {"name": "at", "type": TIME},
    ],
}
QUICK = {"retries.wait.ms": 1, "retries.max.wait.ms": 2}


@pytest.fixture
def registry() -> Iterator[Registry]:
    with Registry() as running:
        yield running


def first(user: str, price: int, minute: int) -> bytes:
    return avro(user, price, "curl", START + minute * MINUTE)


def second(who: str, price: int, country: str | None, minute: int) -> bytes:
    return avro(who, price) + (b"\0" if country is None else b"\2" + avro(country)) + avro(START + minute * MINUTE)


def clicks(registry: Registry, frame: DataFrame, **more: Any) -> Any:
    value = tg.kafka.schema_registry(registry.url, subject="clicks-value", options=QUICK)
    return decoded_stream(frame, **{"key": "who", "value": value, "timestamp": "at", "name": "clicks", **more})


def worked(source: Any) -> list[dict[str, Any]]:
    """The rows of the map step, made without `frame`."""
    wanted = arrow_schema(source.frame.schema)
    given, row_decoder = source.node.undecoded.for_workers(wanted)
    records, counts = given.toArrow(), Counts()
    made = pa.Table.from_batches(list(row_decoder.rows(iter(records.to_batches()), counts)), wanted)
    found = Counts(records.num_rows, records.num_rows - made.num_rows)
    assert counts == (Counts() if row_decoder.observed is None else found)
    return made.sort_by("offset").to_pylist()


def both_ways(source: Any) -> list[dict[str, Any]]:
    """The rows, after a check that both ways give the same."""
    by_frame = source.frame.toArrow().sort_by("offset").to_pylist()
    assert worked(source) == by_frame
    return [{name: value for name, value in row.items() if name not in ("topic", "partition")} for row in by_frame]


def test_each_record_is_read_by_the_schema_that_it_names(spark: SparkSession, registry: Registry) -> None:
    """An added field has its default, a removed one is gone, a type is promoted, another name is an alias."""
    one, two = registry.register("clicks-value", FIRST), registry.register("clicks-value", SECOND)
    written = [
        framed(one, first("A", 1, 0)),
        framed(two, second("B", 2**40, "CH", 1)),
        None,
        framed(two, second("A", 3, None, 2)),
        framed(one, first("C", -4, 3)),
    ]
    rows = both_ways(clicks(registry, values(spark, *written)))
    assert [(row["who"], row["price"], row["country"]) for row in rows] == [
        ("A", 1, None),
        ("B", 2**40, "CH"),
        (None, None, None),
        ("A", 3, None),
        ("C", -4, None),
    ]
    assert [row["at"] and row["at"].minute for row in rows] == [0, 1, None, 2, 3]


def test_the_reader_is_the_newest_schema_or_a_given_one(spark: SparkSession, registry: Registry) -> None:
    one = registry.register("clicks-value", FIRST)
    registry.register("clicks-value", SECOND)
    frame = values(spark, framed(one, first("A", 1, 0)))
    older = tg.kafka.schema_registry(registry.url, subject="clicks-value", version=1)
    given = tg.kafka.schema_registry(registry.url, schema=json.dumps({**FIRST, "fields": FIRST["fields"][:1]}))
    newest, old, own = (
        decoded_stream(frame, key=key, value=value, timestamp=None, name="clicks").frame
        for key, value in (("who", clicks_value(registry)), ("user", older), ("user", given))
    )
    assert newest.columns[:4] == ["who", "price", "country", "at"]
    assert old.columns[:4] == ["user", "price", "agent", "at"]
    assert own.columns[:2] == ["user", "topic"]
    assert [row["user"] for row in own.collect()] == ["A"]


def clicks_value(registry: Registry) -> Any:
    return tg.kafka.schema_registry(registry.url, subject="clicks-value", options=QUICK)


def test_what_cannot_be_decoded_is_a_dead_letter(spark: SparkSession, registry: Registry) -> None:
    one = registry.register("clicks-value", FIRST)
    other = registry.register("other-value", {"type": "record", "name": "O", "fields": [{"name": "x", "type": "int"}]})
    json_ = registry.register("json-value", {"type": "object"}, "JSON")
    whole = framed(one, first("A", 1, 0))
    reasons = [
        (framed(4711, b"abc"), "the value has schema 4711, which the registry does not have", 4711),
        (b'{"who": "A"}', "the value does not begin with a zero byte and the number of a schema", None),
        (b"\0\0", "the value does not begin with a zero byte and the number of a schema", None),
        (whole[:-2], f"the value is not Avro of schema {one}: the bytes end within `at`", one),
        (whole + b"x", f"the value is not Avro of schema {one}: bytes are left over", one),
        (
            framed(other, b"\2"),
            (
                f"the value is not Avro of schema {other}: the writer has no field 'user', and the reader has no "
                "default for it"
            ),
            other,
        ),
        (framed(json_, b"{}"), f"the value is not Avro of schema {json_}: that is JSON, and not AVRO", json_),
        (
            framed(one, avro(b"\xff\xfe", 1, "", START)),
            f"the value is not Avro of schema {one}: `user` is not UTF-8",
            one,
        ),
        (framed(2**31 + 5, b""), f"the value has schema {2**31 + 5}, which the registry does not have", 2**31 + 5),
    ]
    frame = values(spark, whole, *(bytes_ for bytes_, _, _ in reasons), whole)
    source = clicks(registry, frame, key="user")
    assert [row["offset"] for row in both_ways(source)] == [0, len(reasons) + 1]
    dead = source.dead_letters.orderBy("offset").collect()
    assert dead[0].__fields__ == [
        *("topic", "partition", "offset", "timestamp", "reason", "key", "value", "schema_id"),
    ]
    assert [(bytes(row["value"]), row["reason"], row["schema_id"]) for row in dead] == reasons
    assert [row["offset"] for row in dead] == list(range(1, len(reasons) + 1))


def test_keys_by_a_registry_and_as_text(spark: SparkSession, registry: Registry) -> None:
    """A key that is a single value is the column `key`; of several faults the key's comes first."""
    one = registry.register("clicks-value", FIRST)
    text = registry.register("clicks-key", '"string"')
    both = registry.register("pair-key", {"type": "record", "name": "K", "fields": [{"name": "k", "type": "long"}]})
    value = framed(one, first("A", 1, 0))
    frame = raw(spark, (framed(text, avro("k1")), value), (framed(9, b""), value), (framed(text, b"\x04a"), b"x"))
    key = tg.kafka.schema_registry(registry.url, subject="clicks-key")
    source = clicks(registry, frame, key=key)
    assert [row["key"] for row in both_ways(source)] == ["k1"]
    assert source.node.key == ("key",)
    assert [row["reason"] for row in source.dead_letters.orderBy("offset").collect()] == [
        "the key has schema 9, which the registry does not have",
        f"the key is not Avro of schema {text}: the bytes end within it",
    ]
    frame = raw(spark, (framed(both, avro(7)), value), (b"\xff", value))
    source = clicks(registry, frame, key=tg.kafka.schema_registry(registry.url, subject="pair-key"))
    assert [row["k"] for row in both_ways(source)] == [7]
    source = clicks(registry, raw(spark, (b"A", value), (b"\xff", value)), key=tg.kafka.text("k"))
    assert [row["k"] for row in both_ways(source)] == ["A"]


def test_json_by_a_registry(spark: SparkSession, registry: Registry) -> None:
    schema = {
        "type": "object",
        "properties": {
            "user": {"type": "string"},
            "price": {"oneOf": [{"type": "null"}, {"type": "integer"}]},
            "at": {"type": "string", "format": "date-time"},
            "where": {"$ref": "#/definitions/place"},
            "tags": {"type": "array", "items": {"type": "string"}},
        },
        "definitions": {"place": {"type": "object", "properties": {"x": {"type": "number"}}}},
    }
    one = registry.register("clicks-value", schema, "JSON")
    said = b'{"user": "A", "price": 5, "at": "2026-01-01T00:01:00Z", "where": {"x": 1.5}, "tags": ["t"]}'
    frame = values(spark, framed(one, said), framed(one, b'{"price": "no"}'), framed(99, said), b"{}", None)
    source = clicks(registry, frame, key="user")
    assert source.frame.select("user", "price", "at", "where", "tags").dtypes == [
        ("user", "string"),
        ("price", "bigint"),
        ("at", "timestamp"),
        ("where", "struct<x:double>"),
        ("tags", "array<string>"),
    ]
    rows = source.frame.orderBy("offset").collect()
    assert [(row["user"], row["price"], row["offset"]) for row in rows] == [("A", 5, 0), (None, None, 4)]
    assert [row["reason"] for row in source.dead_letters.orderBy("offset").collect()] == [
        "in the value, 'price' is not a bigint",
        "the value has schema 99, which the registry does not have",
        "the value does not begin with a zero byte and the number of a schema",
    ]
    value = tg.kafka.schema_registry(registry.url, schema="user string")
    own = decoded_stream(frame, key="user", value=value, timestamp=None, name="clicks")
    assert own.frame.orderBy("offset").first()["user"] == "A"


def test_random_json_by_a_registry_is_read_alike(spark: SparkSession, registry: Registry) -> None:
    """Workers read plain records behind a schema id, Spark the others; a record without an id is read by neither."""
    one, two = (registry.register(f"{name}-value", {"type": "object", "title": name}, "JSON") for name in ("a", "b"))
    avro_ = registry.register("c-value", FIRST)
    r = random.Random(24)

    def head(said: bytes | None) -> bytes | None:
        """The schema id, mostly in front of the object; sometimes the id is unknown or of Avro, or missing."""
        if said is None or r.random() < 0.02:
            return said
        if r.random() < 0.02:
            return r.choice([b"", b"\0", b"\0\0\0\0", b"\0\0\0\0\1", b"\1" + framed(one, said)[1:], b"\0" + said])
        number = r.choice([one, one, two, two, 4711, 2**31, avro_] if r.random() < 0.05 else [one, two])
        return framed(number, said)

    records = [head(written(r)) for _ in range(10_000)]
    value = tg.kafka.schema_registry(registry.url, schema=PLAIN_JSON, options=QUICK)
    by_spark, by_workers, plains = read_both(values(spark, *records), value)
    assert by_workers == by_spark
    assert len(records) > len(by_spark)
    assert 0.2 < plains / len(by_spark) < 0.9
    # The record's own key, as text.
    said = [framed(one, b'{"amount": %d}' % n) for n in range(3)] + [b'{"amount": 3}', framed(one, b'{"amount": "4"}')]
    keyed = raw(spark, *zip([b"A", b"\xff", None, b"B", b"C"], said, strict=True))
    value = tg.kafka.schema_registry(registry.url, schema="amount long", options=QUICK)
    by_spark, by_workers, plains = read_both(keyed, value, None, "name")
    assert by_workers == by_spark
    assert len(by_spark) == plains == 2


def test_what_spark_reads_of_json_by_a_registry(spark: SparkSession, registry: Registry) -> None:
    """Arrays and objects, and keys by a registry, as without a registry."""
    for schema, key in (("user string, tags array<string>", "user"), ("user string, day date", "user")):
        value = tg.kafka.schema_registry(registry.url, schema=schema, options=QUICK)
        source = decoded_stream(values(spark, b"{}"), key=key, value=value, timestamp=None, name="clicks")
        assert source.node.undecoded is None
    by_registry = tg.kafka.schema_registry(registry.url, schema="k string", options=QUICK)
    value = tg.kafka.schema_registry(registry.url, schema="user string", options=QUICK)
    source = decoded_stream(values(spark, b"{}"), key=by_registry, value=value, timestamp=None, name="clicks")
    assert source.node.undecoded is None


def test_a_sink_writes_the_number_of_the_newest_schema(spark: SparkSession, registry: Registry) -> None:
    """JSON, whose frame needs no jar; tests/kafka has Avro."""
    registry.register("counts-value", {"type": "object", "properties": {"n": {"type": "integer"}}}, "JSON")
    newest = registry.register("counts-value", {"type": "object", "properties": {"n": {"type": "number"}}}, "JSON")
    frame = spark.createDataFrame([("A", 1)], "user string, n long")
    value = tg.kafka.schema_registry(registry.url, subject="counts-value")
    [row] = tg.kafka.records(frame, key="user", value=value).collect()
    assert (bytes(row["key"]), bytes(row["value"])) == (b"A", framed(newest, b'{"user":"A","n":1}'))
    with pytest.raises(tg.DefinitionError, match=r"give tg\.kafka\.schema_registry a `subject`"):
        tg.kafka.records(frame, key="user", value=tg.kafka.schema_registry(registry.url, schema="n long"))


def test_protobuf_by_a_registry(spark: SparkSession, registry: Registry) -> None:
    from schemas.test_protobuf import FILE, HEAD, message_class

    other_class = message_class(FILE, "shop.Other")
    one = registry.register("clicks-value", 'syntax = "proto3"; ...', "PROTOBUF", binary=FILE.SerializeToString())
    frame = values(
        spark,
        framed(one, b"\0" + other_class(x=5).SerializeToString()),
        framed(one, HEAD + b"\x08\1"),
        framed(one, b"\0\x08"),
        None,
    )
    for value in (
        tg.kafka.schema_registry(registry.url, subject="clicks-value"),
        tg.kafka.schema_registry(registry.url, schema=other_class),
    ):
        source = clicks(registry, frame, key="x", value=value, timestamp=None)
        assert [row["x"] for row in both_ways(source)] == [5, None]
        assert [row["reason"] for row in source.dead_letters.orderBy("offset").collect()] == [
            f"the value is not Protobuf of schema {one}: it is another message than shop.Other",
            f"the value is not Protobuf of schema {one}: the bytes end within `x`",
        ]
    whole = tg.kafka.schema_registry(registry.url, subject="clicks-value", message="All")
    assert "one_uint64" in clicks(registry, frame, key="left", value=whole, timestamp=None).frame.columns


def test_a_table_of_a_changelog(spark: SparkSession, registry: Registry) -> None:
    one, text = registry.register("clicks-value", FIRST), registry.register("clicks-key", '"string"')
    key = framed(text, avro("A"))
    frame = raw(spark, (key, framed(one, first("A", 1, 0))), (key, None))
    key_format = tg.kafka.schema_registry(registry.url, subject="clicks-key")
    table = decoded_table(frame, key=key_format, value=clicks_value(registry), timestamp="at", name="clicks")
    assert [(row["key"], row["price"], row["tombstone"]) for row in table.frame.orderBy("offset").collect()] == [
        ("A", 1, False),
        ("A", None, True),
    ]


def sums(source: Any) -> DataFrame:
    windows = tg.TimeWindows.of_size_and_grace("2 minutes", "1 minute")
    frame: DataFrame = (
        source.group_by_key()
        .windowed_by(windows)
        .agg(total=tg.sum("price"))
        .suppress(tg.Suppressed.until_window_closes(tg.BufferConfig.unbounded()))
        .to_df()
    )
    return frame


def streamed(spark: SparkSession, folder: Path) -> DataFrame:
    schema = raw(spark).schema
    return spark.readStream.schema(schema).option("maxFilesPerTrigger", 1).parquet(str(folder))


def run(frame: DataFrame, folder: Path) -> list[dict[str, Any]]:
    """Counts of the source in each batch."""
    query = (
        frame.writeStream.format("parquet")
        .outputMode("append")
        .option("path", str(folder / "out"))
        .option("checkpointLocation", str(folder / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    try:
        query.awaitTermination()
    finally:
        query.stop()
    return [observed(each.observedMetrics["clicks source"]) for each in query.recentProgress if each.observedMetrics]


def test_a_schema_that_comes_while_the_query_runs(spark: SparkSession, registry: Registry, tmp_path: Path) -> None:
    """Records that cannot be decoded are counted, and in no window."""
    one = registry.register("clicks-value", FIRST)
    registry.register("clicks-value", SECOND)
    folder = tmp_path / "in"
    early = [framed(one, first("A", 1, 0)), framed(one, first("A", 2, 1)), b"broken"]
    values(spark, *early).coalesce(1).write.parquet(str(folder))
    source = clicks(registry, streamed(spark, folder))
    later = {**SECOND, "fields": [*SECOND["fields"], {"name": "more", "type": "bytes", "default": ""}]}
    two = registry.register("elsewhere", later)  # not requested so far
    late = values(spark, framed(two, second("A", 40, None, 9) + avro(b"xx"))).withColumn(
        "offset", F.lit(5).cast("long")
    )
    late.coalesce(1).write.mode("append").parquet(str(folder))
    counted = run(sums(source), tmp_path)
    rows = spark.read.parquet(str(tmp_path / "out")).collect()
    assert [(row["who"], row["total"]) for row in rows] == [("A", 3)]
    assert [(each["records"], each["malformed"]) for each in counted if each["records"]] == [(3, 1), (1, 0)]


def test_one_worker_decodes_and_packs(spark: SparkSession, registry: Registry) -> None:
    one = registry.register("clicks-value", FIRST)
    frame = values(spark, *(framed(one, first("A", n, n)) for n in range(9)))
    for source, workers in ((clicks(registry, frame, key="user"), 1), (json_clicks(registry, frame), 2)):
        plan = sums(source)._jdf.queryExecution().optimizedPlan().toString()
        assert plan.count("MapInArrow") == workers


def json_clicks(registry: Registry, frame: DataFrame, **more: Any) -> Any:
    """A stream of JSON: Spark reads the records that are not plain, between two workers."""
    value = tg.kafka.schema_registry(registry.url, schema="user string, price long, at timestamp", options=QUICK)
    return clicks(registry, frame, **{"key": "user", "value": value, **more})


@pytest.mark.parametrize("read", ["in one worker", "by Spark in between"])
def test_a_query_that_reads_a_source_twice_counts_each_time(
    spark: SparkSession, registry: Registry, tmp_path: Path, read: str
) -> None:
    """Spark takes the name of an observation once, and the two inputs have different columns."""
    one, two = registry.register("clicks-value", FIRST), registry.register("json-value", {"type": "object"}, "JSON")
    make, said = {
        "in one worker": (clicks, [framed(one, first("A", price, price)) for price in (1, 2)]),
        "by Spark in between": (json_clicks, [framed(two, b'{"user": "A", "price": %d}' % n) for n in (1, 2)]),
    }[read]
    folder = tmp_path / "in"
    values(spark, said[0], b"broken", said[1]).coalesce(1).write.parquet(str(folder))
    clicked = make(registry, streamed(spark, folder), key="user", timestamp=None).group_by_key()
    joined = clicked.count().join(clicked.agg(total=tg.sum("price")))
    found: list[Any] = []
    writer = joined.to_df().writeStream.outputMode("update").option("checkpointLocation", str(tmp_path / "checkpoint"))
    query = writer.foreachBatch(lambda frame, _: found.extend(frame.collect())).trigger(availableNow=True).start()
    assert query.awaitTermination(120)
    assert [(row["user"], row["count"], row["total"]) for row in found] == [("A", 2, 3)]
    [progress] = [each for each in query.recentProgress if each.numInputRows]
    for name in ("clicks source", "clicks source 2"):
        assert observed(progress.observedMetrics[name]) == {"records": 3, "malformed": 1}


def test_restarts_and_small_batches_give_the_results_of_decoded_rows(
    spark: SparkSession, registry: Registry, tmp_path: Path
) -> None:
    """Two partitions with several Arrow batches each, with malformed records and a batch of nothing else."""
    one, two = registry.register("clicks-value", FIRST), registry.register("clicks-value", SECOND)
    r = random.Random(58)

    def written(minute: int) -> bytes | None:
        if r.random() < 0.1:
            return r.choice([None, b"", b"broken", framed(4711, b""), framed(one, first("A", 1, 0))[:-1]])
        if r.random() < 0.5:
            return framed(one, first(r.choice("ABC"), r.randrange(100), minute))
        return framed(two, second(r.choice("ABC"), r.randrange(100), None, minute))

    folder = tmp_path / "in"
    found: dict[str, list[str]] = {}
    counted: dict[str, list[Any]] = {}
    ways: dict[str, Callable[[int], bool]] = {
        "workers": lambda batch: True,
        "rows": lambda batch: False,
        "in turns": lambda batch: batch % 2 == 0,
    }
    spark.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", "50")
    try:
        for batch in range(3):
            for partition in range(2):
                records = [b"broken"] * 70 if batch == 1 else [written(batch * 200 + n) for n in range(200)]
                at = F.col("offset") + batch * 200
                frame = values(spark, *records).withColumn("offset", at).withColumn("partition", F.lit(partition))
                frame.coalesce(1).write.mode("append").parquet(str(folder))
            for name, in_workers in ways.items():
                source = clicks(registry, spark.readStream.schema(raw(spark).schema).parquet(str(folder)))
                plan = sums(source if in_workers(batch) else by_rows(source))
                counted.setdefault(name, []).extend(run(plan, tmp_path / name))
        for name in ways:
            rows = spark.read.parquet(str(tmp_path / name / "out"))
            found[name] = sorted(map(repr, rows.collect()))
    finally:
        spark.conf.unset("spark.sql.execution.arrow.maxRecordsPerBatch")
    assert len(found["workers"]) > 100
    assert found["workers"] == found["rows"] == found["in turns"]
    assert counted["workers"] == counted["rows"] == counted["in turns"]
    assert {"records": 140, "malformed": 140} in counted["workers"]


def by_rows(source: Any) -> Any:
    order = {"partition": "partition", "offset": "offset"}
    return tg.stream(source.frame, key="who", timestamp="at", name="clicks", **order)


def test_topics_and_headers_come_along(spark: SparkSession, registry: Registry) -> None:
    one = registry.register("clicks-value", FIRST)
    headers = F.array(F.struct(F.lit("h").alias("key"), F.col("value").alias("value")))
    pairs = [(b"k", framed(one, first("A", 1, 0))), (b"\xff", framed(one, first("B", 2, 1))), (None, None)]
    frame = raw(spark, *pairs).withColumn("headers", headers)
    source = clicks(registry, frame, key="k", several=True)
    assert [(row["k"], row["user"]) for row in both_ways(source)] == [("k", "A"), (None, None)]
    assert [row["partition"] for row in worked(source)] == ["t-0", "t-0"]


def test_columns_within_columns(spark: SparkSession, registry: Registry) -> None:
    """Also with empty lists and maps, and with records that decode to nothing."""
    fastavro = pytest.importorskip("fastavro")
    place = {"type": "record", "name": "Place", "fields": [{"name": "x", "type": ["null", "double"]}]}
    cents = {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}
    fields: dict[str, Any] = {
        "user": "string",
        "numbers": {"type": "array", "items": "long"},
        "places": {"type": "array", "items": place},
        "tags": {"type": "map", "values": ["null", "string"]},
        "price": ["null", cents],
        "kind": {"type": "enum", "name": "Kind", "symbols": ["A", "B"]},
        "either": ["int", "string"],
    }
    schema = {"type": "record", "name": "Deep", "fields": [{"name": n, "type": t} for n, t in fields.items()]}
    one = registry.register("clicks-value", schema)
    r, parsed = random.Random(4), fastavro.parse_schema(schema)

    def written(n: int) -> bytes:
        row = {
            "user": f"u{n}",
            "numbers": [r.randrange(-(2**62), 2**62) for _ in range(r.randrange(4))],
            "places": [{"x": r.choice([None, 1.5])} for _ in range(r.randrange(3))],
            "tags": {f"t{i}": r.choice([None, "v"]) for i in range(r.randrange(3))},
            "price": r.choice([None, Decimal(r.randrange(10**6)) / 100]),
            "kind": r.choice("AB"),
            "either": r.choice([n, str(n)]),
        }
        out = BytesIO()
        fastavro.schemaless_writer(out, parsed, row)
        return framed(one, out.getvalue())

    said = [written(n) if n % 9 else r.choice([None, b"broken", written(n)[:-1]]) for n in range(200)]
    source = clicks(registry, values(spark, *said), key="user", timestamp=None)
    rows = both_ways(source)
    assert 180 < len(rows) < 200
    numbers = [row["either"]["member0"] for row in rows if row["either"]]
    assert 50 < len(set(numbers)) < len(numbers)  # the other records have texts


def test_decoded_rows_keep_no_bytes_of_records(spark: SparkSession, registry: Registry) -> None:
    """A map task holds a million rows; with the records' bytes they would take much more memory."""
    one = registry.register("clicks-value", FIRST)
    frame = raw(spark, *((b"k", framed(one, first("A", n, n))) for n in range(100)))
    source = clicks(registry, frame, key="k")
    wanted = arrow_schema(source.frame.schema)
    given, row_decoder = source.node.undecoded.for_workers(wanted)
    sent = pa.table(given.toArrow()).combine_chunks().to_batches()[0].serialize()
    batch = pa.ipc.read_record_batch(sent, given.toArrow().schema)
    [rows] = row_decoder.rows(iter([batch.append_column(WALL_CLOCK, pa.array([7] * 100))]), Counts())
    assert rows.schema.names == [*wanted.names, WALL_CLOCK]
    assert rows.num_rows == 100
    places = [each.address for column in rows.columns for each in column.buffers() if each is not None and each.size]
    assert not [at for at in places if sent.address <= at < sent.address + sent.size]


def test_a_registry_that_is_down_stops_the_query_and_nothing_is_lost(spark: SparkSession, tmp_path: Path) -> None:
    folder = tmp_path / "in"
    with Registry() as registry:
        one = registry.register("clicks-value", FIRST)
        registry.register("clicks-value", SECOND)
        values(spark, framed(one, first("A", 1, 0)), framed(one, first("A", 2, 9))).coalesce(1).write.parquet(
            str(folder)
        )
        frame = sums(clicks(registry, streamed(spark, folder)))
        registry.failing = 10_000
        with pytest.raises(StreamingQueryException) as caught:
            run(frame, tmp_path)
        assert f"does not say what schema {one} is: 503, not now" in str(caught.value)
        assert "it goes on from its checkpoint, and no record is lost" in str(caught.value)
        # The client asks again by itself if the registry is away for a moment.
        registry.failing = 2
        run(frame, tmp_path)
        rows = spark.read.parquet(str(tmp_path / "out")).collect()
        assert [(row["who"], row["total"]) for row in rows] == [("A", 1)]


def test_definitions_that_are_refused(spark: SparkSession, registry: Registry) -> None:
    registry.register("clicks-value", FIRST)
    registry.register("text-value", 'syntax = "proto3"; message M { int32 x = 1; }', "PROTOBUF")
    frame = values(spark)
    with pytest.raises(tg.DefinitionError, match="has no schema of the subject 'nothing-value'"):
        clicks(registry, frame, value=tg.kafka.schema_registry(registry.url, subject="nothing-value"))
    with pytest.raises(tg.DefinitionError, match="has no version 7 of the subject"):
        clicks(registry, frame, value=tg.kafka.schema_registry(registry.url, subject="clicks-value", version=7))
    with pytest.raises(tg.DefinitionError, match="`value` needs the subject of its schema"):
        clicks(registry, frame, value=tg.kafka.schema_registry(registry.url))
    with pytest.raises(tg.DefinitionError, match="Give the message as protoc makes it"):
        clicks(registry, frame, value=tg.kafka.schema_registry(registry.url, subject="text-value"))
    with pytest.raises(tg.DefinitionError, match="leave `subject` and `version` out"):
        tg.kafka.schema_registry(registry.url, subject="x", schema="a int")
    with pytest.raises(tg.DefinitionTypeError, match="`url` is 'localhost:8081'"):
        tg.kafka.schema_registry("localhost:8081")
    with pytest.raises(tg.DefinitionError, match=r"does not take these settings.*no\.such"):
        tg.kafka.schema_registry(registry.url, options={"no.such": 1})
    with pytest.raises(tg.DefinitionTypeError, match="`schema` is 5"):
        clicks(registry, frame, value=tg.kafka.schema_registry(registry.url, schema=5))
    away = tg.kafka.schema_registry("http://127.0.0.1:9", subject="x", options=QUICK)
    with pytest.raises(tg.InputError, match="does not say which schema 'x' has"):
        clicks(registry, frame, value=away)


def test_a_worker_without_the_registry_says_so(spark: SparkSession, registry: Registry) -> None:
    one = registry.register("clicks-value", FIRST)
    source = clicks(registry, values(spark, framed(one, first("A", 1, 0))), key="user")
    registry.failing = 10_000
    with pytest.raises(PythonException, match=f"does not say what schema {one} is"):
        source.frame.collect()


ROW = {
    "type": "record",
    "name": "Value",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "email", "type": ["null", "string"], "default": None},
    ],
}
ENVELOPE = {
    "type": "record",
    "name": "Envelope",
    "namespace": "server.shop.customers",
    "fields": [
        {"name": "before", "type": ["null", ROW], "default": None},
        {"name": "after", "type": ["null", "Value"], "default": None},
        {
            "name": "source",
            "type": {
                "type": "record",
                "name": "Source",
                "fields": [{"name": "version", "type": "string"}, {"name": "ts_ms", "type": "long"}],
            },
        },
        {"name": "op", "type": "string"},
        {"name": "ts_ms", "type": ["null", "long"], "default": None},
    ],
}
KEY = {"type": "record", "name": "Key", "fields": [{"name": "id", "type": "long"}]}


def envelope(op: str, before: bytes | None, after: bytes | None, at: int) -> bytes:
    sides = b"".join(b"\0" if each is None else b"\2" + each for each in (before, after))
    return sides + avro("3.0", at, op) + b"\2" + avro(at + 10)


def customer(id: int, email: str | None) -> bytes:
    return avro(id) + (b"\0" if email is None else b"\2" + avro(email))


def test_envelopes_of_debezium_in_avro(spark: SparkSession, registry: Registry) -> None:
    one = registry.register("server.shop.customers-value", ENVELOPE)
    key = framed(registry.register("server.shop.customers-key", KEY), avro(1))
    frame = raw(
        spark,
        (key, framed(one, envelope("r", None, customer(1, "a"), 100))),
        (key, framed(one, envelope("u", customer(1, "a"), customer(1, None), 200))),
        (key, framed(one, envelope("u", customer(1, None), customer(2, "b"), 300))),
        (key, framed(one, envelope("d", customer(2, "b"), None, 400))),
        (key, None),
        (b"no key", None),
        (key, framed(one, envelope("t", None, None, 500))),
        (key, framed(77, b"")),
    )
    row = tg.kafka.schema_registry(registry.url, subject="server.shop.customers-value")
    table = tg.debezium.table(frame, key="id", row=row)
    assert table.frame.columns[:2] == ["id", "email"]
    found = table.frame.select("offset", "id", "email", F.unix_millis("change_timestamp"), "tombstone").collect()
    kafka = 1_767_225_600_000
    assert [tuple(each) for each in found] == [
        (0, 1, "a", 100, False),
        (1, 1, None, 200, False),
        (2, 1, None, 300, True),
        (2, 2, "b", 300, False),
        (3, 2, "b", 400, True),
        (4, 1, None, kafka, True),
    ]
    assert [(each["offset"], each["reason"], each["schema_id"]) for each in table.dead_letters.collect()] == [
        (5, "a tombstone whose key does not have the table's key", None),
        (6, "op t is about no single row", one),
        (7, "the value has schema 77, which the registry does not have", 77),
    ]
    skipping = tg.debezium.table(frame, key="id", row=row, tombstones="skip")
    assert skipping.frame.count() == 5


def test_documents_of_mongodb_are_refused(spark: SparkSession, registry: Registry) -> None:
    fields = [{"name": "after", "type": ["null", "string"]}, {"name": "op", "type": "string"}]
    registry.register("mongo-value", {"type": "record", "name": "Envelope", "fields": fields})
    registry.register("clicks-value", FIRST)
    row = tg.kafka.schema_registry(registry.url, subject="mongo-value")
    with pytest.raises(tg.DefinitionError, match=r"`after` is string.*Documents of MongoDB are not read"):
        tg.debezium.table(values(spark), key="id", row=row)
    with pytest.raises(tg.DefinitionError, match="no envelope of Debezium in Avro"):
        tg.debezium.table(values(spark), key="id", row=clicks_value(registry))
