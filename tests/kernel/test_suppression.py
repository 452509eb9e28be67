"""Time limits by the wall clock: rows leave on time with every buffer, though no record comes."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import tidegate as tg
from tidegate.errors import BufferFullError
from tidegate.kernel.state.state import State
from tidegate.kernel.suppress.time_buckets import newest
from tidegate.kernel.tuning import Tuning
from tidegate.testing import TopologyTestDriver, layout

Row = dict[str, Any]


def wall(limit: str = "10 ms", buffer: tg.Buffer | None = None, measured_from: str = "first_update") -> Any:
    return tg.Suppressed.until_time_limit(
        limit, buffer or tg.BufferConfig.unbounded(), clock="wall", measured_from=measured_from
    )


def prices(suppressed: Any) -> tg.KTable:
    return tg.table("prices", key="k", timestamp="ts", deleted="gone").suppress(suppressed)


def record(key: str, ts: int, price: int | None = 0) -> Row:
    return {"k": key, "ts": ts, "price": price, "gone": price is None}


def out(driver: TopologyTestDriver) -> list[tuple[str, int]]:
    return [(row["k"], row["price"]) for row in driver.read_output()]


def test_an_update_leaves_on_time_though_no_record_comes() -> None:
    """
    wall     0    4         10   12        22
    in       A=1  A=2            B=3
    out                     A=2            B=3
    """
    driver = TopologyTestDriver(prices(wall()))
    driver.pipe_input(record("A", 1_000, 1))
    driver.advance_wall_clock("4 ms")
    driver.pipe_input(record("A", 9_000_000, 2))  # stream time does not matter
    driver.advance_wall_clock("5 ms")
    assert out(driver) == []
    driver.advance_wall_clock("1 ms")
    assert out(driver) == [("A", 2)]
    driver.advance_wall_clock("2 ms")
    driver.pipe_input(record("B", 0, 3))
    driver.advance_wall_clock("9 ms")
    assert out(driver) == []
    driver.advance_wall_clock("1 ms")
    assert out(driver) == [("B", 3)]


def test_the_latest_update_starts_again() -> None:
    driver = TopologyTestDriver(prices(wall(measured_from="latest_update")))
    for price in (1, 2, 3):
        driver.pipe_input(record("A", 0, price))
        driver.advance_wall_clock("9 ms")
    assert out(driver) == []
    driver.advance_wall_clock("1 ms")
    assert out(driver) == [("A", 3)]


def test_window_start_is_compared_with_the_wall_clock() -> None:
    windows = tg.TimeWindows.of_size_and_grace("10 ms", "1 hour")
    counts = tg.stream("events", key="k", timestamp="ts").group_by_key().windowed_by(windows).count()
    driver = TopologyTestDriver(counts.suppress(wall(measured_from="window_start")))
    driver.advance_wall_clock("24 ms")
    driver.pipe_input({"k": "A", "ts": 25})
    driver.pipe_input({"k": "B", "ts": 13})  # [10, 20): since 10, so it is due
    assert [(row["k"], row["window"].start) for row in driver.read_output()] == [("B", 10)]
    driver.advance_wall_clock("6 ms")
    assert [(row["k"], row["window"].start) for row in driver.read_output()] == [("A", 20)]


@pytest.mark.parametrize("buffer", [tg.BufferConfig.unbounded(), tg.BufferConfig.max_records(9)], ids=str)
def test_a_limit_of_zero_from_the_start_of_a_window_waits_for_it(buffer: tg.Buffer) -> None:
    windows = tg.TimeWindows.of_size_and_grace("10 ms", "1 hour")
    counts = tg.stream("events", key="k", timestamp="ts").group_by_key().windowed_by(windows).count()
    driver = TopologyTestDriver(counts.suppress(wall("0 ms", buffer, measured_from="window_start")))
    driver.advance_wall_clock("24 ms")
    driver.pipe_batch([{"k": "A", "ts": 35}, {"k": "B", "ts": 13}, {"k": "A", "ts": 36}, {"k": "B", "ts": 24}])
    assert [(row["k"], row["window"].start) for row in driver.read_output()] == [("B", 10), ("B", 20)]
    driver.advance_wall_clock("6 ms")
    assert [(row["k"], row["count"]) for row in driver.read_output()] == [("A", 2)]


def test_final_results_may_be_limited_too() -> None:
    windows = tg.TimeWindows.of_size_with_no_grace("10 ms")
    counts = tg.stream("events", key="k", timestamp="ts").group_by_key().windowed_by(windows).count()
    final = counts.suppress(tg.Suppressed.until_window_closes(tg.BufferConfig.unbounded())).suppress(wall())
    driver = TopologyTestDriver(final)
    driver.pipe_input({"k": "A", "ts": 0})
    driver.pipe_input({"k": "B", "ts": 10})
    assert driver.read_output() == []
    driver.advance_wall_clock("10 ms")
    assert [row["k"] for row in driver.read_output()] == ["A"]


def test_ties_leave_by_key_and_tombstones_leave_too() -> None:
    driver = TopologyTestDriver(prices(wall()))
    driver.pipe_batch([record("B", 5, 1), record("A", 9, 2), record("C", 1, None)])
    driver.advance_wall_clock("1 day")
    assert out(driver) == [("A", 2), ("B", 1), ("C", None)]


def test_a_limit_of_zero_lets_everything_through_and_out() -> None:
    driver = TopologyTestDriver(prices(wall()))
    driver.pipe_input(record("A", 0, 1))
    retired = TopologyTestDriver(prices(wall("0 ms")), state=driver.state())
    retired.advance_wall_clock("0 ms")
    assert out(retired) == [("A", 1)]
    retired.pipe_batch([record("B", 0, 2), record("B", 0, 3)])
    assert out(retired) == [("B", 2), ("B", 3)]


def test_a_buffer_that_is_full_emits_early_or_stops() -> None:
    early = TopologyTestDriver(prices(wall(buffer=tg.BufferConfig.max_records(1))))
    early.pipe_input(record("B", 0, 1))
    early.advance_wall_clock("1 ms")
    early.pipe_input(record("A", 0, 2))
    assert out(early) == [("B", 1)]
    strict = TopologyTestDriver(prices(wall(buffer=tg.BufferConfig.max_records(1).shut_down_when_full())))
    strict.pipe_input(record("B", 0, 1))
    with pytest.raises(BufferFullError):
        strict.pipe_input(record("A", 0, 2))
    spilling = TopologyTestDriver(prices(wall(buffer=tg.BufferConfig.max_records(1).spill_to_disk_when_full())))
    spilling.pipe_batch([record("B", 0, 1), record("A", 0, 2)])
    assert out(spilling) == []


def test_nothing_happens_before_the_first_record() -> None:
    driver = TopologyTestDriver(prices(wall()))
    driver.advance_wall_clock("1 hour")
    assert out(driver) == []
    driver.pipe_input(record("A", 0, 1))
    assert out(driver) == []
    driver.advance_wall_clock("10 ms")
    assert out(driver) == [("A", 1)]


def test_the_wall_clock_does_not_go_back() -> None:
    with pytest.raises(tg.DefinitionError, match="the wall clock does not go back"):
        TopologyTestDriver(prices(wall())).advance_wall_clock("-1 ms")


def test_what_waits_by_the_wall_clock_leaves_before_a_limit_by_stream_time_begins() -> None:
    driver = TopologyTestDriver(prices(wall()))
    driver.pipe_input(record("A", 0, 1))
    by_stream_time = tg.Suppressed.until_time_limit("10 ms", tg.BufferConfig.unbounded(), clock="stream")
    driver = TopologyTestDriver(prices(by_stream_time), state=driver.state())
    driver.pipe_input(record("A", 1, 2))
    assert out(driver) == [("A", 1)]
    driver.pipe_input(record("B", 11, 3))
    assert out(driver) == [("A", 2)]


steps = st.lists(
    st.one_of(
        st.integers(1, 12),
        st.lists(st.builds(record, st.sampled_from("ABC"), st.integers(0, 9), st.integers(0, 99)), min_size=1),
    ),
    max_size=20,
)


@given(steps, st.integers(0, 15), st.booleans(), st.booleans())
def test_any_schedule_is_what_a_slow_reading_of_the_rule_gives(
    schedule: list[Any], limit: int, debounce: bool, restarts: bool
) -> None:
    """Each step emits every due key, oldest first, ties by key; with restarts between any two steps."""
    table = prices(wall(f"{limit} ms", measured_from="latest_update" if debounce else "first_update"))
    driver = TopologyTestDriver(table)
    now, waiting = 0, {}
    for step in schedule:
        expected = []

        def leave(until: int) -> None:
            for key, (since, price) in sorted(waiting.items(), key=lambda item: (item[1][0], item[0])):
                if since + limit <= until:
                    expected.append((key, price))  # noqa: B023 - called in this turn of the loop only
                    del waiting[key]

        if isinstance(step, int):
            now += step
            driver.advance_wall_clock(f"{step} ms")
        else:
            driver.pipe_batch(step)
            for row in step:
                since = waiting[row["k"]][0] if row["k"] in waiting and not debounce else now
                waiting[row["k"]] = (since, row["price"])
                leave(now)
        leave(now)
        assert out(driver) == expected
        if restarts:
            driver = TopologyTestDriver(table, state=driver.state())


def test_each_task_keeps_to_its_share_of_a_bound() -> None:
    """Five records over two tasks: three and two. What is in the buffer is never more, and nothing is lost."""
    held = tg.Suppressed.until_time_limit("1 hour", tg.BufferConfig.max_records(5), clock="stream")
    keys = [f"k{n}" for n in range(40)]
    batches = [[record(key, n, n)] for n, key in enumerate(keys)]
    rows, _ = layout.run(prices(held), batches, tasks=2, splits=[[batch] for batch in batches])
    assert len(rows) == 35
    assert len({row["k"] for row in rows}) == 35
    strict = tg.Suppressed.until_time_limit(
        "1 hour", tg.BufferConfig.max_records(5).shut_down_when_full(), clock="stream"
    )
    with pytest.raises(
        BufferFullError, match=r"\[[34]/[23]\] records .* \(the share of one of 2 tasks of at most 5 records"
    ):
        layout.run(prices(strict), batches, tasks=2, splits=[[batch] for batch in batches])


@pytest.mark.parametrize(
    ("make", "values", "size"),
    [
        pytest.param(lambda w: w.count(), [1], 8 + 8, id="count: prior 0, new"),
        pytest.param(lambda w: w.count(), [1, 1], 8 + 8 + 8, id="count: prior 0, old 1, new 2"),
        pytest.param(lambda w: w.agg(x=tg.sum("v")), [1, 1], 8 + 8, id="sum: no prior, old, new"),
        pytest.param(lambda w: w.agg(x=tg.last("v")), ["abc", "z"], 3 + 1, id="strings by their length"),
    ],
)
def test_the_bytes_of_an_entry(make: Any, values: list[Any], size: int) -> None:
    """As behind `until_window_closes`: 16 for times, the key with 8 for its window, prior, old and new value."""
    size += 16 + 8 + len("key")
    windowed = tg.stream("events", key="k", timestamp="ts").group_by_key()
    table = make(windowed.windowed_by(tg.TimeWindows.of_size_and_grace("10 ms", "1 hour")))
    for bound, stops in ((size, False), (size - 1, True)):
        buffer = tg.BufferConfig.max_bytes(bound).shut_down_when_full()
        driver = TopologyTestDriver(table.suppress(tg.Suppressed.until_time_limit("1 hour", buffer, clock="stream")))
        for value in values[:-1]:
            driver.pipe_input({"k": "key", "ts": 0, "v": value})
        if stops:
            with pytest.raises(BufferFullError, match=rf"records and \[{size}/{bound}\] bytes"):
                driver.pipe_input({"k": "key", "ts": 0, "v": values[-1]})
        else:
            driver.pipe_input({"k": "key", "ts": 0, "v": values[-1]})


@pytest.mark.parametrize(("bound", "rows"), [(16 + 3 + 8 + 8, 0), (16 + 3 + 8 + 8 - 1, 1)])
def test_a_final_result_replaces_nothing(bound: int, rows: int) -> None:
    """Found by parity with Kafka Streams (seed 20261141): emitted on close it has no old value, not even the 0."""
    windowed = tg.stream("events", key="k", timestamp="ts").group_by_key()
    windowed = windowed.windowed_by(tg.TimeWindows.of_size_with_no_grace("10 ms"))
    counts = windowed.emit_strategy(tg.EmitStrategy.on_window_close()).count()
    limit = tg.Suppressed.until_time_limit("1 hour", tg.BufferConfig.max_bytes(bound), clock="stream")
    driver = TopologyTestDriver(counts.suppress(limit))
    for ts in (0, 10):
        driver.pipe_input({"k": "key", "ts": ts})
    assert len(driver.read_output()) == rows


def test_what_a_key_held_before_it_waited_counts() -> None:
    """A count that has left and comes again replaces what it was: prior 1, old 1 (the same, counted once), new 2."""
    table = tg.stream("events", key="k", timestamp="ts").group_by_key().count()
    for bound, rows in ((16 + 3 + 8 + 8, 0), (16 + 3 + 8 + 8 - 1, 1)):
        buffer = tg.BufferConfig.max_bytes(bound)
        driver = TopologyTestDriver(table.suppress(tg.Suppressed.until_time_limit("10 ms", buffer, clock="stream")))
        for ts in (0, 10):
            driver.pipe_input({"k": "key", "ts": ts, "v": 0})
        assert [row["count"] for row in driver.read_output()][-1:] == [2]
        driver.pipe_input({"k": "key", "ts": 11, "v": 0})
        assert len(driver.read_output()) == rows


def test_the_old_value_counts_where_it_is_not_the_prior_one() -> None:
    """A table gives abc, which leaves, then de (prior abc), then f: prior abc, old de, new f."""
    size = 16 + len("k") + len("abc") + len("de") + len("f")
    for bound, stops in ((size, False), (size - 1, True)):
        buffer = tg.BufferConfig.max_bytes(bound).shut_down_when_full()
        prices_ = tg.table("prices", key="k", timestamp="ts")
        driver = TopologyTestDriver(prices_.suppress(tg.Suppressed.until_time_limit("10 ms", buffer, clock="stream")))
        for ts, price in ((0, "abc"), (10, "abc"), (11, "de")):
            driver.pipe_input({"k": "k", "ts": ts, "price": price})
        restarted = TopologyTestDriver(
            prices_.suppress(tg.Suppressed.until_time_limit("10 ms", buffer, clock="stream")), state=driver.state()
        )
        if stops:
            with pytest.raises(BufferFullError, match=rf"\[{size}/{bound}\] bytes"):
                restarted.pipe_input({"k": "k", "ts": 12, "price": "f"})
        else:
            restarted.pipe_input({"k": "k", "ts": 12, "price": "f"})


@pytest.mark.parametrize("between", [tg.BufferConfig.unbounded(), tg.BufferConfig.max_records(9)], ids=str)
def test_old_values_are_forgotten_while_a_limit_counts_no_bytes(between: tg.Buffer) -> None:
    """A bound in bytes that comes back does not know the last value that left, and counts none."""

    def limited(buffer: tg.Buffer) -> tg.KTable:
        limit = tg.Suppressed.until_time_limit("10 ms", buffer, clock="stream")
        return tg.table("prices", key="k", timestamp="ts").suppress(limit)

    driver = TopologyTestDriver(limited(tg.BufferConfig.max_bytes(60)))
    for buffer, times, price in (
        (tg.BufferConfig.max_bytes(60), (0, 10), "abcdef"),
        (between, (20, 30), "gh"),
        (tg.BufferConfig.max_bytes(60), (40,), "xyz"),
    ):
        driver = TopologyTestDriver(limited(buffer), state=driver.state())
        for ts in times:
            driver.pipe_input({"k": "key", "ts": ts, "price": price})
            assert len(driver.read_output()) == (ts in (10, 30))
    assert driver.metrics()["suppression_buffer_size_current"] == 16 + len("key") + len("xyz")


def test_bytes_behind_a_step_are_those_of_its_columns() -> None:
    """map_values makes two strings of a count. Its result for a missing record is not known and counts nothing."""
    table = tg.stream("events", key="k", timestamp="ts").group_by_key().count()
    shown = table.map_values(
        {"a": lambda row: "x" * row["count"], "b": lambda row: "y"}, types={"a": "string", "b": "string"}
    )
    size = 16 + len("key") + len("x") + len("y") + len("xx") + len("y")
    for bound, stops in ((size, False), (size - 1, True)):
        buffer = tg.BufferConfig.max_bytes(bound).shut_down_when_full()
        driver = TopologyTestDriver(shown.suppress(tg.Suppressed.until_time_limit("1 second", buffer, clock="stream")))
        driver.pipe_input({"k": "key", "ts": 0, "v": 0})
        if stops:
            with pytest.raises(BufferFullError, match=rf"\[{size}/{bound}\] bytes"):
                driver.pipe_input({"k": "key", "ts": 1, "v": 0})
        else:
            driver.pipe_input({"k": "key", "ts": 1, "v": 0})


@pytest.mark.parametrize(
    "table",
    [
        pytest.param(tg.table("present", key="k", timestamp="ts"), id="table of keys"),
        pytest.param(tg.table("prices", key="k", timestamp="ts").map_values({}), id="no values behind a step"),
    ],
)
def test_an_entry_without_values_counts_its_key_and_times(table: tg.KTable) -> None:
    size = 16 + len("key")
    for bound, stops in ((size, False), (size - 1, True)):
        buffer = tg.BufferConfig.max_bytes(bound).shut_down_when_full()
        driver = TopologyTestDriver(table.suppress(tg.Suppressed.until_time_limit("10 ms", buffer, clock="stream")))
        if stops:
            with pytest.raises(BufferFullError, match=rf"\[{size}/{bound}\] bytes"):
                driver.pipe_input({"k": "key", "ts": 0})
            continue
        driver.pipe_input({"k": "key", "ts": 0})
        driver.pipe_input({"k": "key", "ts": 10})
        assert [row["timestamp"] for row in driver.read_output()] == [10]


def test_rows_that_waited_without_a_bound_count_as_if_their_keys_had_no_value_before() -> None:
    """A count is 0 then. The next update of the key counts as if it replaced this 0."""

    def limited(buffer: tg.Buffer) -> tg.KTable:
        counts = tg.stream("events", key="k", timestamp="ts").group_by_key().count()
        return counts.suppress(tg.Suppressed.until_time_limit("1 s", buffer, clock="stream"))

    driver = TopologyTestDriver(limited(tg.BufferConfig.unbounded()))
    for ts in (1, 2):
        driver.pipe_input(record("A", ts))
    driver = TopologyTestDriver(limited(tg.BufferConfig.max_bytes(10**6)), state=driver.state())
    entry = 16 + len("A") + 8 + 8
    for key in "BA":
        driver.pipe_input(record(key, 3))
        assert driver.metrics()["suppression_buffer_size_current"] == 2 * entry


@pytest.mark.parametrize("clock", ["stream", "wall"])
@pytest.mark.parametrize("behind", ["groups", "a bound in bytes"])
def test_old_values_of_a_closed_window_are_forgotten_once_no_row_of_it_waits(clock: Any, behind: str) -> None:
    """A limit emits rows of a window after it has closed: they replace the window's last row, then nothing does."""
    windows = tg.TimeWindows.of_size_with_no_grace("10 ms")
    counts = tg.stream("events", key="k", timestamp="ts").group_by_key().windowed_by(windows).count()
    held = counts.suppress(tg.Suppressed.until_time_limit("5 ms", tg.BufferConfig.unbounded(), clock=clock))
    bound = tg.Suppressed.until_time_limit("1 hour", tg.BufferConfig.max_bytes(10**6), clock="wall")
    table = held.group_by("k").agg(total=tg.sum("count")) if behind == "groups" else held.suppress(bound)
    driver, stored = TopologyTestDriver(table), []
    for ts in (1, 6, 7, 8, 12, 13, *range(20, 300, 7)):
        driver.advance_wall_clock(f"{ts - driver.wall_clock // timedelta(milliseconds=1)} ms")
        driver.pipe_input({"k": "a", "ts": ts})
        state = State.open(driver.state().stores[0])
        assert state is not None
        stored.append(state.old_values.totals().rows + state.old_values_of_limit(1).totals().rows)
    assert max(stored) <= 2
    if behind == "groups":
        # The row of [0, 10) with all 4 records leaves behind its close, and takes the row before it out of the group.
        assert [row["total"] for row in driver.read_output()][1] == 4


