"""Checks of the machine: Spark, Java, packages, the Kafka connector, and a Python for the workers."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import warnings
from functools import cache
from pathlib import Path
from typing import Any

import pyspark
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from tidegate.errors import TidegateError

SPARKS_DEFAULT_PYTHON = "python3"
PACKAGES, CONNECTOR, SCALA = "spark.jars.packages", "spark-sql-kafka-0-10", "2.13"
LOCAL = "local"
CHECKPOINTING = "org.apache.spark.sql.execution.streaming.checkpointing"
OLDEST_JAVA = 17
OLDEST_SPARK = (4, 0)
JAVA_WITHOUT_UNSAFE = 24
"""From this Java on Spark must ask for the memory access that Arrow needs; it does so from SPARK_FOR_NEW_JAVA on."""
SPARK_FOR_NEW_JAVA = (4, 3)

_WORKER = "import sys, pandas, pyarrow, tidegate; print(tidegate.__version__, *sys.version_info[:2])"
_FINDS = "import importlib.util as u; print(getattr(u.find_spec('tidegate'), 'origin', None))"
_WORKER_SECONDS = 60


def require_spark() -> None:
    """Raise if the installed Spark is older than the oldest that tidegate supports."""
    if spark_version() < OLDEST_SPARK:
        raise TidegateError(
            f"pyspark is {pyspark.__version__}: tidegate needs {'.'.join(map(str, OLDEST_SPARK))} or later, whose "
            "transformWithStateInPandas it runs on. Run: pip install --upgrade 'tidegate[spark]'"
        )


def require_packages() -> None:
    """Raise if pandas, pyarrow or protobuf is missing here or too old for the installed Spark.

    The minimum versions are those of the installed Spark, which checks them itself.
    """
    from pyspark.sql.pandas.utils import require_minimum_pandas_version, require_minimum_pyarrow_version

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # pandas 3 was not tested by Spark; our tests run on it
            require_minimum_pandas_version()
            require_minimum_pyarrow_version()
        import pyspark.sql.streaming.proto.StateMessage_pb2  # noqa: F401  (checks protobuf's version itself)
    except Exception as error:  # protobuf has its own error type, which cannot be imported without protobuf
        raise TidegateError(
            f"Spark's stateful operators in Python cannot run here: {error}. "
            "Run: pip install --upgrade pandas pyarrow 'protobuf>=6.33.5'"
        ) from error


def require_java() -> None:
    """Raise if Spark would find no Java, or one older than 17."""
    found = java()
    if found is None:
        raise TidegateError(
            f"no Java was found (JAVA_HOME is {os.environ.get('JAVA_HOME')!r}, no `java` on PATH): Spark needs "
            f"Java {OLDEST_JAVA} or later. Install one, for example `apt-get install openjdk-17-jre-headless`, "
            "and set JAVA_HOME to it."
        )
    version = java_version(found)
    if version is not None and version < OLDEST_JAVA:
        raise TidegateError(
            f"{found} is Java {version}: Spark needs Java {OLDEST_JAVA} or later. Install one and set JAVA_HOME to it."
        )
    if version is not None and version >= JAVA_WITHOUT_UNSAFE and spark_version() < SPARK_FOR_NEW_JAVA:
        raise TidegateError(
            f"{found} is Java {version}, and Spark {pyspark.__version__} does not run on it: its Arrow ends in an "
            "ExceptionInInitializerError. Use Java 17 or 21 (set JAVA_HOME to it), or Spark 4.3 or later."
        )


def java() -> Path | None:
    """The `java` that Spark's launcher would run: JAVA_HOME's before the one on PATH."""
    home = os.environ.get("JAVA_HOME")
    found = shutil.which("java", path=str(Path(home, "bin")) if home else None)
    return Path(found) if found else None


def java_version(java: Path) -> int | None:
    """The feature version (8, 17, 21), from the `release` file where there is one: starting a JVM takes 0.1 s."""
    release = java.resolve().parent.parent / "release"
    if release.is_file():
        text = release.read_text(errors="replace")
    else:
        text = subprocess.run([java, "-version"], capture_output=True, text=True, check=False).stderr
    found = re.search(r'(?:JAVA_VERSION=|version )"(?:1\.)?(\d+)', text)
    return int(found[1]) if found else None


def spark_version() -> tuple[int, int]:
    """Major and minor version of the installed Spark."""
    major, minor, *_ = pyspark.__version__.split(".")
    return int(major), int(minor)


def checkpointing() -> str:
    """The Java package of Spark with the logs and the file managers of a checkpoint."""
    return CHECKPOINTING if spark_version() >= (4, 1) else CHECKPOINTING.rpartition(".")[0]


def require_connector(packages: str, spark: str) -> None:
    """Raise if `packages` (spark.jars.packages) have a Kafka connector for another Spark than the version `spark`."""
    for package in packages.split(","):
        name, _, version = package.strip().partition(":")[2].partition(":")
        if not name.startswith(CONNECTOR):
            continue
        if version.split(".")[:2] != spark.split(".")[:2] or name != f"{CONNECTOR}_{SCALA}":
            raise TidegateError(
                f"{PACKAGES} has {package.strip()}, and this is Spark {spark}: a connector of another Spark fails with "
                f"NoSuchMethodError in the middle of a query. Use {connector(spark)}."
            )


def connector(spark: str) -> str:
    """The Kafka connector for this version of Spark; a platform's suffix of the version is left out."""
    numbers = re.match(r"\d+\.\d+\.\d+", spark)
    return f"org.apache.spark:{CONNECTOR}_{SCALA}:{numbers[0] if numbers else spark}"


