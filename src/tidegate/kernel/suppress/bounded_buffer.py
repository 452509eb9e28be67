"""A bounded buffer: entries by key, with their count and bytes, oldest first.

Entries from before a batch (`Waited`) are touched only if the batch has their key or if they leave. So a batch costs
Python time for its own rows and for rows that leave, however many entries wait.
"""

from __future__ import annotations

import heapq
from bisect import bisect_left
from collections.abc import Callable
from dataclasses import dataclass
from itertools import groupby
from operator import attrgetter
from typing import Any, NamedTuple

import numpy as np

from tidegate.kernel.columns.arrays import Ints
from tidegate.kernel.rows.result_keys import Name
from tidegate.spec.suppressed import Buffer

_BLOCK = 1024


def exceeds(bound: Buffer, records: Any, size: Any) -> Any:
    """Whether so many records or bytes are more than the bound of a buffer; numbers, or arrays of them."""
    too_many = bound.max_records is not None and records > bound.max_records
    return too_many | (bound.max_bytes is not None and size > bound.max_bytes)


@dataclass(frozen=True, slots=True)
class Entry:
    """The entry of a key.

    time   buffer time (ms)
    row    the row with its newest update, by its number in the caller's rows
    prior  the row with its prior value: the value of the key before it began to wait
    size   bytes (SEMANTICS 6.4)
    """

    time: int
    row: int
    prior: int
    size: int


class Content(NamedTuple):
    """The number of entries, and their bytes."""

    records: int
    size: int


EMPTY = Content(0, 0)


class Entries(NamedTuple):
    """Entries as columns, in the order in which they leave; the fields of `Entry`."""

    rows: Ints
    priors: Ints
    times: Ints
    sizes: Ints


class Waited:
    """Entries from before the batch, as columns in the order in which they leave; entry i has key i and row i."""

    def __init__(self, time: Ints, size: Ints, name: Callable[[int], Name]) -> None:
        self.time, self.size, self.name = time, size, name
        self.rest = np.ones(len(time), np.bool_)
        self._first = 0

    def first(self) -> int | None:
        """The oldest entry that is still there; None if there is none."""
        while self._first < len(self.rest) and not self.rest[self._first]:
            # A block at a time, so that each of many evictions does not scan all remaining entries.
            block = self.rest[self._first : self._first + _BLOCK]
            ahead = int(block.argmax())
            self._first += ahead if block[ahead] else len(block)
        return self._first if self._first < len(self.rest) else None


class Bounded:
    """The entries of a bounded buffer by key code; they leave in the order of (buffer time, name of the key)."""

    def __init__(self, bound: Buffer, waited: Waited) -> None:
        self.bound, self.waited = bound, waited
        self.records, self.size = len(self.waited.time), int(self.waited.size.sum())
        self.most = (self.records, self.size)
        """The largest number of records and of bytes so far, each taken after a put (SEMANTICS 10)."""
        self._entries: dict[int, Entry] = {}
        self._heap: list[tuple[int, Name, int]] = []
        """(time, name, key) of every entry in `_entries`, and of some that have left."""

    def get(self, key: int) -> Entry | None:
        """The entry of a key; None if it has none."""
        if key in self._entries:
            return self._entries[key]
        waited = self.waited
        if key < len(waited.rest) and waited.rest[key]:
            return Entry(int(waited.time[key]), key, key, int(waited.size[key]))
        return None

    def put(self, key: int, name: Name, entry: Entry) -> None:
        """Set the entry of a key."""
        old = self._take_out(key)
        self._entries[key] = entry
        if old is None or old.time != entry.time or key < len(self.waited.rest):
            heapq.heappush(self._heap, (entry.time, name, key))
        self.records, self.size = self.records + 1, self.size + entry.size
        self.most = (max(self.most[0], self.records), max(self.most[1], self.size))

    def oldest(self) -> tuple[int, int] | None:
        """The key that leaves first and its buffer time, ties in the order of their names; None if nothing waits."""
        while self._heap and not self._is_current(*self._heap[0]):
            heapq.heappop(self._heap)
        at = self.waited.first()
        if at is None:
            return (self._heap[0][2], self._heap[0][0]) if self._heap else None
        time = int(self.waited.time[at])
        if self._heap and (self._heap[0][0], self._heap[0][1]) < (time, self.waited.name(at)):
            return self._heap[0][2], self._heap[0][0]
        return at, time

    def pop(self, key: int) -> Entry:
        """Remove and return the entry of a key."""
        entry = self._take_out(key)
        assert entry is not None
        return entry

    @property
    def over(self) -> bool:
        """Whether the buffer exceeds its bound."""
        return bool(exceeds(self.bound, self.records, self.size))

    def entries(self) -> Entries:
        """All entries."""
        # An entry that left and came back with the same time is there twice.
        mine = [here for here, _ in groupby(sorted(each for each in self._heap if self._is_current(*each)))]
        new = [self._entries[key] for *_, key in mine]
        rest = np.flatnonzero(self.waited.rest)
        times = self.waited.time[rest]
        places = [self._place(rest, times, time, name) for time, name, _ in mine]

        def merged(waited: Ints, attribute: Callable[[Entry], int]) -> Ints:
            return np.insert(waited, places, np.fromiter(map(attribute, new), np.int64, len(new)))

        return Entries(
            merged(rest, attrgetter("row")),
            merged(rest, attrgetter("prior")),
            merged(times, attrgetter("time")),
            merged(self.waited.size[rest], attrgetter("size")),
        )

    def _place(self, rest: Ints, times: Ints, time: int, name: Name) -> int:
        low, high = np.searchsorted(times, time, "left"), np.searchsorted(times, time, "right")
        same = range(int(low), int(high))
        return int(low) + bisect_left(same, name, key=lambda i: self.waited.name(int(rest[i])))

    def _is_current(self, time: int, _: Name, key: int) -> bool:
        entry = self._entries.get(key)
        return entry is not None and entry.time == time

    def _take_out(self, key: int) -> Entry | None:
        entry = self.get(key)
        if entry is None:
            return None
        if self._entries.pop(key, None) is None:
            self.waited.rest[key] = False
        self.records, self.size = self.records - 1, self.size - entry.size
        return entry
