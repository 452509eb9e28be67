"""Peers of the benchmark, played by small programs: their rows are compared, and a failing peer is named."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path

import pytest
from benchmarks import page
from benchmarks.agreement import closed_and_open
from benchmarks.inputs import SIZE_MS, Shape, write
from benchmarks.peers import environment, peer
from benchmarks.peers.contract import Report
from benchmarks.peers.peer import Peer
from benchmarks.race import UnableError, alternate

SHAPE = Shape(keys=5, rows=200, batches=4)

PROGRAM = f"""
import sys
from collections import Counter
from benchmarks.peers.contract import Report, millis, pieces, task

work = task()
counts, totals = Counter(), Counter()
for half in work.halves():
    for piece in pieces(half):
        for user, ts, amount in zip(piece[0].to_pylist(), millis(piece[1]).to_pylist(), piece[2].to_pylist()):
            place = user, ts - ts % {SIZE_MS}
            counts[place] += 1
            totals[place] += amount
"""
WRITE = """
lines = [f"{user},{start},{counts[user, start]},{totals[user, start]}\\n" for user, start in sorted(counts)]
(work.output / "rows.csv").write_text("user,start,count,total\\n" + "".join(lines))
"""
TELL = """
print("something that a library says")
Report(counts.total(), 2.0, (work.warm_up_rows, 0.5), {"fake": "1"}, {"state": work.state}).say()
"""


@dataclass(frozen=True)
class Fake(Peer):
    """A program of the test, in the environment of the test."""

    folder: Path = Path()

    @property
    def program(self) -> Path:
        return self.folder / "program.py"

    def interpreter(self) -> Path:
        return Path(sys.executable)


def fake(folder: Path, program: str) -> Fake:
    (folder / "program.py").write_text(program)
    return Fake("fake", "Fake", "fake", state="heap", folder=folder)


def run(folder: Path, program: str) -> peer.PeerRun:
    return peer.run(fake(folder, program), write(SHAPE, folder / "input"), closed_and_open(SHAPE, ordered=True))


def test_a_peer_that_answers_right(tmp_path: Path) -> None:
    """Its rate excludes its warm-up: 400 of 800 rows, and 0.5 of 2 seconds."""
    one = run(tmp_path, PROGRAM + WRITE + TELL)
    assert one.rows == [200] * 4
    assert one.report == Report(800, 2.0, (400, 0.5), {"fake": "1"}, {"state": "heap"})
    assert one.rate == pytest.approx(400 / 1.5)


def test_a_peer_that_leaves_open_windows_out_is_right_too(tmp_path: Path) -> None:
    closed = min(start for _, start in closed_and_open(SHAPE, ordered=True)[0])
    run(
        tmp_path,
        PROGRAM + f"counts_of_all = counts.total()\nfor place in [*counts]:\n    if place[1] != {closed}:\n"
        "        del counts[place]\n" + WRITE + TELL.replace("counts.total()", "counts_of_all"),
    )


@pytest.mark.parametrize(
    "wrong",
    [
        "totals[min(counts)] += 1",
        "counts[max(counts, key=lambda place: place[1])] += 1; counts['', 0] = -1",
        "del counts[min(counts)]",
        "del counts[max(counts, key=lambda place: place[1])]",
        "counts['nobody', 0] = 0",
    ],
    ids=["a total", "a count of an open window", "a window missing", "an open window missing", "a window too many"],
)
def test_a_peer_that_answers_wrong(tmp_path: Path, wrong: str) -> None:
    with pytest.raises(AssertionError, match=r"Fake: \d of \d+ rows differ from the direct computation"):
        run(tmp_path, PROGRAM + "rows = counts.total()\n" + wrong + WRITE + TELL.replace("counts.total()", "rows"))


def test_a_window_given_twice_was_not_final(tmp_path: Path) -> None:
    twice = "lines.append(lines[0])\n(work.output / 'again.csv').write_text('user,start,count,total\\n' + lines[0])\n"
    with pytest.raises(AssertionError, match="final was not final"):
        run(tmp_path, PROGRAM + WRITE + twice + TELL)


def test_a_peer_that_read_a_part(tmp_path: Path) -> None:
    with pytest.raises(AssertionError, match="Fake read 799 of 800 rows"):
        run(tmp_path, PROGRAM + WRITE + TELL.replace("counts.total()", "799"))


@pytest.mark.parametrize(
    ("program", "message"),
    [
        ("raise SystemExit('no such engine')", "Fake ended with status 1, and said: no such engine"),
        ("print('done')", "Fake did not tell how long it took; it said: done"),
    ],
)
def test_a_peer_that_cannot_run(tmp_path: Path, program: str, message: str) -> None:
    with pytest.raises(UnableError, match=message):
        run(tmp_path, program)


def test_a_peer_that_cannot_be_installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No index is asked: the requirement is a file that does not exist."""
    monkeypatch.setattr(environment, "HERE", tmp_path)
    monkeypatch.setattr(environment, "TARGET", tmp_path / "target")
    (tmp_path / "fake").mkdir()
    (tmp_path / "fake" / "requirements.txt").write_text("fake @ file:///nowhere/fake-1-py3-none-any.whl\n")
    with pytest.raises(UnableError, match=r"fake could not be installed .* see that pip reaches its index"):
        environment.python("fake")
    assert not (tmp_path / "target" / "fake.installed").exists()


def test_others_go_on_without_who_cannot_run(tmp_path: Path) -> None:
    program = fake(tmp_path, PROGRAM + WRITE + TELL)
    broken = Fake("broken", "Broken", "fake", folder=tmp_path / "nowhere")
    files, right = write(SHAPE, tmp_path / "input"), closed_and_open(SHAPE, ordered=True)
    unable: dict[str, str] = {}
    runs = alternate([broken, program], 2, lambda each: peer.run(each, files, right), unable)
    assert {name: len(mine) for name, mine in runs.items()} == {"fake": 2}
    assert list(unable) == ["broken"]


def test_page_names_who_was_not_measured() -> None:
    """A peer has no batches, so the page gives no rate of the median batch."""
    one = {"label": "Fake", "rows_per_s": 1_500_000, "rows_per_s_median_batch": None}
    memory = {"peak_worker_mib": 10, "peak_python_mib": 20, "peak_jvm_mib": 0}
    found = {
        "title": "files",
        "contestants": {"fake": one | memory},
        "bars": [{"contestant": "tidegate", "others": ["fake"], "times": 2.5, "at_least": 3.0}],
        "unable": {"broken": "no such engine"},
        "agreement": {"fake": "equal"},
    }
    text = page.workload("W8", {"tuned": found}, "Measured so.")
    assert text.startswith("### W8: files\n\nMeasured so.\n")
    assert "| Fake | 1.5000 |  | 10 | 20 | 0 |" in text
    assert "* tidegate: 2.5 times fake; wanted at least 3.0: **not reached**" in text
    assert "* broken: not measured. no such engine" in text
