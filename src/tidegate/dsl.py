"""What a user types: `stream(...).group_by_key().windowed_by(...).count().suppress(...)`.

Every call returns a new value and only builds a plan; running it is the business of a runtime.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal, NoReturn

from tidegate.errors import DefinitionError, DefinitionTypeError, in_one_line, warn
from tidegate.instants import Duration, duration_ms, show_ms
from tidegate.plan import (
    DROP,
    LATE_RECORDS,
    RESULT_COLUMNS,
    Changelog,
    Join,
    LateRecords,
    MapFilter,
    Outputs,
    Plan,
    Stream,
    Suppress,
    Table,
    WindowedAggregate,
    available_columns,
    describe,
    headline,
    html,
    inputs_of,
    key_of_rows,
    merge_conflict,
    mermaid,
    operation,
    result_columns,
    root_of,
    surprises,
    svg,
    windows_of,
)
from tidegate.plan.joins import Asked, forwarded, join_streams, join_table, join_tables
from tidegate.spec.aggregates import Aggregate, Aggregation, Cogroup, Fold, PerInput, Reduce
from tidegate.spec.aggregates import count as count_
from tidegate.spec.clock import Clock, check_aggregated
from tidegate.spec.columns import ROW, START, WINDOW, check_user_name, public_key
from tidegate.spec.emit import EmitStrategy
from tidegate.spec.materialized import Materialized
from tidegate.spec.missing import refuse, without
from tidegate.spec.steps import OneColumn, SelectKey, Step, filter_of, map_values_of, unknown_column
from tidegate.spec.suppressed import UntilTimeLimit, UntilWindowCloses
from tidegate.spec.windows import (
    BatchWindows,
    JoinWindows,
    SessionWindows,
    SlidingWindows,
    TimeWindows,
    UnlimitedWindows,
    Windows,
    needed_ms,
)

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame

attach: Callable[[Plan, bool], DataFrame] | None = None
"""Puts a plan on the DataFrame its stream is bound to; the package sets it, so that nothing here knows Spark."""

check_frame: Callable[..., Any] | None = None
"""Gives the DataFrame that a stream is bound to, whose columns exist and have the right types."""


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
        key: The key column or columns. A record with a null in one of them is skipped and counted.
        timestamp: The column with the event time. A null or negative one is skipped and counted.
        partition: With `offset` the order in which the records came. With both, lateness is decided record by record;
            without them each micro-batch is taken in timestamp order.
        offset: The place of a record in its partition.
        name: The name of the stream in messages, metrics and checkpoints.
        schema: The columns as a pyarrow.Schema: of an unbound input, or of a DataFrame, whose other columns are left
            out. A declarative pipeline (pyspark.pipelines) needs it.
        stream_time: "max" is the largest timestamp seen. "min_partition" is that of the slowest partition, so that a
            partition which is behind loses nothing. Left out: "max"; of a join, the slower side.
        late_records: "drop" or "keep" what is not taken. Left out, it is kept where an output asks for it
            (`KTable.late_records`); an aggregation may say otherwise.
        idle_after: With "min_partition", a partition without a record for so long by the wall clock (an idle partition)
            holds nothing back.
        idle_advance: Without a record for so long by the wall clock, stream time goes on at the pace of the wall clock,
            so that the last windows come out. This costs repeatability (docs/semantics.md).
        max_future_skew: A record further ahead of the wall clock is kept out, counted as "future", and moves nothing.

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
    named = name or (source if isinstance(source, str) else "stream")
    node = _source(source, key, timestamp, (partition, offset), named, schema, clock=clock)
    return KStream(replace(node, late_records=_late_records(late_records)))


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
        key=_columns(key, "key"),
        timestamp=_column(timestamp, "timestamp"),
        partition=None if partition is None else _column(partition, "partition"),
        offset=None if offset is None else _column(offset, "offset"),
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
    _check_schema(node)
    if bound and check_frame is not None:
        return replace(node, frame=check_frame(node, deleted))
    return node


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
    """A table given as its changes: each record upserts the row of its key, or deletes it where `deleted` is true.

    Every change is forwarded, with its own timestamp, deletions of unknown keys too (SEMANTICS 15).

    Args:
        source: As in `stream`.
        key: As in `stream`.
        timestamp: As in `stream`.
        deleted: A boolean column: true deletes the row of the key.
        partition: As in `stream`.
        offset: As in `stream`.
        name: As in `stream`.
        schema: As in `stream`.
        history: For how long a join of a stream with the table finds versions of a row by their timestamps. Left out,
            the join finds the row that came last (SEMANTICS 16).

    Returns:
        The table.

    Raises:
        DefinitionError: A column does not exist or has the wrong type, or `history` is negative.

    Examples:
        >>> users = tg.table("users", key="user", timestamp="ts", deleted="gone")
        >>> driver = TopologyTestDriver(users.group_by("city").count())
        >>> driver.pipe_input({"user": "A", "ts": 1, "city": "Rome", "gone": False})
        >>> driver.pipe_input({"user": "A", "ts": 2, "city": None, "gone": True})
        >>> [(row["city"], row["count"]) for row in driver.read_output()]
        [('Rome', 1), ('Rome', 0)]
    """
    if deleted is not None:
        deleted = _column(deleted, "deleted")
    named = name or (source if isinstance(source, str) else "table")
    node = _source(source, key, timestamp, (partition, offset), named, schema, deleted=deleted)
    if deleted is not None:
        _check_deleted(node, deleted)
    history_ms = None if history is None else duration_ms(history, "history")
    if history_ms is not None and history_ms < 0:
        raise DefinitionError(f"`history` is {show_ms(history_ms)}: it must not be negative. Use for example '1 hour'.")
    return KTable(Changelog(node, deleted, history_ms))


def _check_deleted(node: Stream, deleted: str) -> None:
    """Raise DefinitionError if `deleted` is known not to be a boolean column."""
    if node.frame is not None or node.schema is None:
        return
    _check_schema(node, deleted)
    kind = str(node.schema.field(deleted).type)
    if kind not in ("bool", "null"):
        raise DefinitionError(
            f"`deleted` is {deleted!r}, a column of {kind} in the schema: a row is deleted where a boolean column is "
            "true. Declare it as pyarrow.bool_(), and give True or False."
        )


def outputs(**tables: KTable | KStream | KLateRecords) -> KOutputs:
    """Several tables of one aggregation as one, computed together by one operator.

    Of a join: its rows and its late records, `outputs(joined=joined, late=joined.late_records())`.

    Args:
        **tables: The tables, each by the name of its output.

    Returns:
        The outputs; `to_df` gives one DataFrame with a column `output`.

    Raises:
        DefinitionError: There is no table, or the tables are not of one aggregation.
        DefinitionTypeError: A value is no table.

    Examples:
        >>> counts = events.group_by_key().windowed_by(tg.TimeWindows.of_size_with_no_grace("10 ms")).count()
        >>> final = counts.suppress(tg.Suppressed.until_window_closes(tg.BufferConfig.unbounded()))
        >>> driver = TopologyTestDriver(tg.outputs(raw=counts, final=final))
        >>> driver.pipe_batch([{"user": "A", "ts": 1}, {"user": "A", "ts": 12}])
        >>> [(row["output"], tuple(row["window"])) for row in driver.read_output()]
        [('raw', (0, 10)), ('raw', (10, 20)), ('final', (0, 10))]
    """
    if not tables:
        raise DefinitionError("There is no output. Name at least one, for example tg.outputs(raw=counts, final=final).")
    for name, table_ in tables.items():
        joined = isinstance(table_, KStream) and isinstance(table_.node.table, Join)
        if not isinstance(table_, KTable | KLateRecords) and not joined:
            raise DefinitionTypeError(f"The output {name!r} is {table_!r}, not a table. Use for example {name}=counts.")
    node = Outputs(tuple((name, table_.node) for name, table_ in tables.items()))
    operation(node)
    return KOutputs(node)


_FORMATS: dict[Any, Callable[[Plan], str]] = {"text": describe, "mermaid": mermaid, "svg": svg}


def to_df(**tables: KTable | KLateRecords) -> DataFrame:
    """Several tables of one aggregation as one DataFrame, by one stateful operator.

    The column `output` has the keyword under which a row's table was given. The other columns are those of all
    tables together, null where a table has none of that name.

    Args:
        **tables: The tables, each by the name of its output.

    Returns:
        The DataFrame.

    Examples:
        ```python
        rows = tg.to_df(raw=counts, final=final)
        ```
    """
    return outputs(**tables).to_df()


@dataclass(frozen=True, repr=False)
class Result:
    """What a topology gives: rows.

    Examples:
        >>> print(events.group_by_key().count().describe().splitlines()[0])
        Aggregate aggregate
    """

    node: Plan

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {headline(self.node)}>"

    def describe(self, format: Literal["text", "mermaid", "svg"] = "text") -> str:
        """The topology as a tree: every node with name, windows, grace, buffer, and what it becomes on Spark.

        Args:
            format: "text"; "mermaid", a flowchart for Markdown; or "svg", a picture with the windows drawn to scale.

        Returns:
            The text, the flowchart or the picture.

        Raises:
            DefinitionError: There is no such format.

        Examples:
            >>> print(events.group_by_key().count().describe().splitlines()[-1])
                     order    timestamps
        """
        if format not in _FORMATS:
            raise DefinitionError(f"`format` is {in_one_line(format)}. Use one of {', '.join(map(repr, _FORMATS))}.")
        return _FORMATS[format](self.node)

    def _repr_html_(self) -> str:
        """What a notebook shows: the picture, which is readable where it is light and where it is dark."""
        return html(self.node)

    def to_df(self, *, row_ids: bool = False) -> DataFrame:
        """The rows as a DataFrame: key columns, `window`, value columns, `timestamp`; of several outputs, `output`.

        `deleted` is there where a row can be a tombstone. The DataFrame streams if the input does. A static input is
        the whole stream, at whose end every window closes.

        Args:
            row_ids: Of a join, add a column `tidegate:row_id`, which says of which records a row was made.
                `tg.kafka.sink` makes `row_id` of it.

        Returns:
            The DataFrame.

        Raises:
            DefinitionError: The stream is not bound to a DataFrame, or the ids of rows cannot be known.

        Examples:
            ```python
            query = final.to_df().writeStream.outputMode("append").format("console").start()
            ```
        """
        for stream_ in inputs_of(self.node):
            if stream_.frame is not None and attach is not None:
                continue
            raise DefinitionError(
                f"The stream {stream_.name!r} is not bound to a DataFrame. Use tg.stream(dataframe, ...), "
                "or run the topology in tidegate.testing.TopologyTestDriver."
            )
        assert attach is not None
        return attach(self.node, row_ids)


@dataclass(frozen=True, repr=False)
class KStream(Result):
    """A stream of records, with the stateless steps they take.

    A function in a step gets the record as a dict of its columns, or the key and the record if it takes two
    arguments. One that raises stops the query with an AggregationError that names key and record.

    Examples:
        >>> cheap = events.filter(pc.field("price") < 10).group_by_key().count()
        >>> driver = TopologyTestDriver(cheap)
        >>> driver.pipe_batch([{"user": "A", "ts": 1, "price": 5}, {"user": "A", "ts": 2, "price": 50}])
        >>> driver.read_output()[0]["count"]
        1
    """

    node: Stream

    def filter(self, predicate: Callable[..., Any] | Any) -> KStream:
        """The records for which `predicate` is true.

        Args:
            predicate: A function, or an expression such as `pc.field("price") > 3`.

        Returns:
            The stream.

        Raises:
            DefinitionError: The expression reads a column that the stream does not have.

        Examples:
            >>> driver = TopologyTestDriver(events.filter(lambda record: record["price"] > 3))
            >>> driver.pipe_batch([{"user": "A", "ts": 1, "price": 2}, {"user": "A", "ts": 2, "price": 5}])
            >>> driver.read_output()
            [{'user': 'A', 'ts': 2, 'price': 5}]
        """
        return self._then(filter_of(predicate, public_key(self.node.key), tombstones=False))

    def map_values(
        self, mapper: Callable[..., Any] | Mapping[str, Any], *, types: Mapping[str, Any] | None = None
    ) -> KStream:
        """New value columns in place of the old ones; key, timestamp, partition and offset stay.

        Args:
            mapper: A function that returns a dict of the new columns; or a dict of columns, each a function, a
                pyarrow.compute expression, or the name of a column.
            types: The types of the new columns, as in `aggregate`; Spark needs them for functions, and so does a
                suppression behind the step.

        Returns:
            The stream.

        Raises:
            DefinitionError: An expression reads a column that the stream does not have.

        Examples:
            >>> doubled = events.map_values({"twice": pc.field("price") * 2})
            >>> driver = TopologyTestDriver(doubled.group_by_key().agg(total=tg.sum("twice")))
            >>> driver.pipe_input({"user": "A", "ts": 1, "price": 5})
            >>> driver.read_output()[0]["total"]
            10
        """
        return self._then(map_values_of(mapper, types, public_key(self.node.key), self.node.kept))

    def _then(self, step: Step) -> KStream:
        _check_reads(step, available_columns(self.node), "stream")
        return KStream(self.node.then(step))

    def select_key(self, *key: Any, name: str = "key", type: Any = "string") -> KStream:
        """Another key: these columns, or the result of a function.

        Args:
            *key: Names of columns, or one function of the record.
            name: The column that has the result of the function.
            type: Its type, as a Spark type string or a pyarrow type.

        Returns:
            The stream with the new key.

        Raises:
            DefinitionError: A column does not exist, or `name` would replace the timestamp, partition or offset.

        Examples:
            >>> by_city = events.select_key(lambda record: record["city"].lower(), name="city_key")
            >>> driver = TopologyTestDriver(by_city.group_by_key().count())
            >>> driver.pipe_input({"user": "A", "ts": 1, "city": "Rome"})
            >>> driver.read_output()[0]["city_key"]
            'rome'
        """
        if len(key) == 1 and callable(key[0]):
            from tidegate.spec.types import arrow_type  # here, because it imports pyarrow

            arrow_type(type)
            check_user_name(_column(name, "name"), "The key that `name`")
            _check_new_key(self.node, name)
            stepped = self.node.then(SelectKey(key[0], public_key(self.node.key), name, type))
            return KStream(_keyed(stepped, (name,)))
        columns = _columns(key[0] if len(key) == 1 else key, "key")
        if self.node.table is not None:
            columns = key_of_rows(columns, self.node)
        return KStream(_keyed(self.node, columns))

    def merge(self, *others: KStream) -> KStream:
        """The records of this stream and of others with the same key, timestamp, partition and offset columns.

        A stream may be the rows of a join, or the changes of a table: each counts as one partition, and its timestamp
        is that of the rows. Then an operator must stand behind the merged stream.

        Args:
            *others: The other streams.

        Returns:
            The merged stream. In the driver, `pipe_input(record, "name of the input")` says whose record it is.

        Raises:
            DefinitionError: The streams differ in key, timestamp, partition or offset.
            DefinitionTypeError: An argument is no stream.

        Examples:
            >>> web, app = (tg.stream(name, key="user", timestamp="ts") for name in ("web", "app"))
            >>> driver = TopologyTestDriver(web.merge(app).group_by_key().count())
            >>> driver.pipe_input({"user": "A", "ts": 1}, "web")
            >>> driver.pipe_input({"user": "A", "ts": 2}, "app")
            >>> [row["count"] for row in driver.read_output()]
            [1, 2]
        """
        for other in others:
            if not isinstance(other, KStream):
                raise DefinitionTypeError(f"`merge` takes streams, not {other!r}. Use for example clicks.merge(views).")
            if differs := merge_conflict(self.node, other.node):
                raise DefinitionError(differs)
        return KStream(_merged([self.node, *(other.node for other in others)]))

    def join(
        self,
        right: KStream | KTable,
        windows: JoinWindows | None = None,
        how: Literal["inner", "left", "outer"] = "inner",
        value_joiner: Callable[..., Any] | Mapping[str, Any] | None = None,
        suffixes: Sequence[str] | None = None,
        *,
        grace: Duration | None = None,
        types: Mapping[str, Any] | None = None,
        materialized: Materialized | None = None,
    ) -> KStream:
        """The records of this stream that meet those of another stream within `windows`, or rows of a table, by key.

        A row has the key columns, the value columns of both sides and `timestamp`.

        With a stream (SEMANTICS 7b) the timestamp is the later of the two. In a left join a left record that meets
        nobody leaves once, with nulls for the right side, as soon as nothing can join it any more; in an outer join so
        do the records of both sides. What has left so is never contradicted. Stream time is over both inputs. Unless
        the streams say otherwise it is that of the slower side (`stream_time="min_partition"`); give `idle_after`, so
        that a silent side does not hold the other one for ever. `clicks.join(clicks, ...)` joins a stream with itself:
        each record comes as left and then as right.

        With a table (SEMANTICS 16) each record looks up the row of its key and keeps its own timestamp: the row that
        came last or, of a table with a `history`, the row as of the record's timestamp.

        Args:
            right: A stream or a table, with key columns of the same names.
            windows: Which records of two streams meet; of a table there are none.
            how: "inner", "left" or, of two streams, "outer".
            value_joiner: What the value columns are instead: a function of (left, right) or (key, left, right) that
                gets the values of each side as a dict, None for the missing side, and returns a dict; or a dict of
                columns, each a function of the two or an expression such as `pc.field("left", "price") * 2`.
            suffixes: What is added to names that both sides have, as in ("_left", "_right").
            grace: With a table, a record waits until the stream's own time, by its clock, has reached its timestamp
                plus the grace, so that late changes of the table count.
            types: The types of what a `value_joiner` function gives, by column; needed on Spark.
            materialized: Names the operator and its stores: "name-left" and "name-right".

        Returns:
            The stream of the rows.

        Raises:
            DefinitionError: The inputs differ in their key columns, two columns would have one name, or an argument is
                for the other kind of join.
            DefinitionTypeError: `right` is neither a stream nor a table.

        Examples:
            >>> clicks = tg.stream("clicks", key="user", timestamp="ts", stream_time="max")
            >>> views = tg.stream("views", key="user", timestamp="ts", stream_time="max")
            >>> windows = tg.JoinWindows.of_time_difference_with_no_grace("10 ms")
            >>> driver = TopologyTestDriver(clicks.join(views, windows))
            >>> driver.pipe_input({"user": "A", "ts": 1, "page": "shop"}, "views")
            >>> driver.pipe_input({"user": "A", "ts": 5, "button": "buy"}, "clicks")
            >>> driver.read_output()
            [{'user': 'A', 'button': 'buy', 'page': 'shop', 'timestamp': 5}]
        """
        if isinstance(windows, str):  # join(table, "left")
            windows, how = None, windows
        asked = Asked(how, value_joiner, suffixes, types, materialized)
        if isinstance(right, KTable):
            if windows is not None:
                raise DefinitionError(
                    f"`windows` is {windows}, and a table has no windows to meet in: a record looks up its row. Leave "
                    "it out, or join the stream of the table's changes, table.to_stream()."
                )
            return _joined(join_table(self.node, right.node, grace, asked))
        if not isinstance(right, KStream):
            raise DefinitionTypeError(
                f"`right` is {right!r}, neither a stream nor a table. Use for example clicks.join(views, windows)."
            )
        if grace is not None:
            raise DefinitionError(
                "`grace` is for joins with a table; of two streams the windows have it. Use "
                "JoinWindows.of_time_difference_and_grace(difference, grace)."
            )
        return _joined(join_streams(self.node, right.node, windows, asked))

    def left_join(
        self,
        right: KStream | KTable,
        windows: JoinWindows | None = None,
        value_joiner: Callable[..., Any] | Mapping[str, Any] | None = None,
        suffixes: Sequence[str] | None = None,
        *,
        grace: Duration | None = None,
        types: Mapping[str, Any] | None = None,
        materialized: Materialized | None = None,
    ) -> KStream:
        """`join(..., how="left")`: a left record that meets nobody leaves once, alone.

        Args:
            right: As in `join`.
            windows: As in `join`.
            value_joiner: As in `join`.
            suffixes: As in `join`.
            grace: As in `join`.
            types: As in `join`.
            materialized: As in `join`.

        Returns:
            The stream of the rows.

        Examples:
            >>> users = tg.table("users", key="user", timestamp="ts")
            >>> driver = TopologyTestDriver(events.left_join(users))
            >>> driver.pipe_input({"user": "A", "ts": 1, "page": "shop"}, "events")
            >>> driver.read_output()
            [{'user': 'A', 'page': 'shop', 'timestamp': 1}]
        """
        more: dict[str, Any] = {"grace": grace, "types": types, "materialized": materialized}
        return self.join(right, windows, "left", value_joiner, suffixes, **more)

    def outer_join(
        self,
        right: KStream | KTable,
        windows: JoinWindows | None = None,
        value_joiner: Callable[..., Any] | Mapping[str, Any] | None = None,
        suffixes: Sequence[str] | None = None,
        *,
        types: Mapping[str, Any] | None = None,
        materialized: Materialized | None = None,
    ) -> KStream:
        """`join(..., how="outer")`: a record of either side that meets nobody leaves once, alone.

        Args:
            right: As in `join`.
            windows: As in `join`.
            value_joiner: As in `join`.
            suffixes: As in `join`.
            types: As in `join`.
            materialized: As in `join`.

        Returns:
            The stream of the rows.

        Examples:
            >>> orders = tg.stream("orders", key="id", timestamp="ts", stream_time="max")
            >>> payments = tg.stream("payments", key="id", timestamp="ts", stream_time="max")
            >>> windows = tg.JoinWindows.of_time_difference_with_no_grace("10 ms")
            >>> driver = TopologyTestDriver(orders.outer_join(payments, windows))
            >>> driver.pipe_input({"id": 1, "ts": 0, "price": 5}, "orders")
            >>> driver.pipe_input({"id": 2, "ts": 50, "paid": 7}, "payments")
            >>> [(row["id"], row["price"], row["paid"]) for row in driver.read_output()]
            [(1, 5, None)]
        """
        return self.join(right, windows, "outer", value_joiner, suffixes, types=types, materialized=materialized)

    def late_records(self) -> KLateRecords:
        """The records that came too late for a join, and those that were skipped, with their `side`.

        A row has the key, the values of its side (those of the other one are null), `timestamp`, `side` ("left" or
        "right"; "both" in a join of a stream with itself), `reason`, `late_by` and `stream_time`. Of a table with a
        history they are the changes that are older than the history; `stream_time` is the table's newest timestamp.

        Returns:
            The records, as one more output.

        Raises:
            DefinitionError: The stream is no join, or stands behind other steps.

        Examples:
            >>> orders = tg.stream("orders", key="id", timestamp="ts", stream_time="max")
            >>> payments = tg.stream("payments", key="id", timestamp="ts", stream_time="max")
            >>> joined = orders.join(payments, tg.JoinWindows.of_time_difference_with_no_grace("10 ms"))
            >>> driver = TopologyTestDriver(joined.late_records())
            >>> driver.pipe_input({"id": 1, "ts": 90, "price": 5}, "orders")
            >>> driver.pipe_input({"id": 1, "ts": 3, "paid": 5}, "payments")
            >>> [(row["side"], row["reason"], row["late_by"]) for row in driver.read_output()]
            [('right', 'late', 87)]
        """
        join = self.node.table
        if not isinstance(join, Join) or self.node.steps:
            raise DefinitionError(
                "Only a join has late records, before any other step: joined = clicks.join(views, "
                "windows), joined.late_records(). Of an aggregation, ask its table."
            )
        return KLateRecords(LateRecords(join))

    def group_by_key(self) -> KGroupedStream:
        """Group by the key of the stream.

        Returns:
            The groups, to be aggregated as they are or cut into windows.

        Examples:
            >>> events.group_by_key()
            <KGroupedStream events by user>
        """
        return self.group_by(*public_key(self.node.key))

    def group_by(self, *columns: str) -> KGroupedStream:
        """Group by these columns; a record with a null in one of them is skipped and counted.

        Args:
            *columns: The names of the columns.

        Returns:
            The groups, to be aggregated as they are or cut into windows.

        Raises:
            DefinitionError: A column does not exist.

        Examples:
            >>> events.group_by("city", "page")
            <KGroupedStream events by city, page>
        """
        key = _columns(columns, "columns")
        if self.node.table is not None:
            key = key_of_rows(key, self.node)
        else:
            _keyed(self.node, key)
        return KGroupedStream(forwarded(self.node, key), key)


def _joined(join: Join) -> KStream:
    """The rows of a join as a stream."""
    return KStream(Stream(join.name, join.key, "timestamp", table=join))


def _check_new_key(node: Stream, name: str) -> None:
    """Raise DefinitionError if a computed key would take the place of a column that says when or where a record was."""
    roles = {node.timestamp: "timestamp", node.partition: "partition", node.offset: "offset"}
    role = f"the {roles[name]} of the records" if name in roles else "what every record has and no value is"
    if name in roles or name in node.aside:
        raise DefinitionError(
            f"`name` is {name!r}, the column with {role}: the new key would take its place. "
            f"Choose another name, for example name={name + '_key'!r}."
        )


def _keyed(node: Stream, key: tuple[str, ...]) -> Stream:
    """The stream with this key, whose columns are there as far as is known."""
    regrouped = replace(node, key=key, sources=tuple(replace(source, key=key) for source in node.sources))
    if node.as_read:
        _check_schema(regrouped)
        if node.frame is not None and check_frame is not None:
            check_frame(regrouped)
    elif (available := available_columns(regrouped)) is not None:
        for column in key:
            if column not in available:
                raise DefinitionError(
                    f"`key` is {column!r}, but the stream has no such column. Its columns are {', '.join(available)}."
                )
    return regrouped


@dataclass(frozen=True, repr=False)
class _Aggregating:
    """What can be aggregated: per key (and window), once the records are grouped."""

    stream: Stream
    key: tuple[str, ...]
    windows: Windows | None = None
    emit: EmitStrategy = EmitStrategy.on_window_update()  # noqa: RUF009 - a frozen value

    def __repr__(self) -> str:
        windows = "" if self.windows is None else f" in {self.windows}"
        return f"<{type(self).__name__} {self.stream.name} by {', '.join(public_key(self.key))}{windows}>"

    def count(
        self,
        name: str | Materialized = "count",
        *,
        materialized: Materialized | None = None,
        expect_keys: Any = None,
        late_records: Literal["drop", "keep"] | None = None,
    ) -> KTable:
        """The number of records per key (and window).

        In windows records without a value count too.

        Args:
            name: The column of the count.
            materialized: The name and the settings of the store.
            expect_keys: A static DataFrame, an Arrow table or a list of keys. A key without a record in a window has a
                final row too, with the aggregate over no record.
            late_records: "keep" or "drop" what is not taken; left out, the stream decides.

        Returns:
            The table.

        Raises:
            DefinitionError: The name is taken, or `expect_keys` cannot be used here.

        Examples:
            >>> windowed = events.group_by_key().windowed_by(tg.TimeWindows.of_size_with_no_grace("10 ms"))
            >>> driver = TopologyTestDriver(
            ...     windowed.emit_strategy(tg.EmitStrategy.on_window_close()).count(expect_keys=["A", "B"])
            ... )
            >>> driver.pipe_batch([{"user": "A", "ts": 1}, {"user": "A", "ts": 10}])
            >>> [(row["user"], row["count"]) for row in driver.read_output()]
            [('A', 1), ('B', 0)]
        """
        if isinstance(name, Materialized):
            return self.count(materialized=name, expect_keys=expect_keys, late_records=late_records)
        return self._table(((name, count_()),), materialized, expect_keys, late_records)

    def agg(
        self,
        materialized: Materialized | None = None,
        /,
        *unnamed: Any,
        expect_keys: Any = None,
        late_records: Literal["drop", "keep"] | None = None,
        **aggregates: Aggregate | Materialized,
    ) -> KTable:
        """One column per aggregate.

        Args:
            materialized: The name and the settings of the store.
            *unnamed: Refused with the names to write.
            expect_keys: As in `count`.
            late_records: As in `count`.
            **aggregates: The aggregates, each by the name of its column.

        Returns:
            The table.

        Raises:
            DefinitionError: There is no aggregate, a name is taken, or a column does not exist.
            DefinitionTypeError: A value is no aggregate, or has no name.

        Examples:
            >>> table = events.group_by_key().agg(n=tg.count(), total=tg.sum("price"))
            >>> driver = TopologyTestDriver(table)
            >>> driver.pipe_batch([{"user": "A", "ts": 1, "price": 5}, {"user": "A", "ts": 2, "price": 7}])
            >>> driver.read_output()
            [{'user': 'A', 'n': 2, 'total': 12, 'timestamp': 2}]
        """
        _check_named((materialized, *unnamed))
        kept = aggregates.get("materialized")
        if isinstance(kept, Materialized):
            materialized = kept
            del aggregates["materialized"]
        if not aggregates:
            raise DefinitionError('`agg` got no aggregate. Name at least one, for example agg(total=tg.sum("amount")).')
        for name, aggregate in aggregates.items():
            if not isinstance(aggregate, Aggregate):
                raise DefinitionTypeError(
                    f'`{name}` is {aggregate!r}, not an aggregate. Use for example {name}=tg.sum("amount").'
                )
        return self._table(tuple(aggregates.items()), materialized, expect_keys, late_records)  # type: ignore[arg-type]

    def reduce(
        self,
        fn: Callable[[Any, Any], Any],
        column: str,
        name: str | None = None,
        *,
        materialized: Materialized | None = None,
        expect_keys: Any = None,
        late_records: Literal["drop", "keep"] | None = None,
    ) -> KTable:
        """`fn(aggregate, value)` over a column; the first value is taken as it is.

        A function that returns None deletes the entry. One that raises stops the query with an AggregationError.

        Args:
            fn: The function of the aggregate so far and the next value.
            column: The column of the values.
            name: The column of the result; left out, that of the values.
            materialized: As in `count`.
            expect_keys: As in `count`; without a record the value is null.
            late_records: As in `count`.

        Returns:
            The table.

        Raises:
            DefinitionTypeError: `fn` is no function.

        Examples:
            >>> driver = TopologyTestDriver(events.group_by_key().reduce(max, "price"))
            >>> driver.pipe_batch([{"user": "A", "ts": 1, "price": 9}, {"user": "A", "ts": 2, "price": 7}])
            >>> driver.read_output()[0]["price"]
            9
        """
        reduce = Reduce(_callable(fn, "fn"), _column(column, "column"))
        return self._table(((name or column, reduce),), materialized, expect_keys, late_records)

    @without(combinable="built-in aggregates (agg), which are applied before the shuffle")
    def aggregate(
        self,
        initializer: Callable[[], Any],
        aggregator: Callable[[Any, Any, Any], Any],
        *,
        type: Any,
        merger: Callable[[Any, Any, Any], Any] | None = None,
        vectorized: bool = False,
        name: str = "aggregate",
        materialized: Materialized | None = None,
        expect_keys: Any = None,
        late_records: Literal["drop", "keep"] | None = None,
    ) -> KTable:
        """`aggregator(key, row, aggregate)` from `initializer()` on, as a column of `type`.

        Every function may change what it is given. After each call the result becomes a value of `type`, as it is
        stored; AggregationError names key, window and value if the type cannot hold it (2.5 for a "long").

        Args:
            initializer: A function without arguments: the aggregate of no record.
            aggregator: A function of key (a scalar, or a tuple for several columns), row (a dict of the record's
                columns) and aggregate. A result of None deletes the entry.
            type: A Spark type string ("long", "array<string>") or a pyarrow type.
            merger: Of sessions, a function of key and two aggregates that makes one of both.
            vectorized: The aggregator is called with many records of different keys at once: `key` is an Arrow array (a
                tuple of them for several columns), `row` a table of the records' columns, `aggregate` an array of what
                there is for each; it returns an array. A null in it deletes that entry.
            name: The column of the result.
            materialized: As in `count`.
            expect_keys: As in `count`; without a record the value is `initializer()`.
            late_records: As in `count`.

        Returns:
            The table.

        Raises:
            DefinitionError: Sessions have no merger, or `vectorized` is used where the windows depend on the records.
            DefinitionTypeError: An argument is no function, or `type` is no type.

        Examples:
            >>> def pages(key, row, aggregate):
            ...     return [*aggregate, row["page"]]
            >>> driver = TopologyTestDriver(events.group_by_key().aggregate(list, pages, type="array<string>"))
            >>> driver.pipe_batch([{"user": "A", "ts": 1, "page": "home"}, {"user": "A", "ts": 2, "page": "shop"}])
            >>> driver.read_output()[0]["aggregate"]
            ['home', 'shop']
        """
        from tidegate.spec.types import arrow_type  # here, because it imports pyarrow

        arrow_type(type)
        fold = Fold(
            _callable(initializer, "initializer"),
            _callable(aggregator, "aggregator"),
            type,
            None if merger is None else _callable(merger, "merger"),
            vectorized=vectorized,
        )
        if vectorized and isinstance(self.windows, SessionWindows | SlidingWindows):
            raise DefinitionError(
                f"`vectorized` is for time windows and tables without windows: those of {self.windows} depend on the "
                "records, which are taken one by one. Leave it out, or use built-in aggregates."
            )
        _check_merger(merger, self.windows)
        return self._table(((name, fold),), materialized, expect_keys, late_records)

    def _table(
        self,
        aggregations: tuple[tuple[str, Aggregation], ...],
        materialized: Materialized | None,
        expect_keys: Any = None,
        late_records: Literal["drop", "keep"] | None = None,
    ) -> KTable:
        taken = set(self.key) | set(RESULT_COLUMNS)
        for name, _ in aggregations:
            check_user_name(name, "The column of an aggregate")
            if name in taken:
                raise DefinitionError(
                    f"`{name}` is the name of an aggregate, but a result row has another column of that name "
                    f"(its key, or {', '.join(RESULT_COLUMNS)}). Choose another name, for example {name}_value=..."
                )
        for column in self.key:
            if column in RESULT_COLUMNS:
                _reserved(column)
        if materialized is not None and not isinstance(materialized, Materialized):
            raise DefinitionTypeError(f'`materialized` is {materialized!r}. Use Materialized.as_("name").')
        check_aggregated(self.stream.clock)
        node = WindowedAggregate(
            self.stream,
            self.key,
            self.windows,
            aggregations,
            self.emit,
            materialized or Materialized("aggregate"),
            expect_keys,
            _late_records(late_records),
        )
        _check_expected(node)
        _check_retention(node)
        self._check_inputs(node)
        return KTable(node)

    def _check_inputs(self, node: WindowedAggregate) -> None:
        available = available_columns(self.stream)
        if available is None:
            return
        for name, aggregation in node.aggregations:
            column = None if isinstance(aggregation, Fold) else aggregation.column
            if column is not None and column not in available:
                raise DefinitionError(
                    f"`{name}` reads the column {column!r}, which the stream does not have. "
                    f"Its columns are {', '.join(available)}."
                )


def _check_named(by_place: Sequence[Any]) -> None:
    """Raise DefinitionTypeError if `agg` got an aggregate by place instead of by the name of its column."""
    aggregates = [aggregate for aggregate in by_place if isinstance(aggregate, Aggregate)]
    if aggregates:
        named = ", ".join(
            f"{f'{a.column}_{a.function}' if a.column else 'n'}=tg.{a.function}({repr(a.column) if a.column else ''})"
            for a in aggregates
        )
        raise DefinitionTypeError(
            f"`agg` got {', '.join(map(str, aggregates))} without a name for its column. Give one, for example "
            f"agg({named})."
        )
    if len(by_place) > 1:
        raise DefinitionTypeError(
            f"`agg` got {', '.join(map(in_one_line, by_place))} without names. Give each aggregate by the name of its "
            'column, for example agg(n=tg.count(), total=tg.sum("amount")).'
        )


def _check_merger(merger: Any, windows: Windows | None) -> None:
    if merger is None and isinstance(windows, SessionWindows):
        raise DefinitionError(
            "`merger` is missing: a record can bridge two sessions, and then their aggregates become one. "
            "Give merger=lambda key, a, b: ..."
        )


@dataclass(frozen=True, repr=False)
class KGroupedStream(_Aggregating):
    """A stream whose records are grouped by `key`, to be aggregated as it is or cut into windows first.

    Aggregated as it is, a record without a value is skipped and counted (SEMANTICS 15), and a row has no `window`.

    Examples:
        >>> events.group_by("city")
        <KGroupedStream events by city>
    """

    def windowed_by(self, windows: Windows) -> TimeWindowedKStream:
        """Cut each group into windows.

        Args:
            windows: TimeWindows, SlidingWindows, SessionWindows, BatchWindows or UnlimitedWindows.

        Returns:
            The windowed groups, to be aggregated.

        Raises:
            DefinitionTypeError: `windows` is not a kind of window.
            DefinitionError: The windows do not fit the clock of the stream, or the stream is grouped by `window`.

        Examples:
            >>> events.group_by_key().windowed_by(tg.TimeWindows.of_size_with_no_grace("10 ms"))
            <TimeWindowedKStream events by user in TimeWindows of 10 milliseconds>
        """
        if not isinstance(windows, Windows):
            raise DefinitionTypeError(
                f"`windows` is {windows!r}, not a kind of window. "
                'Use for example TimeWindows.of_size_and_grace("2 minutes", "30 seconds").'
            )
        if isinstance(windows, BatchWindows) and self.stream.clock.slowest:
            raise DefinitionError(
                f"{windows} put every record into the window of the stream time it sees, and with "
                'stream_time="min_partition" that is the time of another partition. Use TimeWindows, or '
                'stream_time="max".'
            )
        if START in self.key:
            raise DefinitionError(
                f"{windows} cannot cut a stream that is grouped by `window`: its rows would have two windows. Group "
                "by the start of the first one instead, as a column of its own: "
                'map_values({"start": lambda row: row["window"].start}, types={"start": "long"}).'
            )
        kind = SessionWindowedKStream if isinstance(windows, SessionWindows) else TimeWindowedKStream
        return kind(self.stream, self.key, windows)

    def cogroup(self, aggregator: Callable[[Any, Any, Any], Any]) -> CogroupedKStream:
        """Aggregate this stream together with others into one table, each by an aggregator of its own (KIP-150).

        Args:
            aggregator: `aggregator(key, row, aggregate)`, called for the records of this stream.

        Returns:
            The cogroup, which takes more streams.

        Raises:
            DefinitionTypeError: `aggregator` is no function.

        Examples:
            >>> events.group_by_key().cogroup(lambda key, row, aggregate: aggregate + 1)
            <CogroupedKStream events by user>
        """
        return CogroupedKStream(((self, _callable(aggregator, "aggregator")),))


@dataclass(frozen=True, repr=False)
class CogroupedKStream:
    """Grouped streams with the same key, each with its aggregator, to be aggregated into one table (SEMANTICS 18).

    Examples:
        >>> clicks = tg.stream("clicks", key="user", timestamp="ts").group_by_key()
        >>> views = tg.stream("views", key="user", timestamp="ts").group_by_key()
        >>> both = clicks.cogroup(lambda key, row, n: n + 10).cogroup(views, lambda key, row, n: n + 1)
        >>> driver = TopologyTestDriver(both.aggregate(lambda: 0, type="long", name="score"))
        >>> driver.pipe_input({"user": "A", "ts": 1}, "clicks")
        >>> driver.pipe_input({"user": "A", "ts": 2}, "views")
        >>> [row["score"] for row in driver.read_output()]
        [10, 11]
    """

    parts: tuple[tuple[KGroupedStream, Callable[[Any, Any, Any], Any]], ...]
    windows: Windows | None = None
    emit: EmitStrategy = EmitStrategy.on_window_update()  # noqa: RUF009 - a frozen value

    def __repr__(self) -> str:
        windows = "" if self.windows is None else f" in {self.windows}"
        names = ", ".join(grouped.stream.name for grouped, _ in self.parts)
        return f"<CogroupedKStream {names} by {', '.join(public_key(self._key))}{windows}>"

    def cogroup(self, grouped: KGroupedStream, aggregator: Callable[[Any, Any, Any], Any]) -> CogroupedKStream:
        """And the records of another grouped stream, by another aggregator.

        Args:
            grouped: A grouped stream with the same key.
            aggregator: `aggregator(key, row, aggregate)`, called for the records of that stream.

        Returns:
            The cogroup with one stream more.

        Raises:
            DefinitionError: The stream has another key, or other columns for time and order.
            DefinitionTypeError: `grouped` is no grouped stream, or `aggregator` is no function.

        Examples:
            >>> clicks = tg.stream("clicks", key="user", timestamp="ts").group_by_key()
            >>> views = tg.stream("views", key="user", timestamp="ts").group_by_key()
            >>> clicks.cogroup(lambda key, row, n: n + 10).cogroup(views, lambda key, row, n: n + 1)
            <CogroupedKStream clicks, views by user>
        """
        if not isinstance(grouped, KGroupedStream):
            raise DefinitionTypeError(
                f"`grouped` is {grouped!r}. Use a grouped stream, for example cogroup(views.group_by_key(), viewed)."
            )
        first = self.parts[0][0]
        if grouped.key != first.key:
            raise DefinitionError(
                f"cogroup: one stream is grouped by {', '.join(first.key)} and the other by {', '.join(grouped.key)}. "
                "Group both by columns of the same names."
            )
        if differs := merge_conflict(first.stream, replace(grouped.stream, key=first.stream.key), "cogroup"):
            raise DefinitionError(differs)
        return replace(self, parts=(*self.parts, (grouped, _callable(aggregator, "aggregator"))))

    def windowed_by(self, windows: Windows) -> CogroupedKStream:
        """Cut each group into windows.

        Args:
            windows: As in `KGroupedStream.windowed_by`.

        Returns:
            The windowed cogroup.

        Examples:
            >>> counted = events.group_by_key().cogroup(lambda key, row, n: n + 1)
            >>> counted.windowed_by(tg.TimeWindows.of_size_with_no_grace("10 ms"))
            <CogroupedKStream events by user in TimeWindows of 10 milliseconds>
        """
        return replace(self, windows=self.parts[0][0].windowed_by(windows).windows)

    def emit_strategy(self, strategy: EmitStrategy) -> CogroupedKStream:
        """Forward final results only (`on_window_close`) or every update (`on_window_update`, the default).

        Args:
            strategy: The strategy.

        Returns:
            The cogroup with the strategy.

        Raises:
            DefinitionError: There are no windows yet.

        Examples:
            >>> counted = events.group_by_key().cogroup(lambda key, row, n: n + 1)
            >>> windowed = counted.windowed_by(tg.TimeWindows.of_size_with_no_grace("10 ms"))
            >>> final = windowed.emit_strategy(tg.EmitStrategy.on_window_close())
        """
        windowed = self.parts[0][0].windowed_by(self.windows) if self.windows is not None else None
        if windowed is None:
            raise DefinitionError("`emit_strategy` is about windows: call windowed_by(...) first.")
        return replace(self, emit=windowed.emit_strategy(strategy).emit)

    def __getattr__(self, name: str) -> Any:
        refuse("A cogrouped stream", name, _UNTIL_COGROUPS_AGGREGATE)

    @without(
        late_records="its late records are counted in `late`; the table of each stream alone gives them as rows",
        vectorized="an aggregator that is called record by record",
    )
    def aggregate(
        self,
        initializer: Callable[[], Any],
        *,
        type: Any,
        merger: Callable[[Any, Any, Any], Any] | None = None,
        name: str = "aggregate",
        materialized: Materialized | None = None,
        expect_keys: Any = None,
    ) -> KTable:
        """One column per key (and window): from `initializer()` on, each record by the aggregator of its stream.

        Stream time is one over all inputs, so a final row is final. A row that an aggregator gets has the columns of
        its own stream.

        Args:
            initializer: As in `KGroupedStream.aggregate`.
            type: As in `KGroupedStream.aggregate`.
            merger: As in `KGroupedStream.aggregate`.
            name: As in `KGroupedStream.aggregate`.
            materialized: As in `KGroupedStream.aggregate`.
            expect_keys: As in `KGroupedStream.aggregate`.

        Returns:
            The table.

        Raises:
            DefinitionError: Sessions have no merger.
            DefinitionTypeError: An argument is no function, or `type` is no type.

        Examples:
            >>> table = events.group_by_key().cogroup(lambda key, row, n: n + 1).aggregate(lambda: 0, type="long")
            >>> driver = TopologyTestDriver(table)
            >>> driver.pipe_input({"user": "A", "ts": 1})
            >>> driver.read_output()[0]["aggregate"]
            1
        """
        from tidegate.spec.types import arrow_type  # here, because it imports pyarrow

        arrow_type(type)
        aggregators = PerInput(tuple(aggregator for _, aggregator in self.parts))
        checked = None if merger is None else _callable(merger, "merger")
        fold = Cogroup(_callable(initializer, "initializer"), aggregators, type, checked)
        _check_merger(merger, self.windows)
        grouped = KGroupedStream(_cogrouped([part.stream for part, _ in self.parts], self._key), self._key)
        if self.windows is None:
            return grouped._table(((name, fold),), materialized, expect_keys)  # noqa: SLF001
        windowed = replace(grouped.windowed_by(self.windows), emit=self.emit)
        return windowed._table(((name, fold),), materialized, expect_keys)  # noqa: SLF001

    @property
    def _key(self) -> tuple[str, ...]:
        return self.parts[0][0].key


_UNTIL_COGROUPS_AGGREGATE = dict.fromkeys(
    ("count", "agg", "reduce"),
    "aggregate(initializer, type=...), or clicks.merge(views) of streams with the same columns and then agg",
)


def _cogrouped(streams: Sequence[Stream], key: tuple[str, ...]) -> Stream:
    """The streams as one, each record as one column of its own stream."""
    steps = [OneColumn(n, key, tuple(dict.fromkeys((*key, *node.kept)))) for n, node in enumerate(streams)]
    merged = _merged([node.then(step) for node, step in zip(streams, steps, strict=True)])
    return replace(merged, aside=(*merged.aside, *(f"{ROW}{step.number}" for step in steps)))


def _merged(streams: Sequence[Stream]) -> Stream:
    """The inputs of all the streams as one stream; each keeps its own partitions."""
    branches = [branch for node in streams for branch in node.branches]
    numbered = tuple(replace(branch, number=i) for i, branch in enumerate(branches))
    aside = tuple(dict.fromkeys(name for branch in branches for name in branch.aside))
    # Rows of other operators have no time and no order of their own: those of the records count.
    records = [branch for branch in branches if branch.table is None]
    named = (records or branches)[0]
    name, clock = named.name, named.clock
    if len(records) == len(branches):
        name = streams[0].name
    elif not records:
        name = " and ".join(dict.fromkeys(one.name for one in streams))
        joins = [branch.table.clock for branch in branches if isinstance(branch.table, Join)]
        clock = next((one for one in joins if one.slowest), clock)
    base = replace(named, name=name, clock=clock, frame=None, table=None, number=None)
    return replace(base, steps=(), sources=numbered, aside=aside)


@dataclass(frozen=True, repr=False)
class TimeWindowedKStream(_Aggregating):
    """A grouped stream cut into windows, to be aggregated.

    Examples:
        >>> windowed = events.group_by_key().windowed_by(tg.TimeWindows.of_size_with_no_grace("10 ms"))
        >>> driver = TopologyTestDriver(windowed.count())
        >>> driver.pipe_input({"user": "A", "ts": 12})
        >>> driver.read_output()[0]["window"]
        Window(start=10, end=20)
    """

    def emit_strategy(self, strategy: EmitStrategy) -> TimeWindowedKStream:
        """Forward final results only (`on_window_close`) or every update (`on_window_update`, the default).

        Args:
            strategy: The strategy.

        Returns:
            The windowed stream with the strategy.

        Raises:
            DefinitionError: Unlimited windows are to emit on close: they never close.
            DefinitionTypeError: `strategy` is no EmitStrategy.

        Examples:
            >>> windowed = events.group_by_key().windowed_by(tg.TimeWindows.of_size_with_no_grace("10 ms"))
            >>> driver = TopologyTestDriver(windowed.emit_strategy(tg.EmitStrategy.on_window_close()).count())
            >>> driver.pipe_batch([{"user": "A", "ts": 1}, {"user": "A", "ts": 10}])
            >>> [(tuple(row["window"]), row["count"]) for row in driver.read_output()]
            [((0, 10), 1)]
        """
        if not isinstance(strategy, EmitStrategy):
            raise DefinitionTypeError(f"`strategy` is {strategy!r}. Use EmitStrategy.on_window_close() or another one.")
        if strategy == EmitStrategy.on_window_close() and isinstance(self.windows, UnlimitedWindows):
            raise DefinitionError(
                "The ON_WINDOW_CLOSE strategy is only supported for TimeWindows and SlidingWindows: an unlimited "
                "window never closes, so nothing would ever come out. Use EmitStrategy.on_window_update()."
            )
        return replace(self, emit=strategy)


@dataclass(frozen=True, repr=False)
class KGroupedTable(_Aggregating):
    """A table whose rows are grouped by other columns: a change takes the old row out, then puts the new one in.

    Examples:
        >>> users = tg.table("users", key="user", timestamp="ts")
        >>> driver = TopologyTestDriver(users.group_by("city").count())
        >>> driver.pipe_input({"user": "A", "ts": 1, "city": "Rome"})
        >>> driver.pipe_input({"user": "A", "ts": 2, "city": "Oslo"})
        >>> [(row["city"], row["count"]) for row in driver.read_output()]
        [('Rome', 1), ('Rome', 0), ('Oslo', 1)]
    """

    def agg(
        self,
        materialized: Materialized | None = None,
        /,
        *unnamed: Any,
        **aggregates: Any,
    ) -> KTable:
        """One column per aggregate, of count, sum and mean: others cannot be taken back. See `aggregate` for those.

        Args:
            materialized: The name and the settings of the store.
            *unnamed: Refused with the names to write.
            **aggregates: The aggregates, each by the name of its column.

        Returns:
            The table.

        Raises:
            DefinitionError: An aggregate cannot be taken back.

        Examples:
            >>> users = tg.table("users", key="user", timestamp="ts")
            >>> driver = TopologyTestDriver(users.group_by("city").agg(age=tg.mean("age")))
            >>> driver.pipe_input({"user": "A", "ts": 1, "city": "Rome", "age": 30})
            >>> driver.read_output()[0]["age"]
            30.0
        """
        for name, aggregate in aggregates.items():
            if isinstance(aggregate, Aggregate) and not aggregate.invertible:
                raise DefinitionError(
                    f"`{name}` is {aggregate}: when a row leaves its group, its value cannot be taken out of that "
                    "again. Use count, sum or mean, or aggregate(initializer, adder, subtractor, type=...)."
                )
        return _Aggregating.agg(self, materialized, *unnamed, **aggregates)

    def reduce(  # type: ignore[override]
        self,
        adder: Callable[[Any, Any], Any],
        subtractor: Callable[[Any, Any], Any],
        column: str,
        name: str | None = None,
        *,
        materialized: Materialized | None = None,
    ) -> KTable:
        """Combine the values of a column, and take the values of rows out again that leave their group.

        The first value is taken as it is. A function that returns None deletes the group.

        Args:
            adder: `adder(aggregate, value)` for a value that comes into a group.
            subtractor: `subtractor(aggregate, value)` for a value that leaves it.
            column: The column of the values.
            name: The column of the result; left out, that of the values.
            materialized: The name and the settings of the store.

        Returns:
            The table.

        Raises:
            DefinitionTypeError: An argument is no function.

        Examples:
            >>> users = tg.table("users", key="user", timestamp="ts")
            >>> total = users.group_by("city").reduce(lambda a, b: a + b, lambda a, b: a - b, "age")
            >>> driver = TopologyTestDriver(total)
            >>> driver.pipe_input({"user": "A", "ts": 1, "city": "Rome", "age": 30})
            >>> driver.read_output()[0]["age"]
            30
        """
        functions = _callable(adder, "adder"), _callable(subtractor, "subtractor")
        reduce = Reduce(functions[0], _column(column, "column"), functions[1])
        return self._table(((name or column, reduce),), materialized)

    def aggregate(  # type: ignore[override]
        self,
        initializer: Callable[[], Any],
        adder: Callable[[Any, dict[str, Any], Any], Any],
        subtractor: Callable[[Any, dict[str, Any], Any], Any],
        *,
        type: Any,
        name: str = "aggregate",
        materialized: Materialized | None = None,
    ) -> KTable:
        """Fold the rows of a group, and take rows out again that leave it.

        A result of None deletes the group.

        Args:
            initializer: A function without arguments: the aggregate of no row.
            adder: `adder(key, row, aggregate)` for a row that comes into a group; `key` is the group's, `row` a dict of
                the table's key and values.
            subtractor: `subtractor(key, row, aggregate)` for a row that leaves it.
            type: A Spark type string or a pyarrow type.
            name: The column of the result.
            materialized: The name and the settings of the store.

        Returns:
            The table.

        Raises:
            DefinitionTypeError: An argument is no function, or `type` is no type.

        Examples:
            >>> users = tg.table("users", key="user", timestamp="ts")
            >>> names = users.group_by("city").aggregate(
            ...     list,
            ...     lambda key, row, aggregate: sorted([*aggregate, row["user"]]),
            ...     lambda key, row, aggregate: [user for user in aggregate if user != row["user"]],
            ...     type="array<string>",
            ... )
            >>> driver = TopologyTestDriver(names)
            >>> driver.pipe_input({"user": "A", "ts": 1, "city": "Rome"})
            >>> driver.read_output()[0]["aggregate"]
            ['A']
        """
        from tidegate.spec.types import arrow_type  # here, because it imports pyarrow

        arrow_type(type)
        functions = _callable(adder, "adder"), _callable(subtractor, "subtractor")
        fold = Fold(_callable(initializer, "initializer"), functions[0], type, subtractor=functions[1])
        return self._table(((name, fold),), materialized)


class SessionWindowedKStream(TimeWindowedKStream):
    """A grouped stream cut into sessions; `aggregate` needs a merger, because sessions merge.

    Examples:
        >>> visits = events.group_by_key().windowed_by(tg.SessionWindows.of_inactivity_gap_with_no_grace("10 ms"))
        >>> pages = visits.aggregate(
        ...     list,
        ...     lambda key, row, aggregate: [*aggregate, row["page"]],
        ...     merger=lambda key, a, b: [*a, *b],
        ...     type="array<string>",
        ... )
        >>> driver = TopologyTestDriver(pages)
        >>> driver.pipe_batch([{"user": "A", "ts": 1, "page": "home"}, {"user": "A", "ts": 5, "page": "shop"}])
        >>> driver.read_output()[0]["aggregate"]
        ['home', 'shop']
    """


@dataclass(frozen=True, repr=False)
class KLateRecords(Result):
    """The records that an aggregation or a join did not take: the whole record, with what was wrong.

    A row has the columns of the record, `window`, and these:

    * `reason`: "late", once per closed window; "null_key", "null_value", "bad_timestamp".
    * `late_by`: how far the record lay behind the stream time it saw (ms); null if it was not late.
    * `stream_time`: the stream time that it saw.

    Examples:
        >>> counts = events.group_by_key().windowed_by(tg.TimeWindows.of_size_with_no_grace("10 ms")).count()
        >>> driver = TopologyTestDriver(counts.late_records())
        >>> driver.pipe_batch([{"user": "A", "ts": 25}, {"user": "A", "ts": 3}])
        >>> [(row["reason"], row["late_by"]) for row in driver.read_output()]
        [('late', 22)]
    """

    node: LateRecords


class KOutputs(Result):
    """Several tables of one aggregation, whose rows leave together with the name of their output.

    Examples:
        >>> counts = events.group_by_key().windowed_by(tg.TimeWindows.of_size_with_no_grace("10 ms")).count()
        >>> outputs = tg.outputs(counts=counts, late=counts.late_records())
    """


@dataclass(frozen=True, repr=False)
class KTable(Result):
    """A table: per key (and window) the newest result, refined by updates or let out when final.

    Examples:
        >>> driver = TopologyTestDriver(events.group_by_key().count())
        >>> driver.pipe_input({"user": "A", "ts": 1})
        >>> driver.pipe_input({"user": "A", "ts": 2})
        >>> [row["count"] for row in driver.read_output()]
        [1, 2]
    """

    node: Table

    def late_records(self) -> KLateRecords:
        """The records that the aggregation did not take, whole, with what was wrong; one row per closed window.

        Returns:
            The records, as one more output.

        Raises:
            DefinitionError: The stream or the aggregation says `late_records="drop"`, or the table was grouped anew.

        Examples:
            >>> counts = events.group_by_key().windowed_by(tg.TimeWindows.of_size_with_no_grace("10 ms")).count()
            >>> driver = TopologyTestDriver(counts.late_records())
            >>> driver.pipe_batch([{"user": "A", "ts": 25}, {"user": "A", "ts": 3}])
            >>> [(row["user"], row["timestamp"], tuple(row["window"])) for row in driver.read_output()]
            [('A', 3, (0, 10))]
        """
        root = root_of(self.node)
        if root.stream.changes:
            raise DefinitionError(
                "A table that was grouped anew takes every change. Ask the first table of the chain for late records."
            )
        said = root.late_records if isinstance(root, WindowedAggregate) else None
        if (said or root.stream.late_records) == DROP:
            raise DefinitionError(
                'The late records are asked for, but late_records="drop" says to drop them. Use late_records="keep", '
                "or leave it out: they are kept where an output asks for them."
            )
        return KLateRecords(LateRecords(root))

    def filter(self, predicate: Callable[..., Any] | Any) -> KTable:
        """The rows for which `predicate` is true; one that is so no longer becomes a tombstone.

        Args:
            predicate: A function of the row (a dict: key, `window`, values, `timestamp` in ms), or of key and row, or
                an expression such as `pc.field("count") < 4`.

        Returns:
            The table.

        Raises:
            DefinitionError: The expression reads a column that the table does not have.

        Examples:
            >>> driver = TopologyTestDriver(events.group_by_key().count().filter(pc.field("count") < 2))
            >>> driver.pipe_input({"user": "A", "ts": 1})
            >>> driver.pipe_input({"user": "A", "ts": 2})
            >>> [(row["count"], row["deleted"]) for row in driver.read_output()]
            [(1, False), (None, True)]
        """
        return self._then(filter_of(predicate, self._key, tombstones=True))

    def map_values(
        self, mapper: Callable[..., Any] | Mapping[str, Any], *, types: Mapping[str, Any] | None = None
    ) -> KTable:
        """New value columns in place of the old ones, as in `KStream.map_values`; tombstones stay tombstones.

        Args:
            mapper: A function that returns a dict of the new columns; or a dict of columns, each a function, a
                pyarrow.compute expression, or the name of a column.
            types: The types of the new columns, as in `aggregate`; Spark needs them for functions, and so does a
                suppression behind the step.

        Returns:
            The table.

        Raises:
            DefinitionError: An expression reads a column that the table does not have.

        Examples:
            >>> driver = TopologyTestDriver(events.group_by_key().count().map_values({"twice": pc.field("count") * 2}))
            >>> driver.pipe_input({"user": "A", "ts": 1})
            >>> driver.read_output()[0]["twice"]
            2
        """
        kept = (*self._key, WINDOW, "timestamp", "deleted")
        return self._then(map_values_of(mapper, types, self._key, kept))

    @without(foreign_key="Spark's own join with a static DataFrame, before tg.stream or behind to_df")
    def join(
        self,
        other: KTable,
        how: Literal["inner", "left", "outer"] = "inner",
        value_joiner: Callable[..., Any] | Mapping[str, Any] | None = None,
        suffixes: Sequence[str] | None = None,
        *,
        types: Mapping[str, Any] | None = None,
        materialized: Materialized | None = None,
    ) -> KTable:
        """The table of the rows of both tables with the same key (SEMANTICS 17).

        Each change of a side meets the other side's current row; its timestamp is the later of the two. A deletion
        gives a tombstone, or in a left or outer join the row of the side that is still there. With caching only the
        last row of a key leaves in a micro-batch; `Materialized.as_(...).with_caching_disabled()` gives every row.

        Args:
            other: Another table with key columns of the same names.
            how: "inner", "left" or "outer".
            value_joiner: As in `KStream.join`.
            suffixes: As in `KStream.join`.
            types: As in `KStream.join`.
            materialized: As in `KStream.join`.

        Returns:
            The table.

        Raises:
            DefinitionError: The tables differ in their key columns, or two columns would have one name.
            DefinitionTypeError: `other` is no table.

        Examples:
            >>> prices, stock = (tg.table(name, key="item", timestamp="ts") for name in ("prices", "stock"))
            >>> driver = TopologyTestDriver(prices.join(stock))
            >>> driver.pipe_input({"item": "pen", "ts": 1, "price": 2}, "prices")
            >>> driver.pipe_input({"item": "pen", "ts": 2, "left": 7}, "stock")
            >>> [(row["item"], row["price"], row["left"]) for row in driver.read_output()]
            [('pen', 2, 7)]
        """
        if not isinstance(other, KTable):
            raise DefinitionTypeError(
                f"`other` is {other!r}, not a table. A stream is joined with a table: stream.join(table)."
            )
        asked = Asked(how, value_joiner, suffixes, types, materialized)
        return KTable(join_tables(self.node, other.node, asked))

    def left_join(
        self,
        other: KTable,
        value_joiner: Callable[..., Any] | Mapping[str, Any] | None = None,
        suffixes: Sequence[str] | None = None,
        *,
        types: Mapping[str, Any] | None = None,
        materialized: Materialized | None = None,
    ) -> KTable:
        """`join(..., how="left")`: every row of this table, with or without a row of the other one.

        Args:
            other: As in `join`.
            value_joiner: As in `join`.
            suffixes: As in `join`.
            types: As in `join`.
            materialized: As in `join`.

        Returns:
            The table.

        Examples:
            >>> prices, stock = (tg.table(name, key="item", timestamp="ts") for name in ("prices", "stock"))
            >>> driver = TopologyTestDriver(prices.left_join(stock))
            >>> driver.pipe_input({"item": "pen", "ts": 1, "price": 2}, "prices")
            >>> [(row["item"], row["price"]) for row in driver.read_output()]
            [('pen', 2)]
        """
        return self.join(other, "left", value_joiner, suffixes, types=types, materialized=materialized)

    def outer_join(
        self,
        other: KTable,
        value_joiner: Callable[..., Any] | Mapping[str, Any] | None = None,
        suffixes: Sequence[str] | None = None,
        *,
        types: Mapping[str, Any] | None = None,
        materialized: Materialized | None = None,
    ) -> KTable:
        """`join(..., how="outer")`: every row of both tables.

        Args:
            other: As in `join`.
            value_joiner: As in `join`.
            suffixes: As in `join`.
            types: As in `join`.
            materialized: As in `join`.

        Returns:
            The table.

        Examples:
            >>> prices, stock = (tg.table(name, key="item", timestamp="ts") for name in ("prices", "stock"))
            >>> driver = TopologyTestDriver(prices.outer_join(stock))
            >>> driver.pipe_input({"item": "pen", "ts": 1, "left": 7}, "stock")
            >>> [(row["item"], row["left"]) for row in driver.read_output()]
            [('pen', 7)]
        """
        return self.join(other, "outer", value_joiner, suffixes, types=types, materialized=materialized)

    def to_stream(self) -> KStream:
        """The changes of this table as records; of a tombstone `deleted` is true and the values are null.

        Returns:
            The stream.

        Examples:
            >>> changes = events.group_by_key().count().to_stream()
            >>> driver = TopologyTestDriver(changes)
            >>> driver.pipe_input({"user": "A", "ts": 1})
            >>> driver.read_output()[0]["count"]
            1
        """
        root, (first, *_) = root_of(self.node), inputs_of(self.node)
        return KStream(Stream(first.name, root.key, "timestamp", table=self.node, aside=(WINDOW, "deleted")))

    def group_by(self, *columns: str, key: str | Sequence[str] | None = None) -> KGroupedTable:
        """Group the rows by columns of the key or the values; use `map_values` first for what must be computed.

        A row that changes moves: out of the group of its old values, then into that of its new ones. Rows with a null
        in one of the columns are in no group.

        Args:
            *columns: The names of the columns.
            key: The same as a name or a list of names.

        Returns:
            The groups.

        Raises:
            DefinitionError: A column does not exist.

        Examples:
            >>> users = tg.table("users", key="user", timestamp="ts")
            >>> users.group_by("city")
            <KGroupedTable users by city by city>
        """
        groups = _columns(columns if key is None else key, "columns" if key is None else "key")
        first = inputs_of(self.node)[0].name
        name = f"{first} by {', '.join(groups)}"
        groups = key_of_rows(groups, self.node)
        return KGroupedTable(Stream(name, groups, "timestamp", table=self.node, changes=True), groups)

    @property
    def _key(self) -> tuple[str, ...]:
        return public_key(root_of(self.node).key)

    def _then(self, step: Step) -> KTable:
        _check_reads(step, result_columns(self.node), "table")
        return KTable(MapFilter(self.node, step))

    def suppress(self, suppressed: UntilWindowCloses | UntilTimeLimit) -> KTable:
        """Hold updates back.

        Args:
            suppressed: `Suppressed.until_window_closes(...)` or `Suppressed.until_time_limit(...)`.

        Returns:
            The table with fewer updates.

        Raises:
            DefinitionError: `until_window_closes` on a table without windows.
            DefinitionTypeError: `suppressed` is no suppression.

        Examples:
            >>> counts = events.group_by_key().windowed_by(tg.TimeWindows.of_size_with_no_grace("10 ms")).count()
            >>> final = counts.suppress(tg.Suppressed.until_window_closes(tg.BufferConfig.unbounded()))
            >>> driver = TopologyTestDriver(final)
            >>> driver.pipe_input({"user": "A", "ts": 1})
            >>> driver.read_output()
            []
            >>> driver.pipe_input({"user": "A", "ts": 10})
            >>> [(tuple(row["window"]), row["count"]) for row in driver.read_output()]
            [((0, 10), 1)]
        """
        if not isinstance(suppressed, UntilTimeLimit | UntilWindowCloses):
            raise DefinitionTypeError(
                f"`suppressed` is {suppressed!r}. Use Suppressed.until_window_closes(BufferConfig.unbounded())."
            )
        windows = windows_of(self.node)
        if isinstance(suppressed, UntilWindowCloses) and windows is None:
            raise DefinitionError(
                "until_window_closes: Window close time is only defined for windowed computations, and this table "
                "has no windows. Use until_time_limit, or windowed_by(...) before the aggregation."
            )
        if isinstance(suppressed, UntilTimeLimit) and suppressed.measured_from == "window_start" and windows is None:
            raise DefinitionError(
                'until_time_limit(measured_from="window_start") counts from the start of a window, and this table has '
                'no windows. Use "first_update" or "latest_update", or windowed_by(...) before the aggregation.'
            )
        suppressed_ = Suppress(self.node, suppressed)
        operation(suppressed_)
        for surprise in surprises(suppressed_):
            warn(surprise)
        return KTable(suppressed_)


def _check_reads(step: Step, columns: Sequence[str] | None, what: str) -> None:
    """Raise DefinitionError if a step names a column that is not among those of its input, where these are known."""
    if columns is not None and (name := unknown_column(step, columns)) is not None:
        raise DefinitionError(
            f"{step} reads the column {name!r}, which the {what} does not have. Its columns are {', '.join(columns)}."
        )


def _check_expected(node: WindowedAggregate) -> None:
    """Check what can be checked of expected keys where they are given."""
    keys = node.expects
    if keys is None:
        return
    if not isinstance(node.windows, TimeWindows | BatchWindows):
        what = "there are no windows" if node.windows is None else f"{node.windows} exist or close by their records"
        raise DefinitionError(
            f"`expect_keys` cannot be used here: {what}, so nothing says when a key is missing. "
            "Use TimeWindows or BatchWindows."
        )
    as_table = hasattr(keys, "schema") or hasattr(keys, "__arrow_c_stream__")
    if isinstance(keys, str) or not (isinstance(keys, list | tuple | set | frozenset) or as_table):
        raise DefinitionTypeError(
            f"`expect_keys` is {in_one_line(keys)}. Use a static DataFrame with the key columns, an Arrow table, or a "
            "list of keys."
        )
    if getattr(keys, "isStreaming", False):
        raise DefinitionError(
            "`expect_keys` is a streaming DataFrame: it is read once, at the start. Use a static one."
        )


def _check_retention(node: WindowedAggregate) -> None:
    retention_ms = node.materialized.retention_ms
    if retention_ms is None:
        return
    if node.windows is None or isinstance(node.windows, UnlimitedWindows):
        kind = "has no windows" if node.windows is None else f"has {node.windows}, which never close"
        warn(
            f"The retention of {show_ms(retention_ms)} is not used: the aggregation {kind}, and it is about closed "
            "windows. Leave with_retention out."
        )
        return
    least, parts = needed_ms(node.windows)
    if retention_ms < least:
        raise DefinitionError(
            f"The retention of {show_ms(retention_ms)} is shorter than {node.windows} need: {parts}, together "
            f"{show_ms(least)}. Use with_retention({show_ms(least)!r}) or more."
        )


def _late_records(value: str | None) -> str | None:
    if value is not None and value not in LATE_RECORDS:
        raise DefinitionError(f'`late_records` is {value!r}. Use "drop" or "keep".')
    return value


def _check_schema(node: Stream, deleted: str | None = None) -> None:
    """Check the columns of a stream that is not bound, but whose schema is declared."""
    if node.schema is None or node.frame is not None:
        return
    if not hasattr(node.schema, "names"):
        raise DefinitionTypeError(f"`schema` is {node.schema!r}, not a pyarrow.Schema. Use pyarrow.schema([...]).")
    for name in node.schema.names:
        check_user_name(name, "A column of the schema")
    named: list[tuple[str, str | None]] = [("key", name) for name in node.key]
    named += [("timestamp", node.timestamp), ("partition", node.partition), ("offset", node.offset)]
    named.append(("deleted", deleted))
    for argument, name in named:
        if name is not None and name not in node.schema.names:
            raise DefinitionError(
                f"`{argument}` is {name!r}, but the schema has no such column. "
                f"Its columns are {', '.join(node.schema.names)}."
            )


def _columns(value: str | Sequence[str], argument: str) -> tuple[str, ...]:
    if not isinstance(value, str | list | tuple):
        raise DefinitionTypeError(f"`{argument}` is {value!r}. Use the name of a column, or a list of names.")
    columns = (value,) if isinstance(value, str) else tuple(value)
    if not columns:
        raise DefinitionError(f"`{argument}` is empty. Name at least one column.")
    if len(set(columns)) < len(columns):
        raise DefinitionError(f"`{argument}` names a column twice: {', '.join(map(str, columns))}.")
    for column in columns:
        _column(column, argument)
    return columns


def _column(value: str, argument: str) -> str:
    if not isinstance(value, str) or not value:
        raise DefinitionTypeError(
            f"`{argument}` is {value!r}, not the name of a column. "
            "Compute an expression with withColumn first and give its name."
        )
    return value


def _reserved(column: str) -> NoReturn:
    raise DefinitionError(
        f"The column {column!r} has a name that rows of a result use themselves ({', '.join(RESULT_COLUMNS)}). "
        f'Rename it first: df.withColumnRenamed("{column}", "{column}_in").'
    )


def _callable(value: Callable[..., Any], argument: str) -> Callable[..., Any]:
    if not callable(value):
        raise DefinitionTypeError(f"`{argument}` is {value!r}, not a function.")
    return value
