"""Sorting numbers by 16 bits at a time: numpy counts such digits where it would compare whole numbers."""

from __future__ import annotations

import numpy as np

from tidegate.kernel.panes import Ints

_DIGIT = 16
_LONGEST = 3 * _DIGIT
"""Beyond so many bits comparing is as fast."""
_FEW = 4_096


def argsort(numbers: Ints) -> Ints:
    """The places that put numbers, none of them negative, in order; equal ones stay as they came."""
    bits = int(numbers.max(initial=0)).bit_length()
    if bits > _LONGEST or len(numbers) < _FEW:
        return np.argsort(numbers, kind="stable")
    order = np.argsort(numbers.astype(np.uint16), kind="stable")
    for shift in range(_DIGIT, bits, _DIGIT):
        digits = (numbers >> shift).astype(np.uint16)
        order = order.take(np.argsort(digits.take(order), kind="stable"))
    return order
