"""The test driver against the oracle: any topology, any stream, any cutting the semantics allow."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from decimal import Decimal
from math import isnan
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oracle import BuiltIn, Row, Topology, Windows
from properties import cases
from properties.cases import Case
from properties.comparing import assert_same, assert_same_drops, flat, placed, run_driver, run_oracle
from tidegate.testing import TopologyTestDriver


def driver_of(table: Any, **state: Any) -> Any:
    return TopologyTestDriver(table, **state)


@pytest.mark.parametrize("kind", cases.ALL_KINDS)
@given(records=cases.streams(), data=st.data())
def test_record_by_record(kind: str, records: list[Row], data: Any) -> None:
    """Every row, in order, after every record."""
    case = data.draw(cases.cases(kind=kind))
    wanted, drops = run_oracle(case.topology, [[record] for record in records])
    driver = driver_of(case.table())
    for n, (record, rows) in enumerate(zip(records, wanted, strict=True), 1):
        driver.pipe_input(record)
        assert_same(case, records[:n], driver.read_output(), rows)
    assert_same_drops(case, records, driver.drops, drops)
    assert driver.dropped == sum(drops.values())


@pytest.mark.parametrize("kind", cases.KINDS)
@given(records=cases.streams(), data=st.data())
def test_final_results_do_not_depend_on_the_cutting(kind: str, records: list[Row], data: Any) -> None:
    """One source partition: rows, order and drops are those of record by record."""
    case = data.draw(cases.cases(final=True, kind=kind))
    batches = data.draw(cases.cut(records))
    wanted, drops = run_oracle(case.topology, [[record] for record in records])
    got, dropped = run_driver(driver_of(case.table()), batches)
    assert_same(case, batches, flat(got), flat(wanted))
    assert_same_drops(case, batches, dropped, drops)


@pytest.mark.parametrize("kind", cases.ALL_KINDS)
@given(records=cases.streams(), data=st.data())
def test_updates_of_batches(kind: str, records: list[Row], data: Any) -> None:
    """With caching the last update per key, window and batch; without it all of them, per key in order."""
    case = data.draw(cases.cases(final=False, kind=kind))
    batches = data.draw(cases.cut(records))
    wanted, drops = run_oracle(case.topology, batches)
    got, dropped = run_driver(driver_of(case.table()), batches)
    for rows, expected in zip(got, wanted, strict=True):
        assert_same(case, batches, placed(case.topology, rows), placed(case.topology, expected))
    assert_same_drops(case, batches, dropped, drops)


@pytest.mark.parametrize("kind", cases.ALL_KINDS)
@given(batches=cases.partitioned(), data=st.data())
def test_several_partitions_in_any_order_of_arrival(kind: str, batches: list[list[Row]], data: Any) -> None:
    """Same records, same batches, same rows: partition and offset give the order, not the order of piping."""
    case = data.draw(cases.cases(ordered=True, kind=kind))
    piped = [data.draw(st.permutations(batch)) for batch in batches]
    wanted, drops = run_oracle(case.topology, batches)
    got, dropped = run_driver(driver_of(case.table()), piped)
    for rows, expected in zip(got, wanted, strict=True):
        if case.topology.final:
            assert_same(case, piped, rows, expected)
        assert_same(case, piped, placed(case.topology, rows), placed(case.topology, expected))
    assert_same_drops(case, piped, dropped, drops)


@given(case=cases.cases(ordered=True), batches=cases.partitioned(max_partitions=1), data=st.data())
def test_one_partition_with_offsets_is_one_partition_without(case: Case, batches: list[list[Row]], data: Any) -> None:
    """With one partition, offsets give the same order as piping."""
    plain = replace(case, topology=replace(case.topology, partition=None, offset=None))
    got, dropped = run_driver(driver_of(case.table()), [data.draw(st.permutations(batch)) for batch in batches])
    wanted, drops = run_driver(driver_of(plain.table()), batches)
    assert_same(case, batches, placed(case.topology, flat(got)), placed(case.topology, flat(wanted)))
    assert_same_drops(case, batches, dropped, drops)


@pytest.mark.parametrize("kind", cases.ALL_KINDS)
@given(batches=cases.partitioned(), data=st.data())
def test_a_restart_between_any_two_batches_changes_nothing(kind: str, batches: list[list[Row]], data: Any) -> None:
    """A new driver goes on from nothing but the state of the old one."""
    case = data.draw(cases.cases(ordered=True, kind=kind))
    wanted, drops = run_oracle(case.topology, batches)
    driver = driver_of(case.table())
    dropped: Counter[str] = Counter()
    for batch, expected in zip(batches, wanted, strict=True):
        driver.pipe_batch(batch)
        rows = driver.read_output()
        assert_same(case, batches, placed(case.topology, rows), placed(case.topology, expected))
        if data.draw(st.booleans(), label="restart"):
            dropped.update(driver.drops)
            driver = driver_of(case.table(), state=driver.state())
    dropped.update(driver.drops)
    assert_same_drops(case, batches, dropped, drops)


@given(case=cases.cases(), records=cases.streams())
def test_without_a_schema_types_come_from_the_values(case: Case, records: list[Row]) -> None:
    """A column that is null at first, or always, aggregates as if its type had been given."""
    # A decimal's precision cannot be guessed from a value, so those columns are left to the given schemas.
    if any(isinstance(a, BuiltIn) and a.column == "d" for a in case.topology.aggregates.values()):
        return
    records = [{name: value for name, value in record.items() if name != "d"} for record in records]
    wanted, drops = run_oracle(case.topology, [[record] for record in records])
    got, dropped = run_driver(driver_of(replace(case, with_schema=False).table()), [[record] for record in records])
    assert_same(case, records, flat(got), flat(wanted))
    assert_same_drops(case, records, dropped, drops)


@given(records=cases.streams(), windows=cases.windows(), column=st.sampled_from(["n", "s", "x"]), data=st.data())
def test_the_sketch_of_distinct_values_does_not_depend_on_the_cutting(
    records: list[Row], windows: Windows, column: str, data: Any
) -> None:
    """The estimate is exactly the same, and for few values close to the true count."""
    case = Case(Topology(("k",), windows, {"v": BuiltIn("approx_count_distinct", column)}, final=True))
    single, _ = run_driver(driver_of(case.table()), [[record] for record in records])
    batched, _ = run_driver(driver_of(case.table()), data.draw(cases.cut(records)))
    assert_same(case, records, flat(batched), flat(single))
    truth, _ = run_oracle(case.topology, [[record] for record in records])
    for got, wanted in zip(flat(single), flat(truth), strict=True):
        assert abs(got["v"] - wanted["v"]) <= 1, (got, wanted)


@given(case=cases.cases(), records=cases.streams(bad=False))
def test_lateness_is_measured_against_the_stream_time_before_each_record(case: Case, records: list[Row]) -> None:
    """SEMANTICS section 10: 0 if the record moves stream time, else the distance to it, over all records."""
    driver = driver_of(case.table())
    newest, lateness = -1, []
    for record in records:
        lateness.append(max(0, newest - record["ts"]))
        newest = max(newest, record["ts"])
        driver.pipe_input(record)
    if lateness:
        metrics = driver.metrics()
        assert metrics["record_lateness_max"] == max(lateness)
        assert metrics["record_lateness_avg"] == pytest.approx(sum(lateness) / len(lateness))


@pytest.mark.parametrize("seed", range(4))
def test_many_batches_into_few_windows(seed: int) -> None:
    """So many batches that stored state must be merged on the way, with a restart now and then."""
    random = Random(seed)
    names = ["count", "sum", "min", "last", "collect_list"]
    aggregates = {name: BuiltIn(name, "n") for name in names[: 3 + seed]}
    topology = Topology(("k",), Windows(4_000, 1_000, 2_000), aggregates, True, partition="partition", offset="offset")
    case = Case(topology)
    batches, offset = [], 0
    for n in range(150):
        batch = []
        for _ in range(random.choice([0, 3, 20])):
            offset += 1
            ts = max(0, n * 60 + random.randint(-3_000, 200))
            key = random.choice("abcdefgh")
            batch.append({"k": key, "n": offset, "ts": ts, "partition": random.randint(0, 2), "offset": offset})
        batches.append(batch)
    wanted, drops = run_oracle(topology, batches)
    driver, dropped = driver_of(case.table()), Counter[str]()
    for n, (batch, expected) in enumerate(zip(batches, wanted, strict=True)):
        driver.pipe_batch(batch)
        assert_same(case, [f"batch {n} of seed {seed}"], driver.read_output(), expected)
        if n % 40 == 39:
            dropped.update(driver.drops)
            driver = driver_of(case.table(), state=driver.state())
    dropped.update(driver.drops)
    assert_same_drops(case, [f"seed {seed}"], dropped, drops)


# -- examples that a reader can follow ----------------------------------------------------------------------------


def tumbling(aggregates: dict[str, Any], **more: Any) -> Case:
    options = {"final": True} | more
    return Case(Topology(("k",), Windows(10, 10, 0), aggregates, **options))


def test_one_slow_partition_is_not_late_within_its_own_batch() -> None:
    """A record sees its own partition's time and that of earlier batches, not the other partition's."""
    case = tumbling({"v": BuiltIn("count")}, partition="partition", offset="offset")
    slow = [{"k": "a", "ts": ts, "partition": 0, "offset": ts} for ts in (1, 2)]
    fast = [{"k": "a", "ts": 100, "partition": 1, "offset": 0}]
    driver = driver_of(case.table())
    driver.pipe_batch([*fast, *slow])
    assert driver.read_output() == [{"k": "a", "window": (0, 10), "v": 2, "timestamp": 2}]
    driver.pipe_batch([{"k": "a", "ts": 3, "partition": 0, "offset": 3}])
    assert driver.read_output() == []
    assert driver.drops.get("late") == 1


def test_records_meet_in_the_order_of_the_stream_time_they_see() -> None:
    """Not by partition and not by timestamp: 1@5 sees 5, 0@3 sees 3, and 0@1 after 0@9 sees 9."""
    case = tumbling({"v": BuiltIn("collect_list", "s")}, partition="partition", offset="offset")
    batch = [
        {"k": "a", "s": "first", "ts": 3, "partition": 0, "offset": 0},
        {"k": "a", "s": "third", "ts": 9, "partition": 0, "offset": 1},
        {"k": "a", "s": "fourth", "ts": 1, "partition": 0, "offset": 2},
        {"k": "a", "s": "second", "ts": 5, "partition": 1, "offset": 0},
        {"k": "b", "s": "close", "ts": 10, "partition": 1, "offset": 1},
    ]
    driver = driver_of(case.table())
    driver.pipe_batch(batch[::-1])
    (row,) = driver.read_output()
    assert row["v"] == ["first", "second", "third", "fourth"]


def test_a_function_that_returns_none_deletes_the_entry() -> None:
    """The update is a tombstone; the next record starts afresh, with its own timestamp; there is no final row."""
    records = [{"k": "a", "s": s, "ts": ts} for s, ts in (("p", 5), ("x", 3), ("q", 1))]
    updates = driver_of(tumbling({"v": cases.FUNCTIONS["reduce_deleting"][0]}, final=False).table())
    for record in records:
        updates.pipe_input(record)
    assert [(r["v"], r["timestamp"], r["deleted"]) for r in updates.read_output()] == [
        ("p", 5, False),
        (None, 5, True),
        ("q", 1, False),
    ]
    final = driver_of(tumbling({"v": cases.FUNCTIONS["reduce_deleting"][0]}).table())
    final.pipe_batch([*records[:2], {"k": "b", "s": "close", "ts": 10}])
    assert final.read_output() == []


def test_negative_integer_keys_leave_in_the_order_of_their_bytes() -> None:
    """SEMANTICS section 1: serialized keys are ordered as unsigned bytes, so negative numbers come last."""
    case = Case(Topology(("j",), Windows(10, 10, 0), {"v": BuiltIn("count")}, final=True))
    driver = driver_of(case.table())
    driver.pipe_batch([{"j": j, "ts": 0} for j in (2, -1, 0, -5, 1)] + [{"j": 0, "ts": 10}])
    assert [row["j"] for row in driver.read_output()] == [0, 1, 2, -5, -1]


def test_a_mean_of_decimals_is_rounded_half_up() -> None:
    case = tumbling({"v": BuiltIn("mean", "d", 3)})
    driver = driver_of(case.table())
    values = ["0.001", "0.001", "0.000"]
    driver.pipe_batch([{"k": "a", "d": Decimal(v), "ts": 0} for v in values] + [{"k": "a", "d": None, "ts": 10}])
    (row,) = driver.read_output()
    assert row["v"] == Decimal("0.0006667")


def test_a_record_with_two_flaws_is_counted_once() -> None:
    driver = driver_of(tumbling({"v": BuiltIn("count")}).table())
    driver.pipe_batch([{"k": None, "ts": None}, {"k": None, "ts": -1}, {"k": "a", "ts": 5}])
    assert driver.dropped == 2


def test_the_example_to_beat() -> None:
    """DESIGN section 2: 3, 1, 1, whatever the cutting."""
    minute = 60_000
    case = Case(Topology(("k",), Windows(2 * minute, 2 * minute, 2 * minute), {"v": BuiltIn("count")}, final=True))
    records = [{"k": "A", "ts": m * minute} for m in (10, 11, 13, 11, 14, 10)] + [{"k": "B", "ts": 60 * minute}]
    for size in range(1, len(records) + 1):
        driver = driver_of(case.table())
        rows, drops = run_driver(driver, [records[i : i + size] for i in range(0, len(records), size)])
        assert [(row["window"].start // minute, row["v"]) for row in flat(rows)] == [(10, 3), (12, 1), (14, 1)]
        assert drops["late"] == 1


def test_nan_is_larger_than_every_number_and_null_is_none() -> None:
    case = tumbling({"low": BuiltIn("min", "x"), "high": BuiltIn("max", "x")})
    driver = driver_of(case.table())
    records = [{"k": "a", "x": x, "ts": 0} for x in (None, float("nan"), 1.0, float("inf"))]
    driver.pipe_batch([*records, {"k": "a", "x": None, "ts": 10}])
    (row,) = driver.read_output()
    assert row["low"] == 1.0
    assert isnan(row["high"])
