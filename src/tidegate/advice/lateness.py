"""Counts the graces that records would have needed, for each of their windows (`kernel.time.window_graces`).

Counts by name:
    records, records/part/P, records/hour/H          records that have a key and a timestamp
    pairs, pairs/part/P, pairs/hour/H                (record, window) pairs
    late/part/P, late/hour/H                         the grace (ms) that each late pair needed, without pairs in time
    lost                                             the shortest grace (ms) with which a record is in any window
    late_by_own, late_by_slowest, late_by_guarded    as `late`, with another stream time: of the record's own partition
                                                     alone, of the slowest partition, with a guard
    future                                           records that the guard skips
    records_of/N, late_of/N                          by partition (its number): records, pairs late with today's grace
P is the part of the stream, 0 to PARTS - 1 in the order of the records, H the hour of the day (UTC) of the timestamp.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tidegate.advice.counts import Tally
from tidegate.advice.keyed import AdvisedWindows, needs_of, pairs_of
from tidegate.advice.order import Seen
from tidegate.kernel.columns.arrays import Flags, Ints

PARTS = 50
"""Number of equal parts of the stream, in order: statistics of the parts show how stable lateness is."""
HOUR_MS, DAY_HOURS = 3_600_000, 24


@dataclass(frozen=True)
class Records:
    """Records in the order in which they are read, one entry each.

    key             the number of the key
    ts, partition   timestamp (ms), number of the partition
    part            the part of the stream (0 to PARTS - 1)
    seen            the stream time that the record sees
    future          whether a guard skips the record; None without a guard
    wall            the time at which the batch of the record is done (ms); None without arrivals
    """

    key: Ints
    ts: Ints
    partition: Ints
    part: Ints
    seen: Seen
    future: Flags | None = None
    wall: Ints | None = None


def parts(rank: Ints, records: int) -> Ints:
    """The part of the record number `rank` (from 0) of `records`."""
    return rank * PARTS // max(records, 1)


def lateness(windows: AdvisedWindows, records: Records, exact: Ints) -> Tally:
    """The counts of these records (see above); they are exact for the graces `exact` (ms)."""
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
    # If each partition had its own stream time, it would have its own windows.
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
