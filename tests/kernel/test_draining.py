"""A drain emits everything once, and the state then takes no more records."""

from __future__ import annotations

from typing import Any

import pytest

import tidegate as tg
from tidegate.kernel.exchange.packing import pack
from tidegate.kernel.rows.layout import Layout
from tidegate.kernel.stage import Stage
from tidegate.kernel.state.store import DictStore
from tidegate.kernel.upgrade.drain import marks
from tidegate.testing import TopologyTestDriver

UNBOUNDED = tg.BufferConfig.unbounded()
FINAL = tg.Suppressed.until_window_closes(UNBOUNDED)
LIMIT = tg.Suppressed.until_time_limit("90 ms", UNBOUNDED, clock="stream")
WALL = tg.Suppressed.until_time_limit("90 ms", UNBOUNDED, clock="wall")
TIME = tg.TimeWindows.of_size_and_grace("10 ms", "5 ms")
HOPPING = TIME.advance_by("5 ms")
SLIDING = tg.SlidingWindows.of_time_difference_and_grace("4 ms", "5 ms")
SESSIONS = tg.SessionWindows.of_inactivity_gap_and_grace("4 ms", "5 ms")
RECORDS = [{"k": k, "ts": ts} for k, ts in (("a", 1), ("b", 3), ("a", 16), ("b", 21))]


def grouped() -> tg.KGroupedStream:
    return tg.stream("events", key="k", timestamp="ts").group_by_key()


def counts(windows: Any) -> tg.KTable:
    return grouped().windowed_by(windows).agg(n=tg.count())


def strict() -> tg.Suppressed:
    return tg.Suppressed.until_window_closes(tg.BufferConfig.max_records(90).shut_down_when_full())


@pytest.mark.parametrize(
    "table",
    [
        *(counts(windows).suppress(FINAL) for windows in (TIME, HOPPING, SLIDING, SESSIONS)),
        counts(TIME).suppress(strict()),
        counts(SESSIONS).suppress(strict()),
        counts(TIME).suppress(FINAL).suppress(LIMIT),
    ],
)
def test_every_window_closes(table: tg.KTable) -> None:
    """A drain emits the rows that a continued stream would emit."""
    drained, longer = TopologyTestDriver(table), TopologyTestDriver(table)
    for record in RECORDS:
        drained.pipe_input(record)
        longer.pipe_input(record)
    early = drained.read_output()
    assert longer.read_output() == early
    drained.drain()
    out = drained.read_output()
    assert out
    for ts in (900, 1900):
        longer.pipe_input({"k": "z", "ts": ts})
    order = [repr(row) for row in longer.read_output() if row["k"] != "z"]
    assert sorted(map(repr, out)) == sorted(order)


@pytest.mark.parametrize("limit", [LIMIT, WALL])
def test_every_buffer_empties(limit: Any) -> None:
    for table in (grouped().agg(n=tg.count()), counts(TIME), counts(SESSIONS)):
        plain, held = TopologyTestDriver(table), TopologyTestDriver(table.suppress(limit))
        for record in RECORDS:
            plain.pipe_input(record)
            held.pipe_input(record)
        held.drain()
        last = {(row["k"], row.get("window")): row for row in plain.read_output()}
        live = [row for row in last.values() if not row.get("deleted")]
        out = [row for row in held.read_output() if not row.get("deleted")]
        assert sorted(map(repr, out)) == sorted(map(repr, live))
        held.advance_wall_clock("0 ms") if limit is LIMIT else None


@pytest.mark.parametrize("clock", ["stream", "wall"])
def test_a_full_buffer_does_not_stop_a_drain(clock: Any) -> None:
    """All windows close at once, and none of their rows has to wait: a strict buffer guards what stays."""
    bound = tg.BufferConfig.max_records(1).with_max_bytes(1).shut_down_when_full()
    limits = [tg.Suppressed.until_time_limit("90 ms", buffer, clock=clock) for buffer in (UNBOUNDED, bound)]
    rows = []
    for limit in limits:
        driver = TopologyTestDriver(counts(TIME).suppress(FINAL).suppress(limit).to_stream().group_by("n").count("m"))
        for record in ({"k": "a", "ts": 1}, {"k": "b", "ts": 3}, {"k": "b", "ts": 11}):
            driver.pipe_input(record)
        driver.drain()
        rows.append(driver.read_output())
    assert rows[0] == rows[1] != []


def test_both_operators_of_a_chain() -> None:
    table = counts(TIME).suppress(FINAL).to_stream().group_by("n").agg(m=tg.count())
    driver = TopologyTestDriver(table)
    for record in RECORDS:
        driver.pipe_input(record)
    driver.read_output()
    driver.drain()
    assert driver.read_output()[-1]["m"] == 4


def test_nothing_goes_on_afterwards() -> None:
    table = counts(TIME).suppress(FINAL)
    driver = TopologyTestDriver(table)
    driver.pipe_input(RECORDS[0])
    driver.drain()
    assert len(driver.read_output()) == 1
    for again in (driver, TopologyTestDriver(table, state=driver.state())):
        with pytest.raises(tg.CheckpointError, match="was drained"):
            again.pipe_input(RECORDS[0])
    with pytest.raises(tg.CheckpointError, match="was drained"):
        driver.drain()
    assert driver.read_output() == []


def test_another_run_is_refused_between_the_two_steps() -> None:
    driver = TopologyTestDriver(counts(TIME).suppress(FINAL))
    driver.pipe_input(RECORDS[0])
    driver._step(driver._entries, [[]], 0, drains=True)
    (change,) = driver.check_upgrade(counts(TIME).suppress(FINAL)).changes
    assert (change.what, change.before) == ("drain", "begun")
    assert "Call tg.drain(...) again" in change.loses
    with pytest.raises(tg.CheckpointError, match="has begun"):
        driver.pipe_input(RECORDS[1])
    assert driver.read_output() == []
    driver._step(driver._entries, [[]], 0, drains=True)
    assert [row["n"] for row in driver.read_output()] == [1]


def test_a_step_of_marks_alone_reaches_every_task() -> None:
    import pyarrow as pa

    table = counts(TIME).suppress(FINAL)
    from tidegate.plan import operation

    schema = pa.schema({"k:k": pa.string(), "ts": pa.int64()})
    layout = Layout(operation(table.node), schema)
    stores = [DictStore(), DictStore()]
    batch = pa.table({"k:k": ["a", "b", "c", "d"], "ts": [1, 2, 3, 4]}, schema=schema).to_batches()[0]
    rows = 0
    for task, blob in pack(layout, [batch], range(2)):
        Stage(layout, 2).step(stores[task], [blob])
    for _ in range(2):
        for task, blob in marks(layout, 2):
            rows += Stage(layout, 2, drains=True).step(stores[task], [blob]).rows.num_rows
    assert rows == 4
