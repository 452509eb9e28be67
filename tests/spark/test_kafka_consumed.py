"""Decisions of `consumer="librdkafka"` without a broker: spans of batches per task, and refused definitions."""

from __future__ import annotations

import sys
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

import tidegate as tg
from kernel.test_cost import lines_executed
from tidegate.errors import DefinitionError, InputError, TidegateError

pytest.importorskip("pyspark")
pytest.importorskip("confluent_kafka")
pytest.importorskip("pyspark.sql.streaming.datasource", reason="Spark 4.2 or later")

import confluent_kafka
import pyarrow as pa
from confluent_kafka import KafkaError, KafkaException
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows
from pyspark.sql.types import StructType

from tidegate.kernel.columns.arrays import as_schema
from tidegate.runtime.spark.frames.arrow import MAX_TIMESTAMP_MS
from tidegate.runtime.spark.kafka import consumed, librdkafka
from tidegate.runtime.spark.kafka.librdkafka import Client, Span, spans


class Session(SimpleNamespace):
    """As much of a session as the definition of a source asks for."""

    readStream = None  # noqa: N815 - Spark's name


SPARK: Any = Session(sparkContext=SimpleNamespace(defaultParallelism=2, master="local[2]"))
lengths = st.lists(st.integers(0, 5_000), min_size=1, max_size=9)


def offsets(values: list[int]) -> dict[str, dict[str, int]]:
    return {"t": {str(number): value for number, value in enumerate(values)}}


@given(lengths, st.integers(1, 9_000))
def test_a_bounded_batch_takes_from_every_partition_and_in_the_end_all(there: list[int], most: int) -> None:
    start, end = offsets([100] * len(there)), offsets([100 + n for n in there])
    taken, batches = 0, 0
    while start != end:
        reached = consumed.shared(start, end, most)
        sizes = {span.partition: span.end - span.start for span in spans(start, reached)}
        assert set(sizes) == {span.partition for span in spans(start, end)}
        assert sum(sizes.values()) <= most + len(sizes)
        taken, batches, start = taken + sum(sizes.values()), batches + 1, reached
    assert taken == sum(there)
    assert batches <= 1 + sum(there) // max(1, most - len(there))


@given(st.integers(1, 5_000), st.integers(0, 5_000))
@example(15, 7)  # as a share of 22 records, 15 records are a little less than 15
def test_a_bounded_batch_of_one_partition_has_as_many_records_as_it_may(most: int, more: int) -> None:
    assert consumed.shared(offsets([100]), offsets([100 + most + more]), most) == offsets([100 + most])


@given(lengths, st.integers(1, 6))
def test_each_span_goes_to_one_task_and_no_task_has_much_more_than_another(there: list[int], tasks: int) -> None:
    found = spans(offsets([0] * len(there)), offsets(there))
    hands = consumed.assigned(found, tasks)
    assert sorted((span for hand in hands for span in hand), key=repr) == sorted(found, key=repr)
    assert len(hands) == min(tasks, len(found))
    sizes = [sum(span.end for span in hand) for hand in hands]
    assert not sizes or max(sizes) - min(sizes) <= max(span.end for span in found)
    assert len(found) == len([length for length in there if length])


def test_a_task_with_a_large_span_gets_no_others() -> None:
    hands = consumed.assigned(spans(offsets([0] * 4), offsets([1, 9, 1, 1])), 2)
    assert sorted(sum(span.end for span in hand) for hand in hands) == [3, 9]


def test_many_spans_are_assigned_in_steps_by_their_number() -> None:
    few, many = (spans(offsets([0] * n), offsets([1 + at % 7 for at in range(n)])) for n in (200, 2_000))
    steps = [lines_executed(lambda found=found: consumed.assigned(found, 8)) for found in (few, many)]
    assert steps[1] < 12 * steps[0]


class Broker:
    """A client that knows the first offsets of partitions."""

    def __init__(self, **beginnings: int) -> None:
        self._found = {"t": beginnings and {name[1:]: at for name, at in beginnings.items()}}

    def beginnings(self, topics: list[str]) -> Any:
        assert topics == ["t"]
        return self._found


