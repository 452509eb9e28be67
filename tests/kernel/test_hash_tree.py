"""The buckets of a table by key: the bucket of a key, the buckets that a batch touches, and splits."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from tidegate.kernel.columns.arrays import concat_tables
from tidegate.kernel.columns.hash64 import hash64
from tidegate.kernel.state import hash_tree
from tidegate.kernel.state.state import State
from tidegate.kernel.state.store import DictStore
from tidegate.kernel.tuning import Tuning


class Counted(DictStore):
    """A store that records its reads and writes."""

    def __init__(self, tuning: Tuning) -> None:
        super().__init__(tuning=tuning)
        self.calls: list[tuple[str, int]] = []

    def read(self, window: int, segment: int) -> bytes:
        self.calls.append(("read", window))
        return super().read(window, segment)

    def write(self, window: int, segment: int, value: bytes) -> None:
        self.calls.append(("write", window))
        super().write(window, segment, value)


def read(state: State, buckets: Any) -> pa.Table | None:
    """The rows of these buckets as one table, None if there are none."""
    segments = [rows for bucket in np.unique(buckets).tolist() for rows in state.read(bucket)]
    return concat_tables(segments) if segments else None


def rows_of(table: dict[int, int]) -> tuple[pa.Table, Any]:
    rows = pa.table({"key": pa.array(list(table), pa.int64()), "n": pa.array(list(table.values()), pa.int64())})
    return rows, hash64(rows["key"].combine_chunks())


def upsert(state: State, changes: dict[int, int | None]) -> None:
    """Apply changes as an operator does: read the touched buckets, change them, write them back."""
    touched = np.unique(hash_tree.find(state, rows_of(dict.fromkeys(changes, 0))[1]))
    held = read(state, touched)
    merged = {} if held is None else dict(zip(*held.to_pydict().values(), strict=True))
    merged |= changes
    hash_tree.write(state, touched, *rows_of({key: n for key, n in merged.items() if n is not None}))


KEYS = st.integers(0, 60)
SOME_KEYS = st.dictionaries(KEYS, st.one_of(st.none(), st.integers(0, 9)))
STAY = st.one_of(st.sets(KEYS), st.sets(KEYS).map(set(range(61)).difference))
ALL_KEYS = STAY.map(lambda stay: {key: 1 if key in stay else None for key in range(61)})
"""Few or most keys stay, and the batch writes every bucket, so that small ones merge."""


@given(batches=st.lists(st.one_of(SOME_KEYS, ALL_KEYS), max_size=12))
def test_a_table_in_buckets_is_a_dict(batches: list[dict[int, int | None]]) -> None:
    """Upserts and deletions, splits, merges and empty buckets, an index of many pages, a restart before every batch."""
    store = DictStore(tuning=Tuning(bucket_rows=4, page_logs=2, fanout=2, root_entries=2))
    wanted = dict[int, int | None]()
    for changes in batches:
        state = State.load(store, {}, 1)
        upsert(state, changes)
        state.save()
        wanted |= changes
        live = {key: n for key, n in wanted.items() if n is not None}
        every = read(state, np.array(sorted(state.logs), np.int64))
        assert sorted(zip(*every.to_pydict().values(), strict=True) if every else ()) == sorted(live.items())
        assert all(log.rows <= 4 for _, log in state.logs.items())


def test_a_batch_touches_the_buckets_of_its_keys_alone() -> None:
    store = Counted(Tuning(bucket_rows=100))
    state = State(store, {}, 1)
    upsert(state, dict.fromkeys(range(5_000), 1))
    assert len(state.logs) > 40
    store.calls.clear()
    upsert(state, {7: 2, 4_000: 2})
    assert len([call for call in store.calls if call[0] == "read"]) == 2
    assert len([call for call in store.calls if call[0] == "write"]) == 2


def test_keys_of_one_hash_stay_together() -> None:
    """More of them than a bucket should hold cannot be split; the split must end."""
    state = State(DictStore(tuning=Tuning(bucket_rows=2)), {}, 1)
    rows = pa.table({"key": pa.array(range(9), pa.int64())})
    same = np.full(9, 12345 << 32, np.uint64)
    hash_tree.write(state, hash_tree.find(state, same), rows, same)
    assert read(state, np.unique(hash_tree.find(state, same))).num_rows == 9  # type: ignore[union-attr]
    assert len(state.logs) == 1


def test_a_batch_of_all_keys_puts_small_buckets_together() -> None:
    store = DictStore(tuning=Tuning(bucket_rows=100))
    state = State(store, {}, 1)
    upsert(state, dict.fromkeys(range(5_000), 1))
    many = len(state.logs)
    store.tuning = Tuning(bucket_rows=1_000)
    upsert(state, {7: 2})
    assert len(state.logs) == many
    upsert(state, dict.fromkeys(range(5_000), 3))
    assert len(state.logs) <= 10
    every = read(state, np.array(list(state.logs), np.int64))
    assert every is not None
    assert dict(zip(*every.to_pydict().values(), strict=True)) == dict.fromkeys(range(5_000), 3)
    assert state.logs.totals().rows == 5_000
