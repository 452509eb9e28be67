"""The join of two streams: records that are open wait for partners, and what closes without one leaves null-joined.

One micro-batch (SEMANTICS 7b): its records in order meet the open records of the other side that came before them, in
this batch or an earlier one. Then everything closes that stream time has passed; of a preserved side, records that
joined nothing leave. What is still open is kept (`joins.open_records`).

A stream with itself has one store where both copies of a record close at one time (`StreamStreamJoin._once`).

A row has a place in the order of the rows: that of the record at which it leaves, then what closes, pairs, and the
record's own null-joined row.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tidegate.instants import later_ms
from tidegate.kernel.columns.arrays import Ints, array, concat_tables, ints
from tidegate.kernel.exchange.batch import Batch, JoinBatch
from tidegate.kernel.joins.arrivals import Arrived
from tidegate.kernel.joins.join_operator import JoinOperator
from tidegate.kernel.joins.joined_rows import conformed, joined_rows, side_columns
from tidegate.kernel.joins.matching import Bools, Codes, Records, pairs
from tidegate.kernel.joins.open_records import Closing, OpenRecords
from tidegate.kernel.joins.table_rows import shown_rows
from tidegate.kernel.rows import grouping
from tidegate.kernel.rows.layout import Layout
from tidegate.kernel.rows.results import serial
from tidegate.kernel.state.copies import distinct
from tidegate.kernel.state.log_index import LogIndex
from tidegate.kernel.state.state import State
from tidegate.kernel.state.tables import OPEN_LEFT, OPEN_RIGHT
from tidegate.spec.joined import StreamStream
from tidegate.spec.windows import LEFT, RIGHT, JoinWindows

_CLOSES, _PAIR, _OWN = 0, 1, 2
"""What leaves at a record, in this order: what closes, its pairs, its own null-joined row."""

_BEFORE_ALL = -(2**62)
"""The arrival of what is read last, though it was there first."""

_Part = tuple[pa.Table, pa.Table | None]
"""Rows that leave, and a table by which they are sorted where they leave in order."""


@dataclass
class _Side:
    """One side of a join in a batch: open records that it may join, then those of the batch in order.

    rows     key and value columns
    matched  whether a record has joined; of those of earlier batches it is known where they close in this one
    wanted   the hashes by which those of earlier batches were found
    stored   of a preserved side, for each stretch that was read the first of its rows and the numbers of its records
    """

    records: Records
    rows: pa.Table
    matched: Bools
    wanted: Ints
    stored: list[tuple[int, int, Ints]]

    @property
    def new(self) -> Bools:
        """Which records are of this batch."""
        return self.records.arrived >= 0


class StreamStreamJoin(JoinOperator):
    """Keeps the open records of both sides, in stretches of their timestamps."""

    tables = (OPEN_LEFT, OPEN_RIGHT)

    def process(self, state: State, batch: Batch, closes_at: int) -> tuple[Iterable[pa.Table], int]:
        assert isinstance(batch, JoinBatch)
        came, _ = self.came(state, batch)
        dropped = (self.dropped(batch, side, came[side], late) for side, late in enumerate(_late(self._joined, came)))
        return self._rows(state, came, batch.closed_to, closes_at), sum(dropped)

    def next_close(self, state: State) -> int | None:
        windows, joined = self._joined.windows, self._joined
        first = {side: self._kept(state, side).first_open for side in (LEFT, RIGHT) if joined.preserves(side)}
        return min((windows.close_ms(side, at) for side, at in first.items() if at is not None), default=None)

    def own_rows(self, state: State, store: str) -> list[pa.Table]:
        side, joined = self.own_stores.index(store), self._joined
        held, all_joined = self._kept(state, side), self._once and joined.preserves(side)
        found = []
        for start in held.index:
            rows = held.read(start)
            closes = _close_ms(joined.windows, side, ints(rows["ts"]))
            matched = held.joined(start, ints(rows["n"])) if held.preserved else np.full(rows.num_rows, all_joined)
            status = pa.array(np.where(matched, "joined", "open"))
            shown = shown_rows(self.layout, rows, side, status, pa.array(closes - 1))
            found.append(shown.filter(pa.array(closes > state.closed_to)))
        return found

    def logs(self, state: State) -> tuple[LogIndex, LogIndex]:
        return (state.logs, state.logs) if self._once else super().logs(state)

    @property
    def _joined(self) -> StreamStream:
        assert isinstance(self.layout.op.joined, StreamStream)
        return self.layout.op.joined

    @property
    def _once(self) -> bool:
        """Whether the open records of a stream that is joined with itself are kept once, for both sides.

        They are where both copies of a record close at one time. A record that is still open when it comes has then
        joined itself, so that what is kept never leaves null-joined.
        """
        windows = self._joined.windows
        return self._joined.self_join and windows.before_ms == windows.after_ms

    def _kept(self, state: State, side: int) -> OpenRecords:
        """The open records of a side; of both sides the left ones where they are kept once."""
        if self._once:
            return OpenRecords.of(state, LEFT, preserved=False)
        return OpenRecords.of(state, side, self._joined.preserves(side))

    def _rows(
        self, state: State, arrived: tuple[Arrived, Arrived], closed_to: int, closes_at: int
    ) -> Iterator[pa.Table]:
        layout, windows = self.layout, self._joined.windows
        kept = tuple(self._kept(state, side) for side in (LEFT, RIGHT))
        hashes = tuple(_hashes(layout, one) for one in arrived)
        left = self._side(kept, arrived, hashes, LEFT, closed_to, closes_at)
        if self._once:
            right = _copied(left, arrived[RIGHT])
        else:
            right = self._side(kept, arrived, hashes, RIGHT, closed_to, closes_at)
        sides = (left, right)
        del left, right
        parts = chain(self._pairs(sides), self._null_joined(kept, sides, arrived, closed_to, closes_at))
        yield layout.result_schema.empty_table()
        if layout.sorts:
            collected = list(parts)
            if collected:
                yield _in_order(collected)
        else:
            yield from (rows for rows, _ in parts if rows.num_rows)
        # Storing takes the most memory: of what a side had, nothing stays that is not needed any more.
        held = list(sides)
        del parts, sides, arrived, hashes
        for side in (LEFT,) if self._once else (LEFT, RIGHT):
            _store(kept[side], held.pop(0), windows, side, closes_at)
        if self._once:
            _forget_all(OpenRecords.of(state, RIGHT, preserved=False))  # earlier versions kept every record twice

    def _pairs(self, sides: tuple[_Side, ...]) -> Iterator[_Part]:
        """Rows of pairs; which records have joined is known when all parts are taken."""
        windows = self._joined.windows
        for side in (LEFT, RIGHT):
            mine, other = sides[side], sides[1 - side]
            reach, most = (windows.back_ms(side), windows.ahead_ms(side)), self.layout.tuning.pairs
            for rows, partners in pairs(mine.records, other.records, *reach, most):
                mine.matched[rows] = True
                other.matched[partners] = True
                left, right = (rows, partners) if side == LEFT else (partners, rows)
                order = _order_of_pairs(mine.records, other.records, rows, partners) if self.layout.sorts else None
                yield _joined_rows(self.layout, sides, left, right), order

    def _null_joined(
        self,
        kept: tuple[OpenRecords, ...],
        sides: tuple[_Side, ...],
        arrived: tuple[Arrived, Arrived],
        closed_to: int,
        closes_at: int,
    ) -> Iterator[_Part]:
        """Rows of records that close without a partner."""
        sorts, first = self.layout.sorts, _BEFORE_ALL
        arrivals = _arrivals(arrived, doubled=self._joined.self_join) if sorts else None
        for side in (LEFT, RIGHT):
            if not self._joined.preserves(side):
                continue
            closing = () if self._once else self._closing(kept[side], sides[side], side, closed_to, closes_at)
            for one in chain(closing, [sides[side]]):
                rows, order = _closing(one, closed_to, closes_at), None
                if arrivals is not None:
                    at = rows if one is sides[side] else first + rows
                    order = _order_of_closing(self.layout, one, side, rows, at, arrivals)
                    first += len(one.matched)
                yield _null_joined(self.layout, one, side, rows), order

    def _closing(self, held: OpenRecords, mine: _Side, side: int, closed_to: int, closes_at: int) -> Iterator[_Side]:
        """Records of earlier batches that close in this one and could not join in it, some at a time."""
        windows = self._joined.windows
        leaves, met = Closing(closed_to, closes_at, windows.close_ms(side, 0)), {start for start, _, _ in mine.stored}
        # The first open record of a stretch is older than any that stays open.
        closing = [start for start, log in held.index.items() if windows.close_ms(side, log.due) <= closes_at]
        for start in closing:
            for rows in held.closing(start, leaves, mine.wanted if start in met else None):
                yield self._stored(side, rows, held.joined(start, ints(rows["n"])))

    def _stored(self, side: int, rows: pa.Table, matched: Bools) -> _Side:
        """Records of earlier batches alone."""
        count, rows_of_side = rows.num_rows, conformed(rows, side_columns(self.layout, side))
        records = Records(
            rows_of_side.select(self.layout.keys),
            ints(rows["h"]).view(np.uint64),
            ints(rows["ts"]),
            np.full(count, -1),
            np.full(count, -1),
            np.ones(count, bool),
            self._joined.windows.close_ms(side, 0),
        )
        return _Side(records, rows_of_side, matched, np.zeros(0, np.int64), [])

    def _side(
        self,
        kept: tuple[OpenRecords, ...],
        arrived: tuple[Arrived, Arrived],
        hashes: tuple[Codes, ...],
        side: int,
        closed_to: int,
        closes_at: int,
    ) -> _Side:
        """The records of a side that may join in this batch: those that are stored, and its own."""
        windows, held, mine = self._joined.windows, kept[side], arrived[side]
        wanted = _distinct(hashes[1 - side])
        columns = side_columns(self.layout, side)
        tables, codes, times, flags, stored = [], [], [], [], []
        end = 0
        for start in self._meeting(held, side, arrived[1 - side].times):
            found = list(held.find(start, wanted))
            tables += [conformed(rows, columns) for rows in found]
            codes += [ints(rows["h"]).view(np.uint64) for rows in found]
            at = np.concatenate([ints(rows["ts"]) for rows in found])
            times.append(at)
            matched = np.full(len(at), self._once)
            if held.preserved:
                numbers = np.concatenate([ints(rows["n"]) for rows in found])
                closes = _close_ms(windows, side, at)
                leaving = (closes > closed_to) & (closes <= closes_at)
                if leaving.any():
                    matched[leaving] = held.joined(start, numbers[leaving])
                stored.append((start, end, numbers))
            flags.append(matched)
            end += len(at)
        if mine.rows is not None:
            tables.append(conformed(mine.rows, columns))
            codes.append(hashes[side])
            times.append(mine.times)
            flags.append(np.zeros(len(mine), bool))
            mine.release()
        joined = _in_one_piece(tables) if tables else self.layout.of_side(side).schema.empty_table()
        records = Records(
            joined.select(self.layout.keys),
            np.concatenate([np.zeros(0, np.uint64), *codes]),
            np.concatenate([np.zeros(0, np.int64), *times]),
            np.concatenate([np.full(end, -1, np.int64), mine.places]),
            np.concatenate([np.full(end, -1, np.int64), mine.seen]),
            np.concatenate([np.ones(end, bool), mine.keyed]),
            windows.close_ms(side, 0),
        )
        return _Side(records, joined, np.concatenate([np.zeros(0, bool), *flags]), wanted, stored)

    def _meeting(self, held: OpenRecords, side: int, others: Ints) -> list[int]:
        """The stretches of a side that records at the times of `others` may meet."""
        windows = self._joined.windows
        if not len(others):
            return []
        first = int(others.min()) - windows.back_ms(1 - side)
        last = later_ms(int(others.max()), windows.ahead_ms(1 - side))
        return sorted(held.between(first, last))


def _copied(left: _Side, came: Arrived) -> _Side:
    """The records of a stream once more, as those of the right side: behind the same ones as left."""
    new = len(left.matched) - len(came)
    arrived = np.concatenate([left.records.arrived[:new], came.places])
    return replace(left, records=replace(left.records, arrived=arrived), matched=left.matched.copy())


def _forget_all(held: OpenRecords) -> None:
    for start in list(held.index):
        held.forget(start)


def _in_one_piece(tables: list[pa.Table]) -> pa.Table:
    """The rows of all tables, which are let go of."""
    rows = concat_tables(tables)
    tables.clear()
    columns = {}
    for name in rows.schema.names:
        columns[name] = array(rows[name])
        rows = rows.drop_columns([name])
    return pa.table(columns)


def _late(joined: StreamStream, came: tuple[Arrived, Arrived]) -> tuple[Bools, Bools]:
    """Which records nothing can join any more; of a stream with itself neither as left nor as right."""
    found = []
    for side, one in enumerate(came):
        # Late iff t < S - reach: stream times differ by record, so the reach is added to t instead.
        reach = -joined.windows.late_before_ms(side, 0)
        found.append((later_ms(one.times, reach) < one.seen) & one.keyed)
    if joined.self_join:
        found = [found[LEFT] & found[RIGHT], np.zeros(len(came[RIGHT]), bool)]
    return found[LEFT], found[RIGHT]


def _distinct(hashes: Codes) -> Ints:
    """The hashes sorted as they are stored, each once."""
    return distinct(np.sort(hashes.view(np.int64)))


def _hashes(layout: Layout, one: Arrived) -> Codes:
    """The hash of the key of each record of the batch."""
    return np.zeros(0, np.uint64) if one.rows is None else grouping.key_hash(layout, one.rows)


def _arrivals(arrived: tuple[Arrived, Arrived], doubled: bool) -> tuple[Ints, int]:
    """The stream time that each record of the batch sees, in their order, and how many places a record has."""
    if doubled:
        return arrived[LEFT].seen, 2
    places = np.concatenate([one.places for one in arrived])
    seen = np.concatenate([one.seen for one in arrived])
    return seen[np.argsort(places)], 1


def _close_ms(windows: JoinWindows, side: int, times: Ints) -> Ints:
    closes: Ints = later_ms(times, windows.close_ms(side, 0))
    return closes


def _closing(side: _Side, closed_to: int, closes_at: int) -> Ints:
    """Rows of records that have joined nothing and close in this batch, or were closed when they came."""
    records = side.records
    closes = records.closes()
    closed = closes <= closes_at
    closed &= side.new | (closes > closed_to)  # what closed in earlier batches has left
    return np.flatnonzero(closed & ~side.matched)


def _store(held: OpenRecords, side: _Side, windows: JoinWindows, side_number: int, closes_at: int) -> None:
    """Keep what is open; drop stretches that are closed."""
    records, open_ = side.records, side.records.closes() > closes_at
    marks: dict[int, list[Ints]] = {}
    for start, first, numbers in side.stored:
        mine = slice(first, first + len(numbers))
        marks[start] = [numbers[side.matched[mine] & open_[mine]]]
    at = np.flatnonzero(side.new & open_)
    starts = held.stretches(records.times[at], windows.before_ms + windows.after_ms + windows.grace_ms)
    for start in np.unique(starts).tolist():
        mine = at[starts == start]
        first = held.add(start, _as_stored(side, mine))
        marks.setdefault(start, []).append(first + np.flatnonzero(side.matched[mine]))
    for start, parts in marks.items() if held.preserved else ():
        if any(map(len, parts)):
            held.mark(start, np.concatenate(parts))
    open_from = closes_at - windows.close_ms(side_number, 0) + 1
    for start, log in held.index.items():
        if windows.close_ms(side_number, log.closes) <= closes_at:
            held.forget(start)
        elif log.due < open_from:
            held.opened_from(start, open_from)


def _as_stored(side: _Side, at: Ints) -> pa.Table:
    """The records at these places, with their times and hashes."""
    rows = side.rows.take(pa.array(at)).append_column("ts", pa.array(side.records.times[at]))
    return rows.append_column("h", pa.array(side.records.hashes[at].view(np.int64)))


# -- rows ------------------------------------------------------------------------------------------------------------


def _joined_rows(layout: Layout, sides: tuple[_Side, ...], left: Ints, right: Ints) -> pa.Table:
    """Rows of pairs: the key, the values of both, and the later timestamp."""
    taken = [sides[side].rows.take(pa.array(rows)) for side, rows in ((LEFT, left), (RIGHT, right))]
    times = np.maximum(sides[LEFT].records.times[left], sides[RIGHT].records.times[right])
    return joined_rows(layout, taken[LEFT], (taken[LEFT], taken[RIGHT]), times)


def _null_joined(layout: Layout, one: _Side, side: int, rows: Ints) -> pa.Table:
    """Rows of records without a partner: the key, their own values, nulls of the other side, their own timestamp."""
    mine = one.rows.take(pa.array(rows))
    both = (mine, None) if side == LEFT else (None, mine)
    return joined_rows(layout, mine, both, one.records.times[rows])


# -- the order in which rows leave -----------------------------------------------------------------------------------


def _order_of_pairs(one: Records, other: Records, rows: Ints, partners: Ints) -> pa.Table:
    """Where pairs leave: those of a record by (timestamp, arrival) of the partner."""
    return pa.table(
        {
            "place": one.arrived[rows],
            "what": np.full(len(rows), _PAIR),
            "time": other.times[partners],
            "arrival": partners,
        }
    )


def _order_of_closing(
    layout: Layout, side: _Side, number: int, rows: Ints, came: Ints, arrivals: tuple[Ints, int]
) -> pa.Table:
    """Where null-joined rows leave: what closes by (timestamp, right before left, key bytes, arrival: `came`)."""
    records, (seen, places) = side.records, arrivals
    at_once = side.new[rows] & (records.seen[rows] >= records.closes(rows))
    place = np.searchsorted(seen, records.closes(rows), side="left") * places
    place = np.where(at_once, records.arrived[rows], place)
    columns: dict[str, Any] = {
        "place": place,
        "what": np.where(at_once, _OWN, _CLOSES),
        "time": records.times[rows],
        "side": np.full(len(rows), 1 - number),
    }
    keys = side.rows.select(layout.keys).take(pa.array(rows))
    columns |= {name: serial(keys[name]) for name in layout.keys}
    columns["arrival"] = came
    return pa.table(columns)


def _in_order(parts: list[_Part]) -> pa.Table:
    """Rows as they leave."""
    rows = concat_tables([rows for rows, _ in parts])
    by = pa.concat_tables([order for _, order in parts if order is not None], promote_options="default")
    keys = [name for name in by.schema.names if name.startswith("k:")]
    names = [name for name in ("place", "what", "time", "side", *keys, "arrival") if name in by.schema.names]
    return rows.take(pc.sort_indices(by, sort_keys=[(name, "ascending") for name in names]))
