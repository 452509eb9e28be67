"""Advice about a static DataFrame: Spark shuffles, `tidegate.advice` counts in its tasks.

known         counts of skipped records, and the names of partitions
seen          the records in order, with the stream time that each sees (`order`)
tallies       of lateness, by bucket of arrival or by key; of results, by key
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import reduce
from math import gcd
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark import StorageLevel
from pyspark.errors import DateTimeException, NumberFormatException
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.group import GroupedData
from pyspark.sql.types import (
    BooleanType,
    DataType,
    DateType,
    DecimalType,
    IntegralType,
    NullType,
    StringType,
    TimestampNTZType,
    TimestampType,
)

from tidegate.advice import lateness as late
from tidegate.advice.advice import Advice, Found
from tidegate.advice.counts import SCHEMA, Tally
from tidegate.advice.here import of_keys
from tidegate.advice.keys import numbered_keys
from tidegate.advice.question import Question
from tidegate.advice.recorded import no_time
from tidegate.advice.results import RunningMax
from tidegate.errors import DefinitionError, InputError
from tidegate.kernel.columns.arrays import Ints, ints
from tidegate.kernel.time.stream_time import NEVER
from tidegate.runtime.spark.advising.order import Known, Plan, Ready, decoded, seen, sees, slices
from tidegate.runtime.spark.frames.arrow import as_taken
from tidegate.runtime.spark.frames.names import check_apart, col, spelled
from tidegate.spec.windows import TimeWindows

ROWS = 1 << 19
"""About so many rows of a slice, of a bucket, or of a group of keys are in a task at once."""
STRETCH = 1 << 19
"""Offsets of a stretch, if a partition has a record for most of them."""
SPARSE = 16
"""In a partition with fewer records a stretch is longer: it has about STRETCH / SPARSE records on average."""
MOST_POINTS = 1 << 20
"""Most moments of stream time that go to every task."""

TALLY = "name string, value long, count long"


def advise_frame(question: Question, frame: DataFrame) -> Advice:
    """The advice about a static DataFrame, whose records stay where they are.

    Raises DefinitionError for a streaming one, one without an order, or a column that is missing; InputError for a
    record without partition, offset or arrival.
    """
    check(question, frame)
    rows = columns(question, frame)
    skipped, known, valid = known_of(question, rows)
    with on_disk() as hold:
        parts, plan = in_order(question, slices(question, valid, known), len(known.names), hold)
        timed = isinstance(question.windows, TimeWindows)
        records = hold(seen(question, parts, plan, ROWS, _counting(question, plan) if timed else None))
        counted = _tallied(records) if timed else _by_key(question, records, plan)
        tally = Tally(question.exact).add_table(collected(counted))
        parts.unpersist()
        tally.number("with_slowest", int(plan.slowest))
        gaps = tally.counts("gaps") if question.arrival is not None else None
        found = Found(question, skipped, tally, tuple(map(str, known.names)), plan.guard, gaps, plan.waited)
        choice = found.choice()
        graces = np.array(found.graces(choice), np.int64)
        results = _results(question, records, graces)
        return found.advice(choice, results)


@contextmanager
def on_disk() -> Iterator[Callable[[DataFrame], DataFrame]]:
    """A function that keeps DataFrames on the disks of the executors until the end of the block."""
    kept: list[DataFrame] = []

    def hold(made: DataFrame) -> DataFrame:
        kept.append(made.persist(StorageLevel.DISK_ONLY))
        return kept[-1]

    try:
        yield hold
    finally:
        for made in kept:
            made.unpersist()


def in_order(
    question: Question,
    sliced: DataFrame,
    partitions: int,
    hold: Callable[[DataFrame], DataFrame],
    left: int | None = None,
) -> tuple[DataFrame, Plan]:
    """The parts of the slices `sliced`, and the Plan for the tasks that read the parts.

    `left`: of a join, the number of partitions of its left input.
    """
    sliced = hold(sliced)
    parts = hold(Ready.of(question, sliced, partitions, ROWS).parts(question, sliced))
    plan = Plan.of(question, parts, partitions, left)
    sliced.unpersist()
    return parts, plan


def check(question: Question, frame: DataFrame) -> None:
    """Raise DefinitionError for a DataFrame whose rows have no end, or no order."""
    check_static(frame)
    if question.arrival is None and question.offset is None:
        raise DefinitionError(
            "Rows of a DataFrame have no order, and late is a matter of order. Give partition= and offset=, or "
            "arrival=."
        )


def check_static(frame: DataFrame) -> None:
    """Raise DefinitionError for a DataFrame whose rows have no end."""
    if frame.isStreaming:
        raise DefinitionError(
            "The recording is a streaming DataFrame, which has no end. Read the same source with spark.read."
        )


def columns(question: Question, frame: DataFrame) -> DataFrame:
    """k:, v:, ts (ms), at (arrival, ms), name (of the partition), o (offset), and whether a record is `empty`: skipped
    because its values are all null.

    Raises DefinitionError for a column that is missing or there twice, or of times or offsets that are none.
    """
    for name in question.columns:
        if name not in frame.columns:
            raise DefinitionError(f"The recording has no column {name!r}. Its columns are {', '.join(frame.columns)}.")
    wanted = {name.lower() for name in question.columns}
    check_apart([name for name in frame.columns if name.lower() in wanted], frame.sparkSession, "The recording has")
    types = {field.name: field.dataType for field in frame.schema.fields}
    read = [col(name).alias(f"k:{name}") for name in question.key]
    values = dict.fromkeys(aggregate.column for aggregate in question.aggregates.values())
    read += [col(name).alias(f"v:{name}") for name in values if name is not None]
    read.append(_time(question.timestamp, types[question.timestamp]).alias("ts"))
    if question.arrival is not None:
        read.append(_time(question.arrival, types[question.arrival]).alias("at"))
    read.append(_name(question.partition, types).alias("name"))
    if question.offset is not None:
        read.append(_offset(question.offset, types[question.offset]).alias("o"))
    nulls = [col(name).isNull() for name in question.values(frame.columns)]
    read.append((reduce(Column.__and__, nulls) if nulls else F.lit(False)).alias("empty"))
    return frame.select(*read)


def _name(partition: str | None, types: dict[str, DataType]) -> Column:
    if partition is None:
        return F.lit("the only one")
    # Python and Arrow agree on values of these types. On a timestamp, which has the zone of the session, they do not.
    same = isinstance(types[partition], IntegralType | StringType | BooleanType | DateType | DecimalType)
    return col(partition) if same else col(partition).cast("string")


def _offset(name: str, kind: DataType) -> Column:
    """The offsets of a column. Raises DefinitionError for a column of another type, whose fractions Spark would cut."""
    if isinstance(kind, IntegralType | StringType | NullType):
        return col(name).cast("long")
    raise DefinitionError(
        f"The offset column {name!r} is {kind.simpleString()}. Offsets are whole numbers that say in which order the "
        f'records of a partition came. Use a column of integers, frame.withColumn("{name}", '
        f'F.col({spelled(name)}).cast("long")) if all of its values are whole.'
    )


def _time(name: str, kind: DataType) -> Column:
    """The times of a column in ms. Raises DefinitionError for a column of another type."""
    column = col(name)
    if isinstance(kind, IntegralType | NullType):
        return column.cast("long")
    if isinstance(kind, StringType):
        return F.unix_millis(F.to_timestamp_ltz(column))
    # Spark takes other numbers as seconds.
    if not isinstance(kind, TimestampType | TimestampNTZType | DateType):
        raise no_time(name, kind.simpleString())
    return F.unix_millis(column.cast(TimestampType()))


def _unusable(question: Question) -> tuple[dict[str, Column], Column]:
    """Whether a row of `columns` is skipped, by reason; and whether it is not."""
    bad = F.col("ts").isNull() | (F.col("ts") < 0)
    no_key = reduce(Column.__or__, (col(f"k:{name}").isNull() for name in question.key))
    no_value = F.col("empty")
    reasons = {"null_key": no_key & ~bad, "bad_timestamp": bad, "null_value": no_value & ~bad & ~no_key}
    return reasons, ~(bad | no_key | no_value)


def skip(question: Question, rows: DataFrame) -> tuple[dict[str, int], DataFrame]:
    """The numbers of skipped rows by reason, and the other rows of `columns`."""
    reasons, valid = _unusable(question)
    with _read_text():
        (counted,) = rows.agg(*map(F.count_if, reasons.values())).collect()
    return dict(zip(reasons, counted, strict=True)), rows.where(valid).drop("empty")


@contextmanager
def _read_text() -> Iterator[None]:
    """Raises InputError where Spark reads text that is no time, or no offset."""
    try:
        yield
    except (DateTimeException, NumberFormatException) as error:
        why = " ".join(str(error).split()).partition(". ")[0]
        raise InputError(
            f"The recording has text that is no time or no offset: {why}. Correct such records, or leave them out."
        ) from error


def known_of(question: Question, rows: DataFrame) -> tuple[dict[str, int], Known, DataFrame]:
    """The numbers of skipped rows of `columns` by reason, the Known of the other rows, and these rows.

    Raises InputError for a record without partition, offset or arrival.
    """
    reasons, valid = _unusable(question)
    needed = [name for name in ("name", "o", "at") if name in rows.columns]
    counts = {"records": valid, **reasons}
    counts |= {f"no {name}": valid & F.col(name).isNull() for name in needed}
    offset = F.when(valid, F.col("o")) if "o" in rows.columns else F.lit(None).cast("long")
    aggregates = [F.count_if(counted).alias(name) for name, counted in counts.items()]
    aggregates += [F.min(offset).alias("first"), F.max(offset).alias("last")]
    with _read_text():
        partitions = rows.groupBy("name").agg(*aggregates).sort("name").collect()
    for name in needed:
        if many := sum(row[f"no {name}"] for row in partitions):
            what = {"name": "partition", "o": "offset", "at": "arrival"}[name]
            raise InputError(
                f"{many} records with a key and a time have no {what}, and without it their order is unknown. "
                f"Drop such records before, or leave {what}= out."
            )
    there = [row for row in partitions if row["records"]]
    width = tuple(_width(row["records"], row["first"], row["last"]) for row in there)
    skipped = {reason: sum(row[reason] for row in partitions) for reason in reasons}
    return skipped, Known(tuple(row["name"] for row in there), width, ROWS), rows.where(valid).drop("empty")


def _width(records: int, first: int | None, last: int | None) -> int:
    """Offsets of a stretch of a partition with so many records from offset `first` to `last`."""
    if first is None or last is None:
        return STRETCH
    return STRETCH * max(1, (last - first + 1) // (SPARSE * records))


def _counting(question: Question, plan: Plan) -> Any:
    """A function that counts the lateness of records (columns as in `order.seen`): of all together, or by `key`."""
    arrives, guarded, many = question.arrival is not None, plan.guard is not None, plan.records

    def count(times: pa.Table, key: Ints | None = None) -> pa.Table:
        named = {name: ints(times[name]) for name in ("ts", "p", "rank", "future", "wall", "gap")}
        future = named["future"] == 1 if guarded else None
        part = late.parts(named["rank"], many)
        wall = named["wall"] if arrives else None
        key = np.zeros(len(part), np.int64) if key is None else key
        rows = late.Records(key, named["ts"], named["p"], part, sees(times, plan), future, wall)
        tally = late.lateness(question.windows, rows, question.exact)
        if arrives:
            tally.add("gaps", named["gap"][named["gap"] > NEVER])
        return tally.table()

    return count


def _tallied(records: DataFrame) -> DataFrame:
    """The counts of all buckets, as TALLY."""

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for blob in batch["tally"].drop_null():
                yield from decoded([blob]).to_batches()

    return records.select("tally").mapInArrow(run, TALLY)


def _by_key(question: Question, records: DataFrame, plan: Plan) -> DataFrame:
    """The counts of lateness if each key has windows of its own, as TALLY."""
    count, taken = _counting(question, plan), as_taken(records.sparkSession)

    def run(table: pa.Table) -> pa.Table:
        rows = in_turn(decoded(table["blob"]))
        return taken(count(rows, numbered_keys(rows)[0]))

    return by_keys(records).applyInArrow(run, TALLY)


def by_keys(records: DataFrame) -> GroupedData:
    """Groups of about ROWS records, with all records of their keys, as blobs."""
    return records.where(F.col("some").isNotNull()).select("some", "blob").groupBy("some")


def in_turn(table: pa.Table) -> pa.Table:
    """The records in the order of `rank`, in which they came."""
    return table.take(pa.array(np.argsort(ints(table["rank"]))))


def _results(question: Question, records: DataFrame, graces: Ints) -> Tally:
    """The counts of results; each task takes a group of keys."""
    points = _points(question, records, graces)
    exact = np.unique(np.concatenate([graces, question.exact]))
    taken = as_taken(records.sparkSession)

    def run(table: pa.Table) -> pa.Table:
        rows = in_turn(decoded(table["blob"]))
        kept = [name for name in rows.schema.names if name.startswith(("k:", "v:"))]
        ts, seen_by = ints(rows["ts"]), ints(rows["largest"])
        rows = rows.select([*kept, "ts"])
        return taken(of_keys(question, rows, numbered_keys(rows), ts, seen_by, points, graces).table())

    return Tally(exact).add_table(collected(by_keys(records).applyInArrow(run, TALLY)))


def _points(question: Question, records: DataFrame, graces: Ints) -> RunningMax:
    """The first time and the first arrival in each unit of stream time. Time windows close at multiples of the unit, so
    waits are exact. Sliding windows and sessions close at any time: waits are exact to 1/MOST_POINTS of the recording.
    """
    windows = question.windows
    if isinstance(windows, TimeWindows):
        unit = gcd(windows.size_ms, windows.advance_ms, *map(int, graces))
    else:
        unit = unit_of_time(records, "low", "high", MOST_POINTS)

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for blob in batch["points"].drop_null():
                reached = decoded([blob])
                time = ints(reached["time"])
                reached = pa.table({"unit": time // unit, "time": time, "wall": ints(reached["wall"])})
                thin = reached.group_by("unit").aggregate([("time", "min"), ("wall", "min"), ("time", "max")])
                yield from pa.table(thin.columns, ["unit", "first", "wall", "last"]).to_batches()

    thin = records.select("points").mapInArrow(run, "unit long, first long, wall long, last long")
    table = thin.groupBy("unit").agg(F.min("first"), F.min("wall"), F.max("last")).toArrow()
    first, wall, last = (ints(table.column(place)) for place in (1, 2, 3))
    if len(last):
        end = int(np.argmax(last))
        first, wall = np.append(first, last[end]), np.append(wall, wall.max())
    return RunningMax.of(first, wall if question.arrival is not None else None)


def unit_of_time(records: DataFrame, first: str, last: str, most: int) -> int:
    """A unit (ms) so long that at most `most` units lie between the earliest `first` and the latest `last`."""
    low, high = records.agg(F.min(first), F.max(last)).collect()[0]
    return 1 if low is None else int((high - low) // most + 1)


def collected(rows: DataFrame) -> pa.Table:
    """The sums of the counts of all tasks."""
    return rows.groupBy("name", "value").agg(F.sum("count").alias("count")).toArrow().select(SCHEMA.names).cast(SCHEMA)
