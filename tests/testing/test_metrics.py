"""Metrics under the KIPs' names in the test driver: meaning of each, and cases without a sample."""

from __future__ import annotations

import math
from typing import Any

import pytest

import tidegate as tg
from tidegate.kernel.inspect.totals import Totals
from tidegate.spec.metrics import METRICS, NUMBERS, combined, formula, numbers
from tidegate.testing import TopologyTestDriver

FINAL = tg.Suppressed.until_window_closes(tg.BufferConfig.unbounded())
TUMBLING = tg.TimeWindows.of_size_with_no_grace("10 ms")


def counts(windows: Any = TUMBLING, **stream: Any) -> tg.KTable:
    return tg.stream("events", key="k", timestamp="ts", **stream).group_by_key().windowed_by(windows).count()


def changes(**clock: Any) -> tg.KTable:
    return tg.table("users", key="k", timestamp="ts", **clock)


def limit(duration: str = "10 ms", buffer: Any = None, **how: Any) -> Any:
    buffer = tg.BufferConfig.unbounded() if buffer is None else buffer
    return tg.Suppressed.until_time_limit(duration, buffer, **{"clock": "stream", **how})


def pipe(driver: TopologyTestDriver, *records: tuple[str, int]) -> None:
    """Each record is a micro-batch."""
    for key, ts in records:
        driver.pipe_input({"k": key, "ts": ts, "v": 1})


def test_names_are_unique_and_kafkas_in_snake_case() -> None:
    names = [metric.name for metric in METRICS]
    assert len(names) == len(set(names))
    assert all(metric.name == metric.kafka.replace("-", "_") for metric in METRICS if metric.kafka)
    reported = {number.name for number in NUMBERS}
    assert {metric.needs for metric in METRICS} <= reported


def test_dropped_and_skipped_are_two_things() -> None:
    driver = TopologyTestDriver(counts(TUMBLING.advance_by("5 ms")).suppress(FINAL))
    driver.pipe_batch([{"k": "A", "ts": 30}, {"k": "A", "ts": 17}, {"k": None, "ts": 90}, {"k": "A", "ts": None}])
    metrics = driver.metrics()
    assert (metrics["late_record_drop_total"], metrics["expired_window_record_drop_total"]) == (2, 0)
    assert (metrics["skipped_records_total"], metrics["null_key"], metrics["bad_timestamp"]) == (2, 1, 1)
    assert (metrics["records_total"], metrics["record_lateness_max"], metrics["record_lateness_avg"]) == (2, 13, 6.5)


def test_a_partition_that_was_idle_is_late_by_the_stream_time_before_it() -> None:
    """It is behind by more than its own records tell: they were late without any lateness."""
    order = {"partition": "p", "offset": "o", "stream_time": "min_partition", "idle_after": "1 second"}
    driver = TopologyTestDriver(counts(**order).suppress(FINAL))
    driver.pipe_batch([{"k": "A", "ts": 5, "p": 0, "o": 0}, {"k": "A", "ts": 5, "p": 1, "o": 0}])
    driver.advance_wall_clock("2 seconds")
    driver.pipe_batch([{"k": "A", "ts": 100, "p": 0, "o": 1}])
    driver.pipe_batch([{"k": "A", "ts": 6, "p": 1, "o": 1}])
    metrics = driver.metrics()
    assert (metrics["late"], metrics["record_lateness_max"], metrics["record_lateness_avg"]) == (1, 94, 94 / 4)


def test_rates_are_of_the_last_minute() -> None:
    driver = TopologyTestDriver(counts().suppress(FINAL))
    pipe(driver, ("A", 30), ("A", 1), ("A", 2))
    assert driver.metrics()["late_record_drop_rate"] == 0.0  # no time has passed yet
    driver.advance_wall_clock("10 seconds")
    assert driver.metrics()["late_record_drop_rate"] == 0.2
    pipe(driver, ("A", 3))
    driver.advance_wall_clock("50 seconds")
    assert driver.metrics()["late_record_drop_rate"] == pytest.approx(1 / 60)
    driver.advance_wall_clock("10 seconds")
    metrics = driver.metrics()
    assert (metrics["late_record_drop_rate"], metrics["late_record_drop_total"]) == (0.0, 3)


