"""The windows. Each kind owns its shape and its close rule, and nothing else decides them.

A window is *closed* for a record when the stream time the record sees has reached the window's close time;
from then on the window takes nothing more and its result is final.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime
from math import gcd

from tidegate.errors import DefinitionError, DefinitionTypeError, warn
from tidegate.instants import MAX_MS, Duration, Window, duration_ms, earlier_ms, instant_ms, later_ms, show_ms

MANY_PANES = 1_000
"""A hopping window of more panes than this is warned about."""


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

    The window that starts at s is [s, s + size). s is never negative, so near 0 a record has fewer windows.

    Source: Kafka Streams `TimeWindows`, KIP-328 (grace), KIP-633 (no default grace).

    Attributes:
        size_ms: The size in milliseconds.
        advance_ms: The time from the start of a window to that of the next one.
        grace_ms: How long a window takes records after its end.

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
        """Tumbling windows that take records until stream time reaches their end plus `grace`.

        Args:
            size: The length of a window, as a timedelta or as text ("10 minutes").
            grace: How long a window takes records after its end; zero takes none.

        Returns:
            The windows. `advance_by` makes hopping windows of them.

        Raises:
            DefinitionError: `size` is not larger than zero, or `grace` is negative.

        Examples:
            >>> tg.TimeWindows.of_size_and_grace("10 minutes", "1 minute").windows_for(700_000)
            [Window(start=600000, end=1200000)]
        """
        size_ms = duration_ms(size, "size")
        if size_ms <= 0:
            raise DefinitionError(
                f'`size` is {show_ms(size_ms)}: a window\'s size must be larger than zero. Use for example "2 minutes".'
            )
        return cls(size_ms, size_ms, _grace_ms(grace))

    @classmethod
    def of_size_with_no_grace(cls, size: Duration) -> TimeWindows:
        """Tumbling windows that take nothing once stream time has reached their end.

        Args:
            size: The length of a window.

        Returns:
            The windows.

        Raises:
            DefinitionError: `size` is not larger than zero.

        Examples:
            >>> tg.TimeWindows.of_size_with_no_grace("1 hour").grace_ms
            0
        """
        return cls.of_size_and_grace(size, "0 seconds")

    def advance_by(self, advance: Duration) -> TimeWindows:
        """The same windows, one starting every `advance`; keeps the grace.

        Args:
            advance: The time from the start of a window to that of the next one.

        Returns:
            Hopping windows. A warning says so if a window has more than a thousand panes.

        Raises:
            DefinitionError: `advance` is not larger than zero, or is larger than the size.

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

        Closed iff stream time >= end + grace (SEMANTICS 1.2).

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

    def __str__(self) -> str:
        shape = f"TimeWindows of {show_ms(self.size_ms)}"
        if self.advance_ms != self.size_ms:
            shape += f", one every {show_ms(self.advance_ms)}"
        return shape


