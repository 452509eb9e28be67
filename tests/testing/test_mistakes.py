"""Mistakes of a first hour, caught where they are made."""

from __future__ import annotations

import inspect
import pydoc
import sys
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pytest

import tidegate as tg
from series import HANDED_OVER
from tidegate.testing import TopologyTestDriver

GROUPED = tg.stream("events", key="k", timestamp="ts").group_by_key()
FINAL = tg.Suppressed.until_window_closes(tg.BufferConfig.unbounded())
MINUTES = tg.TimeWindows.of_size_with_no_grace("1 minute")


@pytest.mark.parametrize(
    ("aggregate", "fix"),
    [(tg.count(), "agg(n=tg.count())"), (tg.sum("amount"), "agg(amount_sum=tg.sum('amount'))")],
)
def test_an_aggregate_without_a_name(aggregate: Any, fix: str) -> None:
    with pytest.raises(tg.DefinitionTypeError) as caught:
        GROUPED.agg(aggregate)
    assert str(caught.value) == f"`agg` got {aggregate} without a name for its column. Give one, for example {fix}."


def test_a_column_that_no_record_has() -> None:
    driver = TopologyTestDriver(GROUPED.agg(total=tg.sum("amuont")))
    with pytest.raises(tg.InputError) as caught:
        driver.pipe_input({"k": "A", "ts": 0, "amount": 1})
    assert str(caught.value) == (
        "Nothing that was piped has a column 'amuont', which the aggregation reads; the columns are 'k', 'ts', "
        "'amount'. Correct the name, or pipe records with that column (None for a null)."
    )


def test_a_column_that_an_earlier_record_had() -> None:
    driver = TopologyTestDriver(GROUPED.agg(total=tg.sum("amount"), n=tg.count()))
    driver.pipe_input({"k": "A", "ts": 0, "amount": 1})
    driver.pipe_input({"k": "A", "ts": 1, "other": 1})
    assert [(row["total"], row["n"]) for row in driver.read_output()] == [(1, 1), (1, 2)]


@pytest.mark.parametrize(
    ("mistake", "message"),
    [
        (lambda driver: TopologyTestDriver("events"), "A driver runs a topology, not 'events'. Give what a query is"),
        (lambda driver: driver.pipe_input("A"), "A record is 'A' (str), not a dict of columns. Give for example"),
        (lambda driver: driver.pipe_batch("A"), "pipe_batch got 'A', which is no batch. Give a list of records"),
        (lambda driver: driver.pipe_batch({"k": "A"}), "pipe_batch got {'k': 'A'}, which is no batch."),
        (lambda driver: driver.pipe_batch(7), "pipe_batch got 7, which is no batch."),
        (lambda driver: driver.pipe_batch([("A", 0)]), "A record is ('A', 0) (tuple), not a dict of columns."),
    ],
)
def test_what_is_no_topology_and_no_record(mistake: Callable[[Any], Any], message: str) -> None:
    driver = TopologyTestDriver(GROUPED.count())
    with pytest.raises(tg.TidegateError) as caught:
        mistake(driver)
    assert str(caught.value).startswith(message)


@pytest.mark.parametrize(
    "batch",
    [
        pa.table({"k": ["a", "b", "a"], "ts": [0, 1, 2], "v": pa.array([1, None, 2], pa.int8())}),
        pa.RecordBatch.from_pydict({"k": ["a", "b", "a"], "ts": [0, 1, 2], "v": pa.array([1, None, 2], pa.int8())}),
        pd.DataFrame({"k": ["a", "b", "a"], "ts": [0, 1, 2], "v": pd.array([1, None, 2], "Int8")}),
        [{"k": key, "ts": ts, "v": v} for key, ts, v in [("a", 0, 1), ("b", 1, None), ("a", 2, 2)]],
    ],
    ids=["table", "record batch", "pandas", "generator"],
)
@pytest.mark.parametrize("mapped", [False, True], ids=["as it is", "behind a step"])
def test_a_table_or_a_frame_is_a_batch(batch: Any, mapped: bool) -> None:
    stream = tg.stream("events", key="k", timestamp="ts")
    stream = stream.map_values({"v": "v"}) if mapped else stream
    driver = TopologyTestDriver(stream.group_by_key().windowed_by(MINUTES).agg(n=tg.count(), of=tg.collect_list("v")))
    driver.pipe_batch(iter(batch) if isinstance(batch, list) else batch)
    assert [(row["k"], row["n"], row["of"]) for row in driver.read_output()] == [("b", 1, []), ("a", 2, [1, 2])]


