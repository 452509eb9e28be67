"""Scenarios of joins through the public API: the side of each record, and rows in the scenarios' shape.

`stream_time` of a topology is the clock of its streams ("max" without it); `partition` of a record is 0 without it.
"""

from __future__ import annotations

from typing import Any

import tidegate as tg
from conformance import runner
from conformance.runner import Row, Scenario

KINDS = ("stream_join", "stream_table_join", "table_table_join")
"""Kinds of topologies that are joins."""

SIDES = ("left", "right")
ORDER = {"partition": "partition", "offset": "offset"}


def windows(scenario: Scenario) -> Any:
    spec = scenario.topology["windows"]
    made = tg.JoinWindows.of_time_difference_and_grace(
        runner.ms(max(spec["before_ms"], 0)), runner.ms(spec["grace_ms"])
    )
    # Widen first: at no time may the end lie before the start.
    steps = sorted((("before", spec["before_ms"]), ("after", spec["after_ms"])), key=lambda step: -step[1])
    for name, value in steps:
        made = getattr(made, name)(runner.ms(value))
    return made


def value(left: Row | None, right: Row | None) -> Row:
    """The values of both sides as one text."""
    texts = ["null" if side is None or side["value"] is None else str(side["value"]) for side in (left, right)]
    return {"value": "+".join(texts)}


def build(scenario: Scenario, left: Any, right: Any) -> Any:
    """The join of a scenario; `right` is `left` in a join with itself."""
    how = scenario.topology["join"]
    more: dict[str, Any] = {"how": how, "value_joiner": value, "types": {"value": "string"}}
    if scenario.kind == "stream_join":
        return left.join(right, windows(scenario), **more)
    if scenario.kind == "stream_table_join":
        grace = scenario.topology.get("grace_ms")
        return left.join(right, grace=None if grace is None else runner.ms(grace), **more)
    return left.join(right, materialized=tg.Materialized.as_("join").with_caching_disabled(), **more)


def side(scenario: Scenario, source: Any, name: str, **order: str) -> Any:
    """The stream or the table that is one side of the join."""
    if is_table(scenario, name):
        history = scenario.topology.get("history_ms")
        more = {} if history is None else {"history": runner.ms(history)}
        return tg.table(source, key="key", timestamp="ts", deleted="deleted", name=name, **order, **more)
    clock = scenario.topology.get("stream_time", "max")
    return tg.stream(source, key="key", timestamp="ts", name=name, stream_time=clock, **order)


def is_table(scenario: Scenario, name: str) -> bool:
    """Whether this side of the join is a table."""
    return scenario.kind == "table_table_join" or (scenario.kind == "stream_table_join" and name == "right")


def unbound(scenario: Scenario) -> Any:
    """The join of a scenario over unbound streams."""
    order = ORDER if "stream_time" in scenario.topology else {}
    sides = [side(scenario, name, name, **order) for name in SIDES]
    return build(scenario, sides[0], sides[0] if scenario.topology.get("self") else sides[1])


def input_of(entry: Row) -> str:
    """The name of the stream that a record is piped into."""
    return entry.get("side", "left")


def records(scenario: Scenario) -> list[tuple[str, Row]]:
    """Each record with the stream that it is piped into."""
    sides = [(input_of(entry), entry) for entry in scenario.data["input"]]
    found = [(name, runner.record_of(entry, is_table(scenario, name))) for name, entry in sides]
    if "stream_time" not in scenario.topology:
        return found
    partitions = [entry.get("partition", 0) for entry in scenario.data["input"]]
    return [
        (name, {**record, "partition": at, "offset": n})
        for n, ((name, record), at) in enumerate(zip(found, partitions, strict=True))
    ]


def check_drops(scenario: Scenario, driver: Any) -> None:
    """Compare the dropped records with the scenario, in all and by reason."""
    runner.check_dropped(scenario, driver.dropped)
    if (wanted := scenario.data.get("expected_drops")) is not None:
        assert {reason: n for reason, n in driver.drops.items() if n} == wanted


def check(scenario: Scenario) -> None:
    """Replay a scenario record by record."""
    from tidegate.testing import TopologyTestDriver

    driver = TopologyTestDriver(unbound(scenario))
    rows: list[Row] = []
    after = [0]
    for side, record in records(scenario):
        driver.pipe_input(record, side)
        rows += [runner.row_of(row) for row in driver.read_output()]
        after.append(len(rows))
    runner.check(scenario, rows)
    for checkpoint in scenario.data.get("checkpoints", []):
        assert after[checkpoint["after_inputs"]] == checkpoint["outputs_so_far"], checkpoint
    check_drops(scenario, driver)
