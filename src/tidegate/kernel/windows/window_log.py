"""Final results only: a log per pane, merged once, when a window closes.

An update needs no read: a batch appends its partial aggregates to the log of their pane. When a window closes, the
logs of its panes are merged and the rows leave; a pane's log is dropped with the last window that holds it. So the cost
of a batch follows its size, however many windows are open. Small segments are put together, so that a long window with
many small batches has few.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from itertools import chain

import numpy as np
import pyarrow as pa

from tidegate.errors import AggregationError
from tidegate.instants import MAX_MS, Window
from tidegate.kernel.columns import radix_sort
from tidegate.kernel.columns.arrays import Ints, array, concat_tables, ints
from tidegate.kernel.columns.groups import Groups
from tidegate.kernel.columns.hash64 import upper_half
from tidegate.kernel.columns.runs import by_number, expanded
from tidegate.kernel.exchange.batch import Batch
from tidegate.kernel.operator import OpenWindows, Operator
from tidegate.kernel.rows import grouping, results
from tidegate.kernel.rows.closing import is_closed
from tidegate.kernel.rows.layout import Layout
from tidegate.kernel.state import frames
from tidegate.kernel.state.state import State
from tidegate.kernel.state.tables import PANES
from tidegate.kernel.windows import window_table
from tidegate.kernel.windows.window_table import aligned_window

_MANY_WINDOWS = 16
"""For more windows than this the rows of a pane are repeated at once; fewer windows each share the rows' columns."""


class WindowLog(Operator):
    """A log per pane, for final results of time windows that no order of records can change."""

    tables = (PANES,)

    def process(self, state: State, batch: Batch, closes_at: int) -> Iterable[pa.Table]:
        rows, batch.dropped_late = batch.partials()
        if rows is not None:
            _check_sums(self.layout, rows)
        fresh = {} if rows is None else _by_pane(self.layout, rows.drop_columns(["n"]))
        return _emit_closed(self.layout, state, fresh, batch.closed_through, closes_at)

    def open_windows(self, state: State) -> list[tuple[Window, int]]:
        starts = closing(self.layout, list(state.logs), state.closed_through, MAX_MS).tolist()
        return [aligned_window(self.layout, start) for start in starts]

    def count_open(self, state: State) -> OpenWindows:
        totals, panes = state.logs.totals(), self.layout.panes
        if not totals.logs:
            return OpenWindows(totals.windows, None)
        # The index counts the closed windows of the first pane alone: earlier panes are dropped.
        first = int(panes.first_window(totals.first))
        start = max(first, int(panes.first_open(state.closed_through)))
        closed = (start - first) // panes.windows.advance_ms
        return OpenWindows(totals.windows - closed, self.layout.aligned.close_ms(start))

    def stored_rows(self, state: State) -> Iterable[pa.Table]:
        found = self.windows_stored(state)
        return (window_table.placed(rows, start) for start, rows in found.items())

    def results_so_far(self, state: State) -> list[pa.Table]:
        shape, panes = self.layout.for_kind["final"], list(state.logs)
        groups = _groups(shape, state, {}, panes, closing(shape, panes, state.closed_through, MAX_MS))
        return [rows for group in groups for rows in _close(shape, state, {}, group)]

    def windows_stored(self, state: State) -> dict[int, pa.Table]:
        panes = list(state.logs)
        starts = closing(self.layout, panes, state.closed_through, MAX_MS)
        found = {}
        for at, start in enumerate(starts.tolist()):
            one = _Group.of(self.layout, panes, starts[at : at + 1], 0)
            found[start] = _of_group(self.layout, one, _read(self.layout, state, {}, one))
        return found

    def rewrite_from(self, old: Operator, state: State, *, bounded: bool) -> None:
        if isinstance(old, WindowLog):
            return
        for start, rows in window_table.take_windows(old, state, bounded).items():
            append(self.layout, state, start, _as_pane(self.layout, start, rows))


def _as_pane(layout: Layout, start: int, rows: pa.Table) -> pa.Table:
    """The rows of a window as rows of the pane that begins with it; no earlier window is open for them."""
    rows = window_table.unplaced(rows)
    if not layout.panes.shared:
        return rows
    return rows.append_column("open", pa.array(np.full(rows.num_rows, start, np.int64)))


def _check_sums(layout: Layout, rows: pa.Table) -> None:
    """Raise AggregationError if a sum of the batch overflows: a stored batch stops the query when its window closes."""
    for acc, names in zip(layout.accumulators, layout.states, strict=True):
        if acc.merges is not None and not acc.safe([array(rows[name]) for name in names]):
            grouping.merge(layout, rows, [*layout.keys, "pane", "open"])
            return


