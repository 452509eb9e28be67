"""The results with each grace: wrong rows, waits of rows, and open windows.

Counts by name; G is a grace in ms, a result is a (key, window) that has a record:
    results                  the number of results
    first_needed             of each result, the shortest grace (ms) with which it leaves at all; without zeros
    all_needed               of each result, the shortest grace (ms) with which it is complete; without zeros
    open_from                of each result, the shortest grace (ms) with which it is open at the end of the recording
    wait/G, stream_wait/G    time from the end of a window until its result leaves, by arrivals and by stream time; ms
    open/G                   open windows: +1 and -1 by cell of stream time; the recording has GRID cells
    keys, between            the number of keys, and the times (ms) between neighbouring records of a key, by timestamp
    key/K                    pairs of the key K that are late with today's grace, for the MOST_KEYS worst keys
    alerts, alerts/G, false/G, missed/G
                             complete results that raise an alert; results that raise one with grace G; those that raise
                             none when complete; and those that raise one only when complete (`advice.alerts`)
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from tidegate.advice.counts import Tally
from tidegate.advice.keyed import AdvisedWindows, needs_of
from tidegate.advice.keys import Keys
from tidegate.kernel.columns.arrays import Flags, Ints
from tidegate.kernel.columns.groups import Groups
from tidegate.kernel.columns.runs import expanded
from tidegate.kernel.rows.grouping import codes
from tidegate.kernel.time.panes import Panes
from tidegate.spec.windows import TimeWindows

GRID = 4_096
"""Number of cells of stream time for counting open windows: a window is open in every cell that it touches."""
MOST_KEYS = 10


@dataclass(frozen=True)
class RunningMax:
    """The points at which the running maximum of the timestamps grew: the stream times of a recording (`time`,
    ascending), and the time by arrivals at which the first batch that reached each was done (`wall`, None without
    arrivals); ms.
    """

    time: Ints
    wall: Ints | None

    @classmethod
    def of(cls, seen: Ints, wall: Ints | None) -> RunningMax:
        """From the stream times that records saw, in any order, and when their batches were done."""
        if wall is None:
            return cls(np.unique(seen), None)
        order = np.lexsort((wall, seen))
        seen, wall = seen[order], wall[order]
        first = np.flatnonzero(np.diff(seen, prepend=-1))
        return cls(seen[first], np.minimum.accumulate(wall[first][::-1])[::-1])


@dataclass(frozen=True)
class Grouped:
    """Records by key and window.

    row, start      per result: one of its records, and the start of its window (ms)
    least, most     per result: the smallest and the largest stream time that its records saw (ms)
    pane            per record: the number of its key and pane
    close           per result: the stream time at which its window closes without grace (ms)
    of_pane, window
                    pairs (number of a key and pane, number of a result that it is in)
    """

    row: Ints
    start: Ints
    least: Ints
    most: Ints
    pane: Ints
    of_pane: Ints
    window: Ints
    close: Ints

    @classmethod
    def of(cls, shape: TimeWindows, key: Ints, ts: Ints, seen: Ints) -> Grouped:
        """The results of records. `key`: a number per record; `seen`: the stream time that it sees (ms)."""
        panes = Panes(shape)
        pane = panes.pane(ts)
        groups = _groups(key, pane)
        row, start = groups.first, pane[groups.first]
        least, most = (_fold(groups, seen, how) for how in ("min", "max"))
        number = np.arange(len(row))
        if not panes.shared:
            return cls(row, start, least, most, groups.number, number, number, closes(shape, start))
        first = panes.first_window(start)
        many = (panes.last_window(start) - first) // shape.advance_ms + 1
        of_pane, windows = np.repeat(number, many), expanded(first, many, shape.advance_ms)
        both = _groups(key[row][of_pane], windows)
        least, most = _fold(both, least[of_pane], "min"), _fold(both, most[of_pane], "max")
        row, start, pane = row[of_pane[both.first]], windows[both.first], groups.number
        return cls(row, start, least, most, pane, of_pane, both.number, closes(shape, start))


def closes(shape: TimeWindows, start: Any) -> Ints:
    """The stream time (ms) at which each of these windows closes."""
    return np.asarray(shape.close_ms(start), np.int64)


def _groups(one: Ints, other: Ints) -> Groups:
    return Groups.of(codes([pa.chunked_array([pa.array(one)]), pa.chunked_array([pa.array(other)])]))


def _fold(groups: Groups, values: Ints, how: str) -> Ints:
    folded: Ints = groups.fold(pa.array(values), how).to_numpy()
    return folded


def count_results(grouped: Grouped, points: RunningMax, graces: Sequence[int], exact: Ints) -> Tally:
    """The counts of these results (see above), without keys and alerts. `graces`: in ms."""
    tally = Tally(exact)
    tally.number("results", len(grouped.row))
    if not len(grouped.row):
        return tally
    close = grouped.close
    first_needed, all_needed = (np.maximum(seen - close + 1, 0) for seen in (grouped.least, grouped.most))
    tally.add("first_needed", first_needed[first_needed > 0])
    tally.add("all_needed", all_needed[all_needed > 0])
    end = int(points.time[-1])
    tally.add("open_from", np.maximum(end - close + 1, 0))
    for grace in graces:
        opens = first_needed <= grace
        count_leaving(tally, points, grace, close[opens], grouped.least[opens], (close <= end - grace)[opens])
    return tally


def count_leaving(tally: Tally, points: RunningMax, grace: int, close: Ints, first: Ints, comes: Flags) -> None:
    """Count the waits and the open windows with a grace (ms), for windows that have a record.

    close, first   the stream time at which each closes without grace, and the one that its first record saw; ms
    comes          whether it closes before the end of the recording
    """
    # Many windows close at the same time.
    ends, many = np.unique(close[comes], return_counts=True)
    place = np.searchsorted(points.time, ends + grace)
    tally.add(f"stream_wait/{grace}", points.time[place] - ends, many)
    if points.wall is not None:
        tally.add(f"wait/{grace}", points.wall[place] - ends, many)
    begun = np.bincount(_cell(points, first))
    some = np.flatnonzero(begun)
    cells = np.concatenate((some, _cell(points, ends + grace) + 1))
    tally.add(f"open/{grace}", cells, np.concatenate((begun[some], -many)))


def _cell(points: RunningMax, time: Ints) -> Ints:
    """The grid cell of a stream time within the recording."""
    low, high = int(points.time[0]), int(points.time[-1])
    width = (high - low) // GRID + 1
    return (time - low) // width


def count_keys(windows: AdvisedWindows, key: Ints, keys: Keys, ts: Ints, seen: Ints, exact: Ints) -> Tally:
    """The counts of keys (see above). `key`: the key number of each record; `keys`: the keys by number."""
    tally = Tally(exact)
    order = np.lexsort((ts, key))
    same = np.diff(key[order]) == 0
    tally.add("between", np.diff(ts[order])[same])
    tally.number("keys", len(keys))
    late = np.zeros(len(keys), np.int64)
    for rows, need in needs_of(windows, key, ts, seen):
        late += np.bincount(key[rows[need > windows.grace_ms]], minlength=len(keys))
    for number in np.argsort(-late, kind="stable")[:MOST_KEYS]:
        if late[number]:
            tally.number(f"key/{keys.shown(int(number))}", int(late[number]))
    return tally
