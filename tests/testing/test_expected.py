"""expect_keys: the expected keys, their windows, and rows without any record."""

from __future__ import annotations

from typing import Any

import pandas as pd
import pyarrow as pa
import pytest

import tidegate as tg
from series import HANDED_OVER
from tidegate.testing import TopologyTestDriver, Window

WINDOWS = tg.TimeWindows.of_size_with_no_grace("10 ms")
ON_CLOSE = tg.EmitStrategy.on_window_close()
FINAL = tg.Suppressed.until_window_closes(tg.BufferConfig.unbounded())


def windowed(windows: Any = WINDOWS, **stream: Any) -> Any:
    events = tg.stream("events", **({"key": "user", "timestamp": "ts"} | stream))
    return events.group_by_key().windowed_by(windows)


def on_close(windows: Any = WINDOWS, **stream: Any) -> Any:
    return windowed(windows, **stream).emit_strategy(ON_CLOSE)


def out(driver: TopologyTestDriver, *times: int, value: str = "count") -> list[tuple[Any, ...]]:
    """Rows after A has a record at each of these times."""
    for ts in times:
        driver.pipe_input({"user": "A", "ts": ts})
    return [(row["user"], row["window"].start, row[value]) for row in driver.read_output()]


def test_an_alert_for_the_key_without_any_record() -> None:
    driver = TopologyTestDriver(windowed().count(expect_keys=["A", "B"]).suppress(FINAL))
    assert out(driver, 0, 3, 9) == []
    driver.pipe_input({"user": "C", "ts": 10})
    assert driver.read_output() == [
        {"user": "A", "window": Window(0, 10), "count": 3, "timestamp": 9},
        {"user": "B", "window": Window(0, 10), "count": 0, "timestamp": 9},
    ]
    driver.pipe_input({"user": "B", "ts": 20})
    # C is not expected: it has a row only in windows with a record.
    assert [(row["user"], row["count"]) for row in driver.read_output()] == [("A", 0), ("B", 0), ("C", 1)]


def test_from_the_first_record_on_and_through_a_jump() -> None:
    driver = TopologyTestDriver(on_close().count(expect_keys=["B"]))
    assert out(driver, 47) == []
    assert out(driver, 81) == [("A", 40, 1), ("B", 40, 0), ("B", 50, 0), ("B", 60, 0), ("B", 70, 0)]


def test_the_first_windows_of_a_hopping_one_are_those_that_hold_the_first_record() -> None:
    driver = TopologyTestDriver(on_close(WINDOWS.advance_by("5 ms")).count(expect_keys=["B"]))
    assert out(driver, 47, 56) == [("A", 40, 1), ("B", 40, 0), ("A", 45, 1), ("B", 45, 0)]


def test_a_window_in_its_grace_is_still_waited_for() -> None:
    driver = TopologyTestDriver(on_close(tg.TimeWindows.of_size_and_grace("10 ms", "5 ms")).count(expect_keys=["B"]))
    assert out(driver, 3, 14) == []
    driver.pipe_input({"user": "B", "ts": 9})
    assert out(driver, 15) == [("A", 0, 1), ("B", 0, 1)]


def test_batch_windows() -> None:
    driver = TopologyTestDriver(on_close(tg.BatchWindows.of_size("10 ms")).count(expect_keys=["B"]))
    assert out(driver, 3, 25, 7, 30) == [("A", 0, 1), ("B", 0, 0), ("B", 10, 0), ("A", 20, 2), ("B", 20, 0)]


def test_a_row_of_nothing() -> None:
    aggregates = {
        "n": tg.count(),
        "m": tg.count("x"),
        "total": tg.sum("x"),
        "low": tg.min("x"),
        "high": tg.max("x"),
        "average": tg.mean("x"),
        "first": tg.first("x"),
        "last": tg.last("x"),
        "all": tg.collect_list("x"),
        "distinct": tg.approx_count_distinct("x"),
    }
    driver = TopologyTestDriver(on_close().agg(expect_keys=["B"], **aggregates))
    driver.pipe_batch(
        [{"user": "B", "ts": 10, "x": 1}, {"user": "B", "ts": 5, "x": 1}, {"user": "C", "ts": 20, "x": 1}]
    )
    assert driver.read_output()[0]["n"] == 1
    driver.pipe_input({"user": "C", "ts": 30, "x": 1})
    row = next(row for row in driver.read_output() if row["user"] == "B")
    empty = {"n": 0, "m": 0, "all": [], "distinct": 0}
    assert row == {"user": "B", "window": Window(20, 30), "timestamp": 29} | dict.fromkeys(aggregates) | empty


