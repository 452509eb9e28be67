"""`benchmarks.warming`: the warm-up before the first workload of a session."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark")

from benchmarks import warming


def test_each_contestant_runs_until_its_time_is_over(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    now, ran = [0.0], []

    def run(spark: Any, contestant: Any, files: Path) -> None:
        ran.append(contestant.name)
        now[0] += 15

    monkeypatch.setattr(warming, "run", run)
    monkeypatch.setattr(warming.time, "monotonic", lambda: now[0])
    monkeypatch.setattr(warming, "W1", replace(warming.W1, write=lambda *_: tmp_path))
    monkeypatch.setattr(warming, "write", lambda *_: tmp_path)
    monkeypatch.setattr(warming, "first", lambda *_: tmp_path)
    spark: Any = None
    warming.warm_up(spark, tmp_path, 0)
    assert ran == []
    warming.warm_up(spark, tmp_path, 40)
    assert ran == [name for name in ("tidegate", "tidegate_files", "spark_memory") for _ in range(3)]
    ran.clear()
    warming.warm_up(spark, tmp_path, 10, of_joins=True)
    of_w1 = ["tidegate", "tidegate_files", "spark_memory"]
    assert ran == [*of_w1, *of_w1, "spark_bucketed"]
    ran.clear()
    warming.warm_up(spark, tmp_path, 10, of_lines=[replace(warming.LINES[0], write=lambda *_: tmp_path)])
    assert ran == [*of_w1, "tidegate_files", "spark_memory"]
