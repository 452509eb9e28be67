"""Stream time by the wall clock: idle partitions, idle input, and clocks that run ahead."""

from __future__ import annotations

from collections import Counter
from datetime import UTC, datetime, timedelta
from random import Random
from typing import Any

import pyarrow as pa
import pytest

import tidegate as tg
from tidegate.kernel.state import frames
from tidegate.testing import TopologyTestDriver, layout

FINAL = tg.Suppressed.until_window_closes(tg.BufferConfig.unbounded())
SECOND = 1_000
MINUTE = 60 * SECOND
ORDER = {"partition": "p", "offset": "o"}
SCHEMA = pa.schema([("k", pa.string()), ("ts", pa.int64()), ("p", pa.int32()), ("o", pa.int64())])


def counts(size: str = "10 seconds", **stream: Any) -> tg.KTable:
    events = tg.stream("events", key="k", timestamp="ts", **stream)
    return events.group_by_key().windowed_by(tg.TimeWindows.of_size_with_no_grace(size)).count().suppress(FINAL)


def out(driver: TopologyTestDriver) -> list[tuple[Any, ...]]:
    return [(row["k"], row["window"].start, row["count"]) for row in driver.read_output()]


# --- max_future_skew -----------------------------------------------------------------------------------------------


def test_a_record_of_a_clock_that_runs_ahead_is_kept_out() -> None:
    driver = TopologyTestDriver(counts(max_future_skew="5 minutes"))
    driver.pipe_batch([{"k": "A", "ts": 0}, {"k": "A", "ts": 5 * MINUTE}])  # just in time
    driver.pipe_batch([{"k": "A", "ts": 5 * MINUTE + 1}, {"k": "B", "ts": 90 * MINUTE}, {"k": "B", "ts": 5 * MINUTE}])
    assert driver.drops == {"late": 0, "null_key": 0, "null_value": 0, "bad_timestamp": 0, "future": 2}
    assert driver.dropped == 2
    assert driver.metrics()["stream_time"] == 5 * MINUTE
    assert driver.metrics()["records"] == 3
    assert out(driver) == [("A", 0, 1)]


def test_the_wall_clock_goes_on_and_so_does_what_is_ahead_of_it() -> None:
    driver = TopologyTestDriver(counts(max_future_skew="0 seconds"))
    driver.pipe_input({"k": "A", "ts": 1})
    driver.advance_wall_clock("10 seconds")
    driver.pipe_batch([{"k": "A", "ts": 10 * SECOND}, {"k": "A", "ts": 10 * SECOND + 1}])
    assert (driver.drops["future"], driver.metrics()["stream_time"]) == (2, 10 * SECOND)


def test_the_driver_may_begin_at_any_time() -> None:
    today = datetime(2026, 7, 1, tzinfo=UTC)
    driver = TopologyTestDriver(counts(max_future_skew="1 second"), initial_wall_clock_time=today)
    driver.pipe_batch([{"k": "A", "ts": today}, {"k": "A", "ts": datetime(2026, 7, 2, tzinfo=UTC)}])
    assert driver.drops["future"] == 1
    again = TopologyTestDriver(counts(max_future_skew="1 second"), state=driver.state())
    again.pipe_input({"k": "A", "ts": today})
    assert again.drops["future"] == 0


@pytest.mark.parametrize(("restart", "leaves"), [(0, False), (109, False), (110, True)])
def test_time_may_pass_before_a_restart(restart: int, leaves: bool) -> None:
    calm = tg.Suppressed.until_time_limit("10 ms", tg.BufferConfig.unbounded(), clock="wall")
    table = tg.stream("events", key="k", timestamp="ts").group_by_key().count().suppress(calm)
    driver = TopologyTestDriver(table, initial_wall_clock_time=100)
    driver.pipe_input({"k": "A", "ts": 1})
    again = TopologyTestDriver(table, state=driver.state(), initial_wall_clock_time=restart)
    assert again.wall_clock == timedelta(milliseconds=max(restart, 100))
    again.pipe_input({"k": "B", "ts": 2})
    assert [row["k"] for row in again.read_output()] == ["A"] * leaves


def test_without_a_guard_nothing_is_said_of_the_future() -> None:
    driver = TopologyTestDriver(counts())
    driver.pipe_input({"k": "A", "ts": 10**12})
    assert driver.drops == {"late": 0, "null_key": 0, "null_value": 0, "bad_timestamp": 0}


def test_a_record_that_is_bad_for_another_reason_is_counted_once() -> None:
    driver = TopologyTestDriver(counts(max_future_skew="1 second"))
    driver.pipe_batch([{"k": None, "ts": 10**12}, {"k": "A", "ts": 10**12}, {"k": "A", "ts": None}])
    assert driver.drops == {"late": 0, "null_key": 1, "null_value": 0, "bad_timestamp": 1, "future": 1}


