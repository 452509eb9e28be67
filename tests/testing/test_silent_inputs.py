"""Steps that name columns of an input without a schema, from which nothing was piped yet: they read nulls."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow.compute as pc
import pytest

import tidegate as tg
from tidegate.testing import TopologyTestDriver

WINDOWS = tg.JoinWindows.of_time_difference_with_no_grace("10 ms")
LIMIT = tg.Suppressed.until_time_limit("5 ms", tg.BufferConfig.unbounded(), clock="stream")

STEPS: dict[str, Callable[[Any], Any]] = {
    "a name": lambda rows: rows.map_values({"x": "x"}),
    "an expression": lambda rows: rows.map_values({"x": pc.field("x")}),
    "a filter": lambda rows: rows.filter(pc.field("x").is_null() | (pc.field("x") > 0)),
    "two steps": lambda rows: rows.filter(lambda row: True).map_values({"x": "x"}).filter(pc.field("x").is_valid()),
}


def events() -> tg.KStream:
    return tg.stream("events", key="k", timestamp="ts", stream_time="max")


def users() -> tg.KTable:
    return tg.table("users", key="k", timestamp="ts")


def rows(result: Any, *records: tuple[str, dict[str, Any]]) -> list[tuple[int, Any]]:
    """Timestamp and `x` of each row, with a restart behind each record."""
    driver, found = TopologyTestDriver(result), []
    for name, record in records:
        driver.pipe_input(record, name)
        driver.pending_of_chain()
        found += driver.read_output()
        driver = TopologyTestDriver(result, state=driver.state())
    driver.drain()
    return [(row["timestamp"], row.get("x")) for row in [*found, *driver.read_output()]]


def event(ts: int) -> tuple[str, dict[str, Any]]:
    return "events", {"k": "A", "ts": ts, "n": ts}


def user(ts: int, x: Any) -> tuple[str, dict[str, Any]]:
    return "users", {"k": "A", "ts": ts, "x": x}


def expected(name: str, *wanted: tuple[int, Any]) -> list[tuple[int, Any]]:
    """The rows behind these steps: only the last ones leave out a null."""
    return [row for row in wanted if name != "two steps" or row[1] is not None]


@pytest.mark.parametrize("name", STEPS)
def test_steps_behind_a_join_with_a_table(name: str) -> None:
    found = rows(STEPS[name](events().left_join(users())), event(1), user(2, 5), event(3))
    assert found == expected(name, (1, None), (3, 5))


@pytest.mark.parametrize("name", STEPS)
def test_steps_behind_a_join_of_streams(name: str) -> None:
    right = tg.stream("users", key="k", timestamp="ts", stream_time="max")
    found = rows(STEPS[name](events().left_join(right, WINDOWS)), event(1), event(50), user(51, 7))
    assert found == expected(name, (1, None), (51, 7))


@pytest.mark.parametrize("name", STEPS)
def test_steps_between_a_join_and_an_aggregation(name: str) -> None:
    joined = STEPS[name](events().left_join(users()))
    windowed = joined.group_by_key().windowed_by(tg.TimeWindows.of_size_with_no_grace("10 ms"))
    found = rows(windowed.agg(x=tg.sum("x")), event(1), user(2, 5), event(3))
    assert found == expected(name, (1, None), (3, 5))


@pytest.mark.parametrize("name", STEPS)
@pytest.mark.parametrize("limited", [False, True], ids=["no limit", "a limit"])
def test_steps_of_a_table_that_is_joined(name: str, limited: bool) -> None:
    table = STEPS[name](users())
    table = table.suppress(LIMIT) if limited else table
    others = tg.table("others", key="k", timestamp="ts")
    found = rows(table.outer_join(others), ("others", {"k": "A", "ts": 1, "y": 3}), user(2, 4), user(9, 6))
    assert found == [(1, None), *([] if limited else [(2, 4)]), (9, 6)]


def test_rows_grouped_by_a_column_of_a_silent_input() -> None:
    """They are in no group, as rows with a null are."""
    joined = events().left_join(users())
    assert rows(joined.group_by("x").count(), event(1), user(2, 5), event(3)) == [(3, 5)]
    tables = tg.table("others", key="k", timestamp="ts").left_join(users())
    other = ("others", {"k": "A", "ts": 1, "y": 3})
    assert rows(tables.group_by("x").count(), other, user(2, 4)) == [(2, 4)]


def test_a_column_that_a_heard_input_lacks_is_an_error() -> None:
    driver = TopologyTestDriver(STEPS["a name"](events().left_join(users())))
    driver.pipe_input({"k": "A", "ts": 1, "y": 1}, "users")
    with pytest.raises(tg.AggregationError, match="there is no column 'x'"):
        driver.pipe_input(event(2)[1], "events")
