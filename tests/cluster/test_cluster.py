"""A pipeline and the demo on a standalone cluster whose executors do not have the package: it is shipped to them."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark")
pytest.importorskip("psutil")

from cluster.standalone import Bare, Cluster, packed
from crash.feed import Feed

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.cluster]

FIRST, LATER = 2, 2
"""Files before and after a restart with another number of cores; one more closes windows."""
PATIENCE_S = 900


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with Cluster() as cluster:
        yield cluster


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """That of a driver: its workers' Python has no tidegate, and its own has it from the archive alone."""
    folder = tmp_path_factory.mktemp("environment")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("SPARK_", "PYSPARK_"))}
    return {**kept, "PYSPARK_PYTHON": str(Bare(folder / "bare").python), "PYTHONPATH": str(packed(folder))}


@pytest.fixture(scope="module")
def feed(tmp_path_factory: pytest.TempPathFactory) -> Feed:
    feed = Feed(tmp_path_factory.mktemp("pipeline"), random.Random(5))
    feed.write(FIRST + LATER)
    feed.write(1, closing=True)
    (feed.folder / "later").mkdir()
    for file in sorted((feed.folder / "in").iterdir())[FIRST:]:
        file.rename(feed.folder / "later" / file.name)
    return feed


@pytest.fixture(scope="module")
def facts(cluster: Cluster, environment: dict[str, str], feed: Feed) -> dict[str, Any]:
    run(
        [str(Path(__file__).with_name("app.py")), cluster.url, str(feed.folder), environment["PYTHONPATH"]], environment
    )
    facts: dict[str, Any] = json.loads((feed.folder / "facts.json").read_text())
    return facts


def run(command: list[str], environment: dict[str, str]) -> str:
    done = subprocess.run(
        [sys.executable, *command], env=environment, capture_output=True, text=True, timeout=PATIENCE_S, check=False
    )
    assert done.returncode == 0, (done.stdout + done.stderr)[-6000:]
    return done.stdout


def test_the_package_reaches_executors_that_do_not_have_it(facts: dict[str, Any]) -> None:
    assert {found for _, found in facts["before"]} == {"ImportError: No module named 'tidegate'"}
    folders = {Path(folder) for folder, _ in facts["after"]}
    assert {folder.parent.parent.name for folder in folders} == {"work-0", "work-1"}
    assert {found for _, found in facts["after"]} == {"./tidegate.zip/tidegate/__init__.py"}


def test_results_are_right_across_a_change_of_cores(facts: dict[str, Any], feed: Feed) -> None:
    assert facts["first"] == FIRST
    compared = feed.compared(feed.folder / "result.parquet")
    assert compared.right, compared


def test_a_query_tells_what_the_driver_tells(facts: dict[str, Any], feed: Feed) -> None:
    told, driver = facts["files"], feed.driver()
    assert told["batches"] == LATER + 1
    assert told["records"] == sum(map(len, feed.files[FIRST:]))
    assert told["stream_time"] == told["stream_time_of_state"] == driver.pending().stream_time
    assert told["open"] == sorted([row["k"], row["n"]] for row in driver.read_state())


def test_windows_close_by_the_wall_clock(facts: dict[str, Any]) -> None:
    assert facts["silence"] == {"closed": [["a", 1], ["b", 1]]}


def test_the_demo(cluster: Cluster, environment: dict[str, str], tmp_path: Path) -> None:
    """`--py-files` is the other way to ship the package."""
    shipped = {**environment, "PYSPARK_SUBMIT_ARGS": f"--py-files {environment['PYTHONPATH']} pyspark-shell"}
    options = ["--master", cluster.url, "--batch-size", "120000", "--output", str(tmp_path)]
    said = " ".join(run(["-m", "tidegate", "demo", *options], shipped).split())
    assert "21,089 windows final" in said
    assert "The rows are identical" in said
