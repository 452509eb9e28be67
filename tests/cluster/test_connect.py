"""A pipeline and the demo over Spark Connect, on a server in a process of its own."""

from __future__ import annotations

import subprocess
import sys
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
from docs.lanes import in_lanes, pages_of
from docs.pages import blocks, replaced, run

SHIPPED = """
spark.addArtifacts("packed.zip", pyfile=True)


def place(batches):
    import pyarrow as pa
    import tidegate

    list(batches)
    yield pa.record_batch([pa.array([str(tidegate.__file__)])], ["place"])


print(spark.range(1).mapInArrow(place, "place string").collect()[0]["place"])
"""
"""Call of `addArtifacts` as on the page, and a job that prints where a worker finds the package."""

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


def test_the_blocks_of_the_page(
    server: ConnectServer, environment: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """docs/cluster.md: the archive is packed, a client that has it ships it, and a worker finds the package."""
    [page] = pages_of("cluster")
    [archive, connection] = [block.code for block in blocks(page) if block.language == "python"]
    monkeypatch.chdir(tmp_path)
    assert run(page, {}, lambda block: in_lanes("cluster")(block) and block.code == archive) == 1
    program = f"from pyspark.sql import SparkSession\nimport tidegate as tg\n{connection}{SHIPPED}"
    (tmp_path / "page.py").write_text(replaced(program, {"sc://host:15002": server.url}))
    done = subprocess.run(
        [sys.executable, "page.py"],
        env={**environment, "PYTHONPATH": "packed.zip"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout.strip().endswith(".zip/tidegate/__init__.py"), done.stdout + done.stderr


def test_the_demo(server: ConnectServer, environment: dict[str, str], tmp_path: Path) -> None:
    driving.check_demo(server.url, environment, tmp_path)
