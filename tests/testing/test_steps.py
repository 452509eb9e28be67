"""Stateless steps in the driver: filter, map_values, select_key, merge, to_stream, in front of and behind tables."""

from __future__ import annotations

import math
from collections import Counter
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given

import tidegate as tg
from oracle import Row
from properties import cases
from tidegate.spec.types import arrow_type
from tidegate.testing import TopologyTestDriver, Window

CLOSES = tg.Suppressed.until_window_closes(tg.BufferConfig.unbounded())
WINDOWS = tg.TimeWindows.of_size_with_no_grace("10 ms")


def limit(ms: int, buffer: Any = None) -> tg.spec.suppressed.UntilTimeLimit:  # type: ignore[name-defined]
    return tg.Suppressed.until_time_limit(f"{ms} ms", buffer or tg.BufferConfig.unbounded(), clock="stream")


def events(**more: Any) -> tg.KStream:
    return tg.stream("events", key="k", timestamp="ts", **more)


def piped(topology: Any, *records: Row) -> list[Row]:
    driver = TopologyTestDriver(topology)
    for record in records:
        driver.pipe_input(record)
    return driver.read_output()


def record(k: Any, v: Any, ts: int, **more: Any) -> Row:
    return {"k": k, "v": v, "ts": ts, **more}


# -- streams ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "predicate",
    [lambda row: row["v"] > 1, lambda key, row: row["v"] > 1 and key == row["k"], pc.field("v") > 1],
    ids=["row", "key and row", "expression"],
)
def test_a_filtered_record_does_nothing_not_even_to_stream_time(predicate: Any) -> None:
    driver = TopologyTestDriver(events().filter(predicate).group_by_key().windowed_by(WINDOWS).count().suppress(CLOSES))
    for v, ts in ((2, 1), (1, 99), (3, 2)):
        driver.pipe_input(record("a", v, ts))
    assert driver.read_output() == []
    driver.pipe_input(record("b", 9, 10))
    assert driver.read_output() == [{"k": "a", "window": Window(0, 10), "count": 2, "timestamp": 2}]
    assert driver.drops == dict.fromkeys(driver.drops, 0)


@pytest.mark.parametrize(
    "step", [lambda s, five: s.filter(pc.field("v") > five), lambda s, five: s.map_values({"v": pc.field("v") * five})]
)
def test_a_whole_number_beside_a_decimal_is_written_as_a_decimal(step: Any) -> None:
    """Arrow takes a bare 5 for a decimal of three digits, which its own long does not fit."""
    kinds = pa.schema({"k": pa.string(), "ts": pa.int64(), "v": pa.decimal128(12, 2)})
    with pytest.raises(tg.AggregationError, match=r'Beside a decimal write .*: Decimal\("5"\) or 5\.0, and not 5\.$'):
        piped(step(events(schema=kinds), 5), record("a", Decimal("7.25"), 1))
    for five in (Decimal(5), 5.0):
        assert len(piped(step(events(schema=kinds), five), record("a", Decimal("7.25"), 1))) == 1


def test_a_product_of_decimals_with_too_many_digits_says_how_to_have_fewer() -> None:
    """In the driver a decimal of which no schema tells has 38 digits, and no product of it has a type."""
    price, paid = record("a", Decimal("7.25"), 1), {"v": pc.field("v") * Decimal("1.19")}
    with pytest.raises(
        tg.AggregationError, match=r"more than 38 digits\. Cast .*\.cast\(.*\. In the test driver .*schema"
    ):
        piped(events().map_values(paid), price)
    cast = {"v": pc.field("v").cast(pa.decimal128(12, 2)) * Decimal("1.19")}
    kinds = pa.schema({"k": pa.string(), "ts": pa.int64(), "v": pa.decimal128(12, 2)})
    for topology in (events().map_values(cast), events(schema=kinds).map_values(paid)):
        assert [row["v"] for row in piped(topology, price)] == [Decimal("8.6275")]


def test_a_null_matches_no_expression() -> None:
    assert piped(events().filter(pc.field("v") > 1), record("a", None, 0), record("a", 2, 1)) == [record("a", 2, 1)]


