"""A Kafka topic as a stream or as a table: decoded, in exact order, with unreadable records set aside."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pyarrow as pa
import pyspark
from pyspark.errors import AnalysisException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import (
    DataType,
    DateType,
    LongType,
    StructField,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from tidegate import dsl
from tidegate.arguments import is_one_of, options_of
from tidegate.dsl import KStream, KTable
from tidegate.dsl.checks import check_column, check_name
from tidegate.errors import DefinitionError, DefinitionTypeError, TidegateError, in_one_line
from tidegate.instants import Duration
from tidegate.plan import RESULT_COLUMNS
from tidegate.runtime.spark.frames.arrow import MAX_TIMESTAMP_MS
from tidegate.runtime.spark.frames.names import check_apart, free
from tidegate.runtime.spark.kafka.formats import Format, Json, Text, format_of, text
from tidegate.runtime.spark.kafka.plain import AT, HANDED_OVER, PLAIN, FirstWorker, Joiner, Reader, as_written, readable
from tidegate.runtime.spark.kafka.read_and_pack import ReadAndPack
from tidegate.runtime.spark.kafka.registered import SCHEMA_ID, Bound, Decoding, Framed, Packed, bound, judged
from tidegate.runtime.spark.raw import Pack, RowDecoder, without_faults
from tidegate.runtime.spark.session.config import connector
from tidegate.runtime.spark.session.given import check_session
from tidegate.spec.columns import OURS

STAMP = "kafka_timestamp"
"""The column with Kafka's `timestamp`, renamed because rows of a result have a column of that name."""
TOMBSTONE = "tombstone"
META = ("topic", "partition", "offset", STAMP)
TAKEN = (*RESULT_COLUMNS, *META, TOMBSTONE, "headers")
"""Names that a field of a record cannot have here; such a field gets `_in` behind its name."""

CONSUMER = {
    # Spark asks the broker for the first and the last offset of a partition after each poll, so polls cost more than
    # in other programs: Kafka's default is 500 records.
    "kafka.max.poll.records": "2000",
    # A consumer that has polled the last record of a partition asks for the next ones at once. The broker answers the
    # questions of a consumer one after the other, so Spark's next question would wait for Kafka's default of 500 ms.
    "kafka.fetch.max.wait.ms": "10",
}
"""Settings of the consumer of Spark's connector (decision 0071)."""

_KEY, _VALUE, _FAULT = OURS + "key", OURS + "value", OURS + "fault"

Made = Callable[[FirstWorker, StructType], DataFrame]


@dataclass(frozen=True)
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


@dataclass(frozen=True)
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
    raw, made = _Wanted.of(spark, servers, topic, starting, headers, streaming, options).by(consumer)
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
    raw, _ = _Wanted.of(spark, servers, topic, starting, False, streaming, options).by(consumer)
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
    reading = replace(_Reading.of(raw, key, value, timestamp, name, several), made=made)
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
        node = replace(node, raw=reading)
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
    reading = replace(_Reading.of(raw, key, value, timestamp, name, several), deletes=True)
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


