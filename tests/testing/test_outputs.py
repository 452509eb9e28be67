"""Several outputs of one aggregation in one operator: each has the rows that it would have alone."""

from __future__ import annotations

import itertools
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given
from hypothesis import strategies as st

import tidegate as tg
from tidegate.testing import TopologyTestDriver, Window

FINAL = tg.Suppressed.until_window_closes(tg.BufferConfig.unbounded())
WINDOWS = {
    "tumbling": tg.TimeWindows.of_size_and_grace("10 ms", "5 ms"),
    "hopping": tg.TimeWindows.of_size_and_grace("10 ms", "3 ms").advance_by("4 ms"),
    "sessions": tg.SessionWindows.of_inactivity_gap_and_grace("5 ms", "3 ms"),
    "sliding": tg.SlidingWindows.of_time_difference_and_grace("5 ms", "3 ms"),
    "batch": tg.BatchWindows.of_size("7 ms"),
    "unlimited": tg.UnlimitedWindows.start_on(3),
}
RECORDS = st.lists(
    st.fixed_dictionaries(
        {
            "k": st.sampled_from(["a", "b", None]),
            "ts": st.integers(-1, 60),
            "x": st.one_of(st.none(), st.integers(0, 9)),
        }
    ),
    max_size=25,
)
SCHEMA = pa.schema([("k", pa.string()), ("ts", pa.int64()), ("x", pa.int64())])


def windowed(windows: Any) -> tg.TimeWindowedKStream:
    return tg.stream("events", key="k", timestamp="ts", schema=SCHEMA).group_by_key().windowed_by(windows)


def history(windows: Any, **more: Any) -> tg.KTable:
    """A function that spells its records and sometimes deletes its entry."""
    return windowed(windows).aggregate(
        lambda: "0",
        lambda key, row, told: None if row["x"] == 0 else f"{told}+{row['x']}",
        type="string",
        merger=lambda key, a, b: f"{a}|{b}",
        **more,
    )


def ordered(windows: Any, **more: Any) -> tg.KTable:
    return windowed(windows).agg(n=tg.count(), xs=tg.collect_list("x"), **more)


def combined(windows: Any, **more: Any) -> tg.KTable:
    return windowed(windows).agg(n=tg.count(), total=tg.sum("x"), **more)


def of(rows: list[dict[str, Any]], output: str) -> list[dict[str, Any]]:
    """The rows of an output as they would be alone: without the name of the output and other outputs' columns."""
    mine = [{name: value for name, value in row.items() if name != "output"} for row in rows if row["output"] == output]
    if mine and all(row.get("deleted") is None for row in mine):
        mine = [{name: value for name, value in row.items() if name != "deleted"} for row in mine]
    return mine


@pytest.mark.parametrize("cached", [True, False])
@pytest.mark.parametrize("aggregate", [combined, ordered, history])
@pytest.mark.parametrize("kind", WINDOWS)
@given(records=RECORDS, data=st.data())
def test_each_output_is_what_it_is_alone(
    kind: str, aggregate: Any, cached: bool, records: list[Any], data: st.DataObject
) -> None:
    store = tg.Materialized.as_("store")
    table = aggregate(WINDOWS[kind], materialized=store if cached else store.with_caching_disabled())
    limit = tg.Suppressed.until_time_limit("6 ms", tg.BufferConfig.max_records(2), clock="stream")
    tables = {"raw": table, "limited": table.suppress(limit)}
    if kind != "unlimited":
        tables["final"] = table.suppress(FINAL)
    together = TopologyTestDriver(tables)
    alone = {name: TopologyTestDriver(one) for name, one in tables.items()}
    rest = [*records, {"k": "z", "ts": 1_000, "x": 1}]
    while rest:
        size = data.draw(st.integers(1, 8), label="batch")
        batch, rest = rest[:size], rest[size:]
        together.pipe_batch(batch)
        got = together.read_output()
        for name, driver in alone.items():
            driver.pipe_batch(batch)
            assert of(got, name) == driver.read_output()
            assert together.drops == driver.drops
        if data.draw(st.booleans(), label="restart"):
            together = TopologyTestDriver(tables, state=together.state())
            alone = {name: TopologyTestDriver(tables[name], state=driver.state()) for name, driver in alone.items()}


LIMITS = {
    "now": None,
    "stream": tg.Suppressed.until_time_limit("6 ms", tg.BufferConfig.unbounded(), clock="stream"),
    "bounded": tg.Suppressed.until_time_limit("6 ms", tg.BufferConfig.max_records(2), clock="stream"),
    "wall": tg.Suppressed.until_time_limit("6 ms", tg.BufferConfig.unbounded(), clock="wall"),
    "bounded wall": tg.Suppressed.until_time_limit("6 ms", tg.BufferConfig.max_records(2), clock="wall"),
}