@pytest.mark.parametrize(
    "mapper",
    [
        lambda row: {"double": row["v"] * 2},
        lambda row: {**{n: row[n] for n in ("k", "ts")}, "double": row["v"] * 2},
        {"double": lambda row: row["v"] * 2},
        {"double": pc.field("v") * 2},
    ],
    ids=["dict", "dict with the key", "function", "expression"],
)
def test_new_values_take_the_place_of_the_old_ones(mapper: Any) -> None:
    assert piped(events().map_values(mapper), record("a", 3, 1)) == [{"k": "a", "ts": 1, "double": 6}]
    summed = events().map_values(mapper).group_by_key().agg(total=tg.sum("double"))
    assert [row["total"] for row in piped(summed, record("a", 3, 1), record("a", 4, 1))] == [6, 14]


def test_a_column_can_be_renamed_and_retyped() -> None:
    table = events().map_values({"x": "v"}, types={"x": "double"})
    assert piped(table, record("a", 3, 1)) == [{"k": "a", "ts": 1, "x": 3.0}]


# Types that a value alone does not tell, with a value of each.
DECLARED: dict[str, tuple[Any, Any]] = {
    "whole": ("decimal(38,0)", Decimal(10**30)),
    "fraction": ("decimal(38,38)", Decimal("0.1234567890123456789")),
    "map": (pa.map_(pa.string(), pa.int64()), [("a", 1)]),
    "map of texts": (pa.map_(pa.string(), pa.string()), [("a", "b")]),
    "wall clock": (pa.timestamp("us"), datetime(2026, 7, 1, 2, 30)),  # noqa: DTZ001 - no zone, as the type
    "nested": (
        pa.struct([("d", pa.decimal128(38, 0)), ("m", pa.map_(pa.string(), pa.int8()))]),
        {"d": 10**30, "m": []},
    ),
}


@pytest.mark.parametrize("kind", DECLARED)
def test_columns_have_the_types_that_their_steps_declare(kind: str) -> None:
    """Also those of records without a schema: their values become values of Python behind the steps."""
    declared, value = DECLARED[kind]
    mapped = events().map_values({"x": lambda row: value}, types={"x": declared}).filter(lambda row: True)
    (row,) = piped(mapped.group_by_key().agg(last=tg.last("x"), all=tg.collect_list("x")), record("a", 1, 0))
    assert (row["last"], row["all"]) == (value, [value])
    both = mapped.group_by_key().cogroup(lambda key, row, found: row["x"])
    assert [row["aggregate"] for row in piped(both.aggregate(lambda: None, type=declared), record("a", 1, 0))] == [
        value
    ]
    if not pa.types.is_nested(arrow_type(declared)):
        (row,) = piped(events().select_key(lambda row: value, type=declared).group_by_key().count(), record("a", 1, 0))
        assert row["key"] == value


def test_a_mean_has_the_digits_of_the_declared_type() -> None:
    mapped = events().map_values(lambda row: {"x": Decimal(row["v"])}, types={"x": "decimal(10,2)"})
    *_, last = piped(mapped.group_by_key().agg(x=tg.mean("x")), *(record("a", v, 0) for v in (1, 1, 2)))
    assert str(last["x"]) == "1.333333"


# Expressions that Arrow does not compute of the type null, a value for them, and what they give for it and for null.
OF_TYPES: dict[str, tuple[Any, Any, Any, Any]] = {
    "text": (pc.utf8_upper(pc.field("x")), "ab", "AB", None),
    "text with a default": (pc.coalesce(pc.utf8_upper(pc.field("x")), pc.scalar("none")), "ab", "AB", "none"),
    "default": (pc.coalesce(pc.field("x"), pc.scalar("none")), "ab", "ab", "none"),
    "number with a default": (pc.coalesce(pc.field("x"), pc.scalar(7)), 3, 3, 7),
    "one of texts": (pc.field("x").isin(["ab"]), "ab", True, False),
    "one of numbers": (pc.field("x").isin([3]), 3, True, False),
    "negation": (~pc.field("x"), True, False, None),
    "conjunction": (pc.field("x") & (pc.field("v") > 0), True, True, None),
    "year": (pc.year(pc.field("x")), datetime(2026, 7, 1, tzinfo=UTC), 2026, None),
    "length of a list": (pc.list_value_length(pc.field("x")), [5], 1, None),
    "field": (pc.utf8_upper(pc.field("x", "y")), {"y": "ab"}, "AB", None),
}


