"""A buffer without a bound, on buckets, against one that is held in memory: the same rows at the same time."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

import tidegate as tg
from tidegate.kernel.rows.layout import Layout
from tidegate.kernel.state.store import DictStore
from tidegate.kernel.suppress import key_index, time_buckets, time_limit
from tidegate.kernel.suppress.key_index_table import HIGH, Table
from tidegate.kernel.tuning import Tuning
from tidegate.plan import operation
from tidegate.testing import TopologyTestDriver

Row = dict[str, Any]

pytestmark = pytest.mark.filterwarnings("ignore::tidegate.TidegateWarning")

IN_MEMORY = tg.BufferConfig.max_records(10**9)
SPILLING = tg.BufferConfig.max_bytes(1).spill_to_disk_when_full()


def table(buffer: tg.Buffer, limit: int, clock: str, measured_from: str, windowed: bool) -> tg.KTable:
    held = tg.Suppressed.until_time_limit(f"{limit} ms", buffer, clock=clock, measured_from=measured_from)
    if not windowed:
        return tg.table("prices", key="k", timestamp="ts").suppress(held)
    windows = tg.TimeWindows.of_size_and_grace("20 ms", "1 hour")
    return tg.stream("events", key="k", timestamp="ts").group_by_key().windowed_by(windows).count().suppress(held)


rows = st.builds(
    lambda key, ts, v: {"k": key, "ts": ts, "v": v}, st.integers(0, 9), st.integers(0, 400), st.integers(-99, 99)
)
steps = st.lists(st.one_of(st.integers(1, 60), st.lists(rows, min_size=1, max_size=12)), min_size=1, max_size=14)


@pytest.fixture(params=["as it is", "tiny parts", "hashes that meet"])
def tuning(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Tuning:
    """Parts so small that everything happens: put together, folded, split; and hashes of three bits."""
    if request.param == "hashes that meet":
        monkeypatch.setattr(key_index, "HIGH", np.uint64(7 << 61))
    if request.param == "as it is":
        return Tuning()
    return Tuning(buckets_per_level=3, bucket_segments=1, chunk_rows=2, fold_rows=3)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    steps,
    st.sampled_from([0, 1, 7, 30, 100]),
    st.sampled_from(["stream", "wall"]),
    st.sampled_from(["first_update", "latest_update", "window_start"]),
    st.booleans(),
    st.lists(st.sampled_from(["go on", "restart", "forget", "other buffer", "other limit"]), min_size=14, max_size=14),
    st.sampled_from([0, 100, 300]),
)
def test_the_same_rows_at_the_same_time(
    tuning: Tuning,
    schedule: list[Any],
    limit: int,
    clock: str,
    measured_from: str,
    windowed: bool,
    between: list[str],
    other_limit: int,
) -> None:
    """After every batch; across restarts, in a worker that has read nothing yet, and with another buffer or limit."""
    assume(windowed or measured_from != "window_start")
    # A key that a bucket seems to have already, by a hash or because it left by a shorter limit, counts later.
    meet, lengthened = key_index.HIGH != HIGH, False
    tables = [table(buffer, limit, clock, measured_from, windowed) for buffer in (IN_MEMORY, SPILLING)]
    expected, driver = (TopologyTestDriver(one, tuning=tuning) for one in tables)
    for step, then in zip(schedule, between, strict=False):
        for one in (expected, driver):
            if isinstance(step, int):
                one.advance_wall_clock(f"{step} ms")
            else:
                one.pipe_batch(step)
        assert driver.read_output() == expected.read_output()
        if not isinstance(step, int):
            waits = [one.metrics()["suppression_buffer_count_current"] for one in (driver, expected)]
            assert waits[0] == waits[1] or (waits[0] < waits[1] and (meet or lengthened))
        if then == "other limit":
            lengthened = lengthened or other_limit > limit
            tables = [table(buffer, other_limit, clock, measured_from, windowed) for buffer in (IN_MEMORY, SPILLING)]
            expected = TopologyTestDriver(tables[0], state=expected.state(), tuning=tuning)
        if then == "forget":
            key_index._cache.clear()
        if then != "go on":
            other = tables[0 if then == "other buffer" else 1]
            driver = TopologyTestDriver(other, state=driver.state(), tuning=tuning)


def buckets_of(driver: TopologyTestDriver) -> time_buckets.TimeBuckets:
    """The buckets of the first limit of a table of prices."""
    op = operation(table(SPILLING, 50, "stream", "first_update", windowed=False).node)
    schema = pa.schema({"k:k": pa.int64(), "v:v": pa.int64(), "ts": pa.int64()})
    return time_limit._Buffer.load(Layout(op, schema), driver.state().stores[0]).buckets


def test_a_longer_limit_has_wider_buckets() -> None:
    """Otherwise a day would have more than a million, and the index of keys has numbers for 65,536 of them."""
    driver = TopologyTestDriver(table(SPILLING, 500, "stream", "first_update", windowed=False))
    driver.pipe_batch([{"k": n, "ts": n, "v": n} for n in range(300)])
    day = table(SPILLING, 86_400_000, "stream", "first_update", windowed=False)
    driver = TopologyTestDriver(day, state=driver.state())
    driver.pipe_batch([{"k": n, "ts": 64 * n, "v": n} for n in range(300, 3_000)])
    assert len(buckets_of(driver).logs) == 1
    driver.pipe_batch([{"k": n, "ts": 2_000_000, "v": -n} for n in (5, 200, 2_999)])
    driver.pipe_input({"k": -1, "ts": 86_400_000 + 64 * 2_999, "v": 0})
    assert [row["v"] for row in driver.read_output()] == [-n if n in (5, 200, 2_999) else n for n in range(3_000)]


def test_the_index_of_ever_new_keys_lists_few_batches_and_buckets(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each batch reads and writes the list, and a new worker reads a segment for each batch in it."""
    monkeypatch.setattr(key_index, "_LISTED", 20)
    driver = TopologyTestDriver(table(SPILLING, 40_960, "stream", "first_update", windowed=False))
    listed, left = [], []
    for n in range(200):
        driver.pipe_input({"k": n, "ts": 500 * n, "v": n})
        buckets = buckets_of(driver)
        listed.append(len(buckets.index.tokens) + len(buckets.index.buckets) - len(buckets.logs))
        left += [row["v"] for row in driver.read_output()]
        if n % 30 == 0:
            key_index._cache.clear()  # a new worker
    assert max(listed) <= 20
    assert left == list(range(200 - 82))


