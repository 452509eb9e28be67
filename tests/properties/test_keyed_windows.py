"""Sliding, session and batch windows: the same results for any cutting, with a restart between any two batches.

The record-by-record run is the reference; the scenarios show that it gives Kafka's rows.
"""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import tidegate as tg
from tidegate.testing import TopologyTestDriver

WINDOWS = {
    "sessions": tg.SessionWindows.of_inactivity_gap_and_grace("5 ms", "3 ms"),
    "sessions without grace": tg.SessionWindows.of_inactivity_gap_with_no_grace("4 ms"),
    "sliding": tg.SlidingWindows.of_time_difference_and_grace("5 ms", "4 ms"),
    "sliding without grace": tg.SlidingWindows.of_time_difference_with_no_grace("6 ms"),
    "batch": tg.BatchWindows.of_size("7 ms"),
    "hopping": tg.TimeWindows.of_size_and_grace("6 ms", "3 ms").advance_by("4 ms"),
}

RECORDS = st.lists(
    st.fixed_dictionaries(
        {"key": st.sampled_from("ab"), "ts": st.integers(0, 60), "x": st.one_of(st.none(), st.integers(0, 9))}
    ),
    max_size=25,
)
CLOSING = {"key": "z", "ts": 1_000, "x": 1}


def built_in(windowed: Any) -> Any:
    return windowed.agg(n=tg.count(), total=tg.sum("x"), xs=tg.collect_list("x"), top=tg.max("x"), one=tg.first("x"))


def history(windowed: Any) -> Any:
    def add(key: str, row: dict[str, Any], told: str) -> str:
        return f"{told}+{row['x']}"

    return windowed.aggregate(lambda: "0", add, type="string", merger=lambda key, a, b: f"{a}|{b}")


def history_in_place(windowed: Any) -> Any:
    """Lists that the functions change, and records that they empty."""

    def add(key: str, row: dict[str, Any], seen: list[Any]) -> list[Any]:
        seen.append(row.pop("x"))
        row["x"] = "changed"
        return seen

    def merge(key: str, a: list[Any], b: list[Any]) -> list[Any]:
        a += [None, *b]
        b.clear()
        return a

    return windowed.aggregate(list, add, type="array<long>", merger=merge)


def final(windows: Any, aggregate: Any) -> Any:
    grouped = tg.stream("events", key="key", timestamp="ts").group_by_key()
    return aggregate(grouped.windowed_by(windows)).suppress(
        tg.Suppressed.until_window_closes(tg.BufferConfig.unbounded())
    )


@pytest.mark.parametrize("aggregate", [built_in, history, history_in_place])
@pytest.mark.parametrize("kind", WINDOWS)
@given(records=RECORDS, data=st.data())
def test_final_results_do_not_depend_on_cuts_and_restarts(
    kind: str, aggregate: Any, records: list[Any], data: st.DataObject
) -> None:
    table = final(WINDOWS[kind], aggregate)
    records = [*records, CLOSING]
    single = TopologyTestDriver(table)
    for record in records:
        single.pipe_input(record)
    expected = single.read_output()

    rows, late = [], 0
    driver = TopologyTestDriver(table)
    rest = records
    while rest:
        size = data.draw(st.integers(1, 8), label="batch")
        driver.pipe_batch(rest[:size])
        rest = rest[size:]
        if data.draw(st.booleans(), label="restart"):
            rows, late = rows + driver.read_output(), late + driver.dropped
            driver = TopologyTestDriver(table, state=driver.state())
    assert rows + driver.read_output() == expected
    assert late + driver.dropped == single.dropped


@pytest.mark.parametrize("kind", ["sessions", "sessions without grace", "sliding", "sliding without grace"])
@given(records=RECORDS)
def test_updates_end_where_final_results_are(kind: str, records: list[Any]) -> None:
    """The last update of every window is its final result; a tombstone says that there is none."""
    grouped = tg.stream("events", key="key", timestamp="ts").group_by_key().windowed_by(WINDOWS[kind])
    updating, closing = TopologyTestDriver(built_in(grouped)), TopologyTestDriver(final(WINDOWS[kind], built_in))
    for record in [*records, CLOSING]:
        updating.pipe_input(record)
        closing.pipe_input(record)
    newest = {(row["key"], row["window"]): row for row in updating.read_output() if row["key"] != "z"}
    alive = {name: row for name, row in newest.items() if not row.pop("deleted", False)}
    assert alive == {(row["key"], row["window"]): row for row in closing.read_output()}
