"""The stream time a record sees, when a micro-batch was read by several map tasks.

A record sees the larger of the stream time at the end of the previous micro-batch and the largest timestamp up to
and including it in its own source partition of this batch. A map task knows only the timestamps that it read, so it
cuts its input into *chunks* and sends their headers to every task. Behind the shuffle `Fold` puts the chunks of a
partition into offset order and gives the stream time before each chunk.

A dense chunk is a run of consecutive offsets: no other task can have read anything in between, so one number, its
largest timestamp, is all that other tasks need. Where the source promises that one map task reads an unbroken stretch
of each partition (`contiguous`), gaps are no gaps, and the stretch is one dense chunk. Without that promise another
task may have read the missing records: a partition with many gaps becomes one *scattered* chunk. Its header has the
running-max points (the offsets at which the largest timestamp grew, as far as that can close a window), and its rows
are not combined with each other. If map tasks may share offsets, all chunks are scattered (`Tuning.offset_runs` is 0).

        offsets   0  1  2  3 | 7  8 | 4  5  6         two dense chunks of one task, one of another
        stream time in offset order: chunk 0-3, then 4-6, then 7-8
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from tidegate.errors import InputError
from tidegate.instants import MAX_MS
from tidegate.kernel.columns.arrays import Flags, Ints
from tidegate.kernel.columns.runs import run_starts

NEVER = -1
"""Stream time before the first record."""

SHORT = 4
"""Runs of consecutive offsets with fewer records than this on average are short: combining them saves nothing."""

STEPS = 1024
"""The most steps of stream time that a header carries for the lateness metric."""
FEWEST_STEPS, ALL_STEPS = 32, 4 * STEPS
"""If a map task has many chunks, each header carries fewer: one task gets the steps of all map tasks."""

Partition = int | str | None

_NO_POINTS, _NO_STEPS = np.zeros((0, 2), np.int64), np.zeros((0, 3), np.int64)


@dataclass
class Chunk:
    """The header of a chunk. `partition` is None where the source gives no order; `rows` counts valid records.

    `steps` count records by the chunk's own stream time: rows (time, records, sum of (time - the time each saw)). The
    sum is 0 unless steps were merged, because a header has at most STEPS (`most_steps`). `first_record` is
    [offset, timestamp] of the first record. `points` are the rows (offset, running maximum) of a scattered chunk at
    which a window may close, and its last row; `sample` are as many rows at most at which the maximum grew, for the
    lateness metric. `contiguous`: the source promises that no other map task reads between `first` and `last`. `source`
    is the input of a join that has the chunk. `forwarded`: its records are rows of another operator, which have no
    offsets. `reported`: the stream time that this operator reports, if it reports one (NEVER: not in this chunk).
    `without_records`: only time has passed there, because no record came to that operator.
    """

    partition: Partition
    first: int
    last: int
    max_ts: int
    rows: int
    scattered: bool = False
    min_ts: int = 0
    late_sum: float = 0.0
    late_max: int = 0
    first_record: list[int] = field(default_factory=list)
    contiguous: bool = False
    source: int = 0
    forwarded: bool = False
    reported: int | None = None
    without_records: bool = False
    steps: Ints = field(default_factory=lambda: _NO_STEPS, compare=False)
    points: Ints = field(default_factory=lambda: _NO_POINTS, compare=False)
    sample: Ints = field(default_factory=lambda: _NO_POINTS, compare=False)

    @property
    def reaches(self) -> int:
        """The time that its partition reaches with the chunk (ms)."""
        return self.max_ts if self.reported is None else self.reported


def lateness(chunks: Sequence[Chunk], before: Ints) -> tuple[float, int]:
    """Sum and maximum of (stream time seen - timestamp), given the stream time `before` each chunk."""
    counted = [(chunk, int(time)) for chunk, time in zip(chunks, before, strict=True) if chunk.rows]
    if not counted:
        return 0.0, 0
    passed = np.repeat([time for _, time in counted], [len(chunk.steps) for chunk, _ in counted])
    time, records, short = np.concatenate([chunk.steps for chunk, _ in counted]).T
    # As floating-point numbers, because the product may not fit 64 bits.
    extra = np.maximum(0, (passed - time).astype(np.float64) * records + short)
    highest = max(max(chunk.late_max, time - chunk.min_ts, 0) for chunk, time in counted)
    return sum(chunk.late_sum for chunk, _ in counted) + float(extra.sum()), highest


@dataclass(frozen=True)
class Cut:
    """The rows of a map task in order: `order` sorts them (None: as they are), then chunk i is rows starts[i]:..."""

    order: Ints | None
    starts: Ints
    scattered: list[bool]


def cut(partition: Ints, offset: Ints, most_runs: int, contiguous: bool = False) -> Cut:
    """Cut rows into chunks by partition (as numbers) and offset; `contiguous`: a gap in the offsets is no cut.

    With more runs of consecutive offsets than `most_runs`, a partition's rows are one scattered chunk. If partitions
    together have more than the square of it, those with short runs are scattered too: each run would be a header.
    """
    order, same = None, partition[1:] == partition[:-1]
    in_order = same & (offset[1:] >= offset[:-1])
    if not in_order.all() and not np.all(in_order | (partition[1:] > partition[:-1])):
        order = np.lexsort((offset, partition))
        partition, offset = partition[order], offset[order]
        same = partition[1:] == partition[:-1]
    new = np.flatnonzero(~same) + 1
    bounds = np.concatenate(([0], new, [len(partition)]))
    if contiguous:
        return Cut(order, bounds[:-1], [False] * (len(bounds) - 1))
    # Offsets ascend in a partition; as a signed number their distance might overflow.
    gaps = np.flatnonzero(((offset[1:] - offset[:-1]).view(np.uint64) > 1) & same) + 1
    crowded = len(gaps) > most_runs * most_runs
    starts: list[int] = []
    scattered: list[bool] = []
    of_each = np.split(gaps, np.searchsorted(gaps, bounds[1:-1]))
    for low, high, runs in zip(bounds[:-1], bounds[1:], of_each, strict=True):
        short = len(runs) > 0 and high - low < SHORT * (len(runs) + 1)
        many = len(runs) >= most_runs or (crowded and short)
        starts += [int(low)] if many else [int(low), *map(int, runs)]
        scattered += [True] if many else [False] * (len(runs) + 1)
    return Cut(order, np.array(starts, np.int64), scattered)


def running_max(values: Ints, starts: Ints) -> Ints:
    """The running maximum inside each stretch that begins at `starts`."""
    seen = np.empty_like(values)
    for low, high in zip(starts, [*starts[1:], len(values)], strict=True):
        np.maximum.accumulate(values[low:high], out=seen[low:high])
    return seen


def most_steps(chunks: int) -> int:
    """The most steps in each of the headers of a map task, given their number."""
    return min(STEPS, max(FEWEST_STEPS, ALL_STEPS // max(1, chunks)))


def header(
    partition: Partition,
    offset: Ints | None,
    ts: Ints,
    chunk_time: Ints,
    valid: Flags,
    scattered: bool,
    closing: Ints | None = None,
    most_steps: int = STEPS,
) -> Chunk:
    """The header of the chunk with these rows; `chunk_time` is its own stream time, `ts` counts where `valid`.

    `closing` is a number for each `chunk_time` that grows as windows close: points at which it stays the same change no
    result. None where every point may change one.
    """
    mine, times = (chunk_time, ts) if valid.all() else (chunk_time[valid], ts[valid])
    late = mine - times
    chunk = Chunk(
        partition=partition,
        first=int(offset[0]) if offset is not None else 0,
        last=int(offset[-1]) if offset is not None else 0,
        max_ts=int(times.max(initial=NEVER)),
        rows=len(times),
        scattered=scattered,
        min_ts=int(times.min()) if len(times) else 0,
        late_sum=float(late.sum(dtype=np.float64)),
        late_max=int(late.max(initial=0)),
        steps=_steps(mine, most_steps),
    )
    if len(times):
        at = int(np.argmax(valid))
        # Without an order a batch is taken in timestamp order.
        chunk.first_record = [int(offset[at]), int(ts[at])] if offset is not None else [0, chunk.min_ts]
    if scattered and offset is not None:
        grew = np.flatnonzero(np.diff(chunk_time, prepend=NEVER) > 0)
        chosen = grew if closing is None or not len(grew) else _at_which_windows_close(grew, closing)
        chunk.points = np.stack([offset[chosen], chunk_time[chosen]], axis=1)
        if len(chosen) < len(grew):
            some = grew[np.linspace(0, len(grew), min(most_steps, len(grew)), endpoint=False).astype(np.int64)]
            chunk.sample = np.stack([offset[some], chunk_time[some]], axis=1)
    return chunk


def _at_which_windows_close(grew: Ints, closing: Ints) -> Ints:
    """The first point, those at which windows close, and the last, which is where the chunk ends."""
    at = closing[grew]
    chosen = np.append(True, at[1:] > at[:-1])
    chosen[-1] = True
    return grew[chosen]


def _steps(seen: Ints, most: int) -> Ints:
    if not len(seen):
        return _NO_STEPS
    # A running maximum is sorted already; timestamps in their own order are not.
    ordered = seen if np.all(seen[1:] >= seen[:-1]) else np.sort(seen)
    at = run_starts(ordered)
    times, counts = ordered[at], np.diff(np.append(at, len(ordered)))
    short = np.zeros(len(times), np.int64)
    if len(times) > most:
        at = np.linspace(0, len(times), most, endpoint=False).astype(np.int64)
        sizes = np.diff(np.append(at, len(times)))
        highest = times[at + sizes - 1]
        short = np.add.reduceat((np.repeat(highest, sizes) - times) * counts, at)
        times, counts = highest, np.add.reduceat(counts, at)
    return np.stack([times, counts, short], axis=1)


class Fold:
    """The stream time before each chunk of a batch, and after the batch.

    A batch may have thousands of partitions, and chunks of hundreds of map tasks. So all that is asked for each row or
    blob is one array, and points of a partition are sorted if somebody asks for them.
    """

    def __init__(self, chunks: Iterable[Chunk], stream_time: int) -> None:
        self.before_batch = stream_time
        self._chunks = list(chunks)
        self.stream_time = max([stream_time, *(chunk.reaches for chunk in self._chunks)])
        _check_promise(self._chunks)
        self._places: dict[Partition, list[int]] = defaultdict(list)
        for place, chunk in enumerate(self._chunks):
            self._places[chunk.partition].append(place)
        self._running_max: dict[Partition, tuple[Ints, Ints]] = {}

    @property
    def first_timestamp(self) -> int | None:
        """The timestamp of the first record in offset order, the smallest of all partitions; None without records."""
        firsts: dict[Partition, list[int]] = {}
        for chunk in self._chunks:
            if chunk.first_record:
                firsts[chunk.partition] = min(firsts.get(chunk.partition, chunk.first_record), chunk.first_record)
        return min((ts for _, ts in firsts.values()), default=None)

    @cached_property
    def before_each(self) -> Ints:
        """The stream time before the first record of each chunk, in the order in which the chunks were given."""
        before = np.empty(len(self._chunks), np.int64)
        for partition, places in self._places.items():
            if partition is None:
                before[places] = [self.before(self._chunks[place]) for place in places]
            elif len(places) == 1:  # nothing of its partition comes before it in the batch
                before[places[0]] = self.floor(partition)
            else:
                first = np.array([self._chunks[place].first for place in places])
                before[places] = self.before_offsets(partition, first)
        return before

    @cached_property
    def partition_numbers(self) -> Ints:
        """The number of each chunk's partition among all, in their natural order."""
        numbers = np.empty(len(self._chunks), np.int64)
        for number, partition in enumerate(sorted(self._places, key=_natural)):
            numbers[self._places[partition]] = number
        return numbers

    @cached_property
    def scattered(self) -> Flags:
        """A mask of the scattered chunks."""
        return np.array([chunk.scattered for chunk in self._chunks], bool)

    @cached_property
    def forwarded(self) -> Flags:
        """A mask of the chunks that have rows of another operator."""
        return np.array([chunk.forwarded for chunk in self._chunks], bool)

    def before(self, chunk: Chunk) -> int:
        """The stream time before the first record of `chunk`."""
        return int(self.before_offsets(chunk.partition, np.array([chunk.first]))[0])

    def floor(self, partition: Partition) -> int:
        """The stream time that every record of a partition sees at least, by its own partition."""
        return self.before_batch

    @cached_property
    def ceilings(self) -> Ints | None:
        """Per chunk, the latest stream time that its records see (ms); None if nothing holds them back.

        Records of an operator that reports its stream time see only the stream time before the batch.
        """
        if all(chunk.reported is None for chunk in self._chunks):
            return None
        return np.array([MAX_MS if chunk.reported is None else self.before_batch for chunk in self._chunks], np.int64)

    def before_offsets(self, partition: Partition, offsets: Ints) -> Ints:
        """The stream time before each of these offsets of a partition."""
        if partition is None or partition not in self._places:
            return np.full(len(offsets), self.floor(partition))
        if partition not in self._running_max:
            self._running_max[partition] = _running_max_points(self._points(partition))
        at, times = self._running_max[partition]
        place = np.searchsorted(at, offsets, side="left")
        return np.maximum(times[place], self.floor(partition))

    def _points(self, partition: Partition) -> Ints:
        """(offset, time) at which the time of a partition grows: of dense chunks the ends."""
        mine = [self._chunks[place] for place in self._places[partition]]
        ends = np.array([[chunk.last, chunk.reaches] for chunk in mine if not chunk.scattered], np.int64)
        return np.concatenate([ends.reshape(-1, 2), *(chunk.points for chunk in mine if chunk.scattered)])