CATEGORIES = pa.chunked_array([["A", "B", "A", "B"]]).dictionary_encode()
VIEWS = pa.chunked_array([pa.array(["A", "B", "A", "B"], pa.string_view())])  # as polars has text


@pytest.mark.parametrize("text", [CATEGORIES, VIEWS], ids=["categories", "views"])
@pytest.mark.parametrize("declared", [False, True])
@pytest.mark.parametrize(
    ("table", "rows"),
    [
        (lambda keys: keys.agg(x=tg.last("c"), n=tg.count()), [("A", "A", 4), ("B", "B", 4)]),
        (lambda keys: keys.agg(x=tg.min("c"), n=tg.count("c")), [("A", "A", 4), ("B", "B", 4)]),
        (
            lambda keys: (
                keys.windowed_by(tg.SessionWindows.of_inactivity_gap_with_no_grace("5 ms"))
                .agg(x=tg.max("c"), n=tg.count())
                .suppress(FINAL)
            ),
            [("A", "A", 4), ("B", "B", 4)],
        ),
        (lambda keys: keys.aggregate(lambda: "", lambda k, row, told: row["c"], type="string", name="x"), ["A", "B"]),
    ],
    ids=["last", "min", "sessions", "function"],
)
def test_categories_and_views_of_frames_are_text(table: Any, rows: Any, declared: bool, text: Any) -> None:
    frame = pa.table({"k": text, "ts": [1, 2, 3, 4], "c": text})
    stream = tg.stream("events", key="k", timestamp="ts", schema=frame.schema if declared else None)
    driver = TopologyTestDriver(table(stream.group_by_key()))
    driver.pipe_batch(frame)
    driver.pipe_batch(frame)
    driver.drain()
    found = {row["k"]: tuple(row.get(name) for name in ("k", "x", "n")) for row in driver.read_output()}
    assert sorted(found.values()) == [row if isinstance(row, tuple) else (row, row, None) for row in rows]


def test_a_frame_of_polars_is_a_batch() -> None:
    polars = pytest.importorskip("polars")
    frame = polars.DataFrame({"k": ["a", "b", "a"], "ts": [0, 1, 2]}).cast({"k": polars.Categorical})
    driver = TopologyTestDriver(GROUPED.count())
    driver.pipe_batch(frame)
    assert [(row["k"], row["count"]) for row in driver.read_output()] == [("b", 1), ("a", 2)]


STEPS: dict[str, Callable[[tg.KStream], tg.KStream]] = {
    "no step": lambda stream: stream,
    "filter": lambda stream: stream.filter(lambda row: True),
    "map_values": lambda stream: stream.map_values({"v": "v"}),
    "map_values, by a function": lambda stream: stream.map_values(lambda row: row, types={"v": pa.int8()}),
    "select_key": lambda stream: stream.select_key(lambda row: row["k"], name="key", type="string"),
    "merge": lambda stream: stream.merge(stream.filter(lambda row: False)),
}


@pytest.mark.parametrize("steps", STEPS.values(), ids=STEPS)
def test_the_types_of_a_table_are_those_of_its_columns(steps: Callable[[tg.KStream], tg.KStream]) -> None:
    grouped = steps(tg.stream("events", key="k", timestamp="ts")).group_by_key()
    batch = pa.table({"k": ["a", "a"], "ts": [0, 1], "v": pa.array([100, 1], pa.int8())})
    driver = TopologyTestDriver(grouped.agg(largest=tg.max("v")))
    driver.pipe_batch(batch)
    with pytest.raises(tg.InputError, match="not a int8"):
        driver.pipe_input({"k": "a", "ts": 1, "v": 1000})
    driver = TopologyTestDriver(grouped.reduce(lambda one, other: one + other + 100, "v", "x"))
    with pytest.raises(tg.AggregationError, match="not a int8"):
        driver.pipe_batch(batch)


