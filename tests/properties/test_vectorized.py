"""`aggregate(vectorized=True)` gives the rows that the same function gives record by record."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given
from hypothesis import strategies as st

import tidegate as tg
from tidegate.testing import TopologyTestDriver

MOST = 20
"""A larger aggregate is deleted."""

WINDOWS: tuple[Any, ...] = (
    None,
    tg.TimeWindows.of_size_and_grace("10 ms", "5 ms"),
    tg.TimeWindows.of_size_and_grace("10 ms", "5 ms").advance_by("4 ms"),
    tg.BatchWindows.of_size("10 ms"),
    tg.UnlimitedWindows.start_on(5),
)
FINAL = tg.Suppressed.until_window_closes(tg.BufferConfig.unbounded())
BUFFERS = (tg.BufferConfig.unbounded(), tg.BufferConfig.max_records(10_000).shut_down_when_full())


def one(key: tuple[str, int], row: dict[str, Any], total: int) -> int | None:
    new = 2 * total + row["x"] + len(key[0])
    return None if new > MOST else new


def many(key: tuple[pa.Array, pa.Array], rows: pa.Table, totals: pa.Array) -> pa.ChunkedArray:
    new = pc.add(pc.add(pc.multiply(totals, 2), rows["x"]), pc.cast(pc.utf8_length(key[0]), pa.int64()))
    return pc.if_else(pc.greater(new, MOST), pa.scalar(None, pa.int64()), new)


def table(windows: Any, caching: bool, buffer: Any, *, vectorized: bool) -> tg.KTable:
    grouped: Any = tg.stream("events", key=["k", "j"], timestamp="ts", partition="p", offset="o").group_by_key()
    grouped = grouped if windows is None else grouped.windowed_by(windows)
    kept = tg.Materialized.as_("totals")
    kept = kept if caching else kept.with_caching_disabled()
    function: Callable[..., Any] = many if vectorized else one
    made: tg.KTable = grouped.aggregate(
        lambda: 1, function, type="long", name="total", materialized=kept, vectorized=vectorized
    )
    return made if buffer is None else made.suppress(tg.Suppressed.until_window_closes(buffer))


RECORDS = st.lists(
    st.fixed_dictionaries(
        {
            "k": st.sampled_from(["a", "bc"]),
            "j": st.sampled_from([0, 1]),
            "ts": st.integers(0, 40),
            "x": st.integers(0, 9),
        }
    ),
    max_size=30,
)


@given(
    windows=st.sampled_from(WINDOWS),
    caching=st.booleans(),
    buffer=st.sampled_from((None, *BUFFERS)),
    records=RECORDS,
    cuts=st.sets(st.integers(0, 30), max_size=4),
)
def test_as_record_by_record(windows: Any, caching: bool, buffer: Any, records: list[Any], cuts: set[int]) -> None:
    if windows is None or isinstance(windows, tg.UnlimitedWindows):
        buffer = None  # nothing closes
    drivers = [TopologyTestDriver(table(windows, caching, buffer, vectorized=how)) for how in (False, True)]
    placed = [record | {"p": 0, "o": at} for at, record in enumerate(records)]
    edges = [0, *sorted(cuts), len(placed)]
    for low, high in zip(edges, edges[1:], strict=False):
        for driver in drivers:
            driver.pipe_batch(placed[low:high])
        by_one, by_many = (driver.read_output() for driver in drivers)
        assert by_many == by_one


def run(aggregator: Callable[..., Any]) -> None:
    stream = tg.stream("events", key="k", timestamp="ts")
    made = stream.group_by_key().aggregate(lambda: 0, aggregator, type="long", vectorized=True)
    TopologyTestDriver(made).pipe_batch([{"k": "a", "ts": 1, "x": 2}, {"k": "b", "ts": 2, "x": 3}])


def test_what_is_wrong_is_said() -> None:
    with pytest.raises(
        tg.AggregationError, match=r"raised ZeroDivisionError.* for 2 records at once, the first of key 'a'"
    ):
        run(lambda _key, _rows, _totals: 1 // 0)
    with pytest.raises(tg.AggregationError, match="gave a int for 2 records"):
        run(lambda _key, _rows, _totals: 1)
    with pytest.raises(tg.AggregationError, match="gave 1 values for 2 records"):
        run(lambda _key, _rows, totals: totals.slice(0, 1))
    with pytest.raises(tg.AggregationError, match="gave an array of string, which is not int64"):
        run(lambda key, _rows, _totals: key)


FOUND = {
    "a time of day": ("date", pa.array([dt.datetime(2020, 1, 1, 23, 59)])),  # noqa: DTZ001 - Arrow's has no zone
    "midnight": ("date", pa.array([dt.datetime(2020, 1, 1)])),  # noqa: DTZ001
    "text": ("long", pa.array(["5"])),
    "a boolean": ("long", pa.array([True])),
    "a boolean for a double": ("double", pa.array([True])),
    "a half": ("long", pa.array([2.5])),
    "a whole double": ("long", pa.array([2.0])),
    "digits too many": ("decimal(5,2)", pa.array([Decimal("1.239")])),
    "a double for a decimal": ("decimal(5,2)", pa.array([1.239])),
    "an integer for a decimal": ("decimal(5,2)", pa.array([1])),
    "a decimal for a double": ("double", pa.array([Decimal("0.1")])),
    "integers in a list": ("array<long>", pa.array([[1]], pa.list_(pa.int8()))),
}


@pytest.mark.parametrize("case", FOUND)
def test_a_value_fits_as_it_fits_record_by_record(case: str) -> None:
    kind, array = FOUND[case]

    def value(aggregator: Callable[..., Any], *, vectorized: bool) -> Any:
        grouped = tg.stream("events", key="k", timestamp="ts").group_by_key()
        windowed = grouped.windowed_by(tg.TimeWindows.of_size_with_no_grace("10 ms"))
        made = windowed.aggregate(lambda: None, aggregator, type=kind, name="n", vectorized=vectorized)
        driver = TopologyTestDriver(made)
        try:
            driver.pipe_input({"k": "a", "ts": 11, "x": 1})
        except tg.AggregationError as error:
            assert "for key ('a',), window starting at 10 ms" in str(error)
            return "refused"
        return [row["n"] for row in driver.read_output()]

    one_by_one = value(lambda _key, _row, _value: array[0].as_py(), vectorized=False)
    assert value(lambda _key, _rows, _values: array, vectorized=True) == one_by_one


def test_an_array_of_another_type_names_value_and_key() -> None:
    with pytest.raises(
        tg.AggregationError,
        match=r"gave an array of double, which is not int64: 2\.5 for key \('b',\), it is no whole number\. Nothing of",
    ):
        run(lambda _key, rows, _totals: pc.subtract(pc.cast(rows["x"], pa.float64()), pa.array([0, 0.5])))


def test_a_window_of_the_key_is_two_arrays() -> None:
    given: list[Any] = []

    def remembering(key: Any, _rows: pa.Table, totals: pa.Array) -> pa.Array:
        given.append(key)
        return totals

    windowed = tg.stream("events", key="k", timestamp="ts").group_by_key()
    counts = windowed.windowed_by(tg.TimeWindows.of_size_with_no_grace("10 ms")).count("n").suppress(FINAL)
    regrouped = counts.to_stream().group_by("k", "window")
    made = regrouped.aggregate(lambda: 0, remembering, type="long", vectorized=True)
    TopologyTestDriver(made).pipe_batch([{"k": "a", "ts": 11}, {"k": "b", "ts": 40}])
    assert [[array.to_pylist() for array in key] for key in given] == [[["a"], [10], [20]]]


def test_windows_that_depend_on_records_are_refused() -> None:
    grouped = tg.stream("events", key="k", timestamp="ts").group_by_key()
    windows = tg.SlidingWindows.of_time_difference_and_grace("10 ms", "0 ms")
    with pytest.raises(tg.DefinitionError, match="`vectorized` is for time windows"):
        grouped.windowed_by(windows).aggregate(lambda: 0, many, type="long", vectorized=True)
