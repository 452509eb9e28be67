"""Records of topics by librdkafka, Kafka's client in C, as columns like those of Spark's own source.

The driver asks for the ends of the topics once per micro-batch (`Client.ends`). The workers read the records
(`Client.records`); each worker keeps one consumer for as long as it lives.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import pyarrow as pa

from tidegate.errors import DefinitionError, InputError, TidegateError
from tidegate.runtime.spark.frames.arrow import MAX_TIMESTAMP_MS

Offsets = dict[str, dict[str, int]]
"""Offsets by topic and partition, as Spark's own source writes them into a checkpoint."""

CHUNK = 1 << 15
"""About so many records are a batch of columns."""
CHUNK_BYTES = 16 << 20
"""A batch of columns that has so many bytes gets no more records, however few it has. The records of one request come
on top: `queued.max.messages.kbytes` bounds them, to about 30 MB."""
AT_ONCE = 4_000
"""So many records are requested at a time: as objects they fit into the caches of a processor."""
POLL_S = 0.01
"""Seconds that a worker waits for AT_ONCE records. If records are missing from a topic (compacted, or a transaction's
marks), the last records of a span are never as many."""
PATIENCE_S = 120
"""Seconds without a record that is known to be there, before the read fails; Spark's own source waits as long."""
ANSWER_S = 30
"""Seconds that the brokers may take to list the partitions of a topic, or to say which offsets a partition has."""
PAUSE_S = 1
"""Seconds until the brokers are asked again."""
_PASSING = frozenset(
    {
        "FENCED_LEADER_EPOCH",
        "KAFKA_STORAGE_ERROR",
        "LEADER_NOT_AVAILABLE",
        "NETWORK_EXCEPTION",
        "NOT_LEADER_FOR_PARTITION",
        "OFFSET_NOT_AVAILABLE",
        "REPLICA_NOT_AVAILABLE",
        "REQUEST_TIMED_OUT",
        "UNKNOWN_LEADER_EPOCH",
        "UNKNOWN_TOPIC_OR_PART",  # a broker does not know of a new partition yet
        "_UNKNOWN_PARTITION",  # nor does a client that has asked about the topic before
        "_NOENT",  # no partition has a leader yet, as behind the restart of a broker
        "_TIMED_OUT",
        "_TRANSPORT",
    }
)
"""Errors that pass, as while a partition gets another leader: the question is asked again for ANSWER_S seconds, and for
PATIENCE_S seconds if the brokers have answered before.
confluent-kafka does not say so itself: no error of these questions is `retriable()`."""

# Columns of Spark's source, of the same types.
_HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
_AS: dict[str, tuple[pa.DataType, Callable[[Any, list[Any]], list[Any]]]] = {
    "key": (pa.binary(), lambda message, records: list(map(message.key, records))),
    "value": (pa.binary(), lambda message, records: list(map(message.value, records))),
    "timestamp": (
        pa.timestamp("ms", "UTC"),
        lambda message, records: [_instant(at) for _, at in map(message.timestamp, records)],
    ),
    "timestampType": (pa.int32(), lambda message, records: [kind - 1 for kind, _ in map(message.timestamp, records)]),
    "headers": (_HEADERS, lambda message, records: [_headers(message, record) for record in records]),
}

# A consumer fetches little ahead, because a worker at the end of its span drops the records behind it; and it fetches
# again as soon as it has room: librdkafka would wait for a second.
_CONSUMER = {
    "queued.min.messages": 20_000,
    "queued.max.messages.kbytes": 16_384,
    "fetch.message.max.bytes": 262_144,
    "fetch.queue.backoff.ms": 1,
    "fetch.wait.max.ms": 10,
    "isolation.level": "read_uncommitted",  # Java's default, and so Spark's
    # An idle worker stays connected, and need not log restarts of brokers.
    "log_level": 2,
}


@dataclass(frozen=True)
class Span:
    """The records of one partition from `start` to before `end`."""

    topic: str
    partition: int
    start: int
    end: int