@pytest.mark.parametrize("deleted", ["gone", None])
@given(records=RECORDS, names=st.lists(st.sampled_from(list(LIMITS)), min_size=2, unique=True), data=st.data())
def test_each_output_of_a_table_is_what_it_is_alone(
    deleted: str | None, records: list[Any], names: list[str], data: st.DataObject
) -> None:
    schema = SCHEMA if deleted is None else SCHEMA.append(pa.field(deleted, pa.bool_()))
    prices = tg.table("prices", key="k", timestamp="ts", deleted=deleted, schema=schema)
    tables = {name: prices if (limit := LIMITS[name]) is None else prices.suppress(limit) for name in names}
    together = TopologyTestDriver(tables)
    alone = {name: TopologyTestDriver(one) for name, one in tables.items()}
    rest = records if deleted is None else [record | {deleted: record["x"] is None} for record in records]
    while rest:
        size, ticks = data.draw(st.integers(1, 8), label="batch"), data.draw(st.integers(0, 4), label="ticks")
        batch, rest = rest[:size], rest[size:]
        for driver in (together, *alone.values()):
            driver.pipe_batch(batch)
            driver.advance_wall_clock(f"{ticks} ms")
        got = together.read_output()
        for name, driver in alone.items():
            assert [row for row in got if row["output"] == name] == [
                {"output": name, **row} for row in driver.read_output()
            ]


@pytest.mark.parametrize("names", list(itertools.permutations(["now", "stream", "wall"])), ids=", ".join)
def test_a_limit_by_stream_time_does_not_move_the_wall_clock_of_another_output(names: tuple[str, ...]) -> None:
    """A record that is far ahead in time neither releases nor delays rows that wait for the wall clock."""
    prices = tg.table("prices", key="k", timestamp="ts")
    tables = {name: prices if (limit := LIMITS[name]) is None else prices.suppress(limit) for name in names}
    driver = TopologyTestDriver(tables)
    driver.pipe_input({"k": "a", "ts": 5, "x": 1})
    driver.pipe_input({"k": "b", "ts": 1_000_000, "x": 1})
    driver.pipe_input({"k": "c", "ts": 6, "x": 1})
    rows = driver.read_output()
    assert {name: [row["k"] for row in of(rows, name)] for name in names} == {
        "now": ["a", "b", "c"],
        "stream": ["a", "c"],
        "wall": [],
    }
    driver.advance_wall_clock("6 ms")
    assert [(row["output"], row["k"]) for row in driver.read_output()] == [("wall", key) for key in "abc"]


def test_rows_say_their_output_and_have_the_columns_of_all() -> None:
    """Sessions have tombstones in their updates, so `deleted` is a column; it is null for final results."""
    counts = windowed(WINDOWS["sessions"]).count()
    driver = TopologyTestDriver(tg.outputs(raw=counts, final=counts.suppress(FINAL)))
    driver.pipe_batch([{"k": "a", "ts": 1}, {"k": "b", "ts": 30}])
    row = {"k": "a", "window": Window(1, 1), "count": 1, "timestamp": 1}
    rows = driver.read_output()
    assert [list(r) for r in rows] == [["output", *row, "deleted"]] * 3
    assert rows[0] == {"output": "raw", **row, "deleted": False}
    assert rows[2] == {"output": "final", **row, "deleted": None}


def test_an_aggregation_that_emits_on_close_gives_its_final_results() -> None:
    """The way to ask for final results is no part of the aggregation."""
    on_close = windowed(WINDOWS["tumbling"]).emit_strategy(tg.EmitStrategy.on_window_close()).count()
    counts = windowed(WINDOWS["tumbling"]).count()
    driver = TopologyTestDriver({"a": on_close, "b": counts.suppress(FINAL), "raw": counts})
    driver.pipe_batch([{"k": "a", "ts": 1}, {"k": "b", "ts": 15}])
    told = [(row["output"], row["k"], row["count"]) for row in driver.read_output()]
    assert told == [("a", "a", 1), ("b", "a", 1), ("raw", "a", 1), ("raw", "b", 1)]


def test_final_results_may_be_added_to_updates_that_run_already() -> None:
    """Updates and final results use the same state."""
    counts = windowed(WINDOWS["tumbling"]).count()
    driver = TopologyTestDriver(counts)
    driver.pipe_input({"k": "a", "ts": 1})
    both = TopologyTestDriver({"raw": counts, "final": counts.suppress(FINAL)}, state=driver.state())
    both.pipe_input({"k": "b", "ts": 15})
    assert [(row["output"], row["k"]) for row in both.read_output()] == [("raw", "b"), ("final", "a")]


