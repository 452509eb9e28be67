"""Strings as words of eight bytes, where words are far fewer than strings, as the beginnings and ends of ids are.

    strings       words                places in the words that occur
    "user-00017"  "user-000", "17"     0, 0
    "user-00142"  "user-001", "42"     1, 1
    "user-00017"  "user-000", "17"     0, 0

Words are dictionary-encoded: a word is stored as its place in the list of those that occur, in one or two bytes. Where
the list would be long, words are stored themselves. Where lengths differ, each string's is stored too.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tidegate.kernel.columns.arrays import Words
from tidegate.kernel.columns.factorize import SAMPLE, repeats
from tidegate.kernel.columns.fixed_length import MOST_BYTES, as_strings
from tidegate.kernel.columns.hash64 import words_of

_MOST = 1 << 16
"""Words of a list: a place has two bytes."""
_WIDTHS = (np.uint8, np.uint16, np.uint32, np.uint64)


def in_words(column: pa.Array) -> pa.StructArray | None:
    """A struct with a field for each word, and one for lengths that differ; None where that saves nothing.

    column  strings or bytes without nulls
    """
    if len(column) < 2 * SAMPLE or (words := as_words(column)) is None:
        return None
    repeated = any(pa.types.is_dictionary(field.type) for field in words.type)
    return words if repeated and words.nbytes < column.nbytes else None


def as_words(column: pa.Array) -> pa.StructArray | None:
    """`in_words`, also where that saves nothing; None if a string is over `hash64.LONGEST`, or if all are empty."""
    parts = words_of(pa.chunked_array([column]))
    if not parts:
        return None
    return pa.StructArray.from_arrays(map(_listed, parts), names=[str(at) for at in range(len(parts))])


def _listed(part: Words) -> pa.Array:
    """Places in a list of words, or the words themselves."""
    if repeats(part):
        found = pa.array(part).dictionary_encode()
        if len(found.dictionary) <= _MOST:
            width = pa.uint8() if len(found.dictionary) <= 1 << 8 else pa.uint16()
            return pa.DictionaryArray.from_arrays(found.indices.cast(width), found.dictionary)
    most = int(part.max())
    return pa.array(part.astype(next(width for width in _WIDTHS if most <= np.iinfo(width).max)))


def from_words(words: pa.StructArray, length: int, kind: pa.DataType) -> pa.Array:
    """The strings that `in_words` was given, of this type. `length`: of each string; 0 where lengths differ.

    Raises ValueError or LookupError for words that it did not make.
    """
    if not len(words):
        return pa.array([], kind)
    parts = [_words(field) for field in words.flatten()]
    if length:
        fixed = [None, pa.py_buffer(_bytes(parts, length))]
        return as_strings(pa.Array.from_buffers(pa.binary(length), len(words), fixed), kind)
    lengths = parts.pop().astype(np.int64)
    data = _bytes(parts, 8 * len(parts))[np.arange(8 * len(parts)) < lengths[:, None]]
    places = np.concatenate([[0], np.cumsum(lengths)])
    if not 0 <= places[-1] == len(data) <= MOST_BYTES:
        raise ValueError(f"{len(words)} strings of {places[-1]} bytes, of which {len(data)} are there")
    buffers = [None, pa.py_buffer(places.astype(np.int32)), pa.py_buffer(data)]
    return pa.Array.from_buffers(kind, len(words), buffers)


def _words(field: pa.Array) -> Words:
    if pa.types.is_dictionary(field.type):
        return field.dictionary.to_numpy().take(field.indices.to_numpy())
    return field.to_numpy().astype(np.uint64)


def _bytes(parts: Sequence[Words], length: int) -> npt.NDArray[np.uint8]:
    """The first `length` bytes of the words of each row."""
    rows = len(parts[0])
    found = np.empty((rows, length), np.uint8)
    for at, part in enumerate(parts):
        width = min(8, length - 8 * at)
        if width == 8:
            np.ndarray((rows,), "<u8", found, 8 * at, (length,))[:] = part
        else:
            found[:, 8 * at :] = part.view(np.uint8).reshape(-1, 8)[:, :width]
    return found
