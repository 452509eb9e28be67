"""`python -m benchmarks.type_rule`, whose ratios decision 0023 quotes."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from benchmarks import type_rule

ROOT = Path(__file__).resolve().parents[2]


def test_a_small_run_compares_both_versions(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    small = ["--turns", "1", "--records", "200", "--keys", "20"]
    monkeypatch.setattr(sys, "argv", ["type_rule", "--before", str(ROOT), *small])
    type_rule.main()
    said = capsys.readouterr().out
    for name in type_rule.AGGREGATES:
        assert f"aggregate, {name}" in said
        assert f"reduce, {name}" in said
