"""`python -m benchmarks.starting`, whose table decision 0033 quotes."""

from __future__ import annotations

import re

import pytest

pytest.importorskip("pyspark", minversion="4.1", reason="Spark 4.0 starts operators in another way")

from benchmarks import starting


@pytest.mark.full
def test_a_short_run_says_what_each_way_takes(capsys: pytest.CaptureFixture[str]) -> None:
    """Loading the kernel takes more than all else that the process does, on any machine."""
    assert starting.main(["--turns", "1"]) == 0
    kernel, zipped, installed = (
        float(re.search(r": ([0-9.]+) s", line).group(1))  # type: ignore[union-attr]
        for line in capsys.readouterr().out.splitlines()
    )
    assert kernel > zipped > installed > 0
