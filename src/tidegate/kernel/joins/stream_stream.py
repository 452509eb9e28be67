"""The join of two streams: open records wait for partners; a record that closes without one leaves null-joined.

One micro-batch (SEMANTICS 7b): its records, in order, join the open records of the other side that came before them, in
this batch or an earlier one. Then stream time closes records; on a preserved side, those that joined nothing leave.
Records that stay open are stored (`joins.open_records`).

A self-join has one store if both copies of a record close at one time (`StreamStreamJoin._once`).

Rows leave in the order of `joins.leaving_order`, where the next operator or a test asks for an order.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from tidegate.instants import later_ms
from tidegate.kernel.columns.arrays import Flags, Ints, as_schema, concat_tables, ints, some_rows
from tidegate.kernel.columns.hash64 import HALF_BITS
from tidegate.kernel.columns.sorting import in_one_piece
from tidegate.kernel.exchange.batch import Batch
from tidegate.kernel.exchange.join_batch import JoinBatch
from tidegate.kernel.joins.arrivals import Arrived, arrived
from tidegate.kernel.joins.join_operator import JoinOperator
from tidegate.kernel.joins.joined_rows import conformed, joined_rows, side_columns
from tidegate.kernel.joins.leaving_order import (
    At,
    Part,
    clock_of,
    in_leaving_order,
    order_of_closing,
    order_of_pairs,
)
from tidegate.kernel.joins.matching import Records, in_order, pairs
from tidegate.kernel.joins.open_records import Closing, OpenRecords
from tidegate.kernel.joins.table_rows import shown_rows
from tidegate.kernel.rows import grouping
from tidegate.kernel.rows.layout import Layout
from tidegate.kernel.state.copies import distinct
from tidegate.kernel.state.log_index import LogIndex
from tidegate.kernel.state.state import State
from tidegate.kernel.state.tables import OPEN_LEFT, OPEN_RIGHT
from tidegate.spec.joined import StreamStream
from tidegate.spec.windows import LEFT, RIGHT, JoinWindows

_BEFORE_ALL = -(2**62)
"""The arrival of the first closing record: closing records are read last, but came before all others."""


@dataclass
class _Joining:
    """Records of one side that may join in a batch, and whether each has joined.

    For records of earlier batches `matched` knows of earlier pairs only if they close in this batch.
    """

    records: Records
    matched: Flags


class _Closed(NamedTuple):
    """The stream times (ms) through which records had closed before the batch, and have closed after it."""

    before: int
    after: int


@dataclass
class _Side:
    """One side of a join in a batch.

    stored     open records of earlier batches that may join
    own        records of the batch, in the order of their codes (`matching.in_order`)
    wanted     the hashes by which the stored records were found
    stretches  on a preserved side, (start, first place in `stored`, numbers of its records) for each stretch read
    """

    stored: _Joining
    own: _Joining
    wanted: Ints
    stretches: list[tuple[int, int, Ints]]


class StreamStreamJoin(JoinOperator):
    """Keeps the open records of both sides, in stretches of their timestamps."""

    tables = (OPEN_LEFT, OPEN_RIGHT)

    def process(self, state: State, batch: Batch, closes_at: int) -> Iterator[pa.Table]:
        assert isinstance(batch, JoinBatch)
        open_records = self._open_records(state, LEFT), self._open_records(state, RIGHT)
        staying = _Staying(), _Staying()
        parts = self._parts(batch, open_records, staying, _Closed(batch.closed_through, closes_at))
        yield self.layout.result_schema.empty_table()
        if self._orders:
            collected = list(parts)
            if collected:
                yield in_leaving_order(collected)
            del collected
        else:
            yield from (rows for rows, _ in parts if rows.num_rows)
        for side in self._stored_sides:
            _store(open_records[side], staying[side], self._joined.windows, side, closes_at)
        if self._once:
            _forget_all(OpenRecords.of(state, RIGHT, preserved=False))  # earlier versions kept every record twice

    def next_close(self, state: State) -> int | None:
        windows, joined = self._joined.windows, self._joined
        first = {side: self._open_records(state, side).first_open for side in (LEFT, RIGHT) if joined.preserves(side)}
        return min((windows.close_ms(side, at) for side, at in first.items() if at is not None), default=None)

    def own_rows(self, state: State, store: str) -> list[pa.Table]:
        side, joined = self.own_stores.index(store), self._joined
        open_records, all_joined = self._open_records(state, side), self._once and joined.preserves(side)
        found = []
        for start in open_records.index:
            rows = open_records.read(start)
            closes = _close_ms(joined.windows, side, ints(rows["ts"]))
            matched = (
                open_records.joined(start, ints(rows["n"]))
                if open_records.preserved
                else np.full(rows.num_rows, all_joined)
            )
            status = pa.array(np.where(matched, "joined", "open"))
            shown = shown_rows(self.layout, rows, side, status, pa.array(closes - 1))
            found.append(shown.filter(pa.array(closes > state.closed_through)))
        return found

    def logs(self, state: State) -> tuple[LogIndex, LogIndex]:
        return (state.logs, state.logs) if self._once else super().logs(state)

    @property
    def _joined(self) -> StreamStream:
        assert isinstance(self.layout.op.joined, StreamStream)
        return self.layout.op.joined

    @property
    def _orders(self) -> bool:
        """Whether rows leave in order: all of them, or those of each key, in which the next operator takes them."""
        return self.layout.sorts or self.layout.op.regroup is not None

    @property
    def _once(self) -> bool:
        """Whether a self-join stores its open records once, for both sides.

        It does if both copies of a record close at one time. A record that is still open when it comes has then joined
        itself, so that stored records never leave null-joined.
        """
        windows = self._joined.windows
        return self._joined.self_join and windows.before_ms == windows.after_ms

    @property
    def _stored_sides(self) -> tuple[int, ...]:
        """The sides that store open records."""
        return (LEFT,) if self._once else (LEFT, RIGHT)

    def _open_records(self, state: State, side: int) -> OpenRecords:
        """The open records of a side; if they are stored once, those of the left side for both."""
        if self._once:
            return OpenRecords.of(state, LEFT, preserved=False)
        return OpenRecords.of(state, side, self._joined.preserves(side))

    def _parts(
        self, batch: JoinBatch, open_records: tuple[OpenRecords, ...], staying: tuple[_Staying, ...], closed: _Closed
    ) -> Iterator[Part]:
        """The rows of the batch; then `staying` has the records that stay open."""
        clock, preserved = None, [side for side in (LEFT, RIGHT) if self._joined.preserves(side)]
        for _ in batch.by_hash():
            arrivals = arrived(self.layout, batch)
            for side, late in enumerate(_late(self._joined, arrivals)):
                self.report_late(batch, side, arrivals[side], late)
            if self._orders:
                clock = clock_of(arrivals, doubled=self._joined.self_join)
            sides = self._sides(open_records, arrivals, closed)
            yield from self._pairs(sides)
            yield from (
                self._null_joined(one, side, clock, closed)
                for side in preserved
                for one in (sides[side].stored, sides[side].own)
            )
            for side in self._stored_sides:
                staying[side].add(sides[side], closed.after)
            del arrivals, sides  # before the next records are decoded
        if self._orders and not self.layout.sorts:
            # Other rows of the same keys come at most from closing records of the same side, and behind these rows.
            clock = np.zeros(0, np.int64), 1
        for side in preserved if not self._once else ():
            for one in self._closing(open_records[side], staying[side], side, closed):
                yield self._null_joined(one, side, clock, closed)

    def _sides(
        self,
        open_records: tuple[OpenRecords, ...],
        arrivals: tuple[Arrived, Arrived],
        closed: _Closed,
    ) -> tuple[_Side, _Side]:
        """The records of both sides that may join; `arrivals` free their rows."""
        first = self._own(arrivals, LEFT)
        own = first, self._again(first, arrivals) if self._joined.self_join else self._own(arrivals, RIGHT)
        left = self._side(open_records[LEFT], own, LEFT, closed)
        if self._once:
            return left, _Side(_copied(left.stored), own[RIGHT], left.wanted, [])
        return left, self._side(open_records[RIGHT], own, RIGHT, closed)

    def _pairs(self, sides: tuple[_Side, _Side]) -> Iterator[Part]:
        """Rows of pairs; `matched` of a preserved side is complete when all parts are taken."""
        windows, (left, right), preserves = self._joined.windows, sides, self._joined.preserves
        meeting = ((LEFT, left.own, right.own), (LEFT, left.stored, right.own), (RIGHT, right.stored, left.own))
        for side, mine, other in meeting:
            reach, most = (windows.back_ms(side), windows.ahead_ms(side)), self.layout.tuning.pairs
            for rows, partners in pairs(mine.records, other.records, *reach, most):
                if preserves(side):
                    mine.matched[rows] = True
                if preserves(1 - side):
                    other.matched[partners] = True
                both = (mine.records, rows), (other.records, partners)
                order = order_of_pairs(*both) if self._orders else None
                yield _joined_rows(self.layout, *(both if side == LEFT else reversed(both))), order

    def _null_joined(self, one: _Joining, side: int, clock: tuple[Ints, int] | None, closed: _Closed) -> Part:
        """Rows of records that close without a partner: their own values and timestamp, nulls of the other side."""
        records, at, order = one.records, _unmatched(one, closed), None
        if clock is not None:
            order = order_of_closing(self.layout, records, side, at, clock)
        mine = records.rows.take(pa.array(at))
        both = (mine, None) if side == LEFT else (None, mine)
        return joined_rows(self.layout, mine, both, records.times[at]), order

    def _closing(self, stored: OpenRecords, staying: _Staying, side: int, closed: _Closed) -> Iterator[_Joining]:
        """Records of earlier batches that close in this one and could not join in it, some at a time."""
        windows = self._joined.windows
        leaves = Closing(closed.before, closed.after, windows.close_ms(side, 0))
        first = _BEFORE_ALL
        # The first open record of a stretch is older than any that stays open.
        for start in stored.due(closed.after, leaves.reach_ms):
            found_by = staying.found_by.get(start)
            for rows in stored.closing(start, leaves, None if found_by is None else np.concatenate(found_by)):
                matched = stored.joined(start, ints(rows["n"]))
                yield self._stored(side, rows, ints(rows["h"]), ints(rows["ts"]), matched, first)
                first += rows.num_rows

    def _stored(self, side: int, rows: pa.Table, hashes: Ints, times: Ints, matched: Flags, first: int) -> _Joining:
        """Records of earlier batches, with arrivals from `first` on."""
        layout, count = self.layout, len(times)
        records = Records(
            rows=as_schema(conformed(rows, side_columns(layout, side)), layout.of_side(side).schema),
            keys=layout.keys,
            hashes=hashes,
            times=times,
            arrived=first + np.arange(count),
            closing_times=np.broadcast_to(-1, count),
            keyed=np.broadcast_to(True, count),
            reach_ms=self._joined.windows.close_ms(side, 0),
        )
        return _Joining(records, matched)

    def _own(self, arrivals: tuple[Arrived, Arrived], side: int) -> _Joining:
        """The records of the batch on a side; `arrivals` free them."""
        layout, mine = self.layout, arrivals[side]
        schema = layout.of_side(side).schema
        rows = schema.empty_table() if mine.rows is None else mine.rows
        hashes = grouping.key_hash(layout, rows).view(np.int64)
        parts = [conformed(rows, side_columns(layout, side))]
        mine.release()
        del rows
        order = in_order(hashes, mine.times)
        records = Records(
            rows=in_one_piece(parts, order),
            keys=layout.keys,
            hashes=hashes.take(order),
            times=mine.times.take(order),
            arrived=mine.places.take(order),
            closing_times=mine.closing_times.take(order),
            keyed=mine.keyed.take(order),
            reach_ms=self._joined.windows.close_ms(side, 0),
        )
        return _Joining(records, np.zeros(len(order), bool))

    def _again(self, left: _Joining, arrivals: tuple[Arrived, Arrived]) -> _Joining:
        """The records of a self-join as right records: each comes right behind itself as a left record."""
        arrivals[RIGHT].release()
        reach_ms = self._joined.windows.close_ms(RIGHT, 0)
        records = replace(left.records, arrived=left.records.arrived + 1, reach_ms=reach_ms)
        return replace(_copied(left), records=records)

    def _side(
        self,
        open_records: OpenRecords,
        own: tuple[_Joining, _Joining],
        side: int,
        closed: _Closed,
    ) -> _Side:
        """The records of a side that may join in this batch: stored records and its own."""
        windows, others = self._joined.windows, own[1 - side].records
        wanted = _distinct(others.hashes)
        columns = side_columns(self.layout, side)
        tables, hashes, times, flags, stretches = [], [], [], [], []
        end = 0
        for start in self._meeting(open_records, side, others.times):
            found = list(open_records.find(start, wanted))
            tables += [conformed(rows, columns) for rows in found]
            hashes += [ints(rows["h"]) for rows in found]
            at = np.concatenate([ints(rows["ts"]) for rows in found])
            times.append(at)
            matched = np.full(len(at), self._once)
            if open_records.preserved:
                numbers = np.concatenate([ints(rows["n"]) for rows in found])
                closes = _close_ms(windows, side, at)
                leaving = (closes > closed.before) & (closes <= closed.after)
                if leaving.any():
                    matched[leaving] = open_records.joined(start, numbers[leaving])
                stretches.append((start, end, numbers))
            flags.append(matched)
            end += len(at)
        rows = in_one_piece(tables) if tables else self.layout.of_side(side).schema.empty_table()
        nothing = np.zeros(0, np.int64)
        stored = self._stored(
            side,
            rows,
            np.concatenate([nothing, *hashes]),
            np.concatenate([nothing, *times]),
            np.concatenate([nothing.astype(bool), *flags]),
            -end,
        )
        return _Side(stored, own[side], wanted, stretches)

    def _meeting(self, stored: OpenRecords, side: int, others: Ints) -> list[int]:
        """The stretches of a side that records at the times of `others` may meet."""
        windows = self._joined.windows
        if not len(others):
            return []
        first = int(others.min()) - windows.back_ms(1 - side)
        last = later_ms(int(others.max()), windows.ahead_ms(1 - side))
        return sorted(stored.between(first, last))


def _copied(one: _Joining) -> _Joining:
    """The same records, with `matched` flags of their own."""
    return replace(one, matched=one.matched.copy())


def _forget_all(stored: OpenRecords) -> None:
    for start in list(stored.index):
        stored.forget(start)


def _late(joined: StreamStream, arrivals: tuple[Arrived, Arrived]) -> tuple[Flags, Flags]:
    """Flags of the records that nothing can join any more; in a self-join neither as left nor as right record."""
    late = []
    for side, one in enumerate(arrivals):
        # Late iff t < S - reach: stream times differ by record, so the reach is added to t instead.
        reach = -joined.windows.late_before_ms(side, 0)
        late.append((later_ms(one.times, reach) < one.closing_times) & one.keyed)
    if joined.self_join:
        late = [late[LEFT] & late[RIGHT], np.zeros(len(arrivals[RIGHT]), bool)]
    return late[LEFT], late[RIGHT]


def _distinct(hashes: Ints) -> Ints:
    """The distinct upper halves of hashes whose upper halves ascend: records are found by them."""
    return distinct(hashes >> HALF_BITS << HALF_BITS)


def _close_ms(windows: JoinWindows, side: int, times: Ints) -> Ints:
    closes: Ints = later_ms(times, windows.close_ms(side, 0))
    return closes


def _unmatched(one: _Joining, closed: _Closed) -> Ints:
    """The places of records that have joined nothing and close in this batch, or were closed when they came."""
    records = one.records
    closes = records.closes()
    leaving = closes <= closed.after
    leaving &= (records.arrived >= 0) | (closes > closed.before)  # records that closed in earlier batches have left
    return np.flatnonzero(leaving & ~one.matched)


@dataclass
class _Staying:
    """The records of a side that stay open after the batch, from all ranges of hashes so far.

    rows      open records of the batch, as they are stored, by range
    matched   which of them have joined
    marks     by stretch, the numbers of stored records that joined in the batch
    found_by  by stretch of a preserved side, the hashes by which its stored records were found; all ascend
    """

    rows: list[pa.Table] = field(default_factory=list)
    matched: list[Flags] = field(default_factory=list)
    marks: dict[int, list[Ints]] = field(default_factory=dict)
    found_by: dict[int, list[Ints]] = field(default_factory=dict)

    def add(self, side: _Side, closes_at: int) -> None:
        """Add the records of a range of hashes whose rows have left."""
        joined = side.stored.matched & (side.stored.records.closes() > closes_at)
        for start, first, numbers in side.stretches:
            self.marks.setdefault(start, []).append(numbers[joined[first : first + len(numbers)]])
            self.found_by.setdefault(start, []).append(side.wanted)
        own = side.own.records
        at = np.flatnonzero(own.closes() > closes_at)
        rows = own.rows.append_column("ts", pa.array(own.times)).append_column("h", pa.array(own.hashes))
        self.rows.append(some_rows(rows, at))
        self.matched.append(side.own.matched[at])

    def release(self) -> tuple[pa.Table, Flags]:
        """The open records of the batch, and which of them have joined; frees them."""
        rows, matched = concat_tables(self.rows), np.concatenate(self.matched)
        self.rows.clear()
        return rows, matched


def _store(stored: OpenRecords, staying: _Staying, windows: JoinWindows, side: int, closes_at: int) -> None:
    """Store open records; drop closed stretches."""
    rows, matched = staying.release()
    marks, times = staying.marks, ints(rows["ts"])
    starts = stored.stretches(times, windows.before_ms + windows.after_ms + windows.grace_ms)
    for start in np.unique(starts).tolist():
        mine = np.flatnonzero(starts == start)
        first = stored.add(start, some_rows(rows, mine))
        marks.setdefault(start, []).append(first + np.flatnonzero(matched[mine]))
    for start, parts in marks.items() if stored.preserved else ():
        if any(map(len, parts)):
            stored.mark(start, np.concatenate(parts))
    reach_ms = windows.close_ms(side, 0)
    for start in stored.due(closes_at, reach_ms):
        if windows.close_ms(side, stored.index[start].closes) <= closes_at:
            stored.forget(start)
        else:
            stored.opened_from(start, closes_at - reach_ms + 1)


def _joined_rows(layout: Layout, left: At, right: At) -> pa.Table:
    """Rows of pairs: the key, the values of both, and the later timestamp."""
    mine, theirs = (_values(layout, records, at) for records, at in (left, right))
    keys = left[0].rows.select(layout.keys).take(pa.array(left[1]))
    times = np.maximum(*(records.times[at] for records, at in (left, right)))
    return joined_rows(layout, keys, (mine, theirs), times)


def _values(layout: Layout, records: Records, at: Ints) -> pa.Table:
    """All columns of the records at these places but those of the key."""
    names = [name for name in records.rows.schema.names if name not in layout.keys]
    return pa.table({name: records.rows[name].take(pa.array(at)) for name in names})