def test_a_record_that_is_ahead_is_not_lost() -> None:
    stream = tg.stream("events", key="k", timestamp="ts", max_future_skew="1 second")
    windowed = stream.group_by_key().windowed_by(tg.TimeWindows.of_size_with_no_grace("10 seconds"))
    driver = TopologyTestDriver(tg.outputs(late=windowed.count().late_records()))
    driver.pipe_batch([{"k": "A", "ts": 1, "v": 5}, {"k": "A", "ts": 10**12, "v": 7}])
    [row] = driver.read_output()
    assert (row["reason"], row["v"], row["late_by"], row["stream_time"]) == ("future", 7, None, 1)


@pytest.mark.parametrize("how", ["a stream", "itself", "a table"])
def test_a_null_key_that_is_ahead_does_not_leave_alone(how: str) -> None:
    """On a preserved side a null key is no reason to skip a record, so that the future is the only one."""
    schema = pa.schema([("k", pa.string()), ("ts", pa.int64()), ("x", pa.int64())])
    clock: dict[str, Any] = {"stream_time": "max", "max_future_skew": "1 minute"}
    left, right = (tg.stream(name, key="k", timestamp="ts", schema=schema, **clock) for name in "lr")
    windows = tg.JoinWindows.of_time_difference_with_no_grace("10 ms")
    joined = {
        "a stream": lambda: left.left_join(right, windows, suffixes=("", "_again")),
        "itself": lambda: left.left_join(left, windows, suffixes=("", "_again")),
        "a table": lambda: left.left_join(tg.table("t", key="k", timestamp="ts")),
    }[how]()
    driver = TopologyTestDriver(tg.outputs(joined=joined, late=joined.late_records()))
    piped = [{"k": None, "ts": ts, "x": x} for x, ts in enumerate((MINUTE, MINUTE + 1, 10**12))]
    driver.pipe_batch(piped, *([] if how == "itself" else ["l"]))
    rows = driver.read_output()
    assert {(row["x"], row["timestamp"]) for row in rows if row["output"] == "joined"} == {(0, MINUTE)}
    assert [(row["x"], row["reason"]) for row in rows if row["output"] == "late"] == [(1, "future"), (2, "future")]
    assert (driver.drops["future"], driver.drops["null_key"]) == (2, 0)


def test_a_null_key_that_is_ahead_closes_no_window_behind_a_join() -> None:
    left, right = (
        tg.stream(name, key="k", timestamp="ts", stream_time="max", max_future_skew="1 minute") for name in "lr"
    )
    joined = left.left_join(right, tg.JoinWindows.of_time_difference_with_no_grace("10 ms"))
    windowed = joined.group_by("shop").windowed_by(tg.TimeWindows.of_size_with_no_grace("10 seconds"))
    driver = TopologyTestDriver(windowed.count().suppress(FINAL))
    times = {"A": (0, 20), None: (10**12,), "B": (SECOND, 20 * SECOND, 21 * SECOND)}
    for key, stamps in times.items():
        for ts in stamps:
            driver.pipe_input({"k": key, "ts": ts, "shop": 1}, "l")
    assert [row["count"] for row in driver.read_output()] == [3]
    assert (driver.drops["late"], driver.drops["future"]) == (0, 1)


# --- idle_advance --------------------------------------------------------------------------------------------------


def test_stream_time_goes_on_from_where_it_stood() -> None:
    driver = TopologyTestDriver(counts(idle_advance="1 minute"))
    driver.pipe_input({"k": "A", "ts": 4 * SECOND})
    driver.advance_wall_clock("1 minute")
    assert driver.metrics()["stream_time"] == 4 * SECOND
    driver.advance_wall_clock("5999 milliseconds")
    assert (out(driver), driver.metrics()["stream_time"]) == ([], 9_999)
    driver.advance_wall_clock("1 millisecond")
    assert (out(driver), driver.metrics()["stream_time"]) == ([("A", 0, 1)], 10_000)
    driver.advance_wall_clock("1 hour")  # never up to now: it moves at the pace of the wall clock
    assert driver.metrics()["stream_time"] == 10_000 + 60 * MINUTE


def test_the_same_in_one_leap() -> None:
    driver = TopologyTestDriver(counts(idle_advance="1 minute"))
    driver.pipe_input({"k": "A", "ts": 4 * SECOND})
    driver.advance_wall_clock("3 minutes")
    assert (out(driver), driver.metrics()["stream_time"]) == ([("A", 0, 1)], 4 * SECOND + 2 * MINUTE)


def test_it_never_moves_while_records_come() -> None:
    driver = TopologyTestDriver(counts(idle_advance="1 minute"))
    for _ in range(5):
        driver.pipe_input({"k": "A", "ts": 0})
        driver.advance_wall_clock("59 seconds")
    assert driver.metrics()["stream_time"] == 0
    driver.pipe_input({"k": None, "ts": 0})  # skipped, but it is input
    driver.advance_wall_clock("1 minute")
    assert driver.metrics()["stream_time"] == 0


