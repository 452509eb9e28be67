"""count, sum and mean."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tidegate.kernel.aggregates.base import Accumulator, Overflow, typed, valid_rows
from tidegate.kernel.aggregates.totals import ExactTotal, FloatTotal, Total
from tidegate.kernel.columns.arrays import Ints

_DIGITS = 38
_ROUNDED = 16
"""Digits of a quotient that are rounded."""


class Count(Accumulator):
    """The number of records, or of values that are not null."""

    state_types = (pa.int64(),)
    merges = ("sum",)
    result_type = pa.int64()

    def lift(self, values: pa.Array | None, n: int) -> list[pa.Array]:
        if values is None:
            return [pa.array(np.ones(n, np.int64))]
        if pa.types.is_null(values.type):
            return [pa.array(np.zeros(n, np.int64))]
        return [_counts(values)]

    def merge_runs(self, state: list[pa.Array], starts: Ints) -> list[pa.Array]:
        return [ExactTotal(pa.int64()).merge(typed(state[0], pa.int64()), starts)]

    def scan_runs(self, state: list[pa.Array], starts: Ints) -> list[pa.Array]:
        return [ExactTotal(pa.int64()).scan(typed(state[0], pa.int64()), starts)]

    def finish(self, state: list[pa.Array]) -> pa.Array:
        return typed(state[0], pa.int64())


class Sum(Accumulator):
    """The sum of the values, null if there is none; the type is Spark's."""

    merges = ("sum",)

    def __init__(self, input_type: pa.DataType) -> None:
        self._total, self.result_type = _sum_total(input_type)
        self.state_types = (self._total.type,)

    def lift(self, values: pa.Array | None, n: int) -> list[pa.Array]:
        return [typed(values, self._total.type)]

    def merge_runs(self, state: list[pa.Array], starts: Ints) -> list[pa.Array]:
        return [self._total.merge(typed(state[0], self._total.type), starts)]

    def scan_runs(self, state: list[pa.Array], starts: Ints) -> list[pa.Array]:
        return [self._total.scan(typed(state[0], self._total.type), starts)]

    def scan_at(self, state: list[pa.Array], starts: Ints, at: Ints) -> list[pa.Array]:
        return [self._total.scan(typed(state[0], self._total.type), starts, at)]

    def safe(self, state: list[pa.Array]) -> bool:
        return self._total.safe(state[0])

    def finish(self, state: list[pa.Array]) -> pa.Array:
        return _fit(typed(state[0], self._total.type), self.result_type, "sum")


class Mean(Accumulator):
    """A sum and a count: a double, or for decimals a decimal with four more digits, rounded half up.

    Integers are summed exactly, so that cutting into batches cannot change their mean. Longs are summed as
    decimals: Spark sums doubles, so a total of longs would overflow where Spark's does not.
    """

    merges = ("sum", "sum")

    def __init__(self, input_type: pa.DataType) -> None:
        self._total = _mean_total(input_type)
        self.state_types = (self._total.type, pa.int64())
        self.result_type = pa.float64()
        if pa.types.is_decimal(input_type):
            self.result_type = _decimal(input_type.precision + 4, input_type.scale + 4)

    def lift(self, values: pa.Array | None, n: int) -> list[pa.Array]:
        totals = typed(values, self._total.type)
        return [totals, _counts(totals)]

    def merge_runs(self, state: list[pa.Array], starts: Ints) -> list[pa.Array]:
        merged = self._total.merge(typed(state[0], self._total.type), starts)
        return [merged, *Count().merge_runs(state[1:], starts)]

    def scan_runs(self, state: list[pa.Array], starts: Ints) -> list[pa.Array]:
        merged = self._total.scan(typed(state[0], self._total.type), starts)
        return [merged, *Count().scan_runs(state[1:], starts)]

    def scan_at(self, state: list[pa.Array], starts: Ints, at: Ints) -> list[pa.Array]:
        merged = self._total.scan(typed(state[0], self._total.type), starts, at)
        return [merged, *Count().scan_at(state[1:], starts, at)]

    def safe(self, state: list[pa.Array]) -> bool:
        return self._total.safe(state[0])

    def finish(self, state: list[pa.Array]) -> pa.Array:
        totals, counts = typed(state[0], self._total.type), typed(state[1], pa.int64())
        counts = pc.if_else(pc.greater(counts, 0), counts, pa.scalar(None, pa.int64()))
        if pa.types.is_decimal(self.result_type):
            return _fit(_divide(totals, counts, self.result_type.scale), self.result_type, "mean")
        return pc.divide(totals.cast(pa.float64(), safe=False), counts.cast(pa.float64(), safe=False))