@dataclass(frozen=True)
class SlidingWindows:
    """Windows around the records themselves: every record has one that ends with it, and one that begins after it.

    A window is [start, start + time_difference], both ends included; a key has only those that hold a record. Only the
    distinct contents matter: two records at most `time_difference` apart are together in a window.

    Source: Kafka Streams `SlidingWindows`, KIP-450.

    Attributes:
        time_difference_ms: The largest distance of two records in one window.
        grace_ms: How long a window takes records after its end.

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
        """Windows that take records until stream time has passed their end by more than `grace`.

        Args:
            time_difference: The largest distance of two records in one window.
            grace: How long a window takes records after its end.

        Returns:
            The windows.

        Raises:
            DefinitionError: One of the two is negative.

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
        return cls(difference_ms, _grace_ms(grace))

    @classmethod
    def of_time_difference_with_no_grace(cls, time_difference: Duration) -> SlidingWindows:
        """Windows that take nothing once stream time has passed their end.

        Args:
            time_difference: The largest distance of two records in one window.

        Returns:
            The windows.

        Raises:
            DefinitionError: The difference is negative.

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
        """The earliest end of a window that is open; one that ends before is closed.

        Closed iff end < stream time - grace (SEMANTICS 1.2): both ends belong to the window.

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
        """The stream time at which a window with this end closes: `open_from_ms` turned around.

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

    def __str__(self) -> str:
        return f"SlidingWindows of {show_ms(self.time_difference_ms)}"


@dataclass(frozen=True)
class SessionWindows:
    """Periods of activity of a key: records at most `inactivity_gap` apart, that gap included, are one session.

    A session is [first record, last record], both ends included.

    Source: Kafka Streams `SessionWindows`.

    Attributes:
        inactivity_gap_ms: The longest pause within a session.
        grace_ms: How long a session takes records after its gap is over.

    Examples:
        >>> visits = tg.SessionWindows.of_inactivity_gap_with_no_grace("10 ms")
        >>> final = events.group_by_key().windowed_by(visits).emit_strategy(tg.EmitStrategy.on_window_close())
        >>> driver = TopologyTestDriver(final.count())
        >>> driver.pipe_batch([{"user": "A", "ts": 1}, {"user": "A", "ts": 9}, {"user": "A", "ts": 50}])
        >>> [(tuple(row["window"]), row["count"]) for row in driver.read_output()]
        [((1, 9), 2)]
    """

    inactivity_gap_ms: int
    grace_ms: int

    @classmethod
    def of_inactivity_gap_and_grace(cls, inactivity_gap: Duration, grace: Duration) -> SessionWindows:
        """Sessions that take records until stream time has passed their end by more than gap and grace.

        Args:
            inactivity_gap: The longest pause within a session.
            grace: How long a session takes records after its gap is over.

        Returns:
            The windows.

        Raises:
            DefinitionError: The gap is not larger than zero, or the grace is negative.

        Examples:
            >>> print(tg.SessionWindows.of_inactivity_gap_and_grace("30 minutes", "1 minute"))
            SessionWindows with a gap of 30 minutes
        """
        gap_ms = duration_ms(inactivity_gap, "inactivity_gap")
        if gap_ms <= 0:
            raise DefinitionError(
                f"`inactivity_gap` is {show_ms(gap_ms)}: the gap cannot be zero or negative. "
                'Use for example "30 seconds".'
            )
        return cls(gap_ms, _grace_ms(grace))

    @classmethod
    def of_inactivity_gap_with_no_grace(cls, inactivity_gap: Duration) -> SessionWindows:
        """Sessions that take nothing once stream time has passed their end by more than the gap.

        Args:
            inactivity_gap: The longest pause within a session.

        Returns:
            The windows.

        Raises:
            DefinitionError: The gap is not larger than zero.

        Examples:
            >>> tg.SessionWindows.of_inactivity_gap_with_no_grace("30 minutes").inactivity_gap_ms
            1800000
        """
        return cls.of_inactivity_gap_and_grace(inactivity_gap, "0 seconds")

    def open_from_ms(self, stream_time: int) -> int:
        """The earliest end of a session that is open; one that ends before is closed.

        Closed iff end < stream time - grace - gap (SEMANTICS 1.2): until then a record could still prolong it.

        Args:
            stream_time: The stream time.

        Returns:
            The earliest end in milliseconds.

        Examples:
            >>> tg.SessionWindows.of_inactivity_gap_and_grace("10 ms", "5 ms").open_from_ms(40)
            25
        """
        open_from: int = earlier_ms(stream_time, self.grace_ms + self.inactivity_gap_ms)
        return open_from

    def close_of_end_ms(self, end_ms: int) -> int:
        """The stream time at which a session with this end closes: `open_from_ms` turned around.

        Args:
            end_ms: The timestamp of the last record.

        Returns:
            The first stream time at which the session is closed.

        Examples:
            >>> tg.SessionWindows.of_inactivity_gap_and_grace("10 ms", "5 ms").close_of_end_ms(25)
            41
        """
        close: int = later_ms(end_ms, self.grace_ms + self.inactivity_gap_ms + 1)
        return close

    def __str__(self) -> str:
        return f"SessionWindows with a gap of {show_ms(self.inactivity_gap_ms)}"


@dataclass(frozen=True)
class BatchWindows:
    """Windows of one size that stream time, not the record, chooses: a record joins the one that is current.

    The current window is [floor(stream time / size) * size, ... + size), with stream time including the record. So
    there is one open window at a time, no record is ever late, and a window closes when stream time reaches its end.

    Source: the BatchWindows proposal (KIP-1127); not in Kafka Streams.

    Attributes:
        size_ms: The size in milliseconds.
        grace_ms: Always 0: there is nothing to wait for.

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
            stream_time_ms: The stream time before the record; None if no record came before.

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
        end: int = later_ms(start_ms, self.size_ms)
        return end

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

    def __str__(self) -> str:
        return f"BatchWindows of {show_ms(self.size_ms)}"


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
        """The window from an instant on.

        Args:
            start: Epoch milliseconds or a datetime.

        Returns:
            The window.

        Raises:
            DefinitionError: The instant is negative.
            DefinitionTypeError: `start` is neither a whole number nor a datetime.

        Examples:
            >>> tg.UnlimitedWindows.start_on(1_000).start_ms
            1000
        """
        if isinstance(start, bool) or not isinstance(start, int | datetime):
            raise DefinitionTypeError(f"`start` is {start!r}, not epoch milliseconds or a datetime.")
        start_ms = instant_ms(start)
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

    def __str__(self) -> str:
        return f"UnlimitedWindows from {self.start_ms} ms"


LEFT, RIGHT = 0, 1
"""The sides of a join."""


