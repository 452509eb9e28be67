"""EmitStrategy: whether a windowed aggregation forwards updates or only final results (KIP-825)."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class EmitStrategy:
    """The rows that a windowed aggregation forwards: only final results, or every update.

    Attributes:
        type: "on_window_close" or "on_window_update".

    Examples:
        >>> tg.EmitStrategy.on_window_close()
        EmitStrategy(type='on_window_close')
    """

    type: str

    @classmethod
    def on_window_close(cls) -> EmitStrategy:
        """One row per key and window, once, when the window closes.

        Returns:
            The strategy.

        Examples:
            >>> windowed = events.group_by_key().windowed_by(tg.TimeWindows.of_size_with_no_grace("10 ms"))
            >>> driver = TopologyTestDriver(windowed.emit_strategy(tg.EmitStrategy.on_window_close()).count())
            >>> driver.pipe_batch([{"user": "A", "ts": 1}, {"user": "A", "ts": 2}, {"user": "A", "ts": 10}])
            >>> [(tuple(row["window"]), row["count"]) for row in driver.read_output()]
            [((0, 10), 2)]
        """
        return cls("on_window_close")

    @classmethod
    def on_window_update(cls) -> EmitStrategy:
        """A row for every update of a key's window; with caching, only for the last update per micro-batch.

        Returns:
            The strategy, which is the default.

        Examples:
            >>> windowed = events.group_by_key().windowed_by(tg.TimeWindows.of_size_with_no_grace("10 ms"))
            >>> driver = TopologyTestDriver(windowed.emit_strategy(tg.EmitStrategy.on_window_update()).count())
            >>> driver.pipe_input({"user": "A", "ts": 1})
            >>> [(tuple(row["window"]), row["count"]) for row in driver.read_output()]
            [((0, 10), 1)]
        """
        return cls("on_window_update")