def _check_promise(chunks: list[Chunk]) -> None:
    """Raise InputError where a chunk that is promised to be contiguous overlaps another one of its partition."""
    promised = {chunk.partition for chunk in chunks if chunk.contiguous}
    if not promised:
        return
    mine = [chunk for chunk in chunks if chunk.partition in promised]
    mine.sort(key=lambda chunk: (str(chunk.partition), chunk.first, chunk.last))
    for one, other in zip(mine[:-1], mine[1:], strict=True):
        if one.partition == other.partition and other.first < one.last:
            raise InputError(
                f"Two map tasks have read the partition {one.partition!r} in turns: offsets {one.first} to {one.last}, "
                f"and {other.first} to {other.last}. Its source reads each stretch of a partition in one task, and "
                "results would be wrong. Give tg.stream a DataFrame that does not come from this source directly, for "
                "example behind df.repartition(...)."
            )


def _running_max_points(points: Ints) -> tuple[Ints, Ints]:
    offsets, times = points[np.lexsort((points[:, 1], points[:, 0]))].T
    return offsets, np.maximum.accumulate(np.concatenate(([NEVER], times)))


def _natural(partition: Partition) -> tuple[list[tuple[int, int, str]], str]:
    """The sort key of a partition: "0:10" comes behind "0:9". Names that differ have different keys."""
    name = str(partition)
    return [_natural_part(part) for part in name.split(":")], name


def _natural_part(part: str) -> tuple[int, int, str]:
    """The sort key of a part of a name: numbers in ASCII digits by value, then text."""
    if part.isascii() and part.isdecimal():
        # No int(): Python refuses numbers of thousands of digits.
        digits = part.lstrip("0")
        return 0, len(digits), digits
    return 1, 0, part
