"""The order of a recording that Spark holds, and the stream time that each record sees: three passes over blobs.

A blob is an encoded Arrow table of many records (`kernel.state.frames`). Spark moves blobs and never looks at a record.

slices   the records of a map task, up to `rows` at a time, cut by partition and by stretch of offsets
parts    by partition and bucket: the records, and the time when each can be read, a running maximum over offsets
seen     by bucket and group of keys: the records in order, with the stream time that each of them sees

A bucket is a stretch of arrival, of whole batches; the times before a bucket follow from the maxima of parts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark import TaskContext
from pyspark.sql import DataFrame

from tidegate.advice.here import GUARDS_MS, guard_of, wall_of
from tidegate.advice.order import SHORTEST_BATCH_MS, Seen, Times, see
from tidegate.advice.question import Question
from tidegate.advice.results import RunningMax
from tidegate.kernel.columns.arrays import Ints, ints, with_column
from tidegate.kernel.columns.hash64 import hash_rows
from tidegate.kernel.columns.runs import first_of_run
from tidegate.kernel.state import frames
from tidegate.kernel.time.stream_time import NEVER, running_max
from tidegate.runtime.spark.frames.arrow import as_taken, spark_schema
from tidegate.runtime.spark.frames.names import numbered, renamed

MOST_PARTITIONS = 200
"""With more partitions the time of the slowest one is not computed here."""
QUANTILES = 32
"""Arrivals of a slice that are known where the buckets are chosen."""
_BUCKETS_BEFORE = 1 << 43
"""Without arrivals, a bucket is a stretch of a partition: a partition has fewer stretches than this."""
_MOST_BYTES = 1 << 27
"""A slice ends when its rows have so many bytes, however few rows they are."""

_LIST = pa.list_(pa.int64())
_SLICES = pa.schema(
    [(name, pa.int64()) for name in ("p", "stretch", "n", "offset", "first", "last")]
    + [("arrivals", _LIST), ("blob", pa.binary())]
)
_PARTS = pa.schema(
    [(name, pa.int64()) for name in ("bucket", "p", "n", "waits")]
    + [("ahead", _LIST), ("most", _LIST), ("last", pa.int64()), ("blob", pa.binary())]
)
_BY_KEY = pa.schema([("some", pa.int64()), ("blob", pa.binary())])
_SEEN = pa.schema(
    [*_BY_KEY, *((name, pa.binary()) for name in ("tally", "points")), ("low", pa.int64()), ("high", pa.int64())]
)
SLICES, PARTS, BY_KEY, SEEN = map(spark_schema, (_SLICES, _PARTS, _BY_KEY, _SEEN))

Counting = Callable[[pa.Table], pa.Table]


def encoded(table: pa.Table) -> bytes:
    """The blob of a table."""
    return frames.encode(frames.BLOB, {}, table)


def decoded(blobs: Iterable[Any]) -> pa.Table:
    """The rows of some blobs, one after the other."""
    tables = [frames.decode(frames.BLOB, blob.as_py())[1][0] for blob in blobs]
    # One of the two sides of a join may have columns without nulls.
    return pa.concat_tables(tables, promote_options="default").combine_chunks()


@dataclass(frozen=True)
class Known:
    """Facts about valid records, known before they are cut into slices.

    names    names of the partitions, by number
    width    offsets of a stretch, by partition
    rows     about so many records are in memory at once
    """

    names: tuple[Any, ...]
    width: tuple[int, ...]
    rows: int


def slices(question: Question, records: DataFrame, known: Known, behind: int = 0) -> DataFrame:
    """SLICES of the records (k:, v:, ts, name, and at and o where they are known).

    Partitions are numbered from `behind` on. A slice has the `offset` and the arrival (`first`) of its first record,
    and the `last` arrival of all its records.
    """
    arrives, ordered = question.arrival is not None, question.offset is not None
    names, width, rows = known.names, np.array(known.width or (1,), np.int64), known.rows
    frame, columns = numbered(records)

    def cut(table: pa.Table, number: int) -> Iterator[pa.RecordBatch]:
        p = np.zeros(table.num_rows, np.int64)
        if len(names) > 1:
            p = ints(pc.index_in(table["name"], pa.array(names, table["name"].type)))
        offset = ints(table["o"]) if ordered else ints(table["ts"])
        # Without offsets no record waits for another one, so that slices are never put together.
        stretch = offset // width[p] if ordered else np.full(len(p), number)
        arrival = ints(table["at"]) if arrives else np.zeros(len(p), np.int64)
        order = np.lexsort((arrival, offset, p))
        p, stretch, offset, arrival = p[order], stretch[order], offset[order], arrival[order]
        rest = table.drop_columns(["name", "at"] if arrives else ["name"])
        rest = rest.take(pa.array(order)).append_column("ready", pa.array(arrival))
        for low, high in stretches(p, stretch):
            mine = arrival[low:high]
            first = low if ordered else low + int(mine.argmin())
            some = np.sort(mine)[np.linspace(0, high - low - 1, min(QUANTILES, high - low)).astype(np.int64)]
            row = [behind + p[low], stretch[low], high - low, offset[first], arrival[first], mine.max(), some.tolist()]
            yield from table_of(_SLICES, [[*row, encoded(rest.slice(low, high - low))]]).to_batches()

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        context = TaskContext.get()
        task = context.partitionId() if context is not None else 0
        for number, table in enumerate(_tables(renamed(batches, columns), rows)):
            yield from cut(table, (task << 32) + number)

    return frame.mapInArrow(run, SLICES)


def table_of(schema: pa.Schema, rows: Sequence[Sequence[Any]]) -> pa.Table:
    """A table of these rows."""
    columns = zip(*rows, strict=True) if rows else ([] for _ in schema)
    return pa.table([pa.array(list(column), field.type) for column, field in zip(columns, schema, strict=True)], schema)


def stretches(*of: Ints) -> Iterator[tuple[int, int]]:
    """(first, behind the last) of each run of rows that are equal in all of these columns."""
    new = np.logical_or.reduce([one[1:] != one[:-1] for one in of])
    bounds = [0, *(np.flatnonzero(new) + 1).tolist(), len(of[0])]
    yield from zip(bounds[:-1], bounds[1:], strict=True)


def _tables(batches: Iterator[pa.RecordBatch], most: int) -> Iterator[pa.Table]:
    """The rows in tables of about `most` rows."""
    held: list[pa.RecordBatch] = []
    rows = size = 0
    for batch in batches:
        held.append(batch)
        rows, size = rows + batch.num_rows, size + batch.nbytes
        if rows >= most or size >= _MOST_BYTES:
            yield pa.Table.from_batches(held)
            held, rows, size = [], 0, 0
    if rows:
        yield pa.Table.from_batches(held)


@dataclass(frozen=True)
class Ready:
    """Makes PARTS of slices.

    before  last arrival of the stretches before a stretch, by partition and stretch
    edges   batches with which buckets begin, ascending
    """

    before: dict[tuple[int, int], int]
    edges: Ints

    @classmethod
    def of(cls, question: Question, sliced: DataFrame, partitions: int, rows: int) -> Ready:
        """From the slices. A bucket has some `rows` records, unless one batch has more."""
        facts = sliced.drop("blob").toArrow()
        p, stretch, last = (ints(facts[name]) for name in ("p", "stretch", "last"))
        before: dict[tuple[int, int], int] = {}
        if question.offset is not None:
            order = np.lexsort((stretch, p))
            for low, high in stretches(p[order]) if len(p) else ():
                mine, reached = order[low:high], NEVER
                for first, behind in stretches(stretch[mine]):
                    before[int(p[mine[0]]), int(stretch[mine[first]])] = reached
                    reached = max(reached, int(last[mine[first:behind]].max()))
        return cls(before, _edges(question, facts, partitions, rows))

    def parts(self, question: Question, sliced: DataFrame) -> DataFrame:
        """PARTS of the slices."""
        before, edges, trigger = self.before, self.edges, question.trigger_ms or SHORTEST_BATCH_MS
        arrives, ordered = question.arrival is not None, question.offset is not None
        taken = as_taken(sliced.sparkSession)

        def run(table: pa.Table) -> pa.Table:
            p, stretch = table["p"][0].as_py(), table["stretch"][0].as_py()
            rows = decoded(table["blob"])
            arrival, waits = ints(rows["ready"]), np.zeros(rows.num_rows, bool)
            ready = arrival
            if ordered:
                order = np.lexsort((arrival, ints(rows["o"])))
                rows, arrival = rows.take(pa.array(order)), arrival[order]
                ready = np.maximum(running_max(arrival, np.zeros(1, np.int64)), before[p, stretch])
                waits = ready > arrival
            if arrives:
                bucket = np.searchsorted(edges, ready // trigger, side="right")
            else:
                bucket = np.full(len(ready), p * _BUCKETS_BEFORE + stretch)
            rows = with_column(rows, "ready", pa.array(ready))
            if not ordered:
                order = np.argsort(bucket, kind="stable")
                rows, ready, bucket = rows.take(pa.array(order)), ready[order], bucket[order]
            found = []
            ts = ints(rows["ts"])
            for low, high in stretches(bucket):
                mine = slice(low, high)
                ahead = [ts[mine] > ready[mine] + ms for ms in GUARDS_MS]
                most = [int(ts[mine].max()), *(int(ts[mine][~far].max(initial=NEVER)) for far in ahead)]
                row = [bucket[low], p, high - low, waits[mine].sum(), [int(far.sum()) for far in ahead], most]
                found.append([*row, ready[mine].max(), encoded(rows.slice(low, high - low))])
            return taken(table_of(_PARTS, found))

        return sliced.groupBy("p", "stretch").applyInArrow(run, PARTS)


def _edges(question: Question, facts: pa.Table, partitions: int, rows: int) -> Ints:
    """The batches with which buckets begin. A bucket has about `rows` records. A bucket also begins where a partition
    is new, because within a bucket the smallest time of the partitions must only grow.
    """
    if question.arrival is None or not facts.num_rows:
        return np.zeros(0, np.int64)
    trigger = question.trigger_ms or SHORTEST_BATCH_MS
    some = facts["arrivals"].combine_chunks()
    sizes = ints(pc.list_value_length(some))
    batch = ints(some.flatten()) // trigger
    weight = np.repeat(ints(facts["n"]) / sizes, sizes)
    order = np.argsort(batch, kind="stable")
    full = np.cumsum(weight[order]) // rows
    edges = batch[order][1:][full[1:] > full[:-1]]
    if 1 < partitions <= MOST_PARTITIONS:
        p, offset, first = (ints(facts[name]) for name in ("p", "offset", "first"))
        # The record with the smallest offset of a partition can be read first, and as soon as it arrives.
        order = np.lexsort((first, offset, p)) if question.offset is not None else np.lexsort((first, p))
        new = order[first_of_run(p[order])]
        edges = np.concatenate([edges, first[new] // trigger])
    return np.unique(edges)


class Before(NamedTuple):
    """The records before a bucket: the times reached, their number, and the last arrival (ms), NEVER without any."""

    times: Times
    records: int
    arrival: int


@dataclass(frozen=True)
class Plan:
    """Facts for the tasks; `before` has one entry for each bucket."""

    before: dict[int, Before]
    records: int
    slowest: bool
    guard: int | None
    waited: int

    @classmethod
    def of(cls, question: Question, parts: DataFrame, partitions: int, left: int | None = None) -> Plan:
        """From the parts. `left`: of a join, the number of partitions of its left input."""
        facts = parts.drop("blob").toArrow()
        bucket, p, n, last = (ints(facts[name]) for name in ("bucket", "p", "n", "last"))
        records = int(n.sum())
        ahead = _matrix(facts["ahead"], len(GUARDS_MS))
        most = _matrix(facts["most"], len(GUARDS_MS) + 1)
        arrives = question.arrival is not None
        guard = guard_of(ahead.sum(axis=0).tolist(), records) if arrives and records else None
        kept = most[:, 0 if guard is None else 1 + GUARDS_MS.index(guard)]
        order = np.lexsort((p, bucket))
        rows = []
        for low, high in stretches(bucket[order], p[order]) if records else ():
            mine = order[low:high]
            rows.append(
                (bucket[mine[0]], p[mine[0]], n[mine].sum(), most[mine, 0].max(), kept[mine].max(), last[mine].max())
            )
        at_start = Times.at_start(partitions, left)
        before = before_buckets([tuple(map(int, row)) for row in rows], at_start, one_batch=not arrives)
        slowest = arrives and 1 < partitions <= MOST_PARTITIONS
        return cls(before, records, slowest, guard, int(ints(facts["waits"]).sum()))


def _matrix(column: pa.ChunkedArray, width: int) -> Any:
    return ints(column.combine_chunks().flatten()).reshape(-1, width)


def before_buckets(parts: Sequence[tuple[int, ...]], times: Times, *, one_batch: bool) -> dict[int, Before]:
    """The times and counts before each bucket, by bucket.

    parts  (bucket, partition, records, largest timestamp, largest timestamp without clocks ahead, last arrival), sorted
    times  the times before the first record
    """
    before: dict[int, Before] = {}
    counted, arrived = 0, NEVER
    for place, (bucket, p, n, most, kept, last) in enumerate(parts):
        if bucket not in before:
            if place and not one_batch:
                times = _closed(times)
            before[bucket] = Before(times, counted, arrived)
        reached, guarded = times.reached.copy(), times.reached_guarded.copy()
        reached[p], guarded[p] = max(reached[p], most), max(guarded[p], kept)
        times = replace(times, reached=reached, reached_guarded=guarded)
        counted, arrived = counted + n, max(arrived, last)
    return before


def _closed(times: Times) -> Times:
    """The times at the end of a bucket, before the first batch of the next one."""
    known = times.reached > NEVER
    slowest = max(times.slowest, int(times.reached[known].min()) if times.begun(known) else NEVER)
    largest, guarded = int(times.reached.max()), int(times.reached_guarded.max())
    return replace(times, largest=largest, guarded=guarded, slowest=slowest)


def seen(question: Question, parts: DataFrame, plan: Plan, rows: int, count: Counting | None) -> DataFrame:
    """SEEN: by group of keys (`some`) blobs of k: and v: columns, ts, p, rank and the times that records see; by bucket
    the result of `count` (`tally`), the stream times reached (`points`), and the first and last of these (`low`,
    `high`).
    """
    take, some, arrives = taking(question, plan), max(1, plan.records // rows), question.arrival is not None
    taken = as_taken(parts.sparkSession)

    def run(table: pa.Table) -> pa.Table:
        shown, times, _ = take(table)
        time = ints(times["largest"])
        points = RunningMax.of(time, ints(times["wall"]) if arrives else None)
        reached = pa.table({"time": points.time, "wall": points.time if points.wall is None else points.wall})
        tally = None if count is None else encoded(count(times))
        out: list[list[Any]] = [[None, None, tally, encoded(reached), time.min(), time.max()]]
        columns = times if count is None else times.select(["ts", "rank", "largest"])
        whole = pa.table([*shown.columns, *columns.columns], [*shown.schema.names, *columns.schema.names])
        out += [[group, encoded(mine), None, None, None, None] for group, mine in by_key(whole, some)]
        return taken(table_of(_SEEN, out))

    return parts.groupBy("bucket").applyInArrow(run, SEEN)


def taken_by_join(question: Question, parts: DataFrame, plan: Plan, behind: int, rows: int) -> DataFrame:
    """Blobs by group of keys (`some`): k: columns, ts, whether a record is of the `right` side (its partitions are
    numbered from `behind` on), the stream time that it has `seen`, and its `turn` (`advice.join_graces.JoinArrivals`).
    """
    take, some, slowest = taking(question, plan), max(1, plan.records // rows), plan.slowest
    ordered, taken = question.offset is not None, as_taken(parts.sparkSession)

    def run(table: pa.Table) -> pa.Table:
        shown, times, arrivals = take(table)
        p, ts, sees = ints(times["p"]), ints(times["ts"]), ints(times["slowest" if slowest else "largest"])
        order = np.lexsort((arrivals.offset if ordered else ts, arrivals.ready, p, sees, arrivals.batch))
        turn = np.empty(len(ts), np.int64)
        turn[order] = ints(times["rank"])
        whole = pa.table(
            [*shown.columns, *map(pa.array, (ts, p >= behind, sees, turn))],
            [*shown.schema.names, "ts", "right", "seen", "turn"],
        )
        return taken(table_of(_BY_KEY, [(group, encoded(mine)) for group, mine in by_key(whole, some)]))

    return parts.groupBy("bucket").applyInArrow(run, BY_KEY)


class _Arrivals(NamedTuple):
    """By record: the offset (the timestamp if there are no offsets), the time when it can be read, and the batch."""

    offset: Ints
    ready: Ints
    batch: Ints


def taking(question: Question, plan: Plan) -> Callable[[pa.Table], tuple[pa.Table, pa.Table, _Arrivals]]:
    """A function of the parts of a bucket. It gives the k: and v: columns of the bucket's records in order, the times
    that they see, and their _Arrivals.
    """
    before_bucket = plan.before
    guard, slowest, trigger = plan.guard, plan.slowest, question.trigger_ms or SHORTEST_BATCH_MS
    arrives, ordered, trigger_ms = question.arrival is not None, question.offset is not None, question.trigger_ms

    def take(table: pa.Table) -> tuple[pa.Table, pa.Table, _Arrivals]:
        before = before_bucket[table["bucket"][0].as_py()]
        records = decoded(table["blob"])
        p = np.repeat(ints(table["p"]), ints(table["n"]))
        ts, ready = ints(records["ts"]), ints(records["ready"])
        batch = ready // trigger if arrives else np.zeros(len(ts), np.int64)
        # Offsets grow with `ready`; without offsets the timestamp orders records of one arrival alone.
        offset = ints(records["o"]) if ordered else ts
        order = np.lexsort((offset, ready, p, batch))
        ts, p, batch, ready = ts[order], p[order], batch[order], ready[order]
        future = None if guard is None else ts > ready + guard
        found, _ = see(ts, p, batch, before.times, future=future, slowest=slowest)
        none = np.full(len(ts), NEVER, np.int64)
        wall = gap = none
        if arrives:
            wall = wall_of(batch, ready, trigger_ms)
            arrival = np.concatenate(([before.arrival], np.sort(ready)))
            gap = arrival[1:] - arrival[:-1]
            gap[0] = gap[0] if arrival[0] > NEVER else NEVER
        times = {
            "ts": ts,
            "p": p,
            "rank": before.records + np.arange(len(ts)),
            "largest": found.largest,
            "own": found.own,
            "slowest": none if found.slowest is None else found.slowest,
            "guarded": none if found.guarded is None else found.guarded,
            "future": none * 0 if future is None else future.astype(np.int64),
            "wall": wall,
            "gap": gap,
        }
        kept = [name for name in records.schema.names if name.startswith(("k:", "v:"))]
        return records.select(kept).take(pa.array(order)), pa.table(times), _Arrivals(offset[order], ready, batch)

    return take


def by_key(rows: pa.Table, groups: int) -> Iterator[tuple[int, pa.Table]]:
    """The rows of each group of keys, in their order."""
    if groups == 1:
        yield 0, rows
        return
    hashes = hash_rows(rows.select([name for name in rows.schema.names if name.startswith("k:")]))
    group = (hashes % np.uint64(groups)).astype(np.int64)
    order = np.argsort(group, kind="stable")
    rows, group = rows.take(pa.array(order)), group[order]
    for low, high in stretches(group):
        yield int(group[low]), rows.slice(low, high - low)


def sees(times: pa.Table, plan: Plan) -> Seen:
    """The times that the records of a blob of `seen` see."""
    return Seen(
        ints(times["largest"]),
        ints(times["own"]),
        ints(times["slowest"]) if plan.slowest else None,
        ints(times["guarded"]) if plan.guard is not None else None,
    )
