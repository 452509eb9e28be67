"""Streams of records: their steps, their joins, and how they are grouped."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal

from tidegate.arguments import has, is_one_of
from tidegate.dsl import frames
from tidegate.dsl.checks import check_column, check_columns, check_kept, check_reads, check_schema
from tidegate.dsl.grouped_streams import KGroupedStream
from tidegate.dsl.late_records import KLateRecords
from tidegate.dsl.merging import merged
from tidegate.dsl.result import WAYS_OF_ROWS, Result
from tidegate.dsl.tables import KTable
from tidegate.errors import DefinitionError, DefinitionTypeError, in_one_line
from tidegate.instants import Duration
from tidegate.plan import (
    Join,
    LateRecords,
    Stream,
    available_columns,
    check_there,
    key_of_rows,
    merge_conflict,
    readable_columns,
)
from tidegate.plan.joins import Asked, forwarded, join_streams, join_table
from tidegate.spec.columns import check_user_name, public_key
from tidegate.spec.joined import HOWS, INNER
from tidegate.spec.materialized import Materialized
from tidegate.spec.steps import SelectKey, Step, check_call_of_row, filter_of, map_values_of
from tidegate.spec.windows import JoinWindows


@dataclass(frozen=True, repr=False)
class KStream(Result):
    """A stream of records, with its stateless steps.

    A function in a step gets the record as a dict of its columns, or the key and the record if it takes two
    arguments. If a function raises, the query stops with an AggregationError that names key and record.

    Examples:
        >>> cheap = events.filter(pc.field("price") < 10).group_by_key().count()
        >>> driver = TopologyTestDriver(cheap)
        >>> driver.pipe_batch([{"user": "A", "ts": 1, "price": 5}, {"user": "A", "ts": 2, "price": 50}])
        >>> driver.read_output()[0]["count"]
        1
    """

    node: Stream

    _ways: ClassVar[Mapping[str, str]] = {
        **WAYS_OF_ROWS,
        **{
            name: f"Group the stream first: stream.group_by_key().{name}(...)"
            for name in ("windowed_by", "count", "agg", "reduce", "aggregate", "cogroup")
        },
        "emit_strategy": "Group and window the stream first: stream.group_by_key().windowed_by(...).emit_strategy(...)",
        "suppress": "Aggregate the stream first: stream.group_by_key().count().suppress(...)",
    }

    def filter(self, predicate: Callable[..., Any] | Any) -> KStream:
        """Keep the records for which `predicate` is true.

        Args:
            predicate: A function, or an expression such as `pc.field("price") > 3`.

        Returns:
            The stream.

        Raises:
            DefinitionError: The expression reads a column that the stream does not have.
            DefinitionTypeError: `predicate` is neither a function of the row nor an expression.

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

        Rows of a join and changes of a table keep the key columns of the join or the table, also behind `select_key`.

        Args:
            mapper: A function that returns a dict of the new columns; or a dict of columns, each a function, a
                pyarrow.compute expression, or the name of a column.
            types: The types of the new columns, as in `aggregate`. Functions need them on Spark, and before a
                suppression.

        Returns:
            The stream.

        Raises:
            DefinitionError: An expression reads a column that the stream does not have.
            DefinitionTypeError: `mapper` or `types` is of the wrong kind.

        Examples:
            >>> doubled = events.map_values({"twice": pc.field("price") * 2})
            >>> driver = TopologyTestDriver(doubled.group_by_key().agg(total=tg.sum("twice")))
            >>> driver.pipe_input({"user": "A", "ts": 1, "price": 5})
            >>> driver.read_output()[0]["total"]
            10
        """
        return self._then(map_values_of(mapper, types, public_key(self.node.key), self.node.kept))

    def _then(self, step: Step) -> KStream:
        check_reads(step, readable_columns(self.node), "stream")
        return KStream(self.node.then(step))

    def select_key(self, *key: Any, name: str = "key", type: Any = "string") -> KStream:
        """Choose another key: columns, or the result of a function.

        Args:
            *key: Names of columns, one list of them, or one function of the record.
            name: The column for the result of the function.
            type: The type of the result: a Spark type string, a type of PySpark, or a pyarrow type.

        Returns:
            The stream with the new key.

        Raises:
            DefinitionError: A column does not exist, or `name` would replace the timestamp, partition or offset.
            DefinitionTypeError: An argument is of the wrong kind.

        Examples:
            >>> by_city = events.select_key(lambda record: record["city"].lower(), name="city_key")
            >>> driver = TopologyTestDriver(by_city.group_by_key().count())
            >>> driver.pipe_input({"user": "A", "ts": 1, "city": "Rome"})
            >>> driver.read_output()[0]["city_key"]
            'rome'
        """
        if len(key) == 1 and callable(key[0]):
            from tidegate.spec.types import arrow_type, is_atomic  # here, because few streams have a computed key

            if not is_atomic(kind := arrow_type(type)):
                raise DefinitionError(
                    f"`type` is {type!r}, and a key must be of an atomic type, not {kind}. Give its parts as several "
                    'columns, map_values({"a": ..., "b": ...}), and then select_key("a", "b").'
                )
            check_call_of_row(key[0], "key")
            check_user_name(check_column(name, "name"), "The key that `name`")
            _check_new_key(self.node, name)
            stepped = self.node.then(SelectKey(key[0], public_key(self.node.key), name, type))
            return KStream(_keyed(stepped, (name,)))
        columns = check_columns(key[0] if len(key) == 1 else key, "key")
        if self.node.table is not None:
            columns = key_of_rows(columns, self.node)
        return KStream(_keyed(self.node, columns))

    def merge(self, *others: KStream) -> KStream:
        """Merge this stream with others that have the same key, timestamp, partition and offset columns.

        A stream may also be the rows of a join or the changes of a table. Each of these counts as one partition and has
        the timestamp of its rows. Then an operator must follow the merged stream. Steps and aggregates read
        columns that all of the streams have.

        Args:
            *others: The other streams.

        Returns:
            The merged stream. In the test driver, `pipe_input(record, "name of the input")` names a record's input.

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
        return KStream(merged([self.node, *(other.node for other in others)]))

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
        """Join this stream by key with another stream, within `windows`, or with a table.

        A row has the key columns, the value columns of both sides and `timestamp`.

        Join with a stream (docs/joins.md): the timestamp of a row is the later of the two. In a left join a left record
        without a partner leaves once, with nulls for the right side, as soon as no record can join it any more. In an
        outer join this holds for both sides. Such a row is never corrected later. There is one stream time over both
        inputs. By default it follows the slower side (`stream_time="min_partition"`). Set `idle_after`, or a silent
        side holds the other one back for ever. `clicks.join(clicks, ...)` joins a stream with itself: each record
        arrives as left and then as right.

        Join with a table (docs/joins/tables.md): each record looks up the row of its key and keeps its own timestamp.
        It finds the row that arrived last or, if the table has a `history`, the row as of the record's timestamp.

        Args:
            right: A stream or a table, with key columns of the same names.
            windows: The time bounds of a join of two streams; left out for a table.
            how: "inner" or "left"; for two streams also "outer".
            value_joiner: Computes other value columns. Either a function of (left, right) or (key, left, right) that
                gets the values of each side as a dict, None for a missing side, and returns a dict; or a dict of
                columns, each such a function or an expression such as `pc.field("left", "price") * 2`.
            suffixes: The suffixes for column names that both sides have, such as ("_left", "_right").
            grace: For a table: a record waits until the time of its own stream has reached its timestamp plus the
                grace, so that late changes of the table count.
            types: The types of the columns of a `value_joiner` function, by column; needed on Spark.
            materialized: The name of the operator; its stores are "name-left" and "name-right".

        Returns:
            The stream of the rows.

        Raises:
            DefinitionError: The inputs differ in their key columns, two columns would have one name, or an argument is
                for the other kind of join.
            DefinitionTypeError: `right` is neither a stream nor a table, or another argument is of the wrong kind.

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
        if isinstance(right, KTable):
            how, grace = _how_and_grace(windows, how, grace)
            asked = Asked(how, value_joiner, suffixes, types, materialized)
            return _joined(join_table(self.node, right.node, grace, asked))
        if not isinstance(right, KStream):
            raise _nothing_to_join(right)
        if grace is not None:
            raise DefinitionError(
                "`grace` is for joins with a table; of two streams the windows have it. Use "
                "JoinWindows.of_time_difference_and_grace(difference, grace)."
            )
        asked = Asked(how, value_joiner, suffixes, types, materialized)
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
        """`join(..., how="left")`: a left record without a partner leaves once, with nulls.

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
        return self.join(
            right, windows, "left", value_joiner, suffixes, grace=grace, types=types, materialized=materialized
        )

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
        """`join(..., how="outer")`: a record of either side without a partner leaves once, with nulls.

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
        """The late and skipped records of a join, with their `side`.

        A row has the key, the values of its side (values of the other side are null), `timestamp`, `side` ("left" or
        "right"; "both" in a join of a stream with itself), `reason`, `late_by` and `stream_time`. A change of a table
        with a history is late if it is older than the history; its `stream_time` is the table's newest timestamp.

        Returns:
            The records, as one more output.

        Raises:
            DefinitionError: The stream is not a join, has steps behind the join, or a side has `late_records="drop"`.

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
        check_kept(join.sides)
        return KLateRecords(LateRecords(join))

    def group_by_key(self) -> KGroupedStream:
        """Group by the key of the stream.

        Returns:
            The grouped stream. Aggregate it, or cut it into windows first.

        Examples:
            >>> events.group_by_key()
            <KGroupedStream events by user>
        """
        return self.group_by(*public_key(self.node.key))

    def group_by(self, *columns: str | Sequence[str]) -> KGroupedStream:
        """Group by these columns; a record with a null in one of them is skipped and counted.

        Args:
            *columns: The names of the columns, or one list of them.

        Returns:
            The grouped stream. Aggregate it, or cut it into windows first.

        Raises:
            DefinitionError: A column does not exist.
            DefinitionTypeError: A column is given by something else than its name.

        Examples:
            >>> events.group_by("city", "page")
            <KGroupedStream events by city, page>
        """
        key = check_columns(columns[0] if len(columns) == 1 else columns, "columns")
        if self.node.table is not None:
            key = key_of_rows(key, self.node)
        else:
            _keyed(self.node, key)
        return KGroupedStream(forwarded(self.node, key), key)


