"""The records of a batch on both sides of a join, in one order, and the time progress of each side.

The order is (arrival time, the side that comes first, partition, offset); a side without partition and offset is in its
own order (`exchange.batch`). The arrival time of a record is the stream time over both inputs when the record came: a
grace that has grown keeps records closed, but does not change their order.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from tidegate.instants import MAX_MS
from tidegate.kernel.columns.arrays import Flags, Ints, ints
from tidegate.kernel.exchange.batch import Batch
from tidegate.kernel.exchange.join_batch import JoinBatch
from tidegate.kernel.rows import grouping
from tidegate.kernel.rows.layout import Layout
from tidegate.spec.windows import LEFT, RIGHT

_SAY_ORDER = ("closing_time", "arrival_time", "chunk", "offset")


@dataclass
class Arrived:
    """The records of a batch on one side, in order.

    rows           the packed columns; None if no record came
    times          timestamps (ms)
    closing_times  the stream time that decides which records are closed for each record (ms)
    places         the place of each record in the order of both sides
    keyed          whether a record has a key; a record without one joins nothing
    """

    rows: pa.Table | None
    times: Ints
    closing_times: Ints
    places: Ints
    keyed: Flags

    def __len__(self) -> int:
        return len(self.times)

    def release(self) -> None:
        """Free the rows; the caller has taken them over."""
        self.rows = None


@dataclass(frozen=True)
class Progress:
    """The growth of one side's largest timestamp within a batch: to `times` (ms) at `places`, both ascending."""

    before: int
    places: Ints
    times: Ints

    def at(self, places: Ints) -> Ints:
        """The largest timestamp up to and including each place."""
        found: Ints = np.append(self.before, self.times)[np.searchsorted(self.places, places, side="right")]
        return found

    def reaches(self, times: Ints) -> tuple[Ints, Flags]:
        """The place at which each of these times is reached, -1 if before the batch; and whether it is reached."""
        at = np.searchsorted(self.times, times, side="left")
        reached = (at < len(self.times)) | (times <= self.before)
        places = np.append(self.places, MAX_MS)[at]
        return np.where(times <= self.before, -1, places), reached

    @property
    def after(self) -> int:
        """The largest timestamp behind the batch."""
        return int(self.times[-1]) if len(self.times) else self.before


def arrived(layout: Layout, batch: JoinBatch, first: int = LEFT) -> tuple[Arrived, Arrived]:
    """The records of both sides in order; of records that see one stream time those of the side `first` come first."""
    assert layout.op.joined is not None
    if layout.op.joined.self_join:
        only = _in_order(batch.side(LEFT))
        left = _arrived(layout, only, 2 * np.arange(len(only.closing_times)))
        return left, Arrived(left.rows, left.times, left.closing_times, left.places + 1, left.keyed)
    found = [_in_order(batch.side(side)) for side in (LEFT, RIGHT)]
    # Both sides are sorted by arrival time: a record is behind earlier ones of its side, and others that arrived first.
    of_left, of_right = (one.arrival_times for one in found)
    places = [
        np.arange(len(mine)) + np.searchsorted(others, mine, "left" if side == first else "right")
        for side, mine, others in ((LEFT, of_left, of_right), (RIGHT, of_right, of_left))
    ]
    return _arrived(layout, found[LEFT], places[LEFT]), _arrived(layout, found[RIGHT], places[RIGHT])


def with_progress(
    layout: Layout, batch: JoinBatch, first: int, before: tuple[int, int]
) -> tuple[tuple[Arrived, Arrived], tuple[Progress, Progress]]:
    """`arrived`, and the time progress of each side over all tasks; `before`: the time of each side before the batch.

    For a stream with a table the left time is that of the stream's clock, which may advance behind the last record.
    """
    sides = [batch.side(side) for side in (LEFT, RIGHT)]
    found = [_in_order(one, positions=True) for one in sides]
    points = [one.running_max_points() for one in sides]
    places = _places(
        [
            *(_Run(one.arrival_times, one.at, side != first, is_record=True) for side, one in enumerate(found)),
            *(_Run(one.arrival_times, one.order, side != first, is_record=False) for side, one in enumerate(points)),
        ]
    )
    of_left, of_right, at_left, at_right = places
    arrivals = _arrived(layout, found[LEFT], of_left), _arrived(layout, found[RIGHT], of_right)
    of_stream = points[LEFT].times
    if batch.streams_time is not None:
        of_stream = np.append(
            np.minimum(of_stream, batch.streams_time.ceilings[points[LEFT].chunks]), batch.streams_time.after
        )
        at_left = np.append(at_left, sum(map(len, places)))
    return arrivals, (
        _progress(before[LEFT], at_left, of_stream),
        _progress(before[RIGHT], at_right, points[RIGHT].times),
    )


