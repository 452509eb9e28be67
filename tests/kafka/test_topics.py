"""Pipelines over a real broker (`make test-kafka`): their rows are those of the driver for the same batches."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

import tidegate as tg
from tidegate.testing import TopologyTestDriver

pytest.importorskip("pyspark")

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from kafka.broker import Broker
from kafka.client import Client, Record
from spark.replay import Row, collect, observed
from spark.test_example import load
from tidegate.runtime.spark.kafka.subscription import CONSUMER

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.kafka]

OLD = find_spec("pyspark.sql.streaming.datasource") is None
CONSUMERS = ["spark", pytest.param("librdkafka", marks=pytest.mark.skipif(OLD, reason="Spark 4.2 or later"))]
MINUTE = 60_000
SCHEMA = "user string, ts long"
Event = tuple[int, str, float]
"""Partition, user, minute."""


def sent(events: Sequence[Event]) -> list[Record]:
    return [
        (at, None, json.dumps({"user": user, "ts": int(minute * MINUTE)}).encode(), None) for at, user, minute in events
    ]


def final(events: tg.KStream, grace: str = "2 minutes") -> tg.KTable:
    windows = tg.TimeWindows.of_size_and_grace("2 minutes", grace)
    counts = events.group_by_key().windowed_by(windows).count()
    return counts.suppress(tg.Suppressed.until_window_closes(tg.BufferConfig.unbounded()))


class Query:
    """A query with a checkpoint of its own: each `run` restarts it and takes the new records as one batch."""

    def __init__(self, frame: Callable[[], DataFrame], folder: Path) -> None:
        self._frame, self._checkpoint = frame, str(folder / "checkpoint")
        self.metrics: list[dict[str, dict[str, Any]]] = []

    def run(self) -> list[Row]:
        rows: dict[int, list[Row]] = {}
        query = (
            self._frame()
            .writeStream.outputMode("update")
            .option("checkpointLocation", self._checkpoint)
            .trigger(availableNow=True)
            .foreachBatch(lambda frame, batch: rows.__setitem__(batch, collect(frame)))
            .start()
        )
        finish(query)
        progress = [each.observedMetrics for each in query.recentProgress if each.observedMetrics]
        self.metrics += [{name: observed(row) for name, row in each.items()} for each in progress]
        return [row for batch in sorted(rows) for row in rows[batch]]

    def late(self) -> int:
        return sum(values.get("late") or 0 for batch in self.metrics for values in batch.values())


def finish(query: Any) -> None:
    try:
        assert query.awaitTermination(300), "the query did not end"
    finally:
        query.stop()


def write(writer: Any) -> None:
    finish(writer.trigger(availableNow=True).start())


class Twin:
    """The same topology in the test driver, given the same batches with the same partitions and offsets."""

    def __init__(self, topology: Callable[[tg.KStream], tg.KTable], **stream: Any) -> None:
        order = {"partition": "partition", "offset": "offset"}
        self.driver = TopologyTestDriver(topology(tg.stream("events", key="user", timestamp="ts", **order, **stream)))
        self._offsets: dict[int, int] = {}

    def run(self, events: Sequence[Event]) -> list[Row]:
        batch = []
        for partition, user, minute in events:
            offset = self._offsets.get(partition, 0)
            self._offsets[partition] = offset + 1
            batch.append({"user": user, "ts": int(minute * MINUTE), "partition": partition, "offset": offset})
        self.driver.pipe_batch(batch)
        return self.driver.read_output()


def same(rows: list[Row], wanted: list[Row]) -> None:
    assert sorted(rows, key=repr) == sorted(wanted, key=repr)


BATCHES: list[list[Event]] = [
    [(0, "A", 10), (1, "B", 11), (0, "A", 11), (0, "A", 13), (1, "A", 10.5), (0, "A", 11), (1, "B", 12)],
    [(0, "A", 14), (0, "A", 10), (1, "A", 11.5), (1, "C", 15), (0, "C", 13)],
    [(1, "B", 20), (0, "A", 17), (0, "A", 30)],
]


@pytest.mark.parametrize("consumer", CONSUMERS)
def test_smoke_final_results_of_several_partitions(
    spark: SparkSession, client: Client, broker: Broker, tmp_path: Path, consumer: str
) -> None:
    """Three partitions, one of them idle; a restart between the batches; late records counted."""
    topic = client.topic(partitions=3)

    def frame() -> DataFrame:
        source = tg.kafka.source(
            spark, broker.servers, topic, key="user", value=SCHEMA, timestamp="ts", consumer=consumer
        )
        return final(source).to_df()

    query, twin = Query(frame, tmp_path), Twin(final)
    for events in BATCHES:
        client.send(topic, sent(events))
        same(query.run(), twin.run(events))
    assert query.late() == twin.driver.dropped > 0


@pytest.mark.parametrize(("stream_time", "lost"), [("max", True), ("min_partition", False)])
def test_a_partition_that_lags(
    spark: SparkSession, client: Client, broker: Broker, tmp_path: Path, stream_time: str, lost: bool
) -> None:
    topic = client.topic(partitions=2)

    def frame() -> DataFrame:
        source = tg.kafka.source(
            spark, broker.servers, topic, key="user", value=SCHEMA, timestamp="ts", stream_time=stream_time
        )
        return final(source).to_df()

    query, twin = Query(frame, tmp_path), Twin(final, stream_time=stream_time)
    batches: list[list[Event]] = [
        [(0, "A", minute) for minute in range(10, 40)] + [(1, "A", 10)],
        [(1, "A", minute) for minute in range(10, 25)],
        [(0, "B", 41), (1, "A", 50), (0, "B", 52)],
    ]
    for events in batches:
        client.send(topic, sent(events))
        same(query.run(), twin.run(events))
    assert (query.late() > 0) == lost
    assert query.late() == twin.driver.dropped


@pytest.mark.parametrize("consumer", CONSUMERS)
def test_malformed_records_are_set_aside_counted_and_change_nothing(
    spark: SparkSession, client: Client, broker: Broker, tmp_path: Path, consumer: str
) -> None:
    topic, dead = client.topic(partitions=2), client.topic()
    good = sent(BATCHES[0] + BATCHES[1] + BATCHES[2])
    bad: list[Record] = [
        (0, b"k", b"{", None),
        (1, None, b'{"user": "A", "ts": "noon"}', None),
        (0, None, b"\xff", None),
    ]
    client.send(topic, [*good[:3], bad[0], *good[3:9], *bad[1:], *good[9:]])

    def source() -> Any:
        return tg.kafka.source(
            spark, broker.servers, topic, key="user", value=SCHEMA, timestamp="ts", consumer=consumer
        )

    query = Query(lambda: final(source()).to_df(), tmp_path)
    same(query.run(), Twin(final).run(BATCHES[0] + BATCHES[1] + BATCHES[2]))
    assert query.metrics[0][f"{topic} source"] == {"records": len(good) + 3, "malformed": 3}
    write(
        tg.kafka.sink(
            source().dead_letters,
            broker.servers,
            dead,
            key=["topic", "partition", "offset"],
            checkpoint=str(tmp_path / "dead"),
        )
    )
    letters = [(json.loads(record["key"]), json.loads(record["value"])["reason"]) for record in client.read(dead)]
    assert sorted(letters, key=repr) == sorted(
        [
            ({"topic": topic, "partition": 0, "offset": 2}, "the value is not JSON"),
            ({"topic": topic, "partition": 1, "offset": 3}, "in the value, 'ts' is not a bigint"),
            ({"topic": topic, "partition": 0, "offset": 7}, "the value is not UTF-8"),
        ],
        key=repr,
    )


@pytest.mark.parametrize("consumer", CONSUMERS)
def test_a_compacted_topic_as_a_table(
    spark: SparkSession, client: Client, broker: Broker, tmp_path: Path, consumer: str
) -> None:
    """A compacted topic: only the newest row of each key is left, at offsets with gaps between them."""
    topic = client.topic(
        cleanup_policy="compact", segment_bytes="1048576", segment_ms="100", min_cleanable_dirty_ratio="0.001"
    )
    changes: list[Record] = [
        (0, f"user-{n % 3}".encode(), json.dumps({"plan": n}).encode(), 1000 + n) for n in range(30)
    ]
    client.send(topic, [*changes, (0, b"user-1", None, 5000)])
    compacted(client, topic, below=len(changes))
    table = tg.kafka.table(spark, broker.servers, topic, key="user", value="plan int", streaming=False)
    newest: dict[str, Row] = {}
    for row in sorted(collect(table.to_df()), key=lambda row: row["timestamp"]):
        newest[row["user"]] = row
    shown = {user: (row["plan"], row["timestamp"], row["deleted"]) for user, row in newest.items() if "user" in user}
    assert shown == {"user-0": (27, 1027, False), "user-1": (None, 5000, True), "user-2": (29, 1029, False)}

    def held() -> DataFrame:
        changelog = tg.kafka.table(spark, broker.servers, topic, key="user", value="plan int", consumer=consumer)
        limit = tg.Suppressed.until_time_limit("1 minute", tg.BufferConfig.unbounded(), clock="stream")
        return changelog.suppress(limit).to_df()

    # The records that made Kafka compact are a minute and more later, and move the table's time.
    rows = [row for row in Query(held, tmp_path).run() if row["user"].startswith("user-")]
    assert {row["user"]: row["plan"] for row in rows} == {"user-0": 27, "user-1": None, "user-2": 29}


def compacted(client: Client, topic: str, below: int) -> None:
    """Wait until Kafka has compacted: it never touches the newest segment, so new ones are begun."""
    stop = time.monotonic() + 120
    tick = 0
    while True:
        client.send(topic, [(0, f"tick-{tick}".encode(), b'{"plan": 0}', 100_000 + 1000 * tick)])
        tick += 1
        offsets = [record["offset"] for record in client.read(topic)]
        # Both the values and their overwritten versions are gone: the offsets have gaps.
        if len([offset for offset in offsets if offset < below]) <= 3:
            return
        assert time.monotonic() < stop, f"{topic} was not compacted, it has {offsets}"
        time.sleep(0.5)


def test_results_into_a_topic_and_repeats_told_apart(
    spark: SparkSession, client: Client, broker: Broker, tmp_path: Path
) -> None:
    """A crash between writing and committing: the batch is written twice, and its rows have the same ids."""
    topic, out = client.topic(partitions=2), client.topic(partitions=2)
    client.send(topic, sent(BATCHES[0] + BATCHES[1]))
    checkpoint = tmp_path / "checkpoint"

    def run() -> None:
        source = tg.kafka.source(spark, broker.servers, topic, key="user", value=SCHEMA, timestamp="ts")
        sink = tg.kafka.sink(
            final(source), broker.servers, out, checkpoint=str(checkpoint), headers=["row_id", "timestamp"]
        )
        write(sink)

    run()
    client.send(topic, sent(BATCHES[2]))
    run()
    once = client.read(out, partitions=2)
    newest = max((checkpoint / "commits").glob("[0-9]*"), key=lambda path: int(path.name))
    for path in (newest, newest.with_name(f".{newest.name}.crc")):
        path.unlink(missing_ok=True)
    run()
    twice = client.read(out, partitions=2)
    assert len(twice) > len(once) > 0

    def by_id(found: list[dict[str, Any]]) -> dict[str, tuple[Any, Any]]:
        return {json.loads(record["value"])["row_id"]: (record["key"], record["value"]) for record in found}

    assert by_id(twice) == by_id(once)
    assert len(by_id(once)) == len(once)
    twin = Twin(final)
    wanted = {(row["user"], row["window"].start, row["count"]) for row in twin.run(BATCHES[0] + BATCHES[1])}
    wanted |= {(row["user"], row["window"].start, row["count"]) for row in twin.run(BATCHES[2])}
    read = tg.kafka.source(
        spark,
        broker.servers,
        out,
        key=tg.kafka.json("user string"),
        value="window struct<start: timestamp>, count long, row_id string, timestamp timestamp",
        timestamp="timestamp",
        headers=True,
        streaming=False,
    )
    rows = read.frame.dropDuplicates(["row_id"]).select("user", F.unix_millis("window_in.start"), "count").collect()
    assert {tuple(row) for row in rows} == wanted
    assert {bytes(record["headers"]["row_id"]).decode() for record in twice} == set(by_id(once))

    # The consumer of the examples counts each result once, and goes on from its last position.
    example = load("drop_repeats")
    database = str(tmp_path / "totals.db")
    assert example.consume(broker.servers, out, database, key="user", value="count") == len(once)
    assert example.consume(broker.servers, out, database, key="user", value="count") == 0
    totals = {key: (results, total) for key, results, total in example.opened(database).execute("SELECT * FROM totals")}
    assert totals == {
        user: (sum(each == user for each, _, _ in wanted), sum(n for each, _, n in wanted if each == user))
        for user, _, _ in wanted
    }


def test_results_that_kafka_deleted_are_not_left_out_without_a_word(
    client: Client, broker: Broker, tmp_path: Path
) -> None:
    """The consumer of the examples stops: it must not go to the end of the topic, where no result is left."""
    kafka = pytest.importorskip("confluent_kafka")
    admin = pytest.importorskip("confluent_kafka.admin")
    topic, example, database = client.topic(), load("drop_repeats"), str(tmp_path / "totals.db")

    def consume(*results: int) -> int:
        client.send(
            topic, [(0, b"A", json.dumps({"user": "A", "n": n, "row_id": str(n)}).encode(), None) for n in results]
        )
        found: int = example.consume(broker.servers, topic, database, key="user", value="n", idle_s=2)
        return found

    assert consume(0, 1, 2) == 3
    client.send(topic, [(0, b"A", b"{}", None)])
    deleting = admin.AdminClient({"bootstrap.servers": broker.servers})
    deleted = deleting.delete_records([kafka.TopicPartition(topic, 0, 4)])
    for each in deleted.values():
        each.result()
    with pytest.raises(kafka.KafkaException, match="_AUTO_OFFSET_RESET"):
        consume(4)


def test_deletions_become_tombstones(spark: SparkSession, client: Client, broker: Broker) -> None:
    """Through a topic and out into another one; both as static reads."""
    topic, out = client.topic(), client.topic(cleanup_policy="compact")
    client.send(topic, [(0, b"A", b'{"plan": 1}', 1000), (0, b"B", b'{"plan": 2}', 2000), (0, b"A", None, 3000)])
    table = tg.kafka.table(spark, broker.servers, topic, key="user", value="plan int", streaming=False)
    tg.kafka.sink(table, broker.servers, out).save()
    written = sorted(
        (
            (bytes(record["key"]), record["value"] and json.loads(record["value"])["plan"])
            for record in client.read(out)
        ),
        key=repr,
    )
    assert written == [(b"A", 1), (b"A", None), (b"B", 2)]


AVRO = json.dumps(
    {
        "type": "record",
        "name": "event",
        "fields": [
            {"name": "user", "type": ["null", "string"]},
            {"name": "ts", "type": ["null", {"type": "long", "logicalType": "timestamp-millis"}]},
        ],
    }
)


@pytest.mark.parametrize("schema_id", [None, 7])
def test_avro(spark: SparkSession, client: Client, broker: Broker, schema_id: int | None) -> None:
    topic = client.topic()
    head = b"" if schema_id is None else bytes([0, 0, 0, 0, schema_id])
    body = b"\x02\x02A\x02" + _zigzag(61_000)
    nothing = b"\x00\x00"
    values = [head + body, head + nothing, head + body[:-1], head + body + b"\x01", b"\x00\x00\x00\x00\x09" + body, b""]
    client.send(topic, [(0, None, value, None) for value in values])
    source = tg.kafka.source(
        spark,
        broker.servers,
        topic,
        key="user",
        value=tg.kafka.avro(AVRO, schema_id=schema_id),
        timestamp="ts",
        streaming=False,
    )
    rows = [(row["user"], row["offset"]) for row in source.frame.orderBy("offset").collect()]
    reasons = {row["offset"]: row["reason"] for row in source.dead_letters.collect()}
    # The fifth value, read without a schema id, is a record of nulls with bytes behind it.
    assert rows == [("A", 0), (None, 1)]
    assert sorted(reasons) == [2, 3, 4, 5]
    assert reasons[2] == "the value is not Avro of the schema"
    if schema_id is not None:
        assert reasons[4] == "the value does not begin with 0x0000000007, schema 7, but with 0x0000000009"
    counted = collect(source.group_by_key().count().to_df())
    assert counted == [{"user": "A", "count": 1, "timestamp": 61_000}]
    back = tg.kafka.records(source.frame.select("user", "ts"), key="user", value=source_format(schema_id))
    assert [bytes(row["value"]) for row in back.collect()][:1] == [head + body]


def source_format(schema_id: int | None) -> Any:
    return tg.kafka.avro(AVRO, schema_id=schema_id)


def _zigzag(number: int) -> bytes:
    number, out = number << 1, bytearray()
    while number > 127:
        out.append(number & 127 | 128)
        number >>= 7
    return bytes([*out, number])


@pytest.mark.parametrize("consumer", CONSUMERS)
def test_several_topics_and_kafkas_own_time(
    spark: SparkSession, client: Client, broker: Broker, tmp_path: Path, consumer: str
) -> None:
    """Partition 0 of one topic is not partition 0 of the other: no record of the second is late for the first's."""
    topics = [client.topic(), client.topic()]
    for topic, user in zip(topics, "AB", strict=True):
        client.send(topic, [(0, user.encode(), b'{"v": 1}', 1000 * n) for n in (1, 5, 9)])
    wanted = [("A", 3, 9000), ("B", 3, 9000)]
    if consumer == "spark":
        source = tg.kafka.source(spark, broker.servers, topics, key="user", value="v int", streaming=False)
        rows = collect(final(source, grace="0 seconds").to_df())
        assert sorted((row["user"], row["count"], row["timestamp"]) for row in rows) == wanted

    def streamed() -> DataFrame:
        source = tg.kafka.source(spark, broker.servers, topics, key="user", value="v int", consumer=consumer)
        return final(source, grace="0 seconds").to_df()

    query = Query(streamed, tmp_path)
    assert query.run() == []
    client.send(topics[0], [(0, b"C", b'{"v": 1}', 600_000)])
    assert sorted((row["user"], row["count"], row["timestamp"]) for row in query.run()) == wanted
    assert query.late() == 0