def test_a_bucket_of_ever_new_keys_has_few_segments() -> None:
    """With a segment for each batch a bucket of a long limit would have thousands, which are read when it is due."""
    driver = TopologyTestDriver(
        table(SPILLING, 400_000, "stream", "first_update", windowed=False), tuning=Tuning(bucket_segments=4)
    )
    for n in range(100):
        driver.pipe_input({"k": n, "ts": n, "v": n})
    ((_, log),) = buckets_of(driver).logs.items()
    assert log.segments <= 2 * 4
    assert (log.rows, log.waits) == (100, 100)
    driver.pipe_input({"k": -1, "ts": 400_050, "v": -1})
    driver.pipe_input({"k": -1, "ts": 900_000, "v": -1})
    assert [row["v"] for row in driver.read_output()] == [*range(100), -1]


def prices(*updates: tuple[str, int]) -> TopologyTestDriver:
    """The driver after these updates of a table behind a limit whose time buckets are 10 ms wide, a batch for each."""
    driver = TopologyTestDriver(table(SPILLING, 40_960, "stream", "first_update", windowed=False))
    for k, ts in updates:
        driver.pipe_input({"k": k, "ts": ts, "v": ts})
    return driver


def shown_and_true(driver: TopologyTestDriver) -> tuple[float, int]:
    (limit,) = driver.pending().limits
    return driver.metrics()["suppression_buffer_count_current"], limit.keys


def test_a_key_that_left_and_comes_back_counts_again() -> None:
    """Its old bucket is still there: B waits in it."""
    first = (("A", 0), ("B", 5), ("Z", 20_000), ("C", 40_962))
    assert shown_and_true(prices(*first)) == (3, 3)
    driver = prices(*first, ("A", 40_963))
    assert shown_and_true(driver) == (4, 4)
    driver.pipe_input({"k": "D", "ts": 40_966, "v": 0})
    assert shown_and_true(driver) == (4, 4)


