"""`python -m benchmarks.kernel`, whose numbers decisions quote."""

from __future__ import annotations

import pytest
from benchmarks import kernel


def test_a_smoke_run_measures_all_its_parts(capsys: pytest.CaptureFixture[str]) -> None:
    assert kernel.main(["--smoke"]) == 0
    said = capsys.readouterr().out
    for part in [*kernel.TOPOLOGIES, "closes whole", "closes in parts", "packing as a worker", "numbering by words"]:
        assert part in said
