"""The merge of sorted runs into one, part by part: no run and no sum of runs is ever in memory whole.

A part has the records of a range of hashes, which are adjacent in every run:

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
    """A run: records sorted by hash first.

    high     the upper halves of their hashes
    columns  types and sizes of their columns
    """

    @property
    def high(self) -> npt.NDArray[np.int32]: ...
    @property
    def columns(self) -> Extents: ...
    def with_hashes(self, wanted: Ints) -> Ints:
        """Places of records whose hash has the same upper half as one of these ascending hashes."""

    def take(self, at: Ints) -> pa.Table:
        """The records at these ascending places."""

    def part(self, low: int, high: int) -> pa.Table:
        """The records from place `low` up to `high`."""

    def blocks(self) -> Iterator[pa.Table]:
        """All records, in blocks."""


Between = tuple[int | None, int | None]
"""A range of upper halves of hashes: the first one, and the one behind the last; None for no bound."""


@dataclass(frozen=True)
class InTable:
    """Sorted records in a table."""

    rows: pa.Table

    @classmethod
    def of(cls, rows: pa.Table, by: Sequence[str]) -> InTable:
        """The run of rows in any order, sorted by these columns; equal rows keep their order."""
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
    """The records of all runs, sorted `by` these columns, the hash first, in parts of about `together` records.

    Equal records come in the order of the runs. A column that a run lacks is null. `between`: only records whose
    hashes have an upper half from the first bound up to, and not including, the second.
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
    # The first hash of a part is in no part before it.
    bounds = distinct(most[low:up_to][step::step])
    ends = [np.append(np.searchsorted(high, bounds), end) for high, end in zip(highs, last, strict=True)]
    for reached in zip(*(each.tolist() for each in ends), strict=True):
        if list(reached) == before:
            continue
        rows = concat_tables([run.part(low, high) for run, low, high in zip(runs, before, reached, strict=True)])
        yield rows if len(runs) == 1 else in_order(rows, by)
        before = list(reached)


def in_order(rows: pa.Table, by: Sequence[str]) -> pa.Table:
    """Rows sorted by one or two columns of integers; equal rows keep their order."""
    first, *rest = (ints(rows[name]) for name in by)
    order = np.argsort(first, kind="stable") if not rest else by_two(first, *rest)
    return rows.take(pa.array(order))
