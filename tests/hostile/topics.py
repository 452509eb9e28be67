"""Topics of a real Kafka broker as sources of random streams: JSON that both consumers of `tg.kafka.source` read."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from random import Random
from typing import Any

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic
from pyspark.sql import SparkSession

import tidegate as tg
from hostile import files
from hostile.case import Case, Row, Source
from hostile.scenario import Scenario
from tidegate.runtime.spark.kafka.reading import TAKEN

CONSUMERS = ("spark", "librdkafka")
PATIENCE_S = 60


def consumer(what: Case) -> str | None:
    """The consumer that is drawn for the records of a case; None if they are in files.

    Kafka numbers the records of a partition itself, and a batch without records is none. So the order of a case is that
    of its topic, and rows that have the order, as late records do, are not drawn.
    """
    random = Random(f"topic {what.seed}")
    if not isinstance(what, Scenario) or what.order is None or not all(what.batches) or random.random() < 0.3:
        return None
    if files.has_spans(what.sources[0]):
        return None
    names = {name for name in what.sources[0].schema().names if name not in what.order}
    if any(output.kind == "late" for output in what.outputs) or names & {*TAKEN, "_corrupt_record"}:
        return None
    return random.choice(CONSUMERS)


@dataclass(frozen=True)
class Topic:
    """The topic of a source."""

    spark: SparkSession
    servers: str
    name: str
    source: Source
    consumer: str
    way: files.Door

    def stream(self, **more: Any) -> Any:
        kept = files.without_order(more)
        value = files.schema_of(self.source, self.way)
        return tg.kafka.source(self.spark, self.servers, self.name, value=value, consumer=self.consumer, **kept)


class Topics:
    """The topics of the cases of a query; `run` is part of their names, which no other query has."""

    def __init__(self, servers: str, run: str) -> None:
        self.servers, self._run = servers, run
        self._made: set[str] = set()
        self._producer = Producer({"bootstrap.servers": servers})

    def read(self, spark: SparkSession, what: Case) -> Topic | None:
        """The records of a case; None if they are in files."""
        chosen = consumer(what)
        if chosen is None:
            return None
        self._make(what)
        return Topic(spark, self.servers, self._name(what), what.sources[0], chosen, _way(what))

    def write(self, what: Case, records: Sequence[Row]) -> None:
        """Write the records of a batch, each into its partition; returns when the broker has them."""
        assert isinstance(what, Scenario)
        assert what.order is not None
        self._make(what)
        lines = files.lines(records, what.sources[0], _way(what))
        for record, line in zip(records, lines, strict=True):
            self._producer.produce(self._name(what), line.encode(), partition=record[what.order[0]])
        assert not self._producer.flush(PATIENCE_S), "the broker does not take the records"

    def _name(self, what: Case) -> str:
        return f"{self._run}-{what.seed}"

    def _make(self, what: Case) -> None:
        name = self._name(what)
        if name in self._made:
            return
        assert isinstance(what, Scenario)
        assert what.order is not None
        partitions = 1 + max(record[what.order[0]] for batch in what.batches for record in batch)
        admin = AdminClient({"bootstrap.servers": self.servers})
        admin.create_topics([NewTopic(name, partitions, 1)])[name].result(PATIENCE_S)
        self._made.add(name)


def _way(what: Case) -> files.Door:
    """The form of the JSON of a case: without the columns of the order, and with either form of event times."""
    times = [record[what.sources[0].timestamp] for batch in what.batches for record in batch]
    plain = all(time is None or time in files.PLAIN_YEARS for time in times)
    return files.Door(files.JSON, in_order=True, epoch=not plain or Random(f"epoch {what.seed}").random() < 0.5)
