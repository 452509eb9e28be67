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
    inputs_of,
    key_of_rows,
    merge_conflict,
    operation,
    result_columns,
    root_of,
    surprises,
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

    key        the key column or columns; a record with a null in one of them is skipped and counted
    timestamp  the column with the event time; null or negative ones are skipped and counted
    partition, offset
               the columns that say in which order the records came, both or neither; with them late is decided
               record by record, without them each micro-batch is taken in timestamp order
    schema     the columns as a pyarrow.Schema: of an unbound input, or of a DataFrame, whose others are left out.
               A declarative pipeline (pyspark.pipelines) needs it: there a DataFrame does not tell its columns
    stream_time
               "max": the largest timestamp seen; "min_partition": that of the slowest partition, so that a partition
               which is behind loses nothing. Left out: "max"; of a join, the slower side
    late_records
               "drop" or "keep" what is not taken; left out, it is kept where an output asks for it
               (`KTable.late_records`); an aggregation may say otherwise
    idle_after with "min_partition", a partition without a record for so long by the wall clock holds nothing back
    idle_advance
               without a record for so long by the wall clock, stream time goes on from where it stood at the pace of
               the wall clock, so that the last windows come out; costs repeatability (docs/semantics.md)
    max_future_skew
               a record further ahead of the wall clock than this is kept out, counted as "future", and moves nothing

    Raises DefinitionError for a column that does not exist or has the wrong type, DefinitionTypeError for an
    argument of the wrong kind.
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

    The arguments are those of `stream`; `deleted` names a boolean column. Every change is forwarded, with its own
    timestamp, deletions of unknown keys too (SEMANTICS 15).

    history  for how long a join of a stream with the table finds versions of a row by their timestamps; left out, it
             finds the row that came last (SEMANTICS 16)
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
    """Several tables of one aggregation as one: `outputs(raw=counts, final=final)`, computed together.

    Of a join, its rows and its late records: `outputs(joined=joined, late=joined.late_records())`.

    Raises DefinitionError if they are not of one aggregation.
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


def to_df(**tables: KTable | KLateRecords) -> DataFrame:
    """Several tables of one aggregation as one DataFrame, by one stateful operator: `to_df(raw=counts, final=final)`.

    The column `output` has the keyword under which a row's table was given. The other columns are those of all
    tables together, null where a table has none of that name.
    """
    return outputs(**tables).to_df()


@dataclass(frozen=True, repr=False)
class Result:
    """What a topology gives: rows."""

    node: Plan

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {headline(self.node)}>"

    def describe(self) -> str:
        """The topology as a tree: every node with name, windows, grace, buffer and what it became on Spark."""
        return describe(self.node)

    def to_df(self, *, row_ids: bool = False) -> DataFrame:
        """The rows as a DataFrame: key columns, `window`, value columns, `timestamp`; of several outputs, `output`.

        `deleted` is there where a row can be a tombstone. Streaming if the input is; a static input is the whole
        stream, at whose end every window closes.

        row_ids  of a join, a column `tidegate:row_id` besides: of which records a row was made. `tg.kafka.sink` makes
                 `row_id` of it. Raises DefinitionError where it cannot be known
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
    """

    node: Stream

    def filter(self, predicate: Callable[..., Any] | Any) -> KStream:
        """The records for which `predicate` is true: a function, or an expression such as `pc.field("price") > 3`."""
        return self._then(filter_of(predicate, public_key(self.node.key), tombstones=False))

    def map_values(
        self, mapper: Callable[..., Any] | Mapping[str, Any], *, types: Mapping[str, Any] | None = None
    ) -> KStream:
        """New value columns in place of the old ones; key, timestamp, partition and offset stay.

        mapper  a function that returns a dict of them, or a dict: each column by a function, a pyarrow.compute
                expression, or the name of a column
        types   their types, as in `aggregate`; what a function gives must have one on Spark, and before a suppression
        """
        return self._then(map_values_of(mapper, types, public_key(self.node.key), self.node.kept))

    def _then(self, step: Step) -> KStream:
        _check_reads(step, available_columns(self.node), "stream")
        return KStream(self.node.then(step))

    def select_key(self, *key: Any, name: str = "key", type: Any = "string") -> KStream:
        """Another key: these columns, or what a function gives, as the column `name` of type `type`."""
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

        In the driver, `pipe_input(record, "name of the input")` says whose record it is.
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
        came last or, of a table with a `history`, the row as of the record's timestamp. With a `grace` the record waits
        until the stream's own time has reached its timestamp plus the grace, so that late changes of the table count.

        value_joiner  what the value columns are instead: a function of (left, right) or (key, left, right) that gets
                      the values of each side as a dict, None for the missing side, and returns a dict; or a dict of
                      columns, each a function of the two or an expression such as `pc.field("left", "price") * 2`
        suffixes      what is added to names that both sides have, as in ("_left", "_right")
        types         the types of what a `value_joiner` function gives, by column; needed on Spark
        materialized  names the operator and its stores: "name-left" and "name-right"

        Raises DefinitionError if the inputs differ in their key columns, or if two columns would have one name.
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
        """`join(..., how="left")`."""
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
        """`join(..., how="outer")`."""
        return self.join(right, windows, "outer", value_joiner, suffixes, types=types, materialized=materialized)

    def late_records(self) -> KLateRecords:
        """The records that came too late for a join, and those that were skipped, with their `side`.

        A row has the key, the values of its side (those of the other one are null), `timestamp`, `side` ("left" or
        "right"; "both" in a join of a stream with itself), `reason`, `late_by` and `stream_time`. Of a table with a
        history they are the changes that are older than the history; `stream_time` is the table's newest timestamp.

        Raises DefinitionError for a stream that is no join, or behind other steps.
        """
        join = self.node.table
        if not isinstance(join, Join) or self.node.steps:
            raise DefinitionError(
                "Only a join has late records, before any other step: joined = clicks.join(views, "
                "windows), joined.late_records(). Of an aggregation, ask its table."
            )
        return KLateRecords(LateRecords(join))

    def group_by_key(self) -> KGroupedStream:
        """Group by the key of the stream."""
        return self.group_by(*public_key(self.node.key))

    def group_by(self, *columns: str) -> KGroupedStream:
        """Group by these columns; a record with a null in one of them is skipped and counted."""
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
        """The number of records per key (and window), in the column `name`.

        In windows records without a value count too. A key of `expect_keys` (a static DataFrame, an Arrow table or a
        list) without a record in a window gives a final row with the aggregate over nothing, here 0.
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
        """One column per aggregate: `.agg(n=tg.count(), total=tg.sum("amount"))`; `expect_keys` as in `count`."""
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
        `expect_keys` is that of `count`; without a record the value is null.
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

        `key` is a scalar, or a tuple for several columns; `row` is a dict of the record's columns; `type` is a Spark
        type string ("long", "array<string>") or a pyarrow type. A result of None deletes the entry.
        Every function may change what it is given. After each call the result becomes a value of `type`, as it is
        stored; AggregationError names key, window and value if the type cannot hold it (2.5 for a "long").
        `expect_keys` is that of `count`; without a record the value is `initializer()`.

        vectorized  the aggregator is called with many records of different keys at once: `key` is an Arrow array (a
                    tuple of them for several columns), `row` a table of the records' columns, `aggregate` an array
                    of what there is for each; it returns an array. A null in it deletes that entry.
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
    """

    def windowed_by(self, windows: Windows) -> TimeWindowedKStream:
        """Cut each group into windows. Raises DefinitionTypeError if `windows` is not a kind of window."""
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

            clicks.group_by_key().cogroup(clicked).cogroup(views.group_by_key(), viewed).aggregate(dict, type=...)

        `aggregator(key, row, aggregate)` is called for the records of this stream.
        """
        return CogroupedKStream(((self, _callable(aggregator, "aggregator")),))


