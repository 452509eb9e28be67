"""A bound on final results that is turned on or off: what is stored takes the other form, once and whole.

Without a bound results of time windows may lie in a log per pane (`kernel.final`), in front of one they always lie in
a table per window, with the bytes of every entry. The old value of an entry that waited without a bound is not known
and not counted.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tidegate.kernel import buffers, final, keyed
from tidegate.kernel.batch import unite
from tidegate.kernel.layout import Layout
from tidegate.kernel.state import State


def turn(layout: Layout, state: State) -> None:
    """Let what is stored be as the plan needs it, where that has a bound now and had none when it was stored, or the
    other way round.
    """
    if state.identity["buffer"] == layout.identity["buffer"]:
        return
    if layout.keyed:
        keyed.store_anew(layout, state)
    elif layout.op.buffer is None:
        _off(layout, state)
    else:
        _on(layout, state)
    state.identity = layout.identity


def _on(layout: Layout, state: State) -> None:
    if layout.op.without_bound.logs:
        tables = final.windows(layout, state)
    else:
        tables = {start: unite(state.read(start)) for start in list(state.logs)}
    for start in list(state.logs):
        state.forget(start)
    for start, rows in tables.items():
        fresh = rows.append_column("deleted", pa.repeat(pa.scalar(False), rows.num_rows))
        if "start" not in fresh.schema.names:
            fresh = fresh.append_column("start", pa.array(np.full(rows.num_rows, start, np.int64)))
        sizes = buffers.waiting_bytes(layout, fresh)
        rows = rows.drop_columns([name for name in ("start",) if name in rows.schema.names])
        state.replace(start, rows.append_column("bytes", pa.array(sizes)))
        state.logs[start].base = int(sizes.sum())


def _off(layout: Layout, state: State) -> None:
    for start in list(state.logs):
        rows = unite(state.read(start)).drop_columns(["bytes"])
        if layout.op.function is not None:
            rows = rows.filter(pc.is_valid(rows[layout.state[0]]))
        if layout.op.logs and layout.panes.shared:
            # A row of the pane that begins with its window, and that no earlier one was open to, is in that alone.
            rows = rows.append_column("open", pa.array(np.full(rows.num_rows, start, np.int64)))
        if rows.num_rows:
            state.replace(start, rows)
        else:
            state.forget(start)
