"""Equal strings get equal numbers, by which of them comes first: as Arrow's dictionary_encode, for many short ones.

A dictionary looks up one value after the other. Here a column is a few words of 8 bytes per value: each value takes a
place in a table by its hash, the first one to come there leads, and whoever has the leader's words is in its group. The
few who met another value at their place try again at another one.

    value     words        place   leader
    "ann"     "ann"        5       0
    "bob"     "bob"        2       1
    "ann"     "ann"        5       0         the same words: the same number
    "cy"      "cy"         5       0         other words: again
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from tidegate.kernel.columns.arrays import Ints
from tidegate.kernel.columns.hash64 import U64, hashed_words

SAMPLE = 4_096
"""So many values show whether most are distinct: Arrow is as fast with few distinct ones, and with fewer values."""
LONGEST = 32
"""Bytes of a value: longer ones are too many words."""
_ROUNDS = 12
"""Hashes of 64 bits that do not tell so many values apart are somebody's work: Arrow does it then."""
_BLOCK = 1 << 15
_AGAIN = 0x9E37_79B9_7F4A_7C15


def numbered(column: pa.ChunkedArray) -> tuple[Ints, int] | None:
    """A number per value, from 0, and how many there are; None where Arrow does it as well or better."""
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


def _leaders(hashes: U64, parts: list[U64]) -> Ints | None:
    """The first row with the same parts, for every row.

    By blocks of rows: what a block needs in between stays in the cache, and is little.
    """
    bits = len(hashes).bit_length() + 1
    at = np.empty(1 << bits, np.int32)
    rows = np.arange(len(hashes), dtype=np.int32)
    leaders = np.empty(len(hashes), np.int64)
    for turn in range(_ROUNDS):
        factor, shift = np.uint64((2 * turn + 1) * _AGAIN % 2**64), np.uint64(64 - bits)
        blocks = [slice(low, low + _BLOCK) for low in range(0, len(rows), _BLOCK)]
        # Of several values for one place numpy keeps the last: from the end on, the first row.
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


def _place(hashes: U64, factor: np.uint64, shift: np.uint64) -> Ints:
    return (hashes * factor >> shift).view(np.int64)