def topics(client: Any, *, lossy: bool = False) -> Any:
    return consumed.Topics(client, ("t",), "earliest", None, lossy, False, None)


def test_a_partition_that_is_new_or_was_made_anew_begins_at_its_beginning() -> None:
    found = topics(Broker(p0=3, p1=7, p2=2)).known(offsets([50, 10]), offsets([40, 20, 9]))
    assert spans(found, offsets([40, 20, 9])) == [Span("t", 0, 3, 40), Span("t", 1, 10, 20), Span("t", 2, 2, 9)]
    found = topics(Broker(p0=3, p1=7)).known(offsets([50, 10]), offsets([40, 20]))
    assert spans(found, offsets([40, 20])) == [Span("t", 0, 3, 40), Span("t", 1, 10, 20)]


class Busy:
    """A client of a topic with two partitions that get a record each whenever somebody asks for their ends."""

    def __init__(self) -> None:
        self.end = 1_000

    def ends(self, topics: list[str]) -> Any:
        self.end += 1
        return offsets([self.end] * 2)

    def beginnings(self, topics: list[str]) -> Any:
        return offsets([0, 0])


def reader(client: Any, starting: str) -> consumed.Consumed:
    return consumed.Consumed(
        StructType(), consumed.Topics(client, ("t",), starting, None, False, False, None), None, {}
    )


def read(source: consumed.Consumed, start: Any, end: Any) -> list[Span]:
    return [span for task in source.partitions(start, end) for span in task.spans]


@pytest.mark.parametrize("available_now", [False, True])
@pytest.mark.parametrize("again", [False, True])
@pytest.mark.parametrize(
    ("starting", "first"), [("latest", []), ('{"t": {"0": 990, "1": -1}}', [Span("t", 0, 990, 1_001)])]
)
def test_a_query_that_begins_at_the_end_of_a_busy_topic_reads_what_comes_from_then_on(
    starting: str, first: list[Span], again: bool, available_now: bool
) -> None:
    """Spark asks twice for the beginning of batch 0, and once more when it runs batch 0 again after a restart."""
    client = Busy()
    source = reader(client, starting)
    if available_now:
        source.prepareForTriggerAvailableNow()
    logged = source.latestOffset(source.initialOffset(), ReadAllAvailable())
    if again:
        source = reader(client, starting)
    assert logged == offsets([1_001, 1_001])
    assert read(source, source.initialOffset(), logged) == first
    source = reader(client, starting)
    end = source.latestOffset(logged, ReadAllAvailable())
    assert read(source, logged, end) == [Span("t", number, 1_001, end["t"][str(number)]) for number in (0, 1)]


@pytest.mark.parametrize(
    ("starting", "says"),
    [
        ('{"t": {"1": 990}}', "`starting` has no offset for these partitions of 't': 0. Give each partition one"),
        ('{"t": {}}', "these partitions of 't': 0, 1"),
        ("{}", "these partitions of 't': 0, 1"),
        ('{"t": {"0": 1, "1": 2, "2": 3}}', "`starting` has partition 2 of 't', which is not among those"),
        ('{"t": {"0": 1, "1": 2}, "u": {"0": 3}}', "`starting` has partition 0 of 'u', which is not among those"),
    ],
)
def test_offsets_to_start_from_are_of_the_partitions_that_are_read(starting: str, says: str) -> None:
    """As with Spark's connector: a partition that somebody forgot is not read from its beginning."""
    with pytest.raises(DefinitionError, match=says):
        reader(Busy(), starting).initialOffset()


def test_a_bounded_batch_of_a_query_that_begins_at_the_end_of_a_partition() -> None:
    source = reader(Busy(), '{"t": {"0": 900, "1": -1}}')
    end = source.latestOffset(source.initialOffset(), ReadMaxRows(10))
    assert read(source, source.initialOffset(), end) == [Span("t", 0, 900, 910)]


