"""Sliding windows of many keys at once, for keys whose records find no window closed.

The windows of such a key follow from the times of its records alone, in any order of arrival (SEMANTICS 3): they are
ranges of records (`windows.sliding_ranges`), and running aggregates give the state of each.

A record that finds some of its windows closed makes other windows. Its key, and a key whose stored windows may come
from such a record, goes to `sliding.apply`, record by record.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from tidegate.instants import MAX_MS
from tidegate.kernel.aggregates import Accumulator, Overflow
from tidegate.kernel.aggregates.ordered import CollectList, First, Last
from tidegate.kernel.columns import radix_sort
from tidegate.kernel.columns.arrays import Flags, Ints, array, concat_tables, ints
from tidegate.kernel.columns.groups import Groups
from tidegate.kernel.columns.runs import expanded, first_of_run
from tidegate.kernel.exchange.batch import Batch
from tidegate.kernel.rows import grouping
from tidegate.kernel.rows.layout import Layout
from tidegate.kernel.rows.results import marked_live
from tidegate.kernel.suppress import prior_values
from tidegate.kernel.time.stream_time import running_max
from tidegate.kernel.windows.sliding_ranges import (
    AFTER_ALL,
    ROOM,
    STORED,
    Axis,
    Contents,
    Pieces,
    Shape,
    base_of,
    index_of,
    irregular_keys,
)
from tidegate.spec.windows import SlidingWindows

_SKETCHES = 4_096
"""Windows that are merged at a time if the state of each is a list."""


def applies(layout: Layout, batch: Batch) -> bool:
    """Whether the aggregates are built in, and no buffer counts the bytes of each update."""
    op = layout.op
    counted = op.buffer is not None or prior_values.counted(layout)
    return isinstance(op.windows, SlidingWindows) and op.function is None and not counted and not batch.single


@dataclass(frozen=True)
class AtOnce:
    """Windows (key, start, end, ts, state, deleted) after the batch, and their updates.

    Updates of one time are ordered by the `record` that made them, then by its `step` and the `place` in the step.
    `rest_stored` and `rest` flag the stored rows and records of keys that are applied record by record; `late` has the
    drops of the other keys: (record, start, end).
    """

    rows: pa.Table
    updates: pa.Table
    record: Ints
    step: Ints
    place: Ints
    rest_stored: Flags
    rest: Flags
    late: list[tuple[int, int, int]]


def apply(layout: Layout, stored: pa.Table, stored_codes: Ints, records: pa.Table, codes: Ints) -> AtOnce | None:
    """The windows of the keys that can be applied at once; None if no key can.

    `stored_codes` and `codes` number the keys of `stored` and of `records`; the records are in order.
    """
    windows = layout.op.windows
    assert isinstance(windows, SlidingWindows)
    d = windows.time_difference_ms
    key = Groups.of(np.concatenate((stored_codes, codes))).number
    stored_codes, codes = key[: len(stored_codes)], key[len(stored_codes) :]
    ts, starts = ints(records["ts"]), ints(stored["start"])
    if d > ROOM or int(ts.max()) > MAX_MS - 2 * d - 2:
        return None
    open_from: Any = windows.open_from_ms(ints(records["closing_time"]))  # type: ignore[arg-type]
    too_late = ts + d < open_from
    rest = np.zeros(int(key.max()) + 1, np.bool_)
    # The earliest end of a record's windows: of its left window, or of the window of all early records.
    rest[codes[~too_late & (np.maximum(ts, d) < open_from)]] = True
    axis = Axis.of(
        d, len(rest), np.concatenate((stored_codes, codes[~too_late])), np.concatenate((starts, ts[~too_late]))
    )
    if axis is None:
        return None
    rest[irregular_keys(axis, stored, stored_codes, ts[~too_late], codes[~too_late], open_from[~too_late])] = True
    late = [(int(i), int(ts[i]), int(ts[i]) + d) for i in np.flatnonzero(too_late & ~rest[codes])]

    mine = np.flatnonzero(~rest[stored_codes])
    mine = mine[radix_sort.argsort(axis.at(stored_codes[mine], starts[mine]))]
    kept = stored.take(pa.array(mine))
    arrived = np.flatnonzero(~rest[codes] & ~too_late)
    order = radix_sort.argsort(axis.at(codes[arrived], ts[arrived]))
    theirs = arrived[order]
    if not len(theirs):
        none = np.zeros(0, np.int64)
        return AtOnce(kept, kept.slice(0, 0), none, none, none, rest[stored_codes], rest[codes], late)
    contents = Contents(d, axis.at(codes[theirs], ts[theirs]), order, ts[theirs] < d)
    shape = Shape.of(contents, axis, stored_codes[mine], starts[mine], ints(kept["ts"]), codes[theirs], ts[theirs])
    states = _States.of(layout, kept, records.take(pa.array(theirs)))
    try:
        after = _rows(layout, states, contents, shape)
        updates, made = _updates(layout, states, contents, shape, after)
    except Overflow:
        # A block may overflow though no window does; and if a window does, the error must name its record.
        return None
    untouched = kept.filter(pa.array(shape.untouched))
    rows = concat_tables([untouched, after.select(stored.schema.names)]) if untouched.num_rows else after
    return AtOnce(rows, updates, arrived[made.record], made.step, made.place, rest[stored_codes], rest[codes], late)


@dataclass(frozen=True)
class _States:
    """Keys and states: of the stored windows, then of the records, each as a window of its own."""

    layout: Layout
    stored: int
    rows: pa.Table

    @classmethod
    def of(cls, layout: Layout, stored: pa.Table, records: pa.Table) -> _States:
        names = [*layout.keys, *layout.state]
        lifted = grouping.lift(layout, records).select(names)
        return cls(
            layout, stored.num_rows, concat_tables([stored.select(names), lifted]) if stored.num_rows else lifted
        )

    def heads(self, shape: Shape) -> dict[str, Any]:
        """Key and bounds of the windows."""
        some = shape.high > shape.low
        row = pa.array(np.where(some, self.stored + shape.low, shape.base))
        windows = self.layout.op.windows
        assert isinstance(windows, SlidingWindows)
        columns: dict[str, Any] = {name: self.rows[name].take(row) for name in self.layout.keys}
        columns |= {"start": pa.array(shape.start), "end": pa.array(shape.start + windows.time_difference_ms)}
        return columns

    def columns(self, names: list[str]) -> list[pa.Array]:
        """These columns of the state."""
        return [array(self.rows[name]) for name in names]


def _rows(layout: Layout, states: _States, contents: Contents, shape: Shape) -> pa.Table:
    """The touched windows after the batch: (key, start, end, ts, state), none of them `deleted`."""
    columns = states.heads(shape) | {"ts": pa.array(shape.newest)}
    pieces = Pieces.of(contents, shape)
    ordered = any(acc.merges is None for acc in layout.accumulators)
    by_arrival = _by_arrival(contents) if ordered else np.zeros(0, np.int64)
    for acc, names in zip(layout.accumulators, layout.states, strict=True):
        state = states.columns(names)
        if isinstance(acc, CollectList):
            flat, starts = _flat(states, contents, shape)
            merged = acc.merge_runs([column.take(pa.array(flat)) for column in state], starts)
        elif isinstance(acc, First):
            one = _one(acc, states, contents, shape, pieces, by_arrival)
            merged = [column.take(pa.array(one)) for column in state]
        else:
            merged = _merged(acc, state, states.stored, contents, shape, pieces)
        columns |= zip(names, merged, strict=True)
    return marked_live(pa.table(columns))


def _by_arrival(contents: Contents) -> Ints:
    """The record with each arrival number."""
    records = np.empty_like(contents.arrival)
    records[contents.arrival] = np.arange(len(records))
    return records


def _one(acc: Accumulator, states: _States, contents: Contents, shape: Shape, pieces: Pieces, by_arrival: Ints) -> Ints:
    """The row of `states` that has the first, or the last, value of each window."""
    if isinstance(acc, Last):
        latest = pieces.latest(contents)
        return np.where(latest >= 0, states.stored + by_arrival[latest], shape.base)
    earliest = pieces.earliest(contents)
    record = by_arrival[np.where(earliest < AFTER_ALL, earliest, 0)]
    return np.where(shape.base >= 0, shape.base, states.stored + record)


def _merged(
    acc: Accumulator, state: list[pa.Array], stored: int, contents: Contents, shape: Shape, pieces: Pieces
) -> list[pa.Array]:
    """The state of each window, merged from its base, the end of a block and the beginning of the next block."""
    n, starts = len(contents.at), contents.block_starts()
    of_records = [column.slice(stored) for column in state]
    prefixes = acc.scan_runs(of_records, starts)
    backwards = pa.array(np.arange(n - 1, -1, -1))
    ends = np.append(starts[1:], n)
    suffixes = acc.scan_runs([column.take(backwards) for column in of_records], (n - ends)[::-1])
    parts = np.stack(
        (
            shape.base,
            np.where(pieces.suffix >= 0, stored + n - 1 - pieces.suffix, -1),
            np.where(pieces.prefix >= 0, stored + n + pieces.prefix, -1),
        ),
        axis=1,
    )
    every = [
        concat_tables([pa.table({"x": column}) for column in (own.slice(0, stored), suffix, prefix)])["x"]
        for own, suffix, prefix in zip(state, suffixes, prefixes, strict=True)
    ]
    at_a_time = _SKETCHES if any(pa.types.is_list(kind) for kind in acc.state_types) else len(parts)
    slices = [parts[low : low + at_a_time] for low in range(0, len(parts), at_a_time)]
    merged = [_merged_slice(acc, [array(column) for column in every], mine) for mine in slices]
    return [pa.concat_arrays(columns) for columns in zip(*merged, strict=True)]


def _merged_slice(acc: Accumulator, every: list[pa.Array], parts: Ints) -> list[pa.Array]:
    some = parts >= 0
    sizes = some.sum(axis=1)
    flat = pa.array(parts[some])
    return acc.merge_runs([column.take(flat) for column in every], np.cumsum(sizes) - sizes)


def _flat(states: _States, contents: Contents, shape: Shape) -> tuple[Ints, Ints]:
    """The rows of `states` by window: its base, then its records by arrival; and the place of each window's first."""
    sizes = shape.high - shape.low
    window = np.repeat(np.arange(len(sizes)), sizes)
    record = expanded(shape.low, sizes, 1)
    based = np.flatnonzero(shape.base >= 0)
    rows = np.concatenate((shape.base[based], states.stored + record))
    arrival = np.concatenate((np.full(len(based), STORED), contents.arrival[record]))
    order = np.lexsort((arrival, np.concatenate((based, window))))
    sizes = sizes + (shape.base >= 0)
    return rows[order], np.cumsum(sizes) - sizes


