"""A Kafka topic as a stream or as a table: decoded, in exact order, with unreadable records set aside."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from tidegate import dsl
from tidegate.dsl import KStream, KTable
from tidegate.dsl.checks import check_name
from tidegate.errors import DefinitionTypeError
from tidegate.instants import Duration
from tidegate.runtime.spark.kafka.formats import Format, text
from tidegate.runtime.spark.kafka.reading import META, TOMBSTONE, Made, Reading
from tidegate.runtime.spark.kafka.registered import bound
from tidegate.runtime.spark.kafka.subscription import Subscription


@dataclass(frozen=True, repr=False)
class KafkaStream(KStream):
    """A stream of the records of a topic.

    Attributes:
        frame: The decoded records: fields of key and value, topic, partition, offset, kafka_timestamp.
        dead_letters: The records that cannot be decoded: topic, partition, offset, timestamp, reason, key and value as
            bytes; a query of its own.

    Examples:
        ```python
        records = tg.kafka.source(spark, "localhost:9092", "events", key="user", value="price double", timestamp=None)
        broken = records.dead_letters.writeStream.format("parquet").option("path", "/data/broken")
        ```
    """

    frame: DataFrame = field(compare=False, repr=False)
    dead_letters: DataFrame = field(compare=False, repr=False)


@dataclass(frozen=True, repr=False)
class KafkaTable(KTable):
    """A table whose changes are the records of a topic.

    Attributes:
        frame: As of a KafkaStream.
        dead_letters: As of a KafkaStream.

    Examples:
        ```python
        users = tg.kafka.table(spark, "localhost:9092", "users", key="user", value="city string", timestamp=None)
        broken = users.dead_letters.writeStream.format("console")
        ```
    """

    frame: DataFrame = field(compare=False, repr=False)
    dead_letters: DataFrame = field(compare=False, repr=False)


def source(
    spark: SparkSession,
    servers: str,
    topic: str | Sequence[str],
    *,
    key: str | Sequence[str] | Format,
    value: Any,
    timestamp: str | None = None,
    name: str | None = None,
    starting: str = "earliest",
    headers: bool = False,
    streaming: bool = True,
    consumer: str = "spark",
    options: Mapping[str, str] | None = None,
    **more: Any,
) -> KafkaStream:
    """The records of a topic (or several) as a stream, in the order of partition and offset.

    Records that cannot be decoded are in `dead_letters`, and counted in `observedMetrics` under "NAME source" (and
    "NAME source 2", if a query uses the stream twice).

    Args:
        spark: The session.
        servers: The brokers, "host:port" with commas between them.
        topic: A topic, or a list of topics.
        key: Fields of the value; or the format of the record's key (`tg.kafka.text("user")`, `.json`, `.avro`), whose
            columns then are the key; a name that is no field of the value is the record's key as text.
        value: A schema: "user string, ts timestamp" or a StructType for JSON, the text of an Avro schema, a Format, or
            `tg.kafka.schema_registry(url)`, whose records name their schemas.
        timestamp: A field with the event time, of a timestamp type or in epoch milliseconds; None for Kafka's own.
        name: The name of the stream; left out, the name of the topic.
        starting: "earliest", "latest" or Spark's JSON of offsets; without effect once there is a checkpoint.
        headers: Whether the headers of the records are a column too.
        streaming: False for a static DataFrame of the records that are there now.
        consumer: "spark": Spark's connector. "librdkafka": the workers consume the records themselves, which costs
            less, in Spark 4.2 or later with `tidegate[kafka]`. A checkpoint goes on with either (docs/kafka.md).
        options: Other options of Spark's source: security, `maxOffsetsPerTrigger`, `failOnDataLoss`; librdkafka has
            these two and settings of its own behind `kafka.`.
        **more: Other arguments of `tg.stream`, such as `stream_time="min_partition"`.

    Returns:
        The stream.

    Raises:
        TidegateError: Spark has no Kafka connector, or Python no librdkafka.
        DefinitionError: The consumer does not know an option, or a column does not fit.
        DefinitionTypeError: An argument is of the wrong kind.

    Examples:
        ```python
        records = tg.kafka.source(
            spark, "localhost:9092", "events", key="user", value="user string, ts timestamp", timestamp="ts"
        )
        ```
    """
    raw, made = Subscription.of(spark, servers, topic, starting, headers, streaming, options).by(consumer)
    return decoded_stream(
        raw,
        made=made,
        key=bound(key, topic, "key"),
        value=bound(value, topic, "value"),
        timestamp=timestamp,
        name=check_name(name, _named(topic)),
        several=not isinstance(topic, str),
        **more,
    )


def table(
    spark: SparkSession,
    servers: str,
    topic: str | Sequence[str],
    *,
    key: str | Format,
    value: Any,
    timestamp: str | None = None,
    name: str | None = None,
    starting: str = "earliest",
    streaming: bool = True,
    consumer: str = "spark",
    options: Mapping[str, str] | None = None,
    history: Duration | None = None,
) -> KafkaTable:
    """The records of a changelog topic, compacted or not, as a table: each upserts its key's row, a null value deletes.

    A deletion has no fields, so its time is Kafka's whatever `timestamp` says.

    Args:
        spark: As of `source`.
        servers: As of `source`.
        topic: As of `source`.
        key: The record's own key, as a name (text) or a Format.
        value: As of `source`.
        timestamp: As of `source`.
        name: As of `source`.
        starting: As of `source`.
        streaming: As of `source`.
        consumer: As of `source`.
        options: As of `source`.
        history: As of `tg.table`.

    Returns:
        The table.

    Raises:
        TidegateError: Spark has no Kafka connector, or Python no librdkafka.
        DefinitionTypeError: An argument is of the wrong kind.

    Examples:
        ```python
        users = tg.kafka.table(spark, "localhost:9092", "users", key="user", value="city string", history="1 hour")
        ```
    """
    raw, _ = Subscription.of(spark, servers, topic, starting, False, streaming, options).by(consumer)
    return decoded_table(
        raw,
        key=bound(key, topic, "key"),
        value=bound(value, topic, "value"),
        timestamp=timestamp,
        name=check_name(name, _named(topic)),
        several=not isinstance(topic, str),
        history=history,
    )


def decoded_stream(
    raw: DataFrame,
    *,
    key: str | Sequence[str] | Format,
    value: Any,
    timestamp: str | None,
    name: str,
    several: bool = False,
    made: Made | None = None,
    **more: Any,
) -> KafkaStream:
    """`source` over a DataFrame that has the columns of Spark's Kafka source."""
    reading = replace(Reading.of(raw, key, value, timestamp, name, several), made=made)
    frame = reading.frame()
    node = dsl.stream(
        frame,
        key=reading.key_columns,
        timestamp=reading.time,
        partition="partition",
        offset="offset",
        name=name,
        **more,
    ).node
    # Every record has a place and a time in Kafka: these columns are no values, which a record may lack.
    node = replace(node, non_values=tuple(name for name in (*META, "headers") if name in frame.columns))
    if reading.in_workers:
        node = replace(node, undecoded=reading)
    return KafkaStream(node, frame, reading.dead_letters())


