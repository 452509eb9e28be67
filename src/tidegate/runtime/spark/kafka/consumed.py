"""A source of Spark's whose records the workers consume themselves (`tg.kafka.source(..., consumer="librdkafka")`).

Spark asks for the ends of the topics, keeps them in the checkpoint in the same JSON as its own source, and makes tasks
of the records between two offsets. In a task librdkafka makes columns of the records. A `plain.Reader`, if given, reads
them in the same process, and Spark never sees the bytes of plain records. A `ReadAndPack` packs them there too.
"""

from __future__ import annotations

import json
import pickle
from base64 import b64decode, b64encode
from collections.abc import Iterator, Mapping, MutableMapping, Sequence
from dataclasses import dataclass
from heapq import heapreplace
from itertools import chain
from math import ceil, floor
from weakref import WeakSet

import pyarrow as pa
from pyspark import cloudpickle
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow
from pyspark.sql.types import StringType, StructType
from pyspark.sql.utils import to_str

from tidegate.errors import DefinitionError, InputError
from tidegate.kernel.columns.arrays import as_schema
from tidegate.runtime.spark.frames.arrow import arrow_schema
from tidegate.runtime.spark.kafka.handed_over import HANDED_OVER, FirstWorker
from tidegate.runtime.spark.kafka.librdkafka import Client, Offsets, Span, settings, spans
from tidegate.runtime.spark.session.config import cores
from tidegate.runtime.spark.worker.gc_freeze import spare_modules

FORMAT = "tidegate_kafka"
_ALL = "secret"
"""The one option of the source has all its settings, passwords too: Spark shows no option of that name."""

# In SQL "timestamp" is what `spark.sql.timestampType` says.
_FIELDS = (
    "key binary, value binary, topic string, partition int, offset long, timestamp timestamp_ltz, timestampType int"
)
_OPTIONS = {name.lower(): name for name in ("startingOffsets", "maxOffsetsPerTrigger", "failOnDataLoss")}
_HEADERS = "headers array<struct<key: string, value: binary>>"

EARLIEST, LATEST = -2, -1
"""Offsets of Spark's JSON that stand for the first record that Kafka still has, and for the end of a partition."""

_knowing: WeakSet[SparkSession] = WeakSet()
"""The sessions that know the source: Spark warns of one that is registered twice."""


