"""A pipeline and the demo on a standalone cluster whose executors do not have the package: it is shipped to them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark")
pytest.importorskip("psutil")

from cluster import driving
from cluster.standalone import Cluster
from crash.feed import Feed

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.cluster]


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with Cluster() as cluster:
        yield cluster


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    return driving.environment(tmp_path_factory.mktemp("environment"))


@pytest.fixture(scope="module")
def feed(tmp_path_factory: pytest.TempPathFactory) -> Feed:
    return driving.feed(tmp_path_factory.mktemp("pipeline"))


@pytest.fixture(scope="module")
def facts(cluster: Cluster, environment: dict[str, str], feed: Feed) -> dict[str, Any]:
    return driving.facts(cluster.url, environment, feed)


def test_the_package_reaches_executors_that_do_not_have_it(facts: dict[str, Any]) -> None:
    assert {found for _, found in facts["before"]} == {"ImportError: No module named 'tidegate'"}
    folders = {Path(folder) for folder, _ in facts["after"]}
    assert {folder.parent.parent.name for folder in folders} == {"work-0", "work-1"}
    assert {found for _, found in facts["after"]} == {"./tidegate.zip/tidegate/__init__.py"}


def test_results_are_right_across_a_change_of_cores(facts: dict[str, Any], feed: Feed) -> None:
    driving.check_results(facts, feed)


def test_a_query_tells_what_the_driver_tells(facts: dict[str, Any], feed: Feed) -> None:
    driving.check_told(facts, feed)


def test_windows_close_by_the_wall_clock(facts: dict[str, Any]) -> None:
    driving.check_silence(facts)


def test_the_demo(cluster: Cluster, environment: dict[str, str], tmp_path: Path) -> None:
    """`--py-files` is the other way to ship the package."""
    shipped = {**environment, "PYSPARK_SUBMIT_ARGS": f"--py-files {environment['PYTHONPATH']} pyspark-shell"}
    driving.check_demo(cluster.url, shipped, tmp_path)