def test_final_results_of_a_log() -> None:
    driver = TopologyTestDriver(counts().suppress(FINAL))
    assert math.isnan(driver.metrics()["emit_final_latency_max"])
    pipe(driver, ("A", 1), ("B", 2), ("C", 12))
    metrics = driver.metrics()
    assert (metrics["emit_final_records_total"], metrics["suppression_emit_total"], metrics["emitted_total"]) == (
        2,
        2,
        2,
    )
    assert (metrics["suppression_buffer_count_current"], metrics["suppression_buffer_count_max"]) == (1, 2)
    # 0 in the beginning, then 1, 2 and 1.
    assert metrics["suppression_buffer_count_avg"] == 1.0
    assert metrics["suppression_buffer_size_current"] == metrics["spilled_bytes"] > 0
    assert metrics["emit_final_latency_max"] == metrics["emit_final_latency_avg"] == 0  # its wall clock stands still
    assert "suppression_buffer_fill" not in metrics
    assert "intermediate_result_suppression_overtime_min" not in metrics


def test_emission_on_close_tells_the_same() -> None:
    windowed = tg.stream("events", key="k", timestamp="ts").group_by_key().windowed_by(TUMBLING)
    drivers = [
        TopologyTestDriver(counts().suppress(FINAL)),
        TopologyTestDriver(windowed.emit_strategy(tg.EmitStrategy.on_window_close()).count()),
    ]
    for driver in drivers:
        pipe(driver, ("A", 1), ("B", 12))
    assert drivers[0].metrics() == drivers[1].metrics()


def test_updates_alone_have_no_suppression() -> None:
    driver = TopologyTestDriver(counts())
    pipe(driver, ("A", 1), ("B", 12))
    assert not [name for name in driver.metrics() if name.startswith(("suppression", "emit_final", "spilled", "inter"))]


def test_a_bounded_strict_buffer_says_how_full_it_is() -> None:
    buffer = tg.BufferConfig.max_records(4).shut_down_when_full()
    driver = TopologyTestDriver(counts().suppress(tg.Suppressed.until_window_closes(buffer)))
    pipe(driver, ("A", 1), ("B", 2), ("C", 3))
    metrics = driver.metrics()
    assert (metrics["suppression_buffer_count_current"], metrics["suppression_buffer_fill"]) == (3, 0.75)
    # 16 for two times, a key of one byte and the window's start, prior 0 and a count (SEMANTICS 14.9).
    assert metrics["suppression_buffer_size_current"] == 3 * (16 + 1 + 8 + 8 + 8)
    pipe(driver, ("A", 30))
    metrics = driver.metrics()
    assert (metrics["suppression_buffer_count_current"], metrics["suppression_buffer_count_max"]) == (1, 3)
    assert metrics["suppression_buffer_fill"] == 0.25


@pytest.mark.parametrize("buffer", [tg.BufferConfig.unbounded(), tg.BufferConfig.max_records(100)])
@pytest.mark.parametrize("limits", [1, 2, "another output"])
def test_a_strict_buffer_beside_time_limits_says_how_full_it_is(buffer: Any, limits: Any) -> None:
    """It stops the query when it is full; all else that is said of suppressions is about the limits."""
    strict = tg.Suppressed.until_window_closes(tg.BufferConfig.max_records(4).shut_down_when_full())
    windowed = tg.stream("events", key="k", timestamp="ts").group_by_key().windowed_by(TUMBLING)
    table = windowed.count(materialized=tg.Materialized.as_("counts").with_caching_disabled())
    final, held = table.suppress(strict), limit("5 ms", buffer)
    if limits == "another output":
        driver = TopologyTestDriver({"final": final, "slow": table.suppress(held)})
    else:
        final = final.suppress(held)
        driver = TopologyTestDriver(final.suppress(held) if limits == 2 else final)
    pipe(driver, ("A", 1), ("B", 1), ("C", 1))
    metrics = driver.metrics()
    waiting = 3 if limits == "another output" else 0
    assert metrics["suppression_buffer_fill"] == 0.75
    assert (metrics["suppression_buffer_count_current"], metrics["suppression_buffer_count_max"]) == (waiting, waiting)
    pipe(driver, ("D", 30))
    assert driver.metrics()["suppression_buffer_fill"] == 0.25
    if not buffer.bounded and limits == 2:
        assert "suppression_buffer_fill[suppress-2]" not in driver.metrics()


