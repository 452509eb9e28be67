"""Late records as rows: whole, one per closed window, as many as the metrics count; other rows stay the same."""

from __future__ import annotations

import itertools
from collections import Counter
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given
from hypothesis import strategies as st

import tidegate as tg
from oracle import Oracle, Row
from properties import cases
from properties.cases import SCHEMA, Case
from properties.comparing import assert_same, placed
from sizes import SMALL
from testing.test_outputs import RECORDS, WINDOWS
from testing.test_outputs import SCHEMA as TYPES
from tidegate.testing import TopologyTestDriver, Window, layout
from tidegate.testing.layout import Tasks

FINAL = tg.Suppressed.until_window_closes(tg.BufferConfig.unbounded())
LATE = ("reason", "late_by", "stream_time")


def split(rows: list[Row]) -> tuple[list[Row], list[Row]]:
    """The rows of `out` without the columns of late records, and the late rows with a record's columns."""
    record = {*SCHEMA, *LATE}
    out, late = [], []
    for row in rows:
        if row.pop("output") == "late":
            late.append(row)
        else:
            out.append(row)
    columns = {name for row in out for name, value in row.items() if value is not None}
    out = [{n: v for n, v in row.items() if n in columns or n not in record} for row in out]
    return out, late


def whole(row: Row) -> tuple[Any, ...]:
    return tuple(row.get(name) for name in SCHEMA)


def counted(items: Any) -> Counter[str]:
    return Counter(map(repr, items))


@given(
    case=cases.cases(ordered=True),
    batches=cases.partitioned(),
    tasks=st.integers(1, 3),
    interleaved=st.booleans(),
    data=st.data(),
)
def test_rows_are_the_records_and_windows_that_the_oracle_drops(
    case: Case, batches: list[list[Row]], tasks: int, interleaved: bool, data: Any
) -> None:
    """Holds for any map task that reads a record and any task that holds its key; the results stay the same."""
    oracle = Oracle(case.topology)
    wanted = [row for batch in batches for row in oracle.batch(batch)]
    table = case.table()
    splits = data.draw(cases.splits(batches, interleaved=interleaved))
    rows, dropped = layout.run(tg.outputs(out=table, late=table.late_records()), batches, tasks=tasks, splits=splits)
    out, late = split(rows)
    keys = [list(row) for row in wanted[:1]]
    out = [{name: row[name] for name in keys[0]} for row in out] if keys else out
    assert_same(case, splits, placed(case.topology, out), placed(case.topology, wanted))
    assert {reason: n for reason, n in dropped.items() if n} == dict(oracle.drops)
    assert Counter(row["reason"] for row in late) == oracle.drops
    told = [(whole(r), r["window"], r["stream_time"], r["late_by"]) for r in late if r["reason"] == "late"]
    assert counted(told) == counted(
        (whole(record), Window(*window), seen, seen - record["ts"]) for record, window, seen in oracle.late
    )
    others = [(whole(row), row["reason"], row["window"], row["late_by"]) for row in late if row["reason"] != "late"]
    assert counted(others) == counted((whole(record), reason, None, None) for record, reason in oracle.skipped)


ORDERED = pa.schema([*TYPES, ("partition", pa.int32()), ("offset", pa.int64())])


@pytest.mark.parametrize("kind", WINDOWS)
@given(records=RECORDS, data=st.data())
def test_every_kind_of_window_tells_what_it_drops(kind: str, records: list[Row], data: st.DataObject) -> None:
    """As many rows as the metrics count, by reason, for any cutting; the results stay the same."""
    events = tg.stream("events", key="k", timestamp="ts", schema=TYPES)
    table = events.group_by_key().windowed_by(WINDOWS[kind]).agg(n=tg.count(), xs=tg.collect_list("x"))
    tables = {"raw": table, "late": table.late_records()}
    single, cut, alone = (TopologyTestDriver(t) for t in (tables, tables, table))
    for record in records:
        single.pipe_input(record)
        alone.pipe_input(record)
    rest = records
    while rest:
        size = data.draw(st.integers(1, 8), label="batch")
        cut.pipe_batch(rest[:size])
        rest = rest[size:]
    raw, late = split(single.read_output())
    shape = list(raw[0]) if raw else []
    assert [{n: row[n] for n in shape if n in row} for row in raw] == [
        {n: row[n] for n in shape if n in row} for row in alone.read_output()
    ]
    _, late_of_cut = split(cut.read_output())
    assert counted(late) == counted(late_of_cut)
    assert Counter(row["reason"] for row in late) == Counter({r: n for r, n in single.drops.items() if n})
    piped = counted((record["k"], record["ts"], record["x"]) for record in records)
    rows = counted((row["k"], row["ts"], row["x"], row["window"]) for row in late)
    for row in late:
        record = row["k"], row["ts"], row["x"]
        assert rows[repr((*record, row["window"]))] <= piped[repr(record)]


