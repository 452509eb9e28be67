"""Limits by the wall clock on Spark: rows leave by processing-time timers, without input, and across a restart."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import tidegate as tg

pytest.importorskip("pyspark")

from pyspark.sql import DataFrame, SparkSession

from spark.replay import Replay, collect, observed, with_offsets

pytestmark = pytest.mark.spark

SCHEMA = pa.schema(
    {
        "key": pa.string(),
        "value": pa.int64(),
        "ts": pa.timestamp("us", "UTC"),
        "partition": pa.int32(),
        "offset": pa.int64(),
    }
)


def limited(limit: str) -> Callable[[DataFrame], DataFrame]:
    held = tg.Suppressed.until_time_limit(limit, tg.BufferConfig.unbounded(), clock="wall")

    def topology(frame: DataFrame) -> DataFrame:
        table = tg.table(frame, key="key", timestamp="ts", partition="partition", offset="offset")
        return table.suppress(held).to_df()

    return topology


class Run:
    """What a query has let out, and its metrics. It never ends by itself: there is always one more empty batch."""

    def __init__(self, replay: Replay, until: Callable[[Run], bool]) -> None:
        self.rows: list[dict[str, Any]] = []
        self.metrics: list[dict[str, Any]] = []
        sunk = threading.Event()

        def sink(frame: DataFrame, batch: int) -> None:
            self.rows += collect(frame)
            sunk.set()

        query = (
            replay.topology(replay._source())
            .writeStream.outputMode("update")
            .option("checkpointLocation", str(replay.path / "checkpoint"))
            .foreachBatch(sink)
            .start()
        )
        try:
            while not until(self):
                while not sunk.wait(5):
                    assert query.isActive, query.exception()
                sunk.clear()
                told = [row for p in query.recentProgress for row in p.observedMetrics.values()]
                self.metrics = [observed(row) for row in told if row is not None]
        finally:
            query.stop()

    def told(self, metric: str) -> int:
        return sum(batch[metric] or 0 for batch in self.metrics)

    @property
    def records(self) -> int:
        return self.told("records")


def test_rows_leave_without_input_and_after_a_restart(spark: SparkSession, tmp_path: Path) -> None:
    first, second = with_offsets(
        [
            [{"key": "A", "value": 1, "ts": 0}, {"key": "B", "value": 1, "ts": 9}, {"key": "A", "value": 2, "ts": 5}],
            [{"key": "C", "value": 3, "ts": 7}],
        ]
    )
    replay = Replay(spark, tmp_path, SCHEMA, limited("1 second"))
    replay._write(first)
    # The batch that took them in lets nothing out: the rows leave in one that nothing came in.
    run = Run(replay, lambda run: len(run.rows) >= 2)
    assert sorted((row["key"], row["value"], row["timestamp"]) for row in run.rows) == [("A", 2, 5), ("B", 1, 9)]
    replay.topology = limited("1 hour")
    replay._write(second)
    assert Run(replay, lambda run: run.records > 0).rows == []
    replay.topology = limited("1 ms")
    run = Run(replay, lambda run: bool(run.rows))
    assert [(row["key"], row["value"]) for row in run.rows] == [("C", 3)]
    assert run.records == 0
