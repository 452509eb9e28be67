"""Limits by the wall clock on Spark: rows leave by processing-time timers, without input, and across a restart."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from time import sleep
from typing import Any

import pyarrow as pa
import pytest

import tidegate as tg

pytest.importorskip("pyspark")

from pyspark.sql import DataFrame, SparkSession

from spark.replay import Replay, collect, observed, schema_of, with_offsets

pytestmark = pytest.mark.spark

POLL_SECONDS, MOST_POLLS = 0.1, 900

SCHEMA = schema_of(key=pa.string(), value=pa.int64())


def limited(limit: str) -> Callable[[DataFrame], DataFrame]:
    held = tg.Suppressed.until_time_limit(limit, tg.BufferConfig.unbounded(), clock="wall")

    def topology(frame: DataFrame) -> DataFrame:
        table = tg.table(frame, key="key", timestamp="ts", partition="partition", offset="offset")
        return table.suppress(held).to_df()

    return topology


class Run:
    """Rows of the committed batches of a query, and their metrics.

    The query never ends by itself: there is always one more empty batch. Stopped between a batch's rows and its commit
    it would run that batch again, so rows count when the progress of their batch is there.
    """

    def __init__(self, replay: Replay, until: Callable[[Run], bool]) -> None:
        self.rows: list[dict[str, Any]] = []
        self.metrics: list[dict[str, Any]] = []
        sunk: dict[int, list[dict[str, Any]]] = {}

        def sink(frame: DataFrame, batch: int) -> None:
            sunk[batch] = collect(frame)

        query = (
            replay.topology(replay._source())
            .writeStream.outputMode("update")
            .option("checkpointLocation", str(replay.path / "checkpoint"))
            .foreachBatch(sink)
            .start()
        )
        try:
            for _ in range(MOST_POLLS):
                assert query.isActive, query.exception()
                progress = query.recentProgress
                done = max((p.batchId for p in progress), default=-1)
                self.rows = [row for batch in sorted(sunk) if batch <= done for row in sunk[batch]]
                told = [row for p in progress for row in p.observedMetrics.values()]
                self.metrics = [observed(row) for row in told if row is not None]
                if until(self):
                    return
                sleep(POLL_SECONDS)
            raise AssertionError(f"after {MOST_POLLS * POLL_SECONDS:.0f} s: rows {self.rows}, metrics {self.metrics}")
        finally:
            query.stop()

    def told(self, metric: str) -> int:
        return sum(batch[metric] or 0 for batch in self.metrics)

    @property
    def records(self) -> int:
        return self.told("records")


def test_rows_leave_without_input_and_after_a_restart(spark: SparkSession, tmp_path: Path) -> None:
    first, second, third = with_offsets(
        [
            [{"key": "A", "value": 1, "ts": 0}, {"key": "B", "value": 1, "ts": 9}, {"key": "A", "value": 2, "ts": 5}],
            [{"key": "C", "value": 3, "ts": 7}],
            [{"key": "D", "value": 4, "ts": 8}],
        ]
    )
    replay = Replay(spark, tmp_path, SCHEMA, limited("1 second"))
    replay._write(first)
    # The batch of the records emits nothing: their rows leave in a batch without input.
    run = Run(replay, lambda run: len(run.rows) >= 2)
    assert sorted((row["key"], row["value"], row["timestamp"]) for row in run.rows) == [("A", 2, 5), ("B", 1, 9)]
    replay.topology = limited("1 hour")
    replay._write(second)
    assert Run(replay, lambda run: run.records > 0).rows == []
    # Due rows leave although no input has come since the restart.
    replay.topology = limited("1 ms")
    run = Run(replay, lambda run: len(run.rows) >= 1)
    assert [(row["key"], row["value"]) for row in run.rows] == [("C", 3)]
    assert run.records == 0
    replay._write(third)
    run = Run(replay, lambda run: len(run.rows) >= 1)
    assert [(row["key"], row["value"]) for row in run.rows] == [("D", 4)]


def test_all_that_is_there_is_one_batch_with_available_now(spark: SparkSession, tmp_path: Path) -> None:
    """The source that ticks does not support this trigger, so Spark sets the limits of the others aside."""
    rows = [[{"key": "a", "value": n, "ts": n}] for n in range(3)]
    found = Replay(spark, tmp_path, SCHEMA, limited("1 hour"), name="table").run(with_offsets(rows))
    assert found.rows == [[]]
    assert [batch["suppression_buffer_count_current"] for batch in found.metrics] == [1]
