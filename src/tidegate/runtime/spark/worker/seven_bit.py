"""Bytes in seven bits each, for the way from Spark's state to Python.

Spark pickles state for Python, and its pickler writes bytes as text: a byte above 127 takes two, which Python has to
join again. Text of 7 bits is copied (decision 0016).

    first seven eighths: the low bits of each byte; last eighth: the high bits of seven bytes each; one byte: number of
    zeros that were added for words of 8 bytes
"""

from __future__ import annotations

import numpy as np

_PLANES = 7
_WORD = np.dtype("<u8")
_LOW, _FIRST = np.uint64(0x7F7F7F7F7F7F7F7F), np.uint64(0x0101010101010101)
_HIGH = np.uint64(7)


def pack(value: bytes) -> bytes:
    """`value` in bytes below 128, a seventh more of them."""
    words = -(-len(value) // (_PLANES * _WORD.itemsize))
    packed = np.zeros((_PLANES + 1, words), _WORD)
    packed.view(np.uint8).reshape(-1)[: len(value)] = np.frombuffer(value, np.uint8)
    for plane in range(_PLANES):
        packed[_PLANES] |= ((packed[plane] >> _HIGH) & _FIRST) << np.uint64(plane)
    packed[:_PLANES] &= _LOW
    return packed.tobytes() + bytes([_PLANES * _WORD.itemsize * words - len(value)])


def unpack(packed: bytes) -> bytes:
    """The bytes that `pack` packed."""
    planes = np.frombuffer(memoryview(packed)[:-1], _WORD).reshape(_PLANES + 1, -1)
    value = planes[:_PLANES].copy()
    for plane in range(_PLANES):
        value[plane] |= ((planes[_PLANES] >> np.uint64(plane)) & _FIRST) << _HIGH
    return value.tobytes()[: value.nbytes - packed[-1]]