@pytest.mark.parametrize(
    ("case", "how"),
    [
        (case, how)
        for case in OF_TYPES
        for how in ("records", "results", "a silent table")
        if (case, how) != ("field", "a silent table")  # whose structs are not known
    ],
)
def test_an_expression_over_a_column_without_a_value_so_far(case: str, how: str) -> None:
    """The test driver does not know the type of such a column. On Spark its type is known, and the values are null."""
    expression, value, found, of_null = OF_TYPES[case]
    null = {"y": None} if isinstance(value, dict) else None
    users = tg.table("users", key="k", timestamp="ts")
    plans: dict[str, Any] = {
        "records": events().map_values({"o": expression, "w": "v"}),
        "results": events().group_by_key().agg(x=tg.last("x"), v=tg.last("v")).map_values({"o": expression, "w": "v"}),
        "a silent table": events().left_join(users).map_values({"o": expression, "w": "v"}),
    }
    driver = TopologyTestDriver(plans[how])
    if how == "a silent table":
        driver.pipe_input({"k": "a", "v": 1, "ts": 0}, "events")
        driver.pipe_input({"k": "a", "x": value, "ts": 0}, "users")
        driver.pipe_input({"k": "a", "v": 1, "ts": 0}, "events")
    else:
        driver.pipe_input(record("a", 1, 0, x=null))
        driver.pipe_input(record("a", 1, 0, x=value))
    assert [(row["o"], row["w"]) for row in driver.read_output()] == [(of_null, 1), (found, 1)]


def test_columns_of_a_silent_table_behind_a_function_of_texts() -> None:
    both = (pc.utf8_upper(pc.field("x")) == "AB") & pc.field("y").is_valid()
    driver = TopologyTestDriver(events().left_join(tg.table("users", key="k", timestamp="ts")).map_values({"o": both}))
    driver.pipe_input({"k": "a", "v": 1, "ts": 0}, "events")
    driver.pipe_input({"k": "a", "x": "ab", "y": 1, "ts": 0}, "users")
    driver.pipe_input({"k": "a", "v": 1, "ts": 0}, "events")
    assert [row["o"] for row in driver.read_output()] == [False, True]


def test_another_key() -> None:
    by_column = events().select_key("city").group_by_key().count()
    by_function = events().select_key(lambda row: row["city"].lower(), name="town").group_by_key().count()
    records = [record("a", 1, 0, city="Ulm"), record("b", 1, 1, city="Ulm"), record("c", 1, 2, city="Bonn")]
    assert [(row["city"], row["count"]) for row in piped(by_column, *records)] == [("Ulm", 1), ("Ulm", 2), ("Bonn", 1)]
    assert [(r["town"], r["count"]) for r in piped(by_function, *records)] == [("ulm", 1), ("ulm", 2), ("bonn", 1)]


def test_a_null_for_a_key_is_skipped_and_counted() -> None:
    driver = TopologyTestDriver(events().select_key(lambda row: row["v"], type="long").group_by_key().count())
    driver.pipe_batch([record("a", None, 0), record("a", 7, 1)])
    assert [row["key"] for row in driver.read_output()] == [7]
    assert driver.drops["null_key"] == 1


def test_merged_inputs_are_one_stream() -> None:
    clicks, views = (tg.stream(name, key="k", timestamp="ts") for name in ("clicks", "views"))
    merged = clicks.merge(views.filter(lambda row: row["v"] > 0)).group_by_key().count()
    driver = TopologyTestDriver(merged)
    driver.pipe_input(record("a", 1, 0), "clicks")
    driver.pipe_input(record("a", 0, 1), "views")
    driver.pipe_batch([record("a", 5, 2), record("b", 5, 3)], "views")
    assert [(row["k"], row["count"]) for row in driver.read_output()] == [("a", 1), ("a", 2), ("b", 1)]
    with pytest.raises(tg.InputError, match="inputs clicks, views"):
        driver.pipe_input(record("a", 1, 0))
    with pytest.raises(tg.InputError, match="no input 'sales'"):
        driver.pipe_input(record("a", 1, 0), "sales")


def test_a_stream_merged_with_its_own_branch_counts_twice() -> None:
    merged = events().merge(events().filter(pc.field("v") > 1)).group_by_key().count()
    assert [row["count"] for row in piped(merged, record("a", 1, 0), record("a", 2, 1))] == [1, 3]


