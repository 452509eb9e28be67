"""Sliding windows of many keys as sorted numbers, and their contents as ranges of records sorted by time.

All keys lie on one time axis. A window ends with each record ([0, difference] for all early records), and a window
begins after each record if another record falls in it (SEMANTICS 3). A window holds all records between its bounds. The
records of earlier batches in a new window are in one stored window: the last that begins no later, if its newest record
is not older than the new window.

    difference 4        records 10, 13, 15        windows [6, 10] [9, 13] [11, 15] [14, 18]

A range no longer than the difference is the end of one block of that length and the beginning of the next, so two
running aggregates give all windows (`Pieces`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from tidegate.instants import MAX_MS
from tidegate.kernel.columns import radix_sort
from tidegate.kernel.columns.arrays import Flags, Ints, ints
from tidegate.kernel.columns.runs import first_of_run, run_starts

ROOM = 2**61
"""The longest axis."""
AFTER_ALL = 2**62
"""After every record of a batch."""
STORED = -1
"""Before every record of a batch."""


@dataclass(frozen=True)
class Axis:
    """All keys on one time axis; the stretches of two keys are further apart than windows reach."""

    difference: int
    offset: Ints
    """The offset of each key: its times plus the offset are places on the axis."""

    @classmethod
    def of(cls, difference: int, keys: int, key: Ints, times: Ints) -> Axis | None:
        """The axis of keys with these times; None if the stretches are too long for one axis."""
        low, high = np.full(keys, MAX_MS), np.full(keys, -1)
        np.minimum.at(low, key, times)
        np.maximum.at(high, key, times)
        low = np.minimum(low, high)
        margin = 2 * (difference + 2)
        if float((high - low).astype(np.float64).sum()) + 2.0 * margin * keys > ROOM:
            return None
        span = high - low + 2 * margin
        return cls(difference, np.cumsum(span) - span - low + margin)

    def at(self, key: Ints, times: Any) -> Ints:
        """The places of these times of these keys."""
        places: Ints = self.offset[key] + times
        return places


@dataclass(frozen=True)
class Contents:
    """The records of the batch by key and time, records of one instant in order of arrival."""

    difference: int
    at: Ints
    arrival: Ints
    early: Flags

    @property
    def block(self) -> Ints:
        """The block number of each record."""
        return self.at // (self.difference + 1)

    def block_starts(self) -> Ints:
        """The first record of each block that has one."""
        return run_starts(self.block)


@dataclass(frozen=True)
class Shape:
    """The windows that the batch touches, by key and start.

    place       place of its start on the axis; `start` and `newest` are times (ms)
    base        the stored window that it begins with, -1 for none; `own`: whether it is that stored window
    low, high   its records: from `low` to before `high`
    after_old   whether it begins right after a record of an earlier batch
    """

    place: Ints
    start: Ints
    newest: Ints
    base: Ints
    own: Flags
    low: Ints
    high: Ints
    after_old: Flags
    stored: Ints
    """The place of the start of each stored window; `reaches`: the place of its newest record."""
    reaches: Ints
    untouched: Flags
    """Flags of the stored windows that the batch does not touch."""

    @classmethod
    def of(
        cls, contents: Contents, axis: Axis, stored_codes: Ints, starts: Ints, newest: Ints, codes: Ints, ts: Ints
    ) -> Shape:
        d, at = contents.difference, contents.at
        stored, reach = axis.at(stored_codes, starts), axis.at(stored_codes, newest)

        first = first_of_run(at)
        times = at[first]
        lefts = axis.at(codes[first], np.maximum(ts[first] - d, 0))
        rights = times + 1
        rights = rights[(_next(times, times) <= rights + d) | (base_of(stored, reach, rights) >= 0)]
        old = np.unique(reach)
        after_old = old[_next(times, old) <= old + 1 + d] + 1
        place = np.unique(np.concatenate((stored, lefts, rights, after_old)))
        own = index_of(stored, place)
        low, high = np.searchsorted(at, place), np.searchsorted(at, place + d, side="right")
        touched = (own < 0) | (high > low)
        untouched = np.ones(len(stored), np.bool_)
        untouched[own[touched & (own >= 0)]] = False
        place, own, low, high = place[touched], own[touched], low[touched], high[touched]
        base = np.where(own >= 0, own, base_of(stored, reach, place))
        some = high > low
        offset = np.where(
            some, np.append(axis.offset[codes], 0)[low], np.append(axis.offset[stored_codes], 0)[np.maximum(base, -1)]
        )
        newest = np.maximum(np.where(some, at[high - 1], STORED), np.append(reach, STORED)[base])
        return cls(
            place=place,
            start=place - offset,
            newest=newest - offset,
            base=base,
            own=own >= 0,
            low=low,
            high=high,
            after_old=_has(after_old, place),
            stored=stored,
            reaches=reach,
            untouched=untouched,
        )


@dataclass(frozen=True)
class Pieces:
    """The records of windows: a block from `suffix` on, and the next one through `prefix`; -1 for none."""

    suffix: Ints
    prefix: Ints

    @classmethod
    def of(cls, contents: Contents, shape: Shape) -> Pieces:
        block, length = contents.block, contents.difference + 1
        first, last = shape.place // length, (shape.place + contents.difference) // length
        some = shape.high > shape.low
        suffix = some & (np.append(block, -1)[shape.low] == first)
        prefix = some & (block[shape.high - 1] == last) & (last != first)
        return cls(np.where(suffix, shape.low, -1), np.where(prefix, shape.high - 1, -1))

    def most(self, contents: Contents, values: Ints) -> Ints:
        """The largest of the values (from 0 to the number of records) in each window; -1 if it has no record."""
        n, number = len(values) + 1, np.cumsum(first_of_run(contents.block))
        up, down = number * n, (int(number[-1]) - number) * n
        prefixes = np.maximum.accumulate(values + up) - up
        suffixes = (np.maximum.accumulate((values + down)[::-1]))[::-1] - down
        return np.maximum(
            np.where(self.suffix >= 0, suffixes[self.suffix], -1), np.where(self.prefix >= 0, prefixes[self.prefix], -1)
        )

    def latest(self, contents: Contents) -> Ints:
        """The arrival of the last record of each window; -1 for none."""
        return self.most(contents, contents.arrival)

    def earliest(self, contents: Contents) -> Ints:
        """The arrival of the first record of each window; `AFTER_ALL` for none."""
        n = len(contents.arrival) - 1
        found = self.most(contents, n - contents.arrival)
        return np.where(found >= 0, n - found, AFTER_ALL)


def irregular_keys(axis: Axis, stored: pa.Table, stored_codes: Ints, ts: Ints, codes: Ints, open_from: Ints) -> Ints:
    """The keys whose stored windows differ from the windows that the times of their records make.

    Only windows that records of the batch can meet are checked; they are not older than two differences. While the
    window of the early records is open, no record has found a window closed.
    """
    d, keys = axis.difference, len(axis.offset)
    first, opened = np.full(keys, MAX_MS), np.full(keys, -1)
    np.minimum.at(first, codes, ts)
    np.maximum.at(opened, codes, open_from)
    asked = (first < MAX_MS) & (opened > d)
    # Early records have no windows of their own that would show their times.
    near = asked & (first <= 3 * d)
    of_near = stored_codes[near[stored_codes]]
    rows = np.flatnonzero((asked & ~near)[stored_codes])
    if not len(rows):
        return of_near
    stored_codes, starts, newest = stored_codes[rows], ints(stored["start"])[rows], ints(stored["ts"])[rows]
    start = axis.at(stored_codes, starts)
    order = radix_sort.argsort(start)
    stored_codes, start, newest = stored_codes[order], start[order], axis.at(stored_codes, newest)[order]
    end, low = start + d, axis.at(stored_codes, first[stored_codes] - 2 * d)
    known = newest == end
    times, of_times = end[known], stored_codes[known]
    before = np.searchsorted(times, end, side="right") - 1
    wrong = (before < 0) | (np.append(times, AFTER_ALL)[before] != newest) | ~(known | _has(times, start - 1))
    follows = _next(times, times) <= times + 1 + d
    alone = follows & ~_has(start, times + 1) & (times >= axis.at(of_times, first[of_times] - 2 * d))
    return np.concatenate((of_near, stored_codes[wrong & (start > low)], of_times[alone]))


def _has(ordered: Ints, places: Ints) -> Flags:
    """Whether each place is among `ordered`."""
    found: Flags = index_of(ordered, places) >= 0
    return found


def index_of(ordered: Ints, places: Ints) -> Ints:
    """The index of each place in `ordered`, -1 if it is not there."""
    if not len(ordered):
        return np.full(len(places), -1)
    at = np.minimum(np.searchsorted(ordered, places), len(ordered) - 1)
    return np.where(ordered[at] == places, at, -1)


def base_of(stored: Ints, reaches: Ints, places: Ints) -> Ints:
    """The stored window with all older records of a window at each place; -1 for none."""
    found = np.searchsorted(stored, places, side="right") - 1
    return np.where(np.append(reaches, STORED)[found] >= places, found, -1)


def _next(ordered: Ints, places: Ints) -> Ints:
    """The first of `ordered` behind each place, `AFTER_ALL` if there is none."""
    return np.append(ordered, AFTER_ALL)[np.searchsorted(ordered, places, side="right")]
