"""Whole numbers that have a common step, such as the starts of windows."""

from __future__ import annotations

from math import gcd

import numpy as np

from tidegate.kernel.columns.arrays import Ints

_SAMPLE = 1_000
"""Numbers that show whether there may be a common step."""


def in_steps(numbers: Ints, low: int, high: int) -> tuple[Ints, int] | None:
    """(numbers, step): the distance of each number from the lowest one, in steps; None where no step is common.

    low, high  the lowest and the highest of the numbers, less than 2^63 apart
    """
    # Few numbers show whether there may be a step.
    step = gcd(high - low, int(np.gcd.reduce(numbers[:: len(numbers) // _SAMPLE + 1] - low)))
    if step <= 1:
        return None
    numbers = numbers - low
    parts = numbers // step
    return (parts, step) if np.array_equal(parts * step, numbers) else None
