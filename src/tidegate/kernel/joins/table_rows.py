"""The rows of a table in a join, by key, and lookups in them.

A table is a list of versions: stored rows, then the changes of the batch, each with its place in the order of the
batch. A lookup sees the versions before its own place. Versions are stored as they come (`state.keyed_runs`): in a
table without history the last version of a key counts.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tidegate.kernel.columns.arrays import Flags, Hashes, Ints, concat_tables, flags, ints, some_rows
from tidegate.kernel.columns.groups import last_rows
from tidegate.kernel.columns.runs import last_of_run
from tidegate.kernel.joins.arrivals import Arrived
from tidegate.kernel.joins.joined_rows import conformed
from tidegate.kernel.rows import grouping
from tidegate.kernel.rows.layout import ID_COLUMN, Layout
from tidegate.kernel.state.keyed_runs import KeyedRuns
from tidegate.kernel.state.state import State
from tidegate.kernel.state.store import Section
from tidegate.kernel.state.tables import TABLE_LEFT, TABLE_RIGHT
from tidegate.spec.columns import STATUS, TIMESTAMP, UNTIL
from tidegate.spec.windows import LEFT

STORED = -1
"""The place of versions from before the batch."""


@dataclass(frozen=True)
class Versions:
    """Versions of the rows of a table.

    rows     columns of the key and the values
    times    timestamps (ms)
    places   places in the order of the batch, STORED for versions from before it
    deleted  whether a version says that there is no row
    """

    rows: pa.Table
    times: Ints
    places: Ints
    deleted: Flags

    @classmethod
    def of_stored(cls, rows: pa.Table) -> Versions:
        """The versions in stored rows."""
        return cls(rows, ints(rows["ts"]), np.full(rows.num_rows, STORED), _deleted(rows))

    @classmethod
    def of(
        cls, columns: list[str], schema: pa.Schema, stored: pa.Table | None, changes: Arrived, kept: Ints
    ) -> Versions:
        """The versions in stored rows, then the changes that are `kept`."""
        none = schema.empty_table()
        rows = none if changes.rows is None else some_rows(changes.rows, kept)
        typed = concat_tables([none.select(columns), conformed(rows, columns)])
        return cls(typed, changes.times[kept], changes.places[kept], _deleted(rows)).behind(stored)

    def behind(self, stored: pa.Table | None) -> Versions:
        """The versions in stored rows, and these versions behind them."""
        if stored is None:
            return self
        rows = concat_tables([conformed(stored, self.rows.schema.names), self.rows]).combine_chunks()
        before = (ints(stored["ts"]), np.full(stored.num_rows, STORED), _deleted(stored))
        own = (self.times, self.places, self.deleted)
        return Versions(rows, *(np.concatenate(both) for both in zip(before, own, strict=True)))

    def some(self, at: Ints) -> Versions:
        """The versions at these places."""
        return Versions(self.rows.take(pa.array(at)), self.times[at], self.places[at], self.deleted[at])

    def rows_at(self, found: Ints) -> Ints:
        """The `found` versions, -1 for those that say that there is no row."""
        return np.where(np.append(self.deleted, False)[found], -1, found)

    def stored(self) -> pa.Table:
        """The versions as they are stored, without ids: a change needs its id only in its own batch."""
        rows = self.rows.drop_columns([ID_COLUMN]) if ID_COLUMN in self.rows.schema.names else self.rows
        return rows.append_column("ts", pa.array(self.times)).append_column("deleted", pa.array(self.deleted))


def _deleted(rows: pa.Table) -> Flags:
    return flags(rows["deleted"]).astype(bool) if "deleted" in rows.schema.names else np.zeros(rows.num_rows, bool)


def key_codes(layout: Layout, *tables: pa.Table) -> list[Ints]:
    """A number for the key of each row, the same for equal keys in all tables."""
    return grouping.codes_of_tables(layout.keys, tables)


@dataclass(frozen=True)
class Lookup:
    """Versions sorted by key and then by `rank`; of equal ranks the one that came last counts."""

    codes: Ints
    rank: Ints
    places: Ints
    order: Ints

    @classmethod
    def by(cls, codes: Ints, rank: Ints, places: Ints) -> Lookup:
        """A lookup over versions with these key codes; stored versions of a key lie in the order in which they came."""
        order = np.lexsort((np.arange(len(codes)), places, rank, codes))
        return cls(codes[order], rank[order], places[order], order)

    def last(self, codes: Ints, ranks: Ints, before: Ints) -> Ints:
        """The version of each key with the largest rank up to `ranks` that stands before a place; -1 if none does."""
        if not len(self.codes) or not len(codes):
            return np.full(len(codes), -1)
        # A version that comes later than the lookup does not count: the version before it does.
        at = _last_before(self.places, _search(self.codes, self.rank, codes, ranks) - 1, before)
        fits = (at >= 0) & (self.codes[at] == codes)
        return np.where(fits, self.order[at], -1)


def _last_before(places: Ints, at: Ints, before: Ints) -> Ints:
    """For each index `at` the largest one up to it whose place is less than `before`; -1 if there is none."""
    # A first place less than all ends each search. Level k has the least place of each 2**k neighbours: a search goes
    # up as long as there is none, to the block that ends before it, and then down to the last one in that block.
    levels = [np.append(np.iinfo(np.int64).min, places)]
    found, height, open_ = at + 1, np.zeros(len(at), np.int64), np.arange(len(at))
    while True:
        open_ = open_[levels[-1][found[open_]] >= before[open_]]
        if not len(open_):
            break
        found[open_] = (found[open_] - 1) >> 1
        height[open_] += 1
        levels.append(np.minimum.reduceat(levels[-1], np.arange(0, len(levels[-1]), 2)))
    for level in range(len(levels) - 2, -1, -1):
        down = np.flatnonzero(height > level)
        right = np.minimum(2 * found[down] + 1, len(levels[level]) - 1)
        found[down] = right - (levels[level][right] >= before[down])
    return found - 1


def _search(codes: Ints, rank: Ints, wanted: Ints, ranks: Ints) -> Ints:
    """The number of sorted (code, rank) pairs that are no larger than each wanted pair."""
    # One sort of both gives the numbers: a wanted pair comes behind the pairs that equal it.
    size = len(codes)
    both = np.lexsort((np.repeat([0, 1], [size, len(wanted)]), np.append(rank, ranks), np.append(codes, wanted)))
    before = np.cumsum(both < size)
    places = np.empty(len(both), np.int64)
    places[both] = before
    return places[size:]


def last_of_each(codes: Ints, places: Ints) -> Ints:
    """The index of the last version of each key, by place; of versions at one place, the one behind the others."""
    order = np.lexsort((places, codes))
    return order[last_of_run(codes[order])]


def find(tables: KeyedRuns, hashes: Hashes) -> pa.Table | None:
    """The stored versions of the keys with these hashes, those of a key in the order in which they came.

    Versions of some other keys may be among them.
    """
    parts = list(tables.find(hashes))
    return concat_tables(parts) if parts else None


Keeps = Callable[[Versions, Ints], Ints]
"""A function of versions and their key codes: the indices of those that count. It gets all versions of a key."""


def last_rows_of(versions: Versions, codes: Ints) -> Ints:
    """The versions that count without history: the last of each key, unless it says that there is no row."""
    last = last_of_each(codes, versions.places)
    return last[~versions.deleted[last]]


def current(layout: Layout, keeps: Keeps, rows: pa.Table) -> pa.Table:
    """The stored versions that count, in their order; `rows` has all versions of its keys."""
    [codes] = key_codes(layout, rows)
    return rows.take(pa.array(np.sort(keeps(Versions.of_stored(rows), codes))))


def runs_of(layout: Layout, state: State, side: int, keeps: Keeps) -> KeyedRuns:
    """The versions of the table on a side."""
    index, table = (state.logs, TABLE_LEFT) if side == LEFT else (state.right, TABLE_RIGHT)
    return KeyedRuns.of(index, Section(state.store, table), partial(current, layout, keeps))


def changed(versions: Versions, codes: Ints, last_only: bool) -> tuple[Versions, Ints]:
    """The versions to store of those that came with the batch, and the change of the table's number of rows by each.

    versions, codes  stored and new versions of the keys that changed, and their key codes
    last_only        whether only the last version of a key counts
    """
    new = np.flatnonzero(versions.places > STORED)
    new = new[np.argsort(versions.places[new], kind="stable")]
    more = np.ones(len(new), np.int64)
    if last_only:
        new, more = _changed(versions, codes)
    return versions.some(new), more


def store(layout: Layout, tables: KeyedRuns, some: Versions, more: Ints) -> None:
    """Store these versions; `more` is the change of the table's number of rows by each."""
    if len(more):
        tables.add(some.stored(), grouping.key_hash(layout, some.rows), more)


