"""Final results only: a log per pane, merged once, when a window closes.

An update needs no read: a batch appends its partial aggregates to the log of their pane. When a window closes, the
logs of its panes are merged and the rows leave; a pane's log is dropped with the last window that holds it. So a batch
costs what the batch is large, however many windows are open.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa

from tidegate.instants import MAX_MS
from tidegate.kernel import grouping, results
from tidegate.kernel.batch import Batch, unite
from tidegate.kernel.layout import Layout
from tidegate.kernel.state import Log, State

COMPACT_ROWS = 4_000_000
"""A log shorter than this is never compacted."""

COMPACT_GROWTH = 4
"""A log is compacted when it has this many times the rows it had after it was last compacted."""

CLOSE_ROWS = 2_000_000
"""About how many rows of closing windows are merged at a time."""


def run(layout: Layout, state: State, batch: Batch, closes_at: int) -> tuple[pa.Table, int]:
    """Take the batch into the logs and let out the windows that `closes_at` closes; also the records dropped late."""
    rows, late = batch.partials()
    fresh = {} if rows is None else _by_pane(layout, rows.drop_columns(["n"]))
    windows = closing(layout, [*fresh, *state.logs], batch.closed_to, closes_at)
    out = [_close(layout, state, fresh, group) for group in _groups(layout, state, fresh, windows)]
    for pane in sorted(fresh.keys() | state.logs.keys()):
        if _done(layout, pane, closes_at):
            state.forget(pane)
        elif pane in fresh:
            state.append(pane, fresh[pane])
            _compact(layout, state, pane)
    return results.concat(layout, out), late


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
    return [_close(layout, state, {}, group) for group in _groups(layout, state, {}, windows)]


def windows(layout: Layout, state: State) -> dict[int, pa.Table]:
    """A table of state rows for each window that is open."""
    starts = closing(layout, list(state.logs), state.closed_to, MAX_MS)
    return {start: _merged(layout, state, {}, [start]) for start in starts}


def _groups(layout: Layout, state: State, fresh: dict[int, pa.Table], windows: list[int]) -> Iterator[list[int]]:
    """Closing windows in stretches of about CLOSE_ROWS rows, so that a large close does not need all memory at once."""
    group: list[int] = []
    rows = 0
    for window in windows:
        held = layout.panes.held_by(window)
        size = sum(state.logs.get(p, Log()).rows + (fresh[p].num_rows if p in fresh else 0) for p in held)
        if group and rows + size > CLOSE_ROWS:
            yield group
            group, rows = [], 0
        group.append(window)
        rows += size
    if group:
        yield group


def _close(layout: Layout, state: State, fresh: dict[int, pa.Table], windows: list[int]) -> pa.Table:
    return results.finish(layout, _merged(layout, state, fresh, windows), sort=layout.sorts)


def _merged(layout: Layout, state: State, fresh: dict[int, pa.Table], windows: list[int]) -> pa.Table:
    parts = []
    cached: dict[int, list[pa.Table]] = {}
    for window in windows:
        for pane in layout.panes.held_by(window):
            if pane not in cached:
                cached[pane] = state.read(pane) + ([fresh[pane]] if pane in fresh else [])
            parts += [_of_window(layout, rows, window) for rows in cached[pane]]
    rows = unite([part for part in parts if part.num_rows] or parts)
    return grouping.merge(layout, rows, [*layout.keys, "start"])


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
        by = [*layout.keys, *(["open"] if layout.panes.shared else [])]
        state.replace(pane, grouping.merge(layout, unite(state.read(pane)), by))
