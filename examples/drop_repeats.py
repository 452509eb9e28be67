"""A consumer of a topic that `tg.kafka.sink` writes: counts each result once, though the topic may have it twice.

Spark writes to Kafka at least once: after a crash the records of the last batch come again, with the same `row_id`.
This consumer keeps totals of the results in a database (SQLite here). The same transaction stores the ids that it has
taken and the offsets to read next. So neither repeats in the topic nor its own crash count a result twice.

    tg.kafka.sink(final, servers, "counts", headers=["row_id"], checkpoint=...)  ->  topic  ->  this

Run it: `python examples/drop_repeats.py localhost:9092 counts totals.db`. It needs `pip install confluent-kafka`.
"""

from __future__ import annotations

import json
import sqlite3
import sys
from collections.abc import Iterable
from typing import Any

TABLES = """
CREATE TABLE IF NOT EXISTS taken (row_id TEXT PRIMARY KEY) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS read (partition INTEGER PRIMARY KEY, next INTEGER NOT NULL);
CREATE TABLE IF NOT EXISTS totals (key TEXT PRIMARY KEY, results INTEGER NOT NULL, sum INTEGER NOT NULL);
"""


def opened(path: str) -> sqlite3.Connection:
    database = sqlite3.connect(path)
    database.executescript(TABLES)
    return database


def take(database: sqlite3.Connection, records: Iterable[Any], key: str, value: str) -> int:
    """Add the results in these records to `totals`, in one transaction; returns the number of new results."""
    new = 0
    with database:
        for record in records:
            if record.value() is None:  # a deleted row: final results have none
                continue
            ids = [said for name, said in record.headers() or () if name == "row_id"]
            result = json.loads(record.value())
            row_id = ids[0].decode() if ids else result["row_id"]
            # One statement inserts the id, and reports whether it is new.
            if database.execute("INSERT INTO taken VALUES (?) ON CONFLICT DO NOTHING", (row_id,)).rowcount:
                database.execute(
                    "INSERT INTO totals VALUES (?, 1, ?) ON CONFLICT DO UPDATE SET "
                    "results = results + 1, sum = sum + excluded.sum",
                    (str(result[key]), result[value]),
                )
                new += 1
            database.execute(
                "INSERT INTO read VALUES (?, ?) ON CONFLICT DO UPDATE SET next = excluded.next",
                (record.partition(), record.offset() + 1),
            )
    return new


def consume(servers: str, topic: str, path: str, key: str, value: str, idle_s: float = 5) -> int:
    """Take all records of a topic until none comes for `idle_s` seconds; returns the number of new results."""
    from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaException, TopicPartition

    database, new = opened(path), 0
    settings = {"bootstrap.servers": servers, "group.id": "drop-repeats", "enable.auto.commit": False}
    # Where Kafka has deleted the next records, the default goes to the end, and leaves out those behind them too.
    consumer = Consumer({**settings, "auto.offset.reset": "error"})
    try:
        # The offsets are in the database and not in Kafka: after a crash the two could differ.
        places = dict(database.execute("SELECT partition, next FROM read"))
        partitions = consumer.list_topics(topic, timeout=30).topics[topic].partitions
        consumer.assign([TopicPartition(topic, number, places.get(number, OFFSET_BEGINNING)) for number in partitions])
        while records := consumer.consume(1_000, timeout=idle_s):
            for record in records:
                if record.error() is not None:
                    raise KafkaException(record.error())
            new += take(database, records, key, value)
    finally:
        consumer.close()
        database.close()
    return new


if __name__ == "__main__":
    servers, topic, path = sys.argv[1:]
    print(consume(servers, topic, path, key="user", value="count"), "new results")