@pytest.mark.parametrize("clock", ["stream", "wall"])
@pytest.mark.parametrize("bound", [tg.BufferConfig.max_records(5), tg.BufferConfig.max_bytes(5_000)], ids=str)
def test_rows_without_values_leave_a_bounded_buffer_as_an_unbounded_one(bound: tg.Buffer, clock: Any) -> None:
    left = []
    for buffer in (tg.BufferConfig.unbounded(), bound):
        present = tg.table("present", key="k", timestamp="ts", deleted="gone")
        limit = tg.Suppressed.until_time_limit("10 ms", buffer, clock=clock)
        driver = TopologyTestDriver(present.suppress(limit))
        for key, ts, gone in (("a", 1, False), ("b", 5, False), ("a", 8, True), ("c", 30, False)):
            driver.pipe_input({"k": key, "ts": ts, "gone": gone})
            driver.advance_wall_clock("4 ms")
        left.append(driver.read_output())
    assert left[0] == left[1]
    assert [(row["k"], row["deleted"]) for row in left[0]] == [("a", True), ("b", False)]


def until_zero(key: Any, row: Row, so_far: int) -> int | None:
    """A sum that a zero deletes."""
    return so_far + row["v"] if row["v"] else None


@pytest.mark.parametrize("at_once", [True, False], ids=["one batch", "one by one"])
@pytest.mark.parametrize("tasks", [0, 1, 3], ids=["driver", "1 task", "3 tasks"])
@pytest.mark.parametrize("clock", ["stream", "wall"])
def test_an_entry_that_begins_again_comes_behind_its_deletion(clock: Any, tasks: int, at_once: bool) -> None:
    """The deleted entry was at 9, the record that begins it again is at 4."""
    schema = pa.schema([("k", pa.string()), *((name, pa.int64()) for name in ("ts", "v", "p", "o"))])
    stream = tg.stream("events", key="k", timestamp="ts", partition="p", offset="o", schema=schema)
    store = tg.Materialized.as_("sums").with_caching_disabled()
    sums = stream.group_by_key().aggregate(lambda: 0, until_zero, type="long", materialized=store)
    table = sums.suppress(tg.Suppressed.until_time_limit("10 ms", tg.BufferConfig.unbounded(), clock=clock))
    records = [{"k": "a", "ts": ts, "v": v, "p": 0, "o": o} for o, (ts, v) in enumerate([(9, 1), (9, 0), (4, 5)])]
    batches = [records] if at_once else [[one] for one in records]
    if tasks:
        plan = layout.Tasks(table.node, tasks)
        rows = [row for batch in batches for row in plan.batch([(None, batch)], 0)]
        rows += layout.Tasks(table.node, tasks, plan, drains=True).drain()
    else:
        driver = TopologyTestDriver(table)
        for batch in batches:
            driver.pipe_batch(batch)
        driver.drain()
        rows = driver.read_output()
    assert [(row["aggregate"], row["timestamp"], row["deleted"]) for row in rows] == [(5, 4, False)]


