"""The kernel over several map tasks and several tasks: the layout changes no row and no drop."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oracle import Row
from properties import cases
from properties.cases import Case
from properties.comparing import assert_same, assert_same_drops, flat, placed, run_oracle
from tidegate.testing import layout


def check(case: Case, batches: list[list[Row]], splits: list[list[list[Row]]], tasks: int) -> None:
    wanted, drops = run_oracle(case.topology, batches)
    rows, dropped = layout.run(case.table(), batches, tasks=tasks, splits=splits)
    assert_same(case, splits, placed(case.topology, rows), placed(case.topology, flat(wanted)))
    if isinstance(dropped, Mapping):
        assert_same_drops(case, splits, dropped, drops)
    else:
        assert dropped == sum(drops.values())


@pytest.mark.parametrize("kind", cases.ALL_KINDS)
@given(batches=cases.partitioned(), tasks=st.integers(1, 4), data=st.data())
def test_partitions_read_in_contiguous_chunks(kind: str, batches: list[list[Row]], tasks: int, data: Any) -> None:
    """One partition read by several map tasks, one map task reading several partitions."""
    case = data.draw(cases.cases(ordered=True, kind=kind))
    check(case, batches, data.draw(cases.splits(batches, interleaved=False)), tasks)


@pytest.mark.parametrize("kind", cases.ALL_KINDS)
@given(batches=cases.partitioned(), tasks=st.integers(1, 4), data=st.data())
def test_rows_dealt_out_one_by_one(kind: str, batches: list[list[Row]], tasks: int, data: Any) -> None:
    """A source that shuffles rows between map tasks (a repartition before tidegate): offsets still say the order."""
    case = data.draw(cases.cases(ordered=True, kind=kind))
    check(case, batches, data.draw(cases.splits(batches, interleaved=True)), tasks)


@pytest.mark.parametrize("kind", cases.ALL_KINDS)
@given(batches=cases.partitioned(max_partitions=3), data=st.data())
def test_map_tasks_may_read_their_rows_in_any_order(kind: str, batches: list[list[Row]], data: Any) -> None:
    """The order of rows inside a map task does not matter either."""
    case = data.draw(cases.cases(ordered=True, kind=kind))
    dealt = data.draw(cases.splits(batches, interleaved=False))
    check(case, batches, [[data.draw(st.permutations(rows)) for rows in inputs] for inputs in dealt], 3)


@pytest.mark.parametrize("kind", cases.ALL_KINDS)
@given(batches=cases.partitioned(), data=st.data())
def test_the_number_of_tasks_changes_nothing(kind: str, batches: list[list[Row]], data: Any) -> None:
    case = data.draw(cases.cases(ordered=True, kind=kind))
    splits = data.draw(cases.splits(batches, interleaved=False))
    one, _ = layout.run(case.table(), batches, tasks=1, splits=splits)
    many, _ = layout.run(case.table(), batches, tasks=5, splits=splits)
    assert_same(case, splits, placed(case.topology, many), placed(case.topology, one))