UPDATED, PREVIOUS_RIGHT, LEFT, OWN_RIGHT = range(4)
"""The steps of a record, in the order of its rows if it is not early."""
_EARLY_STEP = np.array([0, 2, 3, 1])
"""The order of the steps of an early record: updates, own right window, previous record's right window, left window."""


@dataclass(frozen=True)
class _Made:
    """The origin of updates: the arrival of the record that made each, the step of its turn, the place in that step."""

    record: Ints
    step: Ints
    place: Ints

    @classmethod
    def of(cls, contents: Contents, shape: Shape, window: Ints, record: Ints, step: Ints) -> _Made:
        early = contents.early[_by_arrival(contents)[record]]
        step = np.where(early & (shape.start[window] == 0), LEFT, step)
        # A regular record updates windows from the last to the first, an early one from the first to the last.
        place = np.where(early, shape.place[window], -shape.place[window])
        return cls(record, np.where(early, _EARLY_STEP[step], step), np.where(step == UPDATED, place, 0))


@dataclass(frozen=True)
class _Creations:
    """The record (by arrival) and step that made each touched window; `record` is `STORED - 1` for stored windows."""

    record: Ints
    step: Ints
    both: Flags
    """Whether the record made the window both as its left window and as the right one of the record before."""

    @classmethod
    def of(cls, contents: Contents, shape: Shape, earliest: Ints) -> _Creations:
        first = first_of_run(contents.at)
        times, arrival = contents.at[first], np.append(contents.arrival[first], AFTER_ALL)
        before = np.where(shape.after_old, STORED, arrival[index_of(times, shape.place - 1)])
        left = arrival[index_of(times, shape.place + contents.difference)]
        content = np.where(shape.base >= 0, STORED, earliest)
        right = np.where(before < AFTER_ALL, np.maximum(before, content), AFTER_ALL)
        record = np.minimum(right, left)
        zero = shape.start == 0
        record = np.where(zero, np.minimum(record, earliest), record)
        step = np.where(left == record, LEFT, np.where(before == record, OWN_RIGHT, PREVIOUS_RIGHT))
        both = ~shape.own & (left == right) & (left < AFTER_ALL) & ~zero
        return cls(np.where(shape.own, STORED - 1, record), step, both)


