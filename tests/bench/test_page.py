"""A section that is measured again replaces its older version and no other section."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from benchmarks import page, page_drawn, page_verdicts
from benchmarks.page import BEGIN, END, PAGE, PICTURES, joins, merged, with_bars, workload


def joined(old: str, measured: list[str]) -> str:
    return "\n\n".join(merged(old, measured).values())


def section(workload: str, command: str, numbers: str) -> str:
    return f"### {workload}: what it does\n\n`make {command} BENCH_ARGS=...` on some day.\n\n{numbers}"


def test_a_workload_measured_anew() -> None:
    old = "\n".join([section("W1", "bench", "1"), section("W2", "bench", "2")])
    found = joined(old, [section("W2", "bench", "3")])
    assert found == f"{section('W1', 'bench', '1')}\n\n{section('W2', 'bench', '3')}"


def test_one_workload_against_two_kinds_of_others() -> None:
    own, peers = section("W9", "bench", "1"), section("W9", "bench-peers", "2")
    assert joined(own, [peers]) == f"{own}\n\n{peers}"
    assert joined(f"{own}\n\n{peers}", [section("W9", "bench-peers", "3")]).endswith("3")


def test_the_order_of_the_page() -> None:
    names = [("W1", "bench"), ("W9", "bench"), ("W10", "bench"), ("START", "bench"), ("W8", "bench-peers")]
    given = [section(*name, "1") for name in names]
    assert joined("", given[::-1]) == "\n\n".join(given)
    # Headings of these sections have no colon.
    where = "### Where the time goes\n\n`make bench-where` on some day.\n\n1"
    growth = "### Growth\n\n`make bench-growth` on some day.\n\n1"
    assert joined("", [where, growth, given[0]]) == f"{given[0]}\n\n{growth}\n\n{where}"


def test_a_section_that_nobody_measured() -> None:
    with pytest.raises(ValueError, match="does not say what measured it"):
        joined("### By hand\n\nmuch faster", [])


def race(rate: int, times: float) -> dict[str, Any]:
    one = {"label": "tidegate", "rows_per_s": rate, "rows_per_s_median_batch": rate}
    memory = {"peak_worker_mib": 300, "peak_python_mib": 900, "peak_jvm_mib": 5000}
    bar = {"contestant": "tidegate", "others": ["spark_memory"], "times": times, "at_least": 2.0}
    return {"title": "windows", "contestants": {"tidegate": one | memory}, "bars": [bar], "agreement": {"all": "equal"}}


def test_speeds_as_installed_and_tuned_stand_side_by_side() -> None:
    by_settings = {"as installed": race(1_000_000, 1.5), "tuned": race(1_200_000, 2.5)}
    speeds = "M rows/s, as installed | M rows/s, tuned | in the median batch"
    assert workload("W1", by_settings, "`make bench`").splitlines() == [
        "### W1: windows",
        "",
        "`make bench`",
        "",
        f"|  | {speeds} | largest worker MiB | all Python MiB | JVM MiB |",
        "|---|---|---|---|---|---|---|",
        "| tidegate | 1.0000 | 1.2000 | 1.2000 | 300 | 900 | 5,000 |",
        "",
        "* tidegate, as installed: 1.5 times spark_memory; wanted at least 2.0: **not reached**",
        "* tidegate, tuned: 2.5 times spark_memory; wanted at least 2.0: reached",
        "",
        "all: equal.",
    ]


def test_one_column_if_one_was_measured() -> None:
    told = workload("START", {"tuned": race(1, 2.0) | {"contestants": {"a": {"label": "a", "seconds": [2, 1, 3]}}}}, "")
    assert "|  | seconds |\n|---|---|\n| a | 2.00 |\n" in told
    assert "* tidegate: 2.0 times" in told


def test_a_contestant_that_ran_with_one_of_the_settings() -> None:
    by_settings = {"as installed": race(1, 2.0) | {"contestants": {}}, "tuned": race(1_000_000, 2.0)}
    assert "| tidegate |  | 1.0000 | 1.0000 |" in workload("W1", by_settings, "")


def report(commit: str, rate: int, times: float, **tuned: float) -> dict[str, Any]:
    versions = dict.fromkeys(("cores", "platform", "python", "spark", "pyarrow", "java"), "1") | {"commit": commit}
    of_tuned = {name: race(rate, value) | {"day": "2026-11-28"} for name, value in tuned.items()}
    return {
        "versions": versions,
        "seconds": 1,
        "settings": {"settings": ["as-installed", "tuned"], "without": ["spark_rocksdb"]},
        "as_installed": {"W1": race(rate, times) | {"day": "2026-11-27"}},
        "workloads": of_tuned,
    }


def test_another_run_of_the_same_commit_stands_behind_each_verdict(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("benchmarks.page.RESULTS", tmp_path)
    reports = {
        "suite-0": report("older", 1, 9.0, W1=9.0),
        "suite-1": report("now", 1_000_000, 1.75, W1=2.25, W2=3.0),
        "suite-2": report("now", 2_000_000, 2.5, W1=2.0),
        "peers-1": report("now", 1, 8.0, W1=8.0),
    }
    for name, each in reports.items():
        (tmp_path / f"{name}.json").write_text(json.dumps(each))
    of_w1, of_w2, of_peers = list(page._measured())
    assert '`make bench BENCH_ARGS="--without spark_rocksdb"` on 2026-11-28' in of_w1
    assert "| tidegate | 2.0000 | 2.0000 |" in of_w1
    assert [line for line in of_w1.splitlines() if line.startswith("*")] == [
        "* tidegate, as installed: 2.5 times spark_memory; wanted at least 2.0: reached (1.75 in suite-1.json)",
        "* tidegate, tuned: 2.0 times spark_memory; wanted at least 2.0: reached (2.25 in suite-1.json)",
    ]
    assert "(suite-2.json has every run)" in of_w1
    assert of_w2.count("in suite-") == of_peers.count("in suite-") == 0
    assert "`make bench-peers" in of_peers


def test_the_page_itself() -> None:
    text = PAGE.read_text(encoding="utf-8")
    measured = text.split(BEGIN)[1].split(END)[0]
    assert joined(measured, []) == measured.strip()
    assert with_bars(text, merged(measured, [])) == text


def test_the_bars_in_one_table() -> None:
    both = workload("W1", {"as installed": race(1, 1.5), "tuned": race(1, 2.5)}, "")
    one = [(name, workload(name, {"tuned": race(1, times)}, "")) for name, times in (("W13", 2.0), ("W9", 1.9))]
    assert page_verdicts.table([*one, ("W1", both), ("J3", OPEN)]).splitlines() == [
        "| workload | contestant | beside | wanted | as installed | tuned |",
        "| --- | --- | --- | --- | --- | --- |",
        "| J3 | tidegate | itself | at most 2.0 |  | 1.1 |",
        "| W1 | tidegate | spark_memory | at least 2.0 | **1.5** | 2.5 |",
        "| W9 | tidegate | spark_memory | at least 2.0 |  | **1.9** |",
        "| W13 | tidegate | spark_memory | at least 2.0 |  | 2.0 |",
    ]


OPEN = """### J3: windows

