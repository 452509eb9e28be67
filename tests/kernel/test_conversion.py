"""A value is stored in its declared type and comes back unchanged, or it is refused."""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass
from decimal import Decimal
from enum import IntEnum
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import tidegate as tg
from tidegate.kernel.rows import conversion, map_filter
from tidegate.kernel.rows.conversion import MISFITS, MisfitError, converter, fitted
from tidegate.kernel.rows.layout import Layout
from tidegate.kernel.windows import functions
from tidegate.plan import operation
from tidegate.spec.steps import filter_of

LONG, DOUBLE, UTC = pa.int64(), pa.float64(), pa.timestamp("us", "UTC")
LISTS, PAIR, MAP = pa.list_(LONG), pa.struct([("a", LONG), ("b", pa.string())]), pa.map_(pa.string(), LONG)
NOON = dt.datetime(2020, 1, 1, 12)  # noqa: DTZ001 - a naive one is the case


class Level(IntEnum):
    HIGH = 7


class Point(NamedTuple):
    b: str
    a: int


@dataclass
class Spot:
    b: str
    a: float


@pytest.mark.parametrize(
    ("value", "kind", "stored"),
    [
        (2.0, LONG, 2),
        (np.int8(3), LONG, 3),
        (np.float32(3), LONG, 3),
        (Decimal("2.00"), LONG, 2),
        (Level.HIGH, LONG, 7),
        (pa.scalar(5), LONG, 5),
        (pa.scalar(None, LONG), LONG, None),
        (2**64 - 1, pa.uint64(), 2**64 - 1),
        (0.1, pa.float32(), 0.10000000149011612),
        (np.float64(0.1), DOUBLE, 0.1),
        (3, DOUBLE, 3.0),
        (2**60, DOUBLE, 2.0**60),
        (10**20, DOUBLE, 1e20),
        (np.uint64(2**63), DOUBLE, 2.0**63),
        (2**24 + 2, pa.float32(), 2.0**24 + 2),
        (np.int64(5), pa.decimal128(10, 2), Decimal(5)),
        (Decimal("1.5"), DOUBLE, 1.5),
        (Decimal("0.1"), pa.float32(), 0.10000000149011612),
        (pa.scalar(0.5), DOUBLE, 0.5),
        (pa.scalar("x"), pa.string(), "x"),
        ("ü", pa.string(), "ü"),
        (b"x", pa.string(), "x"),
        (bytearray(b"x"), pa.binary(), b"x"),
        (np.bool_(True), pa.bool_(), True),
        (Decimal("1.5"), pa.decimal128(10, 2), Decimal("1.50")),
        (3, pa.decimal128(10, 2), Decimal("3.00")),
        (NOON, UTC, NOON.replace(tzinfo=dt.UTC)),
        (NOON.replace(hour=0), pa.date32(), NOON.date()),
        (NOON.date(), UTC, NOON.replace(hour=0, tzinfo=dt.UTC)),
        (NOON, pa.timestamp("s"), NOON),
        (np.datetime64("2020-01-01T12", "h"), UTC, NOON.replace(tzinfo=dt.UTC)),
        (np.datetime64("2020-01-01T12:00:00", "ns"), UTC, NOON.replace(tzinfo=dt.UTC)),
        (np.datetime64("2020-01-01T12"), pa.timestamp("s"), NOON),
        (np.datetime64("2020-01-01"), pa.date32(), NOON.date()),
        (np.datetime64("2020-01-01T00:00"), pa.date32(), NOON.date()),
        (np.datetime64("NaT"), UTC, None),
        (pd.NaT, UTC, None),
        (pd.NaT, pa.date32(), None),
        (np.int64(5), pa.timestamp("ms", "UTC"), dt.datetime(1970, 1, 1, microsecond=5_000, tzinfo=dt.UTC)),
        (np.timedelta64(2, "h"), pa.duration("us"), dt.timedelta(hours=2)),
        (5, pa.timestamp("ms", "UTC"), dt.datetime(1970, 1, 1, microsecond=5_000, tzinfo=dt.UTC)),
        (dt.time(1, 2, 3), pa.time32("s"), dt.time(1, 2, 3)),
        (dt.time(1, 2, 3, 4), pa.time64("us"), dt.time(1, 2, 3, 4)),
        (dt.timedelta(milliseconds=5), pa.duration("ms"), dt.timedelta(milliseconds=5)),
        ({3}, LISTS, [3]),
        ((1, 2.0), LISTS, [1, 2]),
        (np.array([1, 2]), LISTS, [1, 2]),
        (pd.Series([1, 2]), LISTS, [1, 2]),
        ([[1], None], pa.list_(LISTS), [[1], None]),
        ((1, 2), pa.list_(LONG, 2), [1, 2]),
        ({"a": 1.0, "c": 9}, PAIR, {"a": 1, "b": None}),
        ((1, "x"), PAIR, {"a": 1, "b": "x"}),
        (Point("x", 1), PAIR, {"a": 1, "b": "x"}),
        (Spot("x", 1.0), PAIR, {"a": 1, "b": "x"}),
        ([("b", "x")], PAIR, {"a": None, "b": "x"}),
        ({"x": 1.0}, MAP, [("x", 1)]),
        ([("x", 1), ["y", None]], MAP, [("x", 1), ("y", None)]),
        (None, LISTS, None),
        (None, LONG, None),
        (None, DOUBLE, None),
        (None, pa.string(), None),
        (None, pa.null(), None),
        ("a", pa.dictionary(pa.int32(), pa.string()), "a"),
    ],
)
def test_what_fits(value: Any, kind: pa.DataType, stored: Any) -> None:
    found = converter(kind)(value)
    assert found == stored
    assert type(found) is type(stored)


