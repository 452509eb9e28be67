"""`python -m benchmarks.graces`, whose numbers decision 0041 quotes."""

from __future__ import annotations

import pytest
from benchmarks import graces


def test_a_small_run_measures_all_shapes(capsys: pytest.CaptureFixture[str]) -> None:
    assert graces.main(["--rows", "2000", "--turns", "1"]) == 0
    said = capsys.readouterr().out
    for shape in graces.shapes(2_000):
        assert shape.name in said
