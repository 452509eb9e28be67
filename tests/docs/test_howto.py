"""The pages of tutorial, how-to and explanation: their code runs, in the driver or on Spark."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from tools.pages import parity

from docs.pages import ROOT, Block, blocks, run, text

DOCS = ROOT / "docs"
FOLDERS = ("howto", "tutorial", "explanation")
PAGES = sorted(page for folder in FOLDERS for page in (DOCS / folder).glob("*.md") if "```python" in text(page))
NEEDS_SPARK = re.compile(r"\bspark\b|\bdf\b|_df\b|tg\.sinks|tg\.kafka|\.to_df\(")
QUICKSTART = DOCS / "tutorial" / "quickstart.md"
KAFKA_STREAMS = DOCS / "howto" / "from-kafka-streams.md"
ELSEWHERE = {"end_ms", "windows_for", "type", "to_df"}
"""Parts of a value that a table of operators need not have, beside those that other rows have."""


def name_of(page: Path) -> str:
    return str(page.relative_to(DOCS))


def in_the_driver(block: Block) -> bool:
    return not block.code.startswith('"""') and NEEDS_SPARK.search(block.code) is None


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_the_code_of_a_page_runs(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    run(page, {"__name__": page.name}, in_the_driver)


def cells() -> list[str]:
    """The code in the Python cells of the page from Kafka Streams."""
    rows = re.findall(r"^\| .+ \| (.+) \|$", text(KAFKA_STREAMS), re.MULTILINE)
    return [cell.strip("`") for cell in rows if re.fullmatch(r"`[^`]+`", cell)]


def test_every_python_cell_is_an_operator() -> None:
    names: dict[str, Any] = {}
    run(KAFKA_STREAMS, names)
    assert len(cells()) > 70
    for cell in cells():
        eval(cell, names)


def test_every_supported_operator_has_a_row() -> None:
    written = set(re.findall(r"\w+", " ".join(cells())))
    supported = {
        row.here.partition("(")[0].rpartition(".")[2]
        for section in parity.sections()
        for row in section.rows
        if row.status == "supported" and row.here.startswith(("tg.", "tidegate.testing."))
    }
    assert supported - written - ELSEWHERE == {"StrictBuffer", "EagerBuffer"}


def program() -> Block:
    """The program of the quickstart."""
    return next(block for block in blocks(QUICKSTART) if block.code.startswith('"""'))


def test_the_quickstart_is_an_example() -> None:
    assert program().code == (ROOT / "examples" / "quickstart.py").read_text(encoding="utf-8")
