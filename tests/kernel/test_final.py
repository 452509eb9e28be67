"""A window that is too large to be merged at once leaves in parts, with the same rows."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import tidegate as tg
from tidegate.kernel.exchange.packing import pack
from tidegate.kernel.rows import grouping
from tidegate.kernel.rows.layout import Layout
from tidegate.kernel.stage import Stage
from tidegate.kernel.state.state import State
from tidegate.kernel.state.store import DictStore
from tidegate.kernel.tuning import Tuning
from tidegate.plan import operation
from tidegate.spec.columns import START

KEYS, ROWS, BATCHES = 300, 1_000, 6
TUMBLING = tg.TimeWindows.of_size_with_no_grace("4 ms")
LONG = tg.TimeWindows.of_size_with_no_grace("4 hours")
HOPPING = tg.TimeWindows.of_size_with_no_grace("4 ms").advance_by("2 ms")


def batch(number: int) -> pa.RecordBatch:
    rng = np.random.default_rng(number)
    return pa.record_batch(
        {
            "k:user": pa.array([f"user-{key}" for key in rng.integers(0, KEYS, ROWS)]),
            "v:amount": pa.array(rng.random(ROWS)),
            "ts": pa.array(np.sort(rng.integers(2 * number, 2 * number + 2, ROWS))),
            "partition": pa.array(np.zeros(ROWS, np.int32)),
            "offset": pa.array(number * ROWS + np.arange(ROWS)),
        }
    )


def windowed(windows: tg.TimeWindows) -> tg.TimeWindowedKStream:
    stream = tg.stream("events", key="user", timestamp="ts", partition="partition", offset="offset")
    return stream.group_by_key().windowed_by(windows)


def stage(windows: tg.TimeWindows, **tuning: int) -> Stage:
    totals = windowed(windows).agg(n=tg.count(), total=tg.sum("amount"))
    table = totals.suppress(tg.Suppressed.until_window_closes(tg.BufferConfig.unbounded()))
    return Stage(Layout(operation(table.node), batch(0).schema, sorts=False, tuning=Tuning(**tuning)))


def of_every_update(windows: tg.TimeWindows) -> Stage:
    not_cached = tg.Materialized.as_("totals").with_caching_disabled()
    table = windowed(windows).agg(not_cached, n=tg.count(), total=tg.sum("amount"))
    return Stage(Layout(operation(table.node), batch(0).schema, sorts=False))


def blobs(of: Stage, number: int) -> list[bytes]:
    return [dict(pack(of.layout, [batch(number)], [0]))[0]]


def results(mine: Stage, given: list[list[bytes]]) -> tuple[list[int], list[dict[str, Any]]]:
    """Number of parts in each batch, and all rows."""
    store = DictStore()
    parts: list[int] = []
    rows: list[dict[str, Any]] = []
    for number, packed in enumerate(given):
        step = mine.begin(store, packed, end_of_input=number == BATCHES - 1)
        left = list(step.parts)
        parts.append(len([part for part in left if part.num_rows]))
        rows += [row for part in left for row in part.to_pylist()]
        assert step.metrics["emitted"] == sum(part.num_rows for part in left)
    return parts, sorted(rows, key=lambda row: (row[START], row["user"]))


@pytest.fixture
def merged(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Sizes of the merged tables, in rows."""
    sizes: list[int] = []
    merge = grouping.merge

    def noted(layout: Layout, rows: pa.Table, *more: Any) -> pa.Table:
        sizes.append(rows.num_rows)
        return merge(layout, rows, *more)

    monkeypatch.setattr(grouping, "merge", noted)
    return sizes


@pytest.mark.parametrize("windows", [TUMBLING, HOPPING], ids=str)
@pytest.mark.parametrize("compacts", [False, True])
def test_in_parts_as_whole(windows: tg.TimeWindows, compacts: bool, merged: list[int]) -> None:
    mine = stage(windows)
    given = [blobs(mine, number) for number in range(BATCHES)]
    whole, expected = results(mine, given)
    assert max(merged) > 500
    merged.clear()
    compact_rows = 100 if compacts else 10**9
    small = stage(windows, close_rows=300, part_rows=100, compact_rows=compact_rows, compact_growth=1)
    parts, found = results(small, given)
    assert found == expected
    assert max(whole) <= 2 < max(parts)
    assert max(merged) <= 300  # or about 100, as keys are not spread evenly


