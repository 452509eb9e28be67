"""Keys and values whose schemas a registry keeps: `tg.kafka.schema_registry`.

Other formats are expressions of Spark's, which know one schema before a query starts. Here each record names its own
schema, so the workers decode. `Judge` gives decoded records as columns; `Decoding` as rows to the map step of the same
worker; `Packed` as plain rows to a map step in another worker (kafka.plain), and `Framed` does so with plain JSON.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import LongType, StringType, StructField, StructType

from tidegate.arguments import options_of, whole_number
from tidegate.errors import DefinitionError, DefinitionTypeError, in_one_line
from tidegate.kernel.columns.arrays import Flags, as_type
from tidegate.runtime.spark.frames.arrow import arrow_schema, spark_schema, spark_type
from tidegate.runtime.spark.kafka.formats import Avro, Format, Json, as_json
from tidegate.runtime.spark.kafka.handed_over import PLAIN
from tidegate.runtime.spark.kafka.plain import Read, Reader, as_wanted
from tidegate.runtime.spark.row_decoder import Counts, RowDecoder
from tidegate.runtime.spark.schemas import avro, json_schema, protobuf
from tidegate.runtime.spark.schemas.decoding import AvroForm, Decoder, JsonForm, ProtobufForm
from tidegate.runtime.spark.schemas.registry import AVRO, JSON, PROTOBUF, Registry, Written, registry
from tidegate.runtime.spark.worker.memory import keep
from tidegate.spec.columns import OURS

SCHEMA_ID = "schema_id"
"""The column of dead letters with the number of the value's schema."""
_READ = "Avro, JSON and Protobuf"


def schema_registry(
    url: str,
    *,
    subject: str | None = None,
    version: int | None = None,
    schema: Any = None,
    message: str | None = None,
    options: Mapping[str, Any] | None = None,
) -> Registered:
    """Keys or values in the wire format of Confluent's serializers, whose schemas a registry keeps.

    Each record begins with a zero byte and the number of the schema that wrote it. It is resolved to the reader's
    schema by Avro's rules. Needs `tidegate[registry]`, here and on the workers.

    Args:
        url: The address of the registry, "http://localhost:8081".
        subject: The subject whose newest schema is the reader's; "TOPIC-value" or "TOPIC-key" if left out.
        version: The version of the subject's schema, instead of the newest one.
        schema: The reader's schema itself, instead of a subject's: the text of an Avro schema; for JSON "user string,
            ts timestamp" or a StructType; for Protobuf a class that protoc made.
        message: The name of the message in a Protobuf file; its first message if left out.
        options: Settings of confluent-kafka's client, such as {"basic.auth.user.info": "user:password"}.

    Returns:
        A format for `key` and `value` of `tg.kafka.source`, `tg.kafka.table` and `tg.kafka.sink`, and for `row` of
        `tg.debezium.table`.

    Raises:
        TidegateError: The client of the registry is not installed.
        DefinitionError: An argument or a setting is not known. The functions that take the format raise it for a
            subject that is not there or has no columns, and InputError where the registry does not answer.
        DefinitionTypeError: An argument is of the wrong kind.

    Examples:
        ```python
        value = tg.kafka.schema_registry("http://localhost:8081")
        orders = tg.kafka.source(spark, "localhost:9092", "orders", key="user", value=value, timestamp="ts")
        ```
    """
    if not isinstance(url, str) or not url.startswith(("http://", "https://")):
        raise DefinitionTypeError(f'`url` is {url!r}. Use the address of a registry, "http://localhost:8081".')
    if schema is not None and (subject is not None or version is not None):
        raise DefinitionError("`schema` is the reader's schema itself: leave `subject` and `version` out beside it.")
    number = whole_number(version)
    if version is not None and (number is None or number < 1):
        raise DefinitionError(
            f"`version` is {in_one_line(version)}. Use the number of a version, from 1 on, or leave it out."
        )
    return Registered(registry(url, options_of(options)), subject, number, schema, message)


