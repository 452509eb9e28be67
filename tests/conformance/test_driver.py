"""The scenarios on the test driver: record by record, and where only final results leave, cut into batches."""

from __future__ import annotations

from typing import Any

import pytest

import tidegate as tg
from conformance import buffer, joins, runner
from conformance.runner import Row, Scenario
from conformance.status import GAPS, SUPPORTED
from tidegate.kernel.suppress import strict_bound


def stream() -> Any:
    return tg.stream("events", key="key", timestamp="ts")


def driver_of(table: Any, **state: Any) -> Any:
    from tidegate.testing import TopologyTestDriver

    return TopologyTestDriver(table, **state)


@pytest.fixture(autouse=True)
def sizes(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Count bytes as the scenario does, if its bound is in bytes (SEMANTICS 14.9)."""
    if not (name := getattr(request.node, "callspec", None) and request.node.callspec.params.get("name")):
        return
    if (sizes := runner.sizes(runner.load(name))) is not None:
        monkeypatch.setattr(strict_bound, "entry_bytes", sizes)


RUNNING = [name for name in SUPPORTED if runner.load(name).kind not in ("definition", "buffer", *joins.KINDS)]
FINAL = [name for name in RUNNING if runner.load(name).final and "expected_error" not in runner.load(name).data]
STOPPING = [name for name in RUNNING if runner.load(name).stops]
UPDATING = [name for name in RUNNING if not runner.load(name).final and "expected_error" not in runner.load(name).data]


def driver_for(scenario: Scenario) -> Any:
    """A driver for the scenario that has already emitted the old values that the scenario's records replace."""
    driver = driver_of(runner.build(scenario, stream()))
    if scenario.before:
        driver = driver_of(runner.build(scenario, stream(), limit_ms=0))
        driver.pipe_batch(scenario.before)
        assert len(driver.read_output()) == len(scenario.before)
        driver = driver_of(runner.build(scenario, stream()), state=driver.state())
    return driver


def run(scenario: Scenario) -> None:
    """Replay a scenario record by record, or check its definition."""
    if scenario.kind == "definition":
        return check_definition(scenario)
    if scenario.kind == "buffer":
        return buffer.check(scenario)
    if scenario.kind in joins.KINDS:
        return joins.check(scenario)
    if "expected_error" in scenario.data and not scenario.stops:
        with pytest.raises(runner.expected_error(scenario)) as raised:
            driver_of(runner.build(scenario, stream()))
        assert isinstance(raised.value, tg.TidegateError)
        return None
    rows, after = replay(scenario, driver := driver_for(scenario))
    runner.check(scenario, rows)
    for checkpoint in scenario.data.get("checkpoints", []):
        if checkpoint["output"] == scenario.output:
            assert after[checkpoint["after_inputs"]] == checkpoint["outputs_so_far"], checkpoint
    runner.check_dropped(scenario, driver.dropped)
    if lateness := scenario.data.get("expected_lateness"):
        metrics = driver.metrics()
        assert metrics["record_lateness_max"] == lateness["max"]
        assert metrics["record_lateness_avg"] == pytest.approx(lateness["avg"])
    return None


def replay(scenario: Scenario, driver: Any) -> tuple[list[Row], list[int]]:
    """The rows, and how many had been emitted after each number of inputs; an expected error ends the replay."""
    rows: list[Row] = []
    after = [0]
    for record in scenario.records:
        try:
            driver.pipe_input(record)
        except Exception as error:
            assert scenario.stops, error
            assert isinstance(error, runner.expected_error(scenario)), error
            if "max_bytes" in scenario.topology["suppress"]:
                assert scenario.data["expected_error"]["message_contains"] in str(error)
            assert len(after) == len(scenario.records), f"stopped too early, at {record}"
            return rows, after
        rows += [runner.row_of(row) for row in driver.read_output()]
        after.append(len(rows))
    assert not scenario.stops, "the expected error did not come"
    return rows, after


def check_definition(scenario: Scenario) -> None:
    if "expected_error" in scenario.data:
        with pytest.raises(runner.expected_error(scenario)) as raised:
            runner.define(scenario)
        assert isinstance(raised.value, tg.TidegateError)
    else:
        assert runner.properties_of(scenario, runner.define(scenario)) == scenario.data["expected_properties"]


def piped(scenario: Scenario, driver: Any, sizes: list[int]) -> list[list[Row]]:
    """The rows of each batch."""
    out = []
    for batch in runner.batched(scenario.records, sizes):
        driver.pipe_batch(batch)
        out.append([runner.row_of(row) for row in driver.read_output()])
    return out


@pytest.mark.parametrize("name", SUPPORTED)
def test_record_by_record(name: str) -> None:
    run(runner.load(name))


@pytest.mark.parametrize("name", [name for name in RUNNING if "expected_buffer" in runner.load(name).data])
def test_each_record_leaves_in_the_buffer_what_is_expected(name: str) -> None:
    """Its rows in the order in which they would leave, and those that the record let out."""
    scenario = runner.load(name)
    driver = driver_for(scenario)
    emits, held = scenario.data.get("expected_emits"), scenario.data["expected_buffer"]
    for number, record in enumerate(scenario.records):
        driver.pipe_input(record)
        leaving = [[row["key"], row["value"], row["timestamp"]] for row in driver.read_output()]
        assert emits is None or leaving == emits[number], record
        waiting = sorted(driver.read_state("suppress"), key=lambda row: (row["since"], row["key"].encode()))
        assert [[row["key"], row["value"], row["timestamp"]] for row in waiting] == held[number], record


@pytest.mark.parametrize("name", FINAL)
def test_final_results_do_not_depend_on_the_cutting(name: str) -> None:
    scenario = runner.load(name)
    table = runner.build(scenario, stream())
    for sizes in runner.cuts(len(scenario.records)):
        driver = driver_of(table)
        runner.check(scenario, sum(piped(scenario, driver, sizes), []))
        runner.check_dropped(scenario, driver.dropped)


@pytest.mark.parametrize("name", FINAL)
def test_final_results_survive_a_restart_before_every_record(name: str) -> None:
    scenario = runner.load(name)
    table = runner.build(scenario, stream())
    rows, dropped, state = [], 0, {}
    for record in scenario.records:
        driver = driver_of(table, **state)
        driver.pipe_input(record)
        rows += [runner.row_of(row) for row in driver.read_output()]
        dropped += driver.dropped
        state = {"state": driver.state()}
    runner.check(scenario, rows)
    runner.check_dropped(scenario, dropped)


@pytest.mark.parametrize("name", UPDATING)
def test_updates_of_a_batch_without_caching_are_all_updates(name: str) -> None:
    scenario = runner.load(name)
    if scenario.expected is None or scenario.data.get("expected_order") in ("last_per_key", "set"):
        return  # it does not state every update
    table = runner.build(scenario, stream(), caching=False)
    for sizes in runner.cuts(len(scenario.records)):
        driver = driver_of(table)
        rows = sum(piped(scenario, driver, sizes), [])
        # A batch has no order between keys; the updates of one key and window keep their order.
        assert per_key(rows) == per_key(scenario.expected or [])
        runner.check_dropped(scenario, driver.dropped)


def is_aggregation(name: str) -> bool:
    """Whether caching applies: to updates of an aggregation, but not to the rows that a suppression forwards."""
    scenario = runner.load(name)
    limit = scenario.topology.get("suppress", {}).get("limit_ms", 0)
    return scenario.kind == "windowed_aggregate" and limit == 0


@pytest.mark.parametrize("name", [name for name in UPDATING if is_aggregation(name)])
def test_updates_of_a_batch_with_caching_are_the_last_ones(name: str) -> None:
    scenario = runner.load(name)
    single = replayed_by_record(scenario)
    table = runner.build(scenario, stream())
    for sizes in runner.cuts(len(scenario.records)):
        driver = driver_of(table)
        start = 0
        for size, rows in zip(sizes, piped(scenario, driver, sizes), strict=True):
            batch = single[start : start + size]
            newest = runner.last_per_key(sum(batch, []))
            if size > 1:
                # Created and removed between two flushes: nothing is forwarded (SEMANTICS 13).
                known = {runner.identity(row) for rows_ in single[:start] for row in rows_}
                newest = {k: row for k, row in newest.items() if row["value"] is not None or k in known}
            # Caching works between records, never within one.
            expected = newest.values() if size > 1 else sum(batch, [])
            assert runner.counted(rows) == runner.counted(expected)
            start += size
        runner.check_dropped(scenario, driver.dropped)


def replayed_by_record(scenario: Scenario) -> list[list[Row]]:
    return piped(scenario, driver_of(runner.build(scenario, stream())), [1] * len(scenario.records))


def per_key(rows: list[Row]) -> dict[tuple[Any, ...], list[Row]]:
    grouped: dict[tuple[Any, ...], list[Row]] = {}
    for row in rows:
        grouped.setdefault(runner.identity(row), []).append(row)
    return grouped


@pytest.mark.parametrize("name", STOPPING)
def test_a_batch_that_fills_the_buffer_leaves_nothing_behind(name: str) -> None:
    scenario = runner.load(name)
    driver = driver_for(scenario)
    before = driver.state()
    with pytest.raises(runner.expected_error(scenario)):
        driver.pipe_batch(scenario.records)
    assert driver.read_output() == []
    assert driver.state() == before


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(
            name,
            marks=pytest.mark.skip(reason=gap.reason)
            if gap.issue == "never"
            else pytest.mark.xfail(reason=f"{gap.issue}: {gap.reason}", strict=True),
        )
        for gap in GAPS
        for name in gap.scenarios
    ],
)
def test_not_yet(name: str) -> None:
    run(runner.load(name))


