"""Joins of two streams in micro-batches, in plain Python: stream time per record, and a `StreamJoin` per key.

Written from SEMANTICS alone: 3 (stream time), its rule of the slowest partition, and 7b; idle partitions are those of
docs/joins.md.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from oracle_joins import JoinedRow, StreamJoin, null, skipped

SIDES = ("left", "right")
Partition = tuple[str, int]


class Arrival(NamedTuple):
    """A record as its source gives it."""

    side: str
    key: Any
    value: Any
    timestamp: int | None
    partition: int
    offset: int


@dataclass
class JoinInBatches:
    """`new` makes a join; `slowest` says whether the slowest partition decides, or the largest timestamp.

    A partition without a record for `idle_after` ms of wall clock holds nothing back; `heard` is the wall clock of the
    last records, for a side without any that of the first batch.

    Each key has a join of its own, which keeps long streams from being quadratic; keys share only their stream time.
    """

    new: Callable[[], StreamJoin]
    slowest: bool = True
    stream_time: int = -1
    times: dict[Partition, int] = field(default_factory=dict)
    joins: dict[Any, StreamJoin] = field(default_factory=dict)
    others: StreamJoin | None = None
    """After a change of the grace: a join that has no record, as those of all other keys."""
    idle_after: int | None = None
    heard: dict[Partition, int] = field(default_factory=dict)
    clock: int = 0

    def change(self, grace: int) -> None:
        """Change the grace between two batches (`StreamJoin.change`)."""
        self.others = self.others or self.new()
        self.others.advance(self.stream_time)
        for join in (self.others, *self.joins.values()):
            join.change(grace)

    @property
    def drops(self) -> Counter[str]:
        return sum((join.drops for join in self.joins.values()), Counter())

    def batch(self, arrivals: Iterable[Arrival], clock: int = 0, *, came: bool = True) -> list[JoinedRow]:
        """The rows of one micro-batch; their order has no meaning. `came`: whether a record came, skipped or not."""
        if not came:
            return []
        self.clock = clock
        rows = []
        for now, arrival in self._seen(sorted(arrivals, key=lambda one: one.offset)):
            rows += self._join(arrival.key).take(*arrival[:4], stream_time=now)
        return rows + self.passed(self._reached())

    def passed(self, time: int) -> list[JoinedRow]:
        """The rows that leave as stream time moves on to `time`."""
        self.stream_time = max(self.stream_time, time)
        return [row for join in self.joins.values() for row in join.advance(self.stream_time)]

    def _seen(self, arrivals: list[Arrival]) -> list[tuple[int, Arrival]]:
        """(stream time seen, record) in the order in which records are joined; moves the times of partitions."""
        before = dict(self.times)
        for arrival in filter(_moves, arrivals):  # a skipped record does not make its partition known
            self.times.setdefault((arrival.side, arrival.partition), -1)
            self.heard[arrival.side, arrival.partition] = self.clock
        for silent in self._silent():
            self.heard.setdefault(silent, self.clock)
        awake, seen = self._awake(), []
        for arrival in arrivals:
            mine = arrival.side, arrival.partition
            if _moves(arrival):
                self.times[mine] = max(self.times[mine], arrival.timestamp or 0)
            own = self.times.get(mine, -1)
            if self.slowest:
                own = min([own, *(before.get(other, -1) for other in awake if other != mine)])
            seen.append((max(self.stream_time, own), arrival))
        seen.sort(key=lambda one: (one[0], SIDES.index(one[1].side), one[1].partition, one[1].offset))
        return seen

    def _silent(self) -> list[Partition]:
        """A side without any record yet counts as a partition at -1."""
        return [(side, -1) for side in SIDES if not any(known == side for known, _ in self.times)]

    def _awake(self) -> list[Partition]:
        """The partitions that hold stream time back."""
        idle = self.idle_after
        known = [*self.times, *self._silent()]
        return [one for one in known if idle is None or self.clock - self.heard[one] < idle]

    def _reached(self) -> int:
        if not self.slowest:
            return max(self.times.values(), default=-1)
        return min((self.times.get(one, -1) for one in self._awake()), default=-1)

    def _join(self, key: Any) -> StreamJoin:
        if key not in self.joins:
            made = self.joins[key] = self.new()
            if self.others is not None:
                made.grace, made.closed_to = self.others.grace, self.others.closed_to
        return self.joins[key]


def _moves(arrival: Arrival) -> bool:
    return not null(arrival.key) and skipped(arrival.key, arrival.value, arrival.timestamp) is None
