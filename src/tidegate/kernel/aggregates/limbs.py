"""Exact sums of int64 and decimal128 in 32-bit limbs, whose int64 totals cannot wrap within 2^31 rows."""

from __future__ import annotations

from decimal import Context

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tidegate.kernel.aggregates.base import Overflow, run_of_row, valid_rows
from tidegate.kernel.columns.arrays import Flags, Ints

_LOW = np.int64(0xFFFF_FFFF)
_WIDE = Context(prec=80)


def magnitude(column: pa.Array) -> int:
    """Return the largest absolute value, as the integer that is stored."""
    ends = pc.min_max(column).as_py()
    if ends["min"] is None:
        return 0
    shift = column.type.scale if pa.types.is_decimal(column.type) else 0
    return max(abs(int(_WIDE.scaleb(_WIDE.create_decimal(end), shift))) for end in ends.values())


def bound(kind: pa.DataType) -> int:
    """Return the integer that no stored magnitude may reach."""
    return int(10**kind.precision) if pa.types.is_decimal(kind) else 2**63


def run_totals(column: pa.Array, starts: Ints) -> Ints:
    """Return the limbs of each run's sum."""
    return np.add.reduceat(_split(column), starts, axis=1)


def running_totals(column: pa.Array, starts: Ints) -> Ints:
    """Return the limbs of the sum of each run up to each row."""
    limbs = _split(column)
    running = np.cumsum(limbs, axis=1)
    running -= (running[:, starts] - limbs[:, starts])[:, run_of_row(starts, len(column))]
    return running


def join(limbs: Ints, kind: pa.DataType, valid: Flags, groups: Ints) -> pa.Array:
    """Put limbs together; raises Overflow with the group of the first column that `kind` cannot hold."""
    for lower in range(len(limbs) - 1):
        limbs[lower + 1] += limbs[lower] >> 32
        limbs[lower] &= _LOW
    _check((limbs[-1] < -(2**31)) | (limbs[-1] >= 2**31), limbs, kind, groups)
    words = np.ascontiguousarray((limbs & _LOW).astype(np.uint32).T)
    mask = None if valid.all() else pa.array(valid).buffers()[1]
    joined = pa.Array.from_buffers(kind, limbs.shape[1], [mask, pa.py_buffer(words)])
    if pa.types.is_decimal(kind):
        # The 128 bits hold a little more than 38 digits.
        most = pa.scalar(_WIDE.create_decimal(bound(kind) - 1).scaleb(-kind.scale, _WIDE), kind)
        beyond = pc.greater(pc.abs(joined), most).fill_null(False)
        _check(beyond.to_numpy(zero_copy_only=False), limbs, kind, groups)
    return joined


def _split(column: pa.Array) -> Ints:
    """Return the limbs as rows, lowest first; only the last one is signed. A null is 0."""
    width = column.type.bit_width // 32
    if not len(column):
        return np.zeros((width, 0), np.int64)
    raw = np.frombuffer(column.buffers()[1], np.uint32, (column.offset + len(column)) * width)
    raw = raw.reshape(-1, width)[column.offset :]
    limbs = raw.T.astype(np.int64, order="C")
    limbs[-1] = raw[:, -1].view(np.int32)
    if column.null_count:
        limbs[:, ~valid_rows(column)] = 0
    return limbs


def _check(beyond: Flags, limbs: Ints, kind: pa.DataType, groups: Ints) -> None:
    if not beyond.any():
        return
    at = int(np.argmax(beyond))
    total = sum(int(limb) << 32 * place for place, limb in enumerate(limbs[:, at]))
    scale = kind.scale if pa.types.is_decimal(kind) else 0
    shown = _WIDE.scaleb(_WIDE.create_decimal(total), -scale)
    raise Overflow(int(groups[at]), f"the sum {shown:f} does not fit {kind}")
