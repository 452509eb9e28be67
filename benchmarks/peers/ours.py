"""tidegate from a topic into a topic: `tg.kafka.source` and `tg.kafka.sink`, a micro-batch of the input at a time."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import psutil
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

import tidegate as tg
from benchmarks.contestant import ROCKSDB
from benchmarks.inputs import HALVES, Shape
from benchmarks.measure import Run, peaks, progress_of, settings
from benchmarks.peers.topics import PARTITIONS, Result, Topics, records_of, result

READ = {
    # As Kafka Streams is given them.
    "kafka.max.poll.records": "10000",
    "kafka.max.partition.fetch.bytes": "4194304",
}
CONSUMER = {"spark": READ, "librdkafka": {}}
"""What each consumer is told; librdkafka is used as tidegate sets it up."""
WRITE = {"kafka.linger.ms": "100", "kafka.batch.size": "262144"}


@dataclass
class Tidegate:
    """Over `tg.kafka.source`, into `tg.kafka.sink` or (`kept` is False) into nothing."""

    name: str
    label: str
    ask: Callable[[tg.KStream], tg.KTable]
    final: bool = True
    every: bool = False
    kept: bool = True
    consumer: str = "spark"
    read_back: Callable[[DataFrame, Shape], Result] = result
    """How the rows of its topic are read: `result`, or one like it."""

    @property
    def settings(self) -> dict[str, str]:
        return {**ROCKSDB, "consumer": self.consumer, **CONSUMER[self.consumer], **WRITE}

    def shape(self, shape: Shape) -> Shape:
        return shape

    def run(self, topics: Topics, shape: Shape) -> tuple[Run, Result | None]:
        busy, output = psutil.cpu_percent(0.4), topics.output()
        checkpoint = tempfile.mkdtemp(prefix="tidegate-bench-")
        try:
            with peaks(topics.java) as peak, settings(topics.spark, ROCKSDB):
                query = self._writer(topics, shape, output, checkpoint).trigger(availableNow=True).start()
                query.awaitTermination()
                progress = progress_of(query)
            found = self.read_back(written(topics.records(output)), shape) if self.kept else None
        finally:
            shutil.rmtree(checkpoint, ignore_errors=True)
            topics.remove(output)
        return run_of(shape, progress, peak, busy), found

    def _writer(self, topics: Topics, shape: Shape, output: str, checkpoint: str) -> Any:
        # Spark gives each partition its share of a batch, rounded down: a few records more, that none is left over.
        a_batch = HALVES * (shape.rows // HALVES) + PARTITIONS * (shape.batches + 1)
        events = tg.kafka.source(
            topics.spark,
            topics.servers,
            topics.input(shape),
            key="user",
            value="amount long",
            name="input",
            consumer=self.consumer,
            options={**CONSUMER[self.consumer], "maxOffsetsPerTrigger": str(a_batch)},
        )
        table = self.ask(events)
        if self.kept:
            return tg.kafka.sink(table, topics.servers, output, checkpoint=checkpoint, options=WRITE)
        return table.to_df().writeStream.format("noop").outputMode("update").option("checkpointLocation", checkpoint)

    def stop(self) -> None:
        """Nothing stays between its turns but Spark, which is not its own."""


def run_of(shape: Shape, progress: list[dict[str, Any]], peak: dict[str, float], busy: float) -> Run:
    """What was measured; a batch at the end that had no input (it let rows out) is part of the last one that had."""
    rows: list[int] = []
    seconds: list[float] = []
    for each in progress:
        took = each["durationMs"]["triggerExecution"] / 1000
        # Not Spark's numInputRows, to which plain records that workers consume are one row a chunk.
        if read := each["observedMetrics"].get("input source", {}).get("records"):
            rows.append(read)
            seconds.append(took)
        elif seconds:
            seconds[-1] += took
    if sum(rows) != records_of(shape) or len(rows) != shape.batches:
        raise AssertionError(f"Spark read {rows} records, not {records_of(shape)} in {shape.batches} batches")
    return Run(rows, seconds, [], peak["java"], peak["python"], peak["worker"], busy)


def written(records: DataFrame) -> DataFrame:
    """The records of `tg.kafka.sink` as `result` wants them."""
    schema = "user STRING, window STRUCT<start: TIMESTAMP>, count LONG, total LONG"
    value = F.from_json(F.col("value").cast("string"), schema).alias("of")
    arrived = F.unix_millis("timestamp").alias("arrived_ms")
    start = F.unix_millis("of.window.start").alias("start")
    return records.select(value, "partition", "offset", arrived).select(
        "of.user", start, "of.count", "of.total", "partition", "offset", "arrived_ms"
    )