def test_outputs_are_described() -> None:
    counts = windowed(WINDOWS["tumbling"]).count()
    text = tg.outputs(raw=counts, final=counts.suppress(FINAL)).describe()
    assert text.startswith("Outputs of one operator\nraw:\n   WindowedAggregate")
    assert "\nfinal:\n   Suppress" in text


def refused(**tables: Any) -> str:
    with pytest.raises(tg.TidegateError) as caught:
        tg.outputs(**tables)
    return str(caught.value)


def test_what_is_not_one_aggregation_is_refused() -> None:
    counts = windowed(WINDOWS["tumbling"]).count()
    other = windowed(WINDOWS["hopping"]).agg(n=tg.count())
    message = refused(raw=counts, final=other.suppress(FINAL))
    assert "'raw' and 'final' are not of one aggregation: they differ in their windows, aggregates." in message
    elsewhere = tg.stream("others", key="k", timestamp="ts").group_by_key().windowed_by(WINDOWS["tumbling"]).count()
    assert "differ in their stream." in refused(raw=counts, final=elsewhere)


def test_outputs_that_differ_in_an_expression_are_refused() -> None:
    def counted(expression: Any) -> tg.KTable:
        return tg.stream("events", key="k", timestamp="ts").filter(expression).group_by_key().count()

    message = refused(few=counted(pc.field("x") < 3), many=counted(pc.field("x") >= 3))
    assert "'few' and 'many' are not of one aggregation: they differ in their stream." in message
    tg.outputs(few=counted(pc.field("x") < 3), again=counted(pc.field("x") < 3).filter(bool))


def test_a_bound_beside_cached_updates_is_refused_and_beside_every_update_holds() -> None:
    strict = tg.Suppressed.until_window_closes(tg.BufferConfig.max_records(1).shut_down_when_full())
    counts = windowed(WINDOWS["tumbling"]).count()
    assert "checked record by record" in refused(raw=counts, final=counts.suppress(strict))
    every = windowed(WINDOWS["tumbling"]).count(tg.Materialized.as_("every").with_caching_disabled())
    driver = TopologyTestDriver({"raw": every, "final": every.suppress(strict)})
    driver.pipe_batch([{"k": "a", "ts": 1}, {"k": "a", "ts": 2}])
    assert [row["count"] for row in driver.read_output()] == [1, 2]
    with pytest.raises(tg.BufferFullError):
        driver.pipe_input({"k": "b", "ts": 3})


def test_a_bound_in_front_of_final_results_beside_updates_that_may_be_tombstones() -> None:
    """A function may delete; the entries of the buffer are still counted. Found by `make kafka-parity`."""
    strict = tg.Suppressed.until_window_closes(tg.BufferConfig.max_bytes(60).shut_down_when_full())
    every = tg.Materialized.as_("every").with_caching_disabled()
    sums = windowed(WINDOWS["tumbling"]).reduce(lambda a, x: a + x, "x", materialized=every)
    driver = TopologyTestDriver({"raw": sums, "final": sums.suppress(strict)})
    for record in ({"k": "a", "ts": 1, "x": 2}, {"k": "a", "ts": 2, "x": 3}):
        driver.pipe_input(record)
    assert [(row["output"], row["x"]) for row in driver.read_output()] == [("raw", 2), ("raw", 5)]
    with pytest.raises(tg.BufferFullError, match=r"\[2/no bound\] records and \[74/60\] bytes"):
        driver.pipe_input({"k": "b", "ts": 3, "x": 1})


@pytest.mark.parametrize("mapper", [lambda row: {"w": row["n"]}, {"w": lambda row: row["n"]}])
def test_a_function_without_types_is_refused(mapper: Any) -> None:
    """A table alone takes its columns from the rows, in the test driver; beside other outputs it cannot."""
    counts = windowed(WINDOWS["tumbling"]).agg(n=tg.count())
    message = refused(raw=counts, more=counts.map_values(mapper))
    assert message.startswith("map_values(")
    assert " of the output 'more' has columns of unknown types." in message
    assert 'types={"column": "long"}' in message
    driver = TopologyTestDriver({"raw": counts, "more": counts.map_values(mapper, types={"w": "long"})})
    driver.pipe_input({"k": "a", "ts": 1})
    assert [(row["output"], row["n"], row["w"]) for row in driver.read_output()] == [
        ("raw", 1, None),
        ("more", None, 1),
    ]


def test_what_is_no_table_is_refused() -> None:
    counts = windowed(WINDOWS["tumbling"]).count()
    assert "The output 'raw' is 1, not a table" in refused(raw=1)
    assert "not a table" in refused(raw=tg.outputs(raw=counts))
    assert "There is no output" in refused()
