"""Sliding windows and sessions of a recording: the windows of its records, and the grace that each record needs.

The windows depend on the accepted records, and so on the grace. The reference are the *complete* windows: those of all
records, as if none were late. A record is late for a complete window that had closed when the record arrived. For
sliding windows this follows from the bounds. A record that is too old by itself is in time if it joins an open session,
so the grace that a record needs follows from the sessions of each grace (`_Sessions`).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from tidegate.advice.ordered import place
from tidegate.instants import MAX_MS, earlier_ms, later_ms
from tidegate.kernel.columns.arrays import Flags, Ints
from tidegate.kernel.columns.runs import last_of_run, run_starts
from tidegate.kernel.time import window_graces
from tidegate.spec.windows import KeyedWindows, SessionWindows, SlidingWindows, TimeWindows

AdvisedWindows = TimeWindows | SlidingWindows | SessionWindows
"""Kinds of windows for which there is advice: they have a grace."""


@dataclass(frozen=True)
class Complete:
    """The windows of all records, by key and start; times in ms.

    order         the row numbers by key, timestamp and arrival
    key, start, end
                  per window, both ends included
    low, high     per window: its records are order[low:high]
    first, last   per record, in `order`: it is in the windows number first to last - 1
    part          per record, in `order`: records of different parts never affect each other
    needed        per part: with this grace, and any longer one, all of its windows are complete
    """

    order: Ints
    key: Ints
    start: Ints
    end: Ints
    low: Ints
    high: Ints
    first: Ints
    last: Ints
    part: Ints
    needed: Ints

    @classmethod
    def of(cls, windows: KeyedWindows, key: Ints, ts: Ints, seen: Ints) -> Complete:
        """The complete windows of records in the order of arrival. `key`: a number each; `seen`: the time they see."""
        order = np.lexsort((ts, key))
        key, ts, seen = key[order], ts[order], seen[order]
        if isinstance(windows, SlidingWindows):
            return _sliding(windows.time_difference_ms, order, key, ts, seen)
        return _sessions(windows.inactivity_gap_ms, order, key, ts, seen)

    @property
    def part_of_window(self) -> Ints:
        """The part of each window."""
        return self.part[self.low]


def _parts(key: Ints, ts: Ints, apart_ms: int) -> Ints:
    """The part of each record: neighbours of a key that are at most `apart_ms` apart are in one part."""
    if not len(ts):
        return key
    new = (key[1:] != key[:-1]) | (ts[1:] - ts[:-1] > apart_ms)
    return np.concatenate(([0], np.cumsum(new)))


def _most(part: Ints, values: Ints) -> Ints:
    """The largest value of each part, or 0 if that is larger."""
    found = np.zeros(int(part[-1]) + 1 if len(part) else 0, np.int64)
    np.maximum.at(found, part, values)
    return found


def _sliding(d: int, order: Ints, key: Ints, ts: Ints, seen: Ints) -> Complete:
    """Complete sliding windows. A window ends with each record (for early records it is [0, d]), and a window begins
    after each record if it contains another one.
    """
    left = np.maximum(ts - d, 0)
    gap = ts[1:] - ts[:-1]
    followed = np.flatnonzero((key[1:] == key[:-1]) & (gap > 0) & (gap - 1 <= d))
    both = np.stack([np.concatenate((key, key[followed])), np.concatenate((left, ts[followed] + 1))])
    found = np.unique(both, axis=1)
    of_key, start = found[0], found[1]
    end = np.asarray(later_ms(start, d), np.int64)
    low = place(key, ts, of_key, start, behind=False)
    high = place(key, ts, of_key, end, behind=True)
    first = place(of_key, start, key, left, behind=False)
    last = place(of_key, start, key, ts, behind=True)
    # A record reads windows up to 2 d before it. The windows of another record reach up to d further.
    part = _parts(key, ts, min(2 * d + 1, MAX_MS))
    # With this grace no record finds the earliest of its windows closed.
    return Complete(
        order=order,
        key=of_key,
        start=start,
        end=end,
        low=low,
        high=high,
        first=first,
        last=last,
        part=part,
        needed=_most(part, seen - np.maximum(ts, d)),
    )


def _sessions(gap: int, order: Ints, key: Ints, ts: Ints, seen: Ints) -> Complete:
    part = _parts(key, ts, gap)
    low = run_starts(part)
    high = np.flatnonzero(last_of_run(part)) + 1
    closing = earlier_ms(seen, gap)
    needed = _most(part, np.asarray(closing - ts, np.int64))
    # A neighbour must still be open when the second of the two arrives, whichever that is.
    joins = np.flatnonzero(part[1:] == part[:-1])
    later = np.maximum(closing[joins + 1], closing[joins])
    np.maximum.at(needed, part[joins], later - ts[joins])
    return Complete(
        order=order,
        key=key[low],
        start=ts[low],
        end=ts[high - 1],
        low=low,
        high=high,
        first=part,
        last=part + 1,
        part=part,
        needed=needed,
    )


def pairs_of(windows: AdvisedWindows, key: Ints, ts: Ints) -> Ints:
    """The number of windows of each record."""
    if isinstance(windows, TimeWindows):
        return window_graces.pairs(window_graces.without_grace(windows), ts)
    if isinstance(windows, SessionWindows):
        return np.ones(len(ts), np.int64)
    complete = Complete.of(windows, key, ts, ts)
    found = np.empty(len(ts), np.int64)
    found[complete.order] = complete.last - complete.first
    return found


def needs_of(windows: AdvisedWindows, key: Ints, ts: Ints, seen: Ints) -> Iterator[tuple[Ints, Ints]]:
    """(late rows, the grace they needed in ms): first for one window of each record, then for the next one.

    `key`: a number per record. Records are in the order of arrival; records of a key are processed by `seen` first.
    """
    if isinstance(windows, TimeWindows):
        yield from window_graces.needs(window_graces.without_grace(windows), ts, seen)
        return
    complete = Complete.of(windows, key, ts, seen)
    if isinstance(windows, SessionWindows):
        yield _needs_of_sessions(windows.inactivity_gap_ms, complete, ts, seen)
        return
    rows, at, last, sees = np.arange(len(ts)), complete.first, complete.last, seen[complete.order]
    while len(rows):
        need = sees[rows] - complete.end[at]
        # Later windows of a record close later: a record in time for this window is in time for them.
        late = need > 0
        rows, at = rows[late], at[late] + 1
        yield complete.order[rows], need[late]
        more = at < last[rows]
        rows, at = rows[more], at[more]


def _needs_of_sessions(gap: int, complete: Complete, ts: Ints, seen: Ints) -> tuple[Ints, Ints]:
    # A record alone in its part meets no other session.
    alone = complete.low[(complete.needed > 0) & (complete.high - complete.low == 1)]
    rows, needs = [complete.order[alone]], [complete.needed[complete.part[alone]]]
    for mine in in_turn(complete, complete.needed > 0, seen):
        sessions = _Sessions(gap)
        need = np.array(list(map(sessions.take, ts[mine].tolist(), seen[mine].tolist())), np.int64)
        late = need > 0
        rows.append(mine[late])
        needs.append(need[late])
    return np.concatenate(rows), np.concatenate(needs)


def in_turn(complete: Complete, parts: Flags, seen: Ints) -> Iterator[Ints]:
    """The row numbers of each of these parts in the order of an operator: by the stream time seen, then by arrival.
    Parts with a single record are left out.
    """
    size = np.bincount(complete.part, minlength=len(parts))
    some = parts & (size > 1)
    mine = some[complete.part]
    rows, part = complete.order[mine], complete.part[mine]
    rows = rows[np.lexsort((rows, seen[rows], part))]
    ends = np.cumsum(size[some]).tolist()
    for low, high in zip([0, *ends], ends, strict=False):
        yield rows[low:high]


class _Sessions:
    """The sessions of some records of a key, for all graces at once.

    A session (from, to, start, end) exists with graces from `from` up to, but not including, `to`. With a longer grace
    sessions stay open longer and take more records. So a session of one grace is part of a session of a longer one.
    """

    def __init__(self, gap: int) -> None:
        self._gap = gap
        self._all: list[tuple[int, int, int, int]] = []

    def take(self, ts: int, seen: int) -> int:
        """Let a record join, bridge or open sessions. Returns the shortest grace (ms) with which it is not late."""
        gap, closing = self._gap, seen - self._gap
        need = max(closing - ts, 0)
        met: list[tuple[int, int, int, int]] = []
        rest: list[tuple[int, int, int, int]] = []
        for one in self._all:
            low, high, start, end = one
            opens = max(low, closing - end)
            if opens >= high:
                # Stream time never goes back, so no grace opens the session again.
                continue
            if end < ts - gap or start > ts + gap:
                rest.append(one)
                continue
            met.append((opens, high, start, end))
            need = min(need, opens)
            if low < opens:
                rest.append((low, opens, start, end))
        self._all = rest
        self._all += _joined(ts, need, met)
        return need


def _joined(ts: int, need: int, met: list[tuple[int, int, int, int]]) -> list[tuple[int, int, int, int]]:
    """The sessions of a record at `ts` for all graces from `need` on, merged with the sessions `met`."""
    bounds = sorted({need, *(low for low, *_ in met), *(high for _, high, *_ in met)} - {MAX_MS})
    found: list[tuple[int, int, int, int]] = []
    for low, high in zip(bounds, [*bounds[1:], MAX_MS], strict=True):
        mine = [(start, end) for first, behind, start, end in met if first <= low < behind]
        start = min([ts, *(start for start, _ in mine)])
        end = max([ts, *(end for _, end in mine)])
        if found and found[-1][2:] == (start, end):
            found[-1] = (found[-1][0], high, start, end)
        else:
            found.append((low, high, start, end))
    return found
