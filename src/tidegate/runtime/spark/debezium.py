"""Change data as Debezium writes it, as a table: each envelope upserts or deletes a row.

An envelope has the row `before` and `after` a change, `op` (c: created, u: updated, d: deleted, r: read by a snapshot),
and its times. Kafka Connect's JSON converter writes the envelope alone, or below `payload` beside its `schema`; both
are read. Its Avro converter writes by a schema in a registry (`_Registered`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import reduce
from operator import and_, or_
from typing import Any

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import LongType, StringType, StructField, StructType

from tidegate.arguments import is_one_of
from tidegate.dsl.checks import check_column, check_columns
from tidegate.errors import DefinitionError, DefinitionTypeError, in_one_line
from tidegate.instants import Duration
from tidegate.plan import RESULT_COLUMNS, Changelog, check_there
from tidegate.runtime.spark.frames.arrow import MAX_TIMESTAMP_MS
from tidegate.runtime.spark.frames.names import check_apart, col, free
from tidegate.runtime.spark.kafka.formats import Json
from tidegate.runtime.spark.kafka.reading import TOMBSTONE
from tidegate.runtime.spark.kafka.registered import SCHEMA_ID, Bound, Registered, judged
from tidegate.runtime.spark.kafka.source import KafkaTable, changes_table
from tidegate.runtime.spark.row_decoder import without_faults
from tidegate.runtime.spark.schemas.avro import Field, Schema
from tidegate.runtime.spark.schemas.decoding import AvroForm, Decoder
from tidegate.spec.columns import OURS

__all__ = ["table"]

STAMP = "change_timestamp"
"""The column with the time of a change."""
TIMES = ("source.ts_ms", "ts_ms")
UPSERTS = ("c", "u", "r")
DELETE, SKIP = "delete", "skip"
_KAFKAS_KEY = "key"
_ORDER = ("partition", "offset")

_ENVELOPE, _KEY, _FAULT, _CHANGE = (OURS + name for name in ("envelope", "key", "fault", "change"))
_PAYLOAD = "payload"


def table(
    source: DataFrame,
    *,
    key: str | Sequence[str],
    row: str | StructType | Registered,
    timestamp: str = "source.ts_ms",
    tombstones: str | None = None,
    partition: str | None = "partition",
    offset: str | None = "offset",
    name: str = "debezium",
    history: Duration | None = None,
) -> KafkaTable:
    """A table whose changes are the envelopes in the column `value` of `source`, for example of Spark's Kafka source.

    A row whose key changes is deleted under its old key, if the envelope has the row `before`. `.dead_letters` has the
    records that are no change of a row, with the `reason`; `.frame` the changes.

    Args:
        source: A DataFrame with the envelopes.
        key: The fields of the row that are its key; usually those of the record's key.
        row: The columns of the row in the database, as JSON has them: "id long, name string". For Avro
            `tg.kafka.schema_registry(url, subject="server.schema.table-value")`, whose envelope has them.
        timestamp: "source.ts_ms", when the database made the change, or "ts_ms", when Debezium read it.
        tombstones: "delete": a record without a value deletes the row of its key, at Kafka's time. "skip": it does
            nothing, because the envelope before it has deleted the row. Left out: "delete" where `source` has `key` and
            `timestamp`, but "skip" with a `history`, whose times are those of the envelopes.
        partition: The column that orders the changes together with `offset`; both None if changes have no order.
        offset: The column with the place of a change in its partition.
        name: The name of the table.
        history: As of `tg.table`.

    Returns:
        The table.

    Raises:
        DefinitionError: A column does not exist, or arguments contradict each other.

    Examples:
        ```python
        kafka = spark.readStream.format("kafka").option("kafka.bootstrap.servers", "localhost:9092")
        changes = kafka.option("subscribe", "shop.public.users").option("startingOffsets", "earliest").load()
        users = tg.debezium.table(changes, key="id", row="id long, name string")
        ```
    """
    reading = _Reading.of(source, key, row, timestamp, tombstones, (partition, offset), name, history is not None)
    made = changes_table(
        reading.frame(),
        reading.dead_letters(),
        [reading.names[each] for each in reading.key],
        STAMP,
        (None if partition is None else "partition", None if offset is None else "offset"),
        name=name,
        history=history,
    )
    assert isinstance(made.node, Changelog)
    # A row whose key changes has two changes of one partition and offset.
    return replace(made, node=replace(made.node, stream=replace(made.node.stream, moves=True)))


@dataclass(frozen=True)
class _Reading:
    """Turns envelopes into changes; `names` has the column of each field of the row."""

    source: DataFrame
    key: tuple[str, ...]
    row: StructType
    names: dict[str, str]
    time: str
    deletes: bool
    order: tuple[str | None, str | None]
    name: str
    registered: _Registered | None = None

    @staticmethod
    def of(
        source: Any,
        key: Any,
        row: Any,
        time: str,
        tombstones: str | None,
        order: tuple[str | None, str | None],
        name: str,
        history: bool,
    ) -> _Reading:
        if not isinstance(source, DataFrame):
            raise DefinitionTypeError(
                f"`source` is {in_one_line(source)}. Use a DataFrame whose column `value` has the envelopes, as "
                'spark.readStream.format("kafka")....load().'
            )
        key = check_columns(key, "key")
        registered = _Registered.of(row) if isinstance(row, Registered) else None
        fields = (registered or Json(row)).fields(source.sparkSession)
        check_apart(fields.names, source.sparkSession, "`row` has")
        for each in key:
            check_there("key", each, fields.names, "row")
        if not is_one_of(time, TIMES):
            raise DefinitionError(f'`timestamp` is {in_one_line(time)}. Use "source.ts_ms" or "ts_ms".')
        named = [check_column(each, what) for each, what in zip(order, _ORDER, strict=True) if each is not None]
        for column in ("value", *named):
            if column not in source.columns:
                raise DefinitionError(
                    f"`source` has no column {column!r}. Its columns are {', '.join(source.columns)}. Envelopes are in "
                    "`value`; partition=None, offset=None where nothing says their order."
                )
        deletes = _deletes(tombstones, source.columns, history)
        if registered is not None:
            registered = registered.with_key(key if _KAFKAS_KEY in source.columns else [])
        return _Reading(
            source=source,
            key=key,
            row=fields,
            names=_names(fields),
            time=time,
            deletes=deletes,
            order=order,
            name=name,
            registered=registered,
        )

    def frame(self) -> DataFrame:
        """The changes, in the order of the records; Spark counts the records that are no change (`observedMetrics`)."""
        changes = without_faults(self._judged(), F.col(_FAULT), F.count(F.lit(1)), f"{self.name} source")
        placed = {called: column for called, column in zip(_ORDER, self.order, strict=True) if column}
        places = [col(column).alias(called) for called, column in placed.items()]
        changes = changes.select(F.explode(self._changes()).alias(_CHANGE), *places)
        taken = F.col(_CHANGE)
        fields = [taken.getField(f"c{i}").alias(self.names[each]) for i, each in enumerate(self.row.names)]
        said = [taken.getField(each).alias(each) for each in (STAMP, TOMBSTONE)]
        return changes.select(*fields, *placed, *said)

    def dead_letters(self) -> DataFrame:
        """The records that are no change of a row, with the `reason`."""
        dead = self._judged().where(F.col(_FAULT).isNotNull())
        number = [] if self.registered is None else [self.registered.value.number.alias(SCHEMA_ID)]
        return dead.select(F.col(_FAULT).alias("reason"), *(col(name) for name in self.source.columns), *number)

    def _judged(self) -> DataFrame:
        """The records with the columns _ENVELOPE, _KEY and _FAULT, the reason why a record is no change."""
        decoded = self._of_json() if self.registered is None else self.registered.decoded(self.source)
        if not self.keyed:
            decoded = decoded.withColumn(_KEY, F.lit(None).cast(self._key_fields()))
        return decoded.withColumn(_FAULT, F.coalesce(F.col(_FAULT), self._no_change()))

    @property
    def keyed(self) -> bool:
        """Whether records have a key, which a deletion without the row before has too."""
        return _KAFKAS_KEY in self.source.columns

    def _key_fields(self) -> StructType:
        return StructType([self.row[each] for each in self.key])

    def _of_json(self) -> DataFrame:
        envelope = StructType(
            [
                StructField("before", self.row),
                StructField("after", self.row),
                StructField("op", StringType()),
                StructField("ts_ms", LongType()),
                StructField("source", StructType([StructField("ts_ms", LongType())])),
            ]
        )
        value, fields = Json(envelope), _or_payload(envelope)
        data = F.col("value")
        decoded = self.source.withColumn(_ENVELOPE, value.decoded(data, fields))
        fault = value.fault(data, F.col(_ENVELOPE), fields, "value")
        if self.keyed:
            decoded = decoded.withColumn(_KEY, self._json_key())
        return decoded.withColumn(_FAULT, fault).withColumn(_ENVELOPE, _inner(F.col(_ENVELOPE), envelope))

    def _json_key(self) -> Column:
        """The key of a record, from below `payload` if it is there. A column of the key may have this name too."""
        fields = self._key_fields()
        wrapped = StructType([StructField(_PAYLOAD, fields)])
        below = Json(wrapped).decoded(F.col(_KAFKAS_KEY), wrapped).getField(_PAYLOAD)
        alone = Json(fields).decoded(F.col(_KAFKAS_KEY), fields)
        return F.coalesce(below, F.struct(*[alone.getField(name).alias(name) for name in fields.names]))

    def _no_change(self) -> Column:
        """The reason why a readable envelope is no change of a row; null if it is one."""
        op, after = self._of("op"), self._of("after")
        keyless = reduce(and_, [F.coalesce(key.isNull(), F.lit(True)) for key in self._old_key().values()])
        return (
            F.when(
                F.col("value").isNull(),
                F.when(F.lit(self.deletes) & keyless, F.lit("a tombstone whose key does not have the table's key")),
            )
            .when(op.isNull(), F.lit("the value has no op, so it is no envelope of Debezium"))
            .when(op.isin(*UPSERTS) & after.isNull(), F.concat(F.lit("there is no row after op "), op))
            .when((op == "d") & keyless, F.lit("neither the row before op d nor the record has the key"))
            .when(~op.isin(*UPSERTS, "d"), F.concat(F.lit("op "), op, F.lit(" is about no single row")))
        )

    def _changes(self) -> Column:
        """The changes of a record as an array: none, one, or two where the key of a row has changed."""
        before, after = self._of("before"), self._of("after")
        old = self._change([before.getField(each) for each in self.row.names], True)
        new = self._change([after.getField(each) for each in self.row.names], False)
        old_key = self._old_key()
        gone = self._change([old_key.get(each, before.getField(each)) for each in self.row.names], True)
        # Before a key that was null there was no row to delete; behind a key that becomes null there is no new row.
        moved = reduce(or_, [_another(before.getField(each), after.getField(each)) for each in self.key])
        tombstone = F.array(gone) if self.deletes else F.slice(F.array(gone), 1, 0)  # empty
        return (
            F.when(F.col("value").isNull(), tombstone)
            .when(self._of("op") == "d", F.array(gone))
            .when(moved, F.array(old, new))
            .otherwise(F.array(new))
        )

    def _change(self, values: list[Column], deleted: bool) -> Column:
        fields = [value.alias(f"c{i}") for i, value in enumerate(values)]
        return F.struct(*fields, self._time().alias(STAMP), F.lit(deleted).alias(TOMBSTONE))

    def _old_key(self) -> dict[str, Column]:
        """The key of a deleted row by field: from the row `before`, or else from the record's key."""
        before = self._of("before")
        return {each: F.coalesce(before.getField(each), F.col(_KEY).getField(each)) for each in self.key}

    def _time(self) -> Column:
        at = self._of("ts_ms")
        if self.time == TIMES[0]:
            at = F.coalesce(self._of("source").getField("ts_ms"), at)
        # Null beyond the range of a timestamp: the table counts the change, and goes on.
        stamp = F.when(at.between(-MAX_TIMESTAMP_MS, MAX_TIMESTAMP_MS), F.timestamp_millis(at))
        return F.when(F.col("value").isNull(), F.col("timestamp")).otherwise(stamp) if self.deletes else stamp

    def _of(self, field: str) -> Column:
        return F.col(_ENVELOPE).getField(field)


