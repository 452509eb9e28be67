"""Time windows: tumbling and hopping. `TimeWindows.close_ms` has the close rule."""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import gcd

from tidegate.errors import DefinitionError, warn
from tidegate.instants import Duration, Window, duration_ms, later_ms, show_ms
from tidegate.spec.windows.grace import grace_ms_of

MANY_PANES = 1_000
"""A hopping window with more panes than this causes a warning."""


@dataclass(frozen=True)
class TimeWindows:
    """Windows of one size that start at every multiple of `advance`: tumbling, or hopping if they overlap.

    The window that starts at s is [s, s + size). s is never negative, so near 0 a record has fewer windows.

    Source: Kafka Streams `TimeWindows`, KIP-328 (grace), KIP-633 (no default grace).

    Attributes:
        size_ms: The size in milliseconds.
        advance_ms: The time from the start of a window to the start of the next one.
        grace_ms: How long a window accepts records after its end, in milliseconds of stream time.

    Examples:
        >>> hopping = tg.TimeWindows.of_size_and_grace("10 minutes", "1 minute").advance_by("5 minutes")
        >>> print(hopping)
        TimeWindows of 10 minutes, one every 5 minutes
        >>> hopping.size_ms, hopping.advance_ms, hopping.grace_ms
        (600000, 300000, 60000)
    """

    size_ms: int
    advance_ms: int
    grace_ms: int

    @classmethod
    def of_size_and_grace(cls, size: Duration, grace: Duration) -> TimeWindows:
        """Tumbling windows that accept records until stream time reaches their end plus `grace`.

        Args:
            size: The length of a window, as a timedelta or as text ("10 minutes").
            grace: How long a window accepts records after its end; with zero it accepts none.

        Returns:
            The windows. `advance_by` turns them into hopping windows.

        Raises:
            DefinitionError: `size` is not larger than zero, or `grace` is negative.
            DefinitionTypeError: An argument is no duration.

        Examples:
            >>> tg.TimeWindows.of_size_and_grace("10 minutes", "1 minute").windows_for(700_000)
            [Window(start=600000, end=1200000)]
        """
        size_ms = duration_ms(size, "size")
        if size_ms <= 0:
            raise DefinitionError(
                f'`size` is {show_ms(size_ms)}: a window\'s size must be larger than zero. Use for example "2 minutes".'
            )
        return cls(size_ms, size_ms, grace_ms_of(grace))

    @classmethod
    def of_size_with_no_grace(cls, size: Duration) -> TimeWindows:
        """Tumbling windows that accept no record once stream time has reached their end.

        Args:
            size: The length of a window.

        Returns:
            The windows.

        Raises:
            DefinitionError: `size` is not larger than zero.
            DefinitionTypeError: An argument is no duration.

        Examples:
            >>> tg.TimeWindows.of_size_with_no_grace("1 hour").grace_ms
            0
        """
        return cls.of_size_and_grace(size, "0 seconds")

    def advance_by(self, advance: Duration) -> TimeWindows:
        """The same windows, but one starts every `advance`; keeps the grace.

        Args:
            advance: The time from the start of a window to the start of the next one.

        Returns:
            Hopping windows. A window of more than a thousand panes causes a warning.

        Raises:
            DefinitionError: `advance` is not larger than zero, or is larger than the size.
            DefinitionTypeError: An argument is no duration.

        Examples:
            >>> hopping = tg.TimeWindows.of_size_with_no_grace("10 ms").advance_by("5 ms")
            >>> hopping.windows_for(12)
            [Window(start=5, end=15), Window(start=10, end=20)]
        """
        advance_ms = duration_ms(advance, "advance")
        if advance_ms <= 0:
            raise DefinitionError(
                f"`advance` is {show_ms(advance_ms)}: the advancement interval must be larger than zero. "
                f"Use at most the size, {show_ms(self.size_ms)}."
            )
        if advance_ms > self.size_ms:
            raise DefinitionError(
                f"`advance` is {show_ms(advance_ms)} but `size` is {show_ms(self.size_ms)}: windows would leave gaps "
                f"and records in them would be lost. Use an advancement interval of at most {show_ms(self.size_ms)}."
            )
        pane_ms = gcd(self.size_ms, advance_ms)
        if self.size_ms // pane_ms > MANY_PANES:
            warn(
                f"A window of {show_ms(self.size_ms)} that starts every {show_ms(advance_ms)} is put together from "
                f"{self.size_ms // pane_ms:,} panes of {show_ms(pane_ms)}, their largest common measure: every close "
                f"reads them all, and a record is in up to {-(-self.size_ms // advance_ms):,} windows. "
                "Use a longer advance, or one that divides the size."
            )
        return replace(self, advance_ms=advance_ms)

    def windows_for(self, timestamp_ms: int) -> list[Window]:
        """The windows that a record belongs to.

        Args:
            timestamp_ms: The timestamp of the record.

        Returns:
            The windows, ascending.

        Examples:
            >>> tg.TimeWindows.of_size_with_no_grace("10 ms").windows_for(12)
            [Window(start=10, end=20)]
        """
        last = timestamp_ms - timestamp_ms % self.advance_ms
        first = max(0, (timestamp_ms - self.size_ms) // self.advance_ms * self.advance_ms + self.advance_ms)
        return [Window(start, self.end_ms(start)) for start in range(first, last + 1, self.advance_ms)]

    def close_ms(self, start_ms: int) -> int:
        """The stream time at which a window closes: its end plus the grace.

        Closed iff stream time >= end + grace.

        Args:
            start_ms: The start of the window.

        Returns:
            The first stream time at which the window is closed.

        Examples:
            >>> tg.TimeWindows.of_size_and_grace("10 ms", "5 ms").close_ms(0)
            15
        """
        close: int = later_ms(start_ms, self.size_ms + self.grace_ms)
        return close

    def end_ms(self, start_ms: int) -> int:
        """The end of a window; it does not belong to the window.

        Args:
            start_ms: The start of the window.

        Returns:
            The end in milliseconds.

        Examples:
            >>> tg.TimeWindows.of_size_with_no_grace("10 ms").end_ms(20)
            30
        """
        end: int = later_ms(start_ms, self.size_ms)
        return end

    def retention_parts(self) -> dict[str, int]:
        """The parts of the shortest retention: size plus grace (Kafka's rule).

        Returns:
            Milliseconds by name.

        Examples:
            >>> tg.TimeWindows.of_size_and_grace("10 ms", "5 ms").retention_parts()
            {'size': 10, 'grace': 5}
        """
        return {"size": self.size_ms, "grace": self.grace_ms}

    def __str__(self) -> str:
        shape = f"TimeWindows of {show_ms(self.size_ms)}"
        if self.advance_ms != self.size_ms:
            shape += f", one every {show_ms(self.advance_ms)}"
        return shape
