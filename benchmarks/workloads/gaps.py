"""W13: W1 behind a filter that drops half of the rows, so that offsets are missing everywhere.

The filter reads a column of the files, made by a hash of the offset, so all contestants drop the same rows. The rows
left have two numbers: their offset, with gaps, and their place among the rows left, without gaps. The extra time of the
contestant over offsets is the price of the gaps.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import asdict
from pathlib import Path

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

import tidegate as tg
from benchmarks.contestant import Contestant, source
from benchmarks.inputs import HALVES, Int64s, Shape, halves, key_names, table, write_halves
from benchmarks.race import Bar, Race
from benchmarks.workloads.tumbling import SIZES, final_totals

KEPT, PLACE = "kept", "place"
OURS, CONSECUTIVE, WHOLE = "tidegate", "tidegate_consecutive", "tidegate_whole"
_HASH = np.uint64(0x9E37_79B9_7F4A_7C15)


def write(shape: Shape, folder: Path) -> Path:
    """The folder of the files of `shape`, with the columns `kept` and `place`; written once."""
    name = "gaps-" + "-".join(f"{name}={value}" for name, value in asdict(shape).items())
    return write_halves(folder / name, tables(shape))


def tables(shape: Shape) -> Iterator[pa.Table]:
    """A table per file; places go on from file to file of a partition, as offsets do."""
    names = pa.array(key_names(np.arange(shape.keys)))
    places = [0] * HALVES
    for half in halves(shape):
        rows = table(names.take(pa.array(half.key)), half.ts_ms, half.amount, half.partition, int(half.offset[0]))
        keeps = kept(half.offset)
        place = places[half.partition] + np.cumsum(keeps) - 1
        places[half.partition] += int(keeps.sum())
        yield rows.append_column(KEPT, pa.array(keeps)).append_column(PLACE, pa.array(place))


def kept(offset: Int64s) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    """A mask of about half of the offsets, without a pattern."""
    mixed = (offset.astype(np.uint64) + np.uint64(1)) * _HASH
    mixed ^= mixed >> np.uint64(29)
    return ((mixed * _HASH) >> np.uint64(63)) == 0


def filtered(offset: str) -> Callable[[SparkSession, Path], DataFrame]:
    """The query of W1 behind the filter, in the order of the column `offset`."""

    def ask(spark: SparkSession, folder: Path) -> DataFrame:
        rows = source(spark, folder).where(KEPT)
        return final_totals(tg.stream(rows, key="user", timestamp="ts", partition="partition", offset=offset))

    return ask


def whole(spark: SparkSession, folder: Path) -> DataFrame:
    rows = source(spark, folder)
    return final_totals(tg.stream(rows, key="user", timestamp="ts", partition="partition", offset="offset"))


W13 = Race(
    "W13",
    "W1 behind a filter that drops half of the rows",
    lambda size, folder: write(SIZES["W1"][size], folder),
    (
        Contestant(OURS, "tidegate, every second offset missing", filtered("offset")),
        Contestant(CONSECUTIVE, "tidegate, the same rows, none missing", filtered(PLACE)),
        Contestant(WHOLE, "tidegate, all rows (W1)", whole, answers=False),
    ),
    (Bar(1 / 1.15, (CONSECUTIVE,), (OURS,)), Bar(1 / 1.15, (WHOLE,), (OURS,))),
    repeat=2,
)
