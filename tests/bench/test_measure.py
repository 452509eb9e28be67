"""A measured run waits for the processors, but not for long, and workers end between two queries."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator

import psutil
import pyarrow as pa
import pytest
from benchmarks import measure
from pyspark.sql import SparkSession


@pytest.mark.parametrize(
    ("uses", "busy"),
    [([3.0, 90.0], 3.0), ([90.0, 21.0, 20.0, 90.0], 20.0), ([90.0] * 12 + [60.0, 0.0], 60.0)],
)
def test_a_run_waits_for_the_processors(uses: list[float], busy: float, monkeypatch: pytest.MonkeyPatch) -> None:
    now, left = [0.0], list(uses)

    def use(seconds: float) -> float:
        now[0] += seconds
        return left.pop(0)

    monkeypatch.setattr(measure.time, "monotonic", lambda: now[0])
    monkeypatch.setattr(measure.psutil, "cpu_percent", use)
    assert measure.busy_when_quiet() == busy


def test_workers_that_are_ended_are_replaced(spark: SparkSession) -> None:
    def told(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        yield from (pa.record_batch({"pid": [os.getpid()]}) for _ in batches)

    def workers() -> set[int]:
        return {row.pid for row in spark.range(4, numPartitions=2).mapInArrow(told, "pid long").collect()}

    before = workers()
    assert all(map(psutil.pid_exists, before))
    measure.end_workers()
    assert not any(map(psutil.pid_exists, before))
    assert workers().isdisjoint(before)