@dataclass(frozen=True)
class Client:
    """The address of the brokers; `settings` are librdkafka's, in pairs."""

    servers: str
    settings: tuple[tuple[str, str], ...] = ()

    def check(self) -> None:
        """Raises TidegateError if librdkafka is missing, DefinitionError if it does not know a setting."""
        kafka = _kafka()
        try:
            kafka.Consumer(self.configuration()).close()
        except kafka.KafkaException as error:
            raise DefinitionError(
                f"librdkafka does not take these settings: {error.args[0].str().rstrip('.')}. Behind `kafka.` are its "
                "names, not always Java's (https://github.com/confluentinc/librdkafka/blob/master/CONFIGURATION.md); "
                'with consumer="spark" they are.'
            ) from error

    def ends(self, topics: Sequence[str]) -> Offsets:
        """The offset behind the last record of each partition. Raises InputError for a topic that is not there."""
        return self._offsets(topics, latest=True)

    def beginnings(self, topics: Sequence[str]) -> Offsets:
        """The offset of the first record of each partition that Kafka still has."""
        return self._offsets(topics, latest=False)

    def records(self, span: Span, names: Sequence[str], *, lossy: bool) -> Iterator[pa.RecordBatch]:
        """The columns `names` of the records of a span; `lossy` skips records that are no longer there."""
        consumer = _consumer(self, "earliest" if lossy else "error")
        consumer.of.assign([_kafka().TopicPartition(span.topic, span.partition, span.start)])
        try:
            found = _until(span, consumer, lossy=lossy)
            while (batch := _batch(found, names, span)) is not None:
                yield batch
        finally:
            consumer.of.unassign()

    def _offsets(self, topics: Sequence[str], *, latest: bool) -> Offsets:
        kafka = _kafka()
        last = time.monotonic() + (PATIENCE_S if _brokers(self).answered else ANSWER_S) - PAUSE_S
        while True:
            try:
                found = self._listed(topics, latest=latest)
            except kafka.KafkaException as error:
                reason = error.args[0]
                if reason.name() not in _PASSING or time.monotonic() > last:
                    raise self._unanswered(topics, reason) from error
                # For minutes this client would go on asking brokers that have been leaders before: make a new client.
                _admin.cache_clear()
                time.sleep(PAUSE_S)
            else:
                _brokers(self).answered = True
                return found

    def _unanswered(self, topics: Sequence[str], reason: Any) -> InputError:
        why = reason.str()
        if reason.name() == "_TRANSPORT":
            why = f"{why}. {_consumer(self, 'error').heard()}".rstrip(". ")
        return InputError(
            f"The brokers {self.servers} do not say how far {', '.join(topics)} goes: {why}. See that they "
            "run and let this client read, and start the query again: it goes on from its checkpoint."
        )

    def _listed(self, topics: Sequence[str], *, latest: bool) -> Offsets:
        kafka: Any = _kafka()
        specs: Any = kafka.admin.OffsetSpec
        places = [kafka.TopicPartition(topic, number) for topic in topics for number in self._partitions(topic)]
        asked = _admin(self).list_offsets(
            dict.fromkeys(places, specs.latest() if latest else specs.earliest()),
            isolation_level=kafka.IsolationLevel[self.configuration()["isolation.level"].upper()],
        )
        offsets: Offsets = {topic: {} for topic in topics}
        for place, answer in asked.items():
            offsets[place.topic][str(place.partition)] = answer.result().offset
        return offsets

    def _partitions(self, topic: str) -> list[int]:
        kafka = _kafka()
        # By a consumer: the question of a producer would create the topic.
        found = _consumer(self, "error").of.list_topics(topic, timeout=ANSWER_S).topics[topic]
        if found.error is not None and found.error.code() == kafka.KafkaError.UNKNOWN_TOPIC_OR_PART:
            raise InputError(f"There is no topic {topic!r} on {self.servers}. Create it, or see how it is written.")
        if found.error is not None:
            raise kafka.KafkaException(found.error)
        return sorted(found.partitions)

    def configuration(self) -> dict[str, Any]:
        """The configuration of a consumer."""
        return {
            **_CONSUMER,
            "group.id": "tidegate",  # required, but unused: the checkpoint has the offsets
            **dict(self.settings),
            "bootstrap.servers": self.servers,
            "enable.auto.commit": False,
            "enable.auto.offset.store": False,
            "enable.partition.eof": True,
        }


def settings(options: Mapping[str, str]) -> tuple[tuple[str, str], ...]:
    """The options that are for the client, without the prefix `kafka.`."""
    return tuple(sorted((name[6:], value) for name, value in options.items() if name.lower().startswith("kafka.")))


def spans(start: Offsets, end: Offsets) -> list[Span]:
    """The spans between two offsets, without empty ones."""
    return [
        Span(topic, int(number), start[topic][number], last)
        for topic, partitions in end.items()
        for number, last in partitions.items()
        if last > start[topic][number]
    ]


def _until(span: Span, consumer: _Consumer, *, lossy: bool) -> Iterator[list[Any]]:
    """The records of `span`, at whose beginning `consumer` is."""
    message = _kafka().Message
    at, heard = span.start, time.monotonic()
    while at < span.end:
        first = at
        records = consumer.of.consume(min(AT_ONCE, span.end - at), POLL_S)
        if any(map(message.error, records)):
            said = [each for each in records if each.error() is not None]
            records = [each for each in records if each.error() is None]
            at = max(at, *(_end(each, span, at) for each in said))
        if records:
            at = max(at, records[-1].offset() + 1)
            if at > span.end or records[0].offset() < first:
                records = [each for each in records if first <= each.offset() < span.end]
            if records:
                yield records
            heard = time.monotonic()  # behind `yield`, where other steps of the task take their time
        elif at < span.end and time.monotonic() - heard > PATIENCE_S:
            if lossy and consumer.has_none(span, at):
                return
            raise _unread(span, at, f"nothing came for {PATIENCE_S} s. {consumer.trouble}".rstrip(". "))


