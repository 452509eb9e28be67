"""`tg.advise_join` of two static DataFrames: Spark brings the records of a key together, `advice.partners` counts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import IntegralType

from tidegate.advice.counts import Counts, Tally
from tidegate.advice.partners import JoinAdvice, Sides, advice_of, check_target, other_types
from tidegate.advice.question import Question
from tidegate.advice.recorded import numbered_keys
from tidegate.errors import DefinitionError, in_one_line
from tidegate.instants import ROUND_MS
from tidegate.kernel.columns.arrays import ints
from tidegate.runtime.spark.advising import ROWS, TALLY, collected, columns, skip
from tidegate.runtime.spark.names import col

_EXACT = np.array(ROUND_MS, np.int64)


def advise_frames(frames: Sequence[Any], asked: tuple[Question, Question], target: float) -> JoinAdvice:
    """The advice about two static DataFrames; questions about other windows are jobs of their own.

    Raises DefinitionError for a streaming one, a column that is missing, and what is asked of arrivals.
    """
    check_target(target)
    for frame in frames:
        if not isinstance(frame, DataFrame):
            raise DefinitionError(
                f"One side is a Spark DataFrame and the other is {in_one_line(frame)}. Give both as DataFrames."
            )
        if frame.isStreaming:
            raise DefinitionError(
                "The recording is a streaming DataFrame, which has no end. Read the same source with spark.read."
            )
    if asked[0].arrival is not None:
        raise DefinitionError(
            "The grace of a join is not computed over Spark DataFrames. Leave arrival= out, or give both sides as "
            "Arrow tables (frame.toArrow())."
        )
    skipped, sides = zip(
        *(skip(one, columns(one, frame)) for one, frame in zip(asked, frames, strict=True)), strict=True
    )
    left, right = _same_types(asked[0], *sides)
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
    """How far apart partners are (`advice.partners.Partners`), counted by Spark where it is asked for."""

    def __init__(self, left: DataFrame, right: DataFrame, tasks: int) -> None:
        some = F.pmod(F.xxhash64(*(col(name) for name in left.columns if name.startswith("k:"))), F.lit(tasks))
        self._sides = [side.withColumn("some", some) for side in (left, right)]
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
        """Count what these windows find; without any, how far the nearest partners are."""

        def run(left: pa.Table, right: pa.Table) -> pa.Table:
            keys = [name for name in left.schema.names if name.startswith("k:")]
            codes, _ = numbered_keys(pa.concat_tables([left.select(keys), right.select(keys)]))
            split, tally = left.num_rows, Tally(_EXACT)
            sides = Sides.of(codes[:split], ints(left["ts"]), codes[split:], ints(right["ts"]))
            if not windows:
                tally.add("nearest", sides.nearest.values, sides.nearest.counts)
            for before, after in windows:
                tally.number(f"found/{before}/{after}", sides.found(before, after))
                tally.number(f"pairs/{before}/{after}", sides.pairs(before, after))
            return tally.table()

        left, right = (side.groupBy("some") for side in self._sides)
        self._known.add_table(collected(left.cogroup(right).applyInArrow(run, TALLY)))
        self._asked |= set(windows)
