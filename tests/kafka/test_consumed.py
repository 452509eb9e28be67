"""`consumer="librdkafka"` over a real broker: the same records as Spark's connector, in batches as large as its."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import tidegate as tg

pytest.importorskip("pyspark")
pytest.importorskip("confluent_kafka")
pytest.importorskip("pyspark.sql.streaming.datasource", reason="Spark 4.2 or later")

from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewPartitions
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession

from kafka.broker import Broker
from kafka.client import Client
from kafka.test_topics import BATCHES, SCHEMA, Query, Twin, final, same, sent
from spark.replay import Row
from tidegate.runtime.spark.kafka import librdkafka

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.kafka]


@pytest.fixture
def admin(broker: Broker) -> AdminClient:
    return AdminClient({"bootstrap.servers": broker.servers})


class Reading:
    """Queries over one topic with each consumer, each from its own checkpoint; `run` checks that they read the same."""

    def __init__(self, spark: SparkSession, servers: str, topic: str, folder: Path, **options: str) -> None:
        def query(consumer: str) -> Query:
            def frame() -> DataFrame:
                source = tg.kafka.source(
                    spark,
                    servers,
                    topic,
                    key=tg.kafka.text("user"),
                    value=tg.kafka.text("said"),
                    headers=True,
                    consumer=consumer,
                    options=options,
                    name="events",
                )
                return source.frame

            return Query(frame, folder / consumer)

        self._queries = [query("spark"), query("librdkafka")]

    def run(self) -> list[Row]:
        wanted, found = (query.run() for query in self._queries)
        same(found, wanted)
        return found

    def batches(self) -> list[list[int]]:
        """Number of records in each batch, for each consumer."""
        return [[each["events source"]["records"] for each in query.metrics] for query in self._queries]


def test_the_same_records_as_the_connectors(
    spark: SparkSession, client: Client, broker: Broker, tmp_path: Path
) -> None:
    """Keys and values that are null or empty, headers, times; more records than one chunk has."""
    topic = client.topic(partitions=2)
    client.send(topic, [(0, None, b"no key", 1), (0, b"a", None, 2), (1, b"", b"", 3), (1, b"\xff", b"bad key", 4)])
    producer = Producer({"bootstrap.servers": broker.servers})
    producer.produce(topic, b"v", b"k", partition=0, headers=[("trace", b"\x00\xff"), ("none", None), ("trace", b"")])
    for number in range(9_000):
        producer.produce(topic, f"value {number}", f"user-{number % 7}", partition=number % 2, timestamp=number + 5)
    producer.flush()
    rows = Reading(spark, broker.servers, topic, tmp_path).run()
    assert len(rows) == 9_004
    assert [row["headers"] for row in rows if row["said"] == "v"] != [None]


@pytest.mark.parametrize("isolation", ["read_uncommitted", "read_committed"])
def test_places_without_records(
    spark: SparkSession, client: Client, broker: Broker, tmp_path: Path, isolation: str
) -> None:
    """Markers of transactions take offsets; the last markers are behind all records."""
    topic = client.topic(partitions=2)
    producer = Producer({"bootstrap.servers": broker.servers, "transactional.id": f"t-{isolation}"})
    producer.init_transactions()
    for records, end in ((5, producer.commit_transaction), (3, producer.abort_transaction)) * 2:
        producer.begin_transaction()
        for number in range(records):
            producer.produce(topic, f"value {number}", "A", partition=number % 2)
        producer.flush()
        end()
    reading = Reading(spark, broker.servers, topic, tmp_path, **{"kafka.isolation.level": isolation})
    assert len(reading.run()) == (16 if isolation == "read_uncommitted" else 10)
    client.send(topic, [(0, b"B", b"behind", None)])
    assert [row["user"] for row in reading.run()] == ["B"]


def test_batches_are_as_large_as_the_connectors(
    spark: SparkSession, client: Client, broker: Broker, tmp_path: Path
) -> None:
    topic = client.topic(partitions=3)
    client.send(topic, [(at, b"A", str(n).encode(), None) for at, count in ((0, 30), (1, 7)) for n in range(count)])
    reading = Reading(spark, broker.servers, topic, tmp_path, maxOffsetsPerTrigger="10")
    assert len(reading.run()) == 37
    ours, theirs = reading.batches()
    assert ours == theirs
    assert len(ours) > 3
    assert max(ours) <= 12


def test_a_checkpoint_goes_on_with_either_consumer(
    spark: SparkSession, client: Client, broker: Broker, tmp_path: Path
) -> None:
    topic = client.topic(partitions=3)
    consumers: Iterator[str] = iter(["librdkafka", "spark", "librdkafka"])

    def frame() -> DataFrame:
        source = tg.kafka.source(
            spark, broker.servers, topic, key="user", value=SCHEMA, timestamp="ts", consumer=next(consumers)
        )
        return final(source).to_df()

    query, twin = Query(frame, tmp_path), Twin(final)
    for events in BATCHES:
        client.send(topic, sent(events))
        same(query.run(), twin.run(events))
    assert query.late() == twin.driver.dropped > 0


def test_a_partition_that_comes_later(
    spark: SparkSession, client: Client, broker: Broker, admin: AdminClient, tmp_path: Path
) -> None:
    topic = client.topic()
    client.send(topic, [(0, b"A", b"1", None)])
    reading = Reading(spark, broker.servers, topic, tmp_path)
    assert len(reading.run()) == 1
    for made in admin.create_partitions([NewPartitions(topic, 2)]).values():
        made.result()
    producer = Producer({"bootstrap.servers": broker.servers})
    producer.produce(topic, "2", "B", partition=1)
    producer.produce(topic, "3", "A", partition=0)
    producer.flush()
    assert sorted(row["user"] for row in reading.run()) == ["A", "B"]


def test_a_running_query_goes_on_where_its_topic_gets_more_partitions(
    client: Client, broker: Broker, admin: AdminClient
) -> None:
    """Its client has asked about the topic before, and answers at first that there are no such partitions."""
    topic, asked = client.topic(), librdkafka.Client(broker.servers)
    assert asked.ends([topic]) == {topic: {"0": 0}}
    for made in admin.create_partitions([NewPartitions(topic, 3)]).values():
        made.result()
    stop = time.monotonic() + librdkafka.ANSWER_S
    while len(found := asked.ends([topic])[topic]) < 3:  # until the broker tells it
        assert time.monotonic() < stop
    assert found == {"0": 0, "1": 0, "2": 0}


@pytest.mark.parametrize("consumer", ["spark", "librdkafka"])
def test_a_new_partition_that_has_lost_its_first_records_stops_the_query(
    spark: SparkSession, client: Client, broker: Broker, admin: AdminClient, tmp_path: Path, consumer: str
) -> None:
    topic = client.topic()
    client.send(topic, [(0, b"A", b'{"n": 0}', None)])
    query = _query(spark, broker, topic, tmp_path, consumer)
    assert len(query.run()) == 1
    for made in admin.create_partitions([NewPartitions(topic, 2)]).values():
        made.result()
    producer = Producer({"bootstrap.servers": broker.servers})
    for n in range(1, 6):
        producer.produce(topic, b'{"n": %d}' % n, b"A", partition=1)
    producer.flush()
    for deleted in admin.delete_records([TopicPartition(topic, 1, 3)]).values():
        deleted.result()
    with pytest.raises(StreamingQueryException):
        query.run()
    lossy = _query(spark, broker, topic, tmp_path, consumer, failOnDataLoss="false")
    assert [row["n"] for row in lossy.run()] == [4, 5]


def _query(
    spark: SparkSession, broker: Broker, topic: str, folder: Path, consumer: str = "librdkafka", **options: Any
) -> Query:
    return Query(
        lambda: (
            tg.kafka.source(
                spark,
                broker.servers,
                topic,
                key="user",
                value="n long",
                consumer=consumer,
                options=options,
            ).frame
        ),
        folder,
    )


def test_records_that_kafka_deleted_stop_the_query(
    spark: SparkSession, client: Client, broker: Broker, admin: AdminClient, tmp_path: Path
) -> None:
    topic = client.topic()
    client.send(topic, [(0, b"A", b'{"n": %d}' % n, None) for n in range(4)])
    query = _query(spark, broker, topic, tmp_path)
    assert len(query.run()) == 4
    client.send(topic, [(0, b"A", b'{"n": %d}' % n, None) for n in range(4, 10)])
    for deleted in admin.delete_records([TopicPartition(topic, 0, 7)]).values():
        deleted.result()
    with pytest.raises(StreamingQueryException, match=rf"{topic}, partition 0: the records from offset 4 to 9 cannot"):
        query.run()
    lossy = _query(spark, broker, topic, tmp_path, failOnDataLoss="false")
    assert [row["n"] for row in lossy.run()] == [7, 8, 9]


def test_a_topic_made_anew_stops_the_query(
    spark: SparkSession, client: Client, broker: Broker, admin: AdminClient, tmp_path: Path
) -> None:
    from confluent_kafka.admin import NewTopic

    topic = client.topic()
    client.send(topic, [(0, b"A", b'{"n": %d}' % n, None) for n in range(4)])
    query = _query(spark, broker, topic, tmp_path)
    assert len(query.run()) == 4
    for futures in (admin.delete_topics([topic]), admin.create_topics([NewTopic(topic, 1, 1)])):
        for done in futures.values():
            done.result()
    producer = Producer({"bootstrap.servers": broker.servers})
    producer.produce(topic, b'{"n": 77}', b"A")
    producer.flush()
    with pytest.raises(StreamingQueryException, match="the query is at offset 4, but the partition ends at 1"):
        query.run()
    lossy = _query(spark, broker, topic, tmp_path, failOnDataLoss="false")
    assert [row["n"] for row in lossy.run()] == [77]


@pytest.mark.parametrize(
    ("starting", "wanted"), [("earliest", [0, 1, 2, 10]), ("latest", []), ('{"TOPIC": {"0": 1, "1": -1}}', [1, 2])]
)
def test_where_a_query_starts(
    spark: SparkSession, client: Client, broker: Broker, tmp_path: Path, starting: str, wanted: list[int]
) -> None:
    topic = client.topic(partitions=2)
    client.send(topic, [(at, b"A", b'{"n": %d}' % n, None) for at, n in ((0, 0), (0, 1), (0, 2), (1, 10))])
    query = _query(spark, broker, topic, tmp_path, startingOffsets=starting.replace("TOPIC", topic))
    assert sorted(row["n"] for row in query.run()) == wanted
    client.send(topic, [(at, b"A", b'{"n": %d}' % n, None) for at, n in ((0, 3), (1, 11))])
    assert sorted(row["n"] for row in query.run()) == [3, 11]


def test_passwords_are_not_in_plans(spark: SparkSession, broker: Broker) -> None:
    source = tg.kafka.source(
        spark,
        broker.servers,
        "events",
        key="user",
        value="n long",
        consumer="librdkafka",
        options={"kafka.sasl.password": "open sesame"},
    )
    plan = source.frame._jdf.queryExecution().toString()
    assert "tidegate_kafka" in plan
    assert re.search("[A-Za-z0-9+/=]{100}", plan) is None, "the options of the source are in the plan"
