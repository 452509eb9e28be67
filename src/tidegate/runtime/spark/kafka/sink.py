"""Rows of a result as records of a Kafka topic: keyed, deletions as null values, final ones with an id."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from pyspark.sql import Column, DataFrame, DataFrameWriter
from pyspark.sql import functions as F
from pyspark.sql.streaming.readwriter import DataStreamWriter
from pyspark.sql.types import ArrayType, BinaryType, MapType, StringType, StructType

from tidegate.arguments import flag_of, options_of
from tidegate.dsl import Result
from tidegate.dsl.checks import check_column, check_columns, check_name
from tidegate.dsl.result import frame_of
from tidegate.errors import DefinitionError, DefinitionTypeError, in_one_line
from tidegate.plan import Operation, Stream, operation, with_row_ids
from tidegate.runtime.spark.frames.names import col
from tidegate.runtime.spark.kafka.formats import Format, as_json, as_text, is_json
from tidegate.runtime.spark.kafka.registered import Registered, bound
from tidegate.runtime.spark.kafka.subscription import check_connector, check_servers
from tidegate.spec.columns import OURS, public_key
from tidegate.spec.columns import ROW_ID as RECORDS

ROW_ID = "row_id"
"""The field with the id of a final row."""
ID_DIGITS = 32
"""128 bits in hexadecimal."""

_IDENTITY = OURS + "identity"
_REST = 2**31 - 1


def sink(
    table: Any,
    servers: str,
    topic: str,
    *,
    checkpoint: str | None = None,
    key: str | Sequence[str] | None = None,
    value: Format | Registered | None = None,
    headers: Sequence[str] = (),
    final: bool | None = None,
    name: str | None = None,
    options: Mapping[str, str] | None = None,
) -> DataStreamWriter | DataFrameWriter:
    """A writer of `table` into a topic.

    Spark writes at least once: after a crash, rows of the last batch come again, with the same `row_id`.

    Args:
        table: A table, a stream, several outputs, or a DataFrame made of one.
        servers: The brokers, "host:port" with commas between them.
        topic: The topic.
        checkpoint: The folder for the query's checkpoint.
        key: As of `records`.
        value: As of `records`.
        headers: As of `records`.
        final: As of `records`.
        name: As of `records`.
        options: Other options of Spark's sink.

    Returns:
        A writer: `.start()` it, or `.save()` it if the input is static.

    Raises:
        TidegateError: Spark has no Kafka connector.
        DefinitionError: A column does not exist, or `key` or `final` does not fit the rows.
        DefinitionTypeError: An argument is of the wrong kind.

    Examples:
        ```python
        query = tg.kafka.sink(final, "localhost:9092", "alerts", checkpoint="/data/checkpoints/alerts").start()
        ```
    """
    check_servers(servers)
    if not isinstance(topic, str) or not topic:
        raise DefinitionTypeError(f"`topic` is {in_one_line(topic)}. Use the name of a topic.")
    more = options_of(options)
    value = bound(value, topic, "value")
    rows = records(table, key=key, value=value, headers=headers, final=final, name=check_name(name, topic))
    check_connector(rows.sparkSession)
    settings = {**more, "kafka.bootstrap.servers": servers, "topic": topic}
    if not rows.isStreaming:
        return rows.write.format("kafka").options(**settings)
    writer = rows.writeStream.format("kafka").outputMode("update").options(**settings)
    return writer if checkpoint is None else writer.option("checkpointLocation", checkpoint)


def records(
    table: Any,
    *,
    key: str | Sequence[str] | None = None,
    value: Format | Registered | None = None,
    headers: Sequence[str] = (),
    final: bool | None = None,
    name: str = "",
) -> DataFrame:
    """The rows of `table` as Spark's Kafka sink takes them: `key`, `value`, and `headers` if there are any.

    Each final row has a `row_id`, which depends on `name`, output, key and window alone. Each row of a join has a
    `row_id` that depends on `name`, output and the records that made the row, if its streams have partition and offset.

    Args:
        table: A table, a stream, several outputs, or a DataFrame made of one.
        key: Columns: one alone as text, several as a JSON object. Left out, the key columns of the table and, where
            there are windows, `window`, so that a compacted topic keeps each result as a record of its own.
        value: A Format such as `tg.kafka.avro(schema)`, or `tg.kafka.schema_registry(url)` for the newest schema there.
            Left out, JSON with all columns. A deleted row has a null value.
        headers: Columns that are sent as headers too, as text; `row_id` may be one.
        final: For a DataFrame: whether its rows are final, once per key and window. For a table this is known.
        name: The part of the ids that tells this pipeline from others that write into the same topic. `sink` takes the
            topic if its own `name` is left out.

    Returns:
        The DataFrame.

    Raises:
        DefinitionError: A column does not exist, or `key` or `final` does not fit the rows.
        DefinitionTypeError: An argument is of the wrong kind.

    Examples:
        ```python
        rows = tg.kafka.records(final, key="user", headers=["row_id"])
        ```
    """
    form: Format | None = bound(value, None, "value")
    if form is not None and not isinstance(form, Format):
        raise DefinitionTypeError(
            f"`value` is {in_one_line(form)}. Use a Format such as tg.kafka.avro(schema), or leave it out for JSON."
        )
    name = check_name(name, "")
    named = [headers] if isinstance(headers, str) else headers
    if not isinstance(named, list | tuple):
        raise DefinitionTypeError(f"`headers` is {in_one_line(headers)}. Use a list of names of columns.")
    frame, rows = _rows(table, key, final, text_of_times=form is None)
    _check_columns(frame)
    columns = [column for column in frame.columns if column not in ("deleted", RECORDS)]
    written = as_json if form is None else form.encoded
    # Spark computes it once, for all that follows.
    frame = frame.withColumn(_IDENTITY, as_json(_struct(rows.identity)).cast("binary"))
    if rows.final is not None:
        frame = frame.withColumn(ROW_ID, F.when(rows.final, _row_id(name, _odd_bytes(frame, rows.identity))))
        columns.append(ROW_ID)
    begins_alike = written is as_json and columns[: len(rows.identity)] == rows.identity
    body = _with_identity(columns[len(rows.identity) :]) if begins_alike else written(_struct(columns))
    if "deleted" in frame.columns:
        body = F.when(~F.coalesce(F.col("deleted"), F.lit(False)), body)
    out = [_key(frame, rows).alias("key"), body.cast("binary").alias("value")]
    if named:
        out.append(_headers(frame, [check_column(each, "headers") for each in named]))
    return frame.select(*out)


class _Rows:
    """Facts about the rows: columns of the record's key, columns that identify a row, and the rows that are final."""

    def __init__(self, key: list[str], identity: list[str], final: Column | None) -> None:
        self.key, self.identity, self.final = key, identity, final


