"""Dropped records as rows: the full record and the reason; a late record has one row for each of its closed windows.

Only after the shuffle is the whole stream time known, and so whether a record is late (by `spec.windows`). So a plan
that keeps late records ships every full record, beside the columns that it aggregates (kernel.exchange.packing).
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from tidegate.kernel.columns.arrays import as_schema, ints
from tidegate.kernel.exchange.batch import Batch
from tidegate.kernel.rows.layout import Layout
from tidegate.kernel.rows.record_times import arrival_times, known_times
from tidegate.kernel.windows import window_table
from tidegate.spec.columns import END, LATE_BY, REASON, START, STREAM_TIME, TIMESTAMP


def rows(layout: Layout, batch: Batch) -> pa.Table:
    """Rows of `Layout.late_schema`: one per late record and closed window, then one per record that was skipped."""
    parts = [_late(layout, batch), _skipped(layout, batch)]
    made = [part for part in parts if part is not None]
    return pa.concat_tables(made) if made else layout.late_schema.empty_table()


def _late(layout: Layout, batch: Batch) -> pa.Table | None:
    """One row per (record, closed window): as many as the metric `late` counts."""
    records = batch.full_records()
    if records is None or not (layout.paned or layout.keyed):
        return None
    found = _closed_windows(layout, records) if layout.paned else _noted(records, batch.late)
    by = ints(arrival_times(found)) - ints(found["ts"])
    return _shaped(layout, found, found["start"], found["end"], "late", by)


def _closed_windows(layout: Layout, records: pa.Table) -> pa.Table:
    """Each record once for every time window that was closed for it, with `start` and `end` (ms)."""
    panes = layout.panes
    pane = panes.pane(ints(records["ts"]))
    last_closed = panes.first_open(ints(records["closing_time"])) - panes.windows.advance_ms
    found = window_table.expand(
        layout, records, panes.first_window(pane), np.minimum(last_closed, panes.last_window(pane))
    )
    ends: Any = ints(found["start"]) + panes.windows.size_ms
    return found.append_column("end", pa.array(ends))


def _noted(records: pa.Table, late: list[tuple[int, int, int]]) -> pa.Table:
    """The late records of sliding windows and sessions (`Batch.late`), with `start` and `end` (ms)."""
    at, start, end = np.array(late, np.int64).reshape(-1, 3).T
    found = records.take(pa.array(at))
    return found.append_column("start", pa.array(start)).append_column("end", pa.array(end))


def _skipped(layout: Layout, batch: Batch) -> pa.Table | None:
    found = batch.skipped()
    if found is None:
        return None
    nothing = pa.nulls(found.num_rows, pa.int64())
    return _shaped(layout, found, nothing, nothing, found["reason"], nothing)


def _shaped(layout: Layout, found: pa.Table, start: Any, end: Any, reason: Any, by: Any) -> pa.Table:
    columns: dict[str, Any] = {name: found[column] for name, column in layout.record.items()}
    columns |= {START: start, END: end} if layout.op.windows is not None else {}
    columns[TIMESTAMP] = known_times(found["ts"])
    columns[REASON] = pa.repeat(reason, found.num_rows) if isinstance(reason, str) else reason
    columns |= {LATE_BY: by, STREAM_TIME: known_times(arrival_times(found))}
    return as_schema(pa.table(columns).select(layout.late_schema.names), layout.late_schema)
