"""Cogroup is an aggregation of one stream: each record tells the aggregator that takes it, record by record."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import tidegate as tg
from tidegate.testing import TopologyTestDriver

WINDOWS = {
    "none": None,
    "tumbling": tg.TimeWindows.of_size_with_no_grace("7 ms"),
    "hopping": tg.TimeWindows.of_size_and_grace("6 ms", "3 ms").advance_by("4 ms"),
    "sliding": tg.SlidingWindows.of_time_difference_and_grace("5 ms", "4 ms"),
    "sessions": tg.SessionWindows.of_inactivity_gap_and_grace("5 ms", "3 ms"),
    "batch": tg.BatchWindows.of_size("7 ms"),
}
NAMES = ("one", "two", "three")
RECORDS = st.lists(
    st.fixed_dictionaries(
        {
            "side": st.sampled_from(NAMES),
            "key": st.sampled_from(["a", "b", "", None]),
            "ts": st.one_of(st.integers(0, 60), st.sampled_from([-1, None])),
            "x": st.one_of(st.none(), st.integers(0, 9)),
        }
    ),
    max_size=30,
)


def initial() -> list[str]:
    return []


def merge(key: str, a: list[str], b: list[str]) -> list[str]:
    return [*a, "|", *b]


def by(side: str) -> Any:
    def add(key: str, row: dict[str, Any], told: list[str]) -> list[str] | None:
        value = row[f"x_{side}"]
        if value == 0 and side != "two":
            return None
        told.append(f"{side} {value}")
        return told

    return add


def by_its_side(key: str, row: dict[str, Any], told: list[str]) -> Any:
    return by(row["side"])(key, row | {f"x_{row['side']}": row["x"]}, told)


def shaped(grouped: Any, kind: str, emit: str, aggregate: Any) -> Any:
    windows = WINDOWS[kind]
    if windows is None:
        return aggregate(grouped)
    windowed = grouped.windowed_by(windows)
    if emit == "close":
        windowed = windowed.emit_strategy(tg.EmitStrategy.on_window_close())
    table = aggregate(windowed)
    if emit == "suppress":
        return table.suppress(tg.Suppressed.until_window_closes(tg.BufferConfig.unbounded()))
    return table


def stream(name: str) -> Any:
    return tg.stream(name, key="key", timestamp="ts", stream_time="max").group_by_key()


def cogrouped(kind: str, emit: str) -> Any:
    grouped = stream(NAMES[0]).cogroup(by(NAMES[0]))
    for name in NAMES[1:]:
        grouped = grouped.cogroup(stream(name), by(name))
    merger = merge if kind == "sessions" else None
    return shaped(grouped, kind, emit, lambda g: g.aggregate(initial, type="array<string>", merger=merger))


def one_stream(kind: str, emit: str) -> Any:
    merger = merge if kind == "sessions" else None
    aggregate = lambda g: g.aggregate(initial, by_its_side, type="array<string>", merger=merger)  # noqa: E731
    return shaped(stream("all"), kind, emit, aggregate)


@pytest.mark.parametrize("emit", ["update", "close", "suppress"])
@pytest.mark.parametrize("kind", WINDOWS)
@given(records=RECORDS, data=st.data())
def test_as_one_stream(kind: str, emit: str, records: list[dict[str, Any]], data: Any) -> None:
    table, driver = cogrouped(kind, emit), TopologyTestDriver(cogrouped(kind, emit))
    whole = TopologyTestDriver(one_stream(kind, emit))
    restart = data.draw(st.integers(0, 30))
    drops = driver.drops
    for n, record in enumerate(records):
        if n == restart:
            drops = driver.drops
            driver = TopologyTestDriver(table, state=driver.state())
        value = {f"x_{record['side']}": record["x"]}
        driver.pipe_input({"key": record["key"], "ts": record["ts"]} | value, record["side"])
        # Here a record without a value is skipped, and a side is no value.
        if kind in ("none", "sliding") and record["x"] is None:
            record = record | {"side": None}
        whole.pipe_input(record)
        assert driver.read_output() == whole.read_output(), (n, record)
    total = {reason: driver.drops[reason] + (drops[reason] if restart < len(records) else 0) for reason in driver.drops}
    assert total == dict(whole.drops)
