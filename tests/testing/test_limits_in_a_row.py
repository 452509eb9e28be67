"""Several time limits in a row: each takes the rows that leave the one before it, and goes by their time."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

import tidegate as tg
from tidegate.testing import TopologyTestDriver
from tidegate.testing.layout import Tasks

UNBOUNDED = tg.BufferConfig.unbounded()
BOUNDS = [
    UNBOUNDED,
    tg.BufferConfig.max_records(50),
    tg.BufferConfig.max_bytes(5_000),
    tg.BufferConfig.max_records(50).shut_down_when_full(),
    tg.BufferConfig.max_records(1).spill_to_disk_when_full(),
]

WINDOWS = [
    tg.TimeWindows.of_size_and_grace("10 ms", "0 ms"),
    tg.SessionWindows.of_inactivity_gap_and_grace("5 ms", "0 ms"),
    tg.SlidingWindows.of_time_difference_and_grace("5 ms", "0 ms"),
]


def limit(ms: int, buffer: Any = UNBOUNDED, clock: str = "stream") -> Any:
    return tg.Suppressed.until_time_limit(f"{ms} ms", buffer, clock=clock)  # type: ignore[arg-type]


def prices() -> tg.KTable:
    return tg.table("prices", key="k", timestamp="ts")


def counts() -> tg.KTable:
    windows = tg.TimeWindows.of_size_and_grace("10 ms", "0 ms")
    return tg.stream("events", key="k", timestamp="ts").group_by_key().windowed_by(windows).count()


def pipe(driver: TopologyTestDriver, *records: tuple[str, int]) -> list[tuple[str, int]]:
    for key, ts in records:
        driver.pipe_input({"k": key, "ts": ts, "v": ts})
    return left(driver)


def left(driver: TopologyTestDriver) -> list[tuple[str, int]]:
    return [(row["k"], row["timestamp"]) for row in driver.read_output()]


@pytest.mark.parametrize("first", BOUNDS, ids=str)
@pytest.mark.parametrize("second", BOUNDS, ids=str)
def test_the_second_limit_goes_by_the_rows_that_come_to_it(first: Any, second: Any) -> None:
    driver = TopologyTestDriver(prices().suppress(limit(5, first)).suppress(limit(3, second)))
    # a@1 leaves the first limit at 6, b@6 at 11: only then has the second limit passed 4.
    assert pipe(driver, ("a", 1), ("b", 6)) == []
    assert pipe(driver, ("c", 10)) == []
    driver = TopologyTestDriver(prices().suppress(limit(5, first)).suppress(limit(3, second)), state=driver.state())
    assert pipe(driver, ("c", 11)) == [("a", 1)]
    driver.drain()
    assert left(driver) == [("b", 6), ("c", 11)]


def test_a_full_buffer_passes_its_oldest_row_to_the_next_limit() -> None:
    one = tg.BufferConfig.max_records(1)
    driver = TopologyTestDriver(prices().suppress(limit(100, one)).suppress(limit(100, one)))
    assert pipe(driver, ("a", 1), ("b", 2)) == []
    assert pipe(driver, ("c", 3)) == [("a", 1)]


def test_the_error_of_a_full_buffer_names_the_limit() -> None:
    strict = tg.BufferConfig.max_records(1).shut_down_when_full()
    table = prices().suppress(limit(0)).suppress(limit(100, strict).with_name("slow"))
    with pytest.raises(tg.BufferFullError, match=r"slow buffer exceeded its max capacity. Currently \[2/1\] records"):
        pipe(TopologyTestDriver(table), ("a", 1), ("b", 2))


def test_behind_final_results() -> None:
    final = counts().suppress(tg.Suppressed.until_window_closes(UNBOUNDED))
    driver = TopologyTestDriver(final.suppress(limit(5)).suppress(limit(20)))
    # Windows [0, 10), [10, 20), ...: a final result leaves with the timestamp of its last record.
    assert pipe(driver, ("a", 1), ("a", 12), ("a", 23), ("a", 34)) == []
    assert pipe(driver, ("a", 45)) == [("a", 1)]


def test_by_the_wall_clock_and_by_stream_time() -> None:
    driver = TopologyTestDriver(prices().suppress(limit(10, clock="wall")).suppress(limit(10, clock="wall")))
    assert pipe(driver, ("a", 1)) == []
    driver.advance_wall_clock("10 ms")
    assert left(driver) == []
    driver.advance_wall_clock("9 ms")
    assert left(driver) == []
    driver.advance_wall_clock("1 ms")
    assert left(driver) == [("a", 1)]
    driver = TopologyTestDriver(prices().suppress(limit(10, clock="wall")).suppress(limit(5)))
    assert pipe(driver, ("a", 1), ("b", 6)) == []
    driver.advance_wall_clock("10 ms")
    assert left(driver) == [("a", 1)]


def test_what_each_limit_holds_can_be_seen() -> None:
    table = prices().suppress(limit(5)).suppress(limit(3)).suppress(limit(90, clock="wall").with_name("calm"))
    driver = TopologyTestDriver(table)
    pipe(driver, ("a", 1), ("b", 6), ("c", 11))
    held = {name: [(row["k"], row["until"]) for row in driver.read_state(name)] for name in STORES}
    assert held == {"suppress": [("c", 16)], "suppress-2": [("b", 9)], "calm": [("a", 90)]}
    assert driver.pending().limits == (
        tg.Buffered("stream", 16, 5, 1, store="suppress"),
        tg.Buffered("stream", 9, 3, 1, store="suppress-2"),
        tg.Buffered("wall", 90, 90, 1, store="calm"),
    )
    assert "1 key waits for the time limit 'suppress-2'; the first leaves when stream time is 9" in str(
        driver.pending()
    )
    metrics = driver.metrics()
    emitted = [metrics[f"suppression_emit_total[{name}]"] for name in STORES]
    waits = [metrics[f"suppression_buffer_count_current[{name}]"] for name in STORES]
    assert (emitted, metrics["suppression_emit_total"]) == ([2, 1, 0], 3)
    assert (waits, metrics["suppression_buffer_count_current"]) == ([1, 1, 1], 3)


STORES = ("suppress", "suppress-2", "calm")


def bytes_held(*, restarts: bool) -> tuple[list[int], dict[str, float]]:
    """The bytes of the second of two limits after each record, and the metrics at the end."""
    ten, bound = tg.BufferConfig.max_records(10), tg.BufferConfig.max_bytes(100_000)
    table = prices().suppress(limit(0, ten)).suppress(limit(20, bound))
    driver, found, metrics = TopologyTestDriver(table), [], {}
    for ts in range(0, 60, 7):
        driver.pipe_input({"k": "ab"[ts % 2], "ts": ts, "v": "x" * (50 if ts < 30 else 1)})
        metrics = driver.metrics()
        found.append(metrics["suppression_buffer_size_current[suppress-2]"])
        driver = TopologyTestDriver(table, state=driver.state()) if restarts else driver
    return found, metrics


def test_a_later_limit_knows_old_values_behind_a_restart() -> None:
    unbroken, metrics = bytes_held(restarts=False)
    assert unbroken[2] - unbroken[1] == 50  # the value of "a" that its second record replaces
    assert bytes_held(restarts=True)[0] == unbroken
    fills = [metrics[f"suppression_buffer_fill[{name}]"] for name in STORES[:2]]
    assert metrics["suppression_buffer_fill"] == max(fills) > min(fills) > 0


def test_outputs_with_limits_of_their_own() -> None:
    driver = TopologyTestDriver(
        {"raw": prices().suppress(limit(2)), "slow": prices().suppress(limit(2)).suppress(limit(4).with_name("slow"))}
    )
    pipe(driver, ("a", 1))
    driver.pipe_input({"k": "b", "ts": 5, "v": 5})
    driver.pipe_input({"k": "c", "ts": 7, "v": 7})
    assert [(row["output"], row["k"]) for row in driver.read_output()] == [("raw", "a"), ("raw", "b"), ("slow", "a")]
    assert [row["k"] for row in driver.read_state("slow")] == ["b"]
    assert [row["k"] for row in driver.read_state("suppress-2")] == ["c"]


def test_two_limits_of_one_name_are_refused() -> None:
    first = prices().suppress(limit(1).with_name("x"))
    with pytest.raises(tg.DefinitionError, match="Two suppressions of one operator are both called 'x'"):
        first.suppress(limit(2).with_name("x"))


def waiting() -> TopologyTestDriver:
    """a@1 waits in the third limit, b@6 in the second, c@11 in the first."""
    driver = TopologyTestDriver(prices().suppress(limit(5)).suppress(limit(3)).suppress(limit(50)))
    assert pipe(driver, ("a", 1), ("b", 6), ("c", 11)) == []
    return driver


@pytest.mark.parametrize(
    ("limits", "rows"),
    [
        ([], ["a", "b", "c", "d"]),
        ([5], ["a", "b"]),
        ([5, 3], ["a"]),
        ([5, 3, 0], ["a"]),
        ([5, 3, 50, 50], []),
        ([0, 0, 0], ["a", "b", "c", "d"]),
    ],
    ids=str,
)
def test_what_waited_for_limits_that_are_gone_leaves_first(limits: list[int], rows: list[str]) -> None:
    table = prices()
    for ms in limits:
        table = table.suppress(limit(ms))
    driver = waiting()
    assert driver.check_upgrade(table).goes_on
    driver = TopologyTestDriver(table, state=driver.state())
    assert [key for key, _ in pipe(driver, ("d", 12))] == rows
    driver.drain()
    assert sorted([*rows, *(key for key, _ in left(driver))]) == ["a", "b", "c", "d"]


def test_what_waited_by_another_clock_goes_on_to_the_limits_behind() -> None:
    table = prices().suppress(limit(50, clock="wall")).suppress(limit(3)).suppress(limit(50))
    driver = waiting()
    told = driver.check_upgrade(table).changes
    assert [change.effect for change in told if change.what == "limit"] == [
        "what waited for suppress leaves first; rows wait by the limits of the plan from then on"
    ]
    driver = TopologyTestDriver(table, state=driver.state())
    assert pipe(driver, ("d", 12)) == []
    assert [row["k"] for row in driver.read_state("suppress-2")] == ["c"]
    assert [row["k"] for row in driver.read_state("suppress-3")] == ["a", "b"]


def test_other_steps_between_limits_that_go_are_refused() -> None:
    table = prices().suppress(limit(5)).map_values(_twice, types={"w": "long"}).suppress(limit(3))
    driver = TopologyTestDriver(table)
    pipe(driver, ("a", 1), ("b", 6))
    refused = [c.what for c in driver.check_upgrade(prices().suppress(limit(5))).changes if c.loses]
    assert refused == ["limit"]


def _twice(row: dict[str, Any]) -> dict[str, Any]:
    return {"w": 2 * row["v"]}


@pytest.mark.parametrize("windows", WINDOWS, ids=type)
def test_final_results_come_to_a_limit_as_their_windows_end(windows: Any) -> None:
    """Holds for every form of storage: on Spark rows have no order between keys, but a full buffer goes by it."""
    schema = pa.schema({"k": pa.string(), "ts": pa.int64(), "partition": pa.int32(), "offset": pa.int64()})
    order = {"partition": "partition", "offset": "offset"}
    windowed = tg.stream("events", key="k", timestamp="ts", schema=schema, **order).group_by_key().windowed_by(windows)
    merger = {"merger": lambda key, a, b: a + b} if isinstance(windows, tg.SessionWindows) else {}
    counted = windowed.emit_strategy(tg.EmitStrategy.on_window_close()).aggregate(
        int, lambda key, row, n: n + 1, type="long", **merger
    )
    one = tg.BufferConfig.max_records(1).shut_down_when_full()
    came = [(key, 20 * n) for n, key in enumerate("hbagfcedhb")]
    batch = [{"k": k, "ts": ts, "partition": 0, "offset": n} for n, (k, ts) in enumerate([*came, ("z", 500)])]
    tasks = Tasks(counted.suppress(limit(15, one)).node, 1, as_spark=True)
    rows = tasks.batch([(None, batch)])
    assert [(row["k"], row["timestamp"]) for row in rows] == came[:-1]


GROUPED = pa.schema(
    [
        *((name, pa.string()) for name in "kg"),
        *((name, pa.int64()) for name in ("v", "ts", "o")),
        ("gone", pa.bool_()),
        ("p", pa.int32()),
    ]
)


def test_time_passes_at_a_limit_although_a_group_that_comes_and_goes_is_not_seen() -> None:
    """Caching hides the group; Kafka Streams without caching forwards its tombstone, which moves stream time."""
    prices = tg.table("prices", key="k", timestamp="ts", deleted="gone", partition="p", offset="o", schema=GROUPED)
    balances = prices.group_by("g").reduce(lambda a, v: a + v, lambda a, v: a - v or None, "v", "balance")
    table = balances.suppress(limit(25))
    row = {"p": 0, "gone": False, "v": 7}
    held = [row | {"k": "a", "g": "stays", "ts": 1, "o": 1}]
    comes_and_goes = [
        row | {"k": "b", "g": "goes", "ts": 40, "o": 2},
        row | {"k": "b", "g": "goes", "ts": 40, "o": 3, "gone": True},
    ]
    driver, tasks = TopologyTestDriver(table), Tasks(table.node, 2, as_spark=True)
    driver.pipe_batch(held)
    assert driver.read_output() == tasks.batch([(None, held)]) == []
    driver.pipe_batch(comes_and_goes)
    assert [(one["g"], one["balance"]) for one in driver.read_output()] == [("stays", 7)]
    assert [(one["g"], one["balance"]) for one in tasks.batch([(None, comes_and_goes)])] == [("stays", 7)]
