"""Sorts numbers by digits of 16 bits, and rows by numbers: numpy counts such digits instead of comparing them."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from tidegate.kernel.columns.arrays import Ints, pieces

_DIGIT = 16
_LONGEST = 3 * _DIGIT
"""Beyond so many bits comparing is as fast."""
_FEW = 4_096
"""With fewer numbers comparing is as fast."""


def argsort(numbers: Ints) -> Ints:
    """The places that sort numbers; equal numbers keep their order."""
    bits = int(numbers.max(initial=0)).bit_length()
    if bits > _LONGEST or len(numbers) < _FEW or int(numbers.min(initial=0)) < 0:
        return np.argsort(numbers, kind="stable")
    order = np.argsort(numbers.astype(np.uint16), kind="stable")
    for shift in range(_DIGIT, bits, _DIGIT):
        digits = (numbers >> shift).astype(np.uint16)
        order = order.take(np.argsort(digits.take(order), kind="stable"))
    return order


def split(rows: pa.Table, numbers: Ints, count: int) -> list[pa.Table]:
    """One table of rows for each number from 0 to `count` - 1; its rows keep their order."""
    return pieces(rows.take(pa.array(argsort(numbers))), np.bincount(numbers, minlength=count))
