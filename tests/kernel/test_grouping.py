"""Rows get the same number if and only if they are equal in every column, and few values get small numbers."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate.kernel.rows.grouping import codes

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
