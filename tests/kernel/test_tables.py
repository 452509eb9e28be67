"""The tables that operators declare own disjoint parts of the store, and each stored entry lies in one of them."""

from __future__ import annotations

import re
from itertools import combinations
from typing import Any

import pytest

import tidegate as tg
from golden.families import BEFORE, SCHEMA, SIZES, families, piped
from tidegate.kernel.choice import OPERATORS, operator_class
from tidegate.kernel.operator import Operator
from tidegate.kernel.state import frames
from tidegate.kernel.state.tables import (
    OLD_VALUE_TABLES,
    RETENTION_TABLES,
    TIME_LIMIT_TABLES,
    WINDOW_RUNS,
    TableSpec,
    buffered_old_values,
    time_limit_tables,
)
from tidegate.kernel.tuning import DEFAULT
from tidegate.testing import TopologyTestDriver

LATER = [table for place in (1, 2, 3) for table in (*time_limit_tables(place), buffered_old_values(place))]
OTHERS = (*RETENTION_TABLES, *OLD_VALUE_TABLES, *TIME_LIMIT_TABLES, *LATER)
FARTHEST = 2**49
"""No partition number that is a time is larger: in milliseconds it is the year 19809."""

HALVES = 2**32
"""No partition number that is the upper half of a hash is larger."""

LARGE_WINDOWS = 2**20
"""Windows that become large, each with a range of hashes of its own, in the life of a query."""


def grouped() -> tg.KGroupedStream:
    return tg.stream("events", key="k", timestamp="ts", schema=SCHEMA).group_by_key()


def span(table: TableSpec) -> tuple[int, int]:
    """The first and the last place of a table in the store."""
    if table.partitioned_by == "always 0":
        return table.top, table.top
    farthest = FARTHEST
    if "hash" in table.partitioned_by:
        farthest = HALVES * LARGE_WINDOWS if table is WINDOW_RUNS else HALVES
    return min(table.place(0), table.place(farthest)), max(table.place(0), table.place(farthest))


@pytest.mark.parametrize("operator", OPERATORS, ids=lambda operator: operator.__name__)
def test_tables_of_an_operator_do_not_meet(operator: type[Operator]) -> None:
    for one, other in combinations((*operator.tables, *OTHERS), 2):
        (low, high), (first, last) = span(one), span(other)
        assert high < first or last < low, f"{one.name} and {other.name}"


@pytest.mark.parametrize("family", families())
def test_everything_stored_lies_in_a_declared_table(family: str) -> None:
    driver = TopologyTestDriver(families()[family], tuning=SIZES.get(family, DEFAULT))
    piped(driver, BEFORE)
    spans = [span(table) for operator in OPERATORS for table in (*operator.tables, *OTHERS)]
    state = driver.state()
    places = {window for store in state.stores for window, _ in store.log}
    assert places
    assert [place for place in places if not any(low <= place <= high for low, high in spans)] == []


BOUNDED = {
    f"{name}, by {counted}": windowed.agg(n=tg.count(), z=tg.last("v")).suppress(
        tg.Suppressed.until_window_closes(bound.shut_down_when_full())
    )
    for name, windowed in {
        "sliding": grouped().windowed_by(tg.SlidingWindows.of_time_difference_and_grace("6 ms", "5 ms")),
        "sessions": grouped().windowed_by(tg.SessionWindows.of_inactivity_gap_and_grace("4 ms", "5 ms")),
        "hopping": grouped().windowed_by(tg.TimeWindows.of_size_and_grace("10 ms", "5 ms").advance_by("5 ms")),
    }.items()
    for counted, bound in (("records", tg.BufferConfig.max_records(90)), ("bytes", tg.BufferConfig.max_bytes(90_000)))
}
"""Plans without a golden state: their entries have columns that no other plan has."""


def declares(table: TableSpec, column: str) -> bool:
    """Whether a table declares this column; `k:...` stands for all keys, `s:i:j` for all states."""
    names = [declared.partition(" ")[0] for declared in table.columns]
    state = "s:i:j" in names and re.fullmatch(r"s:\d+:\d+", column) is not None
    return state or any(column == name or (name.endswith("...") and column.startswith(name[:-3])) for name in names)


@pytest.mark.parametrize("plan", [*families().values(), *BOUNDED.values()], ids=[*families(), *BOUNDED])
def test_every_stored_column_is_declared(plan: Any) -> None:
    driver = TopologyTestDriver(plan)
    piped(driver, BEFORE)
    seen = 0
    for node, store in zip(driver._nodes, driver._stores, strict=True):
        for table in operator_class(node.op).tables:
            low, high = span(table)
            for (place, segment), frame in store.log.items():
                # Segments below 0 are pages of an index.
                if low <= place <= high and segment >= 0:
                    (rows,) = frames.decode(frames.SEGMENT, frame)[1]
                    seen += 1
                    assert [name for name in rows.column_names if not declares(table, name)] == []
    assert seen
