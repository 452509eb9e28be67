"""The join of two tables: each change of a side meets the row that the other side has for the key (SEMANTICS 17)."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from tidegate.instants import MAX_MS, earlier_ms
from tidegate.kernel.columns.arrays import Flags, Ints, concat_tables
from tidegate.kernel.exchange.batch import Batch
from tidegate.kernel.exchange.join_batch import JoinBatch
from tidegate.kernel.joins import table_rows
from tidegate.kernel.joins.arrivals import Arrived, Progress
from tidegate.kernel.joins.join_operator import JoinOperator
from tidegate.kernel.joins.joined_rows import joined_rows, side_columns, take_or_null
from tidegate.kernel.joins.table_rows import STORED, Keeps, Lookup, Versions, last_rows_of
from tidegate.kernel.rows import grouping, row_ids
from tidegate.kernel.rows.layout import ID_COLUMN
from tidegate.kernel.rows.map_filter import CLOSING_TIME
from tidegate.kernel.state.keyed_runs import KeyedRuns
from tidegate.kernel.state.state import State
from tidegate.kernel.state.tables import TABLE_LEFT, TABLE_RIGHT
from tidegate.kernel.time.stream_time import NEVER
from tidegate.spec.joined import TableTable
from tidegate.spec.windows import LEFT, RIGHT

_SIDES = (LEFT, RIGHT)


@dataclass(frozen=True)
class _Table:
    """One side in a batch: its versions, their key codes, and the places of the batch's changes among them."""

    versions: Versions
    codes: Ints
    changes: Ints
    lookup: Lookup

    def before(self, codes: Ints, places: Ints) -> Ints:
        """The row that each key has before a place, -1 if it has none."""
        return self.versions.rows_at(self.lookup.last(codes, np.full(len(codes), MAX_MS), places))


class _Made(NamedTuple):
    """Rows that changes made, the places of the changes in the batch, and the codes of their keys."""

    rows: pa.Table
    places: Ints
    codes: Ints


