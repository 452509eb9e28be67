"""The oracle itself against the scenarios, so that the judge is judged too."""

from __future__ import annotations

from typing import Any

import pytest

from conformance import runner
from conformance.runner import Scenario
from conformance.status import SUPPORTED
from oracle import BuiltIn, Fold, Oracle, Reduce, Topology, Windows


def aggregate_of(spec: Any) -> Any:
    sep = spec.get("sep", "")
    functions = {
        "count": BuiltIn("count"),
        "reduce_concat": Reduce(lambda a, b: f"{a}{sep}{b}", "value"),
        "aggregate_concat": Fold(lambda: spec["init"], lambda key, row, a: f"{a}{sep}{row['value']}"),
    }
    return functions[spec["fn"]]


def topology_of(scenario: Scenario) -> Topology:
    spec = scenario.topology["windows"]
    windows = Windows(spec["size_ms"], spec["advance_ms"], spec["grace_ms"])
    return Topology(("key",), windows, {"value": aggregate_of(scenario.topology["aggregation"])}, final=scenario.final)


CHECKED = [
    name
    for name in SUPPORTED
    if (data := runner.load(name)).kind == "windowed_aggregate"
    and "expected_error" not in data.data
    and data.topology["windows"]["type"] == "time"
    and data.topology.get("suppress", {}).get("kind") != "until_time_limit"
]


@pytest.mark.parametrize("name", CHECKED)
def test_the_oracle_holds_the_scenarios(name: str) -> None:
    scenario = runner.load(name)
    oracle = Oracle(topology_of(scenario))
    rows = [runner.row_of(row) for record in scenario.records for row in oracle.batch([record])]
    runner.check(scenario, rows)
    runner.check_dropped(scenario, sum(oracle.drops.values()))