@pytest.mark.parametrize(("first", "lossy"), [(0, False), (2, False), (2, True), (9, False)])
def test_a_new_partition_that_has_lost_its_first_records_is_an_error_unless_that_is_said_to_be_well(
    first: int, lossy: bool
) -> None:
    source = consumed.Consumed(StructType(), topics(Broker(p0=3, p1=first), lossy=lossy), None, {})
    start, end = offsets([5]), offsets([6, 9])
    if first and not lossy:
        with pytest.raises(InputError, match=f"t, partition 1: .* begins at offset {first}: Kafka deleted the records"):
            read(source, start, end)
    else:
        assert read(source, start, end) == [Span("t", 1, first, 9), Span("t", 0, 5, 6)]


def test_nothing_is_asked_where_all_partitions_are_known() -> None:
    client: Any = None
    assert topics(client).known(offsets([5]), offsets([6])) == offsets([5])


@pytest.mark.parametrize(
    ("now", "says"), [(offsets([9]), "the partition ends at 9"), (offsets([]), "there is no such partition")]
)
def test_a_topic_that_became_shorter_is_an_error_unless_that_is_said_to_be_well(now: Any, says: str) -> None:
    client: Any = None
    with pytest.raises(InputError, match=f"t, partition 0: the query is at offset 10, but {says}"):
        topics(client).check_none_lost(offsets([10]), now)
    topics(client, lossy=True).check_none_lost(offsets([10]), now)


class Lagging:
    """A client of brokers that name the partitions of their last answer, of 5 records each, and then all of them."""

    def __init__(self, *named: int) -> None:
        self._named = list(named)

    def ends(self, topics: list[str]) -> Any:
        return offsets([5] * self._named.pop(0))

    def beginnings(self, topics: list[str]) -> Any:
        return offsets([0] * 9)


@pytest.mark.parametrize("available_now", [False, True])
def test_a_partition_that_a_broker_does_not_name_for_a_while_is_not_read_again(available_now: bool) -> None:
    """The query has read partition 1, of which a broker that lags behind the others does not know yet."""
    source = consumed.Consumed(StructType(), topics(Lagging(1, 2), lossy=not available_now), None, {})
    read_before = offsets([3, 5])
    if available_now:
        source.prepareForTriggerAvailableNow()
    logged = source.latestOffset(read_before, ReadAllAvailable())
    assert read(source, read_before, logged) == [Span("t", 0, 3, 5)]
    again = consumed.Consumed(StructType(), topics(Lagging(2)), None, {})
    assert read(again, logged, again.latestOffset(logged, ReadMaxRows(9))) == []


class Message:
    """A record of librdkafka's, of so many bytes, or a report of an error."""

    def __init__(self, offset: int, size: int, error: KafkaError | None = None) -> None:
        self._offset, self._value, self._error = offset, bytes(size), error

    def error(self) -> KafkaError | None:
        return self._error

    def offset(self) -> int:
        return self._offset

    def value(self) -> bytes:
        return self._value


@pytest.mark.parametrize(("size", "wanted"), [(100, [32_800, 3_200]), (20_000, [1_200] * 30)])
def test_batches_are_bounded_by_records_and_by_bytes(
    monkeypatch: pytest.MonkeyPatch, size: int, wanted: list[int]
) -> None:
    monkeypatch.setattr(librdkafka, "_kafka", lambda: SimpleNamespace(Message=Message))
    requests = ([Message(first + n, size) for n in range(400)] for first in range(0, 36_000, 400))
    batches = []
    while (batch := librdkafka._batch(requests, ["value", "offset"], Span("t", 0, 0, 36_000))) is not None:
        assert batch.nbytes < librdkafka.CHUNK_BYTES + 400 * (size + 100)
        batches.append(batch.num_rows)
    assert batches == wanted


class Timed(Message):
    """A record whose time and its type are as a producer gave them."""

    def timestamp(self) -> tuple[int, int]:
        return 1, self._offset


