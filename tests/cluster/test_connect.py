"""A pipeline and the demo over Spark Connect, on a server in a process of its own."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark")
pytest.importorskip("psutil")
pytest.importorskip("grpc_status", reason="Spark Connect needs grpcio. Run: pip install 'tidegate[connect]'")

from cluster import driving
from cluster.standalone import ConnectServer
from crash.feed import Feed

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.cluster]


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    return driving.environment(tmp_path_factory.mktemp("environment"))


@pytest.fixture(scope="module")
def server(environment: dict[str, str]) -> Iterator[ConnectServer]:
    with ConnectServer(Path(environment["PYSPARK_PYTHON"]), environment["PYTHONPATH"]) as server:
        yield server


@pytest.fixture(scope="module")
def feed(tmp_path_factory: pytest.TempPathFactory) -> Feed:
    return driving.feed(tmp_path_factory.mktemp("pipeline"))


@pytest.fixture(scope="module")
def facts(server: ConnectServer, environment: dict[str, str], feed: Feed) -> dict[str, Any]:
    return driving.facts(server.url, environment, feed)


def test_results_are_right_across_sessions(facts: dict[str, Any], feed: Feed) -> None:
    driving.check_results(facts, feed)


def test_a_query_tells_what_the_driver_tells(facts: dict[str, Any], feed: Feed) -> None:
    driving.check_told(facts, feed)


def test_windows_close_by_the_wall_clock(facts: dict[str, Any]) -> None:
    driving.check_silence(facts)


def test_the_demo(server: ConnectServer, environment: dict[str, str], tmp_path: Path) -> None:
    driving.check_demo(server.url, environment, tmp_path)
