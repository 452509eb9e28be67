"""`python -m benchmarks.versions`: measurements of two versions, taken in turns, side by side."""

from __future__ import annotations

from dataclasses import replace

import pytest
from benchmarks.measure import Digest
from benchmarks.versions import Turn, compared

ROWS = Digest(5, 7, 9)
BEFORE = [Turn({"tidegate": speed}, {"tidegate": 200}, {"tidegate": ROWS}) for speed in (100.0, 200, 50)]


def now(*speeds: float, digest: Digest = ROWS) -> list[Turn]:
    return [Turn({"tidegate": s}, {"tidegate": 300 + n}, {"tidegate": digest}) for n, s in enumerate(speeds)]


def test_a_ratio_is_that_of_a_turn_and_the_median_is_quoted() -> None:
    found = compared({"before": BEFORE, "now": now(110, 180, 100)})
    assert found == {"tidegate": {"ratio": 1.1, "ratios": [1.1, 0.9, 2.0], "worker_mib": 302}}


def test_other_rows_are_an_error() -> None:
    with pytest.raises(AssertionError, match="tidegate gives other rows in one of the versions"):
        compared({"before": BEFORE, "now": now(1, 2, 3, digest=Digest(5, 7, 8))})


def test_what_one_version_lacks_is_said_and_left_out(capsys: pytest.CaptureFixture[str]) -> None:
    here = [replace(turn, speeds=turn.speeds | {"new": 1.0}) for turn in now(1, 2, 3)]
    assert list(compared({"before": BEFORE, "now": here})) == ["tidegate"]
    assert "new is not in the version before" in capsys.readouterr().out