def test_partitions_of_merged_topics_are_different_ones() -> None:
    """Each input has a partition 0; records of one make nothing late in the other's part of the batch."""
    one, two = (tg.stream(n, key="k", timestamp="ts", partition="p", offset="o") for n in ("one", "two"))
    merged = one.merge(two.map_values({"v": "v"}))
    driver = TopologyTestDriver(merged.group_by_key().windowed_by(WINDOWS).count().suppress(CLOSES))
    driver.pipe_batch([record("a", 1, 5, p=0, o=0), record("a", 1, 30, p=0, o=1)], "one")
    assert [(row["k"], row["count"]) for row in driver.read_output()] == [("a", 1)]
    driver.pipe_batch([record("a", 1, 31, p=0, o=0), record("b", 1, 30, p=0, o=1)], "two")
    driver.pipe_batch([record("a", 1, 40, p=0, o=2)], "one")
    assert [(row["k"], row["count"]) for row in driver.read_output()] == [("a", 2), ("b", 1)]
    assert driver.dropped == 0


@given(records=cases.streams())
def test_steps_are_what_python_makes_of_the_records(records: list[Row]) -> None:
    """Against plain loops: filter, then new values, then another key, then a sum."""
    stream = tg.stream("events", key="k", timestamp="ts", schema=pa.schema(list(cases.SCHEMA.items())))
    table = (
        stream.filter(lambda row: row["n"] is not None and row["n"] > -2)
        .map_values({"m": pc.field("n") * 3, "s": "s", "j": "j"})
        .select_key("j")
        .group_by_key()
        .agg(total=tg.sum("m"), count=tg.count("s"))
    )
    driver = TopologyTestDriver(table)
    totals, strings = Counter[int](), Counter[int]()
    for row in records:
        driver.pipe_input(row)
        good = row["ts"] is not None and row["ts"] >= 0 and row["j"] is not None
        if not good or row["n"] is None or row["n"] <= -2:
            assert driver.read_output() == []
            continue
        totals[row["j"]] += row["n"] * 3
        strings[row["j"]] += row["s"] is not None
        (out,) = driver.read_output()
        assert (out["j"], out["total"], out["count"]) == (row["j"], totals[row["j"]], strings[row["j"]])


# -- tables -------------------------------------------------------------------------------------------------------


def test_a_row_of_a_table_that_matches_no_longer_becomes_a_tombstone() -> None:
    counts = events().group_by_key().count().filter(pc.field("count") < 2)
    assert piped(counts, record("a", 1, 5), record("a", 1, 7)) == [
        {"k": "a", "count": 1, "timestamp": 5, "deleted": False},
        {"k": "a", "count": None, "timestamp": 7, "deleted": True},
    ]


def test_changes_through_a_table_filter_are_upserts_and_tombstones() -> None:
    table = tg.table("prices", key="k", timestamp="ts", deleted="gone").filter(lambda row: row["v"] > 1)
    rows = piped(table, record("a", 2, 0, gone=False), record("a", 1, 1, gone=False), record("b", 5, 2, gone=True))
    assert [(row["k"], row["v"], row["deleted"]) for row in rows] == [
        ("a", 2, False),
        ("a", None, True),
        ("b", None, True),
    ]


def test_values_of_a_table_are_mapped_and_tombstones_stay() -> None:
    def label(row: Row) -> Row:
        return {"label": f"{row['k']}{row['v']}@{row['timestamp']}"}

    table = tg.table("prices", key="k", timestamp="ts", deleted="gone").map_values(label, types={"label": "string"})
    rows = piped(table, record("a", 2, 0, gone=False), record("a", None, 1, gone=True))
    assert rows == [
        {"k": "a", "label": "a2@0", "timestamp": 0, "deleted": False},
        {"k": "a", "label": None, "timestamp": 1, "deleted": True},
    ]


def test_a_function_sees_the_window() -> None:
    table = events().group_by_key().windowed_by(WINDOWS).count()
    mapped = table.map_values(lambda row: {"until": row["window"].end, "count": row["count"]})
    assert piped(mapped, record("a", 1, 13)) == [
        {"k": "a", "window": Window(10, 20), "until": 20, "count": 1, "timestamp": 13}
    ]
    by_expression = table.map_values({"start": pc.field("window", "start")})
    assert piped(by_expression, record("a", 1, 13))[0]["start"] == 10


