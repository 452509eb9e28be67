"""Topics whose schemas a real registry keeps, written by Confluent's own serializers where these are installed."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import tidegate as tg

pytest.importorskip("pyspark")
pytest.importorskip("authlib", reason="pip install 'tidegate[registry]'")
pytest.importorskip("fastavro")

from confluent_kafka import Producer
from confluent_kafka.schema_registry import Schema, SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroSerializer
from confluent_kafka.serialization import MessageField, SerializationContext
from pyspark.sql import DataFrame, SparkSession
from tools.maven import MavenError

from kafka.apicurio import Apicurio
from kafka.broker import Broker
from kafka.client import Client
from kafka.test_topics import Query
from schemas.framed import framed
from spark.test_example import load
from tidegate.runtime.spark.kafka.source import decoded_stream

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.kafka]

TIME = {"type": "long", "logicalType": "timestamp-millis"}
FIRST = {
    "type": "record",
    "name": "Order",
    "namespace": "shop",
    "fields": [
        {"name": "user", "type": "string"},
        {"name": "price", "type": "int"},
        {"name": "agent", "type": ["null", "string"], "default": None},
        {"name": "at", "type": TIME},
    ],
}
SECOND = {
    **FIRST,
    "fields": [
        {"name": "who", "type": "string", "aliases": ["user"]},
        {"name": "price", "type": "long"},
        {"name": "tags", "type": {"type": "array", "items": "string"}, "default": []},
        {
            "name": "sent",
            "type": ["null", {"type": "record", "name": "Place", "fields": [{"name": "zip", "type": "string"}]}],
            "default": None,
        },
        {"name": "at", "type": TIME},
    ],
}
START = 1_767_225_600_000


@pytest.fixture(scope="module")
def registry() -> Iterator[Apicurio]:
    try:
        made = Apicurio()
    except MavenError as error:
        pytest.skip(f"no schema registry: {error}")
    with made as running:
        yield running


class Orders:
    """A topic, and writers into it through a registry."""

    def __init__(self, client: Client, broker: Broker, registry: Apicurio) -> None:
        self.topic = client.topic(partitions=2)
        self._registry = SchemaRegistryClient({"url": registry.url})
        self._producer = Producer({"bootstrap.servers": broker.servers})
        self._at = SerializationContext(self.topic, MessageField.VALUE)

    def write(self, schema: Any, rows: list[dict[str, Any]]) -> int:
        """Write rows by Confluent's serializer; returns the id of the schema."""
        serializer = AvroSerializer(self._registry, json.dumps(schema))
        number = 0
        for n, row in enumerate(rows):
            value = serializer(row, self._at)
            assert value is not None
            number = int.from_bytes(value[1:5], "big")
            self._producer.produce(self.topic, value, f"k{n}", partition=n % 2, timestamp=START + n)
        self._producer.flush()
        return number

    def register(self, schema: str, kind: str) -> int:
        return int(self._registry.register_schema(f"{self.topic}-value", Schema(schema, kind)))

    def send(self, value: bytes) -> None:
        self._producer.produce(self.topic, value, "k", partition=0, timestamp=START)
        self._producer.flush()


@pytest.fixture
def orders(client: Client, broker: Broker, registry: Apicurio) -> Orders:
    return Orders(client, broker, registry)


def first(n: int) -> dict[str, Any]:
    return {"user": f"u{n % 3}", "price": n, "agent": None if n % 2 else "curl", "at": START + n * 1000}


def second(n: int) -> dict[str, Any]:
    sent = None if n % 4 else {"zip": str(n)}
    return {"who": f"u{n % 3}", "price": n << 33, "tags": ["a"] * (n % 3), "sent": sent, "at": START + n * 1000}


def source(spark: SparkSession, broker: Broker, registry: Apicurio, orders: Orders, **more: Any) -> Any:
    value = tg.kafka.schema_registry(registry.url)
    given: dict[str, Any] = {"key": "who", "value": value, "timestamp": "at", "name": "orders", **more}
    return tg.kafka.source(spark, broker.servers, orders.topic, **given)


