"""W7, W9, W12 and J5 over a broker: tidegate against Kafka Streams and Quix Streams, from a topic into a topic.

A contestant's time counts from the end of the second micro-batch (or as many records) to its last result in the broker:
start-up and rebalancing do not count.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Protocol

import psutil
from pyspark.sql import SparkSession
from tests.kafka.broker import Broker, jars
from tests.kafka.client import Client
from tools.maven import MavenError, build

import tidegate as tg
from benchmarks import race, sliding_rows
from benchmarks.inputs import Shape
from benchmarks.measure import Run
from benchmarks.options import Options, say
from benchmarks.peers import environment
from benchmarks.peers import kafka_streams as streams
from benchmarks.peers.ours import Tidegate
from benchmarks.peers.quix import Quix
from benchmarks.peers.topics import (
    JAVA,
    PARTITIONS,
    Answer,
    Result,
    Topics,
    of_every_window,
    require,
    result_in_columns,
)
from benchmarks.race import Bar
from benchmarks.warming import SECONDS, for_seconds
from benchmarks.workloads import sliding, tumbling, updates

BROKER_JVM = (
    # The options of a broker in Kafka's own start script.
    *("-Xms1g", "-Xmx1g", "-server", "-XX:+UseG1GC", "-XX:MaxGCPauseMillis=20"),
    *("-XX:InitiatingHeapOccupancyPercent=35", "-XX:+ExplicitGCInvokesConcurrent"),
)
BROKER = """\
# Kafka's default: all members of a group are there before the first of them gets partitions.
group.initial.rebalance.delay.ms=3000
"""


class Contestant(race.Named, Protocol):
    """A contestant from a topic into a topic."""

    def shape(self, shape: Any) -> Any:
        """The part of `shape` that it runs: the first micro-batches if it is slow."""
        ...

    def run(self, topics: Topics, shape: Any) -> tuple[Run, Any]:
        """The measured run, and the result in its topic, None if it writes none."""
        ...

    def stop(self) -> None: ...


@dataclass(frozen=True)
class OverKafka:
    """A workload whose contestants take turns over the same topics."""

    name: str
    title: str
    contestants: Callable[[], tuple[Contestant, ...]]
    bars: tuple[Bar, ...]
    repeat: int = 1
    shapes: Mapping[str, Any] = field(default_factory=lambda: tumbling.SIZES["W1"])
    """The input by the size of the measurement."""
    agreed: Callable[[Any, Any, Any], str] = field(default_factory=lambda: partial(windows_agreed, of_every_window))
    """(result, shape, contestant) -> a sentence on the result in its topic; AssertionError if it is wrong."""
    input: Callable[[Topics, Any], object] = Topics.input
    """Writes the input into its topics, unless that was done before."""

    def measure(self, spark: SparkSession, options: Options, folder: Path) -> dict[str, Any]:
        """Run all turns, compare the rows of each, and return the results as JSON; AssertionError if rows differ."""
        del folder  # the input is in the broker
        chosen: list[Contestant] = []
        wanted = [each for each in self.contestants() if options.wants(each.name)]
        if (why := _missing(spark)) is not None:
            unable = {each.name: why for each in wanted}
        else:
            chosen, unable = able(wanted)
        for who, why in unable.items():
            say(f"  {who} is not measured: {why}")
        if not chosen:
            return {"contestants": {}, "agreement": {}, "bars": [], "unable": unable}
        agreement: dict[str, str] = {}
        with _topics(spark) as topics:
            try:
                runs = self._turns(topics, options, chosen, agreement)
            finally:
                for each in chosen:
                    each.stop()
        for who, what in agreement.items():
            say(f"  {who}: {what}")
        broker = {"kafka": streams.VERSION, "jvm": BROKER_JVM, "partitions": PARTITIONS, "on": "loopback"}
        found = race.report(chosen, runs) | {"broker": broker}
        return found | {"agreement": agreement, "bars": race.judged(self.bars, runs), "unable": unable}

    def _turns(
        self, topics: Topics, options: Options, contestants: list[Contestant], agreement: dict[str, str]
    ) -> dict[str, list[Run]]:
        whole = self.shapes[options.size]

        def once(contestant: Contestant) -> Run:
            shape = contestant.shape(whole)
            run, found = contestant.run(topics, shape)
            if found is not None:
                agreement[contestant.name] = self.agreed(found, shape, contestant)
            return run

        for contestant in contestants:
            self.input(topics, contestant.shape(whole))
        # Java is warm before the first turn (decision 0064). A contestant that is too slow for all micro-batches warms
        # up in its first ones, which never count (measure.WARM_UP).
        for contestant in contestants if not options.smoke else ():
            if contestant.shape(whole) == whole:
                for_seconds(SECONDS, partial(once, contestant))
        return race.alternate(contestants, options.repeat or self.repeat, once)


class OfWindows(race.Named, Protocol):
    """Emits rows of windows: each once if `final`, otherwise updates; if `every`, one per record."""

    final: bool
    every: bool


def windows_agreed(wanted: Callable[[Shape], Answer], found: Result, shape: Shape, contestant: OfWindows) -> str:
    """As `OverKafka.agreed`; `wanted` returns the rows of all windows by a direct computation."""
    require(found, shape, contestant.label, final=contestant.final, every=contestant.every, wanted=wanted)
    if contestant.final:
        return f"{found.records:,} rows in its topic, each once and equal to the direct computation"
    every = ", one for each record" if contestant.every else ""
    return f"{found.records:,} updates in its topic{every}; the last of {len(found.rows):,} windows equal"


def able(contestants: list[Contestant]) -> tuple[list[Contestant], dict[str, str]]:
    """The contestants that can be run here, and the errors of the others by name."""
    found: list[Contestant] = []
    not_able: dict[str, str] = {}
    for each in contestants:
        try:
            if isinstance(each, Quix):
                environment.python(each.name)
            build(JAVA)  # the program that writes the input of all
        except (MavenError, race.UnableError) as error:
            not_able[each.name] = str(error)
        else:
            found.append(each)
    return found, not_able


@contextmanager
def _topics(spark: SparkSession) -> Iterator[Topics]:
    with Broker(BROKER_JVM, BROKER) as broker, Client(spark, broker.servers) as client:
        yield Topics(spark, broker.servers, client)
        say(f"  the broker had {psutil.Process(broker.pid).memory_info().rss / 2**20:,.0f} MiB at the end")


def connector() -> dict[str, str]:
    """The settings of a session that reads and writes topics; none if the connector cannot be fetched."""
    try:
        return {"spark.jars": ",".join(map(str, jars("connector")))}
    except MavenError:
        return {}


def _missing(spark: SparkSession) -> str | None:
    """The reason why nothing can be measured here; None: everything is there."""
    try:
        for part in ("connector", "broker"):
            jars(part)
    except MavenError as error:
        return f"there is no broker: {error}"
    if "spark-sql-kafka" not in (spark.conf.get("spark.jars", "") or ""):
        return "this session was started without the connector: session(options, connector())"
    return None


def _final(stream: tg.KStream) -> tg.KTable:
    return tumbling.totals(stream).suppress(tg.Suppressed.until_window_closes(tg.BufferConfig.unbounded()))


def of_w7() -> tuple[Contestant, ...]:
    final = streams.CACHED
    often = {**final, **streams.OFTEN}
    return (
        Tidegate("tidegate", "tidegate, topic to topic", _final),
        Tidegate("tidegate_consumed", "tidegate, the same by librdkafka", _final, consumer="librdkafka"),
        Tidegate("tidegate_noop", "tidegate, topic to nowhere", _final, kept=False),
        streams.contestant("streams_memory", "in-memory", streams.IN_MEMORY, final),
        streams.contestant("streams_rocksdb", "RocksDB", streams.ROCKSDB, final),
        # Results as soon as tidegate's: by default a cache is flushed by a commit every 30 s.
        streams.contestant("streams_memory_often", "1 s commits", streams.IN_MEMORY, often),
        Quix(),
    )


def of_w9() -> tuple[Contestant, ...]:
    one_a_batch, each = partial(updates.table, caching=True), partial(updates.table, caching=False)
    cached, every = {**streams.CACHED, **streams.OFTEN}, streams.NOT_CACHED
    return (
        Tidegate("tidegate", "tidegate, one a batch", one_a_batch, final=False),
        Tidegate(
            "tidegate_consumed", "tidegate, the same by librdkafka", one_a_batch, final=False, consumer="librdkafka"
        ),
        Tidegate("tidegate_every", "tidegate, every update", each, final=False, every=True),
        Tidegate(
            "tidegate_every_consumed",
            "tidegate, every update, by librdkafka",
            each,
            final=False,
            every=True,
            consumer="librdkafka",
        ),
        streams.contestant("streams_memory", "cache, in-memory", streams.IN_MEMORY, cached, final=False),
        streams.contestant("streams_rocksdb", "cache, RocksDB", streams.ROCKSDB, cached, final=False),
        streams.contestant(
            "streams_memory_every", "every, in-memory", streams.IN_MEMORY, every, final=False, every=True
        ),
        streams.contestant(
            "streams_memory_every_plain",
            "every, in-memory, not compressed",
            streams.IN_MEMORY,
            every,
            streams.PLAIN,
            final=False,
            every=True,
        ),
        streams.contestant("streams_rocksdb_every", "every, RocksDB", streams.ROCKSDB, every, final=False, every=True),
    )


def of_w12() -> tuple[Contestant, ...]:
    ours = partial(Tidegate, ask=sliding.final, read_back=result_in_columns)
    # A record reads a range of windows and writes up to three: a micro-batch takes minutes.
    peer = partial(streams.contestant, windows=streams.SLIDING, read_back=result_in_columns, batches=3)
    # Not Kafka Streams' in-memory store: it has a map per millisecond of window starts, and a record searches the maps
    # of 20 s, thousands of them; RocksDB reads a range of the record's key.
    return (
        ours("tidegate", "tidegate, topic to topic"),
        ours("tidegate_consumed", "tidegate, the same by librdkafka", consumer="librdkafka"),
        peer("streams_rocksdb", "RocksDB", streams.ROCKSDB, streams.CACHED),
        # A read of a range of windows merges the cache with the store behind it: the cache may cost more than it saves.
        peer("streams_rocksdb_no_cache", "RocksDB, no cache", streams.ROCKSDB, streams.NOT_CACHED),
    )


OURS = ("tidegate", "tidegate_consumed")
STREAMS = ("streams_memory", "streams_rocksdb")
STREAMS_EVERY = ("streams_memory_every", "streams_memory_every_plain", "streams_rocksdb_every")

W7 = OverKafka(
    "W7",
    f"W1 from a topic of {PARTITIONS} partitions to final results in a topic",
    of_w7,
    (Bar(1.5, STREAMS, OURS), Bar(20.0, ("quix",), OURS)),
    repeat=2,
)
W9 = OverKafka(
    "W9",
    f"updates from a topic of {PARTITIONS} partitions into a topic",
    of_w9,
    (Bar(1.0, STREAMS, OURS), Bar(1.0, STREAMS_EVERY, ("tidegate_every", "tidegate_every_consumed"))),
)
W12 = OverKafka(
    "W12",
    f"sliding windows of 10 s from a topic of {PARTITIONS} partitions to final results in a topic",
    of_w12,
    (Bar(1.0, ("streams_rocksdb", "streams_rocksdb_no_cache"), OURS),),
    shapes=sliding.SIZES,
    agreed=partial(windows_agreed, sliding_rows.of_every_window),
)