def _emit_closed(
    layout: Layout, state: State, fresh: dict[int, pa.Table], before: int, closes_at: int
) -> Iterator[pa.Table]:
    panes = sorted({*_leading(layout, state, before, closes_at), *fresh})
    windows = closing(layout, panes, before, closes_at)
    for group in _groups(layout, state, fresh, panes, windows):
        yield from _close(layout, state, fresh, group)
    if not len(windows):
        yield layout.result_schema.empty_table()
    for pane in panes:
        if is_closed(layout, int(layout.panes.last_window(pane)), closes_at):
            state.forget(pane)
        elif pane in fresh:
            append(layout, state, pane, fresh[pane])
            _compact(layout, state, pane)


def append(layout: Layout, state: State, pane: int, rows: pa.Table) -> None:
    """Add rows to the log of a pane."""
    state.append(pane, rows, layout.panes.windows_of(pane) if layout.panes.shared else 1)


def _leading(layout: Layout, state: State, before: int, closes_at: int) -> list[int]:
    """The panes with a log, up to the last pane of the windows that close after `before` and by `closes_at`."""
    if closes_at == MAX_MS:
        return list(state.logs)
    panes = layout.panes
    first, end = int(panes.first_open(before)), int(panes.first_open(closes_at))
    if end <= first:
        return []
    beyond = end - panes.windows.advance_ms + panes.windows.size_ms
    return state.logs.leading(lambda pane: pane < beyond)


def _by_pane(layout: Layout, rows: pa.Table) -> dict[int, pa.Table]:
    """The rows of each pane, in order of arrival. Combined rows come pane by pane, in a run for each map task."""
    if not layout.panes.shared:
        rows = rows.drop_columns(["open"])
    return by_number(rows.drop_columns(["pane"]), ints(rows["pane"]))


