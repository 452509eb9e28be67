"""Whole numbers that have a common step, such as the starts of windows."""

from __future__ import annotations

from math import gcd

import numpy as np

from tidegate.kernel.columns.arrays import Ints

_SAMPLE = 1_000
"""Numbers that show whether there may be a common step."""


def in_steps(numbers: Ints, low: int, high: int) -> tuple[Ints, int]:
    """(numbers, step): the distance of each number from the lowest one, in steps; the step is 1 where none is common.

    low, high  the lowest and the highest of the numbers, less than 2^63 apart
    """
    numbers = numbers - low
    # Few numbers show whether there may be a step.
    some = numbers[:: len(numbers) // _SAMPLE + 1]
    step = gcd(high - low, int(np.gcd.reduce(some)))
    if step > 1 and np.array_equal((parts := numbers // step) * step, numbers):
        return parts, step
    return numbers, 1
