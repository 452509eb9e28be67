"""The columns of a stream from those of Spark's Kafka source: decoded keys and values, and the place of each record."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa
from pyspark.sql import Column, DataFrame
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

from tidegate.dsl.checks import check_column
from tidegate.errors import DefinitionError, DefinitionTypeError, in_one_line
from tidegate.plan import RESULT_COLUMNS
from tidegate.runtime.spark.frames.arrow import MAX_TIMESTAMP_MS
from tidegate.runtime.spark.frames.names import check_apart, free
from tidegate.runtime.spark.kafka.formats import Format, Json, Text, format_of, text
from tidegate.runtime.spark.kafka.handed_over import AT, HANDED_OVER, PLAIN, FirstWorker, Joiner
from tidegate.runtime.spark.kafka.plain import Reader, as_written, readable
from tidegate.runtime.spark.kafka.read_and_pack import ReadAndPack
from tidegate.runtime.spark.kafka.registered import SCHEMA_ID, Bound, Decoding, Framed, Packed, bound, judged
from tidegate.runtime.spark.row_decoder import Pack, RowDecoder, without_faults
from tidegate.spec.columns import OURS

STAMP = "kafka_timestamp"
"""The column with Kafka's `timestamp`, renamed because rows of a result have a column of that name."""
TOMBSTONE = "tombstone"
META = ("topic", "partition", "offset", STAMP)
TAKEN = (*RESULT_COLUMNS, *META, TOMBSTONE, "headers")
"""Names that a field of a record cannot have here; such a field gets `_in` behind its name."""

_KEY, _VALUE, _FAULT = OURS + "key", OURS + "value", OURS + "fault"

Made = Callable[[FirstWorker, StructType], DataFrame]
"""Makes the DataFrame of a worker's rows with these fields, where a consumer other than Spark's reads the topic."""


@dataclass(frozen=True)
class Reading:
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
    def of(raw: DataFrame, key: Any, value: Any, timestamp: str | None, name: str, several: bool) -> Reading:
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
        return Reading(
            raw=raw,
            key_format=key_format,
            value_format=value_format,
            key_fields=key_fields,
            value_fields=value_fields,
            key_columns=columns,
            names=names,
            time=time,
            name=name,
            several=several,
        )

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
            # tg.stream refuses a column that is no time. With `otherwise` Spark would cast a text, and fail at "noon".
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