def _end(said: Any, span: Span, at: int) -> int:
    """The end of the partition, if librdkafka reports it instead of a record; raises InputError for another report."""
    codes = _kafka().KafkaError
    if said.error().code() == codes.GROUP_AUTHORIZATION_FAILED:
        return at  # librdkafka looks for the group's coordinator, and nothing here needs it
    if said.error().code() != codes._PARTITION_EOF:  # noqa: SLF001 - its public name
        raise _unread(span, at, said.error().str().rstrip("."))
    return int(said.offset())


def _unread(span: Span, at: int, why: str) -> InputError:
    return InputError(
        f"{span.topic}, partition {span.partition}: the records from offset {at} to {span.end - 1} cannot be read: "
        f"{why}. If the brokers are well again, start the query again: it goes on with this batch. If Kafka deleted "
        "the records, results without them would be wrong; failOnDataLoss=false goes on nevertheless."
    )


def _batch(found: Iterator[list[Any]], names: Sequence[str], span: Span) -> pa.RecordBatch | None:
    """The next records as columns, None if there are no more."""
    batches: list[pa.RecordBatch] = []
    with _no_collector():
        for records in found:
            batches.append(_columns(records, names, span))
            if sum(batch.num_rows for batch in batches) >= CHUNK or sum(each.nbytes for each in batches) >= CHUNK_BYTES:
                break
    return pa.concat_batches(batches) if batches else None


@contextmanager
def _no_collector() -> Iterator[None]:
    """Turns Python's garbage collector off. It would scan the objects of records again and again, and never find one
    to free (decision 0020).
    """
    was = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was:
            gc.enable()


def _columns(records: list[Any], names: Sequence[str], span: Span) -> pa.RecordBatch:
    made: dict[str, pa.Array] = {}
    for name in names:
        if name == "topic":
            made[name] = pa.repeat(pa.scalar(span.topic), len(records))
        elif name == "partition":
            made[name] = pa.repeat(pa.scalar(span.partition, pa.int32()), len(records))
        elif name == "offset":
            made[name] = pa.array(_numbers(records))
        else:
            kind, values = _AS[name]
            made[name] = pa.array(values(_kafka().Message, records), kind)
    return pa.record_batch(made)


def _instant(at: int) -> int | None:
    """A timestamp; null beyond the range of Spark's, as of a producer that counts nanoseconds."""
    return at if -MAX_TIMESTAMP_MS <= at <= MAX_TIMESTAMP_MS else None


def _headers(message: Any, record: Any) -> list[dict[str, Any]] | None:
    """The headers of a record; raises InputError if a name is not UTF-8."""
    try:
        given: list[tuple[str, bytes | None]] | None = message.headers(record)
    except SystemError as error:  # confluent-kafka's own error; a second call would end the Python process
        raise InputError(
            f"{message.topic(record)}, partition {message.partition(record)}: a header of the record at offset "
            f"{message.offset(record)} has a name that is not UTF-8, and confluent-kafka does not give such headers. "
            'Use consumer="spark", which goes on from the same checkpoint, or leave headers=True out.'
        ) from error
    return None if given is None else [{"key": key, "value": value} for key, value in given]


def _numbers(records: list[Any]) -> Any:
    first, last = records[0].offset(), records[-1].offset()
    if last - first == len(records) - 1:
        return np.arange(first, last + 1)
    return np.array([record.offset() for record in records])


class _Consumer:
    """A consumer of this process (`of`), and its last error about the brokers (`trouble`)."""

    def __init__(self, configuration: dict[str, Any]) -> None:
        self.trouble = ""
        self.of = _kafka().Consumer({**configuration, "error_cb": self._hear})

    def has_none(self, span: Span, at: int) -> bool:
        """Whether the brokers say that the partition has no offset of the span from `at` on."""
        try:
            known = self.of.get_watermark_offsets(_kafka().TopicPartition(span.topic, span.partition), ANSWER_S)
        except _kafka().KafkaException:
            return False
        return known is not None and (known[0] >= span.end or known[1] <= at)

    def heard(self) -> str:
        """The last error about the brokers: librdkafka tells it when it is polled."""
        self.of.poll(0)
        return self.trouble

    def _hear(self, error: Any) -> None:
        # The reason comes first, and then that all brokers are down: keep the reason.
        if not self.trouble or error.code() != _kafka().KafkaError._ALL_BROKERS_DOWN:  # noqa: SLF001 - its public name
            self.trouble = f"librdkafka says: {error.str().rstrip('.')}"


@dataclass
class _Brokers:
    """The brokers of a client, and whether they have answered it in this process."""

    servers: str
    answered: bool = False


@cache
def _brokers(client: Client) -> _Brokers:
    return _Brokers(client.servers)


@cache
def _consumer(client: Client, without_offset: str) -> _Consumer:
    return _Consumer({**client.configuration(), "auto.offset.reset": without_offset})


@cache
def _admin(client: Client) -> Any:
    from confluent_kafka.admin import AdminClient

    return AdminClient({"log_level": 2, **dict(client.settings), "bootstrap.servers": client.servers})


def _kafka() -> Any:
    try:
        import confluent_kafka.admin
    except ImportError as error:
        raise TidegateError(
            'consumer="librdkafka" needs confluent-kafka, here and on the workers: pip install "tidegate[kafka]". '
            f"Python says: {error}"
        ) from error
    return confluent_kafka
