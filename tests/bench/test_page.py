"""What is measured anew takes the place of what was measured before, and of nothing else."""

from __future__ import annotations

import pytest
from benchmarks.page import BEGIN, END, PAGE, merged


def section(workload: str, command: str, numbers: str) -> str:
    return f"### {workload}: what it does\n\n`make {command} BENCH_ARGS=...` on some day.\n\n{numbers}"


def test_a_workload_measured_anew() -> None:
    old = "\n".join([section("W1", "bench", "1"), section("W2", "bench", "2")])
    found = merged(old, [section("W2", "bench", "3")])
    assert found == f"{section('W1', 'bench', '1')}\n\n{section('W2', 'bench', '3')}"


def test_one_workload_against_two_kinds_of_others() -> None:
    own, peers = section("W9", "bench", "1"), section("W9", "bench-peers", "2")
    assert merged(own, [peers]) == f"{own}\n\n{peers}"
    assert merged(f"{own}\n\n{peers}", [section("W9", "bench-peers", "3")]).endswith("3")


def test_the_order_of_the_page() -> None:
    names = [("W1", "bench"), ("W9", "bench"), ("W10", "bench"), ("START", "bench"), ("W8", "bench-peers")]
    given = [section(*name, "1") for name in names]
    assert merged("", given[::-1]) == "\n\n".join(given)
    # Headings of these have no colon.
    where = "### Where the time goes\n\n`make bench-where` on some day.\n\n1"
    growth = "### Growth\n\n`make bench-growth` on some day.\n\n1"
    assert merged("", [where, growth, given[0]]) == f"{given[0]}\n\n{growth}\n\n{where}"


def test_a_section_that_nobody_measured() -> None:
    with pytest.raises(ValueError, match="does not say what measured it"):
        merged("### By hand\n\nmuch faster", [])


def test_the_page_itself() -> None:
    text = PAGE.read_text(encoding="utf-8")
    measured = text.split(BEGIN)[1].split(END)[0]
    assert merged(measured, []) == measured.strip()
