"""Faults that an attack found, each in the shape in which it was found."""

from __future__ import annotations

from datetime import timedelta
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pytest

import tidegate as tg
from tidegate.testing import TopologyTestDriver, layout

SECONDS = tg.TimeWindows.of_size_with_no_grace("1 second")
FINAL = tg.Suppressed.until_window_closes(tg.BufferConfig.unbounded())


def grouped(**stream: Any) -> tg.KGroupedStream:
    return tg.stream("events", key="k", timestamp="ts", **stream).group_by_key()


# --- bounded buffers -----------------------------------------------------------------------------------------------

NESTED: dict[str, Any] = {
    "struct": {"a": 1, "b": "x"},
    "list of structs": [{"a": 1}, None],
    "list of lists": [[1], []],
}
BOUNDS = [tg.BufferConfig.max_records(10), tg.BufferConfig.max_bytes(10_000)]


@pytest.mark.parametrize("value", NESTED.values(), ids=NESTED)
@pytest.mark.parametrize("bound", BOUNDS, ids=["records", "bytes"])
def test_a_bounded_buffer_holds_nested_values(value: Any, bound: tg.EagerBuffer) -> None:
    strict = tg.Suppressed.until_window_closes(bound.shut_down_when_full())
    for windowed in (
        grouped().windowed_by(SECONDS),
        grouped().windowed_by(tg.SlidingWindows.of_time_difference_and_grace("1 second", "0 ms")),
        grouped().windowed_by(tg.SessionWindows.of_inactivity_gap_and_grace("1 second", "0 ms")),
    ):
        driver = TopologyTestDriver(windowed.agg(newest=tg.last("v"), n=tg.count()).suppress(strict))
        driver.pipe_batch([{"k": "A", "ts": ts, "v": v} for ts, v in ((1, value), (2, None), (3, value))])
        driver.pipe_input({"k": "B", "ts": 10_000, "v": value})
        assert value in [row["newest"] for row in driver.read_output()]


@pytest.mark.parametrize("value", NESTED.values(), ids=NESTED)
@pytest.mark.parametrize("bound", BOUNDS, ids=["records", "bytes"])
@pytest.mark.parametrize("windowed", [False, True], ids=["table", "aggregate"])
def test_a_bounded_time_limit_holds_nested_values(value: Any, bound: tg.EagerBuffer, windowed: bool) -> None:
    limit = tg.Suppressed.until_time_limit("5 ms", bound, clock="stream")
    table = tg.table("events", key="k", timestamp="ts")
    if windowed:
        table = grouped().windowed_by(SECONDS).agg(v=tg.last("v"))
    driver = TopologyTestDriver(table.suppress(limit))
    driver.pipe_batch([{"k": "A", "ts": 1, "v": None}, {"k": "A", "ts": 2, "v": value}])
    driver.pipe_input({"k": "A", "ts": 3, "v": value})
    assert driver.read_output() == []
    driver.pipe_input({"k": "B", "ts": 10, "v": value})
    assert [(row["k"], row["v"]) for row in driver.read_output()] == [("A", value)]


# --- keys ----------------------------------------------------------------------------------------------------------

NANS = np.array([0x7FF8000000000000, 0x7FF8000000000001, 0xFFF8000000000001, 0x7FF0000000000001], np.uint64)
FLOATS = pa.schema({"k": pa.float64(), "ts": pa.int64()})


def test_every_nan_is_one_key_and_so_are_both_zeros() -> None:
    keys = [*NANS.view(np.float64).tolist(), 0.0, -0.0]
    for batch in (1, len(keys)):
        driver = TopologyTestDriver(grouped(schema=FLOATS).windowed_by(SECONDS).count().suppress(FINAL))
        records = [{"k": key, "ts": i} for i, key in enumerate(keys)]
        for low in range(0, len(records), batch):
            driver.pipe_batch(records[low : low + batch])
        driver.pipe_input({"k": 1.0, "ts": 5_000})
        found = {repr(row["k"]): row["count"] for row in driver.read_output()}
        assert found == {"nan": 4, "0.0": 2}


def test_an_expected_nan_has_its_records() -> None:
    windowed = grouped(schema=FLOATS).windowed_by(SECONDS)
    driver = TopologyTestDriver(windowed.count(expect_keys=[float("nan"), -0.0]).suppress(FINAL))
    driver.pipe_batch([{"k": float(NANS.view(np.float64)[1]), "ts": 0}, {"k": 0.0, "ts": 1}, {"k": 1.0, "ts": 1_000}])
    assert sorted((repr(row["k"]), row["count"]) for row in driver.read_output()) == [("0.0", 1), ("nan", 1)]