LARGE = Decimal(10**25)
DECIMALS = pa.schema([("k", pa.decimal128(38, 0)), ("ts", pa.int64()), ("v", pa.decimal128(38, 0))])


def test_a_table_may_hold_decimals_that_no_decimal_of_a_record_holds() -> None:
    batch = pa.table({"k": [LARGE], "ts": [0], "v": [LARGE]}, DECIMALS)
    for stream in (STREAM, STREAM.filter(lambda row: True), STREAM.map_values({"v": pc.field("v")})):
        driver = TopologyTestDriver(stream.group_by_key().agg(largest=tg.max("v")))
        driver.pipe_batch(batch)
        assert [(row["k"], row["largest"]) for row in driver.read_output()] == [(LARGE, LARGE)]


@pytest.mark.parametrize("declared", [True, False])
def test_columns_that_a_function_leaves_as_they_are_keep_their_types(declared: bool) -> None:
    """The types of other columns come from its values: not from those of the table, and not from one value alone."""
    stream = tg.stream("events", key="k", timestamp="ts", schema=DECIMALS if declared else None)
    mapped = stream.map_values(lambda row: {"w": len(str(row["v"]))}).map_values({"v": pc.field("w") / 2.0})
    driver = TopologyTestDriver(mapped.group_by_key().agg(largest=tg.max("v")))
    for v in (LARGE, Decimal(1)):
        record = {"k": LARGE, "ts": 0, "v": v}
        driver.pipe_batch([record] if declared else pa.table({n: [value] for n, value in record.items()}, DECIMALS))
    assert [(row["k"], row["largest"]) for row in driver.read_output()] == [(LARGE, 13.0), (LARGE, 13.0)]


@pytest.mark.parametrize("inside", [lambda v: v, lambda v: [v], lambda v: {"price": v}, lambda v: [{"prices": [v]}]])
def test_decimals_inside_values_may_have_more_digits_later(inside: Callable[[Any], Any]) -> None:
    driver = TopologyTestDriver(GROUPED.agg(last=tg.last("v")))
    given = [inside(Decimal(text)) for text in ("1.5", "12.25", "-7", "100000.123456")]
    for value in given:
        driver.pipe_input({"k": "A", "ts": 0, "v": value})
    assert [row["last"] for row in driver.read_output()] == given


def test_a_column_of_a_table_without_values_gets_its_type_later() -> None:
    driver = TopologyTestDriver(STREAM.map_values({"w": pc.field("v") * 2}).group_by_key().agg(largest=tg.max("w")))
    for v in (None, 1.25):
        driver.pipe_batch(pa.table({"k": ["a"], "ts": [0], "v": [v]}))
    assert [row["largest"] for row in driver.read_output()] == [2.5]


def test_dir_shows_every_name() -> None:
    assert {*tg.__all__, "files", "kafka", "metrics"} <= set(dir(tg))


@pytest.mark.parametrize(
    ("topology", "shown"),
    [
        (GROUPED.count(), "<KTable count = count() of events by k>"),
        (
            GROUPED.windowed_by(MINUTES).agg(n=tg.count(), s=tg.sum("v")).suppress(FINAL),
            f"<KTable n = count(), s = sum(v) of events by k in {MINUTES} -> suppress({FINAL})>",
        ),
        (
            GROUPED.windowed_by(MINUTES).emit_strategy(tg.EmitStrategy.on_window_close()).count(),
            f"<KTable count = count() of events by k in {MINUTES}, on window close>",
        ),
        (tg.table("prices", key="k", timestamp="ts"), "<KTable table prices by k>"),
        (tg.stream("events", key="k", timestamp="ts").filter(len), "<KStream events -> filter(len)>"),
        (GROUPED.count().to_stream(), "<KStream changes of count = count() of events by k>"),
        (GROUPED.windowed_by(MINUTES).count().late_records(), "<KLateRecords late records of count = count() of"),
        (tg.outputs(raw=GROUPED.count()), "<KOutputs raw: count = count() of events by k>"),
        (GROUPED.count().filter(len), "<KTable count = count() of events by k -> filter(len)>"),
    ],
)
def test_a_topology_is_shown_in_one_line(topology: Any, shown: str) -> None:
    assert repr(topology).startswith(shown)
    assert "\n" not in repr(topology)