def test_an_old_record_after_silence_is_late_and_time_goes_on_from_there() -> None:
    """The cost: the same records without the silence give other results."""
    driver = TopologyTestDriver(counts(idle_advance="1 minute"))
    driver.pipe_input({"k": "A", "ts": 4 * SECOND})
    driver.advance_wall_clock("70 seconds")
    assert out(driver) == [("A", 0, 1)]
    driver.pipe_input({"k": "A", "ts": 5 * SECOND})
    assert (driver.drops["late"], driver.metrics()["stream_time"]) == (1, 14 * SECOND)
    driver.pipe_input({"k": "B", "ts": 15 * SECOND})
    driver.advance_wall_clock("65 seconds")
    assert (out(driver), driver.metrics()["stream_time"]) == ([("B", 10 * SECOND, 1)], 20 * SECOND)


def test_nothing_moves_before_the_first_record() -> None:
    driver = TopologyTestDriver(counts(idle_advance="1 minute"))
    driver.advance_wall_clock("1 hour")
    driver.pipe_input({"k": "A", "ts": 4 * SECOND})
    assert (driver.drops["late"], driver.metrics()["stream_time"]) == (0, 4 * SECOND)


def test_silence_goes_on_over_a_restart() -> None:
    driver = TopologyTestDriver(counts(idle_advance="1 minute"))
    driver.pipe_input({"k": "A", "ts": 4 * SECOND})
    driver.advance_wall_clock("40 seconds")
    again = TopologyTestDriver(counts(idle_advance="1 minute"), state=driver.state())
    again.advance_wall_clock("25999 milliseconds")
    assert out(again) == []
    again.advance_wall_clock("1 millisecond")
    assert out(again) == [("A", 0, 1)]


def test_a_batch_that_brings_records_is_not_silence() -> None:
    """After the query was stopped, records from that time must not be late by the length of the stop."""
    driver = TopologyTestDriver(counts(idle_advance="1 minute"))
    driver.pipe_input({"k": "A", "ts": 4 * SECOND})
    state = driver.state()
    state.wall_clock_ms += 60 * MINUTE
    again = TopologyTestDriver(counts(idle_advance="1 minute"), state=state)
    again.pipe_input({"k": "A", "ts": 5 * SECOND})
    assert (again.drops["late"], again.metrics()["stream_time"]) == (0, 5 * SECOND)


@pytest.mark.parametrize("windows", ["session", "sliding", "batch", "updates", "limit", "expected"])
def test_every_kind_of_result_comes_out(windows: str) -> None:
    events = tg.stream("events", key="k", timestamp="ts", idle_advance="1 minute").group_by_key()
    tables = {
        "session": lambda: events.windowed_by(tg.SessionWindows.of_inactivity_gap_with_no_grace("5 seconds")).count(),
        "sliding": lambda: events.windowed_by(tg.SlidingWindows.of_time_difference_with_no_grace("5 seconds")).count(),
        "batch": lambda: events.windowed_by(tg.BatchWindows.of_size("5 seconds")).count(),
        "updates": lambda: events.windowed_by(tg.TimeWindows.of_size_with_no_grace("5 seconds")).count(),
        "limit": events.count,
        "expected": lambda: events.windowed_by(tg.TimeWindows.of_size_with_no_grace("5 seconds")).count(
            expect_keys=["B"]
        ),
    }
    limit = tg.Suppressed.until_time_limit("6 seconds", tg.BufferConfig.unbounded(), clock="stream")
    table = tables[windows]().suppress(limit if windows in ("limit", "updates") else FINAL)
    driver = TopologyTestDriver(table)
    driver.pipe_input({"k": "A", "ts": 4 * SECOND, "v": 1})
    assert driver.read_output() == []
    driver.advance_wall_clock("66001 milliseconds")
    assert ("A", 1) in [(row["k"], row["count"]) for row in driver.read_output()]


@pytest.mark.parametrize("tasks", [1, 2, 3, 5])
def test_all_tasks_agree_on_the_time(tasks: int) -> None:
    """Tasks step when their timers expire; the next record of any key sees the same stream time."""
    table = counts(idle_advance="1 minute", **ORDER)
    keys = "ABCDEFGH"
    first = [{"k": k, "ts": 4 * SECOND, "p": 0, "o": i} for i, k in enumerate(keys)]
    later = [{"k": k, "ts": 7 * SECOND, "p": 0, "o": 10 + i} for i, k in enumerate(keys)]
    batches = [first, [], [], later]
    splits = [[batch] for batch in batches]
    rows, drops = layout.run(table, batches, tasks=tasks, splits=splits, clocks=[0, 61_000, 72_000, 73_000])
    assert sorted((row["k"], row["count"]) for row in rows) == [(k, 1) for k in keys]
    assert drops["late"] == len(keys)


KEYS = "ABCDEFGH"


