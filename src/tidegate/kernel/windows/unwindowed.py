"""Aggregation without windows: one result per key, refined for as long as records come. Nothing is ever late."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial

import numpy as np
import pyarrow as pa

from tidegate.kernel.columns.arrays import concat_tables
from tidegate.kernel.exchange.batch import Batch
from tidegate.kernel.operator import Operator
from tidegate.kernel.rows import grouping, results
from tidegate.kernel.rows.layout import Layout
from tidegate.kernel.state.keyed_runs import KeyedRuns, last_versions
from tidegate.kernel.state.state import State
from tidegate.kernel.state.tables import KEYS
from tidegate.kernel.windows import window_table


class Unwindowed(Operator):
    """A row per key: the last version of it, in ranges of hashes of the keys."""

    tables = (KEYS,)

    def process(self, state: State, batch: Batch, closes_at: int) -> tuple[Iterable[pa.Table], int]:
        return [_updates(self.layout, state, batch)], 0

    def stored_rows(self, state: State) -> Iterable[pa.Table]:
        return (window_table.placed(_as_rows(rows), 0) for rows in _versions(self.layout, state).read())

    def results_so_far(self, state: State) -> list[pa.Table]:
        shape = self.layout.for_kind["updates"]
        return [results.finish(shape, results.undeleted(self.layout, rows)) for rows in self.stored_rows(state)]


def _versions(layout: Layout, state: State) -> KeyedRuns:
    return KeyedRuns.of(state.logs, state.store, partial(last_versions, layout.keys), state.fitting)


def _updates(layout: Layout, state: State, batch: Batch) -> pa.Table:
    """Apply the batch to the rows of its keys; gives the updates."""
    rows = batch.partials()[0] if layout.op.pre_aggregates else batch.records()
    if rows is None or not rows.num_rows:
        return layout.result_schema.empty_table()
    versions, hashes = _versions(layout, state), grouping.key_hash(layout, rows)
    many = versions.are_many(hashes)
    held = versions.whole() if many else _last(layout, versions.find(hashes))
    held = _as_rows(held) if held is not None and held.num_rows else None
    one_window = None if held is None else _in_one_window(held)
    merged, updates = window_table.apply(layout, one_window, _in_one_window(rows), batch.single)
    merged = merged.drop_columns(["start"])
    if many:
        stored = merged.append_column("deleted", pa.repeat(False, merged.num_rows))
        versions.replace(stored, grouping.key_hash(layout, merged))
    else:
        _store(layout, versions, held, merged)
    return results.finish(layout, updates)


def _last(layout: Layout, parts: Iterable[pa.Table]) -> pa.Table | None:
    found = list(parts)
    return last_versions(layout.keys, concat_tables(found)) if found else None


def _store(layout: Layout, versions: KeyedRuns, held: pa.Table | None, merged: pa.Table) -> None:
    """Store the rows of the keys of a batch; a key that was held and is no longer there has a last version without."""
    more, gone = np.ones(merged.num_rows, np.int64), np.zeros(merged.num_rows, bool)
    if held is not None:
        both = concat_tables([held.select(layout.keys), merged.select(layout.keys)])
        before, now = np.split(grouping.codes([both[name] for name in layout.keys]), [held.num_rows])
        more -= np.isin(now, before)
        left = held.filter(pa.array(~np.isin(before, now)))
        merged = concat_tables([merged, left])
        more, gone = (np.append(one, np.full(left.num_rows, value)) for one, value in ((more, -1), (gone, True)))
    if merged.num_rows:
        stored = merged.append_column("deleted", pa.array(gone))
        versions.add(stored, grouping.key_hash(layout, merged), more)


def _as_rows(versions: pa.Table) -> pa.Table:
    return versions.drop_columns(["h", "deleted"])


def _in_one_window(rows: pa.Table) -> pa.Table:
    """The rows as tables of windows have them, all in the same one."""
    return rows.append_column("start", pa.array(np.zeros(rows.num_rows, np.int64)))