@pytest.mark.parametrize("buffer", [tg.BufferConfig.unbounded(), tg.BufferConfig.max_records(50)])
def test_a_time_limit_counts_keys_not_updates(buffer: Any) -> None:
    driver = TopologyTestDriver(changes().suppress(limit(buffer=buffer)))
    pipe(driver, ("A", 0), ("A", 1), ("B", 2), ("B", 3), ("C", 3))
    assert driver.metrics()["suppression_buffer_count_current"] == 3
    pipe(driver, ("D", 10))  # A leaves
    metrics = driver.metrics()
    assert (metrics["suppression_buffer_count_current"], metrics["suppression_emit_total"]) == (3, 1)
    assert (metrics["suppression_buffer_size_current"] > 0, metrics["spilled_bytes"] > 0) == (True, not buffer.bounded)
    driver.read_output()
    pipe(driver, ("E", 100))
    metrics = driver.metrics()
    assert (metrics["suppression_buffer_count_current"], metrics["suppression_emit_total"]) == (1, len("ABCD"))


def test_a_full_eager_buffer() -> None:
    driver = TopologyTestDriver(changes().suppress(limit("1 day", tg.BufferConfig.max_records(2))))
    pipe(driver, ("A", 0), ("B", 1))
    assert driver.metrics()["suppression_buffer_count_avg"] == 1.0  # 0, 1, 2
    pipe(driver, ("C", 2))
    metrics = driver.metrics()
    # The third entry was put in before the first left.
    assert (metrics["suppression_buffer_count_current"], metrics["suppression_buffer_count_max"]) == (2, 3)
    assert (metrics["suppression_buffer_fill"], metrics["suppression_emit_total"]) == (1.0, 1)
    assert "emit_final_records_total" not in metrics


@pytest.mark.parametrize("buffer", [tg.BufferConfig.unbounded(), tg.BufferConfig.max_records(50)])
def test_overtime_is_the_limit_less_what_the_last_update_came_later(buffer: Any) -> None:
    driver = TopologyTestDriver(changes().suppress(limit(buffer=buffer)))
    pipe(driver, ("A", 0), ("A", 7), ("B", 8))
    assert math.isnan(driver.metrics()["intermediate_result_suppression_overtime_min"])
    pipe(driver, ("C", 100))
    metrics = driver.metrics()
    assert metrics["intermediate_result_suppression_overtime_min"] == 3  # A: 10 - 7
    assert metrics["intermediate_result_suppression_overtime_avg"] == (3 + 10) / 2


def test_overtime_of_rows_that_a_full_buffer_let_out() -> None:
    driver = TopologyTestDriver(changes().suppress(limit("1 day", tg.BufferConfig.max_records(1))))
    pipe(driver, ("A", 0), ("A", 7), ("B", 11))
    assert driver.metrics()["intermediate_result_suppression_overtime_min"] == 4  # not the rest of the day


def test_by_the_wall_clock() -> None:
    driver = TopologyTestDriver(changes().suppress(limit("10 seconds", clock="wall", measured_from="latest_update")))
    pipe(driver, ("A", 0))
    driver.advance_wall_clock("4 seconds")
    pipe(driver, ("A", 1), ("B", 1))
    driver.advance_wall_clock("10 seconds")
    metrics = driver.metrics()
    assert (metrics["suppression_emit_total"], metrics["suppression_buffer_count_current"]) == (2, 0)
    assert metrics["intermediate_result_suppression_overtime_avg"] == 10_000


@pytest.mark.parametrize("buffer", [tg.BufferConfig.unbounded(), tg.BufferConfig.max_records(50)])
def test_overtime_by_the_wall_clock_from_the_first_update(buffer: Any) -> None:
    topology = changes().suppress(limit("10 seconds", buffer, clock="wall"))
    driver = TopologyTestDriver(topology)
    pipe(driver, ("A", 0), ("B", 0))
    driver.advance_wall_clock("4 seconds")
    pipe(driver, ("A", 1))
    driver = TopologyTestDriver(topology, state=driver.state(), initial_wall_clock_time=4_000)
    driver.advance_wall_clock("6 seconds")
    metrics = driver.metrics()
    assert metrics["suppression_emit_total"] == 2
    assert metrics["intermediate_result_suppression_overtime_min"] == 6_000  # A
    assert metrics["intermediate_result_suppression_overtime_avg"] == (6_000 + 10_000) / 2


def test_stream_time_lags_behind_the_wall_clock() -> None:
    driver = TopologyTestDriver(counts(), initial_wall_clock_time=1_000)
    assert math.isnan(driver.metrics()["stream_time_lag"])
    pipe(driver, ("A", 400))
    driver.advance_wall_clock("1 second")
    assert (driver.metrics()["stream_time"], driver.metrics()["stream_time_lag"]) == (400, 1_600)


