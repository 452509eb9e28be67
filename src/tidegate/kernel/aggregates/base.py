"""The base of all built-in aggregates: state rows are lifted, merged and finished."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from tidegate.kernel.columns.arrays import Flags, Ints, array, as_type

_WIDER = "Cast the column to a wider type (double, or decimal(38, 0)) before tg.stream."


class Overflow(Exception):
    """A value that its type cannot hold; the caller knows key and window of the group. `remedy`: advice to the user."""

    def __init__(self, group_index: int, detail: str, remedy: str = _WIDER) -> None:
        super().__init__(group_index, detail, remedy)
        self.group_index = group_index
        self.detail = detail
        self.remedy = remedy

    def __str__(self) -> str:
        return self.detail


class Accumulator(ABC):
    """One aggregate as columns of state; every method works on whole columns.

    `merges` names the Arrow hash aggregate that merges each state column, or is None if only `merge_runs` can.
    A group of `merge_runs`, `scan_runs` and `scan_at` is a run of adjacent rows in the order of arrival, and `starts`
    has the first row of each, increasing from 0. These three (with the number of the run) and `finish` (with the number
    of the row) raise Overflow. A state column that is all null may come with the type null.
    """

    state_types: tuple[pa.DataType, ...]
    merges: tuple[str, ...] | None
    result_type: pa.DataType

    @abstractmethod
    def lift(self, values: pa.Array | None, n: int) -> list[pa.Array]:
        """Make one state row of each of the `n` records; `values` is None for count() alone."""

    @abstractmethod
    def merge_runs(self, state: list[pa.Array], starts: Ints) -> list[pa.Array]:
        """Merge each run to one row."""

    @abstractmethod
    def scan_runs(self, state: list[pa.Array], starts: Ints) -> list[pa.Array]:
        """Make row i the merge of its run's rows up to i."""

    def scan_at(self, state: list[pa.Array], starts: Ints, at: Ints) -> list[pa.Array]:
        """The rows `at` of `scan_runs`. The other rows may be more than a type can hold."""
        return [column.take(pa.array(at)) for column in self.scan_runs(state, starts)]

    def safe(self, state: list[pa.Array]) -> bool:
        """Tell whether `merges` over all these rows, in any grouping, cannot wrap."""
        return self.merges is not None

    @abstractmethod
    def finish(self, state: list[pa.Array]) -> pa.Array:
        """Return the result of each state row."""


def typed(column: pa.Array | pa.ChunkedArray | None, to: pa.DataType) -> pa.Array:
    """Return the column as one array of type `to`."""
    if column is None:
        raise TypeError("this aggregate needs the values of its column")
    column = array(column)
    if column.type == to:
        return column
    return pa.nulls(len(column), to) if pa.types.is_null(column.type) else as_type(column, to)


def run_lengths(starts: Ints, rows: int) -> Ints:
    """Return how many rows each run has."""
    return np.diff(starts, append=rows)


def run_of_row(starts: Ints, rows: int) -> Ints:
    """Return the number of the run that each row belongs to."""
    return np.repeat(np.arange(len(starts), dtype=np.int64), run_lengths(starts, rows))


def valid_rows(column: pa.Array) -> Flags:
    """Return which rows are not null."""
    if not column.null_count:
        return np.ones(len(column), np.bool_)
    flags: Flags = column.is_valid().to_numpy(zero_copy_only=False)
    return flags


def seen_so_far(column: pa.Array, starts: Ints) -> Flags:
    """Return for each row whether its run has a value that is not null up to this row."""
    valid = valid_rows(column)
    running = np.cumsum(valid)
    before: Ints = (running[starts] - valid[starts])[run_of_row(starts, len(column))]
    flags: Flags = running > before
    return flags


def arrow_merge(column: pa.Array, how: str, starts: Ints) -> pa.Array:
    """Merge runs with one of Arrow's hash aggregates, in the order of the rows."""
    table = pa.table({"run": pa.array(run_of_row(starts, len(column))), "x": column})
    merged = pa.TableGroupBy(table, "run", use_threads=False).aggregate([("x", how)])
    return typed(merged.column(f"x_{how}"), column.type)


class Unseen(Accumulator):
    """sum, mean, min or max of a column of type null: it has no value so far, so the result is null.

    Its null states merge later with typed ones: the hash aggregate `min` leaves the type null as it is.
    """

    def __init__(self, counts: int) -> None:
        # As many counts as any type that comes later needs (`sums.ChangingFloats`).
        self.state_types = (pa.null(), *[pa.int64()] * counts)
        self.merges = ("min", *["sum"] * counts)
        self.result_type = pa.null()

    def lift(self, values: pa.Array | None, n: int) -> list[pa.Array]:
        return self._nothing(n)

    def merge_runs(self, state: list[pa.Array], starts: Ints) -> list[pa.Array]:
        return self._nothing(len(starts))

    def scan_runs(self, state: list[pa.Array], starts: Ints) -> list[pa.Array]:
        return self._nothing(len(state[0]))

    def finish(self, state: list[pa.Array]) -> pa.Array:
        return pa.nulls(len(state[0]))

    def _nothing(self, rows: int) -> list[pa.Array]:
        counts: Sequence[pa.Array] = [pa.array(np.zeros(rows, np.int64))] * (len(self.state_types) - 1)
        return [pa.nulls(rows), *counts]
