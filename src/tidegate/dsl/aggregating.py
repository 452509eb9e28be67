"""Aggregations of grouped records, with or without windows: count, agg, reduce and aggregate."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from tidegate.arguments import flag_of, has
from tidegate.dsl.checks import FOLDS, MERGES, REDUCES, check_column, check_function, check_late_records, check_type
from tidegate.dsl.tables import KTable
from tidegate.errors import DefinitionError, DefinitionTypeError, in_one_line, warn
from tidegate.instants import show_ms
from tidegate.plan import RESULT_COLUMNS, Stream, WindowedAggregate, check_key, readable_columns
from tidegate.spec.aggregates import Aggregate, Aggregation, Fold, Reduce
from tidegate.spec.aggregates import count as count_
from tidegate.spec.clock import check_aggregated
from tidegate.spec.columns import check_user_name, public_key
from tidegate.spec.emit import EmitStrategy
from tidegate.spec.materialized import Materialized
from tidegate.spec.missing import Placed, without
from tidegate.spec.windows import (
    BatchWindows,
    SessionWindows,
    SlidingWindows,
    TimeWindows,
    Windows,
)

WAYS_OF_GROUPS = {
    **dict.fromkeys(("filter", "map_values"), "Call it before the groups are made, or of their table: groups.count()"),
    **dict.fromkeys(
        ("suppress", "to_df", "to_stream", "late_records", "describe"),
        "Aggregate the groups first, for example groups.count()",
    ),
}
"""The ways to names that the table of an aggregation has (`spec.missing.Placed`)."""


@dataclass(frozen=True, repr=False)
class Aggregating(Placed):
    """Grouped records, to be aggregated per key (and window)."""

    _ways: ClassVar[Mapping[str, str]] = WAYS_OF_GROUPS

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
            expect_keys: A static DataFrame, an Arrow table or a list of keys. These keys get a final row in a window
                without a record too, with the aggregate over no record.
            late_records: "keep" or "drop" late and skipped records; left out, the stream decides.

        Returns:
            The table.

        Raises:
            DefinitionError: The name is taken, or `expect_keys` cannot be used here.
            DefinitionTypeError: An argument is of the wrong kind.

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
        return aggregated(self, ((name, count_()),), materialized, expect_keys, late_records)

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
            *unnamed: Always rejected; the error suggests names.
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
            got = (
                "no aggregate" if materialized is None else f"{in_one_line(materialized)} and no aggregate with a name"
            )
            raise DefinitionError(f'`agg` got {got}. Name at least one, for example agg(total=tg.sum("amount")).')
        for name, aggregate in aggregates.items():
            if not isinstance(aggregate, Aggregate):
                raise DefinitionTypeError(
                    f'`{name}` is {aggregate!r}, not an aggregate. Use for example {name}=tg.sum("amount").'
                )
        return aggregated(self, tuple(aggregates.items()), materialized, expect_keys, late_records)  # type: ignore[arg-type]

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
        """Combine the values of a column by `fn(aggregate, value)`; the first value is the first aggregate.

        If `fn` returns None, the entry is deleted. If it raises, the query stops with an AggregationError.

        Args:
            fn: The function of the aggregate so far and the next value.
            column: The column of the values.
            name: The column of the result; left out, the column of the values.
            materialized: As in `count`.
            expect_keys: As in `count`; without a record the value is null.
            late_records: As in `count`.

        Returns:
            The table.

        Raises:
            DefinitionTypeError: `fn` is no function.
            DefinitionError: The name is taken, a column does not exist, or `expect_keys` cannot be used here.

        Examples:
            >>> driver = TopologyTestDriver(events.group_by_key().reduce(max, "price"))
            >>> driver.pipe_batch([{"user": "A", "ts": 1, "price": 9}, {"user": "A", "ts": 2, "price": 7}])
            >>> driver.read_output()[0]["price"]
            9
        """
        reduce = Reduce(check_function(fn, "fn", *REDUCES), check_column(column, "column"))
        called = column if name is None else check_column(name, "name")
        return aggregated(self, ((called, reduce),), materialized, expect_keys, late_records)

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
        """Fold records by `aggregator(key, row, aggregate)`, from `initializer()` on, into a column of `type`.

        Every function may change its arguments. After each call the result is converted to `type`, as it is stored. If
        the type cannot hold it (2.5 for a "long"), an AggregationError names key, window and value.

        Args:
            initializer: A function without arguments: the aggregate of no record.
            aggregator: A function of key (a scalar, or a tuple for several columns), row (a dict of the record's
                columns) and aggregate. A result of None deletes the entry.
            type: A Spark type string ("long", "array<string>"), a type of PySpark, or a pyarrow type.
            merger: For sessions: a function of key and two aggregates that merges both into one.
            vectorized: The aggregator gets many records of different keys at once: `key` is an Arrow array (a tuple of
                arrays for several columns; a `window` is two of them, start and end in ms), `row` a table of the
                records' columns, `aggregate` an array with the aggregate of each. It returns an array; a null in it
                deletes the entry.
            name: The column of the result.
            materialized: As in `count`.
            expect_keys: As in `count`; without a record the value is `initializer()`.
            late_records: As in `count`.

        Returns:
            The table.

        Raises:
            DefinitionError: Sessions have no merger, or `vectorized` is used with sliding windows or sessions.
            DefinitionTypeError: An argument is no function, or `type` is no type.

        Examples:
            >>> def pages(key, row, aggregate):
            ...     return [*aggregate, row["page"]]
            >>> driver = TopologyTestDriver(events.group_by_key().aggregate(list, pages, type="array<string>"))
            >>> driver.pipe_batch([{"user": "A", "ts": 1, "page": "home"}, {"user": "A", "ts": 2, "page": "shop"}])
            >>> driver.read_output()[0]["aggregate"]
            ['home', 'shop']
        """
        check_type(type)
        fold = Fold(
            check_function(initializer, "initializer"),
            check_function(aggregator, "aggregator", *FOLDS),
            type,
            None if merger is None else check_function(merger, "merger", *MERGES),
            vectorized=flag_of(vectorized, "vectorized"),
        )
        if fold.vectorized and isinstance(self.windows, SessionWindows | SlidingWindows):
            raise DefinitionError(
                f"`vectorized` is for time windows and tables without windows: those of {self.windows} depend on the "
                "records, which are taken one by one. Leave it out, or use built-in aggregates."
            )
        check_merger(merger, self.windows)
        return aggregated(self, ((name, fold),), materialized, expect_keys, late_records)


def aggregated(
    groups: Aggregating,
    aggregations: tuple[tuple[str, Aggregation], ...],
    materialized: Materialized | None,
    expect_keys: Any = None,
    late_records: Literal["drop", "keep"] | None = None,
) -> KTable:
    """The table of these aggregations, each by the name of its column."""
    taken = set(groups.key) | set(RESULT_COLUMNS)
    for name, _ in aggregations:
        check_user_name(name, "The column of an aggregate")
        if name in taken:
            raise DefinitionError(
                f"`{name}` is the name of an aggregate, but a result row has another column of that name "
                f"(its key, or {', '.join(RESULT_COLUMNS)}). Choose another name, for example {name}_value=..."
            )
    check_key(groups.key)
    if materialized is not None and not isinstance(materialized, Materialized):
        raise DefinitionTypeError(f'`materialized` is {materialized!r}. Use Materialized.as_("name").')
    check_aggregated(groups.stream.clock)
    node = WindowedAggregate(
        stream=groups.stream,
        key=groups.key,
        windows=groups.windows,
        aggregations=aggregations,
        emit=groups.emit,
        materialized=materialized or Materialized("aggregate"),
        expects=expect_keys,
        late_records=check_late_records(late_records),
    )
    _check_expected(node)
    _check_retention(node)
    _check_inputs(node)
    return KTable(node)


def _check_inputs(node: WindowedAggregate) -> None:
    """Raise DefinitionError if an aggregate reads a column that the stream does not have, if its columns are known."""
    available, what = readable_columns(node.stream), "table" if node.stream.changes else "stream"
    if available is None:
        return
    for name, aggregation in node.aggregations:
        column = None if isinstance(aggregation, Fold) else aggregation.column
        if column is not None and column not in available:
            raise DefinitionError(
                f"`{name}` reads the column {column!r}, which the {what} does not have. "
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


def check_merger(merger: Any, windows: Windows | None) -> None:
    if merger is None and isinstance(windows, SessionWindows):
        raise DefinitionError(
            "`merger` is missing: a record can bridge two sessions, and then their aggregates become one. "
            "Give merger=lambda key, a, b: ..."
        )


def _check_expected(node: WindowedAggregate) -> None:
    """Raise DefinitionError or DefinitionTypeError for expected keys that cannot be used here."""
    keys = node.expects
    if keys is None:
        return
    if not isinstance(node.windows, TimeWindows | BatchWindows):
        what = "there are no windows" if node.windows is None else f"{node.windows} exist or close by their records"
        raise DefinitionError(
            f"`expect_keys` cannot be used here: {what}, so nothing says when a key is missing. "
            "Use TimeWindows or BatchWindows."
        )
    as_table = has(keys, "schema") or has(keys, "__arrow_c_stream__")
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
    parts = {} if node.windows is None else node.windows.retention_parts()
    if not parts:
        kind = "has no windows" if node.windows is None else f"has {node.windows}, which never close"
        warn(
            f"The retention of {show_ms(retention_ms)} is not used: the aggregation {kind}, and it is about closed "
            "windows. Leave with_retention out."
        )
        return
    least = sum(parts.values())
    if retention_ms < least:
        named = " plus ".join(f"{name} ({show_ms(ms)})" for name, ms in parts.items())
        raise DefinitionError(
            f"The retention of {show_ms(retention_ms)} is shorter than {node.windows} need: {named}, together "
            f"{show_ms(least)}. Use with_retention({show_ms(least)!r}) or more."
        )