def test_a_time_that_spark_has_not_is_null(monkeypatch: pytest.MonkeyPatch) -> None:
    """As of a producer that counts nanoseconds: one such record must not end the query at each start."""
    monkeypatch.setattr(librdkafka, "_kafka", lambda: SimpleNamespace(Message=Timed))
    times = [-1, 5, MAX_TIMESTAMP_MS, MAX_TIMESTAMP_MS + 1, 1_700_000_000_000_000_000, -MAX_TIMESTAMP_MS - 1]
    rows = librdkafka._columns([Timed(time, 1) for time in times], ["timestamp"], Span("t", 0, 0, 9))
    found = as_schema(rows, pa.schema([("timestamp", pa.timestamp("us", "UTC"))]))["timestamp"]
    assert found.cast(pa.int64()).to_pylist() == [-1_000, 5_000, MAX_TIMESTAMP_MS * 1_000, None, None, None]


class Headed(Message):
    """A record of the topic t with headers as confluent-kafka gives them; it stumbles over a name that is no text."""

    def topic(self) -> str:
        return "t"

    def partition(self) -> int:
        return 0

    def headers(self) -> list[tuple[str, bytes]]:
        try:
            return [((b"\xff" if self._offset == 9 else b"name").decode(), b"1")]
        except UnicodeDecodeError as error:
            raise SystemError("returned a result with an exception set") from error


def test_a_header_whose_name_is_no_text_is_an_error_that_says_where(monkeypatch: pytest.MonkeyPatch) -> None:
    """Spark's connector reads it, with other letters in its place."""
    monkeypatch.setattr(librdkafka, "_kafka", lambda: SimpleNamespace(Message=Headed))
    rows = librdkafka._columns([Headed(8, 1)], ["headers"], Span("t", 0, 0, 10))
    assert rows["headers"].to_pylist() == [[{"key": "name", "value": b"1"}]]
    with pytest.raises(InputError, match=r't, partition 0: a header of the record at offset 9 .* Use consumer="spark"'):
        librdkafka._columns([Headed(8, 1), Headed(9, 1)], ["headers"], Span("t", 0, 0, 10))


@pytest.mark.parametrize(
    "code",
    [
        "FENCED_LEADER_EPOCH",
        "NOT_LEADER_FOR_PARTITION",
        "UNKNOWN_TOPIC_OR_PART",
        "_NOENT",
        "_TRANSPORT",
        "_UNKNOWN_PARTITION",
    ],
)
def test_brokers_are_asked_again_while_a_partition_gets_another_leader(
    monkeypatch: pytest.MonkeyPatch, code: str
) -> None:
    answers = [KafkaException(KafkaError(getattr(KafkaError, code))), offsets([7])]
    admins = []

    def listed(client: Client, topics: list[str], *, latest: bool) -> Any:
        admins.append(librdkafka._admin(client))
        answer = answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    monkeypatch.setattr(librdkafka, "PAUSE_S", 0)
    monkeypatch.setattr(Client, "_listed", listed)
    assert Client("b:1").ends(["t"]) == offsets([7])
    assert admins[0] is not admins[1], "a client that knows leaders of before would ask for them again"
    answers[:] = [KafkaException(KafkaError(KafkaError.TOPIC_AUTHORIZATION_FAILED)), offsets([7])]
    with pytest.raises(InputError, match="do not say how far t goes: Broker: Topic authorization failed"):
        Client("b:1").ends(["t"])


def test_brokers_that_are_not_reached_are_an_error_with_the_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(librdkafka, "ANSWER_S", 1)
    with pytest.raises(InputError, match=r"how far t goes: .*transport failure. librdkafka says: .*Connection refused"):
        Client("127.0.0.1:9").ends(["t"])


def test_brokers_that_have_answered_are_waited_for_as_long_as_a_worker_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    """Brokers that were away for a minute ended the query, which had read them before."""
    clock = SimpleNamespace(now=0.0, back=0.0)

    def listed(client: Client, topics: list[str], *, latest: bool) -> Any:
        if clock.now < clock.back:
            clock.now += librdkafka.ANSWER_S
            raise KafkaException(KafkaError(KafkaError._TIMED_OUT))
        return offsets([7])

    monkeypatch.setattr("tidegate.runtime.spark.kafka.librdkafka.time.monotonic", lambda: clock.now)
    monkeypatch.setattr(librdkafka, "PAUSE_S", 0)
    monkeypatch.setattr(Client, "_listed", listed)
    client, away = Client("b:2"), librdkafka.PATIENCE_S - librdkafka.ANSWER_S
    clock.back = away
    with pytest.raises(InputError, match="do not say how far t goes"):
        client.ends(["t"])
    clock.now = clock.back
    assert client.ends(["t"]) == offsets([7])
    clock.back = clock.now + away
    assert client.ends(["t"]) == offsets([7])


