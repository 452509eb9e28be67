"""suppress(until_time_limit): updates wait in a buffer until time has moved on, or until the buffer is full.

Per update, in the order forwarded (SEMANTICS 6.2): stream time grows to the update's timestamp (the wall clock has
moved when the batch began); the key's entry is made or replaced; entries leave whose buffer time plus the limit the
clock has reached, oldest first, ties in the order of their serialized keys; then the bound is checked. The buffer time
is the time of the first or the latest update of the key, or the start of the window (`measured_from`). Once a key has
left, nothing about it is remembered. Entries also leave between two updates of a task, as records of other tasks move
stream time on (`kernel.exchange.time_progress`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tidegate.instants import MAX_MS, later_ms
from tidegate.kernel.columns.arrays import Ints, concat_tables, ints
from tidegate.kernel.columns.groups import Groups
from tidegate.kernel.exchange import old_values
from tidegate.kernel.exchange.batch import Batch
from tidegate.kernel.rows import result_keys
from tidegate.kernel.rows.conversion import for_display
from tidegate.kernel.rows.layout import Layout
from tidegate.kernel.rows.map_filter import CLOSING_TIME
from tidegate.kernel.state import frames
from tidegate.kernel.state.state import State
from tidegate.kernel.state.store import Section, Store
from tidegate.kernel.state.tables import limit_buffer, limit_tables
from tidegate.kernel.suppress import bounded_time_limit, buffer_entries, suppression_metrics
from tidegate.kernel.suppress.key_index import NOWHERE
from tidegate.kernel.suppress.suppression_metrics import SIZE, UPDATED, Evicted
from tidegate.kernel.suppress.time_buckets import BUFFER_TIME, TimeBuckets, due_until, expire, newest, waiting_since
from tidegate.kernel.time.stream_time import NEVER, running_max
from tidegate.plan import Limit
from tidegate.spec.columns import END, OURS, START, TIMESTAMP
from tidegate.spec.pending import SHOWN


def suppress(
    layout: Layout, state: State, batch: Batch, rows: pa.Table, end_of_input: bool, earlier: Sequence[Limit] = ()
) -> tuple[pa.Table, int | None]:
    """Put forwarded rows into the buffer. Returns the rows that leave, and the wall clock (ms) of the next due row.

    layout   of the rows that come to the limit (`Layout.of_limit`)
    earlier  the limits that the rows have left: then their timestamps are stream time, in their order

    By the wall clock every row of a batch comes at the same time, the time of the batch. At the end of the input
    everything leaves. Raises BufferFullError if the buffer is full and shuts down when full; not at the end of a drain,
    where no row stays.
    """
    (limit,) = layout.op.all_limits
    how, wall = limit.how, limit.how.clock == "wall"
    buffer = _Buffer.load(layout, state.store)
    buffered, buckets, now = buffer.entries, buffer.buckets, buffer.clock
    rows, times, clocks = _in_turn(layout, state, batch, rows, now, behind_limit=bool(earlier))
    now = int(clocks[-1])
    if end_of_input:
        clocks[-1] = MAX_MS
    since = ints(rows[START]) if how.measured_from == "window_start" and layout.op.windows is not None else times
    rows = rows.append_column(BUFFER_TIME, pa.array(since))
    if wall and how.measured_from != "latest_update":
        rows = rows.append_column(UPDATED, pa.array(times))
    before = suppression_metrics.of_limit(buffered, buckets)
    if not buffer_entries.counts_bytes(layout):
        # An earlier bound may have kept old values. They would be wrong if that bound came back.
        old_values.forget(layout, state.old_values_of_limit(limit.place))
    if how.buffer.bounded and not (state.drained and how.buffer.strategy == "shut_down"):
        if buckets.logs:
            buffered = concat_tables([buffered, *buffer_entries.without_bound(layout, _newest(layout, buckets))])
            buffered = buffered.take(result_keys.in_order(layout, buffered, ints(buffered[BUFFER_TIME])))
        made, closed_through = None if earlier else batch.made, old_values.closed_and_gone(state, earlier)
        evicted, retained = bounded_time_limit.apply(layout, state, buffered, rows, clocks, made, closed_through)
        buckets.forget(list(buckets.logs))
        due = int(retained[BUFFER_TIME][0].as_py()) if retained.num_rows else None
    else:
        evicted = _in_buckets(layout, buckets, buffered, rows, clocks)
        retained, due = buffered.slice(0, 0), buckets.earliest()
    suppression_metrics.record_buffered(state, suppression_metrics.of_limit(retained, buckets), before)
    state.step_metrics |= {"suppression_emit": evicted.rows.num_rows, **suppression_metrics.overtime(how, evicted)}
    _Buffer(retained, buckets, now).save(layout, state.store)
    if due is not None:
        state.due[limit.place] = later_ms(due, how.limit_ms), now
    wakes = wall and due is not None and due <= MAX_MS - how.limit_ms
    return evicted.rows.select(layout.result_schema.names), due + how.limit_ms if wakes and due is not None else None


def _in_turn(
    layout: Layout, state: State, batch: Batch, rows: pa.Table, now: int, *, behind_limit: bool
) -> tuple[pa.Table, Ints, Ints]:
    """The rows in the order in which they come to the limit, without `CLOSING_TIME`; the time of each by the clock of
    the limit; and that clock before and after each row, alternating, and at the end of the batch (ms).

    now  the clock before the batch
    """
    updates = layout.op.emits == "updates" and not behind_limit
    in_order = layout.op.stream.changes and not layout.op.caching
    if updates and layout.op.aggregations and not in_order and sum(chunk.rows for chunk in batch.chunks) > 1:
        # Updates of many records come in timestamp order, however tasks and partitions made them. The updates of one
        # record, final results, changes of a table and all updates of groups have an order already.
        rows = rows.take(pa.array(np.argsort(_reached(layout, rows), kind="stable")))
    if layout.op.limit.clock == "wall":
        now = max(now, state.wall_clock)
        times = finds = np.full(rows.num_rows, now)
        end = now
    elif updates:
        now = max(now, batch.newest_before)  # the limit may be new in the plan, or have had another clock
        rows, finds = _as_time_passed(layout, batch, rows, now)
        times = ints(rows[TIMESTAMP])
        # Every record moves stream time: also records of other tasks, records without an update due to caching, and
        # those in front of a slow partition that came before the plan had this limit.
        end = max([state.newest, *(chunk.max_ts for chunk in batch.chunks)])
    else:
        # Final results and rows that have waited are older than stream time: their own timestamps move the clock.
        times, finds, end = ints(rows[TIMESTAMP]), np.full(rows.num_rows, now), NEVER
    if CLOSING_TIME not in rows.schema.names:
        return rows, times, _clocks(now, finds, times, end)
    return rows.drop_columns([CLOSING_TIME]), times, _clocks(now, finds, ints(rows[CLOSING_TIME]), end)


def _reached(layout: Layout, rows: pa.Table) -> Ints:
    """The timestamp of each row (ms), or of an earlier row of its key if that is later.

    A function may delete an entry, and a record of an earlier time begins it again: its update still comes behind the
    deletion.
    """
    times = ints(rows[TIMESTAMP])
    if layout.op.function is None or not (layout.op.every_update and rows.num_rows):
        return times
    order, starts = Groups.of(result_keys.codes(layout, rows)).runs()
    reached = np.empty_like(times)
    reached[order] = running_max(times[order], starts)
    return reached


def _as_time_passed(layout: Layout, batch: Batch, rows: pa.Table, now: int) -> tuple[pa.Table, Ints]:
    """The updates of a batch, at each time first the one that reached it; and the stream time that each finds (ms)."""
    # If rows have an order of their own, a row that is older than those before it does not move time back.
    times = np.maximum.accumulate(ints(rows[CLOSING_TIME] if CLOSING_TIME in rows.schema.names else rows[TIMESTAMP]))
    before, makes = batch.progress().before(now, times, result_keys.key_hashes(layout, rows))
    order = np.lexsort((~makes, np.maximum(times, now)))
    return rows.take(pa.array(order)), before[order]


def _clocks(now: int, before: Ints, after: Ints, end: int) -> Ints:
    """The clock before and after each update, alternating, and at the end of the batch (ms)."""
    steps = np.stack([before, after], axis=1).ravel()
    return np.maximum.accumulate(np.concatenate([[now], steps, [end]]))[1:]


class HeldBack(NamedTuple):
    """The keys that a limit holds back.

    keys   their number
    first  the first SHOWN of them to leave, as text, each with the time at which it leaves (ms)
    clock  the clock of the limit (ms)
    """

    keys: int
    first: list[tuple[str, int]]
    clock: int


def held_back(layout: Layout, store: Store) -> HeldBack | None:
    """The keys that the limit holds back; None if there are none."""
    how, buffer = layout.op.limit, _Buffer.load(layout, store)
    rows = buffer.rows(layout)
    if not rows.num_rows:
        return None
    first = rows.take(pc.sort_indices(rows, sort_keys=[(BUFFER_TIME, "ascending")])[:SHOWN])
    shown = [name for name in (*layout.op.key, START, END) if name in rows.schema.names]
    keys = [shown_key(row) for row in for_display(first.select(shown))]
    due = [later_ms(since, how.limit_ms) for since in ints(first[BUFFER_TIME]).tolist()]
    count = len(np.unique(result_keys.codes(layout, rows)))
    return HeldBack(count, list(zip(keys, due, strict=True)), buffer.clock)


def shown_key(row: dict[str, Any]) -> str:
    """The key of a row, and its window if it has one, as text."""
    key = ", ".join(f"{name} {value!r}" for name, value in row.items() if not name.startswith(OURS))
    return f"{key} in window {row[START]} to {row[END]} ms" if START in row else key


def holds_rows(store: Store, place: int) -> bool:
    """Whether rows wait for the limit at this place."""
    frame = store.get(limit_buffer(place))
    if frame is None:
        return False
    meta, (entries,) = frames.decode(frames.SEGMENT, frame)
    return bool(entries.num_rows or meta["buckets"])


def waiting(layout: Layout, store: Store) -> pa.Table:
    """The rows that are held back, with the time from which the limit counts (`time_buckets.BUFFER_TIME`)."""
    return _Buffer.load(layout, store).rows(layout)


def compact(layout: Layout, store: Store, *, restarts: bool) -> None:
    """Leave one row of each key that waits, with the time from which it waits.

    restarts  whether every update began the wait again so far; another `measured_from` counts from that time on
    """
    buffer = _Buffer.load(layout, store)
    for number in buffer.buckets.logs:
        buffer.buckets.replace(number, _last_of_keys(layout, buffer.buckets.read([number]), restarts))
    buffer.save(layout, store)


def empty(layout: Layout, store: Store) -> pa.Table:
    """Empty the buffer, as if no row had ever come. Returns the rows that were held back (`waiting`)."""
    buffer = _Buffer.load(layout, store)
    rows = buffer.rows(layout)
    buffer.buckets.forget(list(buffer.buckets.logs))
    _Buffer(buffer.entries.slice(0, 0), buffer.buckets, NEVER).save(layout, store)
    return rows


@dataclass(frozen=True)
class _Buffer:
    """The stored entries of a limit, their buckets and its clock.

    entries  entries of a bounded buffer, in the order in which they leave
    buckets  the buckets of an unbounded buffer
    clock    the clock of the limit behind the last batch (ms); NEVER before the first one
    """

    entries: pa.Table
    buckets: TimeBuckets
    clock: int

    @classmethod
    def load(cls, layout: Layout, store: Store) -> _Buffer:
        (limit,), schema = layout.op.all_limits, layout.result_schema
        frame, mine = store.get(limit_buffer(limit.place)), Section(store, limit_tables(limit.place))
        none = schema.append(pa.field(BUFFER_TIME, pa.int64())).append(pa.field(SIZE, pa.int64())).empty_table()
        if frame is None:
            return cls(none, TimeBuckets(mine), NEVER)
        meta, (entries,) = frames.decode(frames.SEGMENT, frame)
        # Without entries the stored columns do not matter: an earlier plan may have had others.
        return cls(entries if entries.num_rows else none, TimeBuckets.load(mine, meta), meta["stream_time"])

    def save(self, layout: Layout, store: Store) -> None:
        (limit,) = layout.op.all_limits
        meta = {"stream_time": self.clock, **self.buckets.saved()}
        store.put(limit_buffer(limit.place), frames.encode(frames.SEGMENT, meta, self.entries))

    def rows(self, layout: Layout) -> pa.Table:
        """The rows that wait, with the time from which the limit counts (`time_buckets.BUFFER_TIME`)."""
        parts = _newest(layout, self.buckets)
        # A layout for reading has none of the steps in front of the limit, so an empty buffer of it has other columns.
        return concat_tables([_rows(self.entries), *parts] if self.entries.num_rows or not parts else parts)


def _rows(buffered: pa.Table) -> pa.Table:
    """Entries of a bounded buffer as rows of a bucket."""
    return buffered.drop_columns([SIZE, *buffer_entries.prior_names(buffered)])


def _in_buckets(layout: Layout, buckets: TimeBuckets, buffered: pa.Table, rows: pa.Table, clocks: Ints) -> Evicted:
    """Put rows into an unbounded buffer. Returns the rows that leave, in order."""
    how = layout.op.limit
    buckets.widen(how.limit_ms)
    restarts = how.measured_from == "latest_update"
    until = due_until(int(clocks[-1]), how.limit_ms)
    where = buckets.find(result_keys.hashes(layout, rows))
    # A row so old that it is due itself makes its bucket due: its time may become the buffer time of its key. And in a
    # bucket whose first rows may have left, the key may not wait any more.
    old = where[(where != NOWHERE) & ((ints(rows[BUFFER_TIME]) <= until) | (where * buckets.width <= until))]
    due = sorted({*buckets.due(until), *old.tolist()})
    # Rows whose key is in a bucket that is not due are only appended to the bucket.
    follow = (where != NOWHERE) & ~np.isin(where, due)
    step = 2 * np.arange(rows.num_rows) + 1
    full = buckets.append(where[follow], rows.filter(pa.array(follow))) if follow.any() else []
    waited = [_rows(buffered), *buckets.read(due)]
    both = concat_tables([*waited, rows.filter(pa.array(~follow))])
    steps = np.concatenate([np.full(both.num_rows - int((~follow).sum()), -1), step[~follow]])
    codes = result_keys.codes(layout, both)
    expired, rest = expire(codes, steps, ints(both[BUFFER_TIME]), clocks, how.limit_ms, restarts)
    buckets.forget(due)
    retained = waiting_since(both.take(pa.array(rest.rows)), rest.since)
    leaving = both.take(pa.array(expired.rows))
    order = result_keys.in_order(layout, leaving, expired.since, expired.steps)
    evicted = Evicted(leaving.take(order), expired.since[order], clocks[expired.steps[order]])
    del waited, both, steps, codes, expired, rest, leaving  # the index needs their memory
    full += buckets.place(retained, result_keys.hashes(layout, retained), how.limit_ms, due)
    for number in dict.fromkeys(full):
        buckets.replace(number, _last_of_keys(layout, buckets.read([number]), restarts))
    return evicted


def _newest(layout: Layout, buckets: TimeBuckets) -> list[pa.Table]:
    """The rows of all buckets, one row per key."""
    tables, restarts = buckets.read(sorted(buckets.logs)), layout.op.limit.measured_from == "latest_update"
    return [_last_of_keys(layout, tables, restarts)] if tables else []


def _last_of_keys(layout: Layout, tables: list[pa.Table], restarts: bool) -> pa.Table:
    """The last row of each key, with the time from which the key waits."""
    whole = concat_tables(tables)
    at, since = newest(result_keys.codes(layout, whole), ints(whole[BUFFER_TIME]), restarts)
    return waiting_since(whole.take(pa.array(at)), since)
