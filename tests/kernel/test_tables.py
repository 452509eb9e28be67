"""The tables that operators declare own parts of the store that do not meet, and nothing lies outside of them."""

from __future__ import annotations

from itertools import combinations

import pytest

from golden.families import BEFORE, families, piped
from tidegate.kernel.choice import OPERATORS
from tidegate.kernel.operator import Operator
from tidegate.kernel.state.tables import (
    OLD_VALUE_TABLES,
    RETENTION_TABLES,
    TIME_LIMIT_TABLES,
    TableSpec,
    buffered_old_values,
    time_limit_tables,
)
from tidegate.testing import TopologyTestDriver

LATER = [table for place in (1, 2, 3) for table in (*time_limit_tables(place), buffered_old_values(place))]
OTHERS = (*RETENTION_TABLES, *OLD_VALUE_TABLES, *TIME_LIMIT_TABLES, *LATER)
FARTHEST = 2**39
"""No partition has a larger number: of milliseconds that is the year 19391."""


def span(table: TableSpec) -> tuple[int, int]:
    """The first and the last place of a table in the store."""
    if table.partitioned_by == "always 0":
        return table.top, table.top
    return min(table.place(0), table.place(FARTHEST)), max(table.place(0), table.place(FARTHEST))


@pytest.mark.parametrize("operator", OPERATORS, ids=lambda operator: operator.__name__)
def test_tables_of_an_operator_do_not_meet(operator: type[Operator]) -> None:
    for one, other in combinations((*operator.tables, *OTHERS), 2):
        (low, high), (first, last) = span(one), span(other)
        assert high < first or last < low, f"{one.name} and {other.name}"


@pytest.mark.parametrize("family", families())
def test_everything_stored_lies_in_a_declared_table(family: str) -> None:
    driver = TopologyTestDriver(families()[family])
    piped(driver, BEFORE)
    spans = [span(table) for operator in OPERATORS for table in (*operator.tables, *OTHERS)]
    state = driver.state()
    places = {window for store in state.stores for window, _ in store.log}
    assert places
    assert [place for place in places if not any(low <= place <= high for low, high in spans)] == []