def _changed(versions: Versions, codes: Ints) -> tuple[Ints, Ints]:
    """The last change of each key, and the change of the table's number of rows by it."""
    last = last_of_each(codes, versions.places)
    changed = last[versions.places[last] > STORED]
    before = np.flatnonzero(versions.places == STORED)
    rows_before = before[last_rows(codes[before])]
    had = np.isin(codes[changed], codes[rows_before[~versions.deleted[rows_before]]])
    # A key that has no row and gets none needs no version.
    matters = had | ~versions.deleted[changed]
    changed, had = changed[matters], had[matters]
    return changed, (~versions.deleted[changed]).astype(np.int64) - had


def shown_schema(layout: Layout, side: int) -> pa.Schema:
    """The columns of a side's rows as `read_state` gives them, without `STATUS` and `UNTIL`."""
    keys = [pa.field(name, layout.schema.field(f"k:{name}").type) for name in layout.op.key]
    values = [pa.field(name, kind) for name, kind in layout.values_of(side).items()]
    return pa.schema([*keys, *values, pa.field(TIMESTAMP, pa.int64())])


def shown_rows(layout: Layout, rows: pa.Table, side: int, status: Any, until: Any) -> pa.Table:
    """Stored rows as `read_state` gives them."""
    columns: dict[str, Any] = {name: rows[f"k:{name}"] for name in layout.op.key}
    for name in layout.values_of(side):
        columns[name] = conformed(rows, [f"v:{name}"])[f"v:{name}"]
    return pa.table(columns | {TIMESTAMP: rows["ts"], STATUS: status, UNTIL: until})


def shown(layout: Layout, tables: KeyedRuns, side: int) -> list[pa.Table]:
    """The rows of a table as `read_state` gives them; versions that say that there is no row are left out."""
    parts = []
    for rows in tables.read():
        there = rows.filter(pc.invert(rows["deleted"]))
        status, until = pa.repeat("row", there.num_rows), pa.nulls(there.num_rows, pa.int64())
        parts.append(shown_rows(layout, there, side, status, until))
    return parts
