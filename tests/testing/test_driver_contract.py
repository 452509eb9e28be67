"""The contract of the test driver: its input, its answers and its memory."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal
from importlib import import_module
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

import tidegate as tg
from tidegate.kernel.state.state import State
from tidegate.testing import TopologyTestDriver, Window

WINDOWS = tg.TimeWindows.of_size_and_grace("10 ms", "0 ms")
FINAL = tg.Suppressed.until_window_closes(tg.BufferConfig.unbounded())


def windowed(**arguments: Any) -> tg.TimeWindowedKStream:
    source = tg.stream("events", **({"key": "user", "timestamp": "ts"} | arguments))
    return source.group_by_key().windowed_by(WINDOWS)


def record(user: Any, ts: Any, **more: Any) -> dict[str, Any]:
    return {"user": user, "ts": ts, **more}


def refused(driver: TopologyTestDriver, *records: dict[str, Any]) -> str:
    """The driver's error for these records as one batch; the driver must stay as before."""
    before = (driver.state(), driver.metrics(), driver.drops)
    with pytest.raises(tg.TidegateError) as caught:
        driver.pipe_batch(records)
    assert (driver.state(), driver.metrics(), driver.drops) == before
    assert driver.read_output() == []
    return str(caught.value)


# --- rows ----------------------------------------------------------------------------------------------------------


def test_the_shape_of_a_row_and_its_order() -> None:
    driver = TopologyTestDriver(windowed().agg(n=tg.count(), top=tg.max("v")))
    driver.pipe_input(record("A", 3, v=5))
    (row,) = driver.read_output()
    assert list(row) == ["user", "window", "n", "top", "timestamp"]
    assert row == {"user": "A", "window": Window(0, 10), "n": 1, "top": 5, "timestamp": 3}
    assert (row["window"].start, row["window"].end) == (0, 10)


def test_records_that_spark_collected() -> None:
    """A Row of PySpark and a named tuple are read by their names; a DataFrame is collected."""

    class Row(tuple):  # as PySpark's, which needs no Spark
        __fields__ = ("ts", "user")

    class Named(NamedTuple):
        ts: int
        user: str

    class DataFrame:
        isStreaming = False  # noqa: N815 - its name in Spark

        def __arrow_c_stream__(self, requested_schema: object = None) -> object:
            raise AssertionError  # as Spark's own with a column of times

        def toArrow(self) -> pa.Table:
            return pa.table({"ts": [3, 4], "user": ["A", "B"]})

    for records in ([Row((3, "A")), Row((4, "B"))], [Named(3, "A"), Named(4, "B")], DataFrame()):
        driver = TopologyTestDriver(windowed().count())
        driver.pipe_batch(records)
        assert [(row["user"], row["timestamp"]) for row in driver.read_output()] == [("A", 3), ("B", 4)]
        driver.pipe_input(records if isinstance(records, DataFrame) else records[0])
        assert [row["count"] for row in driver.read_output()][:1] == [2]
    DataFrame.isStreaming = True
    with pytest.raises(tg.InputError, match="What was piped is a streaming DataFrame, and the driver runs no query"):
        driver.pipe_batch(DataFrame())


def test_reading_clears() -> None:
    driver = TopologyTestDriver(windowed().count())
    driver.pipe_input(record("A", 1))
    driver.pipe_input(record("B", 2))
    assert [row["user"] for row in driver.read_output()] == ["A", "B"]
    assert driver.read_output() == []


def test_a_batch_caches_and_single_records_do_not() -> None:
    batch, single = TopologyTestDriver(windowed().count()), TopologyTestDriver(windowed().count())
    records = [record("A", n) for n in range(3)]
    batch.pipe_batch(records)
    for one in records:
        single.pipe_input(one)
    assert [row["count"] for row in batch.read_output()] == [3]
    assert [row["count"] for row in single.read_output()] == [1, 2, 3]


def test_tombstones_are_rows_without_values() -> None:
    table = windowed().reduce(lambda a, b: None if b == 0 else a + b, "v")
    driver = TopologyTestDriver(table)
    for value in (1, 0):
        driver.pipe_input(record("A", 1, v=value))
    live, tombstone = driver.read_output()
    assert (live["v"], live["deleted"]) == (1, False)
    assert (tombstone["v"], tombstone["deleted"], tombstone["window"]) == (None, True, Window(0, 10))


def test_nothing_piped_is_nothing_done() -> None:
    driver = TopologyTestDriver(windowed().count())
    driver.pipe_batch([])
    assert driver.metrics()["records"] == 0
    assert driver.metrics()["stream_time"] == -1
    assert driver.read_output() == []


def test_several_keys() -> None:
    def names(key: Any, row: dict[str, Any], before: str) -> str:
        return f"{before}{key}{sorted(row)}"

    keyed = windowed(key=["shop", "city"])
    driver = TopologyTestDriver(keyed.aggregate(str, names, type="string", name="seen"))
    driver.pipe_input({"shop": "S", "city": 4, "ts": 0})
    (row,) = driver.read_output()
    assert list(row) == ["shop", "city", "window", "seen", "timestamp", "deleted"]
    assert row["seen"] == "('S', 4)['city', 'shop', 'ts']"
    single = TopologyTestDriver(windowed().aggregate(str, names, type="string", name="seen"))
    single.pipe_input(record("A", 0))
    assert single.read_output()[0]["seen"] == "A['ts', 'user']"