def closing(layout: Layout, panes: list[int], before: int, closes_at: int) -> Ints:
    """The windows, ascending, that hold one of `panes` (ascending) and close after `before` and by `closes_at`."""
    first, last = _ranges(layout, panes)
    advance = layout.panes.windows.advance_ms
    first = np.maximum(first, layout.panes.first_open(before))
    if closes_at < MAX_MS:
        last = np.minimum(last, layout.panes.first_open(closes_at) - advance)
    counts = np.where(first <= last, (last - first) // advance + 1, 0)
    # Each pane gets the windows that no earlier pane has.
    again = np.flatnonzero(first[1:] <= last[:-1]) + 1
    first[again] = last[again - 1] + advance
    counts[again] = (last[again] - last[again - 1]) // advance
    return expanded(first, counts, advance)


def _ranges(layout: Layout, panes: list[int]) -> tuple[Ints, Ints]:
    """The first and the last window that hold each pane."""
    of_panes = np.array(panes, np.int64)
    return layout.panes.first_window(of_panes), layout.panes.last_window(of_panes)


@dataclass(frozen=True)
class _Group:
    """Windows that close together, about how many rows they have, and the panes with rows in them.

    The windows from `low[i]` up to `high[i]` (places in `windows`) hold the pane i.
    """

    windows: Ints
    rows: int
    panes: list[int]
    low: Ints
    high: Ints

    @classmethod
    def of(cls, layout: Layout, panes: list[int], windows: Ints, rows: int) -> _Group:
        begin = bisect_left(panes, int(windows[0]))
        end = bisect_left(panes, int(windows[-1]) + layout.panes.windows.size_ms)
        mine = panes[begin:end]
        first, last = _ranges(layout, mine)
        return cls(windows, rows, mine, np.searchsorted(windows, first), np.searchsorted(windows, last, side="right"))


def _groups(
    layout: Layout, state: State, fresh: dict[int, pa.Table], panes: list[int], windows: Ints
) -> Iterator[_Group]:
    """Closing windows in groups of about `close_rows` rows, to bound the memory of a large close."""
    if not len(windows):
        return
    whole = _Group.of(layout, panes, windows, 0)
    sizes = [_rows(state, fresh, pane) for pane in whole.panes]
    change = np.zeros(len(windows) + 1, np.int64)
    np.add.at(change, whole.low, sizes)
    np.subtract.at(change, whole.high, sizes)
    begin = rows = 0
    for at, size in enumerate(np.cumsum(change)[:-1].tolist()):
        if at > begin and rows + size > layout.tuning.close_rows:
            yield _Group.of(layout, whole.panes, windows[begin:at], rows)
            begin, rows = at, 0
        rows += size
    yield _Group.of(layout, whole.panes, windows[begin:], rows)


def _rows(state: State, fresh: dict[int, pa.Table], pane: int) -> int:
    log = state.logs.get(pane)
    return (0 if log is None else log.rows) + (fresh[pane].num_rows if pane in fresh else 0)


def _close(layout: Layout, state: State, fresh: dict[int, pa.Table], group: _Group) -> Iterator[pa.Table]:
    rows = _read(layout, state, fresh, group)
    # Sorted rows leave window by window, each whole.
    whole = layout.sorts or group.rows <= layout.tuning.close_rows
    parts = [rows] if whole else _decoded(_hash_partitioned(layout, rows, group.rows))
    yield from (results.finish(layout, _of_group(layout, group, part), sort=layout.sorts) for part in parts)


def _read(layout: Layout, state: State, fresh: dict[int, pa.Table], group: _Group) -> Iterator[pa.Table]:
    """The rows of these windows in logs and batch, segment by segment; with `start` if these are several windows."""
    for pane, low, high in zip(group.panes, group.low.tolist(), group.high.tolist(), strict=True):
        mine = group.windows[low:high]
        if not len(mine):
            continue
        for rows in chain(state.segments(pane), [fresh[pane]] if pane in fresh else []):
            if len(group.windows) == 1:
                yield _open_for(layout, rows, int(mine[0]))
            elif len(mine) > _MANY_WINDOWS:
                yield _of_windows(rows, mine)
            else:
                for window in mine.tolist():
                    yield window_table.placed(_open_for(layout, rows, window), window)


def _of_group(layout: Layout, group: _Group, tables: Iterable[pa.Table]) -> pa.Table:
    """The merged rows of these windows, with `start`."""
    rows, by, one = _together(tables), [*layout.keys, "start"], len(group.windows) == 1
    # Of a single window the start tells no rows apart.
    groups = Groups.of(grouping.codes([rows[name] for name in layout.keys])) if one else None
    return grouping.merge(layout, window_table.placed(rows, int(group.windows[0])), by, groups)


def _together(tables: Iterable[pa.Table]) -> pa.Table:
    parts = list(tables)
    return concat_tables([part for part in parts if part.num_rows] or parts)


def _hash_partitioned(layout: Layout, tables: Iterable[pa.Table], rows: int) -> list[list[bytes]]:
    """The tables, with `rows` rows, in parts by key, as compressed frames: all tables at once need too much memory."""
    parts = -(-rows // layout.tuning.part_rows)
    encoded: list[list[bytes]] = [[] for _ in range(parts)]
    for table in tables:
        # The low half of the hash chose the task.
        place = upper_half(grouping.key_hash(layout, table)) % np.uint64(parts)
        for mine, rows_of_it in zip(encoded, radix_sort.split(table, place.astype(np.int64), parts), strict=True):
            mine.append(frames.encode(frames.SEGMENT, {}, rows_of_it))
    return encoded


def _decoded(encoded: list[list[bytes]]) -> Iterator[Iterator[pa.Table]]:
    """The tables of each part of `_hash_partitioned`; each part is freed."""
    while encoded:
        yield (frames.decode(frames.SEGMENT, table)[1][0] for table in encoded.pop(0))


def _open_for(layout: Layout, rows: pa.Table, window: int) -> pa.Table:
    """The rows of one pane for which this window was open."""
    if not layout.panes.shared:
        return rows
    is_open = ints(rows["open"]) <= window
    return (rows if is_open.all() else rows.filter(pa.array(is_open))).drop_columns(["open"])


def _of_windows(rows: pa.Table, windows: Ints) -> pa.Table:
    """The rows of one pane once for each of these windows, one `advance` apart, that was open for them."""
    first = np.searchsorted(windows, ints(rows["open"]))
    counts = len(windows) - first
    at = np.repeat(np.arange(rows.num_rows), counts)
    repeated = rows.drop_columns(["open"]).take(pa.array(at))
    return repeated.append_column("start", pa.array(windows[expanded(first, counts, 1)]))


def _compact(layout: Layout, state: State, pane: int) -> None:
    log = state.logs[pane]
    by = [*layout.keys, *(["open"] if layout.panes.shared else [])]
    if log.rows > max(layout.tuning.compact_rows, layout.tuning.compact_growth * log.base):
        # Read now: the segments written below replace these.
        encoded = _hash_partitioned(layout, state.segments(pane), log.rows)
        state.replace_by(pane, (grouping.merge(layout, _together(part), by) for part in _decoded(encoded)), log.windows)
        return
    with suppress(AggregationError):  # an overflow is found when the window closes
        state.put_together(pane, lambda parts: grouping.merge(layout, _together(parts), by))