def test_nothing_is_stored_before_the_last_part_is_taken() -> None:
    mine, store = stage(TUMBLING, close_rows=300, part_rows=100), DictStore()
    for number in range(2):
        mine.step(store, blobs(mine, number))
    before = store.copy()
    step = mine.begin(store, blobs(mine, 2))
    for _ in range(3):
        next(step.parts)
        assert store == before
        assert not step.metrics
    for _ in step.parts:
        pass
    assert store != before
    assert 200 < step.metrics["emitted"] <= KEYS


def test_a_compacted_log_is_several_segments() -> None:
    mine = stage(tg.TimeWindows.of_size_with_no_grace("1 minute"), part_rows=100, compact_rows=500)
    store = DictStore()
    held = []
    for number in range(4):
        mine.step(store, blobs(mine, number))
        held.append(len(store.log))
    # Batches have some 290 keys: the second passes 500 rows, and compaction leaves one row per key.
    assert held[0] == 1
    assert max(held) > 2
    rows = mine.step(store, [], end_of_input=True).rows
    assert rows.num_rows == KEYS
    assert sum(rows["n"].to_pylist()) == 4 * ROWS


@pytest.mark.parametrize("windows", [LONG, LONG.advance_by("1 hour")], ids=str)
@pytest.mark.parametrize("fresh", [False, True], ids=["one key", "ever new keys"])
def test_many_small_batches_of_a_window_leave_few_segments(windows: tg.TimeWindows, fresh: bool) -> None:
    """A segment for each batch would be a hundred thousand in a day, which the close would read one by one."""
    mine = stage(windows, bucket_segments=4)
    store = DictStore(tuning=Tuning(bucket_segments=4))
    held = []
    for number in range(130):
        user = f"user-{number if fresh else 0}"
        one = {"k:user": [user], "v:amount": [0.25], "ts": [number], "partition": [0], "offset": [number]}
        rows = pa.RecordBatch.from_pydict(one, schema=batch(0).schema)
        mine.step(store, [dict(pack(mine.layout, [rows], [0]))[0]])
        held.append(len(store.log))
        assert State.load(store, mine.layout.identity, 1).logs.totals().size == sum(map(len, store.log.values()))
    assert max(held) <= 3 * 4  # three digits to the base of four, and a few more
    rows = mine.step(store, [], end_of_input=True).rows.group_by("user").aggregate([("n", "max"), ("total", "max")])
    assert rows.num_rows == (130 if fresh else 1)
    assert set(rows["n_max"].to_pylist()) == {1 if fresh else 130}
    assert set(rows["total_max"].to_pylist()) == {0.25 if fresh else 32.5}
    assert not store.log


def test_sums_that_overflow_on_the_way_alone_do_not_stop_a_batch() -> None:
    """Segments that cannot be merged stay; the sum of all of them is a long."""
    windows = tg.TimeWindows.of_size_with_no_grace("1 day")
    totals = windowed(windows).agg(total=tg.sum("amount"))
    table = totals.suppress(tg.Suppressed.until_window_closes(tg.BufferConfig.unbounded()))
    schema = batch(0).schema.set(1, pa.field("v:amount", pa.int64()))
    mine = Stage(Layout(operation(table.node), schema, sorts=False))
    store = DictStore(tuning=Tuning(bucket_segments=2))
    for number, amount in enumerate([2**62, 2**62, 5, -(2**62), -(2**62), 1]):
        one = {"k:user": ["A"], "v:amount": [amount], "ts": [number], "partition": [0], "offset": [number]}
        rows = pa.RecordBatch.from_pydict(one, schema=schema)
        mine.step(store, [dict(pack(mine.layout, [rows], [0]))[0]])
    assert mine.step(store, [], end_of_input=True).rows["total"].to_pylist() == [6]


@pytest.mark.parametrize("made", [stage, of_every_update])
def test_what_came_is_let_go_of_before_rows_leave(made: Callable[[tg.TimeWindows], Stage]) -> None:
    """Closing windows and emitting a row per record need the most memory, so the batch must be freed before."""
    mine = made(TUMBLING)
    together = pa.Table.from_batches([batch(0), batch(2)]).combine_chunks().to_batches()
    came = []

    def handed_over() -> Iterator[memoryview]:
        for _, blob in pack(mine.layout, together, [0]):
            whole = np.frombuffer(blob, np.uint8).copy()
            came.append(weakref.ref(whole))
            yield memoryview(whole)

    step = mine.begin(DictStore(), handed_over(), end_of_input=True)  # type: ignore[arg-type]
    first = next(step.parts)
    assert first.num_rows
    assert came
    assert all(blob() is None for blob in came)