@pytest.mark.parametrize(
    ("code", "says"),
    [("GROUP_AUTHORIZATION_FAILED", None), ("TOPIC_AUTHORIZATION_FAILED", "Broker: Topic authorization failed. If")],
)
def test_records_come_without_a_right_to_the_group(
    monkeypatch: pytest.MonkeyPatch, code: str, says: str | None
) -> None:
    """No offset is committed: the group is only librdkafka's."""
    monkeypatch.setattr(librdkafka, "_kafka", lambda: SimpleNamespace(Message=Message, KafkaError=KafkaError))
    report = Message(-1001, 0, KafkaError(getattr(KafkaError, code)))
    answers = iter([[report], [Message(4, 1), report, Message(5, 1)]])
    consumer: Any = SimpleNamespace(of=SimpleNamespace(consume=lambda records, seconds: next(answers)), trouble="")
    found = librdkafka._until(Span("t", 0, 4, 6), consumer, lossy=False)
    if says is None:
        assert [[record.offset() for record in records] for records in found] == [[4, 5]]
        return
    with pytest.raises(InputError, match=f"from offset 4 to 5 cannot be read: {says}"):
        list(found)


def polled(monkeypatch: pytest.MonkeyPatch, *answers: list[int]) -> Any:
    """A consumer that gets records with these offsets, poll by poll; behind a minus the end of the partition."""
    monkeypatch.setattr(librdkafka, "_kafka", lambda: SimpleNamespace(Message=Message, KafkaError=KafkaError))
    end = KafkaError(KafkaError._PARTITION_EOF)
    found = iter([[Message(abs(at), 1, end if at < 0 else None) for at in answer] for answer in answers])
    return SimpleNamespace(of=SimpleNamespace(consume=lambda records, seconds: next(found)), trouble="")


def test_no_offset_comes_twice_where_librdkafka_begins_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    """With failOnDataLoss=false it goes back to the first record, if its place is gone or the log was cut."""
    consumer = polled(monkeypatch, [3, 4, 5, 6], [0, 1, 2, 3, 4, 5], [6, 7, -8], [8, -10])
    found = librdkafka._until(Span("t", 0, 4, 10), consumer, lossy=True)
    assert [[record.offset() for record in records] for records in found] == [[4, 5, 6], [7], [8]]


