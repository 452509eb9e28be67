"""What is made by code is as the code makes it today: the tables, and the pictures from what the driver gives now."""

from __future__ import annotations

from pathlib import Path

import pytest
from tools.pages import COMMAND, ROOT
from tools.pages.made import FILES


@pytest.mark.parametrize("path", list(FILES), ids=lambda path: str(path.relative_to(ROOT)))
def test_it_is_current(path: Path) -> None:
    name = path.relative_to(ROOT)
    assert path.exists(), f"{name} is missing: run `{COMMAND}` and commit it"
    if path.read_text(encoding="utf-8") != FILES[path]():
        pytest.fail(f"{name} is not what it would be now: run `{COMMAND}`, read the difference, and commit it")
