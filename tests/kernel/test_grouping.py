"""Rows get the same number if and only if they are equal in every column, and few values get small numbers."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tidegate.kernel.rows.grouping import codes

FAR = [-(2**63), -(2**62), 0, 1, 2**31, 2**62, 2**63 - 1]
STEPS = st.tuples(st.sampled_from([1, 7, 60_000, 2**40]), st.integers(-(2**40), 2**40))


def column(values: list[int], step: int, first: int) -> pa.ChunkedArray:
    return pa.chunked_array([pa.array([first + step * value for value in values], pa.int64())])


@given(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9)), max_size=60), STEPS, STEPS)
def test_rows_are_equal_if_their_codes_are(
    rows: list[tuple[int, int]], one: tuple[int, int], other: tuple[int, int]
) -> None:
    given_columns = [column([row[at] for row in rows], *how) for at, how in enumerate((one, other))]
    found = codes(given_columns)
    assert len(set(found.tolist())) == len(set(rows))
    assert len(set(zip(rows, found.tolist(), strict=True))) == len(set(rows))


@pytest.mark.parametrize("first", [0, 1_767_225_600_000])
def test_starts_of_windows_need_no_more_numbers_than_there_are_windows(first: int) -> None:
    windows = np.arange(1_000) % 4
    found = codes([column(windows.tolist(), 60_000, first)])
    assert found.tolist() == windows.tolist()


@given(st.lists(st.sampled_from(FAR) | st.none(), max_size=30), st.integers(1, 3))
@example([-(2**63), 0], 1)
@example([-(2**63), -(2**62), 0, 2**62], 1)
def test_numbers_that_lie_far_apart(values: list[int | None], columns: int) -> None:
    found = codes([pa.chunked_array([pa.array(values, pa.int64())])] * columns)
    assert len(set(zip(values, found.tolist(), strict=True))) == len(set(values)) == len(set(found.tolist()))
    assert found.min(initial=0) >= 0


@pytest.mark.parametrize("odd", [0, 700, 1_700, 2_999])
@pytest.mark.parametrize("number", [1, 59_999, 60_001, 10**12 + 1])
def test_one_number_beside_the_common_step(odd: int, number: int) -> None:
    """Only some rows are looked at for the step."""
    numbers = np.arange(3_000) % 4 * 60_000
    numbers[odd] = number
    found = codes([column(numbers.tolist(), 1, 0)])
    assert (
        len(set(zip(numbers.tolist(), found.tolist(), strict=True)))
        == len(np.unique(numbers))
        == len(set(found.tolist()))
    )


def test_numbers_stay_small_if_ids_are_few_and_large() -> None:
    """Ids of nine digits beside windows: numbers by the number of ids, so that a table by number fits in memory."""
    rng = np.random.default_rng(2)
    ids = rng.choice(10**9, 500)[rng.integers(0, 500, 3_000)]
    found = codes([column(ids.tolist(), 1, 0), column((np.arange(3_000) % 4).tolist(), 60_000, 0)])
    assert found.max() < 8 * len(ids) + 8
    assert found.min() >= 0
