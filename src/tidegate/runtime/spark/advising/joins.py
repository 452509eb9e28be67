"""`tg.advise_join` of two static DataFrames: Spark brings the records of a key together, `advice.partners` counts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import IntegralType

from tidegate.advice.counts import Counts, Tally
from tidegate.advice.join_graces import JoinArrivals
from tidegate.advice.keys import numbered_keys
from tidegate.advice.partners import (
    JoinAdvice,
    Sides,
    advice_of,
    check_asked,
    other_types,
    with_graces,
)
from tidegate.advice.question import Question
from tidegate.errors import DefinitionError, in_one_line
from tidegate.instants import ROUND_MS
from tidegate.kernel.columns.arrays import ints
from tidegate.runtime.spark.advising.order import MOST_PARTITIONS, decoded, slices, taken_by_join
from tidegate.runtime.spark.advising.stream import (
    ROWS,
    TALLY,
    by_keys,
    check_static,
    collected,
    columns,
    in_order,
    known_of,
    on_disk,
    skip,
)
from tidegate.runtime.spark.frames.arrow import as_taken
from tidegate.runtime.spark.frames.names import col

_EXACT = np.array(ROUND_MS, np.int64)


def advise_frames(
    frames: Sequence[Any], asked: tuple[Question, Question], target: float, stream_time: str
) -> JoinAdvice:
    """The advice about two static DataFrames; each question about other windows is a job of its own.

    Raises DefinitionError for a streaming one, a column that is missing, and a stream time that is not computed;
    InputError for a record without partition, offset or arrival where the grace is asked for.
    """
    check_asked(target, stream_time)
    for frame in frames:
        if not isinstance(frame, DataFrame):
            raise DefinitionError(
                f"One side is a Spark DataFrame and the other is {in_one_line(frame)}. Give both as DataFrames."
            )
        check_static(frame)
    sides = _same_types(asked[0], *(columns(one, frame) for one, frame in zip(asked, frames, strict=True)))
    if asked[0].arrival is None:
        (skipped, left), (other, right) = (skip(one, side) for one, side in zip(asked, sides, strict=True))
        return _distances((left, right), (skipped, other), target)
    (skipped, known, left), (other, right_known, right) = (
        known_of(one, side) for one, side in zip(asked, sides, strict=True)
    )
    split = len(known.names)
    slowest, partitions = stream_time == "min_partition", split + len(right_known.names)
    if slowest and partitions > MOST_PARTITIONS:
        raise DefinitionError(
            f"The two sides have {partitions} partitions. By the slowest of more than {MOST_PARTITIONS} the grace of a "
            'join is not computed over Spark DataFrames. Use stream_time="max", or leave arrival= out.'
        )
    advice = _distances((left, right), (skipped, other), target)
    with on_disk() as hold:
        cut = slices(asked[0], left, known).unionByName(slices(asked[1], right, right_known, split))
        parts, plan = in_order(asked[0], cut, partitions, hold, split)
        plan = replace(plan, guard=None, slowest=slowest)
        taken = taken_by_join(asked[0], parts, plan, split, ROWS)
        tally = Tally(_EXACT).add_table(collected(_needed(taken, advice.before, advice.after)))
    return with_graces(advice, tally.counts("needed"), tally.of("pairs"))


def _needed(taken: DataFrame, before: int, after: int) -> DataFrame:
    """The grace that each pair of these windows needed, and how many pairs there are, as TALLY."""
    as_spark_takes = as_taken(taken.sparkSession)

    def run(table: pa.Table) -> pa.Table:
        rows = decoded(table["blob"])
        codes, _ = numbered_keys(rows)
        right = rows["right"].to_numpy()
        ts, turn, seen = (ints(rows[name]) for name in ("ts", "turn", "seen"))
        arrivals = JoinArrivals(turn[~right], seen[~right], turn[right], seen[right])
        sides = Sides.of(codes[~right], ts[~right], codes[right], ts[right])
        needed, pairs = arrivals.needed(sides, before, after)
        tally = Tally(_EXACT)
        tally.add("needed", needed.values, needed.counts)
        tally.number("pairs", pairs)
        return as_spark_takes(tally.table())

    return by_keys(taken).applyInArrow(run, TALLY)


def _distances(
    sides: tuple[DataFrame, DataFrame], skipped: tuple[dict[str, int], dict[str, int]], target: float
) -> JoinAdvice:
    left, right = sides
    many = left.count(), right.count()
    counted = _Counted(left, right, max(1, sum(many) // ROWS))
    return advice_of(counted, many, dict(zip(("left", "right"), skipped, strict=True)), target)


def _same_types(asked: Question, left: DataFrame, right: DataFrame) -> tuple[DataFrame, DataFrame]:
    """Both sides, with keys of the same types, so that equal keys have equal hashes."""
    for name in (f"k:{key}" for key in asked.key):
        types = [side.schema[name].dataType for side in (left, right)]
        if types[0] == types[1]:
            continue
        if not all(isinstance(kind, IntegralType) for kind in types):
            shown = [kind.simpleString() for kind in types]
            raise other_types(shown[0], shown[1], f"the column {name[2:]!r} cannot be compared")
        left, right = (side.withColumn(name, col(name).cast("long")) for side in (left, right))
    return left, right


class _Counted:
    """Distances between partners (`advice.partners.Partners`), counted by Spark when they are asked for."""

    def __init__(self, left: DataFrame, right: DataFrame, tasks: int) -> None:
        keys = [name for name in left.columns if name.startswith("k:")]
        read = [col(name).alias(f"k:{place}") for place, name in enumerate(keys)]
        some = F.pmod(F.xxhash64(*map(col, keys)), F.lit(tasks)).alias("some")
        self._sides = [side.select(*read, "ts", some) for side in (left, right)]
        self._known = Tally(_EXACT)
        self._asked: set[tuple[int, int]] = set()
        self._count([])

    @property
    def nearest(self) -> Counts:
        return self._known.counts("nearest")

    def prepare(self, windows: Sequence[tuple[int, int]]) -> None:
        if new := sorted(set(windows) - self._asked):
            self._count(new)

    def found(self, before_ms: int, after_ms: int) -> int:
        self.prepare([(before_ms, after_ms)])
        return self._known.of(f"found/{before_ms}/{after_ms}")

    def pairs(self, before_ms: int, after_ms: int) -> int:
        self.prepare([(before_ms, after_ms)])
        return self._known.of(f"pairs/{before_ms}/{after_ms}")

    def _count(self, windows: Sequence[tuple[int, int]]) -> None:
        """Count the partners that these windows find; without windows, the distances of the nearest partners."""
        taken = as_taken(self._sides[0].sparkSession)

        def run(left: pa.Table, right: pa.Table) -> pa.Table:
            keys = [name for name in left.schema.names if name.startswith("k:")]
            # One side may have columns without nulls.
            both = pa.concat_tables([left.select(keys), right.select(keys)], promote_options="default")
            codes, _ = numbered_keys(both)
            split, tally = left.num_rows, Tally(_EXACT)
            sides = Sides.of(codes[:split], ints(left["ts"]), codes[split:], ints(right["ts"]))
            if not windows:
                tally.add("nearest", sides.nearest.values, sides.nearest.counts)
            for before, after in windows:
                tally.number(f"found/{before}/{after}", sides.found(before, after))
                tally.number(f"pairs/{before}/{after}", sides.pairs(before, after))
            return taken(tally.table())

        left, right = (side.groupBy("some") for side in self._sides)
        self._known.add_table(collected(left.cogroup(right).applyInArrow(run, TALLY)))
        self._asked |= set(windows)
