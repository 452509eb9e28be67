"""Whether Spark and the Python workers of this machine can talk through socket files (decision 0073).

Over TCP, Spark sends a task to a worker in several small writes. The system holds the second one back until the worker
acknowledges the first, and acknowledges only 40 ms later. A batch of two stages waits twice.
"""

from __future__ import annotations

import os
import socket
import stat
import sys
import uuid
from collections.abc import Container, Iterable
from contextlib import suppress
from pathlib import Path

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

ENABLED = "spark.python.unix.domain.socket.enabled"
SINCE_SPARK = (4, 1)
NEED_TCP = (
    "spark.python.worker.idleTimeoutSeconds",  # Spark does not time a socket file
    "spark.python.udf.pipelined.enabled",  # fails over socket files in Spark 4.3.0
    "spark.io.encryption.enabled",  # nobody has tried both
)
FOLDER = Path("/tmp")  # noqa: S108 - where Java has its temporary files on Linux, and Spark its socket files
ANOTHER_FOLDER = "java.io.tmpdir"
"""Names of socket files there may be longer than the system allows."""
JAVA_OPTIONS = ("JAVA_TOOL_OPTIONS", "JDK_JAVA_OPTIONS", "_JAVA_OPTIONS", "SPARK_SUBMIT_OPTS")


def settings(spark: tuple[int, int], named: Container[str], texts: Iterable[str]) -> dict[str, str]:
    """The setting of a builder whose Spark, of version `spark`, runs on this machine alone; none where TCP is needed.

    `named`: settings that a user chose; `texts`: their values, and files that say more.
    """
    if sys.platform != "linux" or spark < SINCE_SPARK:
        return {}
    if any(name in named for name in (ENABLED, *NEED_TCP)):
        return {}
    if any(ANOTHER_FOLDER in text for text in (*texts, *(os.environ.get(name, "") for name in JAVA_OPTIONS))):
        return {}
    return {ENABLED: "true"} if _makes_private_ones() else {}


def forget_gone(spark: SparkSession) -> None:
    """Let Spark's Java forget socket files that are gone: it keeps the name of each until it ends."""
    try:
        if str(spark.conf.get(ENABLED, "false")).lower() == "true":
            spark.sparkContext._jvm.tidegate.hadoop.SocketFiles.watch()  # type: ignore[union-attr]  # noqa: SLF001
    except (AttributeError, NotImplementedError, TypeError, Py4JError, PySparkException):
        return  # Spark Connect has no JVM here, and another JVM does not have the class


def _makes_private_ones() -> bool:
    """Whether this process can make a socket file to which no other user may write: it has no password as TCP has.

    A group with the name of the user is the user's own, as many systems make it.
    """
    path = FOLDER / f".{uuid.uuid4()}.sock"
    with socket.socket(socket.AF_UNIX) as made:
        try:
            made.bind(str(path))
            mode = path.stat().st_mode
            return not mode & stat.S_IWOTH and (not mode & stat.S_IWGRP or path.group() == path.owner())
        except (OSError, KeyError):  # KeyError: a user or a group without a name
            return False
        finally:
            with suppress(OSError):  # a folder on a read-only disk says so even if the file is not there
                path.unlink()