@dataclass(frozen=True)
class JoinWindows:
    """Which records of two streams meet: a left record at t meets the right ones in [t - before, t + after].

    Both bounds belong to the window. `before` and `after` are relative to the left record; one of them may be negative.

    A record is open until stream time passes its timestamp plus its reach ahead plus the grace. Until then records
    of the other side that come may join it, and afterwards none.

    Source: Kafka Streams `JoinWindows`, KIP-328 (grace), KIP-633 (no default grace), SEMANTICS 7b (the close rule).

    Attributes:
        before_ms: How far before a left record its partners may be.
        after_ms: How far after a left record its partners may be.
        grace_ms: How much longer a record waits for partners that come late.

    Examples:
        >>> print(tg.JoinWindows.of_time_difference_and_grace("5 minutes", "1 minute"))
        JoinWindows of 5 minutes before and 5 minutes after
    """

    before_ms: int
    after_ms: int
    grace_ms: int

    @classmethod
    def of_time_difference_and_grace(cls, time_difference: Duration, grace: Duration) -> JoinWindows:
        """Records at most `time_difference` apart meet, until stream time has passed the later one's by `grace`.

        Args:
            time_difference: The largest distance of two records that meet, in either direction.
            grace: How much longer a record waits for partners that come late.

        Returns:
            The windows.

        Raises:
            DefinitionError: One of the two is negative.

        Examples:
            >>> tg.JoinWindows.of_time_difference_and_grace("5 ms", "1 ms")
            JoinWindows(before_ms=5, after_ms=5, grace_ms=1)
        """
        difference_ms = duration_ms(time_difference, "time_difference")
        return _not_backwards(cls(difference_ms, difference_ms, _grace_ms(grace)), "time_difference", difference_ms)

    @classmethod
    def of_time_difference_with_no_grace(cls, time_difference: Duration) -> JoinWindows:
        """Records at most `time_difference` apart meet; a record out of order may find its partners closed.

        Args:
            time_difference: The largest distance of two records that meet, in either direction.

        Returns:
            The windows.

        Raises:
            DefinitionError: The difference is negative.

        Examples:
            >>> tg.JoinWindows.of_time_difference_with_no_grace("5 ms").grace_ms
            0
        """
        return cls.of_time_difference_and_grace(time_difference, "0 seconds")

    def before(self, before: Duration) -> JoinWindows:
        """The same windows with another reach back from the left record; keeps the grace.

        Args:
            before: How far before a left record its partners may be.

        Returns:
            The windows.

        Raises:
            DefinitionError: The window would end before it begins: -`before` is later than `after`.

        Examples:
            >>> tg.JoinWindows.of_time_difference_with_no_grace("5 ms").before("0 ms")
            JoinWindows(before_ms=0, after_ms=5, grace_ms=0)
        """
        before_ms = duration_ms(before, "before")
        return _not_backwards(replace(self, before_ms=before_ms), "before", before_ms)

    def after(self, after: Duration) -> JoinWindows:
        """The same windows with another reach ahead from the left record; keeps the grace.

        Args:
            after: How far after a left record its partners may be.

        Returns:
            The windows.

        Raises:
            DefinitionError: The window would end before it begins: `after` is earlier than -`before`.

        Examples:
            >>> tg.JoinWindows.of_time_difference_with_no_grace("5 ms").after("1 hour")
            JoinWindows(before_ms=5, after_ms=3600000, grace_ms=0)
        """
        after_ms = duration_ms(after, "after")
        return _not_backwards(replace(self, after_ms=after_ms), "after", after_ms)

    def grace(self, grace: Duration) -> JoinWindows:
        """Refused: the grace is chosen where the windows are made, once.

        Args:
            grace: The grace that was meant.

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

        Closed iff stream time > timestamp + reach ahead + grace (SEMANTICS 7b).

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
        """The stream time at which a record closes: `open_from_ms` turned around.

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
        """The timestamp before which a record is late: nothing can join such a record any more.

        Late iff stream time > timestamp + reach ahead + max(reach back, 0) + grace (SEMANTICS 7b.4).

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
    """The windows, unless they end before they begin because `argument` is what it is."""
    if windows.before_ms + windows.after_ms < 0:
        raise DefinitionError(
            f"`{argument}` is {show_ms(value_ms)}, so that the window of a left record at t would be "
            f"[t - {show_ms(windows.before_ms)}, t + {show_ms(windows.after_ms)}]: its end must not lie before its "
            "start. Use a time difference that is not negative, or a before and an after whose sum is not."
        )
    return windows


def needed_ms(windows: Windows) -> tuple[int, str]:
    """How long windows need their state at least, and what that is made of (SEMANTICS 8, Kafka's rule)."""
    if isinstance(windows, SlidingWindows):
        parts = {"twice the time difference": 2 * windows.time_difference_ms, "grace": windows.grace_ms}
    elif isinstance(windows, SessionWindows):
        parts = {"gap": windows.inactivity_gap_ms, "grace": windows.grace_ms}
    elif isinstance(windows, UnlimitedWindows):
        parts = {}
    else:
        parts = {"size": windows.size_ms, "grace": windows.grace_ms}
    return sum(parts.values()), " plus ".join(f"{name} ({show_ms(ms)})" for name, ms in parts.items())


AlignedWindows = TimeWindows | BatchWindows | UnlimitedWindows
"""Windows that follow from timestamps and stream time alone: each closes at a stream time known from its start."""

KeyedWindows = SlidingWindows | SessionWindows
"""Windows that follow from what their key already has."""

Windows = TimeWindows | SlidingWindows | SessionWindows | BatchWindows | UnlimitedWindows
