"""Which graces the records of a running query needed: what its micro-batches told, for its life and the last day."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tidegate.instants import rounded_up

TARGET = 0.001
"""The share of (record, window) pairs that a grace may leave late, to be enough."""
HOUR_MS, HOURS = 3_600_000, 24


@dataclass(frozen=True)
class Graces:
    """What each grace would have cost, in (record, window) pairs; times in ms.

    Attributes:
        today: The grace of the query.
        pairs: How many pairs there were.
        needed: Of pairs that came after their window had ended, how many (the value) needed at most a grace (the key),
            and more than the next smaller key.

    Examples:
        ```python
        graces = listener.graces("events")
        ```
    """

    today: int
    pairs: int
    needed: Mapping[int, int]

    def late(self, grace_ms: int) -> int:
        """How many pairs would have been late with another grace.

        Exact for the grace of today and for round ones; between those, pairs may be counted that needed a grace up to a
        quarter shorter.

        Args:
            grace_ms: The grace.

        Returns:
            The number of pairs.

        Examples:
            ```python
            late = listener.graces("events").late(60_000)
            ```
        """
        return sum(count for needed, count in self.needed.items() if needed > grace_ms)

    def share(self, grace_ms: int) -> float:
        """The same as a share of all pairs.

        Args:
            grace_ms: The grace.

        Returns:
            The share; 0 without any pairs.

        Examples:
            ```python
            share = listener.graces("events").share(60_000)
            ```
        """
        return self.late(grace_ms) / self.pairs if self.pairs else 0.0

    def enough(self, target: float = TARGET) -> int:
        """The shortest round grace that would have left few enough late.

        Args:
            target: The share of pairs that may be late.

        Returns:
            The grace (ms).

        Examples:
            ```python
            grace_ms = listener.graces("events").enough(0.01)
            ```
        """
        left = target * self.pairs
        above = sum(self.needed.values())
        grace = 0
        for needed in sorted(self.needed):
            if above <= left:
                break
            grace, above = needed, above - self.needed[needed]
        return rounded_up(grace)


class GraceHistory:
    """Adds up what micro-batches tell (`spec.metrics.GRACE_NEEDED`). It stays small: some 300 numbers an hour."""

    def __init__(self) -> None:
        self.windows: tuple[int, int, int] | None = None
        """Size, advance and grace of the windows (ms); None before the first batch."""
        self._today = 0
        self._life: Counter[int] = Counter()
        self._pairs = 0
        self._hours: deque[tuple[int, Counter[int], list[int]]] = deque()

    def add(self, told: Sequence[int], at_ms: float) -> None:
        """Take what a batch told that ended at `at_ms` of the wall clock."""
        size, advance, grace, pairs, *flat = map(int, told)
        classes = dict(zip(flat[::2], flat[1::2], strict=True))
        self.windows = (size, advance, grace)
        self._today = grace
        self._pairs += pairs
        self._life.update(classes)
        hour = int(at_ms // HOUR_MS)
        if not self._hours or self._hours[-1][0] < hour:
            self._hours.append((hour, Counter(), [0]))
        self._hours[-1][1].update(classes)
        self._hours[-1][2][0] += pairs
        self._forget(hour)

    def _forget(self, hour: int) -> None:
        while self._hours and self._hours[0][0] <= hour - HOURS:
            self._hours.popleft()

    def life(self) -> Graces:
        """Of all batches."""
        return Graces(self._today, self._pairs, dict(self._life))

    def last_day(self, now_ms: float) -> Graces:
        """Of the batches of the last 24 hours of the wall clock, in whole hours."""
        self._forget(int(now_ms // HOUR_MS))
        found: Counter[int] = Counter()
        for _, classes, _ in self._hours:
            found.update(classes)
        return Graces(self._today, sum(pairs for _, _, [pairs] in self._hours), dict(found))
