"""The windows of keys as versions by the hash of the key (`state.keyed_runs`): a batch reads those of its keys.

A window of a key is named by its start. A changed window is a version; so is a removed window, which went into another
session or was deleted by a function. A window that has closed needs no version: its end says so. A log has the times at
which windows must be looked at (`windows.closing_times`), the meta frame the number of open windows.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
import pyarrow as pa

from tidegate.instants import MAX_MS
from tidegate.kernel.columns.arrays import Flags, Hashes, Ints, array, concat_tables, ints
from tidegate.kernel.columns.hash64 import from_upper_half, upper_half
from tidegate.kernel.operator import OpenWindows
from tidegate.kernel.rows import grouping
from tidegate.kernel.rows.layout import Layout
from tidegate.kernel.rows.results import marked_live
from tidegate.kernel.state.keyed_runs import KeyedRuns, last_versions
from tidegate.kernel.state.state import State
from tidegate.kernel.suppress.suppression_metrics import Buffered
from tidegate.kernel.windows import sliding
from tidegate.kernel.windows.closing_times import ClosingTimes
from tidegate.kernel.windows.stored_windows import Loaded, Opens, Parts, kept, no_windows, open_ms
from tidegate.spec.windows import SessionWindows, SlidingWindows

_USELESS = 8
"""Stored versions are compacted when they are this many times the windows that are still needed."""

_STEPS = 8
"""Steps per time difference in the counts of windows that outlive their close."""

_LOOKED_AT = "looked_at"


@dataclass(frozen=True)
class WindowsByKey:
    """The windows of a task."""

    layout: Layout
    state: State
    opens: Opens
    versions: KeyedRuns
    closing: ClosingTimes

    @classmethod
    def of(cls, layout: Layout, state: State, opens: Opens) -> WindowsByKey:
        """The windows of a state; none if it has them in buckets."""
        # Windows that close in this batch may be read after they were written.
        current = partial(_current, layout, opens.before)
        versions = KeyedRuns.of(state.by_key, state.by_key.store, current, state.evolution)
        return cls(layout, state, opens, versions, ClosingTimes.of(state, open_ms(layout)))

    def parts(self, records: pa.Table | None, divides: bool) -> Parts:
        due, most = self.closing.take_due(self.opens.after), self.layout.tuning.part_records
        if records is None:
            together, own = list[_Keys](), np.zeros(0, np.uint64)
        else:
            own = grouping.key_hash(self.layout, records)
            divided = divides and records.num_rows > most
            together = self._divided(records, own, most) if divided else [_Keys(self, own, records)]
        due = due[~np.isin(due, from_upper_half(upper_half(own)))]
        if self.layout.sorts and self.layout.op.emits == "both":
            # All final results leave in one order, behind the updates.
            return Parts([_Keys(self, np.concatenate((own, due)), records)])
        pieces = range(0, len(due), max(1, self.layout.tuning.part_rows))
        return Parts(together, [_Keys(self, due[at : at + self.layout.tuning.part_rows], None) for at in pieces])

    def read(self) -> Iterator[pa.Table]:
        for rows in self.versions.read():
            yield self._shown(rows)

    def count_open(self) -> OpenWindows:
        many = self.state.open_windows
        closes = self.layout.keyed_windows.close_of_end_ms(self.closing.earliest())
        return OpenWindows(many, closes if many else None)

    def buffered(self) -> Buffered:
        size = self.state.by_key.totals().size
        return Buffered(self.state.open_windows, size, size)

    def put(self, rows: pa.Table) -> None:
        """Store windows of keys that have none so far."""
        none = Loaded(self._shown(self._none()), looked_at=np.zeros(0, np.int64))
        self.store(none, rows, None)

    def take_all(self) -> pa.Table:
        """Remove all windows from the store. Returns those still needed."""
        found = self.read() if self.opens.after < np.inf else ()
        rows = concat_tables([self._shown(self._none()), *found])
        self.forget()
        return rows.filter(pa.array(kept(self.layout, rows, self.opens.after)))

    def forget(self) -> None:
        """Drop all windows."""
        self.versions.forget()
        self.closing.forget()
        self.state.open_windows = 0
        self.state.outlived = {}

    @property
    def useful(self) -> int:
        """The number of windows still needed, rather too high than too low."""
        reached = self.opens.after
        self.state.outlived = {until: many for until, many in self.state.outlived.items() if until >= reached}
        return self.state.open_windows + sum(self.state.outlived.values())

    def tidy(self) -> None:
        """Drop versions that no longer count, if most do not."""
        useful = max(self.useful, self.layout.tuning.whole_rows)
        if self.state.by_key.totals().rows > _USELESS * useful:
            replace(self.versions, current=partial(_current, self.layout, self.opens.after)).reduce()

    def load(self, hashes: Hashes) -> Loaded:
        """The windows of the keys with these hashes, and perhaps of some other keys."""
        rows = _current(self.layout, self.opens.before, concat_tables([self._none(), *self.versions.find(hashes)]))
        looked_at = ints(rows[_LOOKED_AT] if self._can_go_on else rows["end"])
        return Loaded(self._shown(rows), looked_at=looked_at)

    def store(self, loaded: Loaded, rows: pa.Table, records: pa.Table | None) -> None:
        """Replace the `loaded` windows by `rows`; `records` are the records of the batch that changed them."""
        assert loaded.looked_at is not None
        before, opens = loaded.rows, self.opens
        tables = [before, rows] if records is None else [before, rows, records]
        of_before, of_rows, *of_records = grouping.codes_of_tables(self.layout.keys, tables)
        known, names = _names([of_before, of_rows], [before, rows])
        was = grouping.places(names, known)
        ends, fresh = ints(rows["end"]), was < 0
        changed = fresh.copy()
        if records is not None:
            (of_batch,) = of_records
            changed |= _met(of_rows, ints(rows["start"]), ends, of_batch, ints(records["ts"]))
        is_open = ends >= opens.after
        looked_at = np.where(fresh, ends, np.append(loaded.looked_at, 0)[was])
        # A function may delete a session, and the next record may begin a session there that ends earlier.
        again = is_open & (fresh | (looked_at < opens.after) | (looked_at > ends))
        looked_at = np.where(again, ends, looked_at)
        changed |= again
        removed = kept(self.layout, before, opens.after) & ~np.isin(known, names)
        versions = concat_tables(
            [
                self._versions(rows.filter(pa.array(changed)), looked_at[changed], False),
                self._versions(before.filter(pa.array(removed)), loaded.looked_at[removed], True),
            ]
        )
        hashes = grouping.key_hash(self.layout, versions)
        more = np.append(fresh[changed].astype(np.int64), np.full(int(removed.sum()), -1))
        if versions.num_rows:
            self.versions.add(versions, hashes, more)
        noted = again[changed]
        self.closing.add(hashes[: len(noted)][noted], ends[again], opens.after)
        self._count(before, is_open)

    def _count(self, before: pa.Table, is_open: Flags) -> None:
        """Update the counts of open windows and of windows that outlive their close, given the windows `before`."""
        was_open = ints(before["end"]) >= self.opens.before
        self.state.open_windows += int(is_open.sum()) - int(was_open.sum())
        outlives = int((~is_open).sum()) - int((kept(self.layout, before, self.opens.after) & ~was_open).sum())
        if outlives:
            windows = self.layout.keyed_windows
            assert isinstance(windows, SlidingWindows)
            until = int(self.opens.after) + sliding.needed_ms(windows)
            step = max(1, windows.time_difference_ms // _STEPS)
            until = (until // step + 1) * step
            self.state.outlived[until] = self.state.outlived.get(until, 0) + outlives

    @property
    def _can_go_on(self) -> bool:
        """Whether the end of a window can change."""
        return isinstance(self.layout.op.windows, SessionWindows)

    def _none(self) -> pa.Table:
        """A table of versions without rows."""
        none = self._versions(no_windows(self.layout), np.zeros(0, np.int64), False)
        return none.append_column("h", pa.array([], pa.int64()))

    def _versions(self, rows: pa.Table, looked_at: Ints, deleted: bool) -> pa.Table:
        found = rows.select(no_windows(self.layout).schema.names)
        if self._can_go_on:
            found = found.append_column(_LOOKED_AT, pa.array(looked_at))
        return found.append_column("deleted", pa.array(np.full(found.num_rows, deleted)))

    def _shown(self, versions: pa.Table) -> pa.Table:
        """Versions that count, as windows."""
        return marked_live(versions.select(no_windows(self.layout).schema.names))

    def _divided(self, records: pa.Table, hashes: Hashes, most: int) -> list[_Keys]:
        """Parts of about `most` records, those of a key together."""
        high = upper_half(hashes)
        _, number, counts = np.unique(high, return_inverse=True, return_counts=True)
        part = ((np.cumsum(counts) - 1) // most)[number]
        each = [np.flatnonzero(part == one) for one in np.unique(part).tolist()]
        return [_Keys(self, hashes[places], records.take(pa.array(places)), places) for places in each]


@dataclass(frozen=True)
class _Keys:
    """A part (`stored_windows.Part`): keys by their hashes."""

    stored: WindowsByKey
    hashes: Hashes
    records: pa.Table | None
    places: Ints | None = None

    def load(self) -> Loaded:
        return self.stored.load(self.hashes)

    def store(self, loaded: Loaded, rows: pa.Table, entries: pa.Table | None) -> None:
        assert entries is None  # in front of a bounded buffer windows are in buckets
        self.stored.store(loaded, rows, self.records)


def _current(layout: Layout, opens: float, versions: pa.Table) -> pa.Table:
    """The versions that count if windows that end from `opens` on are open; `versions` has all versions of its keys."""
    last = last_versions([*layout.keys, "start"], versions)
    return last.filter(pa.array(kept(layout, last, opens)))


def _names(keys: list[Ints], tables: list[pa.Table]) -> list[Ints]:
    """A number for each window, the same for windows of one key with the same start."""
    starts = [
        pa.table({"key": pa.array(key), "start": array(rows["start"])}) for key, rows in zip(keys, tables, strict=True)
    ]
    return grouping.codes_of_tables(["key", "start"], starts)


def _met(keys: Ints, starts: Ints, ends: Ints, of_records: Ints, times: Ints) -> Flags:
    """Flags of the windows that may hold a record: they meet the span of times of the records of their key."""
    room = int(max(keys.max(initial=0), of_records.max(initial=0))) + 1
    first, last = np.full(room, MAX_MS), np.full(room, -1)
    np.minimum.at(first, of_records, times)
    np.maximum.at(last, of_records, times)
    found: Flags = (ends >= first[keys]) & (starts <= last[keys])
    return found
