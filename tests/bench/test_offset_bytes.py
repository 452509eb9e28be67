"""`python -m benchmarks.offset_bytes`, whose table decision 0025 quotes."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from benchmarks import offset_bytes

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.full
def test_a_small_run_prints_the_table(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["offset_bytes", "--before", str(ROOT), "--rows", "2000"])
    offset_bytes.main()
    head, _, *lines = capsys.readouterr().out.splitlines()
    assert head == "| plan | offsets | before | without the promise | promise | consecutive |"
    assert len(lines) == len(offset_bytes.PLANS) * len(offset_bytes.OFFSETS)
    for line in lines:
        _, _, before, now, _, _ = line.strip("| ").split(" | ")
        assert before == now