def test_records_of_several_schemas_by_each_consumer(
    spark: SparkSession, broker: Broker, registry: Apicurio, orders: Orders, tmp_path: Path
) -> None:
    orders.write(FIRST, [first(n) for n in range(40)])
    orders.write(SECOND, [second(n) for n in range(40)])
    orders.send(framed(999_999, b"x"))
    orders.send(b"no frame")
    found = []
    for consumer in ("spark", "librdkafka"):

        def counts(consumer: str = consumer) -> DataFrame:
            records = source(spark, broker, registry, orders, consumer=consumer)
            frame: DataFrame = records.group_by_key().agg(n=tg.count(), total=tg.sum("price")).to_df()
            return frame

        query = Query(counts, tmp_path / consumer)
        rows = {row["who"]: (row["n"], row["total"]) for row in query.run()}
        found.append(rows)
        assert sum(each["orders source"]["malformed"] for each in query.metrics) == 2
        dead = source(spark, broker, registry, orders, streaming=False).dead_letters.orderBy("offset").collect()
        assert [(row["partition"], row["schema_id"], row["reason"]) for row in dead] == [
            (0, 999_999, "the value has schema 999999, which the registry does not have"),
            (0, None, "the value does not begin with a zero byte and the number of a schema"),
        ]
    wanted: dict[str, tuple[int, int]] = {}
    for n in range(40):
        count, total = wanted.get(f"u{n % 3}", (0, 0))
        wanted[f"u{n % 3}"] = (count + 2, total + n + (n << 33))
    assert found == [wanted, wanted]


def test_the_columns_and_values_of_from_avro(
    spark: SparkSession, broker: Broker, registry: Apicurio, orders: Orders
) -> None:
    number = orders.write(SECOND, [second(n) for n in range(100)])
    ours = source(spark, broker, registry, orders, streaming=False)
    by_spark = source(
        spark,
        broker,
        registry,
        orders,
        streaming=False,
        value=tg.kafka.avro(json.dumps(SECOND), schema_id=number),
    )
    assert ours.frame.dtypes == by_spark.frame.dtypes
    assert sorted(map(str, ours.frame.collect())) == sorted(map(str, by_spark.frame.collect()))
    sink = tg.kafka.records(
        ours.frame.select("who", "price", "tags", "sent", "at"),
        key="who",
        value=tg.kafka.schema_registry(registry.url, subject=f"{orders.topic}-value"),
    )
    again = sink.selectExpr("key", "value", "'t' topic", "0 partition", "0L offset", "timestamp'2026-01-01' timestamp")
    value = tg.kafka.schema_registry(registry.url, subject=f"{orders.topic}-value")
    back = decoded_stream(again, key="who", value=value, timestamp="at", name="again").frame
    columns = ("who", "price", "tags", "sent", "at")
    assert sorted(map(str, back.select(*columns).collect())) == sorted(map(str, ours.frame.select(*columns).collect()))


def test_protobuf_and_json(spark: SparkSession, client: Client, broker: Broker, registry: Apicurio) -> None:
    text = Orders(client, broker, registry)
    proto = 'syntax = "proto3"; package shop; message Other { int32 x = 1; }'
    number = text.register(proto, "PROTOBUF")
    from schemas.test_protobuf import FILE, message_class

    other = message_class(FILE, "shop.Other")
    text.send(framed(number, b"\0" + other(x=7).SerializeToString()))
    value = tg.kafka.schema_registry(registry.url, schema=other)
    rows = source(spark, broker, registry, text, key="x", value=value, timestamp=None, streaming=False).frame
    assert [row["x"] for row in rows.collect()] == [7]
    json_ = Orders(client, broker, registry)
    schema = {"type": "object", "properties": {"who": {"type": "string"}, "price": {"type": "integer"}}}
    number = json_.register(json.dumps(schema), "JSON")
    json_.send(framed(number, b'{"who": "A", "price": 5}'))
    rows = source(spark, broker, registry, json_, timestamp=None, streaming=False).frame
    assert [(row["who"], row["price"]) for row in rows.collect()] == [("A", 5)]


def test_the_example(spark: SparkSession, broker: Broker, registry: Apicurio, orders: Orders, tmp_path: Path) -> None:
    """`examples/orders_by_registry.py`, whose second run goes on behind the first."""
    script = load("orders_by_registry")
    fields = [
        {"name": "customer", "type": "string"},
        {"name": "amount", "type": "int"},
        {"name": "ordered_at", "type": TIME},
    ]
    older = {"type": "record", "name": "Order", "fields": fields}
    newer = {**older, "fields": [*fields, {"name": "note", "type": "string", "default": ""}]}
    hour = 3_600_000
    orders.write(older, [{"customer": "A", "amount": n, "ordered_at": START + n * 1000} for n in range(4)])
    orders.send(framed(999_999, b"x"))
    for schema, at in ((newer, 2), (older, 4)):
        more = {"customer": "A", "amount": 100, "ordered_at": START + at * hour, "note": "n"}
        orders.write(schema, [{**more, "amount": 5}, more])
        script.run(script.orders(spark, broker.servers, registry.url, orders.topic), tmp_path)
    sums = spark.read.parquet(str(tmp_path / "sums")).orderBy("window").collect()
    assert [(row["customer"], row["orders"], row["total"]) for row in sums] == [("A", 4, 6), ("A", 2, 105)]
    [dead] = spark.read.parquet(str(tmp_path / "dead")).collect()
    assert dead["schema_id"] == 999_999
