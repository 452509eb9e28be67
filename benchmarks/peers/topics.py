"""The topics of W7, W9, W12 and J5: the input, written once, and the outputs of contestants, read back and compared.

A record of the input has the user as its key, the event time as its timestamp, and {"amount":42} as its value. All
contestants decode JSON with their own means, and none can skip decoding. The number of a user decides its partition. In
a partition, records are in the order of benchmarks/inputs.py, out of order by less than the grace, so none is late. The
last record of each partition is an hour later, and closes all windows of contestants that close windows by records. So
all contestants have the same results, and emit the last ones at the end.
"""

from __future__ import annotations

import struct
import subprocess
import time
from collections.abc import Callable, Hashable, Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Protocol

import numpy as np
import psutil
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from tools.maven import build, program

from benchmarks.agreement import Rows, closed_and_open, differing
from benchmarks.inputs import FIRST_MS, HALVES, Half, Int64s, Shape, halves
from benchmarks.options import say
from benchmarks.sliding_rows import Windows

JAVA = Path(__file__).parent / "kafka_streams"
PARTITIONS = 4
LATER_MS = 3_600_000
"""Distance of the last record of each partition from the end of the others."""
RECORD = np.dtype([("partition", ">i4"), ("user", ">i4"), ("time", ">i8"), ("amount", ">i4")])
"""The bytes of a record that tidegate.peers.Load reads."""

ARRIVAL = {"message_timestamp_type": "LogAppendTime"}
"""The broker sets timestamps to the arrival: the last arrival ends a run."""


Answer = Rows | Windows


class Names(Protocol):
    """Makes and removes topics, and knows Spark's JVM: tests.kafka.client.Client."""

    def topic(self, partitions: int = 1, **config: str) -> str: ...

    def remove(self, topic: str) -> None: ...

    @property
    def java(self) -> int: ...


class Read(Protocol):
    """The output topic of a contestant; `last_ms`: arrival of its last record at the broker (ms since 1970)."""

    @property
    def last_ms(self) -> int: ...


@dataclass(frozen=True)
class Result:
    """The output topic of a contestant."""

    rows: Answer
    """The last row of each key and window; as columns if a dict would take gigabytes."""
    records: int
    one_each: bool
    """Whether each key and window has all its counts, each once: then every update was emitted."""
    last_ms: int
    """Arrival of the last record at the broker (ms since 1970)."""


class Topics:
    """Topics of one broker; `spark` has the connector."""

    def __init__(self, spark: SparkSession, servers: str, client: Names) -> None:
        self.spark, self.servers, self._client = spark, servers, client
        self._written: dict[Hashable, str] = {}

    def input(self, shape: Shape) -> str:
        """The name of a topic with the records of `shape`."""
        return self.written(shape, records_of(shape), pieces(shape))

    def written(self, what: Hashable, records: int, parts: Iterable[np.ndarray], value: str = "amount") -> str:
        """The name of a topic with `records` RECORDs, whose JSON field is `value`; written once for each `what`."""
        if what not in self._written:
            topic = self._client.topic(PARTITIONS)
            began = time.monotonic()
            self._load(topic, records, parts, value)
            seconds = time.monotonic() - began
            say(f"  {records:,} records written in {seconds:.1f} s, {records / seconds:,.0f} a second")
            self._written[what] = topic
        return self._written[what]

    def output(self) -> str:
        return self._client.topic(PARTITIONS, **ARRIVAL)

    def remove(self, topic: str) -> None:
        self._client.remove(topic)

    @property
    def java(self) -> psutil.Process:
        """Spark's JVM, which starts its Python workers; the broker and Kafka Streams have JVMs of their own."""
        return psutil.Process(self._client.java)

    def records(self, topic: str) -> DataFrame:
        """All present records of a topic, in the columns of Spark's connector."""
        options = {"kafka.bootstrap.servers": self.servers, "subscribe": topic, "startingOffsets": "earliest"}
        return self.spark.read.format("kafka").options(**options).load()

    def _load(self, topic: str, records: int, parts: Iterable[np.ndarray], value: str) -> None:
        command = [program("java"), "-Xmx512m", "-cp", build(JAVA), "tidegate.peers.Load", self.servers, topic, value]
        with subprocess.Popen(command, stdin=subprocess.PIPE, stderr=subprocess.PIPE) as load:
            assert load.stdin is not None
            assert load.stderr is not None
            try:
                load.stdin.write(struct.pack(">q", records))
                for piece in parts:
                    load.stdin.write(piece.tobytes())
                load.stdin.close()
            except BrokenPipeError:
                pass  # its stderr has the reason
            said = load.stderr.read().decode(errors="replace")
        if load.returncode:
            raise RuntimeError(f"the topic could not be written:\n{said[-3000:]}")