def test_regrouped() -> None:
    table = tg.stream("events", key="user", timestamp="ts").group_by("shop").windowed_by(WINDOWS).count()
    driver = TopologyTestDriver(table)
    driver.pipe_batch([record(user, 0, shop="S") for user in "AB"])
    assert [(row["shop"], row["count"]) for row in driver.read_output()] == [("S", 2)]


@pytest.mark.parametrize(
    ("kind", "value"), [(pa.float16(), np.float16(1.5)), (pa.month_day_nano_interval(), pa.MonthDayNano([1, 2, 3]))]
)
def test_a_table_is_grouped_beside_values_that_arrow_does_not_sort(kind: pa.DataType, value: Any) -> None:
    groups = tg.table("changes", key="k", timestamp="ts").group_by("g")
    first = groups.aggregate(lambda: None, lambda _, row, old: old or str(row["v"]), lambda *_: None, type="string")
    driver = TopologyTestDriver(first)
    driver.pipe_batch(pa.table({"k": ["a", "b"], "g": ["x", "x"], "ts": [1, 1], "v": pa.array([value, value], kind)}))
    assert [row["aggregate"] for row in driver.read_output()] == [str(value)]


# --- time ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given", "ms"),
    [
        (1_500, 1_500),
        (datetime(1970, 1, 1, 0, 0, 1, 500_999, UTC), 1_500),
        (datetime(1970, 1, 1, 0, 0, 1, 500_999), 1_500),  # noqa: DTZ001 - the case is that it has no time zone
        (datetime(1970, 1, 1, 2, 0, 1, 500_000, timezone(timedelta(hours=2))), 1_500),
    ],
)
def test_timestamps_are_milliseconds_or_datetimes(given: Any, ms: int) -> None:
    driver = TopologyTestDriver(windowed().count())
    driver.pipe_input(record("A", given))
    assert driver.read_output()[0]["timestamp"] == ms


@pytest.mark.parametrize("given", ["1970-01-01", 1.5, True, date(1970, 1, 1), 2**63, -(2**63) - 1])
def test_what_is_no_timestamp(given: Any) -> None:
    driver = TopologyTestDriver(windowed().count())
    assert refused(driver, record("A", 0), record("A", given)) == (
        f"Record 1: the timestamp column 'ts' holds {given!r} ({type(given).__name__}). "
        "Give integer milliseconds of at most 64 bits, or a datetime."
    )


TIMES = pa.schema([("user", pa.string()), ("ts", pa.timestamp("us", "UTC")), ("v", pa.int64())])
MIXED = [(120_000, datetime(1970, 1, 1, 0, 3, tzinfo=UTC)), (datetime(1970, 1, 1, 0, 2, tzinfo=UTC), 180_000)]


@pytest.mark.parametrize("schema", [None, TIMES])
@pytest.mark.parametrize("given", MIXED)
@pytest.mark.parametrize(
    "step",
    [
        lambda stream: stream,
        lambda stream: stream.filter(pc.field("v") > 0),
        lambda stream: stream.map_values({"v": lambda row: row["v"]}),
        lambda stream: stream.select_key(lambda row: row["user"]),
    ],
)
def test_integers_and_datetimes_are_one_time_behind_every_step(step: Any, given: tuple[Any, Any], schema: Any) -> None:
    stream = step(tg.stream("events", key="user", timestamp="ts", schema=schema))
    driver = TopologyTestDriver(stream.group_by_key().windowed_by(WINDOWS).count())
    for ts in given:
        driver.pipe_input(record("A", ts, v=1))
    assert [(row["window"].start, row["timestamp"]) for row in driver.read_output()] == [
        (120_000, 120_000),
        (180_000, 180_000),
    ]


@pytest.mark.parametrize("given", MIXED)
def test_integers_and_datetimes_are_one_time_for_aggregates_and_functions(given: tuple[Any, Any]) -> None:
    stream = tg.stream("events", key="user", timestamp="ts", schema=TIMES, stream_time="max")
    times = [datetime(1970, 1, 1, 0, 2, tzinfo=UTC), datetime(1970, 1, 1, 0, 3, tzinfo=UTC)]
    seen: list[datetime] = []

    def see(key: str, row: dict[str, Any], n: int) -> int:
        seen.append(row["ts"])
        return n + 1

    grouped = stream.group_by_key()
    for table in (
        grouped.aggregate(lambda: 0, see, type="long"),
        grouped.cogroup(see).aggregate(lambda: 0, type="long"),
    ):
        driver = TopologyTestDriver(table)
        for ts in given:
            driver.pipe_input(record("A", ts, v=1))
        assert [row["timestamp"] for row in driver.read_output()] == [120_000, 180_000]
    assert seen == [*times, *times]
    newest = TopologyTestDriver(grouped.agg(newest=tg.max("ts")))
    newest.pipe_batch([record("A", ts, v=1) for ts in given])
    assert newest.read_output()[0]["newest"] == times[1]


def test_an_integer_first_makes_a_time_of_integers() -> None:
    driver = TopologyTestDriver(windowed().agg(newest=tg.max("ts")))
    driver.pipe_batch([record("A", 1), record("A", datetime(1970, 1, 1, 0, 0, 0, 3_000, UTC))])
    assert driver.read_output()[0]["newest"] == 3