def test_a_row_of_pyspark_fits_a_struct_by_its_names() -> None:
    """As a named tuple does: by place two fields of one type would change places. A Row without names has places."""
    row = pytest.importorskip("pyspark.sql").Row
    both = pa.struct([("a", LONG), ("b", LONG)])
    assert converter(both)(row(b=2, a=1)) == {"a": 1, "b": 2}
    assert converter(both)(row("b", "a")(2, 1)) == {"a": 1, "b": 2}
    assert converter(both)(row(b=2)) == {"a": None, "b": 2}
    assert converter(both)(row(1, 2)) == {"a": 1, "b": 2}
    assert converter(pa.list_(both))([row(b=2, a=1)]) == [{"a": 1, "b": 2}]


@pytest.mark.parametrize(
    ("value", "kind"),
    [
        (2.5, LONG),
        (Decimal("2.5"), LONG),
        (float("nan"), LONG),
        (float("inf"), LONG),
        (Decimal("NaN"), LONG),
        (True, LONG),
        (np.bool_(True), LONG),
        ("5", LONG),
        (pd.NA, LONG),
        (pa.scalar(2.5), LONG),
        (2**63, LONG),
        (128, pa.int8()),
        (-1, pa.uint8()),
        (np.float64(300), pa.int8()),
        (2**60 + 1, DOUBLE),
        (10**400, DOUBLE),
        (np.int64(2**60 + 1), DOUBLE),
        (2**24 + 1, pa.float32()),
        (10**39, pa.float32()),
        (1e300, pa.float32()),
        (np.float64(1e300), pa.float32()),
        (Decimal("1e300"), pa.float32()),
        (Decimal("1e400"), DOUBLE),
        ([[1e39]], pa.list_(pa.list_(pa.float32()))),
        (np.int64(10**9), pa.decimal128(10, 2)),
        (np.bool_(True), pa.decimal128(10, 2)),
        (True, DOUBLE),
        ("1", DOUBLE),
        (1, pa.bool_()),
        (5, pa.string()),
        (b"\xff", pa.string()),
        ("\ud800", pa.string()),
        (1.5, pa.decimal128(10, 2)),
        (Decimal("1.234"), pa.decimal128(10, 2)),
        (Decimal(123456789), pa.decimal128(10, 2)),
        (NOON, pa.date32()),
        (pd.Timestamp(1, unit="ns"), UTC),
        (np.datetime64(1, "ns"), UTC),
        (np.datetime64("20000-01-01"), pa.date32()),
        (np.timedelta64(1, "ns"), pa.duration("us")),
        (np.bool_(True), UTC),
        (True, pa.date32()),
        ("2020-01-01", UTC),
        (2.5, UTC),
        (2.5, pa.date32()),
        (2.5, pa.time32("s")),
        (np.float32(2.5), pa.duration("s")),
        (Decimal("2.5"), UTC),
        (NOON.replace(microsecond=1), pa.timestamp("ms")),
        (NOON.replace(microsecond=1_000), pa.timestamp("s", "UTC")),
        (dt.time(1, 2, 3, 500_000), pa.time32("s")),
        (dt.timedelta(microseconds=1), pa.duration("ms")),
        (pd.Timedelta(1, "ns"), pa.duration("us")),
        ([1, 2.5], LISTS),
        (np.array([1.5]), LISTS),
        ("12", pa.list_(pa.string())),
        ({"a": 1}, pa.list_(pa.string())),
        (5, LISTS),
        (np.array(5), LISTS),
        ([1], pa.list_(LONG, 2)),
        ({"a": 2.5}, PAIR),
        ((1,), PAIR),
        ("ab", PAIR),
        ([1, 2], PAIR),
        ({"x": 2.5}, MAP),
        ({None: 1}, MAP),
        (["xy"], MAP),
        ("xy", MAP),
        ([[{"a": 2.5}]], pa.list_(pa.list_(PAIR))),
    ],
)
def test_what_does_not(value: Any, kind: pa.DataType) -> None:
    with pytest.raises(MISFITS):
        converter(kind)(value)


