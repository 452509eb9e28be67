"""Files of a checkpoint on a local disk, written without starting programs (decision 0072).

Without its native library Hadoop starts `chmod` for each file that it makes on a local disk, and `readlink` four times
for each that it renames. Two classes of tidegate, in a jar, ask Java instead. Everything else is Hadoop's: the same
files, checksum files and modes, in the same order.
"""

from __future__ import annotations

import os
from collections.abc import Container
from pathlib import Path
from typing import Any

from py4j.protocol import Py4JError
from pyspark import SparkContext

JAR = Path(__file__).with_name("local-files.jar")
CLASSES = {
    "spark.hadoop.fs.AbstractFileSystem.file.impl": "tidegate.hadoop.LocalFs",
    "spark.hadoop.fs.file.impl": "tidegate.hadoop.LocalFileSystem",
}
ON_THE_CLASS_PATH = "SPARK_DIST_CLASSPATH"
"""The variable with which Spark's launcher adds to the class path of a JVM, whatever the settings of a session name."""
SUBMITTED = "PYSPARK_GATEWAY_PORT"
"""The variable by which a job finds the JVM of `spark-submit`, which runs already."""


def settings(named: Container[str]) -> dict[str, str]:
    """Settings of a builder whose Spark runs on this machine alone; none if its JVM cannot find the jar.

    `named`: settings and variables that a user chose elsewhere; none are set if a class for local files is among them,
    or the variable of the class path, because that value would replace this one. If no JVM runs yet, the jar joins the
    class path of those that this process starts.
    """
    if os.name != "posix" or os.pathsep in str(JAR) or not JAR.is_file():
        return {}
    if any(name in named for name in (*CLASSES, ON_THE_CLASS_PATH)):
        return {}
    gateway = SparkContext._gateway  # noqa: SLF001 - pyspark does not say otherwise whether its JVM runs
    if gateway is None and SUBMITTED not in os.environ:
        _add_to_class_path()
        return dict(CLASSES)
    return dict(CLASSES) if gateway is not None and _finds_classes(gateway.jvm) else {}


def _add_to_class_path() -> None:
    before = [each for each in os.environ.get(ON_THE_CLASS_PATH, "").split(os.pathsep) if each]
    if str(JAR) not in before:
        os.environ[ON_THE_CLASS_PATH] = os.pathsep.join([*before, str(JAR)])


def _finds_classes(jvm: Any) -> bool:
    try:
        for name in CLASSES.values():
            jvm.java.lang.Class.forName(name)
    except Py4JError:
        return False
    return True
