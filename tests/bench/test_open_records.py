"""`python -m benchmarks.open_records`, whose numbers decision 0032 quotes."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from benchmarks import open_records

ROOT = Path(__file__).resolve().parents[2]


def test_a_small_run_compares_both_versions(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    small = ["--open", "400", "--rows", "10", "--workloads", "J4"]
    monkeypatch.setattr(sys, "argv", ["open_records", "--before", str(ROOT), *small])
    open_records.main()
    said = capsys.readouterr().out.splitlines()
    assert [line.split()[:3] for line in said[1:]] == [["J4,", "400", "before"], ["J4,", "400", "now"]]


@pytest.mark.parametrize("workload", open_records.WORKLOADS)
def test_every_workload_is_measured(workload: str) -> None:
    found = open_records.measured(workload, 400, 10)
    assert found["rows"] > 0
    assert found["written"] > found["read"] > 0
