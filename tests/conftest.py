"""Shared by all tests: helper modules on the path, hypothesis profiles, the markers `full` and `spark`, one Spark."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

# tests/ is no package: its helpers are imported as `oracle`, `conformance.runner`, `properties.cases`, `spark.replay`.
sys.path.insert(0, str(Path(__file__).parent))

settings.register_profile(
    # The same examples every time, so that a red build is about the change and not about luck.
    "ci",
    max_examples=6,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.register_profile(
    "deep",
    max_examples=int(os.environ.get("TIDEGATE_EXAMPLES", "200")),
    deadline=None,
    print_blob=True,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "ci"))


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "full: slow, only with `-m full` or TIDEGATE_FULL=1")


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Skip files without the mark of the lane: they have no test of it, and importing all files takes ten seconds."""
    asked = re.fullmatch(r"(alone|spark)( and (?!.* or ).*)?", config.option.markexpr or "")
    if asked is None or not collection_path.match("test_*.py"):
        return None
    # A test on Spark may use the fixture without the mark.
    named = {"alone": "mark.alone", "spark": "spark"}[asked[1]]
    return named not in collection_path.read_text(encoding="utf-8") or None


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    for item in items:
        # A file without the mark would start Java in `make check`.
        if "spark" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.spark)
    for path in {item.path for item in items if item.get_closest_marker("spark")}:
        if "spark" not in path.read_text(encoding="utf-8"):
            raise pytest.UsageError(f"{path} has tests on Spark and does not name `spark`, so that its lane misses it.")
    # Start the longest first: processes that share the tests end at about the same time if the last ones are short.
    items.sort(key=lambda item: "apart" not in item.keywords)
    if "full" in (config.option.markexpr or "") or os.environ.get("TIDEGATE_FULL"):
        return
    kept = [item for item in items if "full" not in item.keywords]
    config.hook.pytest_deselected(items=[item for item in items if "full" in item.keywords])
    items[:] = kept


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """One SparkSession for all tests of a run."""
    pytest.importorskip("pyspark")
    from spark.session import shared

    with shared(tmp_path_factory.mktemp("spark")) as session:
        yield session
