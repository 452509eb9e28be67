"""Numbers strings in the order of first occurrence: as Arrow's dictionary_encode, but for many short strings.

A dictionary looks up one value after the other. Here a value is a few words of 8 bytes. Each value gets a place in a
table by its hash. The first value at a place leads it, and every value with the same words is in the leader's group.
The few values with other words than their leader try again at another place.

    value     words        place   leader
    "ann"     "ann"        5       0
    "bob"     "bob"        2       1
    "ann"     "ann"        5       0         the same words: the same number
    "cy"      "cy"         5       0         other words: again
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from tidegate.kernel.columns.arrays import Hashes, Ints, Words
from tidegate.kernel.columns.hash64 import hashed_words

SAMPLE = 4_096
"""A sample of so many values shows whether most are distinct. With few distinct or fewer values Arrow is as fast."""
LONGEST = 32
"""Bytes of a value: longer values have too many words."""
_ROUNDS = 12
"""Only crafted values still collide in 64 bits after so many rounds: then Arrow takes over."""
_BLOCK = 1 << 15
_AGAIN = 0x9E37_79B9_7F4A_7C15


def dense(codes: Ints) -> tuple[Ints, int]:
    """A number per code, from 0, in the order of first occurrence, and how many numbers there are.

    With few distinct codes this is faster than sorting them, and as fast if all are distinct.
    """
    encoded = pa.array(codes).dictionary_encode()
    return encoded.indices.to_numpy().astype(np.int64), len(encoded.dictionary)


def numbered(column: pa.ChunkedArray) -> tuple[Ints, int] | None:
    """A number per value, from 0, and how many numbers there are; None where Arrow is as fast or faster."""
    kind = column.type
    if len(column) < 2 * SAMPLE or column.null_count or not (pa.types.is_string(kind) or pa.types.is_binary(kind)):
        return None
    if len(column[:SAMPLE].unique()) < 0.9 * SAMPLE or (found := hashed_words(column, LONGEST)) is None:
        return None
    leaders = _leaders(*found)
    if leaders is None:
        return None
    numbers = np.cumsum(leaders == np.arange(len(column))) - 1
    return numbers.take(leaders), int(numbers[-1]) + 1


def _leaders(hashes: Hashes, parts: list[Words]) -> Ints | None:
    """The first row with the same parts, for every row; None if values still collide after `_ROUNDS`.

    Rows are processed in blocks, whose temporary arrays are small and stay in the cache.
    """
    bits = len(hashes).bit_length() + 1
    at = np.empty(1 << bits, np.int32)
    rows = np.arange(len(hashes), dtype=np.int32)
    leaders = np.empty(len(hashes), np.int64)
    for turn in range(_ROUNDS):
        factor, shift = np.uint64((2 * turn + 1) * _AGAIN % 2**64), np.uint64(64 - bits)
        blocks = [slice(low, low + _BLOCK) for low in range(0, len(rows), _BLOCK)]
        # numpy keeps the last of several values for a place. Rows are written from the end on: that is the first row.
        for block in reversed(blocks):
            at[_place(hashes[block], factor, shift)[::-1]] = rows[block][::-1]
        left = []
        for block in blocks:
            found = at.take(_place(hashes[block], factor, shift))
            mine = rows[block] if turn else block
            differ = np.zeros(len(found), np.bool_)
            for part in parts:
                differ |= part.take(found) != part[mine]
            leaders[mine] = found
            left.append(np.flatnonzero(differ) + block.start)
        again = np.concatenate(left)
        if not len(again):
            return leaders
        rows, hashes = rows[again], hashes[again]
    return None


def _place(hashes: Hashes, factor: np.uint64, shift: np.uint64) -> Ints:
    return (hashes * factor >> shift).view(np.int64)