# -- by stream time ------------------------------------------------------------------------------------------------


def by_stream_time(buffer: tg.Buffer, measured_from: str = "first_update") -> Any:
    return tg.Suppressed.until_time_limit("10 ms", buffer, clock="stream", measured_from=measured_from)


NO_UPDATE = [{"k": "Z", "ts": 99, "price": 5}, {"k": "Z", "ts": 100, "price": 0}]
"""Records whose result is deleted in their own batch."""


def latest(buffer: tg.Buffer) -> TopologyTestDriver:
    grouped = tg.stream("events", key="k", timestamp="ts").group_by_key()
    return TopologyTestDriver(grouped.reduce(lambda _, price: price or None, "price").suppress(by_stream_time(buffer)))


def test_rows_leave_a_buffer_that_was_full_when_time_moves_on_without_an_update() -> None:
    driver = latest(tg.BufferConfig.max_records(2))
    driver.pipe_batch([record("A", 1, 1), record("B", 2, 2), record("C", 3, 3), *NO_UPDATE])
    assert out(driver) == [("A", 1), ("B", 2), ("C", 3)]


def test_a_row_that_was_due_before_its_key_came_again_leaves_first() -> None:
    driver = latest(tg.BufferConfig.max_records(2))
    driver.pipe_batch([record("A", 5, 1), record("B", 6, 2)])
    driver.pipe_batch([record("C", 7, 3), *NO_UPDATE, record("B", 101, 4)])
    assert out(driver) == [("A", 1), ("B", 2), ("C", 3)]
    driver.drain()
    assert out(driver) == [("B", 4)]