# --- time ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("bad", [{"k": None, "ts": 5}, {"k": "A", "ts": None}, {"k": "A", "ts": -1}])
def test_idle_time_does_not_move_before_a_first_record(bad: dict[str, Any]) -> None:
    stream = grouped(idle_advance="1 second", schema=pa.schema({"k": pa.string(), "ts": pa.int64()}))
    table = stream.windowed_by(SECONDS).count(expect_keys=["A", "B"]).suppress(FINAL)
    driver = TopologyTestDriver(table, initial_wall_clock_time=1_700_000_000_000)
    driver.pipe_input(bad)
    driver.advance_wall_clock("5 seconds")
    driver.pipe_input({"k": "A", "ts": 1_000_000_000})
    driver.pipe_input({"k": "A", "ts": 1_000_001_000})
    rows = [(row["k"], row["window"].start, row["count"]) for row in driver.read_output()]
    assert rows == [("A", 1_000_000_000, 1), ("B", 1_000_000_000, 0)]


def test_expected_keys_before_the_first_key_has_a_type() -> None:
    driver = TopologyTestDriver(grouped().windowed_by(SECONDS).count(expect_keys=["A"]).suppress(FINAL))
    driver.pipe_input({"k": None, "ts": 5})
    driver.pipe_input({"k": "B", "ts": 5})
    driver.pipe_input({"k": "B", "ts": 1_000})
    assert [(row["k"], row["count"]) for row in driver.read_output()] == [("A", 0), ("B", 1)]


# A duration, and the last instants within it.
FOREVER = [(timedelta.max, 8 * 10**16), (f"{2**63 - 1} ms", 2**63 - 2)]


@pytest.mark.parametrize(("grace", "latest"), FOREVER, ids=["timedelta.max", "2^63 - 1"])
@pytest.mark.parametrize(
    "windows",
    [
        lambda grace: tg.TimeWindows.of_size_and_grace("10 ms", grace),
        lambda grace: tg.TimeWindows.of_size_and_grace("10 ms", grace).advance_by("5 ms"),
        lambda grace: tg.SlidingWindows.of_time_difference_and_grace("10 ms", grace),
        lambda grace: tg.SessionWindows.of_inactivity_gap_and_grace("10 ms", grace),
        lambda grace: tg.SessionWindows.of_inactivity_gap_and_grace(grace, grace),
        lambda grace: tg.TimeWindows.of_size_and_grace(grace, grace),
    ],
    ids=["tumbling", "hopping", "sliding", "session", "endless session", "endless window"],
)
@pytest.mark.parametrize("updates", [False, True], ids=["final", "both"])
def test_a_window_that_never_closes_leaves_at_the_end(windows: Any, grace: Any, latest: int, updates: bool) -> None:
    counts = grouped().windowed_by(windows(grace)).count()
    final = counts.suppress(FINAL)
    driver = TopologyTestDriver({"raw": counts, "final": final} if updates else final)
    times = (0, 5, 2**53 + 1, latest - 2**52, latest)
    for ts in times:
        driver.pipe_input({"k": "A", "ts": ts})
    assert not [row for row in driver.read_output() if row.get("output") != "raw"]
    assert driver.drops["late"] == 0
    driver.drain()
    rows = [row for row in driver.read_output() if row.get("output") != "raw"]
    assert [ts for ts in times if not any(_holds(row["window"], ts) for row in rows)] == []
    assert all(row["window"].end <= 2**63 - 1 for row in rows)


@pytest.mark.parametrize(
    "windows",
    [
        tg.TimeWindows.of_size_with_no_grace("10 ms"),
        tg.SessionWindows.of_inactivity_gap_with_no_grace("10 ms"),
        tg.SessionWindows.of_inactivity_gap_and_grace("10 ms", f"{2**63 - 1} ms"),
    ],
    ids=["tumbling", "session", "session that never closes"],
)
def test_a_record_of_the_last_instant_is_not_the_end(windows: Any) -> None:
    """A window that is open then takes more records, and its result leaves once."""
    counts, last = grouped().windowed_by(windows).count(), 2**63 - 1
    driver = TopologyTestDriver({"raw": counts, "final": counts.suppress(FINAL)})
    for ts in (last, last - 3, last):
        driver.pipe_input({"k": "A", "ts": ts})
    raw = [row for row in driver.read_output() if row["output"] == "raw" and not row.get("deleted")]
    assert max(row["count"] for row in raw) == 3
    driver.drain()
    rows = [(row["window"], row["count"]) for row in driver.read_output()]
    assert len(rows) == len({window for window, _ in rows})
    assert max(count for _, count in rows) == 3
    assert driver.drops["late"] == 0