def _nothing_to_join(right: Any) -> DefinitionTypeError:
    """The error for the right side of a join that is neither a stream nor a table."""
    advice = "Use for example clicks.join(views, windows)."
    if has(right, "isStreaming"):
        advice = (
            'If it is static, join it by Spark, df.join(names, "user", "left") before tg.stream or behind to_df. If '
            "it is streaming, make it a stream, tg.stream(df, ...), or a table of changes, tg.table(df, ...)."
        )
    return DefinitionTypeError(f"`right` is {in_one_line(right)}, neither a stream nor a table. {advice}")


def _how_and_grace(windows: Any, how: Any, grace: Any) -> tuple[Any, Any]:
    """The kind and the grace of a join with a table, which may be the arguments `windows` and `how`:
    join(table, "left", "10 ms").

    Raises DefinitionError for windows, which a join with a table does not have, and for two kinds.
    """
    if isinstance(windows, str) and windows in HOWS:
        if not is_one_of(how, HOWS) and grace is None:
            how, grace = INNER, how
        if not is_one_of(how, (INNER, windows)):
            raise DefinitionError(
                f"`windows` is {windows!r} in a join that is {how!r}: of the two only one can be meant. Use "
                f"join(right, how={windows!r}), or leave it out."
            )
        return windows, grace
    if windows is not None:
        raise DefinitionError(
            f"`windows` is {windows}, and a table has no windows to meet in: a record looks up its row. Leave "
            "it out, give the time to wait for the table as grace=..., or join the stream of the table's "
            "changes, table.to_stream()."
        )
    return how, grace


def _joined(join: Join) -> KStream:
    """The rows of a join as a stream."""
    return KStream(Stream(join.name, join.key, "timestamp", table=join))


def _check_new_key(node: Stream, name: str) -> None:
    """Raise DefinitionError if a computed key would replace a column of every record: timestamp, partition, offset and
    the other columns that are not values.
    """
    roles = {node.timestamp: "timestamp", node.partition: "partition", node.offset: "offset"}
    role = f"the {roles[name]} of the records" if name in roles else "what every record has and no value is"
    if name in roles or name in node.non_values:
        raise DefinitionError(
            f"`name` is {name!r}, the column with {role}: the new key would take its place. "
            f"Choose another name, for example name={name + '_key'!r}."
        )


def _keyed(node: Stream, key: tuple[str, ...]) -> Stream:
    """The stream with this key. Raises DefinitionError for a column that the stream is known not to have."""
    regrouped = replace(node, key=key, sources=tuple(replace(source, key=key) for source in node.sources))
    if node.is_source:
        check_schema(regrouped)
        if node.frame is not None:
            frames.check_frame(regrouped)
    elif (available := available_columns(regrouped)) is not None:
        for column in key:
            check_there("key", column, available, "stream")
    return regrouped
