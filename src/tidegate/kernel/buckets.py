"""A table by key, in buckets that split as they grow: what a batch reads and writes follows the keys it has.

A bucket is a node of a binary tree over the high bits of the key's hash (the low ones chose the task), numbered as in
a heap: 1 is all keys, 2 and 3 are its halves by the first bit, and so on. Only the leaves exist, as logs of one
segment, or of none if no key is left in them; so the index of the logs is the tree. The numbers are part of the state
format.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tidegate.kernel.batch import unite
from tidegate.kernel.panes import Ints
from tidegate.kernel.state import Log, State

SPLIT_ROWS = 20_000
"""A bucket with more rows than this becomes two."""

_BITS = 32

Hashes = npt.NDArray[np.uint64]


def find(state: State, hashes: Hashes) -> Ints:
    """The bucket of each key; `hashes` as `grouping.key_hash` makes them."""
    leaves = np.array(sorted(state.logs) or [1], np.int64)
    found = np.zeros(len(hashes), np.int64)
    for depth in range(int(leaves[-1]).bit_length()):
        node = _node(hashes, depth)
        found = np.where(np.isin(node, leaves), node, found)
    return found


def read(state: State, buckets: Ints) -> pa.Table | None:
    """The rows of these buckets as one table, None if there are none."""
    segments = [rows for bucket in np.unique(buckets).tolist() for rows in state.read(bucket)]
    return unite(segments) if segments else None


def write(state: State, buckets: Ints, rows: pa.Table, hashes: Hashes) -> None:
    """Let `rows`, whose keys have these `hashes`, be all that is in the buckets; one that is too large splits."""
    order = np.argsort(hashes >> np.uint64(_BITS), kind="stable")
    rows, hashes = rows.take(pa.array(order)), hashes[order]
    own = find(state, hashes)
    for bucket in np.unique(buckets).tolist():
        low, high = np.searchsorted(hashes >> np.uint64(_BITS), _bounds(bucket))
        assert np.all(own[low:high] == bucket)
        _write(state, bucket, rows.slice(low, high - low), hashes[low:high])


def _write(state: State, bucket: int, rows: pa.Table, hashes: Hashes) -> None:
    """Rows sorted by hash into a bucket, or into its children."""
    if rows.num_rows > SPLIT_ROWS and bucket.bit_length() <= _BITS:
        state.forget(bucket)
        middle = int(np.searchsorted(hashes >> np.uint64(_BITS), _bounds(2 * bucket)[1]))
        _write(state, 2 * bucket, rows.slice(0, middle), hashes[:middle])
        _write(state, 2 * bucket + 1, rows.slice(middle), hashes[middle:])
    elif rows.num_rows:
        state.replace(bucket, rows)
    else:
        state.forget(bucket)
        state.logs[bucket] = Log()


def _node(hashes: Hashes, depth: int) -> Ints:
    """The bucket that a key would be in if all were at this depth."""
    return ((hashes >> np.uint64(2 * _BITS - depth - 1) >> np.uint64(1)) | np.uint64(1 << depth)).astype(np.int64)


def _bounds(bucket: int) -> list[int]:
    """The first high half of a hash in the bucket, and the first beyond it."""
    depth = bucket.bit_length() - 1
    place, width = bucket - (1 << depth), 1 << (_BITS - depth)
    return [place * width, (place + 1) * width]
