"""first, last and collect_list: aggregates that depend on the order of arrival."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tidegate.kernel.aggregates.base import Accumulator, Overflow, run_lengths, run_of_row, typed, valid_rows
from tidegate.kernel.columns.arrays import Ints

_MOST = 2**31 - 1
_FEWER = (
    "Take fewer records in a batch (maxOffsetsPerTrigger, maxFilesPerTrigger). Without with_caching_disabled() a batch "
    "makes one list for each key and window, and not one for each record."
)


class First(Accumulator):
    """The value of the first record, null or not."""

    merges = None

    def __init__(self, input_type: pa.DataType) -> None:
        self.result_type = input_type
        self.state_types = (input_type,)

    def lift(self, values: pa.Array | None, n: int) -> list[pa.Array]:
        return [typed(values, self.result_type)]

    def merge_runs(self, state: list[pa.Array], starts: Ints) -> list[pa.Array]:
        return [typed(state[0], self.result_type).take(pa.array(starts, pa.int64()))]

    def scan_runs(self, state: list[pa.Array], starts: Ints) -> list[pa.Array]:
        rows = np.repeat(starts, run_lengths(starts, len(state[0])))
        return [typed(state[0], self.result_type).take(pa.array(rows, pa.int64()))]

    def finish(self, state: list[pa.Array]) -> pa.Array:
        return typed(state[0], self.result_type)


class Last(First):
    """The value of the last record, null or not."""

    def merge_runs(self, state: list[pa.Array], starts: Ints) -> list[pa.Array]:
        ends = starts + run_lengths(starts, len(state[0])) - 1
        return [typed(state[0], self.result_type).take(pa.array(ends, pa.int64()))]

    def scan_runs(self, state: list[pa.Array], starts: Ints) -> list[pa.Array]:
        return [typed(state[0], self.result_type)]


class CollectList(Accumulator):
    """The values that are not null, in the order of arrival.

    A state row is a list; null is an empty list, because the type null has no other value.
    """

    merges = None

    def __init__(self, input_type: pa.DataType) -> None:
        self._item = input_type
        self.result_type = pa.list_(input_type)
        self.state_types = (pa.null() if pa.types.is_null(input_type) else self.result_type,)

    def lift(self, values: pa.Array | None, n: int) -> list[pa.Array]:
        column = typed(values, self._item)
        return self._state(valid_rows(column).astype(np.int64), column.drop_null())

    def merge_runs(self, state: list[pa.Array], starts: Ints) -> list[pa.Array]:
        # Runs are adjacent: their lists are joined by leaving out the offsets in between.
        lengths, items = list_parts(typed(state[0], self.result_type))
        merged = np.add.reduceat(lengths, starts) if len(starts) else lengths
        return self._state(merged, items)

    def scan_runs(self, state: list[pa.Array], starts: Ints) -> list[pa.Array]:
        lengths, items = list_parts(typed(state[0], self.result_type))
        ends, runs = np.cumsum(lengths), run_of_row(starts, len(lengths))
        begins = (ends[starts] - lengths[starts])[runs]
        running = ends - begins
        _check_total(running, runs)
        shift = begins - (np.cumsum(running) - running)
        rows = np.arange(int(running.sum())) + np.repeat(shift, running)
        return self._state(running, items.take(pa.array(rows, pa.int64())))

    def finish(self, state: list[pa.Array]) -> pa.Array:
        return list_array(*list_parts(typed(state[0], self.result_type)))

    def _state(self, lengths: Ints, items: pa.Array) -> list[pa.Array]:
        if pa.types.is_null(self._item):
            return [pa.nulls(len(lengths))]
        return [list_array(lengths, items)]


def list_parts(column: pa.ListArray) -> tuple[Ints, pa.Array]:
    """Return the length of each list, 0 where null, and their items in one array."""
    lengths = pc.list_value_length(column).fill_null(0).to_numpy().astype(np.int64)
    return lengths, column.flatten()


def list_array(lengths: Ints, items: pa.Array, groups: Ints | None = None) -> pa.ListArray:
    """Cut an array into lists; raises Overflow for more items than the offsets of one array can count.

    groups  the group of each list; None if each list is a group of its own
    """
    _check_total(lengths, groups)
    offsets = np.concatenate([np.zeros(1, np.int64), np.cumsum(lengths)]).astype(np.int32)
    return pa.ListArray.from_arrays(pa.array(offsets), items)


def _check_total(lengths: Ints, groups: Ints | None) -> None:
    """Raise Overflow for the group of the first list that goes beyond 32-bit offsets."""
    beyond = np.cumsum(lengths) > _MOST
    if beyond.any():
        place = int(np.argmax(beyond))
        detail = f"lists of one batch hold more than {_MOST} values together"
        raise Overflow(place if groups is None else int(groups[place]), detail, _FEWER)
