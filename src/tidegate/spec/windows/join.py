"""The windows of joins. `JoinWindows.open_from_ms` and `JoinWindows.close_ms` have the close rule of a record,
`JoinWindows.late_before_ms` the rule for late records.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from tidegate.errors import DefinitionError
from tidegate.instants import Duration, duration_ms, earlier_ms, later_ms, show_ms
from tidegate.spec.windows.grace import grace_ms_of

LEFT, RIGHT = 0, 1
"""The sides of a join."""


@dataclass(frozen=True)
class JoinWindows:
    """The time bounds of a join of two streams: a left record at t joins right records in [t - before, t + after].

    Both bounds belong to the window. `before` and `after` are relative to the left record; one of them may be negative.

    A record is open until stream time passes its timestamp plus its reach ahead plus the grace. Arriving records of the
    other side can join an open record, but no closed one.

    Source: Kafka Streams `JoinWindows`, KIP-328 (grace), KIP-633 (no default grace).

    Attributes:
        before_ms: How far before a left record its partners may be.
        after_ms: How far after a left record its partners may be.
        grace_ms: How much longer a record waits for late partners.

    Examples:
        >>> print(tg.JoinWindows.of_time_difference_and_grace("5 minutes", "1 minute"))
        JoinWindows of 5 minutes before and 5 minutes after
    """

    before_ms: int
    after_ms: int
    grace_ms: int

    @classmethod
    def of_time_difference_and_grace(cls, time_difference: Duration, grace: Duration) -> JoinWindows:
        """Windows that join records at most `time_difference` apart.

        Args:
            time_difference: The largest distance of two joined records, in either direction.
            grace: How much longer a record waits for late partners.

        Returns:
            The windows.

        Raises:
            DefinitionError: One of the two is negative.
            DefinitionTypeError: An argument is no duration.

        Examples:
            >>> tg.JoinWindows.of_time_difference_and_grace("5 ms", "1 ms")
            JoinWindows(before_ms=5, after_ms=5, grace_ms=1)
        """
        difference_ms = duration_ms(time_difference, "time_difference")
        return _not_backwards(cls(difference_ms, difference_ms, grace_ms_of(grace)), "time_difference", difference_ms)

    @classmethod
    def of_time_difference_with_no_grace(cls, time_difference: Duration) -> JoinWindows:
        """Windows that join records at most `time_difference` apart; the partners of a late record may be closed.

        Args:
            time_difference: The largest distance of two joined records, in either direction.

        Returns:
            The windows.

        Raises:
            DefinitionError: The difference is negative.
            DefinitionTypeError: An argument is no duration.

        Examples:
            >>> tg.JoinWindows.of_time_difference_with_no_grace("5 ms").grace_ms
            0
        """
        return cls.of_time_difference_and_grace(time_difference, "0 seconds")

    def before(self, before: Duration) -> JoinWindows:
        """The same windows with another bound before the left record; keeps the grace.

        Args:
            before: How far before a left record its partners may be.

        Returns:
            The windows.

        Raises:
            DefinitionError: The window would end before it begins: -`before` is later than `after`.
            DefinitionTypeError: An argument is no duration.

        Examples:
            >>> tg.JoinWindows.of_time_difference_with_no_grace("5 ms").before("0 ms")
            JoinWindows(before_ms=0, after_ms=5, grace_ms=0)
        """
        before_ms = duration_ms(before, "before")
        return _not_backwards(replace(self, before_ms=before_ms), "before", before_ms)

    def after(self, after: Duration) -> JoinWindows:
        """The same windows with another bound after the left record; keeps the grace.

        Args:
            after: How far after a left record its partners may be.

        Returns:
            The windows.

        Raises:
            DefinitionError: The window would end before it begins: `after` is earlier than -`before`.
            DefinitionTypeError: An argument is no duration.

        Examples:
            >>> tg.JoinWindows.of_time_difference_with_no_grace("5 ms").after("1 hour")
            JoinWindows(before_ms=5, after_ms=3600000, grace_ms=0)
        """
        after_ms = duration_ms(after, "after")
        return _not_backwards(replace(self, after_ms=after_ms), "after", after_ms)

    def grace(self, grace: Duration) -> JoinWindows:
        """Always raises: the factory of the windows sets the grace, once.

        Args:
            grace: The intended grace.

        Returns:
            Nothing: the method always raises.

        Raises:
            DefinitionError: Always. The message has the factory to use.

        Examples:
            >>> windows = tg.JoinWindows.of_time_difference_and_grace("5 ms", "1 ms")
        """
        raise DefinitionError(
            f"`grace` is {show_ms(self.grace_ms)} already and is chosen once. Use "
            f"JoinWindows.of_time_difference_and_grace(difference, {show_ms(duration_ms(grace, 'grace'))!r})."
        )

    def ahead_ms(self, side: int) -> int:
        """How far after a record its partners may be.

        Args:
            side: The side of the record: 0 for left, 1 for right.

        Returns:
            Milliseconds.

        Examples:
            >>> windows = tg.JoinWindows.of_time_difference_with_no_grace("5 ms").before("0 ms")
            >>> windows.ahead_ms(0), windows.ahead_ms(1)
            (5, 0)
        """
        return self.before_ms if side == RIGHT else self.after_ms

    def back_ms(self, side: int) -> int:
        """How far before a record its partners may be.

        Args:
            side: The side of the record: 0 for left, 1 for right.

        Returns:
            Milliseconds.

        Examples:
            >>> windows = tg.JoinWindows.of_time_difference_with_no_grace("5 ms").before("0 ms")
            >>> windows.back_ms(0), windows.back_ms(1)
            (0, 5)
        """
        return self.after_ms if side == RIGHT else self.before_ms

    def open_from_ms(self, side: int, stream_time: int) -> int:
        """The earliest timestamp at which a record is open; earlier records are closed.

        Closed iff stream time > timestamp + reach ahead + grace.

        Args:
            side: The side of the record: 0 for left, 1 for right.
            stream_time: The stream time.

        Returns:
            The earliest timestamp.

        Examples:
            >>> tg.JoinWindows.of_time_difference_and_grace("5 ms", "1 ms").open_from_ms(0, 20)
            14
        """
        open_from: int = earlier_ms(stream_time, self.ahead_ms(side) + self.grace_ms)
        return open_from

    def close_ms(self, side: int, timestamp_ms: int) -> int:
        """The stream time at which a record closes: the inverse of `open_from_ms`.

        Args:
            side: The side of the record: 0 for left, 1 for right.
            timestamp_ms: The timestamp of the record.

        Returns:
            The first stream time at which the record is closed.

        Examples:
            >>> tg.JoinWindows.of_time_difference_and_grace("5 ms", "1 ms").close_ms(0, 14)
            21
        """
        close: int = later_ms(timestamp_ms, self.ahead_ms(side) + self.grace_ms + 1)
        return close

    def late_before_ms(self, side: int, stream_time: int) -> int:
        """The timestamp before which a record is late: no other record can join it any more.

        Late iff stream time > timestamp + reach ahead + max(reach back, 0) + grace.

        Args:
            side: The side of the record: 0 for left, 1 for right.
            stream_time: The stream time.

        Returns:
            The timestamp.

        Examples:
            >>> tg.JoinWindows.of_time_difference_and_grace("5 ms", "1 ms").late_before_ms(0, 20)
            9
        """
        reach = self.ahead_ms(side) + max(self.back_ms(side), 0) + self.grace_ms
        late_before: int = earlier_ms(stream_time, reach)
        return late_before

    def __str__(self) -> str:
        return f"JoinWindows of {show_ms(self.before_ms)} before and {show_ms(self.after_ms)} after"


def _not_backwards(windows: JoinWindows, argument: str, value_ms: int) -> JoinWindows:
    """The windows. Raises DefinitionError, naming `argument`, if they end before they begin."""
    if windows.before_ms + windows.after_ms < 0:
        raise DefinitionError(
            f"`{argument}` is {show_ms(value_ms)}, so that the window of a left record at t would be "
            f"[t - {show_ms(windows.before_ms)}, t + {show_ms(windows.after_ms)}]: its end must not lie before its "
            "start. Use a time difference that is not negative, or a before and an after whose sum is not."
        )
    return windows
