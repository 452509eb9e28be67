"""A benchmark that is killed goes on: its report has each workload that ended, and `--resume` measures the rest."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from benchmarks import suite
from benchmarks.resuming import ResumeError


@dataclass
class Counted:
    """A workload that counts its measurements, and is killed if its name is in `killed`."""

    name: str
    title: str = "a title"
    measured: list[bool] = field(default_factory=list)
    killed: set[str] = field(default_factory=set)
    ran: list[str] = field(default_factory=list)
    """Which of the contestants a, b and c the last measurement wants."""

    def measure(self, _spark: object, options: suite.Options, _folder: Path) -> dict[str, Any]:
        if self.name in self.killed:
            raise KeyboardInterrupt
        self.measured.append(options.smoke)
        self.ran[:] = filter(options.wants, "abc")
        return {"contestants": {}}


@dataclass
class Bench:
    """`make bench` with three workloads and without Spark."""

    report: Path
    versions: dict[str, str] = field(default_factory=lambda: {"commit": "abc", "spark": "4.3.0"})
    killed: set[str] = field(default_factory=set)
    warmed: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.workloads = tuple(Counted(name, killed=self.killed) for name in ("W1", "W2", "D1"))

    def __call__(self, *arguments: str) -> dict[str, Any]:
        for each in self.workloads:
            each.measured.clear()
        self.warmed.clear()
        suite.main(["--json", str(self.report), *arguments])
        return self.read()

    def read(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.report.read_text(encoding="utf-8"))
        return found

    def times(self) -> list[int]:
        """How often each workload was measured in the last run."""
        return [len(each.measured) for each in self.workloads]


@pytest.fixture
def bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Bench:
    made = Bench(tmp_path / "results" / "suite.json")

    @contextmanager
    def session(_options: object, _more: object, of_spark: str) -> Iterator[str]:
        made.warmed.append(of_spark)
        yield of_spark

    monkeypatch.setattr(suite, "WORKLOADS", made.workloads)
    monkeypatch.setattr(suite, "JOINS", ())
    monkeypatch.setattr(suite, "session", session)
    monkeypatch.setattr(suite, "warm_up", lambda *_: None)
    monkeypatch.setattr(suite, "versions", lambda _: made.versions)
    return made


BOTH = ("--settings", "as-installed", "tuned")


def test_a_killed_run_goes_on_with_the_workloads_that_its_report_lacks(bench: Bench) -> None:
    bench.killed.add("W2")
    with pytest.raises(KeyboardInterrupt):
        bench(*BOTH)
    before = bench.read()
    assert list(before["as_installed"]) == ["W1"]
    assert before["workloads"] == {}
    bench.killed.clear()
    after = bench(*BOTH, "--resume")
    assert bench.times() == [1, 2, 2]
    assert [list(after[column]) for column in ("as_installed", "workloads")] == [["W1", "W2", "D1"]] * 2
    assert after["as_installed"]["W1"] == before["as_installed"]["W1"]


def test_a_whole_report_needs_no_session(bench: Bench) -> None:
    whole = bench(*BOTH)
    assert bench.warmed == ["as-installed", "tuned"]
    assert bench(*BOTH, "--resume")["workloads"] == whole["workloads"]
    assert bench.warmed == []


def test_without_resume_a_run_begins_anew(bench: Bench) -> None:
    bench()
    bench("--only", "W1")
    assert bench.times() == [1, 0, 0]
    assert list(bench.read()["workloads"]) == ["W1"]


def test_further_workloads_join_a_report(bench: Bench) -> None:
    bench("--only", "W1")
    report = bench("--only", "D1", "--resume")
    assert bench.times() == [0, 0, 1]
    assert list(report["workloads"]) == ["W1", "D1"]
    assert report["settings"]["only"] == ["W1", "D1"]
    assert bench("--resume")["settings"]["only"] == []


@pytest.mark.parametrize(
    ("changed", "what"),
    [(("--smoke",), "smoke = False"), (BOTH, "settings = "), (("--contestants", "tidegate"), "contestants = ")],
)
def test_other_options_are_refused(bench: Bench, changed: tuple[str, ...], what: str) -> None:
    bench("--only", "W1")
    before = bench.report.read_bytes()
    with pytest.raises(ResumeError, match=f"cannot be resumed: it was measured with {what}.*--resume"):
        bench(*changed, "--resume")
    assert bench.report.read_bytes() == before


def test_numbers_of_another_commit_are_refused(bench: Bench) -> None:
    bench("--only", "W1")
    before = bench.report.read_bytes()
    bench.versions = {**bench.versions, "commit": "def"}
    with pytest.raises(ResumeError, match="commit = 'abc', and this run has 'def'"):
        bench("--resume")
    assert bench.report.read_bytes() == before


def test_resume_without_a_report_begins_one(bench: Bench) -> None:
    assert list(bench("--resume")["workloads"]) == ["W1", "W2", "D1"]


@pytest.mark.parametrize(
    ("arguments", "ran"),
    [
        ((), "abc"),
        (("--contestants", "a", "c"), "ac"),
        (("--without", "b", "c"), "a"),
        (("--contestants", "a", "b", "--without", "b"), "a"),
    ],
)
def test_contestants_by_name(bench: Bench, arguments: tuple[str, ...], ran: str) -> None:
    bench(*arguments)
    assert [each.ran for each in bench.workloads] == [list(ran)] * 3
