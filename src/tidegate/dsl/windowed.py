"""Grouped streams cut into windows."""

from __future__ import annotations

from dataclasses import dataclass, replace

from tidegate.dsl.aggregating import Aggregating
from tidegate.errors import DefinitionError, DefinitionTypeError
from tidegate.spec.emit import EmitStrategy
from tidegate.spec.windows import UnlimitedWindows


@dataclass(frozen=True, repr=False)
class TimeWindowedKStream(Aggregating):
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
            DefinitionError: `on_window_close` with unlimited windows, which never close.
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
