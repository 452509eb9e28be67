"""Runs the smallest size of a benchmark."""

from __future__ import annotations

import importlib
import io
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager, redirect_stdout
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import pytest
from benchmarks import measure

from spark.forking import forking
from spark.lookups import remember
from spark.session import quick, same_python

ROOT = Path(__file__).parents[2]
SMALLEST = ("--smoke", "--memory", "1g")

Found = tuple[str, dict[str, Any]]
"""Printed output of the smallest run of a benchmark, and the numbers of its report."""
Smoke = Callable[..., Found]


def smoke(benchmark: str, report: Path, *more: str) -> Found:
    """The benchmark in a process of its own; it leaves its numbers in `report`."""
    done = subprocess.run(
        [sys.executable, "-m", benchmark, *SMALLEST, "--json", str(report), *more],
        cwd=ROOT,
        env=_environment(report.with_suffix(".spark")),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout, json.loads(report.read_text())


@contextmanager
def one_after_the_other(home: Path) -> Iterator[Smoke]:
    """A `smoke` whose benchmarks share one process; `home` is a folder that this function makes.

    Each benchmark has its own session in one JVM, which is warm from the second one on and needs half the time.
    Settings of the first session that a later one leaves out stay, so the numbers mean nothing.
    """
    with (
        forking() as python,
        ProcessPoolExecutor(1, get_context("spawn"), _set, (_environment(home), str(python))) as process,
    ):

        def run(benchmark: str, report: Path, *more: str) -> Found:
            arguments = [*SMALLEST, "--json", str(report), *more]
            return process.submit(printed, benchmark, arguments).result(), json.loads(report.read_text())

        yield run


def printed(benchmark: str, arguments: list[str]) -> str:
    """Printed output of `benchmark` in this process."""
    with redirect_stdout(io.StringIO()) as out:
        code = importlib.import_module(benchmark).main(arguments)
    assert code == 0, out.getvalue()
    return out.getvalue()


def _set(environment: dict[str, str], python: str) -> None:
    os.environ.update(environment, PYSPARK_PYTHON=python)
    same_python(python)
    # Only for this process, which ends with the block.
    patch = pytest.MonkeyPatch()
    remember(patch)
    # Other tests run beside the benchmark, whose numbers mean nothing.
    patch.setattr(measure, "LONGEST_WAIT_S", 0)


def _environment(home: Path) -> dict[str, str]:
    return {**quick(home), "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
