"""Sliding and session windows: which windows a record has depends on what its key already has.

The windows of all keys lie in tables by bucket of the key's hash. A batch reads the buckets that its keys or a close
touch, takes its records one by one in order (which windows they open, join or merge is decided on a few integers), and
computes the aggregates afterwards, all at once: every window is a *lineage*, the ordered list of the stored rows and
records it consists of. Python functions cannot wait for that and are called on the way. Final results of sessions are
taken all at once for the keys where the order cannot matter (`coalescing`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from operator import itemgetter
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tidegate.instants import MAX_MS, Window, later_ms
from tidegate.kernel.columns.arrays import Ints, array, concat_tables, ints
from tidegate.kernel.exchange.batch import Batch
from tidegate.kernel.operator import OpenWindows, Operator
from tidegate.kernel.rows import grouping, results
from tidegate.kernel.rows.layout import Layout
from tidegate.kernel.state import hash_tree
from tidegate.kernel.state.log_index import Log
from tidegate.kernel.state.state import State
from tidegate.kernel.state.tables import KEY_WINDOWS
from tidegate.kernel.suppress import keyed_strict_bound, prior_values
from tidegate.kernel.suppress.suppression_metrics import Held
from tidegate.kernel.windows import session_batch, sessions, sliding, sliding_batch
from tidegate.kernel.windows.lineage import (
    Aggregates,
    Entries,
    Entry,
    Functions,
    Lineage,
    Update,
    made_again,
    prior_values_of_made,
)
from tidegate.spec.windows import SessionWindows, SlidingWindows

_Late = list[tuple[int, int, int]]

_ROWS_PER_RECORD = 64
"""So many windows a record may write with its own without being slower than by writing more buckets."""


class KeyedWindows(Operator):
    """Sliding windows and sessions, in buckets of a tree over the hash of the key."""

    tables = (KEY_WINDOWS,)

    def process(self, state: State, batch: Batch, closes_at: int) -> tuple[Iterable[pa.Table], int]:
        return _process(self.layout, state, batch, closes_at)

    @property
    def windows(self) -> SlidingWindows | SessionWindows:
        """The definition of the windows."""
        windows = self.layout.op.windows
        assert isinstance(windows, SlidingWindows | SessionWindows)
        return windows

    def open_windows(self, state: State) -> list[tuple[Window, int]]:
        found: set[Window] = set()
        for rows in self.stored_rows(state):
            found |= set(map(Window, ints(rows["start"]).tolist(), ints(rows["end"]).tolist()))
        return [(window, self.windows.close_of_end_ms(window.end)) for window in found]

    def count_open(self, state: State) -> OpenWindows:
        totals = state.logs.totals()
        # A bucket without open windows closes at MAX_MS.
        return OpenWindows(totals.windows, self.windows.close_of_end_ms(totals.closes) if totals.windows else None)

    def buffered(self, state: State) -> Held:
        totals = state.logs.totals()
        if self.layout.op.buffer is not None:
            return Held(totals.waits, totals.counts, totals.size)
        return Held(totals.windows, totals.size, totals.size)

    def stored_rows(self, state: State) -> Iterable[pa.Table]:
        opens = self.windows.open_from_ms(state.closed_to)
        for bucket in sorted(state.logs):
            if segments := state.read(bucket):
                rows, _ = keyed_strict_bound.split(self.layout, concat_tables(segments))
                yield rows.filter(pa.array(ints(rows["end"]) >= opens))

    def results_so_far(self, state: State) -> list[pa.Table]:
        shape = self.layout.for_kind["final"]
        return [results.finish(shape, results.undeleted(self.layout, rows)) for rows in self.stored_rows(state)]

    def rewrite_from(self, old: Operator, state: State, *, bounded: bool) -> None:
        if bounded == (self.layout.op.buffer is not None):
            return
        opens_after = self.windows.open_from_ms(state.closed_to)
        loaded = _load(self.layout, state, list(state.logs), opens_after)
        _store(self.layout, state, loaded, loaded.rows, loaded.entries, opens_after, _Part(loaded.buckets, None))


def _process(layout: Layout, state: State, batch: Batch, closes_at: int) -> tuple[list[pa.Table], int]:
    """Apply the batch to the windows of its keys; the rows that the plan emits, and the records dropped late."""
    windows = layout.op.windows
    assert isinstance(windows, SlidingWindows | SessionWindows)
    records = batch.arrived() if session_batch.applies(layout) else batch.records()
    if records is not None and batch.needed is not None:
        saw = records["actual" if "actual" in records.schema.names else "seen"]
        batch.needed.add(ints(records["ts"]), ints(saw))
    # At the end of the input no window stays open, however long its grace.
    opens_after: Any = np.inf if closes_at == MAX_MS else windows.open_from_ms(closes_at)
    out: list[pa.Table] = []
    late: _Late = []
    for part in _parts(layout, state, batch, records, opens_after):
        rows, dropped = _process_part(layout, state, batch, part, opens_after)
        out += rows
        places = part.places
        late += dropped if places is None else [(int(places[i]), start, end) for i, start, end in dropped]
    batch.late = sorted(late, key=itemgetter(0))
    if layout.sorts and len(out) > 1 and layout.op.emits == "final":
        out = [results.in_order(layout, results.concat(layout, out))]
    return out or [results.concat(layout, [])], len(late)


@dataclass(frozen=True)
class _Part:
    """Buckets that are read and written together, and the records of their keys.

    places  of the records in the batch; None if they are all
    every   whether the batch writes every bucket of the state, these being neighbours of each other
    """

    buckets: list[int]
    records: pa.Table | None
    places: Ints | None = None
    every: bool | None = None


def _parts(layout: Layout, state: State, batch: Batch, records: pa.Table | None, opens_after: float) -> Iterator[_Part]:
    """Everything together, or a bucket and the next ones until they have `part_records` records.

    Only final results of sliding windows come in parts: updates have an order over all keys.
    """
    due, most = set(state.logs.due_before(opens_after)), layout.tuning.part_records
    in_parts = layout.op.emits == "final" and sliding_batch.applies(layout, batch)
    if records is None or records.num_rows <= most or not in_parts:
        yield _Part(sorted(_touched(layout, state, records) | due), records)
        return
    hashes = grouping.key_hash(layout, records)
    hash_tree.divide(state, hashes, most)
    own = hash_tree.find(state, hashes)
    filled, counts = np.unique(own, return_counts=True)
    buckets = np.union1d(filled, np.array(sorted(due), np.int64))
    sizes = np.zeros(len(buckets), np.int64)
    sizes[np.searchsorted(buckets, filled)] = counts
    part = (np.cumsum(sizes) - 1) // most
    every = len(buckets) == len(state.logs)
    for number in np.unique(part).tolist():
        mine = buckets[part == number]
        places = np.flatnonzero((own >= mine[0]) & (own <= mine[-1]))
        # Buckets that are only due may be a part of their own.
        own_records = records.take(pa.array(places)) if len(places) else None
        yield _Part(mine.tolist(), own_records, places, every)


def _process_part(
    layout: Layout, state: State, batch: Batch, part: _Part, opens_after: Any
) -> tuple[list[pa.Table], _Late]:
    """The rows that these keys emit, and their late records by place among those of the part."""
    windows = layout.op.windows
    assert isinstance(windows, SlidingWindows | SessionWindows)
    opens_before = windows.open_from_ms(batch.closed_to)
    loaded = _load(layout, state, part.buckets, opens_before)
    rows, updates, late, seen = _take_in(layout, loaded, part.records, batch)
    entries = loaded.entries
    if entries is not None:
        open_before = entries.filter(pa.array(ints(entries["end"]) >= opens_before))
        began = prior_values.of(layout, updates, batch.made)
        begins = prior_values.begin_again(layout, updates, batch.again)
        aside = _elsewhere(state, loaded)
        entries = keyed_strict_bound.check(layout, state, open_before, updates, began, begins, seen, aside)
    out = [results.for_kind(layout, "updates", updates)] if layout.op.emits != "final" and updates.num_rows else []
    ends = ints(rows["end"])
    if layout.op.emits != "updates":
        # What was closed before this batch has been let out; sliding windows outlive that (see sliding.forget_before).
        leaving = rows.filter(pa.array((ends < opens_after) & (ends >= opens_before)))
        out += [results.for_kind(layout, "final", leaving, layout.sorts)] if leaving.num_rows else []
    kept = ends >= opens_after if isinstance(windows, SessionWindows) else sliding.kept(windows, rows, opens_after)
    _store(layout, state, loaded, rows.filter(pa.array(kept)), entries, opens_after, part)
    return out, late


@dataclass(frozen=True)
class _Loaded:
    """Buckets and their windows; in front of a buffer with a bound also its entries."""

    buckets: list[int]
    rows: pa.Table
    entries: pa.Table | None


def _elsewhere(state: State, loaded: _Loaded) -> tuple[int, int]:
    """Entries and bytes of the buckets that were not read."""
    totals, read = state.logs.totals(), [state.logs.get(bucket) or Log() for bucket in loaded.buckets]
    return totals.waits - sum(log.waits for log in read), totals.counts - sum(log.counts for log in read)


def _touched(layout: Layout, state: State, records: pa.Table | None) -> set[int]:
    """The buckets of the records; many records are soon in all of them, and the rest is not looked at."""
    found: set[int] = set()
    step = layout.tuning.lookup_records
    for low in range(0, 0 if records is None else records.num_rows, step):
        assert records is not None
        found.update(np.unique(hash_tree.find(state, grouping.key_hash(layout, records.slice(low, step)))).tolist())
        if len(found) >= len(state.logs):
            break
    return found


def _load(layout: Layout, state: State, numbers: list[int], opens: float) -> _Loaded:
    """The windows in these buckets, as they were stored when windows that end from `opens` on were open."""
    tables = [table for number in numbers for table in state.read(number)]
    rows, entries = keyed_strict_bound.split(layout, concat_tables(tables) if tables else _no_windows(layout))
    if isinstance(layout.op.windows, SlidingWindows):
        rows = rows.filter(pa.array(sliding.kept(layout.op.windows, rows, opens)))
    return _Loaded(numbers, rows, entries)


def _no_windows(layout: Layout) -> pa.Table:
    keys = [layout.schema.field(name) for name in layout.keys]
    bounds = [pa.field(name, pa.int64()) for name in ("start", "end", "ts")]
    return pa.schema([*keys, *bounds, *layout.state_fields]).empty_table()


def _store(
    layout: Layout,
    state: State,
    loaded: _Loaded,
    rows: pa.Table,
    entries: pa.Table | None,
    opens_after: float,
    part: _Part,
) -> None:
    if entries is not None:
        rows = keyed_strict_bound.stored(layout, rows, entries, opens_after)
    numbers = np.array(loaded.buckets, np.int64)
    each = (0 if part.records is None else part.records.num_rows) // max(1, len(numbers))
    few, many = layout.tuning.key_windows
    most = min(max(few, each * _ROWS_PER_RECORD), many)
    known = partial(_known, layout, opens_after, entries is not None)
    hash_tree.write(state, numbers, rows, grouping.key_hash(layout, rows), most, known, part.every)


def _known(layout: Layout, opens_after: float, bounded: bool, rows: pa.Table) -> dict[str, int]:
    """What the index knows of a bucket: how much is open in it, and when it must be looked at."""
    ends = ints(rows["end"])
    is_open = ends >= opens_after
    waits, counts = keyed_strict_bound.totals(rows, opens_after) if bounded else (0, 0)
    live = np.ones(rows.num_rows, np.bool_)
    if "deleted" in rows.schema.names:
        live = ~pc.fill_null(array(rows["deleted"]), False).to_numpy(zero_copy_only=False)
    closes = int(ends[is_open].min(initial=MAX_MS))
    due = closes
    if not is_open.any():
        # Sliding windows outlive their close; they are removed when the last of them is of no use.
        assert isinstance(layout.op.windows, SlidingWindows)
        due = later_ms(int(ints(rows["start"]).max()), 3 * layout.op.windows.time_difference_ms)
    windows = int((is_open & live).sum())
    return {"windows": windows, "waits": waits, "counts": counts, "closes": closes, "due": due}


def _take_in(
    layout: Layout, loaded: _Loaded, records: pa.Table | None, batch: Batch
) -> tuple[pa.Table, pa.Table, _Late, Ints]:
    """The windows after the batch, the updates on the way, the records that were late for which window, and the stream
    time that the record of each update saw. The batch is told which windows were made of others.
    """
    if records is None:
        return loaded.rows, loaded.rows.slice(0, 0), [], np.zeros(0, np.int64)
    both = concat_tables([loaded.rows.select(layout.keys), records.select(layout.keys)])
    codes = grouping.codes([both[name] for name in layout.keys])
    held, new = codes[: loaded.rows.num_rows], codes[loaded.rows.num_rows :]
    place = np.arange(len(new))
    has_come = np.zeros(int(codes.max(initial=0)) + 1, np.bool_)
    has_come[new] = True
    touched = has_come[held]
    untouched = loaded.rows.filter(pa.array(~touched))
    mine, held = loaded.rows.filter(pa.array(touched)), held[touched]
    if session_batch.applies(layout):
        whole, rest, in_order = session_batch.apply(layout, mine, held, records, new)
        untouched = concat_tables([untouched.select(whole.schema.names), whole])
        mine, held = mine.filter(pa.array(rest)), held[rest]
        order = batch.order(records) if in_order.any() else place[:0]
        place = np.flatnonzero(in_order[order])
        records, new = records.take(pa.array(order[place])).drop_columns(["chunk", "offset"]), new[order[place]]
    at_once: sliding_batch.Taken | None = None
    if sliding_batch.applies(layout, batch):
        at_once = sliding_batch.apply(layout, mine, held, records, new)
    if at_once is not None:
        untouched = concat_tables([untouched.select(at_once.rows.schema.names), at_once.rows])
        mine, held = mine.filter(pa.array(at_once.left_stored)), held[at_once.left_stored]
        place = np.flatnonzero(at_once.left)
        records, new = records.take(pa.array(place)), new[place]
    rows, updates, late, seen = _one_by_one(layout, mine, held, records, new, batch)
    rows = concat_tables([untouched, rows.select(untouched.schema.names)]) if untouched.num_rows else rows
    late = [(int(place[i]), start, end) for i, start, end in late]
    if at_once is None:
        return rows, updates.table, late, seen
    return rows, _in_order(layout, updates, place, at_once), sorted(late + at_once.late, key=itemgetter(0)), seen


@dataclass(frozen=True)
class _Updates:
    """Updates in the order in which they leave, and the record that made each."""

    table: pa.Table
    record: Ints


def _one_by_one(
    layout: Layout, mine: pa.Table, held: Ints, records: pa.Table, new: Ints, batch: Batch
) -> tuple[pa.Table, _Updates, _Late, Ints]:
    """`_take_in` for records that are taken one after the other."""
    aggregates: Aggregates = Functions(layout, mine, records) if layout.op.function else Lineage(layout, mine, records)
    counted = prior_values.counted(layout)
    every = layout.op.every_update or batch.single
    entries, updates, late = _replay(layout, mine, held, records, new, aggregates, every or counted)
    keys = records.select(layout.keys)
    rows = aggregates.table(keys, [Update(record, entry) for record, entry in entries])
    stored = set(zip(held.tolist(), ints(mine["start"]).tolist(), ints(mine["end"]).tolist(), strict=True))
    if counted:
        batch.made = prior_values_of_made(layout, aggregates, keys, updates)
    told = updates if every else _told(updates, new, stored)
    if counted:
        batch.again = made_again(layout, keys, told)
    record = np.array([update.record for update in told], np.int64)
    return rows, _Updates(aggregates.table(keys, told), record), late, ints(records["seen"])[record]


def _in_order(layout: Layout, updates: _Updates, place: Ints, at_once: sliding_batch.Taken) -> pa.Table:
    """The updates of both ways in one order: every one by record, else the last of each window by its time."""
    both = concat_tables([updates.table, at_once.updates.select(updates.table.schema.names)])
    one_by_one = np.arange(updates.table.num_rows)
    by = (
        np.concatenate((np.zeros_like(one_by_one), at_once.place)),
        np.concatenate((one_by_one, at_once.step)),
        np.concatenate((place[updates.record], at_once.record)),
    )
    return both.take(pa.array(np.lexsort(by if layout.op.every_update else (*by, ints(both["ts"])))))


def _replay(
    layout: Layout,
    mine: pa.Table,
    mine_codes: Ints,
    records: pa.Table,
    codes: Ints,
    aggregates: Aggregates,
    every: bool,
) -> tuple[list[tuple[int, Entry]], list[Update], _Late]:
    """The windows with a record of their keys, the updates on the way (of each window the last, unless `every`), and
    what was late. Where final results alone leave and no buffer counts, there are no updates.
    """
    windows = layout.op.windows
    assert isinstance(windows, SlidingWindows | SessionWindows)
    kind: Any = sessions if isinstance(windows, SessionWindows) else sliding
    by_key: dict[int, Entries] = {}
    columns = (ints(mine[name]).tolist() for name in ("start", "end", "ts"))
    for i, (code, start, end, ts) in enumerate(zip(mine_codes.tolist(), *columns, strict=True)):
        by_key.setdefault(code, Entries()).put(kind.place(start, end), Entry(start, end, ts, aggregates.held(i)))
    updates: list[Update] = []
    last: dict[Any, Update] = {}
    wanted = layout.op.emits != "final" or layout.op.buffer is not None
    witness: dict[int, int] = {}  # a record of each key, to tell its columns
    late: _Late = []
    times, seen = ints(records["ts"]).tolist(), ints(records["seen"]).tolist()
    for i, (code, ts, now) in enumerate(zip(codes.tolist(), times, seen, strict=True)):
        witness.setdefault(code, i)
        entries = by_key.setdefault(code, Entries())
        changed, dropped = kind.take(windows, entries, ts, windows.open_from_ms(now), _Adder(aggregates, i))
        late += [(i, *window) for window in dropped]
        if every:
            updates += [Update(i, entry) for entry in changed]
        elif wanted:
            for entry in changed:
                name = (code, entry.start, entry.end)
                last.pop(name, None)
                last[name] = Update(i, entry)
    held = [(witness[code], entries.at[at]) for code, entries in by_key.items() for at in entries.places]
    return held, updates if every else list(last.values()), late


class _Adder:
    """Adds one record to aggregates."""

    def __init__(self, aggregates: Aggregates, record: int) -> None:
        self._aggregates = aggregates
        self._record = record

    def __call__(self, window: tuple[int, int], node: Any, fresh: bool) -> Any:
        return self._aggregates.add(self._record, window, node, fresh)

    def join(self, window: tuple[int, int], nodes: Sequence[Any]) -> Any:
        return self._aggregates.join(self._record, window, nodes)


def _told(updates: list[Update], codes: Ints, stored: set[Any]) -> list[Update]:
    """The updates that leave with caching: the last of each key and window (SEMANTICS 13), in timestamp order."""
    last: dict[Any, Update] = {}
    for update in updates:
        name = (int(codes[update.record]), update.entry.start, update.entry.end)
        last.pop(name, None)
        last[name] = update
    # Created and removed within the batch: nobody has heard of it.
    kept = [u for name, u in last.items() if u.entry.node is not None or name in stored]
    return sorted(kept, key=lambda u: u.entry.ts)
