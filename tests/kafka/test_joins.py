"""Two topics of a real broker into a third by a left join: its records are the rows of the oracle."""

from __future__ import annotations

import json
import time
from collections import Counter
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

import tidegate as tg

pytest.importorskip("pyspark")

from pyspark.sql import SparkSession

from kafka.broker import Broker
from kafka.client import Client, Record
from kafka.test_topics import CONSUMERS, MINUTE, finish
from oracle_join_batches import Arrival, JoinInBatches
from oracle_joins import JoinedRow, StreamJoin
from spark.replay import observed

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.kafka]

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
PARTITIONS = 2
VALUES = {"left": "order", "right": "payment"}
WITHIN = tg.JoinWindows.of_time_difference_and_grace("2 minutes", "1 minute")
Event = tuple[int, str, float]
"""Partition, user, minute."""
ORDERS: list[list[Event]] = [
    [(minute % 2, "ABC"[minute % 3], minute) for minute in range(10, 41)],
    [],
    [(0, "A", 60), (1, "B", 61)],
]
# Payments lag by a batch, and are out of order within the grace. None of them is for C.
PAYMENTS: list[list[Event]] = [
    [(0, "A", 10), (1, "B", 11)],
    [(minute % 2, "AB"[minute % 3 % 2], minute + 0.5 * (minute % 4)) for minute in range(12, 39)],
    [(0, "A", 62), (1, "B", 60.5)],
]


class Side:
    """A topic, and the number of records written into it: each record has a number of its own."""

    def __init__(self, client: Client, name: str) -> None:
        self.name, self.topic = name, client.topic(PARTITIONS)
        self._client, self._numbers, self._offsets = client, 0, [0] * PARTITIONS

    def send(self, events: list[Event]) -> list[Arrival]:
        records: list[Record] = []
        arrivals = []
        for at, user, minute in events:
            ts, number, offset = int(minute * MINUTE), self._numbers, self._offsets[at]
            self._numbers, self._offsets[at] = number + 1, offset + 1
            value = json.dumps({"user": user, VALUES[self.name]: number, "ts": ts})
            records.append((at, None, value.encode(), None))
            arrivals.append(Arrival(self.name, user, number, ts, at, offset))
        self._client.send(self.topic, records)
        return arrivals


def shown(record: dict[str, Any]) -> JoinedRow:
    """The row in a record of the output topic."""
    row = json.loads(record["value"])
    assert bytes(record["key"]).decode() == row["user"]
    timestamp = (datetime.fromisoformat(row["timestamp"]) - EPOCH) // timedelta(milliseconds=1)
    return JoinedRow(row["user"], row.get("order"), row.get("payment"), timestamp)


class Joined:
    """The left join of two topics into a third: each `run` restarts the query and takes the new records."""

    def __init__(self, spark: SparkSession, client: Client, servers: str, folder: Path, **more: Any) -> None:
        self._spark, self._client, self._servers, self._more = spark, client, servers, more
        self._checkpoint = str(folder / "checkpoint")
        self.left, self.right = (Side(client, name) for name in VALUES)
        self._out = client.topic(PARTITIONS)
        self.late = 0

    def run(self) -> Counter[JoinedRow]:
        """All rows so far."""
        joined = self._source(self.left).left_join(self._source(self.right), WITHIN)
        sink = tg.kafka.sink(joined, self._servers, self._out, checkpoint=self._checkpoint)
        query = sink.trigger(availableNow=True).start()
        finish(query)
        for progress in query.recentProgress:
            self.late += sum(observed(row).get("late") or 0 for row in progress.observedMetrics.values())
        found = self._client.read(self._out, PARTITIONS)
        assert len({json.loads(record["value"])["row_id"] for record in found}) == len(found)
        return Counter(map(shown, found))

    def _source(self, side: Side) -> Any:
        value = f"user string, {VALUES[side.name]} long, ts long"
        return tg.kafka.source(
            self._spark, self._servers, side.topic, key="user", value=value, timestamp="ts", **self._more
        )


@pytest.mark.parametrize("consumer", CONSUMERS)
@pytest.mark.parametrize(
    ("clock", "lost"), [({"idle_after": "1 hour"}, False), ({"stream_time": "max"}, True)], ids=["slower-side", "max"]
)
def test_a_topic_that_lags(
    spark: SparkSession,
    client: Client,
    broker: Broker,
    tmp_path: Path,
    clock: dict[str, str],
    lost: bool,
    consumer: str,
) -> None:
    """With the slower side as the clock no record is lost; by the largest timestamp the lagging topic is late."""
    joined = Joined(spark, client, broker.servers, tmp_path, consumer=consumer, **clock)
    oracle = JoinInBatches(lambda: StreamJoin(2 * MINUTE, 2 * MINUTE, MINUTE, "left"), slowest=not lost)
    wanted: Counter[JoinedRow] = Counter()
    for orders, payments in zip(ORDERS, PAYMENTS, strict=True):
        wanted.update(oracle.batch(joined.left.send(orders) + joined.right.send(payments)))
        assert joined.run() == wanted
    assert joined.late == oracle.drops["late"]
    assert (joined.late > 0) == lost
    paid = {row.left for row in wanted if row.right is not None}
    unpaid = {row.left for row in wanted if row.right is None}
    assert paid
    assert unpaid
    assert not paid & unpaid


def test_a_topic_that_falls_silent(spark: SparkSession, client: Client, broker: Broker, tmp_path: Path) -> None:
    """With `idle_after` it does not hold back the other topic for ever, and its next record may be late."""
    joined = Joined(spark, client, broker.servers, tmp_path, idle_after="1 second")
    joined.left.send([(0, "A", 10), (0, "B", 20)])
    joined.right.send([(0, "A", 11)])
    pair, alone = JoinedRow("A", 0, 0, 11 * MINUTE), JoinedRow("B", 1, None, 20 * MINUTE)
    assert joined.run() == Counter([pair])
    time.sleep(1.5)
    joined.left.send([(0, "C", 40)])
    assert joined.run() == Counter([pair, alone])
    joined.right.send([(0, "B", 20.5)])
    assert joined.run() == Counter([pair, alone])
    assert joined.late == 1
