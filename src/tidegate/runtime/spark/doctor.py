"""Whether this machine can run tidegate on Spark: every part that a query needs, what was found, and what to do."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import pyspark

from tidegate.errors import TidegateError
from tidegate.runtime.spark import config

_WORKER = "import sys, pandas, pyarrow, tidegate; print(tidegate.__version__, *sys.version_info[:2])"
_WORKER_SECONDS = 60


@dataclass(frozen=True)
class Finding:
    """One part: its name, what was found, and what to do if it does not serve (None: it does)."""

    part: str
    found: str
    problem: str | None = None


def findings() -> Iterator[Finding]:
    """What was found of each part, in the order in which a query needs them; nothing is started but Python workers."""
    yield Finding("Python", f"{sys.version.split()[0]} ({sys.executable})")
    yield Finding("Spark", pyspark.__version__, _refusal(config.require_spark))
    java = config.java()
    yield Finding(
        "Java", "none" if java is None else f"{config.java_version(java)} ({java})", _refusal(config.require_java)
    )
    yield Finding(
        "packages",
        ", ".join(f"{name} {_version(name)}" for name in ("pandas", "pyarrow", "protobuf", "numpy")),
        _refusal(config.require_packages),
    )
    yield _worker()
    yield Finding(
        "Kafka connector",
        f"for this Spark: spark.jars.packages=org.apache.spark:spark-sql-kafka-0-10_2.13:{pyspark.__version__}",
    )


def _refusal(check: Callable[[], None]) -> str | None:
    try:
        check()
    except TidegateError as error:
        return str(error)
    return None


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "missing"


def _worker() -> Finding:
    """The Python that workers of a local session run: PYSPARK_PYTHON, or this one."""
    named = os.environ.get("PYSPARK_PYTHON")
    if named is None:
        return Finding("Python of workers", f"{sys.executable} (of a local session; on a cluster set PYSPARK_PYTHON)")
    found = shutil.which(named)
    if found is None:
        return Finding(
            "Python of workers",
            f"PYSPARK_PYTHON={named}",
            f"PYSPARK_PYTHON is {named!r}, and there is no such program. Unset it, or set it to {sys.executable}.",
        )
    if Path(found).absolute() == Path(sys.executable).absolute():
        return Finding("Python of workers", found)
    return Finding("Python of workers", f"{found} (PYSPARK_PYTHON)", _difference(found))


def _difference(python: str) -> str | None:
    """Why workers that run `python` cannot work with this process; None if they can."""
    mine = _asked(sys.executable).stdout
    try:
        done = _asked(python)
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"PYSPARK_PYTHON is {python!r}, which does not run: {error}. Unset it, or set it to {sys.executable}."
    if done.stdout == mine:
        return None
    theirs = done.stdout.strip() or (done.stderr.strip().splitlines() or ["it printed nothing"])[-1]
    return (
        f"PYSPARK_PYTHON is {python!r}, where tidegate and Python are {theirs!r}; here they are {mine.strip()!r}. "
        "Workers need the same tidegate and the same minor version of Python, with pandas and pyarrow. Unset "
        f"PYSPARK_PYTHON, or set it to {sys.executable}."
    )


def _asked(python: str) -> subprocess.CompletedProcess[str]:
    command = [python, "-c", _WORKER]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=_WORKER_SECONDS)  # noqa: S603
