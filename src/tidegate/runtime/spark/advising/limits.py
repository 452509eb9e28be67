"""`tg.advise_limit` of a static DataFrame: without a bound the rows of each key wait by themselves (`advice.limits`).

records   by group of keys, blobs of the records in order with stream time before and after each; and the times reached
waited    by group of keys and limit, how long rows waited, and the ranks at which they entered and left the buffer
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from tidegate.advice.counts import SCHEMA, Tally
from tidegate.advice.keys import numbered_keys
from tidegate.advice.limits import (
    LimitAdvice,
    LimitQuestion,
    Reached,
    Taken,
    Updates,
    Waited,
    advice_of,
    cost_of,
    most_of,
    usual,
)
from tidegate.advice.question import Question
from tidegate.errors import DefinitionError
from tidegate.instants import ROUND_MS
from tidegate.kernel.columns.arrays import ints
from tidegate.runtime.spark.advising.order import (
    Plan,
    by_key,
    decoded,
    encoded,
    slices,
    stretches,
    table_of,
    taking,
)
from tidegate.runtime.spark.advising.stream import (
    TALLY,
    by_keys,
    check,
    collected,
    columns,
    in_order,
    in_turn,
    known_of,
    on_disk,
    unit_of_time,
)
from tidegate.runtime.spark.frames.arrow import as_taken, spark_schema

MOST_TIMES = 1 << 20
"""Most reached stream times that go to every task: waits are exact to 1/MOST_TIMES of the recording."""
BLOCK = 1 << 22
"""Ranks of a block: the rows that enter and leave the buffer are counted block by block."""
_HALVES = np.unique(np.array(ROUND_MS, np.int64) // 2)
"""Bounds (ms) for exact counts of times between updates: a limit is twice such a time, rounded up to a round one."""

_RECORDS = pa.schema(
    [("some", pa.int64()), ("blob", pa.binary()), ("reached", pa.binary()), ("first", pa.int64()), ("last", pa.int64())]
)
_WAITED = pa.schema([*SCHEMA, ("limit_ms", pa.int64()), ("block", pa.int64()), ("blob", pa.binary())])
_STEPS = pa.schema([(name, pa.int64()) for name in ("limit_ms", "block", "total", "most")])


def advise_limit_frame(asked: LimitQuestion, frame: DataFrame) -> LimitAdvice:
    """The advice about a static DataFrame.

    Raises DefinitionError for a bound of the buffer, and otherwise as `advise_frame`.
    """
    if asked.bounds:
        raise DefinitionError(
            "`max_records` is not looked at over Spark DataFrames: a full buffer lets the oldest row of all keys out, "
            "so that records must be taken one by one. Leave it out, or give a part of the recording as an Arrow table "
            "(frame.toArrow())."
        )
    question = asked.about
    check(question, frame)
    skipped, known, valid = known_of(question, columns(question, frame))
    with on_disk() as hold:
        parts, plan = in_order(question, slices(question, valid, known), len(known.names), hold)
        plan = replace(plan, guard=None, slowest=False)
        records = hold(_records(question, parts, plan, known.rows))
        tally = Tally(_HALVES).add_table(
            collected(by_keys(records).applyInArrow(_between(asked, as_taken(frame.sparkSession)), TALLY))
        )
        limits = sorted(set(asked.limits or usual(tally.counts("between"))))
        waited = hold(_waited(asked, records, limits, _reached(records)))
        tally.add_table(collected(waited.where(F.col("name").isNotNull())))
        most = _most(waited)
    updates = tally.of("updates")
    costs = [
        cost_of(ms, None, tally.counts(f"wait/{ms}"), 0, tally.of(f"waiting/{ms}"), most.get(ms, 0), updates)
        for ms in limits
    ]
    return advice_of(asked, plan.records, skipped, updates, costs)


def _records(question: Question, parts: DataFrame, plan: Plan, rows: int) -> DataFrame:
    """_RECORDS: by group of keys (`some`) blobs of the k: columns and the columns of `Taken`; by bucket a blob of the
    stream times that were `reached`, and the `first` and the `last` of them (ms).
    """
    take, before_bucket, some = taking(question, plan), plan.before, max(1, plan.records // rows)
    taken = as_taken(parts.sparkSession)

    def run(table: pa.Table) -> pa.Table:
        shown, times, _ = take(table)
        most = int(before_bucket[table["bucket"][0].as_py()].times.reached.max())
        ts, rank = ints(times["ts"]), ints(times["rank"])
        now = np.maximum(np.maximum.accumulate(ts), most)
        before = np.concatenate(([most], now[:-1]))
        columns = dict(zip(Taken._fields, map(pa.array, (rank, ts, before, now)), strict=True))
        whole = pa.table({name: shown[name] for name in shown.schema.names} | columns)
        reached = Reached.of(now, rank)
        blob = encoded(pa.table({"time": reached.time, "rank": reached.rank}))
        found: list[tuple[Any, ...]] = [(None, None, blob, int(now[0]), int(now[-1]))]
        found += [(group, encoded(mine), None, None, None) for group, mine in by_key(whole, some)]
        return taken(table_of(_RECORDS, found))

    return parts.groupBy("bucket").applyInArrow(run, spark_schema(_RECORDS))


def _reached(records: DataFrame) -> Reached:
    """The reached stream times: the first in each of at most MOST_TIMES units of time, and the last one."""
    unit = unit_of_time(records, "first", "last", MOST_TIMES)

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for blob in batch["reached"].drop_null():
                reached = decoded([blob])
                place = np.flatnonzero(np.diff(ints(reached["time"]) // unit, prepend=-1))
                yield from reached.take(pa.array(np.unique(np.append(place, reached.num_rows - 1)))).to_batches()

    reached = records.select("reached").mapInArrow(run, "time long, rank long").toArrow()
    time, rank = ints(reached["time"]), ints(reached["rank"])
    order = np.lexsort((rank, time))
    return Reached.of(time[order], rank[order])


def _updates(asked: LimitQuestion, table: pa.Table) -> Updates:
    """The updates of the keys of some blobs."""
    rows = in_turn(decoded(table["blob"]))
    taken = Taken(*(ints(rows[name]) for name in Taken._fields))
    return Updates.of(asked.windows, taken, numbered_keys(rows)[0])


def _between(asked: LimitQuestion, taken: Callable[[pa.Table], pa.Table]) -> Callable[[pa.Table], pa.Table]:
    """A function that counts the updates of a group of keys, and the times between two updates of a name."""

    def run(table: pa.Table) -> pa.Table:
        updates, tally = _updates(asked, table), Tally(_HALVES)
        tally.number("updates", len(updates.name))
        tally.add("between", updates.between)
        return taken(tally.table())

    return run


def _waited(asked: LimitQuestion, records: DataFrame, limits: list[int], reached: Reached) -> DataFrame:
    """_WAITED: tallies, and by limit and block a blob of the ranks with which rows entered and left the buffer."""
    taken = as_taken(records.sparkSession)

    def run(table: pa.Table) -> pa.Table:
        updates, tally = _updates(asked, table), Tally(_HALVES)
        found: list[tuple[Any, ...]] = []
        for limit in limits:
            waited = Waited.of(updates, limit, reached)
            tally.add(f"wait/{limit}", waited.waits)
            tally.number(f"waiting/{limit}", waited.waiting)
            rank = np.concatenate((waited.entered, waited.left))
            enters = np.arange(len(rank)) < len(waited.entered)
            order = np.argsort(rank, kind="stable")
            rank, enters = rank[order], enters[order]
            for low, high in stretches(rank // BLOCK) if len(rank) else ():
                steps = pa.table({"rank": rank[low:high], "enters": enters[low:high]})
                found.append((None, None, None, limit, int(rank[low]) // BLOCK, encoded(steps)))
        counted = tally.table()
        for name in _WAITED.names[len(SCHEMA) :]:
            counted = counted.append_column(name, pa.nulls(counted.num_rows, _WAITED.field(name).type))
        return taken(pa.concat_tables([counted, table_of(_WAITED, found)]))

    return by_keys(records).applyInArrow(run, spark_schema(_WAITED))


def _most(waited: DataFrame) -> dict[int, int]:
    """The most rows that waited at once, by limit (ms)."""

    def run(table: pa.Table) -> pa.Table:
        steps = decoded(table["blob"])
        rank, enters = ints(steps["rank"]), steps["enters"].to_numpy()
        row = (table["limit_ms"][0].as_py(), table["block"][0].as_py(), *most_of(rank[enters], rank[~enters]))
        return table_of(_STEPS, [row])

    blocks = waited.where(F.col("blob").isNotNull()).select("limit_ms", "block", "blob").groupBy("limit_ms", "block")
    there: dict[int, int] = {}
    most: dict[int, int] = {}
    steps = blocks.applyInArrow(run, spark_schema(_STEPS)).sort("limit_ms", "block").collect()
    for limit, _, total, highest in steps:
        most[limit] = max(most.get(limit, 0), there.get(limit, 0) + highest)
        there[limit] = there.get(limit, 0) + total
    return most