`make bench` on some day.

|  | seconds a batch, as installed | seconds a batch, tuned | JVM MiB |
|---|---|---|---|
| tidegate, 1,000 open | 2.000 | 1.500 | 9 |
| by hand, 1,000 open | 9.000 | 8.000 | 9 |
| tidegate, 10,000 open |  | 0.250 | 9 |

* tidegate: 1.1 times; wanted at most 2.0: reached

all: equal."""


def test_a_table_over_open_entries_gets_a_picture(tmp_path: Path) -> None:
    assert page_drawn.points(OPEN) == {"tidegate": {1_000: 1.5, 10_000: 0.25}, "by hand": {1_000: 8.0}}
    once = page_drawn.with_picture("J3", OPEN, tmp_path)
    picture = "![J3: seconds of a batch over open entries](benchmarks/J3.svg)"
    assert once == OPEN.replace("| 0.250 | 9 |\n", f"| 0.250 | 9 |\n\n{picture}\n")
    assert page_drawn.with_picture("J3", once, tmp_path) == once
    drawn = (tmp_path / "J3.svg").read_text()
    assert drawn.count("<circle") == 3
    assert "logarithmic" in drawn


def test_other_tables_get_none(tmp_path: Path) -> None:
    other = workload("W1", {"tuned": race(1_000_000, 2.5)}, "`make bench`")
    assert page_drawn.with_picture("W1", other, tmp_path) == other
    assert not list(tmp_path.iterdir())


def test_speeds_beside_their_bars() -> None:
    by_settings = {"as installed": race(1_000_000, 1.5), "tuned": race(1_200_000, 2.5)}
    assert page_drawn.speeds("W1", workload("W1", by_settings, "")) == [page_drawn.Speed("W1", "tidegate", 2.5, 2.0)]
    (one,) = page_drawn.speeds("W1", workload("W1", {"tuned": race(1, 1.9)}, ""))
    assert (one.times, one.wanted) == (1.9, 2.0)
    below, reached = (page_drawn.beside_bars("Speeds", [each]) for each in (one, page_drawn.Speed("W1", "a", 2.0, 2.0)))
    assert page_drawn.BELOW in below
    assert page_drawn.BELOW not in reached


def test_the_pictures_show_the_numbers_of_the_page(tmp_path: Path) -> None:
    sections = merged(PAGE.read_text(encoding="utf-8").split(BEGIN)[1].split(END)[0], [])
    for of, text in sections.items():
        assert page_drawn.with_picture(of[-1], text, tmp_path) == text
    drawn = list(tmp_path.iterdir())
    assert {path.stem for path in drawn} >= {"J3", "J4", "J6"}
    assert all(path.read_text() == (PICTURES / path.name).read_text(encoding="utf-8") for path in drawn)
    assert joins(sections) == (PICTURES / "joins.svg").read_text(encoding="utf-8")
