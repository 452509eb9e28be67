"""Sliding and session windows: the windows of a record depend on the stored windows of its key.

A batch reads the windows of its keys and of the keys with a closing window (`windows.stored_windows`). It applies its
records one by one in order; a few integers decide which windows a record opens, joins or merges. Then it computes all
aggregates at once: every window is a *lineage*, the ordered list of its stored rows and records. Python functions
cannot wait for that: they are called record by record. Final results of sessions are computed at once for the keys
whose order of records cannot matter (`windows.session_batch`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from operator import itemgetter
from typing import Any

import numpy as np
import pyarrow as pa

from tidegate.instants import MAX_MS, Window
from tidegate.kernel.columns.arrays import Ints, concat_tables, ints
from tidegate.kernel.exchange.batch import Batch, MadeWindows
from tidegate.kernel.operator import OpenWindows, Operator
from tidegate.kernel.rows import grouping, results
from tidegate.kernel.rows.layout import Layout
from tidegate.kernel.rows.record_times import arrival_times
from tidegate.kernel.state.state import State
from tidegate.kernel.state.tables import CLOSING_TIMES, KEY_WINDOWS, WINDOWS_BY_KEY
from tidegate.kernel.suppress import keyed_strict_bound, prior_values
from tidegate.kernel.suppress.suppression_metrics import Buffered
from tidegate.kernel.time.stream_time import NEVER
from tidegate.kernel.windows import session_batch, sessions, sliding, sliding_batch, window_forms
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
from tidegate.kernel.windows.stored_windows import Loaded, Opens, Part, StoredWindows, kept
from tidegate.spec.windows import SessionWindows

_Late = list[tuple[int, int, int]]
"""(place of the record in its table, start, end) of each closed window that a record missed (ms)."""


class KeyedWindows(Operator):
    """Sliding windows and sessions, in buckets of a tree over the hash of the key, or where they are many by key."""

    tables = (KEY_WINDOWS, WINDOWS_BY_KEY, CLOSING_TIMES)

    def process(self, state: State, batch: Batch, closes_at: int) -> Iterable[pa.Table]:
        layout = self.layout
        windows = layout.keyed_windows
        records = batch.arrived() if session_batch.applies(layout) else batch.records()
        if records is not None and batch.needed is not None:
            batch.needed.add(ints(records["ts"]), ints(arrival_times(records)))
        # At the end of the input no window stays open, however long its grace.
        after: Any = np.inf if closes_at == MAX_MS else windows.open_from_ms(closes_at)
        opens = Opens(windows.open_from_ms(batch.closed_through), after)
        stored = window_forms.for_batch(layout, state, opens, records)
        # Updates have one order over all keys, so only final results come in several parts.
        parts = stored.parts(records, divides=layout.op.emits == "final" and sliding_batch.applies(layout, batch))
        out: list[pa.Table] = []
        late: _Late = []
        for part in parts.with_records:
            rows, dropped = _process_part(layout, state, batch, part, opens)
            out += rows
            places = part.places
            late += dropped if places is None else [(int(places[i]), start, end) for i, start, end in dropped]
        batch.late, batch.dropped_late = sorted(late, key=itemgetter(0)), len(late)
        return _emitted(layout, state, batch, stored, parts.closing, out, opens)

    def open_windows(self, state: State) -> list[tuple[Window, int]]:
        found: set[Window] = set()
        for rows in self.stored_rows(state):
            found |= set(map(Window, ints(rows["start"]).tolist(), ints(rows["end"]).tolist()))
        return [(window, self.layout.keyed_windows.close_of_end_ms(window.end)) for window in found]

    def newest_record(self, state: State) -> int:
        # A sliding window of a later record may begin after all stored windows, and still have the newest record.
        return max((int(ints(rows["ts"]).max(initial=NEVER)) for rows in self.stored_rows(state)), default=NEVER)

    def count_open(self, state: State) -> OpenWindows:
        return window_forms.between_batches(self.layout, state).count_open()

    def buffered(self, state: State) -> Buffered:
        return window_forms.between_batches(self.layout, state).buffered()

    def stored_rows(self, state: State) -> Iterable[pa.Table]:
        opens = self.layout.keyed_windows.open_from_ms(state.closed_through)
        for rows in window_forms.between_batches(self.layout, state).read():
            yield rows.filter(pa.array(ints(rows["end"]) >= opens))

    def rewrite_from(self, old: Operator, state: State, *, bounded: bool) -> None:
        if bounded != (self.layout.op.buffer is not None):
            window_forms.in_buckets(self.layout, state).begin_anew()


def _emitted(
    layout: Layout,
    state: State,
    batch: Batch,
    stored: StoredWindows,
    closing: Iterable[Part],
    out: list[pa.Table],
    opens: Opens,
) -> Iterator[pa.Table]:
    """The rows `out`, then the rows of the `closing` parts, in at least one part.

    Windows close while the caller takes parts, so their rows are never in memory whole (decision 0014).
    """
    in_order = layout.sorts and layout.op.emits == "final"
    if not in_order:
        yield from out or [results.concat(layout, [])]
    for part in closing:
        rows, _ = _process_part(layout, state, batch, part, opens)
        if in_order:
            out += rows
        else:
            yield from rows
    window_forms.adapt_form(stored)
    if in_order:
        yield results.in_order(layout, results.concat(layout, out)) if len(out) > 1 else results.concat(layout, out)


def _process_part(layout: Layout, state: State, batch: Batch, part: Part, opens: Opens) -> tuple[list[pa.Table], _Late]:
    """The rows that the keys of a part emit, and its late records, by their places in `part.records`."""
    loaded = part.load()
    applied = _apply_records(layout, loaded, part.records, batch)
    rows, updates, entries = applied.rows, applied.updates, loaded.entries
    if entries is not None:
        open_before = entries.filter(pa.array(ints(entries["end"]) >= opens.before))
        began = prior_values.of(layout, updates, batch.made)
        begins = prior_values.begin_again(layout, updates, batch.made)
        entries = keyed_strict_bound.check(
            layout, state, open_before, updates, began, begins, applied.closing_times, loaded.unread
        )
    out = [results.for_kind(layout, "updates", updates)] if layout.op.emits != "final" and updates.num_rows else []
    if layout.op.emits != "updates":
        ends = ints(rows["end"])
        # Windows that closed before this batch were emitted; sliding windows stay stored after that (sliding.kept).
        leaving = rows.filter(pa.array((ends < opens.after) & (ends >= opens.before)))
        out += [results.for_kind(layout, "final", leaving, layout.sorts)] if leaving.num_rows else []
    part.store(loaded, rows.filter(pa.array(kept(layout, rows, opens.after))), entries)
    return out, applied.late


@dataclass(frozen=True)
class _Applied:
    """The result of records.

    rows           the windows behind the records
    updates        the windows that the records changed, in the order of emission
    late           the late records
    closing_times  the closing time of the record of each update (ms), if each record is applied by itself
    """

    rows: pa.Table
    updates: pa.Table
    late: _Late
    closing_times: Ints


def _apply_records(layout: Layout, loaded: Loaded, records: pa.Table | None, batch: Batch) -> _Applied:
    """Apply records to the windows of their keys. Sets `batch.made`."""
    if records is None:
        return _Applied(loaded.rows, loaded.rows.slice(0, 0), [], np.zeros(0, np.int64))
    stored_codes, new = grouping.codes_of_tables(layout.keys, [loaded.rows, records])
    place = np.arange(len(new))
    touched = np.isin(stored_codes, new)
    untouched = loaded.rows.filter(pa.array(~touched))
    mine, stored_codes = loaded.rows.filter(pa.array(touched)), stored_codes[touched]
    if session_batch.applies(layout):
        whole, rest, in_order = session_batch.apply(layout, mine, stored_codes, records, new)
        untouched = concat_tables([untouched.select(whole.schema.names), whole])
        mine, stored_codes = mine.filter(pa.array(rest)), stored_codes[rest]
        order = batch.order(records) if in_order.any() else place[:0]
        place = np.flatnonzero(in_order[order])
        records, new = records.take(pa.array(order[place])).drop_columns(["chunk", "offset"]), new[order[place]]
    at_once: sliding_batch.AtOnce | None = None
    if sliding_batch.applies(layout, batch):
        at_once = sliding_batch.apply(layout, mine, stored_codes, records, new)
    if at_once is not None:
        untouched = concat_tables([untouched.select(at_once.rows.schema.names), at_once.rows])
        mine, stored_codes = mine.filter(pa.array(at_once.rest_stored)), stored_codes[at_once.rest_stored]
        place = np.flatnonzero(at_once.rest)
        records, new = records.take(pa.array(place)), new[place]
    rows, updates, late = _one_by_one(layout, mine, stored_codes, records, new, batch)
    rows = concat_tables([untouched, rows.select(untouched.schema.names)]) if untouched.num_rows else rows
    late = [(int(place[i]), start, end) for i, start, end in late]
    closing_times = ints(records["closing_time"])[updates.record]
    if at_once is None:
        return _Applied(rows, updates.table, late, closing_times)
    late = sorted(late + at_once.late, key=itemgetter(0))
    return _Applied(rows, _in_order(layout, updates, place, at_once), late, closing_times)


@dataclass(frozen=True)
class _Updates:
    """Updates in the order of emission, and the record that made each."""

    table: pa.Table
    record: Ints


def _one_by_one(
    layout: Layout, mine: pa.Table, stored_codes: Ints, records: pa.Table, new: Ints, batch: Batch
) -> tuple[pa.Table, _Updates, _Late]:
    """The windows behind records that are applied one by one, their updates, and the late records."""
    aggregates: Aggregates = Functions(layout, mine, records) if layout.op.function else Lineage(layout, mine, records)
    counted = prior_values.counted(layout)
    every = layout.op.every_update or batch.single
    entries, updates, late = _replay(layout, mine, stored_codes, records, new, aggregates, every or counted)
    keys = records.select(layout.keys)
    rows = aggregates.table(keys, [Update(record, entry) for record, entry in entries])
    stored = set(zip(stored_codes.tolist(), ints(mine["start"]).tolist(), ints(mine["end"]).tolist(), strict=True))
    emitted = updates if every else _last_updates(updates, new, stored)
    if counted:
        began = prior_values_of_made(layout, aggregates, keys, updates)
        batch.made = MadeWindows(began, made_again(layout, keys, emitted))
    record = np.array([update.record for update in emitted], np.int64)
    return rows, _Updates(aggregates.table(keys, emitted), record), late


def _in_order(layout: Layout, updates: _Updates, place: Ints, at_once: sliding_batch.AtOnce) -> pa.Table:
    """The updates made one by one and `at_once` in one order: by record, or with caching by timestamp first."""
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
    """Apply records one by one. Returns the windows, each with a record of its key; the updates; and the late records.

    The updates are `every` one, or the last of each window. There are none if the plan emits only final results and has
    no bounded buffer.
    """
    windows = layout.keyed_windows
    kind: Any = sessions if isinstance(windows, SessionWindows) else sliding
    by_key: dict[int, Entries] = {}
    columns = (ints(mine[name]).tolist() for name in ("start", "end", "ts"))
    for i, (code, start, end, ts) in enumerate(zip(mine_codes.tolist(), *columns, strict=True)):
        by_key.setdefault(code, Entries()).put(kind.place(start, end), Entry(start, end, ts, aggregates.stored(i)))
    updates: list[Update] = []
    last: dict[Any, Update] = {}
    wanted = layout.op.emits != "final" or layout.op.buffer is not None
    witness: dict[int, int] = {}  # one record of each key, for its key columns
    late: _Late = []
    times, closing_times = ints(records["ts"]).tolist(), ints(records["closing_time"]).tolist()
    for i, (code, ts, now) in enumerate(zip(codes.tolist(), times, closing_times, strict=True)):
        witness.setdefault(code, i)
        entries = by_key.setdefault(code, Entries())
        changed, dropped = kind.apply(windows, entries, ts, windows.open_from_ms(now), _Adder(aggregates, i))
        late += [(i, *window) for window in dropped]
        if every:
            updates += [Update(i, entry) for entry in changed]
        elif wanted:
            for entry in changed:
                name = (code, entry.start, entry.end)
                last.pop(name, None)
                last[name] = Update(i, entry)
    windows_after = [(witness[code], entries.at[at]) for code, entries in by_key.items() for at in entries.places]
    return windows_after, updates if every else list(last.values()), late


class _Adder:
    """Adds one record to aggregates."""

    def __init__(self, aggregates: Aggregates, record: int) -> None:
        self._aggregates = aggregates
        self._record = record

    def __call__(self, window: tuple[int, int], node: Any, fresh: bool) -> Any:
        return self._aggregates.add(self._record, window, node, fresh)

    def join(self, window: tuple[int, int], nodes: Sequence[Any]) -> Any:
        return self._aggregates.join(self._record, window, nodes)


def _last_updates(updates: list[Update], codes: Ints, stored: set[Any]) -> list[Update]:
    """The updates emitted with caching: the last of each key and window (SEMANTICS 13), in timestamp order."""
    last: dict[Any, Update] = {}
    for update in updates:
        name = (int(codes[update.record]), update.entry.start, update.entry.end)
        last.pop(name, None)
        last[name] = update
    # A window created and removed within the batch gives no update.
    kept = [u for name, u in last.items() if u.entry.node is not None or name in stored]
    return sorted(kept, key=lambda u: u.entry.ts)
