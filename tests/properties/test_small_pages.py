"""An index of several levels, buckets that split at once, and windows that share tables: the results stay the same."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oracle import Row
from properties import cases
from properties.comparing import assert_same, assert_same_drops, flat, placed, run_driver, run_oracle
from tidegate.kernel.tuning import Tuning
from tidegate.testing import TopologyTestDriver

SMALL = Tuning(
    page_logs=2,
    fanout=2,
    root_entries=2,
    key_windows=(2, 3),
    most_tables=2,
    whole_rows=1,
    whole_times=1,
    range_rows=2,
    read_whole_rows=4,
    block_rows=2,
)
"""Sizes so small that few windows fill pages, buckets and tables, and few rows are stored by key."""


@pytest.mark.parametrize("kind", cases.KINDS)
@given(records=cases.streams(), data=st.data())
def test_final_results(kind: str, records: list[Row], data: Any) -> None:
    case = data.draw(cases.cases(final=True, kind=kind))
    batches = data.draw(cases.cut(records))
    wanted, drops = run_oracle(case.topology, [[record] for record in records])
    got, dropped = run_driver(TopologyTestDriver(case.table(), tuning=SMALL), batches)
    assert_same(case, batches, flat(got), flat(wanted))
    assert_same_drops(case, batches, dropped, drops)


@pytest.mark.parametrize("kind", cases.ALL_KINDS)
@given(records=cases.streams(), data=st.data())
def test_updates(kind: str, records: list[Row], data: Any) -> None:
    case = data.draw(cases.cases(final=False, kind=kind))
    batches = data.draw(cases.cut(records))
    wanted, drops = run_oracle(case.topology, batches)
    got, dropped = run_driver(TopologyTestDriver(case.table(), tuning=SMALL), batches)
    for rows, expected in zip(got, wanted, strict=True):
        assert_same(case, batches, placed(case.topology, rows), placed(case.topology, expected))
    assert_same_drops(case, batches, dropped, drops)
