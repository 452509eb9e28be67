"""The order of the records of a recorded stream, and the stream time that each of them sees.

A recording has no micro-batches, so one rule makes them. Records are batched by arrival in intervals of `trigger`, and
ordered in a batch by partition and offset. A record never comes before a smaller offset of its partition. Without a
trigger a batch is a millisecond, the shortest possible: with any longer trigger a record sees the same or an earlier
stream time. Without arrivals all records are one batch, as in a static DataFrame. A single partition is then the stream
as it was; each of several partitions has its own time.

A record sees the larger of two times: the stream time at the end of the previous batch, and the largest timestamp of
its own partition up to and including the record (`kernel.time.stream_time`). `kernel.time.slowest_partition` has the
rule of the slowest partition.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from tidegate.instants import MAX_MS
from tidegate.kernel.columns.arrays import Flags, Ints
from tidegate.kernel.columns.runs import run_starts
from tidegate.kernel.time.stream_time import NEVER, running_max

SHORTEST_BATCH_MS = 1
MOST_PARTITIONS = 1_000
"""With more partitions the time of the slowest one is not computed: its cost is partitions times batches."""
_CELLS = 1 << 21
"""The most (batch, partition) times that are computed at once."""


@dataclass(frozen=True)
class Arrived:
    """Records in any order, one entry per record: `ts` (ms, not negative), `partition` (numbered from 0), `offset`,
    and `arrival` (ms) if it is known.
    """

    ts: Ints
    partition: Ints
    offset: Ints
    arrival: Ints | None = None

    def take(self, rows: Ints) -> Arrived:
        """The records with these row numbers."""
        arrival = None if self.arrival is None else self.arrival[rows]
        return Arrived(self.ts[rows], self.partition[rows], self.offset[rows], arrival)


@dataclass(frozen=True)
class Times:
    """Times before a batch, in ms; NEVER before the first record.

    largest   stream time
    guarded   stream time without records that are further ahead of their arrival than a guard allows
    slowest   stream time by the slowest partition
    reached   the largest timestamp of each partition; `reached_guarded` without records that the guard skips
    left      of a join, the number of partitions of its left input, which come first; None: there is one input
    """

    largest: int
    guarded: int
    slowest: int
    reached: Ints
    reached_guarded: Ints
    left: int | None = None

    @classmethod
    def at_start(cls, partitions: int, left: int | None = None) -> Times:
        """The times before the first record."""
        nothing = np.full(partitions, NEVER, np.int64)
        return cls(NEVER, NEVER, NEVER, nothing, nothing, left)

    def begun(self, known: Flags) -> Flags:
        """Whether each input has a partition with a record: without records, an input holds back the slowest time.

        known  whether a partition has a record; the last axis is that of the partitions
        """
        inputs = (known,) if self.left is None else (known[..., : self.left], known[..., self.left :])
        found: Flags = np.logical_and.reduce([one.any(axis=-1) for one in inputs])
        return found


@dataclass(frozen=True)
class Seen:
    """Times per record (ms): the stream time it sees (`largest`), the largest timestamp of its own partition (`own`),
    and, if computed, the stream time by the slowest partition and with a guard.
    """

    largest: Ints
    own: Ints
    slowest: Ints | None
    guarded: Ints | None


def delivered(records: Arrived) -> tuple[Ints | None, int]:
    """The time (ms) at which each record can be read, not before smaller offsets of its partition; and the number of
    records that waited for one.
    """
    if records.arrival is None or not len(records.arrival):
        return records.arrival, 0
    order = np.lexsort((records.arrival, records.offset, records.partition))
    starts = run_starts(records.partition[order])
    ready = np.empty_like(records.arrival)
    ready[order] = running_max(records.arrival[order], starts)
    return ready, int((ready > records.arrival).sum())


def batches(arrival: Ints | None, trigger_ms: int | None, records: int) -> Ints:
    """The batch number of each record: its arrival in units of the trigger; 0 without arrivals."""
    if arrival is None:
        return np.zeros(records, np.int64)
    return arrival // (trigger_ms or SHORTEST_BATCH_MS)


def in_order(batch: Ints, records: Arrived) -> Ints:
    """The row numbers in the order in which records are read."""
    grows = batch[1:] > batch[:-1]
    same = batch[1:] == batch[:-1]
    further = records.partition[1:] > records.partition[:-1]
    later = (records.partition[1:] == records.partition[:-1]) & (records.offset[1:] >= records.offset[:-1])
    if np.all(grows | (same & (further | later))):
        return np.arange(len(batch))
    return np.lexsort((records.offset, records.partition, batch))


def see(
    ts: Ints, partition: Ints, batch: Ints, before: Times, *, future: Flags | None = None, slowest: bool
) -> tuple[Seen, Times]:
    """The stream time that each record sees, and the times after the last one.

    The records are in order (`in_order`), and the first one begins a batch. `future`: whether a guard skips each
    record; if None, `guarded` is not computed. `slowest`: compute the time of the slowest partition too.
    """
    if not len(ts):
        return Seen(ts, ts, ts if slowest else None, None if future is None else ts), before
    number = np.cumsum(np.diff(batch, prepend=batch[0]) != 0)
    largest, own, after = _largest(ts, partition, number, before.largest, before.reached)
    times = replace(before, largest=after[0], reached=after[1])
    guarded = held = None
    if future is not None:
        kept = np.where(future, NEVER, ts)
        guarded, _, after = _largest(kept, partition, number, before.guarded, before.reached_guarded)
        times = replace(times, guarded=after[0], reached_guarded=after[1])
    if slowest:
        held, at = _slowest(own, partition, number, before)
        times = replace(times, slowest=at)
    return Seen(largest, own, held, guarded), times


def _largest(
    ts: Ints, partition: Ints, number: Ints, before: int, reached: Ints
) -> tuple[Ints, Ints, tuple[int, Ints]]:
    """The stream time that each record sees, the largest timestamp of its partition, and both after the last record."""
    order = np.argsort(partition, kind="stable")
    starts = run_starts(partition[order])
    own = np.empty_like(ts)
    own[order] = np.maximum(running_max(ts[order], starts), reached[partition[order]])
    first = run_starts(number)
    ends = np.maximum.accumulate(np.concatenate(([before], np.maximum.reduceat(ts, first))))
    after = reached.copy()
    last = np.append(starts[1:], len(ts)) - 1
    after[partition[order[starts]]] = own[order[last]]
    return np.maximum(ends[number], own), own, (int(ends[-1]), after)


def _slowest(own: Ints, partition: Ints, number: Ints, before: Times) -> tuple[Ints, int]:
    """The stream time by the slowest partition that each record sees, and the one after the last record."""
    partitions = len(before.reached)
    step = max(1, _CELLS // max(partitions, 1))
    found = np.empty_like(own)
    reached, time = before.reached, before.slowest
    for first in range(0, int(number[-1]) + 1, step):
        low, high = np.searchsorted(number, [first, first + step])
        rows, place = slice(low, high), number[low:high] - first
        at = np.full((int(place[-1]) + 2, partitions), NEVER, np.int64)
        at[0] = reached
        # The last record of a batch and partition wins: `own` is a running maximum, so it is the largest.
        at[place + 1, partition[rows]] = own[rows]
        np.maximum.accumulate(at, axis=0, out=at)
        known = at[1:] > NEVER
        begun = before.begun(known)
        floors = np.where(known, at[:-1], MAX_MS)
        least = floors.argmin(axis=1)
        batches_of = np.arange(len(floors))
        first_floor = floors[batches_of, least]
        floors[batches_of, least] = MAX_MS
        others = np.where(partition[rows] == least[place], floors.min(axis=1)[place], first_floor[place])
        others = np.where(begun[place], others, NEVER)
        ends = np.where(begun, np.where(known, at[1:], MAX_MS).min(axis=1), NEVER)
        times = np.maximum.accumulate(np.concatenate(([time], ends)))
        found[rows] = np.maximum(times[place], np.minimum(own[rows], others))
        reached, time = at[-1], int(times[-1])
    return found, time
