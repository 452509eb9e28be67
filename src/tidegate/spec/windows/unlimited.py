"""Unlimited windows, which never close."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from tidegate.errors import DefinitionError
from tidegate.instants import MAX_MS, Window, given_instant_ms


@dataclass(frozen=True)
class UnlimitedWindows:
    """One window per key that starts at `start_ms` and never closes; earlier records belong to no window.

    Attributes:
        start_ms: The start in epoch milliseconds.
        grace_ms: Always 0: the window never ends.

    Examples:
        >>> print(tg.UnlimitedWindows.start_on(datetime(2026, 1, 1, tzinfo=UTC)))
        UnlimitedWindows from 1767225600000 ms
    """

    start_ms: int
    grace_ms: int = 0

    @classmethod
    def start_on(cls, start: int | datetime) -> UnlimitedWindows:
        """The window that starts at an instant.

        Args:
            start: Epoch milliseconds or a datetime.

        Returns:
            The window.

        Raises:
            DefinitionError: The instant is negative, or has more milliseconds than 64 bits hold.
            DefinitionTypeError: `start` is neither a whole number nor a datetime.

        Examples:
            >>> tg.UnlimitedWindows.start_on(1_000).start_ms
            1000
        """
        start_ms = given_instant_ms(start, "start")
        if start_ms < 0:
            raise DefinitionError(f"`start` is {start_ms} ms: an instant must not be negative. Use 0 or later.")
        return cls(start_ms)

    def windows_for(self, timestamp_ms: int) -> list[Window]:
        """The one window, if the record is not before its start.

        Args:
            timestamp_ms: The timestamp of the record.

        Returns:
            A list with the window, or an empty list.

        Examples:
            >>> tg.UnlimitedWindows.start_on(1_000).windows_for(999)
            []
        """
        return [Window(self.start_ms, MAX_MS)] if timestamp_ms >= self.start_ms else []

    def close_ms(self, start_ms: int) -> int:
        """The stream time at which the window closes: never.

        Args:
            start_ms: The start of the window.

        Returns:
            The largest instant there is.

        Examples:
            >>> tg.UnlimitedWindows.start_on(0).close_ms(0) == 2**63 - 1
            True
        """
        return MAX_MS

    def end_ms(self, start_ms: int) -> int:
        """The end of the window: none.

        Args:
            start_ms: The start of the window.

        Returns:
            The largest instant there is.

        Examples:
            >>> tg.UnlimitedWindows.start_on(0).end_ms(0) == 2**63 - 1
            True
        """
        return MAX_MS

    def retention_parts(self) -> dict[str, int]:
        """The parts of the shortest retention: none, because the window never closes.

        Returns:
            An empty dict.

        Examples:
            >>> tg.UnlimitedWindows.start_on(0).retention_parts()
            {}
        """
        return {}

    def __str__(self) -> str:
        return f"UnlimitedWindows from {self.start_ms} ms"
