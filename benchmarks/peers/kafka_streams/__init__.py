"""A Kafka Streams application in a JVM of its own, which runs through all turns: Java is warm, like Spark's."""

from __future__ import annotations

import re
import shutil
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

import psutil
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from tools.jvm import Jvm

from benchmarks.inputs import GRACE_MS, SIZE_MS, Shape
from benchmarks.measure import Run, busy_when_quiet, peaks
from benchmarks.peers import marks
from benchmarks.peers.topics import JAVA, Read, Result, Topics, batches_of, result
from benchmarks.sliding_rows import DIFFERENCE_MS

R = TypeVar("R", bound=Read)

JVM = ("-Xmx4g",)
VERSION = re.findall(r"<artifactId>kafka-streams</artifactId>\s*<version>(.+?)<", (JAVA / "pom.xml").read_text())[0]
MINUTES = 60
"""A run that takes longer is stuck."""

_STORES = "org.apache.kafka.streams.state.BuiltInDslStoreSuppliers"
IN_MEMORY = {"dsl.store.suppliers.class": f"{_STORES}$InMemoryDslStoreSuppliers"}
ROCKSDB = {"dsl.store.suppliers.class": f"{_STORES}$RocksDBDslStoreSuppliers"}

TUNED = {
    # Streams' own guide, "Configuring a Streams Application": one thread per core; the other defaults already suit
    # throughput (linger.ms 100, commits every 30 s, at least once, changelogs of all stores, no standbys).
    "num.stream.threads": "2",
    "processing.guarantee": "at_least_once",
    "topology.optimization": "all",
    # Kafka's "Producer Configs" and "Consumer Configs": fewer, larger requests. Spark's connector has the same.
    "producer.batch.size": "262144",
    "producer.compression.type": "lz4",
    "consumer.max.poll.records": "10000",
    "consumer.max.partition.fetch.bytes": "4194304",
    "consumer.auto.offset.reset": "earliest",
}
CACHED = {
    # "Memory Management": a cache for all open windows, so that a key and window is emitted once per commit.
    "statestore.cache.max.bytes": "536870912",
}
PLAIN = {"producer.compression.type": "none"}
"""Records of results and of changelogs as they are, as without any setting."""
NOT_CACHED = {"statestore.cache.max.bytes": "0"}
OFTEN = {"commit.interval.ms": "1000"}
"""A commit flushes the cache: one commit per second is about one per micro-batch of tidegate."""


# The windows that contestants compute.
TUMBLING = {"size_ms": SIZE_MS, "grace_ms": GRACE_MS}
SLIDING = {"difference_ms": DIFFERENCE_MS, "grace_ms": GRACE_MS}


@dataclass
class KafkaStreams:
    """A contestant; `final`: suppressed until the window closes, otherwise updates."""

    name: str
    label: str
    settings: dict[str, str]
    final: bool = True
    every: bool = False
    """Whether each record emits an update: no cache."""
    windows: dict[str, int] = field(default_factory=lambda: TUMBLING)
    """TUMBLING or SLIDING."""
    read_back: Callable[[DataFrame, Shape], Result] = result
    """Reads the rows of its topic: `result`, or a function like it."""
    batches: int = 0
    """Number of micro-batches of a contestant that is too slow for all; 0: all."""
    _jvm: Jvm | None = field(default=None, init=False, repr=False)
    _turn: int = field(default=0, init=False, repr=False)

    def shape(self, shape: Shape) -> Shape:
        return replace(shape, batches=min(self.batches or shape.batches, shape.batches))

    def run(self, topics: Topics, shape: Shape) -> tuple[Run, Result]:
        asked = {"input": topics.input(shape), **self.windows, "final": self.final}
        return self.ran(topics, asked, batches_of(shape), lambda records: self.read_back(written(records), shape))

    def ran(
        self, topics: Topics, asked: dict[str, Any], batches: list[int], read: Callable[[DataFrame], R]
    ) -> tuple[Run, R]:
        """Run the request `asked` over the records of `batches`; `read` reads the records of its topic back."""
        busy = busy_when_quiet()
        jvm = self._started()
        self._turn += 1
        output, state = topics.output(), tempfile.mkdtemp(prefix="tidegate-streams-")
        asked = {
            **asked,
            "output": output,
            "marks": marks.marks(batches),
            "timeout_s": MINUTES * 60,
            "settings": {
                **self.settings,
                "application.id": f"{self.name}-{self._turn}",
                "bootstrap.servers": topics.servers,
                "state.dir": state,
            },
        }
        try:
            with peaks(psutil.Process(jvm.pid)) as peak:
                answer = jvm.ask(asked, MINUTES * 60 + 300)
            found = read(topics.records(output))
        finally:
            shutil.rmtree(state, ignore_errors=True)
            topics.remove(output)
        return marks.run(batches, answer["reached_ms"], found.last_ms, peak, busy), found

    def _started(self) -> Jvm:
        if self._jvm is None:
            self._jvm = Jvm(JAVA, "tidegate.peers.Main", JVM)
        return self._jvm

    def stop(self) -> None:
        if self._jvm is not None:
            self._jvm.__exit__(None, None, None)
            self._jvm = None


def contestant(
    name: str,
    label: str,
    *settings: dict[str, str],
    final: bool = True,
    every: bool = False,
    windows: dict[str, int] = TUMBLING,
    read_back: Callable[[DataFrame, Shape], Result] = result,
    batches: int = 0,
) -> KafkaStreams:
    """A contestant with the settings that the Streams guide advises, and `settings`."""
    whole = dict(TUNED)
    for each in settings:
        whole |= each
    return KafkaStreams(name, f"Kafka Streams {VERSION}, {label}", whole, final, every, windows, read_back, batches)


def written(records: DataFrame) -> DataFrame:
    """The records of its topic in the columns of `result`; a key is the user and the window's start in eight bytes."""
    user = F.expr("CAST(substring(key, 1, length(key) - 8) AS STRING)").alias("user")
    start = F.expr("CAST(conv(hex(substring(key, -8, 8)), 16, 10) AS LONG)").alias("start")
    value = F.from_json(F.col("value").cast("string"), "count LONG, total LONG")
    return records.select(
        user, start, value.alias("of"), "partition", "offset", F.unix_millis("timestamp").alias("arrived_ms")
    ).select("user", "start", "of.count", "of.total", "partition", "offset", "arrived_ms")
