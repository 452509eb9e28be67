"""Which grace each record would have needed, for each of its windows (`kernel.time.lateness`), counted.

What is counted, by name:
    records, records/part/P, records/hour/H          records that have a key and a timestamp
    pairs, pairs/part/P, pairs/hour/H                (record, window) pairs
    late/part/P, late/hour/H                         the grace (ms) that each late pair needed; no pair in time is there
    lost                                             of a record: the grace without which it is in no window at all
    late_by_own, late_by_slowest, late_by_guarded    as `late` if stream time were another one: that of the record's own
                                                     partition alone, by the slowest partition, behind a guard
    future                                           records that the guard keeps out
    records_of/N, late_of/N                          by partition (its number): records, pairs late with today's grace
P is the part of the stream, 0 to PARTS - 1 in the order of the records, H the hour of the day (UTC) of the timestamp.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tidegate.advice.counts import Tally
from tidegate.advice.keyed import AdvisedWindows, needs_of, pairs_of
from tidegate.advice.order import Bools, Seen
from tidegate.kernel.columns.arrays import Ints

PARTS = 50
"""Parts of equal size into which the stream is cut, in order: what holds in one must hold in the others."""
HOUR_MS, DAY_HOURS = 3_600_000, 24


@dataclass(frozen=True)
class Records:
    """Records in the order in which they come, one entry each.

    key             a number, the same for the same key; sliding windows and sessions are those of a key
    ts, partition   timestamp (ms), number of the partition
    part            the part of the stream (0 to PARTS - 1)
    seen            the stream time they see
    future          which ones a guard keeps out; None without a guard
    wall            when the batch with the record is done (ms); None without arrivals
    """

    key: Ints
    ts: Ints
    partition: Ints
    part: Ints
    seen: Seen
    future: Bools | None = None
    wall: Ints | None = None


def parts(rank: Ints, records: int) -> Ints:
    """The part of the record of this rank (from 0) among so many."""
    return rank * PARTS // max(records, 1)


def lateness(windows: AdvisedWindows, records: Records, exact: Ints) -> Tally:
    """What is counted of these records (see above); `exact` are graces in ms at which it must be exact."""
    tally = Tally(exact)
    hour = records.ts // HOUR_MS % DAY_HOURS
    among = pairs_of(windows, records.key, records.ts)
    tally.number("records", len(among))
    tally.number("pairs", int(among.sum()))
    for name, label in (("part", records.part), ("hour", hour)):
        for which in np.unique(label):
            mine = among[label == which]
            tally.number(f"records/{name}/{which}", len(mine))
            tally.number(f"pairs/{name}/{which}", int(mine.sum()))
    left = among.copy()
    for rows, need in needs_of(windows, records.key, records.ts, records.seen.largest):
        for name, label in (("part", records.part[rows]), ("hour", hour[rows])):
            for which in np.unique(label):
                tally.add(f"late/{name}/{which}", need[label == which])
        left[rows] -= 1
        tally.add("lost", need[left[rows] == 0])
        _by_partition(tally, "late_of", records.partition[rows[need > windows.grace_ms]])
    _by_partition(tally, "records_of", records.partition)
    _other_clocks(tally, windows, records)
    return tally


def _by_partition(tally: Tally, name: str, partition: Ints) -> None:
    for number, count in enumerate(np.bincount(partition)):
        if count:
            tally.number(f"{name}/{number}", int(count))


def _other_clocks(tally: Tally, windows: AdvisedWindows, records: Records) -> None:
    seen, key = records.seen, records.key
    # If each partition had a stream time of its own, it would have windows of its own.
    alone = key * (int(records.partition.max(initial=0)) + 1) + records.partition
    clocks = (("own", alone, seen.own), ("slowest", key, seen.slowest), ("guarded", key, seen.guarded))
    for name, of_key, time in clocks:
        if time is None:
            continue
        kept = slice(None) if name != "guarded" or records.future is None else ~records.future
        for _, need in needs_of(windows, of_key[kept], records.ts[kept], time[kept]):
            tally.add(f"late_by_{name}", need)
    if records.future is not None:
        tally.number("future", int(records.future.sum()))