class _Run(NamedTuple):
    """Records of a side, or points at which its largest timestamp grows, in order.

    times      arrival times (ms)
    at         (partition, offset) of each
    second     whether the other side comes first
    is_record  whether these are records
    """

    times: Ints
    at: Ints
    second: bool
    is_record: bool


def _places(runs: list[_Run]) -> list[Ints]:
    """The places of each run in the order of all.

    A point comes before its record, and so before records that see it.
    """
    sizes = [len(run.times) for run in runs]
    at = np.concatenate([run.at for run in runs])
    order = np.lexsort(
        (
            np.repeat([run.is_record for run in runs], sizes),
            at[:, 1],
            at[:, 0],
            np.repeat([run.second for run in runs], sizes),
            np.concatenate([run.times for run in runs]),
        )
    )
    places = np.empty(len(order), np.int64)
    places[order] = np.arange(len(order))
    return np.split(places, np.cumsum(sizes)[:-1])


def _progress(before: int, places: Ints, times: Ints) -> Progress:
    order = np.argsort(places)
    grown = np.maximum.accumulate(np.append(before, times[order]))
    new = np.flatnonzero(np.diff(grown) > 0)
    return Progress(before, places[order][new], grown[new + 1])


class _InOrder(NamedTuple):
    """The records of a side in order.

    rows           the packed columns; None if no record came
    closing_times  the stream time that decides which records are closed for each record (ms), ascending
    arrival_times  the stream time when each record arrived (ms), ascending
    at             (partition, offset) of each record, if they are asked for
    """

    rows: pa.Table | None
    closing_times: Ints
    arrival_times: Ints
    at: Ints


def _in_order(side: Batch, positions: bool = False) -> _InOrder:
    """The records of a side in order; with partition and offset if `positions`.

    The columns of the order are dropped, unless late records leave as rows with the time that they saw.
    """
    rows = side.arrived()
    if rows is None:
        nothing = np.zeros(0, np.int64)
        return _InOrder(None, nothing, nothing, np.zeros((0, 2), np.int64))
    order, closing_times = side.order(rows), ints(rows["closing_time"])
    arrival_times = ints(rows["arrival_time"]) if "arrival_time" in rows.schema.names else None
    at = side.positions_beside_points(rows) if positions else np.zeros((0, 2), np.int64)
    if not side.layout.op.keeps_late:
        rows = rows.drop_columns([name for name in _SAY_ORDER if name in rows.schema.names])
    if not np.array_equal(order, np.arange(len(order))):
        rows, closing_times = rows.take(pa.array(order)), closing_times[order]
        arrival_times = None if arrival_times is None else arrival_times[order]
        at = at[order] if positions else at
    closing_times = np.maximum.accumulate(closing_times)
    arrival_times = closing_times if arrival_times is None else np.maximum.accumulate(arrival_times)
    if side.needed is not None:
        keyed = grouping.keyed(side.layout, rows)
        side.needed.add(ints(rows["ts"])[keyed], arrival_times[keyed])
    return _InOrder(rows, closing_times, arrival_times, at)


def _arrived(layout: Layout, side: _InOrder, places: Ints) -> Arrived:
    if side.rows is None:
        return Arrived(None, np.zeros(0, np.int64), side.closing_times, places, np.zeros(0, bool))
    return Arrived(side.rows, ints(side.rows["ts"]), side.closing_times, places, grouping.keyed(layout, side.rows))