def expecting(keys: str | None) -> tg.KTable:
    windowed = tg.stream("events", key="k", timestamp="ts", idle_advance="1 minute", **ORDER).group_by_key()
    windows = tg.TimeWindows.of_size_with_no_grace("10 seconds")
    return windowed.windowed_by(windows).count(expect_keys=None if keys is None else list(keys)).suppress(FINAL)


def of_tasks(rows: list[dict[str, Any]]) -> list[tuple[Any, ...]]:
    return sorted((row["window"].start // SECOND, row["k"], row["count"]) for row in rows)


@pytest.mark.parametrize("tasks", [1, 2, 3, 5])
def test_keys_may_be_expected_from_a_step_without_records_on(tasks: int) -> None:
    """After a restart with `expect_keys` the first step is a timer's: each task emits rows of its own keys alone."""
    records = [{"k": key, "ts": 4 * SECOND, "p": 0, "o": place} for place, key in enumerate("ABC")]
    before = layout.Tasks(expecting(None).node, tasks)
    before.learn(records)
    assert before.batch([(None, records)], 0) == []
    run = layout.Tasks(expecting(KEYS).node, tasks, before)
    run.learn(records)
    assert of_tasks(run.batch([], 66 * SECOND)) == [(0, key, int(key in "ABC")) for key in KEYS]
    assert of_tasks(run.batch([], 76 * SECOND)) == [(10, key, 0) for key in KEYS]
    rows = run.batch([(None, [{"k": "D", "ts": 41 * SECOND, "p": 0, "o": 3}])], 77 * SECOND)
    assert of_tasks(rows) == [(start, key, 0) for start in (20, 30) for key in KEYS]


def test_a_task_that_stored_the_number_of_another_one_knows_its_own_again() -> None:
    """Earlier versions stored 0 in every task if the first step with expected keys had no records."""
    records = [{"k": key, "ts": 4 * SECOND, "p": 0, "o": place} for place, key in enumerate("ABC")]
    run = layout.Tasks(expecting(KEYS).node, 3)
    run.learn(records)
    run.batch([(None, records)], 0)
    for store in run.operators[0].stores:
        stored = store.get("meta")
        assert stored is not None
        meta, _ = frames.decode(frames.META, stored)
        meta["expected"][1] = 0
        store.put("meta", frames.encode(frames.META, meta))
    assert of_tasks(run.batch([], 66 * SECOND)) == [(0, key, int(key in "ABC")) for key in KEYS]


@pytest.mark.parametrize("tasks", [1, 2, 3])
def test_changes_that_leave_several_tasks_without_records_stay_whole(tasks: int) -> None:
    """A change retracts a row and inserts one; changes of other tasks come before both or behind both."""
    limit = tg.Suppressed.until_time_limit("1 minute", tg.BufferConfig.unbounded(), clock="wall")
    every = tg.Materialized.as_("totals").with_caching_disabled()
    table = tg.table("moves", key="k", timestamp="ts", **ORDER).suppress(limit).group_by("g")
    run = layout.Tasks(table.agg(total=tg.sum("v"), materialized=every).node, tasks)
    totals = []
    for number, clock in ((0, 0), (1, 70 * SECOND)):
        records = [
            {"k": key, "g": "x", "v": number + 1, "ts": number, "p": 0, "o": 10 * number + place}
            for place, key in enumerate(KEYS)
        ]
        run.learn(records)
        assert run.batch([(None, records)], clock) == []
        totals += [row["total"] for row in run.batch([], clock + 61 * SECOND)]
    assert totals == list(range(1, 2 * len(KEYS) + 1))


# --- idle_after ----------------------------------------------------------------------------------------------------


def slow() -> TopologyTestDriver:
    return TopologyTestDriver(counts(stream_time="min_partition", idle_after="5 minutes", **ORDER))


@pytest.mark.parametrize("tasks", [1, 2])
def test_a_batch_of_filtered_records_is_not_silence_for_any_task(tasks: int) -> None:
    events = tg.stream("events", key="k", timestamp="ts", idle_advance="1 minute", **ORDER, schema=SCHEMA)
    windows = tg.TimeWindows.of_size_with_no_grace("10 seconds")
    table = events.filter(lambda row: row["k"] != "removed").group_by_key().windowed_by(windows).count()
    run = layout.Tasks(table.node, tasks, as_spark=True)
    read = [{"k": "A", "ts": SECOND, "p": 0, "o": 0}]
    assert run.batch([(None, read)], 0)
    assert run.batch([(None, [read[0] | {"k": "removed", "o": 1}])], 5 * MINUTE) == []
    assert run.batch([(None, [read[0] | {"o": 2}])], 5 * MINUTE + 1)[0]["count"] == 2, "stream time went on"


def test_a_partition_that_fell_silent_holds_nothing_back() -> None:
    driver = slow()
    driver.pipe_batch([{"k": "A", "ts": 25 * SECOND, "p": 0, "o": 0}, {"k": "B", "ts": 4 * SECOND, "p": 1, "o": 0}])
    driver.advance_wall_clock("299999 milliseconds")
    driver.pipe_input({"k": "A", "ts": 26 * SECOND, "p": 0, "o": 1})
    assert out(driver) == []
    driver.advance_wall_clock("1 millisecond")
    driver.pipe_input({"k": "A", "ts": 27 * SECOND, "p": 0, "o": 2})
    assert (out(driver), driver.metrics()["stream_time"]) == ([("B", 0, 1)], 27 * SECOND)


def test_it_holds_back_again_once_it_is_heard_but_time_does_not_go_back() -> None:
    driver = slow()
    driver.pipe_batch([{"k": "A", "ts": 25 * SECOND, "p": 0, "o": 0}, {"k": "B", "ts": 4 * SECOND, "p": 1, "o": 0}])
    driver.advance_wall_clock("5 minutes")
    driver.pipe_input({"k": "A", "ts": 26 * SECOND, "p": 0, "o": 1})
    driver.pipe_input({"k": "B", "ts": 5 * SECOND, "p": 1, "o": 1})
    assert (driver.drops["late"], driver.metrics()["stream_time"]) == (1, 26 * SECOND)
    driver.pipe_input({"k": "A", "ts": 50 * SECOND, "p": 0, "o": 2})
    assert driver.metrics()["stream_time"] == 26 * SECOND
    driver.pipe_input({"k": "B", "ts": 40 * SECOND, "p": 1, "o": 2})
    assert driver.metrics()["stream_time"] == 40 * SECOND


@pytest.mark.parametrize("before", [{}, {"idle_after": "1 hour"}])
def test_idle_after_counts_from_the_restart_that_sets_it(before: dict[str, Any]) -> None:
    """Also if an earlier plan had set it: in the meantime nobody noted when a partition was heard."""
    start = datetime(2026, 7, 1, tzinfo=UTC)
    driver = TopologyTestDriver(counts(stream_time="min_partition", **before, **ORDER), initial_wall_clock_time=start)
    driver.pipe_batch([{"k": "A", "ts": 25 * SECOND, "p": 0, "o": 0}, {"k": "B", "ts": 4 * SECOND, "p": 1, "o": 0}])
    driver = TopologyTestDriver(counts(stream_time="min_partition", **ORDER), state=driver.state())
    driver.advance_wall_clock("1 hour")
    driver.pipe_input({"k": "B", "ts": 5 * SECOND, "p": 1, "o": 1})
    state = driver.state()
    driver = TopologyTestDriver(counts(stream_time="min_partition", idle_after="5 minutes", **ORDER), state=state)
    driver.pipe_input({"k": "A", "ts": 26 * SECOND, "p": 0, "o": 1})
    driver.pipe_input({"k": "B", "ts": 6 * SECOND, "p": 1, "o": 2})
    assert (driver.drops["late"], driver.metrics()["stream_time"]) == (0, 6 * SECOND)
    driver.advance_wall_clock("5 minutes")
    driver.pipe_input({"k": "A", "ts": 27 * SECOND, "p": 0, "o": 2})
    assert (out(driver), driver.metrics()["stream_time"]) == ([("B", 0, 3)], 27 * SECOND)


def test_a_silent_partition_without_idle_after_holds_for_ever() -> None:
    driver = TopologyTestDriver(counts(stream_time="min_partition", **ORDER))
    driver.pipe_batch([{"k": "A", "ts": 25 * SECOND, "p": 0, "o": 0}, {"k": "B", "ts": 4 * SECOND, "p": 1, "o": 0}])
    driver.advance_wall_clock("100 days")
    driver.pipe_input({"k": "A", "ts": 60 * SECOND, "p": 0, "o": 1})
    assert driver.metrics()["stream_time"] == 4 * SECOND


@pytest.mark.parametrize("partitions", [("a", "b"), ("0", "1"), ("1", "0")])
def test_no_name_of_a_partition_keeps_it_from_holding_stream_time_back(partitions: tuple[str, str]) -> None:
    driver = TopologyTestDriver(counts(stream_time="min_partition", **ORDER))
    behind, ahead = partitions
    driver.pipe_batch([{"k": "A", "ts": 0, "p": behind, "o": 0}, {"k": "A", "ts": 25 * SECOND, "p": ahead, "o": 0}])
    driver.pipe_input({"k": "A", "ts": 26 * SECOND, "p": ahead, "o": 1})
    driver.pipe_input({"k": "A", "ts": SECOND, "p": behind, "o": 1})
    assert (driver.drops["late"], driver.metrics()["stream_time"]) == (0, SECOND)


@pytest.mark.filterwarnings("ignore::tidegate.TidegateWarning")
def test_records_without_order_hold_back_the_rows_of_a_join_with_which_they_are_merged() -> None:
    columns = {name: pa.int64() for name in ("left", "right", "third", "fourth")}
    left, right, third, fourth = (
        tg.stream(name, key="k", timestamp="ts", schema=pa.schema({"k": pa.string(), "ts": pa.int64(), name: kind}))
        for name, kind in columns.items()
    )
    within = tg.JoinWindows.of_time_difference_with_no_grace("1 second")
    merged = left.join(right, within).map_values({"third": "left"}).merge(third)
    run = layout.Tasks(merged.left_join(fourth, within).node, 1, as_spark=True)
    seconds = [("third", 5), ("left", 100), ("right", 100), ("left", 200), ("right", 200), ("fourth", 300)]
    rows = [run.batch([(name, [{"k": "A", "ts": at * SECOND, name: at}])], 0) for name, at in seconds]
    assert rows == [[]] * len(seconds), "the merged records have come to second 5 alone"


Read = tuple[int, str, list[dict[str, Any]]]
"""A batch: the wall clock (ms), the name of the input, and the records."""


def by_driver_and_tasks(table: tg.KTable, batches: list[Read], tasks: int) -> list[Any]:
    """For the driver and for several tasks: the rows of each batch in order, and the number of late records."""
    driver, run = TopologyTestDriver(table), layout.Tasks(table.node, tasks, as_spark=True)
    by_driver, by_tasks, now = [], [], 0
    for clock, name, records in batches:
        driver.advance_wall_clock(f"{clock - now} ms")
        now = clock
        driver.pipe_batch(records, name)
        by_driver.append(sorted(out(driver)))
        by_tasks.append(
            sorted((row["k"], row["window"].start, row["count"]) for row in run.batch([(name, records)], clock))
        )
    return [(by_driver, driver.drops["late"]), (by_tasks, sum(dropped["late"] for dropped in run.dropped))]


def at(key: str, second: int, partition: int, offset: int) -> dict[str, Any]:
    return {"k": key, "ts": second * SECOND, "p": partition, "o": offset}


@pytest.mark.parametrize("tasks", [1, 2])
def test_a_batch_of_filtered_records_does_not_check_which_partitions_are_idle(tasks: int) -> None:
    clock = {"stream_time": "min_partition", "idle_after": "5 minutes"}
    events = tg.stream("events", key="k", timestamp="ts", **ORDER, schema=SCHEMA, **clock)
    kept = events.filter(lambda row: row["k"] != "removed").group_by_key()
    table = kept.windowed_by(tg.TimeWindows.of_size_with_no_grace("10 seconds")).count().suppress(FINAL)
    batches = [
        (0, "events", [at("A", 100, 0, 0), at("B", 4, 1, 0)]),
        (4 * MINUTE, "events", [at("A", 200, 0, 1)]),
        (6 * MINUTE, "events", [at("removed", 210, 0, 2)]),
        (6 * MINUTE, "events", [at("B", 5, 1, 1)]),
        (6 * MINUTE, "events", [at("A", 300, 0, 3), at("B", 300, 1, 2)]),
    ]
    rows = [[], [], [], [], [("A", 100 * SECOND, 1), ("A", 200 * SECOND, 1), ("B", 0, 2)]]
    assert by_driver_and_tasks(table, batches, tasks) == [(rows, 0), (rows, 0)]


@pytest.mark.parametrize("tasks", [1, 2])
def test_a_join_without_new_rows_does_not_check_which_partitions_behind_it_are_idle(tasks: int) -> None:
    """The join reports its stream time with each of its batches, also if a filter removes all of its records."""
    clock: dict[str, Any] = {"stream_time": "min_partition", "idle_after": "5 minutes"}
    left, right, third = (
        tg.stream(name, key="k", timestamp="ts", **ORDER, schema=SCHEMA, **clock).map_values({name: "k"})
        for name in ("left", "right", "third")
    )
    kept = left.filter(lambda row: row["k"] != "removed")
    joined = kept.join(right, tg.JoinWindows.of_time_difference_with_no_grace("1 second")).map_values({"third": "left"})
    merged = joined.merge(third).group_by_key()
    table = merged.windowed_by(tg.TimeWindows.of_size_with_no_grace("10 seconds")).count().suppress(FINAL)
    batches = [
        (0, "left", [at("A", 100, 0, 0)]),
        (0, "third", [at("B", 4, 0, 0)]),
        (4 * MINUTE, "right", [at("A", 100, 0, 0)]),
        (6 * MINUTE, "left", [at("removed", 210, 0, 1)]),
        (6 * MINUTE, "third", [at("B", 5, 0, 1)]),
        (6 * MINUTE, "third", [at("B", 90, 0, 2)]),
    ]
    rows = [[], [], [], [], [], [("B", 0, 2)]]
    assert by_driver_and_tasks(table, batches, tasks) == [(rows, 0), (rows, 0)]


@pytest.mark.parametrize("seed", range(12))
def test_a_join_that_has_not_begun_holds_back_the_stream_with_which_its_rows_are_merged(seed: int) -> None:
    """Otherwise its first rows would be late."""
    random = Random(seed)
    clock: dict[str, Any] = {"stream_time": "min_partition", "idle_after": random.choice([None, "5 minutes"])}
    left, right, third = (
        tg.stream(name, key="k", timestamp="ts", **ORDER, schema=SCHEMA, **clock).map_values({name: "k"})
        for name in ("left", "right", "third")
    )
    joined = left.join(right, tg.JoinWindows.of_time_difference_with_no_grace("1 second")).map_values({"third": "left"})
    merged = (joined.merge(third) if random.random() < 0.5 else third.merge(joined)).group_by_key()
    table = merged.windowed_by(tg.TimeWindows.of_size_with_no_grace("10 seconds")).count().suppress(FINAL)
    batches: list[Read] = [(0, "third", [at("B", 100, 0, 0), at("B", 4, 0, 1)])]
    now, second, offsets = 0, 50, Counter({("third", 0): 2})
    for _ in range(random.randint(3, 12)):
        now, second = now + random.choice([0, 0, 0, MINUTE, 7 * MINUTE]), second + random.randint(0, 20)
        name, records = random.choice(["left", "right", "third"]), []
        for _ in range(random.randint(1, 3)):
            place = name, random.choice([0, 0, 1])
            records.append(at(random.choice("AB"), max(0, second - random.randint(0, 40)), place[1], offsets[place]))
            offsets[place] += 1
        batches.append((now, name, records))
    driver, tasks = by_driver_and_tasks(table, batches, random.choice([1, 3]))
    assert tasks == driver


@pytest.mark.parametrize("tasks", [1, 2])
def test_a_join_says_its_time_when_records_come_to_it_also_after_a_restart(tasks: int) -> None:
    """Under the new rule it begins anew: in the test driver, too, it says nothing in a batch of another stream."""

    def table(rule: Any) -> tg.KTable:
        left, right, third = (
            tg.stream(name, key="k", timestamp="ts", schema=SCHEMA, stream_time=rule, partition="p", offset="o")
            for name in ("left", "right", "third")
        )
        within = tg.JoinWindows.of_time_difference_with_no_grace("1 second")
        pairs = left.map_values({"left": "k"}).join(right.map_values({"right": "k"}), within)
        merged = pairs.map_values({"third": "left"}).merge(third.map_values({"third": "k"})).group_by_key()
        return merged.windowed_by(tg.TimeWindows.of_size_with_no_grace("10 seconds")).count().suppress(FINAL)

    before, after = table("max"), table("min_partition")
    driver, run = TopologyTestDriver(before), layout.Tasks(before.node, tasks, as_spark=True)
    driver.pipe_input(at("A", 90, 0, 0), "left")
    run.batch([("left", [at("A", 90, 0, 0)])], 0)
    driver, run = TopologyTestDriver(after, state=driver.state()), layout.Tasks(after.node, tasks, run, as_spark=True)
    for place, second in enumerate((4, 95)):
        record = at("B", second, 0, place)
        driver.pipe_input(record, "third")
        assert (driver.read_output(), run.batch([("third", [record])], 0)) == ([], [])
    driver.pipe_input(at("C", 91, 0, 1), "left")
    rows = driver.read_output()
    assert [(row["k"], row["count"]) for row in rows] == [("B", 1)]
    assert run.batch([("left", [at("C", 91, 0, 1)])], 0) == rows


@pytest.mark.parametrize("behind", ["merge", "join", "table"])
@pytest.mark.parametrize("everywhere", [False, True])
@pytest.mark.parametrize("tasks", [1, 2])
def test_a_join_without_records_does_not_stop_the_clock_of_idle_input_behind_it(
    tasks: int, everywhere: bool, behind: str
) -> None:
    """It reports its stream time, which is no input; `everywhere`: the wall clock moves its own time, too."""
    idle = {"idle_advance": "1 minute"}
    clock: dict[str, Any] = {"stream_time": "min_partition", **ORDER, "schema": SCHEMA}
    left, right, third = (
        tg.stream(name, key="k", timestamp="ts", **clock, **(idle if name == "third" or everywhere else {})).map_values(
            {name: "k"}
        )
        for name in ("left", "right", "third")
    )
    within = tg.JoinWindows.of_time_difference_with_no_grace("1 second")
    joined = left.join(right, within).map_values({"third": "left"})
    prices = tg.table("prices", key="k", timestamp="ts", schema=SCHEMA, history="1 hour").map_values({"price": "k"})
    windows = tg.TimeWindows.of_size_with_no_grace("10 seconds")
    table = {
        "merge": lambda: joined.merge(third).group_by_key().windowed_by(windows).count().suppress(FINAL),
        "join": lambda: third.left_join(joined.map_values({"pair": "third"}), within),
        "table": lambda: joined.merge(third).left_join(prices, grace="6 seconds"),
    }[behind]()
    first = [("left", at("A", 4, 0, 0)), ("right", at("A", 4, 0, 0)), ("third", at("B", 4, 0, 0))]
    driver, run = TopologyTestDriver(table), layout.Tasks(table.node, tasks, as_spark=True)
    for name, record in first:
        driver.pipe_input(record, name)
        run.batch([(name, [record])], 0)
    driver.read_output()
    driver.advance_wall_clock("1 minute")
    assert (driver.read_output(), run.batch([], MINUTE)) == ([], [])
    driver.advance_wall_clock("6 seconds")
    by_driver, by_tasks = driver.read_output(), run.batch([], 66 * SECOND)
    assert sorted(row["k"] for row in by_driver) == (["B"] if behind == "join" else ["A", "B"])
    assert sorted(map(str, by_tasks)) == sorted(map(str, by_driver))


@pytest.mark.parametrize("behind", ["join", "table", "two joins"])
@pytest.mark.parametrize("tasks", [1, 2])
def test_a_join_that_has_not_begun_holds_back_whatever_reads_the_merged_stream(behind: str, tasks: int) -> None:
    """Its first rows are in time: in another join, with or without a table, and beside the rows of another join."""
    clock: dict[str, Any] = {"stream_time": "min_partition"}
    left, right, third, fourth, fifth = (
        tg.stream(name, key="k", timestamp="ts", **ORDER, schema=SCHEMA, **clock).map_values({name: "k"})
        for name in ("left", "right", "third", "fourth", "fifth")
    )
    within = tg.JoinWindows.of_time_difference_with_no_grace("1 second")
    merged = left.join(right, within).map_values({"third": "left"}).merge(third)
    prices = tg.table("prices", key="k", timestamp="ts", schema=SCHEMA, history="1 hour").map_values({"price": "k"})
    rows = {
        "join": lambda: merged.join(fourth, within),
        "table": lambda: merged.join(prices, grace="1 second"),
        "two joins": lambda: merged.merge(fourth.join(fifth, within).map_values({"third": "fourth"})),
    }[behind]()
    table = rows.group_by_key().windowed_by(tg.TimeWindows.of_size_with_no_grace("10 seconds")).count().suppress(FINAL)
    batches = [
        (0, "third", [at("B", 100, 0, 0)]),
        *([(0, "prices", [at("A", 3, 0, 0)])] if behind == "table" else []),
        *([(0, "fourth", [at("A", 4, 0, 0), at("A", 100, 0, 1)])] if behind != "table" else []),
        *([(0, "fifth", [at("A", 100, 0, 0)])] if behind == "two joins" else []),
        (0, "third", [at("B", 100, 0, 1)]),
        (0, "left", [at("A", 4, 0, 0)]),
        (0, "right", [at("A", 4, 0, 0)]),
        (0, "left", [at("A", 90, 0, 1)]),
        (0, "right", [at("B", 90, 0, 1)]),
        (0, "third", [at("B", 100, 0, 2)]),
    ]
    driver, by_tasks = by_driver_and_tasks(table, batches, tasks)
    assert driver == by_tasks
    assert [row for rows in driver[0] for row in rows] == [("A", 0, 1)]


# --- a step that raises --------------------------------------------------------------------------------------------


def test_the_wall_clock_does_not_go_on_if_its_step_raises() -> None:
    events = tg.stream("events", key="k", timestamp="ts", idle_advance="200 ms")
    windowed = events.group_by_key().windowed_by(tg.TimeWindows.of_size_with_no_grace("10 ms"))
    final = windowed.emit_strategy(tg.EmitStrategy.on_window_close()).count()
    one = tg.BufferConfig.max_records(1).shut_down_when_full()
    driver = TopologyTestDriver(final.suppress(tg.Suppressed.until_time_limit("25 ms", one, clock="stream")))
    driver.pipe_batch([{"k": "A", "ts": 1}, {"k": "B", "ts": 1}])
    for _ in range(2):
        with pytest.raises(tg.BufferFullError):
            driver.advance_wall_clock("1 second")
        assert driver.wall_clock == timedelta(0)
    assert driver.read_output() == []


@pytest.mark.parametrize("error", [KeyboardInterrupt, SystemExit])
def test_the_wall_clock_does_not_go_on_if_its_step_is_interrupted(error: type[BaseException]) -> None:
    """The first call left the clock ahead of the state, and the second one went on twice as far."""
    interrupts = iter([True, False])

    def asked(record: dict[str, Any]) -> bool:
        if next(interrupts):
            raise error
        return True

    events = tg.stream("events", key="k", timestamp="ts")
    calm = tg.Suppressed.until_time_limit("1 second", tg.BufferConfig.unbounded(), clock="wall")
    driver = TopologyTestDriver(events.group_by_key().count().suppress(calm).filter(asked))
    driver.pipe_input({"k": "A", "ts": 1})
    with pytest.raises(error):
        driver.advance_wall_clock("1 second")
    assert driver.wall_clock == timedelta(0)
    driver.advance_wall_clock("1 second")
    assert [(row["k"], row["count"]) for row in driver.read_output()] == [("A", 1)]
