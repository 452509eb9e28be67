"""The rows of a join of two streams by its definition, key by key, for small inputs; shares no code with tidegate."""

from __future__ import annotations

from collections import Counter, defaultdict

import numpy as np

from benchmarks.inputs import key_names
from benchmarks.two_sides import SIDES, Shape, halves

Row = tuple[str, int | None, int | None, int]
"""Key, amount, price, and the later of the two timestamps in ms."""
Rows = Counter[Row]

_Records = dict[int, list[tuple[int, int]]]
"""Timestamps (ms) and values of the records of each key."""


def joined(shape: Shape, how: str) -> Rows:
    """The rows of a join that drops no record, once all are closed."""
    left, right = (_records(shape, side) for side in range(len(SIDES)))
    rows: Rows = Counter()
    for key in left.keys() | right.keys():
        (name,) = key_names(np.array([key]))
        mine, theirs = left.get(key, []), right.get(key, [])
        for ts, amount in mine:
            partners = [other for other in theirs if abs(other[0] - ts) <= shape.window_ms]
            rows.update((name, amount, price, max(ts, at)) for at, price in partners)
            if not partners and how != "inner":
                rows[name, amount, None, ts] += 1
        for ts, price in theirs if how == "outer" else ():
            if not any(abs(at - ts) <= shape.window_ms for at, _ in mine):
                rows[name, None, price, ts] += 1
    return rows


def _records(shape: Shape, side: int) -> _Records:
    found: _Records = defaultdict(list)
    for half in halves(shape, side):
        for key, ts, value in zip(half.key.tolist(), half.ts_ms.tolist(), half.value.tolist(), strict=True):
            found[key].append((ts, value))
    return found


def differing(rows: Rows, right: Rows) -> int:
    """Number of rows that are in one of the two and not in the other."""
    return ((rows - right) + (right - rows)).total()