def test_a_late_record_keeps_its_time_whole() -> None:
    driver = TopologyTestDriver({"now": (table := windowed(schema=TIMES).count()), "late": table.late_records()})
    late = datetime(1970, 1, 1, 0, 0, 0, 3_001, UTC)
    for ts in (120_000, late, 5):
        driver.pipe_input(record("A", ts, v=1))
    assert [row["ts"] for row in driver.read_output()[1:]] == [late, datetime(1970, 1, 1, 0, 0, 0, 5_000, UTC)]


@pytest.mark.parametrize("ts", [253_402_300_800_000, 2**62])
def test_an_integer_time_that_no_datetime_has_is_refused_where_it_becomes_one(ts: int) -> None:
    stream = tg.stream("events", key="user", timestamp="ts", schema=TIMES)
    read = (stream.filter(pc.field("v") > 0).group_by_key().count(), stream.group_by_key().agg(newest=tg.max("ts")))
    for table in read:
        assert f"the column 'ts' holds {ts}, which is not a timestamp" in refused(
            TopologyTestDriver(table), record("A", ts, v=1)
        )
    plain = TopologyTestDriver(stream.group_by_key().count())
    plain.pipe_input(record("A", ts, v=1))
    assert plain.read_output()[0]["timestamp"] == ts


def test_the_wall_clock_moves_no_stream_time() -> None:
    driver = TopologyTestDriver(windowed().count().suppress(FINAL))
    driver.pipe_input(record("A", 0))
    driver.advance_wall_clock("1 day")
    driver.advance_wall_clock(timedelta(seconds=1))
    assert driver.wall_clock == timedelta(days=1, seconds=1)
    assert driver.read_output() == []
    with pytest.raises(tg.DefinitionError, match=r"`by` is 'soon', which is not a duration"):
        driver.advance_wall_clock("soon")


def test_the_order_piped_or_the_order_told() -> None:
    piped = TopologyTestDriver(windowed().agg(x=tg.last("v")))
    piped.pipe_batch([record("A", 1, v="first"), record("A", 1, v="second")])
    assert piped.read_output()[0]["x"] == "second"
    ordered = TopologyTestDriver(windowed(partition="p", offset="o").agg(x=tg.last("v")))
    ordered.pipe_batch([record("A", 1, v="second", p=0, o=8), record("A", 1, v="first", p=0, o=7)])
    assert ordered.read_output()[0]["x"] == "second"


def test_late_inside_a_batch_in_the_order_piped() -> None:
    driver = TopologyTestDriver(windowed().count().suppress(FINAL))
    driver.pipe_batch([record("A", 10), record("A", 9), record("A", 20)])
    assert [(row["window"].start, row["count"]) for row in driver.read_output()] == [(10, 1)]
    assert driver.drops["late"] == 1


# --- types ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "value",
    [7, 1.5, "x", True, b"x", Decimal("1.25"), date(2024, 2, 29), datetime(2024, 1, 1, 0, 0, 0, 1, UTC), [1, 2]],
)
def test_the_type_of_a_column_is_that_of_its_first_value(value: Any) -> None:
    driver = TopologyTestDriver(windowed().agg(x=tg.last("v"), n=tg.count("v")))
    for given in (None, value, None, value):
        driver.pipe_input(record("A", 1, v=given))
    assert [(row["x"], row["n"]) for row in driver.read_output()] == [(None, 0), (value, 1), (None, 1), (value, 2)]


def test_a_value_of_another_type() -> None:
    driver = TopologyTestDriver(windowed().agg(x=tg.last("v")))
    driver.pipe_input(record("A", 0, v=1))
    driver.read_output()
    assert refused(driver, record("A", 1, v=2), record("A", 2, v="two")) == (
        "Record 2: the column 'v' holds 'two', which is not a int64, the type of its first value: Could not convert "
        "'two' with type str: tried to convert to int64. Correct the record, or declare the type with "
        "tg.stream(..., schema=pyarrow.schema(...))."
    )
    driver.pipe_input(record("A", 1, v=2))
    assert driver.read_output()[0]["x"] == 2


def test_a_declared_schema_gives_the_types() -> None:
    schema = pa.schema([("user", pa.string()), ("ts", pa.int64()), ("v", pa.decimal128(5, 2))])
    driver = TopologyTestDriver(windowed(schema=schema).agg(x=tg.sum("v")))
    driver.pipe_input(record("A", 0, v=1))
    assert driver.read_output()[0]["x"] == Decimal("1.00")
    assert "the column 'user' holds 5, which is not a string" in refused(driver, record(5, 1, v=1))


def test_a_column_that_is_missing() -> None:
    driver = TopologyTestDriver(windowed().count())
    assert refused(driver, record("A", 0), {"user": "A", "time": 1}) == (
        "Record 1 has no column 'ts', which the stream needs; it has 'user', 'time'. "
        "Give it a value, or None for a null."
    )
    assert refused(driver, {"ts": 1}).startswith("Record 0 has no column 'user', which the stream needs; it has 'ts'.")
    ordered = TopologyTestDriver(windowed(partition="p", offset="o").count())
    assert refused(ordered, record("A", 0, p=0)).startswith("Record 0 has no column 'o', which the stream needs")


@pytest.mark.parametrize("number", [np.int64, np.int32, np.uint64])
def test_a_timestamp_may_be_an_integer_of_numpy(number: Any) -> None:
    driver = TopologyTestDriver(windowed().agg(n=tg.max("v")))
    driver.pipe_input(record("A", number(7), v=number(1)))
    assert [(row["timestamp"], row["n"]) for row in driver.read_output()] == [(7, 1)]