# -- what holds in the place of scenarios that are explained -------------------------------------------------------


def test_a_deleted_result_never_leaves() -> None:
    """For finalResultsShouldDropTombstonesForTimeWindows: [0, 100), without grace, at the stream time of its end."""
    windows = tg.TimeWindows.of_size_with_no_grace("100 ms")
    latest = stream().group_by_key().windowed_by(windows).reduce(lambda _, value: value or None, "value")
    driver = driver_of(latest.suppress(tg.Suppressed.until_window_closes(tg.BufferConfig.unbounded())))
    for key, value, ts in (("hey", 5, 98), ("kept", 5, 98), ("hey", 0, 99), ("other", 1, 100)):
        driver.pipe_input({"key": key, "value": value, "ts": ts})
    assert [(row["key"], row["value"]) for row in driver.read_output()] == [("kept", 5)]
    assert [row["key"] for row in driver.read_state("suppress")] == ["other"]


def test_a_result_leaves_in_the_step_that_closes_its_window() -> None:
    """For finalResultsWithZeroGraceAtWindowEndShouldImmediatelyEmit: the row that it states, when [0, 100] closes."""
    scenario = runner.load("suppress_operator__finalResultsWithZeroGraceAtWindowEndShouldImmediatelyEmit")
    windows = tg.SlidingWindows.of_time_difference_with_no_grace("100 ms")
    latest = stream().group_by_key().windowed_by(windows).reduce(lambda _, value: value, "value")
    driver = driver_of(latest.suppress(tg.Suppressed.until_window_closes(tg.BufferConfig.unbounded())))
    for key, value, ts in (("hey", 14, 0), ("hey", 7, 100)):
        driver.pipe_input({"key": key, "value": value, "ts": ts})
    assert driver.read_output() == []
    driver.pipe_input({"key": "other", "value": 1, "ts": 101})
    assert [runner.row_of(row) for row in driver.read_output()] == scenario.expected