def _check_columns(frame: DataFrame) -> None:
    """Raise DefinitionError for a column with the name of ids, and for one that JSON cannot have."""
    if ROW_ID in frame.columns:
        raise DefinitionError(
            f'The rows have a column {ROW_ID!r} already. Rename it: df.withColumnRenamed("{ROW_ID}", ...).'
        )
    for field in frame.schema.fields:
        if not is_json(field.dataType):
            raise DefinitionError(
                f"The column {field.name!r} is {field.dataType.simpleString()}, whose keys JSON cannot have: Spark "
                "would write an address in Java's memory. Make them texts, for example with F.transform_keys and F.hex."
            )


def _rows(table: Any, key: Any, final: bool | None, *, text_of_times: bool) -> tuple[DataFrame, _Rows]:
    """The rows, with `text_of_times` if they come from workers."""
    given = None if key is None else list(check_columns(key, "key"))
    if isinstance(table, DataFrame):
        return table, _of_frame(table, given, final is not None and flag_of(final, "final"))
    if not isinstance(table, Result):
        raise DefinitionTypeError(
            f"`table` is {in_one_line(table)}. Use a table, a stream, tg.outputs(...), or a DataFrame made of one."
        )
    if final is not None:
        raise DefinitionError("`final` is for a DataFrame: whether the rows of a table are final is known.")
    if isinstance(table.node, Stream) and table.node.table is None:  # records behind steps alone
        frame = frame_of(table, False)
        _check(frame, given or [])
        return frame, _Rows(given or list(table.node.key), list(table.node.key), None)
    op = operation(table.node)
    joined = with_row_ids(op) is not None
    frame = frame_of(table, joined, text_of_times=text_of_times)
    named = dict.fromkeys(("output", *public_key(op.key), "window"))
    identity = [name for name in named if name in frame.columns]
    _check(frame, given or [])
    return frame, _of_records(frame, given or identity) if joined else _Rows(given or identity, identity, _final(op))