def final_counts(filtered: Any) -> list[tuple[Any, ...]]:
    records = [record("a", 1, 0), record("a", 1, 1), record("b", 1, 2), record("c", 1, 10)]
    return [(row["k"], row["count"], row.get("deleted")) for row in piped(filtered, *records)]


def test_a_struct_that_a_user_calls_window_may_be_null() -> None:
    kind = pa.struct([("start", pa.int64()), ("end", pa.int64())])
    own = events().map_values(
        {"window": lambda row: row["v"] and {"start": 0, "end": row["v"]}}, types={"window": kind}
    )
    rows = piped(own.filter(lambda row: row["window"] in (None, (0, 5))), *(record("a", v, 0) for v in (None, 5, 6)))
    assert [row["window"] for row in rows] == [None, {"start": 0, "end": 5}]


def test_a_filter_before_final_results_keeps_the_others_in_and_one_behind_makes_tombstones() -> None:
    """Kafka's suppress drops tombstones of closing windows; a filter behind suppress emits its own."""
    counts = events().group_by_key().windowed_by(WINDOWS).count()
    few = pc.field("count") < 2
    assert final_counts(counts.filter(few).suppress(CLOSES)) == [("b", 1, None)]
    assert final_counts(counts.suppress(CLOSES).filter(few)) == [("a", None, True), ("b", 1, False)]
    assert final_counts(counts.suppress(CLOSES).to_stream().filter(few)) == [("b", 1, None)]


def test_a_filter_of_what_leaves_on_close_just_drops() -> None:
    """No row was emitted before, so there is nothing to delete; found by `make kafka-parity`."""
    closing = events().group_by_key().windowed_by(WINDOWS).emit_strategy(tg.EmitStrategy.on_window_close())
    assert final_counts(closing.count().filter(pc.field("count") < 2)) == [("b", 1, None)]


def test_a_time_limit_holds_what_the_steps_before_it_make() -> None:
    """The bound counts mapped rows; the steps behind the limit see emitted rows."""
    counts = events().group_by_key().count()
    held = counts.map_values({"n": pc.field("count") * 10}).suppress(limit(5)).map_values({"m": pc.field("n") + 1})
    rows = piped(held, record("a", 1, 0), record("a", 1, 2), record("b", 1, 5))
    assert rows == [{"k": "a", "m": 21, "timestamp": 2}]


def joined(joiner: Any, types: Any = None) -> tg.KTable:
    some, others = (
        tg.table(
            name, key="k", timestamp="ts", schema=pa.schema({"k": pa.string(), "ts": pa.int64(), value: pa.int64()})
        )
        for name, value in (("some", "a"), ("others", "b"))
    )
    return some.join(others, value_joiner=joiner, types=types)


BY_FUNCTION = joined(lambda left, right: {"sum": left["a"] + right["b"]}, types={"sum": "long"})
BY_EXPRESSION = joined({"sum": pc.field("left", "a") + pc.field("right", "b")})


@pytest.mark.parametrize("table", [BY_FUNCTION, BY_EXPRESSION], ids=["function", "expression"])
@pytest.mark.parametrize("limits", [1, 2], ids=["one limit", "two limits"])
def test_steps_between_a_value_joiner_and_a_limit_see_the_joined_values(table: tg.KTable, limits: int) -> None:
    late = table if limits == 1 else table.suppress(limit(0).with_name("first"))
    late = late.filter(pc.field("sum") > 3).suppress(limit(10)).map_values({"twice": pc.field("sum") * 2})
    driver = TopologyTestDriver(late)
    driver.pipe_input({"k": "A", "ts": 1, "a": 1}, "some")
    driver.pipe_input({"k": "A", "ts": 2, "b": 4}, "others")
    driver = TopologyTestDriver(late, state=driver.state())  # the next record is behind a restart
    driver.pipe_input({"k": "A", "ts": 12, "a": 2}, "some")
    driver.pipe_input({"k": "A", "ts": 22, "a": -9}, "some")
    driver.drain()
    twice = [(row["twice"], row["timestamp"], row["deleted"]) for row in driver.read_output()]
    assert twice == [(12, 12, False), (None, 22, True)]


