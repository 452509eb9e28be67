"""min and max of values that have an order."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tidegate.kernel.aggregates.base import Accumulator, arrow_merge, run_of_row, typed, valid_rows
from tidegate.kernel.columns.arrays import Ints

_MAGNITUDE: dict[int, np.int32 | np.int64] = {4: np.int32(0x7FFF_FFFF), 8: np.int64(0x7FFF_FFFF_FFFF_FFFF)}


class Extreme(Accumulator):
    """The smallest or largest value, nulls aside; NaN is the largest float, strings compare by their bytes.

    The state of a float is an integer of the same order: Arrow's own min and max of floats skip NaN.
    """

    def __init__(self, which: str, input_type: pa.DataType) -> None:
        self._which = which
        self.merges = (which,)
        self.result_type = input_type
        self.state_types = (_state_type(input_type),)

    def lift(self, values: pa.Array | None, n: int) -> list[pa.Array]:
        column = typed(values, self.result_type)
        if pa.types.is_floating(column.type):
            return [_to_ordered(column)]
        return [column.view(self.state_types[0])]

    def merge_runs(self, state: list[pa.Array], starts: Ints) -> list[pa.Array]:
        return [arrow_merge(typed(state[0], self.state_types[0]), self._which, starts)]

    def scan_runs(self, state: list[pa.Array], starts: Ints) -> list[pa.Array]:
        column = typed(state[0], self.state_types[0])
        if not len(column):
            return [column]
        ranks, top = _ranks(column)
        of_rank = np.zeros(top + 2, np.int64)
        of_rank[ranks] = np.arange(len(column))
        merit = np.where(ranks > 0, top + 1 - ranks, 0) if self._which == "min" else ranks
        # One running maximum does for all runs if each begins above the one before.
        floor = run_of_row(starts, len(column)) * (top + 2)
        best = np.maximum.accumulate(floor + merit) - floor
        rows = of_rank[top + 1 - best if self._which == "min" else best]
        return [column.take(pa.array(rows, mask=best == 0))]

    def finish(self, state: list[pa.Array]) -> pa.Array:
        column = typed(state[0], self.state_types[0])
        if pa.types.is_floating(self.result_type):
            return _from_ordered(column)
        return column.view(self.result_type)


def ordered(kind: pa.DataType) -> bool:
    """Tell whether min and max can be taken of values of this type."""
    if pa.types.is_floating(kind):
        return bool(kind.bit_width >= 32)
    if kind in (pa.string_view(), pa.binary_view()) or pa.types.is_interval(kind):
        return False
    return bool(pa.types.is_primitive(kind) or pa.types.is_decimal(kind) or _is_bytes(kind))


def _is_bytes(kind: pa.DataType) -> bool:
    plain = kind in (pa.string(), pa.large_string(), pa.binary(), pa.large_binary())
    return bool(plain or pa.types.is_fixed_size_binary(kind))


def _state_type(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_duration(kind):
        return pa.int64()  # Arrow's hash aggregates do not take durations
    if pa.types.is_floating(kind):
        return pa.int64() if kind.bit_width == 64 else pa.int32()
    return kind


def _to_ordered(column: pa.Array) -> pa.Array:
    """Turn floats into integers of the same order: below zero, all bits but the sign are inverted."""
    values = np.array(column.fill_null(0.0).to_numpy())
    values[np.isnan(values)] = np.nan  # the positive one, above infinity
    bits: Ints = values.view(np.int64 if values.itemsize == 8 else np.int32)
    bits = np.where(bits < 0, bits ^ _MAGNITUDE[values.itemsize], bits)
    return pa.array(bits, mask=~valid_rows(column))


def _from_ordered(column: pa.Array) -> pa.Array:
    bits: Ints = column.fill_null(0).to_numpy()
    bits = np.where(bits < 0, bits ^ _MAGNITUDE[bits.itemsize], bits)
    return pa.array(bits.view(np.float64 if bits.itemsize == 8 else np.float32), mask=~valid_rows(column))


def _ranks(column: pa.Array) -> tuple[Ints, int]:
    """Return the rank of each value among the distinct ones, from 1 on (0 for null), and the highest."""
    if pa.types.is_boolean(column.type):
        column = column.cast(pa.int8())
    encoded = column.dictionary_encode()
    distinct = encoded.dictionary
    order = pc.sort_indices(distinct).to_numpy()
    rank_of_code = np.empty(len(distinct), np.int64)
    rank_of_code[order] = np.arange(1, len(distinct) + 1)
    codes = encoded.indices.fill_null(0).to_numpy()
    ranks = rank_of_code[codes] if len(distinct) else np.zeros(len(column), np.int64)
    return np.where(valid_rows(column), ranks, 0), len(distinct)
