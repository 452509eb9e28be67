"""The Spark session of the demo: a local one, or one on a cluster. Its log goes to a file, not to the screen."""

from __future__ import annotations

import os
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import tidegate as tg
from tidegate.errors import TidegateError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TASKS = 2
"""Number of tasks: three airports need no more, and each further task costs time in every batch."""

SETTINGS = {
    "spark.sql.shuffle.partitions": str(TASKS),
    "spark.sql.session.timeZone": "UTC",
}
AT_START = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
}
"""Settings of a local Spark; a Spark Connect server does not accept them."""
LOCAL = f"local[{TASKS}]"
CONNECT = "sc://"


@contextmanager
def spark_session(log: Path, master: str) -> Iterator[SparkSession]:
    """A Spark session for the block; Spark's log goes to the file `log`.

    `master` as in SparkSession.builder.master; sc://host:15002 is a Spark Connect server.
    """
    with warnings.catch_warnings():
        # PySpark warns in every call that it does not support pandas 3 yet; the demo checks every number anyway.
        warnings.filterwarnings("ignore", "PySpark does not yet fully support pandas", FutureWarning)
        spark = _start(log, master)
        try:
            yield spark
        finally:
            spark.stop()


def _start(log: Path, master: str) -> SparkSession:
    from pyspark.sql import SparkSession

    # Otherwise workers run the `python3` of the PATH, which may lack tidegate.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    remote = master.startswith(CONNECT)
    builder = SparkSession.builder.remote(master) if remote else SparkSession.builder.master(master)
    for name, value in (SETTINGS if remote else SETTINGS | AT_START | {"spark.app.name": "tidegate demo"}).items():
        builder = builder.config(name, value)
    builder = tg.configure(builder)
    with _errors_to(log):
        try:
            return builder.getOrCreate()
        except Exception as error:
            raise TidegateError(f"Spark did not start on {master}: {error}. Its log is {log}.") from error


@contextmanager
def _errors_to(log: Path) -> Iterator[None]:
    """Redirect stderr of processes that start inside the block to `log`; Java keeps the stderr it started with."""
    kept = os.dup(2)
    with log.open("ab") as file:
        os.dup2(file.fileno(), 2)
    try:
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)
