"""The program that asks for a fork behaves like the Python that it replaces."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("pyspark")

from spark.forking import FORKED, forking

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="forks are for Linux alone")


def run(python: Path, *arguments: str, folder: Path, **more: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, **more}
    return subprocess.run(
        [str(python), *arguments], cwd=folder, env=environment, capture_output=True, text=True, timeout=60, check=False
    )


def test_a_fork_is_the_process_that_asked(tmp_path: Path) -> None:
    """The fork has the folder, environment, output and exit code of its caller; other programs run in Python itself."""
    said = "import os, sys; print(os.environ['SAID'], sys.executable); sys.exit(7)"
    with forking() as python:
        if python == Path(sys.executable):
            pytest.skip("the imports of this PySpark start threads")
        plain = run(python, "-c", said, folder=tmp_path, SAID="plain")
        assert (plain.returncode, plain.stdout.split()) == (7, ["plain", sys.executable])
        # No socket listens there: the fork reports this as Spark's worker does, into its caller's files.
        first, second = (
            run(python, "-m", module, folder=tmp_path, PYTHON_WORKER_FACTORY_SOCK_PATH=f"/nowhere/{n}")
            for n, module in enumerate(FORKED, 1)
        )
        for n, done in ((1, first), (2, second)):
            assert done.returncode == 1
            assert "CANNOT_OPEN_SOCKET" in done.stderr
            assert f"/nowhere/{n}" in done.stderr
