"""The rows of a left join by its definition, in columns, for millions of records; shares no code with tidegate.

A row is one number, so that rows can be sorted and compared: the number of the user, the amount, and the price or none.
The timestamp is left out: a topic in which the broker sets the timestamps does not have it.
"""

from __future__ import annotations

import numpy as np

from benchmarks.inputs import FIRST_MS, HALVES, Int64s
from benchmarks.two_sides import SIDES, Shape, halves

_BITS = 14
"""Amounts and prices are below 10,000."""


def rows(user: Int64s, amount: Int64s, price: Int64s) -> Int64s:
    """Rows as numbers, sorted; a price below 0 is none."""
    return np.sort((user << 2 * _BITS) | (amount << _BITS) | (price + 1))


def has_price(of_rows: Int64s) -> np.ndarray:
    """A mask of the rows that are pairs."""
    return (of_rows & ((1 << _BITS) - 1)) > 0


def left_joined(shape: Shape) -> Int64s:
    """The rows of all records, once all are closed; without the records that close them."""
    (user, ts_ms, amount), (others, other_ms, price) = (_columns(shape, side) for side in range(len(SIDES)))
    far = max(int(ts_ms.max()), int(other_ms.max())) + shape.window_ms + 1
    order = np.argsort(others * far + other_ms)
    places, price = (others * far + other_ms)[order], price[order]
    low = np.searchsorted(places, user * far + np.maximum(ts_ms - shape.window_ms, 0), side="left")
    high = np.searchsorted(places, user * far + ts_ms + shape.window_ms, side="right")
    counts = high - low
    alone = counts == 0
    ends = np.cumsum(counts)
    partners = np.arange(int(counts.sum())) - np.repeat(ends - counts - low, counts)
    return rows(
        np.concatenate([np.repeat(user, counts), user[alone]]),
        np.concatenate([np.repeat(amount, counts), amount[alone]]),
        np.concatenate([price[partners], np.full(int(alone.sum()), -1)]),
    )


def _columns(shape: Shape, side: int) -> tuple[Int64s, Int64s, Int64s]:
    """Keys, milliseconds since FIRST_MS, and values, without the records that close all."""
    every = list(halves(shape, side))[:-HALVES]
    key, ts_ms, value = (np.concatenate([getattr(half, of) for half in every]) for of in ("key", "ts_ms", "value"))
    return key, ts_ms - FIRST_MS, value