def decoded_table(
    raw: DataFrame,
    *,
    key: str | Format,
    value: Any,
    timestamp: str | None,
    name: str,
    several: bool = False,
    history: Duration | None = None,
) -> KafkaTable:
    """`table` over a DataFrame that has the columns of Spark's Kafka source."""
    key = text(key) if isinstance(key, str) else bound(key, None, "key")
    if not isinstance(key, Format):
        raise DefinitionTypeError(
            f"`key` is {key!r}. A deletion has no value, so the key of a table is the record's own: use a name for "
            'text, or for example tg.kafka.json("shop string, item long").'
        )
    reading = replace(Reading.of(raw, key, value, timestamp, name, several), deletes=True)
    order = ("partition", "offset")
    return changes_table(
        reading.frame(), reading.dead_letters(), reading.key_columns, reading.time, order, name=name, history=history
    )


def changes_table(
    frame: DataFrame,
    dead_letters: DataFrame,
    key: Sequence[str],
    timestamp: str,
    order: tuple[str | None, str | None],
    **more: Any,
) -> KafkaTable:
    """A table of changes; a change with `TOMBSTONE` deletes. `order`: the columns partition and offset, or two None."""
    partition, offset = order
    table = dsl.table(
        frame, key=key, timestamp=timestamp, deleted=TOMBSTONE, partition=partition, offset=offset, **more
    )
    return KafkaTable(table.node, frame, dead_letters)


def _named(topic: str | Sequence[str]) -> str:
    return topic if isinstance(topic, str) else ",".join(topic)