SCHEMA = pa.schema([("k", pa.string()), ("ts", pa.int64()), ("amount", pa.int64())])
STREAM = tg.stream("events", key="k", timestamp="ts")
TYPED = tg.stream("events", key="k", timestamp="ts", schema=SCHEMA)
RECORD = {"k": "A", "ts": 0, "amount": 1}


@pytest.mark.parametrize(
    ("step", "shown"),
    [
        (lambda rows: rows.filter(pc.field("amuont") > 0), "filter((amuont > 0))"),
        (lambda rows: rows.filter((pc.field("ts") > 0) & (pc.field("amuont", "x") > 0)), "filter("),
        (lambda rows: rows.map_values({"a": "amuont"}), "map_values(a = amuont)"),
        (lambda rows: rows.map_values({"a": "ts", "b": pc.field("amuont") * 2}), "map_values(a = ts, b = "),
    ],
    ids=["filter", "nested", "map", "map of several"],
)
def test_a_step_that_names_a_column_that_is_not_there(step: Callable[[Any], Any], shown: str) -> None:
    with pytest.raises(tg.DefinitionError) as caught:
        step(TYPED)
    assert str(caught.value).startswith(shown)
    assert str(caught.value).endswith(
        " reads the column 'amuont', which the stream does not have. Its columns are k, ts, amount."
    )
    driver = TopologyTestDriver(step(STREAM).group_by_key().count())
    with pytest.raises(tg.AggregationError) as late:
        driver.pipe_input(RECORD)
    assert "there is no column 'amuont', only k, ts, amount" in str(late.value)


@pytest.mark.parametrize("name", ["unit price", "price (EUR)", "a) b", "x.y`z", "two\nlines", "Name(x)"])
def test_a_missing_column_may_have_any_name(name: str) -> None:
    reads = f"reads the column {name!r}"
    for field in (pc.field(name), pc.field(name, "part")):
        with pytest.raises(tg.DefinitionError) as caught:
            TYPED.filter(field.is_valid())
        assert f"{reads}, which the stream does not have" in str(caught.value)
    with pytest.raises(tg.DefinitionError) as caught:
        TYPED.join(tg.table("t", key="k", timestamp="ts", schema=SCHEMA), value_joiner={"x": pc.field("right", name)})
    assert f"{reads} of the right side, which does not have it" in str(caught.value)
    # Nothing is known of a silent side, so its columns are null.
    driver = TopologyTestDriver(
        STREAM.left_join(tg.table("t", key="k", timestamp="ts")).filter(pc.field(name).is_null())
    )
    driver.pipe_input(RECORD, "events")
    assert [row["k"] for row in driver.read_output()] == ["A"]


@pytest.mark.parametrize(
    ("table", "columns"),
    [
        (GROUPED.count(), "k, count, timestamp, deleted"),
        (GROUPED.windowed_by(MINUTES).agg(n=tg.count()).suppress(FINAL), "k, window, n, timestamp, deleted"),
        (GROUPED.count().filter(pc.field("count") > 1).map_values({"n": "count"}), "k, timestamp, deleted, n"),
        (tg.table("prices", key="k", timestamp="ts", schema=SCHEMA), "k, amount, timestamp, deleted"),
    ],
)
def test_a_step_of_a_table_that_names_a_column_that_is_not_there(table: tg.KTable, columns: str) -> None:
    for step in (lambda: table.filter(pc.field("cuont") < 4), lambda: table.map_values({"x": "cuont"})):
        with pytest.raises(tg.DefinitionError) as caught:
            step()
        assert str(caught.value).endswith(
            f" reads the column 'cuont', which the table does not have. Its columns are {columns}."
        )
    changes = table.to_stream()
    for step in (lambda: changes.filter(pc.field("cuont") < 4), lambda: changes.map_values({"x": "cuont"})):
        with pytest.raises(tg.DefinitionError) as caught:
            step()
        assert str(caught.value).endswith(
            f" reads the column 'cuont', which the stream does not have. Its columns are {columns}."
        )
    with pytest.raises(tg.DefinitionError, match=r"Its columns are k, .*, x"):
        changes.map_values({"x": "timestamp"}).filter(pc.field("cuont") < 4)