@dataclass(frozen=True)
class _Reading:
    """Turns the columns of Spark's Kafka source into the columns of a stream.

    `key_format` is None if the key is in the value. `names` has the column of each field of key and value. `made` makes
    the DataFrame of a Reader's rows; None if Spark runs the Reader over `raw`.
    """

    raw: DataFrame
    key_format: Format | None
    value_format: Format
    key_fields: StructType
    value_fields: StructType
    key_columns: list[str]
    names: dict[tuple[str, str], str]
    time: str
    name: str
    several: bool
    deletes: bool = False
    made: Made | None = None

    @staticmethod
    def of(raw: DataFrame, key: Any, value: Any, timestamp: str | None, name: str, several: bool) -> _Reading:
        spark = raw.sparkSession
        key, value = bound(key, None, "key"), bound(value, None, "value")
        value_format = format_of(value, "value")
        value_fields = value_format.fields(spark)
        if isinstance(key, str) and key not in value_fields.names:
            key = text(key)
        key_format = key if isinstance(key, Format) else None
        key_fields = key_format.fields(spark) if key_format else StructType()
        for what, fields in (("key", key_fields), ("value", value_fields)):
            check_apart(fields.names, spark, f"The schema of `{what}` has")
        names = _names(key_fields, value_fields)
        columns = [names[_KEY, field] for field in key_fields.names] if key_format else _of_value(key, names)
        time = STAMP if timestamp is None else _time(check_column(timestamp, "timestamp"), names)
        return _Reading(raw, key_format, value_format, key_fields, value_fields, columns, names, time, name, several)

    def frame(self) -> DataFrame:
        """The records that can be read; Spark counts all records and the malformed ones (`observedMetrics`)."""
        return self._fine(self._judged(self.raw), F.count(F.lit(1))).select(
            *self._fields().values(), *self._meta().values()
        )

    @property
    def in_workers(self) -> bool:
        """Whether workers read the plain records (kafka.plain), or all records (kafka.registered)."""
        if isinstance(self.value_format, Bound) and self.value_format.inner is None:
            return all(not isinstance(each, Bound) or each.inner is None for each in self._formats()) and isinstance(
                self.key_format, Text | Bound | None
            )
        said = self._inside
        plain = isinstance(said, Json) and not said.options and isinstance(self.key_format, Text | None)
        return plain and readable(self.value_fields) and as_written(self.raw.sparkSession)

    @property
    def _inside(self) -> Format:
        """The format of values, behind the number of their schema if there is one."""
        of_value = self.value_format
        return of_value.inner if isinstance(of_value, Bound) and of_value.inner is not None else of_value

    @property
    def contiguous(self) -> bool:
        """True: a task reads all records between two offsets, and a partition's name has its topic if needed."""
        return True

    @property
    def observed(self) -> str:
        return f"{self.name} source"

    def for_workers(
        self, wanted: pa.Schema, observed: str | None = None, pack: Pack | None = None
    ) -> tuple[DataFrame, RowDecoder]:
        """Plain records, read by the workers; and the other records that Spark can read."""
        given = {name: column for name, column in self._meta().items() if name in wanted.names}
        # A key is checked whether it is wanted or not.
        raw = self.raw.select("value", *(["key"] if self.key_format else []), *given.values())
        reader = self._reader(wanted)
        if isinstance(reader, Packed) and not self.made:
            return raw, Decoding(reader, observed or self.observed)
        # In the row with the plain records all other columns are null, even those that Spark takes for non-null.
        given_fields = [StructField(field.name, field.dataType) for field in raw.schema.fields]
        fields = StructType([*given_fields, *HANDED_OVER.fields])
        first = reader if pack is None else ReadAndPack(reader, pack)
        read = self.made(first, fields) if self.made else raw.mapInArrow(first, fields)
        records = F.coalesce(F.sum(F.when(F.col(PLAIN).isNull(), 1).otherwise(F.col(AT))), F.lit(0))
        if isinstance(reader, Packed):
            rows = read.select(*HANDED_OVER.names, reader.fault.alias(_FAULT))
            return self._fine(rows, records, observed).drop(_FAULT), Joiner(wanted)
        rows_read = replace(self, value_format=self._inside)._judged(read)  # noqa: SLF001 - a Framed takes numbers away
        found = self._fields() | {name: F.col(name) for name in given}
        # No more than is needed: an observation makes a row of every record.
        rows = rows_read.select(_FAULT, *HANDED_OVER.names, *(found[name] for name in wanted.names))
        return self._fine(rows, records, observed).drop(_FAULT), Joiner(wanted)

    def _reader(self, wanted: pa.Schema) -> Reader:
        of_key, of_value = (
            {n: field for (side, field), n in self.names.items() if side == which and n in wanted.names}
            for which in (_KEY, _VALUE)
        )
        key = next((name for (side, _), name in self.names.items() if side == _KEY), None)
        if not isinstance(self.value_format, Bound):
            return Reader(wanted, self.value_fields, of_value, key)
        if self.value_format.inner is not None:
            return Framed(wanted, self.value_fields, of_value, key, self.value_format.decoder)
        key_decoder = self.key_format.decoder if isinstance(self.key_format, Bound) else None
        text_key = key if key_decoder is None else None
        return Packed(wanted, self.value_fields, of_value, text_key, of_key, self.value_format.decoder, key_decoder)

    def _formats(self) -> tuple[Format | None, Format]:
        return self.key_format, self.value_format

    def _fine(self, judged: DataFrame, records: Column, observed: str | None = None) -> DataFrame:
        return without_faults(judged, F.col(_FAULT), records, observed or self.observed)

    def dead_letters(self) -> DataFrame:
        given = ["topic", "partition", "offset", "timestamp", "reason", "key", "value"]
        dead = self._judged(self.raw).where(F.col(_FAULT).isNotNull()).withColumnRenamed(_FAULT, "reason")
        number = [self.value_format.number.alias(SCHEMA_ID)] if isinstance(self.value_format, Bound) else []
        return dead.select(*given, *number)

    def _judged(self, raw: DataFrame) -> DataFrame:
        """Records with their decoded key and value, and the reason if these cannot be read (_KEY, _VALUE, _FAULT)."""
        raw = judged(raw, *self._formats())
        value = self.value_format.decoded(F.col("value"), self.value_fields).alias(_VALUE)
        faults = [self.value_format.fault(F.col("value"), F.col(_VALUE), self.value_fields, "value")]
        parsed = [value]
        if self.key_format:
            parsed.append(self.key_format.decoded(F.col("key"), self.key_fields).alias(_KEY))
            faults.insert(0, self.key_format.fault(F.col("key"), F.col(_KEY), self.key_fields, "key"))
        return raw.select("*", *parsed).withColumn(_FAULT, F.coalesce(*faults))

    def _fields(self) -> dict[str, Column]:
        """The fields of key and value as columns, by name."""
        columns = {}
        for (side, field_), name in self.names.items():
            column = F.col(side).getField(field_)
            if name == self.time:
                column = self._instant(
                    column, (self.key_fields if side == _KEY else self.value_fields)[field_].dataType
                )
            columns[name] = column.alias(name)
        return columns

    def _instant(self, column: Column, kind: DataType) -> Column:
        if isinstance(kind, LongType):
            # Null beyond the range of a timestamp: the stream counts the record, and goes on.
            column = F.when(column.between(-MAX_TIMESTAMP_MS, MAX_TIMESTAMP_MS), F.timestamp_millis(column))
        elif not isinstance(kind, TimestampType | TimestampNTZType | DateType):
            # No time, as the definition says then. Beside Kafka's time Spark would cast a text, and fail at "noon".
            return column
        return F.when(F.col("value").isNull(), F.col("timestamp")).otherwise(column) if self.deletes else column

    def _meta(self) -> dict[str, Column]:
        # Topics number their partitions alike: with several topics, a partition's name has its topic in front.
        partition = F.concat_ws("-", "topic", "partition") if self.several else F.col("partition")
        columns = {
            "topic": F.col("topic"),
            "partition": partition.alias("partition"),
            "offset": F.col("offset"),
            STAMP: F.col("timestamp").alias(STAMP),
        }
        if "headers" in self.raw.columns:
            columns["headers"] = F.col("headers")
        if self.deletes:
            columns[TOMBSTONE] = F.col("value").isNull().alias(TOMBSTONE)
        return columns


