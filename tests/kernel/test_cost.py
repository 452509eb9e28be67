"""Cost of a batch, counted instead of timed: lines of Python executed, and bytes read from the store.

A loop over rows executes lines for each of them, and a step that reads needless state reads bytes; both counts are
the same on every machine and every day.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import tidegate as tg
from tidegate.kernel.exchange.packing import pack
from tidegate.kernel.rows.layout import Layout
from tidegate.kernel.stage import Stage
from tidegate.kernel.state import sorted_runs
from tidegate.kernel.state.copies import Copies, Held, Numbers, Parked, Partition
from tidegate.kernel.state.store import DictStore, InMemory, Overlay
from tidegate.kernel.suppress import key_index
from tidegate.kernel.tuning import Tuning
from tidegate.plan import operation
from tidegate.testing import TopologyTestDriver

FEW, MANY = 1_000, 20_000
SPAN_MS = 60_000

MINUTES = tg.TimeWindows.of_size_and_grace("1 minute", "10 seconds")
AGGREGATES: dict[str, Any] = {
    "n": tg.count(),
    "total": tg.sum("amount"),
    "mean": tg.mean("amount"),
    "least": tg.min("amount"),
}
FINAL = tg.Suppressed.until_window_closes(tg.BufferConfig.unbounded())

TOPOLOGIES: dict[str, Callable[[tg.KStream], tg.KTable]] = {
    "tumbling, final": lambda s: s.group_by_key().windowed_by(MINUTES).agg(**AGGREGATES).suppress(FINAL),
    "hopping, final": lambda s: (
        s.group_by_key().windowed_by(MINUTES.advance_by("10 seconds")).agg(**AGGREGATES).suppress(FINAL)
    ),
    "tumbling, updates": lambda s: s.group_by_key().windowed_by(MINUTES).agg(**AGGREGATES),
    "sessions, final": lambda s: (
        s.group_by_key()
        .windowed_by(tg.SessionWindows.of_inactivity_gap_and_grace("30 seconds", "10 seconds"))
        .agg(**AGGREGATES)
        .suppress(FINAL)
    ),
    "without windows": lambda s: s.group_by_key().agg(**AGGREGATES),
}


def prepared(build: Callable[[tg.KStream], tg.KTable]) -> Layout:
    stream = tg.stream("events", key="user", timestamp="ts", partition="partition", offset="offset")
    return Layout(operation(build(stream).node), events(1, 1, 0).schema, sorts=False)


def events(rows: int, keys: int, batch: int) -> pa.RecordBatch:
    """`rows` records of `keys` keys, spread evenly over a minute that belongs to the batch."""
    number = np.arange(rows)
    return pa.record_batch(
        {
            "k:user": [f"user-{n % keys:06}" for n in range(rows)],
            "v:amount": pa.array(number % 97, pa.int32()),
            "ts": pa.array(batch * SPAN_MS + number * SPAN_MS // rows, pa.int64()),
            "partition": pa.array(np.zeros(rows, np.int32)),
            "offset": pa.array(batch * rows + number, pa.int64()),
        }
    )


def lines_executed(work: Callable[[], object]) -> int:
    lines = 0

    def trace(frame: Any, event: str, arg: Any) -> Any:
        nonlocal lines
        lines += event in ("line", "call")  # a generator is called for each of its values
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        work()
    finally:
        sys.settrace(before)
    return lines


def lines_of_two_batches(layout: Layout, rows: int) -> int:
    stage, store = Stage(layout, tasks=2), DictStore()
    batches = [events(rows, rows // 4, batch) for batch in (0, 2)]

    def work() -> None:
        for batch in batches:
            (_, blob), _ = pack(layout, [batch], [0, 1])
            stage.step(store, [blob])

    return lines_executed(work)


@pytest.mark.parametrize("topology", TOPOLOGIES)
def test_no_loop_over_rows(topology: str) -> None:
    layout = prepared(TOPOLOGIES[topology])
    lines_of_two_batches(layout, 10)  # do one-time work before the count
    few, many = (lines_of_two_batches(layout, rows) for rows in (FEW, MANY))
    # A loop with one line per row would add 2 * (MANY - FEW) / 2 lines in each task alone.
    assert many - few < (MANY - FEW) / 4


ORDERED: dict[str, Any] = {"key": "user", "timestamp": "ts", "partition": "partition", "offset": "offset"}

JOINS: dict[str, tuple[Callable[[], Any], tuple[int, int]]] = {
    "two tables": (lambda: tg.table("left", **ORDERED).outer_join(tg.table("right", **ORDERED)), (0, 0)),
    "the latest row": (
        lambda: tg.stream("left", **ORDERED).left_join(tg.table("right", **ORDERED)),
        (0, 2 * SPAN_MS),
    ),
    "a row of a history": (
        lambda: tg.stream("left", **ORDERED).left_join(tg.table("right", **ORDERED, history="1 hour")),
        (0, 2 * SPAN_MS),
    ),
    "a row from before a history": (
        lambda: tg.stream("left", **ORDERED).left_join(tg.table("right", **ORDERED, history="1 ms")),
        (SPAN_MS // 2, 0),
    ),
}
"""Joins, and the timestamps (ms) of the first record of each side: the time that later records of the side see."""


@pytest.mark.parametrize("join", JOINS)
def test_no_loop_over_the_changes_of_a_key(join: str) -> None:
    """All records of the batch have one key, and most changes come behind the records that would look them up."""
    build, first = JOINS[join]
    op = operation(build().node)

    def lines(rows: int) -> int:
        sides = []
        for name, time in zip(("amount", "price"), first, strict=True):
            records = events(rows, 1, 0)
            times = pa.array(np.append(time, records["ts"].to_numpy()[1:]))
            sides.append(records.set_column(2, "ts", times).rename_columns({"v:amount": f"v:{name}"}))
        layout = Layout.of_join(op, [side.schema for side in sides], sorts=False)
        blobs = [dict(pack(layout.of_side(n, side.schema), [side], [0]))[0] for n, side in enumerate(sides)]
        return lines_executed(lambda: Stage(layout).step(DictStore(), blobs))

    lines(10)  # do one-time work before the count
    few, many = (lines(rows) for rows in (FEW, MANY))
    assert many - few < (MANY - FEW) / 4


def test_the_count_sees_a_loop_over_rows() -> None:
    def loop(rows: int) -> int:
        return lines_executed(lambda: [row + 1 for row in range(rows)])

    assert loop(MANY) - loop(FEW) >= MANY - FEW


def read_by_many(partitions: int, maps: int, *, dealt: bool, records: int = 40) -> list[pa.RecordBatch]:
    """What each map task reads of a batch: whole partitions, or (`dealt`) `records` of each partition, in turns."""
    each = records * maps if dealt else records
    partition, offset = np.repeat(np.arange(partitions), each), np.tile(np.arange(each), partitions)
    map_task = offset % maps if dealt else partition * maps // partitions
    every = events(len(offset), 4, 0).set_column(3, "partition", pa.array(partition, pa.int32()))
    every = every.set_column(4, "offset", pa.array(offset, pa.int64()))
    return [every.filter(pa.array(map_task == number)) for number in range(maps)]


@pytest.mark.parametrize("topology", TOPOLOGIES)
@pytest.mark.parametrize("dealt", [False, True], ids=["stretches", "dealt"])
def test_many_chunks_cost_by_their_number(topology: str, dealt: bool) -> None:
    """Ten times as many chunks, of ten times as many map tasks, cost a task ten times as much, not a hundred times."""
    layout = prepared(TOPOLOGIES[topology])

    def lines(partitions: int, maps: int) -> int:
        tables = read_by_many(partitions, maps, dealt=dealt)
        packed = [dict(pack(layout, [table], [0, 1], contiguous=not dealt)) for table in tables]
        blobs = [[blob[task] for blob in packed] for task in (0, 1)]
        return lines_executed(lambda: [Stage(layout, tasks=2).step(DictStore(), mine) for mine in blobs])

    few, many = (lines(3, maps) if dealt else lines(10 * maps, maps) for maps in (6, 60))
    assert many < 12 * few


def test_few_records_of_each_of_many_partitions_are_no_chunks_of_their_own() -> None:
    """Records of 400 partitions, dealt to 4 map tasks in turns: five times as many cost about as much."""
    layout = prepared(TOPOLOGIES["tumbling, final"])

    def lines(records: int) -> int:
        tables = read_by_many(400, 4, dealt=True, records=records)
        return lines_executed(
            lambda: Stage(layout, tasks=2).step(DictStore(), [dict(pack(layout, [one], [0, 1]))[1] for one in tables])
        )

    assert lines(25) < 2 * lines(5)


class CountingStore(DictStore):
    """Counts the bytes that are read from it."""

    read_bytes = 0

    def get(self, name: str) -> bytes | None:
        found = super().get(name)
        self.read_bytes += len(found or b"")
        return found

    def read(self, window: int, segment: int) -> bytes:
        found = super().read(window, segment)
        self.read_bytes += len(found)
        return found


def bytes_read_by_a_small_batch(layout: Layout, open_entries: int, rows: int = 100, before: int = 0) -> int:
    """Bytes read by a small batch after a large one and `before` other small ones."""
    stage, store = Stage(layout, tasks=1), CountingStore()
    step = lambda batch: stage.step(store, [dict(pack(layout, [batch], [0]))[0]])  # noqa: E731
    step(events(open_entries, open_entries, 0))
    small = events(rows, rows, 0)
    for number in range(before + 1):
        store.read_bytes = 0
        offsets = pa.array(np.arange(rows) + open_entries + number * rows, pa.int64())
        step(small.set_column(small.schema.get_field_index("offset"), "offset", offsets))
    return store.read_bytes


def test_final_results_read_no_state_until_a_window_closes() -> None:
    """An update appends, so the bytes that a batch reads do not grow with the open windows."""
    layout = prepared(lambda s: s.group_by_key().windowed_by(MINUTES.advance_by("20 seconds")).count().suppress(FINAL))
    few, many = (bytes_read_by_a_small_batch(layout, entries) for entries in (1_000, 50_000))
    assert many <= few + 64


def test_a_plain_table_reads_the_rows_of_its_keys_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """It reads copies of its runs, which the first small batch makes."""
    layout = prepared(lambda s: s.group_by_key().count())
    few, many = (bytes_read_by_a_small_batch(layout, entries, rows=3, before=1) for entries in (50_000, 500_000))
    assert many <= few + 64
    monkeypatch.setattr(sorted_runs, "COPIES", Copies())
    first = bytes_read_by_a_small_batch(layout, 50_000, rows=3)
    assert first > 100 * few


@pytest.mark.parametrize("windows", [MINUTES, MINUTES.advance_by("30 seconds")], ids=["tumbling", "hopping"])
def test_an_update_reads_the_rows_of_its_keys_alone(windows: Any) -> None:
    """The first small batch stores the windows by key, the second makes copies of them."""
    layout = prepared(lambda s: s.group_by_key().windowed_by(windows).agg(**AGGREGATES))
    few, many = (bytes_read_by_a_small_batch(layout, entries, rows=3, before=2) for entries in (50_000, 150_000))
    assert many <= few + 128


def test_a_large_window_is_dropped_unread_where_updates_alone_leave() -> None:
    layout = prepared(lambda s: s.group_by_key().windowed_by(MINUTES).agg(**AGGREGATES))
    stage, store = Stage(layout, tasks=1), CountingStore()
    step = lambda batch: stage.step(store, [dict(pack(layout, [batch], [0]))[0]])  # noqa: E731
    step(events(50_000, 50_000, 0))
    step(events(3, 3, 0).set_column(4, "offset", pa.array([50_000, 50_001, 50_002])))
    assert sum(map(len, store.log.values())) > 100_000
    store.read_bytes = 0
    step(events(1, 1, 9))
    assert store.read_bytes < 10_000
    assert sum(map(len, store.log.values())) < 10_000


@pytest.mark.parametrize("room", [64 << 20, 0], ids=["small", "large"])
def test_a_limit_reads_no_index_of_its_keys_anew(room: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """A worker runs the steps of many tasks in turns. Where their indexes have no room it keeps four."""
    monkeypatch.setattr(key_index, "_BYTES", room)
    monkeypatch.setattr(key_index, "_cache", {})
    limit = tg.Suppressed.until_time_limit("1 hour", tg.BufferConfig.unbounded(), clock="stream")
    layout, tasks = prepared(lambda s: s.group_by_key().count().suppress(limit)), 6
    stage, stores = Stage(layout, tasks), [CountingStore() for _ in range(tasks)]

    def step(batch: pa.RecordBatch) -> list[int]:
        for task, blob in pack(layout, [batch], range(tasks)):
            stores[task].read_bytes = 0
            stage.step(stores[task], [blob])
        return [store.read_bytes for store in stores]

    step(events(60_000, 60_000, 0))
    small = events(50, 50, 0)
    for number in range(3):
        offsets = pa.array(np.arange(50) + 60_000 + 50 * number, pa.int64())
        read = step(small.set_column(small.schema.get_field_index("offset"), "offset", offsets))
    assert (max(read) < 20_000) == (room > 0)
    assert len(key_index._cache) == (tasks if room else 4)


@pytest.mark.parametrize("room", [64 << 20, 100], ids=["room", "no room"])
def test_a_copy_is_held_without_a_look_at_all_others(room: int) -> None:
    """A batch may hold thousands of copies: of each large window, or of each stretch of a join."""
    few, tuning = Numbers.of(np.array([1_000, 2_000])), Tuning(copy_bytes=room, copy_files=20)

    def lines(count: int) -> int:
        copies = Copies()

        def hold() -> None:
            for number in range(count):
                kinds: list[Held] = [few, Parked(InMemory(b""))]
                copies.put(Partition("task", number), f"{number}", kinds[number % 2], tuning)
                copies.get(f"{number // 2}")

        return lines_executed(hold)

    assert lines(2_000) < 12 * lines(200)


WAITING: dict[str, Callable[[], tg.KStream]] = {
    "streams": lambda: tg.stream("ahead", key="k", timestamp="ts", idle_after="1 day").left_join(
        tg.stream("other", key="k", timestamp="ts"), tg.JoinWindows.of_time_difference_with_no_grace("2 ms")
    ),
    "stream and table": lambda: tg.stream(
        "ahead", key="k", timestamp="ts", partition="p", offset="o", stream_time="min_partition"
    ).left_join(tg.table("other", key="k", timestamp="ts", history="1 day"), grace="2 ms"),
}


@pytest.mark.parametrize("join", WAITING)
@pytest.mark.parametrize("side", ["ahead", "other"])
def test_a_join_looks_at_no_stretches_but_those_that_meet_or_close(join: str, side: str) -> None:
    """One side is far ahead, so that its open records are in hundreds of stretches."""

    def lines(stretches: int) -> int:
        driver = TopologyTestDriver(WAITING[join]())
        driver.pipe_input({"k": "A", "ts": 0, "w": 1}, "other")
        driver.pipe_input({"k": "A", "ts": 0, "v": 1, "p": 0, "o": 0}, "ahead")
        far = [{"k": "A", "ts": 10 * n, "v": 1, "p": 1, "o": n} for n in range(1, stretches)]
        driver.pipe_batch(far, "ahead")
        last = {"k": "B", "ts": 10 * stretches, "v": 1, "p": 1, "o": stretches}
        return lines_executed(lambda: driver.pipe_input({"k": "A", "ts": 1, "w": 1} if side == "other" else last, side))

    lines(10)  # do one-time work before the count
    few, many = (lines(stretches) for stretches in (40, 300))
    assert many < 1.3 * few


def test_a_lookup_reads_the_waiting_records_that_are_due_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first batch in which records of a stretch are due makes copies of its runs, in the order of their times."""
    read = 0
    reading, read_copy = Overlay.read, InMemory.read

    def counting(self: Overlay, window: int, segment: int) -> bytes:
        nonlocal read
        value = reading(self, window, segment)
        read += len(value)
        return value

    def counting_copy(self: InMemory, starts: Any, lengths: Any) -> bytes:
        nonlocal read
        value = read_copy(self, starts, lengths)
        read += len(value)
        return value

    monkeypatch.setattr(Overlay, "read", counting)
    monkeypatch.setattr(InMemory, "read", counting_copy)

    def bytes_read(waiting: int) -> int:
        nonlocal read
        stream, table = (
            tg.stream("left", key="k", timestamp="ts"),
            tg.table("right", key="k", timestamp="ts", history="1 day"),
        )
        driver = TopologyTestDriver(stream.left_join(table, grace="1 hour"))
        driver.pipe_input({"k": "k1", "b": 1, "ts": 0}, "right")
        driver.pipe_batch([{"k": f"k{n}", "a": n, "ts": 1_000 * n} for n in range(10)], "left")
        driver.pipe_batch([{"k": f"w{n}", "a": -n, "ts": 10_000 + n % 800_000} for n in range(waiting)], "left")
        for n in range(3):
            read = 0
            driver.pipe_input({"k": "now", "a": 0, "ts": 3_600_500 + 1_000 * n}, "left")
        found = read
        assert [(row["a"], row["b"]) for row in driver.read_output()] == [(0, None), (1, 1), (2, None)]
        assert driver.pending().lookups == tg.Lookups(3_603_000, 3_602_500, waiting + 7 + 3)
        return found

    few, many = bytes_read(1_000), bytes_read(30_000)
    assert many < few + 512