@pytest.mark.parametrize(
    "table",
    [GROUPED.count(), GROUPED.windowed_by(MINUTES).count().suppress(FINAL), GROUPED.count().group_by("k").count()],
)
def test_rows_are_grouped_by_a_column_that_is_not_there(table: tg.KTable) -> None:
    """In a table, in its changes and in an aggregate of them: refused when it is written."""
    for what, by in (
        ("table", lambda: table.group_by("cuont")),
        ("stream", lambda: table.to_stream().group_by("k", "cuont")),
        ("stream", lambda: table.to_stream().select_key("cuont")),
    ):
        with pytest.raises(tg.DefinitionError) as caught:
            by()
        assert str(caught.value).startswith(f"`key` is 'cuont', but the {what} has no such column. Its columns are k, ")
    with pytest.raises(tg.DefinitionError, match="`n` reads the column 'cuont', which the table does not have"):
        table.group_by("count").agg(n=tg.sum("cuont"))


def test_rows_are_grouped_by_columns_that_are_there_or_are_not_known_yet() -> None:
    windowed = GROUPED.windowed_by(MINUTES).count()
    windowed.group_by("window", "count").count("n").group_by("n").count("m")
    windowed.to_stream().group_by("window", "k").count("n")
    GROUPED.count().to_stream().select_key(lambda row: 1, name="c", type="long").map_values({"n": "count"}).group_by(
        "c"
    )
    GROUPED.count().map_values(lambda row: {"b": 1}).group_by("b")
    tg.table("prices", key="k", timestamp="ts").group_by("city")
    GROUPED.count().join(tg.table("prices", key="k", timestamp="ts", schema=SCHEMA)).group_by("amount").count("n")


def test_a_merged_stream_has_the_columns_that_all_its_inputs_have() -> None:
    def given(name: str, **values: pa.DataType) -> tg.KStream:
        return tg.stream(
            name, key="k", timestamp="ts", schema=pa.schema({"k": pa.string(), "ts": pa.int64(), **values})
        )

    few, many = given("few", v=pa.int64()), given("many", v=pa.int64(), w=pa.int64())
    for merged in (few.merge(many), many.merge(few)):
        for made in (
            lambda merged=merged: merged.filter(pc.field("w") > 0),
            lambda merged=merged: merged.group_by_key().agg(n=tg.sum("w")),
            lambda merged=merged: merged.select_key("w"),
        ):
            with pytest.raises(tg.DefinitionError, match=r"'w'.* Its columns are k, ts, v\.$"):
                made()
        merged.filter(pc.field("v") > 0).group_by_key().agg(n=tg.sum("v"))


def test_steps_over_columns_that_are_there_or_are_not_known_yet() -> None:
    TYPED.map_values({"a": pc.utf8_upper(pc.field("k"))}).filter(pc.field("a") == "A")
    TYPED.map_values(lambda row: {"b": 1}).filter(pc.field("b") == 1)
    TYPED.select_key(lambda row: 1, name="c", type="long").filter(pc.field("c") == 1)
    GROUPED.windowed_by(MINUTES).count().filter(pc.field("window", "start") > 0).filter(~pc.field("deleted"))
    GROUPED.count().map_values(lambda row: {"b": 1}).filter(pc.field("b") == 1)
    tg.table("prices", key="k", timestamp="ts").filter(pc.field("price") > 0)
    changes = GROUPED.windowed_by(MINUTES).count().to_stream()
    changes.filter(pc.field("count") > 0).map_values({"n": "count"}).filter(pc.field("window", "start") > pc.field("n"))
    changes.select_key("window", "k").filter(~pc.field("deleted")).filter(pc.field("k") == "A")
    changes.select_key(lambda row: 1, name="c", type="long").filter(pc.field("c") == 1)
    changes.map_values(lambda row: {"b": 1}).filter(pc.field("b") == 1)
    changes.merge(changes).filter(pc.field("other") == 1)
    TYPED.group_by_key().count().group_by("count").count("n").to_stream().filter(pc.field("n") == 1)