def _names(key: StructType, value: StructType) -> dict[tuple[str, str], str]:
    """The column of each field, by (side, field), fields of the key first; a taken name gets `_in` behind it."""
    names: dict[tuple[str, str], str] = {}
    for side, fields in ((_KEY, key), (_VALUE, value)):
        for name in fields.names:
            names[side, name] = free(name, {*TAKEN, *names.values()})
    return names


def _of_value(key: Any, names: dict[tuple[str, str], str]) -> list[str]:
    given = [key] if isinstance(key, str) else list(key) if isinstance(key, list | tuple) else None
    if not given or not all(isinstance(name, str) for name in given):
        raise DefinitionTypeError(
            f"`key` is {in_one_line(key)}. Use fields of the value, or how the record's key is written: "
            'tg.kafka.text("user"), tg.kafka.json("shop string, item long").'
        )
    fields = [name for _, name in names]
    for name in given:
        if name not in fields:
            raise DefinitionError(
                f"`key` is {name!r}, but the value has no such field. Its fields are {', '.join(fields)}."
            )
    return [names[_VALUE, name] for name in given]


def _time(timestamp: str, names: dict[tuple[str, str], str]) -> str:
    for side in (_VALUE, _KEY):
        if (side, timestamp) in names:
            return names[side, timestamp]
    raise DefinitionError(
        f"`timestamp` is {timestamp!r}, but the record has no such field. Its fields are "
        f"{', '.join(name for _, name in names)}; None takes Kafka's own timestamp."
    )


def _named(topic: str | Sequence[str]) -> str:
    return topic if isinstance(topic, str) else ",".join(topic)


