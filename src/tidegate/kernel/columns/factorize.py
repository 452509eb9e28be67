"""Numbers values, so that equal values have one number: as Arrow's dictionary, but for many short strings faster.

A string of up to 32 bytes is a few words of 8 bytes. Ids often have a common beginning, and words that are far fewer
than the ids: `together` numbers each word, and combines the numbers.

    value         words               numbers   together
    "user-00017"  "user-000", "17"    0, 0      0
    "user-00142"  "user-001", "42"    1, 1      3
    "user-00017"  "user-000", "17"    0, 0      0

Where most words are distinct too, a dictionary would look up one after the other in a table that no cache holds. So
each value gets a place in a table by its hash. The first value at a place leads it, and every value with the same words
is in the leader's group. The few values with other words than their leader try again at another place.

    value     words        place   leader
    "ann"     "ann"        5       0
    "bob"     "bob"        2       1
    "ann"     "ann"        5       0         the same words: the same number
    "cy"      "cy"         5       0         other words: again
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import pyarrow as pa

from tidegate.kernel.columns.arrays import Hashes, Ints, Words
from tidegate.kernel.columns.hash64 import hash_of_words, words_of

SAMPLE = 4_096
"""A sample of so many values shows whether most are distinct. With few distinct or fewer values Arrow is as fast."""
_REPEATED = 0.1
"""Share of a sample of strings that are repeated: with more, Arrow's dictionary is as fast."""
_MOST_NUMBERS = 0.97
"""Share of distinct numbers in a sample: with fewer, Arrow's dictionary is as fast."""
_MANY = 1 << 16
"""Up to so many numbers fit a cache, distinct or not."""
ROOM = 2**62
"""Numbers that are computed with stay below, so that they fit 64 bits."""
_SPARE = 4
"""Numbers may reach this many times the number of rows: beyond, to make them dense costs less than a larger table."""
_ROUNDS = 12
"""Only crafted values still collide in 64 bits after so many rounds: then Arrow takes over."""
_BLOCK = 1 << 15
_AGAIN = 0x9E37_79B9_7F4A_7C15


def together(columns: Iterable[tuple[Ints, int]], rows: int) -> tuple[Ints, int]:
    """A number per row, from 0, the same for rows that are equal in every column, and how many numbers there may be.

    columns  a number per row, from 0, and how many numbers there may be

    There are not many more numbers than rows, so that a table by number fits in memory.
    """
    combined, size = np.zeros(rows, np.int64), 1
    for part, many in columns:
        if size * many > ROOM:
            combined, size = dense(combined)
        if many > 1:
            combined = part if size == 1 else combined * many + part
        size *= many
    return (combined, size) if fits_table(size, rows) else dense(combined)


def fits_table(many: int, rows: int) -> bool:
    """Whether a table by number, for numbers of `rows` rows from 0 up to `many`, costs less than making them dense."""
    return many <= _SPARE * rows + _SPARE


def dense(codes: Ints) -> tuple[Ints, int]:
    """A number per code, from 0, in the order of first occurrence, and how many numbers there are."""
    if len(codes) > _MANY and not repeats(codes):
        words = codes.view(np.uint64)
        if (leaders := _leaders(words, [words])) is not None:
            return _numbers(leaders)
    encoded = pa.array(codes).dictionary_encode()
    return encoded.indices.to_numpy().astype(np.int64), len(encoded.dictionary)


def numbered(column: pa.ChunkedArray) -> tuple[Ints, int] | None:
    """A number per value, from 0, and how many numbers there may be; None where Arrow is as fast or faster."""
    kind = column.type
    if len(column) < 2 * SAMPLE or column.null_count or not (pa.types.is_string(kind) or pa.types.is_binary(kind)):
        return None
    # A segment of state has each key once: every chunk is asked.
    chunks = [chunk for chunk in column.chunks if len(chunk)]
    of_each = -(-SAMPLE // len(chunks))
    sample = pa.chunked_array([chunk[:of_each] for chunk in chunks], kind)
    repeated = len(sample) - len(sample.unique())
    if repeated > _REPEATED * len(sample) or (parts := words_of(column)) is None:
        return None
    parts = [part for part in parts if part[0] != part[-1] or (part != part[0]).any()]
    # Of n values a sample of s repeats about s^2 / 2n. Where values are as many as rows, words together are no fewer.
    fewer = 2 * repeated * len(column) > len(sample) ** 2
    if fewer and all(map(repeats, parts)):
        numbers, many = together((dense(part.view(np.int64)) for part in parts), len(column))
        return (numbers, many) if many <= len(column) else dense(numbers)
    leaders = _leaders(hash_of_words(parts), parts)
    return None if leaders is None else _numbers(leaders)


def repeats(numbers: Ints | Words) -> bool:
    """Whether so many numbers of a sample are repeated that Arrow's dictionary is as fast as `_leaders`."""
    sample = pa.array(numbers[:: len(numbers) // SAMPLE + 1])
    return len(sample.unique()) <= _MOST_NUMBERS * len(sample)


def _numbers(leaders: Ints) -> tuple[Ints, int]:
    """The number of each row's leader among the leaders, and how many there are."""
    numbers = np.cumsum(leaders == np.arange(len(leaders))) - 1
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
