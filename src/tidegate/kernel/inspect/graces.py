"""Which graces the records of a running query needed: what its micro-batches told, for its life and the last day."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tidegate.instants import rounded_up
from tidegate.spec.metrics import OF_JOIN, OF_SESSIONS, OF_SLIDING, OF_TIME

TARGET = 0.001
"""The share that a grace may leave late, to be enough."""
HOUR_MS, HOURS = 3_600_000, 24
_WINDOWS = {OF_TIME: "time", OF_SLIDING: "sliding", OF_SESSIONS: "sessions", OF_JOIN: "join"}


@dataclass(frozen=True)
class Graces:
    """What each grace would have cost; times in ms.

    What is counted depends on the windows:

    * tumbling and hopping: (record, window) pairs. A pair is late if its window has closed;
    * sliding: records. A record is late if it misses any window, and the first to close is the one that ends with it;
    * joins: records. A record is late if nothing can join it any more. One that is not may still miss a partner;
    * sessions: records, and numbers are *at most*. A record that is too old by itself is taken if it joins a session
      that is open. How many were late with the grace of today is known; with another one it can be fewer than is said.
      Counting begins anew when the grace changes.

    Attributes:
        today: The grace of the query.
        total: How many pairs or records there were.
        needed: Of those that needed any grace, how many (the value) needed at most a grace (the key), and more than the
            next smaller key. Of sessions they may have needed less.
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
        """What is counted: "pairs" or "records"."""
        return "pairs" if self.windows == "time" else "records"

    @property
    def at_most(self) -> bool:
        """Whether numbers are at most what they say, but for those of today's grace."""
        return self.windows == "sessions"

    def late(self, grace_ms: int) -> int:
        """How many would have been late with another grace.

        Exact for the grace of today and for round ones; between those, some may be counted that needed a grace up to a
        quarter shorter. Of sessions (`at_most`) it is exact for the grace of today, and otherwise at most so many.

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
        """The same as a share of all.

        Args:
            grace_ms: The grace.

        Returns:
            The share; 0 where none came.

        Examples:
            ```python
            share = listener.graces("events").share(60_000)
            ```
        """
        return self.late(grace_ms) / self.total if self.total else 0.0

    def enough(self, target: float = TARGET) -> int:
        """The shortest round grace that would have left few enough late, or today's if no round one is shorter.

        Of sessions (`at_most`) a shorter one may do. But it is longer than today's only if today's left too many late.

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


class GraceHistory:
    """Adds up what micro-batches tell (`spec.metrics.GRACE_NEEDED`). It stays small: some 300 classes an hour."""

    def __init__(self) -> None:
        self.windows: tuple[int, int, int] | None = None
        """Size, advance and grace of the windows (ms), if all have one size; None before the first batch."""
        self._kind = OF_TIME
        self._today = 0
        self._life: Counter[int] = Counter()
        self._total = 0
        self._hours: deque[tuple[int, Counter[int], list[int]]] = deque()

    def add(self, told: Sequence[int], at_ms: float) -> None:
        """Take what a task told of a batch that ended at `at_ms` of the wall clock (`kernel.time.lateness.told`)."""
        kind, size, advance, grace, total, *flat = map(int, told)
        if kind == OF_SESSIONS and grace != self._today:
            # What sessions took with another grace says too little about this one.
            self._life, self._total = Counter(), 0
            self._hours.clear()
        self._kind, self._today = kind, grace
        classes = dict(zip(flat[::2], flat[1::2], strict=True))
        self.windows = (size, advance, grace) if kind == OF_TIME else None
        self._total += total
        self._life.update(classes)
        hour = int(at_ms // HOUR_MS)
        if not self._hours or self._hours[-1][0] < hour:
            self._hours.append((hour, Counter(), [0]))
        self._hours[-1][1].update(classes)
        self._hours[-1][2][0] += total
        self._forget(hour)

    def _forget(self, hour: int) -> None:
        while self._hours and self._hours[0][0] <= hour - HOURS:
            self._hours.popleft()

    def life(self) -> Graces:
        """Of all batches."""
        return self._graces(self._total, self._life)

    def last_day(self, now_ms: float) -> Graces:
        """Of the batches of the last 24 hours of the wall clock, in whole hours."""
        self._forget(int(now_ms // HOUR_MS))
        found: Counter[int] = Counter()
        for _, classes, _ in self._hours:
            found.update(classes)
        return self._graces(sum(total for _, _, [total] in self._hours), found)

    def _graces(self, total: int, needed: Mapping[int, int]) -> Graces:
        return Graces(self._today, total, dict(needed), _WINDOWS[self._kind])
