"""Numbers of one key after the other: how many of them lie before a time of a key."""

from __future__ import annotations

import numpy as np

from tidegate.kernel.columns.arrays import Ints


def place(of_key: Ints, of_time: Ints, key: Ints, time: Ints, *, behind: bool) -> Ints:
    """How many of (of_key, of_time), which are in this order, lie before each (key, time); `behind`: or at it.

    For the same key twice, the difference of two places is how many lie between two times.
    """
    keys, times = np.concatenate([of_key, key]), np.concatenate([of_time, time])
    asks = np.repeat([0, 1], [len(of_time), len(time)])
    order = np.lexsort((asks if behind else -asks, times, keys))
    found = np.empty(len(order), np.int64)
    found[order] = np.cumsum(1 - asks[order])
    placed: Ints = found[len(of_time) :]
    return placed


def least(values: Ints, low: Ints, high: Ints) -> Ints:
    """The smallest of values[low:high] for each of these ranges, none of which is empty.

    Ranges of one length class are answered from the smallest values of stretches of a power of two, of which a range
    has two that cover it.
    """
    found = np.empty(len(low), np.int64)
    size, width, stretch = high - low, 1, values
    while len(low) and width <= int(size.max()):
        mine = np.flatnonzero((size >= width) & (size < 2 * width))
        found[mine] = np.minimum(stretch[low[mine]], stretch[high[mine] - width])
        stretch = np.minimum(stretch[:-width], stretch[width:]) if len(stretch) > width else stretch
        width *= 2
    return found
