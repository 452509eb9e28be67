"""Progress of stream time within a micro-batch, for a time limit: its times, and the key of the first record at each.

A task has the updates of its own keys, but its buffered rows leave as records of other tasks advance stream time. So
every map task sends to all tasks the times of its records and, for each time, the key of the first record at that time.
An update by this record finds the stream time before it; every other update at that time finds the stream time moved.

    records in the order of their times    a 10   b 12   c 12   a 15
    stream time before each                 7     10     12     12
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from tidegate.kernel.columns.arrays import Hashes, Ints, ints
from tidegate.kernel.columns.runs import first_of_run
from tidegate.kernel.rows import grouping
from tidegate.kernel.rows.layout import Layout


@dataclass(frozen=True)
class TimeProgress:
    """Times (ms), ascending, and the hash of the key of the first record at each."""

    times: Ints
    first: Hashes

    @classmethod
    def of(cls, times: Ints, keys: Hashes, order: Ints) -> TimeProgress:
        """The progress by records with these times (ms) and hashes of keys.

        order  sorts the records by time; of several at one time the first one comes first
        """
        first = order[first_of_run(times[order])]
        return cls(times[first], keys[first])

    def before(self, now: int, times: Ints, keys: Hashes) -> tuple[Ints, Any]:
        """The stream time that updates with these times and keys find; `now`: stream time before the batch (ms).

        Also whether an update moved stream time to its time: of several updates of a key at one time the first one.
        """
        at = np.searchsorted(self.times, times)
        known = np.append(self.times, -1)[at] == times
        makes = known & (times > now) & (np.append(self.first, np.uint64(0))[at] == keys)
        _, head = np.unique(times[makes], return_index=True)
        makes[np.delete(np.flatnonzero(makes), head)] = False
        before = np.maximum(np.append(np.int64(-1), self.times)[at], now)
        return np.where(makes, before, np.maximum(times, now)), makes


def first_records(
    layout: Layout, rows: pa.Table, ts: Ints, chunk_time: Ints, chunk: Ints, offset: Ints | None
) -> pa.Table:
    """The first record of a map task per chunk and time: chunk, time, chunk_time (ms), offset, key hash."""
    keys = grouping.key_hash(layout, rows)
    times = chunk_time if follows_order(layout) else ts
    if layout.op.stream.changes:
        chunk_time, place = ints(rows["rank"]), ints(rows["place"])
        order = np.lexsort((place, chunk_time, times))
    elif offset is not None:
        place = offset
        order = np.lexsort((times, chunk))  # stable, and a chunk is in the order of its offsets
    else:
        place = np.zeros(len(ts), np.int64)
        order = np.lexsort((keys, times))  # without an order ties are taken by key
    at = order[first_of_run(chunk[order]) | first_of_run(times[order])]
    columns = {"chunk": chunk, "time": times, "chunk_time": chunk_time, "offset": place, "key": keys}
    return pa.table({name: column[at] for name, column in columns.items()})


def growing(ts: Ints, chunk_time: Ints, chunk: Ints, offset: Ints | None) -> pa.Table:
    """The records of a map task at which time grows in their chunks: chunk, time, chunk_time (ms) and offset."""
    if offset is None:
        counted = np.flatnonzero(ts == chunk_time)
        at = counted[np.unique(ts[counted], return_index=True)[1]]
        offset = np.zeros(len(ts), np.int64)
    else:
        at = np.flatnonzero((ts == chunk_time) & (first_of_run(chunk) | (np.diff(chunk_time, prepend=-1) > 0)))
    return pa.table({"chunk": chunk[at], "time": ts[at], "chunk_time": chunk_time[at], "offset": offset[at]})


def follows_order(layout: Layout) -> bool:
    """Whether updates come in the order of their records, not of their own timestamps: changes of a table do."""
    return not layout.op.aggregations and layout.op.stream.ordered


def of_batch(layout: Layout, rows: pa.Table, arrival_time: Ints, partition: Ints) -> TimeProgress:
    """The time progress of a batch, given the rows of all map tasks (`first_records`).

    arrival_time  the stream time (ms) when each record arrived
    partition     the number of each row's partition
    """
    keys = rows["key"].to_numpy()
    times = arrival_time if follows_order(layout) else ints(rows["time"])
    if layout.op.stream.ordered or layout.op.stream.changes:
        order = np.lexsort((keys, ints(rows["offset"]), partition, arrival_time, times))
    else:
        order = np.lexsort((keys, times))
    return TimeProgress.of(times, keys, order)
