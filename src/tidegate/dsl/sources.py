"""`stream` and `table`: the sources of every topology."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal

from tidegate.dsl import frames
from tidegate.dsl.checks import check_column, check_columns, check_late_records, check_name, check_schema
from tidegate.dsl.streams import KStream
from tidegate.dsl.tables import KTable
from tidegate.errors import DefinitionError
from tidegate.instants import Duration, duration_ms, show_ms
from tidegate.plan import Changelog, Stream
from tidegate.spec.clock import Clock

if TYPE_CHECKING:
    import pyarrow as pa


def stream(
    source: Any,
    *,
    key: str | Sequence[str],
    timestamp: str,
    partition: str | None = None,
    offset: str | None = None,
    name: str | None = None,
    schema: pa.Schema | None = None,
    stream_time: Literal["max", "min_partition"] | None = None,
    late_records: Literal["drop", "keep"] | None = None,
    idle_after: Duration | None = None,
    idle_advance: Duration | None = None,
    max_future_skew: Duration | None = None,
) -> KStream:
    """A stream of records from a streaming or static DataFrame, or an input named `source` to be bound later.

    Args:
        source: A DataFrame, or the name of an input of the test driver.
        key: The key column or columns, of atomic types. A record with a null in one of them is skipped and counted.
        timestamp: The column with the event time: of a DataFrame a `timestamp` (no `timestamp_ntz`, no number), in the
            test driver epoch milliseconds or datetimes. A null or negative one is skipped and counted.
        partition: The column with the partition of a record, a whole number or a text. With `partition` and `offset`
            the order of the records is known and lateness is decided record by record. Without them each micro-batch is
            read in timestamp order.
        offset: The column with the position of a record in its partition, a whole number.
        name: The name of the stream in messages, metrics and checkpoints.
        schema: The columns as a pyarrow.Schema, for an unbound input or a DataFrame (there also as a StructType). Other
            columns of the DataFrame are left out. A declarative pipeline (pyspark.pipelines) needs it.
        stream_time: "max": stream time is the largest timestamp seen. "min_partition": the largest timestamp of the
            slowest partition, so that a slow partition loses no records. Left out: "max"; for a join, the slower side.
        late_records: "drop" or "keep" late and skipped records. Left out, they are kept if an output asks for them
            (`KTable.late_records`). An aggregation can override it.
        idle_after: With "min_partition", a partition without a record for this long by the wall clock is idle: it no
            longer holds stream time back.
        idle_advance: Without a record for this long by the wall clock, stream time advances with the wall clock. So the
            last windows close. Results are then no longer repeatable (docs/semantics.md).
        max_future_skew: A record further ahead of the wall clock than this is skipped and counted as "future". It does
            not advance stream time.

    Returns:
        The stream.

    Raises:
        DefinitionError: A column does not exist or has the wrong type.
        DefinitionTypeError: An argument is of the wrong kind.

    Examples:
        >>> clicks = tg.stream("clicks", key="user", timestamp="ts")
        >>> driver = TopologyTestDriver(clicks.group_by_key().count())
        >>> driver.pipe_input({"user": "A", "ts": 7})
        >>> driver.read_output()
        [{'user': 'A', 'count': 1, 'timestamp': 7}]
    """
    clock = Clock.of(
        stream_time,
        partition=partition,
        idle_after=idle_after,
        idle_advance=idle_advance,
        max_future_skew=max_future_skew,
    )
    named = _named(name, source, "stream")
    node = _source(source, key, timestamp, (partition, offset), named, schema, clock=clock)
    return KStream(replace(node, late_records=check_late_records(late_records)))


def table(
    source: Any,
    *,
    key: str | Sequence[str],
    timestamp: str,
    deleted: str | None = None,
    partition: str | None = None,
    offset: str | None = None,
    name: str | None = None,
    schema: pa.Schema | None = None,
    history: Duration | None = None,
) -> KTable:
    """A table given as its changes: each record upserts the row of its key, or deletes it if `deleted` is true.

    Every change is forwarded with its own timestamp, even the deletion of an unknown key.

    Args:
        source: As in `stream`.
        key: As in `stream`.
        timestamp: As in `stream`.
        deleted: A boolean column: true deletes the row of the key.
        partition: As in `stream`.
        offset: As in `stream`.
        name: As in `stream`.
        schema: As in `stream`.
        history: How long a join of a stream with the table finds versions of a row by their timestamps. Left out, the
            join finds the row that arrived last (docs/joins/tables.md).

    Returns:
        The table.

    Raises:
        DefinitionError: A column does not exist or has the wrong type, or `history` is negative.
        DefinitionTypeError: An argument is of the wrong kind.

    Examples:
        >>> users = tg.table("users", key="user", timestamp="ts", deleted="gone")
        >>> driver = TopologyTestDriver(users.group_by("city").count())
        >>> driver.pipe_input({"user": "A", "ts": 1, "city": "Rome", "gone": False})
        >>> driver.pipe_input({"user": "A", "ts": 2, "city": None, "gone": True})
        >>> [(row["city"], row["count"]) for row in driver.read_output()]
        [('Rome', 1), ('Rome', 0)]
    """
    if deleted is not None:
        deleted = check_column(deleted, "deleted")
    named = _named(name, source, "table")
    node = _source(source, key, timestamp, (partition, offset), named, schema, deleted=deleted)
    if deleted is not None:
        _check_deleted(node, deleted)
    history_ms = None if history is None else duration_ms(history, "history")
    if history_ms is not None and history_ms < 0:
        raise DefinitionError(f"`history` is {show_ms(history_ms)}: it must not be negative. Use for example '1 hour'.")
    return KTable(Changelog(node, deleted, history_ms))


def _named(name: Any, source: Any, otherwise: str) -> str:
    """The name of a source. Raises DefinitionTypeError if the given `name` is no text."""
    return check_name(name, source if isinstance(source, str) else otherwise)


def _source(
    source: Any,
    key: str | Sequence[str],
    timestamp: str,
    order: tuple[str | None, str | None],
    name: str,
    schema: pa.Schema | None,
    *,
    clock: Clock = Clock(),  # noqa: B008 - a frozen value
    deleted: str | None = None,
) -> Stream:
    """The input `source`, checked; `deleted` is the column of a table's deletions."""
    partition, offset = order
    bound = not isinstance(source, str)
    node = Stream(
        name=name,
        key=check_columns(key, "key"),
        timestamp=check_column(timestamp, "timestamp"),
        partition=None if partition is None else check_column(partition, "partition"),
        offset=None if offset is None else check_column(offset, "offset"),
        schema=schema,
        clock=clock,
        frame=source if bound else None,
    )
    if (partition is None) != (offset is None):
        given, missing = ("partition", "offset") if offset is None else ("offset", "partition")
        raise DefinitionError(
            f"`{given}` is given and `{missing}` is not: the order of records is known only by both. "
            f"Give `{missing}` too, or neither."
        )
    check_schema(node)
    if bound:
        return replace(node, frame=frames.check_frame(node, deleted))
    return node


def _check_deleted(node: Stream, deleted: str) -> None:
    """Raise DefinitionError if the schema is known and `deleted` is not a boolean column."""
    if node.frame is not None or node.schema is None:
        return
    check_schema(node, deleted)
    kind = str(node.schema.field(deleted).type)
    if kind not in ("bool", "null"):
        raise DefinitionError(
            f"`deleted` is {deleted!r}, a column of {kind} in the schema: a row is deleted where a boolean column is "
            "true. Declare it as pyarrow.bool_(), and give True or False."
        )
