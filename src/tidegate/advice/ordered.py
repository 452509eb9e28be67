"""Searches in times that are sorted by key and time."""

from __future__ import annotations

import numpy as np

from tidegate.kernel.columns.arrays import Ints


def place(of_key: Ints, of_time: Ints, key: Ints, time: Ints, *, behind: bool) -> Ints:
    """The number of pairs (of_key, of_time), sorted by key and time, before each (key, time); `behind`: or equal to it.

    For two times of one key, the difference of the results is the number of pairs between them.
    """
    keys, times = np.concatenate([of_key, key]), np.concatenate([of_time, time])
    asks = np.repeat([0, 1], [len(of_time), len(time)])
    order = np.lexsort((asks if behind else -asks, times, keys))
    found = np.empty(len(order), np.int64)
    found[order] = np.cumsum(1 - asks[order])
    placed: Ints = found[len(of_time) :]
    return placed


def least(values: Ints, low: Ints, high: Ints) -> Ints:
    """The smallest of values[low:high] for each of these ranges, which are not empty.

    A sparse table: minima of stretches whose length is a power of two; two such stretches cover a range.
    """
    found = np.empty(len(low), np.int64)
    size, width, stretch = high - low, 1, values
    while len(low) and width <= int(size.max()):
        mine = np.flatnonzero((size >= width) & (size < 2 * width))
        found[mine] = np.minimum(stretch[low[mine]], stretch[high[mine] - width])
        stretch = np.minimum(stretch[:-width], stretch[width:]) if len(stretch) > width else stretch
        width *= 2
    return found