def _holds(window: tg.Window, ts: int) -> bool:
    return window.start <= ts <= window.end


@pytest.mark.parametrize(("limit", "latest"), FOREVER, ids=["timedelta.max", "2^63 - 1"])
@pytest.mark.parametrize("buffer", [tg.BufferConfig.unbounded(), *BOUNDS], ids=["unbounded", "records", "bytes"])
@pytest.mark.parametrize("clock", ["stream", "wall"])
def test_a_limit_for_ever_holds_rows_until_the_end(limit: Any, latest: int, buffer: Any, clock: str) -> None:
    how = tg.Suppressed.until_time_limit(limit, buffer, clock=clock)
    driver = TopologyTestDriver(tg.table("events", key="k", timestamp="ts").suppress(how))
    for ts in (0, 2**53 + 1, latest):
        driver.pipe_input({"k": str(ts), "ts": ts, "v": 1})
    driver.advance_wall_clock("365 days")
    assert driver.read_output() == []
    assert driver.pending().buffered is not None
    driver.drain()
    assert {row["timestamp"] for row in driver.read_output()} == {0, 2**53 + 1, latest}


# --- deletions -----------------------------------------------------------------------------------------------------


def deletions(**table: Any) -> TopologyTestDriver:
    return TopologyTestDriver(tg.table("prices", key="k", timestamp="ts", deleted="gone", **table))


@pytest.mark.parametrize("flag", ["false", 0, 1, 1.0, "", []])
def test_a_row_is_deleted_by_a_boolean_alone(flag: Any) -> None:
    with pytest.raises(tg.InputError) as caught:
        deletions().pipe_input({"k": "A", "ts": 0, "v": 1, "gone": flag})
    assert str(caught.value) == (
        f"Record 0: the column 'gone', which says whether a row is deleted, holds {flag!r} ({type(flag).__name__}), "
        "not a boolean. Give True or False."
    )


def test_a_null_deletes_nothing() -> None:
    driver = deletions()
    driver.pipe_batch([{"k": str(i), "ts": i, "v": 1, "gone": g} for i, g in enumerate([None, False, np.bool_(True)])])
    assert [row["deleted"] for row in driver.read_output()] == [False, False, True]


def test_a_column_of_deletions_that_nobody_has() -> None:
    with pytest.raises(tg.InputError, match="Nothing that was piped has a column 'gone'"):
        deletions().pipe_input({"k": "A", "ts": 0, "v": 1})


@pytest.mark.parametrize(
    ("schema", "message"),
    [
        ({"gone": pa.string()}, "`deleted` is 'gone', a column of string in the schema: a row is deleted where a "),
        ({}, "`deleted` is 'gone', but the schema has no such column."),
    ],
)
def test_a_declared_column_of_deletions_is_checked_when_written(schema: dict[str, Any], message: str) -> None:
    with pytest.raises(tg.DefinitionError) as caught:
        deletions(schema=pa.schema({"k": pa.string(), "ts": pa.int64(), **schema}))
    assert str(caught.value).startswith(message)


# --- outputs -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "aggregate",
    [
        lambda w: w.count(),
        lambda w: w.reduce(max, "v"),
        lambda w: w.aggregate(int, lambda k, r, a: a + r["v"], type="long", merger=lambda k, a, b: a + b),
    ],
    ids=["count", "reduce", "aggregate"],
)
@pytest.mark.parametrize(
    "windows",
    [
        SECONDS,
        tg.SessionWindows.of_inactivity_gap_and_grace("1 second", "0 ms"),
        tg.SlidingWindows.of_time_difference_and_grace("1 second", "0 ms"),
    ],
    ids=["time", "session", "sliding"],
)
def test_updates_and_finals_leave_though_the_closing_batch_makes_no_update(windows: Any, aggregate: Any) -> None:
    table = aggregate(grouped().windowed_by(windows))
    driver = TopologyTestDriver({"raw": table, "final": table.suppress(FINAL)})
    driver.pipe_input({"k": "A", "ts": 5, "v": 1})
    (raw,) = driver.read_output()
    driver.drain()
    (final,) = driver.read_output()
    told = {"deleted": False} if "deleted" in raw else {}
    assert raw == {**final, "output": "raw", **told}
    assert (final["output"], final.get("deleted")) == ("final", None)


