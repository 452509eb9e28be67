"""A stream that is joined with a table: time by its slowest partition, and by the wall clock."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

import tidegate as tg
from tidegate.testing import TopologyTestDriver
from tidegate.testing.layout import Tasks

ORDER = {"partition": "p", "offset": "o"}
SLOW = {"stream_time": "min_partition", **ORDER}


def joined(grace: str | None = "5 ms", **clock: Any) -> Any:
    orders = tg.stream("orders", key="k", timestamp="ts", **clock)
    prices = tg.table("prices", key="k", timestamp="ts", history="20 ms")
    return orders.left_join(prices, grace=grace)


def order(driver: TopologyTestDriver, partition: int, ts: int) -> list[int]:
    """Pipe a record; returns the timestamps of the rows that leave."""
    driver.pipe_input({"k": "A", "ts": ts, "n": ts, "p": partition, "o": ts}, "orders")
    return [row["timestamp"] for row in driver.read_output()]


def price(driver: TopologyTestDriver, ts: int) -> list[int]:
    driver.pipe_input({"k": "A", "ts": ts, "price": ts}, "prices")
    return [row["timestamp"] for row in driver.read_output()]


def test_what_holds_it_back_is_named() -> None:
    driver = TopologyTestDriver(joined(**SLOW))
    for partition, ts in ((1, 8), (0, 40)):
        assert order(driver, partition, ts) == []
    assert price(driver, 90) == []
    pending = driver.pending()
    assert (pending.stream_time, pending.held_by) == (8, ("left side, partition 1", 8))
    assert pending.lookups == tg.Lookups(13, 8, 2)
    assert str(pending).endswith(
        "The left side, partition 1 holds stream time back: it has come to 8 (1970-01-01T00:00:00.008+00:00)."
    )
    assert driver.metrics()["stream_time"] == 8


def test_a_partition_that_is_silent_counts_for_nothing_after_a_while() -> None:
    driver = TopologyTestDriver(joined(idle_after="1 minute", **SLOW))
    order(driver, 1, 8)
    order(driver, 0, 40)
    driver.advance_wall_clock("59 seconds")
    assert order(driver, 0, 41) == []
    driver.advance_wall_clock("1 second")
    assert price(driver, 12) == []  # a change of the table is no record of the stream
    assert order(driver, 0, 42) == [8]
    assert driver.pending().held_by == ("left side, partition 0", 42)


def test_changes_of_the_table_are_no_records_of_a_stream_that_is_silent() -> None:
    driver = TopologyTestDriver(joined(idle_advance="1 minute"))
    order(driver, 0, 8)
    driver.advance_wall_clock("30 seconds")
    assert price(driver, 7) == []
    driver.advance_wall_clock("30 seconds")
    assert driver.read_output() == []
    driver.advance_wall_clock("5 ms")
    assert [(row["timestamp"], row["price"]) for row in driver.read_output()] == [(8, 7)]


def test_another_clock_on_a_running_query_takes_no_time_back() -> None:
    driver = TopologyTestDriver(joined(**ORDER))
    assert order(driver, 1, 8) == []
    assert order(driver, 0, 40) == [8]
    driver = TopologyTestDriver(joined(**SLOW), state=driver.state())
    # The new clock knows only partitions whose records come under it.
    assert order(driver, 1, 20) == [20]
    assert order(driver, 0, 41) == []
    assert order(driver, 1, 30) == [30]
    assert driver.pending().lookups == tg.Lookups(45, 40, 2)
    assert order(driver, 1, 46) == []  # partition 0 is at 41
    assert order(driver, 0, 47) == [40, 41]
    driver = TopologyTestDriver(joined(**ORDER), state=driver.state())
    assert order(driver, 1, 52) == [46, 47]


@pytest.mark.parametrize("history", [None, "20 ms"])
def test_under_another_clock_no_partition_holds_it_back(history: str | None) -> None:
    """Also when the first clock comes back: it knows the partitions whose records come under it."""

    def restarted(state: Any, **clock: Any) -> TopologyTestDriver:
        prices = tg.table("prices", key="k", timestamp="ts", history=history)
        return TopologyTestDriver(tg.stream("orders", key="k", timestamp="ts", **clock).left_join(prices), state=state)

    def shown(driver: TopologyTestDriver) -> tuple[Any, Any]:
        return driver.pending().stream_time, driver.pending().held_by

    driver = restarted(None, **SLOW)
    order(driver, 1, 8)
    order(driver, 0, 40)
    assert shown(driver) == (8, ("left side, partition 1", 8))
    driver = restarted(driver.state(), **ORDER)
    order(driver, 0, 41)
    assert shown(driver) == (41, None)
    driver = restarted(driver.state(), **SLOW)
    order(driver, 0, 42)
    assert shown(driver) == (42, ("left side, partition 0", 42))


def test_the_next_lookup_is_that_of_the_first_record_that_still_waits() -> None:
    """The records at 8 and 9 are stored together."""
    driver = TopologyTestDriver(joined("20 ms"))
    assert [order(driver, 0, ts) for ts in (8, 9, 28)] == [[], [], [8]]
    assert driver.pending().lookups == tg.Lookups(29, 28, 2)


@pytest.mark.filterwarnings("ignore::tidegate.TidegateWarning")
@pytest.mark.parametrize("history", [None, "1 minute"])
def test_rows_of_a_join_come_by_their_timestamps_beside_changes_of_a_table(history: str | None) -> None:
    """In one batch the pair at 9 comes between the changes at 5 and at 20, though the join of streams is at 8 still."""

    def schema(column: str) -> pa.Schema:
        return pa.schema([("k", pa.string()), *((name, pa.int64()) for name in ("ts", column, "p", "o"))])

    clicks, views = (
        tg.stream(name, key="k", timestamp="ts", schema=schema(column), **SLOW)
        for name, column in (("clicks", "a"), ("views", "b"))
    )
    prices = tg.table("prices", key="k", timestamp="ts", history=history, schema=schema("price"), **ORDER)
    pairs = clicks.join(views, tg.JoinWindows.of_time_difference_with_no_grace("10 ms"))
    rows = Tasks(pairs.left_join(prices).node, 1).batch(
        [
            ("clicks", [{"k": "A", "ts": 8, "a": 1, "p": 0, "o": 0}]),
            ("views", [{"k": "A", "ts": 9, "b": 2, "p": 0, "o": 0}]),
            ("prices", [{"k": "A", "ts": ts, "price": ts, "p": 0, "o": ts} for ts in (5, 20)]),
        ]
    )
    assert [(row["timestamp"], row["price"]) for row in rows] == [(9, 5)]


@pytest.mark.filterwarnings("ignore::tidegate.TidegateWarning")
def test_rows_of_a_join_of_streams_wait_by_the_slower_side() -> None:
    clicks, views = (tg.stream(name, key="k", timestamp="ts", schema=None, **ORDER) for name in ("clicks", "views"))
    pairs = clicks.join(views, tg.JoinWindows.of_time_difference_with_no_grace("10 ms"))
    prices = tg.table("prices", key="k", timestamp="ts", history="20 ms")
    driver = TopologyTestDriver(pairs.join(prices, grace="5 ms"))
    records = [
        ("prices", 1, "price"),
        ("clicks", 8, "a"),
        ("views", 9, "b"),
        ("views", 60, "b"),
        ("prices", 7, "price"),
    ]
    for n, (name, ts, column) in enumerate([*records, ("clicks", 13, "a")]):
        driver.pipe_input({"k": "A", "ts": ts, column: n, "p": 0, "o": n}, name)
    assert driver.read_output() == []
    driver.pipe_input({"k": "A", "ts": 14, "a": 9, "p": 0, "o": 99}, "clicks")
    assert [(row["timestamp"], row["price"]) for row in driver.read_output()] == [(9, 4)]


def test_idle_after_belongs_to_the_slowest_partition() -> None:
    with pytest.raises(tg.DefinitionError, match="`idle_after` is '5 minutes', but with stream_time='max'"):
        joined(idle_after="5 minutes", **ORDER)


@pytest.mark.parametrize("tasks", [1, 2])
def test_a_clock_that_moves_nothing_asks_for_no_more_steps(tasks: int) -> None:
    """Otherwise Spark would run one batch after the other: the time of the next step is over, and no step moves it."""

    columns = {"k": pa.string(), "ts": pa.int64()}
    prices = tg.table("prices", key="k", timestamp="ts", schema=pa.schema(columns | {"price": pa.int64()}))

    def latest(rule: str) -> Any:
        schema = pa.schema(columns | dict.fromkeys("pon", pa.int64()))
        clock: dict[str, Any] = {"stream_time": rule, "idle_advance": "1 minute", **ORDER}
        return tg.stream("orders", key="k", timestamp="ts", schema=schema, **clock).left_join(prices)

    records = [{"k": "A", "ts": 1, "p": 0, "o": 0, "n": 1}]
    before = Tasks(latest("min_partition").node, tasks)
    before.batch([("orders", records)], 0)
    assert before.operators[0].wakes == [66_000] * tasks
    after = Tasks(latest("max").node, tasks, before)
    after.batch([("orders", records)], 70_000)
    assert after.operators[0].wakes == [None] * tasks
