"""The axes of growth are gone through in order, as far as the time allows."""

from __future__ import annotations

import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("pyspark")
pytest.importorskip("psutil")

from benchmarks import growth

AXES = [growth.Axis("keys", "keys", {"smoke": (1, 2, 3)}), growth.Axis("tasks", "tasks", {"smoke": (1,)})]


def explored(
    monkeypatch: pytest.MonkeyPatch, points: int, turns: int = 1
) -> tuple[list[tuple[str, int]], dict[str, Any]]:
    """Measured points and the report, if the time is up after `points` measurements; the first measurement warms up."""
    begun: list[tuple[str, int]] = []

    def measured(spark: Any, axis: str, value: int, smoke: bool, folder: Path) -> dict[str, Any]:
        begun.append((axis, value))
        return {"value": value, "rows_per_s": len(begun) ** 2, "worker_mib": 9 - len(begun)}

    monkeypatch.setattr(growth, "measured", measured)
    monkeypatch.setattr(time, "monotonic", lambda: float(len(begun)))
    spark: Any = SimpleNamespace(sparkContext=SimpleNamespace(master="here"))
    found = growth.explored(spark, AXES, "smoke", turns, Path(), points - 0.5)
    return begun, found


def test_every_point_is_measured_while_there_is_time(monkeypatch: pytest.MonkeyPatch) -> None:
    begun, found = explored(monkeypatch, points=10)
    assert begun == [("tasks", 2), ("keys", 1), ("keys", 2), ("keys", 3), ("tasks", 1)]
    assert [point["value"] for point in found["keys"]["points"]] == [1, 2, 3]
    (point,) = found["tasks"].pop("points")
    assert point == {"value": 1, "rows_per_s": 25, "turns": [25], "worker_mib": 4}
    assert found["tasks"] == {"label": "tasks", "master": "here"}


def test_medians_of_turns_count_and_the_most_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    begun, found = explored(monkeypatch, points=11, turns=3)
    once = [("keys", 1), ("keys", 2), ("keys", 3), ("tasks", 1)]
    assert begun == [("tasks", 2), *once, *once, *once[:2]]
    # The second, sixth and tenth measurement; the third and seventh.
    assert found["keys"]["points"][0] == {"value": 1, "rows_per_s": 36, "turns": [4, 36, 100], "worker_mib": 7}
    assert found["keys"]["points"][2] == {"value": 3, "rows_per_s": 40, "turns": [16, 64], "worker_mib": 5}


def test_no_point_is_begun_when_the_time_is_up(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    begun, found = explored(monkeypatch, points=3)
    assert begun == [("tasks", 2), ("keys", 1), ("keys", 2)]
    assert list(found) == ["keys"]
    said = capsys.readouterr().out
    assert "the time is up in turn 1 of 1: left out keys 3 and what follows" in said


def test_the_cluster_has_a_slot_for_every_task() -> None:
    (axis,) = (axis for axis in growth.AXES if axis.cluster)
    assert max(max(values) for values in axis.values.values()) == growth.WORKERS * growth.SLOTS