def _of_frame(frame: DataFrame, key: list[str] | None, final: bool) -> _Rows:
    if not key:
        raise DefinitionError(
            '`key` is missing: name the columns of a DataFrame that are the key, as key=["user", "window"].'
        )
    _check(frame, key)
    if RECORDS in frame.columns:
        return _of_records(frame, key)
    # A window makes a row another one, whether or not it is in the record's key.
    identity = list(dict.fromkeys([*key, *(name for name in ("window", "output") if name in frame.columns)]))
    return _Rows(key, identity, F.lit(True) if final else None)


def _of_records(frame: DataFrame, key: list[str]) -> _Rows:
    """Rows of a join, which have the ids of the records that made them."""
    identity = [name for name in ("output", RECORDS) if name in frame.columns]
    return _Rows(key, identity, col(RECORDS).isNotNull())


def _final(op: Operation) -> Column | None:
    if not op.outputs:
        return F.lit(True) if op.emits == "final" else None
    names = [output.name for output in op.outputs if output.kind == "final"]
    return F.col("output").isin(names) if names else None


def _check(frame: DataFrame, columns: Sequence[str]) -> None:
    for name in columns:
        if name not in frame.columns:
            raise DefinitionError(
                f"`key` is {name!r}, but the rows have no such column. They have {', '.join(frame.columns)}."
            )


def _struct(names: Sequence[str]) -> Column:
    return F.struct(*[col(name) for name in names])


def _with_identity(others: list[str]) -> Column:
    """A row as JSON, given its identity as JSON: times are formatted once, which is most of the cost of JSON."""
    if not others:
        return col(_IDENTITY)
    return _joined(col(_IDENTITY), as_json(_struct(others)).cast("binary"))


def _joined(first: Column, second: Column) -> Column:
    """The object with the fields of two objects as JSON, neither empty. As bytes: of a text Spark counts letters."""
    comma = F.lit(",").cast("binary")
    return F.concat(F.substring(first, F.lit(1), F.length(first) - 1), comma, F.substring(second, 2, _REST))


def _key(frame: DataFrame, rows: _Rows) -> Column:
    if len(rows.key) > 1 and rows.key == rows.identity:
        return col(_IDENTITY)
    kind = frame.schema[rows.key[0]].dataType
    if len(rows.key) == 1 and isinstance(kind, BinaryType):
        return col(rows.key[0])
    if len(rows.key) == 1 and not isinstance(kind, StructType | ArrayType | MapType):
        return as_text(col(rows.key[0]), kind).cast("binary")
    return as_json(_struct(rows.key)).cast("binary")


def _row_id(name: str, more: list[Column]) -> Column:
    text = _joined(as_json(F.struct(F.lit(name).alias("name"))).cast("binary"), col(_IDENTITY))
    text = F.concat(text, F.concat_ws(",", *more).cast("binary")) if more else text
    return F.substring(F.sha2(text, 256), 1, ID_DIGITS)


def _odd_bytes(frame: DataFrame, names: Sequence[str]) -> list[Column]:
    """The bytes of each text, null if it is UTF-8: JSON has one character for all bytes that are not."""
    ours = ("output", RECORDS)
    texts = [col(name) for name in names if name not in ours and isinstance(frame.schema[name].dataType, StringType)]
    return [F.when(~F.is_valid_utf8(text), F.hex(text)) for text in texts]


def _headers(frame: DataFrame, names: list[str]) -> Column:
    there = [column for column in frame.columns if not column.startswith(OURS)]
    for name in names:
        if name not in there:
            raise DefinitionError(
                f"`headers` has {name!r}, but the rows have no such column. They have {', '.join(there)}."
            )
    pairs = [
        F.struct(
            F.lit(name).alias("key"), as_text(col(name), frame.schema[name].dataType).cast("binary").alias("value")
        )
        for name in names
    ]
    return F.array(*pairs).alias("headers")
