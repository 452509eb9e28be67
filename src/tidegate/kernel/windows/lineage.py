"""The lineage of windows of keys: the stored rows and records of each window, and the aggregates of many at once."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Sequence
from itertools import chain
from typing import Any, NamedTuple, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tidegate.kernel.aggregates import Overflow
from tidegate.kernel.aggregates.ordered import CollectList
from tidegate.kernel.columns.arrays import Flags, Ints, array, concat_tables
from tidegate.kernel.columns.runs import expanded
from tidegate.kernel.rows import grouping, results
from tidegate.kernel.rows.layout import Layout
from tidegate.kernel.suppress.prior_values import PRIOR, numbered, window_columns
from tidegate.kernel.windows import functions

INITIAL: Any = object()
"""The node of the initial aggregate."""

_REPEATS = 2
"""Aggregates are computed along runs if nodes have this many times the leaves of their runs."""


class Entry(NamedTuple):
    """A window of a key: bounds and newest timestamp (ms), and the node of its aggregate in `Aggregates` (None: none).

    `prior` is the node of the prior value of its first row: the aggregate that it began with. `again`: the same record
    made the window just before, as the right window of the record in front of it (SEMANTICS 3.1).
    """

    start: int
    end: int
    ts: int
    node: Any
    prior: Any = INITIAL
    again: bool = False


class Update(NamedTuple):
    """A window after the record numbered `record`, which has the same key."""

    record: int
    entry: Entry


class Entries:
    """The windows of one key by place, in `at`; `places` has the places in ascending order."""

    def __init__(self) -> None:
        self.places: list[Any] = []
        self.at: dict[Any, Entry] = {}

    def put(self, place: Any, entry: Entry) -> None:
        """Set the window at this place; a window without an aggregate is removed."""
        if entry.node is None:
            self.remove(place)
            return
        if place not in self.at:
            insort(self.places, place)
        self.at[place] = entry

    def remove(self, place: Any) -> None:
        """Remove the window at this place, if there is one."""
        if self.at.pop(place, None) is not None:
            del self.places[bisect_left(self.places, place)]


class Aggregates(Protocol):
    """The aggregates of windows while records are applied; a node stands for one aggregate."""

    def stored(self, row: int) -> Any:
        """The node of a stored row."""

    def add(self, record: int, window: tuple[int, int], node: Any, fresh: bool) -> Any:
        """The node of an aggregate with a record added (`fresh`: there is none yet); None if that deletes it."""

    def join(self, record: int, window: tuple[int, int], nodes: Sequence[Any]) -> Any:
        """The node of sessions merged in this order, without the record that merges them."""

    def table(self, keys: pa.Table, updates: list[Update]) -> pa.Table:
        """Rows (key, start, end, ts, state, deleted) of these windows; `keys`: the key columns of the records."""


def _bounds(keys: pa.Table, updates: list[Update]) -> dict[str, Any]:
    rows = keys.take(pa.array([update.record for update in updates], pa.int64()))
    columns: dict[str, Any] = {name: rows[name] for name in keys.schema.names}
    for name in ("start", "end", "ts"):
        columns[name] = pa.array([getattr(update.entry, name) for update in updates], pa.int64())
    columns["deleted"] = pa.array([update.entry.node is None for update in updates], pa.bool_())
    return columns


class Lineage:
    """Built-in aggregates. A node is a number: of a stored row, of a record, or of a sequence of earlier nodes."""

    def __init__(self, layout: Layout, stored: pa.Table, records: pa.Table) -> None:
        lifted = grouping.lift(layout, records).select(layout.state)
        self._leaves = concat_tables([stored.select(layout.state), lifted]) if stored.num_rows else lifted
        self._first_record = stored.num_rows
        self._first_node = stored.num_rows + records.num_rows
        self._parts: list[tuple[int, ...]] = []
        self._layout = layout

    def stored(self, row: int) -> int:
        return row

    def add(self, record: int, window: tuple[int, int], node: Any, fresh: bool) -> int:
        leaf = self._first_record + record
        return leaf if node is None else self._sequence((node, leaf))

    def join(self, record: int, window: tuple[int, int], nodes: Sequence[int]) -> int | None:
        return self._sequence(tuple(nodes)) if nodes else None

    def _sequence(self, parts: tuple[int, ...]) -> int:
        self._parts.append(parts)
        return self._first_node + len(self._parts) - 1

    def _flat(self, node: int) -> list[int]:
        leaves: list[int] = []
        stack = [node]
        while stack:
            top = stack.pop()
            if top < self._first_node:
                leaves.append(top)
            else:
                stack.extend(reversed(self._parts[top - self._first_node]))
        return leaves

    def table(self, keys: pa.Table, updates: list[Update]) -> pa.Table:
        columns = _bounds(keys, updates)
        nodes = [update.entry.node for update in updates]
        alive = np.array([node is not None for node in nodes], bool)
        merged = self._states([node for node in nodes if node is not None], columns, alive)
        if not alive.all():
            # A tombstone has no state: its columns are null.
            at = pa.array(np.maximum(np.cumsum(alive) - 1, 0), mask=~alive)
            merged = {name: column.take(at) for name, column in merged.items()}
        return pa.table(columns | merged)

    def _states(self, nodes: list[int], columns: dict[str, Any], alive: Flags) -> dict[str, pa.Array]:
        """The states of these nodes, those of the rows that are `alive`; `columns` has key and bounds of the rows."""
        runs, run, lengths = self._runs(nodes)
        sizes, laid = np.array(list(map(len, runs)), np.int64), np.array([*chain(*runs)], np.int64)
        starts, begins = np.cumsum(sizes) - sizes, np.cumsum(lengths) - lengths
        merged: dict[str, pa.Array] = {}
        for index, (acc, names) in enumerate(zip(self._layout.accumulators, self._layout.states, strict=True)):
            # A scan would make a list at each place, which takes as long as reading the list's values again.
            scans = len(laid) * _REPEATS < lengths.sum() and not isinstance(acc, CollectList)
            leaves = pa.array(laid if scans else laid[expanded(starts[run], lengths, 1)])
            state = [array(self._leaves[name].take(leaves)) for name in names]
            try:
                if scans:
                    # At the nodes alone: between them, leaves of a session that joins the run may overflow a sum.
                    made = acc.scan_at(state, starts, starts[run] + lengths - 1)
                else:
                    made = acc.merge_runs(state, begins) if nodes else state
            except Overflow as overflow:
                if scans:  # the last row of the run stands for all of them
                    overflow.group_index = int(np.flatnonzero(run == overflow.group_index)[-1])
                heads = pa.table(columns).filter(pa.array(alive))
                raise grouping.overflowed(self._layout, heads, overflow, index) from None
            merged |= zip(names, made, strict=True)
        return merged

    def _runs(self, nodes: list[int]) -> tuple[list[list[int]], Ints, Ints]:
        """Runs of leaves, and for each of these nodes its run and the number of its leaves: those that begin the run.

        A session after each of its records is the beginning of the session after the next record. So all of them share
        a run, and the work follows the records, not the square of their number.
        """
        needed: set[int] = set()
        for node in nodes:
            while node not in needed:
                needed.add(node)
                node = self._parts_of(node)[0]
        runs: list[list[int]] = []
        at: dict[int, tuple[int, int]] = {}
        ends: dict[int, int] = {}
        """The run that ends with a node."""
        for node in sorted(needed):  # a node comes behind its parts
            first, *rest = self._parts_of(node)
            run = ends.pop(first, len(runs))
            if run == len(runs):
                number, length = at.get(first, (run, 0))
                runs.append(runs[number][:length] if length else [first])
            for part in rest:
                runs[run] += self._flat(part)
            ends[node], at[node] = run, (run, len(runs[run]))
        of_nodes, lengths = np.array([at[node] for node in nodes], np.int64).reshape(-1, 2).T
        return runs, of_nodes, lengths

    def _parts_of(self, node: int) -> tuple[int, ...]:
        """The parts of a node; a leaf is its own part."""
        return (node,) if node < self._first_node else self._parts[node - self._first_node]


class Functions:
    """Python functions: a node is the aggregate itself."""

    def __init__(self, layout: Layout, stored: pa.Table, records: pa.Table) -> None:
        self._layout = layout
        self._call = functions.Caller(layout)
        self._stored = stored["s:0:0"].to_pylist()
        self._keys = functions.keys_of(layout, records)
        self._records = functions.records_of(layout, records)
        self._copy = functions.copier(layout, records)

    def stored(self, row: int) -> Any:
        return self._stored[row]

    def add(self, record: int, window: tuple[int, int], node: Any, fresh: bool) -> Any:
        return self._call.add(self._keys[record], window, self._copy(self._records[record]), node, fresh)

    def join(self, record: int, window: tuple[int, int], nodes: Sequence[Any]) -> Any:
        return self._call.merge(self._keys[record], window, self._records[record], list(nodes))

    def table(self, keys: pa.Table, updates: list[Update]) -> pa.Table:
        nodes = [update.entry.node for update in updates]
        return pa.table(_bounds(keys, updates) | {"s:0:0": functions.typed(self._layout, nodes)})


def made_again(layout: Layout, keys: pa.Table, updates: list[Update]) -> pa.Table:
    """(key, start, end, nth) of the updates that make a window again; `keys`: the key columns of the records."""
    again = [update.entry.again for update in updates]
    rows = pa.table(_bounds(keys, updates if any(again) else [])).select(window_columns(layout))
    return numbered(layout, rows).filter(pa.array(again if any(again) else [], pa.bool_()))


def prior_values_of_made(layout: Layout, aggregates: Aggregates, keys: pa.Table, updates: list[Update]) -> pa.Table:
    """(key, start, end, prior values) of the updated windows that were made from other windows."""
    mine = [update for update in updates if update.entry.prior is not INITIAL]
    rows = aggregates.table(keys, [Update(u.record, u.entry._replace(node=u.entry.prior)) for u in mine])
    done = results.finish(layout.for_kind["updates"], rows)
    columns: dict[str, Any] = {name: rows[name] for name in window_columns(layout)}
    for name in layout.result_types:
        column = array(done[name])
        columns[PRIOR + name] = pc.if_else(array(rows["deleted"]), pa.scalar(None, column.type), column)
    return pa.table(columns)