@dataclass(frozen=True)
class _Wanted:
    """The records to read, by any consumer; the fields are arguments of `source`."""

    spark: SparkSession
    servers: str
    topics: list[str]
    starting: str
    headers: bool
    streaming: bool
    options: Mapping[str, str]

    @staticmethod
    def of(
        spark: Any, servers: Any, topic: Any, starting: str, headers: bool, streaming: bool, options: Any
    ) -> _Wanted:
        """The checked arguments."""
        check_session(spark)
        check_servers(servers)
        return _Wanted(spark, servers, _topics(topic), starting, headers, streaming, options_of(options))

    def by(self, consumer: str) -> tuple[DataFrame, Made | None]:
        """The records with the columns of Spark's own source; and the Made of another consumer, None for Spark's."""
        if not is_one_of(consumer, ("spark", "librdkafka")):
            raise DefinitionError(f'`consumer` is {in_one_line(consumer)}. Use "spark" or "librdkafka".')
        return (self.by_spark(), None) if consumer == "spark" else self.by_librdkafka()

    def by_spark(self) -> DataFrame:
        settings = {
            "startingOffsets": self.starting,
            **CONSUMER,
            **self.options,
            "kafka.bootstrap.servers": self.servers,
            "subscribe": ",".join(self.topics),
            "includeHeaders": str(self.headers).lower(),
        }
        return _loaded(self.spark.readStream if self.streaming else self.spark.read, settings)

    def by_librdkafka(self) -> tuple[DataFrame, Made]:
        try:
            from tidegate.runtime.spark.kafka.consumed import asked
        except ImportError as error:
            raise TidegateError(
                f'consumer="librdkafka" needs Spark 4.2 or later, and this is {pyspark.__version__}, where a source '
                f'in Python cannot bound its batches: use consumer="spark". Python says: {error}'
            ) from error
        if not self.streaming:
            raise DefinitionError('consumer="librdkafka" reads streams alone: leave it out where streaming=False.')
        found = asked(self.spark, self.servers, self.topics, self.starting, self.headers, self.options)

        def made(reader: FirstWorker, fields: StructType) -> DataFrame:
            return found.read_by(self.spark, reader, fields, {STAMP: "timestamp"})

        return found.frame(self.spark), made


def check_servers(servers: Any) -> None:
    """Raise DefinitionTypeError unless the brokers are a text."""
    if not isinstance(servers, str) or not servers:
        raise DefinitionTypeError(
            f'`servers` is {in_one_line(servers)}. Use the brokers as one text, "host:port" with commas between them.'
        )


def check_connector(spark: SparkSession) -> None:
    """Raise TidegateError if Spark has no Kafka connector: a writer says so only when its query starts."""
    _loaded(spark.read, {"kafka.bootstrap.servers": "localhost:9092", "subscribe": "any"})  # asks no broker


def _loaded(reader: Any, settings: Mapping[str, str]) -> DataFrame:
    """The DataFrame of Spark's Kafka source. Raises TidegateError if Spark has no Kafka connector."""
    try:
        frame: DataFrame = reader.format("kafka").options(**settings).load()
        frame.schema  # noqa: B018 - on Spark Connect nothing is looked up before
    except AnalysisException as error:
        raise _missing(error) from error
    return frame


def _topics(topic: Any) -> list[str]:
    topics = list(topic) if isinstance(topic, list | tuple) else [topic]
    if not topics or not all(isinstance(each, str) and each for each in topics):
        raise DefinitionTypeError(f"`topic` is {topic!r}. Use the name of a topic, or a list of names.")
    if any("," in each for each in topics):
        names = [name.strip() for each in topics for name in each.split(",") if name.strip()]
        raise DefinitionError(
            f"`topic` is {topic!r}, and the name of a topic has no comma. Give several topics as a list, {names!r}: "
            "their partitions then have names of their own."
        )
    return topics


def _missing(error: AnalysisException) -> Exception:
    if error.getCondition() not in ("DATA_SOURCE_NOT_FOUND", "_LEGACY_ERROR_TEMP_1184") and "kafka" not in str(error):
        return error
    package = connector(pyspark.__version__)
    return TidegateError(
        "this Spark has no Kafka connector. Start the session with "
        f'.config("spark.jars.packages", "{package}"), or spark-submit with --packages {package}. '
        f"Spark says: {str(error).splitlines()[0]}"
    )
