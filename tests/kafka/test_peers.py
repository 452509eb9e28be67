"""The smallest size of W7, W9, W12 and J5 over a broker: every contestant gives what a direct computation gives."""

from __future__ import annotations

from pathlib import Path

import pytest
from tools.maven import MavenError

from bench.smoke import smoke
from kafka.broker import jars

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.kafka]


@pytest.fixture(autouse=True)
def _jars_of_the_broker() -> None:
    try:
        jars("broker")
    except MavenError as error:
        pytest.skip(f"no Kafka broker: {error}")


@pytest.mark.parametrize(
    ("workload", "contestants"),
    [
        ("W7", ("tidegate", "tidegate_consumed", "streams_rocksdb")),
        ("W9", ("tidegate", "tidegate_every", "streams_memory_every")),
        ("W12", ("tidegate_consumed", "streams_rocksdb", "streams_rocksdb_no_cache")),
    ],
)
def test_peers_over_a_broker(workload: str, contestants: tuple[str, ...], tmp_path: Path) -> None:
    of = ("--only", workload, "--peers", *contestants)
    _, report = smoke("benchmarks.peers", tmp_path / "report.json", *of)
    found = report["workloads"][workload]
    assert set(found["contestants"]) == set(found["agreement"]) == set(contestants)
    for numbers in found["contestants"].values():
        assert numbers["rows_per_s"] > 0
        assert sum(numbers["runs"][0]["rows"]) == 60_004
    assert found["bars"]


def test_a_join_of_two_topics(tmp_path: Path) -> None:
    names = ("tidegate", "tidegate_consumed", "streams_rocksdb")
    _, report = smoke("benchmarks.peers", tmp_path / "report.json", "--only", "J5", "--peers", *names)
    found = report["workloads"]["J5"]
    assert set(found["contestants"]) == set(found["agreement"]) == set(names)
    for numbers in found["contestants"].values():
        assert sum(numbers["runs"][0]["rows"]) == 24_008
    for name in names[:2]:
        assert found["agreement"][name].endswith("equal to the direct computation")
    assert [(bar["contestant"], bar["at_least"]) for bar in found["bars"]] == [(name, 3.0) for name in names[:2]]


def test_both_consumers_are_measured(tmp_path: Path) -> None:
    _, report = smoke("benchmarks.consuming", tmp_path / "report.json")
    assert report["records"] == 60_004
    assert {consumer: len(took) for consumer, took in report["seconds"].items()} == {"spark": 1, "librdkafka": 1}


def test_settings_of_clients_are_measured(tmp_path: Path) -> None:
    _, report = smoke("benchmarks.kafka_clients", tmp_path / "report.json")
    assert (
        report["read_few"]["tg.kafka.source without options"] < report["read_few"]["Spark's connector without options"]
    )
    of = {name: each["bytes"] for name, each in report["written"].items()}
    assert all(of[kind] < of["large batches"] / 2 for kind in ("lz4", "snappy", "zstd", "gzip", "lz4, large batches"))