def test_a_value_joiner_before_a_step_and_a_limit_says_its_types() -> None:
    untyped = joined(lambda left, right: {"sum": left["a"] + right["b"]})
    untyped.suppress(limit(10))  # the values are joined behind the limit
    with pytest.raises(tg.DefinitionError, match=r'^value_joiner.* Give join\(..., types={"column": "long"}\)'):
        untyped.filter(pc.field("sum") > 3).suppress(limit(10))


def test_a_restart_between_steps_and_a_limit() -> None:
    counts = events().group_by_key().count().filter(pc.field("count") != 2).suppress(limit(5))
    driver = TopologyTestDriver(counts)
    for one in (record("a", 1, 0), record("a", 1, 2)):
        driver.pipe_input(one)
        driver = TopologyTestDriver(counts, state=driver.state())
    driver.pipe_input(record("b", 1, 6))
    assert driver.read_output() == [{"k": "a", "count": None, "timestamp": 2, "deleted": True}]


def test_the_changes_of_a_table_as_a_stream() -> None:
    changes = tg.table("prices", key="k", timestamp="ts", deleted="gone").to_stream()
    rows = piped(
        changes.filter(lambda row: not row["deleted"]).map_values({"w": "v"}),
        record("a", 2, 0, gone=False),
        record("a", 3, 1, gone=True),
    )
    assert rows == [{"k": "a", "w": 2, "timestamp": 0, "deleted": False}]


def test_values_are_mapped_behind_another_key_of_an_operators_rows() -> None:
    """The rows keep the key of their operator; operators behind them do not take it for a value."""
    counts = events().group_by_key().count().to_stream()
    named = counts.select_key(lambda row: row["k"].lower(), name="name").map_values({"n": "count"})
    one = record("A", 1, 0)
    assert piped(named, one) == [{"k": "A", "name": "a", "n": 1, "timestamp": 0}]
    assert piped(counts.select_key("count").map_values(lambda row: {"n": row["count"]}), one) == [
        {"k": "A", "count": 1, "n": 1, "timestamp": 0}
    ]
    assert piped(named.group_by_key().agg(n=tg.sum("n")), one) == [{"name": "a", "n": 1, "timestamp": 0}]
    colours = tg.table("colours", key="name", timestamp="ts")
    driver = TopologyTestDriver(named.left_join(colours))
    driver.pipe_input({"name": "a", "k": "red", "ts": 0}, "colours")
    driver.pipe_input(one, "events")
    assert driver.read_output() == [{"name": "a", "n": 1, "k": "red", "timestamp": 0}]


def test_values_are_mapped_behind_another_key_of_merged_rows_and_records() -> None:
    counts = tg.stream("others", key="k", timestamp="ts").group_by_key().count().to_stream()
    merged = events().map_values({"count": "v"}).merge(counts).select_key(lambda row: row["k"].lower(), name="name")
    driver = TopologyTestDriver(merged.map_values({"n": "count"}).group_by_key().agg(n=tg.sum("n")))
    driver.pipe_input(record("A", 5, 0), "events")
    driver.pipe_input({"k": "a", "ts": 1}, "others")
    assert [(row["name"], row["n"]) for row in driver.read_output()] == [("a", 5), ("a", 6)]


def test_steps_of_several_outputs() -> None:
    counts = events().group_by_key().windowed_by(WINDOWS).count()
    few = counts.suppress(CLOSES).filter(pc.field("count") < 2)
    rows = piped({"raw": counts, "few": few}, record("a", 1, 0), record("a", 1, 1), record("b", 1, 10))
    assert [(row["output"], row["k"], row["count"], row["deleted"]) for row in rows] == [
        ("raw", "a", 1, None),
        ("raw", "a", 2, None),
        ("raw", "b", 1, None),
        ("few", "a", None, True),
    ]


# -- what is refused ----------------------------------------------------------------------------------------------


def message(make: Any) -> str:
    with pytest.raises(tg.TidegateError) as caught:
        make()
    return f"{type(caught.value).__name__}: {caught.value}"


