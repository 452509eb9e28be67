"""Random joins of the parity run, and explanations of differences between Kafka's rows and ours; no Java."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from conformance import runner

ROOT = Path(__file__).parents[2]
if not (ROOT / "parity").is_dir():
    pytest.skip("parity/ is not part of this distribution", allow_module_level=True)

from parity import cases, compare, deviations, joins, table_joins  # noqa: E402

SCENARIOS = [scenario for scenario in map(runner.load, runner.names()) if scenario.kind == "stream_join"]
SEEDS = range(400)
ANOTHER = {"stream_join__left_testWindowing": "D3"}
"""Its scenario names D2. The records that later join there are right ones, which a left join does not preserve."""


def topology_of(scenario: runner.Scenario) -> cases.Json:
    windows = scenario.topology["windows"]
    return {
        "kind": "stream_join",
        "how": scenario.topology["join"],
        **{name: windows[name] for name in ("before_ms", "after_ms", "grace_ms")},
        "self": scenario.topology.get("self", False),
        "legacy": windows.get("spurious_result_fix") is False,
        "store": "rocksdb",
        "suppress": None,
    }


def records_of(scenario: runner.Scenario) -> list[cases.Json]:
    return [
        {
            "side": record.get("side", "left"),
            "key": record["key"],
            "value": record["value"],
            "ts": record["timestamp_ms"],
        }
        for record in scenario.data["input"]
    ]


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.id)
def test_a_scenario_has_the_deviation_that_it_names(scenario: runner.Scenario) -> None:
    found = deviations.explanation(topology_of(scenario), records_of(scenario))
    assert found is not None
    said = scenario.data.get("differs_from_kafka")
    if said is None:
        assert found == ()
        return
    named = re.match(r"D\d", said)
    assert ANOTHER.get(scenario.id, named.group() if named else "legacy") in found


def test_each_deviation_explains_some_random_join_alone() -> None:
    alone: Counter[str] = Counter()
    for seed in range(3000):
        case = joins.generate(seed)
        found = deviations.explanation(case.topology, case.records)
        assert found is not None, case.shown()
        if len(found) == 1:
            alone.update(found)
        if len(alone) == len(deviations.DEVIATIONS):
            return
    raise AssertionError(f"never alone: {deviations.DEVIATIONS.keys() - alone.keys()}")


@pytest.mark.parametrize("seed", SEEDS[:100])
def test_with_all_deviations_switched_kafkas_rules_are_ours_and_with_none_its_own(seed: int) -> None:
    case = joins.generate(seed)
    nothing, everything = (deviations.between(case.topology, case.records, ours) for ours in (frozenset(), ALL))
    assert nothing == deviations.kafkas(case.topology, case.records)
    ours = deviations.ours(case.topology, case.records)
    assert everything.rows == ours.rows
    assert case.topology["self"] or everything.dropped == ours.dropped


ALL = frozenset(deviations.DEVIATIONS)


def test_what_no_deviation_explains_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the switch of D1 its scenario is unexplained, and the case fails."""
    without = {name: meaning for name, meaning in deviations.DEVIATIONS.items() if name != "D1"}
    monkeypatch.setattr(deviations, "DEVIATIONS", without)
    scenario = runner.load("boundary__join_out_of_order_left_waits_for_its_grace")
    topology, records = topology_of(scenario), records_of(scenario)
    assert deviations.explanation(topology, records) is None
    result = joins.compared(cases.Case(0, topology, tuple(records)), oracle_as_kafka)
    assert result.found == ["no deviation of SEMANTICS 7c explains why Kafka's rules and ours differ"]


def oracle_as_kafka(topology: cases.Json, records: tuple[cases.Json, ...]) -> cases.Json:
    """Answer of the jar, if its rules are those of the oracle."""
    outcome = deviations.kafkas(topology, records)
    return {"raw": joins.shown(outcome.rows), "dropped": outcome.dropped}


def test_rows_and_drops_of_the_jar_are_compared_with_the_oracle() -> None:
    case = next(case for case in map(joins.generate, SEEDS) if not case.topology["self"])
    assert joins.compared(case, oracle_as_kafka).found == []

    def another(topology: cases.Json, records: tuple[cases.Json, ...]) -> cases.Json:
        answer = oracle_as_kafka(topology, records)
        answer["raw"][1] = [*answer["raw"][1], {"key": "A", "value": "0+0", "timestamp_ms": 0}]
        return answer | {"dropped": answer["dropped"] + 1}

    rows, drops = joins.compared(case, another).found
    dropped = oracle_as_kafka(case.topology, case.records)["dropped"]
    assert rows.startswith("7a, record 1:\n")
    assert drops == f"7a: Kafka dropped {dropped + 1}, the oracle {dropped}"


def test_the_rows_of_tidegate_are_compared_with_the_oracle(monkeypatch: pytest.MonkeyPatch) -> None:
    case = next(case for case in map(joins.generate, SEEDS) if "+" in str(_rows(case)))
    assert joins.compared(case, oracle_as_kafka).found == []
    monkeypatch.setattr(joins, "_row", lambda output: {"key": output["key"]})
    assert [line.split(",")[0] for line in joins.compared(case, oracle_as_kafka).found] == ["7b"]


