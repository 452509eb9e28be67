"""What tests on Spark share, and what none of them leaves behind in the session that all use."""

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
    """A listener hears of every later query, and each plan is compared with every frame that is cached."""
    if "spark" not in request.fixturenames:
        yield
        return
    spark = request.getfixturevalue("spark")
    manager = spark._jsparkSession.streams()
    before = len(manager.listListeners())
    yield
    spark.catalog.clearCache()
    assert len(manager.listListeners()) == before, "a listener stays: remove it from spark.streams"