def test_a_value_joiner_that_names_a_column_that_is_not_there() -> None:
    prices = tg.table("prices", key="k", timestamp="ts", schema=SCHEMA)
    windows = tg.JoinWindows.of_time_difference_with_no_grace("1 minute")
    right = pc.field("right", "amuont")
    for join in (
        lambda: TYPED.join(prices, value_joiner={"x": pc.field("left", "amount") * right}),
        lambda: TYPED.join(tg.stream("o", key="k", timestamp="ts", schema=SCHEMA), windows, value_joiner={"x": right}),
    ):
        with pytest.raises(tg.DefinitionError) as caught:
            join()
        assert str(caught.value).endswith(
            "reads the column 'amuont' of the right side, which does not have it. Its value columns are amount."
        )


def test_a_column_of_a_record_that_is_called_by_a_number() -> None:
    for stream in (STREAM, STREAM.filter(lambda row: True)):
        with pytest.raises(tg.DefinitionTypeError, match=r"^A column of the records is called 5\. A name is a text"):
            TopologyTestDriver(stream.group_by_key().count()).pipe_input({"k": "A", "ts": 0, 5: 1})


@pytest.mark.parametrize("key", [pd.NA, np.array(["A", "B"])], ids=["NA", "array"])
def test_a_function_that_gives_a_key_which_cannot_be_compared(key: Any) -> None:
    mapped = STREAM.map_values(lambda row: {"k": key, "v": 1})
    with pytest.raises(tg.AggregationError, match="for 'k', which is no value and must stay"):
        TopologyTestDriver(mapped).pipe_input({"k": "A", "ts": 0})


def test_a_record_without_the_key_of_a_stream_that_only_steps() -> None:
    driver = TopologyTestDriver(STREAM.filter(lambda row: True))
    with pytest.raises(tg.InputError, match=r"Record 0 has no column 'k', which the stream needs; it has 'ts'\."):
        driver.pipe_input({"ts": 0})
    assert driver.read_output() == []


TWICE = pa.Table.from_arrays([pa.array(["A"]), pa.array(["B"]), pa.array([0])], names=["k", "k", "ts"])


@pytest.mark.parametrize(
    ("batch", "message"),
    [
        (pa.array(["A"]), "What was piped is a pyarrow ChunkedArray, which is no table of records: "),
        pytest.param(
            pd.Series(["A"]),
            "What was piped is a pandas Series, which is no table of records: ",
            marks=HANDED_OVER,
        ),
        ([pa.table({"k": ["A"], "ts": [0]})], "A record is a pyarrow Table (Table), not a dict of columns."),
        (TWICE, "What was piped is a pyarrow Table with two columns 'k'. Rename or drop one of them."),
        (pd.DataFrame([["A", "B", 0]], columns=["k", "k", "ts"]), "What was piped is a pandas DataFrame, which is no"),
        (["x" * 500], f"A record is '{'x' * 96}... (str), not a dict of columns."),
    ],
)
def test_a_batch_of_another_shape_is_told_in_one_line(batch: Any, message: str) -> None:
    with pytest.raises(tg.InputError) as caught:
        TopologyTestDriver(GROUPED.count()).pipe_batch(batch)
    assert str(caught.value).startswith(message)
    assert "\n" not in str(caught.value)


FRAME = pd.DataFrame({"k": ["A", "B", "A", "B"], "ts": pd.to_datetime([0, 1, 2, 3], unit="ms")})


@pytest.mark.parametrize(
    "rows",
    [
        pa.Table.from_pandas(FRAME, preserve_index=False).to_reader(),
        pa.Table.from_pandas(FRAME, preserve_index=False).to_struct_array(),
        FRAME.loc[[3, 0, 1, 2]],
        FRAME.set_index("k"),
    ],
    ids=["reader", "structs", "pandas with an index", "pandas with the key as index"],
)
def test_no_row_of_a_table_is_lost_and_no_index_becomes_a_column(rows: Any) -> None:
    driver = TopologyTestDriver(STREAM.filter(lambda row: True))
    driver.pipe_batch(rows)
    assert sorted((row["k"], row["ts"].microsecond) for row in driver.read_output()) == [
        ("A", 0),
        ("A", 2000),
        ("B", 1000),
        ("B", 3000),
    ]
    assert {*TopologyTestDriver(STREAM)._entries[0].types.columns} == set()


def test_a_table_as_one_input_is_its_rows_one_after_the_other() -> None:
    driver = TopologyTestDriver(GROUPED.count())
    driver.pipe_input(FRAME)
    assert [(row["k"], row["count"]) for row in driver.read_output()] == [("A", 1), ("B", 1), ("A", 2), ("B", 2)]


