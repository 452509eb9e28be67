"""The topics of W7 and W9: the input, written once, and what contestants wrote, read back and compared.

A record of the input has the user as its key, the event time as its timestamp, and {"amount":42} as its value: JSON is
what all contestants decode by what they bring along, and none of them gets by without decoding. A user is in one of
PARTITIONS, by number; within each, records are in the order of benchmarks/inputs.py, out of order by less than the
grace, so nobody finds one of them late. The last record of each partition is an hour younger and closes all windows for
whoever closes them by records, so that all contestants have the same results to give, and the last of them at the end.
"""

from __future__ import annotations

import struct
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Protocol

import numpy as np
import psutil
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from tools.maven import build, program

from benchmarks.agreement import Rows, closed_and_open, differing
from benchmarks.inputs import FIRST_MS, HALVES, Half, Int64s, Shape, halves
from benchmarks.options import say

JAVA = Path(__file__).parent / "kafka_streams"
PARTITIONS = 4
LATER_MS = 3_600_000
"""How much younger the last record of each partition is."""
RECORD = np.dtype([("partition", ">i4"), ("user", ">i4"), ("time", ">i8"), ("amount", ">i4")])
"""A record as tidegate.peers.Load reads it."""

ARRIVAL = {"message_timestamp_type": "LogAppendTime"}
"""The broker notes when a record came: the last of them ends a run."""


class Names(Protocol):
    """What makes topics: tests.kafka.client.Client."""

    def topic(self, partitions: int = 1, **config: str) -> str: ...

    def remove(self, topic: str) -> None: ...

    @property
    def java(self) -> int: ...


@dataclass(frozen=True)
class Result:
    """What a contestant left in its topic."""

    rows: Rows
    """Of each key and window the last."""
    records: int
    one_each: bool
    """Whether all counts of a key and window were there, each once: then every update was given."""
    last_ms: int
    """When the broker had the last record, in milliseconds since 1970."""


class Topics:
    """On one broker; `spark` has the connector."""

    def __init__(self, spark: SparkSession, servers: str, client: Names) -> None:
        self.spark, self.servers, self._client = spark, servers, client
        self._written: dict[Shape, str] = {}

    def input(self, shape: Shape) -> str:
        """The name of a topic with the records of `shape`."""
        if shape not in self._written:
            topic = self._client.topic(PARTITIONS)
            began = time.monotonic()
            self._load(topic, shape)
            seconds = time.monotonic() - began
            rate = records_of(shape) / seconds
            say(f"  {records_of(shape):,} records written in {seconds:.1f} s, {rate:,.0f} a second")
            self._written[shape] = topic
        return self._written[shape]

    def output(self) -> str:
        return self._client.topic(PARTITIONS, **ARRIVAL)

    def remove(self, topic: str) -> None:
        self._client.remove(topic)

    @property
    def java(self) -> psutil.Process:
        """Spark's JVM, which starts its Python workers: the broker's and Kafka Streams' are others."""
        return psutil.Process(self._client.java)

    def records(self, topic: str) -> DataFrame:
        """All that is in a topic now, as Spark's connector gives it."""
        options = {"kafka.bootstrap.servers": self.servers, "subscribe": topic, "startingOffsets": "earliest"}
        return self.spark.read.format("kafka").options(**options).load()

    def _load(self, topic: str, shape: Shape) -> None:
        command = [program("java"), "-Xmx512m", "-cp", build(JAVA), "tidegate.peers.Load", self.servers, topic]
        with subprocess.Popen(command, stdin=subprocess.PIPE, stderr=subprocess.PIPE) as load:
            assert load.stdin is not None
            assert load.stderr is not None
            try:
                load.stdin.write(struct.pack(">q", records_of(shape)))
                for piece in pieces(shape):
                    load.stdin.write(piece.tobytes())
                load.stdin.close()
            except BrokenPipeError:
                pass  # it says why
            said = load.stderr.read().decode(errors="replace")
        if load.returncode:
            raise RuntimeError(f"the topic could not be written:\n{said[-3000:]}")


def records_of(shape: Shape) -> int:
    return HALVES * (shape.rows // HALVES) * shape.batches + PARTITIONS


def pieces(shape: Shape) -> Iterator[np.ndarray]:
    """The records in the order in which they are written, a micro-batch at a time."""
    batch: list[Half] = []
    for half in halves(shape):
        batch.append(half)
        if len(batch) == HALVES:
            # Row by row in turn: the two cover the same time.
            key = _in_turn([each.key for each in batch])
            ts_ms = _in_turn([each.ts_ms for each in batch])
            yield _packed(key % PARTITIONS, key, ts_ms, _in_turn([each.amount for each in batch]))
            batch = []
    every = np.arange(PARTITIONS, dtype=np.int64)
    yield _packed(every, shape.keys + every, np.full(PARTITIONS, last_ms(shape)), np.zeros(PARTITIONS, dtype=np.int64))


def last_ms(shape: Shape) -> int:
    return FIRST_MS + shape.batches * shape.batch_span_ms + LATER_MS


def _in_turn(columns: list[Int64s]) -> Int64s:
    return np.stack(columns, axis=1).ravel()


def _packed(partition: Int64s, user: Int64s, time: Int64s, amount: Int64s) -> np.ndarray:
    packed = np.empty(len(user), dtype=RECORD)
    packed["partition"], packed["user"], packed["time"], packed["amount"] = partition, user, time, amount
    return packed


def result(records: DataFrame, shape: Shape) -> Result:
    """What is in `records`: user, start (ms), count, total, partition, offset, arrived_ms.

    The records that close the windows are left out, but not their time.
    """
    last = records.agg(F.max("arrived_ms")).collect()[0][0]
    asked = records.where(F.col("start") < last_ms(shape) - LATER_MS // 2)
    # All records of a key and window are in one partition.
    grouped = asked.groupBy("user", "start").agg(
        F.max_by(F.struct("count", "total"), "offset").alias("last"),
        F.count("*").alias("records"),
        F.countDistinct("count").alias("counts"),
        F.countDistinct("partition").alias("partitions"),
    )
    table = grouped.select("user", "start", "last.count", "last.total", "records", "counts", "partitions").toArrow()
    user, start, count, total, of_window, counts, partitions = (column.to_pylist() for column in table.columns)
    if any(number != 1 for number in partitions):
        raise AssertionError("records of a key and window are in several partitions: there is no last one")
    return Result(
        rows=dict(zip(zip(user, start, strict=True), zip(count, total, strict=True), strict=True)),
        records=sum(of_window),
        one_each=of_window == counts == count,
        last_ms=last,
    )


@cache
def of_every_window(shape: Shape) -> Rows:
    """The rows of all windows: the last records close those that are open at the end of the others."""
    closed, still_open = closed_and_open(shape, ordered=True)
    return closed | still_open


def require(found: Result, shape: Shape, who: str, *, final: bool, every: bool) -> None:
    """AssertionError unless `found` are all windows of `shape`: once each if `final`, update by update if `every`."""
    wanted = of_every_window(shape)
    if found.rows != wanted:
        places = found.rows.keys() | wanted.keys()
        place = next(place for place in places if found.rows.get(place) != wanted.get(place))
        raise AssertionError(
            f"{who}: {differing(found.rows, wanted)} of {len(wanted)} rows differ from the direct computation, "
            f"as that of {place}: {found.rows.get(place)}, not {wanted.get(place)}"
        )
    if final and found.records != len(wanted):
        raise AssertionError(f"{who}: {found.records} rows for {len(wanted)} windows, final was not final")
    if every and not found.one_each:
        raise AssertionError(f"{who}: {found.records} updates, not one for each record")