def use_driver_python(spark: SparkSession) -> None:
    """Let the workers of a local session run the Python of this process, unless PYSPARK_PYTHON names another one.

    Left alone, Spark starts the `python3` of the PATH. A job that is started as `venv/bin/python job.py` then has
    workers without tidegate. On a cluster, and over Spark Connect, this Python may not exist where workers run.

    Raises TidegateError if PYSPARK_PYTHON names a Python of this machine that cannot run the workers.
    """
    try:
        context: Any = spark.sparkContext
    except (AttributeError, NotImplementedError, PySparkException):  # a Spark Connect session has none
        return
    if context.master.startswith("local") and context.pythonExec == SPARKS_DEFAULT_PYTHON:
        context.pythonExec = sys.executable
    elif is_this_machine(context.master) and not getattr(context, "_python_includes", ()):
        # Files that were added to the session may bring packages that the Python itself lacks.
        require_workers(context.pythonExec)


def is_this_machine(master: str) -> bool:
    return master.partition("[")[0] == LOCAL


def require_workers(python: str) -> None:
    """Raise if workers that run `python` cannot work with this process."""
    if (problem := worker_problem(python)) is not None:
        raise TidegateError(problem)


@cache
def worker_problem(python: str) -> str | None:
    """The reason why workers that run `python` (PYSPARK_PYTHON) cannot work with this process; None if they can."""
    found = shutil.which(python)
    if found is None:
        return f"PYSPARK_PYTHON is {python!r}, and there is no such program. Unset it, or set it to {sys.executable}."
    if Path(found).absolute() == Path(sys.executable).absolute():
        return None
    mine = _asked(sys.executable).stdout
    try:
        done = _asked(found)
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"PYSPARK_PYTHON is {found!r}, which does not run: {error}. Unset it, or set it to {sys.executable}."
    if done.stdout == mine or not mine:
        return None
    theirs = done.stdout.strip() or (done.stderr.strip().splitlines() or ["it printed nothing"])[-1]
    return (
        f"PYSPARK_PYTHON is {found!r}, where tidegate and Python are {theirs!r}; here they are {mine.strip()!r}. "
        "Workers need the same tidegate and the same minor version of Python, with pandas and pyarrow. Unset "
        f"PYSPARK_PYTHON, or set it to {sys.executable}."
    )


@cache
def finds_tidegate(python: str) -> bool:
    """Whether a process that runs `python` finds this tidegate, and not only this process, as in a script's folder."""
    try:
        found = _asked(python, _FINDS).stdout
    except (OSError, subprocess.TimeoutExpired):
        return False
    return Path(found.strip()).resolve() == Path(__file__).resolve().parents[3] / "__init__.py"


def _asked(python: str, program: str = _WORKER) -> subprocess.CompletedProcess[str]:
    command = [python, "-c", program]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=_WORKER_SECONDS)
