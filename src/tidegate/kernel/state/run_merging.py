"""Sorted runs of open records become one, some records at a time: no run and no sum of runs is ever in memory whole.

A part has the records of a range of hashes, which every run has next to each other:

    run 1    h1 h1 h2 | h3 h4 | h6
    run 2    h2       | h4    | h6 h7
    parts    h1 to h2 | to h4 | the rest

Records of one hash stay together, however many they are.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tidegate.kernel.columns.arrays import Ints, concat_tables, ints
from tidegate.kernel.columns.row_bytes import Extents, extents
from tidegate.kernel.columns.sorting import by_two
from tidegate.kernel.state.copies import distinct, places, upper_halves


class Sorted(Protocol):
    """Records by hash and time.

    high     the upper halves of their hashes
    columns  what must be known of their columns
    """

    @property
    def high(self) -> npt.NDArray[np.int32]: ...
    @property
    def columns(self) -> Extents: ...
    def with_hashes(self, wanted: Ints) -> Ints:
        """Where records have a hash whose upper half is that of one of these, which ascend."""

    def take(self, at: Ints) -> pa.Table:
        """The records at these places, which ascend."""

    def part(self, low: int, high: int) -> pa.Table:
        """The records from one place up to another."""

    def blocks(self) -> Iterator[pa.Table]:
        """All records, some at a time."""


Between = tuple[int | None, int | None]
"""Upper halves of hashes: the first of them, and that behind the last; None where there is no bound."""


@dataclass(frozen=True)
class InTable:
    """Sorted records in a table."""

    rows: pa.Table

    @classmethod
    def of(cls, rows: pa.Table, by: Sequence[str]) -> InTable:
        """Rows in any order, which are sorted by these columns; of equal ones the first comes first."""
        return cls(in_order(rows, by))

    @property
    def high(self) -> npt.NDArray[np.int32]:
        return upper_halves(ints(self.rows["h"]))

    @property
    def columns(self) -> Extents:
        return extents(self.rows)

    def with_hashes(self, wanted: Ints) -> Ints:
        return places(self.high, distinct(upper_halves(wanted)))

    def take(self, at: Ints) -> pa.Table:
        return self.rows.take(pa.array(at))

    def part(self, low: int, high: int) -> pa.Table:
        return self.rows.slice(low, high - low)

    def blocks(self) -> Iterator[pa.Table]:
        yield self.rows


def merged_parts(
    runs: list[Sorted], together: int, by: Sequence[str], between: Between = (None, None)
) -> Iterator[pa.Table]:
    """The records of all runs sorted `by` these columns, the hash first, about so many `together`.

    Of equal ones those of an earlier run come first. A column that a run had not yet is null. `between`: those alone
    whose hashes have an upper half from the first up to, and not with, the second.
    """
    highs = [run.high for run in runs]
    first, end = between
    before = [0 if first is None else int(np.searchsorted(high, np.int32(first))) for high in highs]
    last = [len(high) if end is None else int(np.searchsorted(high, np.int32(end))) for high in highs]
    most, low, up_to = max(zip(highs, before, last, strict=True), key=lambda one: one[2] - one[1])
    total = sum(last) - sum(before)
    if not total:
        return
    step = max(1, together * (up_to - low) // total)
    # A hash that is the first of a part is that of no part before it.
    bounds = distinct(most[low:up_to][step::step])
    ends = [np.append(np.searchsorted(high, bounds), end) for high, end in zip(highs, last, strict=True)]
    for reached in zip(*(each.tolist() for each in ends), strict=True):
        if list(reached) == before:
            continue
        rows = concat_tables([run.part(low, high) for run, low, high in zip(runs, before, reached, strict=True)])
        yield rows if len(runs) == 1 else in_order(rows, by)
        before = list(reached)


def in_order(rows: pa.Table, by: Sequence[str]) -> pa.Table:
    """Rows sorted by one column of integers or two; equal ones stay as they are."""
    first, *rest = (ints(rows[name]) for name in by)
    order = np.argsort(first, kind="stable") if not rest else by_two(first, *rest)
    return rows.take(pa.array(order))
