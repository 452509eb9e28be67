"""stream_time="min_partition": the slowest partition decides, however partitions are spread over tasks."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from oracle import Row
from oracle_slowest import SlowOracle
from properties import cases
from properties.cases import Case
from properties.comparing import assert_same, assert_same_drops, flat, placed, run_driver
from tidegate.testing import TopologyTestDriver, layout

# Batch windows are refused with it.
KINDS = st.sampled_from(["time", "session", "unlimited"])
SLOW = KINDS.flatmap(lambda kind: cases.cases(ordered=True, kind=kind)).map(
    lambda case: replace(case, clock={"stream_time": "min_partition"})
)


def run_oracle(case: Case, batches: list[list[Row]]) -> tuple[list[list[Row]], dict[str, int]]:
    oracle = SlowOracle(case.topology)
    return [oracle.batch(batch) for batch in batches], dict(oracle.drops)


@given(case=SLOW, batches=cases.partitioned())
def test_the_driver_is_what_the_oracle_says(case: Case, batches: list[list[Row]]) -> None:
    wanted, drops = run_oracle(case, batches)
    rows, dropped = run_driver(TopologyTestDriver(case.table()), batches)
    for got, expected in zip(rows, wanted, strict=True):
        assert_same(case, batches, placed(case.topology, got), placed(case.topology, expected))
    assert_same_drops(case, batches, dropped, drops)


@given(case=SLOW, batches=cases.partitioned(), tasks=st.integers(1, 4), interleaved=st.booleans(), data=st.data())
def test_however_rows_are_laid_out(
    case: Case, batches: list[list[Row]], tasks: int, interleaved: bool, data: Any
) -> None:
    wanted, drops = run_oracle(case, batches)
    splits = data.draw(cases.splits(batches, interleaved=interleaved))
    rows, dropped = layout.run(case.table(), batches, tasks=tasks, splits=splits)
    assert_same(case, splits, placed(case.topology, rows), placed(case.topology, flat(wanted)))
    assert_same_drops(case, splits, dropped, drops)


@given(case=SLOW, batches=cases.partitioned(max_partitions=1), data=st.data())
def test_with_one_partition_it_is_the_plain_rule(case: Case, batches: list[list[Row]], data: Any) -> None:
    plain, plain_drops = run_driver(TopologyTestDriver(replace(case, clock={}).table()), batches)
    slow, slow_drops = run_driver(TopologyTestDriver(case.table()), batches)
    assert_same(case, batches, flat(slow), flat(plain))
    assert slow_drops == plain_drops


@given(case=SLOW, batches=cases.partitioned())
def test_it_drops_no_more_than_the_plain_rule(case: Case, batches: list[list[Row]]) -> None:
    _, plain = run_driver(TopologyTestDriver(replace(case, clock={}).table()), batches)
    _, slow = run_driver(TopologyTestDriver(case.table()), batches)
    assert slow["late"] <= plain["late"]
