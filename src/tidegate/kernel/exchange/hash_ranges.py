"""The records of a large blob, divided by ranges of hashes: a join of two streams takes one range after another.

The hash of a key, as a signed number, lies in one of RANGES ranges of one size. No two ranges share a key, so the pairs
of a range need no other range: memory holds the decoded records of one range at a time.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from tidegate.kernel.columns import radix_sort
from tidegate.kernel.columns.arrays import Ints
from tidegate.kernel.rows import grouping
from tidegate.kernel.rows.layout import Layout

_BITS = 3
RANGES = 1 << _BITS


def divides(layout: Layout, rows: int, tasks: int) -> bool:
    """Whether `rows` records of one side of a join go to `tasks` tasks in ranges.

    They do not if late records leave as rows. Rows of another operator are divided by the step alone, if at all.
    """
    op = layout.op
    in_one_order = layout.sorts or op.keeps_late or op.stream.forwarded
    return op.joins_streams and not in_one_order and rows >= layout.tuning.divided_rows * tasks


def number(hashes: Any) -> Ints:
    """The number of the range of each hash; they ascend as signed hashes do."""
    numbers: Ints = (hashes.view(np.int64) >> (64 - _BITS)) + RANGES // 2
    return numbers


def divided(layout: Layout, rows: pa.Table) -> list[pa.Table]:
    """The rows of each range, in their order."""
    if not rows.num_rows:
        return [rows] * RANGES
    return radix_sort.split(rows, number(grouping.key_hash(layout, rows)), RANGES)