def _rows(case: cases.Case) -> Any:
    return joins.shown(deviations.ours(case.topology, case.records).rows)


def test_a_fifth_of_the_cases_are_joins_and_a_seed_means_one_join() -> None:
    drawn = [compare.draw(seed, None) for seed in SEEDS]
    found = [case for case in drawn if case.topology["kind"] == "stream_join"]
    assert 0.15 < len(found) / len(SEEDS) < 0.25
    assert all(compare.draw(case.seed, "joins") == case for case in found)
    kinds = {only: {compare.draw(seed, only).topology["kind"] for seed in SEEDS} for only in compare.ONLY}
    assert kinds["joins"] == {"stream_join"}
    assert kinds["table-joins"] == {"stream_table_join", "table_table_join"}
    assert kinds["aggregations"] == {"windowed", "plain", "table"}
    assert {case.topology["kind"] for case in drawn} == set.union(*kinds.values())


def test_what_is_drawn() -> None:
    drawn = [joins.generate(seed) for seed in SEEDS]
    windows = [case.topology for case in drawn]
    assert {topology["how"] for topology in windows} == {"inner", "left", "outer"}
    assert all(topology["before_ms"] + topology["after_ms"] >= 0 for topology in windows)
    assert {topology["before_ms"] for topology in windows} >= set(range(-4, 9))
    assert {topology["grace_ms"] for topology in windows} >= set(range(7))
    for name in ("self", "legacy"):
        assert 0.05 < sum(topology[name] for topology in windows) / len(drawn) < 0.25
    records = [record for case in drawn for record in case.records]
    assert all(any(record[name] is None for record in records) for name in ("key", "value"))
    assert {compare.family(case).split(",")[0] for case in drawn} == {"stream join"}


def test_joins_with_tables_are_compared_with_the_oracle() -> None:
    case = next(case for case in map(table_joins.generate, SEEDS) if case.topology["how"] == "outer")
    join = table_joins.kafkas(case.topology)
    rows = [join.take(record["side"], record["key"], record["value"], record["ts"]) for record in case.records]
    dropped = join.drops.total()
    answer: cases.Json = {"raw": [table_joins.shown(of_record) for of_record in rows], "dropped": dropped}
    assert table_joins.differences(case, lambda *_: answer) == []
    assert table_joins.differences(case, lambda *_: answer | {"dropped": dropped + 1}) == [
        f"Kafka dropped {dropped + 1}, the oracle {dropped}"
    ]
    answer["raw"][2] = [{"key": "A", "value": "0+0", "timestamp_ms": 0}]
    assert table_joins.differences(case, lambda *_: answer)[0].startswith("record 2:\n")


def test_kafka_forgets_a_tombstone_at_the_instant_of_the_only_version() -> None:
    """Found by the parity run (table joins, seed 340)."""
    topology = {"kind": "stream_table_join", "how": "left", "history_ms": {"right": 20}, "grace_ms": None}
    changes = [("1", 5), (None, 5), ("3", 2)]
    for join, row in ((table_joins.oracle(topology), None), (table_joins.kafkas(topology), "3")):
        for value, at in changes:
            join.take("right", "A", value, at)
        assert [found.right for found in join.take("left", "A", "9", 6)] == [row]
    join = table_joins.kafkas(topology)
    for value, at in [("0", 4), *changes]:  # that of 4 ends at 5
        join.take("right", "A", value, at)
    assert [found.right for found in join.take("left", "A", "9", 6)] == [None]


def test_what_is_drawn_of_joins_with_tables() -> None:
    families = {compare.family(table_joins.generate(seed)) for seed in range(1000)}
    streams = {f"stream table join, {how}{more}" for how in ("inner", "left") for more in MORE}
    tables = {f"table table join, {how}{more}" for how in ("inner", "left", "outer") for more in MORE[:2]}
    assert families == streams | tables


MORE = ("", ", history", ", history, grace")


def test_the_summary_counts_deviations() -> None:
    tally = joins.Tally()
    assert tally.lines() == []
    for result in (
        joins.Compared([]),
        joins.Compared([], ("D1",), rows_differ=True),
        joins.Compared([], ("D1", "D3"), rows_differ=True),
        joins.Compared([], ("D3",)),
    ):
        assert tally.take(result) == []
    assert tally.take(joins.Compared(["a difference"], ("D2",))) == ["a difference"]
    lines = tally.lines()
    assert lines[0].startswith("4 joins: 1 equal to Kafka, 2 with other rows, 1 with other")
    shown = {line.split()[1]: line.split()[0] for line in lines[2:]}
    assert shown == dict.fromkeys(deviations.DEVIATIONS, "0") | {"D1": "2", "D3": "2"}
    assert lines[2].endswith("(1 by it alone)")
