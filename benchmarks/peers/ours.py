"""tidegate from a topic into a topic: `tg.kafka.source` and `tg.kafka.sink`, a micro-batch of the input at a time."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

import tidegate as tg
from benchmarks.contestant import ROCKSDB
from benchmarks.inputs import Shape
from benchmarks.measure import Run, busy_when_quiet, peaks, progress_of, settings
from benchmarks.peers.topics import PARTITIONS, Read, Result, Topics, batches_of, result

R = TypeVar("R", bound=Read)

READ = {
    # The same as for Kafka Streams.
    "kafka.max.partition.fetch.bytes": "4194304",
}
CONSUMER = {"spark": READ, "librdkafka": {}}
"""Options of each consumer; librdkafka has the settings of tidegate."""
WRITE = {
    # The same as for Kafka Streams.
    "kafka.linger.ms": "100",
    "kafka.batch.size": "262144",
    "kafka.compression.type": "lz4",
}


@dataclass
class Tidegate:
    """tidegate, from `tg.kafka.source` into `tg.kafka.sink`, or into nothing if `kept` is False."""

    name: str
    label: str
    ask: Callable[[tg.KStream], tg.KTable]
    final: bool = True
    every: bool = False
    kept: bool = True
    consumer: str = "spark"
    read_back: Callable[[DataFrame, Shape], Result] = result
    """Reads the rows of its topic: `result`, or a function like it."""

    @property
    def settings(self) -> dict[str, str]:
        return {**ROCKSDB, "consumer": self.consumer, **CONSUMER[self.consumer], **WRITE}

    def shape(self, shape: Shape) -> Shape:
        return shape

    def run(self, topics: Topics, shape: Shape) -> tuple[Run, Result | None]:
        def read(records: DataFrame) -> Result:
            return self.read_back(written(records), shape)

        writer = partial(self._writer, topics, shape)
        return ran(topics, writer, batches_of(shape), read if self.kept else None)

    def _writer(self, topics: Topics, shape: Shape, output: str, checkpoint: str) -> Any:
        events = opened(topics, topics.input(shape), "amount", "input", self.consumer, batches_of(shape))
        table = self.ask(events)
        if self.kept:
            return tg.kafka.sink(table, topics.servers, output, checkpoint=checkpoint, options=WRITE)
        return table.to_df().writeStream.format("noop").outputMode("update").option("checkpointLocation", checkpoint)

    def stop(self) -> None:
        """Nothing to stop: only Spark runs on between its turns, and others use it too."""


def opened(
    topics: Topics, topic: str, value: str, name: str, consumer: str, batches: list[int], **more: Any
) -> tg.KStream:
    """A topic of the input, a micro-batch at a time; `more`: further arguments of `tg.kafka.source`."""
    # Spark rounds the share of each partition in a batch down: ask for a few more records, so that none is left over.
    a_batch = batches[0] + PARTITIONS * (len(batches) + 1)
    return tg.kafka.source(
        topics.spark,
        topics.servers,
        topic,
        key="user",
        value=f"{value} long",
        name=name,
        consumer=consumer,
        options={**CONSUMER[consumer], "maxOffsetsPerTrigger": str(a_batch)},
        **more,
    )


def ran(
    topics: Topics, writer: Callable[[str, str], Any], batches: list[int], read: Callable[[DataFrame], R] | None
) -> tuple[Run, R | None]:
    """Run the query `writer(topic, checkpoint)` over the records of `batches`; `read` reads its topic back."""
    busy, output = busy_when_quiet(), topics.output()
    checkpoint = tempfile.mkdtemp(prefix="tidegate-bench-")
    try:
        with peaks(topics.java) as peak, settings(topics.spark, ROCKSDB):
            query = writer(output, checkpoint).trigger(availableNow=True).start()
            query.awaitTermination()
            progress = progress_of(query)
        found = None if read is None else read(topics.records(output))
    finally:
        shutil.rmtree(checkpoint, ignore_errors=True)
        topics.remove(output)
    return run_of(batches, progress, peak, busy), found


def run_of(batches: list[int], progress: list[dict[str, Any]], peak: dict[str, float], busy: float) -> Run:
    """The measured run; batches without input at the end, which emit rows, count for the last batch with input."""
    rows: list[int] = []
    seconds: list[float] = []
    for each in progress:
        took = each["durationMs"]["triggerExecution"] / 1000
        # Not Spark's numInputRows: if workers consume the topic, it counts a chunk of records as one row.
        sources = (numbers for name, numbers in each["observedMetrics"].items() if name.endswith(" source"))
        if read := sum(numbers.get("records") or 0 for numbers in sources):
            rows.append(read)
            seconds.append(took)
        elif seconds:
            seconds[-1] += took
    if sum(rows) != sum(batches) or len(rows) != len(batches):
        raise AssertionError(f"Spark read {rows} records, not {sum(batches)} in {len(batches)} batches")
    return Run(rows, seconds, [], peak["java"], peak["python"], peak["worker"], busy)


def written(records: DataFrame) -> DataFrame:
    """The records of `tg.kafka.sink` in the columns of `result`."""
    schema = "user STRING, window STRUCT<start: TIMESTAMP>, count LONG, total LONG"
    value = F.from_json(F.col("value").cast("string"), schema).alias("of")
    arrived = F.unix_millis("timestamp").alias("arrived_ms")
    start = F.unix_millis("of.window.start").alias("start")
    return records.select(value, "partition", "offset", arrived).select(
        "of.user", start, "of.count", "of.total", "partition", "offset", "arrived_ms"
    )
