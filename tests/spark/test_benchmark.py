"""The smallest size of the benchmarks: all contestants agree, and every number that is promised is there."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from benchmarks import checkpoint_files, plain_json, switches
from benchmarks.peers.over_kafka import connector

from bench import smoke as smokes
from bench.smoke import Smoke

pytestmark = [pytest.mark.spark, pytest.mark.apart]

ONE_OF_A_KIND = ("tidegate", "spark_memory", "tidegate_every", "tidegate_bounded")
FUNCTIONS = ("tidegate_aggregate", "tidegate_arrow", "per_key")


@pytest.fixture(scope="module")
def smoke(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Smoke]:
    with smokes.one_after_the_other(tmp_path_factory.mktemp("benchmarks") / "spark") as run:
        yield run


@pytest.mark.parametrize("settings", [["tuned"], pytest.param(["as-installed", "tuned"], marks=pytest.mark.slow)])
def test_smoke_of_one_race(smoke: Smoke, tmp_path: Path, settings: list[str]) -> None:
    """Over partitions of several files; each settings take a session."""
    asked = ("--only", "V-files", "--contestants", "tidegate_files", "spark_memory")
    printed, report = smoke("benchmarks.suite", tmp_path / "report.json", *asked, "--settings", *settings)
    assert printed.count("equal in every run of 2 contestants") == len(settings)
    for of in ("as_installed", "workloads") if len(settings) > 1 else ("workloads",):
        (bar,) = report[of]["V-files"]["bars"]
        assert bar["times"] > 0


@pytest.mark.slow
def test_smoke_of_missing_offsets(smoke: Smoke, tmp_path: Path) -> None:
    printed, report = smoke("benchmarks.suite", tmp_path / "report.json", "--only", "W13")
    found = report["workloads"]["W13"]
    assert "equal in every run of 2 contestants" in printed
    assert set(found["contestants"]) == {"tidegate", "tidegate_consecutive", "tidegate_whole"}
    assert [bar["at_least"] for bar in found["bars"]] == [pytest.approx(1 / 1.15)] * 2
    assert all(bar["times"] > 0 for bar in found["bars"])


@pytest.mark.slow
def test_smoke_of_the_doors(smoke: Smoke, tmp_path: Path) -> None:
    """JSON files, a Delta table and CSV files, each in the order of its files, beside Spark's own."""
    pytest.importorskip("pyspark.sql.streaming.datasource", reason="Spark 4.2 or later")
    doors = {"D1": "tidegate_files", "D2": "tidegate_delta", "D3": "tidegate_files"}
    of = ("--only", *doors, "--contestants", *doors.values(), "spark_memory")
    printed, report = smoke("benchmarks.suite", tmp_path / "report.json", *of)
    assert printed.count("equal in every run of 2 contestants") == len(doors)
    for name, ours in doors.items():
        found = report["workloads"][name]
        assert set(found["contestants"]) == {ours, "spark_memory"}
        [bar] = found["bars"]
        assert bar["contestant"] == ours
        assert bar["times"] > 0


@pytest.mark.slow
def test_smoke_of_a_race_of_joins(smoke: Smoke, tmp_path: Path) -> None:
    """Who runs fewer micro-batches is compared over those."""
    pytest.importorskip("pyspark", minversion="4.3", reason="Spark's own join has state format 4 from then on")
    two = ("tidegate_files", "spark_rocksdb_4")
    printed, report = smoke("benchmarks.suite", tmp_path / "report.json", "--only", "J1-left-1", "--contestants", *two)
    found = report["workloads"]["J1-left-1"]
    assert "of 4 micro-batches, equal in every run of 1 contestants; " in printed
    assert "of 3 micro-batches, equal in every run of 1 contestants" in printed
    assert set(found["agreement"]) == {"timed runs", *two}
    assert [len(found["contestants"][name]["runs"][0]["rows"]) for name in two] == [4, 3]
    (bar,) = found["bars"]
    assert bar["at_least"] == 12.0
    assert bar["times"] > 0