@pytest.mark.parametrize(
    ("mistake", "message"),
    [
        (lambda: GROUPED.agg(tg.count(), tg.sum("v")), "Give one, for example agg(n=tg.count(), v_sum=tg.sum('v'))."),
        (lambda: GROUPED.agg("x", "y"), "`agg` got 'x', 'y' without names. Give each aggregate by the name of its"),
        (lambda: GROUPED.count(5), 'The column of an aggregate is called 5. A name is a text, for example "total".'),  # type: ignore[arg-type]
        (lambda: TopologyTestDriver(GROUPED.count(), "x"), "`state` is 'x', not what a driver remembers. Give"),  # type: ignore[arg-type]
        (
            lambda: TopologyTestDriver(GROUPED.count(), initial_wall_clock_time="2026-01-01"),  # type: ignore[arg-type]
            "`initial_wall_clock_time` is '2026-01-01', not epoch milliseconds or a datetime.",
        ),
        (
            lambda: TopologyTestDriver(GROUPED.count(), initial_wall_clock_time=pd.NaT),  # type: ignore[arg-type]
            "`initial_wall_clock_time` is NaT, not epoch milliseconds or a datetime.",
        ),
        (lambda: TopologyTestDriver(FRAME), "A driver runs a topology, not a pandas DataFrame. Give"),  # type: ignore[arg-type]
        (lambda: TopologyTestDriver(GROUPED), "A driver runs a topology, not <KGroupedStream events by k>. Give"),  # type: ignore[arg-type]
        (lambda: tg.stream(FRAME, key="k", timestamp="ts"), "`source` is a pandas DataFrame (DataFrame), not a Spark"),
    ],
)
def test_arguments_of_the_wrong_kind(mistake: Callable[[], Any], message: str) -> None:
    with pytest.raises(tg.DefinitionTypeError) as caught:
        mistake()
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("grouped", "shown"),
    [
        (GROUPED, "<KGroupedStream events by k>"),
        (GROUPED.windowed_by(MINUTES), f"<TimeWindowedKStream events by k in {MINUTES}>"),
        (GROUPED.count().group_by("count"), "<KGroupedTable events by count by count>"),
        (GROUPED.cogroup(max), "<CogroupedKStream events by k>"),
    ],
)
def test_what_is_grouped_is_shown_in_one_line(grouped: Any, shown: str) -> None:
    assert repr(grouped) == shown


def test_what_needs_spark_says_so_where_it_is_not_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyspark", None)
    install = r"needs pyspark\. Run: pip install 'tidegate\[spark\]'"
    for name in ("debezium", "delta", "files", "kafka", "metrics", "sinks"):
        with pytest.raises(tg.TidegateError, match=rf"^tidegate\.{name} {install}$"):
            getattr(tg, name)
        assert not hasattr(tg, name)
        assert name in dir(tg)
    assert {"stream", "count"} <= {name for name, _ in inspect.getmembers(tg)}
    assert "explain_pending" in pydoc.render_doc(tg)
    counts: Any = GROUPED.count()
    calls: dict[str, Callable[[], Any]] = {
        "configure": lambda: tg.configure(None),
        "read_state": lambda: tg.read_state(None, "checkpoint"),  # type: ignore[arg-type]
        "check_upgrade": lambda: tg.check_upgrade(None, "checkpoint", counts),  # type: ignore[arg-type]
        "drain": lambda: tg.drain(counts, "checkpoint", lambda rows: rows.writeStream),
    }
    for name, call in calls.items():
        with pytest.raises(tg.TidegateError, match=rf"^tidegate\.{name} {install}$"):
            call()


def test_a_source_that_is_no_name_where_spark_is_not_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyspark", None)
    for make in (tg.stream, tg.table):
        with pytest.raises(tg.DefinitionTypeError) as caught:
            make(pd.DataFrame({"k": ["A"], "ts": [0]}), key="k", timestamp="ts")  # type: ignore[arg-type]
        assert str(caught.value) == (
            "`source` is a pandas DataFrame (DataFrame), not the name of an input to be bound later, and a Spark "
            "DataFrame needs pyspark. Run: pip install 'tidegate[spark]'"
        )
