"""Partitions of a table as sorted runs: a batch adds a run, and runs of about the same size are merged.

So n batches leave about log2(n) runs, and a row is rewritten about log2(n) times. A run is one frame. A small frame of
each partition lists its runs by digest. The digests lead a worker to its copies of the runs (`state.copies`), so that a
batch reads the rows that it needs and no others.

    partition 0    run of 4 batches | run of 2 | run of 1
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import pyarrow as pa

from tidegate.kernel.columns.arrays import concat_tables
from tidegate.kernel.columns.row_bytes import Extents, extents, has_form, together
from tidegate.kernel.state import frames
from tidegate.kernel.state.copies import COPIES, RECORD_BYTES, Copies, Held, Parked, Partition, Run
from tidegate.kernel.state.run_merging import Between, InTable, Sorted, merged_parts
from tidegate.kernel.state.store import Store
from tidegate.kernel.state.tables import CONTENTS_SEGMENT
from tidegate.kernel.tuning import Tuning


class Part(NamedTuple):
    """A run, or a list of records that have joined: digest of its frame, number of rows, and bytes."""

    digest: str
    rows: int
    size: int


@dataclass(frozen=True)
class Contents:
    """The runs of a partition and its lists of records that have joined, in the order of their segments."""

    runs: list[Part]
    joined: list[Part]


Current = Callable[[pa.Table], pa.Table]
"""Keeps the rows that survive a merge of runs; it is given all rows of a hash at once."""


@dataclass(frozen=True)
class SortedRuns:
    """The runs of the partitions of a table. `by`: the columns by which rows are sorted, `h` first; equal rows are in
    order of arrival.
    """

    store: Store
    by: tuple[str, ...]
    known: dict[int, Contents] = field(default_factory=dict)
    """Contents of the partitions that were read or written."""

    @property
    def tuning(self) -> Tuning:
        return self.store.tuning

    @property
    def copies(self) -> Copies:
        """The copies of this process."""
        return COPIES

    def contents(self, number: int) -> Contents:
        """The contents of a partition that was stored before."""
        if number not in self.known:
            stored, _ = frames.decode(frames.SEGMENT, self.store.read(number, CONTENTS_SEGMENT))
            found = Contents(*([Part(*part) for part in stored[name]] for name in ("runs", "joined")))
            self.copies.keep_only(self._partition(number), {part.digest for part in (*found.runs, *found.joined)})
            self.known[number] = found
        return self.known[number]

    def say(self, number: int, contents: Contents) -> None:
        """Store the contents of a partition."""
        self.known[number] = contents
        frame = frames.encode(frames.SEGMENT, {"runs": contents.runs, "joined": contents.joined})
        self.store.write(number, CONTENTS_SEGMENT, frame)

    def run(self, number: int, segment: int, part: Part) -> Sorted:
        """A run: its copy if there is one, else its decoded frame."""
        return self._copy(number, part) or InTable(self.decoded(number, segment))

    def every(self, number: int, keeps: bool = True) -> Iterator[Sorted]:
        """The runs of a partition, the oldest first.

        keeps  whether to make missing copies, if there is room
        """
        for at, part in enumerate(self.contents(number).runs):
            yield self._copied(number, at, part) if keeps else self.run(number, at, part)

    def read(self, number: int) -> Iterator[pa.Table]:
        """The rows of a partition, run by run and in blocks."""
        for at, part in enumerate(self.contents(number).runs):
            yield from self.run(number, at, part).blocks()

    def decoded(self, number: int, segment: int) -> pa.Table:
        """The rows of a run (one table for each part of its merge), or of a list of records that have joined (one)."""
        return concat_tables(frames.decode(frames.SEGMENT, self.store.read(number, segment))[1])

    def merged(self, runs: list[Sorted]) -> tuple[bytes, int, Run | None]:
        """These runs as one: its frame, its number of rows, and its copy if there can be one."""
        total, bodies = sum(len(run.high) for run in runs), list[memoryview]()
        columns = together([run.columns for run in runs])
        parts = _encoded(merged_parts(runs, self.tuning.block_rows, self.by), bodies)
        copy = Run.of(parts, columns, total, self.store) if self._room(runs, total) else None
        for _ in parts:
            pass  # parts that no copy has read are encoded all the same
        return frames.framed(frames.SEGMENT, {}, bodies), total, copy

    def reduced(
        self, runs: list[Sorted], current: Current, between: Between = (None, None), copies: bool = True
    ) -> tuple[bytes, int, Run | None]:
        """`merged` for the rows `between` some hashes that are `current`; no bytes if there are none.

        copies  whether to make a copy of the new run
        """
        total, bodies, columns = 0, list[memoryview](), list[Extents]()
        for part in merged_parts(runs, self.tuning.block_rows, self.by, between):
            if (rows := current(part)).num_rows:
                total += rows.num_rows
                bodies.append(frames.body(frames.SEGMENT, rows))
                columns += [extents(rows)] if copies else []
        if not bodies:
            return b"", 0, None
        frame = frames.framed(frames.SEGMENT, {}, bodies)
        copy = None
        if copies and self._room(runs, total):
            # A copy needs the number of rows, which is known only now: the rows are read once more.
            copy = Run.of(_decoded(frames.opened(frames.SEGMENT, frame)[1]), together(columns), total, self.store)
        return frame, total, copy

    def write(
        self,
        number: int,
        segments: Sequence[int],
        sources: Iterable[Part],
        frame: bytes,
        rows: int,
        copy: Run | None,
    ) -> Part:
        """`replace` with the frame of a run, whose copy, if any, is held from now on."""
        part = self.replace(number, segments, sources, frame, rows)
        if copy is not None:
            self.hold(number, part, copy)
        return part

    def replace(self, number: int, segments: Sequence[int], sources: Iterable[Part], frame: bytes, rows: int) -> Part:
        """Write a frame to the first of these segments and remove the others; `sources` are the parts in it."""
        self.store.write(number, segments[0], frame)
        for segment in segments[1:]:
            self.store.remove(number, segment)
        for one in sources:
            self.copies.drop(one.digest)
        return Part(hashlib.blake2b(frame, digest_size=16).hexdigest(), rows, len(frame))

    def hold(self, number: int, part: Part, copy: Held) -> None:
        """Hold a new copy of a part of a partition, if there is room for it; other workers may then find it."""
        if isinstance(copy, Run):
            copy.share(part.digest, self.store)
        self.copies.put(self._partition(number), part.digest, copy, self.tuning)

    def forget(self, number: int, parts: Iterable[Part]) -> None:
        """Drop a partition with these runs; `parts` is empty if it was never stored."""
        parts = list(parts)
        for segment, part in enumerate(parts):
            self.store.remove(number, segment)
            self.copies.drop(part.digest)
        if parts:
            self.store.remove(number, CONTENTS_SEGMENT)
            del self.known[number]

    def _partition(self, number: int) -> Partition:
        return Partition(self.store.task, number)

    def _copy(self, number: int, part: Part) -> Run | None:
        """The copy of a run that this worker has, or else one that another worker of the machine shares."""
        held = self.copies.get(part.digest)
        if isinstance(held, Run):
            return held
        copy = held.copy if isinstance(held, Parked) else self.store.shared(part.digest)
        if copy is None:
            return None
        run = Run.of_file(copy, self.tuning)
        self.copies.put(self._partition(number), part.digest, run, self.tuning)
        return run

    def _room(self, runs: list[Sorted], total: int) -> bool:
        # The copies of merged runs are dropped when the new run is stored.
        more = total * RECORD_BYTES - sum(run.memory for run in runs if isinstance(run, Run))
        return self.copies.room(more, self.tuning)

    def _copied(self, number: int, segment: int, part: Part) -> Sorted:
        """A run: its copy, which is made if it is missing and there is room, else its decoded frame.

        A copy needs the extents of all tables of the frame. So they are decoded twice, but only one at a time.
        """
        if (run := self._copy(number, part)) is not None:
            return run
        tables = frames.opened(frames.SEGMENT, self.store.read(number, segment))[1]
        first = tables[0].table()
        if self.copies.room(part.rows * RECORD_BYTES, self.tuning) and all(map(has_form, first.schema.types)):
            columns = together([extents(first), *map(extents, _decoded(tables[1:]))])
            if (copy := Run.of(_decoded(tables), columns, part.rows, self.store)) is not None:
                self.hold(number, part, copy)
                return copy
        return InTable(concat_tables([first, *_decoded(tables[1:])]))


def unmerged(parts: list[Part], count: int, most: int) -> tuple[int, list[Part]]:
    """The number of parts that stay, and the parts behind them that are merged with `count` new entries.

    No merge has more than `most` rows. Sizes are compared by their number of bits: so a merge about doubles a
    part, and few parts are left.
    """
    kept = len(parts)
    while kept and parts[kept - 1].rows.bit_length() <= count.bit_length() and parts[kept - 1].rows + count <= most:
        kept -= 1
        count += parts[kept].rows
    return kept, parts[kept:]


def _decoded(tables: Iterable[frames.Encoded]) -> Iterator[pa.Table]:
    return (each.table() for each in tables)


def _encoded(parts: Iterator[pa.Table], bodies: list[memoryview]) -> Iterator[pa.Table]:
    """These parts; the encoded body of each is appended to `bodies` first."""
    for part in parts:
        bodies.append(frames.body(frames.SEGMENT, part))
        yield part
