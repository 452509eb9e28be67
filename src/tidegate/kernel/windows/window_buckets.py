"""The windows of keys in buckets of a tree over the hash of the key (`state.hash_tree`).

A batch reads and writes whole buckets: those of its keys and of closing windows. So a key costs as much as some hundred
windows, and a batch with few keys in each of many buckets reads and writes nearly the whole state.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tidegate.instants import MAX_MS, later_ms
from tidegate.kernel.columns.arrays import Hashes, Ints, concat_tables, flags, ints
from tidegate.kernel.operator import OpenWindows
from tidegate.kernel.rows import grouping
from tidegate.kernel.rows.layout import Layout
from tidegate.kernel.state import hash_tree
from tidegate.kernel.state.log_index import Log
from tidegate.kernel.state.state import State
from tidegate.kernel.suppress import keyed_strict_bound
from tidegate.kernel.suppress.bounded_buffer import Content
from tidegate.kernel.suppress.suppression_metrics import Buffered
from tidegate.kernel.windows import sliding
from tidegate.kernel.windows.stored_windows import Loaded, Opens, Parts, kept, no_windows
from tidegate.spec.windows import SlidingWindows

_ROWS_PER_RECORD = 64
"""Windows per record that a batch may write in large buckets before more, smaller buckets would be faster."""

_MARKS = np.uint64(44)
"""Bits that a hash loses to become a mark; a table of all marks fits in memory."""


@dataclass
class WindowBuckets:
    """The buckets of a task.

    written  number of windows that the batch has written so far
    needed   number of them that are of the batch's keys or have closed
    """

    layout: Layout
    state: State
    opens: Opens
    written: int = 0
    needed: int = 0

    def parts(self, records: pa.Table | None, divides: bool) -> Parts:
        return Parts(self._parts(records, divides))

    def read(self) -> Iterator[pa.Table]:
        for bucket in sorted(self.state.logs):
            if segments := self.state.read(bucket):
                yield keyed_strict_bound.split(self.layout, concat_tables(segments))[0]

    def count_open(self) -> OpenWindows:
        totals = self.state.logs.totals()
        # A bucket without open windows closes at MAX_MS.
        closes = self.layout.keyed_windows.close_of_end_ms(totals.closes) if totals.windows else None
        return OpenWindows(totals.windows, closes)

    def buffered(self) -> Buffered:
        totals = self.state.logs.totals()
        if self.layout.op.buffer is not None:
            return Buffered(totals.waits, totals.counts, totals.size)
        return Buffered(totals.windows, totals.size, totals.size)

    @property
    def writes_much(self) -> bool:
        """Whether the batch has written far more windows than it needed."""
        few = self.layout.tuning
        return self.written > few.whole_rows and self.written > few.whole_times * self.needed

    def take_all(self) -> Iterator[pa.Table]:
        """Remove all windows from the store. Yields those still needed, some at a time."""
        found: list[pa.Table] = []
        for bucket in sorted(self.state.logs):
            found += self.state.read(bucket)
            self.state.forget(bucket)
            if sum(rows.num_rows for rows in found) >= self.layout.tuning.part_rows:
                yield self._of_use(found)
                found = []
        if found:
            yield self._of_use(found)

    def put(self, rows: pa.Table) -> None:
        """Store these windows; none may be stored yet."""
        if rows.num_rows:
            self._write([0], rows, grouping.key_hash(self.layout, rows), self.layout.tuning.key_windows[0])

    def begin_anew(self) -> None:
        """Rewrite all windows with or without entries of a bounded buffer, as the plan now needs."""
        part = _Buckets(self, list(self.state.logs), None)
        loaded = part.load()
        part.store(loaded, loaded.rows, loaded.entries)

    def _of_use(self, segments: list[pa.Table]) -> pa.Table:
        rows, _ = keyed_strict_bound.split(self.layout, concat_tables(segments))
        return rows.filter(pa.array(kept(self.layout, rows, self.opens.after)))

    def _parts(self, records: pa.Table | None, divides: bool) -> Iterator[_Buckets]:
        """One part with everything, or parts of successive buckets with about `part_records` records each."""
        layout, state = self.layout, self.state
        due, most = set(state.logs.due_before(self.opens.after)), layout.tuning.part_records
        if records is None or records.num_rows <= most or not divides:
            yield _Buckets(self, sorted(self._touched(records) | due), records)
            return
        hashes = grouping.key_hash(layout, records)
        hash_tree.divide(state, hashes, most)
        own = hash_tree.find(state, hashes)
        filled, counts = np.unique(own, return_counts=True)
        buckets = np.union1d(filled, np.array(sorted(due), np.int64))
        sizes = np.zeros(len(buckets), np.int64)
        sizes[np.searchsorted(buckets, filled)] = counts
        part = (np.cumsum(sizes) - 1) // most
        every = len(buckets) == len(state.logs)
        for number in np.unique(part).tolist():
            mine = buckets[part == number]
            places = np.flatnonzero((own >= mine[0]) & (own <= mine[-1]))
            # Buckets that are only due may be a part of their own.
            own_records = records.take(pa.array(places)) if len(places) else None
            yield _Buckets(self, mine.tolist(), own_records, places, every)

    def _touched(self, records: pa.Table | None) -> set[int]:
        """The buckets of the records. Many records soon touch all buckets; the other records are not looked up then."""
        found: set[int] = set()
        step = self.layout.tuning.lookup_records
        for low in range(0, 0 if records is None else records.num_rows, step):
            assert records is not None
            hashes = grouping.key_hash(self.layout, records.slice(low, step))
            found.update(np.unique(hash_tree.find(self.state, hashes)).tolist())
            if len(found) >= len(self.state.logs):
                break
        return found

    def load(self, numbers: list[int]) -> Loaded:
        """The windows in these buckets, and the entries of a bounded buffer."""
        tables = [table for number in numbers for table in self.state.read(number)]
        rows = concat_tables(tables) if tables else no_windows(self.layout)
        rows, entries = keyed_strict_bound.split(self.layout, rows)
        if isinstance(self.layout.op.windows, SlidingWindows):
            rows = rows.filter(pa.array(kept(self.layout, rows, self.opens.before)))
        totals, read = self.state.logs.totals(), [self.state.logs.get(number) or Log() for number in numbers]
        unread = Content(totals.waits - sum(log.waits for log in read), totals.counts - sum(log.counts for log in read))
        return Loaded(rows, entries, unread)

    def store(self, part: _Buckets, loaded: Loaded, rows: pa.Table, entries: pa.Table | None) -> None:
        """Replace the windows in the buckets of a part by `rows`."""
        if entries is not None:
            rows = keyed_strict_bound.stored(self.layout, rows, entries, self.opens.after)
        records = 0 if part.records is None else part.records.num_rows
        few, many = self.layout.tuning.key_windows
        most = min(max(few, records // max(1, len(part.buckets)) * _ROWS_PER_RECORD), many)
        hashes = grouping.key_hash(self.layout, rows)
        self._write(part.buckets, rows, hashes, most, part.every)
        self.written += rows.num_rows
        ends = ints(loaded.rows["end"])
        closed = (ends >= self.opens.before) & (ends < self.opens.after)
        self.needed += int(closed.sum()) + self._of_keys(part.records, hashes)

    def _of_keys(self, records: pa.Table | None, hashes: Hashes) -> int:
        """The number of windows with these hashes that are of keys of the records; a few too many."""
        count, tuning = len(hashes), self.layout.tuning
        if records is None or count <= tuning.whole_rows:
            return 0
        if records.num_rows * tuning.whole_times > 3 * count:
            return count  # To find the keys of so many records costs more than it may save.
        marks = np.zeros(1 << (64 - int(_MARKS)), bool)
        marks[grouping.key_hash(self.layout, records) >> _MARKS] = True
        return int(marks[hashes >> _MARKS].sum())

    def _write(self, buckets: list[int], rows: pa.Table, hashes: Hashes, most: int, every: bool | None = None) -> None:
        known = partial(_known, self.layout, self.opens.after)
        hash_tree.write(self.state, np.array(buckets, np.int64), rows, hashes, most, known, every)


@dataclass(frozen=True)
class _Buckets:
    """Buckets that are read and written together.

    every  whether the batch writes all buckets of the state, in parts of neighbouring buckets
    """

    stored: WindowBuckets
    buckets: list[int]
    records: pa.Table | None
    places: Ints | None = None
    every: bool | None = None

    def load(self) -> Loaded:
        return self.stored.load(self.buckets)

    def store(self, loaded: Loaded, rows: pa.Table, entries: pa.Table | None) -> None:
        self.stored.store(self, loaded, rows, entries)


def _known(layout: Layout, opens_after: float, rows: pa.Table) -> dict[str, int]:
    """The index entry of a bucket: its open windows and buffer entries, and the time at which it must be looked at."""
    ends = ints(rows["end"])
    is_open = ends >= opens_after
    bounded = "bytes" in rows.schema.names
    waits, counts = keyed_strict_bound.totals(rows, opens_after) if bounded else (0, 0)
    live = np.ones(rows.num_rows, np.bool_)
    if "deleted" in rows.schema.names:
        live = ~flags(pc.fill_null(rows["deleted"], False))
    closes = int(ends[is_open].min(initial=MAX_MS))
    due = closes
    if not is_open.any():
        # Sliding windows outlive their close; the bucket is due when none of them is needed any more.
        assert isinstance(layout.op.windows, SlidingWindows)
        due = later_ms(int(ends.max()), sliding.needed_ms(layout.op.windows))
    windows = int((is_open & live).sum())
    return {"windows": windows, "waits": waits, "counts": counts, "closes": closes, "due": due}
