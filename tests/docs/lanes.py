"""Lanes of Python blocks: each block of each page has one lane, and one test runs all blocks of a lane."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

from docs.pages import PAGES, ROOT, Block, blocks

LANES = {
    "driver": "tests/docs/test_docs.py",
    "spark": "tests/spark/test_pages.py",
    "pipelines": "tests/spark/test_pipelines.py",
    "sinks": "tests/spark/test_sinks_page.py",
    "kafka": "tests/kafka/test_pages.py",
    "cluster": "tests/cluster/test_connect.py",
}
"""The first three run in `make test`, the others in `make test-sinks`, `make test-kafka` and `make test-cluster`."""

WHOLE = {
    "docs/cluster.md": "cluster",
    "docs/sinks.md": "sinks",
    "docs/kafka.md": "kafka",
    "docs/schema-registry.md": "kafka",
    "docs/change-data.md": "kafka",
}
"""Pages with a single lane for all their blocks."""

BY_CODE = (
    ("pipelines", r"pyspark import pipelines"),
    ("kafka", r"tg\.kafka\b|tg\.debezium\b|format\(\"kafka\"\)"),
    ("spark", r"\bspark\b|\bdf\b|_df\b|tg\.sinks\b|tg\.drain\(|\.to_df\(|\bpyspark\b"),
)
"""For other pages: the first lane whose pattern matches the block; without a match the block needs no Spark."""


def lane(block: Block) -> str:
    """The lane of a block of Python."""
    whole = WHOLE.get(str(block.page.relative_to(ROOT)))
    return whole or next((name for name, pattern in BY_CODE if re.search(pattern, block.code)), "driver")


def pages_of(name: str) -> list[Path]:
    """The pages that have blocks of a lane."""
    return [page for page in PAGES if any(lane(block) == name for block in blocks(page) if block.language == "python")]


def in_lanes(*names: str) -> Callable[[Block], bool]:
    """Whether a block has one of these lanes."""
    return lambda block: lane(block) in names
