"""Generated files are current: the tables, and the pictures of the driver's present output."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tools.pages import COMMAND, ROOT, notebooks
from tools.pages.made import FILES


@pytest.mark.parametrize("path", list(FILES), ids=lambda path: str(path.relative_to(ROOT)))
def test_it_is_current(path: Path) -> None:
    name = path.relative_to(ROOT)
    assert path.exists(), f"{name} is missing: run `{COMMAND}` and commit it"
    if path.read_text(encoding="utf-8") != FILES[path]():
        pytest.fail(f"{name} is not what it would be now: run `{COMMAND}`, read the difference, and commit it")


@pytest.mark.parametrize("path", list(notebooks.files()), ids=lambda path: path.stem)
def test_a_notebook_shows_pictures(path: Path) -> None:
    """Pictures of a topology and of the windows that wait, as HTML that Jupyter shows when the file is opened."""
    cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
    shown = [
        "".join(output["data"]["text/html"])
        for cell in cells
        for output in cell.get("outputs", [])
        if "text/html" in output.get("data", {})
    ]
    pictures = [html for html in shown if "<svg" in html]
    assert len(pictures) >= 2
    assert any("stream time" in html for html in pictures)
    assert not any("<script" in html or "http" in html.replace("http://www.w3.org/", "") for html in shown)
