"""The page from Kafka Streams has every operator, and the quickstart is an example."""

from __future__ import annotations

import re
from typing import Any

from tools.pages import parity

from docs.pages import ROOT, Block, blocks, run, text

DOCS = ROOT / "docs"
QUICKSTART = DOCS / "tutorial" / "quickstart.md"
COOKBOOK = DOCS / "howto" / "cookbook.md"
STREAM_TIME = DOCS / "explanation" / "stream-time.md"
KAFKA_STREAMS = DOCS / "howto" / "from-kafka-streams.md"
ELSEWHERE = {"end_ms", "windows_for", "type", "to_df"}
"""Parts of a value that need no row in a table of operators, besides those that other rows have."""


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


def test_no_function_of_a_recipe_calculates_with_the_time_of_a_record() -> None:
    """It is a number if numbers are piped into the driver, but a datetime on Spark."""
    recipes = "\n".join(block.code for block in blocks(COOKBOOK))
    assert "def parts(row):" in recipes
    assert not re.findall(r"""row\[["']ts["']\] *[-+*/%]""", recipes)


def program() -> Block:
    """The program of the quickstart."""
    return next(block for block in blocks(QUICKSTART) if block.code.startswith('"""'))


def test_the_quickstart_is_an_example() -> None:
    assert program().code == (ROOT / "examples" / "quickstart.py").read_text(encoding="utf-8")


def test_a_window_with_enough_requests_raises_no_alert() -> None:
    """Nor does it leave as a tombstone, which the loop of the page would print as an alert."""
    names: dict[str, Any] = {}
    run(STREAM_TIME, names)
    driver = names["TopologyTestDriver"](names["alerts"](names["tg"].stream("requests", key="user", timestamp="ts")))
    driver.pipe_batch([{"user": "A", "ts": minute * names["MINUTE"]} for minute in (10, 10, 11, 11, 14)])
    assert driver.read_output() == []