def batches_of(shape: Shape) -> list[int]:
    """Number of records of each micro-batch; the records that close all windows are in the last one."""
    of_batch = HALVES * (shape.rows // HALVES)
    return [*[of_batch] * (shape.batches - 1), of_batch + PARTITIONS]


def records_of(shape: Shape) -> int:
    return sum(batches_of(shape))


def pieces(shape: Shape) -> Iterator[np.ndarray]:
    """The records in the order of writing, a micro-batch at a time."""
    batch: list[Half] = []
    for half in halves(shape):
        batch.append(half)
        if len(batch) == HALVES:
            # Row by row in turn: both halves cover the same time.
            key = in_turn([each.key for each in batch])
            ts_ms = in_turn([each.ts_ms for each in batch])
            yield packed(key, ts_ms, in_turn([each.amount for each in batch]))
            batch = []
    yield last_records(shape.keys, last_ms(shape))


def last_records(keys: int, ts_ms: int) -> np.ndarray:
    """One record for each partition, of users beyond the `keys` users of the other records."""
    every = np.arange(PARTITIONS, dtype=np.int64)
    return packed(keys + (every - keys) % PARTITIONS, np.full(PARTITIONS, ts_ms), np.zeros(PARTITIONS, dtype=np.int64))


def last_ms(shape: Shape) -> int:
    return FIRST_MS + shape.batches * shape.batch_span_ms + LATER_MS


def in_turn(columns: list[Int64s]) -> Int64s:
    """The first value of each column, then the second of each, and so on."""
    return np.stack(columns, axis=1).ravel()


def packed(user: Int64s, time: Int64s, amount: Int64s) -> np.ndarray:
    """RECORDs for tidegate.peers.Load; the number of a user decides its partition."""
    found = np.empty(len(user), dtype=RECORD)
    found["partition"], found["user"], found["time"], found["amount"] = user % PARTITIONS, user, time, amount
    return found


def result(records: DataFrame, shape: Shape) -> Result:
    """The result in `records`: user, start (ms), count, total, partition, offset, arrived_ms.

    Rows of the records that close all windows are left out, but their arrival counts.
    """
    table, last_ms = _last_of_each_window(records, shape)
    user, start, count, total = (table[name].to_pylist() for name in ("user", "start", "count", "total"))
    rows = dict(zip(zip(user, start, strict=True), zip(count, total, strict=True), strict=True))
    return _result(rows, table, last_ms)


def result_in_columns(records: DataFrame, shape: Shape) -> Result:
    """As `result`, with `rows` as `Windows`."""
    numbers = F.expr("CAST(substring(user, length('user-') + 1) AS LONG)")
    table, last_ms = _last_of_each_window(records.withColumn("user", numbers), shape)
    key, start, count, total = (table[name].to_numpy() for name in ("user", "start", "count", "total"))
    return _result(Windows.ordered(key, start, count, total), table, last_ms)


def _last_of_each_window(records: DataFrame, shape: Shape) -> tuple[pa.Table, int]:
    """A row for each user and window, and the arrival of the last record (ms).

    Columns: user, start, count and total of the window's last record, and the window's numbers of records, of distinct
    counts (`counts`) and of partitions.
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
    columns = "user", "start", "last.count", "last.total", "records", "counts", "partitions"
    return grouped.select(*columns).toArrow(), last


def _result(rows: Answer, table: pa.Table, last_ms: int) -> Result:
    """The result of a table of `_last_of_each_window`; AssertionError if a window has records in several partitions."""
    if pc.any(pc.not_equal(table["partitions"], 1)).as_py():
        raise AssertionError("records of a key and window are in several partitions: there is no last one")
    of_window = table["records"]
    return Result(
        rows=rows,
        records=pc.sum(of_window, min_count=0).as_py(),
        one_each=of_window.equals(table["counts"]) and of_window.equals(table["count"]),
        last_ms=last_ms,
    )


@cache
def of_every_window(shape: Shape) -> Rows:
    """The rows of all windows: the last records close the windows that the other records leave open."""
    closed, still_open = closed_and_open(shape, ordered=True)
    return closed | still_open


def require(
    found: Result,
    shape: Shape,
    who: str,
    *,
    final: bool,
    every: bool,
    wanted: Callable[[Shape], Answer] = of_every_window,
) -> None:
    """AssertionError unless `found` are all windows of `shape`: once each if `final`, update by update if `every`.

    `wanted` returns the rows of all windows.
    """
    right = wanted(shape)
    wrong, sought = _unequal(found.rows, right)
    if places := wrong.keys() | sought.keys():
        place = next(place for place in places if wrong.get(place) != sought.get(place))
        raise AssertionError(
            f"{who}: {differing(wrong, sought)} of {len(right)} rows differ from the direct computation, "
            f"as that of {place}: {wrong.get(place)}, not {sought.get(place)}"
        )
    if final and found.records != len(right):
        raise AssertionError(f"{who}: {found.records} rows for {len(right)} windows, final was not final")
    if every and not found.one_each:
        raise AssertionError(f"{who}: {found.records} updates, not one for each record")


def _unequal(found: Answer, right: Answer) -> tuple[Rows, Rows]:
    """The rows of each that are not in the other, or not equal there."""
    if isinstance(found, Windows) and isinstance(right, Windows):
        return ({}, {}) if found.equals(right) else (found.without(right), right.without(found))
    if isinstance(found, Windows) or isinstance(right, Windows):
        raise TypeError("rows of windows are compared as columns or as dicts, and not one with the other")
    if found == right:
        return {}, {}
    return dict(found.items() - right.items()), dict(right.items() - found.items())