@dataclass(frozen=True)
class _Registered:
    """Envelopes in Avro: `value` reads the fields that make a change, `key` the record's key if tombstones delete."""

    row: Schema
    value: Bound
    key: Bound | None = None

    @staticmethod
    def of(given: Registered) -> _Registered:
        """Envelopes of the schema `given`. Raises DefinitionError if the schema is no envelope of Debezium."""
        bound = given.bound(None, "value")
        form = bound.decoder.form
        row = form.reader.field("after") if isinstance(form, AvroForm) else None
        if row is None:
            raise DefinitionError("The schema of `row` is no envelope of Debezium in Avro: it has no field `after`.")
        if row.kind != "record":
            raise DefinitionError(
                f"In the schema of `row`, `after` is {row.kind}, and no record with columns. Documents of MongoDB are "
                "not read (docs/notyet.md)."
            )
        parts = [("before", row), ("after", row), ("op", Schema("string")), ("ts_ms", Schema("long"))]
        source = _optional("source", [("ts_ms", Schema("long"))])
        return _Registered(row, _bound(bound, _optional("envelope", [*parts, ("source", source)])))

    def with_key(self, names: Sequence[str]) -> _Registered:
        """A copy that reads these fields of the row from the record's key."""
        if not names:
            return self
        found = [(name, self.row.field(name)) for name in names]
        key = _optional("key", [(name, schema) for name, schema in found if schema is not None])
        decoder = Decoder(self.value.decoder.registry, AvroForm(key, "key"), "key")
        return replace(self, key=Bound(decoder, None, None))

    def fields(self, spark: SparkSession) -> StructType:
        """The columns of the row."""
        found = self.value.fields(spark)["after"].dataType
        assert isinstance(found, StructType)
        return found

    def decoded(self, source: DataFrame) -> DataFrame:
        """The records with envelope, key and fault; a key that cannot be read is null."""
        found = judged(source, self.value, self.key)
        value, nothing = F.col(self.value.column), StructType()
        found = found.withColumn(_ENVELOPE, value)
        found = found.withColumn(_FAULT, self.value.fault(F.col("value"), value, nothing, "value"))
        if self.key is None:
            return found
        key = F.col(self.key.column)
        return found.withColumn(_KEY, F.when(self.key.fault(F.col("key"), key, nothing, "key").isNull(), key))


