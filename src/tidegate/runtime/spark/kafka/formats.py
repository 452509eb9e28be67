"""Formats of the bytes of a Kafka key or value: JSON, Avro and text, and the reasons why bytes cannot be read."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from json import JSONDecodeError, loads
from typing import Any

from pyspark.sql import Column, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    DecimalType,
    IntegralType,
    MapType,
    StringType,
    StructField,
    StructType,
)

from tidegate.arguments import options_of, whole_number
from tidegate.errors import DefinitionError, DefinitionTypeError, in_one_line
from tidegate.runtime.spark.frames.declared import fields_of
from tidegate.spec.columns import OURS

MALFORMED = OURS + "malformed"
"""The field in which Spark's JSON reader puts text that it could not read."""

MARK_HEX = b"tidegate".hex()
_MARK = '{"name": "mark", "type": {"type": "fixed", "name": "mark_of_tidegate", "size": 8}}'


class Format(ABC):
    """The format of a key or a value: `tg.kafka.json`, `tg.kafka.avro` or `tg.kafka.text`.

    Examples:
        ```python
        value = tg.kafka.json("user string, ts timestamp")
        ```
    """

    @abstractmethod
    def fields(self, spark: SparkSession) -> StructType:
        """The columns of the format.

        Args:
            spark: The session.

        Returns:
            The columns with their types.

        Examples:
            ```python
            tg.kafka.text("user").fields(spark)
            ```
        """

    @abstractmethod
    def decoded(self, data: Column, fields: StructType) -> Column:
        """The bytes as a struct that has at least `fields`.

        Args:
            data: The bytes.
            fields: The columns that are wanted.

        Returns:
            A column of structs.

        Examples:
            ```python
            row = value.decoded(F.col("value"), value.fields(spark))
            ```
        """

    @abstractmethod
    def fault(self, data: Column, decoded: Column, fields: StructType, what: str) -> Column:
        """The reason why `data` cannot be read, null if it can be read; null bytes can always be read.

        Args:
            data: The bytes.
            decoded: The column of structs of the method `decoded`.
            fields: The columns that are wanted.
            what: "key" or "value", for the reason.

        Returns:
            A column of text.

        Examples:
            ```python
            reason = value.fault(F.col("value"), row, value.fields(spark), "value")
            ```
        """

    @abstractmethod
    def encoded(self, row: Column) -> Column:
        """A struct as bytes or text, the inverse of `decoded`.

        Args:
            row: A column of structs.

        Returns:
            A column of bytes or text.

        Examples:
            ```python
            data = value.encoded(F.struct("user", "count"))
            ```
        """


