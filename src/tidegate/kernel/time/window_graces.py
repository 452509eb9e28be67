"""The grace that each (record, window) pair would have needed, in a histogram that stays small and can be merged.

A record is late for a window that closes at or before the stream time it sees (`spec.windows`). So the grace that would
have been enough is the stream time it sees, less the time at which the window closes without grace, plus 1 ms; or none.

The stream time that a record sees is known only behind the shuffle. So the map step sends a table for each chunk: the
number of records of each pane at each stream time of the chunk alone (`counted`). The stream time before the chunk is
added behind the shuffle (`histogram`).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cache

import numpy as np
import pyarrow as pa

from tidegate.instants import MAX_MS, ROUND_MS
from tidegate.kernel.columns.arrays import Flags, Ints
from tidegate.kernel.time.panes import Panes
from tidegate.kernel.time.stream_time import NEVER
from tidegate.spec.metrics import OF_TIME
from tidegate.spec.windows import TimeWindows

LIVE_BITS = 2
"""The classes of a running query's histogram are at most 2^-2 of their values wide, and also end at `ROUND_MS`."""
PLACES = 1 << 14
"""Up to so many stream times that late records of a slice saw are reported exactly."""
FEW_ROWS = 1 << 16
"""In up to so many rows every stream time seen is looked for; in more rows, only those at PLACES places."""
MOST_CELLS = 1 << 16
"""Beyond so many (time, pane) cells with records in a slice, panes far behind its latest pane are merged."""
_FAR_BITS = 7


def without_grace(windows: TimeWindows) -> TimeWindows:
    """The same windows without grace."""
    return replace(windows, grace_ms=0)


def needs(shape: TimeWindows, ts: Ints, seen: Ints) -> Iterator[tuple[Ints, Ints]]:
    """Yields (rows, needed graces in ms), for one window of each row after the other; rows in time are left out.

    shape  windows without grace
    """
    panes = Panes(shape)
    pane = panes.pane(ts)
    start, last = panes.first_window(pane), panes.last_window(pane)
    rows = np.arange(len(ts))
    while len(rows):
        need = seen[rows] - shape.close_ms(start) + 1
        # Later windows of a record close later: a record in time for this window is in time for them.
        late = need > 0
        rows, start, last = rows[late], start[late] + shape.advance_ms, last[late]
        yield rows, need[late]
        more = start <= last
        rows, start, last = rows[more], start[more], last[more]


def pairs(shape: TimeWindows, ts: Ints) -> Ints:
    """Number of windows of each record."""
    panes = Panes(shape)
    pane = panes.pane(ts)
    found: Ints = (panes.last_window(pane) - panes.first_window(pane)) // shape.advance_ms + 1
    return found