def test_functions_over_nothing() -> None:
    folded = on_close().aggregate(lambda: "0", lambda key, row, a: f"{a}+1", type="string", expect_keys=["B"])
    assert out(TopologyTestDriver(folded), 0, 10, value="aggregate") == [("A", 0, "0+1"), ("B", 0, "0")]
    reduced = on_close().reduce(lambda a, b: b, "ts", name="newest", expect_keys=["B"])
    assert out(TopologyTestDriver(reduced), 0, 10, value="newest") == [("A", 0, 0), ("B", 0, None)]

    def broken() -> str:
        raise ValueError("no start")

    driver = TopologyTestDriver(on_close().aggregate(broken, lambda key, row, a: a, type="string", expect_keys=["B"]))
    with pytest.raises(tg.AggregationError, match="raised ValueError: no start"):
        out(driver, 0)


@pytest.mark.parametrize(
    "keys",
    [
        [{"user": "B", "shop": 1}, {"user": "B", "shop": 1}],
        [("B", 1)],
        pa.table({"shop": pa.array([1, None], pa.int8()), "user": ["B", "C"], "more": [0, 0]}),
    ],
    ids=["dicts", "tuples", "arrow"],
)
def test_keys_of_several_columns_in_any_shape(keys: Any) -> None:
    driver = TopologyTestDriver(on_close(key=["user", "shop"]).count(expect_keys=keys))
    driver.pipe_batch([{"user": "B", "shop": 2, "ts": 0}, {"user": "B", "shop": 2, "ts": 10}])
    assert [(row["user"], row["shop"], row["count"]) for row in driver.read_output()] == [("B", 1, 0), ("B", 2, 1)]


def test_other_keys_after_a_restart() -> None:
    driver = TopologyTestDriver(on_close().count(expect_keys=["B"]))
    assert out(driver, 3, 12) == [("A", 0, 1), ("B", 0, 0)]
    again = TopologyTestDriver(on_close().count(expect_keys=["C"]), state=driver.state())
    assert out(again, 21) == [("A", 10, 1), ("C", 10, 0)]
    without = TopologyTestDriver(on_close().count(), state=again.state())
    assert out(without, 31) == [("A", 20, 1)]


def test_keys_that_an_older_checkpoint_did_not_know() -> None:
    driver = TopologyTestDriver(on_close().count())
    assert out(driver, 3, 35) == [("A", 0, 1)]
    again = TopologyTestDriver(on_close().count(expect_keys=["B"]), state=driver.state())
    assert out(again, 41) == [("A", 30, 1), ("B", 30, 0)]


def test_several_outputs_have_them_among_the_final_ones() -> None:
    counts = windowed().count(expect_keys=["B"])
    driver = TopologyTestDriver({"raw": counts, "final": counts.suppress(FINAL)})
    driver.pipe_batch([{"user": "A", "ts": 0}, {"user": "A", "ts": 10}])
    told = [(row["output"], row["user"], row["count"]) for row in driver.read_output()]
    assert told == [("raw", "A", 1), ("raw", "A", 1), ("final", "A", 1), ("final", "B", 0)]


def test_a_jump_of_many_windows_is_refused_and_nothing_is_stored() -> None:
    driver = TopologyTestDriver(on_close().count(expect_keys=["A", "B"]))
    out(driver, 0)
    before = driver.state()
    with pytest.raises(tg.InputError) as caught:
        out(driver, 10**9)
    assert str(caught.value) == (
        "100,000,000 windows close at once, from 0 (1970-01-01T00:00:00.000+00:00) to 999999990 "
        "(1970-01-12T13:46:39.990+00:00): with 2 expected keys (expect_keys=) that is more than 10,000,000 rows "
        "without a record. Nothing of this batch was stored. If a record is wrong about its time, keep it out with "
        'tg.stream(max_future_skew="5 minutes"); or restart with fewer expected keys.'
    )
    assert driver.state() == before


