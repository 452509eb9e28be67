"""Shared setup of tests on Spark, and cleaning of the session that all of them use."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator

import pytest

pytest.importorskip("pyspark")

from pyspark import cloudpickle

from spark import toys

# Workers cannot import test modules: send the toys themselves.
cloudpickle.register_pickle_by_value(toys)
# Without it workers run the `python3` on PATH, which need not be the one of this environment.
os.environ.setdefault("PYSPARK_PYTHON", sys.executable)


@pytest.fixture(autouse=True)
def nothing_stays(request: pytest.FixtureRequest) -> Iterator[None]:
    """Clear the cache (Spark compares each plan with it); fail if a listener stays: it hears of every later query."""
    if "spark" not in request.fixturenames:
        yield
        return
    spark = request.getfixturevalue("spark")
    manager = spark._jsparkSession.streams()
    before = len(manager.listListeners())
    yield
    spark.catalog.clearCache()
    assert len(manager.listListeners()) == before, "a listener stays: remove it from spark.streams"