def _updates(
    layout: Layout, states: _States, contents: Contents, shape: Shape, after: pa.Table
) -> tuple[pa.Table, _Made]:
    """The emitted updates, with `deleted`: the last of each window, or every update."""
    if layout.op.emits == "final":
        none = np.zeros(0, np.int64)
        return after.slice(0, 0), _Made(none, none, none)
    pieces = Pieces.of(contents, shape)
    created = _Creations.of(contents, shape, pieces.earliest(contents))
    if layout.op.every_update:
        return _every_update(layout, states, contents, shape, created)
    latest = pieces.latest(contents)
    record = np.maximum(latest, created.record)
    step = np.where(created.record == record, created.step, UPDATED)
    made = _Made.of(contents, shape, np.arange(len(record)), record, step)
    return after, made


def _every_update(
    layout: Layout, states: _States, contents: Contents, shape: Shape, created: _Creations
) -> tuple[pa.Table, _Made]:
    """A row for each record of each window since its creation, and a row for each copied window."""
    flat, starts = _flat(states, contents, shape)
    sizes = np.diff(starts, append=len(flat))
    window = np.repeat(np.arange(len(sizes)), sizes)
    is_record = flat >= states.stored
    of_batch = np.maximum(flat - states.stored, -1)
    record = np.where(is_record, np.append(contents.arrival, STORED)[of_batch], STORED)
    since = created.record[window]
    has_update = is_record & (record >= since)
    # The row of a copy has the aggregate of the records before its creation.
    copied = np.flatnonzero(~shape.own & (created.step == OWN_RIGHT))
    behind = np.zeros(len(sizes), np.int64)
    np.add.at(behind, window, record < since)
    again = np.flatnonzero(has_update & _twice(contents, shape, created)[window] & (record == since))
    at = np.concatenate((np.flatnonzero(has_update), starts[copied] + behind[copied] - 1, again))
    made_by = np.concatenate((record[has_update], created.record[copied], record[again]))
    of = window[at]
    step = np.where(made_by == created.record[of], created.step[of], UPDATED)
    step[len(step) - len(again) :] = PREVIOUS_RIGHT
    columns = {name: column.take(pa.array(of)) for name, column in states.heads(shape).items()}
    times = np.where(is_record, np.append(contents.at, 0)[of_batch], np.append(shape.reaches, 0)[shape.base[window]])
    columns["ts"] = pa.array((running_max(times, starts) - (shape.place - shape.start)[window])[at])
    for acc, names in zip(layout.accumulators, layout.states, strict=True):
        scanned = acc.scan_runs([column.take(pa.array(flat)) for column in states.columns(names)], starts)
        columns |= {name: column.take(pa.array(at)) for name, column in zip(names, scanned, strict=True)}
    return marked_live(pa.table(columns)), _Made.of(contents, shape, of, made_by, step)


def _twice(contents: Contents, shape: Shape, created: _Creations) -> Flags:
    """Flags of the windows made twice: as the right one of the record before, then as the left one. Both rows leave.

    The record before lies one instant before the window. A window that begins no earlier than one difference before
    that record finds it (SEMANTICS 3.1): a window after another record, or the window of the early records.
    """
    d, at = contents.difference, shape.place
    twice = created.both & (shape.start <= d)
    asked = np.flatnonzero(created.both & ~twice)
    if not len(asked):
        return twice
    low = np.searchsorted(contents.at, at[asked] - d - 1)
    high = np.searchsorted(contents.at, at[asked] - 1)
    arrival = np.append(contents.arrival, AFTER_ALL)
    earliest = np.minimum.reduceat(arrival, np.stack((low, high), axis=1).ravel())[::2]
    met = (high > low) & (earliest < created.record[asked])
    begins = np.searchsorted(shape.stored, at[asked]) > np.searchsorted(shape.stored, at[asked] - d)
    met |= np.where(shape.after_old[asked], begins, base_of(shape.stored, shape.reaches, at[asked] - d - 1) >= 0)
    twice[asked[met]] = True
    return twice
