"""A table per window, for plans that need the current row of a key's window when a record comes.

For updates, Python functions and bounded buffers a batch reads the tables of the windows that it touches, applies its
records, and writes them back. If it has few keys of a large window, it reads and writes only their rows
(`windows.window_runs`). So the cost follows the batch, not the number of open windows or of their keys.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tidegate.instants import MAX_MS, Window
from tidegate.kernel.aggregates import Overflow
from tidegate.kernel.columns.arrays import Hashes, Ints, array, concat_tables, flags, ints
from tidegate.kernel.columns.groups import Groups
from tidegate.kernel.columns.runs import by_number, expanded
from tidegate.kernel.exchange.batch import Batch
from tidegate.kernel.operator import OpenWindows, Operator
from tidegate.kernel.rows import grouping, results
from tidegate.kernel.rows.closing import is_closed
from tidegate.kernel.rows.layout import Layout
from tidegate.kernel.rows.schema_evolution import PLAN_CHANGES
from tidegate.kernel.state.keyed_runs import count_keys
from tidegate.kernel.state.state import State
from tidegate.kernel.state.tables import WINDOW_RUNS, WINDOW_TABLES
from tidegate.kernel.suppress import strict_bound
from tidegate.kernel.time.stream_time import running_max
from tidegate.kernel.windows import functions
from tidegate.kernel.windows.window_runs import WindowRuns, has_runs
from tidegate.spec.windows import BatchWindows, TimeWindows, UnlimitedWindows


def stretch_ms(layout: Layout) -> int:
    """The length (ms) of a stretch of windows that share a table, with `start` as a column; 0 if each has its own.

    In front of a bounded buffer each window has its own table, because the index counts the entries of each window.
    """
    windows = layout.op.windows
    if not isinstance(windows, TimeWindows) or layout.op.buffer is not None:
        return 0
    together = -(-windows.size_ms // (windows.advance_ms * layout.tuning.most_tables))
    return together * windows.advance_ms if together > 1 else 0


class WindowTable(Operator):
    """A table per window, or per stretch of hopping windows, which the batch reads and writes; large ones by key."""

    tables = (WINDOW_TABLES, WINDOW_RUNS)

    def process(self, state: State, batch: Batch, closes_at: int) -> Iterable[pa.Table]:
        changes, updates, batch.dropped_late = _apply_batch(self.layout, state, batch, closes_at)
        return _emitted(self.layout, _store_and_close(self.layout, state, changes, closes_at), updates)

    def open_windows(self, state: State) -> list[tuple[Window, int]]:
        return [aligned_window(self.layout, start) for start in starts(self.layout, state)]

    def count_open(self, state: State) -> OpenWindows:
        totals = state.logs.totals()
        if not totals.logs:
            return OpenWindows(totals.windows, None)
        start = totals.first if totals.due == MAX_MS else totals.due
        return OpenWindows(totals.windows, self.layout.aligned.close_ms(start))

    def stored_rows(self, state: State) -> Iterable[pa.Table]:
        return (whole(self.layout, state, name) for name in sorted(state.logs))

    def windows_stored(self, state: State) -> dict[int, pa.Table]:
        found: dict[int, pa.Table] = {}
        for rows in self.stored_rows(state):
            start = ints(rows["start"])
            found |= {window: rows.filter(pa.array(start == window)) for window in np.unique(start).tolist()}
        return found

    def rewrite_from(self, old: Operator, state: State, *, bounded: bool) -> None:
        if isinstance(old, WindowTable) and bounded == (self.layout.op.buffer is not None):
            return
        found = take_windows(old, state, bounded)
        if self.layout.op.buffer is not None:
            for start, rows in found.items():
                _store_bounded(self.layout, state, start, rows)
        elif found:
            store_anew(self.layout, state, concat_tables([placed(rows, start) for start, rows in found.items()]))


def take_windows(old: Operator, state: State, bounded: bool) -> dict[int, pa.Table]:
    """Remove the windows of `old` from the store. Returns the rows of each open window by its start (ms).

    Entries of a bounded buffer lose their bytes; deleted entries are left out.
    """
    found = old.windows_stored(state)
    for name in list(state.logs):
        forget(old.layout, state, name)
    if bounded:
        found = {start: _without_bytes(old.layout, rows) for start, rows in found.items()}
    return {start: rows for start, rows in found.items() if rows.num_rows}


def _without_bytes(layout: Layout, rows: pa.Table) -> pa.Table:
    rows = rows.drop_columns(["bytes"])
    return rows if layout.op.function is None else rows.filter(pc.is_valid(rows[layout.state[0]]))


def _store_bounded(layout: Layout, state: State, start: int, rows: pa.Table) -> None:
    """Store the rows of a window with the bytes of each entry. Its old value is not known and counts nothing."""
    rows = unplaced(rows)
    fresh = placed(results.marked_live(rows), start)
    sizes = strict_bound.waiting_bytes(layout, fresh)
    state.replace(start, rows.append_column("bytes", pa.array(sizes)))
    state.note(start, counts=int(sizes.sum()))


def aligned_window(layout: Layout, start: int) -> tuple[Window, int]:
    """A window with this start, and the stream time (ms) at which it closes."""
    return Window(start, layout.aligned.end_ms(start)), layout.aligned.close_ms(start)


def _emitted(layout: Layout, closed: Iterator[pa.Table], out: list[pa.Table]) -> Iterator[pa.Table]:
    """The updates `out`, then the final results of `closed` rows, about `part_rows` at a time, in at least one part.

    Windows close while the caller takes parts, so a large window is never in memory whole (decision 0014).
    """
    count = sum(part.num_rows for part in out)
    for rows in closed:
        if layout.op.emits == "updates" or not (leaving := _final(layout, rows)).num_rows:
            continue
        out.append(results.for_kind(layout, "final", leaving, layout.sorts))
        count += leaving.num_rows
        if count >= layout.tuning.part_rows:
            yield results.concat(layout, out)
            out, count = [], 0
    yield results.concat(layout, out)


def _store_and_close(layout: Layout, state: State, changes: _Changes, closes_at: int) -> Iterator[pa.Table]:
    """Store the tables that the batch changed, and remove the windows that close. Yields the rows of closed windows.

    If the plan emits only updates, a window that the batch has not read is removed unread.
    """
    stretch = stretch_ms(layout)
    last = stretch - layout.panes.windows.advance_ms if stretch else 0
    for name in sorted({*state.logs.leading(lambda start: is_closed(layout, start, closes_at)), *changes.tables}):
        ended = is_closed(layout, name + last, closes_at)
        rows = changes.tables.pop(name, None)
        if rows is None:
            if ended and layout.op.emits == "updates":
                forget(layout, state, name)
                continue
            if not ended and not is_closed(layout, state.logs[name].due, closes_at):
                continue
            if ended and has_runs(state, name):
                yield from _parts(layout, state, name)
                forget(layout, state, name)
                continue
            rows = whole(layout, state, name)
        leaving, rest = (rows, rows.slice(0, 0)) if ended else _divided(layout, rows, closes_at)
        yield leaving
        _store(layout, state, name, rest, as_runs=name in changes.few)


def _parts(layout: Layout, state: State, name: int) -> Iterator[pa.Table]:
    """The rows of a window that has runs, in parts; in one part if rows leave in order."""
    if layout.sorts:
        yield whole(layout, state, name)
    else:
        yield from (placed(rows, name) for rows in WindowRuns.of(layout, state, name).rows.read())


def _divided(layout: Layout, rows: pa.Table, closes_at: int) -> tuple[pa.Table, pa.Table]:
    """The rows of closed windows, and the rows of open windows, of a table whose last window is open."""
    if not stretch_ms(layout):
        return rows.slice(0, 0), rows
    is_open = pa.array(ints(rows["start"]) >= layout.panes.first_open(closes_at))
    return rows.filter(pc.invert(is_open)), rows.filter(is_open)


@dataclass(frozen=True)
class _Changes:
    """Changes of a batch that are not stored yet.

    tables  the tables that were read whole, by name
    few     the large windows with few keys in the batch, and the hashes of these keys
    """

    tables: dict[int, pa.Table]
    few: dict[int, Hashes]


def _apply_batch(layout: Layout, state: State, batch: Batch, closes_at: int) -> tuple[_Changes, list[pa.Table], int]:
    """Apply the batch. Returns the changed tables, the updates, and the number of records dropped late.

    Stores the changes of windows with runs. A function of its own, so that its intermediate tables are freed before
    tables are stored and rows leave.
    """
    rows, late = _entries(layout, batch)
    if rows is None or not rows.num_rows:
        return _Changes({}, {}), [], late
    names = _names(layout, rows)
    touched, counts = np.unique(names, return_counts=True)
    few = _few(layout, state, rows, names, dict(zip(touched.tolist(), counts.tolist(), strict=True)))
    by_key = {name: WindowRuns.of(layout, state, name) for name in few if has_runs(state, name)}
    found = {name: runs.rows.find(few[name]) for name, runs in by_key.items()}
    read = [whole(layout, state, name) for name in touched.tolist() if name in state.logs and name not in by_key]
    read += [placed(part, name) for name, part in found.items() if part is not None]
    stored = concat_tables(read) if read else None
    merged, updates = apply(layout, stored, rows, batch.single)
    if layout.op.buffer is not None:
        merged = strict_bound.check(layout, state, stored, rows, updates, merged)
    emitted = [] if layout.op.emits == "final" else [results.for_kind(layout, "updates", updates)]
    # A bounded buffer may have let all rows of a table go.
    tables = dict.fromkeys(touched.tolist(), merged.slice(0, 0)) | by_number(merged, _names(layout, merged))
    for name, runs in by_key.items():
        changed = unplaced(tables.pop(name))
        if not (is_closed(layout, name, closes_at) and layout.op.emits == "updates"):
            runs.add(found[name], changed)
    return _Changes(tables, few), emitted, late


def _few(layout: Layout, state: State, rows: pa.Table, names: Ints, counts: dict[int, int]) -> dict[int, Hashes]:
    """The large windows with few keys in `rows`, and the hashes of these keys.

    names   the name of each row's table
    counts  the number of rows in each table

    Stretches, and windows in front of a bounded buffer, are always read and written whole.
    """
    if stretch_ms(layout) or layout.op.buffer is not None:
        return {}
    found: dict[int, Hashes] = {}
    for name, count in counts.items():
        log = state.logs.get(name)
        if log is None or log.rows <= layout.tuning.whole_rows:
            continue
        most = (log.rows - 1) // layout.tuning.whole_times
        if count > min(3 * most, log.rows - 1):
            continue  # To count the keys of so many rows costs more than it may save.
        keys = rows.select(layout.keys)
        hashes = grouping.key_hash(layout, keys if len(counts) == 1 else keys.filter(pa.array(names == name)))
        if count <= most or count_keys(hashes) <= most:
            found[name] = hashes
    return found


def _final(layout: Layout, rows: pa.Table) -> pa.Table:
    """The entries of a window that have a result; a deleted entry took room in the buffer but leaves no row."""
    if layout.op.buffer is None or layout.op.function is None:
        return rows
    return rows.filter(pc.is_valid(rows[layout.state[0]]))


def store_anew(layout: Layout, state: State, rows: pa.Table) -> None:
    """Store the rows of windows (with their `start`); none of their tables may be stored yet."""
    for name, table in by_number(rows, _names(layout, rows)).items():
        _store(layout, state, name, table)


def _store(layout: Layout, state: State, name: int, table: pa.Table, as_runs: bool = False) -> None:
    """Replace the table of this name by `table`; without rows, remove it."""
    if as_runs or table.num_rows == 0 or has_runs(state, name):
        forget(layout, state, name)
    if table.num_rows == 0:
        return
    if as_runs:
        WindowRuns.new(layout, state, name).replace(unplaced(table))
    elif stretch_ms(layout):
        starts = np.unique(ints(table["start"]))
        state.replace(name, table, len(starts))
        state.note(name, due=int(starts[0]))
    else:
        state.replace(name, table.drop_columns(["start"]))
        if "bytes" in table.schema.names:
            state.note(name, counts=int(ints(table["bytes"]).sum()))


def _entries(layout: Layout, batch: Batch) -> tuple[pa.Table | None, int]:
    """One row per record (or combined row) and open window, in order (`expand`); and the number of late drops."""
    if layout.op.pre_aggregates:
        rows, late = batch.partials()
        if rows is None:
            return None, late
        first_open, last = ints(rows["open"]), layout.panes.last_window(ints(rows["pane"]))
        return expand(layout, rows.drop_columns(["open", "pane", "n"]), first_open, last), late
    records = batch.records()
    if records is None:
        return None, 0
    ts, closing_time = ints(records["ts"]), ints(records["closing_time"])
    windows = layout.op.windows
    if isinstance(windows, BatchWindows):
        # The window of the stream time that the record sees is always open.
        current = closing_time // windows.size_ms * windows.size_ms
        return expand(layout, records, current, current), 0
    if isinstance(windows, UnlimitedWindows):
        start = np.full(len(ts), windows.start_ms)
        return expand(layout, records, start, np.where(ts >= windows.start_ms, start, start - 1)), 0
    first, last = layout.panes.first_window(layout.panes.pane(ts)), layout.panes.last_window(ts)
    first_open = np.maximum(layout.panes.first_open(closing_time), first)
    late = int(layout.panes.closed(first, last, first_open).sum())
    return expand(layout, records, first_open, last), late


def expand(layout: Layout, rows: pa.Table, first: Any, last: Any) -> pa.Table:
    """Each row once for every window from its `first` to its `last`, with the window's `start`."""
    advance = layout.panes.windows.advance_ms if layout.paned else 1
    windows = np.maximum((last - first) // advance + 1, 0)
    repeated = rows
    if not np.all(windows == 1):
        repeated = rows.take(pa.array(np.repeat(np.arange(rows.num_rows), windows)))
    return repeated.append_column("start", pa.array(expanded(first, windows, advance)))


def starts(layout: Layout, state: State) -> list[int]:
    """The starts of all windows that have a table."""
    if not stretch_ms(layout):
        return list(state.logs)
    tables = (ints(whole(layout, state, name)["start"]) for name in state.logs)
    return [start for table in tables for start in np.unique(table).tolist()]


def whole(layout: Layout, state: State, name: int) -> pa.Table:
    """A stored table, with the `start` of each row's window."""
    if has_runs(state, name):
        return placed(concat_tables(list(WindowRuns.of(layout, state, name).rows.read())), name)
    return placed(concat_tables(state.read(name)), name)


def forget(layout: Layout, state: State, name: int) -> None:
    """Remove a table, if it is stored."""
    if has_runs(state, name):
        WindowRuns.of(layout, state, name).forget()
    else:
        state.forget(name)


def unplaced(rows: pa.Table) -> pa.Table:
    """Rows without the `start` of their window."""
    return rows.drop_columns([name for name in ("start",) if name in rows.schema.names])


def placed(rows: pa.Table, name: int) -> pa.Table:
    """Rows of the table `name`, with the `start` of each row's window."""
    if "start" in rows.schema.names:
        return rows
    return rows.append_column("start", pa.array(np.full(rows.num_rows, name, np.int64)))


def _names(layout: Layout, rows: pa.Table) -> Ints:
    """The name of each row's table: the start of its window, or of its stretch."""
    stretch = stretch_ms(layout)
    start = ints(rows["start"])
    return start // stretch * stretch if stretch else start


def apply(layout: Layout, stored: pa.Table | None, rows: pa.Table, single: bool) -> tuple[pa.Table, pa.Table]:
    """The tables after the batch, and the updates: the last of each key and window, or the update of every record."""
    if layout.op.function is not None:
        return functions.apply(layout, stored, rows, every=layout.op.every_update or single)
    if not layout.op.pre_aggregates:
        rows = grouping.lift(layout, rows)
    kept = [*layout.keys, "start", "ts", *layout.state]
    if layout.added_at and not layout.closes:
        rows = rows.append_column(PLAN_CHANGES, pa.repeat(max(0, *layout.added_at), rows.num_rows))
        kept.append(PLAN_CHANGES)
    both = concat_tables([stored.select(kept), rows.select(kept)]) if stored is not None else rows.select(kept)
    by = [*layout.keys, "start"]
    groups = Groups.of(grouping.codes([both[name] for name in by]))
    merged = grouping.merge(layout, both, by, groups)
    before = both.num_rows - rows.num_rows
    if layout.op.every_update:
        emitted, heads = np.arange(before, both.num_rows), both.select([*layout.keys, "start"]).slice(before)
        if layout.op.stream.changes:
            leaves = ~flags(rows["silent"])
            emitted, heads = emitted[leaves], heads.filter(pa.array(leaves))
        return merged, _every_update(layout, both, groups, emitted, heads)
    return merged, _touched(merged, groups.number[before:])


def _touched(merged: pa.Table, changed: Any) -> pa.Table:
    """The merged rows of the groups with these numbers, in timestamp order."""
    touched = np.zeros(merged.num_rows, np.bool_)
    touched[changed] = True
    return merged.filter(pa.array(touched)).sort_by([("ts", "ascending"), ("start", "ascending")])


def _every_update(layout: Layout, both: pa.Table, groups: Groups, emitted: Ints, heads: pa.Table) -> pa.Table:
    """The running aggregate at each of the `emitted` rows, in order of arrival; `heads`: their keys and windows."""
    order, starts = groups.runs()
    by_group, place = pa.array(order), np.empty_like(order)
    place[order] = np.arange(len(order))
    at = place[emitted]
    columns: dict[str, Any] = {name: heads[name] for name in heads.schema.names}
    for index, (acc, names) in enumerate(zip(layout.accumulators, layout.states, strict=True)):
        try:
            scanned = acc.scan_at([array(both[name]).take(by_group) for name in names], starts, at)
        except Overflow as overflow:
            of_groups = both.take(pa.array(groups.first))
            raise grouping.overflowed(layout, of_groups, overflow, index) from None
        columns |= zip(names, scanned, strict=True)
    columns["ts"] = running_max(ints(both["ts"])[order], starts)[at]
    if PLAN_CHANGES in both.schema.names:
        columns[PLAN_CHANGES] = both[PLAN_CHANGES].take(pa.array(groups.first[groups.number[emitted]]))
    return pa.table(columns)