class TableTableJoin(JoinOperator):
    """Keeps the rows of both tables, in ranges of hashes of the key."""

    tables = (TABLE_LEFT, TABLE_RIGHT)

    def process(self, state: State, batch: Batch, closes_at: int) -> Iterable[pa.Table]:
        assert isinstance(batch, JoinBatch)
        arrived, progress = self.receive(state, batch)
        changed = [self._keys(arrived[side]) for side in _SIDES]
        hashes = np.concatenate([grouping.key_hash(self.layout, rows) for rows in changed])
        if not len(hashes):
            return [self.layout.result_schema.empty_table()]
        begins = [self._history_from(side, progress[side].at(arrived[side].places)) for side in _SIDES]
        accepted = [arrived[side].keyed & (arrived[side].times >= begins[side]) for side in _SIDES]
        tables = [self._table(state, side) for side in _SIDES]
        versions = [
            Versions.of(
                side_columns(self.layout, side),
                self.layout.of_side(side).schema,
                table_rows.find(tables[side], hashes),
                arrived[side],
                np.flatnonzero(accepted[side]),
            )
            for side in _SIDES
        ]
        codes = table_rows.key_codes(self.layout, *(one.rows for one in versions))
        sides = [_table(*self._newest(side, versions[side], codes[side])) for side in _SIDES]
        rows, places = self._rows(sides, every=not self._joined.caching or batch.single)
        if self.layout.op.buffers_by_stream_time:
            rows = rows.append_column(CLOSING_TIME, pa.array(_closing_times(arrived, places)))
        for side in _SIDES:
            if changed[side].num_rows:
                mine, last_only = sides[side], self._joined.histories[side] is None
                changes = table_rows.changed(mine.versions, mine.codes, last_only)
                table_rows.store(self.layout, tables[side], *changes)
            self._report_late(batch, side, arrived[side], sides[side], progress[side])
        return [rows]

    def _report_late(self, batch: JoinBatch, side: int, changes: Arrived, mine: _Table, time: Progress) -> None:
        late = changes.keyed & ~np.isin(changes.places, mine.versions.places[mine.changes])
        self.report_late(batch, side, changes, late, time.at(changes.places))

    def _history_from(self, side: int, times: Ints) -> Ints:
        """The beginning of a table's history (ms) at these times of the table; NEVER if it keeps no versions."""
        history = self._joined.histories[side]
        return np.full(len(times), NEVER) if history is None else np.asarray(earlier_ms(times, history))

    def _table(self, state: State, side: int) -> KeyedRuns:
        """The versions of a table: the last one of each key, and with a history the deletions in it."""
        keeps: Keeps = last_rows_of
        if self._joined.histories[side] is not None:
            keeps = partial(_last_versions, int(self._history_from(side, np.array([state.input_times[side]]))[0]))
        return table_rows.runs_of(self.layout, state, side, keeps)

    def _newest(self, side: int, versions: Versions, codes: Ints) -> tuple[Versions, Ints]:
        """If the table keeps versions, those that are their key's newest when they come; else all."""
        if self._joined.histories[side] is None:
            return versions, codes
        order = np.lexsort((versions.places, codes))
        kept = np.sort(order[_growing(codes[order], versions.times[order])])
        return versions.some(kept), codes[kept]

    @property
    def _joined(self) -> TableTable:
        assert isinstance(self.layout.op.joined, TableTable)
        return self.layout.op.joined

    def _keys(self, changes: Arrived) -> pa.Table:
        if changes.rows is None:
            return self.layout.schema.empty_table().select(self.layout.keys)
        return changes.rows.select(self.layout.keys).filter(pa.array(changes.keyed))

    def _rows(self, sides: list[_Table], every: bool) -> tuple[pa.Table, Ints]:
        """The rows of all changes, in order, and their places; of a key only the last one, if not `every` one."""
        made = [self._of_side(side, sides[side], sides[1 - side]) for side in _SIDES]
        rows = concat_tables([one.rows for one in made])
        places = np.concatenate([one.places for one in made])
        codes = np.concatenate([one.codes for one in made])
        order = np.argsort(places)
        if not every:
            last = table_rows.last_of_each(codes, places)
            order = last[np.argsort(places[last])]
        return rows.take(pa.array(order)), places[order]

    def _of_side(self, side: int, mine: _Table, other: _Table) -> _Made:
        """The rows that the changes of a side make."""
        joined, at = self._joined, mine.changes
        places, codes = mine.versions.places[at], mine.codes[at]
        partner, own = other.before(codes, places), mine.before(codes, places)
        deleted, has = mine.versions.deleted[at], partner >= 0
        upsert = ~deleted & (has | joined.preserves(side))
        # A deletion takes back the key's row: a pair, or a null-joined row.
        leaves = deleted & (has | (joined.preserves(side) & (own >= 0)))
        tombstone = leaves & ~(has & joined.preserves(1 - side))
        made = np.flatnonzero(upsert | leaves)
        times = mine.versions.times[at]
        times = np.where(has, np.maximum(times, np.append(other.versions.times, 0)[partner]), times)[made]
        dead = tombstone[made]
        shows = [np.where(deleted[made], -1, at[made]), np.where(dead, -1, partner[made])]
        values = [take_or_null(mine.versions.rows, shows[0]), take_or_null(other.versions.rows, shows[1])]
        missing: list[Flags] = [one < 0 for one in shows]
        left, right = (0, 1) if side == LEFT else (1, 0)
        rows = joined_rows(
            self.layout,
            mine.versions.rows.take(pa.array(at[made])),
            (values[left], values[right]),
            times,
            missing=(missing[left], missing[right]),
            deleted=dead,
            ids=self._ids(mine.versions.rows, at[made], side),
        )
        return _Made(rows, places[made], codes[made])

    def _ids(self, changes: pa.Table, made: Ints, side: int) -> Any:
        """The ids of rows: the id of the change that made each, not of the row that it met."""
        if not self.layout.has_row_ids:
            return None
        ids = changes[ID_COLUMN].take(pa.array(made))
        return row_ids.of_sides(ids, None) if side == LEFT else row_ids.of_sides(None, ids)

    # -- inside ------------------------------------------------------------------------------------------------------

    def own_rows(self, state: State, store: str) -> list[pa.Table]:
        side = self.own_stores.index(store)
        return table_rows.shown(self.layout, self._table(state, side), side)


def _table(versions: Versions, codes: Ints) -> _Table:
    lookup = Lookup.by(codes, versions.places, versions.places)
    return _Table(versions, codes, np.flatnonzero(versions.places > STORED), lookup)


def _closing_times(arrived: tuple[Arrived, Arrived], places: Ints) -> Ints:
    """The closing times (ms) of the changes at these places."""
    known, times = (np.concatenate([getattr(one, what) for one in arrived]) for what in ("places", "closing_times"))
    order = np.argsort(known)
    found: Ints = times[order][np.searchsorted(known[order], places)]
    return found


def _growing(codes: Ints, times: Ints) -> Flags:
    """Flags of the versions, sorted by key and place, that are not older than any version of their key before them."""
    # The ranks of a key lie above those of all keys before it, so one running maximum serves all keys.
    ranks = np.unique(times, return_inverse=True)[1] + codes * (len(times) + 1)
    found: Flags = ranks >= np.maximum.accumulate(ranks)
    return found


def _last_versions(begin: int, versions: Versions, codes: Ints) -> Ints:
    """The last row of each key, and deletions from `begin` on."""
    last = table_rows.last_of_each(codes, versions.places)
    return last[~versions.deleted[last] | (versions.times[last] >= begin)]