def refused(make: Any, error: type[Exception]) -> str:
    with pytest.raises(error) as caught:
        make()
    return str(caught.value)


def test_where_nothing_says_that_a_key_is_missing() -> None:
    sessions = tg.SessionWindows.of_inactivity_gap_with_no_grace("5 ms")
    assert refused(lambda: windowed(sessions).count(expect_keys=["B"]), tg.DefinitionError) == (
        "`expect_keys` cannot be used here: SessionWindows with a gap of 5 milliseconds exist or close by "
        "their records, so nothing says when a key is missing. Use TimeWindows or BatchWindows."
    )
    plain = tg.stream("events", key="user", timestamp="ts").group_by_key()
    assert "there are no windows" in refused(lambda: plain.count(expect_keys=["B"]), tg.DefinitionError)
    assert refused(lambda: TopologyTestDriver(windowed().count(expect_keys=["B"])), tg.DefinitionError) == (
        "`expect_keys` needs final results: that a key is missing shows when the window closes, and this table gives "
        "updates alone. Use emit_strategy(EmitStrategy.on_window_close()), or suppress until the window closes."
    )


def test_keys_that_are_none() -> None:
    assert refused(lambda: windowed().count(expect_keys="B"), tg.DefinitionTypeError) == (
        "`expect_keys` is 'B'. Use a static DataFrame with the key columns, an Arrow table, or a list of keys."
    )
    wrong = TopologyTestDriver(on_close().count(expect_keys=[{"name": "B"}]))
    assert refused(lambda: out(wrong, 0), tg.InputError) == (
        "`expect_keys` has no column 'user', which is part of the key; it has 'name'. Select the key columns under "
        "their names."
    )
    wrong = TopologyTestDriver(on_close().count(expect_keys=[1]))
    assert refused(lambda: out(wrong, 0), tg.InputError).startswith(
        "`expect_keys` has a key that the stream cannot have"
    )
    wrong = TopologyTestDriver(on_close().count(expect_keys=pa.table({"user": [[1]]})))
    assert refused(lambda: out(wrong, 0), tg.InputError).startswith("`expect_keys` has 'user' as list<")


class OfSpark:
    """What `expect_keys` reads of a DataFrame of Spark."""

    schema = None

    def __init__(self, table: pa.Table) -> None:
        self.table, self.columns = table, table.column_names

    def select(self, *quoted: str) -> OfSpark:
        return OfSpark(self.table.select([name.strip("`") for name in quoted]))

    def toArrow(self) -> pa.Table:
        return self.table


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        (OfSpark(pa.table({"a": [1], "b": [2]})), "has no column 'user', which is part of the key; it has 'a', 'b'."),
        (["B", ("C", 1)], "('C', 1) at place 1 has 2 values, and the key is one column (user). Give each key as its"),
        (pa.table({"name": ["B"]}), "`expect_keys` has no column 'user', which is part of the key; it has 'name'."),
        (pd.DataFrame({"name": ["B"]}), "`expect_keys` has no column 'user', which is part of the key; it has 'name'."),
        (pa.table({"user": [1]}), "`expect_keys` has 'user' as int64, the stream as string: a key of another kind"),
        (pd.DataFrame({"user": [1.5]}), "`expect_keys` has 'user' as double, the stream as string: a key of another"),
        pytest.param(
            pd.Series(["B"]),
            "`expect_keys` is a pandas Series, which has no columns: ",
            marks=HANDED_OVER,
        ),
    ],
)
def test_keys_of_another_shape_or_kind(keys: Any, message: str) -> None:
    driver = TopologyTestDriver(on_close().count(expect_keys=keys))
    assert message in refused(lambda: out(driver, 0), tg.InputError)


@pytest.mark.parametrize(
    "keys",
    [
        ["B"],
        [("B",)],
        frozenset({"B"}),
        pd.DataFrame({"user": ["B"], "more": [1]}),
        OfSpark(pa.table({"user": ["B"], "more": [1]})),
        pa.table({"user": pa.array(["B"]).dictionary_encode()}),
        pa.table({"user": pa.array(["B"], pa.large_string())}),
        pa.table({"user": pa.array(["B"], pa.string_view())}),
        pa.table({"user": pa.DictionaryArray.from_arrays([0], pa.array(["B"], pa.string_view()))}),
    ],
    ids=["list", "tuples", "set", "pandas", "spark", "dictionary", "large", "view", "dictionary of views"],
)
def test_keys_of_one_column_in_any_shape(keys: Any) -> None:
    driver = TopologyTestDriver(on_close().count(expect_keys=keys))
    assert out(driver, 0, 10) == [("A", 0, 1), ("B", 0, 0)]


