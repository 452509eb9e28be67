"""The grace that each record would have needed by itself, where records travel whole: sliding windows, sessions, joins.

    sliding windows   with this grace no window of the record has closed: the earliest one ends with the record
    joins             with this grace another record can still join the record (`JoinWindows.late_before_ms`)
    sessions          with this grace the record is taken even if it can join no open session. To join one takes less
                      grace, so this is the most that the record can have needed

A task knows its records and the times that they saw. So each task reports a histogram, and the histograms are added up.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from tidegate.instants import later_ms
from tidegate.kernel.columns.arrays import Ints
from tidegate.kernel.time.window_graces import class_ends, classed, encoded
from tidegate.plan import Operation
from tidegate.spec.joined import StreamStream
from tidegate.spec.metrics import OF_JOIN, OF_SESSIONS, OF_SLIDING
from tidegate.spec.windows import LEFT, RIGHT, JoinWindows, SessionWindows, SlidingWindows


@dataclass(frozen=True)
class Rule:
    """The rule by which a record is late without grace: it sees a stream time more than `reach_ms` after its end.

    The end is the timestamp of the record, but at least `earliest_ms`.

    kind         kind of the histogram (`spec.metrics`)
    grace_ms     today's grace
    earliest_ms  earliest end of a record: early records share the first sliding window
    """

    kind: int
    grace_ms: int
    reach_ms: int
    earliest_ms: int = 0

    @classmethod
    def of(cls, op: Operation) -> Rule | None:
        """The rule of an operation, or of one side of a join; None where the map step counts graces, or no step."""
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
    """The graces that the records of a batch needed by themselves, in one task: counts by class of graces."""

    def __init__(self, rule: Rule) -> None:
        self.rule = rule
        self.records = 0
        self._many = np.zeros(len(class_ends(rule.grace_ms)), np.int64)
        nothing = np.zeros(0, np.int64)
        self._over = [(nothing, nothing)]
        """For sessions, the timestamps of records that are late by themselves, and the graces that they needed (ms)."""

    def add(self, ts: Ints, seen: Ints) -> None:
        """Add records, by timestamp and by the stream time that each saw when it came (ms)."""
        self.records += len(ts)
        need = self.rule.needs(ts, seen)
        some = need > 0
        if self.rule.kind == OF_SESSIONS:
            over = np.flatnonzero(need > self.rule.grace_ms)
            self._over.append((ts[over], need[over]))
            some[over] = False
        if some.any():
            self._many += classed(self.rule.grace_ms, need[some])

    def take(self, other: RecordGraces) -> None:
        """Add the records of the other side of a join."""
        self.records += other.records
        self._many += other._many

    def histogram(self, late: Sequence[tuple[int, int, int]] = ()) -> list[int]:
        """The histogram of a task (`kernel.time.window_graces.encoded`).

        late  for sessions, the dropped records: (place, start, end) of the session that each would have been
        """
        many, grace = self._many, self.rule.grace_ms
        if self.rule.kind == OF_SESSIONS:
            ts, need = (np.concatenate(column) for column in zip(*self._over, strict=True))
            many = many + classed(
                grace, _with_grace_of_in_time(ts, need, np.array([start for _, start, _ in late], np.int64), grace)
            )
        return encoded(self.rule.kind, (0, 0, grace), self.records, many)


def _with_grace_of_in_time(ts: Ints, need: Ints, late: Ints, grace_ms: int) -> Ints:
    """The most grace (ms) that records late by themselves needed, given the timestamps of those `late` indeed.

    A record that was taken needed no more than today's grace. Of records with one timestamp, the records that needed
    most count as late. Changes `need` in place.
    """
    order = np.lexsort((-need, ts))
    times, first, group = np.unique(ts[order], return_index=True, return_inverse=True)
    late = np.sort(late)
    dropped = np.searchsorted(late, times, side="right") - np.searchsorted(late, times)
    in_time = np.arange(len(order)) - first[group] >= dropped[group]
    need[order[in_time]] = grace_ms
    return need