@pytest.mark.slow
def test_smoke_of_a_large_table(smoke: Smoke, tmp_path: Path) -> None:
    """By hand too: both give the rows of a direct computation, and the same as each other."""
    two = ("tidegate_files", "by_hand")
    _, report = smoke("benchmarks.suite", tmp_path / "report.json", "--only", "J6", "--contestants", *two)
    found = report["workloads"]["J6"]
    assert {(each["contestant"], each["entries"]) for each in found["found"]} == {
        (name, keys) for name in two for keys in (100, 200)
    }
    for keys in (100, 200):
        assert "equal in tidegate_files" in found["agreement"][str(keys)]
        assert found["agreement"][f"{keys} by hand"].endswith("rows equal to tidegate's")
    growth, against = found["bars"]
    assert growth["at_most"] == 1.3
    assert (against["others"], against["at_least"]) == (["by_hand"], 5.0)


@pytest.mark.slow
def test_smoke_of_the_other_joins(smoke: Smoke, tmp_path: Path) -> None:
    asked = ["J1-inner-1", "J1-outer-1", "J2", "J3", "J4"]
    _, report = smoke("benchmarks.suite", tmp_path / "report.json", "--only", *asked, "J1-hot", "J6")
    found = report["workloads"]
    assert set(found) == {*asked, "J1-hot", "J6"}
    hot, table = found.pop("J1-hot"), found.pop("J6")
    assert set(hot["agreement"]) == {"timed runs", "tidegate", "tidegate_files"}
    assert set(hot["contestants"]) == {"tidegate", "tidegate_files", "floor"}
    assert {each["contestant"] for each in table["found"]} == {"tidegate", "tidegate_files", "by_hand"}
    for name, workload in found.items():
        assert workload["agreement"], name
        assert all(bar["times"] > 0 for bar in workload["bars"]), name
        assert [bar["contestant"] for bar in workload["bars"]][:2] == ["tidegate", "tidegate_files"], name
    for name in asked[:-2]:
        assert {"tidegate", "tidegate_files", "spark_memory", "floor"} <= set(found[name]["contestants"]), name
    for name in ("J3", "J4"):
        assert len({each["entries"] for each in found[name]["found"]}) == 2, name
        assert len(found[name]["found"]) == 8, name


@pytest.mark.slow
def test_smoke_of_every_door(smoke: Smoke, tmp_path: Path) -> None:
    pytest.importorskip("pyspark.sql.streaming.datasource", reason="Spark 4.2 or later")
    printed, _ = smoke("benchmarks.suite", tmp_path / "report.json", "--only", "D1", "D2", "D3")
    assert printed.count("equal in every run of 4 contestants") == 2
    assert printed.count("equal in every run of 3 contestants") == 1


@pytest.mark.slow
def test_smoke_of_the_race_of_tumbling_windows(smoke: Smoke, tmp_path: Path) -> None:
    """With every contestant, against a direct computation as well."""
    printed, whole = smoke("benchmarks.suite", tmp_path / "report.json", "--only", "W1")
    assert "equal in every run of 5 contestants" in printed
    found = whole["workloads"]["W1"]
    answering = {"tidegate", "tidegate_files", "tidegate_unordered", "spark_memory", "spark_rocksdb"}
    assert set(found["agreement"]) == {"timed runs", *answering}
    assert set(found["contestants"]) == {*answering, "floor"}
    for numbers in found["contestants"].values():
        assert numbers["rows_per_s"] > 0
        assert numbers["runs"][0]["rows"] == [20_000] * 3
        assert numbers["peak_jvm_mib"] > numbers["peak_worker_mib"] > 0
    assert [bar["at_least"] for bar in found["bars"]] == [2.0, 2.0, 0.5, 0.5]
    assert whole["versions"]["pyspark"]


