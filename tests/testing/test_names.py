"""Names of columns, stores and keys: free, except for tidegate's own, and refused if one hides another."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest

import tidegate as tg
from tidegate.testing import TopologyTestDriver

SECONDS = tg.TimeWindows.of_size_with_no_grace("1 second")
FINAL = tg.Suppressed.until_window_closes(tg.BufferConfig.unbounded())
UNBOUNDED = tg.BufferConfig.unbounded()


def events(**more: Any) -> tg.KStream:
    return tg.stream("events", key="k", timestamp="ts", **more)


def ordered() -> tg.KStream:
    return events(partition="p", offset="o")


def counts() -> tg.KTable:
    return events().group_by_key().windowed_by(SECONDS).count()


# --- names that belong to tidegate ---------------------------------------------------------------------------------

OURS = "tidegate:start"


@pytest.mark.parametrize(
    "door",
    [
        lambda: events(schema=pa.schema({"k": pa.string(), "ts": pa.int64(), OURS: pa.int64()})),
        lambda: events().map_values({OURS: "v"}),
        lambda: events().map_values(dict, types={OURS: "long"}),
        lambda: counts().map_values({OURS: "count"}),
        lambda: events().select_key(str, name=OURS),
        lambda: events().group_by_key().count(OURS),
        lambda: events().group_by_key().agg(**{OURS: tg.sum("v")}),
        lambda: events().group_by_key().reduce(max, "v", OURS),
        lambda: events().group_by_key().aggregate(int, max, type="long", name=OURS),
        lambda: TopologyTestDriver(counts()).pipe_input({"k": "A", "ts": 0, OURS: 1}),
        lambda: TopologyTestDriver(events().filter(len)).pipe_input({"k": "A", "ts": 0, OURS: 1}),
        lambda: TopologyTestDriver(counts()).pipe_batch(pa.table({"k": ["A"], "ts": [0], OURS: [1]})),
        lambda: TopologyTestDriver(events().map_values(lambda row: {OURS: 1})).pipe_input({"k": "A", "ts": 0}),
    ],
)
def test_no_column_of_a_user_begins_as_ours_do(door: Callable[[], Any]) -> None:
    with pytest.raises(tg.DefinitionError) as caught:
        door()
    assert str(caught.value).endswith(
        "is called 'tidegate:start': names that begin with 'tidegate:' belong to tidegate's own columns. "
        "Rename it, for example to 'start_in'."
    )


# --- names that hide another column --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "role"), [("ts", "timestamp"), ("p", "partition"), ("o", "offset")], ids=["time", "partition", "offset"]
)
def test_a_computed_key_takes_no_column_that_says_when_or_where(name: str, role: str) -> None:
    for stream in (ordered(), ordered().merge(tg.stream("more", key="k", timestamp="ts", partition="p", offset="o"))):
        with pytest.raises(tg.DefinitionError) as caught:
            stream.select_key(lambda row: "A", name=name)
        assert str(caught.value) == (
            f"`name` is {name!r}, the column with the {role} of the records: the new key would take its place. "
            f"Choose another name, for example name='{name}_key'."
        )
    driver = TopologyTestDriver(ordered().select_key(lambda row: "A", name=f"{name}_key").group_by_key().count())
    driver.pipe_input({"k": "B", "ts": 1, "p": 0, "o": 0, "v": 1})
    assert driver.read_output() == [{f"{name}_key": "A", "count": 1, "timestamp": 1}]


def test_a_computed_key_does_not_hide_the_window_of_a_change() -> None:
    with pytest.raises(tg.DefinitionError, match=r"`name` is 'window', the column with what every record has and"):
        counts().to_stream().select_key(lambda row: "A", name="window")


@pytest.mark.parametrize("name", ["window", "timestamp", "deleted", "output"])
def test_a_value_of_a_table_that_is_called_as_a_column_of_results(name: str) -> None:
    """It would hide that column, or be hidden by it: Spark's frames may not have it either."""
    table = tg.table("users", key="k", timestamp="ts", deleted="gone")
    for plan in (table, table.filter(lambda row: True), table.group_by("v").count()):
        driver = TopologyTestDriver(plan)
        with pytest.raises(tg.DefinitionError) as caught:
            driver.pipe_input({"k": "A", "ts": 1, "v": 1, "gone": False, name: 7})
        assert str(caught.value) == (
            f"table: a row would have a value column {name!r}, a name that rows of a result use themselves (window, "
            f"timestamp, deleted, output). Rename it, for example to '{name}_in'."
        )
    driver = TopologyTestDriver(tg.table("users", key="k", timestamp="timestamp", deleted="deleted"))
    driver.pipe_input({"k": "A", "timestamp": 1, "v": 1, "deleted": False})
    assert driver.read_output() == [{"k": "A", "v": 1, "timestamp": 1, "deleted": False}]


@pytest.mark.parametrize("name", ["reason", "late_by", "stream_time", "window", "timestamp", "deleted", "output"])
@pytest.mark.parametrize("alone", [True, False])
def test_a_record_with_a_column_that_late_records_add(name: str, alone: bool) -> None:
    """The record's value stood where the reason, or the window, was asked for, if the late records left alone."""
    late = counts().late_records()
    driver = TopologyTestDriver(late if alone else {"late": late})
    with pytest.raises(tg.DefinitionError, match=f"^Late records are whole records, and '{name}' is a column"):
        driver.pipe_input({"k": "A", "ts": 5_000, name: 7})


