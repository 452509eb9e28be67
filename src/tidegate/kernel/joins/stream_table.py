"""The join of a stream with a table: each record looks up the row of its key (SEMANTICS 16).

Without a history it finds the row that came last, with one the row as of its timestamp. With a grace the record waits
until the stream's own time reaches its timestamp plus the grace, so that late changes are seen. The stream's own time
goes by the clock of the stream: changes of the table neither move it nor hold it back. The order of a batch does not
depend on it. Waiting records lie in stretches of their timestamps (`joins.open_records`), rows in ranges of hashes of
the key (`state.keyed_runs`).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from tidegate.instants import MAX_MS, earlier_ms, later_ms, show_ms
from tidegate.kernel.columns.arrays import Flags, Ints, concat_tables, ints, some_rows
from tidegate.kernel.columns.runs import last_of_run
from tidegate.kernel.columns.sorting import by_columns
from tidegate.kernel.exchange import stream_clock
from tidegate.kernel.exchange.batch import Batch
from tidegate.kernel.exchange.join_batch import JoinBatch, StreamsTime
from tidegate.kernel.exchange.slices import rows_of_joins
from tidegate.kernel.joins import table_rows
from tidegate.kernel.joins.arrivals import Arrived, Progress
from tidegate.kernel.joins.join_operator import JoinOperator
from tidegate.kernel.joins.joined_rows import conformed, joined_rows, side_columns, take_or_null
from tidegate.kernel.joins.open_records import Closing, OpenRecords
from tidegate.kernel.joins.table_rows import STORED, Keeps, Lookup, Versions, last_rows_of, shown_schema
from tidegate.kernel.operator import Operator
from tidegate.kernel.rows import grouping
from tidegate.kernel.rows.results import serial
from tidegate.kernel.state.keyed_runs import KeyedRuns
from tidegate.kernel.state.state import State
from tidegate.kernel.state.tables import TABLE_RIGHT, WAITING
from tidegate.kernel.time.idle import Idle
from tidegate.kernel.time.stream_time import NEVER, Fold
from tidegate.plan import Operation
from tidegate.spec.columns import UNTIL
from tidegate.spec.joined import StreamTable
from tidegate.spec.windows import LEFT, RIGHT

_DUE, _AT_ONCE = 0, 1
"""The lookups at a record, in this order: records that are due, then a record that is looked up when it comes."""

_BEFORE = -1
"""The place of lookups before the first record of a batch: records that a shorter grace no longer lets wait."""


@dataclass(frozen=True)
class _Records:
    """Records of the stream that are looked up in this batch, and those of the batch that wait.

    rows     columns of key and values
    times    timestamps (ms)
    places   the place of the lookup in the order of the batch
    kinds    the kind of the lookup: _DUE or _AT_ONCE
    keyed    whether a record has a key
    waits    whether a record waits from now on; none of an earlier batch does
    """

    rows: pa.Table
    times: Ints
    places: Ints
    kinds: Ints
    keyed: Flags
    waits: Flags


class StreamTableJoin(JoinOperator):
    """Keeps the rows of the table by key, and the records that wait in stretches of their timestamps."""

    tables = (WAITING, TABLE_RIGHT)

    def move_time(self, state: State, batch: Batch) -> None:
        assert isinstance(batch, JoinBatch)
        # Rows of another operator move time by their timestamps too, however far that operator's stream time has come.
        records = [replace(chunk, reported=None) for chunk in batch.chunks]
        batch.fold = Fold(records, state.stream_time)
        state.stream_time = batch.fold.stream_time
        clock = self.layout.op.stream.clock
        if batch.chunks and not clock.slowest:
            state.partitions = {}
        if not (clock.slowest or self._joined.needs_time_progress):
            state.idle = Idle()  # an earlier clock may have asked for steps without records
            return
        mine = [number for number, chunk in enumerate(batch.chunks) if chunk.source == LEFT]
        chunks, has_records = [batch.chunks[number] for number in mine], LEFT in batch.sides_with_records
        inputs = rows_of_joins(self.layout.op.sides[LEFT], LEFT)
        fold = stream_clock.fold(clock, chunks, has_records, state, state.input_times[LEFT], inputs)
        ceilings = np.full(len(batch.chunks), MAX_MS)
        if (of_chunks := fold.ceilings) is not None:
            ceilings[mine] = of_chunks
        batch.streams_time = StreamsTime(
            ceilings, stream_clock.advanced(clock, chunks, has_records, state, fold.stream_time)
        )

    def shown_time(self, state: State) -> int:
        return state.input_times[LEFT] if state.partitions else state.stream_time

    def time_of_rows(self, state: State) -> int:
        # All records up to this time have been looked up. Later rows are not older, except those of late records.
        return max(NEVER, earlier_ms(state.input_times[LEFT], self._joined.grace_ms))

    def process(self, state: State, batch: Batch, closes_at: int) -> Iterable[pa.Table]:
        assert isinstance(batch, JoinBatch)
        looked_up_to = state.looked_up_to
        (records, changes), (stream, table) = self.receive(state, batch, RIGHT)
        state.looked_up_to = max(looked_up_to, state.input_times[LEFT])
        kept = self._kept(state, batch, changes, table)
        # Without a grace no record waits, not even one that is ahead of the stream's own time.
        all_leave = closes_at == MAX_MS or not self._joined.grace_ms
        looked_up = self._looked_up(state, records, stream, looked_up_to, all_leave)
        rows = self._rows(state, looked_up, changes, kept, table)
        self._store_waiting(state, looked_up, all_leave)
        return [rows]

    def effect_of_grace(self, longer_ms: int) -> str:
        if longer_ms > 0:
            return (
                f"records that wait for the table wait {show_ms(longer_ms)} longer, and so do those that come; a "
                "record whose time had come by the shorter grace is looked up when it comes"
            )
        return "records that have waited for the shorter grace are looked up before the next batch"

    def effect_of_table(self, old: Operation) -> str | None:
        # A plan may begin to keep versions, or keep them longer or shorter, but not stop: none says which came last.
        before, now = old.joined, self._joined
        if not isinstance(before, StreamTable) or now.history_ms is None:
            return None
        if before.history_ms is None:
            return "versions are kept from now on; of what came before, the last row of each key is the first version"
        if now.history_ms > before.history_ms:
            return (
                "versions are kept for longer from now on; those older than the shorter history are gone, and changes "
                "and records from before it find what they found"
            )
        return "versions older than the new history count no longer"

    def rewrite_times(self, old: Operation, state: State) -> None:
        # Records that were looked up stay so under another grace. A longer history keeps its old beginning.
        before, now = old.joined, self._joined
        assert isinstance(before, StreamTable)
        stream, table = state.input_times
        if stream != NEVER:
            state.looked_up_to += now.grace_ms - before.grace_ms
        state.first_versions = before.history_ms is None and now.history_ms is not None
        if table != NEVER and before.history_ms is not None:
            state.history_from = max(state.history_from, table - before.history_ms)

    @property
    def _joined(self) -> StreamTable:
        assert isinstance(self.layout.op.joined, StreamTable)
        return self.layout.op.joined

    def _kept(self, state: State, batch: JoinBatch, changes: Arrived, table: Progress) -> Ints:
        """The places of the table's changes that are taken; reports changes older than its history as late."""
        kept = changes.keyed.copy()
        if self._joined.history_ms is None:
            return np.flatnonzero(kept)
        times = table.at(changes.places)
        late = kept & (changes.times < self._history_from(state, times))
        self.report_late(batch, RIGHT, changes, late, times)
        return np.flatnonzero(kept & ~late)

    def _history_from(self, state: State, table: Ints) -> Ints:
        """The beginning of the history (ms) at these times of the table: never before `state.history_from`."""
        assert self._joined.history_ms is not None
        return np.maximum(earlier_ms(table, self._joined.history_ms), state.history_from)

    # -- records of the stream ---------------------------------------------------------------------------------------

    def _looked_up(
        self, state: State, records: Arrived, stream: Progress, looked_up_to: int, all_leave: bool
    ) -> _Records:
        columns, grace = side_columns(self.layout, LEFT), self._joined.grace_ms
        tables = [self.layout.of_side(LEFT).schema.empty_table().select(columns)]
        times, come = [], []
        waiting = OpenRecords.of(state, LEFT, preserved=False)
        due_now = Closing(looked_up_to, MAX_MS if all_leave else stream.after, grace)
        for start in waiting.due(due_now.up_to, grace):
            for rows in waiting.closing(start, due_now, None):
                tables.append(conformed(rows, columns))
                times.append(ints(rows["ts"]))
        stored = sum(map(len, times))
        if records.rows is not None:
            tables.append(conformed(records.rows, columns))
            times.append(records.times)
            come.append(records.places)
        at = np.concatenate([np.zeros(0, np.int64), *times])
        own = np.concatenate([np.full(stored, -1), *come])
        keyed = np.concatenate([np.ones(stored, bool), records.keyed])
        fresh = np.arange(len(at)) >= stored
        if grace:
            places, kinds, waits = _lookups(later_ms(at, grace), own, fresh, keyed, stream, looked_up_to)
        else:
            places, kinds = np.where(fresh, own, _BEFORE), np.where(fresh, _AT_ONCE, _DUE)
            waits = np.zeros(len(at), bool)
        if all_leave:
            # At the end of the input the others see every change of the table.
            places, waits = np.where(waits, MAX_MS, places), np.zeros(len(at), bool)
        whole = concat_tables(tables).combine_chunks()
        return _Records(whole, at, places, kinds, keyed, waits)

    def _store_waiting(self, state: State, records: _Records, all_leave: bool) -> None:
        grace, looked_up_to = self._joined.grace_ms, state.looked_up_to
        waiting = OpenRecords.of(state, LEFT, preserved=False)
        at = np.flatnonzero(records.waits)
        starts = waiting.stretches(records.times[at], grace)
        for start in np.unique(starts).tolist():
            mine = at[starts == start]
            rows = records.rows.take(pa.array(mine))
            hashes = grouping.key_hash(self.layout, rows)
            rows = rows.append_column("ts", pa.array(records.times[mine]))
            rows = rows.append_column("h", pa.array(hashes.view(np.int64)))
            waiting.add(start, rows)
        for start in list(waiting.index) if all_leave else waiting.due(looked_up_to, grace):
            if all_leave or later_ms(waiting.index[start].closes, grace) <= looked_up_to:
                waiting.forget(start)
            else:
                waiting.opened_from(start, waiting.first_behind(start, looked_up_to - grace))

    # -- rows --------------------------------------------------------------------------------------------------------

    def _rows(self, state: State, records: _Records, changes: Arrived, kept: Ints, table: Progress) -> pa.Table:
        """Rows of the records that are looked up. Stores the changes of the table."""
        layout = self.layout
        now = np.flatnonzero(~records.waits)
        asked = now[records.keyed[now]]
        lookups = records.rows.take(pa.array(asked))
        columns, schema = side_columns(layout, RIGHT), layout.of_side(RIGHT).schema
        tables = self._table(state)
        keyed = [lookups.select(layout.keys)]
        if changes.rows is not None:
            keyed.append(some_rows(changes.rows.select(layout.keys), kept))
        stored = table_rows.find(tables, np.concatenate([grouping.key_hash(layout, rows) for rows in keyed]))
        versions = Versions.of(columns, schema, stored, changes, kept)
        changes.release()
        codes, wanted = table_rows.key_codes(layout, versions.rows, lookups)
        found = np.full(records.rows.num_rows, -1)
        places = np.maximum(records.places[asked], STORED + 1)
        begins = self._history_from(state, table.at(places)) if self._joined.history_ms is not None else None
        found[asked] = self._versions(versions, codes, wanted, records.times[asked], places, begins)
        leaving = now if self._joined.preserves(LEFT) else now[found[now] >= 0]
        if layout.sorts:
            leaving = leaving[self._in_order(records, leaving)]
        left, right = records.rows.take(pa.array(leaving)), take_or_null(versions.rows, found[leaving])
        missing = (None, found[leaving] < 0)
        made = joined_rows(layout, left, (left, right), records.times[leaving], missing=missing)
        # Storing takes the most memory: of the versions only those to store stay in memory.
        some, more = table_rows.changed(versions, codes, last_only=begins is None)
        del keyed, stored, versions, codes, left, right
        table_rows.store(layout, tables, some, more)
        return made

    def _table(self, state: State) -> KeyedRuns:
        """The versions of the table: the last one of each key, or those within the history."""
        keeps: Keeps = last_rows_of
        if self._joined.history_ms is not None and not state.first_versions:
            begin = self._history_from(state, np.array([state.input_times[RIGHT]]))[0]
            keeps = partial(_versions_within, int(begin))
        return table_rows.runs_of(self.layout, state, RIGHT, keeps)

    def _versions(
        self, versions: Versions, codes: Ints, wanted: Ints, times: Ints, places: Ints, begins: Ints | None
    ) -> Ints:
        """The version that each lookup finds, -1 if there is no row; `begins`: where the history begins then (ms)."""
        newest = np.full(len(wanted), MAX_MS)
        if begins is None:
            found = Lookup.by(codes, versions.places, versions.places).last(wanted, newest, places)
        else:
            lookup = Lookup.by(codes, versions.times, versions.places)
            found = lookup.last(wanted, times, places)
            # Before the history only the newest version is known, and it counts if it was there already.
            old = np.flatnonzero(times < begins)
            last = lookup.last(wanted[old], newest[old], places[old])
            fits = (last >= 0) & (np.append(versions.times, 0)[last] <= times[old])
            found[old] = np.where(fits, last, -1)
        return versions.rows_at(found)

    def _in_order(self, records: _Records, leaving: Ints) -> Any:
        """Places that sort rows as they leave: by lookup, then by (timestamp, key bytes, arrival)."""
        by: dict[str, Any] = {"place": records.places[leaving], "kind": records.kinds[leaving]}
        by["time"] = np.where(records.kinds[leaving] == _DUE, records.times[leaving], 0)
        keys = records.rows.select(self.layout.keys).take(pa.array(leaving))
        by |= {name: serial(keys[name]) for name in self.layout.keys}
        by["arrival"] = leaving
        return by_columns(pa.table(by)).to_numpy()

    # -- upgrades ----------------------------------------------------------------------------------------------------

    def rewrite_from(self, old: Operator, state: State, *, bounded: bool) -> None:
        if state.first_versions:
            self._table(state).reduce()
            state.first_versions = False

    # -- inside ------------------------------------------------------------------------------------------------------

    def next_lookup(self, state: State) -> tuple[int, int] | None:
        first = OpenRecords.of(state, LEFT, preserved=False).first_open
        return None if first is None else (later_ms(first, self._joined.grace_ms), state.input_times[LEFT])

    def counts(self, state: State) -> dict[str, float]:
        lookup = self.next_lookup(state)
        return super().counts(state) | ({} if lookup is None else {"next_lookup": lookup[0], "lookup_clock": lookup[1]})

    def lookups(self, state: State) -> pa.Table | None:
        shape = shown_schema(self.layout, LEFT).empty_table().append_column(UNTIL, pa.array([], pa.int64()))
        return concat_tables([shape, *self._waiting(state)]).select([*self.layout.op.key, UNTIL])

    def own_rows(self, state: State, store: str) -> list[pa.Table]:
        side = self.own_stores.index(store)
        if side == RIGHT:
            return table_rows.shown(self.layout, self._table(state), side)
        return self._waiting(state)

    def _waiting(self, state: State) -> list[pa.Table]:
        """The waiting records, as `read_state` gives them."""
        waiting, found = OpenRecords.of(state, LEFT, preserved=False), []
        for start in waiting.index:
            rows = waiting.read(start)
            due = later_ms(ints(rows["ts"]), self._joined.grace_ms)
            status = pa.repeat("waits", rows.num_rows)
            shown = table_rows.shown_rows(self.layout, rows, LEFT, status, pa.array(due))
            found.append(shown.filter(pa.array(due > state.looked_up_to)))
        return found


