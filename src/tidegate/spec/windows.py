"""The windows. Each kind owns its shape and its close rule, and nothing else decides them.

A window is *closed* for a record when the stream time the record sees has reached the window's close time;
from then on the window takes nothing more and its result is final.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime

from tidegate.errors import DefinitionError, DefinitionTypeError
from tidegate.instants import MAX_MS, Duration, Window, duration_ms, instant_ms, show_ms


def _grace_ms(grace: Duration) -> int:
    ms = duration_ms(grace, "grace")
    if ms < 0:
        raise DefinitionError(
            f"`grace` is {show_ms(ms)}: Grace period must not be negative. Use zero to take no record after the end."
        )
    return ms


@dataclass(frozen=True)
class TimeWindows:
    """Windows of one size that start at every multiple of `advance`: tumbling, or hopping where they overlap.

    The window that starts at s is [s, s + size); s is never negative, so near 0 a record has fewer windows.
    `TimeWindows.of_size_and_grace("10 minutes", "1 minute").advance_by("5 minutes")` has [0, 10), [5, 15), ...

    Source: Kafka Streams `TimeWindows`, KIP-328 (grace), KIP-633 (no default grace).
    """

    size_ms: int
    advance_ms: int
    grace_ms: int

    @classmethod
    def of_size_and_grace(cls, size: Duration, grace: Duration) -> TimeWindows:
        """Tumbling windows that take records until stream time reaches their end plus `grace`.

        Raises DefinitionError if `size` is not larger than zero or `grace` is negative.
        """
        size_ms = duration_ms(size, "size")
        if size_ms <= 0:
            raise DefinitionError(
                f'`size` is {show_ms(size_ms)}: a window\'s size must be larger than zero. Use for example "2 minutes".'
            )
        return cls(size_ms, size_ms, _grace_ms(grace))

    @classmethod
    def of_size_with_no_grace(cls, size: Duration) -> TimeWindows:
        """Tumbling windows that take nothing once stream time has reached their end."""
        return cls.of_size_and_grace(size, "0 seconds")

    def advance_by(self, advance: Duration) -> TimeWindows:
        """The same windows, one starting every `advance`; keeps the grace.

        Raises DefinitionError unless 0 < advance <= size.
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
        return replace(self, advance_ms=advance_ms)

    def windows_for(self, timestamp_ms: int) -> list[Window]:
        """The windows a record at `timestamp_ms` belongs to, ascending."""
        last = timestamp_ms - timestamp_ms % self.advance_ms
        first = max(0, (timestamp_ms - self.size_ms) // self.advance_ms * self.advance_ms + self.advance_ms)
        return [Window(start, start + self.size_ms) for start in range(first, last + 1, self.advance_ms)]

    def close_ms(self, start_ms: int) -> int:
        """The stream time at which the window that starts at `start_ms` closes: its end plus the grace.

        Closed iff stream time >= end + grace (SEMANTICS 1.2).
        """
        return start_ms + self.size_ms + self.grace_ms

    def __str__(self) -> str:
        shape = f"TimeWindows of {show_ms(self.size_ms)}"
        if self.advance_ms != self.size_ms:
            shape += f", one every {show_ms(self.advance_ms)}"
        return shape


@dataclass(frozen=True)
class UnlimitedWindows:
    """One window per key that starts at `start_ms` and never closes; earlier records belong to no window."""

    start_ms: int
    grace_ms: int = 0

    @classmethod
    def start_on(cls, start: int | datetime) -> UnlimitedWindows:
        """The window from `start` (epoch milliseconds or a datetime) on. Raises DefinitionError if negative."""
        if isinstance(start, bool) or not isinstance(start, int | datetime):
            raise DefinitionTypeError(f"`start` is {start!r}, not epoch milliseconds or a datetime.")
        start_ms = instant_ms(start)
        if start_ms < 0:
            raise DefinitionError(f"`start` is {start_ms} ms: an instant must not be negative. Use 0 or later.")
        return cls(start_ms)

    def windows_for(self, timestamp_ms: int) -> list[Window]:
        """The one window, if the record is not before its start."""
        return [Window(self.start_ms, MAX_MS)] if timestamp_ms >= self.start_ms else []

    def __str__(self) -> str:
        return f"UnlimitedWindows from {self.start_ms} ms"


Windows = TimeWindows | UnlimitedWindows
