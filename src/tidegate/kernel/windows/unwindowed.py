"""Aggregation without windows: one result per key, refined for as long as records come. Nothing is ever late."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import pyarrow as pa

from tidegate.kernel.exchange.batch import Batch
from tidegate.kernel.operator import Operator
from tidegate.kernel.rows import grouping, results
from tidegate.kernel.rows.layout import Layout
from tidegate.kernel.state.state import State
from tidegate.kernel.state.tables import KEYS
from tidegate.kernel.windows import window_table
from tidegate.kernel.windows.rows_by_key import RowsByKey


class Unwindowed(Operator):
    """A row per key: the last version of it, in ranges of hashes of the keys."""

    tables = (KEYS,)

    def process(self, state: State, batch: Batch, closes_at: int) -> Iterable[pa.Table]:
        return [_updates(self.layout, state, batch)]

    def stored_rows(self, state: State) -> Iterable[pa.Table]:
        return (window_table.placed(rows, 0) for rows in _by_key(self.layout, state).read())

    def results_so_far(self, state: State) -> list[pa.Table]:
        shape = self.layout.for_kind["updates"]
        return [results.finish(shape, results.live_rows(self.layout, rows)) for rows in self.stored_rows(state)]


def _by_key(layout: Layout, state: State) -> RowsByKey:
    return RowsByKey.of(layout, state.logs, state.store, state.fitting)


def _updates(layout: Layout, state: State, batch: Batch) -> pa.Table:
    """Apply the batch to the rows of its keys. Returns the updates."""
    rows = batch.partials()[0] if layout.op.pre_aggregates else batch.records()
    if rows is None or not rows.num_rows:
        return layout.result_schema.empty_table()
    by_key, hashes = _by_key(layout, state), grouping.key_hash(layout, rows)
    many = by_key.versions.are_many(hashes)
    stored = by_key.whole() if many else by_key.find(hashes)
    one_window = None if stored is None or not stored.num_rows else _in_one_window(stored)
    merged, updates = window_table.apply(layout, one_window, _in_one_window(rows), batch.single)
    merged = merged.drop_columns(["start"])
    del rows, hashes, one_window  # storing rows takes as much memory again
    if many:
        by_key.replace(merged)
    else:
        added = by_key.by_range(stored, merged)
        del stored, merged  # a compaction takes as much memory again
        by_key.versions.add_by_range(added)
    return results.finish(layout, updates)


def _in_one_window(rows: pa.Table) -> pa.Table:
    """The rows with a `start` of 0, as rows of one window."""
    return rows.append_column("start", pa.array(np.zeros(rows.num_rows, np.int64)))
