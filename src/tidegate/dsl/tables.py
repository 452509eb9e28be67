"""Tables: results of an aggregation, or changes of a source."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from tidegate.dsl.checks import check_columns, check_kept, check_reads
from tidegate.dsl.late_records import KLateRecords
from tidegate.dsl.result import WAYS_OF_ROWS, Result
from tidegate.errors import DefinitionError, DefinitionTypeError, warn
from tidegate.instants import show_ms
from tidegate.plan import (
    Changelog,
    LateRecords,
    MapFilter,
    Stream,
    Suppress,
    Table,
    WindowedAggregate,
    inputs_of,
    key_of_rows,
    operation,
    result_columns,
    root_of,
    surprises,
    windows_of,
)
from tidegate.plan.joins import Asked, join_tables
from tidegate.spec.aggregates import Cogroup
from tidegate.spec.columns import WINDOW, public_key
from tidegate.spec.materialized import Materialized
from tidegate.spec.missing import without
from tidegate.spec.steps import Step, filter_of, map_values_of
from tidegate.spec.suppressed import UntilTimeLimit, UntilWindowCloses

# Streams and groups become tables, and tables become streams and groups: an import cycle. To break it, two methods here
# import the modules above them when they are called.
if TYPE_CHECKING:
    from tidegate.dsl.grouped_tables import KGroupedTable
    from tidegate.dsl.streams import KStream


@dataclass(frozen=True, repr=False)
class KTable(Result):
    """A table: the newest result per key (and window), as updates or as final rows.

    Examples:
        >>> driver = TopologyTestDriver(events.group_by_key().count())
        >>> driver.pipe_input({"user": "A", "ts": 1})
        >>> driver.pipe_input({"user": "A", "ts": 2})
        >>> [row["count"] for row in driver.read_output()]
        [1, 2]
    """

    node: Table

    _ways: ClassVar[Mapping[str, str]] = {
        **WAYS_OF_ROWS,
        **{
            name: f'Group the table first: table.group_by("column").{name}(...)'
            for name in ("count", "agg", "reduce", "aggregate")
        },
        **{
            name: f"Take the changes of the table as records: table.to_stream().{name}(...)"
            for name in ("group_by_key", "select_key", "merge")
        },
        "windowed_by": "Windows stand in front of an aggregation: stream.group_by_key().windowed_by(...).count(), or "
        "table.to_stream().group_by_key().windowed_by(...).count() over the changes of the table",
        "emit_strategy": "It stands in front of the aggregation: windowed_by(...).emit_strategy(...).count()",
    }

    def late_records(self) -> KLateRecords:
        """The late and skipped records of the aggregation, whole, with the reason; a late one once per closed window.

        Returns:
            The records, as one more output.

        Raises:
            DefinitionError: The stream or the aggregation has `late_records="drop"`, the table was regrouped, or it is
                the table of a cogroup.

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
        if isinstance(root, WindowedAggregate) and any(isinstance(how, Cogroup) for _, how in root.aggregations):
            raise DefinitionError(
                "The late records of a cogroup cannot be rows yet (docs/notyet.md): the records of its streams have "
                "different columns. They are counted in `late`. Or merge streams with the same columns: "
                "clicks.merge(views).group_by_key(), then aggregate."
            )
        said = root.late_records if isinstance(root, WindowedAggregate) else None
        check_kept([root.stream], said)
        return KLateRecords(LateRecords(root))

    def filter(self, predicate: Callable[..., Any] | Any) -> KTable:
        """Keep the rows for which `predicate` is true; when a row no longer matches, a tombstone leaves.

        Args:
            predicate: A function of the row (a dict: key, `window`, values, `timestamp` in ms), or of key and row, or
                an expression such as `pc.field("count") < 4`.

        Returns:
            The table.

        Raises:
            DefinitionError: The expression reads a column that the table does not have.
            DefinitionTypeError: `predicate` is neither a function of the row nor an expression.

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
            types: The types of the new columns, as in `aggregate`. Functions need them on Spark, and before a
                suppression.

        Returns:
            The table.

        Raises:
            DefinitionError: An expression reads a column that the table does not have.
            DefinitionTypeError: `mapper` or `types` is of the wrong kind.

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
        """Join the rows of both tables with the same key (docs/joins/tables.md).

        Each change of a side joins the current row of the other side; the timestamp is the later of the two. A deletion
        gives a tombstone or, in a left or outer join, the row of the side that remains. With caching only the last row
        per key and micro-batch leaves; `Materialized.as_(...).with_caching_disabled()` gives every row.

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
            DefinitionTypeError: `other` is no table, or another argument is of the wrong kind.

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
        """The changes of this table as records; a tombstone has `deleted` true and null values.

        Returns:
            The stream.

        Examples:
            >>> changes = events.group_by_key().count().to_stream()
            >>> driver = TopologyTestDriver(changes)
            >>> driver.pipe_input({"user": "A", "ts": 1})
            >>> driver.read_output()[0]["count"]
            1
        """
        from tidegate.dsl.streams import KStream

        root, (first, *_) = root_of(self.node), inputs_of(self.node)
        return KStream(Stream(first.name, root.key, "timestamp", table=self.node, non_values=(WINDOW, "deleted")))

    def group_by(self, *columns: str | Sequence[str], key: str | Sequence[str] | None = None) -> KGroupedTable:
        """Group the rows by columns of the key or the values; for computed columns use `map_values` first.

        A changed row leaves the group of its old values and then enters the group of its new ones. Rows with a null in
        one of the columns are in no group.

        Args:
            *columns: The names of the columns, or one list of them.
            key: The columns as a name or a list of names, instead of `columns`.

        Returns:
            The groups.

        Raises:
            DefinitionError: A column does not exist.
            DefinitionTypeError: A column is given by something else than its name.

        Examples:
            >>> users = tg.table("users", key="user", timestamp="ts")
            >>> users.group_by("city")
            <KGroupedTable users by city by city>
        """
        from tidegate.dsl.grouped_tables import KGroupedTable

        if columns and key is not None:
            raise DefinitionError(
                f"`key` is {key!r}, and there are columns besides: {', '.join(map(str, columns))}. Give all of them as "
                "columns, or all of them as `key`."
            )
        named = columns[0] if len(columns) == 1 else columns
        groups = check_columns(named if key is None else key, "columns" if key is None else "key")
        first = inputs_of(self.node)[0].name
        name = f"{first} by {', '.join(groups)}"
        groups = key_of_rows(groups, self.node)
        return KGroupedTable(Stream(name, groups, "timestamp", table=self.node, changes=True), groups)

    @property
    def _key(self) -> tuple[str, ...]:
        return public_key(root_of(self.node).key)

    def _then(self, step: Step) -> KTable:
        check_reads(step, result_columns(self.node), "table")
        return KTable(MapFilter(self.node, step))

    def suppress(self, suppressed: UntilWindowCloses | UntilTimeLimit) -> KTable:
        """Hold updates back, until the window closes or a time limit has passed.

        Args:
            suppressed: `Suppressed.until_window_closes(...)` or `Suppressed.until_time_limit(...)`.

        Returns:
            The table with fewer updates.

        Raises:
            DefinitionError: `until_window_closes`, or a limit from the "window_start", on a table without windows; the
                table keeps versions (`history`); or a step in front of the limit gives columns of unknown types.
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
        root = root_of(self.node)
        if isinstance(root, Changelog) and root.history_ms is not None:
            raise DefinitionError(
                f"suppress: the table {root.stream.name!r} has a history of {show_ms(root.history_ms)}, and a limit "
                "holds the row that came last, whatever its timestamp. Suppress a table without a history: "
                "tg.table(...) once more, without `history`."
            )
        suppressed_ = Suppress(self.node, suppressed)
        operation(suppressed_)
        for surprise in surprises(suppressed_):
            warn(surprise)
        return KTable(suppressed_)