@dataclass(frozen=True)
class Topics:
    """The topics to read.

    starting  "earliest", "latest" or Spark's JSON of offsets
    limit     most records of a micro-batch; None for all that are there
    lossy     whether to go on without records that are no longer there
    tasks     most tasks of a micro-batch; None for one per partition
    """

    client: Client
    names: tuple[str, ...]
    starting: str
    limit: int | None
    lossy: bool
    headers: bool
    tasks: int | None

    def frame(self, spark: SparkSession) -> DataFrame:
        """The records, with the columns of Spark's own source."""
        fields = f"{_FIELDS}, {_HEADERS}" if self.headers else _FIELDS
        return self.read_by(spark, None, spark.createDataFrame([], fields).schema, {})

    def read_by(
        self, spark: SparkSession, reader: FirstWorker | None, fields: StructType, renamed: Mapping[str, str]
    ) -> DataFrame:
        """The output of `reader` for the records, or without one the records: columns `fields`.

        renamed  the names in a record of those columns that have another name there
        """
        if spark not in _knowing:
            spark.dataSource.register(Source)
            _knowing.add(spark)
        secret = b64encode(cloudpickle.dumps((self, reader, renamed))).decode()  # type: ignore[no-untyped-call]
        return spark.readStream.format(FORMAT).schema(fields).option(_ALL, secret).load()

    def starts(self) -> Offsets:
        """The offsets at which a query without a checkpoint begins: LATEST where it begins at the end of the topic.

        Spark asks several times before batch 0 is done, and again if it runs batch 0 anew after a restart. LATEST is
        the same each time: it stands for the end of batch 0, which Spark keeps in the checkpoint.
        """
        found = self.client.beginnings(self.names)
        if self.starting == "latest":
            return {topic: dict.fromkeys(partitions, LATEST) for topic, partitions in found.items()}
        if self.starting != "earliest":
            self._set(found, json.loads(self.starting))
        return found

    def _set(self, offsets: Offsets, given: Offsets) -> None:
        """Put the offsets of Spark's JSON into `offsets`, which has those of the first records.

        Raises DefinitionError for other partitions than those that are read.
        """
        for topic, partitions in offsets.items():
            if missing := sorted(partitions.keys() - given.get(topic, {}).keys(), key=int):
                raise DefinitionError(
                    f"`starting` has no offset for these partitions of {topic!r}: {', '.join(missing)}. Give each "
                    "partition one; -2 is the earliest and -1 the latest."
                )
        for topic, partitions in given.items():
            for number, offset in partitions.items():
                if number not in offsets.get(topic, {}):
                    raise DefinitionError(
                        f"`starting` has partition {number} of {topic!r}, which is not among those that are read: "
                        f"{', '.join(offsets)}."
                    )
                if offset != EARLIEST:
                    offsets[topic][number] = offset

    def known(self, start: Offsets, end: Offsets) -> Offsets:
        """`start` for the partitions of `end`; partitions that are new, or were made anew, begin at their beginning.

        A partition that begins at LATEST begins at its `end`, so batch 0 reads no record of it.
        """
        start = {
            topic: {number: end.get(topic, {}).get(number, at) if at == LATEST else at for number, at in of.items()}
            for topic, of in start.items()
        }
        new = [t for t, of in end.items() if any(n not in start.get(t, {}) or start[t][n] > of[n] for n in of)]
        beginnings = self.client.beginnings(new) if new else {}
        return {
            topic: {
                number: at
                if (at := start.get(topic, {}).get(number, last + 1)) <= last
                else min(beginnings[topic].get(number, last), last)
                for number, last in of.items()
            }
            for topic, of in end.items()
        }

    def check_none_lost(self, start: Offsets, end: Offsets) -> None:
        """Raises InputError if a topic was made anew since `start`, unless `lossy` allows it."""
        if self.lossy:
            return
        for topic, partitions in start.items():
            for number, at in partitions.items():
                now = end.get(topic, {}).get(number)
                if now is None or now < at:
                    raise InputError(
                        f"{topic}, partition {number}: the query is at offset {at}, but "
                        f"{'there is no such partition' if now is None else f'the partition ends at {now}'}. Was the "
                        "topic made anew? Then begin with a new checkpoint; failOnDataLoss=false goes on, and reads it "
                        "from its beginning."
                    )

    def check_none_missed(self, start: Offsets, known: Offsets) -> None:
        """Raises InputError if Kafka has deleted records of a partition that came after `start`, unless `lossy`.

        `known` has the offsets at which the partitions are read.
        """
        if self.lossy:
            return
        for topic, partitions in known.items():
            for number, at in partitions.items():
                if at > 0 and number not in start.get(topic, {}):
                    raise InputError(
                        f"{topic}, partition {number}: the partition is new to the query, and begins at offset {at}: "
                        "Kafka deleted the records in front before the query read them. Results without them would be "
                        "wrong; failOnDataLoss=false goes on nevertheless."
                    )


@dataclass
class _Task(InputPartition):
    """The spans that one task reads."""

    spans: list[Span]


class Source(DataSource):
    """The source of `spark.readStream.format(FORMAT)`; its one option has the Topics and the Reader."""

    def __init__(self, options: MutableMapping[str, str]) -> None:
        super().__init__(options)
        self._given = pickle.loads(b64decode(options[_ALL]))  # noqa: S301 - our own, see Topics

    @classmethod
    def name(cls) -> str:
        return FORMAT

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802 - Spark's
        return Consumed(schema, *self._given)


class Consumed(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Spark's interface of a source: it gives offsets in a process of the driver, and records in workers."""

    def __init__(
        self, schema: StructType, topics: Topics, reader: FirstWorker | None, renamed: Mapping[str, str]
    ) -> None:
        self._schema, self._topics, self._reader, self._renamed = schema, topics, reader, renamed
        self._last: Offsets | None = None
        self._newest: Offsets | None = None

    def initialOffset(self) -> Offsets:  # noqa: N802
        return self._topics.starts()

    def latestOffset(self, start: Offsets, limit: ReadLimit) -> Offsets:  # noqa: N802
        end = self._newest = self._topics.client.ends(self._topics.names)
        self._topics.check_none_lost(start, end)
        if self._last is not None:
            # With availableNow, a partition that came after the query was started waits for the next query.
            end = {t: {n: min(at, of[n]) for n, at in end[t].items() if n in of} for t, of in self._last.items()}
        end = with_unnamed(start, end)
        return shared(self._topics.known(start, end), end, limit.max_rows) if isinstance(limit, ReadMaxRows) else end

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        return ReadAllAvailable() if self._topics.limit is None else ReadMaxRows(self._topics.limit)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        self._last = self._topics.client.ends(self._topics.names)

    def reportLatestOffset(self) -> Offsets | None:  # noqa: N802
        return self._newest

    def partitions(self, start: Offsets, end: Offsets) -> Sequence[_Task]:
        known = self._topics.known(start, end)
        self._topics.check_none_missed(start, known)
        found = spans(known, end)
        return [_Task(each) for each in assigned(found, self._topics.tasks or len(found))]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, _Task)
        spare_modules()
        schema = arrow_schema(self._schema)
        names = [name for name in schema.names if name not in HANDED_OVER.names]
        records = chain.from_iterable(self._records(span, names) for span in partition.spans)
        for batch in records if self._reader is None else self._reader(records):
            yield as_schema(batch, schema)

    def _records(self, span: Span, names: list[str]) -> Iterator[pa.RecordBatch]:
        several = "partition" in names and isinstance(self._schema["partition"].dataType, StringType)
        given = [self._renamed.get(name, name) for name in names]
        for batch in self._topics.client.records(span, given, lossy=self._topics.lossy):
            columns = dict(zip(names, batch.columns, strict=True))
            if several:
                columns["partition"] = pa.repeat(pa.scalar(f"{span.topic}-{span.partition}"), batch.num_rows)
            yield pa.record_batch(columns)


