"""What a batch of few keys costs where many sliding windows or sessions are open: it reads and writes theirs."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import tidegate as tg
from kernel.test_open_windows import CountingStore
from tidegate.kernel.columns.arrays import Hashes
from tidegate.kernel.exchange.packing import pack
from tidegate.kernel.rows.layout import Layout
from tidegate.kernel.stage import Stage, Step
from tidegate.kernel.state import sorted_runs
from tidegate.kernel.state.copies import Copies
from tidegate.kernel.state.state import State
from tidegate.kernel.tuning import Tuning
from tidegate.kernel.windows.closing_times import ClosingTimes
from tidegate.plan import operation

HOUR = 3_600_000
WINDOWS: dict[str, Any] = {
    "sessions": tg.SessionWindows.of_inactivity_gap_with_no_grace("1 hour"),
    "sliding": tg.SlidingWindows.of_time_difference_and_grace("10 minutes", "1 hour"),
}
FINAL = tg.Suppressed.until_window_closes(tg.BufferConfig.unbounded())
# Everything is a tenth of what it is for users.
SMALL = Tuning(whole_rows=1_000, key_windows=(50, 600), bucket_rows=2_000, lookup_records=1_000, part_records=5_000)
MANY = 6_000
FEW = 5


@pytest.fixture(autouse=True)
def no_copies_of_others(monkeypatch: pytest.MonkeyPatch) -> None:
    """A process has room for so many bytes of copies; those of other tests are as good as any."""
    monkeypatch.setattr(sorted_runs, "COPIES", Copies())


class Query:
    """A query with so many open windows, of a key each, which end evenly over the second hour."""

    def __init__(self, kind: str, aggregate: Any, final: bool, windows: int) -> None:
        stream = tg.stream("events", key="user", timestamp="ts", partition="partition", offset="offset")
        table = aggregate(stream.group_by_key().windowed_by(WINDOWS[kind]))
        op = operation((table.suppress(FINAL) if final else table).node)
        self.layout = Layout(op, self.records([0], [0]).schema, tuning=SMALL)
        self.store, self.piped = CountingStore(SMALL), 0
        numbers = np.arange(windows)
        self.pipe(numbers, HOUR + numbers * HOUR // windows)

    def records(self, keys: Any, times: Any) -> pa.RecordBatch:
        keys = np.asarray(keys, np.int64)
        offsets = getattr(self, "piped", 0) + np.arange(len(keys))
        return pa.record_batch(
            {
                "k:user": pa.array([f"user-{key:06}" for key in keys.tolist()]),
                "v:amount": pa.array(keys % 97),
                "ts": pa.array(np.asarray(times, np.int64)),
                "partition": pa.array(np.zeros(len(keys), np.int32)),
                "offset": pa.array(offsets),
            }
        )

    def pipe(self, keys: Any, times: Any) -> Step:
        """What a batch gives; its cost is that of the store."""
        blobs = [blob for _, blob in pack(self.layout, [self.records(keys, times)], [0])]
        self.piped += len(keys)
        self.store.cost = type(self.store.cost)()
        step = Stage(self.layout).step(self.store, blobs)
        _ = step.rows
        return step

    @property
    def state(self) -> State:
        found = State.open(self.store)
        assert found is not None
        return found


def numbers(windowed: Any) -> Any:
    return windowed.agg(n=tg.count(), total=tg.sum("amount"))


def function(windowed: Any) -> Any:
    return windowed.aggregate(lambda: 0, lambda k, row, so_far: so_far + row["amount"], type="long", merger=merger)


def merger(key: Any, one: int, other: int) -> int:
    return one + other


@pytest.mark.parametrize("final", [True, False], ids=["final", "updates"])
@pytest.mark.parametrize("aggregate", [numbers, function])
@pytest.mark.parametrize("kind", WINDOWS)
def test_a_batch_takes_the_windows_of_its_keys_alone(kind: str, aggregate: Any, final: bool) -> None:
    costs = []
    for many in (MANY, 3 * MANY):
        query = Query(kind, aggregate, final, many)
        some = np.arange(FEW) * (many // FEW) + many // (2 * FEW)
        for number in range(3):  # the first one stores windows by key, the second makes copies of them
            query.pipe(some, np.full(FEW, 2 * HOUR - 5 + number))
        assert query.state.by_key
        assert not query.state.logs
        costs.append(query.store.cost)
        assert query.store.cost.read < sum(map(len, query.store.log.values())) / 40
        assert query.store.cost.written < sum(map(len, query.store.log.values())) / 40
    assert costs[1].read <= 1.5 * costs[0].read + 128
    assert costs[1].written <= 1.5 * costs[0].written + 128


@pytest.mark.parametrize("kind", WINDOWS)
def test_windows_that_close_are_read_and_nothing_else(kind: str) -> None:
    many = 8 * MANY
    query = Query(kind, numbers, True, many)
    for number in range(2):
        query.pipe(np.arange(many, many + FEW), np.full(FEW, 2 * HOUR - 2 + number))
    opened = query.state.open_windows
    query.pipe([many], [2 * HOUR + 61_000 + 1])  # begins the second time bucket, of which few are due
    bucket = query.store.cost.read
    step = query.pipe([many], [2 * HOUR + 63_000 + 1])
    closed = step.rows.num_rows
    assert closed == pytest.approx(many * 2 / 3600, abs=2)
    assert query.state.open_windows < opened
    assert query.store.cost.read < bucket < sum(map(len, query.store.log.values())) / 8
    assert step.metrics["open_windows"] == query.state.open_windows


@pytest.mark.parametrize("kind", WINDOWS)
def test_when_all_have_closed_nothing_is_stored(kind: str) -> None:
    query = Query(kind, numbers, True, MANY)
    query.pipe(np.arange(FEW), np.full(FEW, 2 * HOUR - 1))
    assert query.state.by_key
    step = query.pipe([0], [100 * HOUR])
    assert step.rows.num_rows >= MANY
    assert not query.state.by_key
    assert not query.state.closing
    assert sum(map(len, query.store.log.values())) < 5_000
    assert step.metrics["open_windows"] == 1


def test_final_results_of_a_drain_leave_in_parts() -> None:
    query = Query("sessions", numbers, True, MANY)
    layout = query.layout
    query.layout = Layout(layout.op, layout.schema, sorts=False, tuning=SMALL)
    query.pipe(np.arange(FEW), np.full(FEW, 2 * HOUR - 1))
    assert query.state.by_key
    object.__setattr__(query.layout, "tuning", replace(SMALL, part_rows=MANY // 10))
    parts = list(Stage(query.layout).begin(query.store, [], end_of_input=True).parts)
    assert sum(part.num_rows for part in parts) == MANY
    assert max(part.num_rows for part in parts) < MANY // 10 + 10
    assert not query.store.log


def test_a_batch_with_most_keys_takes_buckets_again() -> None:
    query = Query("sessions", numbers, False, MANY)
    query.pipe(np.arange(FEW), np.full(FEW, 2 * HOUR - 1))
    assert query.state.by_key
    query.pipe(np.arange(MANY), np.full(MANY, 2 * HOUR - 1))
    assert not query.state.by_key
    assert len(query.state.logs) > 1


def hashes(*high: int) -> Hashes:
    return np.array(high, np.uint64) << np.uint64(32)


def test_closing_times_are_taken_when_they_are_due() -> None:
    state = State(CountingStore(), {}, 1)
    times = ClosingTimes.of(state, 64 * 64 * 10)  # narrow ones of 10 ms, wide ones of 640 ms
    at = np.array([5, 100, 700, 701, 2**62])
    times.add(hashes(1, 2, 3, 3, 2**32 - 1), at, 0)
    assert times.earliest() == 5
    assert times.take_due(5).tolist() == []
    assert times.take_due(101).tolist() == hashes(1, 2).tolist()
    assert times.take_due(701).tolist() == hashes(3).tolist()
    assert times.earliest() == 701
    assert times.take_due(np.inf).tolist() == hashes(3, 2**32 - 1).tolist()
    assert not state.closing


def test_windows_that_are_far_ahead_lie_in_few_time_buckets() -> None:
    """Where they wait for a slow partition, each window had a time bucket of its own: an entry of the store."""
    state = State(CountingStore(), {}, 1)
    times = ClosingTimes.of(state, 64 * 64 * 10)
    at = np.arange(1, 3_001) * 1_000
    times.add(hashes(*range(3_000)), at, 0)
    found: list[int] = []
    for before in range(1_500, 3_001_500, 7_000):
        assert len(state.closing) <= 128 + 2 * 128
        found += (times.take_due(before) >> np.uint64(32)).tolist()
        assert len(found) == before // 1_000
    assert [*found, *(times.take_due(np.inf) >> np.uint64(32)).tolist()] == list(range(3_000))


def test_a_time_bucket_of_many_batches_is_put_together() -> None:
    state = State(CountingStore(), {}, 1)
    times = ClosingTimes.of(state, 64 * 64 * 10)
    for number in range(1_000):
        times.add(hashes(number), np.array([700]), 0)
    assert len(times.logs.store.store.log) < 200  # type: ignore[attr-defined]
    assert len(times.take_due(701)) == 1_000
