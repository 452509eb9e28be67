"""A plan that keeps results otherwise than the one before: what is stored takes the other form, once and whole.

    log     final results of time windows, without a bound: segments per pane (kernel.windows.window_log)
    table   a table per window: updates; final results that depend on order
    bound   a table per window with the bytes of every entry, in front of a buffer with a bound

The old value of an entry that waited without a bound is not known and not counted.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tidegate.kernel.columns.arrays import ints, unite
from tidegate.kernel.rows.layout import Layout
from tidegate.kernel.state.state import State
from tidegate.kernel.suppress import strict_bound
from tidegate.kernel.windows import keyed, window_log, window_table
from tidegate.plan import Operation


def turn(layout: Layout, state: State, old: Operation) -> None:
    """Let what is stored under the plan `old` be as that of `layout` needs it."""
    if _form(old) == _form(layout.op) or layout.op.windows is None:
        return
    if layout.keyed:
        keyed.store_anew(layout, state)
        return
    found = window_log.windows(layout, state) if old.logs else dict(_by_window(state))
    for name in list(state.logs):
        state.forget(name)
    if old.buffer is not None:
        found = {start: _without_bound(layout, rows) for start, rows in found.items()}
    found = {start: rows for start, rows in found.items() if rows.num_rows}
    if not layout.op.logs and layout.op.buffer is None and found:
        window_table.store_anew(
            layout, state, unite([window_table.placed(rows, start) for start, rows in found.items()])
        )
        return
    for start, rows in found.items():
        if layout.op.buffer is not None:
            _store_bound(layout, state, start, rows)
        else:
            window_log.append(layout, state, start, _logged(layout, start, rows))


def _by_window(state: State) -> Iterator[tuple[int, pa.Table]]:
    """The start and the rows of each window in tables."""
    for name in state.logs:
        rows = window_table.whole(state, name)
        start = ints(rows["start"])
        for window in np.unique(start).tolist():
            yield window, rows.filter(pa.array(start == window))


def _form(op: Operation) -> tuple[bool, bool]:
    return op.logs, op.buffer is not None


def _table(rows: pa.Table) -> pa.Table:
    return rows.drop_columns([name for name in ("start",) if name in rows.schema.names])


def _without_bound(layout: Layout, rows: pa.Table) -> pa.Table:
    rows = rows.drop_columns(["bytes"])
    return rows if layout.op.function is None else rows.filter(pc.is_valid(rows[layout.state[0]]))


def _logged(layout: Layout, start: int, rows: pa.Table) -> pa.Table:
    rows = _table(rows)
    # A row of the pane that begins with its window, and that no earlier one was open to, is in that alone.
    return (
        rows.append_column("open", pa.array(np.full(rows.num_rows, start, np.int64))) if layout.panes.shared else rows
    )


def _store_bound(layout: Layout, state: State, start: int, rows: pa.Table) -> None:
    rows = _table(rows)
    fresh = rows.append_column("deleted", pa.repeat(pa.scalar(False), rows.num_rows))
    sizes = strict_bound.waiting_bytes(
        layout, fresh.append_column("start", pa.array(np.full(rows.num_rows, start, np.int64)))
    )
    state.replace(start, rows.append_column("bytes", pa.array(sizes)))
    state.note(start, counts=int(sizes.sum()))