KINDS = st.recursive(
    st.sampled_from([LONG, pa.int8(), DOUBLE, pa.float32(), pa.string(), pa.binary(), pa.bool_(), UTC, pa.date32()]),
    lambda inner: st.one_of(
        inner.map(pa.list_),
        inner.map(lambda kind: pa.map_(pa.string(), kind)),
        st.tuples(inner, inner).map(lambda kinds: pa.struct([("a", kinds[0]), ("b", kinds[1])])),
    ),
    max_leaves=4,
)
VALUES = st.recursive(
    st.one_of(
        st.none(),
        st.booleans(),
        st.integers(-130, 130),
        st.sampled_from([2**62, 2**62 + 1, 0.1, -0.0, 2.0, "x", "", b"y", NOON, NOON.date(), Decimal(2), np.int16(5)]),
    ),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.lists(inner, max_size=2).map(tuple),
        st.dictionaries(st.sampled_from("abx"), inner, max_size=3),
    ),
    max_leaves=6,
)


@given(kind=KINDS, value=VALUES)
def test_a_value_that_fits_is_what_a_column_gives_back(kind: pa.DataType, value: Any) -> None:
    """Arrow itself decides how a value is stored; it alone would accept more values."""
    convert = converter(kind)
    try:
        found = convert(value)
    except MISFITS:
        return
    back = pa.array([found], kind)[0].as_py()
    assert repr(found) == repr(back)
    assert repr(convert(found)) == repr(found)