@pytest.mark.parametrize("aggregate", [tg.count(), tg.collect_list("x")], ids=str)
@pytest.mark.parametrize("at_once", [False, True])
def test_a_closed_window_on_both_sides_of_a_record_drops_it_once(aggregate: Any, at_once: bool) -> None:
    """[47, 67] is the right window of the record at 46 and the left one of that at 67, to which it is closed."""
    windows = tg.SlidingWindows.of_time_difference_with_no_grace("20 ms")
    events = tg.stream("events", key="k", timestamp="ts", schema=TYPES)
    table = events.group_by_key().windowed_by(windows).agg(total=aggregate)
    driver = TopologyTestDriver(table.late_records())
    records = [{"k": key, "ts": ts, "x": ts} for key, ts in (("a", 45), ("a", 46), ("b", 70), ("a", 67))]
    for batch in [records] if at_once else [[record] for record in records]:
        driver.pipe_batch(batch)
    assert [(row["ts"], row["window"]) for row in driver.read_output()] == [(67, Window(47, 67))]
    assert driver.drops["late"] == 1


def test_late_records_of_a_join_alone_leave_once_as_on_spark() -> None:
    """There a join gives its rows in parts; a late record leaves whether the batch has pairs or not."""
    left, right = (
        tg.stream(
            name, key="k", timestamp="ts", partition="partition", offset="offset", stream_time="max", schema=ORDERED
        )
        for name in ("left", "right")
    )
    windows = tg.JoinWindows.of_time_difference_with_no_grace("10 ms")
    joined = left.join(right, windows, suffixes=("_l", "_r"))
    offsets = itertools.count()

    def records(*of: tuple[str | None, int]) -> list[Row]:
        return [{"k": key, "ts": ts, "x": 1, "partition": 0, "offset": next(offsets)} for key, ts in of]

    batches: list[list[tuple[str, list[Row]]]] = [
        [("left", records(("a", 100), ("b", 1), (None, 100)))],
        [("left", records(("a", 101), ("c", 1))), ("right", records(("a", 101), ("a", 102)))],
    ]
    tasks = Tasks(joined.late_records().node, 1, as_spark=True)
    found = [[(row["k"], row["side"], row["reason"]) for row in tasks.batch(batch)] for batch in batches]
    assert found == [[("b", "left", "late"), (None, "left", "null_key")], [("c", "left", "late")]]


@pytest.mark.parametrize("windows", ["none", *WINDOWS])
def test_late_records_alone_leave_once_where_rows_leave_in_parts_as_on_spark(windows: str) -> None:
    stream = tg.stream("events", key="k", timestamp="ts", partition="partition", offset="offset", schema=ORDERED)
    grouped = stream.group_by_key()
    table = grouped.count() if windows == "none" else grouped.windowed_by(WINDOWS[windows]).count()
    tasks, late = Tasks(table.late_records().node, 1, as_spark=True, tuning=SMALL), Counter[str]()
    offsets = itertools.count()
    for batch in range(3):
        keys = [(f"k{n}", 1_000 * batch + 20 * (n % 3)) for n in range(20)] + [("late", 4), (None, 5)]
        records = [{"k": key, "ts": ts, "x": 1, "partition": 0, "offset": next(offsets)} for key, ts in keys]
        late.update(row["reason"] for row in tasks.batch([(None, records)]))
    assert late == Counter({reason: count for reason, count in tasks.dropped[0].items() if count})
    assert late["null_key"] == 3


def test_a_late_record_is_what_its_stream_gives_after_its_steps() -> None:
    """A record that a step filters out is not late; values that a step computes are in the row."""
    events = tg.stream("events", key="k", timestamp="ts").filter(pc.field("x") > 0).map_values({"y": pc.field("x") + 1})
    counts = events.group_by_key().windowed_by(WINDOWS["tumbling"]).count()
    driver = TopologyTestDriver({"final": counts.suppress(FINAL), "late": counts.late_records()})
    for ts, x in ((30, 1), (2, 5), (3, 0)):
        driver.pipe_input({"k": "a", "ts": ts, "x": x})
    (late,) = driver.read_output()
    assert (late["y"], late["ts"], late["reason"], late["window"]) == (6, 2, "late", Window(0, 10))
    assert "x" not in late
    assert driver.drops["late"] == 1


def test_a_skipped_record_without_an_order_has_the_time_at_which_its_batch_began() -> None:
    """The time of other records of the batch may be known in other tasks alone. The driver has an order: as piped."""
    counts = tg.stream("events", key="k", timestamp="ts").group_by_key().windowed_by(WINDOWS["tumbling"]).count()
    table = tg.outputs(out=counts, late=counts.late_records())
    batches: list[list[Row]] = [
        [{"k": "a", "ts": 1}, {"k": None, "ts": 5}, {"k": "a", "ts": 7}],
        [{"k": "a", "ts": 20}, {"k": None, "ts": 25}, {"k": "a", "ts": None}],
    ]

    def told(rows: list[Row]) -> set[tuple[Any, ...]]:
        return {(row["reason"], row["timestamp"], row["stream_time"]) for row in rows if row["output"] == "late"}

    rows, _ = layout.run(table, batches, tasks=2, splits=[[batch] for batch in batches])
    assert told(rows) == {("null_key", 5, None), ("null_key", 25, 7), ("bad_timestamp", None, 7)}
    driver = TopologyTestDriver(table)
    for batch in batches:
        driver.pipe_batch(batch)
    assert told(driver.read_output()) == {("null_key", 5, 1), ("null_key", 25, 20), ("bad_timestamp", None, 20)}
