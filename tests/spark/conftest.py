"""One Spark for the whole session (`spark.session`)."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator

import pytest

pytest.importorskip("pyspark")

from pyspark import cloudpickle
from pyspark.sql import SparkSession

from spark import toys
from spark.forking import forking
from spark.session import builder, unzipped
from tidegate.runtime.spark import config

# Workers cannot import test modules: send the toys themselves.
cloudpickle.register_pickle_by_value(toys)
# Without it workers run the `python3` on PATH, which need not be the one of this environment.
os.environ.setdefault("PYSPARK_PYTHON", sys.executable)


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SPARK_HOME", str(unzipped(tmp_path_factory.mktemp("spark"))))
        session = builder("tidegate-tests").getOrCreate()
    with forking() as python:
        # It is the Python of this process: to start both and to compare them takes seconds.
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(config, "_asked", lambda *_: subprocess.CompletedProcess((), 0, "the same"))
            config.require_workers(str(python))
        session.sparkContext.pythonExec = str(python)
        yield session
        session.stop()
