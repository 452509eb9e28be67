"""A plan that keeps results otherwise than the one before: what is stored takes the other form, once and whole.

    log     final results of time windows, without a bound: segments per pane (kernel.final)
    table   a table per window: updates; final results that depend on order
    bound   a table per window with the bytes of every entry, in front of a buffer with a bound

The old value of an entry that waited without a bound is not known and not counted.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tidegate.kernel import buffers, final, keyed
from tidegate.kernel.batch import unite
from tidegate.kernel.layout import Layout
from tidegate.kernel.state import State
from tidegate.plan import Operation


def turn(layout: Layout, state: State, old: Operation) -> None:
    """Let what is stored under the plan `old` be as that of `layout` needs it."""
    if _form(old) == _form(layout.op) or layout.op.windows is None:
        return
    if layout.keyed:
        keyed.store_anew(layout, state)
        return
    tables = final.windows(layout, state) if old.logs else {start: unite(state.read(start)) for start in state.logs}
    for start in list(state.logs):
        state.forget(start)
    for start, rows in tables.items():
        if old.buffer is not None:
            rows = _without_bound(layout, rows)
        if layout.op.buffer is not None:
            _store_bound(layout, state, start, rows)
        elif rows.num_rows:
            state.replace(start, _logged(layout, start, rows) if layout.op.logs else _table(rows))


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
    sizes = buffers.waiting_bytes(
        layout, fresh.append_column("start", pa.array(np.full(rows.num_rows, start, np.int64)))
    )
    state.replace(start, rows.append_column("bytes", pa.array(sizes)))
    state.logs[start].base = int(sizes.sum())
