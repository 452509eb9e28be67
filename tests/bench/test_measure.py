"""A measured run waits for the processors, but not for long."""

from __future__ import annotations

import pytest
from benchmarks import measure


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