def test_a_function_that_raises_names_step_key_and_record() -> None:
    def inverse(row: Row) -> Row:
        return {"i": 1 // row["v"]}

    driver = TopologyTestDriver(events().map_values(inverse).group_by_key().agg(i=tg.sum("i")))
    driver.pipe_input(record("a", 1, 0))
    before = driver.state()
    said = message(lambda: driver.pipe_batch([record("a", 2, 1), record("b", 0, 2)]))
    assert said.startswith("AggregationError: map_values(test_a_function_that_raises")
    with pytest.raises(ZeroDivisionError) as python:  # its message depends on the version
        inverse({"v": 0})
    assert (
        f"raised ZeroDivisionError: {python.value} — for key 'b', record "
        "{'k': 'b', 'v': 0, 'ts': 2}. Nothing of this batch was emitted or stored." in said
    )
    assert driver.state() == before
    tables = events().group_by_key().count().filter(lambda key, row: 1 // (row["count"] - 2))
    said = message(lambda: piped(tables, record("a", 1, 0), record("a", 1, 1)))
    assert "for key 'a', record {'k': 'a', 'count': 2, 'timestamp': 1}" in said


@pytest.mark.parametrize(
    ("mapper", "types", "said"),
    [
        (lambda row: 5, None, "gave 5, not a dict of value columns"),
        (lambda row: {"k": "z"}, None, "gave 'z' for 'k', which is no value and must stay"),
        (lambda row: {"x": "a"}, {"x": "long"}, "gave 'a' for 'x', which is no int64"),
        (lambda row: {"y": 1}, {"x": "long"}, "gave a column 'y', of which `types` says nothing"),
        ({"x": "nope"}, None, "there is no column 'nope', only k, v, ts"),
        ({"x": pc.field("nope")}, None, "No match for FieldRef.Name(nope)"),
    ],
)
def test_values_that_are_none(mapper: Any, types: Any, said: str) -> None:
    assert said in message(lambda: piped(events().map_values(mapper, types=types), record("a", 1, 0)))


def test_a_function_may_give_a_key_that_is_nan_as_it_is() -> None:
    """All NaN are one key (docs/semantics.md, keys), although no NaN equals another."""
    wider = events().map_values(lambda row: {**row, "w": row["v"] + 1}).group_by_key().agg(w=tg.sum("w"))
    rows = piped(wider, record(math.nan, 1, 0), record(-math.nan, 2, 1))
    assert [row["w"] for row in rows] == [2, 5]


@pytest.mark.parametrize(("key", "given"), [(math.nan, 1.0), (1.0, math.nan)])
def test_a_function_gives_no_other_key_than_nan(key: float, given: float) -> None:
    said = message(lambda: piped(events().map_values(lambda row: {"k": given}), record(key, 1, 0)))
    assert f"gave {given!r} for 'k', which is no value and must stay" in said


def test_definitions_that_cannot_be() -> None:
    typed = events(schema=pa.schema({"k": pa.string(), "v": pa.int64(), "ts": pa.int64()}))
    counts = events().group_by_key().count()
    assert "`predicate` is 5" in message(lambda: events().filter(5))
    assert "`mapper` is 5" in message(lambda: events().map_values(5))  # type: ignore[arg-type]
    assert "gives the column 'x' as 5" in message(lambda: events().map_values({"x": 5}))
    assert "sets the column 'ts', which is no value" in message(lambda: events().map_values({"ts": "v"}))
    assert "sets the column 'k', which is no value" in message(lambda: counts.map_values({"k": "count"}))
    assert "`key` is 'city', but the stream has no such column. Its columns are k, ts, w" in message(
        lambda: typed.map_values({"w": "v"}).select_key("city")
    )
    assert "reads the column 'v', which the stream does not have" in message(
        lambda: typed.map_values({"w": "v"}).group_by_key().agg(x=tg.sum("v"))
    )
    other = tg.stream("other", key="user", timestamp="ts")
    assert "the key of 'events' is ('k',) and that of 'other' ('user',)" in message(lambda: events().merge(other))
    assert "whose buffer must know the types of its columns" in message(
        lambda: counts.map_values(lambda row: {"x": 1}).suppress(limit(5))
    )


def test_a_topology_with_steps_as_text() -> None:
    few = pc.field("v") > 1
    one, two = (tg.stream(name, key="k", timestamp="ts") for name in ("one", "two"))
    table = one.filter(few).merge(two).group_by_key().count().filter(pc.field("count") < 3)
    assert (
        table.describe()
        == """\
filter((count < 3))
   spark    behind the operator
└─ Aggregate aggregate
      columns  count = count()
      emits    the last update per key and micro-batch
      spark    mapInArrow (pre-aggregates), transformWithStateInPandas
   └─ GroupBy k
      └─ Merge
         └─ filter((v > 1))
            └─ Stream one
                  key      k
                  time     ts
                  order    timestamps
         └─ Stream two
               key      k
               time     ts
               order    timestamps"""
    )


def test_what_a_stream_of_changes_cannot_be_grouped_by() -> None:
    counts = tg.stream("clicks", key="user", timestamp="ts").group_by_key().count()
    with pytest.raises(tg.DefinitionError, match=r"'window' cannot be a part of the key: the rows have none"):
        counts.to_stream().group_by("window")
    with pytest.raises(tg.DefinitionError, match=r"no such column. Its columns are user, count, timestamp, deleted\."):
        counts.to_stream().group_by("city")
    hidden = counts.to_stream().map_values(lambda row: {"n": row["count"]})
    driver = TopologyTestDriver(hidden.group_by("city").count())
    with pytest.raises(tg.DefinitionError, match=r"grouped have no column 'city', only user, n\."):
        driver.pipe_input({"user": "A", "ts": 0})


def test_late_records_behind_another_aggregation() -> None:
    """A late record is the whole row of the first table; the checkpoint is the same with and without them."""
    windows = tg.TimeWindows.of_size_and_grace("10 ms", "50 ms")
    sums = tg.stream("e", key="k", timestamp="ts").group_by_key().windowed_by(windows).agg(n=tg.count(), x=tg.sum("x"))
    late = sums.to_stream().group_by("n").windowed_by(tg.TimeWindows.of_size_with_no_grace("20 ms")).agg(y=tg.sum("x"))
    driver = TopologyTestDriver(late)
    driver.pipe_batch([{"k": "a", "ts": 55, "x": 1}])
    driver = TopologyTestDriver({"sums": late, "late": late.late_records()}, state=driver.state())
    driver.pipe_batch([{"k": "b", "ts": 33, "x": 7}])
    (row,) = driver.read_output()
    assert row["window"] == Window(20, 40)
    known = {name: value for name, value in row.items() if value is not None and name != "window"}
    said = {"reason": "late", "late_by": 22, "stream_time": 55, "timestamp": 33}
    assert known == {"output": "late", "k": "b", "n": 1, "x": 7, **said}
    TopologyTestDriver(late, state=driver.state()).pipe_batch([{"k": "b", "ts": 34, "x": 7}])


def test_late_records_behind_a_join() -> None:
    streams = [tg.stream(name, key="k", timestamp="ts", stream_time="max") for name in ("left", "right")]
    joined = streams[0].join(streams[1], tg.JoinWindows.of_time_difference_and_grace("5 ms", "100 ms"))
    counts = joined.group_by_key().windowed_by(tg.TimeWindows.of_size_with_no_grace("10 ms")).count()
    driver = TopologyTestDriver({"counts": counts, "late": counts.late_records()})
    for ts in (3, 60, 5):
        for name in ("left", "right"):
            driver.pipe_input({"k": "a", "ts": ts, name[0]: ts}, name)
    rows = [row for row in driver.read_output() if row["output"] == "late"]
    told = [(row["l"], row["r"], row["late_by"]) for row in rows]
    assert told == [(5, 3, 55), (3, 5, 55), (5, 5, 55)]


def test_merged_streams_with_declared_partitions() -> None:
    schema = pa.schema({"k": pa.string(), "ts": pa.int64(), "partition": pa.int32(), "offset": pa.int64()})
    order = {"partition": "partition", "offset": "offset"}
    one, other = (tg.stream(name, key="k", timestamp="ts", schema=schema, **order) for name in ("one", "other"))
    table = one.merge(other).group_by_key().count()
    driver = TopologyTestDriver(table)
    for name in ("one", "other"):
        driver.pipe_input({"k": "a", "ts": 1, "partition": 0, "offset": 0}, name)
        driver = TopologyTestDriver(table, state=driver.state())
    assert [row["count"] for row in driver.read_state("aggregate")] == [2]