def test_a_value_column_may_be_missing() -> None:
    driver = TopologyTestDriver(windowed().agg(n=tg.count("v"), all=tg.count()))
    driver.pipe_batch([record("A", 0, v=1), record("A", 1)])
    assert [(row["n"], row["all"]) for row in driver.read_output()] == [(1, 2)]


def test_keys_that_cannot_be() -> None:
    driver = TopologyTestDriver(windowed().count())
    assert refused(driver, record(["A"], 0)) == (
        "The key column 'user' is list<item: string>: a key must be of an atomic type. "
        "Give its parts as several key columns."
    )
    # Months and days have no common length, and so no hash.
    assert refused(driver, record(pa.MonthDayNano([1, 2, 3]), 0)) == (
        "The key column 'user' is month_day_nano_interval: a key must be of an atomic type. "
        "Give its parts as several key columns."
    )
    assert refused(driver, record(object, 0)).startswith(
        "The column 'user' holds <class 'object'> (type), which no column can hold: "
    )


def test_a_null_offset() -> None:
    driver = TopologyTestDriver(windowed(partition="p", offset="o").count())
    assert refused(driver, record("A", 0, p=0, o=None)).startswith(
        "Row 0 of a micro-batch has no offset: the column 'o' is null, and without it nobody can say which records"
    )


@pytest.mark.parametrize(("partition", "offset", "missing"), [(None, 0, "partition"), (0, None, "offset")])
@pytest.mark.parametrize("filtered", [False, True])
def test_a_null_partition_or_offset_of_a_merged_stream(
    partition: int | None, offset: int | None, missing: str, filtered: bool
) -> None:
    one, other = (
        tg.stream(name, key="user", timestamp="ts", partition="p", offset="o") for name in ("clicks", "views")
    )
    one = one.filter(lambda row: row["user"] == "A") if filtered else one
    driver = TopologyTestDriver(one.merge(other).group_by_key().count())
    with pytest.raises(tg.InputError) as caught:
        driver.pipe_input({"user": "A", "ts": 0, "p": partition, "o": offset}, "clicks")
    assert str(caught.value).startswith(f"Row 0 of a micro-batch has no {missing}: the column '{missing[0]}' is null")
    # No record was taken.
    driver.pipe_input({"user": "A", "ts": 0, "p": 0, "o": 0}, "clicks")
    assert [row["count"] for row in driver.read_output()] == [1]


def test_a_late_record_of_a_merged_stream_has_its_own_partition() -> None:
    """Two inputs each have a partition 0; rows do not show how they are told apart, as on Spark."""
    one, other = (
        tg.stream(name, key="user", timestamp="ts", partition="p", offset="o") for name in ("clicks", "views")
    )
    counts = one.merge(other).group_by_key().windowed_by(WINDOWS).count()
    driver = TopologyTestDriver(tg.outputs(late=counts.late_records(), final=counts.suppress(FINAL)))
    for name, ts, offset in (("clicks", 50, 0), ("views", 10, 0), ("views", None, 1)):
        driver.pipe_input({"user": "A", "ts": ts, "p": 0, "o": offset}, name)
    late = [row for row in driver.read_output() if row["output"] == "late"]
    assert [(row["reason"], row["p"], row["o"]) for row in late] == [("late", 0, 0), ("bad_timestamp", 0, 1)]


FAR = 2**60
"""Microseconds far behind the year 9999: Arrow and Spark have such instants, Python has not."""


def far(row: str) -> str:
    return (
        f"{row} {FAR}, a timestamp[us, tz=UTC], which no value of Python can hold: date value out of range. Python's "
        "datetimes end with the year 9999"
    )


def test_a_result_that_python_cannot_hold_changes_nothing() -> None:
    as_time = {"at": pc.field("n").cast(pa.timestamp("us", "UTC"))}
    table = tg.stream("events", key="user", timestamp="ts").group_by_key().agg(n=tg.sum("v")).map_values(as_time)
    driver = TopologyTestDriver(table)
    driver.pipe_input({"user": "A", "ts": 0, "v": 1})
    before = driver.read_state()
    with pytest.raises(tg.AggregationError) as caught:
        driver.pipe_batch([{"user": "A", "ts": 1, "v": 1}, {"user": "B", "ts": 1, "v": FAR}])
    assert str(caught.value).startswith(far("Row 1 of the results has in the column 'at'"))
    assert (driver.read_state(), driver.metrics()["records"]) == (before, 1)
    driver.pipe_input({"user": "A", "ts": 1, "v": 1})
    assert [row["at"].microsecond for row in driver.read_output()] == [1, 2]


def test_input_that_python_cannot_hold() -> None:
    events = tg.stream("events", key="user", timestamp="ts")
    driver = TopologyTestDriver(events.group_by_key().agg(n=tg.max("v")))
    with pytest.raises(tg.InputError) as of_input:
        driver.pipe_batch(pa.table({"user": ["A"], "ts": [0], "v": pa.array([FAR], pa.timestamp("us", "UTC"))}))
    assert str(of_input.value).startswith(far("Row 0 of the batch has in the column 'v'"))
    stepped = events.map_values({"at": pc.field("v").cast(pa.timestamp("us", "UTC"))})
    driver = TopologyTestDriver(stepped.group_by_key().agg(n=tg.max("at")))
    with pytest.raises(tg.AggregationError) as of_step:
        driver.pipe_input({"user": "A", "ts": 0, "v": FAR})
    assert str(of_step.value).startswith(far("Row 0 of the rows of a step has in the column 'at'"))


