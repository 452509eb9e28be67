"""Sorted numbers in three or four bytes each, because 64 bits per key may not fit into memory.

A number is 32 bits of a hash, then zeros, then a code of 16 bits. The upper half of the hash gives the number's place
in the table. The lower half and the code are columns; the code takes one byte if all codes fit.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tidegate.kernel.columns.arrays import Ints, Words
from tidegate.kernel.state import frames

BITS = 32
"""Bits of a hash; keys that share them share a bucket. With ten million keys in a task every four hundredth key does.

Part of the state format: another number needs another `frames.VERSION`.
"""

HIGH = np.uint64(2**64 - 2 ** (64 - BITS))
"""The bits of a number with a hash."""
CODES = 1 << 16

_PLACE, _REST = np.uint64(48), np.uint64(32)
LOW = np.uint64(CODES - 1)
"""The bits of a number with a code."""


@dataclass(frozen=True)
class Table:
    """Sorted numbers. `starts[i]` is the first row with the upper half of a hash first + i; the last: the row count."""

    first: int
    starts: npt.NDArray[np.uint32]
    rest: npt.NDArray[np.uint16]
    codes: npt.NDArray[Any]

    @classmethod
    def of(cls, numbers: Words) -> Table:
        """A table of sorted numbers, each hash once."""
        place = (numbers >> _PLACE).astype(np.int64)
        first = int(place[0]) if len(place) else 0
        starts = np.cumsum([0, *np.bincount(place - first)], dtype=np.uint32)
        codes = numbers & LOW
        width = np.uint8 if int(codes.max(initial=0)) <= np.iinfo(np.uint8).max else np.uint16
        return cls(first, starts, (numbers >> _REST & LOW).astype(np.uint16), codes.astype(width))

    @property
    def memory(self) -> int:
        """The bytes of the table."""
        return self.starts.nbytes + self.rest.nbytes + self.codes.nbytes

    def numbers(self) -> Words:
        """The sorted numbers."""
        place = np.repeat(np.arange(len(self.starts) - 1, dtype=np.uint64), np.diff(self.starts))
        place += np.uint64(self.first)
        return place << _PLACE | self.rest.astype(np.uint64) << _REST | self.codes

    def find(self, wanted: Words) -> Ints:
        """The code of each wanted hash, -1 if it is not there."""
        if not len(self.rest):
            return np.full(len(wanted), -1, np.int64)
        place = (wanted >> _PLACE).astype(np.int64) - self.first
        inside = (place >= 0) & (place < len(self.starts) - 1)
        place = np.where(inside, place, 0)
        rest = (wanted >> _REST & LOW).astype(np.uint16)
        low, end = self.starts[place].astype(np.int64), self.starts[place + 1].astype(np.int64)
        high, last = end, len(self.rest) - 1
        while np.any(open_ := low < high):
            middle = (low + high) // 2
            less = open_ & (self.rest[np.minimum(middle, last)] < rest)
            low, high = np.where(less, middle + 1, low), np.where(less, high, np.minimum(middle, high))
        at = np.minimum(low, last)
        return np.where(inside & (low < end) & (self.rest[at] == rest), self.codes[at].astype(np.int64), -1)

    def encode(self) -> bytes:
        """The table as a frame."""
        columns = pa.table({"rest": pa.array(self.rest), "code": pa.array(self.codes)})
        counts = pa.table({"count": pa.array(np.diff(self.starts))})
        return frames.encode(frames.SEGMENT, {"first": self.first}, columns, counts)

    @classmethod
    def decode(cls, frame: bytes) -> Table:
        """The table of a frame."""
        meta, (columns, counts) = frames.decode(frames.SEGMENT, frame)
        starts = np.cumsum([0, *counts["count"].to_numpy()], dtype=np.uint32)
        return cls(meta["first"], starts, columns["rest"].to_numpy(), columns["code"].to_numpy())
