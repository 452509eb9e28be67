"""A few kills of each pipeline; `make test-crash` has many."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("pyspark")
pytest.importorskip("psutil")

from cluster.standalone import Cluster
from crash.kills import WITH_FILES, Crashes
from crash.sinks_feed import database

pytestmark = [pytest.mark.spark, pytest.mark.slow]


@pytest.mark.parametrize("pipeline", WITH_FILES)
def test_three_kills_leave_every_result_once(tmp_path: Path, pipeline: str) -> None:
    verdict = Crashes(tmp_path, seed=7, pipeline=pipeline).run(kills=3)
    assert verdict.right, verdict
    assert verdict.killed.total() == 3


def test_three_kills_leave_every_row_once_in_each_sink(tmp_path: Path) -> None:
    pytest.importorskip("deltalake")
    pytest.importorskip("psycopg")
    with database(tmp_path):
        verdict = Crashes(tmp_path, seed=7, pipeline="sinks").run(kills=3)
    assert verdict.right, verdict
    assert verdict.killed.total() == 3


@pytest.mark.cluster
def test_three_kills_on_a_cluster_leave_every_result_once(tmp_path: Path) -> None:
    with Cluster() as cluster:
        verdict = Crashes(tmp_path, seed=7, cluster=cluster).run(kills=3)
    assert verdict.right, verdict
    assert verdict.killed["executor"], verdict