class CountedSum(Mean):
    """A sum with the number of its values: null once all of them have been retracted."""

    def __init__(self, input_type: pa.DataType) -> None:
        super().__init__(input_type)
        self._total, self.result_type = _sum_total(input_type)
        self.state_types = (self._total.type, pa.int64())

    def finish(self, state: list[pa.Array]) -> pa.Array:
        totals, counts = typed(state[0], self._total.type), typed(state[1], pa.int64())
        kept = pc.if_else(pc.greater(counts, 0), totals, pa.scalar(None, totals.type))
        return _fit(kept, self.result_type, "sum")


class ChangingFloats(Accumulator):
    """A sum or mean of doubles that are retracted again: infinities and NaN are counted, not added.

    The state is the total of the finite values, and the number of values, positive infinities, negative infinities and
    NaN. In a single total a retracted infinity would leave NaN for ever.
    """

    state_types = (pa.float64(), pa.int64(), pa.int64(), pa.int64(), pa.int64())
    merges = ("sum",) * 5
    result_type = pa.float64()

    def __init__(self, mean: bool) -> None:
        self._mean = mean

    def lift(self, values: pa.Array | None, n: int) -> list[pa.Array]:
        column = typed(values, pa.float64())
        numbers = pc.fill_null(column, 0.0).to_numpy()
        finite = pa.array(np.where(np.isfinite(numbers), numbers, 0.0), mask=~valid_rows(column))
        special = (np.isposinf(numbers), np.isneginf(numbers), np.isnan(numbers))
        return [finite, _counts(column), *(pa.array(flags.astype(np.int64)) for flags in special)]

    def merge_runs(self, state: list[pa.Array], starts: Ints) -> list[pa.Array]:
        merged = [FloatTotal().merge(typed(state[0], pa.float64()), starts)]
        return merged + [column for count in state[1:] for column in Count().merge_runs([count], starts)]

    def scan_runs(self, state: list[pa.Array], starts: Ints) -> list[pa.Array]:
        scanned = [FloatTotal().scan(typed(state[0], pa.float64()), starts)]
        return scanned + [column for count in state[1:] for column in Count().scan_runs([count], starts)]

    def finish(self, state: list[pa.Array]) -> pa.Array:
        count, more, less, nan = (pc.fill_null(typed(c, pa.int64()), 0).to_numpy() for c in state[1:])
        totals = pc.fill_null(typed(state[0], pa.float64()), 0.0).to_numpy().copy()
        totals[more > 0] = np.inf
        totals[less > 0] = -np.inf
        totals[(nan > 0) | ((more > 0) & (less > 0))] = np.nan
        if self._mean:
            totals = totals / np.maximum(count, 1)
        return pa.array(totals, mask=count <= 0)


def _sum_total(input_type: pa.DataType) -> tuple[Total, pa.DataType]:
    if pa.types.is_decimal(input_type):
        result = _decimal(input_type.precision + 10, input_type.scale)
        return ExactTotal(pa.decimal128(_DIGITS, input_type.scale)), result
    if pa.types.is_integer(input_type):
        return ExactTotal(pa.int64()), pa.int64()
    return FloatTotal(), pa.float64()


def _mean_total(input_type: pa.DataType) -> Total:
    if pa.types.is_integer(input_type) and input_type.bit_width == 64:
        return ExactTotal(pa.decimal128(_DIGITS, 0))
    return _sum_total(input_type)[0]


def _decimal(precision: int, scale: int) -> pa.DataType:
    return pa.decimal128(min(precision, _DIGITS), min(scale, _DIGITS))


def _counts(values: pa.Array) -> pa.Array:
    return pa.array(valid_rows(values).astype(np.int64))


def _divide(totals: pa.Array, counts: pa.Array, scale: int) -> pa.Array:
    """Divide at a finer scale and round; the division truncates there, which cannot move a half.

    Arrow takes the scale of the sum + the digits of the count + 1. The count gets so many digits (at least 15) that the
    finer scale has sixteen more than the mean: Arrow rounds some numbers to a wrong one if 17 to 20 digits go.
    """
    digits = scale - totals.type.scale + _ROUNDED - 1
    fine = pc.divide(
        totals.cast(pa.decimal256(_DIGITS, totals.type.scale)),
        counts.cast(pa.decimal128(19, 0)).cast(pa.decimal256(digits, 0)),
    )
    return pc.round(fine, scale, "half_towards_infinity")


def _fit(column: pa.Array, kind: pa.DataType, what: str) -> pa.Array:
    """Cast to the type of the result; raises Overflow with the first row that it cannot hold."""
    try:
        return typed(column, kind)
    except pa.ArrowInvalid:
        for row, value in enumerate(column):
            try:
                value.cast(kind)
            except pa.ArrowInvalid:
                raise Overflow(row, f"the {what} {value.as_py():f} does not fit {kind}") from None
        raise
