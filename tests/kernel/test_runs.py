"""Rows in runs, put together by number, against a loop over the rows."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate.kernel.columns import runs

NUMBERS = st.lists(st.integers(-2, 3), max_size=40)


@pytest.mark.parametrize("fewest_rows", [1, 2, 1_024])
@given(numbers=NUMBERS)
def test_rows_of_a_number_keep_their_order(fewest_rows: int, numbers: list[int]) -> None:
    expected: dict[int, list[int]] = {}
    for row, number in enumerate(numbers):
        expected.setdefault(number, []).append(row)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(runs, "_FEWEST_ROWS", fewest_rows)
        found = runs.by_number(
            pa.table({"row": pa.array(range(len(numbers)), pa.int64())}), np.array(numbers, np.int64)
        )
    assert {number: rows["row"].to_pylist() for number, rows in found.items()} == expected


@given(numbers=NUMBERS)
def test_a_run_begins_where_the_number_changes(numbers: list[int]) -> None:
    begins = [at for at, number in enumerate(numbers) if at == 0 or numbers[at - 1] != number]
    assert runs.run_starts(np.array(numbers, np.int64)).tolist() == begins


@given(st.lists(st.one_of(st.integers(0, 300), st.integers(0, 2**62)), max_size=200), st.integers(1, 5))
def test_coarser_numbers_are_few_and_no_coarser_than_they_must_be(numbers: list[int], most: int) -> None:
    found = runs.coarser(np.array(numbers, np.int64), most).tolist()
    allowed = max(most, len(numbers) // 64)
    steps = (2**power for power in range(64))
    step = next(one for one in steps if len({number // one for number in numbers}) <= allowed)
    assert found == [number // step * step for number in numbers]