class _Lookups(NamedTuple):
    """The lookups of records; the fields of `_Records`."""

    places: Ints
    kinds: Ints
    waits: Flags


def _lookups(due: Ints, own: Ints, fresh: Flags, keyed: Flags, stream: Progress, looked_up_to: int) -> _Lookups:
    """The lookup of each record, with a grace.

    due    the time of each lookup (ms)
    own    the place of each record
    fresh  whether the record comes in this batch
    """
    places, reached = stream.reaches(due)
    # A record that waits by a longer grace, but was due by the one before it, does not wait.
    over = due <= looked_up_to
    places, reached = np.where(over, _BEFORE, places), reached | over
    # A record that is due when it comes is looked up then; one that was due before it came goes behind due ones.
    at_once = fresh & ((places < own) | ~keyed)
    overdue = at_once & ((due < stream.at(own)) | ~keyed)
    kinds = np.where(overdue, _AT_ONCE, _DUE)
    return _Lookups(np.where(at_once, own, places), kinds, ~(reached | at_once))


def _versions_within(begin: int, versions: Versions, codes: Ints) -> Ints:
    """The versions that a lookup may still find: history begins at `begin`."""
    order = np.lexsort((np.arange(len(codes)), versions.places, versions.times, codes))
    ends = last_of_run(codes[order])
    recent = versions.times[order] > begin
    # The last version before the history is the row at its beginning.
    base = ~recent & (ends | np.append(recent[1:], True)[: len(order)])
    return order[recent | (base & ~versions.deleted[order])]
