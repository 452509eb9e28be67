"""Whether Spark and the Python workers of this machine can talk through socket files (decision 0073).

Over TCP, Spark sends a task to a worker in several small writes. The system holds the second one back until the worker
acknowledges the first, and acknowledges only 40 ms later. A batch of two stages waits twice.
"""

from __future__ import annotations

import os
import re
import stat
import sys
from collections.abc import Container, Iterable
from pathlib import Path

ENABLED = "spark.python.unix.domain.socket.enabled"
SINCE_SPARK = (4, 1)
NEED_TCP = (
    "spark.python.worker.idleTimeoutSeconds",  # Spark does not time a socket file
    "spark.python.udf.pipelined.enabled",  # fails over socket files in Spark 4.3.0
    "spark.io.encryption.enabled",  # nobody has tried both
)
JAVAS_FOLDER = "java.io.tmpdir"
"""The folder of socket files: elsewhere than in /tmp their names may be longer than the system allows."""
JAVA_OPTIONS = ("JAVA_TOOL_OPTIONS", "JDK_JAVA_OPTIONS", "_JAVA_OPTIONS")


def settings(spark: tuple[int, int], named: Container[str], texts: Iterable[str]) -> dict[str, str]:
    """The setting of a builder whose Spark, of version `spark`, runs on this machine alone; none where TCP is needed.

    `named`: settings that a user chose; `texts`: their values, and files that say more. A socket file has no password
    as TCP has, so it is not used if other users of the machine could write to it.
    """
    if sys.platform != "linux" or spark < SINCE_SPARK or not _others_cannot_write():
        return {}
    if any(name in named for name in (ENABLED, *NEED_TCP)):
        return {}
    if any(JAVAS_FOLDER in text for text in (*texts, *(os.environ.get(name, "") for name in JAVA_OPTIONS))):
        return {}
    return {ENABLED: "true"}


def _others_cannot_write() -> bool:
    """Whether files of this process are not writable for everybody, by its umask."""
    told = re.search(r"^Umask:\s*([0-7]+)", Path("/proc/self/status").read_text(), re.MULTILINE)
    return told is not None and bool(int(told[1], 8) & stat.S_IWOTH)
