"""Grouped streams, and cogroups of several of them. Each creates the other, so both are in one module."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from tidegate.dsl.aggregating import WAYS_OF_GROUPS, Aggregating, aggregated, check_merger
from tidegate.dsl.checks import FOLDS, MERGES, check_function, check_type
from tidegate.dsl.merging import merged
from tidegate.dsl.tables import KTable
from tidegate.dsl.windowed import SessionWindowedKStream, TimeWindowedKStream
from tidegate.errors import DefinitionError, DefinitionTypeError
from tidegate.plan import Stream, merge_conflict
from tidegate.spec.aggregates import Cogroup, PerInput
from tidegate.spec.columns import ROW, START, public_key
from tidegate.spec.emit import EmitStrategy
from tidegate.spec.materialized import Materialized
from tidegate.spec.missing import refuse, without
from tidegate.spec.steps import OneColumn
from tidegate.spec.windows import BatchWindows, SessionWindows, Windows


@dataclass(frozen=True, repr=False)
class KGroupedStream(Aggregating):
    """A stream grouped by `key`. Aggregate it directly, or cut it into windows first.

    Without windows a record without a value is skipped and counted, and a row has no `window`.

    Examples:
        >>> events.group_by("city")
        <KGroupedStream events by city>
    """

    _ways: ClassVar[Mapping[str, str]] = WAYS_OF_GROUPS | {
        "emit_strategy": "Window the groups first: groups.windowed_by(...).emit_strategy(...)"
    }

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
        join = next((branch.follows for branch in self.stream.branches if branch.follows is not None), None)
        if isinstance(windows, BatchWindows) and join is not None:
            raise DefinitionError(
                f"{windows} put every record into the window of the stream time it sees, and rows of {join!r} see the "
                "time of its slowest partition before their batch. Use TimeWindows, or give the streams of the join "
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
        """Aggregate this stream and others into one table, each with its own aggregator (KIP-150).

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
        return CogroupedKStream(((self, check_function(aggregator, "aggregator", *FOLDS)),))


@dataclass(frozen=True, repr=False)
class CogroupedKStream:
    """Grouped streams with the same key, each with its aggregator, to be aggregated into one table.

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
        """Add another grouped stream with its own aggregator.

        Args:
            grouped: A grouped stream with the same key.
            aggregator: `aggregator(key, row, aggregate)`, called for the records of that stream.

        Returns:
            The cogroup with one stream more.

        Raises:
            DefinitionError: The stream has another key, or other columns for timestamp, partition or offset.
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
        return replace(self, parts=(*self.parts, (grouped, check_function(aggregator, "aggregator", *FOLDS))))

    def windowed_by(self, windows: Windows) -> CogroupedKStream:
        """Cut each group into windows.

        Args:
            windows: As in `KGroupedStream.windowed_by`.

        Returns:
            The windowed cogroup.

        Raises:
            DefinitionTypeError: `windows` is not a kind of window.

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
            DefinitionTypeError: `strategy` is no EmitStrategy.

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
        """Fold records per key (and window) into one column, each by the aggregator of its stream.

        There is one stream time over all inputs, so a final row is final. An aggregator gets rows with the columns of
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
        check_type(type)
        aggregators = PerInput(tuple(aggregator for _, aggregator in self.parts))
        checked = None if merger is None else check_function(merger, "merger", *MERGES)
        fold = Cogroup(check_function(initializer, "initializer"), aggregators, type, checked)
        check_merger(merger, self.windows)
        grouped = KGroupedStream(_cogrouped([part.stream for part, _ in self.parts], self._key), self._key)
        if self.windows is None:
            return aggregated(grouped, ((name, fold),), materialized, expect_keys)
        windowed = replace(grouped.windowed_by(self.windows), emit=self.emit)
        return aggregated(windowed, ((name, fold),), materialized, expect_keys)

    @property
    def _key(self) -> tuple[str, ...]:
        return self.parts[0][0].key


_UNTIL_COGROUPS_AGGREGATE = dict.fromkeys(
    ("count", "agg", "reduce"),
    "aggregate(initializer, type=...), or clicks.merge(views) of streams with the same columns and then agg",
)


def _cogrouped(streams: Sequence[Stream], key: tuple[str, ...]) -> Stream:
    """The streams merged; each record becomes one column that belongs to its stream."""
    steps = [OneColumn(n, key, tuple(dict.fromkeys((*key, *node.kept)))) for n, node in enumerate(streams)]
    together = merged([node.then(step) for node, step in zip(streams, steps, strict=True)])
    return replace(together, non_values=(*together.non_values, *(f"{ROW}{step.number}" for step in steps)))
