"""A large batch of a table without windows is applied by ranges of keys: memory holds a part of it at a time."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import tidegate as tg
from tidegate.kernel.columns.arrays import Hashes
from tidegate.kernel.exchange.packing import pack
from tidegate.kernel.rows.layout import Layout
from tidegate.kernel.stage import Stage
from tidegate.kernel.state.keyed_runs import KeyedRuns, OfRange
from tidegate.kernel.state.log_index import Log, LogIndex
from tidegate.kernel.state.store import DictStore
from tidegate.kernel.tuning import Tuning
from tidegate.kernel.windows import window_table
from tidegate.kernel.windows.rows_by_key import RowsByKey
from tidegate.plan import operation
from tidegate.plan.graph import graph
from tidegate.spec.columns import TIMESTAMP

KEYS, ROWS, BATCHES = 2_000, 1_000, 8
SMALL = Tuning(range_rows=200, bucket_rows=200, read_whole_rows=0, table_rows=200)
DIVIDED = 4
"""Parts of a batch: it has some 800 keys, in ranges of some 80 keys each."""


def batch(number: int) -> pa.RecordBatch:
    rng = np.random.default_rng(number)
    keys = rng.integers(0, KEYS, ROWS)
    return pa.record_batch(
        {
            "k:user": pa.array([f"user-{key}" for key in keys]),
            "v:amount": pa.array(rng.integers(0, 100, ROWS)),
            "v:group": pa.array(keys % 10),
            "ts": pa.array(rng.integers(0, 1_000, ROWS) + number),
            "partition": pa.array(np.zeros(ROWS, np.int32)),
            "offset": pa.array(number * ROWS + np.arange(ROWS)),
        }
    )


def grouped() -> tg.KGroupedStream:
    order: dict[str, Any] = {"key": "user", "timestamp": "ts", "partition": "partition", "offset": "offset"}
    return tg.stream("events", **order, stream_time="max").group_by_key()


def totals() -> tg.KTable:
    return grouped().agg(total=tg.sum("amount"), n=tg.count())


def by_function() -> tg.KTable:
    return grouped().reduce(lambda total, amount: total + amount, "amount", "total")


def of_every_record() -> tg.KTable:
    return grouped().agg(tg.Materialized.as_("totals").with_caching_disabled(), total=tg.sum("amount"))


def limited() -> tg.KTable:
    return totals().suppress(tg.Suppressed.until_time_limit("1 ms", tg.BufferConfig.unbounded(), clock="stream"))


def groups() -> tg.KTable:
    return totals().group_by("n").agg(users=tg.count())


def run(
    table: Callable[[], tg.KTable], tuning: Tuning, monkeypatch: pytest.MonkeyPatch, sorts: bool = False
) -> tuple[list[list[pa.Table]], list[int]]:
    """The parts of each batch that have rows, and how many times each batch was applied."""
    with monkeypatch.context() as patch:
        applied: list[int] = []
        apply = window_table.apply

        def counted(layout: Layout, stored: pa.Table | None, *given: Any) -> tuple[pa.Table, pa.Table]:
            applied[-1] += 1
            return apply(layout, stored, *given)

        patch.setattr(window_table, "apply", counted)
        first = graph(operation(table().node)).upstream_first[0]
        layout = Layout(first.op, batch(0).schema, sorts=sorts, tuning=tuning)
        store, found = DictStore(tuning=tuning), []
        for number in range(BATCHES):
            applied.append(0)
            [(_, blob)] = pack(layout, [batch(number)], [0])
            step = Stage(layout).begin(store, [blob])
            found.append([part for part in step.parts if part.num_rows])
            assert step.metrics["emitted"] == sum(part.num_rows for part in found[-1])
    return found, applied


def rows(parts: list[pa.Table]) -> list[str]:
    """Rows in one order, without their place among rows of the same time."""
    return sorted(str(row | {"place": None}) for part in parts for row in part.to_pylist())


@pytest.mark.parametrize("table", [totals, by_function])
def test_a_large_batch_leaves_in_parts_with_the_rows_of_a_batch_at_once(
    table: Callable[[], tg.KTable], monkeypatch: pytest.MonkeyPatch
) -> None:
    at_once, applied = run(table, Tuning(), monkeypatch)
    assert applied == [1] * BATCHES
    divided, applied = run(table, SMALL, monkeypatch)
    # The first batch finds no ranges.
    assert applied[0] == 1
    assert min(applied[-3:]) >= DIVIDED
    assert [len(parts) for parts in divided] == applied
    assert list(map(rows, divided)) == list(map(rows, at_once))
    # A part has all rows of some keys and, but for a range that is larger, no more than it may have.
    for parts in divided[-3:]:
        users = [set(part["user"].to_pylist()) for part in parts]
        assert sum(map(len, users)) == len(set().union(*users))
        assert max(map(len, users)) <= SMALL.table_rows


@pytest.mark.parametrize("table", [of_every_record, limited, groups])
def test_updates_whose_order_counts_are_made_at_once(
    table: Callable[[], tg.KTable], monkeypatch: pytest.MonkeyPatch
) -> None:
    divided, applied = run(table, SMALL, monkeypatch)
    assert applied == [1] * BATCHES
    at_once, _ = run(table, Tuning(), monkeypatch)
    assert list(map(rows, divided)) == list(map(rows, at_once))


def test_sorted_updates_of_a_large_batch_are_in_timestamp_order(monkeypatch: pytest.MonkeyPatch) -> None:
    found, applied = run(totals, SMALL, monkeypatch, sorts=True)
    assert applied == [1] * BATCHES
    for [part] in found:
        times = part[TIMESTAMP].to_pylist()
        assert times == sorted(times)


def test_a_part_is_freed_when_it_is_applied(monkeypatch: pytest.MonkeyPatch) -> None:
    """Storing rows takes as much memory again. The batch itself is freed when it is divided."""
    given: list[weakref.ref[pa.Table]] = []
    alive: list[tuple[bool, int]] = []
    divided, by_range = KeyedRuns.divided, RowsByKey.by_range

    def noted(versions: KeyedRuns, rows: pa.Table, *of_batch: Any) -> list[tuple[pa.Table, Hashes]]:
        parts = divided(versions, rows, *of_batch)
        given[:] = [weakref.ref(one) for one in (rows, *(part for part, _ in parts))]
        return parts

    def counted(rows_by_key: RowsByKey, *stored: Any) -> list[OfRange]:
        batch, *parts = (one() is not None for one in given)
        alive.append((batch, sum(parts)))
        return by_range(rows_by_key, *stored)

    monkeypatch.setattr(KeyedRuns, "divided", noted)
    monkeypatch.setattr(RowsByKey, "by_range", counted)
    _, applied = run(totals, SMALL, monkeypatch)
    # The first part to be applied is the last of the parts.
    assert alive[-applied[-1] :] == [(False, left) for left in reversed(range(applied[-1]))]


def test_ranges_without_rows_make_no_part() -> None:
    """A batch may have keys of some ranges alone; a range is named by the upper half of its first hash."""
    index = LogIndex()
    for number in range(8):
        index[number << 29] = Log(segments=1, rows=100)
    keyed = KeyedRuns.of(index, DictStore(), lambda rows: rows)
    hashes = np.arange(400, dtype=np.uint64) % 4 << np.uint64(61)
    parts = keyed.divided(pa.table({"n": np.arange(400)}), hashes, 90)
    assert [part["n"].to_pylist() for part, _ in parts] == [list(range(at, 400, 4)) for at in range(4)]
    assert [np.unique(mine >> np.uint64(61)).tolist() for _, mine in parts] == [[0], [1], [2], [3]]
    # Rows of several ranges keep their order too.
    parts = keyed.divided(pa.table({"n": np.arange(400)}), hashes, 250)
    halves = [[n for n in range(400) if n % 4 // 2 == half] for half in (0, 1)]
    assert [part["n"].to_pylist() for part, _ in parts] == halves


def test_a_batch_without_rows_has_updates_without_rows() -> None:
    step = Stage(Layout(operation(totals().node), batch(0).schema, sorts=False)).step(DictStore(), [])
    assert step.rows.num_rows == 0
    assert step.rows.column_names == ["user", "total", "n", TIMESTAMP]
