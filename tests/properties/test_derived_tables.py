"""Joins of tables that an operator makes: windowed tables with each other, and a stream with a derived table.

The rows of each table come from a driver of its own, and meet in the oracles of joins, one change after the other.
"""

from __future__ import annotations

from collections import defaultdict
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import tidegate as tg
from oracle_joins import StreamTableJoin, TableTableJoin
from properties.test_suppression import limits, suppressed
from sizes import SMALL
from tidegate.kernel.tuning import DEFAULT
from tidegate.testing import TopologyTestDriver
from tidegate.testing.layout import Tasks

Row = dict[str, Any]

WINDOWS = {
    "tumbling": [tg.TimeWindows.of_size_and_grace("7 ms", grace) for grace in ("0 ms", "9 ms")],
    "hopping": [tg.TimeWindows.of_size_and_grace("7 ms", grace).advance_by("3 ms") for grace in ("0 ms", "9 ms")],
    "sliding": [tg.SlidingWindows.of_time_difference_and_grace("5 ms", grace) for grace in ("0 ms", "9 ms")],
    "session": [tg.SessionWindows.of_inactivity_gap_and_grace("4 ms", grace) for grace in ("0 ms", "9 ms")],
    "batch": [tg.BatchWindows.of_size("7 ms"), tg.BatchWindows.of_size("9 ms")],
    "unlimited": [tg.UnlimitedWindows.start_on(5)],
}
KEYS = st.sampled_from(["a", "a", "b", None])
STEPS = st.sampled_from([0, 0, 1, 3, -2, -6, -20, 8, 25])
TEXTS = st.sampled_from("xyz")
FINAL = tg.Suppressed.until_window_closes(tg.BufferConfig.unbounded())
SIDES = ("left", "right")


def appended(one: str, other: str) -> str | None:
    return None if other == "x" else one + other


def every(name: str) -> tg.Materialized:
    return tg.Materialized.as_(name).with_caching_disabled()


@st.composite
def batches(draw: Any, names: tuple[str, ...]) -> list[tuple[str, list[Row]]]:
    """Batches of one input each; a table's record is a deletion if it has no text."""
    now, offset, made = draw(st.integers(0, 9)), 0, []
    for _ in range(draw(st.integers(0, 14))):
        batch = []
        for _ in range(draw(st.sampled_from([1, 1, 1, 3]))):
            now = max(0, now + draw(STEPS))
            text = draw(TEXTS)
            gone = draw(st.integers(0, 4)) == 0
            batch.append({"k": draw(KEYS), "ts": now, "s": text, "gone": gone, "p": 0, "o": offset})
            offset += 1
        made.append((draw(st.sampled_from(names)), batch))
    return made


TEXT, LONG = pa.string(), pa.int64()


def source(how: Any, name: str, ordered: bool, key: str = "k", value: Any = ("s", TEXT), **more: Any) -> Any:
    """A stream or a table; `ordered`: with partition and offset."""
    order = {"partition": "p", "offset": "o"} if ordered else {}
    deleted = [("gone", pa.bool_())] * bool(more)
    schema = pa.schema([(key, TEXT), ("ts", LONG), value, *deleted, *[("p", pa.int32()), ("o", LONG)] * ordered])
    return how(name, key=key, timestamp="ts", schema=schema, **order, **more)


def windowed(data: Any, kind: str) -> Any:
    """A function that makes the table of a side."""
    windows = data.draw(st.sampled_from(WINDOWS[kind]), label="windows")
    aggregate = data.draw(st.sampled_from(["count", "reduce"]), label="aggregate")
    ends = ["updates", "updates", "limit", *["on close", "suppress"] * (kind != "unlimited")]
    end, limit = data.draw(st.sampled_from(ends), label="end"), suppressed(data.draw(limits(bounded=False)))
    caching = data.draw(st.booleans(), label="caching")

    def made(side: str, ordered: bool) -> Any:
        grouped = source(tg.stream, side, ordered).group_by_key().windowed_by(windows)
        if end == "on close":
            grouped = grouped.emit_strategy(tg.EmitStrategy.on_window_close())
        store = tg.Materialized.as_(side) if caching else every(side)
        if aggregate == "count":
            table = grouped.count(side, materialized=store)
        else:
            table = grouped.reduce(appended, "s", side, materialized=store)
        return table.suppress({"limit": limit, "suppress": FINAL}[end]) if end in ("limit", "suppress") else table

    return made


@pytest.mark.parametrize("ordered", [False, True], ids=["driver", "tasks"])
@pytest.mark.parametrize("kind", WINDOWS)
@given(data=st.data())
def test_windowed_tables_join_per_key_and_window(kind: str, ordered: bool, data: Any) -> None:
    """Each side is an operator with a stream time of its own; their rows meet as changes of tables do."""
    tables = [windowed(data, kind) for _ in SIDES]
    how = data.draw(st.sampled_from(["inner", "left", "outer"]), label="how")
    left, right = (table(side, ordered) for side, table in zip(SIDES, tables, strict=True))
    joined = left.join(right, how, materialized=every("join"))
    alone = {side: TopologyTestDriver(table) for side, table in zip(SIDES, (left, right), strict=True)}
    driver, oracle = TopologyTestDriver(joined), TableTableJoin(how)
    tasks = Tasks(joined.node, data.draw(st.integers(1, 3)), tuning=data.draw(st.sampled_from([DEFAULT, SMALL])))
    for side, drawn in data.draw(batches(SIDES)):
        batch = [of_schema(record, ordered, "k", "s") for record in drawn]
        alone[side].pipe_batch(batch)
        wanted: Any = defaultdict(list)
        for row in alone[side].read_output():
            at = (row["k"], row["window"])
            value = None if row.get("deleted") else row[side]
            wanted[at] += [(*one[1:],) for one in oracle.take(side, at, value, row["timestamp"])]
        got: Any = defaultdict(list)
        for row in tasks.batch([(side, batch)]) if ordered else _piped(driver, side, batch):
            row_of = (row.get("left"), row.get("right"), row["timestamp"], row["deleted"])
            got[row["k"], row["window"]].append(row_of)
        # Changes of different keys have no order.
        assert got == {at: rows for at, rows in wanted.items() if rows}, (side, batch)
        if data.draw(st.booleans(), label="restart"):
            driver = TopologyTestDriver(joined, driver.state())


