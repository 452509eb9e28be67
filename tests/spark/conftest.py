"""One Spark for the whole session (`spark.session`)."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator

import pytest

pytest.importorskip("pyspark")

from pyspark import cloudpickle
from pyspark.sql import SparkSession

from spark import toys
from spark.forking import forking
from spark.session import builder, unzipped

# Workers cannot import test modules: send the toys themselves.
cloudpickle.register_pickle_by_value(toys)
# Without it workers run the `python3` on PATH, which need not be the one of this environment.
os.environ.setdefault("PYSPARK_PYTHON", sys.executable)


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SPARK_HOME", str(unzipped(tmp_path_factory.mktemp("spark"))))
        session = builder("tidegate-tests").getOrCreate()
    with forking(tmp_path_factory.mktemp("forks")) as python:
        session.sparkContext.pythonExec = str(python)
        yield session
        session.stop()
