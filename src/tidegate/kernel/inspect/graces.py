"""The graces that a running query's records needed in the last day, by the metrics of its batches."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from tidegate.instants import rounded_up
from tidegate.spec.metrics import OF_JOIN, OF_SESSIONS, OF_SLIDING, OF_TIME

TARGET = 0.001
"""The share that may be late with a grace that is enough."""
HOUR_MS, HOURS = 3_600_000, 24
_WINDOWS = {OF_TIME: "time", OF_SLIDING: "sliding", OF_SESSIONS: "sessions", OF_JOIN: "join"}


@dataclass(frozen=True)
class Graces:
    """The number of late records that each grace would have left; times in ms.

    The unit of the counts depends on the windows:

    * tumbling and hopping: (record, window) pairs. A pair is late if its window has closed;
    * sliding: records. A record is late if it misses any window, and the first to close is the one that ends with it;
    * joins: records. A record is late if nothing can join it any more. One that is not may still miss a partner;
    * sessions: records, and counts are *at most*. A record that is too old by itself is taken if it joins an open
      session. The count for the grace of today is exact; with another grace fewer records may be late than the count.
      Counting begins anew when the grace changes.

    Attributes:
        today: The grace of the query.
        total: The number of pairs or records.
        needed: The number of pairs or records (value) that needed at most a grace (key) and more than the next smaller
            key. Those that needed no grace are not in it. With sessions they may have needed less.
        windows: "time", "sliding", "sessions" or "join".

    Examples:
        ```python
        graces = listener.graces("events")
        ```
    """

    today: int
    total: int
    needed: Mapping[int, int]
    windows: str = "time"

    @property
    def unit(self) -> str:
        """The unit of the counts: "pairs" or "records"."""
        return "pairs" if self.windows == "time" else "records"

    @property
    def at_most(self) -> bool:
        """Whether counts are upper bounds, except the count for today's grace."""
        return self.windows == "sessions"

    def late(self, grace_ms: int) -> int:
        """The number that would have been late with another grace.

        The number is exact for today's grace and for round ones. Between those it may include some that needed a grace
        up to a quarter shorter. With sessions (`at_most`) it is exact for today's grace, and otherwise an upper bound.

        Args:
            grace_ms: The grace.

        Returns:
            The number of pairs or records.

        Examples:
            ```python
            late = listener.graces("events").late(60_000)
            ```
        """
        return sum(count for needed, count in self.needed.items() if needed > grace_ms)

    def share(self, grace_ms: int) -> float:
        """The share that would have been late with another grace.

        Args:
            grace_ms: The grace.

        Returns:
            The share; 0 if nothing was counted.

        Examples:
            ```python
            share = listener.graces("events").share(60_000)
            ```
        """
        return self.late(grace_ms) / self.total if self.total else 0.0

    def enough(self, target: float = TARGET) -> int:
        """The shortest round grace with few enough late, or today's grace if it is enough and shorter than that.

        With sessions (`at_most`) a shorter one may do. But the result exceeds today's only if today's left too many
        late.

        Args:
            target: The share that may be late.

        Returns:
            The grace (ms).

        Examples:
            ```python
            grace_ms = listener.graces("events").enough(0.01)
            ```
        """
        left = target * self.total
        above = sum(self.needed.values())
        grace = 0
        for needed in sorted(self.needed):
            if above <= left:
                break
            grace, above = needed, above - self.needed[needed]
        enough = rounded_up(grace)
        return self.today if grace <= self.today < enough else enough


@dataclass
class _Hour:
    """The counts of an hour of the wall clock: how often each grace was `needed`, and the pairs or records in all."""

    number: int
    needed: Counter[int] = field(default_factory=Counter)
    total: int = 0


class GraceHistory:
    """Adds up the metric `spec.metrics.GRACE_NEEDED` of micro-batches. It stays small: some 300 classes an hour."""

    def __init__(self) -> None:
        self.windows: tuple[int, int, int] | None = None
        """Size, advance and grace of the windows (ms), if all have one size; None before the first batch."""
        self._kind = OF_TIME
        self._today = 0
        self._hours: deque[_Hour] = deque()

    def add(self, histogram: Sequence[int], at_ms: float) -> None:
        """Add a task's counts of a batch (`kernel.time.window_graces.encoded`) that ended at `at_ms` (wall clock)."""
        kind, size, advance, grace, total, *flat = map(int, histogram)
        if kind == OF_SESSIONS and grace != self._today:
            # The counts of sessions with another grace say too little about this one.
            self._hours.clear()
        self._kind, self._today = kind, grace
        self.windows = (size, advance, grace) if kind == OF_TIME else None
        hour = int(at_ms // HOUR_MS)
        for one in self._hours:  # if the clock was set back, no hour may lie ahead of it
            one.number = min(one.number, hour)
        if not self._hours or self._hours[-1].number < hour:
            self._hours.append(_Hour(hour))
        self._hours[-1].needed.update(dict(zip(flat[::2], flat[1::2], strict=True)))
        self._hours[-1].total += total
        self._forget(hour)

    def _forget(self, hour: int) -> None:
        while self._hours and self._hours[0].number <= hour - HOURS:
            self._hours.popleft()

    def last_day(self, now_ms: float) -> Graces:
        """The graces of the batches of the last 24 hours of the wall clock, in whole hours."""
        self._forget(int(now_ms // HOUR_MS))
        needed: Counter[int] = Counter()
        for hour in self._hours:
            needed.update(hour.needed)
        return Graces(self._today, sum(hour.total for hour in self._hours), dict(needed), _WINDOWS[self._kind])
