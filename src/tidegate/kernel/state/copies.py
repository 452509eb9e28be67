"""Copies of sorted runs beside the worker: a batch reads the records that it needs without decoding the others.

The process holds the upper halves of the hashes of a run, four bytes a record, and a copy of its rows, of which any row
can be read (`columns.row_bytes`, `state.store.Store.beside`). The store has every run as a frame. A copy is found by
the digest of its frame, so it is never out of date. A worker without a copy, because it is new or had no room, reads
the copy that another worker of the machine has in a file; if there is none, it decodes the frame. For runs whose
records close the process also holds their order by time, another twelve bytes a record.

A worker runs tasks of many queries, and other workers run the same tasks. So a copy leaves in three ways: this worker
replaces its run; this worker reads that another one has replaced it (`Copies.keep_only`); or no step has used the copy
for a minute, and its room is needed (`Copies.room`, `Copies.drop_unused`). If the room of copies in use is needed, the
hashes of the least recently used ones leave, and their files stay.
"""

from __future__ import annotations

import pickle
import time
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from itertools import takewhile
from typing import NamedTuple, Protocol, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tidegate.instants import later_ms
from tidegate.kernel.columns.arrays import Flags, Ints, concat_tables, ints
from tidegate.kernel.columns.hash64 import HALF_BITS
from tidegate.kernel.columns.row_bytes import Extents, RowBytes
from tidegate.kernel.columns.runs import expanded
from tidegate.kernel.state.store import Copy, Store
from tidegate.kernel.tuning import Tuning

RECORD_BYTES = 4
"""Bytes of the process for each record of a copy, at least."""

_NUMBER_BITS = 32
"""Bits of a number in an array: a bitmap with more bits for each of its numbers is larger than the array."""

_SIZE = 8
"""Bytes of the size of a description of columns, in front of it."""

_LEAST = 1 << (HALF_BITS - 1)

Ordered = TypeVar("Ordered", Ints, npt.NDArray[np.int32])


class Held(Protocol):
    """A copy that the process holds of a frame."""

    @property
    def memory(self) -> int:
        """Bytes of the process that the copy takes."""


@dataclass
class Numbers:
    """A set of numbers from 0 up: a bitmap, or an ascending array where they are few."""

    few: npt.NDArray[np.uint32] | None
    bits: npt.NDArray[np.uint8]

    @classmethod
    def of(cls, numbers: Ints) -> Numbers:
        """The set of these ascending numbers."""
        if len(numbers) * _NUMBER_BITS < int(numbers[-1]):
            return cls(numbers.astype(np.uint32), np.zeros(0, np.uint8))
        flags = np.zeros(int(numbers[-1]) + 1, bool)
        flags[numbers] = True
        return cls(None, np.packbits(flags))

    @property
    def memory(self) -> int:
        return self.bits.nbytes if self.few is None else self.few.nbytes

    def all(self) -> Ints:
        """The numbers, ascending."""
        return np.flatnonzero(np.unpackbits(self.bits)) if self.few is None else self.few.astype(np.int64)

    def have(self, numbers: Ints) -> Flags:
        """For each of `numbers`, whether the set has it."""
        if self.few is not None:
            at = np.searchsorted(self.few, numbers)
            return (at < len(self.few)) & (self.few[np.minimum(at, len(self.few) - 1)] == numbers)
        byte = np.minimum(numbers >> 3, len(self.bits) - 1)
        bit = self.bits[byte] >> (7 - (numbers & 7)).astype(np.uint8) & 1
        return bit.astype(bool) & (numbers >> 3 == byte)


