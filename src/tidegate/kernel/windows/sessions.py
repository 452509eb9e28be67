"""What one record does to the sessions of its key (SEMANTICS 4; the close rule is SessionWindows.open_from_ms)."""

from __future__ import annotations

from bisect import bisect_left
from typing import Any

from tidegate.kernel.windows.lineage import Entries, Entry
from tidegate.spec.windows import SessionWindows


def place(start: int, end: int) -> tuple[int, int]:
    """Where a session is among the `Entries` of its key: they are merged in this order."""
    return end, start


def take(
    windows: SessionWindows, entries: Entries, ts: int, open_from: int, add: Any
) -> tuple[list[Entry], list[tuple[int, int]]]:
    """Let a record at `ts` join, bridge or open sessions; `entries` is changed. Gives updates and closed windows.

    A session that has closed is no longer found (SEMANTICS 14.3), and the merged end decides whether the record is
    late: one older than the close time is taken if it bridges into an open session.
    """
    gap = windows.inactivity_gap_ms
    found = []
    # Open sessions are further apart than the gap, so they are in the order of their starts as well.
    for at in range(bisect_left(entries.places, (max(ts - gap, open_from),)), len(entries.places)):
        session = entries.at[entries.places[at]]
        if session.start > ts + gap:
            break
        found.append(session)
    start = min([ts, *(e.start for e in found)])
    end = max([ts, *(e.end for e in found)])
    if end < open_from:
        return [], [(start, end)]
    merged = add.join((start, end), [e.node for e in found])
    node = add((start, end), merged, fresh=False)
    for session in found:
        entries.remove(place(session.start, session.end))
    # A session of this one instant is written over; every other one that was found is gone and says so.
    gone = [] if (start, end) == (ts, ts) else [Entry(e.start, e.end, e.end, None) for e in found]
    result = Entry(start, end, end, node)
    entries.put(place(start, end), result)
    return [*gone, result], []
