"""The rows of a table in a join, by key; and which of them a lookup finds.

A table is a list of versions: stored rows, then the changes of the batch, each with its place in the order of the
batch. A lookup sees what came before its own place.

Rows lie in buckets by the hash of their key (`state.hash_tree`). Of a table without history, a few changes of a bucket
are a segment behind its rows, so that the bucket need not be written anew: the last version of a key counts then.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tidegate.kernel.columns.arrays import Ints, array, concat_tables, ints
from tidegate.kernel.columns.groups import last_rows
from tidegate.kernel.joins.arrivals import Arrived, Bools
from tidegate.kernel.joins.joined_rows import conformed
from tidegate.kernel.rows import grouping
from tidegate.kernel.rows.layout import ID_COLUMN, Layout
from tidegate.kernel.state import hash_tree
from tidegate.kernel.state.log_index import Log
from tidegate.kernel.state.state import State
from tidegate.kernel.state.store import Section
from tidegate.kernel.state.tables import TABLE_RIGHT
from tidegate.spec.columns import STATUS, TIMESTAMP, UNTIL
from tidegate.spec.windows import LEFT

STORED = -1
"""The place of what was there before the batch."""

_NONE = -1
"""The bucket of a version that did not come with the batch."""

_FEW = 64
"""Up to one of so many rows that a bucket may have are added to it as a segment."""


def of_side(state: State, side: int) -> State:
    """The rows of a side as a state of their own (`state.hash_tree`)."""
    if side == LEFT:
        return state
    return State(Section(state.store, TABLE_RIGHT), {}, state.tasks, logs=state.right)


@dataclass(frozen=True)
class Versions:
    """Versions of the rows of a table.

    rows     columns of the key and the values
    times    timestamps (ms)
    places   where they stand in the order of the batch, STORED for those from before
    deleted  whether a version says that there is no row
    """

    rows: pa.Table
    times: Ints
    places: Ints
    deleted: Bools

    @classmethod
    def of(cls, columns: list[str], schema: pa.Schema, held: pa.Table | None, changes: Arrived, kept: Ints) -> Versions:
        """Stored rows and those of the changes that are `kept`."""
        none = schema.empty_table()
        rows = none if changes.rows is None else changes.rows.take(pa.array(kept))
        typed = concat_tables([none.select(columns), conformed(rows, columns)])
        return cls(typed, changes.times[kept], changes.places[kept], _deleted(rows)).behind(held)

    def behind(self, held: pa.Table | None) -> Versions:
        """Stored rows, and these behind them."""
        if held is None:
            return self
        rows = concat_tables([conformed(held, self.rows.schema.names), self.rows]).combine_chunks()
        before = (ints(held["ts"]), np.full(held.num_rows, STORED), _deleted(held))
        own = (self.times, self.places, self.deleted)
        return Versions(rows, *(np.concatenate(both) for both in zip(before, own, strict=True)))

    def some(self, at: Ints) -> Versions:
        """The versions at these places."""
        return Versions(self.rows.take(pa.array(at)), self.times[at], self.places[at], self.deleted[at])

    def stored(self) -> pa.Table:
        """The versions as they are stored; an id is of the change, which makes its row in its batch."""
        rows = self.rows.drop_columns([ID_COLUMN]) if ID_COLUMN in self.rows.schema.names else self.rows
        return rows.append_column("ts", pa.array(self.times)).append_column("deleted", pa.array(self.deleted))


def _deleted(rows: pa.Table) -> Bools:
    return _bools(rows["deleted"]) if "deleted" in rows.schema.names else np.zeros(rows.num_rows, bool)


def _bools(column: pa.ChunkedArray | pa.Array) -> Bools:
    whole = array(column) if isinstance(column, pa.ChunkedArray) else column
    found: Bools = whole.to_numpy(zero_copy_only=False).astype(bool)
    return found


def key_codes(layout: Layout, *tables: pa.Table) -> list[Ints]:
    """A number for the key of each row, the same for equal keys in all tables."""
    whole = concat_tables([table.select(layout.keys) for table in tables])
    codes = grouping.codes([whole[name] for name in layout.keys])
    return np.split(codes, np.cumsum([table.num_rows for table in tables])[:-1])


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
        at = _search(self.codes, self.rank, codes, ranks) - 1
        found = np.full(len(codes), -1)
        open_ = np.arange(len(codes))
        # A version that comes later than the lookup is no version yet: the one before it may be.
        while len(open_):
            here = at[open_]
            same = (here >= 0) & (self.codes[here] == codes[open_])
            open_, here = open_[same], here[same]
            earlier = self.places[here] < before[open_]
            found[open_[earlier]] = self.order[here[earlier]]
            open_ = open_[~earlier]
            at[open_] -= 1
        return found


def _search(codes: Ints, rank: Ints, wanted: Ints, ranks: Ints) -> Ints:
    """Behind the last of the sorted (code, rank) that is no larger than each wanted one."""
    # One sort of both gives the places: those that are wanted come behind what equals them.
    size = len(codes)
    both = np.lexsort((np.repeat([0, 1], [size, len(wanted)]), np.append(rank, ranks), np.append(codes, wanted)))
    before = np.cumsum(both < size)
    places = np.empty(len(both), np.int64)
    places[both] = before
    return places[size:]


def last_of_each(codes: Ints, places: Ints) -> Ints:
    """Where the last version of each key is, by place; of versions at one place, the one behind the others."""
    order = np.lexsort((places, codes))
    return order[np.append(codes[order][1:] != codes[order][:-1], True)[: len(order)]]


def stored(layout: Layout, tables: State, bucket: int, wanted: hash_tree.Hashes | None = None) -> pa.Table | None:
    """The versions in a bucket that count, of each key in the order in which they came; `wanted`: of keys with these
    hashes, which ascend.
    """
    segments = tables.read(bucket)
    if not segments:
        return None
    rows = concat_tables(segments)
    if wanted is not None:
        hashes = grouping.key_hash(layout, rows)
        at = np.minimum(np.searchsorted(wanted, hashes), len(wanted) - 1)
        rows = rows.take(pa.array(np.flatnonzero(wanted[at] == hashes)))
    if len(segments) == 1:
        return rows
    [codes] = key_codes(layout, rows)
    return rows.take(pa.array(last_rows(codes)))


def found(layout: Layout, tables: State, hashes: hash_tree.Hashes) -> pa.Table | None:
    """The versions of the keys with these hashes. Bucket after bucket is read, and the others are let go."""
    asked = np.unique(hashes)
    buckets, first = np.unique(hash_tree.find(tables, asked), return_index=True)
    parts = np.split(asked, first[1:])
    rows = (stored(layout, tables, bucket, part) for bucket, part in zip(buckets.tolist(), parts, strict=False))
    some = [part for part in rows if part is not None and part.num_rows]
    return concat_tables(some) if some else None


Keeps = Callable[[Versions, Ints], Ints]
"""Which of some versions, with numbers of their keys, are kept, in the order in which they are to be stored."""


def take(layout: Layout, tables: State, versions: Versions, codes: Ints, keeps: Keeps, *, adds: bool) -> None:
    """Store the versions that came with the batch.

    versions, codes  those of the keys that changed, with the stored ones; and numbers of their keys
    adds             whether changes may be added to their buckets: only the last version of a key counts
    """
    came = np.flatnonzero(versions.places > STORED)
    own = np.full(len(codes), _NONE)
    own[came] = hash_tree.find(tables, grouping.key_hash(layout, versions.rows.take(pa.array(came))))
    buckets, many = np.unique(own[came], return_counts=True)
    more = _that_take_more(tables, buckets, many) if adds else np.zeros(len(buckets), bool)
    if more.any():
        _add(tables, buckets[more], versions, codes, own)
    anew = buckets[~more]
    every = len(anew) == len(tables.logs)
    for some in _some_at_a_time(tables, anew):
        parts = (stored(layout, tables, bucket) for bucket in some.tolist())
        held = [part for part in parts if part is not None]
        whole = versions.some(np.flatnonzero(np.isin(own, some))).behind(concat_tables(held) if held else None)
        [of_keys] = key_codes(layout, whole.rows)
        rows = whole.some(keeps(whole, of_keys)).stored()
        hash_tree.write(tables, some, rows, grouping.key_hash(layout, rows), every=every)


def _that_take_more(tables: State, buckets: Ints, many: Ints) -> Bools:
    """Which buckets take so many changes as a segment more; the others are to be written anew."""
    tuning = tables.store.tuning
    segments = np.array([(tables.logs.get(bucket) or Log()).segments for bucket in buckets.tolist()], np.int64)
    few: Bools = many <= max(1, tuning.bucket_rows // _FEW)
    return few & (segments > 0) & (segments < tuning.table_segments)


def _add(tables: State, buckets: Ints, versions: Versions, codes: Ints, own: Ints) -> None:
    """Add the last change of each key to its `own` bucket, if that is one of these."""
    last = last_of_each(codes, versions.places)
    changed = last[np.isin(own[last], buckets)]
    before = np.flatnonzero(versions.places == STORED)
    rows_before = before[last_rows(codes[before])]
    there = codes[rows_before[~versions.deleted[rows_before]]]
    # A key that has no row and gets none is nothing to remember.
    changed = changed[np.isin(codes[changed], there) | ~versions.deleted[changed]]
    changed = changed[np.argsort(own[changed], kind="stable")]
    grown = (~versions.deleted[changed]).astype(np.int64) - np.isin(codes[changed], there)
    rows = versions.some(changed).stored()
    names, first, number = np.unique(own[changed], return_index=True, return_counts=True)
    for bucket, low, end in zip(names.tolist(), first.tolist(), (first + number).tolist(), strict=True):
        known = tables.logs[bucket].rows
        tables.append(bucket, rows.slice(low, end - low))
        tables.note(bucket, rows=known + int(grown[low:end].sum()))


def _some_at_a_time(tables: State, buckets: Ints) -> list[Ints]:
    """Buckets, some together, so that not too many rows are held at once."""
    if not len(buckets):
        return []
    before = np.cumsum([0, *((tables.logs.get(bucket) or Log()).rows for bucket in buckets.tolist())])[:-1]
    return np.split(buckets, np.flatnonzero(np.diff(before // tables.store.tuning.part_rows)) + 1)


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


def shown(layout: Layout, tables: State, side: int) -> list[pa.Table]:
    """The rows of a table as `read_state` gives them; versions that say that there is no row are left out."""
    parts = []
    for bucket in tables.logs:
        rows = stored(layout, tables, bucket)
        if rows is not None:
            rows = rows.filter(pc.invert(rows["deleted"]))
            status, until = pa.repeat("row", rows.num_rows), pa.nulls(rows.num_rows, pa.int64())
            parts.append(shown_rows(layout, rows, side, status, until))
    return parts