@dataclass(frozen=True)
class Registered:
    """The arguments of `schema_registry`; `bound` makes them the format of a topic's keys or values."""

    registry: Registry = field(repr=False)
    subject: str | None
    version: int | None
    schema: Any
    message: str | None = None

    def bound(self, topic: str | None, what: str) -> Bound:
        """The format of a topic's keys or values (`what`: "key" or "value").

        Raises DefinitionError for a schema that cannot be read, InputError if the registry does not answer.
        """
        if self.schema is not None:
            return self._given(what)
        subject = self.subject or (None if topic is None else f"{topic}-{what}")
        if subject is None:
            raise DefinitionError(
                f'`{what}` needs the subject of its schema: tg.kafka.schema_registry(url, subject="orders-{what}").'
            )
        written = self.registry.latest(subject, self.version)
        if written.kind == AVRO:
            form = AvroForm(avro.parse(written.text, dict(written.references)), what)
            return Bound(Decoder(self.registry, form, what), None, written)
        if written.kind == PROTOBUF:
            serialized = self.registry.latest(subject, self.version, form="serialized")
            found = protobuf.descriptor(serialized.text, dict(serialized.references), self.message)
            return self._of_message(found, what, written)
        if written.kind == JSON:
            columns = json_schema.columns(written.text, dict(written.references))
            return Bound(Decoder(self.registry, JsonForm(), what), Json(columns), written)
        raise DefinitionError(f"The schema of {subject!r} is {written.kind}. Those that are read are {_READ}.")

    def _of_message(self, descriptor: Any, what: str, written: Written | None) -> Bound:
        form = ProtobufForm(protobuf.message(descriptor), protobuf.place(descriptor))
        return Bound(Decoder(self.registry, form, what), None, written)

    def _given(self, what: str) -> Bound:
        if isinstance(self.schema, str) and self.schema.lstrip().startswith(("{", "[", '"')):
            return Bound(Decoder(self.registry, AvroForm(avro.parse(self.schema), what), what), None, None)
        if isinstance(self.schema, str | StructType):
            return Bound(Decoder(self.registry, JsonForm(), what), Json(self.schema), None)
        if hasattr(self.schema, "DESCRIPTOR"):
            return self._of_message(self.schema.DESCRIPTOR, what, None)
        raise DefinitionTypeError(
            f"`schema` is {self.schema!r}. Use the text of an Avro schema, the columns of JSON objects as a text or "
            "StructType, or a message of Protobuf as protoc makes it."
        )


@dataclass(frozen=True)
class Bound(Format):
    """The format of a topic's keys or values; `inner` reads the bytes that the decoder leaves, None if it leaves none.

    `written` is the reader's schema in the registry, None if the schema itself was given.
    """

    decoder: Decoder = field(repr=False)
    inner: Format | None
    written: Written | None

    def fields(self, spark: SparkSession) -> StructType:
        if self.inner is not None:
            return self.inner.fields(spark)
        return spark_schema(pa.schema(list(self.decoder.form.type)))

    @property
    def column(self) -> str:
        """The column of `Judge` with decoded values; columns with the reason and the schema's number follow it."""
        return f"{OURS}decoded {self.decoder.what}"

    def decoded(self, data: Column, fields: StructType) -> Column:
        return F.col(self.column) if self.inner is None else self.inner.decoded(F.col(self.column), fields)

    def fault(self, data: Column, decoded: Column, fields: StructType, what: str) -> Column:
        found = F.col(f"{self.column} fault")
        if self.inner is None:
            return found
        return F.coalesce(found, self.inner.fault(F.col(self.column), decoded, fields, what))

    @property
    def number(self) -> Column:
        """The number of the schema that a record names."""
        return F.col(f"{self.column} schema")

    def encoded(self, row: Column) -> Column:
        if self.written is None or self.written.id is None:
            raise DefinitionError(
                "A sink writes the number of a schema, which the registry has: give tg.kafka.schema_registry a "
                "`subject`, and no `schema`."
            )
        if self.written.kind == AVRO:
            # Spark parses one text.
            text = avro.whole(self.written.text, dict(self.written.references))
            return Avro(text, self.written.id).encoded(row)
        if self.written.kind == JSON:
            return F.concat(F.unhex(F.lit(f"00{self.written.id:08X}")), as_json(row).cast("binary"))
        raise DefinitionError(f"A sink writes Avro or JSON by a registry, and this schema is {self.written.kind}.")


def bound(given: Any, topic: Any, what: str) -> Any:
    """A `Registered` bound to a topic's keys or values; any other format as it is."""
    return given.bound(topic if isinstance(topic, str) else None, what) if isinstance(given, Registered) else given