def _another(before: Column, after: Column) -> Column:
    """Whether a value became another one, or null."""
    return before.isNotNull() & ~before.eqNullSafe(after)


def _bound(bound: Bound, reader: Schema) -> Bound:
    """`bound` with `reader` as the reader's schema."""
    return replace(bound, decoder=replace(bound.decoder, form=AvroForm(reader, "value")), inner=None)


def _optional(name: str, fields: Sequence[tuple[str, Schema]]) -> Schema:
    """The schema of a record whose fields may all be missing."""
    null = Schema("null")
    return Schema(
        "record",
        name,
        fields=tuple(Field(each, Schema("union", branches=(null, schema)), "null") for each, schema in fields),
    )


def _deletes(tombstones: str | None, columns: Sequence[str], history: bool) -> bool:
    """Whether a record without a value deletes a row; raises DefinitionError if `tombstones` cannot be done."""
    if tombstones is not None and not is_one_of(tombstones, (DELETE, SKIP)):
        raise DefinitionError(f'`tombstones` is {in_one_line(tombstones)}. Use "delete" or "skip", or leave it out.')
    keyed = {"key", "timestamp"} <= set(columns)
    if tombstones == DELETE and not keyed:
        raise DefinitionError(
            '`tombstones` is "delete", which takes the key and the time of the record: `source` needs the columns '
            f"`key` and `timestamp`. Its columns are {', '.join(columns)}."
        )
    return tombstones == DELETE or (tombstones is None and keyed and not history)


def _or_payload(fields: StructType) -> StructType:
    """`fields`, and the same fields below `payload`."""
    return StructType([*fields.fields, StructField(_PAYLOAD, fields)])


def _inner(decoded: Column, fields: StructType) -> Column:
    """The fields as a struct, from below `payload` if it is there, or else from the top level."""
    outside = F.struct(*[decoded.getField(name).alias(name) for name in fields.names])
    return F.when(decoded.getField(_PAYLOAD).isNotNull(), decoded.getField(_PAYLOAD)).otherwise(outside)


def _names(row: StructType) -> dict[str, str]:
    """The column of each field of the row: its name, with `_in` behind it if that is taken."""
    names: dict[str, str] = {}
    for name in row.names:
        names[name] = free(name, {*RESULT_COLUMNS, "partition", "offset", STAMP, TOMBSTONE, *names.values()})
    return names
