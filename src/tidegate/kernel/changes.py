"""A table on its way into other groups: a change takes the old row out of its group, then puts the new one into its.

The operator that makes a table keeps the row it last let out for each key (and window), in buckets of its own, and so
knows what a new one replaces. What leaves are halves of changes, in order: `sign` -1 takes a row out, 1 puts one in; a
half that is `silent` is followed by the other half of its change in the same group, and makes no update of its own.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tidegate.errors import DefinitionError
from tidegate.kernel import buckets, grouping
from tidegate.kernel.batch import unite
from tidegate.kernel.buffers import previous_rows
from tidegate.kernel.grouping import array, ints
from tidegate.kernel.layout import HALVES, Layout
from tidegate.kernel.panes import Ints
from tidegate.kernel.state import State
from tidegate.kernel.store import Store
from tidegate.spec.windows import SessionWindows, SlidingWindows

_BELOW = -(2**62)


def run(layout: Layout, state: State, rows: pa.Table) -> pa.Table:
    """Halves of changes (`Layout.halves`) of the result rows that a table lets out, in order."""
    rows = rows.append_column("__live", _live(rows))
    kept = State(_Below(state.store), {}, state.tasks, logs=state.kept)
    hashes = _hashes(layout, rows)
    touched = np.unique(buckets.find(kept, hashes))
    held = buckets.read(kept, touched) if rows.num_rows else None
    both = rows if held is None else unite([_like(held, rows), rows])
    place = [name for name in (*layout.op.key, "__start", "__end") if name in rows.schema.names]
    codes = np.unique(grouping.codes([both[name] for name in place]), return_inverse=True)[1]
    before, has_before = previous_rows(codes)
    _keep(layout, state, kept, touched, both, codes)
    fresh = np.arange(both.num_rows - rows.num_rows, both.num_rows)
    live = array(both["__live"]).to_numpy(zero_copy_only=False)
    return _halves(layout, state, both, before[fresh], fresh, (has_before & live[before])[fresh], live[fresh])


def _live(rows: pa.Table) -> Any:
    if "__deleted" not in rows.schema.names:
        return pa.repeat(pa.scalar(True), rows.num_rows)
    return pc.invert(array(rows["__deleted"]))


def _hashes(layout: Layout, rows: pa.Table) -> Any:
    return grouping.key_hash(layout, rows.select(list(layout.op.key)).rename_columns(layout.keys))


def _like(held: pa.Table, rows: pa.Table) -> pa.Table:
    """Rows as they were kept, with the columns of those that come."""
    missing = [name for name in rows.schema.names if name not in held.schema.names]
    for name in missing:
        value = pa.scalar(name == "__live") if name in ("__live", "__deleted") else pa.scalar(0, pa.int64())
        held = held.append_column(name, pa.repeat(value, held.num_rows))
    return held.select(rows.schema.names)


def _keep(layout: Layout, state: State, kept: State, touched: Ints, both: pa.Table, codes: Ints) -> None:
    """Write back the last row of each key, without those that were deleted and those that nothing can replace."""
    last = np.zeros(int(codes.max(initial=0)) + 1, np.int64)
    last[codes] = np.arange(len(codes))  # the last assignment stands
    rows = both.take(pa.array(np.unique(last))) if len(codes) else both
    rows = rows.filter(rows["__live"])
    windows = layout.op.windows
    if windows is not None and layout.op.limit is None:
        if isinstance(windows, SlidingWindows | SessionWindows):
            is_open = ints(rows["__end"]) >= windows.open_from_ms(state.stream_time)
        else:
            closes = [layout.aligned.close_ms(start) for start in ints(rows["__start"]).tolist()]
            is_open = np.array(closes, np.int64) > state.stream_time
        rows = rows.filter(pa.array(is_open))
    rows = rows.drop_columns([name for name in ("__live", "__deleted", "__timestamp") if name in rows.schema.names])
    if both.num_rows:
        buckets.write(kept, touched, rows, _hashes(layout, rows))


def _halves(layout: Layout, state: State, rows: pa.Table, old: Ints, new: Ints, has_old: Any, has_new: Any) -> pa.Table:
    """The rows `old` out and the rows `new` in, one after the other."""
    assert layout.op.regroup is not None
    for name in layout.op.regroup.key:
        if name not in rows.schema.names or pa.types.is_nested(rows[name].type):
            raise DefinitionError(f"group_by: the table has no column {name!r} that can be a key.")
    groups = [rows[name] for name in layout.op.regroup.key]
    grouped = np.logical_and.reduce([column.is_valid().to_numpy() for column in groups])
    codes = np.full(rows.num_rows, -1)
    codes[grouped] = grouping.codes([column.filter(pa.array(grouped)) for column in groups])
    takes, puts = has_old & grouped[old], has_new & grouped[new]
    silent = takes & puts & (codes[old] == codes[new])
    at = np.stack([old, new], axis=1).ravel()
    when = np.repeat(ints(rows["__timestamp"])[new], 2)
    told = np.stack([takes, puts], axis=1).ravel()
    columns: dict[str, Any] = {"ts": when, "sign": np.tile(np.array([-1, 1], np.int64), len(new))}
    columns["silent"] = np.stack([silent, np.zeros(len(new), bool)], axis=1).ravel()
    # A change comes after all that its own task let out before it: its rank never goes back.
    columns["rank"] = np.maximum.accumulate(when)
    # Two halves stay together, whatever other tasks have at the same rank.
    columns["place"] = (np.arange(len(when)) // 2 * state.tasks + state.task) * 2 + np.arange(len(when)) % 2
    assert set(columns) == set(HALVES)
    taken = {name: rows[column].take(pa.array(at)) for name, column in layout.halves_of(rows.schema.names).items()}
    made = pa.table(taken | {name: pa.array(column) for name, column in columns.items()})
    return made.filter(pa.array(told))


@dataclass(frozen=True)
class _Below:
    """A part of a store where no window begins, and far from the shelves of `kernel.shelves`."""

    store: Store

    def get(self, name: str) -> bytes | None:
        return self.store.get(name)

    def put(self, name: str, value: bytes) -> None:
        self.store.put(name, value)

    def read(self, window: int, segment: int) -> bytes:
        return self.store.read(_BELOW - window, segment)

    def write(self, window: int, segment: int, value: bytes) -> None:
        self.store.write(_BELOW - window, segment, value)

    def remove(self, window: int, segment: int) -> None:
        self.store.remove(_BELOW - window, segment)