# --- counts --------------------------------------------------------------------------------------------------------


def test_drops_by_reason() -> None:
    hopping = WINDOWS.advance_by("5 ms")
    table = tg.stream("events", key="user", timestamp="ts").group_by_key().windowed_by(hopping).count().suppress(FINAL)
    driver = TopologyTestDriver(table)
    assert driver.drops == {"late": 0, "null_key": 0, "null_value": 0, "bad_timestamp": 0}
    driver.pipe_batch([record("A", 19), record(None, 90), record("A", None), record("A", -1), record(None, None)])
    driver.pipe_input(record("A", 7))  # two windows, both closed
    driver.pipe_input(record("A", 12))  # one of two is
    assert driver.drops == {"late": 3, "null_key": 1, "null_value": 0, "bad_timestamp": 3}
    assert driver.dropped == 7


def test_metrics() -> None:
    driver = TopologyTestDriver(windowed().count().suppress(FINAL))
    driver.pipe_batch([record("A", 4), record("B", 2), record("A", 25), record("A", 23)])
    metrics = driver.metrics()  # tests/testing/test_metrics.py has the others
    expected = {
        "records": 4,
        "emitted": 2,
        "open_windows": 1,
        "late": 0,
        "null_key": 0,
        "null_value": 0,
        "bad_timestamp": 0,
        "dropped": 0,
        "stream_time": 25,
        "record_lateness_avg": 1.0,
        "record_lateness_max": 2,
    }
    assert {name: metrics[name] for name in expected} == expected


# --- failures and restarts -----------------------------------------------------------------------------------------


def test_a_failed_step_leaves_the_driver_as_it_was() -> None:
    def add(_: Any, row: dict[str, Any], total: int) -> int:
        return total + 10 // row["v"]

    driver = TopologyTestDriver(windowed().aggregate(int, add, type="long"))
    driver.pipe_input(record("A", 1, v=5))
    driver.read_output()
    # The first record of the failed batch moves no stream time, adds to no window and is in no output.
    message = refused(driver, record("B", 30, v=1, extra="new"), record("A", 31, v=0, extra="new"))
    assert "raised ZeroDivisionError: " in message
    assert message.endswith(
        "— for key 'A', window 30 to 40 ms, record {'user': 'A', 'ts': 31, 'v': 0, 'extra': 'new'}. Nothing of this "
        "batch was emitted or stored. Correct the function, or filter such records out before tg.stream, and restart."
    )
    driver.pipe_input(record("A", 2, v=5))
    assert [(row["user"], row["aggregate"]) for row in driver.read_output()] == [("A", 4)]


def test_what_a_failed_step_had_written_is_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(_: State) -> None:
        raise tg.CheckpointError("the disk is full")

    driver = TopologyTestDriver(windowed().count().suppress(FINAL))
    driver.pipe_input(record("A", 0))
    with monkeypatch.context() as patched:
        patched.setattr(State, "save", fail)  # by then the log of the window has one more segment
        assert refused(driver, record("A", 1)) == "the disk is full"
    driver.pipe_input(record("A", 10))
    assert [row["count"] for row in driver.read_output()] == [1]


def test_a_function_that_gives_another_type() -> None:
    driver = TopologyTestDriver(windowed().aggregate(int, lambda *_: "no", type="long"))
    message = refused(driver, record("A", 1))
    assert "as long gave 'no' (str) for key ('A',), window starting at 0 ms, which is not a int64: " in message
    assert message.endswith("Return that type, or declare another `type`.")


def test_an_overflow_names_key_and_window() -> None:
    driver = TopologyTestDriver(windowed().agg(total=tg.sum("v")))
    assert refused(driver, record("A", 11, v=2**63 - 1), record("A", 12, v=1)) == (
        "`total` = sum(v) overflows for key {'user': 'A'}, window starting at 10 ms: the sum 9223372036854775808 does "
        "not fit int64. Cast the column to a wider type (double, or decimal(38, 0)) before tg.stream."
    )


def test_a_sum_of_a_batch_need_not_fit_if_the_sum_with_earlier_records_does() -> None:
    for grouped in (windowed(), tg.stream("events", key="user", timestamp="ts").group_by_key()):
        driver = TopologyTestDriver(grouped.agg(total=tg.sum("v")))
        driver.pipe_input(record("A", 11, v=-5))
        driver.pipe_batch([record("A", 12, v=2**63 - 1), record("A", 13, v=1)])
        assert [row["total"] for row in driver.read_output()] == [-5, 2**63 - 5]


@pytest.mark.parametrize("way", ["updates", "final"])
def test_late_records_whose_sum_does_not_fit_are_dropped(way: str) -> None:
    table = windowed().agg(total=tg.sum("v"))
    driver = TopologyTestDriver(table.suppress(FINAL) if way == "final" else table)
    driver.pipe_input(record("A", 100, v=7))
    driver.pipe_batch([record("A", 11, v=2**63 - 1), record("A", 12, v=1)])
    assert driver.drops["late"] == 2
    driver.pipe_input(record("A", 200, v=0))
    assert [row["total"] for row in driver.read_output() if row["window"].start == 100] == [7]


