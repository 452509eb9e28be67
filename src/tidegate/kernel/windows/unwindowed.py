"""Aggregation without windows: one result per key, refined for as long as records come. Nothing is ever late."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np
import pyarrow as pa

from tidegate.kernel.columns.arrays import Hashes
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
        return _updates(self.layout, state, batch)

    def stored_rows(self, state: State) -> Iterable[pa.Table]:
        return (window_table.placed(rows, 0) for rows in _by_key(self.layout, state).read())


def _by_key(layout: Layout, state: State) -> RowsByKey:
    return RowsByKey.of(layout, state.logs, state.store, state.evolution)


def _updates(layout: Layout, state: State, batch: Batch) -> Iterator[pa.Table]:
    """Apply the batch to the rows of its keys. Yields the updates, in at least one part."""
    rows = batch.partials()[0] if layout.op.pre_aggregates else batch.records()
    if rows is None or not rows.num_rows:
        yield layout.result_schema.empty_table()
        return
    by_key, hashes = _by_key(layout, state), grouping.key_hash(layout, rows)
    if by_key.versions.are_many(hashes):
        merged, updates = _applied(layout, by_key.whole(), rows, batch.single)
        del rows, hashes  # storing rows takes as much memory again
        by_key.replace(merged)
        yield results.finish(layout, updates)
        return
    most = layout.tuning.table_rows if _in_any_order(layout) else len(hashes)
    parts = by_key.versions.divided(rows, hashes, most)
    del rows, hashes
    while parts:
        yield _of_some_keys(layout, by_key, parts, batch.single)


def _in_any_order(layout: Layout) -> bool:
    """Whether updates may leave in another order than that of their timestamps."""
    op = layout.op
    return not (layout.sorts or op.every_update or op.all_limits or op.regroup)


def _of_some_keys(layout: Layout, by_key: RowsByKey, parts: list[tuple[pa.Table, Hashes]], single: bool) -> pa.Table:
    """Remove the last of the parts (`KeyedRuns.divided`) and apply its rows. Returns the updates."""
    rows, hashes = parts.pop()
    stored = by_key.find(hashes)
    merged, updates = _applied(layout, stored, rows, single)
    del rows, hashes  # storing rows takes as much memory again
    added = by_key.by_range(stored, merged)
    del stored, merged  # and so does a compaction
    by_key.versions.add_by_range(added)
    return results.finish(layout, updates)


def _applied(layout: Layout, stored: pa.Table | None, rows: pa.Table, single: bool) -> tuple[pa.Table, pa.Table]:
    """The `stored` rows after these rows, and the updates (`window_table.apply`)."""
    before = None if stored is None or not stored.num_rows else _in_one_window(stored)
    merged, updates = window_table.apply(layout, before, _in_one_window(rows), single)
    return merged.drop_columns(["start"]), updates


def _in_one_window(rows: pa.Table) -> pa.Table:
    """The rows with a `start` of 0, as rows of one window."""
    return rows.append_column("start", pa.array(np.zeros(rows.num_rows, np.int64)))