@dataclass
class Run:
    """The copy of a run: records sorted by hash, and the place where each range of hashes begins."""

    high: npt.NDArray[np.int32]
    begins: npt.NDArray[np.int32]
    format: RowBytes
    copy: Copy
    by_time: tuple[Ints, npt.NDArray[np.uint32]] | None = None

    @classmethod
    def of(cls, parts: Iterable[pa.Table], columns: Extents, rows: int, store: Store) -> Run | None:
        """A copy of the records of these parts, which are in order; `columns` describes all parts together.

        None if there is no room, or if a column has no form in a copy (`has_form`). Then some parts may be unread.
        """
        made = RowBytes.of(columns, rows, store.tuning)
        if made is None:
            return None
        high = np.empty(rows, np.int32)

        def noted() -> Iterator[pa.Table]:
            at = 0
            for part in parts:
                high[at : at + part.num_rows] = upper_halves(ints(part["h"]))
                at += part.num_rows
                yield part

        copy = store.beside(made.bytes_of(noted()))
        return None if copy is None else cls(high, _begins(high, store.tuning.range_records), made, copy)

    @classmethod
    def of_file(cls, copy: Copy, tuning: Tuning) -> Run:
        """The run of a copy that has a description (`share`)."""
        about = copy.about()
        size = int.from_bytes(about[:_SIZE], "little")
        columns, rows = pickle.loads(about[_SIZE : _SIZE + size])  # noqa: S301 - of a process like this one
        made = RowBytes.of(columns, rows, tuning)
        assert made is not None
        high = np.frombuffer(about, np.int32, rows, _SIZE + size)
        return cls(high, _begins(high, tuning.range_records), made, copy)

    def share(self, digest: str, store: Store) -> None:
        """Describe the copy, so that it can be read again, and let other workers of this machine find it."""
        columns = pickle.dumps((self.columns, self.format.rows))
        # Numbers behind the sizes lie at a multiple of their own.
        columns += bytes(-len(columns) % self.high.itemsize)
        store.share(digest, self.copy, [len(columns).to_bytes(_SIZE, "little"), columns, self.high.data])

    @property
    def memory(self) -> int:
        by_time = 0 if self.by_time is None else sum(part.nbytes for part in self.by_time)
        return self.high.nbytes + self.begins.nbytes + self.copy.memory + by_time

    def with_hashes(self, wanted: Ints) -> Ints:
        """Places of records that may have one of these ascending hashes: the upper halves are equal."""
        asked = distinct(upper_halves(wanted))
        return places(self.high, asked, self._first(asked))

    def _first(self, asked: npt.NDArray[np.int32]) -> Ints:
        """`np.searchsorted` within the range of each hash: over all records its first steps would wait for memory."""
        number = (asked.astype(np.int64) + _LEAST) >> (HALF_BITS - (len(self.begins) - 2).bit_length())
        found, ends = (self.begins[number + more].astype(np.int64) for more in (0, 1))
        last = max(len(self.high) - 1, 0)
        for bit in reversed(range(int((ends - found).max(initial=0)).bit_length())):
            ahead = found + (1 << bit) - 1
            found += ((ahead < ends) & (self.high[np.minimum(ahead, last)] < asked)).astype(np.int64) << bit
        return found

    def closing(self, after: int, up_to: int, reach_ms: int) -> Ints:
        """Places of records that close after one stream time and up to another: `reach_ms` after their timestamps."""
        times, order = self.in_order_by_time()
        low, high = (
            bisect_right(times, bound, key=lambda time: int(later_ms(int(time), reach_ms))) for bound in (after, up_to)
        )
        return np.sort(order[low:high]).astype(np.int64)

    def in_order_by_time(self) -> tuple[Ints, npt.NDArray[np.uint32]]:
        """The timestamps, ascending (ms), and the places of their records."""
        if self.by_time is None:
            times = ints(concat_tables(list(self.blocks(["ts"])))["ts"])
            order = np.argsort(times).astype(np.uint32)
            self.by_time = (times[order], order)
        return self.by_time

    def take(self, at: Ints) -> pa.Table:
        """The records at these ascending places."""
        return self.format.read(self.copy, at)

    @property
    def columns(self) -> Extents:
        return self.format.extents

    def part(self, low: int, high: int, columns: list[str] | None = None) -> pa.Table:
        """The records from place `low` up to `high`, with these columns or all."""
        return self.format.read(self.copy, np.arange(low, high), columns)

    def blocks(self, columns: list[str] | None = None) -> Iterator[pa.Table]:
        """All records, in blocks of `Tuning.block_rows`."""
        rows, step = self.format.rows, self.format.tuning.block_rows
        for low in range(0, max(rows, 1), step):
            yield self.part(low, min(low + step, rows), columns)


@dataclass(frozen=True)
class Parked:
    """A copy in a file, without the hashes of its records in the process (`Run.of_file`)."""

    copy: Copy
    memory: int = 0


class Partition(NamedTuple):
    """A partition of a table: the `Store.task` that owns the table, and the number of the partition in it."""

    task: str
    number: int


class Use(NamedTuple):
    """The last use of a copy (`Copies.clock`, in seconds), and the partition whose run the copy has."""

    seconds: float
    partition: Partition