def test_a_value_called_output_beside_outputs() -> None:
    table = counts()
    mapped = table.map_values({"output": "count"})
    with pytest.raises(tg.DefinitionError, match=r"of the output 'raw' gives a column 'output': among several outputs"):
        tg.outputs(raw=mapped, final=table.suppress(FINAL))
    function = table.map_values(lambda row: {"output": row["count"]}, types={"output": "long"})
    with pytest.raises(tg.DefinitionError, match=r"of the output 'raw' gives a column 'output': among several outputs"):
        tg.outputs(raw=function, final=table.suppress(FINAL))
    # A single table may have it: no column `output` is added.
    driver = TopologyTestDriver(mapped)
    driver.pipe_input({"k": "A", "ts": 0})
    assert [row["output"] for row in driver.read_output()] == [1]


def test_outputs_whose_columns_have_one_name_and_other_types() -> None:
    table = counts()
    text = table.map_values({"n": lambda row: str(row["count"])}, types={"n": "string"})
    driver = TopologyTestDriver(tg.outputs(raw=text, final=table.map_values({"n": "count"}).suppress(FINAL)))
    with pytest.raises(tg.DefinitionError) as caught:
        driver.pipe_input({"k": "A", "ts": 0})
    assert str(caught.value) == (
        "The column 'n' is string in the output 'raw' and int64 in 'final': the outputs leave as one table. Give the "
        "columns different names, or one type by map_values."
    )


@pytest.mark.parametrize(
    "table",
    [
        lambda: events().group_by_key().windowed_by(SECONDS).count(materialized=tg.Materialized.as_("x")),
        lambda: events().group_by_key().count(materialized=tg.Materialized.as_("x")),
    ],
)
def test_a_store_and_the_suppression_behind_it_have_names_of_their_own(table: Callable[[], tg.KTable]) -> None:
    limit = tg.Suppressed.until_time_limit("1 second", UNBOUNDED, clock="stream")
    with pytest.raises(tg.DefinitionError, match=r"The store and the suppression behind it are both called 'x', so"):
        table().suppress(limit.with_name("x"))
    assert table().suppress(limit.with_name("y"))
    assert table().suppress(limit)


def test_a_store_that_is_called_as_a_suppression_without_a_name() -> None:
    counted = events().group_by_key().windowed_by(SECONDS).count(materialized=tg.Materialized.as_("suppress"))
    with pytest.raises(tg.DefinitionError, match=r"are both called 'suppress'"):
        counted.suppress(FINAL)
    assert counted.suppress(FINAL.with_name("final"))


# --- bounds and limits that mean nothing ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    "buffer",
    [
        tg.BufferConfig.max_records(0).shut_down_when_full(),
        tg.BufferConfig.max_bytes(0).shut_down_when_full(),
        UNBOUNDED.with_max_records(0),
        tg.BufferConfig.max_records(5).shut_down_when_full().with_max_bytes(0),
    ],
)
def test_a_strict_bound_of_zero_lets_rows_through_that_are_due(buffer: tg.StrictBuffer) -> None:
    """As in Kafka Streams, which compares the content of a buffer with its bound when rows that are due have left."""
    count = events().group_by_key().count()
    due = TopologyTestDriver(count.suppress(tg.Suppressed.until_time_limit("0 ms", buffer, clock="stream")))
    for key, time in (("A", 7), ("A", 8), ("B", 9)):
        due.pipe_input({"k": key, "ts": time, "v": 1})
    assert [(row["k"], row["count"]) for row in due.read_output()] == [("A", 1), ("A", 2), ("B", 1)]
    for waits in (
        count.suppress(tg.Suppressed.until_time_limit("1 ms", buffer, clock="stream")),
        counts().suppress(tg.Suppressed.until_window_closes(buffer)),
    ):
        with pytest.raises(tg.BufferFullError, match=r"Currently \[1/"):
            TopologyTestDriver(waits).pipe_input({"k": "A", "ts": 0, "v": 1})


def test_an_eager_bound_of_zero_lets_everything_through() -> None:
    limit = tg.Suppressed.until_time_limit("1 hour", tg.BufferConfig.max_records(0), clock="stream")
    driver = TopologyTestDriver(events().group_by_key().count().suppress(limit))
    driver.pipe_input({"k": "A", "ts": 0, "v": 1})
    assert [row["count"] for row in driver.read_output()] == [1]


@pytest.mark.parametrize(
    "table", [lambda: events().group_by_key().count(), lambda: tg.table("prices", key="k", timestamp="ts")]
)
def test_a_limit_from_the_start_of_a_window_needs_windows(table: Callable[[], tg.KTable]) -> None:
    limit = tg.Suppressed.until_time_limit("1 second", UNBOUNDED, clock="stream", measured_from="window_start")
    with pytest.raises(tg.DefinitionError, match=r'\(measured_from="window_start"\) counts from the start of a window'):
        table().suppress(limit)
    assert counts().suppress(limit)


@pytest.mark.parametrize("name", ["status", "since", "until"])
def test_a_store_whose_rows_have_a_column_of_a_store(name: str) -> None:
    limit = tg.Suppressed.until_time_limit("1 second", UNBOUNDED, clock="stream").with_name("held")
    driver = TopologyTestDriver(events().group_by_key().count(name).suppress(limit))
    driver.pipe_input({"k": "A", "ts": 0, "v": 1})
    told, store = ("aggregate", "held")[:: 1 if name == "status" else -1]
    with pytest.raises(tg.DefinitionError, match=rf"The store '{told}' has a column '{name}', a name that rows of a"):
        driver.read_state(told)
    assert [row[name] for row in driver.read_state(store)] == [1]


# --- keys of types that no key can have ----------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["array<int>", pa.struct([("a", pa.int64())]), pa.map_(pa.string(), pa.int64())])
def test_a_computed_key_of_a_nested_type_is_refused_when_it_is_written(kind: Any) -> None:
    with pytest.raises(tg.DefinitionError, match=r"^`type` is .*, and a key must be of an atomic type, not "):
        events().select_key(lambda row: row["v"], type=kind)