def asked(
    spark: SparkSession,
    servers: str,
    topics: Sequence[str],
    starting: str,
    headers: bool,
    options: Mapping[str, str],
) -> Topics:
    """The Topics for arguments of `tg.kafka.source`. Raises DefinitionError for options of Spark's source alone."""
    # Numbers and bools too, as Spark's readers take them.
    options = {name: str(to_str(value)) for name, value in options.items()}
    given = {name.lower(): value for name, value in options.items()}
    unknown = [name for name in options if name.lower() not in _OPTIONS and not name.lower().startswith("kafka.")]
    if unknown:
        raise DefinitionError(
            f'`options` has {", ".join(map(repr, unknown))}, which consumer="librdkafka" does not know: it has '
            f'{", ".join(_OPTIONS.values())}, and what stands behind `kafka.`. consumer="spark" has them all.'
        )
    client = Client(servers, settings(options))
    client.check()
    limit = given.get("maxoffsetspertrigger")
    return Topics(
        client,
        tuple(topics),
        _starting(given.get("startingoffsets", starting)),
        None if limit is None else _positive("maxOffsetsPerTrigger", limit),
        _flag("failOnDataLoss", given.get("failondataloss", "true")) is False,
        headers,
        cores(spark),
    )


def _starting(given: str) -> str:
    if (word := given.strip().lower()) in ("earliest", "latest"):
        given = word
    else:
        try:
            offsets = json.loads(given)
            fine = all(type(at) is int and at >= EARLIEST for of in offsets.values() for at in of.values())
        except (ValueError, AttributeError):
            fine = False
        if not fine:
            raise DefinitionError(
                f'`starting` is {given!r}. Use "earliest", "latest", or an offset for each partition as JSON: '
                '{"events": {"0": 23, "1": -2}}, where -2 is the earliest and -1 the latest.'
            )
    return given


def _positive(name: str, given: str) -> int:
    if not given.isdecimal() or int(given) == 0:
        raise DefinitionError(f"`{name}` is {given!r}. Use a whole number of records from 1 on.")
    return int(given)


def _flag(name: str, given: str) -> bool:
    if given.lower() not in ("true", "false"):
        raise DefinitionError(f"`{name}` is {given!r}. Use true or false.")
    return given.lower() == "true"


def shared(start: Offsets, end: Offsets, most: int) -> Offsets:
    """The end of a batch of `most` records: each partition gives its share, as with Spark's `maxOffsetsPerTrigger`.

    As in Spark a partition gives at least one record, so a batch may have one record more for each partition.
    """
    total = sum(at - start[topic][number] for topic, of in end.items() for number, at in of.items())
    if total <= most:
        return end
    return {
        topic: {number: _share(start[topic][number], at, most, total) for number, at in of.items()}
        for topic, of in end.items()
    }


def _share(start: int, end: int, most: int, total: int) -> int:
    # In this order, as Spark does: the one partition of a topic gives `most` records, and not one less.
    part = most * ((end - start) / total)
    return start + (ceil(part) if part < 1 else floor(part))


def with_unnamed(start: Offsets, end: Offsets) -> Offsets:
    """`end`, with partitions that only `start` has: a broker that lags behind the others does not name them yet.

    Without its offset such a partition would be new to the next batch, and all of its records would be read again.
    """
    return {
        topic: {number: at for number, at in start.get(topic, {}).items() if at != LATEST and number not in of} | of
        for topic, of in end.items()
    }


def assigned(found: Sequence[Span], tasks: int) -> list[list[Span]]:
    """The spans for at most so many tasks, each with about as many records."""
    hands: list[list[Span]] = [[] for _ in range(min(tasks, len(found)))]
    # The task with the fewest records so far comes first.
    records = [(0, number) for number in range(len(hands))]
    for span in sorted(found, key=lambda span: span.start - span.end):
        so_far, number = records[0]
        heapreplace(records, (so_far + span.end - span.start, number))
        hands[number].append(span)
    return hands
