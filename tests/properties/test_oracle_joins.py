"""The oracle of joins against the scenarios, Kafka's rows included, and against what the rules promise."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from conformance import runner
from oracle_joins import JoinedRow, KafkaStreamJoin, StreamJoin, StreamTableJoin, TableTableJoin

KINDS = ("stream_join", "stream_table_join", "table_table_join")
SCENARIOS = [scenario for scenario in map(runner.load, runner.names()) if scenario.kind in KINDS]
STREAMS = [scenario for scenario in SCENARIOS if scenario.kind == "stream_join"]

Row = dict[str, Any]
Take = Callable[[str, Any, Any, int], list[JoinedRow]]


def name(scenario: runner.Scenario) -> str:
    return scenario.id


def test_the_scenarios_are_there() -> None:
    assert len(SCENARIOS) >= 54
    assert {scenario.kind for scenario in SCENARIOS} == set(KINDS)


@pytest.mark.parametrize("scenario", SCENARIOS, ids=name)
def test_rows_order_and_drops_are_those_of_the_scenario(scenario: runner.Scenario) -> None:
    join = ours(scenario.topology)
    check(scenario.data["input"], join.take, scenario.data)
    if "expected_drops" in scenario.data:
        assert dict(join.drops) == scenario.data["expected_drops"]
    if "expected_dropped" in scenario.data:
        assert join.drops.total() == scenario.data["expected_dropped"]


@pytest.mark.parametrize("scenario", STREAMS, ids=name)
def test_kafka_gives_what_the_scenario_says_it_does(scenario: runner.Scenario) -> None:
    join = kafkas(scenario.topology)
    # Where nothing is said to differ, Kafka's rows are ours.
    expected = scenario.data.get("kafka", scenario.data)
    check(scenario.data["input"], join.take, expected)
    if "expected_dropped" in expected:
        assert join.drops == expected["expected_dropped"]


def ours(topology: Row) -> StreamJoin | StreamTableJoin | TableTableJoin:
    how = topology["join"]
    if topology["kind"] == "stream_table_join":
        return StreamTableJoin(how, topology.get("history_ms"), topology.get("grace_ms"))
    if topology["kind"] == "table_table_join":
        return TableTableJoin(how)
    return StreamJoin(*bounds(topology), how, topology.get("self", False))


def kafkas(topology: Row) -> KafkaStreamJoin:
    legacy = topology["windows"].get("spurious_result_fix") is False
    return KafkaStreamJoin(*bounds(topology), topology["join"], topology.get("self", False), legacy=legacy)


def bounds(topology: Row) -> tuple[int, int, int]:
    windows = topology["windows"]
    return windows["before_ms"], windows["after_ms"], windows["grace_ms"]


def check(records: list[Row], take: Take, expected: Row) -> None:
    rows: list[JoinedRow] = []
    after = [0]
    for record in records:
        rows += take(record.get("side", "left"), record["key"], record["value"], record["timestamp_ms"])
        after.append(len(rows))
    assert [shown(row) for row in rows] == expected["expected"]
    for point in expected.get("checkpoints", []):
        assert after[point["after_inputs"]] == point["outputs_so_far"], point


def shown(row: JoinedRow) -> Row:
    sides = ("null" if side is None else str(side) for side in (row.left, row.right))
    return {"key": row.key, "value": None if row.deleted else "+".join(sides), "timestamp_ms": row.timestamp}