def of_schema(record: Row, ordered: bool, *columns: str) -> Row:
    """The columns of a record that an input has."""
    return {name: record[name] for name in (*columns, "ts", *(("p", "o") if ordered else ()))}


def _piped(driver: TopologyTestDriver, side: str, batch: list[Row]) -> list[Row]:
    driver.pipe_batch(batch, side)
    return driver.read_output()


DERIVED = ("count", "reduce", "groups", "filter", "limit", "limit of a count", "filter of a count", "join")


def derived(what: str, ordered: bool, limit: Any) -> Any:
    """A table that an operator or a step makes of "t"; its value is `v`."""
    table = source(tg.table, "t", ordered, deleted="gone")
    counts = source(tg.stream, "t", ordered).group_by_key().count("v", materialized=every("count"))
    texts = {"v": "string"}
    match what:
        case "count":
            return counts
        case "reduce":
            return (
                source(tg.stream, "t", ordered).group_by_key().reduce(appended, "s", "v", materialized=every("reduce"))
            )
        case "groups":
            grouped = table.map_values(lambda row: {"g": row["s"]}, types={"g": "string"}).group_by("g")
            return grouped.count("v", materialized=every("groups"))
        case "filter":
            return table.filter(lambda row: row["s"] != "z").map_values(lambda row: {"v": row["s"]}, types=texts)
        case "limit":
            return table.suppress(limit).map_values(lambda row: {"v": row["s"]}, types=texts)
        case "limit of a count":
            return counts.suppress(limit)
        case "filter of a count":
            return counts.filter(lambda row: row["v"] % 2 == 1)
    other = source(tg.table, "u", ordered, deleted="gone").map_values(
        lambda row: {"r": row["s"]}, types={"r": "string"}
    )
    both = lambda left, right: {"v": f"{left and left['l']}{right and right['r']}"}  # noqa: E731
    left = table.map_values(lambda row: {"l": row["s"]}, types={"l": "string"})
    return left.join(other, "outer", value_joiner=both, types=texts, materialized=every("both"))


@pytest.mark.parametrize("ordered", [False, True], ids=["driver", "tasks"])
@pytest.mark.parametrize("what", DERIVED)
@given(data=st.data())
def test_a_stream_looks_up_the_rows_that_a_table_has_emitted(what: str, ordered: bool, data: Any) -> None:
    """Behind a limit it finds the row that left last (SEMANTICS 6.5)."""
    how = data.draw(st.sampled_from(["inner", "left"]), label="how")
    table = derived(what, ordered, suppressed(data.draw(limits(windowed=False, bounded=False))))
    key = "g" if what == "groups" else "k"
    joined = source(tg.stream, "s", ordered, key, ("n", LONG)).join(table, how=how)
    alone, driver, oracle = TopologyTestDriver(table), TopologyTestDriver(joined), StreamTableJoin(how)
    tasks = Tasks(joined.node, data.draw(st.integers(1, 3)), tuning=data.draw(st.sampled_from([DEFAULT, SMALL])))
    names = ("s", "t", *["u"] * (what == "join"))
    for name, drawn in data.draw(batches(names)):
        batch = [of_schema(*read(name, what, record, ordered)) for record in drawn]
        wanted = []
        if name == "s":
            taken = [oracle.take("left", record[key], record["n"], record["ts"]) for record in batch]
            wanted = [(row.key, row.left, row.right, row.timestamp) for rows in taken for row in rows]
        else:
            alone.pipe_batch(batch, name)
            for row in alone.read_output():
                oracle.take("right", row[key], None if row.get("deleted") else row["v"], row["timestamp"])
        rows = tasks.batch([(name, batch)]) if ordered else _piped(driver, name, batch)
        got = [(row[key], row["n"], row.get("v"), row["timestamp"]) for row in rows]
        assert sorted(got, key=repr) == sorted(wanted, key=repr), (name, batch)
        if data.draw(st.booleans(), label="restart"):
            driver = TopologyTestDriver(joined, driver.state())


def read(name: str, what: str, record: Row, ordered: bool) -> tuple[Any, ...]:
    """The record as an input has it: of the stream with a number, of a table without a value if it is a deletion."""
    if name == "s":
        return record | {"n": record["o"], "g": record["s"]}, ordered, "g" if what == "groups" else "k", "n"
    if what in ("count", "reduce", "limit of a count", "filter of a count"):
        return record, ordered, "k", "s"
    return record | {"s": None if record["gone"] else record["s"]}, ordered, "k", "s", "gone"
