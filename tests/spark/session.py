"""The Spark that tests run on: two cores, two shuffle partitions, RocksDB, UTC, no UI."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyspark
import pytest
from pyspark.sql import SparkSession

from spark.forking import forking
from spark.lookups import remember
from tidegate.runtime.spark.hadoop import local_files
from tidegate.runtime.spark.session import installed
from tidegate.runtime.spark.session.config import configure

QUICK_START = (
    "-XX:+IgnoreUnrecognizedVMOptions -XX:+UnlockDiagnosticVMOptions -XX:-BytecodeVerificationRemote "
    "-XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=240m -XX:+UseSerialGC"
)
"""Flags of a JVM: a test's query runs for seconds; compiling it well costs more than it saves, as does verifying."""

YOUNG = "-Xms1g -Xmn400m"
"""Heap of the JVM that tests share, 1 GB: nearly all of its objects are garbage at once."""

UNTRACED = ("spark.python.sql.dataFrameDebugging.enabled", "false")
"""Spark's default calls the JVM several more times per call of a column or a frame, so that errors name the line."""

INTERPRETED = (
    ("spark.sql.codegen.wholeStage", "false"),
    ("spark.sql.codegen.factoryMode", "NO_CODEGEN"),
    # Spark's default checks each plan after each of its rules, and keeps the Java call site of each column.
    ("spark.sql.lightweightPlanChangeValidation", "false"),
    ("spark.sql.dataFrameQueryContext.enabled", "false"),
)
"""Spark's default writes and compiles a program in Java for each stage and each kind of row, for a handful of rows."""

UNCHECKED = ("spark.sql.streaming.checkpoint.fileChecksum.enabled", "false")
"""Spark's default writes a second file for each file of a checkpoint."""

COMPILED = "TIDEGATE_COMPILED"
"""The variable with which tests run compiled programs, as users do (`make test-spark`)."""

UNUSED = (
    *("kubernetes-", "spark-kubernetes", "vertx-", "volcano-", "zjsonpatch", "spark-yarn", "spark-repl"),
    *("spark-mllib_", "spark-graphx", "breeze", "spire", "JLarge", "JTransforms", "arpack", "blas", "lapack", "cats"),
    *("spark-hive", "hive-beeline", "hive-cli", "hive-exec", "hive-jdbc", "hive-metastore", "hive-serde"),
    *("hive-service", "hive-shims", "datanucleus", "derby", "jdo", "javax.jdo", "jpam", "HikariCP"),
)
"""Jars that no test needs, by the beginnings of their names: each name that py4j asks for is looked up in every jar."""


def builder(name: str) -> Any:
    """The builder of the tests' session under this name."""
    return configure(
        SparkSession.builder.master("local[2]")
        .appName(name)
        .config("spark.ui.enabled", "false")
        .config(*UNTRACED)
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.sql.streaming.metricsEnabled", "false")
        .config("spark.driver.extraJavaOptions", f"{QUICK_START} {YOUNG}")
    )


@contextmanager
def shared(home: Path) -> Iterator[SparkSession]:
    """The session that tests share; `home` is an empty folder."""
    # Without it workers run the `python3` on PATH, which need not be the one of this environment.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SPARK_HOME", str(unzipped(home)))
        session = builder("tidegate-tests").getOrCreate()
    # Spark shows nothing below a warning, but still builds the messages.
    session.sparkContext.setLogLevel("WARN")
    with forking() as python, pytest.MonkeyPatch.context() as patch:
        remember(patch)
        same_python(str(python))
        session.sparkContext.pythonExec = str(python)
        yield session
        session.stop()


def same_python(python: str) -> None:
    """Skip the check of a `forking` program, which is the Python of this process: starting both takes seconds."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(installed, "_asked", lambda *_: subprocess.CompletedProcess((), 0, "the same"))
        installed.require_workers(python)


def quick(home: Path) -> dict[str, str]:
    """Environment for a process that starts JVMs; `home` is a folder that this function makes."""
    home.mkdir()
    spark = unzipped(home)
    # Not every program calls `tg.configure` on a builder, which would set these.
    (spark / "jars" / local_files.JAR.name).symlink_to(local_files.JAR)
    with (spark / "conf" / "spark-defaults.conf").open("a") as defaults:
        defaults.writelines(f"{name} {value}\n" for name, value in local_files.CLASSES.items())
    return {**os.environ, "JAVA_TOOL_OPTIONS": QUICK_START, "SPARK_HOME": str(spark)}


def unzipped(home: Path) -> Path:
    """A SPARK_HOME without pyspark.zip and without needless jars, in which a JVM is started.

    With the zip each Python process imports pyspark from there, and compiles a hundred modules that the installed
    package has compiled already. Each operator of a query starts one such process, which takes 0.4 s longer.
    """
    installed = Path(pyspark.__file__).parent
    (home / "bin").symlink_to(installed / "bin")
    (home / "jars").mkdir()
    for jar in (installed / "jars").iterdir():
        if not jar.name.startswith(UNUSED):
            (home / "jars" / jar.name).symlink_to(jar)
    (home / "conf").mkdir()
    quicker = () if os.environ.get(COMPILED) else (*INTERPRETED, UNCHECKED)
    lines = "".join(f"{name} {value}\n" for name, value in (UNTRACED, *quicker))
    (home / "conf" / "spark-defaults.conf").write_text(lines)
    return home
