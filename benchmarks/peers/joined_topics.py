"""J5: two topics of a broker into a third by a left join, tidegate against Kafka Streams.

Both topics have the records of benchmarks/two_sides.py, partitioned by user, each partition in order but for a few
seconds, as in the other workloads over a broker. A last record per partition and topic closes all records before it.

Kafka Streams emits null-joined rows at most once a second, and only when a record comes: it never emits those of the
last second of a run. So some of its null-joined rows may be missing, and their number is reported; each pair must be
there once, and each row must be right. tidegate must emit all rows.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

import tidegate as tg
from benchmarks.inputs import HALVES, Int64s
from benchmarks.joined_columns import has_price, left_joined, rows
from benchmarks.measure import Run
from benchmarks.peers import kafka_streams as streams
from benchmarks.peers.kafka_streams import KafkaStreams
from benchmarks.peers.ours import CONSUMER, WRITE, opened, ran
from benchmarks.peers.over_kafka import OURS, Contestant, OverKafka
from benchmarks.peers.topics import PARTITIONS, Topics, in_turn, last_records, packed
from benchmarks.race import Bar
from benchmarks.two_sides import GRACE_MS, SIDES, VALUES, Half, Shape, Stretch, halves, span_for
from benchmarks.workloads.joins import WINDOW_MS, asked

PAIRS = 1
"""Pairs per record on average."""


def shape_of(keys: int, rows: int, batches: int) -> Shape:
    return Shape(keys, WINDOW_MS, (Stretch(batches, rows, span_for(PAIRS, rows, keys, WINDOW_MS)),))


# Spark gives each partition a share of a batch in proportion to all its records, so partitions differ by some records
# at the end of a batch. With enough records per second the difference is short, and no record is late.
SIZES = {
    "smoke": shape_of(5_000, 4_000, 3),
    "default": shape_of(100_000, 500_000, 5),
    "full": shape_of(100_000, 500_000, 10),
}


def batches_of(shape: Shape) -> list[int]:
    """Number of records of one topic in each micro-batch; the records that close all are in the last one."""
    of_each = [HALVES * (each.rows // HALVES) for each in shape.batches]
    return [*of_each[:-1], of_each[-1] + PARTITIONS]


def of_both(shape: Shape) -> list[int]:
    return [len(SIDES) * records for records in batches_of(shape)]


def pieces(shape: Shape, side: int) -> Iterator[np.ndarray]:
    """The records of a topic in the order of writing, a micro-batch at a time."""
    every = list(halves(shape, side))
    batches = [every[at : at + HALVES] for at in range(0, len(every), HALVES)]
    for batch in batches[:-1]:
        yield packed(*(in_turn([getattr(half, of) for half in batch]) for of in ("key", "ts_ms", "value")))
    closing: Half = batches[-1][0]
    yield last_records(shape.keys, int(closing.ts_ms[0]))


def inputs(topics: Topics, shape: Shape) -> list[str]:
    """The names of the two topics; each is written once."""
    records = sum(batches_of(shape))
    return [topics.written((shape, side), records, pieces(shape, side), VALUES[side]) for side in range(len(SIDES))]


# -- contestants ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Result:
    """The output topic of a contestant: its rows (`joined_columns`), and the arrival of the last (ms since 1970)."""

    rows: Int64s
    last_ms: int


def result(shape: Shape, records: DataFrame) -> Result:
    """The result in `records` (user, amount, price, arrived_ms), without the rows of the records that close all."""
    number = F.expr("CAST(substring(user, length('user-') + 1) AS LONG)")
    table = records.select(number.alias("user"), "amount", F.coalesce("price", F.lit(-1)).alias("price"), "arrived_ms")
    found = {name: column.to_numpy() for name, column in zip(table.columns, table.toArrow().columns, strict=True)}
    kept = found["user"] < shape.keys
    return Result(rows(*(found[name][kept] for name in ("user", "amount", "price"))), int(found["arrived_ms"].max()))


def written(records: DataFrame, user: str) -> DataFrame:
    """The records of a contestant's topic in the columns of `result`; `user` is the column with the user's name."""
    value = F.from_json(F.col("value").cast("string"), "user STRING, amount LONG, price LONG").alias("of")
    key = F.col("key").cast("string").alias("key")
    whole = records.select(value, key, F.unix_millis("timestamp").alias("arrived_ms"))
    return whole.select(F.col(user).alias("user"), "of.amount", "of.price", "arrived_ms")


@dataclass
class Tidegate:
    """tidegate, from two `tg.kafka.source` into `tg.kafka.sink`."""

    name: str
    label: str
    consumer: str = "spark"
    whole = True

    @property
    def settings(self) -> dict[str, str]:
        return {"consumer": self.consumer, **CONSUMER[self.consumer], **WRITE}

    def shape(self, shape: Shape) -> Shape:
        return shape

    def run(self, topics: Topics, shape: Shape) -> tuple[Run, Result | None]:
        def writer(output: str, checkpoint: str) -> Any:
            left, right = (
                opened(topics, topic, value, name, self.consumer, batches_of(shape), stream_time="max")
                for topic, value, name in zip(inputs(topics, shape), VALUES, SIDES, strict=True)
            )
            rows = asked(left, right, "left", shape.window_ms)
            return tg.kafka.sink(rows, topics.servers, output, checkpoint=checkpoint, options=WRITE)

        return ran(topics, writer, of_both(shape), lambda records: result(shape, written(records, "of.user")))

    def stop(self) -> None:
        """Nothing to stop: only Spark runs on between its turns, and others use it too."""


@dataclass
class Streams:
    """Kafka Streams; its rows have the user as key."""

    application: KafkaStreams
    whole = False

    @property
    def name(self) -> str:
        return self.application.name

    @property
    def label(self) -> str:
        return self.application.label

    @property
    def settings(self) -> dict[str, str]:
        return self.application.settings

    def shape(self, shape: Shape) -> Shape:
        return shape

    def run(self, topics: Topics, shape: Shape) -> tuple[Run, Result]:
        left, right = inputs(topics, shape)
        question = {"input": left, "right": right, "difference_ms": shape.window_ms, "grace_ms": GRACE_MS}
        return self.application.ran(
            topics, question, of_both(shape), lambda records: result(shape, written(records, "key"))
        )

    def stop(self) -> None:
        self.application.stop()


def contestants() -> tuple[Contestant, ...]:
    peer = streams.contestant
    return (
        Tidegate("tidegate", "tidegate, two topics into a third"),
        Tidegate("tidegate_consumed", "tidegate, the same by librdkafka", "librdkafka"),
        # Not Kafka Streams' in-memory store: it has a map per millisecond, and each record searches the maps of 60 s. A
        # turn did not end in 13 minutes. RocksDB reads a range of the record's key.
        Streams(peer("streams_rocksdb", "RocksDB", streams.ROCKSDB)),
        Streams(peer("streams_rocksdb_plain", "RocksDB, not compressed", streams.ROCKSDB, streams.PLAIN)),
    )


# -- the right rows --------------------------------------------------------------------------------------------------


@cache
def right_rows(shape: Shape) -> Int64s:
    return left_joined(shape)


def agreed(found: Result, shape: Shape, contestant: Any) -> str:
    """A sentence on the rows of a contestant; AssertionError if they are wrong (the docstring of this module)."""
    wanted, sentence = right_rows(shape), f"{len(found.rows):,} rows in its topic, "
    if np.array_equal(found.rows, wanted):
        return sentence + "equal to the direct computation"
    missing, more = without(wanted, found.rows), without(found.rows, wanted)
    if contestant.whole or len(more) or has_price(missing).any():
        raise AssertionError(
            f"{contestant.label}: {len(missing):,} of {len(wanted):,} rows are missing "
            f"({int(has_price(missing).sum()):,} pairs), and {len(more):,} are there that should not be"
        )
    return sentence + f"each as in the direct computation; {len(missing):,} null-joined ones did not leave"


def without(some: Int64s, others: Int64s) -> Int64s:
    """The numbers that are in `some` more often than in `others`, sorted, each as often as the difference."""
    every, at = np.unique(np.concatenate([some, others]), return_inverse=True)
    counts = np.bincount(at[: len(some)], minlength=len(every)) - np.bincount(at[len(some) :], minlength=len(every))
    return np.repeat(every, np.maximum(counts, 0))


J5 = OverKafka(
    "J5",
    f"left join, ±30 s, grace 10 s, of two topics of {PARTITIONS} partitions into a third, 100 k keys, 1 pair a record",
    contestants,
    (Bar(3.0, ("streams_rocksdb", "streams_rocksdb_plain"), OURS),),
    repeat=2,
    shapes=SIZES,
    agreed=agreed,
    input=inputs,
)
