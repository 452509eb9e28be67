"""Sliding windows. `SlidingWindows.open_from_ms` and `SlidingWindows.close_of_end_ms` have the close rule."""

from __future__ import annotations

from dataclasses import dataclass

from tidegate.errors import DefinitionError
from tidegate.instants import Duration, duration_ms, earlier_ms, later_ms, show_ms
from tidegate.spec.windows.grace import grace_ms_of


@dataclass(frozen=True)
class SlidingWindows:
    """Windows around the records: each record has one window that ends with it, and one that begins just after it.

    A window is [start, start + time_difference], both ends included. A key has only windows that contain a record. Two
    records at most `time_difference` apart share a window.

    Source: Kafka Streams `SlidingWindows`, KIP-450.

    Attributes:
        time_difference_ms: The largest distance of two records in one window.
        grace_ms: How long a window accepts records after its end.

    Examples:
        >>> windows = tg.SlidingWindows.of_time_difference_with_no_grace("10 ms")
        >>> driver = TopologyTestDriver(events.group_by_key().windowed_by(windows).count())
        >>> driver.pipe_batch([{"user": "A", "ts": 20}, {"user": "A", "ts": 25}])
        >>> [(tuple(row["window"]), row["count"]) for row in driver.read_output()]
        [((10, 20), 1), ((21, 31), 1), ((15, 25), 2)]
    """

    time_difference_ms: int
    grace_ms: int

    @classmethod
    def of_time_difference_and_grace(cls, time_difference: Duration, grace: Duration) -> SlidingWindows:
        """Windows that accept records until stream time has passed their end by more than `grace`.

        Args:
            time_difference: The largest distance of two records in one window.
            grace: How long a window accepts records after its end.

        Returns:
            The windows.

        Raises:
            DefinitionError: One of the two is negative.
            DefinitionTypeError: An argument is no duration.

        Examples:
            >>> print(tg.SlidingWindows.of_time_difference_and_grace("10 minutes", "1 minute"))
            SlidingWindows of 10 minutes
        """
        difference_ms = duration_ms(time_difference, "time_difference")
        if difference_ms < 0:
            raise DefinitionError(
                f"`time_difference` is {show_ms(difference_ms)}: the time difference must not be negative. "
                "Use the largest distance of two records that belong together."
            )
        return cls(difference_ms, grace_ms_of(grace))

    @classmethod
    def of_time_difference_with_no_grace(cls, time_difference: Duration) -> SlidingWindows:
        """Windows that accept no record once stream time has passed their end.

        Args:
            time_difference: The largest distance of two records in one window.

        Returns:
            The windows.

        Raises:
            DefinitionError: The difference is negative.
            DefinitionTypeError: An argument is no duration.

        Examples:
            >>> tg.SlidingWindows.of_time_difference_with_no_grace("10 minutes").grace_ms
            0
        """
        return cls.of_time_difference_and_grace(time_difference, "0 seconds")

    def end_ms(self, start_ms: int) -> int:
        """The last instant of a window.

        Args:
            start_ms: The start of the window.

        Returns:
            The end in milliseconds; it belongs to the window.

        Examples:
            >>> tg.SlidingWindows.of_time_difference_with_no_grace("10 ms").end_ms(5)
            15
        """
        end: int = later_ms(start_ms, self.time_difference_ms)
        return end

    def open_from_ms(self, stream_time: int) -> int:
        """The earliest end of an open window; a window that ends earlier is closed.

        Closed iff end < stream time - grace: both ends belong to the window.

        Args:
            stream_time: The stream time.

        Returns:
            The earliest end in milliseconds.

        Examples:
            >>> tg.SlidingWindows.of_time_difference_and_grace("10 ms", "5 ms").open_from_ms(30)
            25
        """
        open_from: int = earlier_ms(stream_time, self.grace_ms)
        return open_from

    def close_of_end_ms(self, end_ms: int) -> int:
        """The stream time at which a window with this end closes: the inverse of `open_from_ms`.

        Args:
            end_ms: The last instant of the window.

        Returns:
            The first stream time at which the window is closed.

        Examples:
            >>> tg.SlidingWindows.of_time_difference_and_grace("10 ms", "5 ms").close_of_end_ms(25)
            31
        """
        close: int = later_ms(end_ms, self.grace_ms + 1)
        return close

    def retention_parts(self) -> dict[str, int]:
        """The parts of the shortest retention: twice the time difference plus grace (Kafka's rule).

        Returns:
            Milliseconds by name.

        Examples:
            >>> tg.SlidingWindows.of_time_difference_and_grace("10 ms", "5 ms").retention_parts()
            {'twice the time difference': 20, 'grace': 5}
        """
        return {"twice the time difference": 2 * self.time_difference_ms, "grace": self.grace_ms}

    def __str__(self) -> str:
        return f"SlidingWindows of {show_ms(self.time_difference_ms)}"
