"""Rows that wait for a time limit, in buckets by buffer time: a batch touches the buckets of its keys and due buckets.

A time bucket is a log of rows whose entries begin to wait in one stretch of time. An update of a buffered key is
appended to the bucket of the key, which is not read. A due bucket is read; its rows, in order, give the waiting entries
and their buffer times. An index gives the bucket of each key (`kernel.suppress.key_index`). All rows of keys with the
same number there are in one bucket, so two keys that share a number lose or repeat no row.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import groupby
from operator import itemgetter
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from tidegate.instants import MAX_MS, later_ms
from tidegate.kernel.columns.arrays import Hashes, Ints, concat_tables, ints, with_column
from tidegate.kernel.columns.runs import first_of_run, last_of_run
from tidegate.kernel.state.log_index import Log
from tidegate.kernel.state.state import State
from tidegate.kernel.state.store import Section, Store
from tidegate.kernel.state.tables import TIME_BUCKETS
from tidegate.kernel.suppress.key_index import NOWHERE, Index
from tidegate.spec.columns import OURS

BUFFER_TIME = OURS + "buffer_time"
"""The column with the buffer time of a row in a bucket (ms)."""

_TOO_MANY = 8
"""Times as many buckets as a limit has in an empty buffer: a longer limit has wider buckets."""


@dataclass
class TimeBuckets:
    """The buckets of one task; `logs` has one per number, with the earliest buffer time of its rows in `base`.

    `waits` of a log is the number of its keys. A key whose number in the index is that of another key counts when their
    bucket is due.
    """

    store: Store
    width: int = 0
    logs: dict[int, Log] = field(default_factory=dict)
    index: Index = field(default_factory=Index)

    @property
    def keys(self) -> int:
        """The number of waiting keys."""
        return sum(log.waits for log in self.logs.values())

    @classmethod
    def load(cls, store: Store, meta: dict[str, Any]) -> TimeBuckets:
        """The buckets that `saved` described as `meta`."""
        logs = {
            number: Log(segments, rows, base, size, waits=waits)
            for (number, segments, rows, base, size), waits in zip(meta["buckets"], _waits(meta), strict=True)
        }
        return cls(store, meta["width"], logs, Index(**meta["index"]))

    def saved(self) -> dict[str, Any]:
        """The index of the buckets, for the meta of a frame; the rows are in the store."""
        index = self.index.saved()
        buckets = [[number, log.segments, log.rows, log.base, log.size] for number, log in self.logs.items()]
        waits = [log.waits for log in self.logs.values()]
        return {"buckets": buckets, "width": self.width, "index": index, "keys": self.keys, "waits": waits}

    def find(self, hashes: Hashes) -> Ints:
        """The bucket of each key, NOWHERE if none of its rows waits."""
        found = self.index.find(self.store, hashes)
        live = np.isin(found, np.array(list(self.logs), np.int64))
        return np.where(live, found, NOWHERE)

    def due(self, until: int) -> list[int]:
        """The buckets that may have rows with a buffer time of at most `until`."""
        return sorted(number for number, log in self.logs.items() if log.base <= until)

    def earliest(self) -> int | None:
        """A lower bound of all buffer times (ms); None if no row waits."""
        return min((log.base for log in self.logs.values()), default=None)

    def read(self, numbers: list[int]) -> list[pa.Table]:
        """The rows of these buckets, in the order in which they came."""
        return [table for number in numbers for table in self._state(number).read(number)]

    def forget(self, numbers: list[int]) -> None:
        """Remove these buckets."""
        for number in numbers:
            self._state(number).forget(number)
            del self.logs[number]
        if not self.logs:
            self.index.clear(self.store)

    def append(self, numbers: Ints, rows: pa.Table) -> list[int]:
        """Append each row to its bucket. Returns the buckets that should be compacted."""
        order = np.argsort(numbers, kind="stable")
        names, starts = np.unique(numbers[order], return_index=True)
        ends = [*starts[1:].tolist(), len(order)]
        rows = rows.take(pa.array(order))
        for number, low, high in zip(names.tolist(), starts.tolist(), ends, strict=True):
            mine = rows.slice(low, high - low)
            earliest = min(
                int(ints(mine[BUFFER_TIME]).min()), self.logs[number].base if number in self.logs else MAX_MS
            )
            state = self._state(number)
            state.append(number, mine)
            self.logs[number] = state.logs[number]._replace(base=earliest)
        most = self.store.tuning.bucket_segments
        return [n for n in names.tolist() if self.logs[n].segments > most + n % most]

    def widen(self, limit_ms: int) -> None:
        """Merge buckets if the limit has become so long that it would have too many of their width.

        All rows of a bucket go to the same wider bucket, so the index only gets other numbers.
        """
        width = self._width_of(limit_ms)
        if not self.logs or width <= _TOO_MANY * self.width:
            return
        many = self.store.tuning.buckets_per_level
        wider = {number: number * self.width // width // many * many for number in self.logs}
        # Ascending: a wider bucket has no larger number than its parts, so none that is still to be read.
        merged = sorted((into, number) for number, into in wider.items())
        for into, group in groupby(merged, key=itemgetter(0)):
            numbers = [number for _, number in group]
            waits, rows = sum(self.logs[number].waits for number in numbers), concat_tables(self.read(numbers))
            for number in numbers:
                self._state(number).forget(number)
                del self.logs[number]
            self.append(np.full(rows.num_rows, into), rows)
            self.logs[into] = self.logs[into]._replace(waits=waits)
        self.index.rename(wider)
        self.width = width

    def _width_of(self, limit_ms: int) -> int:
        return max(1, limit_ms // self.store.tuning.buckets_per_level**2)

    def place(self, rows: pa.Table, hashes: Hashes, limit_ms: int, opened: list[int]) -> list[int]:
        """Put entries (one row per key) into the buckets of their buffer times, and index their keys.

        Returns the buckets that should be compacted.

        Entries that share a stretch of time with `opened` buckets go into narrow buckets. The number of a bucket is a
        buffer time in narrow widths; a wide bucket has the number of its first narrow one.
        """
        if not rows.num_rows:
            return []
        many = self.store.tuning.buckets_per_level
        if not self.logs:
            self.width = self._width_of(limit_ms)
        narrow = ints(rows[BUFFER_TIME]) // self.width
        wide = narrow // many * many
        numbers = np.where(np.isin(wide, [number // many * many for number in opened]), narrow, wide)
        same, group = np.unique(self.index.short(hashes), return_inverse=True)
        earliest = np.full(len(same), MAX_MS)
        np.minimum.at(earliest, group, numbers)
        numbers = earliest[group]
        moved = self.find(hashes) != numbers
        full = self.append(numbers, rows)
        for number, keys in zip(*(part.tolist() for part in np.unique(numbers, return_counts=True)), strict=True):
            self.logs[number] = self.logs[number]._replace(waits=self.logs[number].waits + keys)
        self.index.add(self.store, hashes[moved], numbers[moved], list(self.logs))
        return full

    def replace(self, number: int, rows: pa.Table) -> None:
        """Replace the rows of a bucket by `rows` of the same keys."""
        before = self.logs[number]
        state = self._state(number)
        state.replace(number, rows)
        self.logs[number] = state.logs[number]._replace(base=before.base, waits=before.waits)

    def _state(self, number: int) -> State:
        """The log of a bucket as the only one of a state."""
        state = State(Section(self.store, TIME_BUCKETS), {}, 1)
        if number in self.logs:
            state.logs[number] = self.logs[number]
        return state


def _waits(meta: dict[str, Any]) -> list[int]:
    """The keys of each bucket. An earlier version stored only their total: then they are in proportion to the rows."""
    if "waits" in meta:
        return list(meta["waits"])
    upto = np.cumsum([0, *(rows for _, _, rows, *_ in meta["buckets"])])
    return np.diff(upto * meta["keys"] // max(int(upto[-1]), 1)).tolist()


class Expired(NamedTuple):
    """Rows that leave: their numbers, the step at which each leaves, and their buffer times (ms)."""

    rows: Ints
    steps: Ints
    since: Ints


class Retained(NamedTuple):
    """Rows that go on waiting: their numbers, and their buffer times (ms)."""

    rows: Ints
    since: Ints


def expire(
    code: Ints, step: Ints, since: Ints, clocks: Ints, limit_ms: int, restarts: bool
) -> tuple[Expired, Retained]:
    """The rows that leave, and those that go on waiting.

    code    a number per row, the same for rows of one key; the rows of a key are in order
    step    the step of each row in the batch; -1 for rows that waited before
    clocks  the clock of the limit after each step, ascending (ms)
    restarts  whether every update begins the wait again; otherwise the first one sets the buffer time

    In a step (SEMANTICS 6.2) the row replaces the waiting row of its key. Then all rows leave whose buffer time is at
    least `limit_ms` ago.
    """
    order = np.argsort(code, kind="stable")
    code, step, since = code[order], step[order], since[order]
    never = len(clocks)
    reached = np.searchsorted(clocks, later_ms(since, limit_ms), side="left")
    leaves_at = np.maximum(reached, np.maximum(step, 0))
    first, last = first_of_run(code), last_of_run(code)
    if restarts:
        replaced_at = np.where(last, never, np.append(step[1:], never)[: len(code)])
        leaves = leaves_at < replaced_at
        stays = last & ~leaves
        return Expired(order[leaves], leaves_at[leaves], since[leaves]), Retained(order[stays], since[stays])
    # With a limit of 0 each row of the batch leaves as it comes: no need to follow the rows of a key one by one.
    alone = (step > 0) & (limit_ms == 0 and bool(np.all(leaves_at == np.maximum(step, 0))))
    expired = [Expired(np.flatnonzero(alone), leaves_at[alone], since[alone])]
    retained = [Retained(np.zeros(0, np.int64), np.zeros(0, np.int64))]
    group = np.cumsum(first)
    place = group * (never + 2) + step + 1
    ends = np.flatnonzero(last) + 1
    at = np.flatnonzero(first & ~alone)
    while len(at):
        upto = np.searchsorted(place, group[at] * (never + 2) + leaves_at[at] + 1, side="right") - 1
        leaves = leaves_at[at] < never
        expired.append(Expired(upto[leaves], leaves_at[at[leaves]], since[at[leaves]]))
        retained.append(Retained(upto[~leaves], since[at[~leaves]]))
        following = upto[leaves] + 1
        inside = following < ends[group[at[leaves]] - 1]
        at = following[inside]
        at = at[~alone[at]]
    gone, rest = (map(np.concatenate, zip(*parts, strict=True)) for parts in (expired, retained))
    rows, steps, times = gone
    waiting, waiting_times = rest
    return Expired(order[rows], steps, times), Retained(order[waiting], waiting_times)


def due_until(clock: int, limit_ms: int) -> int:
    """The latest buffer time (ms) of the rows that leave when the clock of the limit is at `clock`: at the end all."""
    return MAX_MS if clock == MAX_MS else clock - limit_ms


def newest(code: Ints, since: Ints, restarts: bool) -> tuple[Ints, Ints]:
    """The last row of each key, and the buffer time of the key."""
    order = np.argsort(code, kind="stable")
    first, last = order[first_of_run(code[order])], order[last_of_run(code[order])]
    return last, since[last if restarts else first]


def waiting_since(rows: pa.Table, since: Ints) -> pa.Table:
    """The rows with these buffer times."""
    return with_column(rows, BUFFER_TIME, pa.array(since))
