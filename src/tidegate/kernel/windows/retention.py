"""Results that stay readable after their window has closed (Materialized.with_retention).

A window closes at a stream time c that follows from its bounds. Its result stays readable until stream time reaches
c + retention, however the stream is cut into batches. Results are appended to logs by stretches of c, and a log is
dropped as a whole. So the cost of a batch follows the results that close in it.

        retention 16        stretches [0,1) [1,2) ... [40,41) ...       a log is dropped when its last c is 16 behind
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from tidegate.instants import later_ms
from tidegate.kernel.columns.arrays import as_schema, concat_tables
from tidegate.kernel.rows.closing import closed_at
from tidegate.kernel.rows.layout import Layout
from tidegate.kernel.state.state import State

STRETCHES = 16
"""Stretches in a retention; the results of a stretch share a log."""


def keep(layout: Layout, state: State, rows: pa.Table) -> None:
    """Store the results of closed windows, and drop the logs whose retention is over."""
    retention = layout.op.retention_ms
    if retention is None:  # an earlier plan had one
        for name in list(state.closed):
            state.of_logs(state.closed).forget(name)
        return
    width = max(1, retention // STRETCHES)
    times = closed_at(layout, rows)
    logs = state.of_logs(state.closed)
    stretch = np.where(later_ms(times, retention) > state.stream_time, times // width * width, -1)
    for start in np.unique(stretch[stretch >= 0]).tolist():
        mine = stretch == start
        logs.append(start, rows.filter(pa.array(mine)))
        logs.put_together(start)
        logs.note(start, base=max(logs.logs[start].base, int(times[mine].max())))
    # A closing time in a stretch lies at the start of the stretch or later.
    for start in logs.logs.leading(lambda start: start + retention <= state.stream_time):
        if logs.logs[start].base + retention <= state.stream_time:
            logs.forget(start)


def drop_expired(old: Layout, new: Layout, state: State) -> None:
    """Forget the results that had expired under the plan `old`: a longer retention or grace of `new` must not show them
    again. The others go by the retention and the grace of `new`.
    """
    retention = old.op.retention_ms
    same = (retention, old.op.grace_ms) == (new.op.retention_ms, new.op.grace_ms)
    if same or retention is None:
        return
    logs = state.of_logs(state.closed)
    for name in list(logs.logs):
        stored = concat_tables(logs.read(name))
        left = stored.filter(pa.array(later_ms(closed_at(old, stored), retention) > state.stream_time))
        if left.num_rows:
            logs.replace(name, left)
            logs.note(name, base=int(closed_at(new, left).max()))
        else:
            logs.forget(name)


def rows(layout: Layout, state: State) -> pa.Table:
    """The retained results that are still readable, with the schema of final results."""
    schema = layout.for_kind["final"].result_schema
    logs = state.of_logs(state.closed)
    stored = [table for name in logs.logs for table in logs.read(name)]
    retention = layout.op.retention_ms
    if not stored or retention is None:
        return schema.empty_table()
    # An aggregate that was added later is null in windows that had closed.
    found = concat_tables([schema.empty_table(), *stored]).select(schema.names)
    readable = later_ms(closed_at(layout, found), retention) > state.stream_time
    return as_schema(found.filter(pa.array(readable)), schema)
