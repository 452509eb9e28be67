"""W11: `reduce` and `aggregate` with plain Python functions, against `applyInPandasWithState` per key.

A table without windows: each batch emits the newest aggregate of each of its keys. Spark calls its function per key, so
it runs only the first batches.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.state import GroupState, GroupStateTimeout

import tidegate as tg
from benchmarks.contestant import Contestant, source, streamed
from benchmarks.inputs import Shape, sized
from benchmarks.race import Bar, Race

SIZES = {
    "smoke": Shape(300, 6_000, 3),
    "default": Shape(20_000, 200_000, 5),
    "full": Shape(100_000, 200_000, 10),
}


def reduced(spark: SparkSession, folder: Path) -> DataFrame:
    table = streamed(spark, folder).group_by_key().reduce(lambda total, amount: total + amount, "amount", "total")
    rows: DataFrame = table.to_df()
    return rows.select("user", "total")


def aggregated(spark: SparkSession, folder: Path) -> DataFrame:
    grouped = streamed(spark, folder).group_by_key()
    table = grouped.aggregate(lambda: 0, lambda _key, row, total: total + row["amount"], type="long", name="total")
    rows: DataFrame = table.to_df()
    return rows.select("user", "total")


def arrow(spark: SparkSession, folder: Path) -> DataFrame:
    def add(_key: pa.Array, rows: pa.Table, totals: pa.Array) -> pa.ChunkedArray:
        return pc.add(rows["amount"], totals)

    grouped = streamed(spark, folder).group_by_key()
    table = grouped.aggregate(lambda: 0, add, type="long", name="total", vectorized=True)
    rows: DataFrame = table.to_df()
    return rows.select("user", "total")


def built_in(spark: SparkSession, folder: Path) -> DataFrame:
    rows: DataFrame = streamed(spark, folder).group_by_key().agg(total=tg.sum("amount")).to_df()
    return rows.select("user", "total")


def per_key(spark: SparkSession, folder: Path) -> DataFrame:
    def add(key: tuple[Any, ...], frames: Iterator[pd.DataFrame], state: GroupState) -> Iterator[pd.DataFrame]:
        total = state.get[0] if state.exists else 0
        for frame in frames:
            for amount in frame["amount"]:
                total += amount
        state.update((int(total),))
        yield pd.DataFrame({"user": [key[0]], "total": [total]})

    grouped = source(spark, folder).select("user", "amount").groupBy("user")
    return grouped.applyInPandasWithState(
        add, "user string, total long", "total long", "update", GroupStateTimeout.NoTimeout
    )


OURS = ("tidegate_reduce", "tidegate_aggregate")
ARROW = "tidegate_arrow"

W11 = Race(
    "W11",
    "reduce and aggregate with Python functions, 20 k keys, 200 k rows a batch",
    sized(SIZES),
    (
        Contestant(OURS[0], "tidegate, reduce", reduced),
        Contestant(OURS[1], "tidegate, aggregate", aggregated),
        Contestant(ARROW, "tidegate, aggregate over Arrow arrays", arrow),
        Contestant("tidegate_built_in", "tidegate, the built-in sum", built_in),
        Contestant("per_key", "applyInPandasWithState, per key", per_key, mode="update", batches=3, ends_workers=True),
    ),
    (Bar(5.0, ("per_key",), (*OURS, ARROW)), Bar(0.5, ("tidegate_built_in",), (ARROW,))),
)