def test_keys_of_one_hash_are_all_counted_once_their_bucket_is_due(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(key_index, "HIGH", np.uint64(0))
    driver = prices(("A", 0), ("B", 5), ("C", 7), ("D", 40_960))
    assert shown_and_true(driver) == (3, 3)
    driver.pipe_input({"k": "E", "ts": 81_920, "v": 0})
    assert shown_and_true(driver) == (1, 1)


def test_a_state_without_the_keys_of_each_bucket_keeps_their_number() -> None:
    driver = prices(*((f"k{n}", 1_000 * n) for n in range(30)), ("k29", 29_001))
    buckets = buckets_of(driver)
    saved = buckets.saved()
    del saved["waits"]
    old = time_buckets.TimeBuckets.load(buckets.store, saved)
    assert (old.keys, buckets.keys) == (30, 30)
    assert all(0 <= log.waits <= log.rows for log in old.logs.values())


def test_more_buckets_than_the_index_has_numbers_are_refused() -> None:
    many = np.arange(70_000)
    hashes = many.astype(np.uint64) << np.uint64(33)
    with pytest.raises(tg.CheckpointError, match="more than 65,536 time buckets"):
        key_index.Index().add(DictStore(), hashes, many, many.tolist())


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.lists(rows, min_size=1, max_size=12), min_size=1, max_size=8))
def test_what_came_has_left_waits_or_was_replaced(batches: list[list[Row]]) -> None:
    """Nothing is lost and nothing repeated: each row that leaves is the last of its key since the one before it."""
    driver = TopologyTestDriver(table(SPILLING, 50, "stream", "first_update", windowed=False))
    numbered = [{**row, "v": n} for n, row in enumerate(row for batch in batches for row in batch)]
    piped = 0
    out: list[Row] = []
    for batch in batches:
        driver.pipe_batch(numbered[piped : piped + len(batch)])
        piped += len(batch)
        out += driver.read_output()
    last = TopologyTestDriver(table(SPILLING, 0, "stream", "first_update", windowed=False), state=driver.state())
    last.pipe_input({"k": 99, "ts": 0, "v": -1})
    out += [row for row in last.read_output() if row["k"] != 99]
    for key in {row["k"] for row in numbered}:
        came = [row["v"] for row in numbered if row["k"] == key]
        left = [row["v"] for row in out if row["k"] == key]
        assert left == sorted(set(left))
        assert left[-1] == came[-1]


def test_what_waits_can_be_read() -> None:
    driver = TopologyTestDriver(table(SPILLING, 50, "stream", "first_update", windowed=False))
    driver.pipe_batch([{"k": 1, "ts": 3, "v": 1}, {"k": 2, "ts": 4, "v": 2}, {"k": 1, "ts": 9, "v": 3}])
    op = operation(table(SPILLING, 50, "stream", "first_update", windowed=False).node)
    schema = pa.schema({"k:k": pa.int64(), "v:v": pa.int64(), "ts": pa.int64()})
    held = time_limit.waiting(Layout(op, schema), driver.state().stores[0]).to_pylist()
    assert sorted((row["k"], row["v"], row[time_buckets.BUFFER_TIME]) for row in held) == [(1, 3, 3), (2, 2, 4)]


halves = st.one_of(st.integers(0, 3), st.integers(0, 2**16 - 1))


@given(
    st.dictionaries(st.tuples(halves, halves), st.one_of(st.integers(0, 300), st.integers(0, 2**16 - 1)), max_size=60),
    st.lists(st.tuples(halves, halves), max_size=20),
)
def test_a_table_says_what_a_dict_says(held: dict[tuple[int, int], int], others: list[tuple[int, int]]) -> None:
    """Also of hashes that it does not have, on both sides of those it has, and after it was stored."""
    numbers = np.array(sorted(high << 48 | low << 32 | code for (high, low), code in held.items()), np.uint64)
    kept = Table.of(numbers)
    wanted = [*held, *others]
    hashes = np.array([high << 48 | low << 32 for high, low in wanted], np.uint64)
    for one in (kept, Table.decode(kept.encode())):
        assert one.numbers().tolist() == numbers.tolist()
        assert one.find(hashes & HIGH).tolist() == [held.get(name, -1) for name in wanted]
        assert one.codes.itemsize == (1 if max(held.values(), default=0) < 256 else 2)


class Counting(DictStore):
    """Counts the bytes that are read and written."""

    moved = 0

    def read(self, window: int, segment: int) -> bytes:
        value = super().read(window, segment)
        self.moved += len(value)
        return value

    def write(self, window: int, segment: int, value: bytes) -> None:
        self.moved += len(value)
        super().write(window, segment, value)


@pytest.mark.parametrize("measured_from", ["first_update", "latest_update"])
def test_an_update_does_not_read_what_waits(measured_from: str) -> None:
    """A batch of few keys moves as many bytes with many keys in the buffer as with few."""

    def moved(keys: int) -> int:
        held = tg.Suppressed.until_time_limit("1 day", SPILLING, clock="stream", measured_from=measured_from)
        limited = tg.table("prices", key="k", timestamp="ts").suppress(held)
        driver = TopologyTestDriver(limited)
        driver._stores = [Counting()]
        driver.pipe_batch([{"k": n, "ts": n % 1000, "v": n} for n in range(keys)])
        before = driver._stores[0].copy()
        counting = Counting(before.values, before.log)
        driver._stores = [counting]
        driver.pipe_batch([{"k": n, "ts": 1000, "v": -n} for n in range(100)])
        return counting.moved

    assert moved(20_000) <= 1.1 * moved(200)
