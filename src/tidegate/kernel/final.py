"""Final results only: a log per pane, merged once, when a window closes.

An update needs no read: a batch appends its partial aggregates to the log of their pane. When a window closes, the
logs of its panes are merged and the rows leave; a pane's log is dropped with the last window that holds it. So a batch
costs what the batch is large, however many windows are open.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from itertools import chain

import numpy as np
import pyarrow as pa

from tidegate.instants import MAX_MS
from tidegate.kernel import frames, grouping, radix, results
from tidegate.kernel.batch import Batch, unite
from tidegate.kernel.layout import Layout
from tidegate.kernel.state import Log, State

COMPACT_ROWS = 4_000_000
"""A log shorter than this is never compacted."""

COMPACT_GROWTH = 4
"""A log is compacted when it has this many times the rows it had after it was last compacted."""

CLOSE_ROWS = 1_500_000
"""Rows of closing windows that are merged at once; a window that has more is dealt into parts by key."""

PART_ROWS = 500_000
"""About how many rows of such a window are merged at a time."""


def run(layout: Layout, state: State, batch: Batch, closes_at: int) -> tuple[Iterator[pa.Table], int]:
    """Take the batch into the logs and let out the windows that `closes_at` closes; also the records dropped late.

    The logs are as the batch leaves them when the last of the parts has been taken, of which there is at least one.
    """
    rows, late = batch.partials()
    fresh = {} if rows is None else _by_pane(layout, rows.drop_columns(["n"]))
    return _let_out(layout, state, fresh, batch.closed_to, closes_at), late


def _let_out(
    layout: Layout, state: State, fresh: dict[int, pa.Table], before: int, closes_at: int
) -> Iterator[pa.Table]:
    windows = closing(layout, [*fresh, *state.logs], before, closes_at)
    for group in _groups(layout, state, fresh, windows):
        yield from _close(layout, state, fresh, *group)
    if not windows:
        yield layout.result_schema.empty_table()
    for pane in sorted(fresh.keys() | state.logs.keys()):
        if _done(layout, pane, closes_at):
            state.forget(pane)
        elif pane in fresh:
            state.append(pane, fresh[pane])
            _compact(layout, state, pane)


def _by_pane(layout: Layout, rows: pa.Table) -> dict[int, pa.Table]:
    if not layout.panes.shared:
        rows = rows.drop_columns(["open"])
    pane = grouping.ints(rows["pane"])
    rows = rows.drop_columns(["pane"])
    names, counts = np.unique(pane, return_counts=True)
    if len(names) == 1:
        return {int(names[0]): rows}
    # A stable order keeps the rows of a pane in order of arrival.
    rows = rows.take(pa.array(np.argsort(pane, kind="stable")))
    starts = np.cumsum(counts) - counts
    return {int(n): rows.slice(s, c) for n, s, c in zip(names, starts, counts, strict=True)}


def closing(layout: Layout, panes: list[int], before: int, closes_at: int) -> list[int]:
    """The windows that hold one of `panes` and close after `before`, up to `closes_at`, ascending."""
    held = np.array(panes, np.int64)
    first = np.maximum(layout.panes.first_window(held), layout.panes.first_open(before))
    last = layout.panes.last_window(held)
    if closes_at < MAX_MS:
        last = np.minimum(last, layout.panes.first_open(closes_at) - layout.panes.windows.advance_ms)
    advance = layout.panes.windows.advance_ms
    return sorted({w for low, high in zip(first, last, strict=True) for w in range(int(low), int(high) + 1, advance)})


def pending(layout: Layout, state: State) -> list[pa.Table]:
    """The results so far of the windows that are open, which stay as they are."""
    windows = closing(layout, list(state.logs), state.closed_to, MAX_MS)
    return [rows for group in _groups(layout, state, {}, windows) for rows in _close(layout, state, {}, *group)]


def windows(layout: Layout, state: State) -> dict[int, pa.Table]:
    """A table of state rows for each window that is open."""
    starts = closing(layout, list(state.logs), state.closed_to, MAX_MS)
    return {start: _merged(layout, _read(layout, state, {}, [start]), "start") for start in starts}


def _groups(
    layout: Layout, state: State, fresh: dict[int, pa.Table], windows: list[int]
) -> Iterator[tuple[list[int], int]]:
    """Closing windows and their rows in stretches of about CLOSE_ROWS, so that a large close needs not all memory."""
    group: list[int] = []
    rows = 0
    for window in windows:
        size = _rows(layout, state, fresh, window)
        if group and rows + size > CLOSE_ROWS:
            yield group, rows
            group, rows = [], 0
        group.append(window)
        rows += size
    if group:
        yield group, rows


def _rows(layout: Layout, state: State, fresh: dict[int, pa.Table], window: int) -> int:
    panes = _panes(layout, state, fresh, window)
    return sum(state.logs.get(p, Log()).rows + (fresh[p].num_rows if p in fresh else 0) for p in panes)


def _panes(layout: Layout, state: State, fresh: dict[int, pa.Table], window: int) -> list[int]:
    """The panes of a window that there is something of, ascending."""
    held = layout.panes.held_by(window)
    if len(held) <= len(state.logs) + len(fresh):
        return [pane for pane in held if pane in state.logs or pane in fresh]
    return sorted(pane for pane in {*state.logs, *fresh} if pane in held)


def _close(
    layout: Layout, state: State, fresh: dict[int, pa.Table], windows: list[int], size: int
) -> Iterator[pa.Table]:
    rows = _read(layout, state, fresh, windows)
    # The order in which rows leave is that of whole windows.
    whole = layout.sorts or size <= CLOSE_ROWS
    parts = [rows] if whole else _decoded(_dealt(layout, rows, size))
    yield from (results.finish(layout, _merged(layout, part, "start"), sort=layout.sorts) for part in parts)


def _read(layout: Layout, state: State, fresh: dict[int, pa.Table], windows: list[int]) -> Iterator[pa.Table]:
    """What the logs of these windows and the batch have of each, one segment after the other."""
    held: dict[int, list[int]] = defaultdict(list)
    for window in windows:
        for pane in _panes(layout, state, fresh, window):
            held[pane].append(window)
    for pane in sorted(held):
        for rows in chain(state.segments(pane), [fresh[pane]] if pane in fresh else []):
            yield from (_of_window(layout, rows, window) for window in held[pane])


def _merged(layout: Layout, tables: Iterable[pa.Table], *by: str) -> pa.Table:
    parts = list(tables)
    rows = unite([part for part in parts if part.num_rows] or parts)
    return grouping.merge(layout, rows, [*layout.keys, *by])


def _dealt(layout: Layout, tables: Iterable[pa.Table], rows: int) -> list[list[bytes]]:
    """So many rows in parts by key, compressed: all tables at once would be too much."""
    parts = -(-rows // PART_ROWS)
    dealt: list[list[bytes]] = [[] for _ in range(parts)]
    for table in tables:
        # The low half of the hash chose the task.
        place = (grouping.key_hash(layout, table) >> np.uint64(32)) % np.uint64(parts)
        for mine, rows_of_it in zip(dealt, radix.split(table, place.astype(np.int64), parts), strict=True):
            mine.append(frames.encode(frames.SEGMENT, {}, rows_of_it))
    return dealt


def _decoded(dealt: list[list[bytes]]) -> Iterator[Iterator[pa.Table]]:
    """The tables of each part of `_dealt`, which is let go of."""
    while dealt:
        yield (frames.decode(frames.SEGMENT, table)[1][0] for table in dealt.pop(0))


def _of_window(layout: Layout, rows: pa.Table, window: int) -> pa.Table:
    if layout.panes.shared:
        held = grouping.ints(rows["open"]) <= window
        rows = (rows if held.all() else rows.filter(pa.array(held))).drop_columns(["open"])
    return rows.append_column("start", pa.array(np.full(rows.num_rows, window, np.int64)))


def _done(layout: Layout, pane: int, closes_at: int) -> bool:
    return layout.aligned.close_ms(int(layout.panes.last_window(pane))) <= closes_at


def _compact(layout: Layout, state: State, pane: int) -> None:
    log = state.logs[pane]
    if log.rows > max(COMPACT_ROWS, COMPACT_GROWTH * log.base):
        by = ["open"] if layout.panes.shared else []
        # Read now: what is written below takes its place.
        dealt = _dealt(layout, state.segments(pane), log.rows)
        state.replace_by(pane, (_merged(layout, part, *by) for part in _decoded(dealt)))
