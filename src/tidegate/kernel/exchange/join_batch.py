"""A micro-batch of a join in one task: the records of both sides, which see one stream time."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from tidegate.kernel.columns.arrays import Ints
from tidegate.kernel.columns.groups import neighbours
from tidegate.kernel.exchange import hash_ranges, time_progress
from tidegate.kernel.exchange.batch import Batch
from tidegate.kernel.exchange.blobs import NO_ROWS, Blob
from tidegate.kernel.rows.layout import Layout
from tidegate.kernel.time.record_graces import RecordGraces


class StreamsTime(NamedTuple):
    """The own time of a stream that is joined with a table: changes of the table do not advance it.

    ceilings  per chunk of the batch, the latest time that its records allow (ms)
    after     the time after the batch (ms)
    """

    ceilings: Ints
    after: int


class _Divided(NamedTuple):
    """Records of a side in ranges of hashes, and the number of records in each range; `base`: of the first chunk."""

    side: int
    base: int
    ranges: Iterator[pa.Table]
    sizes: list[int]


class JoinBatch(Batch):
    """The decoded blobs of both inputs of a join. Chunks are of both; each side has rows of its own."""

    def __init__(self, layout: Layout) -> None:
        super().__init__(layout)
        self._sides = [Batch(layout.of_side(side)) for side in range(len(layout.op.sides))]
        self.sides_with_records: set[int] = set()
        """The sides with any record in the batch."""
        self.streams_time: StreamsTime | None = None
        """In a join of a stream with a table, if anything goes by the stream's own time."""
        self.dropped: dict[int, pa.Table] = {}
        """Late records by side, where they leave as rows, with the time when each arrived (`rows.record_times`)."""
        self._divided: list[_Divided] = []

    def receive(self, blob: Blob) -> None:
        """Add a blob of one side. The partitions of the inputs are distinct, even with the same numbers."""
        assert blob.side is not None
        base, side = len(self.chunks), blob.side
        for chunk in blob.chunks:
            chunk.source = side
            if chunk.partition is not None:
                chunk.partition = f"{side}:{chunk.partition}"
        self.chunks += blob.chunks
        if blob.sizes:
            self._divided.append(_Divided(side, base, blob.ranges, blob.sizes))
        self._sides[side].take(base, [NO_ROWS, *blob.sections] if blob.sizes else blob.sections)

    def by_hash(self) -> Iterator[None]:
        """Load the records, some ranges of hashes at a time: `side` has the records of these ranges and no others.

        The ranges ascend, and no two have a key in common. A batch without divided blobs is loaded already.
        """
        if not self._divided:
            yield
            return
        # Blobs with few records are not divided.
        rest = [[hash_ranges.divided(side.layout, rows) for rows in side.release()] for side in self._sides]
        sizes = np.sum([one.sizes for one in self._divided], axis=0)
        for low, high in neighbours(sizes, self.layout.tuning.joined_rows):
            for at in range(low, high):
                for one in self._divided:
                    self._sides[one.side].take_records(one.base, next(one.ranges))
                for side, tables in zip(self._sides, rest, strict=True):
                    for parts in tables:
                        side.take_records(0, parts[at])
            yield

    def note_records(self, meta: dict[str, Any]) -> None:
        super().note_records(meta)
        if meta["has_records"]:
            self.sides_with_records.add(meta["side"])

    def progress(self) -> time_progress.TimeProgress:
        """The progress of the stream time of both sides, whose records come in the order of `joins.arrivals`."""
        sides = [self.side(side).movers() for side in range(len(self._sides))]
        times, order, keys = (np.concatenate(parts) for parts in zip(*sides, strict=True))
        of_side = np.repeat(np.arange(len(sides)), [len(one.times) for one in sides])
        by_time = np.lexsort((keys, order[:, 1], order[:, 0], of_side, times))
        return time_progress.TimeProgress.of(times, keys, by_time)

    @property
    def reports_graces(self) -> bool:
        return any(side.reports_graces for side in self._sides)

    def graces(self) -> list[int]:
        assert self.needed is not None
        both = RecordGraces(self.needed.rule)
        for side in self._sides:
            assert side.needed is not None
            both.take(side.needed)
        return both.histogram()

    def side(self, side: int) -> Batch:
        """The records of one side, which see the stream time of both."""
        one = self._sides[min(side, len(self._sides) - 1)]
        one.chunks, one.fold, one.closed_through = self.chunks, self.fold, self.closed_through
        return one
