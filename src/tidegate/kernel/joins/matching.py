"""Which records of the two sides of a join meet: by sorted codes, and exactly.

A code has 32 bits of the key's hash above 32 bits of the timestamp, counted from the earliest one. So the records of a
key within a window are one range of sorted codes, which two binary searches find. What a range holds is looked at once
more: keys by their values, times to the millisecond.

    codes     h1:05  h1:09  h1:40  h2:07     sorted
    query     key h1, from 04 to 10          the range h1:04 .. h1:10, two records
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tidegate.instants import earlier_ms, later_ms
from tidegate.kernel.columns.arrays import Ints

Bools = npt.NDArray[np.bool_]
Codes = npt.NDArray[np.uint64]

_BITS = 32


@dataclass(frozen=True)
class Records:
    """Records of one side of a join: those that are open from earlier batches, then those of this batch in order.

    keys     the columns of the key, without nulls
    hashes   of the keys; the same for the same key
    times    timestamps (ms)
    arrived  the place in the order of the batch over both sides; -1 for records of earlier batches
    seen     the stream time that the record sees (ms); for records of earlier batches it has no meaning
    keyed    whether a record has a key; one without closes at once, and so meets nobody
    reach_ms by how much stream time must pass a record's timestamp to close it
    """

    keys: pa.Table
    hashes: Codes
    times: Ints
    arrived: Ints
    seen: Ints
    keyed: Bools
    reach_ms: int

    def closes(self, at: Ints | slice = slice(None)) -> Ints:
        """The stream time at which the records at these places close (ms)."""
        times: Ints = later_ms(self.times[at], self.reach_ms)
        return np.where(self.keyed[at], times, -1)


def pairs(one: Records, other: Records, back_ms: int, ahead_ms: int, most: int) -> Iterator[tuple[Ints, Ints]]:
    """Rows of `one`, each a record of this batch, with the rows of `other` that it joins.

    They come in parts of about `most` pairs, which bounds the memory.

    A record at t joins those from t - `back_ms` to t + `ahead_ms` that came before it and are still open when it comes
    (SEMANTICS 7b.2).
    """
    rows = np.flatnonzero(one.arrived >= 0)
    if not len(rows) or not len(other.times):
        return
    low_ms, high_ms = earlier_ms(one.times[rows], back_ms), later_ms(one.times[rows], ahead_ms)
    first, last = int(other.times.min()), int(other.times.max())
    meets = (low_ms <= last) & (high_ms >= first)
    rows, low_ms, high_ms = rows[meets], low_ms[meets], high_ms[meets]
    # Times that need more than 32 bits are made coarse: the exact look behind decides.
    shift = max(0, (last - first).bit_length() - _BITS)

    def place(times: Ints) -> Codes:
        return ((np.clip(times, first, last) - first) >> shift).astype(np.uint64)

    codes = _code(other.hashes, place(other.times))
    order = np.argsort(codes)  # equal codes in any order: rows that must leave in order are sorted behind
    codes = codes[order]
    low_codes = _code(one.hashes[rows], place(low_ms))
    by_code = np.argsort(low_codes)  # a search in order stays in the cache
    rows, high_ms = rows[by_code], high_ms[by_code]
    low = np.searchsorted(codes, low_codes[by_code], side="left")
    high = np.searchsorted(codes, _code(one.hashes[rows], place(high_ms)), side="right")
    counts = np.maximum(high - low, 0)
    found = counts > 0
    rows, low, counts = rows[found], low[found], counts[found]
    ends = np.cumsum(counts)
    start = 0
    while start < len(rows):
        before = int(ends[start - 1]) if start else 0
        end = max(int(np.searchsorted(ends, before + most, side="right")), start + 1)
        taken = counts[start:end]
        each = np.repeat(np.arange(start, end), taken)
        within = np.arange(len(each)) - np.repeat(ends[start:end] - taken - before, taken)
        mine_, theirs = rows[each], order[low[each] + within]
        keep = _joins(one, other, mine_, theirs, back_ms, ahead_ms)
        yield mine_[keep], theirs[keep]
        start = end


def _code(hashes: Codes, place: Codes) -> Codes:
    code: Codes = (hashes >> np.uint64(_BITS) << np.uint64(_BITS)) | place
    return code


def _joins(one: Records, other: Records, mine: Ints, theirs: Ints, back_ms: int, ahead_ms: int) -> Ints:
    """Which of these pairs do meet."""
    times, others = one.times[mine], other.times[theirs]
    meet: Bools = (others >= earlier_ms(times, back_ms)) & (others <= later_ms(times, ahead_ms))
    meet &= other.arrived[theirs] < one.arrived[mine]
    meet &= one.seen[mine] < other.closes(theirs)
    meet &= one.hashes[mine] == other.hashes[theirs]
    kept = np.flatnonzero(meet)
    for name in one.keys.schema.names:
        if not len(kept):
            break
        mine_keys, their_keys = one.keys[name].take(pa.array(mine[kept])), other.keys[name].take(pa.array(theirs[kept]))
        kept = kept[_equal(mine_keys, their_keys)]
    return kept


def _equal(one: pa.ChunkedArray, other: pa.ChunkedArray) -> Bools:
    same: Bools = pc.equal(one, other).to_numpy(zero_copy_only=False).astype(bool)
    if pa.types.is_floating(one.type):
        both_nan = pc.and_(pc.is_nan(one), pc.is_nan(other)).to_numpy(zero_copy_only=False)
        same |= both_nan.astype(bool)
    return same
