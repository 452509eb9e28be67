"""The kernel behind several map tasks and several tasks: how rows are laid out changes no row and no drop."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

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


@given(case=cases.cases(ordered=True), batches=cases.partitioned(), tasks=st.integers(1, 4), data=st.data())
def test_partitions_read_in_contiguous_chunks(case: Case, batches: list[list[Row]], tasks: int, data: Any) -> None:
    """One partition read by several map tasks, one map task reading several partitions."""
    check(case, batches, data.draw(cases.splits(batches, interleaved=False)), tasks)


@given(case=cases.cases(ordered=True), batches=cases.partitioned(), tasks=st.integers(1, 4), data=st.data())
def test_rows_dealt_out_one_by_one(case: Case, batches: list[list[Row]], tasks: int, data: Any) -> None:
    """A source that shuffles rows between map tasks (a repartition before tidegate): offsets still say the order."""
    check(case, batches, data.draw(cases.splits(batches, interleaved=True)), tasks)


@given(case=cases.cases(ordered=True), batches=cases.partitioned(max_partitions=3), data=st.data())
def test_map_tasks_may_read_their_rows_in_any_order(case: Case, batches: list[list[Row]], data: Any) -> None:
    """The order of rows inside a map task says nothing either."""
    dealt = data.draw(cases.splits(batches, interleaved=False))
    check(case, batches, [[data.draw(st.permutations(rows)) for rows in inputs] for inputs in dealt], 3)


@given(case=cases.cases(ordered=True), batches=cases.partitioned(), data=st.data())
def test_the_number_of_tasks_changes_nothing(case: Case, batches: list[list[Row]], data: Any) -> None:
    splits = data.draw(cases.splits(batches, interleaved=False))
    one, _ = layout.run(case.table(), batches, tasks=1, splits=splits)
    many, _ = layout.run(case.table(), batches, tasks=5, splits=splits)
    assert_same(case, splits, placed(case.topology, many), placed(case.topology, one))
