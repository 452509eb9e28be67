"""The open records of one side of a join, in stretches of timestamps.

A stretch holds sorted runs of (hash of the key, timestamp), one for each batch that brought records of it; runs are
merged as in a binary counter, so that n batches leave at most log2(n) of them and a record is rewritten as rarely. A
stretch is dropped as a whole when its last record has closed. Which records have joined is one bit each, kept beside
the runs of a preserved side (`state.tables.MATCHED_SEGMENT`).

        stretch [0, 10 s)    run of 4 batches | run of 2 | run of 1       bits
        stretch [10, 20 s)   run of 2 | run of 1                          bits
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tidegate.instants import MAX_MS
from tidegate.kernel.columns.arrays import Ints, array, concat_tables, ints
from tidegate.kernel.state import frames
from tidegate.kernel.state.log_index import Log, LogIndex
from tidegate.kernel.state.state import State
from tidegate.kernel.state.store import Section
from tidegate.kernel.state.tables import MATCHED_SEGMENT, OPEN_LEFT, OPEN_RIGHT
from tidegate.spec.windows import LEFT, JoinWindows

Bools = npt.NDArray[np.bool_]

STRETCHES = 4
"""So many stretches span the time for which a record is open."""

MERGED_ROWS = 1_000_000
"""Runs that together have more rows than this are not merged."""


def width_ms(windows: JoinWindows) -> int:
    """How long the stretches are that new records go to."""
    return max(1, (windows.before_ms + windows.after_ms + windows.grace_ms) // STRETCHES)


@dataclass(frozen=True)
class OpenRecords:
    """Stretches by the timestamp at which they start. `preserved`: whether it is known which records have joined.

    The index has of each stretch: `closes`, its largest timestamp; `due`, the smallest one of a record that is open;
    `counts`, how many batches brought records of it.
    """

    index: LogIndex
    store: Section
    preserved: bool

    @classmethod
    def of(cls, state: State, side: int, preserved: bool) -> OpenRecords:
        """The open records of a side in the state of a join."""
        index, table = (state.logs, OPEN_LEFT) if side == LEFT else (state.right, OPEN_RIGHT)
        return cls(index, Section(state.store, table), preserved)

    def between(self, first: int, last: int) -> list[int]:
        """The stretches that may have open records from the timestamp `first` to `last`."""
        return [start for start, log in self.index.items() if log.due <= last and log.closes >= first]

    def read(self, start: int) -> pa.Table:
        """The records of a stretch, run by run."""
        return concat_tables(list(self.runs(start)))

    def runs(self, start: int) -> Iterator[pa.Table]:
        """The runs of a stretch one after the other, each sorted by (hash of the key, timestamp)."""
        for number in range(self.index[start].segments):
            yield _rows(self.store.read(start, number))

    def matched(self, start: int) -> Bools:
        """Whether each record of a stretch has joined."""
        flags = _rows(self.store.read(start, MATCHED_SEGMENT))
        found: Bools = array(flags["matched"]).to_numpy(zero_copy_only=False)
        return found

    def mark(self, start: int, matched: Bools) -> None:
        """Say which records of a stretch have joined."""
        table = pa.table({"matched": pa.array(matched)})
        self.store.write(start, MATCHED_SEGMENT, frames.encode(frames.SEGMENT, {}, table))

    def add(self, start: int, rows: pa.Table, matched: Bools) -> None:
        """Take the records that a batch brought for a stretch, in the order in which they came."""
        log = self.index.get(start) or Log()
        flags = self.matched(start) if self.preserved and log.segments else np.zeros(0, bool)
        merged = gone = 0
        runs = [rows]
        # The binary counter: each of the lowest ones of the count is a run that the new one is merged with.
        while log.counts >> merged & 1 and sum(run.num_rows for run in runs) <= MERGED_ROWS and merged < log.segments:
            merged += 1
            frame = self.store.read(start, log.segments - merged)
            runs.insert(0, _rows(frame))
            gone += len(frame)
        whole = concat_tables(runs)
        tail = whole.num_rows - rows.num_rows
        order = np.lexsort((ints(whole["ts"]), ints(whole["h"])))
        frame = frames.encode(frames.SEGMENT, {}, whole.take(pa.array(order)))
        self.store.write(start, log.segments - merged, frame)
        for number in range(log.segments - merged + 1, log.segments):
            self.store.remove(start, number)
        if self.preserved:
            kept = log.rows - tail
            self.mark(start, np.concatenate([flags[:kept], np.concatenate([flags[kept:], matched])[order]]))
        times = ints(rows["ts"])
        self.index[start] = log._replace(
            segments=log.segments - merged + 1,
            rows=log.rows + rows.num_rows,
            size=log.size - gone + len(frame),
            counts=log.counts + 1,
            closes=int(times.max()) if not log.segments else max(log.closes, int(times.max())),
            due=min(log.due, int(times.min())),
        )

    def opened_from(self, start: int, timestamp: int) -> None:
        """Say that no record of a stretch before `timestamp` is open any more."""
        log = self.index[start]
        self.index[start] = log._replace(due=max(log.due, timestamp))

    def forget(self, start: int) -> None:
        """Drop a stretch, whose records have all closed."""
        log = self.index.pop(start)
        assert log is not None
        for number in range(log.segments):
            self.store.remove(start, number)
        if self.preserved:
            self.store.remove(start, MATCHED_SEGMENT)

    @property
    def first_open(self) -> int | None:
        """The smallest timestamp of a record that is open, None if none is."""
        due = self.index.totals().due
        return None if due == MAX_MS else due


def _rows(frame: bytes) -> pa.Table:
    return frames.decode(frames.SEGMENT, frame)[1][0]


def stretches(times: Ints, width: int) -> Ints:
    """The stretch of each timestamp."""
    return times - times % width


def with_hashes(run: pa.Table, hashes: Ints) -> Ints:
    """Where a run has records with one of these hashes, which are sorted and different."""
    stored = ints(run["h"])
    low = np.searchsorted(stored, hashes, side="left")
    counts = np.searchsorted(stored, hashes, side="right") - low
    ends = np.cumsum(counts)
    found: Ints = np.repeat(low - (ends - counts), counts) + np.arange(int(counts.sum()))
    return found