# --- drains and restarts -------------------------------------------------------------------------------------------


def test_a_second_drain_is_refused() -> None:
    driver = TopologyTestDriver(grouped().windowed_by(SECONDS).count().suppress(FINAL))
    driver.pipe_input({"k": "A", "ts": 1})
    driver.drain()
    assert len(driver.read_output()) == 1
    again = TopologyTestDriver(grouped().windowed_by(SECONDS).count().suppress(FINAL), state=driver.state())
    for drained in (driver, again):
        with pytest.raises(tg.CheckpointError, match="This checkpoint was drained"):
            drained.drain()
        assert drained.read_output() == []
        with pytest.raises(tg.CheckpointError, match="This checkpoint was drained"):
            drained.pipe_input({"k": "A", "ts": 2})


def test_a_drain_before_any_record() -> None:
    driver = TopologyTestDriver(grouped().windowed_by(SECONDS).count().suppress(FINAL))
    driver.drain()
    assert driver.read_output() == []
    with pytest.raises(tg.CheckpointError, match="This checkpoint was drained"):
        driver.pipe_input({"k": "A", "ts": 1})


def test_a_drain_lets_out_one_row_per_group_behind_an_aggregation() -> None:
    """With caching, as on Spark."""
    windows = tg.TimeWindows.of_size_and_grace("1 second", "1 minute")
    table = grouped().windowed_by(windows).agg(size=tg.count()).suppress(FINAL)
    driver = TopologyTestDriver(table.group_by("k").agg(windows=tg.count()))
    for ts in (1, 2_000, 4_000):
        driver.pipe_input({"k": "A", "ts": ts})
    driver.drain()
    assert [row["windows"] for row in driver.read_output()] == [3]


def test_a_drain_whose_end_failed_goes_on() -> None:
    failing = True

    def first() -> int:
        if failing:
            raise ValueError("not yet")
        return 0

    counted = grouped().windowed_by(SECONDS)
    table = counted.aggregate(first, lambda key, row, n: n + 1, type="long", name="n", expect_keys=["A", "B"])
    driver = TopologyTestDriver(table.suppress(FINAL))
    failing = False
    driver.pipe_input({"k": "A", "ts": 1})
    failing = True
    with pytest.raises(tg.AggregationError, match="not yet"):
        driver.drain()
    failing = False
    driver.drain()
    assert [(row["k"], row["n"]) for row in driver.read_output()] == [("A", 1), ("B", 0)]


def by_size() -> Any:
    return grouped().agg(size=tg.count()).group_by("size").agg(n=tg.count())


@pytest.mark.parametrize(("before", "after"), [(1, 2), (2, 1)])
def test_a_restart_with_another_number_of_operators_is_refused(before: int, after: int) -> None:
    tables = {1: lambda: grouped().agg(n=tg.count()), 2: by_size}
    driver = TopologyTestDriver(tables[before]())
    driver.pipe_input({"k": "A", "ts": 1})
    with pytest.raises(tg.CheckpointError, match=f"another plan \\(operators: '{before}' -> '{after}'\\)"):
        TopologyTestDriver(tables[after](), state=driver.state())


# --- expected keys -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ([1.5], "`expect_keys` has a key that the stream cannot have: 1.5 at place 0 is no int64, the type of 'k'"),
        ([1, "a"], "`expect_keys` has a key that the stream cannot have: 'a' at place 1 is no int64"),
        ([{"k": 1}, {"x": 1}], "`expect_keys` has {'x': 1} at place 1, which has no 'k': the key is (k)."),
        ([{"x": 1}], "`expect_keys` has no column 'k', which is part of the key; it has 'x'."),
    ],
)
def test_expected_keys_that_no_record_can_have(keys: list[Any], message: str) -> None:
    driver = TopologyTestDriver(grouped().windowed_by(SECONDS).count(expect_keys=keys).suppress(FINAL))
    with pytest.raises(tg.InputError) as caught:
        driver.pipe_batch([{"k": 1, "ts": 1}, {"k": 1, "ts": 5_000}])
    assert str(caught.value).startswith(message)


