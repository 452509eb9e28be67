"""What each row of a table replaces: the row of its key (and window) that was told before it.

An operator that must know keeps the row that it last told of each key, in buckets of their own. Of a window that no
record can change any more nothing is kept.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tidegate.kernel.columns.arrays import Ints, array, concat_tables
from tidegate.kernel.columns.groups import last_rows, previous_rows
from tidegate.kernel.rows import grouping, result_keys
from tidegate.kernel.rows.closing import closed_at
from tidegate.kernel.rows.layout import Layout
from tidegate.kernel.state import hash_tree
from tidegate.kernel.state.log_index import LogIndex
from tidegate.kernel.state.state import State
from tidegate.spec.columns import DELETED, LIVE, TIMESTAMP

_NOT_KEPT = (LIVE, DELETED, TIMESTAMP)


@dataclass(frozen=True)
class Replaced:
    """Rows that were kept, then those that came (`came`), with the column `LIVE`: whether it is no tombstone.

    For each row that came `before` is the row it replaces, where it `has` one that was live.
    """

    rows: pa.Table
    came: Ints
    before: Ints
    has: npt.NDArray[np.bool_]


def replaced(layout: Layout, state: State, index: LogIndex, rows: pa.Table, *, later: bool) -> Replaced:
    """What rows (of `layout.result_schema`) replace, in order; the last ones of their keys are kept from now on.

    index  the logs of the buckets
    later  whether rows of a window may still come when it has closed
    """
    kept = State(index.store, {}, state.tasks, logs=index)
    rows = rows.append_column(LIVE, _live(rows))
    hashes = _hashes(layout, rows)
    touched = np.unique(hash_tree.find(kept, hashes))
    held = hash_tree.read(kept, touched) if rows.num_rows else None
    both = rows if held is None else concat_tables([_like(held, rows), rows])
    codes = np.unique(result_keys.codes(layout, both), return_inverse=True)[1]
    before, has = previous_rows(codes)
    live = array(both[LIVE]).to_numpy(zero_copy_only=False)
    if rows.num_rows:
        last = _last(both, codes)
        if layout.op.windows is not None and not later:
            last = last.filter(pa.array(closed_at(layout, last) > state.stream_time))
        last = last.drop_columns([name for name in _NOT_KEPT if name in last.schema.names])
        hash_tree.write(kept, touched, last, _hashes(layout, last))
    came = np.arange(both.num_rows - rows.num_rows, both.num_rows)
    return Replaced(both, came, before[came], (has & live[before])[came])


def forget(state: State, index: LogIndex) -> None:
    """Keep nothing any more."""
    kept = State(index.store, {}, state.tasks, logs=index)
    for bucket in list(index):
        kept.forget(bucket)


def _last(rows: pa.Table, codes: Ints) -> pa.Table:
    """The last row of each code, but for tombstones."""
    rows = rows.take(pa.array(last_rows(codes)))
    return rows.filter(rows[LIVE])


def _live(rows: pa.Table) -> Any:
    if DELETED not in rows.schema.names:
        return pa.repeat(pa.scalar(True), rows.num_rows)
    return pc.invert(array(rows[DELETED]))


def _hashes(layout: Layout, rows: pa.Table) -> Any:
    return grouping.key_hash(layout, rows.select(list(layout.op.key)).rename_columns(layout.keys))


def _like(held: pa.Table, rows: pa.Table) -> pa.Table:
    """Rows as they were kept, with the columns of those that come."""
    not_kept = {LIVE: pa.scalar(True), DELETED: pa.scalar(False), TIMESTAMP: pa.scalar(0, pa.int64())}
    for field in rows.schema:
        if field.name not in held.schema.names:
            # A column that is not kept, or that came after these rows.
            value = not_kept.get(field.name)
            column = pa.nulls(held.num_rows, field.type) if value is None else pa.repeat(value, held.num_rows)
            held = held.append_column(field.name, column)
    return held.select(rows.schema.names)
