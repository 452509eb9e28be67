"""Freedoms of users' functions: they may change their arguments, and return any value that fits the declared type."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from decimal import Decimal
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given
from hypothesis import strategies as st

import tidegate as tg
from tidegate.testing import TopologyTestDriver

SECONDS = tg.TimeWindows.of_size_with_no_grace("1 second")
FINAL = tg.Suppressed.until_window_closes(tg.BufferConfig.unbounded())
EVERY = tg.Materialized.as_("every").with_caching_disabled()
PAIR = pa.struct([("a", pa.int64()), ("b", pa.string())])


def grouped(**stream: Any) -> tg.KGroupedStream:
    return tg.stream("events", key="k", timestamp="ts", **stream).group_by_key()


def out(table: Any, records: list[Any], size: int = 1_000) -> list[dict[str, Any]]:
    driver = TopologyTestDriver(table)
    for low in range(0, len(records), size):
        driver.pipe_batch(records[low : low + size])
    return driver.read_output()


def records(*values: Any) -> list[dict[str, Any]]:
    return [{"k": "A", "ts": i, "v": value} for i, value in enumerate(values)]


# --- functions that change what they are given ---------------------------------------------------------------------


def append(key: Any, row: dict[str, Any], aggregate: list[Any]) -> list[Any]:
    aggregate.append(row["v"])
    return aggregate


def extend(key: Any, a: list[Any], b: list[Any]) -> list[Any]:
    a.extend(b)
    return a


def test_sliding_windows_share_no_list() -> None:
    windowed = grouped().windowed_by(tg.SlidingWindows.of_time_difference_and_grace("4 ms", "100 ms"))
    driver = TopologyTestDriver(windowed.aggregate(list, append, type="array<long>", name="out").suppress(FINAL))
    driver.pipe_batch([{"k": "A", "ts": ts, "v": ts} for ts in (20, 23, 25, 21)])
    driver.drain()
    found = {row["window"].start: row["out"] for row in driver.read_output()}
    assert found == {
        16: [20],
        17: [20, 21],
        19: [20, 23, 21],
        21: [23, 25, 21],
        22: [23, 25],
        24: [25],
    }


WINDOWS: dict[str, Any] = {
    "none": None,
    "time": SECONDS,
    "hopping": tg.TimeWindows.of_size_and_grace("6 ms", "90 ms").advance_by("2 ms"),
    "sliding": tg.SlidingWindows.of_time_difference_and_grace("4 ms", "90 ms"),
    "session": tg.SessionWindows.of_inactivity_gap_and_grace("4 ms", "90 ms"),
    "batch": tg.BatchWindows.of_size("10 ms"),
}


@pytest.mark.parametrize("kind", WINDOWS)
def test_no_two_updates_share_a_list(kind: str) -> None:
    """Without caching every update shows the aggregate at its record, in one batch as in many."""
    windows = WINDOWS[kind]
    windowed = grouped() if windows is None else grouped().windowed_by(windows)
    merger = {"merger": extend} if kind == "session" else {}

    def added(key: Any, row: dict[str, Any], aggregate: list[Any]) -> list[Any]:
        return [*aggregate, row["v"]]

    def both(key: Any, a: list[Any], b: list[Any]) -> list[Any]:
        return [*a, *b]

    careful = {"merger": both} if kind == "session" else {}
    times = [10, 13, 15, 11, 40, 44, 42, 12, 41, 90]
    given = [{"k": "A", "ts": ts, "v": i} for i, ts in enumerate(times)]
    mutating = windowed.aggregate(list, append, type="array<long>", materialized=EVERY, **merger)
    right = out(windowed.aggregate(list, added, type="array<long>", materialized=EVERY, **careful), given, 1)
    assert right
    for size in (1, 2, 3, 100):
        assert out(mutating, given, size) == right


def test_an_initializer_that_gives_the_same_list_every_time() -> None:
    shared: list[Any] = []
    table = grouped().windowed_by(SECONDS).aggregate(lambda: shared, append, type="array<long>", name="out")
    given = [{"k": key, "ts": ts, "v": ts} for ts in range(3) for key in "AB"]
    assert [row["out"] for row in out(table, given)] == [[0, 1, 2], [0, 1, 2]]
    assert shared == []


def test_a_reduce_that_changes_lists() -> None:
    def longer(a: list[Any], b: list[Any]) -> list[Any]:
        a.extend(b)
        b.clear()
        return a

    for size in (1, 2, 9):
        sliding = grouped().windowed_by(WINDOWS["sliding"]).reduce(longer, "v", name="out").suppress(FINAL)
        driver = TopologyTestDriver(sliding)
        given = [{"k": "A", "ts": ts, "v": [ts]} for ts in (20, 23, 21)]
        for low in range(0, 3, size):
            driver.pipe_batch(given[low : low + size])
        driver.drain()
        found = {row["window"].start: row["out"] for row in driver.read_output()}
        assert found == {16: [20], 17: [20, 21], 19: [20, 23, 21], 21: [23, 21], 22: [23]}


@pytest.mark.parametrize("kind", ["sliding", "hopping", "session"])
def test_a_record_is_each_windows_own(kind: str) -> None:
    def take(key: Any, row: dict[str, Any], aggregate: int) -> int:
        row["inner"]["n"] += 1
        return aggregate + row.pop("v") + row["inner"]["n"]

    def right(key: Any, row: dict[str, Any], aggregate: int) -> int:
        return aggregate + row["v"] + row["inner"]["n"] + 1

    windowed = grouped().windowed_by(WINDOWS[kind])
    merger = {"merger": lambda key, a, b: a + b} if kind == "session" else {}
    given = [{"k": "A", "ts": ts, "v": ts, "inner": {"n": i}} for i, ts in enumerate((10, 12, 14, 11, 13))]
    wanted = out(windowed.aggregate(int, right, type="long", materialized=EVERY, **merger), given)
    assert out(windowed.aggregate(int, take, type="long", materialized=EVERY, **merger), given) == wanted


def test_map_values_that_gives_one_dict_again_and_again() -> None:
    made: dict[str, Any] = {"seen": []}

    def mapper(row: dict[str, Any]) -> dict[str, Any]:
        made["seen"].append(row["v"])
        return made

    for types in ({"seen": "array<long>"}, None):
        made["seen"].clear()
        rows = out(tg.stream("events", key="k", timestamp="ts").map_values(mapper, types=types), records(1, 2, 3))
        assert [row["seen"] for row in rows] == [[1], [1, 2], [1, 2, 3]]


def test_map_values_that_changes_its_row() -> None:
    def mapper(row: dict[str, Any]) -> dict[str, Any]:
        row["v"] += 1
        row["k"] = "B"
        return row

    stream = tg.stream("events", key="k", timestamp="ts").map_values(mapper)
    with pytest.raises(tg.AggregationError, match="gave 'B' for 'k', which is no value and must stay"):
        out(stream, records(1))


# --- functions that return another type ----------------------------------------------------------------------------

Aggregator = Callable[[Any, dict[str, Any], Any], Any]


def single_tenths(times: int) -> float:
    """The sum of `times` tenths, rounded to a float after each."""
    total = np.float32(0)
    for _ in range(times):
        total = np.float32(float(total) + 0.1)
    return float(total)


CONVERTED: dict[str, tuple[Any, Any, Any, list[Any], Any]] = {
    "whole doubles": ("long", int, lambda k, r, a: float(a + r["v"]), [1, 2, 3, 4], 10),
    "numpy": ("long", int, lambda k, r, a: np.int16(a + r["v"]), [1, 2, 3], 6),
    "float": ("float", float, lambda k, r, a: a + 0.1, [0] * 40, single_tenths(40)),
    "set": ("array<long>", set, lambda k, r, a: {*a, r["v"] // 2}, [1, 1, 1], [0]),
    "dict for a map": (
        pa.map_(pa.string(), pa.int64()),
        dict,
        lambda k, r, a: {**dict(a), str(r["v"]): len(a)},
        [5, 6, 5],
        [("5", 2), ("6", 1)],
    ),
    "decimal": ("decimal(10,2)", lambda: 0, lambda k, r, a: a + Decimal("0.5"), [0] * 3, Decimal("1.50")),
    "struct": (
        pa.struct([("n", pa.int64())]),
        lambda: {"n": 0},
        lambda k, r, a: {"n": a["n"] + len(a), "more": 1},
        [0] * 4,
        {"n": 4},
    ),
    "binary": ("binary", bytearray, lambda k, r, a: bytearray(a) + b"x", [0] * 3, b"xxx"),
}


@pytest.mark.parametrize("case", CONVERTED)
def test_an_aggregate_has_its_type_after_every_call(case: str) -> None:
    kind, initializer, aggregator, values, wanted = CONVERTED[case]
    table = grouped().aggregate(initializer, aggregator, type=kind, name="out")
    for size in (1, 2, len(values)):
        assert out(table, records(*values), size)[-1]["out"] == wanted


REFUSED: dict[str, tuple[Any, Any, Aggregator]] = {
    "2.5 for a long": ("long", int, lambda k, r, a: a + 0.5),
    "a long that overflows in between": ("long", int, lambda k, r, a: a + 2**63 if r["v"] % 2 == 0 else a - 2**63),
    "a byte that overflows in between": ("byte", int, lambda k, r, a: a + 200 if r["v"] % 2 == 0 else a - 200),
    "NaN": ("long", int, lambda k, r, a: float("nan")),
    "a boolean": ("long", int, lambda k, r, a: True),
    "within a list": ("array<long>", list, lambda k, r, a: [*a, 0.5]),
    "too many digits": ("decimal(10,2)", int, lambda k, r, a: a + Decimal("0.005")),
    "no string": ("string", str, lambda k, r, a: 5),
    "the initializer": ("long", lambda: 0.5, lambda k, r, a: 1),
}


@pytest.mark.parametrize("case", REFUSED)
@pytest.mark.parametrize("size", [1, 4])
def test_a_value_of_another_type_is_refused_in_any_cut(case: str, size: int) -> None:
    kind, initializer, aggregator = REFUSED[case]
    table = grouped().windowed_by(SECONDS).aggregate(initializer, aggregator, type=kind)
    with pytest.raises(tg.AggregationError) as caught:
        out(table, records(0, 1, 2, 3), size)
    message = str(caught.value)
    for part in (" gave ", "for key ('A',), window starting at 0 ms, which is not a ", "declare another `type`."):
        assert part in message


class Pair(NamedTuple):
    b: str
    a: int


INITIALS: dict[str, tuple[Any, Any]] = {
    "an integer of numpy for a decimal": (pa.decimal128(12, 2), lambda: np.int64(0)),
    "a decimal for a double": ("double", lambda: Decimal("0.5")),
    "an integer that a double keeps": ("double", lambda: 2**60),
    "a day for a timestamp": ("timestamp", lambda: dt.date(2026, 1, 1)),
    "a named tuple in another order": (PAIR, lambda: Pair(b="x", a=1)),
    "an iterator": ("array<long>", lambda: iter((1, 2))),
    "a dict for a map": (pa.map_(pa.string(), pa.int64()), lambda: {"a": 1}),
}


@pytest.mark.parametrize("case", INITIALS)
@pytest.mark.parametrize("bound", ["max_bytes", "max_records"])
@pytest.mark.parametrize("closes", [False, True], ids=["limit", "close"])
def test_an_initial_value_in_front_of_a_bounded_buffer_is_converted_too(case: str, bound: str, closes: bool) -> None:
    kind, initializer = INITIALS[case]
    buffer = getattr(tg.BufferConfig, bound)(1_000)

    def suppressed(buffer: Any) -> tg.KTable:
        table = grouped().windowed_by(SECONDS).aggregate(initializer, lambda k, r, a: a, type=kind, name="out")
        if closes:
            return table.suppress(tg.Suppressed.until_window_closes(buffer))
        return table.suppress(tg.Suppressed.until_time_limit("5 ms", buffer, clock="stream"))

    piped = [*records(1, 2), {"k": "B", "ts": 2_000, "v": 3}]
    wanted = out(suppressed(tg.BufferConfig.unbounded()), piped, 1)
    assert [row["k"] for row in wanted] == ["A"]
    assert out(suppressed(buffer.shut_down_when_full()), piped, 1) == wanted


def test_another_initializer_on_a_bounded_buffer_gives_a_value_of_the_type() -> None:
    def strict(initializer: Any) -> tg.KTable:
        table = grouped().windowed_by(SECONDS).aggregate(initializer, lambda k, r, a: a + 1, type="long")
        return table.suppress(tg.Suppressed.until_window_closes(tg.BufferConfig.max_bytes(1_000).shut_down_when_full()))

    driver = TopologyTestDriver(strict(int))
    driver.pipe_batch(records(1))
    again = TopologyTestDriver(strict(lambda: 0.5), driver.state())
    with pytest.raises(tg.AggregationError, match=r"The initializer of .* gave 0\.5 \(float\), which is not a int64"):
        again.pipe_batch(records(1))


def test_what_a_merger_and_a_subtractor_return_is_checked() -> None:
    sessions = grouped().windowed_by(WINDOWS["session"])
    merged = sessions.aggregate(int, lambda k, r, a: a + 1, type="long", merger=lambda k, a, b: a + b + 0.5)
    with pytest.raises(tg.AggregationError, match=r"gave 1\.5 \(float\) for key \('A',\), window starting at 0 ms"):
        out(merged, records(1, 2))
    table = tg.table("events", key="k", timestamp="ts").group_by("v")
    counted = table.aggregate(int, lambda k, r, a: a + 1, lambda k, r, a: a - 0.5, type="long")
    with pytest.raises(tg.AggregationError, match=r"gave 0\.5 \(float\) for key \(1,\)"):
        out(counted, records(1, 2), 1)


def test_a_reduce_has_the_type_of_its_column() -> None:
    halves = grouped().reduce(lambda a, b: (a + b) / 2, "v", name="out")
    assert [row["out"] for row in out(halves, records(1, 3, 4), 1)] == [1, 2, 3]
    for size in (1, 9):
        with pytest.raises(tg.AggregationError, match=r"gave 1\.5 \(float\)"):
            out(halves, records(1, 2), size)


def test_an_initializer_of_a_vectorized_aggregator() -> None:
    table = grouped().aggregate(lambda: 0.5, lambda k, r, a: pc.add(a, 1), type="long", vectorized=True)
    with pytest.raises(
        tg.AggregationError, match=r"The initializer of .* gave 0\.5 \(float\) for key \('A',\), which is"
    ):
        out(table, records(1))


def test_an_initializer_of_a_vectorized_aggregator_that_raises() -> None:
    windowed = grouped().windowed_by(SECONDS)
    table = windowed.aggregate(lambda: 1 // 0, lambda k, r, a: a, type="long", vectorized=True)
    with pytest.raises(
        tg.AggregationError,
        match=r"The initializer of .* raised ZeroDivisionError: .* for key \('A',\), window starting at 0 ms\. Nothing",
    ):
        out(table, records(1))


STEPS: dict[str, Callable[[Any], Any]] = {
    "map_values, a dict": lambda s: s.map_values(lambda r: {"w": r["v"] / 2}, types={"w": "long"}),
    "map_values, a column": lambda s: s.map_values({"w": lambda r: r["v"] / 2}, types={"w": "long"}),
    "map_values, an expression": lambda s: s.map_values({"w": pc.field("v") * 0.5}, types={"w": "long"}),
    "map_values, a list": lambda s: s.map_values({"w": lambda r: [r["v"] / 2]}, types={"w": "array<long>"}),
    "select_key": lambda s: s.select_key(lambda r: r["v"] / 2, name="w", type="long"),
}


@pytest.mark.parametrize("case", STEPS)
@pytest.mark.parametrize("size", [1, 4])
def test_steps_take_the_declared_type(case: str, size: int) -> None:
    stream = STEPS[case](tg.stream("events", key="k", timestamp="ts"))
    found = [row["w"] for row in out(stream, records(0, 2, 4), size)]
    assert found in ([0, 1, 2], [[0], [1], [2]])
    with pytest.raises(tg.AggregationError):
        out(stream, records(0, 2, 3), size)


EXPRESSIONS: dict[str, tuple[Any, Any, Any]] = {
    "a time of day for a date": ("date", dt.datetime(2020, 1, 1), dt.datetime(2020, 1, 1, 23, 59)),  # noqa: DTZ001
    "a half for a long": ("long", 2.0, 2.5),
    "text for a long": ("long", 5, "5"),
    "a boolean for a long": ("long", 1, True),
    "digits that a decimal lacks": ("decimal(5,2)", Decimal("1.5"), Decimal("1.239")),
    "a double for a decimal": ("decimal(5,2)", 1, 1.5),
}


@pytest.mark.parametrize("case", EXPRESSIONS)
@pytest.mark.parametrize(
    "how", ["v", pc.field("v"), lambda row: row["v"]], ids=["a column", "an expression", "a function"]
)
def test_a_mapped_value_fits_or_is_named(case: str, how: Any) -> None:
    kind, fits, misfit = EXPRESSIONS[case]
    mapped = tg.stream("events", key="k", timestamp="ts").map_values({"w": how}, types={"w": kind})
    assert len(out(mapped, records(fits))) == 1
    with pytest.raises(tg.AggregationError, match=r"gave .* for 'w', which is no .* — for key 'A', record \{'k': 'A'"):
        out(mapped, records(None, misfit))


@pytest.mark.parametrize("size", [1, 2])
@pytest.mark.parametrize("schema", [None, pa.schema({"k": pa.string(), "ts": pa.int64(), "v": pa.int64()})])
def test_a_column_takes_no_part_of_a_number(size: int, schema: Any) -> None:
    with pytest.raises(tg.InputError, match=r"Record 1: the column 'v' holds 2\.5, which is not a int64"):
        out(grouped(schema=schema).agg(n=tg.sum("v")), records(1, 2.5), size)
    assert out(grouped(schema=schema).agg(n=tg.sum("v")), records(1, 2.0), size)[-1]["n"] == 3


@pytest.mark.parametrize(
    "found", [np.array([True, False]), pa.array([True]), pa.chunked_array([[True]]), pc.field("v") > 1]
)
def test_a_predicate_gives_one_truth(found: Any) -> None:
    stream = tg.stream("events", key="k", timestamp="ts").filter(lambda row: found)
    with pytest.raises(tg.AggregationError, match="which is neither true nor false"):
        out(stream, records(1))


def _given(row: dict[str, Any]) -> Any:
    yield row["v"] > 1


async def _waited(row: dict[str, Any]) -> bool:
    return bool(row["v"] > 1)


@pytest.mark.filterwarnings("ignore:coroutine")
@pytest.mark.parametrize("predicate", [_given, _waited, lambda row: _waited, lambda row: map(bool, [row["v"]])])
def test_a_predicate_gives_its_answer_and_not_what_would_give_it(predicate: Any) -> None:
    """A function that was not called, a generator and a coroutine are true, so that every record would stay."""
    stream = tg.stream("events", key="k", timestamp="ts").filter(predicate)
    with pytest.raises(tg.AggregationError, match=r"which is neither true nor false\. Is a call missing"):
        out(stream, records(1))


def test_a_predicate_may_give_a_scalar() -> None:
    scalars = iter([np.bool_(True), pa.scalar(False), pa.scalar(None, pa.bool_()), 1, None])
    stream = tg.stream("events", key="k", timestamp="ts").filter(lambda row: next(scalars))
    assert [row["v"] for row in out(stream, records(0, 1, 2, 3, 4))] == [0, 3]


@given(st.lists(st.one_of(st.none(), st.integers(-2, 2), st.sampled_from([0.5, 1.0, "x"])), max_size=6), st.data())
def test_columns_without_a_declared_type_do_not_depend_on_the_cut(values: list[Any], data: Any) -> None:
    def table() -> Any:
        stream = tg.stream("events", key="k", timestamp="ts").map_values(lambda r: {"w": r["v"]})
        return stream.filter(pc.field("w").is_valid()).map_values({"w": "w", "z": lambda r: [r["w"]]}).group_by_key()

    def run(size: int) -> Any:
        try:
            return out(table().agg(newest=tg.last("w"), z=tg.last("z"), n=tg.count()), records(*values), size)[-1:]
        except tg.TidegateError as error:
            return type(error)

    assert run(data.draw(st.integers(1, 6))) == run(1)


def test_sessions_whose_reducer_gives_none_in_a_merge_begin_anew_with_the_next_value() -> None:
    """There is no aggregate then, and a reducer without an aggregate takes the value as it is (SEMANTICS 2.2, 4)."""
    windows = tg.SessionWindows.of_inactivity_gap_and_grace("2 ms", "1 second")
    grouped = tg.stream("events", key="k", timestamp="ts").group_by_key().windowed_by(windows)
    driver = TopologyTestDriver(grouped.reduce(lambda a, b: None if b == "x" else f"{a}+{b}", "v"))
    for ts, v in ((9, "x"), (12, "x"), (11, "y")):
        driver.pipe_input({"k": "A", "ts": ts, "v": v})
    assert [(row["window"].end, row["v"]) for row in driver.read_output()][-1] == (12, "y")
