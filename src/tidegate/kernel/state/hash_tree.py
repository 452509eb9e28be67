"""A table by key, in buckets that split as they grow: a batch reads and writes the buckets of its keys alone.

A bucket holds the keys whose hashes lie from its number up to the number of the next bucket. (The high half of a hash
counts; the low half chose the task.) So the index of the logs says where a key is. A bucket without keys stays, as a
log without segments. A batch that writes all buckets merges small neighbours. The numbers are part of the state format.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pyarrow as pa

from tidegate.kernel.columns import radix_sort
from tidegate.kernel.columns.arrays import Hashes, Ints
from tidegate.kernel.columns.hash64 import upper_half
from tidegate.kernel.state.log_index import Log
from tidegate.kernel.state.state import State

FILLED = 0.75
"""Fill factor of the parts of a bucket that splits: the next rows need not split them again."""


def find(state: State, hashes: Hashes) -> Ints:
    """The bucket of each key; `hashes` as `grouping.key_hash` makes them."""
    return state.logs.floors(_high(hashes))


def divide(state: State, hashes: Hashes, most: int) -> None:
    """Split each empty bucket that is about to get more than `most` rows; `hashes`: the key hash of each row."""
    high = np.sort(_high(hashes))
    own = state.logs.floors(high)
    buckets, counts = np.unique(own, return_counts=True)
    for bucket in buckets[counts > most].tolist():
        if (state.logs.get(bucket) or Log()).segments == 0:
            mine = high[own == bucket]
            for number in [bucket, *mine[_cuts(mine, most)].tolist()]:
                state.logs[number] = Log(windows=0)


def write(
    state: State,
    buckets: Ints,
    rows: pa.Table,
    hashes: Hashes,
    most: int | None = None,
    known: Callable[[pa.Table], dict[str, int]] | None = None,
    every: bool | None = None,
) -> None:
    """Replace the rows of `buckets` by `rows`, whose keys have these `hashes`; a bucket that is too large splits.

    most   rows that a bucket may have before it splits; `Tuning.bucket_rows` by default
    known  fields of the bucket's `Log`, computed from its rows
    every  whether the batch writes every bucket and `buckets` follow each other, so that small ones merge; by default
           whether `buckets` are all there are
    """
    most = state.store.tuning.bucket_rows if most is None else most
    high = _high(hashes)
    order = radix_sort.argsort(high)
    rows, high = rows.take(pa.array(order)), high[order]
    touched = np.unique(buckets)
    own = state.logs.floors(high)
    assert np.isin(own, touched).all()
    ends = np.searchsorted(own, touched, side="right").tolist()
    parts = list(zip(touched.tolist(), [0, *ends], ends, strict=False))
    every = len(parts) == len(state.logs) if every is None else every
    for bucket, low, end in _merged(state, parts, int(most * FILLED)) if every else parts:
        if low == end:
            state.forget(bucket)
            state.logs[bucket] = Log(windows=0)
            continue
        starts = [low, *(low + _cuts(high[low:end], most)).tolist(), end]
        for part, (first, last) in enumerate(zip(starts, starts[1:], strict=False)):
            number = bucket if part == 0 else int(high[first])
            mine = rows.slice(first, last - first)
            state.replace(number, mine)
            if known is not None:
                state.note(number, **known(mine))


def _merged(state: State, parts: list[tuple[int, int, int]], most: int) -> list[tuple[int, int, int]]:
    """Merges small neighbours among (bucket, first row, end) of adjacent buckets.

    The keys of a bucket that is removed belong to the bucket before it.
    """
    merged = parts[:1]
    for bucket, low, end in parts[1:]:
        name, first, _ = merged[-1]
        if end - first <= most:
            state.forget(bucket)
            merged[-1] = (name, first, end)
        else:
            merged.append((bucket, low, end))
    return merged


def _cuts(high: Ints, most: int) -> Ints:
    """Places that cut rows sorted by hash into parts; rows of one hash are in one part."""
    if len(high) <= most:
        return np.zeros(0, np.int64)
    parts = int(-(-len(high) // max(1, most * FILLED)))
    names = np.unique(high[np.arange(1, parts) * len(high) // parts])
    found: Ints = np.searchsorted(high, names[names > high[0]])
    return found


def _high(hashes: Hashes) -> Ints:
    return upper_half(hashes).astype(np.int64)