def test_operators_of_a_chain() -> None:
    moves = tg.table("moves", key="k", timestamp="ts").group_by("v").count("users").suppress(limit("1 day"))
    driver = TopologyTestDriver(moves)
    pipe(driver, ("A", 0), ("B", 1))
    metrics = driver.metrics()
    assert metrics["records"] == driver.metrics("moves")["records"] == 2
    assert metrics["suppression_buffer_count_current"] == 1
    assert "suppression_buffer_count_current" not in driver.metrics("moves")
    with pytest.raises(tg.DefinitionError, match="`operator` is 'x'; there are 'moves', 'moves by v'"):
        driver.metrics("x")


def test_several_outputs() -> None:
    table = counts()
    driver = TopologyTestDriver({"raw": table, "final": table.suppress(FINAL)})
    pipe(driver, ("A", 1), ("A", 2), ("B", 12))
    metrics = driver.metrics()
    assert (metrics["emitted_total"], metrics["emit_final_records_total"], metrics["suppression_emit_total"]) == (
        4,
        1,
        1,
    )
    # The store has a row per window and key, however many updates there were.
    assert (metrics["suppression_buffer_count_max"], metrics["suppression_buffer_count_current"]) == (1, 1)


def test_tasks_are_put_together_as_the_formulas_say() -> None:
    hows = {
        "n": "sum",
        "top": "max",
        "mean": "sum(total) / sum(n)",
        "lag": "min",
        "late": "avg(lag)",
        "none": "0",
    }
    tasks = [{"n": 2, "top": 1, "total": 9, "lag": 95}, {"n": 1, "top": 7, "total": 0, "lag": 98}]
    assert combined(hows, tasks) == {"n": 3, "top": 7, "mean": 3.0, "lag": 95, "late": 96.5, "none": 0}
    assert combined(hows, [{"n": 0, "total": 0}]) == {
        "n": 0,
        "top": None,
        "mean": 0.0,
        "lag": None,
        "late": None,
        "none": 0,
    }
    assert [term.of for term in formula("mean", hows["mean"]).terms] == ["total", "n"]


def test_only_some_tasks_are_heard_without_input() -> None:

    held = changes().suppress(limit("10 seconds", clock="wall"))
    tally = Totals("users", numbers(tg.plan.operation(held.node).measured), 0)
    count = "suppression_buffer_count_current"
    tally.add({"tasks": 2, "tasks_heard": 2, count: 9, "suppression_buffer_count_change": 9}, 10)
    tally.add({"tasks": 2, "tasks_heard": 1, count: 1, "suppression_buffer_count_change": -3}, 20)
    assert tally.values(30)[count] == 6
    tally.add({"tasks": None, "tasks_heard": None, count: None, "records": None}, 30)
    assert tally.values(30)[count] == 6


def test_what_waits_is_not_known_before_all_tasks_are_heard() -> None:
    """After a start of the process only tasks whose timers are due report, until a record comes."""
    held = changes().suppress(limit("10 seconds", clock="wall"))
    tally = Totals("users", numbers(tg.plan.operation(held.node).measured), 0)
    count = "suppression_buffer_count_current"
    tally.add({"tasks": None, "tasks_heard": None, count: None, "suppression_buffer_count_change": None}, 10)
    assert math.isnan(tally.values(10)[count])
    tally.add({"tasks": 2, "tasks_heard": 1, count: 1, "suppression_buffer_count_change": -3}, 20)
    assert math.isnan(tally.values(20)[count])
    tally.add({"tasks": 2, "tasks_heard": 2, count: 4, "suppression_buffer_count_change": 1}, 30)
    tally.add({"tasks": 2, "tasks_heard": 1, count: 1, "suppression_buffer_count_change": -2}, 40)
    metrics = tally.values(40)
    assert (metrics[count], metrics["suppression_buffer_count_max"]) == (2, 4)
    assert metrics["suppression_buffer_count_avg"] == (0 + 4 + 2) / 3