def test_the_time_that_other_steps_of_the_task_take_is_no_silence_of_the_brokers(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    clock = SimpleNamespace(now=0.0)
    monkeypatch.setattr("tidegate.runtime.spark.kafka.librdkafka.time.monotonic", lambda: clock.now)
    found = []
    for records in librdkafka._until(Span("t", 0, 4, 8), polled(monkeypatch, [4, 5], [], [6, 7]), lossy=False):
        found += [record.offset() for record in records]
        clock.now += 10 * librdkafka.PATIENCE_S
    assert found == [4, 5, 6, 7]


class Silent:
    """A consumer that gets no record; the brokers say which offsets the partition has, or nothing."""

    def __init__(self, offsets: tuple[int, int] | Exception | None) -> None:
        self._offsets = offsets

    def consume(self, records: int, seconds: float) -> list[Any]:
        return []

    def get_watermark_offsets(self, place: Any, seconds: float) -> tuple[int, int] | None:
        if isinstance(self._offsets, Exception):
            raise self._offsets
        return self._offsets


@pytest.mark.parametrize("lossy", [False, True])
@pytest.mark.parametrize(
    ("offsets", "gone"),
    [((0, 4), True), ((20, 30), True), ((0, 20), False), ((8, 9), False), (None, False), (KafkaException(), False)],
)
def test_only_records_that_are_gone_may_be_left_out(
    monkeypatch: pytest.MonkeyPatch, lossy: bool, offsets: Any, gone: bool
) -> None:
    """Brokers that are not reached for a while have the records still."""
    monkeypatch.setattr(librdkafka, "PATIENCE_S", -1)
    monkeypatch.setattr(librdkafka, "_kafka", lambda: confluent_kafka)
    consumer: Any = object.__new__(librdkafka._Consumer)
    consumer.of, consumer.trouble = Silent(offsets), "Connection refused."
    found = librdkafka._until(Span("t", 0, 4, 10), consumer, lossy=lossy)
    if lossy and gone:
        assert list(found) == []
        return
    with pytest.raises(InputError, match=r"from offset 4 to 9 cannot be read: nothing came for .* Connection refused"):
        list(found)


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"minPartitions": "3"}, "'minPartitions', which consumer=\"librdkafka\" does not know"),
        ({"maxOffsetsPerTrigger": "0"}, "`maxOffsetsPerTrigger` is '0'"),
        ({"failOnDataLoss": "perhaps"}, "`failOnDataLoss` is 'perhaps'"),
        ({"startingOffsets": "noon"}, "`starting` is 'noon'"),
        ({"startingOffsets": "[1]"}, "`starting` is '\\[1\\]'"),
        ({"startingOffsets": '{"t": {"0": true}}'}, "`starting` is '.*true"),
        ({"startingOffsets": '{"t": {"0": -3}}'}, "`starting` is '.*-3.* an offset for each partition"),
        ({"kafka.sasl.jaas.config": "x"}, "librdkafka does not take these settings: .*JAAS"),
        ({"kafka.isolation.level": "none"}, "librdkafka does not take these settings: .*isolation.level"),
    ],
)
def test_options_that_it_does_not_know(options: dict[str, str], says: str) -> None:
    with pytest.raises(DefinitionError, match=says):
        consumed.asked(SPARK, "localhost:1", ["t"], "earliest", False, options)


def test_options_are_taken_as_spark_takes_them() -> None:
    """Numbers, bools, and words in any case."""
    given: Any = {
        "maxOffsetsPerTrigger": 7,
        "failOnDataLoss": False,
        "startingOffsets": " Latest",
        "kafka.check.crcs": True,
    }
    found = consumed.asked(SPARK, "b:1", ["t"], "earliest", False, given)
    assert (found.limit, found.lossy, found.starting) == (7, True, "latest")
    assert found.client.settings == (("check.crcs", "true"),)


def test_options_in_any_case_and_for_the_client() -> None:
    found = consumed.asked(
        SPARK, "b:1", ["t"], "latest", True, {"MAXOFFSETSPERTRIGGER": "7", "Kafka.check.crcs": "true"}
    )
    assert found == consumed.Topics(
        Client("b:1", (("check.crcs", "true"),)), ("t",), "latest", 7, lossy=False, headers=True, tasks=2
    )


@pytest.mark.parametrize(
    ("arguments", "says"),
    [({"consumer": "kafka"}, "`consumer` is 'kafka'. Use \"spark\""), ({"streaming": False}, "reads streams alone")],
)
def test_arguments_that_it_refuses(arguments: dict[str, Any], says: str) -> None:
    with pytest.raises(DefinitionError, match=says):
        tg.kafka.source(SPARK, "b:1", "t", key="user", value="n long", **{"consumer": "librdkafka"} | arguments)


@pytest.mark.parametrize(
    ("missing", "says"),
    [("confluent_kafka", 'pip install "tidegate\\[kafka\\]"'), ("pyspark.sql.streaming.datasource", "Spark 4.2")],
)
def test_what_it_needs_and_is_not_there(monkeypatch: pytest.MonkeyPatch, missing: str, says: str) -> None:
    monkeypatch.setitem(sys.modules, missing, None)
    monkeypatch.delitem(sys.modules, "tidegate.runtime.spark.kafka.consumed", raising=False)
    monkeypatch.delitem(sys.modules, "confluent_kafka.admin", raising=False)
    with pytest.raises(TidegateError, match=says):
        tg.kafka.source(SPARK, "b:1", "t", key="user", value="n long", consumer="librdkafka")