MIDNIGHT = NOON.replace(hour=0)
DAYS = st.sampled_from([MIDNIGHT, MIDNIGHT - dt.timedelta(days=40_000)])
COLUMNS: dict[pa.DataType, st.SearchStrategy[Any]] = {
    LONG: st.sampled_from([0, 1, -1, 127, 128, 999, 1000, 2**24 + 1, 2**53 + 1, 2**60, 2**63 - 1]),
    pa.uint64(): st.sampled_from([0, 2**63, 2**64 - 1]),
    DOUBLE: st.sampled_from([0.0, -0.0, 1.5, 2.0, 1e300, 2.0**63, float("nan"), float("inf")]),
    pa.decimal128(20, 3): st.sampled_from([Decimal("1.500"), Decimal("1.234"), Decimal(12345), Decimal(0)]),
    pa.bool_(): st.booleans(),
    pa.string(): st.sampled_from(["x", "5", "ü", ""]),
    pa.binary(): st.sampled_from([b"x", b"5", b"\xff"]),
    pa.dictionary(pa.int32(), pa.string()): st.sampled_from(["x", "5"]),
    pa.date32(): DAYS.map(dt.datetime.date),
    pa.time64("us"): st.sampled_from([dt.time(1), dt.time(1, 2, 3, 4_000), dt.time(1, 2, 3, 4)]),
    pa.duration("us"): st.integers(0, 3).map(lambda n: dt.timedelta(microseconds=n * 500_000 + n // 3)),
    LISTS: st.lists(st.integers(0, 200), max_size=2),
    pa.null(): st.none(),
}
for _zone in (None, "UTC", "America/New_York", "Asia/Tokyo"):
    _hours = st.sampled_from([0, 0, 5, 15]).map(lambda hours: dt.timedelta(hours=hours))
    COLUMNS[pa.timestamp("us", _zone)] = st.builds(dt.datetime.__add__, DAYS, _hours)
TARGETS = (*COLUMNS, pa.int8(), pa.uint8(), pa.float32(), pa.decimal128(5, 2), pa.decimal256(50, 0), pa.large_string())
TARGETS += (pa.timestamp("ms"), pa.timestamp("ns"), pa.date64(), pa.time32("s"), pa.duration("s"), pa.list_(pa.int8()))


@given(data=st.data(), have=st.sampled_from(list(COLUMNS)), kind=st.sampled_from(TARGETS))
def test_a_column_becomes_what_its_values_become(data: Any, have: pa.DataType, kind: pa.DataType) -> None:
    """Arrow casts what it casts as `converter` does; it alone would drop times of day and read numbers in text."""
    values = data.draw(st.lists(st.none() | COLUMNS[have], max_size=3))
    column = pa.array(values, have)
    if data.draw(st.booleans()):
        column = pa.chunked_array([column.slice(0, 1), column.slice(1)])
    convert, wanted = converter(kind), []
    for place, value in enumerate(column.to_pylist()):
        try:
            wanted.append(convert(value))
        except MISFITS:
            with pytest.raises(MisfitError) as caught:
                fitted(column, kind)
            assert (caught.value.place, caught.value.value) == (place, repr(value))
            return
    found = fitted(column, kind)
    assert found.type == kind
    assert repr(found.to_pylist()) == repr(wanted)


def test_a_column_of_the_type_is_not_copied() -> None:
    for column in (pa.array([1, None]), pa.chunked_array([[1], [2]])):
        assert fitted(column, LONG) is column


def test_a_day_of_an_instant_that_python_does_not_have() -> None:
    """The midnight is cast by Arrow. Another time of day has no Python value to show."""
    day = 86_400_000_000
    assert fitted(pa.array([2**20 * 10 * day], UTC), pa.date32()).cast(pa.int32()).to_pylist() == [2**20 * 10]
    with pytest.raises(MisfitError) as caught:
        fitted(pa.array([2**20 * 10 * day + 1], UTC), pa.date32())
    assert caught.value.value == "an instant past the year 9999"


@given(value=VALUES)
def test_containers_are_new_every_time(value: Any) -> None:
    kind = pa.list_(pa.list_(pa.list_(pa.string())))
    try:
        found = converter(kind)(value)
    except MISFITS:
        return
    again = converter(kind)(found)
    assert again == found
    for inner in found or []:
        if inner is not None:
            inner.append(["more"])
    assert again == converter(kind)(value)


FAR = pa.array([2**62, 0], pa.timestamp("us", "UTC"))
"""Microseconds that Spark holds: an instant in the year 148108."""


def test_an_instant_that_python_does_not_have_is_an_error_that_says_so() -> None:
    """The check stands in front of functions of aggregates and of steps: an OverflowError would name no column."""
    stream = tg.stream("events", key="k", timestamp="at", schema=pa.schema([("k", pa.string()), ("at", UTC)]))
    table = stream.group_by_key().aggregate(int, lambda key, row, n: n + 1, type="long", name="times")
    rows = pa.table({"k:k": ["a", "b"], "v:at": FAR})
    layout = Layout(operation(table.node), pa.schema([*rows.schema, ("ts", LONG), ("order", LONG)]))
    with pytest.raises(
        tg.AggregationError, match="`times` calls Python functions, and the column 'at' holds an instant"
    ):
        functions.records_of(layout, rows)
    step = filter_of(lambda row: True, ("k",), tombstones=False)
    with pytest.raises(tg.AggregationError, match="the year 9999"):
        map_filter.apply_steps([step], pa.table({"k": ["a", "b"], "at": FAR}))


def test_a_text_that_python_does_not_have_is_an_error_that_says_so() -> None:
    text = pa.array([b"\xff", b"a"]).view(pa.string())
    assert conversion.shown(text[0]) == "text that is not UTF-8"
    with pytest.raises(tg.AggregationError) as caught:
        conversion.column_as_python(text, "user", "`times`")
    assert str(caught.value) == (
        "`times` calls Python functions, and the column 'user' holds a text that is not UTF-8, which no text of Python "
        'is. Nothing of this batch was emitted or stored. Use df.withColumn("user", F.make_valid_utf8("user")), filter '
        "such records out before tg.stream(...), or use built-in aggregates and expressions."
    )
    step = filter_of(lambda row: True, ("k",), tombstones=False)
    with pytest.raises(tg.AggregationError, match="the column 'k' holds a text that is not UTF-8"):
        map_filter.apply_steps([step], pa.table({"n": [1, 2], "k": text}))


def test_rows_are_shown_whatever_python_has() -> None:
    text = pa.array([b"\xff", b"a"]).view(pa.string())
    assert conversion.for_display(pa.table({"k": text, "at": FAR, "n": [1, None]})) == [
        {"k": b"\xff", "at": 2**62, "n": 1},
        {"k": b"a", "at": 0, "n": None},
    ]
