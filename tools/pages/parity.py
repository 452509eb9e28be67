"""docs/parity.md, a table of Kafka Streams' names and ours, from docs/parity.toml."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from typing import Any

from tools.pages import DOCS

DATA = DOCS / "parity.toml"

SHOWN = {"supported": "yes", "not yet": "not yet", "never": "never"}
"""The statuses of a row, and their words on the page."""

INTRODUCTION = """\
# Parity with Kafka Streams

<!-- Made from docs/parity.toml by `python -m tools.pages` (make docs). -->

tidegate follows KIP-328 (suppress and grace), KIP-825 (emit strategies), the BatchWindows proposal and the article on
suppress. This page lists every class and method of these documents with its counterpart in tidegate. *Not yet* means
designed and [missing](notyet.md). *Never* means rejected, with the reason. A test compares every row with the code.

This page compares names. For behaviour see [where we differ](concepts.md#where-we-differ-from-kafka-streams) and
[every scenario](scenarios.md).
"""


@dataclass(frozen=True)
class Row:
    """One line of docs/parity.toml; `line`: its number."""

    line: int
    kafka: str
    status: str
    here: str = ""
    probe: str = ""
    note: str = ""


@dataclass(frozen=True)
class Section:
    title: str
    source: str
    rows: list[Row]


def sections() -> list[Section]:
    """The sections of docs/parity.toml, in its order."""
    text = DATA.read_text(encoding="utf-8")
    lines = text.splitlines()

    def row(data: dict[str, Any]) -> Row:
        start = f"{{ kafka = {_quoted(data['kafka'])},"
        return Row(next(n for n, line in enumerate(lines, 1) if line.strip().startswith(start)), **data)

    return [Section(s["title"], s["source"], [row(r) for r in s["rows"]]) for s in tomllib.loads(text)["section"]]


def _quoted(text: str) -> str:
    return '"' + text.replace('"', '\\"') + '"'


def page() -> str:
    return INTRODUCTION + "".join(map(_section, sections()))


def _section(section: Section) -> str:
    head = f"\n## {section.title}\n\n{section.source}\n\n| Kafka Streams | | tidegate | |\n|---|---|---|---|\n"
    return head + "".join(map(_line, section.rows))


def _line(row: Row) -> str:
    metric = row.here.removeprefix("metrics: ")
    # A missing name has no prefix tg: tests require that every `tg.` name in the documentation exists.
    shown = metric if row.status == "supported" else metric.removeprefix("tg.")
    here = f"`{shown}`" if shown else ""
    name = row.kafka if " " in row.kafka.split("(")[0] else f"`{row.kafka}`"
    return f"| {name} | {SHOWN[row.status]} | {here} | {row.note} |\n"
