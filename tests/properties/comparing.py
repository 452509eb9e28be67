"""Comparisons that show a difference: the topology, the input, and both outputs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from oracle import Oracle, Row, Topology, by_place, same
from properties.cases import Case


def assert_same(case: Case, batches: Any, got: list[Row], wanted: list[Row]) -> None:
    if not same(got, wanted):
        raise AssertionError(
            f"{case.topology}\nsuppress: {case.through_suppress}, schema: {case.with_schema}\ninput:\n{lines(batches)}"
            f"\ngot:\n{lines(got)}\nwanted:\n{lines(wanted)}"
        )


def assert_same_drops(case: Case, batches: Any, got: Mapping[str, int], wanted: Mapping[str, int]) -> None:
    found, expected = ({reason: n for reason, n in drops.items() if n} for drops in (got, wanted))
    assert found == expected, f"{case.topology}\ninput:\n{lines(batches)}"


def lines(items: Any) -> str:
    return "\n".join(f"  {item}" for item in items)


def placed(topology: Topology, rows: list[Row]) -> list[Row]:
    """Rows in a canonical order: a batch of updates has no order between keys."""
    return by_place(rows, topology.key)


def run_oracle(topology: Topology, batches: list[list[Row]]) -> tuple[list[list[Row]], dict[str, int]]:
    """The rows of each batch and the drops by reason, by the oracle."""
    oracle = Oracle(topology)
    rows = [oracle.batch(batch) for batch in batches]
    return rows, dict(oracle.drops)


def run_driver(driver: Any, batches: list[list[Row]]) -> tuple[list[list[Row]], dict[str, int]]:
    """The rows of each batch and the drops by reason, by the test driver."""
    rows = []
    for batch in batches:
        driver.pipe_batch(batch)
        rows.append(driver.read_output())
    return rows, dict(driver.drops)


def flat(batches: list[list[Row]]) -> list[Row]:
    return [row for batch in batches for row in batch]