@pytest.mark.parametrize("consumer", CONSUMERS)
def test_a_topic_that_does_not_exist_stops_the_query(
    spark: SparkSession, broker: Broker, tmp_path: Path, consumer: str
) -> None:
    from pyspark.errors import StreamingQueryException

    source = tg.kafka.source(
        spark, broker.servers, "nothing-here", key="user", value=SCHEMA, timestamp="ts", consumer=consumer
    )
    with pytest.raises(StreamingQueryException, match="nothing-here"):
        Query(lambda: final(source).to_df(), tmp_path).run()


@pytest.mark.parametrize("consumer", CONSUMERS)
def test_a_record_without_a_value_is_skipped(
    spark: SparkSession, client: Client, broker: Broker, tmp_path: Path, consumer: str
) -> None:
    topic = client.topic()

    def frame() -> DataFrame:
        source = tg.kafka.source(
            spark,
            broker.servers,
            topic,
            key=tg.kafka.text("user"),
            value="amount long",
            headers=True,
            consumer=consumer,
            name="events",
        )
        return source.group_by_key().count().to_df()

    client.send(topic, [(0, b"A", b'{"amount": 1}', 1), (0, b"A", None, 2), (0, b"A", b'{"amount": null}', 3)])
    query = Query(frame, tmp_path)
    assert query.run() == [{"user": "A", "count": 1, "timestamp": 1}]
    assert [batch["events"]["null_value"] for batch in query.metrics] == [2]


@pytest.mark.parametrize("setting", ["kafka.max.poll.records", "kafka.fetch.max.wait.ms"])
def test_settings_of_the_consumer_can_be_others(
    spark: SparkSession, client: Client, broker: Broker, setting: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = client.topic()
    client.send(topic, sent([(0, "a", 0)]))
    wrong = f"Invalid value -1 for configuration {setting.removeprefix('kafka.')}"

    def frame(**options: str) -> DataFrame:
        return tg.kafka.source(
            spark, broker.servers, topic, key="user", value=SCHEMA, timestamp="ts", streaming=False, options=options
        ).frame

    assert frame().count() == 1
    with pytest.raises(Exception, match=wrong):
        frame(**{setting: "-1"}).count()
    # The settings of tidegate reach the consumer, unless the options have others.
    monkeypatch.setitem(CONSUMER, setting, "-1")
    with pytest.raises(Exception, match=wrong):
        frame().count()
    assert frame(**{setting: "100"}).count() == 1
