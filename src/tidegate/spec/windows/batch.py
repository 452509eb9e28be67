"""Batch windows. `BatchWindows.close_ms` has the close rule."""

from __future__ import annotations

from dataclasses import dataclass

from tidegate.errors import DefinitionError
from tidegate.instants import Duration, Window, duration_ms, later_ms, show_ms


@dataclass(frozen=True)
class BatchWindows:
    """Windows of one size by stream time: a record goes into the current window, whatever its own timestamp.

    The current window is [floor(stream time / size) * size, ... + size). Stream time includes the record. So only one
    window is open at a time, no record is ever late, and a window closes when stream time reaches its end.

    Source: the BatchWindows proposal (KIP-1127); not in Kafka Streams.

    Attributes:
        size_ms: The size in milliseconds.
        grace_ms: Always 0: no record is late.

    Examples:
        >>> driver = TopologyTestDriver(events.group_by_key().windowed_by(tg.BatchWindows.of_size("10 ms")).count())
        >>> driver.pipe_batch([{"user": "A", "ts": 25}, {"user": "A", "ts": 3}])
        >>> [(tuple(row["window"]), row["count"]) for row in driver.read_output()]
        [((20, 30), 2)]
    """

    size_ms: int
    grace_ms: int = 0

    @classmethod
    def of_size(cls, size: Duration) -> BatchWindows:
        """Windows of this size.

        Args:
            size: The length of a window.

        Returns:
            The windows.

        Raises:
            DefinitionError: The size is not larger than zero.
            DefinitionTypeError: An argument is no duration.

        Examples:
            >>> print(tg.BatchWindows.of_size("10 seconds"))
            BatchWindows of 10 seconds
        """
        size_ms = duration_ms(size, "size")
        if size_ms <= 0:
            raise DefinitionError(
                f"`size` is {show_ms(size_ms)}: a window's size must be larger than zero. "
                'Use for example "10 seconds".'
            )
        return cls(size_ms)

    def windows_for(self, timestamp_ms: int, stream_time_ms: int | None = None) -> list[Window]:
        """The window of a record.

        Args:
            timestamp_ms: The timestamp of the record.
            stream_time_ms: The stream time before the record; None for the first record.

        Returns:
            The one window.

        Examples:
            >>> tg.BatchWindows.of_size("10 ms").windows_for(3, stream_time_ms=25)
            [Window(start=20, end=30)]
        """
        now = timestamp_ms if stream_time_ms is None else max(timestamp_ms, stream_time_ms)
        start = now // self.size_ms * self.size_ms
        return [Window(start, self.end_ms(start))]

    def close_ms(self, start_ms: int) -> int:
        """The stream time at which a window closes: its end.

        Args:
            start_ms: The start of the window.

        Returns:
            The first stream time at which the window is closed.

        Examples:
            >>> tg.BatchWindows.of_size("10 ms").close_ms(20)
            30
        """
        return self.end_ms(start_ms)

    def end_ms(self, start_ms: int) -> int:
        """The end of a window; it does not belong to the window.

        Args:
            start_ms: The start of the window.

        Returns:
            The end in milliseconds.

        Examples:
            >>> tg.BatchWindows.of_size("10 ms").end_ms(20)
            30
        """
        end: int = later_ms(start_ms, self.size_ms)
        return end

    def retention_parts(self) -> dict[str, int]:
        """The parts of the shortest retention: size plus grace (Kafka's rule).

        Returns:
            Milliseconds by name.

        Examples:
            >>> tg.BatchWindows.of_size("10 ms").retention_parts()
            {'size': 10, 'grace': 0}
        """
        return {"size": self.size_ms, "grace": self.grace_ms}

    def __str__(self) -> str:
        return f"BatchWindows of {show_ms(self.size_ms)}"
