"""The pages and the examples of the reference about topics, over a real broker and a real schema registry."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

import tidegate as tg

pytest.importorskip("pyspark")
pytest.importorskip("fastavro")
pytest.importorskip("authlib", reason="pip install 'tidegate[registry]'")

import pyspark
from confluent_kafka.schema_registry import Schema, SchemaRegistryClient
from pyspark.sql import SparkSession
from pyspark.sql import functions as F
from tools.maven import MavenError

from docs.lanes import in_lanes, pages_of
from docs.pages import ROOT, replaced, run
from docs.reference import Name, in_lane
from kafka.apicurio import Apicurio
from kafka.broker import Broker
from kafka.client import Client
from sinks.server import postgres
from spark.alerts import as_it_was, build
from tidegate.runtime.spark.kafka import formats

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.kafka]

START = 1_767_225_600_000
MINUTE = 60_000
CHANGES = "shop.public.customers"
AVRO = {"name": "event", "type": "record", "fields": [{"name": "user", "type": "string"}]}
ORDER = {
    "type": "record",
    "name": "Order",
    "fields": [
        {"name": "customer", "type": "string"},
        {"name": "user", "type": "string", "default": ""},
        {"name": "ordered_at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "ts", "type": {"type": "long", "logicalType": "timestamp-millis"}, "default": 0},
    ],
}
CUSTOMER = {"type": "record", "name": "Value", "fields": [{"name": "id", "type": "long"}]}
ENVELOPE = {
    "type": "record",
    "name": "Envelope",
    "fields": [
        {"name": "before", "type": ["null", CUSTOMER], "default": None},
        {"name": "after", "type": ["null", "Value"], "default": None},
        {"name": "op", "type": "string"},
        {"name": "ts_ms", "type": ["null", "long"], "default": None},
        {
            "name": "source",
            "type": {"type": "record", "name": "Source", "fields": [{"name": "ts_ms", "type": "long"}]},
        },
    ],
}


@dataclass(frozen=True)
class Shop:
    """The topics of the pages, under their names there, with a few records."""

    spark: SparkSession
    client: Client
    servers: str
    registry: str

    def instead(self, folder: Path) -> dict[str, str]:
        """Replacements for the addresses and folders of the pages."""
        return {
            "localhost:9092": self.servers,
            "http://localhost:8081": self.registry,
            '"/data/': f'"{folder}/',
            '"/checkpoints/': f'"{folder}/',
            "spark-sql-kafka-0-10_2.13:4.3.0": f"spark-sql-kafka-0-10_2.13:{pyspark.__version__}",
        }

    def names(self) -> dict[str, Any]:
        """Names that the pages and examples use and do not define."""
        return {"tg": tg, "F": F, "spark": self.spark, "servers": self.servers, "SparkSession": SparkSession}

    def finish(self) -> None:
        """Let every query take the available records."""
        for query in self.spark.streams.active:
            query.processAllAvailable()


@pytest.fixture(scope="module")
def shop(spark: SparkSession, client: Client, broker: Broker) -> Iterator[Shop]:
    try:
        registry = Apicurio()
    except MavenError as error:
        pytest.skip(f"no schema registry: {error}")
    topics = ("events", "orders", "users", CHANGES, "counts", "alerts", "events.dead")
    for topic in topics:
        client.topic(name=topic)
    times = [START, START + 10_000, START + 9 * MINUTE]
    events = [{"user": "A", "price": 1.5, "ts": f"2026-01-01T00:{at // MINUTE:02}:00Z"} for at in (0, 0, 9 * MINUTE)]
    values = [json.dumps(event).encode() for event in events]
    client.send(
        "events", [(0, b"A", value, at) for value, at in zip([*values, b"broken"], [*times, times[-1]], strict=True)]
    )
    client.send("orders", [(0, b"1", b'{"customer": 1, "price": 5, "ts": "2026-01-01T00:00:00Z"}', START)])
    client.send("users", [(0, b"A", b'{"city": "Rome"}', START)])
    row = {"id": 1, "name": "Ada", "country": "IT"}
    change = {"before": None, "after": row, "op": "c", "ts_ms": START, "source": {"ts_ms": START}}
    client.send(CHANGES, [(0, b'{"id": 1}', json.dumps(change).encode(), START)])
    with registry as running:
        known = SchemaRegistryClient({"url": running.url})
        known.register_schema("orders-value", Schema(json.dumps(ORDER), "AVRO"))
        known.register_schema(f"{CHANGES}-value", Schema(json.dumps(ENVELOPE), "AVRO"))
        yield Shop(spark, client, broker.servers, running.url)
    for topic in topics:
        client.remove(topic)


@pytest.mark.parametrize("page", pages_of("kafka"), ids=lambda page: str(page.relative_to(ROOT)))
def test_the_blocks_of_a_page_run(shop: Shop, page: Path, tmp_path: Path) -> None:
    """The README and the page about graces also run their blocks without Kafka that define names."""
    names = {"__name__": page.name, **shop.names()}
    instead = shop.instead(tmp_path)
    with as_it_was(shop.spark), ExitStack() as stack:
        if page.name == "change-data.md":
            instead["postgresql://host/copy"] = stack.enter_context(postgres()).url
        assert run(page, names, in_lanes("driver", "kafka"), instead)
        shop.finish()
    if page.name == "choosing-a-grace.md":
        assert names["recorded"](shop.spark, shop.servers).count() == 4
    if page.name == "kafka.md":
        assert [json.loads(record["value"])["count"] for record in shop.client.read("counts")] == [2]
        assert [record["value"] is not None for record in shop.client.read("events.dead")] == [True]
    if page.name == "README.md":
        assert [json.loads(record["value"])["count"] for record in shop.client.read("alerts")] == [2]


@pytest.mark.parametrize("name", in_lane("kafka"), ids=lambda name: name.dotted)
def test_an_example_of_the_reference_runs(shop: Shop, name: Name, tmp_path: Path) -> None:
    known = shop.names()
    events = tg.kafka.source(
        shop.spark, shop.servers, "events", key="user", value="user string, ts timestamp", timestamp="ts"
    )
    schema = json.dumps(AVRO)
    known |= {"final": build(events), "schema": schema}
    of_kind = {"Avro": tg.kafka.avro(schema), "Text": tg.kafka.text("user")}
    value: formats.Format = of_kind.get(name.dotted.split(".")[2], tg.kafka.json("user string"))
    known |= {"value": value, "row": value.decoded(F.col("value"), value.fields(shop.spark))}
    with as_it_was(shop.spark):
        for block in name.for_spark:
            exec(replaced(block, shop.instead(tmp_path)), known)
        shop.finish()
