"""approx_count_distinct: HyperLogLog with 512 registers, kept sparse."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tidegate.kernel.aggregates.base import Accumulator, run_of_row, typed
from tidegate.kernel.aggregates.ordered import list_array, list_parts
from tidegate.kernel.columns.arrays import Ints
from tidegate.kernel.columns.hash64 import hash64
from tidegate.kernel.columns.runs import last_of_run

Floats = npt.NDArray[np.float64]

_INDEX_BITS = 9
_RANK_BITS = 6
_REGISTERS = 1 << _INDEX_BITS
_RANK_MASK = (1 << _RANK_BITS) - 1
_CODE_BITS = _INDEX_BITS + _RANK_BITS
_Q = 64 - _INDEX_BITS
_BLOCK = 1023  # rows of a scan per pass: run and rank of a register then share 16 bits


class ApproxCountDistinct(Accumulator):
    """The number of distinct values, nulls aside, to 1.04 / sqrt(512) = 4.6 % (relative standard deviation).

    A state row is the list of registers that are not 0, each as `index << 6 | rank`, by index. Merging takes
    the maximum per register, so neither order nor cutting can change the outcome. The estimate is the improved
    raw estimator of O. Ertl, "New cardinality estimation algorithms for HyperLogLog sketches" (arXiv:1702.01284,
    2017), algorithm 6: no bias tables and no switch to linear counting.
    """

    merges = None
    state_types = (pa.list_(pa.uint16()),)
    result_type = pa.int64()

    def __init__(self, input_type: pa.DataType) -> None:
        self._input = input_type

    def lift(self, values: pa.Array | None, n: int) -> list[pa.Array]:
        column = typed(values, self._input)
        present = column.is_valid().to_numpy(zero_copy_only=False).astype(np.int64)
        return [list_array(present, pa.array(_codes(column.drop_null())))]

    def merge_runs(self, state: list[pa.Array], starts: Ints) -> list[pa.Array]:
        lengths, codes = _parts(state)
        rows = np.repeat(run_of_row(starts, len(lengths)), lengths)
        keys = np.sort(rows << _CODE_BITS | codes)
        registers = keys >> _RANK_BITS
        keys = keys[last_of_run(registers)]  # of equal registers the highest
        merged = np.bincount(keys >> _CODE_BITS, minlength=len(starts))
        return [list_array(merged, pa.array((keys & ((1 << _CODE_BITS) - 1)).astype(np.uint16)))]

    def scan_runs(self, state: list[pa.Array], starts: Ints) -> list[pa.Array]:
        lengths, codes = _parts(state)
        runs, ends = run_of_row(starts, len(lengths)), np.cumsum(lengths)
        carried, last_run = np.zeros(_REGISTERS, np.uint16), -1
        counts, found = [np.empty(0, np.int64)], [np.empty(0, np.uint16)]
        for low in range(0, len(lengths), _BLOCK):
            block = slice(low, low + _BLOCK)
            own = codes[ends[low] - lengths[low] : ends[block][-1]]
            dense = _dense(own, lengths[block])
            if runs[low] == last_run:
                np.maximum(dense[0], carried, out=dense[0])
            # One running maximum does for all runs if each begins above the one before.
            floor = ((runs[block] - runs[low]) << _RANK_BITS).astype(np.uint16)[:, None]
            dense = np.maximum.accumulate(dense + floor, axis=0) - floor
            carried, last_run = dense[-1], int(runs[block][-1])
            rows, registers = np.nonzero(dense)
            counts.append(np.bincount(rows, minlength=len(dense)))
            found.append((registers << _RANK_BITS | dense[rows, registers]).astype(np.uint16))
        return [list_array(np.concatenate(counts), pa.array(np.concatenate(found)), runs)]

    def finish(self, state: list[pa.Array]) -> pa.Array:
        lengths, codes = _parts(state)
        ranks = codes & _RANK_MASK
        rows = np.repeat(np.arange(len(lengths)), lengths)
        weights = np.where(ranks <= _Q, np.ldexp(1.0, -ranks), 0.0)
        full = np.bincount(rows[ranks > _Q], minlength=len(lengths))
        total = np.bincount(rows, weights, minlength=len(lengths)).astype(np.float64)  # integers if there are none
        total += _REGISTERS * _tau(1 - full / _REGISTERS) * 2.0**-_Q
        total += _REGISTERS * _sigma((_REGISTERS - lengths) / _REGISTERS)
        estimate = _REGISTERS**2 / (2 * np.log(2) * total)
        return pa.array(np.rint(estimate).astype(np.int64))


def _parts(state: list[pa.Array]) -> tuple[Ints, Ints]:
    lengths, codes = list_parts(typed(state[0], ApproxCountDistinct.state_types[0]))
    return lengths, codes.to_numpy().astype(np.int64)


def _codes(values: pa.Array) -> npt.NDArray[np.uint16]:
    """Return register and rank of each value: the low bits choose the register, trailing zeros of the others rank."""
    hashes = hash64(values)
    rest = hashes >> np.uint64(_INDEX_BITS)
    lowest = (rest & (~rest + np.uint64(1))).astype(np.float64)  # a power of two: exact
    rank = np.where(rest == 0, _Q + 1, np.frexp(lowest)[1])
    index = (hashes & np.uint64(_REGISTERS - 1)).astype(np.int64)
    return (index << _RANK_BITS | rank).astype(np.uint16)


def _dense(codes: Ints, lengths: Ints) -> npt.NDArray[np.uint16]:
    dense = np.zeros((len(lengths), _REGISTERS), np.uint16)
    dense[np.repeat(np.arange(len(lengths)), lengths), codes >> _RANK_BITS] = codes & _RANK_MASK
    return dense


def _sigma(x: Floats) -> Floats:
    """Sum x + x^2 + 2 x^4 + 4 x^8 + ..., which is infinite at 1."""
    empty = x >= 1
    x = np.where(empty, 0.0, x)
    total, before, factor = x.copy(), np.full_like(x, -1.0), 1.0
    while (total != before).any():
        x, before = x * x, total
        total, factor = total + x * factor, 2 * factor
    return np.where(empty, np.inf, total)


def _tau(x: Floats) -> Floats:
    """Compute (1 - x - sum of 2^-k (1 - x^(2^-k))^2 over k = 1, 2, ...) / 3; 0 at both ends."""
    ends = (x <= 0) | (x >= 1)
    x = np.where(ends, 1.0, x)
    total, before, factor = 1 - x, np.full_like(x, -1.0), 1.0
    while (total != before).any():
        x, before, factor = np.sqrt(x), total, factor / 2
        total = total - (1 - x) ** 2 * factor
    return np.where(ends, 0.0, total / 3)
