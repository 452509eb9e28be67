"""A 64-bit hash of Arrow values, the same on every machine and in every version.

Its values route keys to tasks and fill the registers of `approx_count_distinct`, so they are part of the
state format: changing one means a new state version.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tidegate.kernel.columns.arrays import Hashes, Ints, Words
from tidegate.kernel.columns.fixed_length import as_fixed, one_length

HALF_BITS = 32
"""Bits of half a hash."""

NULL_HASH = np.uint64(0x7A6B_9C3D_51E2_F08D)
_POSITION = 0x9E37_79B9_7F4A_7C15
_LENGTH = 0xD1B5_4A32_D192_ED03
_LOOPED_WORDS = 16  # longer values hash their further words in one go instead of one pass per word
_BLOCK = 1 << 16  # values per pass: the memory of a pass then stays in the cache
_WORD = 8
"""Bytes of a word."""
LONGEST = 32
"""Bytes of a string: longer ones have too many words."""


def hash64(array: pa.Array) -> Hashes:
    """Hash each value of an array of any atomic type to 64 bits.

    The hash depends on the value alone: not on slicing, not on string or large_string, not on the width of an
    integer or a float. All nulls have one hash; so have all NaN, and -0.0 and 0.0, which are equal as keys in Spark.
    Raises TypeError for nested types.
    """
    if isinstance(array, pa.ChunkedArray):
        return np.concatenate([np.empty(0, np.uint64), *map(hash64, array.chunks)])
    if pa.types.is_dictionary(array.type):
        return _through_dictionary(array)
    if pa.types.is_null(array.type):
        return np.full(len(array), NULL_HASH, np.uint64)
    hashes = _hash_values(array)
    if array.null_count:
        hashes[array.is_null().to_numpy(zero_copy_only=False)] = NULL_HASH
    return hashes


def hash_rows(rows: pa.Table) -> Hashes:
    """Hash the values of each row, column by column."""
    hashed = np.zeros(rows.num_rows, np.uint64)
    for column in rows.columns:
        hashed = hashed * np.uint64(31) + hash64(column)
    return hashed


def upper_half(hashes: Hashes) -> Hashes:
    """The upper half of each hash, as a number of 32 bits."""
    return hashes >> np.uint64(HALF_BITS)


def from_upper_half(halves: npt.NDArray[np.unsignedinteger[Any]]) -> Hashes:
    """Hashes with these upper halves and lower halves of 0."""
    return halves.astype(np.uint64) << np.uint64(HALF_BITS)


def _through_dictionary(array: pa.DictionaryArray) -> Hashes:
    codes = array.indices.cast(pa.int64()).fill_null(0).to_numpy()
    values = hash64(array.dictionary)
    hashes = values[codes] if len(values) else np.full(len(array), NULL_HASH, np.uint64)
    hashes[array.is_null().to_numpy(zero_copy_only=False)] = NULL_HASH
    return hashes


def _hash_values(array: pa.Array) -> Hashes:
    kind = array.type
    if pa.types.is_floating(kind):
        return _hash_words(_float_bits(array))
    if pa.types.is_decimal(kind):
        return _hash_decimals(array)
    if pa.types.is_boolean(kind):
        return _hash_words(array.cast(pa.uint8()).fill_null(0).to_numpy().astype(np.uint64))
    if pa.types.is_integer(kind):
        return _hash_words(_values(array, kind).astype(np.int64).view(np.uint64))
    if pa.types.is_temporal(kind) and kind.bit_width in (32, 64):
        as_int = pa.int32() if kind.bit_width == 32 else pa.int64()
        return _hash_words(_values(array.view(as_int), as_int).astype(np.int64).view(np.uint64))
    if pa.types.is_string(kind) or pa.types.is_binary(kind):
        return _hash_bytes(array, np.dtype(np.int32))
    if pa.types.is_large_string(kind) or pa.types.is_large_binary(kind):
        return _hash_bytes(array, np.dtype(np.int64))
    if pa.types.is_fixed_size_binary(kind):
        return _hash_bytes(array.cast(pa.binary()), np.dtype(np.int32))
    if kind in (pa.string_view(), pa.binary_view()):
        return _hash_bytes(array.cast(pa.large_binary()), np.dtype(np.int64))
    raise TypeError(f"values of type {kind} cannot be hashed: hash64 takes atomic types only")


def _values(array: pa.Array, kind: pa.DataType) -> npt.NDArray[np.generic]:
    """Return the raw values, which are arbitrary where the array is null."""
    data = array.buffers()[1]
    if data is None or not len(array):
        return np.empty(0, kind.to_pandas_dtype())
    raw: npt.NDArray[np.generic] = np.frombuffer(data, kind.to_pandas_dtype(), len(array) + array.offset)
    return raw[array.offset :]


def _float_bits(array: pa.Array) -> Words:
    with np.errstate(invalid="ignore"):  # a signaling NaN
        values = _values(array, array.type).astype(np.float64) + 0.0  # -0.0 + 0.0 is 0.0
    values[np.isnan(values)] = np.nan  # one NaN out of many bit patterns
    return values.view(np.uint64)


def _mix(words: Words) -> Words:
    """Scramble in place: the finaliser of SplitMix64 (Steele, Lea, Flood 2014)."""
    words ^= words >> np.uint64(30)
    words *= np.uint64(0xBF58_476D_1CE4_E5B9)
    words ^= words >> np.uint64(27)
    words *= np.uint64(0x94D0_49BB_1331_11EB)
    words ^= words >> np.uint64(31)
    return words


def _at(position: int) -> np.uint64:
    return np.uint64(_POSITION * (position + 1) % 2**64)


def _hash_words(words: Words) -> Hashes:
    return _mix(words + _at(0))


def _hash_decimals(array: pa.Array) -> Hashes:
    if array.type.bit_width < 128:
        array = array.cast(pa.decimal128(array.type.precision, array.type.scale))
    width = array.type.bit_width // 64
    if not len(array):
        return np.empty(0, np.uint64)
    raw = np.frombuffer(array.buffers()[1], np.uint64, (len(array) + array.offset) * width)
    words = raw.reshape(-1, width)[array.offset :]
    # Two words only: the upper half of a decimal256 that fits 128 bits repeats the sign.
    total = _mix(words[:, 0] + _at(0)) + _mix(words[:, 1] + _at(1))
    if width == 4:
        sign = (words[:, 1].view(np.int64) >> 63).view(np.uint64)
        wide = (words[:, 2] != sign) | (words[:, 3] != sign)
        further = _mix(words[:, 2] + _at(2)) + _mix(words[:, 3] + _at(3))
        total = np.where(wide, total + further, total)
    return _mix(total)


def _hash_bytes(array: pa.Array, offset_type: np.dtype[np.signedinteger]) -> Hashes:
    hashes = np.empty(len(array), np.uint64)
    if not len(array):
        return hashes
    rest = hashes
    for words, bounds in _spans(array, offset_type):
        for low in range(0, len(bounds) - 1, _BLOCK):
            ends = bounds[low : low + _BLOCK + 1]
            rest[low : low + _BLOCK][: len(ends) - 1] = _hash_block(words, ends[:-1], np.diff(ends))
        rest = rest[len(bounds) - 1 :]
    return hashes


def words_of(column: pa.ChunkedArray) -> list[Words] | None:
    """Columns that identify each string: its words, and its length if lengths differ; None if one is over `LONGEST`."""
    chunks = [chunk for chunk in column.chunks if len(chunk)]
    if (length := one_length(chunks[0])) >= _WORD and all(one_length(chunk) == length for chunk in chunks):
        return _words_of_one_length(chunks, length) if length <= LONGEST else None
    spans = [span for chunk in chunks for span in _spans(chunk, np.dtype(np.int32))]
    lengths = [np.diff(bounds) for _, bounds in spans]
    most = max(int(each.max()) for each in lengths)
    if most > LONGEST:
        return None
    parts = [np.zeros(len(column), np.uint64) for _ in range(-(-most // _WORD))]
    base = 0
    for (words, bounds), of_each in zip(spans, lengths, strict=True):
        for low in range(0, len(of_each), _BLOCK):
            some = of_each[low : low + _BLOCK]
            begins = bounds[low : low + len(some)]
            block = slice(base + low, base + low + len(some))
            for j, part in enumerate(parts):
                rows, word = _word(words, begins, some, j)
                part[block][rows] = word
        base += len(of_each)
    if all(int(each.min()) == most for each in lengths):
        return parts
    return [*parts, np.concatenate(lengths).view(np.uint64)]


def _words_of_one_length(chunks: list[pa.Array], length: int) -> list[Words]:
    """The words of strings of this length, which is a word or more: they lie evenly, and no word is looked up."""
    parts = []
    for begin in range(0, length, _WORD):
        # The last word is read from its end, so that no byte behind the strings is read.
        at = min(begin, length - _WORD)
        views = [np.ndarray((len(one),), "<u8", as_fixed(one, length).buffers()[1], at, (length,)) for one in chunks]
        part = np.concatenate(views)
        parts.append(part >> np.uint64(8 * (begin - at)) if begin > at else part)
    return parts


def hash_of_words(parts: list[Words]) -> Hashes:
    """A hash of each row of these columns. It is not `hash64`, and no part of any state."""
    hashes = np.zeros(len(parts[0]), np.uint64)
    for low in range(0, len(hashes), _BLOCK):
        block = slice(low, low + _BLOCK)
        for j, part in enumerate(parts):
            hashes[block] += _mix(part[block] + _at(j))
    return hashes


def _spans(array: pa.Array, offset_type: np.dtype[np.signedinteger]) -> Iterator[tuple[Words, Ints]]:
    """The values in one or two pieces: bytes of which word i are the 8 bytes from byte i on, and the places in these
    where each value begins and where the last one ends.

    A word may reach past the last value. If the buffer ends there, the last values are copied and padded.
    """
    _, offset_buffer, data = array.buffers()
    raw = np.frombuffer(offset_buffer, offset_type, array.offset + len(array) + 1)
    bounds = raw[array.offset :].astype(np.int64)
    last = int(bounds[-1])
    if data is not None and last + 8 <= data.size:
        yield np.ndarray((last + 1,), "<u8", buffer=data, strides=(1,)), bounds
        return
    whole = max(0, int(np.searchsorted(bounds, last - 8, side="right")) - 1)
    if whole:
        yield np.ndarray((last - 7,), "<u8", buffer=data, strides=(1,)), bounds[: whole + 1]
    bounds = bounds[whole:]
    used = b"" if data is None else memoryview(data)[int(bounds[0]) : last]
    padded = b"".join((used, bytes(8)))
    yield np.ndarray((len(used) + 1,), "<u8", buffer=padded, strides=(1,)), bounds - bounds[0]


def _hash_block(words: Words, starts: Ints, lengths: Ints) -> Hashes:
    """Sum the mixed words of each value, each keyed by its position, so the order of the work is free."""
    total = (lengths + 1).astype(np.uint64) * np.uint64(_LENGTH)  # not 0 for the empty value: 0 mixes to 0
    longest = int(lengths.max())
    for j in range(min(-(-longest // 8), _LOOPED_WORDS)):
        rows, word = _word(words, starts, lengths, j)
        total[rows] += _mix(word + _at(j))
    if longest > 8 * _LOOPED_WORDS:
        _add_long(total, words, starts, lengths)
    return _mix(total)


def _word(words: Words, starts: Ints, lengths: Ints, j: int) -> tuple[Ints | slice, Words]:
    """The values that have a `j`-th word, and these words."""
    rest = lengths - 8 * j
    fewest = int(rest.min())
    if fewest > 0 and fewest == int(rest.max()):
        # Values of one length, such as ids, lie evenly: a view instead of a lookup per value.
        first, step = int(starts[0]) + 8 * j, int(lengths[0])
        return slice(None), _masked(words[first : first + step * len(starts) : step], rest[:1])
    if fewest > 0:
        return slice(None), _masked(words[starts + 8 * j], rest)
    rows = np.flatnonzero(rest > 0)
    return rows, _masked(words[starts[rows] + 8 * j], rest[rows])


def _masked(words: Words, rest: Ints) -> Words:
    """Clear the bytes that belong to the next value; `rest`: bytes left of each value, or of every value."""
    unused = np.maximum(8 - rest, 0).astype(np.uint64)
    return words & (np.uint64(2**64 - 1) >> (unused << np.uint64(3)))


def _add_long(total: Hashes, words: Words, starts: Ints, lengths: Ints) -> None:
    rows = np.flatnonzero(lengths > 8 * _LOOPED_WORDS)
    counts = (lengths[rows] + 7) // 8 - _LOOPED_WORDS
    ends = np.cumsum(counts)
    owner = np.repeat(np.arange(len(rows)), counts)
    position = np.arange(int(ends[-1])) - (ends - counts)[owner] + _LOOPED_WORDS
    keyed = _masked(words[starts[rows][owner] + 8 * position], lengths[rows][owner] - 8 * position)
    keyed += np.uint64(_POSITION) * (position + 1).astype(np.uint64)
    total[rows] += np.add.reduceat(_mix(keyed), ends - counts)