@dataclass(frozen=True, repr=False)
class CogroupedKStream:
    """Grouped streams with the same key, each with its aggregator, to be aggregated into one table (SEMANTICS 18)."""

    parts: tuple[tuple[KGroupedStream, Callable[[Any, Any, Any], Any]], ...]
    windows: Windows | None = None
    emit: EmitStrategy = EmitStrategy.on_window_update()  # noqa: RUF009 - a frozen value

    def __repr__(self) -> str:
        windows = "" if self.windows is None else f" in {self.windows}"
        names = ", ".join(grouped.stream.name for grouped, _ in self.parts)
        return f"<CogroupedKStream {names} by {', '.join(public_key(self._key))}{windows}>"

    def cogroup(self, grouped: KGroupedStream, aggregator: Callable[[Any, Any, Any], Any]) -> CogroupedKStream:
        """And the records of another grouped stream, by another aggregator.

        Raises DefinitionError if it has another key, or other columns for time and order.
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
        """Cut each group into windows."""
        return replace(self, windows=self.parts[0][0].windowed_by(windows).windows)

    def emit_strategy(self, strategy: EmitStrategy) -> CogroupedKStream:
        """Forward final results only (`on_window_close`) or every update (`on_window_update`, the default)."""
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

        The arguments are those of `KGroupedStream.aggregate`. Stream time is one over all inputs, so a final row is
        final. A row that an aggregator gets has the columns of its own stream.
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
    """A grouped stream cut into windows, to be aggregated."""

    def emit_strategy(self, strategy: EmitStrategy) -> TimeWindowedKStream:
        """Forward final results only (`on_window_close`) or every update (`on_window_update`, the default)."""
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
    """A table whose rows are grouped by other columns: a change takes the old row out, then puts the new one in."""

    def agg(
        self,
        materialized: Materialized | None = None,
        /,
        *unnamed: Any,
        **aggregates: Any,
    ) -> KTable:
        """One column per aggregate, of count, sum and mean: others cannot be taken back. See `aggregate` for those."""
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
        """`adder(aggregate, value)` for a value that comes into a group, `subtractor(aggregate, value)` for one that
        leaves it; the first value is taken as it is. A function that returns None deletes the group.
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
        """`adder(key, row, aggregate)` for a row that comes into a group, from `initializer()` on, and
        `subtractor(key, row, aggregate)` for one that leaves it, as a column of `type`.

        `key` is the group's, `row` a dict of the table's key and values. A result of None deletes the group.
        """
        from tidegate.spec.types import arrow_type  # here, because it imports pyarrow

        arrow_type(type)
        functions = _callable(adder, "adder"), _callable(subtractor, "subtractor")
        fold = Fold(_callable(initializer, "initializer"), functions[0], type, subtractor=functions[1])
        return self._table(((name, fold),), materialized)