def judged(raw: DataFrame, *formats: Format | None) -> DataFrame:
    """`raw` with the columns that registered formats decode; unchanged without such formats."""
    bound = [each for each in formats if isinstance(each, Bound)]
    if not bound:
        return raw
    more = [
        StructField(name, kind)
        for each in bound
        for name, kind in (
            (each.column, spark_type(each.decoder.form.type)),
            (f"{each.column} fault", StringType()),
            (f"{each.column} schema", LongType()),
        )
    ]
    fields = StructType([*(StructField(each.name, each.dataType) for each in raw.schema.fields), *more])
    judge = Judge(tuple(each.decoder for each in bound), arrow_schema(fields))
    return raw.mapInArrow(judge, fields)


@dataclass(frozen=True)
class Judge:
    """Adds the results of decoders to the columns `key` and `value`: rows of `schema`."""

    decoders: tuple[Decoder, ...]
    schema: pa.Schema

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        keep()
        for batch in batches:
            columns = list(batch.columns)
            for decoder in self.decoders:
                found = decoder(batch.column(decoder.what))
                columns += [found.rows, found.reasons, found.numbers]
            yield pa.record_batch(
                [as_type(column, each.type) for column, each in zip(columns, self.schema, strict=True)],
                schema=self.schema,
            )


@dataclass(frozen=True)
class Framed(Reader):
    """A Reader of JSON objects behind the numbers of their schemas; records that it hands back have no number in front.

    decoder  decoder of the value
    """

    decoder: Decoder

    def read(self, batch: pa.RecordBatch) -> Read:
        found = self.decoder(batch.column("value"))
        at = batch.schema.get_field_index("value")
        kind = batch.schema.field(at).type
        # Only marks malformed records: the query of the dead letters finds the reasons itself.
        said = pc.if_else(found.reasons.is_null(), found.rows, pa.scalar(_NO_JSON, pa.binary()))
        return super().read(batch.set_column(at, batch.schema.field(at), said.cast(kind)))


_NO_JSON = b"\xff"
"""Bytes that are malformed for every reader of JSON."""


@dataclass(frozen=True)
class Packed(Reader):
    """A Reader of records that decoders read: records that they cannot read are handed back, and are malformed.

    keys     the field of the record's key by name of the column; `columns` has the fields of the value
    decoder  decoder of the value; `key_decoder` of the key, None if the key is text or not read
    """

    keys: Mapping[str, str]
    decoder: Decoder
    key_decoder: Decoder | None

    @property
    def fault(self) -> Column:
        """The reason why a row that `__call__` hands back is no record; null for plain records."""
        return F.when(F.col(PLAIN).isNull(), F.lit("it cannot be decoded"))

    def _rows(self, batch: pa.RecordBatch) -> tuple[Flags, dict[str, pa.Array]]:
        found = self.decoder(batch.column("value"))
        fine = self._sound_keys(batch) & found.reasons.is_null().to_numpy(zero_copy_only=False)
        sides = [(self.columns, found)]
        if self.key_decoder is not None:
            of_key = self.key_decoder(batch.column("key"))
            fine &= of_key.reasons.is_null().to_numpy(zero_copy_only=False)
            sides.append((self.keys, of_key))
        kept = None if fine.all() else pa.array(fine)
        return fine, {
            name: column if kept is None else column.filter(kept)
            for columns, side in sides
            for name, column in self._columns_of(side.rows, columns).items()
        }

    def _columns_of(self, rows: pa.StructArray, columns: Mapping[str, str]) -> dict[str, pa.Array]:
        fields = dict(zip((each.name for each in rows.type), rows.flatten(), strict=True))
        return {
            name: as_wanted(pa.chunked_array([fields[field]]), self.wanted.field(name).type).combine_chunks()
            for name, field in columns.items()
        }


@dataclass(frozen=True)
class Decoding(RowDecoder):
    """Decodes records that Spark hands over as bytes, in the worker that packs their rows."""

    reader: Packed
    observed: str

    def rows(self, batches: Iterator[pa.RecordBatch], counts: Counts) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            rows = self.reader.read(batch).rows
            counts.records += batch.num_rows
            counts.malformed += batch.num_rows - rows.num_rows
            if rows.num_rows:
                yield rows
