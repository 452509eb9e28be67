"""Advice about a static DataFrame: Spark sorts and shuffles, `tidegate.advice` counts in its tasks.

valid rows    counts of what is skipped, of partitions, of clocks that run ahead
ready         when each record can be read: a running maximum over stretches of offsets
buckets       stretches of arrival, of whole batches; what had passed before each is known from their maxima
seen rows     the stream time that each record sees: a task for each bucket
tallies       of lateness, over the rows as they lie; of results, over the rows by key
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import reduce
from math import gcd
from operator import add
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark import StorageLevel
from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F
from pyspark.sql.group import GroupedData
from pyspark.sql.types import DataType, IntegralType, StringType

from tidegate.advice import lateness as late
from tidegate.advice.advice import Advice, Found
from tidegate.advice.counts import SCHEMA, Tally
from tidegate.advice.here import GUARDS_MS, guard_of, of_keys, wall_of
from tidegate.advice.order import SHORTEST_BATCH_MS, Seen, Times, see
from tidegate.advice.question import Question
from tidegate.advice.recorded import numbered_keys
from tidegate.advice.results import Stairs
from tidegate.errors import DefinitionError, InputError
from tidegate.kernel.columns.arrays import Ints, ints
from tidegate.kernel.time.stream_time import NEVER
from tidegate.runtime.spark.names import col, quoted
from tidegate.spec.windows import TimeWindows

STRETCH = 1 << 20
"""Offsets of a stretch in which the running maximum is computed at once."""
ROWS = 1 << 19
"""Rows that a task holds at once, about: of a bucket, and of keys."""
MOST_STAIRS = 1 << 20
"""So many moments of stream time are told to every task."""
MOST_PARTITIONS = 200
"""With more partitions the time of the slowest one is not computed here."""

_LONGS = ("ts", "p", "o", "ready", "batch", "bucket")
_SEEN = ("ts", "p", "rank", "largest", "own", "slowest", "guarded", "future", "wall", "gap")


TALLY = "name string, value long, count long"


def advise_frame(question: Question, frame: DataFrame) -> Advice:
    """The advice about a static DataFrame, whose records stay where they are.

    Raises DefinitionError for a streaming one, one without an order, or a column that is missing; InputError for a
    record without partition, offset or arrival.
    """
    _check(question, frame)
    rows = columns(question, frame)
    skipped, valid, names = _valid(question, rows)
    ready = _ready(question, valid).persist(StorageLevel.DISK_ONLY)
    seen = None
    try:
        plan = _plan(question, ready, len(names))
        seen = _seen(question, ready, plan).persist(StorageLevel.DISK_ONLY)
        counted = collected(_late(question, seen, plan))
        tally = Tally(question.exact).add_table(counted)
        tally.number("with_slowest", int(plan.slowest))
        gaps = tally.counts("gaps") if question.arrival is not None else None
        found = Found(question, skipped, tally, names, plan.guard, gaps, plan.waited)
        choice = found.choice()
        graces = np.array(found.graces(choice), np.int64)
        results = _results(question, seen, plan, graces)
        return found.advice(choice, results)
    finally:
        ready.unpersist()
        if seen is not None:
            seen.unpersist()


def _check(question: Question, frame: DataFrame) -> None:
    if frame.isStreaming:
        raise DefinitionError(
            "The recording is a streaming DataFrame, which has no end. Read the same source with spark.read."
        )
    if question.arrival is None and question.offset is None:
        raise DefinitionError(
            "Rows of a DataFrame have no order, and late is a matter of order. Give partition= and offset=, or "
            "arrival=."
        )


def columns(question: Question, frame: DataFrame) -> DataFrame:
    """k:, v:, ts (ms), at (ms), name (of the partition), o. Raises DefinitionError for a column that is missing."""
    for name in question.columns:
        if name not in frame.columns:
            raise DefinitionError(f"The recording has no column {name!r}. Its columns are {', '.join(frame.columns)}.")
    types = {field.name: field.dataType for field in frame.schema.fields}
    read = [col(name).alias(f"k:{name}") for name in question.key]
    values = dict.fromkeys(aggregate.column for aggregate in question.aggregates.values())
    read += [col(name).alias(f"v:{name}") for name in values if name is not None]
    read.append(_time(question.timestamp, types[question.timestamp]).alias("ts"))
    if question.arrival is not None:
        read.append(_time(question.arrival, types[question.arrival]).alias("at"))
    read.append((F.lit("the only one") if question.partition is None else col(question.partition)).alias("name"))
    order = F.col("ts") if question.offset is None else col(question.offset).cast("long")
    return frame.select(*read, *([] if question.offset is None else [order.alias("o")]))


def _time(name: str, kind: DataType) -> Column:
    column = col(name)
    if isinstance(kind, IntegralType):
        return column.cast("long")
    return F.unix_millis(F.to_timestamp(column) if isinstance(kind, StringType) else column.cast("timestamp"))


def _unusable(question: Question) -> tuple[Column, Column]:
    """Whether a row of `columns` has no valid timestamp, and whether it has no key."""
    bad = F.col("ts").isNull() | (F.col("ts") < 0)
    return bad, reduce(lambda a, b: a | b, (col(f"k:{name}").isNull() for name in question.key))


def skip(question: Question, rows: DataFrame) -> tuple[dict[str, int], DataFrame]:
    """What is skipped, and the other rows of `columns`."""
    bad, no_key = _unusable(question)
    (told,) = rows.agg(F.count_if(bad), F.count_if(no_key & ~bad)).collect()
    return _skipped(told), rows.where(~bad & ~no_key)


def _valid(question: Question, rows: DataFrame) -> tuple[dict[str, int], DataFrame, tuple[str, ...]]:
    """What is skipped, the others with `p` (the number of the partition) in place of its name, and the names."""
    bad, no_key = _unusable(question)
    needed = [name for name in ("name", "o", "at") if name in rows.columns]
    nulls = [F.count_if(~bad & ~no_key & F.col(name).isNull()) for name in needed]
    (told,) = rows.agg(F.count_if(bad), F.count_if(no_key & ~bad), *nulls).collect()
    for name, many in zip(needed, told[2:], strict=True):
        if many:
            what = {"name": "partition", "o": "offset", "at": "arrival"}[name]
            raise InputError(
                f"{many} records with a key and a time have no {what}, and without it nobody can say when they came. "
                f"Drop such records before, or leave {what}= out."
            )
    rows = rows.where(~bad & ~no_key)
    if "o" not in rows.columns:
        rows = rows.withColumn("o", F.col("ts"))
    names = [row[0] for row in rows.select("name").distinct().sort("name").collect()]
    if len(names) <= 1:
        return _skipped(told), rows.withColumn("p", F.lit(0).cast("long")).drop("name"), tuple(map(str, names))
    numbers = rows.sparkSession.createDataFrame(
        [(name, number) for number, name in enumerate(names)],
        f"name {rows.schema['name'].dataType.simpleString()}, p long",
    )
    return _skipped(told), rows.join(F.broadcast(numbers), "name").drop("name"), tuple(map(str, names))


def _skipped(told: Any) -> dict[str, int]:
    return {"null_key": told[1], "bad_timestamp": told[0]}


def _ready(question: Question, rows: DataFrame) -> DataFrame:
    """With `ready`, when a record can be read (null without arrivals), and `stretch`, of the offsets."""
    rows = rows.withColumn("stretch", F.floor(F.col("o") / STRETCH).cast("long"))
    if question.arrival is None:
        return rows.withColumn("ready", F.lit(None).cast("long")).withColumn("waits", F.lit(0))
    if question.offset is None:
        return rows.withColumn("ready", F.col("at")).withColumn("waits", F.lit(0)).drop("at")
    before = Window.partitionBy("p").orderBy("stretch").rowsBetween(Window.unboundedPreceding, -1)
    ends = rows.groupBy("p", "stretch").agg(F.max("at").alias("end"))
    ends = ends.select("p", "stretch", F.max("end").over(before).alias("before"))
    within = Window.partitionBy("p", "stretch").orderBy("o", "at").rowsBetween(Window.unboundedPreceding, 0)
    rows = rows.join(F.broadcast(ends), ["p", "stretch"]).withColumn("ready", F.max("at").over(within))
    rows = rows.withColumn("ready", F.greatest("ready", "before"))
    return rows.withColumn("waits", (F.col("ready") > F.col("at")).cast("int")).drop("at", "before")


@dataclass(frozen=True)
class _Plan:
    """What the tasks must know: the bucket of a record, the times before each, the rank of its first record."""

    bucket: Column
    batch: Column
    before: dict[int, Times]
    rank: dict[int, int]
    gap_from: dict[int, int]
    records: int
    partitions: int
    slowest: bool
    guard: int | None
    waited: int


def _plan(question: Question, ready: DataFrame, partitions: int) -> _Plan:
    ahead = [F.count_if(F.col("ts") > F.col("ready") + ms) for ms in GUARDS_MS]
    trigger = question.trigger_ms or SHORTEST_BATCH_MS
    batch = F.lit(0).cast("long") if question.arrival is None else F.floor(F.col("ready") / F.lit(trigger)).cast("long")
    told = ready.groupBy("p").agg(F.count("*"), F.min(batch), F.max(batch), F.sum("waits"), *ahead).collect()
    records = sum(row[1] for row in told)
    guard = None
    if question.arrival is not None and told:
        guard = guard_of([sum(row[5 + i] for row in told) for i in range(len(GUARDS_MS))], records)
    slowest = question.arrival is not None and 1 < partitions <= MOST_PARTITIONS
    if question.arrival is None:
        # Offsets are far below 2^43 stretches of STRETCH.
        bucket = F.col("p") * F.lit(1 << 43) + F.col("stretch")
    else:
        low, high = min((row[2] for row in told), default=0), max((row[3] for row in told), default=0)
        width = (high - low) // max(1, records // ROWS) + 1
        # A partition that is new begins a bucket: within one the smallest time of the partitions only grows.
        first = sorted({row[2] for row in told}) if slowest else []
        news: list[Column] = [(batch >= F.lit(at)).cast("long") for at in first]
        bucket = reduce(add, news, F.floor((batch - F.lit(low)) / F.lit(width)).cast("long"))
    kept = F.lit(True) if guard is None else F.col("ts") <= F.col("ready") + guard
    parts = (
        ready.groupBy(bucket.alias("bucket"), "p")
        .agg(F.count("*"), F.max("ts"), F.max(F.when(kept, F.col("ts"))), F.max("ready"))
        .sort("bucket", "p")
        .collect()
    )
    before, rank, gap_from = _before(parts, partitions, one_batch=question.arrival is None)
    waited = sum(row[4] or 0 for row in told)
    return _Plan(bucket, batch, before, rank, gap_from, records, partitions, slowest, guard, waited)


def _before(
    parts: Sequence[Any], partitions: int, *, one_batch: bool
) -> tuple[dict[int, Times], dict[int, int], dict[int, int]]:
    """The times before each bucket, the rank of its first record, and the arrival before its first."""
    before, rank, gap_from = {}, {}, {}
    times, counted, arrived = Times.at_start(partitions), 0, NEVER
    for place, row in enumerate(parts):
        bucket = row[0]
        if bucket not in before:
            if place and not one_batch:
                times = _closed(times)
            before[bucket], rank[bucket], gap_from[bucket] = times, counted, arrived
        reached, guarded = times.reached.copy(), times.reached_guarded.copy()
        reached[row[1]] = max(reached[row[1]], row[3])
        guarded[row[1]] = max(guarded[row[1]], NEVER if row[4] is None else row[4])
        times = Times(times.largest, times.guarded, times.slowest, reached, guarded)
        counted, arrived = counted + row[2], max(arrived, NEVER if row[5] is None else row[5])
    return before, rank, gap_from


def _closed(times: Times) -> Times:
    """The times when a bucket has ended: that of the batches before the next one."""
    known = times.reached[times.reached > NEVER]
    slowest = max(times.slowest, int(known.min()) if len(known) else NEVER)
    largest, guarded = int(times.reached.max()), int(times.reached_guarded.max())
    return Times(largest, guarded, slowest, times.reached, times.reached_guarded)


def _seen(question: Question, ready: DataFrame, plan: _Plan) -> DataFrame:
    """The k: and v: columns with _SEEN: a task for each bucket."""
    kept = [name for name in ready.columns if name.startswith(("k:", "v:"))]
    rows = ready.select(
        *(col(name) for name in kept),
        *("ts", "p", "o", "ready"),
        plan.batch.alias("batch"),
        plan.bucket.alias("bucket"),
    )
    types = {field.name: field.dataType for field in rows.schema.fields}
    fields = [f"{quoted(name)} {types[name].simpleString()}" for name in kept] + [f"{name} long" for name in _SEEN]
    before, rank, gap_from = plan.before, plan.rank, plan.gap_from
    guard, slowest, trigger_ms = plan.guard, plan.slowest, question.trigger_ms
    arrives = question.arrival is not None

    def run(table: pa.Table) -> pa.Table:
        named = {name: ints(table[name]) for name in _LONGS if name != "ready" or arrives}
        # Offsets grow with `ready`; without offsets `o` is the timestamp, which orders records of one arrival alone.
        order = np.lexsort((named["o"], named.get("ready", named["batch"]), named["p"], named["batch"]))
        named = {name: column[order] for name, column in named.items()}
        bucket, ts = int(named["bucket"][0]), named["ts"]
        future = None if guard is None else ts > named["ready"] + guard
        found, _ = see(ts, named["p"], named["batch"], before[bucket], future=future, slowest=slowest)
        none = np.full(len(ts), NEVER, np.int64)
        wall = gap = none
        if arrives:
            wall = wall_of(named["batch"], named["ready"], trigger_ms)
            came = np.concatenate(([gap_from[bucket]], np.sort(named["ready"])))
            gap = came[1:] - came[:-1]
            gap[0] = gap[0] if came[0] > NEVER else NEVER
        columns = {
            "ts": ts,
            "p": named["p"],
            "rank": rank[bucket] + np.arange(len(ts)),
            "largest": found.largest,
            "own": found.own,
            "slowest": none if found.slowest is None else found.slowest,
            "guarded": none if found.guarded is None else found.guarded,
            "future": none * 0 if future is None else future.astype(np.int64),
            "wall": wall,
            "gap": gap,
        }
        return pa.table({name: table[name].take(pa.array(order)) for name in kept} | columns)

    return rows.groupBy("bucket").applyInArrow(run, ", ".join(fields))


def _late(question: Question, seen: DataFrame, plan: _Plan) -> DataFrame:
    """What is counted of lateness: over the rows as they lie, or by key where windows are those of a key."""
    slowest, guarded, arrives = plan.slowest, plan.guard is not None, question.arrival is not None
    many = plan.records

    def count(table: pa.Table, key: Ints) -> Tally:
        named = {name: ints(table[name]) for name in _SEEN}
        sees = Seen(
            named["largest"],
            named["own"],
            named["slowest"] if slowest else None,
            named["guarded"] if guarded else None,
        )
        future = named["future"] == 1 if guarded else None
        part = late.parts(named["rank"], many)
        wall = named["wall"] if arrives else None
        rows = late.Records(key, named["ts"], named["p"], part, sees, future, wall)
        tally = late.lateness(question.windows, rows, question.exact)
        if arrives:
            tally.add("gaps", named["gap"][named["gap"] > NEVER])
        return tally

    def as_they_lie(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        tally = Tally(question.exact)
        for table in _tables(batches, _SEEN):
            tally.merge([count(table, np.zeros(table.num_rows, np.int64))])
        yield from tally.table().to_batches()

    def by_key(table: pa.Table) -> pa.Table:
        table = _in_turn(table)
        return count(table, numbered_keys(table)[0]).table()

    if isinstance(question.windows, TimeWindows):
        return seen.mapInArrow(as_they_lie, TALLY)
    return _some_keys(seen, plan).applyInArrow(by_key, TALLY)


def _some_keys(seen: DataFrame, plan: _Plan) -> GroupedData:
    """Groups of about ROWS records, with all records of their keys."""
    keys = [col(name) for name in seen.columns if name.startswith("k:")]
    some = F.pmod(F.xxhash64(*keys), F.lit(max(1, plan.records // ROWS)))
    return seen.withColumn("some", some).groupBy("some")


def _in_turn(table: pa.Table) -> pa.Table:
    """The records in the order in which they came."""
    return table.take(pa.array(np.argsort(ints(table["rank"]))))


def _tables(batches: Iterator[pa.RecordBatch], columns: Sequence[str]) -> Iterator[pa.Table]:
    """These columns, some ROWS at a time."""
    held: list[pa.RecordBatch] = []
    rows = 0
    for batch in batches:
        held.append(batch.select(list(columns)))
        rows += batch.num_rows
        if rows >= ROWS:
            yield pa.Table.from_batches(held)
            held, rows = [], 0
    if held:
        yield pa.Table.from_batches(held)


def _results(question: Question, seen: DataFrame, plan: _Plan, graces: Ints) -> Tally:
    """What is counted of results: a task for some of the keys."""
    stairs = _stairs(question, seen, graces)
    kept = [name for name in seen.columns if name.startswith(("k:", "v:"))]
    exact = np.unique(np.concatenate([graces, question.exact]))

    def run(table: pa.Table) -> pa.Table:
        table = _in_turn(table)
        rows = table.select([*kept, "ts"])
        seen_by = ints(table["largest"])
        return of_keys(question, rows, numbered_keys(rows), ints(table["ts"]), seen_by, stairs, graces).table()

    return Tally(exact).add_table(collected(_some_keys(seen, plan).applyInArrow(run, TALLY)))


def _stairs(question: Question, seen: DataFrame, graces: Ints) -> Stairs:
    """The first time and the first arrival in each unit of stream time: where windows close at multiples of a unit,
    they say all of them. Sliding windows and sessions close at any time: waits are exact to 1/MOST_STAIRS of it all.
    """
    windows = question.windows
    if isinstance(windows, TimeWindows):
        unit = gcd(windows.size_ms, windows.advance_ms, *map(int, graces))
    else:
        low, high = seen.agg(F.min("largest"), F.max("largest")).collect()[0]
        unit = 1 if low is None else (high - low) // MOST_STAIRS + 1
    told = seen.groupBy(F.floor(F.col("largest") / F.lit(unit))).agg(F.min("largest"), F.min("wall"), F.max("largest"))
    table = told.toArrow()
    first, wall, last = (ints(table.column(place)) for place in (1, 2, 3))
    if len(last):
        end = int(np.argmax(last))
        first, wall = np.append(first, last[end]), np.append(wall, wall.max())
    return Stairs.of(first, wall if question.arrival is not None else None)


def collected(rows: DataFrame) -> pa.Table:
    """What tasks counted, together."""
    return rows.groupBy("name", "value").agg(F.sum("count").alias("count")).toArrow().select(SCHEMA.names).cast(SCHEMA)
