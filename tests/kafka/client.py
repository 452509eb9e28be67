"""Kafka's own admin client, producer and consumer, in the JVM of a Spark session that has the connector."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from typing import Any, Self

from py4j.protocol import Py4JJavaError
from pyspark.sql import SparkSession

Record = tuple[int, bytes | None, bytes | None, int | None]
"""Partition, key, value, timestamp in ms (None: now)."""

BYTES = "org.apache.kafka.common.serialization.ByteArray"
PATIENCE_S = 600
LEADERS_S = 60
"""Most seconds until a new topic can be written to."""


class Client:
    """As a context; topics get numbered names, so that tests do not share them."""

    def __init__(self, spark: SparkSession, servers: str) -> None:
        self._jvm: Any = spark._jvm
        self._servers = servers
        self._admin = self._kafka.clients.admin.Admin.create(self._settings())
        self._producer = self._kafka.clients.producer.KafkaProducer(
            self._settings(
                {
                    "key.serializer": f"{BYTES}Serializer",
                    "value.serializer": f"{BYTES}Serializer",
                    "delivery.timeout.ms": str(PATIENCE_S * 1000),
                }
            )
        )
        self._topics = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self._producer.close()
        self._admin.close()

    @property
    def java(self) -> int:
        """The process of Spark's JVM."""
        return int(self._jvm.java.lang.ProcessHandle.current().pid())

    def topic(self, partitions: int = 1, name: str = "", **config: str) -> str:
        """A new topic, under a number unless it is named; `cleanup_policy="compact"` is Kafka's cleanup.policy."""
        self._topics += 1
        name = name or f"topic-{self._topics}"
        made = self._kafka.clients.admin.NewTopic(name, self._optional.of(partitions), self._optional.empty())
        made.configs(self._map({key.replace("_", "."): value for key, value in config.items()}))
        self._admin.createTopics(self._jvm.java.util.List.of(made)).all().get()
        self._await_leaders(name, partitions)
        return name

    def _await_leaders(self, topic: str, partitions: int) -> None:
        """Wait until each partition answers.

        Otherwise a partition may refuse the first records of a producer, not yet ready, and take the next: the first
        are then out of sequence for ever (KAFKA-15591).
        """
        newest = self._kafka.clients.admin.OffsetSpec.latest()
        asked = self._jvm.java.util.HashMap()
        for partition in range(partitions):
            asked.put(self._kafka.common.TopicPartition(topic, partition), newest)
        stop = time.monotonic() + LEADERS_S
        while True:
            try:
                self._admin.listOffsets(asked).all().get()
            except Py4JJavaError:  # a broker that does not know the topic yet says that there is none
                if time.monotonic() > stop:
                    raise
                time.sleep(0.05)
            else:
                return

    def remove(self, topic: str) -> None:
        self._admin.deleteTopics(self._jvm.java.util.List.of(topic)).all().get()

    def send(self, topic: str, records: Iterable[Record]) -> None:
        """Write records in this order; returns when the broker has all of them."""
        record = self._kafka.clients.producer.ProducerRecord
        sent = [
            self._producer.send(record(topic, partition, at, _bytes(key), _bytes(value)))
            for partition, key, value, at in records
        ]
        self._producer.flush()
        for each in sent:
            each.get()  # raises if this record was given up

    def read(self, topic: str, partitions: int = 1) -> list[dict[str, Any]]:
        """All records of a topic, by partition and offset: partition, offset, key, value, timestamp, headers."""
        consumer = self._kafka.clients.consumer.KafkaConsumer(
            self._settings({"key.deserializer": f"{BYTES}Deserializer", "value.deserializer": f"{BYTES}Deserializer"})
        )
        try:
            places = self._jvm.java.util.ArrayList()
            for partition in range(partitions):
                places.add(self._kafka.common.TopicPartition(topic, partition))
            consumer.assign(places)
            consumer.seekToBeginning(places)
            ends = consumer.endOffsets(places)
            found = []
            stop = time.monotonic() + PATIENCE_S
            while any(consumer.position(place) < ends[place] for place in places):
                assert time.monotonic() < stop, f"{topic} could not be read to its end"
                polled = consumer.poll(self._jvm.java.time.Duration.ofMillis(200)).iterator()
                while polled.hasNext():
                    found.append(_told(polled.next()))
        finally:
            consumer.close()
        return sorted(found, key=lambda record: (record["partition"], record["offset"]))

    @property
    def _kafka(self) -> Any:
        return self._jvm.org.apache.kafka

    @property
    def _optional(self) -> Any:
        return self._jvm.java.util.Optional

    def _settings(self, more: Mapping[str, str] | None = None) -> Any:
        return self._map({"bootstrap.servers": self._servers, **(more or {})})

    def _map(self, values: Mapping[str, str]) -> Any:
        made = self._jvm.java.util.HashMap()
        for key, value in values.items():
            made.put(key, value)
        return made


def _bytes(value: bytes | None) -> bytearray | None:
    return None if value is None else bytearray(value)


def _told(record: Any) -> dict[str, Any]:
    return {
        "partition": record.partition(),
        "offset": record.offset(),
        "key": record.key(),
        "value": record.value(),
        "timestamp": record.timestamp(),
        "headers": {each.key(): each.value() for each in record.headers().toArray()},
    }
