"""Sums as one state column: integers and decimals exact, floats to rounding."""

from __future__ import annotations

from abc import ABC, abstractmethod

import numpy as np
import pyarrow as pa

from tidegate.kernel.aggregates import limbs
from tidegate.kernel.aggregates.base import arrow_merge, run_lengths, run_of_row, seen_so_far, typed, valid_rows
from tidegate.kernel.columns.arrays import Ints

_EVERY = slice(None)


class Total(ABC):
    """A sum in one column, null where there was no value."""

    def __init__(self, kind: pa.DataType) -> None:
        self.type = kind

    def safe(self, column: pa.Array) -> bool:
        """Tell whether no sum over any of these rows can wrap."""
        return True

    @abstractmethod
    def merge(self, column: pa.Array, starts: Ints) -> pa.Array:
        """Sum each run."""

    @abstractmethod
    def scan(self, column: pa.Array, starts: Ints, at: Ints | slice = _EVERY) -> pa.Array:
        """Sum each run up to each of the rows `at`."""


class ExactTotal(Total):
    """Sums of int64 or decimal128, checked before Arrow may wrap them."""

    def safe(self, column: pa.Array) -> bool:
        return limbs.magnitude(typed(column, self.type)) * len(column) < limbs.bound(self.type)

    def merge(self, column: pa.Array, starts: Ints) -> pa.Array:
        if not len(starts):
            return column
        if self.safe(column):
            return arrow_merge(column, "sum", starts)
        valid = np.add.reduceat(valid_rows(column).astype(np.int64), starts) > 0
        return limbs.join(limbs.run_totals(column, starts), self.type, valid, np.arange(len(starts)))

    def scan(self, column: pa.Array, starts: Ints, at: Ints | slice = _EVERY) -> pa.Array:
        groups = run_of_row(starts, len(column))
        running = limbs.running_totals(column, starts)
        return limbs.join(running[:, at], self.type, seen_so_far(column, starts)[at], groups[at])


class FloatTotal(Total):
    """Sums of doubles; NaN and the infinities as IEEE 754 has them."""

    def __init__(self) -> None:
        super().__init__(pa.float64())

    def merge(self, column: pa.Array, starts: Ints) -> pa.Array:
        return arrow_merge(column, "sum", starts)

    def scan(self, column: pa.Array, starts: Ints, at: Ints | slice = _EVERY) -> pa.Array:
        # In doubling steps: differences of one running sum over all runs would mix NaN of runs, and lose digits.
        totals = column.fill_null(-0.0).to_numpy()  # the one float that changes no sum
        position = np.arange(len(column)) - np.repeat(starts, run_lengths(starts, len(column)))
        step = 1
        with np.errstate(invalid="ignore", over="ignore"):
            while step <= position.max(initial=0):
                longer = totals.copy()
                np.add(totals[step:], totals[:-step], out=longer[step:], where=position[step:] >= step)
                totals, step = longer, 2 * step
        return pa.array(totals[at], mask=~seen_so_far(column, starts)[at])
