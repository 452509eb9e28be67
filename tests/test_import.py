"""Imports are cheap: a command line, a test, a notebook or the start of a query does not wait for them."""

from __future__ import annotations

import subprocess
import sys

import pytest

MOST_MS = 150
MOST_CLASSES = 200
"""The limit for a machine that is slow or shared: another machine makes as many dataclasses in these 150 ms.
Most of the import is making dataclasses.
"""
ATTEMPTS = 7

PROGRAM = """
import sys, time
began = time.process_time()
import tidegate
took = time.process_time() - began
from dataclasses import dataclass
began = time.process_time()
for _ in range(100):
    @dataclass(frozen=True)
    class Yardstick:
        a: int
        b: str
        c: float = 1.0
one = (time.process_time() - began) / 100
large = [name for name in ("pyspark", "pandas", "pyarrow", "numpy") if name in sys.modules]
print(1000 * took, took / one, *large)
"""


def imported() -> tuple[float, float, list[str]]:
    """Processor time of an import in a fresh process, in ms and in dataclasses, and the large packages it brought."""
    said = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True).stdout.split()
    return float(said[0]), float(said[1]), said[2:]


@pytest.mark.alone
def test_import_is_fast_and_brings_nothing_large() -> None:
    found = []
    for _ in range(ATTEMPTS):  # the best of some: on a busy machine even processor time stretches
        took, classes, brought = imported()
        assert brought == []
        if took < MOST_MS or classes < MOST_CLASSES:
            return
        found.append((took, classes))
    raise AssertionError(f"the import took (milliseconds, dataclasses) {found}")


def test_the_process_that_starts_a_stateful_operator_brings_nothing_large() -> None:
    """Spark unpickles the processor there and only calls `init`, at each start of a query and for each operator."""
    pytest.importorskip("pyspark")
    from benchmarks import starting

    said = 'print(*[name for name in ("pandas", "pyarrow", "numpy") if name in sys.modules])'
    program = [sys.executable, "-c", starting.STARTED + said]
    done = subprocess.run(program, input=starting.processor(), capture_output=True, check=True)
    assert done.stdout.split() == []