@dataclass
class Copies:
    """The copies that this process holds, by the digests of their frames."""

    held: dict[str, Held] = field(default_factory=dict)
    used: dict[str, Use] = field(default_factory=dict)
    """The last use of each copy, the least recently used copy first."""
    by_partition: dict[Partition, set[str]] = field(default_factory=dict)
    """The digests of the copies of each partition."""
    sizes: dict[str, int] = field(default_factory=dict)
    """The bytes that each copy has in memory."""
    in_memory: int = 0
    """The sum of `sizes`: a step asks for room once for each of its runs, and there may be thousands of copies."""
    in_files: dict[str, None] = field(default_factory=dict)
    """The digests of the copies that are in files, the least recently used copy first."""
    clock: Callable[[], float] = time.monotonic

    @property
    def memory(self) -> int:
        """The bytes that all copies have in memory."""
        return sum(one.memory for one in self.held.values())

    def get(self, digest: str) -> Held | None:
        found = self.held.get(digest)
        if found is not None:
            self._measure_last()
            self.used[digest] = Use(self.clock(), self.used.pop(digest).partition)
            if digest in self.in_files:
                self.in_files[digest] = self.in_files.pop(digest)
        return found

    def put(self, partition: Partition, digest: str, one: Held, tuning: Tuning) -> None:
        """Hold a copy of a run of a partition by its digest, if there is room for it: for its file at least."""
        self.drop(digest)
        kept = one if self.room(one.memory, tuning) else _parked(one)
        if kept is not None:
            self._hold(digest, kept)
            self.used[digest] = Use(self.clock(), partition)
            self.by_partition.setdefault(partition, set()).add(digest)
            if _parked(kept) is not None:
                self.in_files[digest] = None
            self._close(tuning)

    def _hold(self, digest: str, one: Held) -> None:
        self.held[digest] = one
        self.in_memory += one.memory - self.sizes.get(digest, 0)
        self.sizes[digest] = one.memory

    def _measure_last(self) -> None:
        """Count the last used copy again: its use may have put its records in order by time (`Run.closing`)."""
        if (digest := next(reversed(self.used), None)) is not None:
            self._hold(digest, self.held[digest])

    def keep_only(self, partition: Partition, digests: set[str]) -> None:
        """Drop all copies of a partition but these: it has no other runs any more."""
        for digest in self.by_partition.get(partition, set()) - digests:
            self.drop(digest)

    def room(self, needed: int, tuning: Tuning) -> bool:
        """Whether there is room for so many bytes.

        First, copies that no step used for `Tuning.copy_seconds` are dropped. Then the hashes of the least recently
        used copies in files leave the process; they are read again with their next use. A copy whose records are in
        order by time stays: the order takes long to make.
        """
        self._measure_last()
        most = tuning.copy_bytes - needed
        if self.in_memory > most:
            for digest in self._unused(self.used, tuning.copy_seconds):
                if self.in_memory <= most:
                    break
                self.drop(digest)
        for digest in self.in_files:
            if self.in_memory <= most or needed > tuning.copy_bytes:
                break
            one = self.held[digest]
            if isinstance(one, Run) and one.by_time is None and (kept := _parked(one)) is not None:
                self._hold(digest, kept)
        return self.in_memory <= most

    def _close(self, tuning: Tuning) -> None:
        """Drop copies in files: the least recently used ones beyond `Tuning.copy_files`, and those that only have files
        and that no step used for `Tuning.copy_seconds`: their disk makes room for nothing.
        """
        for digest in self._unused(self.in_files, tuning.copy_seconds):
            if isinstance(self.held[digest], Parked):
                self.drop(digest)
        while len(self.in_files) > tuning.copy_files:
            self.drop(next(iter(self.in_files)))

    def drop_unused(self, seconds: float) -> None:
        """Drop the copies that no step used for so many seconds."""
        for digest in self._unused(self.used, seconds):
            self.drop(digest)

    def drop(self, digest: str) -> None:
        """Drop the copy with this digest, if there is one."""
        if self.held.pop(digest, None) is not None:
            self.in_memory -= self.sizes.pop(digest)
            self.in_files.pop(digest, None)
            partition = self.used.pop(digest).partition
            self.by_partition[partition].remove(digest)
            if not self.by_partition[partition]:
                del self.by_partition[partition]

    def _unused(self, digests: Iterable[str], seconds: float) -> list[str]:
        """Digests of these, in the order of use, whose copies no step used for so many seconds."""
        last = self.clock() - seconds
        return list(takewhile(lambda digest: self.used[digest].seconds <= last, digests))


def _parked(one: Held) -> Parked | None:
    """A copy without what it has in memory; None if it is not in a file."""
    if isinstance(one, Run):
        return Parked(one.copy) if one.copy.described else None
    return one if isinstance(one, Parked) else None


COPIES = Copies()
"""The copies of this process."""


def places(stored: Ordered, wanted: Ordered, low: Ints | None = None) -> Ints:
    """Places in `stored`, which is sorted, of ascending `wanted` numbers; `low`: their `np.searchsorted`, if known."""
    if not len(stored):
        return np.zeros(0, np.int64)
    low = np.searchsorted(stored, wanted, side="left") if low is None else low
    last = len(stored) - 1
    there = stored[np.minimum(low, last)] == wanted
    low, wanted = low[there], wanted[there]
    counts = np.ones(len(low), np.int64)
    several = np.flatnonzero((low < last) & (stored[np.minimum(low + 1, last)] == wanted))
    counts[several] = np.searchsorted(stored, wanted[several], side="right") - low[several]
    return expanded(low, counts, 1)


def distinct(numbers: Ordered) -> Ordered:
    """The distinct values of sorted numbers; np.unique is slower."""
    return numbers[np.diff(numbers, prepend=~numbers[:1]) != 0]


def _begins(high: npt.NDArray[np.int32], together: int) -> npt.NDArray[np.int32]:
    """The place where each range of numbers begins, and the last one's end; a range has about `together` numbers."""
    ranges = 1 << max(0, (len(high) // together).bit_length())
    bounds = (np.arange(ranges) << (HALF_BITS - (ranges - 1).bit_length())) - _LEAST
    return np.append(np.searchsorted(high, bounds.astype(np.int32)), len(high)).astype(np.int32)


def upper_halves(hashes: Ints) -> npt.NDArray[np.int32]:
    """The upper halves of hashes, which sort as the hashes do."""
    return (hashes >> HALF_BITS).astype(np.int32)
