"""Session windows. `SessionWindows.open_from_ms` and `SessionWindows.close_of_end_ms` have the close rule."""

from __future__ import annotations

from dataclasses import dataclass

from tidegate.errors import DefinitionError
from tidegate.instants import Duration, duration_ms, earlier_ms, later_ms, show_ms
from tidegate.spec.windows.grace import grace_ms_of


@dataclass(frozen=True)
class SessionWindows:
    """Periods of activity of a key: records at most `inactivity_gap` apart (inclusive) are in one session.

    A session is [first record, last record], both ends included.

    Source: Kafka Streams `SessionWindows`.

    Attributes:
        inactivity_gap_ms: The longest pause within a session.
        grace_ms: How long a session accepts records after its gap is over.

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
        """Sessions that accept records until stream time has passed their end by more than gap and grace.

        Args:
            inactivity_gap: The longest pause within a session.
            grace: How long a session accepts records after its gap is over.

        Returns:
            The windows.

        Raises:
            DefinitionError: The gap is not larger than zero, or the grace is negative.
            DefinitionTypeError: An argument is no duration.

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
        return cls(gap_ms, grace_ms_of(grace))

    @classmethod
    def of_inactivity_gap_with_no_grace(cls, inactivity_gap: Duration) -> SessionWindows:
        """Sessions that accept no record once stream time has passed their end by more than the gap.

        Args:
            inactivity_gap: The longest pause within a session.

        Returns:
            The windows.

        Raises:
            DefinitionError: The gap is not larger than zero.
            DefinitionTypeError: An argument is no duration.

        Examples:
            >>> tg.SessionWindows.of_inactivity_gap_with_no_grace("30 minutes").inactivity_gap_ms
            1800000
        """
        return cls.of_inactivity_gap_and_grace(inactivity_gap, "0 seconds")

    def open_from_ms(self, stream_time: int) -> int:
        """The earliest end of an open session; a session that ends earlier is closed.

        Closed iff end < stream time - grace - gap: until then a record could still extend the session.

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
        """The stream time at which a session with this end closes: the inverse of `open_from_ms`.

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

    def retention_parts(self) -> dict[str, int]:
        """The parts of the shortest retention: gap plus grace (Kafka's rule).

        Returns:
            Milliseconds by name.

        Examples:
            >>> tg.SessionWindows.of_inactivity_gap_and_grace("10 ms", "5 ms").retention_parts()
            {'gap': 10, 'grace': 5}
        """
        return {"gap": self.inactivity_gap_ms, "grace": self.grace_ms}

    def __str__(self) -> str:
        return f"SessionWindows with a gap of {show_ms(self.inactivity_gap_ms)}"
