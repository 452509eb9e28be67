"""docs/scenarios.md: each scenario, whether it holds, and differences of Kafka Streams; from the tests' data."""

from __future__ import annotations

import importlib
import json
import re
import sys
from collections.abc import Iterator
from typing import Any

from tools.pages import ROOT

TESTS = ROOT / "tests"
SCENARIOS = TESTS / "conformance" / "scenarios"

INTRODUCTION = """\
# Every scenario

<!-- Made from tests/conformance by `python -m tools.pages` (make docs). -->

A scenario is a file in `tests/conformance/scenarios` with records and the expected rows. Most scenarios come from
Kafka's own tests or from the tables in the KIPs. *Holds* means that the rows are right on the test driver, record by
record; in batches too, if only final results leave; and on Spark, if the scenario has windows (`make test-spark`).
*As Kafka* means that Kafka Streams 4.x gives the same rows. *Explained* means that the scenario contradicts the
[semantics](semantics.md).
"""

FAMILIES = {
    "time_windows": "Tumbling and hopping windows",
    "sliding_windows": "Sliding windows",
    "session_windows": "Session windows",
    "batch_windows": "Batch windows",
    "emit_strategy": "Emit strategies",
    "boundary": "At the edges",
    "blog_figure": "Figures of the article",
    "suppress_scenario": "Suppress, end to end",
    "suppress_operator": "Suppress, the operator",
    "suppress_buffer": "Suppress, the buffer",
    "eviction_table": "The KIP's tables of eviction",
    "definition": "Definitions",
    "stream_join": "Joins of streams",
}
"""The families in the order of the page; unlisted families come last."""


def page() -> str:
    found: dict[str, list[tuple[str, dict[str, Any]]]] = {family: [] for family in FAMILIES}
    for path in sorted(SCENARIOS.glob("*.json")):
        data = json.loads(path.read_text(encoding="utf-8"))
        found.setdefault(data["family"], []).append((path.stem, data))
    holds = _holds()
    parts = [_family(family, cases, holds) for family, cases in found.items()]
    return INTRODUCTION + "".join(parts)


def _family(family: str, cases: list[tuple[str, dict[str, Any]]], holds: dict[str, str]) -> str:
    head = f"\n## {FAMILIES.get(family, family)}\n\n| scenario | holds | as Kafka | from |\n|---|---|---|---|\n"
    rows = (
        f"| {name.partition('__')[2]} | {holds[name]} | {_against(name, data)} | {_source(data['source'])} |\n"
        for name, data in cases
    )
    return head + "".join(rows)


def _holds() -> dict[str, str]:
    """The status of each scenario in tests/conformance/status.py, in words of the page."""
    if str(TESTS) not in sys.path:
        sys.path.append(str(TESTS))
    status = importlib.import_module("conformance.status")

    return dict.fromkeys(status.SUPPORTED, "yes") | {
        name: f"{gap.issue if gap.issue in ('never', 'explained') else f'not yet ({gap.issue})'}: {gap.reason}"
        for gap in status.GAPS
        for name in gap.scenarios
    }


def _against(name: str, data: dict[str, Any]) -> str:
    return "; ".join(_differences(name, data)) or "yes"


def _differences(name: str, data: dict[str, Any]) -> Iterator[str]:
    """Reasons why Kafka Streams gives other rows; none if it gives the same."""
    topology = data["topology"]
    suppress = topology.get("suppress") or {}
    if "differs_from_kafka" in data:
        yield f"**no**: {_escaped(data['differs_from_kafka'])}"
    if data["family"] == "batch_windows" or topology.get("family") == "BatchWindows":
        yield "**no**: `BatchWindows` were proposed and never released"
    if suppress.get("buffer_time_on_update") == "reset" and data.get("shipped_differs_from_kip"):
        yield (
            "**no**: the KIP's table starts the time again with every update (`latest_update` here); the release "
            "measures from the first one"
        )
    elif name.endswith("_shipped") and data.get("shipped_differs_from_kip"):
        yield "yes; the KIP's own table says otherwise"
    if suppress.get("byte_size") == "chars" and suppress.get("max_bytes") is not None:
        yield "the KIP's table counts characters of the value; the release its serialized bytes, tidegate Arrow's"
    elif suppress.get("max_bytes") is not None or topology.get("kind") == "buffer":
        yield "with Kafka's numbers of bytes: tidegate counts none for topic, partition and offset"


def _source(text: str) -> str:
    """The source of a scenario, without the names of our copies of the documents."""
    return _escaped(re.sub(r" ?\(seed [^)]*\)", "", text))


def _escaped(text: str) -> str:
    return str(text).replace("|", "\\|")