def class_of(values: Ints, exact: Ints, bits: int) -> Ints:
    """The largest value in the class of each value: the next multiple of a power of two, or of `exact` if closer.

    Classes are at most 2^-bits of their values wide.
    """
    exponent = np.frexp(values.astype(np.float64))[1] - bits - 1
    step = np.left_shift(np.int64(1), np.clip(exponent, 0, 62).astype(np.int64))
    ends = np.where(values > 0, -(-values // step) * step, values)
    if not len(exact):
        return ends
    place = np.searchsorted(exact, values)
    closer = exact[np.minimum(place, len(exact) - 1)]
    return np.where((place < len(exact)) & (closer < ends), closer, ends)


def counted(panes: Panes, pane: Ints, chunk_time: Ints, chunk: Ints, offset: Ints | None) -> pa.Table:
    """Number of records (`n`) of each `pane` that came at each `chunk_time`, the stream time of their chunk alone (ms).

    Rows are in the order of their chunks; `offset` is the offset of the first record. Without offsets a batch is taken
    in timestamp order, so that no record comes after a later one of the batch. Beyond `PLACES` times of a slice
    neighbouring times are merged, and count as the latest one; so do short-lived times among more than FEW_ROWS.
    """
    starts = _stretches(chunk_time if offset is not None else None, chunk)
    ends = np.append(starts[1:], len(chunk))
    sizes = ends - starts
    low, high = (np.minimum.reduceat(pane, starts), np.maximum.reduceat(pane, starts)) if len(starts) else (pane, pane)
    mixed = np.flatnonzero(low != high)
    where, which, n = np.arange(len(starts)), low, sizes
    if len(mixed):
        alone = np.flatnonzero(low == high)
        some = np.repeat(low != high, sizes)
        stretch, among = np.repeat(mixed, sizes[mixed]), pane[some]
        parts = _Range.of(stretch, among, panes.width_ms).cells(stretch, among)
        where, which, n = (
            np.concatenate([one, other]) for one, other in zip((alone, low[alone], sizes[alone]), parts, strict=True)
        )
    first = None if offset is None else offset[starts[where]]
    return _table(chunk[starts[where]], which, n, first, None if offset is None else chunk_time[ends[where] - 1])


def counted_combined(
    panes: Panes,
    pane: Ints,
    chunk_time: Ints,
    chunk: Ints,
    offset: Ints | None,
    open_rows: tuple[Ints, Ints, Ints],
    is_open: Flags,
) -> pa.Table:
    """`counted` at less cost: `open_rows` has (chunk, pane, number) of the rows that are open with today's grace.

    A row in time by its own chunk is late only if the stream time before the chunk is later than the time that the row
    saw in it. Then the time that it saw does not matter. So rows count as having seen NEVER. The few rows that are late
    by their own chunk are subtracted again, and counted with the time that they saw.
    """
    among = _Range.of(open_rows[0], open_rows[1], panes.width_ms)
    parts = [_table(*among.cells(*open_rows), None, None)]
    if len(chunk_time) and int(chunk_time.max()) >= int(panes.first_window(pane.min())) + panes.windows.size_ms:
        late = np.flatnonzero(chunk_time >= panes.first_window(pane) + panes.windows.size_ms)
        first = None if offset is None else offset[late]
        parts.append(counted(panes, pane[late], chunk_time[late], chunk[late], first))
        back = late[is_open[late]]
        place, which, n = among.cells(chunk[back], pane[back])
        parts.append(_table(place, which, -n, None, None))
    return pa.concat_tables(parts)


def _table(chunk: Ints, pane: Ints, n: Ints, offset: Ints | None, chunk_time: Ints | None) -> pa.Table:
    return pa.table(
        {
            "chunk": chunk,
            "offset": np.zeros(len(chunk), np.int64) if offset is None else offset,
            "chunk_time": np.full(len(chunk), NEVER, np.int64) if chunk_time is None else chunk_time,
            "pane": pane,
            "n": n,
        }
    )


def _stretches(chunk_time: Ints | None, chunk: Ints) -> Ints:
    """The places where stretches of rows begin: rows of one chunk with one `chunk_time`, if that is given."""
    if not len(chunk):
        return np.zeros(0, np.int64)
    # Chunks are numbered in the order of the rows.
    chunks = np.unique(np.searchsorted(chunk, np.arange(chunk[0], chunk[-1] + 1)))
    if chunk_time is None:
        return chunks
    if len(chunk_time) <= FEW_ROWS:
        starts = np.union1d(chunks, np.flatnonzero(chunk_time[1:] != chunk_time[:-1]) + 1)
        if len(starts) <= PLACES:
            return starts
    some = np.linspace(0, len(chunk_time), PLACES, endpoint=False).astype(np.int64)
    ends = np.append(chunks[1:], len(chunk))
    # Time grows within a chunk: a binary search finds where each of these times began.
    began = [
        low + np.searchsorted(chunk_time[low:high], chunk_time[some[(some >= low) & (some < high)]])
        for low, high in zip(chunks, ends, strict=True)
    ]
    return np.unique(np.concatenate([chunks, *began]))


@dataclass(frozen=True)
class _Range:
    """The panes of some rows, by their distance behind the latest pane.

    dense  whether there are few (stretch, pane) cells, used or not
    far    whether so many cells are used that panes far behind are merged
    """

    latest: int
    width_ms: int
    dense: bool
    far: bool

    @classmethod
    def of(cls, stretch: Ints, pane: Ints, width_ms: int) -> _Range:
        latest, earliest = (int(pane.max()), int(pane.min())) if len(pane) else (0, 0)
        panes = (latest - earliest) // width_ms + 1
        if panes * (int(stretch.max(initial=0)) + 1) <= MOST_CELLS:
            return cls(latest, width_ms, dense=True, far=False)
        used = np.unique(stretch * panes + (latest - pane) // width_ms)
        return cls(latest, width_ms, dense=False, far=len(used) > MOST_CELLS)

    def cells(self, stretch: Ints, pane: Ints, weights: Ints | None = None) -> tuple[Ints, Ints, Ints]:
        """The distinct (stretch, pane) of rows of this range, with their number of rows, or sum of `weights`."""
        if not len(pane):
            return pane, pane, pane
        back = (self.latest - pane) // self.width_ms
        if self.far:
            back = class_of(back, np.zeros(0, np.int64), _FAR_BITS)
        panes = int(back.max()) + 1
        code = stretch * panes + back
        if self.dense:
            n = np.bincount(code, weights)
            code = np.flatnonzero(n)
            n = n[code]
        else:
            code, place = np.unique(code, return_inverse=True)
            n = np.bincount(place, weights)
        return code // panes, np.maximum(self.latest - code % panes * self.width_ms, 0), n.astype(np.int64)


@cache
def class_ends(grace_ms: int) -> Ints:
    """The largest grace (ms) of each class in a running query, ascending: as `class_of`, and today's grace."""
    octaves = np.left_shift(np.int64(1), np.arange(62))
    steps = np.maximum(octaves >> LIVE_BITS, 1)
    ends = (octaves[:, None] + steps[:, None] * np.arange(1 << LIVE_BITS)).ravel()
    return np.unique(np.concatenate((ends, np.array([*ROUND_MS, grace_ms, MAX_MS], np.int64))))


def classed(grace_ms: int, needed: Ints, n: Ints | None = None) -> Ints:
    """Number of these graces in each class (`class_ends`); `n`: how often each grace counts."""
    ends = class_ends(grace_ms)
    return np.bincount(np.searchsorted(ends, needed), n, len(ends)).astype(np.int64)


def histogram(windows: TimeWindows, pane: Ints, seen: Ints, n: Ints) -> list[int]:
    """The histogram (`encoded`) of a micro-batch of time windows, in (record, window) pairs.

    pane, seen, n  `n` records of the pane `pane` saw the stream time `seen` (ms)
    """
    shape = without_grace(windows)
    many = np.zeros(len(class_ends(windows.grace_ms)), np.int64)
    for rows, need in needs(shape, pane, seen):
        many += classed(windows.grace_ms, need, n[rows])
    total = int((pairs(shape, pane) * n).sum())
    return encoded(OF_TIME, (windows.size_ms, windows.advance_ms, windows.grace_ms), total, many)


def encoded(kind: int, sizes: tuple[int, int, int], total: int, many: Ints) -> list[int]:
    """The histogram of a task for a micro-batch, as numbers: the kind of windows (`spec.metrics.GRACE_KINDS`); their
    size, advance (0 where they have none) and today's grace (ms); the number of (record, window) pairs or records; and
    for each class of needed graces its largest value (ms) and its count. Classes above today's grace hold exactly the
    records that are late today.

    many  counts by class (`class_ends`)
    """
    # Subtracted rows (`counted_combined`) may have emptied a class.
    used = np.flatnonzero(many)
    return [kind, *sizes, total, *np.stack([class_ends(sizes[-1])[used], many[used]], axis=1).ravel().tolist()]
