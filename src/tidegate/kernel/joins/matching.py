"""The pairs of records that join: found by sorted codes, then checked exactly.

A code has 32 bits of the key's hash above 32 bits of the timestamp, counted from the earliest one. So the records of a
key within a window are one range of sorted codes, which two binary searches find. Then the records of the range are
checked: keys by their values, times to the millisecond. If a range has one key, the key of its first record is checked
for all of them.

    codes     h1:05  h1:09  h1:40  h2:07     sorted
    query     key h1, from 04 to 10          the range h1:04 .. h1:10, two records

The records of a batch lie in the order of their codes themselves, and open records nearly so. So neighbouring pairs
have neighbouring records: random reads would take several times as long.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tidegate.instants import MAX_MS, earlier_ms, later_ms
from tidegate.kernel.columns.arrays import Flags, Ints
from tidegate.kernel.columns.groups import neighbours
from tidegate.kernel.columns.runs import expanded
from tidegate.kernel.columns.sorting import ties_in_order

_BITS = 32


@dataclass(frozen=True)
class Records:
    """Records of one side of a join: those that are open from earlier batches, or those of this batch.

    rows           their columns
    keys           the names of the columns of the key
    hashes         hashes of the keys
    times          timestamps (ms)
    arrived        place in the batch's order over both sides; below 0 and in their order for records of earlier batches
    closing_times  the stream time that decides which records are closed for each record (ms); of records of earlier
                   batches it has no meaning
    keyed          whether a record has a key; a record without one closes at once, and so joins nothing
    reach_ms       a record closes when stream time is this much past its timestamp
    """

    rows: pa.Table
    keys: Sequence[str]
    hashes: Ints
    times: Ints
    arrived: Ints
    closing_times: Ints
    keyed: Flags
    reach_ms: int

    def __len__(self) -> int:
        return len(self.times)

    def closes(self, at: Ints | slice = slice(None)) -> Ints:
        """The stream time at which the records at these places close (ms)."""
        times: Ints = later_ms(self.times[at], self.reach_ms)
        return np.where(self.keyed[at], times, -1)

    @cached_property
    def changes_of_key(self) -> Ints:
        """For each record, how many records up to it have another key than the record before, but the hash of its code.

        Two records of a range have the same key if these numbers are equal.
        """
        upper = self.hashes >> _BITS
        differ = np.zeros(len(self) - 1, bool)
        for name in self.keys:
            column = self.rows[name]
            differ |= ~_equal(column[1:], column[:-1])
        return np.append(0, np.cumsum(differ & (upper[1:] == upper[:-1])))


def in_order(hashes: Ints, times: Ints) -> Ints:
    """The places that put records in the order of their codes; records with equal codes keep their order."""
    if not len(times):
        return np.zeros(0, np.int64)
    first, last = int(times.min()), int(times.max())
    if _shift(first, last):
        return np.lexsort((times, hashes >> _BITS))
    codes = _codes(hashes, times - first)
    # A stable sort takes twice as long, and few codes are equal.
    return ties_in_order(np.argsort(codes), codes, np.arange(len(codes)))


def pairs(one: Records, other: Records, back_ms: int, ahead_ms: int, most: int) -> Iterator[tuple[Ints, Ints]]:
    """Pairs (row of `one`, row of `other`) that join; `other` is in the order of its codes (`in_order`).

    Yields parts: about `most` records are looked at together, and about `most` pairs, which bounds the memory.

    A record of `one` at t reaches the records of `other` from t - `back_ms` to t + `ahead_ms`. Of two such records the
    first to come must still be open when the other one comes (SEMANTICS 7b.2).
    """
    if not len(one) or not len(other):
        return
    first, last = int(other.times.min()), int(other.times.max())
    shift = _shift(first, last)

    def codes(hashes: Ints, times: Ints) -> Ints:
        return _codes(hashes, (np.clip(times, first, last) - first) >> shift)

    sought = codes(other.hashes, other.times)
    changes = other.changes_of_key
    closes = None if _always_meet(one, other, back_ms, ahead_ms) else (one.closes(), other.closes())
    for begin in range(0, len(one), most):
        times = one.times[begin : begin + most]
        low_ms, high_ms = earlier_ms(times, back_ms), later_ms(times, ahead_ms)
        rows = np.flatnonzero((low_ms <= last) & (high_ms >= first) & one.keyed[begin : begin + most])
        hashes = one.hashes[begin + rows]
        low = np.searchsorted(sought, codes(hashes, low_ms[rows]), side="left")
        counts = np.searchsorted(sought, codes(hashes, high_ms[rows]), side="right") - low
        found = np.flatnonzero(counts)
        rows, low, counts = begin + rows[found], low[found], counts[found]
        several_keys = changes[low + counts - 1] > changes[low]
        one_key = np.flatnonzero(~several_keys)
        one_key = one_key[_same_keys(one, rows[one_key], other, low[one_key])]
        for ranges, check_keys in ((one_key, False), (np.flatnonzero(several_keys), True)):
            for mine, theirs in _each(rows[ranges], low[ranges], counts[ranges], most):
                if closes is not None:
                    kept = _open(one, other, mine, theirs, closes)
                    mine, theirs = mine[kept], theirs[kept]
                if check_keys:
                    kept = _same_keys(one, mine, other, theirs)
                    mine, theirs = mine[kept], theirs[kept]
                if shift:
                    # Codes have coarse times where times need more than 32 bits.
                    at, others = one.times[mine], other.times[theirs]
                    near = (others >= earlier_ms(at, back_ms)) & (others <= later_ms(at, ahead_ms))
                    mine, theirs = mine[near], theirs[near]
                yield mine, theirs


def _always_meet(one: Records, other: Records, back_ms: int, ahead_ms: int) -> bool:
    """Whether every two records within the window of each other join, because none comes too late.

    A record of `one` stays open until `reach_ms` past its time, and a partner is at most `ahead_ms` past it. So it is
    still open if the partner sees a stream time less than `reach_ms - ahead_ms`, which is the grace, past its own. The
    same holds for a record of `other` and a partner that comes later, with `back_ms`.
    """

    def all_before(records: Records, limit_ms: int) -> bool:
        saw = records.closing_times
        return int((saw - records.times).max()) < limit_ms and int(saw.max()) < MAX_MS

    # A record of `other` without a key has closed when it comes.
    return (
        bool(other.keyed.all())
        and all_before(other, one.reach_ms - ahead_ms)
        and all_before(one, other.reach_ms - back_ms)
    )


def _each(rows: Ints, low: Ints, counts: Ints, most: int) -> Iterator[tuple[Ints, Ints]]:
    """Each of `rows` paired with `counts` rows from `low` on, in parts of about `most` pairs."""
    for start, end in neighbours(counts, most):
        taken = counts[start:end]
        yield np.repeat(rows[start:end], taken), expanded(low[start:end], taken, 1)


def _shift(first: int, last: int) -> int:
    """The number of bits by which times from `first` to `last` are too long for a code."""
    return max(0, (last - first).bit_length() - _BITS)


def _codes(hashes: Ints, places: Ints) -> Ints:
    codes: Ints = (hashes >> _BITS << _BITS) | places
    return codes


def _open(one: Records, other: Records, mine: Ints, theirs: Ints, closes: tuple[Ints, Ints]) -> Ints:
    """The indices of the pairs whose first record is still open when the other one comes."""
    one_closes, other_closes = closes
    comes_later = one.arrived[mine] > other.arrived[theirs]
    other_open = one.closing_times[mine] < other_closes[theirs]
    one_open = other.closing_times[theirs] < one_closes[mine]
    return np.flatnonzero(np.where(comes_later, other_open, one_open))


def _same_keys(one: Records, mine: Ints, other: Records, theirs: Ints) -> Ints:
    """The indices of the pairs with equal keys."""
    kept = np.arange(len(mine))
    for name in one.keys:
        if not len(kept):
            break
        mine_keys, their_keys = (
            side.rows[name].take(pa.array(at[kept])) for side, at in ((one, mine), (other, theirs))
        )
        kept = kept[_equal(mine_keys, their_keys)]
    return kept


def _equal(one: pa.ChunkedArray, other: pa.ChunkedArray) -> Flags:
    if pa.types.is_null(one.type) or pa.types.is_null(other.type):
        return np.zeros(len(one), bool)  # no record has a key yet
    same: Flags = pc.equal(one, other).to_numpy(zero_copy_only=False).astype(bool)
    if pa.types.is_floating(one.type):
        both_nan = pc.and_(pc.is_nan(one), pc.is_nan(other)).to_numpy(zero_copy_only=False)
        same |= both_nan.astype(bool)
    return same
