"""This version reads the states of every version: it goes on from them with the same rows as without an upgrade."""

from __future__ import annotations

from pathlib import Path

import pytest

import tidegate as tg
from golden.families import AFTER, BEFORE, FOLDER, families, piped, read
from tidegate.testing import TopologyTestDriver

FILES = sorted(FOLDER.glob("*/*.json"))


@pytest.mark.parametrize("path", FILES, ids=[f"{path.parent.name}-{path.stem}" for path in FILES])
def test_a_state_of_an_earlier_version_goes_on(path: Path) -> None:
    table = families()[path.stem]
    driver, rows = read(path, table)
    assert rows
    assert piped(driver, AFTER) == rows
    unbroken = TopologyTestDriver(table)
    piped(unbroken, BEFORE)
    assert piped(unbroken, AFTER) == rows


@pytest.mark.parametrize("path", FILES, ids=[f"{path.parent.name}-{path.stem}" for path in FILES])
def test_a_state_of_an_earlier_version_is_known_and_can_be_drained(path: Path) -> None:
    table = families()[path.stem]
    driver, _ = read(path, table)
    assert driver.check_upgrade(table).changes == ()
    driver.read_state()
    driver.drain()
    with pytest.raises(tg.CheckpointError, match="was drained"):
        driver.drain()


def test_this_version_has_written_every_family() -> None:
    """A new family, or a new version, is written with `PYTHONPATH=src:tests python -m golden`."""
    assert {path.stem for path in FILES if path.parent.name == tg.__version__} == families().keys()


def test_a_damaged_state_is_refused(tmp_path: Path) -> None:
    text = FILES[0].read_text()
    at = text.index('"meta": "') + 300
    other = "A" if text[at] != "A" else "B"
    (tmp_path / "damaged.json").write_text(text[:at] + other + text[at + 1 :])
    driver, _ = read(tmp_path / "damaged.json", families()[FILES[0].stem])
    with pytest.raises(tg.CheckpointError, match="cannot be read"):
        piped(driver, AFTER)
