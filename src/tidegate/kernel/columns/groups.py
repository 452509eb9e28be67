"""Rows in groups by number, and one value per group: numpy where it can, Arrow's hash aggregates for the rest.

With group numbers at hand, `ufunc.at` costs a pass over the rows; a hash aggregate would also build a hash table.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tidegate.kernel.columns import radix_sort
from tidegate.kernel.columns.arrays import Ints, ints
from tidegate.kernel.columns.factorize import dense, fits_table
from tidegate.kernel.columns.runs import first_of_run, last_of_run

_FOLDS = {"sum": np.add, "min": np.minimum, "max": np.maximum}


@dataclass(frozen=True)
class Groups:
    """`number`: the group of each row, from 0; `of` counts groups by their first rows. `first`: these rows."""

    number: Ints
    first: Ints

    @classmethod
    def of(cls, codes: Ints) -> Groups:
        """Groups of rows with the same code; codes are not negative."""
        rows = len(codes)
        room = int(codes.max(initial=0)) + 1
        if not fits_table(room, rows):
            codes, room = dense(codes)
        at = np.full(room, -1, np.int32)  # half as much of the cache
        # numpy keeps the last of several values for a place. Rows are written from the end on: the first of each code.
        at[codes[::-1]] = np.arange(rows - 1, -1, -1, dtype=np.int32)
        is_first = np.zeros(rows, np.bool_)
        is_first[at[at >= 0]] = True
        first = np.flatnonzero(is_first)
        rank = np.empty(room, np.int64)
        rank[codes[first]] = np.arange(len(first))
        return cls(rank[codes], first)

    def ordered(self, order: Ints) -> Groups:
        """The same groups in this order, a permutation of their numbers."""
        place = np.empty_like(order)
        place[order] = np.arange(len(order))
        return Groups(place.take(self.number), self.first.take(order))

    @cached_property
    def sizes(self) -> Ints:
        """Number of rows in each group."""
        return np.bincount(self.number, minlength=len(self.first))

    def fold(self, column: pa.Array, how: str) -> pa.Array:
        """The "sum", "min" or "max" of each group, nulls aside; null for a group without a value."""
        if (pa.types.is_integer(column.type) and column.type.bit_width == 64) or pa.types.is_float64(column.type):
            return self._by_numpy(column, how)
        table = pa.table({"g": self.number, "x": column}).group_by("g", use_threads=False).aggregate([("x", how)])
        number, folded = ints(table["g"]), table[f"x_{how}"]
        # Arrow has the groups in the order of their first rows.
        return folded if (number[1:] > number[:-1]).all() else folded.take(pa.array(radix_sort.argsort(number)))

    def runs(self) -> tuple[Ints, Ints]:
        """The rows sorted by group, each group in row order, and the place where each group begins."""
        return np.argsort(self.number, kind="stable"), np.cumsum(self.sizes) - self.sizes

    def _by_numpy(self, column: pa.Array, how: str) -> pa.Array:
        filler = _filler(column.type, how)
        valid = column.is_valid().to_numpy(zero_copy_only=False) if column.null_count else None
        values = (pc.fill_null(column, filler) if valid is not None else column).to_numpy()
        if how == "sum" and column.type == pa.int64() and _are_ones(values):
            return pa.array(self.sizes)  # records are counted: a pass less
        folded = np.full(len(self.first), filler.as_py(), values.dtype)
        with np.errstate(invalid="ignore", over="ignore"):  # a sum of inf and -inf is NaN
            _FOLDS[how].at(folded, self.number, values)
        if valid is None:
            return pa.array(folded)
        nothing = np.bincount(self.number[valid], minlength=len(self.first)) == 0
        return pa.array(folded, mask=nothing)


def _are_ones(values: Any) -> bool:
    return len(values) > 0 and values[0] == 1 and bool((values == 1).all())


def _filler(kind: pa.DataType, how: str) -> pa.Scalar:
    """The neutral value of a sum, minimum or maximum of this type."""
    if how == "sum":
        return pa.scalar(0, kind)
    if pa.types.is_floating(kind):
        return pa.scalar(np.inf if how == "min" else -np.inf, kind)
    limits = np.iinfo(kind.to_pandas_dtype())
    return pa.scalar(limits.max if how == "min" else limits.min, kind)


def previous_rows(codes: Ints) -> tuple[Ints, Any]:
    """For each row the previous row with the same code (0 if none), and whether there is one."""
    order = np.argsort(codes, kind="stable")
    same = ~first_of_run(codes[order])
    previous = np.zeros(len(codes), np.int64)
    previous[order[1:]] = order[:-1]
    has = np.zeros(len(codes), bool)
    has[order] = same
    return np.where(has, previous, 0), has


def place_in_group(codes: Ints) -> Ints:
    """For each row, the number of earlier rows with the same code."""
    order = np.argsort(codes, kind="stable")
    place = np.arange(len(codes))
    begins = first_of_run(codes[order])
    found = np.empty(len(codes), np.int64)
    found[order] = place - np.maximum.accumulate(np.where(begins, place, 0))
    return found


def last_rows(codes: Ints) -> Ints:
    """The last row of each code, in the order of the rows."""
    order = np.argsort(codes, kind="stable")
    return np.sort(order[last_of_run(codes[order])])


def neighbours(sizes: Ints, most: int) -> Iterator[tuple[int, int]]:
    """Ranges (first, behind the last) of neighbours that have at most `most` records together, given those of each.

    A neighbour with more records is never split: it is the last one with records in its range.
    """
    ends, low, before = np.cumsum(sizes), 0, 0
    while low < len(sizes):
        high = int(ends.searchsorted(before + most, side="right"))
        if high == low or ends[high - 1] == before:
            high = min(high + 1, len(sizes))
        yield low, high
        low, before = high, int(ends[high - 1])