def test_the_largest_content_of_a_buffer_is_taken_behind_rows_that_were_due() -> None:
    driver = latest(tg.BufferConfig.max_records(3))
    driver.pipe_batch([record("A", 1, 1), record("B", 2, 2), *NO_UPDATE, record("C", 101, 3)])
    assert out(driver) == [("A", 1), ("B", 2)]
    assert driver.metrics()["suppression_buffer_count_max"] == 2


@pytest.mark.parametrize(
    ("measured_from", "first", "second"),
    [("latest_update", ("B", 2), ("A", 3)), ("first_update", ("A", 3), ("B", 2))],
)
def test_one_of_its_updates_decides_who_leaves_a_full_buffer_first(measured_from: str, first: Any, second: Any) -> None:
    driver = TopologyTestDriver(prices(by_stream_time(tg.BufferConfig.max_records(2), measured_from)))
    driver.pipe_batch([record("A", 1, 1), record("B", 2, 2), record("A", 9, 3), record("C", 10, 4)])
    assert out(driver) == [first]
    driver.pipe_input(record("D", 19, 5))
    assert out(driver) == [second]


def test_the_first_update_counts_however_often_its_bucket_is_compacted() -> None:
    driver = TopologyTestDriver(prices(by_stream_time(tg.BufferConfig.unbounded())), tuning=Tuning(bucket_segments=1))
    for ts in range(1, 11):
        driver.pipe_input(record("A", ts, ts))
    assert out(driver) == []
    driver.pipe_input(record("B", 11, 11))
    assert out(driver) == [("A", 10)]


def test_the_time_of_a_key_in_a_compacted_bucket() -> None:
    codes, since = np.array([0, 1, 0]), np.array([5, 6, 9])
    assert [part.tolist() for part in newest(codes, since, restarts=False)] == [[2, 1], [5, 6]]
    assert [part.tolist() for part in newest(codes, since, restarts=True)] == [[2, 1], [9, 6]]


@pytest.mark.filterwarnings("ignore::tidegate.TidegateWarning")
@pytest.mark.parametrize("buffer", [tg.BufferConfig.unbounded(), tg.BufferConfig.max_records(9)], ids=str)
def test_an_update_at_the_instant_when_its_key_is_due_begins_the_wait_again(buffer: tg.Buffer) -> None:
    driver = TopologyTestDriver(prices(by_stream_time(buffer, "latest_update")))
    for ts in (1, 11, 20):
        driver.pipe_input(record("A", ts, ts))
    assert out(driver) == []
    driver.pipe_batch([record("A", 30, 30), record("A", 40, 40), record("B", 50, 1)])
    assert out(driver) == [("A", 40)]
