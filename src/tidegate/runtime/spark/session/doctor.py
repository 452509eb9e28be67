"""Whether this machine can run tidegate on Spark: a finding for every part that a query needs."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version

import pyspark

from tidegate.errors import TidegateError
from tidegate.runtime.spark.hadoop import local_files
from tidegate.runtime.spark.session import installed


@dataclass(frozen=True)
class Finding:
    """A part that a query needs: its name, the version or place found, and the problem with its remedy, if any."""

    part: str
    found: str
    problem: str | None = None


def findings() -> Iterator[Finding]:
    """A finding for each part, in the order in which a query needs them; starts no Spark."""
    yield Finding("Python", f"{sys.version.split()[0]} ({sys.executable})")
    yield Finding("Spark", pyspark.__version__, _refusal(installed.require_spark))
    java = installed.java()
    yield Finding(
        "Java", "none" if java is None else f"{installed.java_version(java)} ({java})", _refusal(installed.require_java)
    )
    yield Finding(
        "packages",
        ", ".join(f"{name} {_version(name)}" for name in ("pandas", "pyarrow", "protobuf", "numpy")),
        _refusal(installed.require_packages),
    )
    yield _worker()
    yield Finding("classes for local files", str(local_files.JAR))
    yield Finding(
        "Kafka connector",
        f"for this Spark: {installed.PACKAGES}={installed.connector(pyspark.__version__)}",
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
    found = shutil.which(named) or f"PYSPARK_PYTHON={named}"
    return Finding("Python of workers", found, installed.worker_problem(named))