@pytest.mark.slow
def test_smoke_of_the_other_workloads(smoke: Smoke, tmp_path: Path) -> None:
    others = ["W3", "W4", "W5", "W6", "W9", "W10", "W11", "W12"]
    of = ("--only", *others, "--contestants", *ONE_OF_A_KIND, *FUNCTIONS, "record_by_record")
    _, report = smoke("benchmarks.suite", tmp_path / "report.json", *of)
    found = report["workloads"]
    assert list(found) == others
    for name, workload in found.items():
        assert workload["agreement"], name
        assert all(bar["times"] > 0 for bar in workload["bars"]), name
    assert set(found["W6"]["contestants"]) == {"tidegate", "tidegate_bounded", "by_hand"}
    assert found["W10"]["contestants"]["tidegate"]["p99_ms"] >= found["W10"]["contestants"]["tidegate"]["p50_ms"] > 0
    assert set(found["W11"]["contestants"]) == set(FUNCTIONS)
    assert set(found["W12"]["contestants"]) == {"tidegate", "record_by_record"}
    assert set(found["W12"]["agreement"]) == {"timed runs", "tidegate", "record_by_record"}


@pytest.mark.slow
def test_smoke_of_spilling(smoke: Smoke, tmp_path: Path) -> None:
    """It compares every row that leaves with what it must be, so this is a test of spilling too."""
    _, report = smoke("benchmarks.spill", tmp_path / "report.json")
    of_500, of_2000 = report["runs"]
    assert (of_500["keys"], of_2000["keys"]) == (500, 2_000)
    assert of_2000["left"] >= 100
    assert of_2000["update_median_s"] > 0


@pytest.mark.slow
def test_smoke_of_decoding(smoke: Smoke, tmp_path: Path) -> None:
    _, report = smoke("benchmarks.decoding", tmp_path / "report.json")
    assert len(report["seconds"]) == 3
    assert all(took > 0 for took in report["seconds"].values())


@pytest.mark.slow
def test_smoke_of_records_of_results(smoke: Smoke, tmp_path: Path) -> None:
    _, report = smoke("benchmarks.records_of_results", tmp_path / "report.json")
    assert len(report["seconds"]) == 6


def test_smoke_of_plain_json(capsys: pytest.CaptureFixture[str]) -> None:
    assert plain_json.main(["--smoke"]) == 0
    assert capsys.readouterr().out.count("µs of a core per record") == 3


@pytest.mark.slow
def test_smoke_of_registered(tmp_path: Path) -> None:
    """In a process of its own, for it needs the jar of Spark's Avro, which comes with that of its Kafka connector."""
    pytest.importorskip("authlib", reason="pip install 'tidegate[registry]'")
    if not connector():
        pytest.skip("no jar of Spark's Avro")
    _, report = smokes.smoke("benchmarks.registered", tmp_path / "report.json")
    took = {topic: len(ways) for topic, ways in report["took"].items()}
    assert took == {"one schema": 3, "two schemas": 1, "JSON": 3}
    assert list(report["times"]) == ["one schema", "JSON"]
    assert all(times > 0 for each in (report["decoded"], *report["times"].values()) for times in each.values())


@pytest.mark.slow
def test_smoke_of_state_bytes(smoke: Smoke, tmp_path: Path) -> None:
    _, report = smoke("benchmarks.state_bytes", tmp_path / "report.json")
    assert {form: sorted(took) for form, took in report["ms_per_mb"].items()} == {
        "eight bits": ["read", "written"],
        "seven bits": ["read", "written"],
    }


@pytest.mark.slow
def test_smoke_of_emitted_rows(smoke: Smoke, tmp_path: Path) -> None:
    _, report = smoke("benchmarks.emitted_rows", tmp_path / "report.json")
    assert {form: len(took) for form, took in report["us_per_row"].items()} == {
        "one by one": 1,
        "in lists, some with nulls": 1,
        "in lists without nulls": 1,
    }


