"""The effect of one record on the sessions of its key (SEMANTICS 4; the close rule is SessionWindows.open_from_ms)."""

from __future__ import annotations

from bisect import bisect_left
from typing import Any

from tidegate.kernel.windows.lineage import Entries, Entry
from tidegate.spec.windows import SessionWindows


def place(start: int, end: int) -> tuple[int, int]:
    """The place of a session in the `Entries` of its key; sessions are merged in the order of their places."""
    return end, start


def apply(
    windows: SessionWindows, entries: Entries, ts: int, open_from: int, add: Any
) -> tuple[list[Entry], list[tuple[int, int]]]:
    """Let a record at `ts` join, bridge or open sessions in `entries`. Returns the updates and the closed windows.

    Closed sessions are not found (SEMANTICS 14.3). The merged end decides whether the record is late: a record older
    than the close time is taken if it bridges into an open session.
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
    # A session of this instant alone is overwritten; otherwise each session that was found gives a tombstone.
    tombstones = [] if (start, end) == (ts, ts) else [Entry(e.start, e.end, e.end, None) for e in found]
    result = Entry(start, end, end, node)
    entries.put(place(start, end), result)
    return [*tombstones, result], []