def test_a_final_sum_that_overflows_in_a_batch_is_found_in_that_batch() -> None:
    order = {"partition": "p", "offset": "o"}
    driver = TopologyTestDriver(windowed(**order).agg(total=tg.sum("v")).suppress(FINAL))
    large = [record("A", 11, p=0, o=o, v=v) for o, v in enumerate([2**63 - 1, 1])]
    message = refused(driver, *large, record("B", 11, p=1, o=0, v=-5))
    assert message.startswith("`total` = sum(v) overflows for key {'user': 'A'}, window starting at 10 ms: ")
    # The records of another partition take the sum back into its type.
    driver.pipe_batch([*large, record("A", 11, p=1, o=0, v=-5)])
    driver.pipe_input(record("A", 100, p=0, o=2, v=0))
    assert [row["total"] for row in driver.read_output()] == [2**63 - 5]


@pytest.mark.parametrize("aggregate", [tg.collect_list("v"), tg.approx_count_distinct("v")], ids=str)
def test_lists_of_every_update_that_are_too_long_together_name_key_and_window(
    aggregate: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The lists of every update of a key in one batch grow: lists of 1, 2, 3 and 4 values hold ten together."""
    # By name: the package has a function that is called like this module.
    monkeypatch.setattr(import_module("tidegate.kernel.aggregates.ordered"), "_MOST", 9)
    driver = TopologyTestDriver(windowed().agg(tg.Materialized.as_("s").with_caching_disabled(), xs=aggregate))
    driver.pipe_batch([record("A", 11, v=1), record("B", 12, v=2)])
    driver.read_output()
    message = refused(driver, *(record("B", 13, v=v) for v in (3, 5, 7)))
    assert message.startswith(f"`xs` = {aggregate} overflows for key {{'user': 'B'}}, window starting at 10 ms: ")
    assert "lists of one batch hold more than 9 values together. Take fewer records in a batch" in message


def test_an_overflow_behind_a_tombstone_names_its_own_key_and_session() -> None:
    """The last record takes the sum back into its type, so only an update overflows."""
    sessions = tg.SessionWindows.of_inactivity_gap_and_grace("5 ms", "100 ms")
    grouped = tg.stream("events", key="user", timestamp="ts").group_by_key().windowed_by(sessions)
    driver = TopologyTestDriver(grouped.agg(tg.Materialized.as_("s").with_caching_disabled(), total=tg.sum("v")))
    driver.pipe_batch([record("B", 10, v=2**62), record("C", 10, v=1)])
    driver.read_output()
    batch = [record("C", 11, v=1), record("A", 11, v=1), record("B", 12, v=2**62), record("B", 13, v=-(2**62))]
    message = refused(driver, *batch)
    assert message.startswith("`total` = sum(v) overflows for key {'user': 'B'}, window starting at 10 ms: ")


@pytest.mark.parametrize(("kind", "most"), [(pa.int64(), 2**63 - 1), (pa.decimal128(38, 0), Decimal(10**38 - 1))])
def test_a_session_that_joins_another_one_adds_its_sum_and_not_value_by_value(kind: pa.DataType, most: Any) -> None:
    """No sum is too large: the second session has -5 when it joins the first one."""
    schema = pa.schema([("user", pa.string()), ("v", kind), ("ts", pa.int64())])
    sessions = tg.SessionWindows.of_inactivity_gap_and_grace("5 ms", "100 ms")
    grouped = tg.stream("events", key="user", timestamp="ts", schema=schema).group_by_key().windowed_by(sessions)
    table = grouped.agg(tg.Materialized.as_("s").with_caching_disabled(), total=tg.sum("v"))
    values = [(0, most), *((ts, most * 0) for ts in range(1, 5)), (12, 5), (13, -10), (8, most * 0)]
    batch = [record("A", ts, v=type(most)(v)) for ts, v in values]
    whole, one_by_one = TopologyTestDriver(table), TopologyTestDriver(table)
    whole.pipe_batch(batch)
    for one in batch:
        one_by_one.pipe_input(one)
    found = whole.read_output()
    assert found == one_by_one.read_output()
    assert int(found[-1]["total"]) == int(most) - 5


UNKNOWN = [
    [None, None],
    [{"a": None, "b": 1}, {"a": None, "b": 2}, {"a": None, "b": 3}],
    {"a": [None, None]},
    {"a": None},
]
"""Values with a part of which no value is known."""


@pytest.mark.parametrize("value", UNKNOWN, ids=repr)
@pytest.mark.parametrize("caching", [True, False], ids=["cached", "every update"])
def test_parts_of_values_that_are_all_null_so_far(value: Any, caching: bool) -> None:
    store = tg.Materialized.as_("s") if caching else tg.Materialized.as_("s").with_caching_disabled()
    table = windowed().agg(store, first=tg.first("v"), last=tg.last("v"), all=tg.collect_list("v"))
    driver = TopologyTestDriver({"updates": table, "final": table.suppress(FINAL)})
    driver.pipe_batch([record(user, ts, v=value) for user in "AB" for ts in (1, 2, 3)])
    driver.pipe_input(record("C", 10, v=value))
    rows = [row for row in driver.read_output() if row["user"] != "C"]
    assert {row["output"] for row in rows} == {"updates", "final"}
    assert all((row["first"], row["last"]) == (value, value) for row in rows)
    assert [row["all"] for row in rows if row["output"] == "final"] == [[value] * 3] * 2
    assert [row["last"] for row in driver.read_state("s")] == [value]


@pytest.mark.parametrize("value", UNKNOWN, ids=repr)
def test_rows_of_tables_joins_and_late_records_with_such_parts(value: Any) -> None:
    driver = TopologyTestDriver(tg.table("prices", key="user", timestamp="ts"))
    driver.pipe_batch([record("A", 1, v=value), record("B", 2, v=value)])
    assert [row["v"] for row in driver.read_output()] == [value, value]

    counts = windowed().count(late_records="keep")
    driver = TopologyTestDriver({"late": counts.late_records(), "final": counts.suppress(FINAL)})
    driver.pipe_batch([record("A", 99, v=value), record("A", 1, v=value), record("B", 2, v=value)])
    assert [row["v"] for row in driver.read_output()] == [value, value]

    left, right = (tg.stream(name, key="user", timestamp="ts", stream_time="max") for name in ("left", "right"))
    driver = TopologyTestDriver(left.join(right, tg.JoinWindows.of_time_difference_with_no_grace("5 ms")))
    driver.pipe_batch([record("A", 1, v=value), record("A", 2, v=value)], "left")
    driver.pipe_input(record("A", 3, w=value), "right")
    assert [(row["v"], row["w"]) for row in driver.read_output()] == [(value, value)] * 2


LEARNED = [([None], [1]), ([], [{"a": None}]), ({"a": None, "b": 1}, {"a": 3, "b": 1})]
"""Values, and later ones from which a part of their type is learned."""


@pytest.mark.parametrize("how", ["streams", "a table without history", "a table with history"])
@pytest.mark.parametrize(("value", "later"), [*LEARNED, ({"a": {"b": None}}, {"a": {"b": "x"}})], ids=repr)
def test_a_join_learns_parts_of_types_while_records_wait(value: Any, later: Any, how: str) -> None:
    """The open or waiting records, and rows of the table, of several batches are merged."""
    clicks = tg.stream("clicks", key="user", timestamp="ts", stream_time="max")
    if how == "streams":
        views = tg.stream("views", key="user", timestamp="ts", stream_time="max")
        joined = clicks.join(views, tg.JoinWindows.of_time_difference_with_no_grace("50 ms"))
    elif how == "a table with history":
        joined = clicks.join(tg.table("views", key="user", timestamp="ts", history="1 day"), grace="50 ms")
    else:
        joined = clicks.join(tg.table("views", key="user", timestamp="ts"))
    driver = TopologyTestDriver(joined)
    values = {"A": value, "B": later, "C": value, "D": later, "E": None}
    for name, column in (("views", "w"), ("clicks", "v")):
        for ts, (user, one) in enumerate(values.items()):
            driver.pipe_batch([{"user": user, "ts": ts, column: one, "n" + column: ts}], name)
    driver.drain()
    found = {row["user"]: (row["v"], row["w"]) for row in driver.read_output()}
    assert found == {user: (one, one) for user, one in values.items()}


@pytest.mark.parametrize("suppressed", ["window closes", "time limit"])
@pytest.mark.parametrize(("value", "later"), LEARNED, ids=repr)
def test_a_bounded_buffer_of_sliding_windows_learns_parts_of_types(value: Any, later: Any, suppressed: str) -> None:
    bound = tg.BufferConfig.max_bytes(10_000)
    held: Any = tg.Suppressed.until_time_limit("50 ms", bound, clock="stream")
    if suppressed == "window closes":
        held = tg.Suppressed.until_window_closes(bound.shut_down_when_full())
    windows = tg.SlidingWindows.of_time_difference_and_grace("5 ms", "30 ms")
    grouped = tg.stream("events", key="user", timestamp="ts").group_by_key()
    table = grouped.windowed_by(windows).agg(v=tg.first("v")).suppress(held)
    driver = TopologyTestDriver(table)
    driver.pipe_batch([record("A", 10, v=value), record("A", 12, v=value)])
    driver = TopologyTestDriver(table, state=driver.state())
    driver.pipe_batch([record("A", 13, v=later), record("A", 12, v=later)])
    driver.pipe_input(record("A", 100, v=later))
    found = {row["window"].start: row["v"] for row in driver.read_output() if row["window"].end < 95}
    assert found == {5: value, 7: value, 8: value, 11: value, 13: later}


def test_a_restart_goes_on_where_the_state_was_taken() -> None:
    table = windowed().agg(n=tg.count(), x=tg.last("v")).suppress(FINAL)
    driver = TopologyTestDriver(table)
    driver.pipe_batch([record("A", 0, v="a"), record("B", 1, v="b")])
    state = driver.state()
    driver.pipe_batch([record("A", 2, v="lost"), record("A", 10, v="lost")])
    again = TopologyTestDriver(table, state=state)
    assert again.read_output() == []
    again.pipe_batch([record("A", 3, v="c"), record("A", 10, v="d")])
    assert [(row["user"], row["n"], row["x"]) for row in again.read_output()] == [("A", 2, "c"), ("B", 1, "b")]
    # A state may be used again.
    third = TopologyTestDriver(table, state=state)
    third.pipe_input(record("A", 10, v="d"))
    assert [row["n"] for row in third.read_output()] == [1, 1]


def test_a_restart_remembers_types() -> None:
    table = windowed().agg(x=tg.last("v"))
    driver = TopologyTestDriver(table)
    driver.pipe_input(record("A", 0, v=1))
    again = TopologyTestDriver(table, state=driver.state())
    assert "the column 'v' holds 'x', which is not a int64" in refused(again, record("A", 0, v="x"))


def test_a_restart_with_another_plan_is_refused() -> None:
    driver = TopologyTestDriver(windowed().count())
    driver.pipe_input(record("A", 0))
    other = TopologyTestDriver(windowed().count("n"), state=driver.state())
    assert "written by another plan (aggregation: 'count=count()' -> 'n=count()')" in refused(other, record("A", 0))


@pytest.mark.parametrize("schema", [None, pa.schema([("user", pa.string()), ("ts", pa.int64()), ("v", pa.int64())])])
def test_steps_alone_go_on_from_steps_alone(schema: Any) -> None:
    """Without an operator there is no state to compare."""
    steps = tg.stream("events", key="user", timestamp="ts", schema=schema).filter(pc.field("v") > 1)
    driver = TopologyTestDriver(steps)
    driver.pipe_input(record("A", 0, v=2))
    assert driver.check_upgrade(steps).goes_on
    assert not driver.check_upgrade(steps.group_by_key().count()).goes_on


@pytest.mark.parametrize("kind", [pa.float32(), pa.float64()])
@pytest.mark.parametrize("function", [False, True])
def test_floating_keys_group_as_sparks_do(kind: pa.DataType, function: bool) -> None:
    schema = pa.schema([("user", kind), ("ts", pa.int64()), ("v", pa.int64())])
    table = windowed(schema=schema)
    made = table.reduce(lambda a, b: a + b, "v", "n") if function else table.count("n")
    driver = TopologyTestDriver(made)
    for _ in range(2):
        driver.pipe_batch([record(key, 0, v=1) for key in (0.0, -0.0, float("nan"), float("nan"), 1.5)])
    assert sorted(row["n"] for row in driver.read_output()) == [1, 2, 2, 2, 4, 4]


def test_a_null_struct_whose_fields_are_never_null() -> None:
    kind = pa.struct([pa.field("a", pa.int64(), nullable=False)])
    columns = [("user", pa.string()), ("v", kind), ("ts", pa.int64()), ("deleted", pa.bool_())]
    one, other = (tg.table(n, key="user", timestamp="ts", deleted="deleted", schema=pa.schema(columns)) for n in "ab")
    joined = one.outer_join(other.map_values({"w": "v"}))
    driver, rows = TopologyTestDriver(joined), []
    for ts, (name, value) in enumerate((("a", None), ("b", {"a": 1}), ("a", {"a": 2}), ("b", None))):
        driver.pipe_batch([record("A", ts, v=value, deleted=False), record("B", ts, deleted=True)], name)
        rows += [(row["v"], row["w"]) for row in driver.read_output() if row["user"] == "A"]
        driver = TopologyTestDriver(joined, driver.state())
    assert rows == [(None, None), (None, {"a": 1}), ({"a": 2}, {"a": 1}), ({"a": 2}, None)]


def test_an_offset_that_is_no_whole_number_is_refused() -> None:
    stream = tg.stream("events", key="user", timestamp="ts", partition="p", offset="o")
    windows = tg.TimeWindows.of_size_with_no_grace("10 ms")
    driver = TopologyTestDriver(stream.group_by_key().windowed_by(windows).count())
    with pytest.raises(tg.InputError, match="offset column 'o' is double"):
        driver.pipe_input({"user": "A", "ts": 0, "p": 0, "o": 1.5})


@pytest.mark.parametrize(
    ("partition", "kind"),
    [
        (1.5, "double"),
        (True, "bool"),
        (Decimal(1), "decimal128"),
        (b"x", "binary"),
        (date(2020, 1, 1), "date32"),
        ([1], "list<item: int64>"),
        ({"a": 1}, "struct<a: int64>"),
    ],
)
@pytest.mark.parametrize("merged", [False, True])
@pytest.mark.parametrize("mapped", [False, True])
def test_a_partition_that_is_no_integer_and_no_string_is_refused(
    partition: Any, kind: str, merged: bool, mapped: bool
) -> None:
    stream, other = (tg.stream(name, key="user", timestamp="ts", partition="p", offset="o") for name in ("a", "b"))
    stream = stream.filter(lambda row: True) if mapped else stream
    driver = TopologyTestDriver((stream.merge(other) if merged else stream).group_by_key().count())
    with pytest.raises(tg.InputError, match=rf"partition column 'p' is {kind}.*, not an integer or a string: "):
        driver.pipe_input({"user": "A", "ts": 1, "p": partition, "o": 0}, "a")
    assert driver.read_output() == []


def test_a_column_that_only_later_records_have() -> None:
    """Rows kept as old values of groups may lack a column that later records have."""
    driver = TopologyTestDriver(tg.table("moves", key="k", timestamp="ts").group_by("v").count("users"))
    driver.pipe_input({"k": "a", "ts": 1, "v": 1})
    driver.pipe_input({"k": "b", "ts": 2, "v": 1, "w": "x"})
    driver.pipe_input({"k": "a", "ts": 3, "v": 2})
    changes = [(row["v"], row["users"]) for row in driver.read_output()]
    assert changes == [(1, 1), (1, 2), (1, 1), (2, 1)]