class _Expected(NamedTuple):
    j: str
    k: str


def test_expected_keys_that_name_their_columns_have_them_in_any_order() -> None:
    """As dicts do: named tuples, and rows that Spark has collected. By place these would be keys of nobody."""
    row = pytest.importorskip("pyspark.sql").Row
    windowed = tg.stream("events", key=["k", "j"], timestamp="ts").group_by_key().windowed_by(SECONDS)
    keys = [_Expected("b", "a"), row(j="d", k="c"), row("more", "j", "k")(1, "f", "e"), ("g", "h")]
    driver = TopologyTestDriver(windowed.count(expect_keys=keys).suppress(FINAL))
    driver.pipe_batch([{"k": "x", "j": "y", "ts": 1}, {"k": "x", "j": "y", "ts": 5_000}])
    found = {(row["k"], row["j"]) for row in driver.read_output()}
    assert found == {("a", "b"), ("c", "d"), ("e", "f"), ("g", "h"), ("x", "y")}


@pytest.mark.parametrize("key", [(1,), (1, 2, 3), "ab", 5])
def test_an_expected_key_of_another_number_of_columns(key: Any) -> None:
    windowed = tg.stream("events", key=["k", "j"], timestamp="ts").group_by_key().windowed_by(SECONDS)
    driver = TopologyTestDriver(windowed.count(expect_keys=[(1, 2), key]).suppress(FINAL))
    with pytest.raises(tg.InputError) as caught:
        driver.pipe_batch([{"k": 1, "j": 1, "ts": 1}, {"k": 1, "j": 1, "ts": 5_000}])
    assert str(caught.value).startswith(f"`expect_keys` has {key!r} at place 1: the key has 2 columns (k, j).")


# --- sums of groups ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("special", [float("inf"), float("-inf"), float("nan")])
@pytest.mark.parametrize("batch", [1, 4])
def test_an_infinity_leaves_a_group_as_it_came(special: float, batch: int) -> None:
    table = tg.table("events", key="k", timestamp="ts").group_by("g").agg(total=tg.sum("v"), mean=tg.mean("v"))
    driver = TopologyTestDriver(table)
    values = [("A", None), ("A", special), ("B", 2.0), ("A", 1.0)]
    records = [{"k": key, "ts": i, "g": "x", "v": value} for i, (key, value) in enumerate(values)]
    for low in range(0, len(records), batch):
        driver.pipe_batch(records[low : low + batch])
    rows = driver.read_output()
    assert (rows[-1]["total"], rows[-1]["mean"]) == (3.0, 1.5)
    if batch == 1:
        assert repr(rows[-2]["total"]) == repr(special)


# --- types that are learned ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "values",
    [
        [[], [1]],
        [None, [], [None], [1]],
        [{"n": 1, "s": None}, {"n": 1, "s": "x"}],
        [[{"s": None}], [{"s": "x"}]],
        [[[]], [[1]]],
    ],
)
@pytest.mark.parametrize("batch", [1, 9])
def test_a_part_of_a_type_is_learned_when_it_has_a_value(values: list[Any], batch: int) -> None:
    driver = TopologyTestDriver(grouped().agg(newest=tg.last("v"), n=tg.count()))
    records = [{"k": "A", "ts": i, "v": value} for i, value in enumerate(values)]
    for low in range(0, len(records), batch):
        driver.pipe_batch(records[low : low + batch])
    assert driver.read_output()[-1]["newest"] == values[-1]


def test_a_layout_has_a_wall_clock_for_every_operator() -> None:
    limit = tg.Suppressed.until_time_limit("10 ms", tg.BufferConfig.unbounded(), clock="wall")
    table = tg.table("events", key="k", timestamp="ts").group_by("g").agg(n=tg.count()).suppress(limit)
    records = [{"k": "A", "ts": 1, "g": "x"}, {"k": "B", "ts": 2, "g": "x"}]
    splits = [[[records[0]], [records[1]]], [[], []]]
    rows, _ = layout.run(table, [records, []], tasks=2, splits=splits, clocks=[1_000, 1_020])
    assert [(row["g"], row["n"]) for row in rows] == [("x", 2)]
