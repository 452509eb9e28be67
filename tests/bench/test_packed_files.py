"""`python -m benchmarks.packed_files`, whose table decisions 0075, 0079 and 0081 quote."""

from __future__ import annotations

from pathlib import Path

import pytest
from benchmarks import packed_files

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.full
def test_a_small_run_compares_both_versions(capsys: pytest.CaptureFixture[str]) -> None:
    assert packed_files.main(["--smoke", "--turns", "1", "--before", str(ROOT)]) == 0
    head, *rows = capsys.readouterr().out.splitlines()
    assert head.split() == ["form", "keys", "row", "group", "before", "ms", "now", "ms", "before", "MB", "now", "MB"]
    assert [row.split()[:2] for row in rows] == [["user-0000123", "100"]] * 2