@dataclass(frozen=True)
class Json(Format):
    """A JSON object with the fields of a Spark schema; see `json`.

    Attributes:
        schema: The fields, as text or as a StructType.
        options: Options of Spark's `from_json`.

    Examples:
        ```python
        value = tg.kafka.Json("user string, ts timestamp")
        ```
    """

    schema: Any
    options: Mapping[str, str] = field(default_factory=dict)

    def fields(self, spark: SparkSession) -> StructType:
        return fields_of(spark, self.schema)

    def decoded(self, data: Column, fields: StructType) -> Column:
        wanted = StructType([*fields.fields, StructField(MALFORMED, StringType())])
        ours = {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": MALFORMED}
        options = over(over({"timeZone": "UTC"}, self.options), ours)
        return F.from_json(data.cast("string"), wanted, options)

    def fault(self, data: Column, decoded: Column, fields: StructType, what: str) -> Column:
        said = data.cast("string")
        document = F.get_json_object(said, "$")
        wrong = F.filter(F.array(*[_misfit(said, decoded, at) for at in fields.fields]), lambda name: name.isNotNull())
        reason = (
            F.when(~F.is_valid_utf8(said), F.lit(f"the {what} is not UTF-8"))
            .when(document.isNull(), F.lit(f"the {what} is not JSON"))
            .when(~F.ltrim(said).startswith("{"), F.lit(f"the {what} is JSON, but not an object"))
            .when(F.size(wrong) > 0, F.concat(F.lit(f"in the {what}, "), F.array_join(wrong, ", ")))
            .otherwise(F.lit(f"the {what} does not fit the schema"))
        )
        return F.when(data.isNotNull() & (decoded.isNull() | decoded.getField(MALFORMED).isNotNull()), reason)

    def encoded(self, row: Column) -> Column:
        return as_json(row)


def _misfit(said: Column, decoded: Column, at: StructField) -> Column:
    """A text saying that `at` is not of its type, if the field is there and was not read; otherwise null."""
    there = F.get_json_object(said, f"$['{at.name}']").isNotNull()
    return F.when(
        there & decoded.getField(at.name).isNull(), F.lit(f"{at.name!r} is not a {at.dataType.simpleString()}")
    )


@dataclass(frozen=True)
class Avro(Format):
    """An Avro record; see `avro`.

    Attributes:
        schema: The JSON text of an Avro record.
        schema_id: The number of the schema in a registry, in front of each record; None if records have no number.

    Examples:
        ```python
        value = tg.kafka.Avro(schema, schema_id=7)
        ```
    """

    schema: str
    schema_id: int | None = None

    def fields(self, spark: SparkSession) -> StructType:
        empty = spark.createDataFrame([], "data binary").select(self.decoded(F.col("data"), StructType()).alias("row"))
        found = empty.schema["row"].dataType
        assert isinstance(found, StructType)
        return found

    def decoded(self, data: Column, fields: StructType) -> Column:
        from pyspark.sql.avro.functions import from_avro

        # Spark reads the record together with a mark behind it. For unreadable bytes it gives a record of nulls, which
        # could be real, and it does not notice bytes that are left over. In both cases it does not read the mark.
        fields_ = f'[{{"name": "row", "type": {self.schema}}}, {_MARK}]'
        framed = f'{{"type": "record", "name": "framed_by_tidegate", "fields": {fields_}}}'
        mark = F.unhex(F.lit(MARK_HEX))
        read = from_avro(F.concat(self._body(data), mark), framed, {"mode": "PERMISSIVE"})
        return F.when(read.getField("mark") == mark, read.getField("row"))

    def fault(self, data: Column, decoded: Column, fields: StructType, what: str) -> Column:
        reason = F.lit(f"the {what} is not Avro of the schema")
        if self.schema_id is not None:
            head = F.hex(F.substring(data, 1, 5))
            reason = F.when(
                head != F.lit(self._head()),
                F.concat(
                    F.lit(f"the {what} does not begin with 0x{self._head()}, schema {self.schema_id}, but with 0x"),
                    head,
                ),
            ).otherwise(reason)
            return F.when(data.isNotNull() & (decoded.isNull() | (head != F.lit(self._head()))), reason)
        return F.when(data.isNotNull() & decoded.isNull(), reason)

    def encoded(self, row: Column) -> Column:
        from pyspark.sql.avro.functions import to_avro

        body = to_avro(row, self.schema)
        return body if self.schema_id is None else F.concat(F.unhex(F.lit(self._head())), body)

    def _head(self) -> str:
        return f"00{self.schema_id:08X}"

    def _body(self, data: Column) -> Column:
        return data if self.schema_id is None else F.substring(data, 6, 2**31 - 1)


@dataclass(frozen=True)
class Text(Format):
    """UTF-8 text as one column; see `text`.

    Attributes:
        name: The name of the column.

    Examples:
        ```python
        key = tg.kafka.Text("user")
        ```
    """

    name: str

    def fields(self, spark: SparkSession) -> StructType:
        return StructType([StructField(self.name, StringType())])

    def decoded(self, data: Column, fields: StructType) -> Column:
        return F.struct(data.cast("string").alias(self.name))

    def fault(self, data: Column, decoded: Column, fields: StructType, what: str) -> Column:
        return F.when(~F.is_valid_utf8(data.cast("string")), F.lit(f"the {what} is not UTF-8"))

    def encoded(self, row: Column) -> Column:
        return row.getField(self.name).cast("string")


def json(schema: str | StructType, options: Mapping[str, str] | None = None) -> Json:
    """JSON objects with the fields of `schema`.

    A missing field is null; a field of another type makes the record malformed. Timestamps without a zone are UTC.

    Args:
        schema: "user string, ts timestamp" or a StructType.
        options: Options of Spark's `from_json`.

    Returns:
        The format.

    Raises:
        DefinitionTypeError: `schema` is neither text nor a StructType.

    Examples:
        ```python
        value = tg.kafka.json("user string, ts timestamp", {"timestampFormat": "dd.MM.yyyy HH:mm"})
        ```
    """
    if not isinstance(schema, str | StructType):
        raise DefinitionTypeError(
            f'`schema` is {schema!r}. Use a text like "user string, ts timestamp" or a StructType.'
        )
    return Json(schema, options_of(options))


def avro(schema: str, *, schema_id: int | None = None) -> Avro:
    """Avro records of `schema`; needs Spark's package spark-avro.

    With `schema_id` each record begins with a zero byte and that number in four bytes, as with Confluent's schema
    registry; a record with another number is malformed.

    Args:
        schema: The JSON text of an Avro record.
        schema_id: The number of the schema in a registry; None if records begin with no number.

    Returns:
        The format.

    Raises:
        DefinitionError: `schema` is no Avro record.
        DefinitionTypeError: An argument is of the wrong kind.

    Examples:
        ```python
        value = tg.kafka.avro('{"type": "record", "name": "event", "fields": [{"name": "user", "type": "string"}]}')
        ```
    """
    try:
        kind = loads(schema)["type"]
    except (JSONDecodeError, TypeError, KeyError):
        kind = None
    if kind != "record":
        raise DefinitionError(f"`schema` is {schema!r}, not the JSON text of an Avro record.")
    number = whole_number(schema_id)
    if schema_id is not None and (number is None or not 0 <= number < 2**31):
        raise DefinitionError(f"`schema_id` is {in_one_line(schema_id)}: it is a number from 0 to 2^31 - 1.")
    return Avro(schema, number)


def text(name: str) -> Text:
    """UTF-8 text, as one column.

    Args:
        name: The name of the column.

    Returns:
        The format.

    Raises:
        DefinitionTypeError: `name` is not the name of a column.

    Examples:
        ```python
        key = tg.kafka.text("user")
        ```
    """
    if not isinstance(name, str) or not name:
        raise DefinitionTypeError(f"`name` is {name!r}, not the name of a column.")
    return Text(name)


def format_of(value: Any, argument: str) -> Format:
    """A Format as it is, the JSON text of an Avro schema as Avro, any other schema as JSON."""
    if isinstance(value, Format):
        return value
    if isinstance(value, str) and value.lstrip().startswith("{"):
        return avro(value)
    if isinstance(value, str | StructType):
        return json(value)
    raise DefinitionTypeError(
        f'`{argument}` is {value!r}. Use a schema ("user string, ts timestamp" for JSON, the JSON text of an Avro '
        "schema), or tg.kafka.json, .avro, .text or .schema_registry."
    )


def over(options: Mapping[str, str], others: Mapping[str, str]) -> dict[str, str]:
    """`others`, and those of `options` that have none of their names: to Spark the case of a name is nothing."""
    names = {name.lower() for name in others}
    return {name: value for name, value in options.items() if name.lower() not in names} | dict(others)


def as_json(row: Column) -> Column:
    """A struct as JSON that is the same in every session: UTC, microseconds, null fields written."""
    options = {
        "timeZone": "UTC",
        "timestampFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSSXXX",
        "timestampNTZFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSS",
        "ignoreNullFields": "false",
    }
    return F.to_json(row, options)


def is_json(kind: DataType) -> bool:
    """Whether JSON has all values of a type: of a map's keys that are bytes or have parts, Spark writes addresses."""
    if isinstance(kind, StructType):
        return all(is_json(field.dataType) for field in kind.fields)
    if isinstance(kind, ArrayType):
        return is_json(kind.elementType)
    if isinstance(kind, MapType):
        return not isinstance(kind.keyType, BinaryType | StructType | ArrayType | MapType) and is_json(kind.valueType)
    return True


def as_text(column: Column, kind: DataType) -> Column:
    """A value as text that is the same in every session: as JSON shows it, without quotes."""
    if type(kind) is StringType or isinstance(kind, IntegralType):
        return column.cast("string")
    shown = as_json(F.struct(column.alias("x")))
    if isinstance(kind, DecimalType | StructType | ArrayType | MapType):
        # get_json_object reads a decimal as a double, which has fewer digits.
        return F.when(column.isNotNull(), F.regexp_extract(shown, r'(?s)^\{"x":(.*)\}$', 1))
    return F.get_json_object(shown, "$.x")
