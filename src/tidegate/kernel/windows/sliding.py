"""The effect of one record on the sliding windows of its key (SEMANTICS 3; close rule: SlidingWindows.open_from_ms).

A record at t has a *left* window [t - d, t] and, once another record falls in it, a *right* one [t + 1, t + 1 + d]:

        records        a . . b . c              d = 4, a at 10, b at 13, c at 15
        left windows   [6,10] [9,13] [11,15]
        right windows  [11,15] of a, [14,18] of b
"""

from __future__ import annotations

from bisect import bisect_right
from typing import Any

import pyarrow as pa

from tidegate.kernel.columns.arrays import ints
from tidegate.kernel.windows.lineage import Entries, Entry
from tidegate.spec.windows import SlidingWindows


def needed_ms(windows: SlidingWindows) -> int:
    """How long (ms) behind its end a window is still needed: until `open_from_ms` has passed its end by more than this.

    A new left window may begin with a closed window: a record that is not late has t >= open_from - d, and reads
    windows that start from t - 2d on.
    """
    return 2 * windows.time_difference_ms


def kept(windows: SlidingWindows, rows: pa.Table, open_from: float) -> Any:
    """Flags of the windows that a later record may still need."""
    return ints(rows["end"]) >= open_from - needed_ms(windows)


def place(start: int, _end: int) -> int:
    """The place of a window in the `Entries` of its key."""
    return start


def apply(
    windows: SlidingWindows, entries: Entries, ts: int, open_from: int, add: Any
) -> tuple[list[Entry], list[tuple[int, int]]]:
    """Let a record at `ts` update and make windows in `entries`. Returns the updates and the closed windows.

    A record that is late for all of its windows counts once, for the last of them.
    """
    if windows.end_ms(ts) < open_from:
        return [], [(ts, windows.end_ms(ts))]
    turn = _Turn(windows, entries, ts, open_from, add)
    if ts < windows.time_difference_ms:
        turn.early()
    else:
        turn.regular()
    # Only now: the turn must see the windows as they were, as Kafka's iterator does.
    for entry in turn.updates:
        entries.put(entry.start, entry)
    return turn.updates, turn.late


class _Turn:
    """One record's turn over the windows of its key."""

    def __init__(self, windows: SlidingWindows, entries: Entries, ts: int, open_from: int, add: Any) -> None:
        self.d = windows.time_difference_ms
        self.end_of = windows.end_ms
        self.starts = entries.places
        self.windows = entries.at
        self.ts = ts
        self.open_from = open_from
        self.add = add
        self.updates: list[Entry] = []
        self.late: list[tuple[int, int]] = []

    def regular(self) -> None:
        """SEMANTICS 3.1: update windows from the latest to the earliest, then make the missing ones."""
        before: Entry | None = None  # the newest window that ends before the record
        candidate: Entry | None = None  # the window that the record's right window copies
        previous: int | None = None
        low = max(0, self.ts - 2 * self.d)
        for at in range(bisect_right(self.starts, self.ts) - 1, -1, -1):
            start = self.starts[at]
            if start < low:
                break
            window = self.windows[start]
            if window.end > self.ts:
                candidate = candidate or window
                self._update(start, window)
            elif window.end == self.ts:
                self._update(start, window)
                if window.ts >= self.ts:
                    return  # a record of this instant came before: all windows exist
                previous = window.ts
            else:
                before, previous = window, window.ts
                break
        if previous is not None and previous + 1 not in self.windows and previous + 1 + self.d >= self.ts:
            self._update(previous + 1, None)
        if self.ts - self.d not in self.windows:
            reaches = before is not None and before.ts >= self.ts - self.d
            self._update(self.ts - self.d, before if reaches else None, makes=True)
        self._copy_to_right(candidate)

    def early(self) -> None:
        """SEMANTICS 3.2: the left window would start below 0, so [0, d] is the left window of all early records."""
        combined = self.windows.get(0)
        candidate: Entry | None = None
        for start in self.starts[bisect_right(self.starts, 0) : bisect_right(self.starts, self.ts)]:
            candidate = self.windows[start]
            self._update(start, candidate)
        if candidate is None and combined is not None and combined.ts > self.ts:
            candidate = combined
        self._copy_to_right(candidate)
        if combined is not None and combined.ts < self.ts and combined.ts + 1 not in self.windows:
            self._update(combined.ts + 1, None)
        self._update(0, combined)

    def _copy_to_right(self, candidate: Entry | None) -> None:
        """Make the record's right window if it is missing and not empty; the record itself is not in it."""
        start = self.ts + 1
        if start not in self.windows and candidate is not None and candidate.ts > self.ts:
            self.updates.append(Entry(start, self.end_of(start), candidate.ts, candidate.node, prior=None))

    def _update(self, start: int, window: Entry | None, makes: bool = False) -> None:
        """Add the record to `window`; to a new one if None; if `makes`, to a copy. A closed window drops the record."""
        end = self.end_of(start)
        if end < self.open_from:
            # The right window of the record before may be the record's left one too: it is closed once.
            if (start, end) not in self.late:
                self.late.append((start, end))
            return
        node = self.add((start, end), window.node if window else None, fresh=window is None)
        if window is None:
            # The left window was missing before the record, so it begins anew even as the previous record's right one.
            again = bool(self.updates) and self.updates[-1].start == start
            self.updates.append(Entry(start, end, self.ts, node, again=again))
        elif makes:
            self.updates.append(Entry(start, end, self.ts, node, prior=window.node))
        else:
            self.updates.append(Entry(start, end, max(window.ts, self.ts), node, window.prior))
