"""Which grace each (record, window) pair would have needed, and a histogram of it that stays small and merges.

A record is late for a window that closes at or before the stream time it sees (`spec.windows`). So the grace that would
have been enough is the stream time it sees, less the time at which the window closes without grace, plus 1 ms; or none.

The stream time that a record sees is known behind the shuffle alone. What the map step tells of a chunk is therefore a
table: how many records of each pane came while the chunk's own stream time was what (`counted`).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pyarrow as pa

from tidegate.instants import ROUND_MS
from tidegate.kernel.columns.arrays import Ints
from tidegate.kernel.time.panes import Panes
from tidegate.kernel.time.stream_time import NEVER, STEPS
from tidegate.spec.windows import TimeWindows

LIVE_BITS = 2
"""The classes of a running query's histogram are 2^-2 of their values wide at most, and end at `ROUND_MS` besides."""
MOST_CELLS = 1 << 16
"""Beyond so many (time, pane) cells of a slice, panes far behind its latest one are put together."""
_FAR_BITS = 7


def without_grace(windows: TimeWindows) -> TimeWindows:
    """The same windows, closing at once."""
    return replace(windows, grace_ms=0)


def needs(shape: TimeWindows, ts: Ints, seen: Ints) -> Iterator[tuple[Ints, Ints]]:
    """(rows, the grace they needed in ms), for one window of each row after the other; rows in time are left out.

    shape  windows without grace
    """
    panes = Panes(shape)
    pane = panes.pane(ts)
    start, last = panes.first_window(pane), panes.last_window(pane)
    rows = np.arange(len(ts))
    while len(rows):
        need = seen[rows] - shape.close_ms(start) + 1
        # Later windows of a record close later: who is in time for this one is in time for them.
        late = need > 0
        rows, start, last = rows[late], start[late] + shape.advance_ms, last[late]
        yield rows, need[late]
        more = start <= last
        rows, start, last = rows[more], start[more], last[more]


def pairs(shape: TimeWindows, ts: Ints) -> Ints:
    """How many windows each record is in."""
    panes = Panes(shape)
    pane = panes.pane(ts)
    found: Ints = (panes.last_window(pane) - panes.first_window(pane)) // shape.advance_ms + 1
    return found


def class_of(values: Ints, exact: Ints, bits: int) -> Ints:
    """The largest value of the class of each value: the next multiple of a power of two, or of `exact` if closer.

    Classes are 2^-bits of their values wide at most.
    """
    exponent = np.frexp(values.astype(np.float64))[1] - bits - 1
    step = np.left_shift(np.int64(1), np.clip(exponent, 0, 62).astype(np.int64))
    ends = np.where(values > 0, -(-values // step) * step, values)
    if not len(exact):
        return ends
    place = np.searchsorted(exact, values)
    closer = exact[np.minimum(place, len(exact) - 1)]
    return np.where((place < len(exact)) & (closer < ends), closer, ends)


def counted(panes: Panes, pane: Ints, seen: Ints, chunk: Ints, offset: Ints | None) -> pa.Table:
    """How many records (`n`) of each `pane` came while the own stream time of their `chunk` was `seen`.

    Rows are in the order of their chunks; `offset` is that of the first of them. Without offsets a batch is taken in
    timestamp order, so that of its own records none comes after a later one. Beyond `STEPS` times of a slice
    neighbouring ones are put together, and count as the latest of them.
    """
    starts = _stretches(seen if offset is not None else None, chunk)
    ends = np.append(starts[1:], len(chunk))
    sizes = ends - starts
    low, high = (np.minimum.reduceat(pane, starts), np.maximum.reduceat(pane, starts)) if len(starts) else (pane, pane)
    mixed = np.flatnonzero(low != high)
    where, which, n = np.arange(len(starts)), low, sizes
    if len(mixed):
        alone = np.flatnonzero(low == high)
        some = np.repeat(low != high, sizes)
        parts = _cells(np.repeat(mixed, sizes[mixed]), pane[some], panes.width_ms)
        where, which, n = (
            np.concatenate([one, other]) for one, other in zip((alone, low[alone], sizes[alone]), parts, strict=True)
        )
    return pa.table(
        {
            "chunk": chunk[starts[where]],
            "offset": np.zeros(len(where), np.int64) if offset is None else offset[starts[where]],
            "seen": np.full(len(where), NEVER) if offset is None else seen[ends[where] - 1],
            "pane": which,
            "n": n,
        }
    )


def _stretches(seen: Ints | None, chunk: Ints) -> Ints:
    """Where stretches of rows begin that are of one chunk and, if it is given, have seen the same time."""
    new = chunk[1:] != chunk[:-1]
    chunks = np.append(0, np.flatnonzero(new) + 1) if len(chunk) else np.zeros(0, np.int64)
    if seen is None or not len(chunk):
        return chunks
    starts = np.append(0, np.flatnonzero(new | (seen[1:] != seen[:-1])) + 1)
    if len(starts) <= STEPS:
        return starts
    some = starts[np.linspace(0, len(starts), STEPS, endpoint=False).astype(np.int64)]
    return np.union1d(some, chunks)


def _cells(stretch: Ints, pane: Ints, width_ms: int) -> tuple[Ints, Ints, Ints]:
    """(stretch, pane, how many) of rows, each once."""
    latest = int(pane.max())
    back = (latest - pane) // width_ms
    panes = int(back.max()) + 1
    if panes * (int(stretch.max()) + 1) <= MOST_CELLS:
        n = np.bincount(stretch * panes + back)
        code = np.flatnonzero(n)
        n = n[code]
    else:
        back = class_of(back, np.zeros(0, np.int64), _FAR_BITS)
        panes = int(back.max()) + 1
        code, n = np.unique(stretch * panes + back, return_counts=True)
    return code // panes, np.maximum(latest - code % panes * width_ms, 0), n.astype(np.int64)


def histogram(windows: TimeWindows, pane: Ints, seen: Ints, n: Ints) -> list[int]:
    """What a micro-batch tells: size, advance and grace of the windows (ms), the (record, window) pairs, and of each
    class of graces that late pairs needed its largest value (ms) and how many did. A pair is late today iff its class
    is above the grace.

    pane, seen, n  so many records of this pane saw this stream time
    """
    shape = without_grace(windows)
    exact = np.unique(np.array([*ROUND_MS, windows.grace_ms], np.int64))
    classes, counts = [np.zeros(0, np.int64)], [np.zeros(0, np.int64)]
    for rows, need in needs(shape, pane, seen):
        classes.append(class_of(need, exact, LIVE_BITS))
        counts.append(n[rows])
    ends, place = np.unique(np.concatenate(classes), return_inverse=True)
    many = np.zeros(len(ends), np.int64)
    np.add.at(many, place, np.concatenate(counts))
    told = np.stack([ends, many], axis=1).ravel()
    return [windows.size_ms, windows.advance_ms, windows.grace_ms, int((pairs(shape, pane) * n).sum()), *map(int, told)]