def test_a_clock_that_is_set_back_takes_earlier_batches_with_it() -> None:
    """Otherwise rates are wrong, and every batch is kept, until the clock is again where it was."""
    year = 365 * 86_400_000
    tally = Totals("users", {"late": "sum", "tasks": "max", "tasks_heard": "sum"}, year - 50_000)
    for at in (year - 40_000, year - 10_000, *range(0, 600_000, 1_000)):
        tally.add({"late": 5, "tasks": 1, "tasks_heard": 1}, at)
        if at == 0:
            assert tally.values(0)["late_record_drop_rate"] == 15 / 40
    assert tally.values(599_000)["late_record_drop_rate"] == 5
    assert len(tally._samples) <= 62


def test_a_limit_among_several_is_heard_as_its_operator_is() -> None:
    held = changes().suppress(limit("10 seconds", clock="wall")).suppress(limit("20 seconds", clock="wall"))
    op = tg.plan.operation(held.node)
    tally = Totals("users", op.numbers, 0)
    count, change = "suppression_buffer_count_current[suppress-2]", "suppression_buffer_count_change[suppress-2]"
    nothing = dict.fromkeys(op.numbers)
    tally.add(nothing | {"tasks": 2, "tasks_heard": 1, count: 1, change: -1}, 10)
    assert math.isnan(tally.values(10)[count])
    tally.add(nothing | {"tasks": 2, "tasks_heard": 2, count: 5, change: 3}, 20)
    tally.add(nothing | {"tasks": 2, "tasks_heard": 1, count: 1, change: -1}, 30)
    assert tally.values(30)[count] == 4


def test_some_tasks_do_not_say_what_the_others_hold() -> None:
    """Behind timers alone, open windows and the fill of a buffer are those of the last batch of all tasks."""
    held = counts().suppress(limit("10 seconds", tg.BufferConfig.max_records(10), clock="wall"))
    op = tg.plan.operation(held.node)
    tally, nothing = Totals("events", op.numbers, 0), dict.fromkeys(op.numbers)
    count, change = "suppression_buffer_count_current", "suppression_buffer_count_change"
    some = {"tasks": 2, "tasks_heard": 1, "open_windows": 1, "suppression_buffer_fill": 0.1, count: 1, change: -1}
    tally.add(nothing | some, 10)
    metrics = tally.values(10)
    assert math.isnan(metrics["open_windows"])
    assert math.isnan(metrics["suppression_buffer_fill"])
    full = {"tasks": 2, "tasks_heard": 2, "open_windows": 7, "suppression_buffer_fill": 0.9, count: 9, change: 1}
    tally.add(nothing | full, 20)
    tally.add(nothing | some, 30)
    metrics = tally.values(30)
    assert (metrics["open_windows"], metrics["suppression_buffer_fill"], metrics[count]) == (7, 0.9, 8)
    tally.add(nothing | some | {change: -7}, 40)  # the other task holds nothing any more
    metrics = tally.values(40)
    assert (metrics["open_windows"], metrics["suppression_buffer_fill"], metrics[count]) == (7, 0.1, 1)


def test_some_tasks_do_not_say_what_a_join_holds() -> None:
    one, other = (tg.table(name, key="k", timestamp="ts") for name in ("users", "homes"))
    held = one.join(other).suppress(limit("10 seconds", clock="wall"))
    op = tg.plan.operation(held.node)
    tally, nothing = Totals("users", op.numbers, 0), dict.fromkeys(op.numbers)
    tally.add(nothing | {"tasks": 2, "tasks_heard": 2, "open_left_records": 10, "open_right_records": 8}, 10)
    tally.add(nothing | {"tasks": 2, "tasks_heard": 1, "open_left_records": 4, "open_right_records": 3}, 20)
    metrics = tally.values(20)
    assert (metrics["open_left_records"], metrics["open_right_records"]) == (10, 8)


def test_the_average_of_a_limit_is_over_the_batches_of_its_operator() -> None:
    """Also over those in which no task was due."""
    held = changes().suppress(limit("10 seconds", clock="wall")).suppress(limit("20 seconds", clock="wall"))
    op = tg.plan.operation(held.node)
    tally, nothing = Totals("users", op.numbers, 0), dict.fromkeys(op.numbers)
    count = "suppression_buffer_count_current"
    waiting = {count: 6, f"{count}[suppress]": 6, f"{count}[suppress-2]": 0}
    tally.add(nothing | waiting | {"tasks": 2, "tasks_heard": 2}, 10)
    tally.add(nothing, 20)
    metrics = tally.values(20)
    assert (
        metrics["suppression_buffer_count_avg"] == metrics["suppression_buffer_count_avg[suppress]"] == (0 + 6 + 6) / 3
    )
