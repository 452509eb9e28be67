"""Aggregation without windows: one result per key, refined for as long as records come. Nothing is ever late."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from tidegate.kernel.exchange.batch import Batch
from tidegate.kernel.rows import grouping, results
from tidegate.kernel.rows.layout import Layout
from tidegate.kernel.state import hash_tree
from tidegate.kernel.state.state import State
from tidegate.kernel.windows import window_table


def run(layout: Layout, state: State, batch: Batch, _closes_at: int) -> tuple[list[pa.Table], int]:
    """Take the batch into the buckets of its keys and give the updates. Nothing is late."""
    rows = batch.partials()[0] if layout.op.combines else batch.records()
    if rows is None or not rows.num_rows:
        return [layout.result_schema.empty_table()], 0
    touched = np.unique(hash_tree.find(state, grouping.key_hash(layout, rows)))
    held = hash_tree.read(state, touched)
    one_window = None if held is None else _in_one_window(held)
    merged, updates = window_table.take_in(layout, one_window, _in_one_window(rows), batch.single)
    merged = merged.drop_columns(["start"])
    hash_tree.write(state, touched, merged, grouping.key_hash(layout, merged))
    return [results.finish(layout, updates)], 0


def _in_one_window(rows: pa.Table) -> pa.Table:
    """The rows as tables of windows have them, all in the same one."""
    return rows.append_column("start", pa.array(np.zeros(rows.num_rows, np.int64)))
