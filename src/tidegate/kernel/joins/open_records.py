"""The open records of one side of a join, in stretches of timestamps.

A stretch holds sorted runs of (hash of the key, timestamp), one for each batch that brought records of it; runs of
about one size are merged, so that n batches leave about log2(n) of them and a record is rewritten as rarely. A stretch
is dropped as a whole when its last record has closed. Of a preserved side the records of a stretch are numbered as they
come, and the numbers of those that have joined are lists of their own, merged in the same way: a pair rewrites neither
a record nor what is known of others.

        stretch [0, 10 s)    run of 4 batches | run of 2 | run of 1       joined: list of 2 batches | list of 1
        stretch [10, 20 s)   run of 2 | run of 1                          joined: list of 1

A small frame says of each stretch which runs and lists it has, with their digests: by these a worker finds its copies
of them (`joins.copies`), so a batch reads the records that it needs and no others.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tidegate.instants import MAX_MS, later_ms
from tidegate.kernel.columns.arrays import Ints, concat_tables, ints
from tidegate.kernel.columns.row_bytes import extents, together
from tidegate.kernel.joins.copies import COPIES, RECORD_BYTES, Numbers, Run, distinct, upper_halves
from tidegate.kernel.joins.run_merging import InTable, Sorted, merged_parts
from tidegate.kernel.state import frames
from tidegate.kernel.state.log_index import Log, LogIndex
from tidegate.kernel.state.state import State
from tidegate.kernel.state.store import Section
from tidegate.kernel.state.tables import CONTENTS_SEGMENT, OPEN_LEFT, OPEN_RIGHT, joined_segment
from tidegate.kernel.tuning import Tuning
from tidegate.spec.windows import LEFT

Bools = npt.NDArray[np.bool_]


class Closing(NamedTuple):
    """Records that close behind one stream time and up to another, so long after their timestamps (ms)."""

    after: int
    up_to: int
    reach_ms: int


class _Part(NamedTuple):
    """A run, or a list of records that have joined: the digest of its frame, how many it has, and its bytes."""

    digest: str
    rows: int
    size: int


@dataclass(frozen=True)
class _Contents:
    """What a stretch has, in the order of its segments."""

    runs: list[_Part]
    joined: list[_Part]


@dataclass(frozen=True)
class OpenRecords:
    """Stretches by the timestamp at which they start. `preserved`: whether it is known which records have joined.

    The index has of each stretch: `closes`, its largest timestamp; `due`, the smallest one of a record that is open.
    """

    index: LogIndex
    store: Section
    preserved: bool
    known: dict[int, _Contents] = field(default_factory=dict)
    """What stretches have, as far as it was read."""

    @classmethod
    def of(cls, state: State, side: int, preserved: bool) -> OpenRecords:
        """The open records of a side in the state of a join."""
        index, table = (state.logs, OPEN_LEFT) if side == LEFT else (state.right, OPEN_RIGHT)
        return cls(index, Section(state.store, table), preserved)

    @property
    def _tuning(self) -> Tuning:
        return self.store.tuning

    def stretches(self, times: Ints, open_ms: int) -> Ints:
        """The stretches that records at these times go to, where a record is open for so long."""
        return times - times % max(1, open_ms // self._tuning.open_stretches)

    def between(self, first: int, last: int) -> list[int]:
        """The stretches that may have open records from the timestamp `first` to `last`."""
        return [start for start, log in self.index.items() if log.due <= last and log.closes >= first]

    def read(self, start: int) -> pa.Table:
        """The records of a stretch, run by run; of a preserved side with their numbers, `n`."""
        runs = (self._run(start, at, part) for at, part in enumerate(self._contents(start).runs))
        return concat_tables([block for run in runs for block in run.blocks()])

    def find(self, start: int, hashes: Ints) -> Iterator[pa.Table]:
        """Of the records of a stretch those with such hashes, which ascend, each once; some others may be among them.

        Which ones these are depends on the hashes alone.
        """
        for run in self._runs(start):
            yield run.take(run.with_hashes(hashes))

    def closing(self, start: int, closing: Closing, besides: Ints | None) -> Iterator[pa.Table]:
        """Of the records of a stretch those that close, some at a time, `besides` those that `find` gives by hashes."""
        known = None if besides is None else distinct(upper_halves(besides))
        held: list[pa.Table] = []
        for part in self._closing(start, closing):
            rows = part if known is None else part.filter(pa.array(~_among(upper_halves(ints(part["h"])), known)))
            held += [rows] if rows.num_rows else []
            if sum(one.num_rows for one in held) >= self._tuning.block_rows:
                yield concat_tables(held)
                held.clear()
        if held:
            yield concat_tables(held)

    def _closing(self, start: int, closing: Closing) -> Iterator[pa.Table]:
        step = self._tuning.block_rows
        all_close = int(later_ms(self.index[start].closes, closing.reach_ms)) <= closing.up_to
        for run in self._runs(start):
            if isinstance(run, Run) and (run.by_time is not None or not all_close):
                leaving = run.closing(*closing)
                yield from (run.take(leaving[low : low + step]) for low in range(0, len(leaving), step))
                continue
            # What closes whole is read once more and never again: an order by time would serve nobody.
            for low in range(0, len(run.high), step):
                rows = run.part(low, min(low + step, len(run.high)))
                closes = later_ms(ints(rows["ts"]), closing.reach_ms)
                yield rows.filter(pa.array((closes > closing.after) & (closes <= closing.up_to)))

    def joined(self, start: int, numbers: Ints) -> Bools:
        """Which of the records of a stretch with these numbers have joined."""
        found = np.zeros(len(numbers), bool)
        for at, part in enumerate(self._contents(start).joined):
            found |= self._list(start, at, part).have(numbers)
        return found

    def add(self, start: int, rows: pa.Table) -> int:
        """Take the records that a batch brought for a stretch, in the order in which they came.

        Returns the number of the first one; the others follow.
        """
        log = self.index.get(start) or Log()
        contents = self._contents(start) if log.segments else _Contents([], [])
        first = log.rows
        if self.preserved:
            rows = rows.append_column("n", pa.array(first + np.arange(rows.num_rows)))
        count, times = rows.num_rows, ints(rows["ts"])
        oldest, newest = int(times.min()), int(times.max())
        kept, merged = _unmerged(contents.runs, count, self._tuning.merged_rows)
        runs: list[Sorted] = [self._run(start, kept + at, part) for at, part in enumerate(merged)]
        runs.append(InTable.of(rows))
        del rows, times  # who merges them has them alone, and lets go of them
        bodies: list[memoryview] = []
        copy, total = self._copied(runs, bodies)
        segments = range(kept, kept + max(1, len(merged)))
        part = self._replace(start, segments, merged, frames.framed(frames.SEGMENT, {}, bodies), total)
        if copy is not None:
            COPIES.put(part.digest, copy, self._tuning)
        self._say(start, _Contents([*contents.runs[:kept], part], contents.joined))
        self.index[start] = log._replace(
            segments=kept + 1,
            rows=log.rows + count,
            size=log.size - sum(gone.size for gone in merged) + part.size,
            closes=newest if not log.segments else max(log.closes, newest),
            due=min(log.due, oldest),
        )
        return first

    def mark(self, start: int, numbers: Ints) -> None:
        """Say that the records of a stretch with these numbers have joined."""
        contents = self._contents(start)
        kept, merged = _unmerged(contents.joined, len(numbers), self._tuning.merged_rows)
        parts = [self._list(start, kept + at, part).all() for at, part in enumerate(merged)]
        whole = distinct(np.sort(np.concatenate([*parts, numbers])))
        segments = [joined_segment(kept + at) for at in range(max(1, len(merged)))]
        frame = frames.encode(frames.SEGMENT, {}, pa.table({"after": np.diff(whole, prepend=0)}))
        part = self._replace(start, segments, merged, frame, len(whole))
        COPIES.put(part.digest, Numbers.of(whole), self._tuning)
        self._say(start, _Contents(contents.runs, [*contents.joined[:kept], part]))

    def opened_from(self, start: int, timestamp: int) -> None:
        """Say that no record of a stretch before `timestamp` is open any more."""
        log = self.index[start]
        self.index[start] = log._replace(due=max(log.due, timestamp))

    def forget(self, start: int) -> None:
        """Drop a stretch, whose records have all closed."""
        contents = self._contents(start)
        for at in range(len(contents.runs)):
            self.store.remove(start, at)
        for at in range(len(contents.joined)):
            self.store.remove(start, joined_segment(at))
        self.store.remove(start, CONTENTS_SEGMENT)
        for part in (*contents.runs, *contents.joined):
            COPIES.drop(part.digest)
        self.index.pop(start)
        del self.known[start]

    @property
    def first_open(self) -> int | None:
        """The smallest timestamp of a record that is open, None if none is."""
        due = self.index.totals().due
        return None if due == MAX_MS else due

    # -- segments ----------------------------------------------------------------------------------------------------

    def _contents(self, start: int) -> _Contents:
        if start not in self.known:
            stored, _ = frames.decode(frames.SEGMENT, self.store.read(start, CONTENTS_SEGMENT))
            self.known[start] = _Contents(*([_Part(*part) for part in stored[name]] for name in ("runs", "joined")))
        return self.known[start]

    def _say(self, start: int, contents: _Contents) -> None:
        self.known[start] = contents
        frame = frames.encode(frames.SEGMENT, {"runs": contents.runs, "joined": contents.joined})
        self.store.write(start, CONTENTS_SEGMENT, frame)

    def _replace(self, start: int, segments: Sequence[int], merged: list[_Part], frame: bytes, rows: int) -> _Part:
        """Write a frame to the first of these segments, which have the parts that were merged into it, if any."""
        self.store.write(start, segments[0], frame)
        for segment in segments[1:]:
            self.store.remove(start, segment)
        for gone in merged:
            COPIES.drop(gone.digest)
        return _Part(hashlib.blake2b(frame, digest_size=16).hexdigest(), rows, len(frame))

    def _decoded(self, start: int, segment: int) -> pa.Table:
        """A run, which has as many tables as it was merged in parts; or a list, which is one."""
        return concat_tables(frames.decode(frames.SEGMENT, self.store.read(start, segment))[1])

    def _runs(self, start: int) -> Iterator[Sorted]:
        """The runs of a stretch, one after the other; there are copies of them from then on, if there is room."""
        for at, part in enumerate(self._contents(start).runs):
            run = self._run(start, at, part)
            if isinstance(run, InTable):
                self._keep(part.digest, run.rows)
            yield run

    def _run(self, start: int, segment: int, part: _Part) -> Sorted:
        run = COPIES.get(part.digest)
        return run if isinstance(run, Run) else InTable(self._decoded(start, segment))

    def _copied(self, runs: list[Sorted], bodies: list[memoryview]) -> tuple[Run | None, int]:
        """Merge runs into `bodies` of tables; returns a copy of them as one, if there can be one, and how many rows."""
        total = sum(len(run.high) for run in runs)
        columns = together([run.columns for run in runs])
        # The copies of what is merged go when it is stored.
        more = total * RECORD_BYTES - sum(run.memory for run in runs if isinstance(run, Run))
        parts = _encoded(merged_parts(runs, self._tuning.block_rows), bodies)
        copy = Run.of(parts, columns, total, self.store) if COPIES.room(more, self._tuning) else None
        for _ in parts:
            pass  # what no copy took is encoded all the same
        return copy, total

    def _keep(self, digest: str, rows: pa.Table) -> None:
        fits = COPIES.room(rows.num_rows * RECORD_BYTES, self._tuning)
        if fits and (run := Run.of([rows], extents(rows), rows.num_rows, self.store)) is not None:
            COPIES.put(digest, run, self._tuning)

    def _list(self, start: int, at: int, part: _Part) -> Numbers:
        known = COPIES.get(part.digest)
        if not isinstance(known, Numbers):
            known = Numbers.of(np.cumsum(ints(self._decoded(start, joined_segment(at))["after"])))
            COPIES.put(part.digest, known, self._tuning)
        return known


def _unmerged(parts: list[_Part], count: int, most: int) -> tuple[int, list[_Part]]:
    """How many of the parts stay as they are, and those behind them that become one with `count` new entries.

    Sizes are compared by their number of bits, so what is merged about doubles, and few parts are left.
    """
    kept = len(parts)
    while kept and parts[kept - 1].rows.bit_length() <= count.bit_length() and parts[kept - 1].rows + count <= most:
        kept -= 1
        count += parts[kept].rows
    return kept, parts[kept:]


def _encoded(parts: Iterator[pa.Table], bodies: list[memoryview]) -> Iterator[pa.Table]:
    """These parts, each of which is encoded first."""
    for part in parts:
        bodies.append(frames.body(frames.SEGMENT, part))
        yield part


def _among(numbers: npt.NDArray[np.int32], known: npt.NDArray[np.int32]) -> Bools:
    """Which numbers are among others, which ascend."""
    if not len(known):
        return np.zeros(len(numbers), bool)
    found: Bools = known[np.minimum(np.searchsorted(known, numbers), len(known) - 1)] == numbers
    return found
