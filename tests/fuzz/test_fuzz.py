"""A smoke part of the fuzzer (make test-fuzz has a million cases), and faults on purpose that it must find."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from random import Random

import pytest

from fuzz.cases import CASES, bytes_changed
from fuzz.frames_of import written
from tidegate.kernel.state import frames

pytestmark = pytest.mark.filterwarnings("ignore::tidegate.TidegateWarning")
SMOKE = 5_000
ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("name", list(CASES))
def test_nothing_gets_through_and_nothing_crashes(name: str) -> None:
    case, share = CASES[name]
    for number in range(max(30, SMOKE * share // 100)):
        case(Random(f"smoke {name} {number}"))


def test_the_guided_part_runs_and_covers_the_decoder(capfd: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("atheris")
    path = os.pathsep.join([*(str(ROOT / part) for part in ("src", "tests")), os.environ.get("PYTHONPATH", "")])
    command = [sys.executable, "-m", "fuzz.guided", "--runs", "500", "--seed", "1"]
    done = subprocess.run(command, cwd=ROOT, env={**os.environ, "PYTHONPATH": path}, check=False)
    told = capfd.readouterr()
    assert done.returncode == 0, told.err
    assert re.search(r"500 runs from \d{2,3} frames, seed 1: .*cov: [1-9]", told.out)


def test_there_are_frames_of_every_kind() -> None:
    assert {one.kind for one in written()} == {frames.BLOB, frames.SEGMENT, frames.META}


def test_a_decoder_that_does_not_look_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """A decoder that accepts any checksum lets changed bytes through."""

    class Anything(int):
        def __ne__(self, other: object) -> bool:
            return False

        __hash__ = int.__hash__

    monkeypatch.setattr(frames, "_checksum", lambda *_: Anything())
    assert caught(bytes_changed)


def caught(case: Callable[[Random], None]) -> bool:
    for number in range(500):
        try:
            case(Random(number))
        except AssertionError:
            return True
    return False
