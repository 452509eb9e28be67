"""Sorting by digits gives what comparing gives."""

from __future__ import annotations

import numpy as np
import pytest

from tidegate.kernel.columns import radix_sort

ROWS = 10_000


@pytest.mark.parametrize("bits", [1, 15, 16, 17, 33, 48, 49, 62])
@pytest.mark.parametrize("rows", [0, 1, 100, ROWS])
def test_as_a_stable_sort(bits: int, rows: int) -> None:
    rng = np.random.default_rng(bits)
    numbers = rng.integers(0, 1 << bits, rows)
    numbers[rows // 2 :] = numbers[: rows - rows // 2]  # every number twice: equal ones stay as they came
    assert radix_sort.argsort(numbers).tolist() == np.argsort(numbers, kind="stable").tolist()


def test_a_digit_that_all_have() -> None:
    numbers = np.arange(ROWS)[::-1] + (1 << 40)
    assert radix_sort.argsort(numbers).tolist() == list(range(ROWS))[::-1]
