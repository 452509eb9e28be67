"""`aggregate(vectorized=True)` gives the rows that the same function gives record by record."""

from __future__ import annotations

from collections.abc import Callable
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


def test_windows_that_depend_on_records_are_refused() -> None:
    grouped = tg.stream("events", key="k", timestamp="ts").group_by_key()
    windows = tg.SlidingWindows.of_time_difference_and_grace("10 ms", "0 ms")
    with pytest.raises(tg.DefinitionError, match="`vectorized` is for time windows"):
        grouped.windowed_by(windows).aggregate(lambda: 0, many, type="long", vectorized=True)
