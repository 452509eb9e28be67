"""Cogroup in the driver: several grouped streams with other columns, an aggregator each, one table (SEMANTICS 18)."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

import tidegate as tg
from tidegate.testing import TopologyTestDriver

TENS = tg.TimeWindows.of_size_with_no_grace("10 ms")


def stream(name: str, **more: Any) -> tg.KStream:
    return tg.stream(name, key="k", timestamp="ts", **({"stream_time": "max"} | more))


def clicked(key: str, row: dict[str, Any], aggregate: str) -> str:
    return f"{aggregate}<{row['click']}"


def viewed(key: str, row: dict[str, Any], aggregate: str) -> str:
    return f"{aggregate}>{row['view']}"


def cogrouped(**more: Any) -> tg.CogroupedKStream:
    views = stream("views", **more).group_by_key()
    return stream("clicks", **more).group_by_key().cogroup(clicked).cogroup(views, viewed)


def click(key: Any, ts: int, value: Any) -> tuple[dict[str, Any], str]:
    return {"k": key, "ts": ts, "click": value}, "clicks"


def view(key: Any, ts: int, value: Any) -> tuple[dict[str, Any], str]:
    return {"k": key, "ts": ts, "view": value}, "views"


LATE = [click("A", 5, "a"), view("A", 6, "x"), click("A", 100, "b"), view("A", 7, "y")]


def aggregates(driver: TopologyTestDriver, records: Any) -> list[str]:
    for record, name in records:
        driver.pipe_input(record, name)
    return [row["aggregate"] for row in driver.read_output()]


def test_updates_of_windows_with_one_stream_time() -> None:
    driver = TopologyTestDriver(cogrouped().windowed_by(TENS).aggregate(lambda: "0", type="string"))
    assert aggregates(driver, LATE) == ["0<a", "0<a>x", "0<b"]
    assert driver.drops["late"] == 1


def test_a_final_row_is_final() -> None:
    windowed = cogrouped().windowed_by(TENS)
    on_close = windowed.emit_strategy(tg.EmitStrategy.on_window_close()).aggregate(lambda: "0", type="string")
    unbounded = tg.BufferConfig.unbounded()
    closes = tg.Suppressed.until_window_closes(unbounded)
    for table in (on_close, windowed.aggregate(lambda: "0", type="string").suppress(closes)):
        assert aggregates(TopologyTestDriver(table), LATE) == ["0<a>x"]


def test_without_windows_a_record_without_key_or_value_is_skipped() -> None:
    driver = TopologyTestDriver(cogrouped().aggregate(lambda: "0", type="string"))
    odd = [click(None, 1, "n"), view("A", 2, None), click("B", 3, "b")]
    assert aggregates(driver, [*LATE, *odd]) == ["0<a", "0<a>x", "0<a>x<b", "0<a>x<b>y", "0<b"]
    assert {reason: n for reason, n in driver.drops.items() if n} == {"null_key": 1, "null_value": 1}


def test_a_record_has_the_columns_of_its_own_stream() -> None:
    seen: list[dict[str, Any]] = []

    def keep(key: str, row: dict[str, Any], count: int) -> int:
        seen.append(dict(row))
        return count + 1

    views = stream("views").map_values(lambda row: {"w": row["view"] * 2}, types={"w": "long"})
    clicks = stream("clicks").filter(lambda row: row["click"] != "no")
    table = clicks.group_by_key().cogroup(keep).cogroup(views.group_by_key(), keep).aggregate(int, type="long")
    driver = TopologyTestDriver(table)
    driver.pipe_batch([click("A", 1, "no")[0], click("A", 1, "a")[0]], "clicks")
    driver.pipe_batch([view("A", 2, 4)[0]], "views")
    assert seen == [{"k": "A", "ts": 1, "click": "a"}, {"k": "A", "ts": 2, "w": 8}]
    assert [row["aggregate"] for row in driver.read_output()] == [1, 2]


def test_columns_of_one_name_may_have_other_types() -> None:
    def add(key: str, row: dict[str, Any], found: list[str]) -> list[str]:
        return [*found, f"{row['v']!r} {row.get('more')!r}"]

    one, other = (stream(name).group_by_key() for name in ("one", "other"))
    driver = TopologyTestDriver(one.cogroup(add).cogroup(other, add).aggregate(list, type="array<string>"))
    driver.pipe_input({"k": "A", "ts": 1, "v": 1}, "one")
    driver.pipe_input({"k": "A", "ts": 1, "v": ["x"]}, "other")
    driver.pipe_input({"k": "A", "ts": 1, "v": 2, "more": {"a": 1.5}}, "one")
    assert driver.read_output()[-1]["aggregate"] == ["1 None", "['x'] None", "2 {'a': 1.5}"]


def test_a_function_may_change_the_record_it_is_given() -> None:
    def take(key: str, row: dict[str, Any], found: list[int]) -> list[int]:
        found.append(row["v"].pop())
        row.clear()
        return found

    windows = tg.TimeWindows.of_size_with_no_grace("10 ms").advance_by("5 ms")
    one, other = (stream(name).group_by_key() for name in ("one", "other"))
    table = one.cogroup(take).cogroup(other, take).windowed_by(windows).aggregate(list, type="array<long>")
    driver = TopologyTestDriver(table)
    driver.pipe_input({"k": "A", "ts": 5, "v": [1, 2]}, "other")
    assert [row["aggregate"] for row in driver.read_output()] == [[2], [2]]


def test_sessions_are_merged() -> None:
    windows = tg.SessionWindows.of_inactivity_gap_and_grace("5 ms", "20 ms")
    windowed = cogrouped().windowed_by(windows)
    with pytest.raises(tg.DefinitionError, match="`merger` is missing"):
        windowed.aggregate(lambda: "0", type="string")
    table = windowed.aggregate(lambda: "0", type="string", merger=lambda key, a, b: a + b.removeprefix("0"))
    driver = TopologyTestDriver(table.suppress(tg.Suppressed.until_window_closes(tg.BufferConfig.unbounded())))
    assert aggregates(driver, [click("A", 1, "a"), view("A", 9, "x"), click("A", 5, "b"), view("B", 50, "y")]) == [
        "0<a>x<b"
    ]


def test_one_stream_may_be_in_it_twice() -> None:
    grouped = stream("clicks").group_by_key()
    table = grouped.cogroup(clicked).cogroup(grouped, clicked).aggregate(lambda: "0", type="string")
    assert aggregates(TopologyTestDriver(table), [click("A", 1, "a")])[-1] == "0<a<a"


def test_a_restart_goes_on() -> None:
    table = cogrouped().windowed_by(TENS).aggregate(lambda: "0", type="string")
    driver = TopologyTestDriver(table)
    assert aggregates(driver, LATE[:1]) == ["0<a"]
    assert aggregates(TopologyTestDriver(table, state=driver.state()), LATE[1:]) == ["0<a>x", "0<b"]


def test_a_restart_with_other_columns_goes_on() -> None:
    columns = {"k": pa.string(), "ts": pa.int64()}

    def table(**more: Any) -> tg.KTable:
        clicks = stream("clicks", schema=pa.schema(columns | {"click": pa.string()} | more)).group_by_key()
        views = stream("views", schema=pa.schema(columns | {"view": pa.string()})).group_by_key()
        return clicks.cogroup(clicked).cogroup(views, viewed).aggregate(lambda: "0", type="string")

    driver = TopologyTestDriver(table())
    assert aggregates(driver, [click("A", 1, "a")]) == ["0<a"]
    again = TopologyTestDriver(table(more=pa.map_(pa.string(), pa.int64())), state=driver.state())
    again.pipe_input({"k": "A", "ts": 2, "click": "b", "more": [("x", 1)]}, "clicks")
    assert [row["aggregate"] for row in again.read_output()] == ["0<a<b"]


def test_an_aggregator_that_raises_is_shown_with_the_record_of_its_stream() -> None:
    table = cogrouped().aggregate(lambda: "0", type="string")
    driver = TopologyTestDriver(table)
    with pytest.raises(
        tg.AggregationError, match=r"cogroup\(clicked, viewed\).*KeyError.*record \{'k': 'A', 'ts': 1, 'other': 1\}"
    ):
        driver.pipe_input({"k": "A", "ts": 1, "other": 1}, "clicks")


def test_declared_schemas() -> None:
    columns = {"k": pa.string(), "ts": pa.int64()}
    clicks = stream("clicks", schema=pa.schema(columns | {"click": pa.string()})).group_by_key()
    views = stream("views", schema=pa.schema(columns | {"view": pa.int32()})).group_by_key()
    table = clicks.cogroup(clicked).cogroup(views, viewed).aggregate(lambda: "0", type="string")
    assert aggregates(TopologyTestDriver(table), [view("A", 1, 7), click("A", 1, "a")]) == ["0>7", "0>7<a"]


def test_what_is_refused() -> None:
    grouped = stream("clicks").group_by_key()
    with pytest.raises(tg.DefinitionTypeError, match="`aggregator` is 3"):
        grouped.cogroup(3)  # type: ignore[arg-type]
    with pytest.raises(tg.DefinitionTypeError, match="Use a grouped stream"):
        grouped.cogroup(clicked).cogroup(stream("views"), viewed)  # type: ignore[arg-type]
    with pytest.raises(tg.DefinitionError, match="grouped by k and the other by v"):
        grouped.cogroup(clicked).cogroup(stream("views").group_by("v"), viewed)
    with pytest.raises(tg.DefinitionError, match=r"cogroup: the timestamp of 'clicks' is 'ts'"):
        grouped.cogroup(clicked).cogroup(tg.stream("views", key="k", timestamp="at").group_by_key(), viewed)
    with pytest.raises(tg.DefinitionError, match="cogroup: one stream is of a table's changes"):
        grouped.cogroup(clicked).cogroup(grouped.count().to_stream().group_by_key(), viewed)
    with pytest.raises(tg.DefinitionError, match=r"call windowed_by\(...\) first"):
        grouped.cogroup(clicked).emit_strategy(tg.EmitStrategy.on_window_close())
    with pytest.raises(tg.DefinitionTypeError, match="not a kind of window"):
        grouped.cogroup(clicked).windowed_by(10)  # type: ignore[arg-type]


@pytest.mark.parametrize("name", ["aggregate", "value"])
def test_late_records_of_a_cogroup_are_no_rows(name: str) -> None:
    table = cogrouped().windowed_by(TENS).aggregate(lambda: "0", type="string", name=name)
    for each in (table, table.filter(lambda row: True)):
        with pytest.raises(tg.DefinitionError, match=r"late records of a cogroup .*They are counted in `late`"):
            each.late_records()
    counts = table.to_stream().group_by_key().count()
    assert repr(counts.late_records()).startswith("<KLateRecords late records of count")
