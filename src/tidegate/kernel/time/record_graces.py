"""Which grace each record would have needed by itself, where records travel whole: sliding windows, sessions, joins.

    sliding windows   with it no window of the record has closed: the earliest one ends with the record
    joins             with it something can still join the record (`JoinWindows.late_before_ms`)
    sessions          with it the record is taken if no session is open that it can join. Such a session takes it with
                      less, so this is the most that it can have needed

A task knows its records and what they saw, so each task tells a histogram of its own, and they are added up.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from tidegate.instants import later_ms
from tidegate.kernel.columns.arrays import Ints
from tidegate.kernel.time.lateness import told
from tidegate.plan import Operation
from tidegate.spec.joined import StreamStream
from tidegate.spec.metrics import OF_JOIN, OF_SESSIONS, OF_SLIDING
from tidegate.spec.windows import LEFT, RIGHT, JoinWindows, SessionWindows, SlidingWindows


@dataclass(frozen=True)
class Rule:
    """When a record is late without grace: when stream time is beyond what it ends with by more than `reach_ms`.

    kind         as the histogram says it (`spec.metrics`)
    grace_ms     the grace of today
    earliest_ms  no record ends before this: early records share the first sliding window
    """

    kind: int
    grace_ms: int
    reach_ms: int
    earliest_ms: int = 0

    @classmethod
    def of(cls, op: Operation) -> Rule | None:
        """That of an operation, or of one side of a join; None where the map step tells graces, or nobody does."""
        if isinstance(op.joined, StreamStream):
            windows = op.joined.windows
            sides = (LEFT, RIGHT) if op.joined.self_join else (op.side or LEFT,)
            # A record of a stream that is joined with itself is late when both of its copies are.
            return cls(OF_JOIN, windows.grace_ms, max(_reach_ms(windows, side) for side in sides))
        if isinstance(op.windows, SlidingWindows):
            reach = -replace(op.windows, grace_ms=0).open_from_ms(0)
            return cls(OF_SLIDING, op.windows.grace_ms, reach, op.windows.time_difference_ms)
        if isinstance(op.windows, SessionWindows):
            return cls(OF_SESSIONS, op.windows.grace_ms, -replace(op.windows, grace_ms=0).open_from_ms(0))
        return None

    def needs(self, ts: Ints, seen: Ints) -> Ints:
        """The grace (ms) that each record needed by itself; 0 or less where it needed none."""
        found: Ints = seen - later_ms(np.maximum(ts, self.earliest_ms), self.reach_ms)
        return found


def _reach_ms(windows: JoinWindows, side: int) -> int:
    return -replace(windows, grace_ms=0).late_before_ms(side, 0)


class RecordGraces:
    """What the records of a batch needed by themselves, in one task. It keeps those that needed any grace."""

    def __init__(self, rule: Rule) -> None:
        self.rule = rule
        self.records = 0
        nothing = np.zeros(0, np.int64)
        self._ts, self._need = [nothing], [nothing]

    def add(self, ts: Ints, seen: Ints) -> None:
        """Take records (ms) and the stream time that each saw when it came."""
        self.records += len(ts)
        need = self.rule.needs(ts, seen)
        late = np.flatnonzero(need > 0)
        if len(late):
            self._ts.append(ts[late])
            self._need.append(need[late])

    def take(self, other: RecordGraces) -> None:
        """Take the records of the other side of a join."""
        self.records += other.records
        self._ts += other._ts
        self._need += other._need

    def histogram(self, late: Sequence[tuple[int, int, int]] = ()) -> list[int]:
        """What a task tells (`kernel.time.lateness.told`).

        late  of sessions, the records that were dropped, as (place, start, end) of the session that each would have been
        """
        need = np.concatenate(self._need)
        if self.rule.kind == OF_SESSIONS:
            need = self._as_taken(np.concatenate(self._ts), need, np.array([start for _, start, _ in late], np.int64))
        return told(self.rule.kind, (0, 0, self.rule.grace_ms), self.records, need, np.ones(len(need), np.int64))

    def _as_taken(self, ts: Ints, need: Ints, late: Ints) -> Ints:
        """What each needed at most, now that it is known which were late with today's grace, by their timestamps.

        Who was taken needed no more than that grace. Of records of one time those that needed most count as late.
        """
        grace = self.rule.grace_ms
        over = np.flatnonzero(need > grace)
        over = over[np.lexsort((-need[over], ts[over]))]
        times, first, group = np.unique(ts[over], return_index=True, return_inverse=True)
        late = np.sort(late)
        dropped = np.searchsorted(late, times, side="right") - np.searchsorted(late, times)
        taken = np.arange(len(over)) - first[group] >= dropped[group]
        need[over[taken]] = grace
        return need
