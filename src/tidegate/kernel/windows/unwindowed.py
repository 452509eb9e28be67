"""Aggregation without windows: one result per key, refined for as long as records come. Nothing is ever late."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import pyarrow as pa

from tidegate.kernel.columns.arrays import concat_tables
from tidegate.kernel.exchange.batch import Batch
from tidegate.kernel.operator import Operator
from tidegate.kernel.rows import grouping, results
from tidegate.kernel.rows.layout import Layout
from tidegate.kernel.state import hash_tree
from tidegate.kernel.state.state import State
from tidegate.kernel.state.tables import KEYS
from tidegate.kernel.windows import window_table


class Unwindowed(Operator):
    """A row per key, in buckets of a tree over the hash of the key."""

    tables = (KEYS,)

    def process(self, state: State, batch: Batch, closes_at: int) -> tuple[Iterable[pa.Table], int]:
        return [_updates(self.layout, state, batch)], 0

    def stored_rows(self, state: State) -> Iterable[pa.Table]:
        return (
            window_table.placed(concat_tables(segments), 0) for name in state.logs if (segments := state.read(name))
        )

    def results_so_far(self, state: State) -> list[pa.Table]:
        shape = self.layout.for_kind["updates"]
        return [results.finish(shape, results.undeleted(self.layout, rows)) for rows in self.stored_rows(state)]


def _updates(layout: Layout, state: State, batch: Batch) -> pa.Table:
    """Apply the batch to the buckets of its keys; gives the updates."""
    rows = batch.partials()[0] if layout.op.pre_aggregates else batch.records()
    if rows is None or not rows.num_rows:
        return layout.result_schema.empty_table()
    touched = np.unique(hash_tree.find(state, grouping.key_hash(layout, rows)))
    held = hash_tree.read(state, touched)
    one_window = None if held is None else _in_one_window(held)
    merged, updates = window_table.apply(layout, one_window, _in_one_window(rows), batch.single)
    merged = merged.drop_columns(["start"])
    hash_tree.write(state, touched, merged, grouping.key_hash(layout, merged))
    return results.finish(layout, updates)


def _in_one_window(rows: pa.Table) -> pa.Table:
    """The rows as tables of windows have them, all in the same one."""
    return rows.append_column("start", pa.array(np.zeros(rows.num_rows, np.int64)))
