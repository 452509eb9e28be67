"""`import tidegate` is cheap: a command line, a test or a notebook that only defines plans waits for nothing."""

from __future__ import annotations

import subprocess
import sys

import pytest

MOST_MS = 150
ATTEMPTS = 7

PROGRAM = """
import sys, time
began = time.process_time()
import tidegate
print(1000 * (time.process_time() - began), *(n for n in ("pyspark", "pandas", "pyarrow", "numpy") if n in sys.modules))
"""


def imported() -> tuple[float, list[str]]:
    """Milliseconds of processor time that the import took in a fresh process, and the large packages it brought."""
    said = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True).stdout.split()
    return float(said[0]), said[1:]


@pytest.mark.alone
def test_import_is_fast_and_brings_nothing_large() -> None:
    best = float("inf")
    for _ in range(ATTEMPTS):  # the best of some: on a busy machine even processor time stretches
        took, brought = imported()
        assert brought == []
        if (best := min(best, took)) < MOST_MS:
            return
    assert best < MOST_MS