def test_numbers_of_another_width_are_the_same_keys() -> None:
    driver = TopologyTestDriver(on_close(key="n").count(expect_keys=pa.table({"n": pa.array([7], pa.int8())})))
    for ts in (0, 10):
        driver.pipe_input({"n": 1, "ts": ts})
    assert [(row["n"], row["count"]) for row in driver.read_output()] == [(1, 1), (7, 0)]


@pytest.mark.parametrize("advance", [10, 5])
def test_a_drain_ends_with_the_last_window_of_the_newest_record(advance: int) -> None:
    """As at the end of a static DataFrame: every window that has begun gets rows, and no later window does."""
    driver = TopologyTestDriver(on_close(WINDOWS.advance_by(f"{advance} ms")).count(expect_keys=["B"]))
    assert out(driver, 3) == []
    driver.pipe_input({"user": None, "ts": 90})
    driver.pipe_input({"user": "A", "ts": 21})
    driver.read_output()
    driver.drain()
    starts = [20] if advance == 10 else [15, 20]
    rows = [(row["user"], row["window"].start, row["count"]) for row in driver.read_output()]
    assert rows == [row for start in starts for row in (("A", start, 1), ("B", start, 0))]


SLOW = {"partition": "p", "offset": "o", "stream_time": "min_partition"}
SCHEMA = pa.schema([("user", pa.string()), ("ts", pa.int64()), ("p", pa.int32()), ("o", pa.int64())])


def fast_and_slow(driver: TopologyTestDriver) -> TopologyTestDriver:
    """Partition 0 is at 3, and 1 at 41."""
    driver.pipe_batch([{"user": "A", "ts": 3, "p": 0, "o": 0}, {"user": "A", "ts": 41, "p": 1, "o": 0}], "events")
    return driver


@pytest.mark.parametrize("restarts", [False, True])
def test_a_drain_by_the_slowest_partition_ends_with_the_newest_record_too(restarts: bool) -> None:
    table = on_close(**SLOW).count(expect_keys=["B"])
    driver = fast_and_slow(TopologyTestDriver(table))
    driver.pipe_batch([{"user": "A", "ts": 12, "p": 0, "o": 1}])
    if restarts:
        driver = TopologyTestDriver(table, state=driver.state())
    driver.drain()
    rows = [(row["user"], row["window"].start) for row in driver.read_output()]
    assert [start for user, start in rows if user == "B"] == ([] if restarts else [0]) + [10, 20, 30, 40]
    assert [start for user, start in rows if user == "A"] == ([] if restarts else [0]) + [10, 40]


def test_a_drain_behind_a_join_by_the_slowest_partition_ends_with_the_newest_row() -> None:
    """Its stream time is the join's, which does not show rows that are ahead."""
    events, others = (tg.stream(name, key="user", timestamp="ts", schema=SCHEMA, **SLOW) for name in ("events", "b"))
    windows = tg.JoinWindows.of_time_difference_with_no_grace("1 ms")
    joined = events.join(others, windows, how="inner", value_joiner=lambda left, right: {"n": 1}, types={"n": "long"})
    driver = TopologyTestDriver(
        joined.group_by_key().windowed_by(WINDOWS).emit_strategy(ON_CLOSE).count(expect_keys=["B"])
    )
    fast_and_slow(driver).pipe_batch(
        [{"user": "A", "ts": 3, "p": 0, "o": 0}, {"user": "A", "ts": 41, "p": 1, "o": 0}], "b"
    )
    assert driver.read_output() == []
    driver.drain()
    rows = [(row["user"], row["window"].start) for row in driver.read_output()]
    assert rows == [("A", 0), ("B", 0), ("B", 10), ("B", 20), ("B", 30), ("A", 40), ("B", 40)]


def test_a_drain_without_a_record_has_no_expected_keys() -> None:
    driver = TopologyTestDriver(on_close().count(expect_keys=["B"]))
    driver.drain()
    assert driver.read_output() == []
