"""The open records of one side of a join, in stretches of timestamps.

A stretch holds runs sorted by (hash of the key, timestamp) (`state.sorted_runs`). It is dropped as a whole when its
last record has closed. On a preserved side the records of a stretch are numbered in order of arrival. The numbers of
joined records are lists of their own, merged like runs: a pair rewrites neither records nor the lists of earlier pairs.

        stretch [0, 10 s)    run of 4 batches | run of 2 | run of 1       joined: list of 2 batches | list of 1
        stretch [10, 20 s)   run of 2 | run of 1                          joined: list of 1
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tidegate.instants import MAX_MS, later_ms
from tidegate.kernel.columns.arrays import Flags, Ints, concat_tables, ints
from tidegate.kernel.columns.runs import coarser, unique
from tidegate.kernel.state import frames
from tidegate.kernel.state.copies import Numbers, Run, distinct, upper_halves
from tidegate.kernel.state.log_index import Log, LogIndex
from tidegate.kernel.state.run_merging import InTable, Sorted
from tidegate.kernel.state.sorted_runs import Contents, Part, SortedRuns, unmerged
from tidegate.kernel.state.state import State
from tidegate.kernel.state.store import Section
from tidegate.kernel.state.tables import OPEN_LEFT, OPEN_RIGHT, joined_segment
from tidegate.kernel.tuning import Tuning
from tidegate.spec.windows import LEFT

_ORDER = ("h", "ts")


class Closing(NamedTuple):
    """A range of closing times: after `after`, up to `up_to`. A record closes `reach_ms` past its timestamp (ms)."""

    after: int
    up_to: int
    reach_ms: int


@dataclass(frozen=True)
class OpenRecords:
    """Stretches by the timestamp at which they start. `preserved`: whether the joined records are known.

    The index has for each stretch `closes`, its largest timestamp, and `due`, the smallest timestamp of an open record.
    """

    index: LogIndex
    runs: SortedRuns
    preserved: bool

    @classmethod
    def of(cls, state: State, side: int, preserved: bool) -> OpenRecords:
        """The open records of a side in the state of a join."""
        index, table = (state.logs, OPEN_LEFT) if side == LEFT else (state.right, OPEN_RIGHT)
        return cls(index, SortedRuns(Section(state.store, table), _ORDER), preserved)

    @property
    def _tuning(self) -> Tuning:
        return self.runs.tuning

    def stretches(self, times: Ints, open_ms: int) -> Ints:
        """The stretches of the records of a batch, at these times; `open_ms`: how long a record is open.

        Records that wait for a slow side may span hours where windows are short. Then stretches are wider, because to
        store and to drop a stretch costs as much as hundreds of records.
        """
        width = max(1, open_ms // self._tuning.open_stretches)
        starts = coarser(times // width, self._tuning.batch_stretches) * width
        # None begins before the last record of another: records of one timestamp lie in one, in order of arrival.
        before = self.index.floors(times)
        names = unique(before)
        stored = [self.index.get(name) for name in names.tolist()]
        newest = np.array([-1 if log is None else log.closes for log in stored], np.int64)
        # A search among few names takes a tenth of the time that np.unique takes for the inverse.
        return np.where((before <= times) & (starts <= newest[np.searchsorted(names, before)]), before, starts)

    def between(self, first: int, last: int) -> list[int]:
        """The stretches that may have open records from the timestamp `first` to `last`."""
        return [start for start in self.index.due_before(last + 1) if self.index[start].closes >= first]

    def due(self, up_to: int, reach_ms: int) -> list[int]:
        """The stretches that may have open records which close by `up_to`: `reach_ms` past their timestamps (ms)."""
        return self.index.due_before(np.inf if up_to == MAX_MS else up_to - reach_ms + 1)

    def read(self, start: int) -> pa.Table:
        """The records of a stretch, run by run; on a preserved side with their numbers, `n`."""
        return concat_tables(list(self.runs.read(start)))

    def find(self, start: int, hashes: Ints) -> Iterator[pa.Table]:
        """The records of a stretch with these ascending hashes, each once. Some other records may be among them.

        The hashes alone decide which other records.
        """
        for run in self.runs.every(start):
            yield run.take(run.with_hashes(hashes))

    def closing(self, start: int, closing: Closing, besides: Ints | None) -> Iterator[pa.Table]:
        """The closing records of a stretch, some at a time, without those that `find` gives for hashes `besides`."""
        known = None if besides is None else distinct(upper_halves(besides))
        block: list[pa.Table] = []
        for part in self._closing(start, closing):
            rows = part if known is None else part.filter(pa.array(~_among(upper_halves(ints(part["h"])), known)))
            block += [rows] if rows.num_rows else []
            if sum(one.num_rows for one in block) >= self._tuning.block_rows:
                yield concat_tables(block)
                block.clear()
        if block:
            yield concat_tables(block)

    def _closing(self, start: int, closing: Closing) -> Iterator[pa.Table]:
        step = self._tuning.block_rows
        all_close = int(later_ms(self.index[start].closes, closing.reach_ms)) <= closing.up_to
        for run in self.runs.every(start):
            if isinstance(run, Run) and (run.by_time is not None or not all_close):
                leaving = run.closing(*closing)
                yield from (run.take(leaving[low : low + step]) for low in range(0, len(leaving), step))
                continue
            # A run that closes whole is read only once more: an order by time would not pay.
            for low in range(0, len(run.high), step):
                rows = run.part(low, min(low + step, len(run.high)))
                closes = later_ms(ints(rows["ts"]), closing.reach_ms)
                yield rows.filter(pa.array((closes > closing.after) & (closes <= closing.up_to)))

    def first_behind(self, start: int, timestamp: int) -> int:
        """The smallest timestamp of the records of a stretch that is larger than `timestamp`; there must be one."""
        found = []
        for run in self.runs.every(start):
            if isinstance(run, Run):
                times = run.in_order_by_time()[0]
            else:
                times = np.sort(ints(run.part(0, len(run.high))["ts"]))
            found += times[np.searchsorted(times, timestamp, side="right") :][:1].tolist()
        return int(min(found))

    def joined(self, start: int, numbers: Ints) -> Flags:
        """Whether each record of a stretch with one of these numbers has joined."""
        found = np.zeros(len(numbers), bool)
        for at, part in enumerate(self.runs.contents(start).joined):
            found |= self._list(start, at, part).have(numbers)
        return found

    def add(self, start: int, rows: pa.Table) -> int:
        """Add records of a batch to a stretch, in order of arrival.

        Returns the number of the first one; the others follow.
        """
        log = self.index.get(start) or Log()
        contents = self.runs.contents(start) if log.segments else Contents([], [])
        first = log.rows
        if self.preserved:
            rows = rows.append_column("n", pa.array(first + np.arange(rows.num_rows)))
        count, times = rows.num_rows, ints(rows["ts"])
        oldest, newest = int(times.min()), int(times.max())
        kept, merged = unmerged(contents.runs, count, self._tuning.merged_rows)
        runs: list[Sorted] = [self.runs.run(start, kept + at, part) for at, part in enumerate(merged)]
        runs.append(InTable.of(rows, _ORDER))
        del rows, times  # so that the merge has the only reference and can free them
        segments = range(kept, kept + max(1, len(merged)))
        part = self.runs.write(start, segments, merged, *self.runs.merged(runs))
        self.runs.say(start, Contents([*contents.runs[:kept], part], contents.joined))
        self.index[start] = log._replace(
            segments=kept + 1,
            rows=log.rows + count,
            size=log.size - sum(one.size for one in merged) + part.size,
            closes=newest if not log.segments else max(log.closes, newest),
            due=min(log.due, oldest),
        )
        return first

    def mark(self, start: int, numbers: Ints) -> None:
        """Note that the records of a stretch with these numbers have joined."""
        contents = self.runs.contents(start)
        kept, merged = unmerged(contents.joined, len(numbers), self._tuning.merged_rows)
        parts = [self._list(start, kept + at, part).all() for at, part in enumerate(merged)]
        whole = distinct(np.sort(np.concatenate([*parts, numbers])))
        segments = [joined_segment(kept + at) for at in range(max(1, len(merged)))]
        frame = frames.encode(frames.SEGMENT, {}, pa.table({"after": np.diff(whole, prepend=0)}))
        part = self.runs.replace(start, segments, merged, frame, len(whole))
        self.runs.hold(start, part, Numbers.of(whole))
        self.runs.say(start, Contents(contents.runs, [*contents.joined[:kept], part]))

    def opened_from(self, start: int, timestamp: int) -> None:
        """Note that no record of a stretch before `timestamp` is open any more."""
        log = self.index[start]
        self.index[start] = log._replace(due=max(log.due, timestamp))

    def forget(self, start: int) -> None:
        """Drop a stretch, whose records have all closed."""
        contents = self.runs.contents(start)
        for at, part in enumerate(contents.joined):
            self.runs.store.remove(start, joined_segment(at))
            self.runs.copies.drop(part.digest)
        self.runs.forget(start, contents.runs)
        self.index.pop(start)

    @property
    def first_open(self) -> int | None:
        """The smallest timestamp of a record that is open, None if none is."""
        due = self.index.totals().due
        return None if due == MAX_MS else due

    # -- segments ----------------------------------------------------------------------------------------------------

    def _list(self, start: int, at: int, part: Part) -> Numbers:
        known = self.runs.copies.get(part.digest)
        if not isinstance(known, Numbers):
            known = Numbers.of(np.cumsum(ints(self.runs.decoded(start, joined_segment(at))["after"])))
            self.runs.hold(start, part, known)
        return known


def _among(numbers: npt.NDArray[np.int32], known: npt.NDArray[np.int32]) -> Flags:
    """Whether each number is in `known`, which ascends."""
    if not len(known):
        return np.zeros(len(numbers), bool)
    found: Flags = known[np.minimum(np.searchsorted(known, numbers), len(known) - 1)] == numbers
    return found