class SessionWindowedKStream(TimeWindowedKStream):
    """A grouped stream cut into sessions; `aggregate` needs a merger, because sessions merge."""


@dataclass(frozen=True, repr=False)
class KLateRecords(Result):
    """The records that an aggregation did not take: the whole record, `reason`, `window`, `late_by`, `stream_time`.

    reason       "late", once per closed window; "null_key", "null_value", "bad_timestamp"
    late_by      how far the record lay behind the stream time it saw (ms); null if it was not late
    stream_time  what it saw
    """

    node: LateRecords


class KOutputs(Result):
    """Several tables of one aggregation, whose rows leave together with the name of their output."""


@dataclass(frozen=True, repr=False)
class KTable(Result):
    """A table: per key (and window) the newest result, refined by updates or let out when final."""

    node: Table

    def late_records(self) -> KLateRecords:
        """The records that the aggregation did not take, whole, with what was wrong; one row per closed window.

        Raises DefinitionError where the stream or the aggregation says late_records="drop".
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

        `predicate` is a function of the row (a dict: key, `window`, values, `timestamp` in ms), or of key and row, or
        an expression such as `pc.field("count") < 4`.
        """
        return self._then(filter_of(predicate, self._key, tombstones=True))

    def map_values(
        self, mapper: Callable[..., Any] | Mapping[str, Any], *, types: Mapping[str, Any] | None = None
    ) -> KTable:
        """New value columns in place of the old ones, as in `KStream.map_values`; tombstones stay tombstones."""
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
        The other arguments are those of `KStream.join`.
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
        """`join(..., how="left")`."""
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
        """`join(..., how="outer")`."""
        return self.join(other, "outer", value_joiner, suffixes, types=types, materialized=materialized)

    def to_stream(self) -> KStream:
        """The changes of this table as records; of a tombstone `deleted` is true and the values are null."""
        root, (first, *_) = root_of(self.node), inputs_of(self.node)
        return KStream(Stream(first.name, root.key, "timestamp", table=self.node, aside=(WINDOW, "deleted")))

    def group_by(self, *columns: str, key: str | Sequence[str] | None = None) -> KGroupedTable:
        """Group the rows by these columns, of the key or the values; use `map_values` first for what must be computed.

        A row that changes moves: out of the group of its old values, then into that of its new ones. Rows with a null
        in one of the columns are in no group.
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
        """Hold updates back as `suppressed` says.

        Raises DefinitionError for `until_window_closes` on something without windows.
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