@pytest.mark.slow
def test_smoke_of_between_tasks(smoke: Smoke, tmp_path: Path) -> None:
    _, report = smoke("benchmarks.between_tasks", tmp_path / "report.json")
    assert {how: len(took) for how, took in report["ms_a_batch"].items()} == {"spared": 1, "not spared": 1}


@pytest.mark.slow
def test_smoke_of_warming(smoke: Smoke, tmp_path: Path) -> None:
    asked = ("--only", "tidegate_files", "--conf", "spark.buffer.pageSize=4m")
    _, report = smoke("benchmarks.warming", tmp_path / "report.json", *asked)
    assert report["conf"] == {"spark.buffer.pageSize": "4m"}
    first, second = report["turns"]
    assert first["java_s"] > second["java_s"] > 0
    assert first["compiler_s"] > second["compiler_s"] > 0


@pytest.mark.slow
def test_smoke_of_switches(smoke: Smoke, tmp_path: Path) -> None:
    _, report = smoke("benchmarks.switches", tmp_path / "report.json")
    took = report["ms_a_batch"]
    assert list(took) == ["W1", "1,000 records"]
    for turns in took.values():
        assert list(turns) == [
            f"{who}, {name}" for who in ("tidegate_files", "spark_memory") for name in switches.SWITCHES
        ]
        assert all(len(each) == 1 for each in turns.values())


@pytest.mark.slow
def test_smoke_of_checkpoint_files(smoke: Smoke, tmp_path: Path) -> None:
    _, report = smoke("benchmarks.checkpoint_files", tmp_path / "report.json", "--only", "Spark's default")
    assert report["way"] == "Spark's default"
    assert report["kept"] == "second"
    assert len(report["ms_a_file"]) == checkpoint_files.SMOKE_FILES


@pytest.mark.slow
def test_smoke_of_small_batches(smoke: Smoke, tmp_path: Path) -> None:
    _, report = smoke("benchmarks.small_batches", tmp_path / "report.json")
    took = report["ms_a_batch"]
    assert {"tidegate", "tidegate, not observed", "bare_operator", "spark_memory"} <= took.keys()
    assert all(len(turns) == 1 for turns in took.values())


@pytest.mark.slow
def test_smoke_of_where_the_time_goes(smoke: Smoke, tmp_path: Path) -> None:
    """Both ways to read, whose parts differ."""
    of = ("--only", "W1", "W6", "--contestants", "tidegate", "tidegate_files")
    _, report = smoke("benchmarks.where", tmp_path / "report.json", *of)
    found = report["workloads"]
    assert list(found) == ["W1", "W6"]
    for name, work in found.items():
        assert set(work["contestants"]) == {"tidegate", "tidegate_files"}
        for contestant in work["contestants"].values():
            for batch in contestant["batches"]:
                parts = {(where, part): ms for where, part, ms in batch["parts"]}
                assert sum(parts.values()) == pytest.approx(batch["ms"], abs=1), name
                assert min(parts.values()) > -5, parts  # Spark's times are whole milliseconds
                worked = [
                    ("map", "pack"),
                    ("stateful", "kernel"),
                    ("stateful", "state write"),
                    ("stateful", "Arrow in"),
                ]
                assert all(parts[part] > 0 for part in worked), parts
                assert parts["driver", "not accounted for"] < batch["ms"] / 4, parts


@pytest.mark.slow
@pytest.mark.cluster
def test_smoke_of_growth_here_and_on_a_cluster(tmp_path: Path) -> None:
    """In a process of its own: it starts a cluster."""
    _, found = smokes.smoke("benchmarks.growth", tmp_path / "report.json", "--only", "tasks", "cluster")
    masters = {name: axis["master"].partition(":")[0] for name, axis in found["axes"].items()}
    assert masters == {"tasks": "local[2]", "cluster": "spark"}
    for axis in found["axes"].values():
        assert [point["value"] for point in axis["points"]] == [1, 2]
        assert all(point["rows_per_s"] > 0 and point["worker_mib"] > 0 for point in axis["points"])
