"""`python -m benchmarks.open_windows`, whose numbers decision 0026 quotes."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from benchmarks import open_windows

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.full
def test_a_small_run_compares_both_versions(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    plans = ["tumbling, final", "sessions, final", open_windows.HOPPING]
    small = ["--windows", "3", "5", "--plans", *plans]
    monkeypatch.setattr(sys, "argv", ["open_windows", "--before", str(ROOT), *small])
    open_windows.main()
    said = capsys.readouterr().out
    assert "before, ms" in said
    for plan in plans[:2]:
        assert f"{plan}, 3 " in said
        assert f"{plan}, 5 " in said
    assert "megabytes of the process" in said


def test_every_plan_is_measured() -> None:
    for plan in open_windows.PLANS:
        found = open_windows.measured([2], plan)
        assert found[f"{plan}, 2"]["bytes"] > 0
