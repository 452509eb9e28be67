"""Aggregation without windows against the oracle: one row per key, refined; any cutting, any layout, restarts."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

import tidegate as tg
from oracle import BuiltIn, NoWindows, Row, Topology
from properties import cases
from properties.cases import VALUES, Case
from properties.comparing import assert_same, assert_same_drops, flat, placed, run_driver, run_oracle
from tidegate.kernel.tuning import Tuning
from tidegate.testing import TopologyTestDriver, layout

SMALL = Tuning(bucket_rows=3)
"""Buckets split at three rows, so that a handful of keys makes a tree."""


@st.composite
def some_without_value(draw: Any, case: Case, batches: list[list[Row]]) -> list[list[Row]]:
    """The records, a few of them without any value; key columns that are not the topology's are values."""
    empty = dict.fromkeys({*VALUES, "k", "j"} - set(case.topology.key))
    return [[record | empty if draw(st.integers(0, 7)) == 0 else record for record in batch] for batch in batches]


@given(case=cases.cases(plain=True), records=cases.streams(), data=st.data())
def test_record_by_record(case: Case, records: list[Row], data: Any) -> None:
    batches = data.draw(some_without_value(case, [[record] for record in records]))
    wanted, drops = run_oracle(case.topology, batches)
    got, dropped = run_driver(TopologyTestDriver(case.table(), tuning=SMALL), batches)
    assert_same(case, batches, flat(got), flat(wanted))
    assert_same_drops(case, batches, dropped, drops)


@given(case=cases.cases(plain=True, ordered=True), batches=cases.partitioned(max_size=40), data=st.data())
def test_batches_of_several_partitions_with_restarts(case: Case, batches: list[list[Row]], data: Any) -> None:
    batches = data.draw(some_without_value(case, batches))
    wanted, drops = run_oracle(case.topology, batches)
    driver, dropped = TopologyTestDriver(case.table(), tuning=SMALL), Counter[str]()
    for batch, expected in zip(batches, wanted, strict=True):
        driver.pipe_batch(data.draw(st.permutations(batch)))
        assert_same(case, batches, placed(case.topology, driver.read_output()), placed(case.topology, expected))
        if data.draw(st.booleans(), label="restart"):
            dropped.update(driver.drops)
            driver = TopologyTestDriver(case.table(), state=driver.state(), tuning=SMALL)
    dropped.update(driver.drops)
    assert_same_drops(case, batches, dropped, drops)


@given(
    case=cases.cases(plain=True, ordered=True),
    batches=cases.partitioned(),
    tasks=st.integers(1, 4),
    interleaved=st.booleans(),
    data=st.data(),
)
def test_any_layout(case: Case, batches: list[list[Row]], tasks: int, interleaved: bool, data: Any) -> None:
    batches = data.draw(some_without_value(case, batches))
    splits = data.draw(cases.splits(batches, interleaved=interleaved))
    wanted, drops = run_oracle(case.topology, batches)
    rows, dropped = layout.run(case.table(), batches, tasks=tasks, splits=splits, tuning=SMALL)
    assert_same(case, splits, placed(case.topology, rows), placed(case.topology, flat(wanted)))
    assert_same_drops(case, splits, dropped, drops)


@given(records=cases.streams(), limit=st.integers(0, 40))
def test_a_time_limit_behind_a_table_holds_its_updates(records: list[Row], limit: int) -> None:
    """SEMANTICS 6.2, by hand: an update waits from its key's first one on; a later one takes its place."""
    case = Case(Topology(("k",), NoWindows(), {"v": BuiltIn("count")}, final=False, caching=False))
    wanted, _ = run_oracle(case.topology, [[record] for record in records])
    waiting: dict[str, tuple[int, Row]] = {}
    expected: list[Row] = []
    now = -1
    for row in flat(wanted):
        now = max(now, row["timestamp"])
        first = waiting[row["k"]][0] if row["k"] in waiting else row["timestamp"]
        waiting[row["k"]] = (first, row)
        for since, key in sorted((since, key.encode()) for key, (since, _) in waiting.items() if since <= now - limit):
            expected.append(waiting.pop(key.decode())[1])
            assert since <= now - limit
    held = tg.Suppressed.until_time_limit(f"{limit} ms", tg.BufferConfig.unbounded(), clock="stream")
    driver = TopologyTestDriver(case.table().suppress(held), tuning=SMALL)
    for record in records:
        driver.pipe_input(record)
    assert_same(case, records, driver.read_output(), expected)


def test_a_tombstone_where_a_function_returns_none() -> None:
    """The key is forgotten: the next record starts afresh. With caching, a key without a row makes no tombstone."""
    case = Case(Topology(("k",), NoWindows(), {"v": cases.FUNCTIONS["reduce_deleting"][0]}, final=False))
    records = [{"k": "a", "s": s, "ts": ts} for s, ts in (("p", 5), ("x", 3), ("q", 1))]
    driver = TopologyTestDriver(case.table(), tuning=SMALL)
    for record in records:
        driver.pipe_input(record)
    assert [(r["v"], r["timestamp"], r["deleted"]) for r in driver.read_output()] == [
        ("p", 5, False),
        (None, 5, True),
        ("q", 1, False),
    ]
    assert "window" not in case.table().describe()
    batch = TopologyTestDriver(replace(case, with_schema=False).table(), tuning=SMALL)
    batch.pipe_batch(records[:2])
    assert batch.read_output() == []


def test_a_record_without_a_value_is_skipped_and_moves_nothing() -> None:
    """Unlike in windows (SEMANTICS 15): without windows a record whose values are all null does not count."""
    stream = tg.stream("events", key="k", timestamp="ts")
    plain, windowed = (
        TopologyTestDriver(table, tuning=SMALL)
        for table in (
            stream.group_by_key().count(),
            stream.group_by_key().windowed_by(tg.UnlimitedWindows.start_on(0)).count(),
        )
    )
    for driver in (plain, windowed):
        for v, ts in ((1, 0), (None, 5), (2, 3)):
            driver.pipe_input({"k": "a", "v": v, "ts": ts})
    assert [(row["count"], row["timestamp"]) for row in plain.read_output()] == [(1, 0), (2, 3)]
    assert plain.drops["null_value"] == 1
    assert plain.metrics()["stream_time"] == 3
    assert [(row["count"], row["timestamp"]) for row in windowed.read_output()] == [(1, 0), (2, 5), (3, 5)]
