"""Changes of a plan that go on from a state, and the losses that refuse the others."""

from __future__ import annotations

from functools import cache
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

import tidegate as tg
from sizes import SMALL
from tidegate.kernel.tuning import DEFAULT, Tuning
from tidegate.kernel.upgrade import description
from tidegate.testing import TopologyTestDriver
from tidegate.testing.layout import Tasks

UNBOUNDED = tg.BufferConfig.unbounded()
FINAL = tg.Suppressed.until_window_closes(UNBOUNDED)
NINE = tg.BufferConfig.max_records(9)
TWENTY = tg.TimeWindows.of_size_and_grace("20 ms", "5 ms")
TEN = tg.TimeWindows.of_size_and_grace("10 ms", "5 ms")

SESSIONS = tg.SessionWindows.of_inactivity_gap_and_grace("5 ms", "5 ms")


def grouped(key: str = "k") -> tg.KGroupedStream:
    return tg.stream("events", key=key, timestamp="ts").group_by_key()


def counts(windows: Any = TEN, store: str = "store", **more: Any) -> tg.KTable:
    return grouped().windowed_by(windows).agg(tg.Materialized.as_(store), n=tg.count(), **more)


def final(**more: Any) -> tg.KTable:
    return counts(**more).suppress(FINAL)


def held(limit: str = "5 ms", buffer: Any = UNBOUNDED, **more: Any) -> tg.KTable:
    return counts(**more).suppress(tg.Suppressed.until_time_limit(limit, buffer, clock="stream"))


def held_steps(how: str, limited: bool, behind: Any = None) -> tg.KTable:
    """A table with a step, a limit if it has one, and another step."""
    table = counts().map_values({how: "n"}, types={how: "long"})
    if limited:
        table = table.suppress(tg.Suppressed.until_time_limit("5 ms", UNBOUNDED, clock="stream"))
    return table if behind is None else table.map_values(behind, types={"z": "long"})


def held_final() -> tg.KTable:
    limit = tg.Suppressed.until_time_limit("50 ms", UNBOUNDED, clock="stream")
    return final(windows=SESSIONS).suppress(limit)


FRONTS: dict[str, Any] = {
    "nothing": lambda table: table,
    "a step": lambda table: table.map_values({"m": "n"}, types={"m": "long"}),
    "another name": lambda table: table.map_values({"z": "n"}, types={"z": "long"}),
    "another type": lambda table: table.map_values({"m": lambda row: str(row["n"])}, types={"m": "string"}),
    "one more column": lambda table: table.map_values({"m": "n", "z": "n"}, types={"m": "long", "z": "long"}),
    "the same column": lambda table: table.map_values({"n": "n"}, types={"n": "long"}),
    "a filter": lambda table: table.filter(pc.field("n") < 2),
    "a step and a filter": lambda table: table.filter(pc.field("n") < 2).map_values({"n": "n"}, types={"n": "long"}),
}
"""What is in front of a limit."""


ONE_FIELD = pa.struct({"a": pa.int64()})
NUMBERS, TEXTS = pa.list_(pa.int64()), pa.list_(pa.string())
TWO_FIELDS = pa.struct({"a": pa.int64(), "b": pa.int64()})


def held_parts(kind: pa.DataType) -> tg.KTable:
    """A table with a column of this type in front of a limit."""
    table = counts().map_values({"m": lambda row: None}, types={"m": kind})
    return table.suppress(tg.Suppressed.until_time_limit("50 ms", UNBOUNDED, clock="stream"))


def held_behind(front: str, strategy: Any = None, limit: str = "50 ms") -> Any:
    """A table with these steps in front of a limit, of final results or of updates."""
    table = counts() if strategy is None else counts().suppress(strategy)
    return FRONTS[front](table).suppress(tg.Suppressed.until_time_limit(limit, UNBOUNDED, clock="stream"))


def strict() -> tg.KTable:
    return counts().suppress(tg.Suppressed.until_window_closes(NINE.shut_down_when_full()))


def of_tables(history: str) -> tg.KTable:
    """A table with this history, joined with itself without one."""
    one, other = (
        tg.table("events", key="k", timestamp="ts", history=kept).map_values({name: "v"}, types={name: "long"})
        for name, kept in (("v", history), ("w", None))
    )
    return one.join(other)


def record(ts: int, k: str = "a", v: int | None = 1) -> dict[str, Any]:
    return {"k": k, "ts": ts, "v": v}


def after(table: Any, *times: int) -> TopologyTestDriver:
    driver = TopologyTestDriver(table)
    for ts in times:
        driver.pipe_input(record(ts))
    driver.read_output()
    return driver


def restarted(driver: TopologyTestDriver, table: Any) -> TopologyTestDriver:
    return TopologyTestDriver(table, state=driver.state())


def shown(driver: TopologyTestDriver, *names: str) -> list[tuple[Any, ...]]:
    return [(row["window"][0], *(row[name] for name in names)) for row in driver.read_output()]


@pytest.mark.parametrize(
    ("before", "now", "what", "loses"),
    [
        (final(), counts(TWENTY).suppress(FINAL), "windows", "other bounds"),
        (final(), counts(tg.SlidingWindows.of_time_difference_and_grace("9 ms", "5 ms")), "windows", "other bounds"),
        (final(s=tg.sum("v")), final(), "aggregation", "a column that is gone"),
        (final(s=tg.sum("v")), final(s=tg.max("v")), "aggregation", "computed in another way"),
        (held_steps("m", limited=True), counts(), "limit", "rows that wait by the old limit"),
        (held_steps("m", limited=True), held_steps("z", limited=True), "rows of the limit", "have other columns"),
        (held_behind("a filter"), held_behind("nothing"), "rows of the limit", "have other columns"),
        (held_behind("nothing"), held_behind("a filter"), "rows of the limit", "other steps"),
        (held_behind("a filter"), counts(), "limit", "rows that wait by the old limit"),
        (held_behind("the same column"), counts(), "limit", "rows that wait by the old limit"),
        (held(windows=SESSIONS), final(windows=SESSIONS), "limit", "rows that wait by the old limit"),
        (held(windows=SESSIONS), held_final(), "rows of the limit", "have other columns"),
        (held_parts(ONE_FIELD), held_parts(TWO_FIELDS), "rows of the limit", "have other columns"),
        (held_parts(TWO_FIELDS), held_parts(ONE_FIELD), "rows of the limit", "have other columns"),
        (held_parts(NUMBERS), held_parts(TEXTS), "rows of the limit", "have other columns"),
        (held(), counts(TWENTY), "windows", "other bounds"),
        (counts(), counts(store="other"), "store", "by its old name"),
        (held(buffer=NINE), held(buffer=NINE, s=tg.sum("v")), "aggregation", "what was aggregated"),
        (grouped().reduce(max, "v"), grouped().agg(n=tg.count()), "aggregation", "what was aggregated"),
        (of_tables("1 minute"), of_tables("2 minutes"), "left table", "bring back a deleted row"),
    ],
)  # fmt: skip
def test_a_change_that_cannot_go_on_is_refused(before: Any, now: Any, what: str, loses: str) -> None:
    driver = after(before, 1, 5)
    state = driver.state()
    with pytest.raises(tg.CheckpointError) as caught:
        restarted(driver, now).pipe_input(record(30))
    message = str(caught.value)
    assert f"{what}: " in message.partition("Nothing was changed")[0]
    assert f"{what}: " in message.partition("Going on would lose: ")[2]
    assert loses in message
    # A check beforehand says the same.
    upgrade = driver.check_upgrade(now)
    assert not upgrade.goes_on
    lost = "; ".join(f"{change.what}: {change.loses}" for change in upgrade.changes if change.loses)
    assert message.endswith(f"Going on would lose: {lost}.")
    # The old plan goes on, without the record that the refused plan was given.
    again = restarted(driver, before)
    assert again.state().stores == state.stores
    again.pipe_input(record(7))


@pytest.mark.parametrize("strategy", [None, FINAL], ids=["updates", "final"])
@pytest.mark.parametrize("front", FRONTS)
def test_rows_that_wait_leave_as_rows_of_the_new_plan_or_it_is_refused(front: str, strategy: Any) -> None:
    """For every pair of plans: a row that waited has the columns and types of the new plan's rows, or is refused."""
    before = TopologyTestDriver(held_behind(front, strategy))
    for one in RECORDS:
        before.pipe_input(one)
    for to, kind in [(to, kind) for to in ["no limit", *FRONTS] for kind in ("updates", "final")]:
        now = behind(to, kind)
        driver = restarted(before, now)
        if not before.check_upgrade(now).goes_on:
            with pytest.raises(tg.CheckpointError, match=r"rows of the limit|limit: "):
                driver.pipe_input(record(17))
            continue
        driver.pipe_input(record(17))
        first, types = driver.read_output(), types_of(to, kind)
        driver.pipe_input(record(90))
        driver.drain()
        rest = driver.read_output()
        rows = [*first, *rest]
        assert all(row.keys() == types.keys() for row in rows), (to, kind)
        assert all(type(row[name]) in types[name] for row in rows for name in row), (to, kind)
        windows = [row["window"] for row in (rest if strategy is None else rows)]
        assert kind == "updates" or sorted(set(windows)) == sorted(windows), (to, kind)
        assert {row["window"] for row in rows} == {(0, 10), (10, 20), (90, 100)}


RECORDS = [record(ts) for ts in (1, 2, 12, 16)]


def behind(to: str, kind: str) -> tg.KTable:
    strategy = FINAL if kind == "final" else None
    return (final() if strategy else counts()) if to == "no limit" else held_behind(to, strategy)


@cache
def types_of(to: str, kind: str) -> dict[str, set[type]]:
    """The types of each column in the rows of a plan that began with the first record."""
    driver = TopologyTestDriver(behind(to, kind))
    driver.pipe_batch([*RECORDS, record(17), record(90)])
    driver.drain()
    rows = driver.read_output()
    return {name: {type(row[name]) for row in rows} for name in rows[0]}


def limit(buffer: Any = UNBOUNDED) -> Any:
    return tg.Suppressed.until_time_limit("50 ms", buffer, clock="stream")


def table(name: str, **columns: pa.DataType) -> tg.KTable:
    types = {"k": pa.string(), "ts": pa.int64(), **columns}
    schema = {"schema": pa.schema(list(types.items()))} if columns else {}
    return tg.table(name, key="k", timestamp="ts", **schema)


def with_both(one: tg.KTable, other: tg.KTable) -> tg.KTable:
    """A join whose function gets the rows of both sides as structs."""
    both = {"x": lambda mine, others: (mine["v"] or 0) + ((others or {}).get("w") or 0)}
    return one.join(other, how="left", value_joiner=both, types={"x": "long"})


LEARNED: dict[str, tuple[tg.KTable, str, list[Any], list[Any]]] = {
    "a list of an aggregate": (grouped().windowed_by(TEN).agg(l=tg.collect_list("v")), "l", [None, 1], [[], [1]]),
    "a list": (table("events"), "v", [[], [1]], [[], [1]]),
    "a struct": (table("events"), "v", [{"a": None}, {"a": 1, "b": 2}], [{"a": None, "b": None}, {"a": 1, "b": 2}]),
    "a list in a struct in a list": (table("events"), "v", [[{"a": []}], [{"a": [1]}]], [[{"a": []}], [{"a": [1]}]]),
    "a copy of a struct": (
        table("events").map_values({"m": "v"}), "m", [{"a": None}, {"a": 1, "b": 2}],
        [{"a": None, "b": None}, {"a": 1, "b": 2}],
    ),
}  # fmt: skip
"""A table, a column of its rows, two values whose second brings a part of the type, and the two results."""


@pytest.mark.parametrize("buffer", [UNBOUNDED, NINE, tg.BufferConfig.max_bytes(9_000)], ids=["unbounded", "9", "bytes"])
@pytest.mark.parametrize("goes_on", ["in one run", "after a restart", "without the limit"])
@pytest.mark.parametrize("case", LEARNED)
def test_rows_wait_while_a_part_of_their_type_is_not_known(case: str, goes_on: str, buffer: Any) -> None:
    plan, name, values, results = LEARNED[case]
    driver = TopologyTestDriver(plan.suppress(limit(buffer)))
    driver.pipe_input({"k": "a", "ts": 1, "v": values[0]})
    now = plan if goes_on == "without the limit" else plan.suppress(limit(buffer))
    assert driver.check_upgrade(now).goes_on
    if goes_on != "in one run":
        driver = restarted(driver, now)
    driver.pipe_input({"k": "b", "ts": 2, "v": values[1]})
    driver.drain()
    assert [row[name] for row in driver.read_output()] == results


def test_rows_wait_while_the_columns_of_a_side_are_not_known() -> None:
    driver = TopologyTestDriver(with_both(table("one"), table("other")).suppress(limit()))
    driver.pipe_input({"k": "a", "ts": 1, "v": 1}, "one")
    driver.pipe_input({"k": "b", "ts": 2, "v": 2}, "one")
    driver.pipe_input({"k": "b", "ts": 3, "w": 5}, "other")
    driver.pipe_input({"k": "c", "ts": 90, "v": 3}, "one")
    assert [(row["k"], row["x"]) for row in driver.read_output()] == [("a", 1), ("b", 7)]


def test_rows_that_wait_lack_a_new_column_of_a_side() -> None:
    one = table("one", v=pa.int64())
    driver = TopologyTestDriver(with_both(one, table("other", u=pa.int64())).suppress(limit()))
    driver.pipe_input({"k": "a", "ts": 1, "v": 1}, "one")
    driver.pipe_input({"k": "a", "ts": 2, "u": 1}, "other")
    now = with_both(one, table("other", u=pa.int64(), w=pa.int64())).suppress(limit())
    assert [change.what for change in driver.check_upgrade(now).changes] == ["types"]
    driver = restarted(driver, now)
    driver.pipe_input({"k": "b", "ts": 3, "v": 1}, "one")
    driver.pipe_input({"k": "b", "ts": 4, "u": 1, "w": 5}, "other")
    driver.pipe_input({"k": "c", "ts": 90, "v": 3}, "one")
    assert [(row["k"], row["x"]) for row in driver.read_output()] == [("a", 1), ("b", 6)]


def test_other_steps_in_front_of_a_limit_go_on_if_no_row_waits() -> None:
    """The text of the refusal says how: a limit of zero lets out what waits."""
    for now in (held_behind("another type"), held_behind("nothing"), counts()):
        driver = restarted(after(held_behind("a step"), 1), held_behind("a step", limit="0 ms"))
        driver.pipe_input(record(2))
        assert shown(driver, "m") == [(0, 1), (0, 2)]
        assert driver.check_upgrade(now).goes_on
        driver = restarted(driver, now)
        driver.pipe_input(record(3))
        driver.drain()
        assert [tuple(row.values())[2:] for row in driver.read_output()] in ([("3", 3)], [(3, 3)])
    sessions = restarted(after(held(windows=SESSIONS), 1, 2), held("0 ms", windows=SESSIONS))
    sessions.pipe_input(record(3))
    assert sessions.check_upgrade(held_final()).goes_on
    sessions = restarted(sessions, held_final())
    sessions.pipe_input(record(4))
    sessions.drain()
    assert [(row["window"], row["n"]) for row in sessions.read_output()] == [((1, 4), 4)]


def test_a_limit_that_comes_back_has_forgotten_its_columns() -> None:
    driver = restarted(after(held_behind("a step"), 1), held_steps("m", limited=False))
    driver.pipe_input(record(2))
    assert shown(driver, "m") == [(0, 1), (0, 2)]
    driver = restarted(driver, held_behind("another type"))
    driver.pipe_input(record(3))
    driver.pipe_input(record(90))
    assert shown(driver, "m") == [(0, "3")]


def test_a_limit_by_another_clock_has_forgotten_the_old_clock() -> None:
    wall = tg.Suppressed.until_time_limit("0 ms", UNBOUNDED, clock="wall")
    driver = TopologyTestDriver(FRONTS["a step"](counts()).suppress(wall))
    driver.advance_wall_clock("1 day")
    driver.pipe_input(record(1))
    driver = restarted(driver, held_behind("another type"))
    driver.pipe_input(record(2))
    assert driver.read_output() == []
    driver.pipe_input(record(60))
    assert shown(driver, "m") == [(0, "2")]


def test_the_bytes_of_a_bound_forget_the_columns_of_old_steps() -> None:
    def bounded(front: str, limit: str) -> tg.KTable:
        buffer = tg.BufferConfig.max_bytes(9_000)
        return FRONTS[front](counts()).suppress(tg.Suppressed.until_time_limit(limit, buffer, clock="stream"))

    driver = after(bounded("a step", "0 ms"), 1, 2)
    driver = restarted(driver, bounded("another type", "5 ms"))
    driver.pipe_input(record(3))
    driver.pipe_input(record(9))
    assert shown(driver, "m") == [(0, "4")]


def test_final_results_that_wait_leave_first_as_updates() -> None:
    driver = restarted(after(held_behind("nothing", FINAL), 1, 16), held())
    driver.pipe_input(record(17))
    assert shown(driver, "n") == [(0, 1)]
    driver.pipe_input(record(40))
    assert shown(driver, "n") == [(10, 2)]


def test_updates_that_wait_leave_before_the_first_final_result() -> None:
    driver = after(held(), 1)
    assert [change.what for change in driver.check_upgrade(held_behind("nothing", FINAL)).changes][-1:] == [
        "rows of the limit"
    ]
    driver = restarted(driver, held_behind("nothing", FINAL))
    driver.pipe_input(record(2))
    assert shown(driver, "n") == [(0, 1)]
    driver.pipe_input(record(90))
    driver.pipe_input(record(160))
    assert shown(driver, "n") == [(0, 2)]


def test_one_of_two_outputs_gets_final_results() -> None:
    """Nothing in the identity of the plan differs: updates leave by another output."""

    def outputs(strategy: Any) -> dict[str, Any]:
        return {"raw": counts(), "slow": held_behind("nothing", strategy), "sure": final()}

    for before, now, rows in (
        (None, FINAL, [("raw", 2), ("slow", 1), ("slow", 1)]),
        (FINAL, None, [("raw", 2), ("slow", 1)]),
    ):
        driver = after(outputs(before), 1, 16)
        assert [change.what for change in driver.check_upgrade(outputs(now)).changes] == ["rows of the limit"]
        driver = restarted(driver, outputs(now))
        driver.pipe_input(record(17))
        assert [(row["output"], row["n"]) for row in driver.read_output()] == rows


def test_a_shorter_grace_lets_out_what_it_has_closed() -> None:
    wide = counts(tg.TimeWindows.of_size_and_grace("10 ms", "50 ms")).suppress(FINAL)
    driver = restarted(after(wide, 1, 12, 30), final())
    driver.pipe_input(record(14))  # [10, 20) is closed by the new grace
    assert (shown(driver, "n"), driver.drops["late"]) == ([(0, 1), (10, 1)], 1)
    driver = restarted(driver, wide)
    driver.pipe_input(record(2))
    driver.pipe_input(record(26))
    assert (shown(driver, "n"), driver.drops["late"]) == ([], 1)


LONGEST = 2**63 - 1


def lasting(kind: str, grace: int, strategy: Any = None) -> Any:
    """Windows or a join with this grace (ms)."""
    duration = f"{grace} ms"
    if kind == "join with a table":
        table = tg.table("right", key="k", timestamp="ts", history=f"{LONGEST} ms")
        return tg.stream("left", key="k", timestamp="ts").left_join(table, grace=duration)
    if kind == "join":
        left, right = (tg.stream(name, key="k", timestamp="ts", stream_time="max") for name in ("left", "right"))
        return left.left_join(right, tg.JoinWindows.of_time_difference_and_grace("10 ms", duration))
    windows: Any = {
        "tumbling": tg.TimeWindows.of_size_and_grace("10 ms", duration),
        "hopping": tg.TimeWindows.of_size_and_grace("10 ms", duration).advance_by("5 ms"),
        "large": tg.TimeWindows.of_size_and_grace("1 hour", duration).advance_by("20 minutes"),
        "sliding": tg.SlidingWindows.of_time_difference_and_grace("6 ms", duration),
        "sessions": tg.SessionWindows.of_inactivity_gap_and_grace("5 ms", duration),
    }[kind]
    return counts(windows) if strategy is None else counts(windows).suppress(strategy)


FINAL_COUNTS = {"tumbling": [4], "hopping": [4, 4], "large": [5], "sliding": [1, 2, 3, 4, 3, 2, 1], "sessions": [4]}
"""The counts of windows that are open at 40, after records at 40, 41, 42 and 43."""
KINDS_WITH_GRACE = [
    *(("updates", kind, None) for kind in ("tumbling", "hopping", "large", "sliding", "sessions")),
    *(("final", kind, FINAL) for kind in ("tumbling", "hopping", "large", "sliding", "sessions")),
    *(("rows", kind, None) for kind in ("join", "join with a table")),
]


@pytest.mark.parametrize(("rows", "kind", "strategy"), KINDS_WITH_GRACE)
def test_a_grace_with_which_closed_windows_would_never_close_is_refused(rows: str, kind: str, strategy: Any) -> None:
    """Stream time 40 has closed what closes by 40 with a grace of 5 ms: by another one what closes 40 later than it."""
    several = ["left"] if "join" in kind else []
    driver = TopologyTestDriver(lasting(kind, 5, strategy))
    for ts in (1, 40):
        driver.pipe_input(record(ts), *several)
    driver.read_output()
    too_long = lasting(kind, LONGEST - 35, strategy)
    upgrade = driver.check_upgrade(too_long)
    assert [(change.what, change.loses[:15]) for change in upgrade.changes] == [("grace", "what has closed")]
    with pytest.raises(tg.CheckpointError, match=r"would close after the last instant.*Choose a shorter grace"):
        restarted(driver, too_long).pipe_input(record(41), *several)
    driver = restarted(driver, lasting(kind, LONGEST - 36, strategy))
    for ts in (41, 42, 43):
        driver.pipe_input(record(ts), *several)
    found = [row for row in driver.read_output() if rows != "updates"]
    assert found == []
    driver.drain()
    final = [row.get("n", row["timestamp"]) for row in driver.read_output()]
    assert final == ([] if rows == "updates" else [40, 41, 42, 43] if rows == "rows" else FINAL_COUNTS[kind])


@pytest.mark.parametrize(("rows", "kind", "strategy"), KINDS_WITH_GRACE)
def test_the_longest_grace_can_become_a_short_one(rows: str, kind: str, strategy: Any) -> None:
    several = ["left"] if "join" in kind else []
    driver = TopologyTestDriver(lasting(kind, LONGEST, strategy))
    driver.pipe_input(record(0), *several)
    driver.read_output()
    driver = restarted(driver, lasting(kind, 5, strategy))
    driver.pipe_input(record(2), *several)
    driver.drain()
    assert driver.read_output()


def test_a_longer_grace_of_sliding_windows() -> None:
    def sliding(grace: str) -> tg.KTable:
        return counts(tg.SlidingWindows.of_time_difference_and_grace("4 ms", grace)).suppress(FINAL)

    driver = after(sliding("0 ms"), 10, 12, 20)
    driver = restarted(driver, sliding("30 ms"))
    for ts in (14, 18, 40, 49):
        driver.pipe_input(record(ts))
    assert driver.read_output() == []
    assert driver.drops["late"] > 0
    driver.pipe_input(record(90))
    out = {row["window"]: row["n"] for row in driver.read_output()}
    # Windows that end before 20 have closed, though 14 and 18 are in some; [16, 20] takes 18.
    assert out == {(16, 20): 2, (19, 23): 1, (36, 40): 1, (45, 49): 1}


def test_what_late_records_say_under_a_longer_grace() -> None:
    def both(grace: str) -> dict[str, Any]:
        table = counts(tg.TimeWindows.of_size_and_grace("10 ms", grace), s=tg.collect_list("v"))
        return {"final": table.suppress(FINAL), "late": table.late_records()}

    driver = TopologyTestDriver(both("5 ms"))
    driver.pipe_input(record(15))
    driver = TopologyTestDriver(both("20 ms"), state=driver.state())
    driver.pipe_input(record(9))
    (row,) = driver.read_output()
    assert (row["output"], row["window"], row["late_by"], row["stream_time"]) == ("late", (0, 10), 6, 15)


def test_a_column_is_null_in_rows_that_waited_for_a_limit() -> None:
    driver = restarted(after(held(), 1, 2), held(s=tg.sum("v")))
    assert [row["n"] for row in driver.read_state("suppress")] == [2]
    driver.pipe_input(record(8))
    driver.pipe_input(record(21))
    driver.pipe_input(record(40))
    assert shown(driver, "n", "s") == [(0, 3, None), (20, 1, 1)]


def test_a_first_limit_goes_on() -> None:
    driver = restarted(after(counts(), 1, 2), held())
    driver.pipe_input(record(3))
    assert shown(driver, "n") == []
    driver.pipe_input(record(15))
    assert shown(driver, "n") == [(0, 3)]


def test_several_changes_one_after_the_other() -> None:
    driver = restarted(after(final(), 1), final(s=tg.sum("v")))
    driver.pipe_input(record(11))
    driver = restarted(
        driver,
        grouped()
        .windowed_by(TEN)
        .agg(tg.Materialized.as_("store"), m=tg.max("v"), s=tg.sum("v"), n=tg.count())
        .suppress(FINAL),
    )
    for ts in (12, 21, 60):
        driver.pipe_input(record(ts))
    assert shown(driver, "n", "s", "m") == [(0, 1, None, None), (10, 2, 2, None), (20, 1, 1, 1)]
    assert [(row["n"], row["s"], row["m"], row["status"]) for row in driver.read_state()] == [(1, 1, 1, "open")]


def test_another_count() -> None:
    driver = restarted(after(final(), 1), final(m=tg.count()))
    for ts in (2, 11, 60):
        driver.pipe_input(record(ts))
    assert shown(driver, "n", "m") == [(0, 2, None), (10, 1, 1)]


def test_a_retention_that_changes() -> None:
    def kept(retention: str | None) -> tg.KTable:
        store = tg.Materialized.as_("kept")
        return grouped().windowed_by(TEN).agg(store.with_retention(retention) if retention else store, n=tg.count())

    driver = restarted(after(kept("20 ms"), 1, 16), kept("90 ms"))
    driver.pipe_input(record(60))
    assert [row["window"][0] for row in driver.read_state() if row["status"] == "closed"] == [0, 10]
    driver = restarted(driver, kept(None))
    driver.pipe_input(record(61))
    assert [row["status"] for row in driver.read_state()] == ["open"]
    assert all(window >= 0 for window, _ in driver.state().stores[0].log)


@pytest.mark.parametrize("strategy", [None, FINAL], ids=["updates", "final"])
@pytest.mark.parametrize(("retention", "grace"), [("1600 ms", "0 ms"), ("160 ms", "50 ms")])
def test_results_that_have_expired_stay_expired(retention: str, grace: str, strategy: Any) -> None:
    """The results of [8, 10), [10, 12) ... [16, 18) lie in one log, of which some have expired at 172."""

    def kept(retention: str, grace: str) -> tg.KTable:
        store = tg.Materialized.as_("kept").with_retention(retention)
        counted = grouped().windowed_by(tg.TimeWindows.of_size_and_grace("2 ms", grace)).agg(store, n=tg.count())
        return counted if strategy is None else counted.suppress(strategy)

    def closed(driver: TopologyTestDriver) -> list[int]:
        return [row["window"][0] for row in driver.read_state() if row["status"] == "closed"]

    driver = after(kept("160 ms", "0 ms"), 8, 10, 12, 16, 172)
    assert closed(driver) == [12, 16]
    driver = restarted(driver, kept(retention, grace))
    driver.pipe_input(record(173))
    assert closed(driver) == [12, 16]
    driver.pipe_input(record(223))
    assert closed(driver) == ([12, 16, 172] if retention == "1600 ms" else [12, 16])
    driver.pipe_input(record(224))
    assert closed(driver) == ([12, 16, 172, 222] if retention == "1600 ms" else [16, 172])


def test_what_waits_is_shown_before_the_first_batch() -> None:
    driver = restarted(
        after(final(), 1, 12), counts(tg.TimeWindows.of_size_and_grace("10 ms", "40 ms")).suppress(FINAL)
    )
    assert [waiting.leaves_at for waiting in driver.pending().waiting] == [50, 60]


def test_what_a_check_says_of_changes_that_go_on() -> None:
    driver = after(held(), 1, 5)
    state = driver.state()
    upgrade = driver.check_upgrade(held("9 ms", NINE, windows=tg.TimeWindows.of_size_and_grace("10 ms", "7 ms")))
    assert upgrade.goes_on
    assert str(upgrade) == (
        "This plan goes on from the checkpoint, with these changes:\n"
        "  events: grace: '5 milliseconds' -> '7 milliseconds'\n"
        "    goes on: windows that closed stay closed; those that are open take records 2 milliseconds longer\n"
        "  events: length of the limit: '5 milliseconds' -> '9 milliseconds'\n"
        "    goes on: what waits leaves by the new one"
    )
    assert driver.state().stores[0] == state.stores[0]
    assert str(driver.check_upgrade(held())) == "This plan goes on: it is the one that wrote the checkpoint."
    assert [change.what for change in after(final(), 1).check_upgrade(strict()).changes] == ["buffer"]


def test_what_a_check_says_of_a_change_that_is_refused() -> None:
    upgrade = str(after(final(), 1).check_upgrade(counts(TWENTY).suppress(FINAL)))
    assert upgrade == (
        "This plan cannot go on from the checkpoint:\n"
        "  events: windows: 'TimeWindows of 10 milliseconds' -> 'TimeWindows of 20 milliseconds'\n"
        "    would lose: the windows that are open have other bounds, and would never be completed\n"
        "Choices: Restart with the old plan, or give this one a new checkpointLocation, perhaps after the old one has "
        "let everything out (tg.drain)."
    )


@pytest.mark.parametrize("key", ["k", "v"])
def test_a_check_of_a_function_that_reads_whole_records(key: str) -> None:
    """The function reads the key as a value, too."""

    def total(length: str) -> tg.KTable:
        windows = tg.TimeWindows.of_size_and_grace(length, "5 ms")
        of_whole = (
            grouped(key).windowed_by(windows).aggregate(lambda: 0, lambda _, row, so_far: so_far + 1, type="long")
        )
        return of_whole.suppress(limit())

    driver = after(total("10 ms"), 1)
    assert driver.check_upgrade(total("10 ms")).changes == ()
    assert [change.what for change in driver.check_upgrade(total("20 ms")).changes] == ["windows"]


def of_records(**columns: pa.DataType) -> pa.Schema:
    return pa.schema([("k", pa.string()), ("ts", pa.int64()), *columns.items()])


@pytest.mark.parametrize(
    "columns", [("v", "w", "x"), ("w", "v"), ("v",)], ids=["one more", "another order", "one less"]
)
@pytest.mark.parametrize("windows", [None, TEN, SESSIONS], ids=["none", "time", "sessions"])
def test_a_function_of_whole_records_goes_on_with_other_columns(windows: Any, columns: tuple[str, ...]) -> None:
    """Its aggregate is stored, and no record."""

    def total(*columns: str) -> tg.KTable:
        schema = of_records(**dict.fromkeys(columns, pa.int64()))
        by_key = tg.stream("events", key="k", timestamp="ts", schema=schema).group_by_key()
        of = by_key if windows is None else by_key.windowed_by(windows)
        merger: Any = {"merger": lambda key, one, other: one + other} if windows is SESSIONS else {}
        return of.aggregate(lambda: 0, lambda key, row, so_far: so_far + row["v"] + len(row), type="long", **merger)

    driver = TopologyTestDriver(total("v", "w"))
    driver.pipe_input({"k": "a", "ts": 1, "v": 1, "w": 1})
    driver.read_output()
    (change,) = driver.check_upgrade(total(*columns)).changes
    assert (change.what, change.effect) == ("types", "the function gets records with other columns")
    driver = restarted(driver, total(*columns))
    driver.pipe_input({"k": "a", "ts": 2, **dict.fromkeys(columns, 5)})
    assert [row["aggregate"] for row in driver.read_output() if not row["deleted"]] == [1 + 4 + 5 + 2 + len(columns)]


@pytest.mark.parametrize("windows", [None, TEN, SESSIONS], ids=str)
def test_the_type_of_a_function_may_have_another_name(windows: Any) -> None:
    def total(kind: Any) -> tg.KTable:
        events = grouped() if windows is None else grouped().windowed_by(windows)
        merger = (lambda key, a, b: a + b) if windows is SESSIONS else None
        return events.aggregate(int, lambda key, row, n: n + 1, type=kind, merger=merger)

    driver = TopologyTestDriver(total("long"))
    for kind in ("bigint", pa.int64(), "LONG"):
        driver.pipe_input({"k": "a", "ts": 1})
        (change,) = driver.check_upgrade(total(kind)).changes
        assert (change.what, change.effect) == ("aggregation", "the same type by another name")
        driver = TopologyTestDriver(total(kind), state=driver.state())
    driver.pipe_input({"k": "a", "ts": 2})
    assert driver.read_output()[-1]["aggregate"] == 4
    assert not driver.check_upgrade(total("int")).goes_on
    assert driver.check_upgrade(total("LONG")).changes == ()


@pytest.mark.parametrize("now", [{"v": pa.float64()}, {"w": pa.int64()}], ids=["another type", "another column"])
def test_a_declared_schema_takes_the_place_of_the_one_before(now: dict[str, pa.DataType]) -> None:
    """The driver refuses what the check says, as Spark does: it kept the columns of the old schema."""

    def joined(**columns: pa.DataType) -> tg.KStream:
        one, other = (
            tg.stream(name, key="k", timestamp="ts", schema=of_records(**types), stream_time="max")
            for name, types in (("one", columns), ("other", {"u": pa.int64()}))
        )
        return one.join(other, tg.JoinWindows.of_time_difference_with_no_grace("10 ms"))

    driver = TopologyTestDriver(joined(v=pa.int64()))
    driver.pipe_input(record(1), "one")
    assert [change.what for change in driver.check_upgrade(joined(**now)).changes if change.loses] == ["types"]
    with pytest.raises(tg.CheckpointError, match="types: what is stored has the old types"):
        restarted(driver, joined(**now)).pipe_input({"k": "a", "ts": 2, **dict.fromkeys(now, 1)}, "one")


def test_a_check_compares_the_types_of_rows_of_another_operator() -> None:
    def sums(kind: str) -> tg.KTable:
        counted = tg.stream("events", key="k", timestamp="ts", schema=of_records(v=pa.int64())).group_by_key().count()
        rows = counted.to_stream().map_values({"m": lambda row: 1}, types={"m": kind})
        return rows.group_by("k").agg(s=tg.sum("m"))

    driver = after(sums("long"), 1)
    assert driver.check_upgrade(sums("long")).changes == ()
    upgrade = driver.check_upgrade(sums("double"))
    assert [(change.operator, change.what) for change in upgrade.changes] == [("events by k", "types")]
    with pytest.raises(tg.CheckpointError, match="types: what is stored has the old types"):
        restarted(driver, sums("double")).pipe_input(record(2))


def test_a_drained_checkpoint_takes_no_plan() -> None:
    driver = after(final(), 1)
    driver.drain()
    upgrade = driver.check_upgrade(final())
    assert not upgrade.goes_on
    assert str(upgrade) == (
        "This plan cannot go on from the checkpoint:\n"
        "  events: drain: 'done' -> 'none'\n"
        "    would lose: every record: a drained checkpoint takes none. Start the query with a new checkpointLocation, "
        "from where its input goes on"
    )
    longer = final(windows=tg.TimeWindows.of_size_and_grace("10 ms", "9 ms"))
    assert [change.what for change in driver.check_upgrade(longer).changes] == ["grace", "drain"]
    with pytest.raises(tg.CheckpointError, match="was drained"):
        restarted(driver, final()).pipe_input(record(2))


@pytest.mark.parametrize("plan", [final(), table("events").to_stream()], ids=["an operator", "none"])
def test_a_drained_driver_without_a_state_takes_no_plan(plan: Any) -> None:
    driver = TopologyTestDriver(plan)
    driver.drain()
    assert [change.what for change in driver.check_upgrade(plan).changes] == ["drain"]


@pytest.mark.parametrize("idle", [{}, {"idle_advance": "1 hour"}], ids=["never", "idle"])
@pytest.mark.parametrize("lookups", [False, True])
def test_a_checkpoint_says_whether_its_operator_wakes_by_the_wall_clock(idle: Any, lookups: bool) -> None:
    """Lookups of latest rows keep no times of an idle input; on Spark their source ticks all the same."""
    stream = tg.stream("events", key="k", timestamp="ts", **idle)
    table = stream.left_join(tg.table("users", key="k", timestamp="ts")) if lookups else stream.group_by_key().count()
    driver = TopologyTestDriver(table)
    driver.pipe_input(record(1), "events")
    what = description.of(driver.state().stores[0])
    assert what is not None
    assert what.layout.op.uses_timers == bool(idle)


def test_a_check_of_another_number_of_operators() -> None:
    table = counts().to_stream().group_by("k").agg(m=tg.count())
    upgrade = after(counts(), 1).check_upgrade(table)
    assert [(c.what, c.before, c.after) for c in upgrade.changes] == [("operators", "1", "2")]
    assert not upgrade.goes_on
    assert after(table, 1).check_upgrade(table).changes == ()
    assert TopologyTestDriver(counts()).check_upgrade(final()).changes == ()


@pytest.mark.parametrize("buffer", [UNBOUNDED, NINE, tg.BufferConfig.max_bytes(900)])
def test_what_waited_for_a_limit_leaves_first(buffer: Any) -> None:
    driver = restarted(after(held("50 ms", buffer), 13, 1, 12), counts())
    driver.pipe_input(record(14, "b"))
    assert [(row["k"], *(shown_of(row, "n"))) for row in driver.read_output()] == [
        ("a", 0, 1),
        ("a", 10, 2),
        ("b", 10, 1),
    ]
    driver.pipe_input(record(14))
    assert shown(driver, "n") == [(10, 3)]
    # The removed buffer left no rows for the new limit.
    driver = restarted(driver, held("1 ms", buffer))
    driver.pipe_input(record(30))
    driver.pipe_input(record(40))
    assert shown(driver, "n") == [(30, 1)]


def shown_of(row: dict[str, Any], *names: str) -> tuple[Any, ...]:
    return (row["window"][0], *(row[name] for name in names))


def test_what_waited_takes_the_steps_that_were_behind_the_limit() -> None:
    driver = after(held_steps("m", limited=True, behind={"z": "m"}), 1, 12)
    assert driver.check_upgrade(held_steps("m", limited=False, behind={"z": "m"})).goes_on
    assert not driver.check_upgrade(held_steps("x", limited=False, behind={"z": "x"})).goes_on
    driver = restarted(driver, held_steps("m", limited=False, behind={"z": "m"}))
    driver.pipe_input(record(13))
    assert shown(driver, "z") == [(10, 1), (10, 2)]


@pytest.mark.parametrize("tuning", [DEFAULT, SMALL], ids=["as ever", "small"])
@pytest.mark.parametrize("buffer", [UNBOUNDED, NINE], ids=["unbounded", "9"])
@pytest.mark.parametrize(
    ("before", "now", "leaves"), [("latest_update", "first_update", 70), ("first_update", "latest_update", 51)]
)
def test_what_waits_keeps_its_time_when_a_limit_counts_from_another_one(
    before: Any, now: Any, leaves: int, buffer: Any, tuning: Tuning
) -> None:
    """However many rows of the key lie in its bucket: the updates from 1 to 20 wait from 20 on, or from 1 on."""

    def plan(measured_from: Any) -> tg.KTable:
        how = tg.Suppressed.until_time_limit("50 ms", buffer, clock="stream", measured_from=measured_from)
        return grouped().count().suppress(how)

    driver = TopologyTestDriver(plan(before), tuning=tuning)
    for ts in (1, 5, 9, 12, 16, 20):
        driver.pipe_input(record(ts))
    (change,) = driver.check_upgrade(plan(now)).changes
    assert (change.what, change.effect) == ("start of the limit", "what waits keeps the time from which it waits")
    driver = TopologyTestDriver(plan(now), state=driver.state(), tuning=tuning)
    driver.pipe_input(record(leaves - 1, "b"))
    assert driver.read_output() == []
    driver.pipe_input(record(leaves, "c"))
    assert [(row["k"], row["count"]) for row in driver.read_output()] == [("a", 6)]


def test_a_limit_by_another_clock() -> None:
    wall = counts().suppress(tg.Suppressed.until_time_limit("9 ms", UNBOUNDED, clock="wall"))
    driver = restarted(after(held("50 ms"), 1, 12), wall)
    driver.pipe_input(record(13))
    assert shown(driver, "n") == [(0, 1), (10, 1)]
    driver.advance_wall_clock("9 ms")
    assert shown(driver, "n") == [(10, 2)]


def test_results_so_far_leave_first_where_the_suppression_was() -> None:
    driver = restarted(after(final(), 1, 12, 14), counts())
    assert [waiting.window for waiting in driver.pending().waiting] == []
    driver.pipe_input(record(22, "b"))
    assert [(row["k"], *shown_of(row, "n")) for row in driver.read_output()] == [
        ("a", 0, 1),
        ("a", 10, 2),
        ("b", 20, 1),
    ]
    # And the other way round: windows that are open give a final result.
    driver = restarted(driver, strict())
    driver.pipe_input(record(21, "b"))
    assert shown(driver, "n") == []
    driver.pipe_input(record(60))
    assert shown(driver, "n") == [(10, 2), (20, 2)]


def test_a_limit_and_final_results_are_both_taken_away() -> None:
    both = final().suppress(tg.Suppressed.until_time_limit("50 ms", UNBOUNDED, clock="stream"))
    driver = restarted(after(both, 1, 16), counts())
    driver.pipe_input(record(17))
    assert shown(driver, "n") == [(0, 1), (10, 1), (10, 2)]


def test_one_of_two_outputs_loses_its_limit() -> None:
    def outputs(limited: bool) -> dict[str, Any]:
        return {"raw": counts(), "slow": held("50 ms") if limited else counts()}

    driver = restarted(after(outputs(limited=True), 1, 2), outputs(limited=False))
    driver.pipe_input(record(3))
    assert [(row["output"], row["n"]) for row in driver.read_output()] == [("raw", 3), ("slow", 2), ("slow", 3)]
    for now in ({"raw": counts(), "quick": counts()}, {"quick": counts(), "raw": counts()}):
        upgrade = after(outputs(limited=True), 1).check_upgrade(now)
        assert [change.what for change in upgrade.changes if change.loses] == ["limit"]


def test_the_only_output_loses_its_limit_and_gets_another_name() -> None:
    driver = restarted(after(limited_in("slow"), 1, 2), {"quick": counts()})
    driver.pipe_input(record(3))
    assert by_output(driver) == [("quick", 0, 2), ("quick", 0, 3)]


def limited_in(name: str, *others: str) -> dict[str, Any]:
    """Outputs of one table; one of them has a limit."""
    return {each: held("50 ms") if each == name else counts() for each in (name, *others)}


def by_output(driver: TopologyTestDriver) -> list[tuple[Any, ...]]:
    return sorted((row["output"], *row["window"][:1], row["n"]) for row in driver.read_output())


def test_a_limit_that_moves_to_another_output_leaves_its_rows_where_they_were() -> None:
    driver, now = after(limited_in("slow", "raw"), 1, 2), limited_in("raw", "slow")
    (change,) = driver.check_upgrade(now).changes
    assert str(change) == "limit: 'slow: by stream time' -> 'raw: by stream time'"
    assert change.effect == "what waited leaves first; rows wait by the new limit from then on"
    driver = restarted(driver, now)
    driver.pipe_input(record(100))
    assert by_output(driver) == [("slow", 0, 2), ("slow", 100, 1)]
    driver.drain()
    assert by_output(driver) == [("raw", 100, 1)]


def test_a_limit_of_a_new_output_is_not_that_of_an_output_that_stays() -> None:
    driver, now = after(limited_in("slow", "raw"), 1, 2), limited_in("quick", "slow")
    (change,) = driver.check_upgrade(now).changes
    assert str(change) == "limit: 'slow: by stream time' -> 'quick: by stream time'"
    driver = restarted(driver, now)
    driver.pipe_input(record(100))
    assert by_output(driver) == [("slow", 0, 2), ("slow", 100, 1)]
    driver.drain()
    assert by_output(driver) == [("quick", 100, 1)]


def test_a_limit_follows_its_output_to_another_name() -> None:
    driver, now = after(limited_in("slow", "raw"), 1, 2), limited_in("late", "raw")
    assert driver.check_upgrade(now).changes == ()
    driver = restarted(driver, now)
    driver.pipe_input(record(100))
    assert by_output(driver) == [("late", 0, 2), ("raw", 100, 1)]


def test_one_of_several_outputs_changes_from_final_results_to_updates() -> None:
    """The window [10, 20) gets no record any more: its result so far leaves by the changed output, and by no other."""
    driver, now = after({"a": final(), "b": counts()}, 1, 12, 16), {"b": counts(), "a": counts(), "c": counts()}
    (change,) = driver.check_upgrade(now).changes
    assert str(change) == "emits of a: 'final' -> 'updates'"
    assert change.effect == "results so far of the windows that are open leave first, as updates"
    driver = restarted(driver, now)
    driver.pipe_input(record(23))
    assert by_output(driver) == [("a", 10, 2), ("a", 20, 1), ("b", 20, 1), ("c", 20, 1)]
    # The other way round nothing leaves first, and what was changed before is forgotten.
    driver, now = restarted(driver, {"a": final(), "b": counts()}), {"a": final(), "b": final()}
    (change,) = [one for one in driver.check_upgrade({"a": final(), "b": counts()}).changes if "emits" in one.what]
    assert change.effect.startswith("windows that are open give a final result when they close")
    driver.pipe_input(record(24))
    assert by_output(driver) == [("b", 20, 2)]
    assert driver.check_upgrade({"a": final(), "b": counts()}).changes == ()
    driver = restarted(driver, now)
    driver.drain()
    assert by_output(driver) == [("a", 10, 2), ("a", 20, 2), ("b", 10, 2), ("b", 20, 2)]


def test_no_tombstone_follows_the_update_of_a_session_that_grows_behind_final_results() -> None:
    driver = TopologyTestDriver(counts(SESSIONS))
    driver.pipe_input(record(1))
    assert [row["window"] for row in driver.read_output()] == [(1, 1)]
    driver = restarted(driver, final(windows=SESSIONS))
    driver.pipe_input(record(4))
    driver.drain()
    assert [(row["window"], row["n"]) for row in driver.read_output()] == [((1, 4), 2)]


def test_one_of_two_outputs_with_final_results_changes_to_updates() -> None:
    driver = restarted(after({"a": final(), "b": final()}, 1, 12), {"a": counts(), "b": final()})
    driver.pipe_input(record(23, "b"))
    assert by_output(driver) == [("a", 0, 1), ("a", 10, 1), ("a", 20, 1), ("b", 0, 1)]


def test_results_so_far_wait_for_a_new_limit_by_the_time_of_all_records() -> None:
    """Whatever the tasks: every task knows that a record at 90 came, though a slow partition holds stream time back."""

    def plan(*, of_updates: bool) -> tg.KTable:
        schema = pa.schema([("k", pa.string()), ("ts", pa.int64()), ("p", pa.int32()), ("o", pa.int64())])
        order: Any = {"partition": "p", "offset": "o", "stream_time": "min_partition", "schema": schema}
        stream = tg.stream("events", key="k", timestamp="ts", **order).group_by_key()
        counted = stream.windowed_by(tg.TimeWindows.of_size_and_grace("10 ms", "90 ms")).count()
        held = tg.Suppressed.until_time_limit("50 ms", UNBOUNDED, clock="stream")
        return counted.suppress(held if of_updates else FINAL)

    def at(key: str, ts: int, partition: int, offset: int) -> dict[str, Any]:
        return {"k": key, "ts": ts, "p": partition, "o": offset}

    first = [at("a", 90, 0, 0), *(at(f"c{n}", 30, 1, n) for n in range(8)), at("d", 60, 1, 8)]
    found = []
    for tasks in (1, 4):
        before = Tasks(plan(of_updates=False).node, tasks)
        assert before.batch([(None, first)]) == []
        now = Tasks(plan(of_updates=True).node, tasks, before)
        found.append(sorted(row["k"] for row in now.batch([(None, [at("a", 61, 1, 9)])])))
    assert found == [[f"c{n}" for n in range(8)]] * 2


@pytest.mark.parametrize("tasks", [0, 3], ids=["driver", "3 tasks"])
@pytest.mark.parametrize("clock", ["none", "wall"])
def test_a_new_limit_by_stream_time_begins_at_the_newest_record(clock: str, tasks: int) -> None:
    """A record at 100 has come. So an update at 30 is due at once, however the records are cut; 61 waits for 70."""
    schema = pa.schema([("k", pa.string()), ("ts", pa.int64()), ("p", pa.int32()), ("o", pa.int64())])
    stream = tg.stream("events", key="k", timestamp="ts", partition="p", offset="o", schema=schema).group_by_key()
    store = tg.Materialized.as_("store").with_caching_disabled()
    plain = stream.windowed_by(tg.TimeWindows.of_size_and_grace("1 s", "1 s")).count(materialized=store)
    wall = tg.Suppressed.until_time_limit("0 ms", UNBOUNDED, clock="wall")
    new = plain.suppress(tg.Suppressed.until_time_limit("50 ms", UNBOUNDED, clock="stream"))
    came = [("z", 100), ("a", 30), ("a", 61), ("a", 70)]
    first, *others = [{"k": k, "ts": ts, "p": 0, "o": o} for o, (k, ts) in enumerate(came)]
    found = []
    for batches in ([others], [[one] for one in others]):
        before = plain if clock == "none" else plain.suppress(wall)
        if tasks:
            plan = Tasks(before.node, tasks)
            plan.batch([(None, [first])], 10**6)
            plan = Tasks(new.node, tasks, plan)
            rows = [row for batch in batches for row in plan.batch([(None, batch)], 10**6)]
            rows += Tasks(new.node, tasks, plan, drains=True).drain()
        else:
            driver = TopologyTestDriver(before, initial_wall_clock_time=10**6)
            driver.pipe_input(first)
            driver.read_output()
            driver = restarted(driver, new)
            for batch in batches:
                driver.pipe_batch(batch)
            driver.drain()
            rows = driver.read_output()
        found.append([(row["k"], row["count"], row["timestamp"]) for row in rows])
    assert found == [[("a", 1, 30), ("a", 3, 70)]] * 2


@pytest.mark.parametrize("now", [{"raw": counts()}, limited_in("raw")], ids=["no limit", "a limit"])
def test_rows_of_an_output_that_is_gone_do_not_leave_by_another_one(now: dict[str, Any]) -> None:
    """The other output has had them."""
    driver = after(limited_in("slow", "raw"), 1, 2)
    upgrade = driver.check_upgrade(now)
    assert [change.what for change in upgrade.changes if change.loses] == ["limit"]
    with pytest.raises(tg.CheckpointError, match="the rows that wait by the old limit"):
        restarted(driver, now).pipe_input(record(100))


def test_a_table_that_is_grouped_anew_gets_what_waited() -> None:
    def groups(limited: bool) -> tg.KTable:
        moves = tg.table("moves", key="k", timestamp="ts")
        if limited:
            moves = moves.suppress(tg.Suppressed.until_time_limit("50 ms", UNBOUNDED, clock="stream"))
        return moves.group_by("v").agg(n=tg.count())

    driver = TopologyTestDriver(groups(limited=True))
    driver.pipe_input(record(1, "a", 7))
    driver.pipe_input(record(2, "b", 7))
    assert driver.read_output() == []
    driver = restarted(driver, groups(limited=False))
    driver.pipe_input(record(3, "c", 8))
    counted = {row["v"]: row["n"] for row in driver.read_output()}
    assert counted == {7: 2, 8: 1}


def grouped_anew(columns: dict[str, Any], types: dict[str, str], *, whole: bool = False) -> tg.KTable:
    """Rows of a table after a step, grouped by `v`; `whole`: by a function that reads whole rows."""
    schema = pa.schema([("k", pa.string()), ("ts", pa.int64()), ("v", pa.int64())])
    moves = tg.table("moves", key="k", timestamp="ts", schema=schema).map_values({"v": "v", **columns}, types=types)
    if not whole:
        return moves.group_by("v").agg(n=tg.count())
    one_more, one_less = (lambda key, row, n, by=by: n + by for by in (1, -1))
    return moves.group_by("v").aggregate(lambda: 0, one_more, one_less, type="long", name="n")


def test_a_column_that_no_group_reads_may_get_another_type() -> None:
    driver = TopologyTestDriver(grouped_anew({"x": lambda row: 1}, {"x": "long"}))
    for key in ("a", "b"):
        driver.pipe_input(record(1, key, 7))
    for columns, types in (
        ({"x": lambda row: "1"}, {"x": "string"}),
        ({}, {}),
        ({"x": lambda row: [1]}, {"x": "array<long>"}),
    ):
        driver.read_output()
        now = grouped_anew(columns, types)
        assert driver.check_upgrade(now).goes_on
        driver = restarted(driver, now)
        driver.pipe_batch([record(2, "a", 8), record(3, "a", 7)])
    assert {row["v"]: row["n"] for row in driver.read_output()} == {7: 2, 8: 0}


def test_a_column_of_whole_rows_that_leave_their_groups_keeps_its_type() -> None:
    driver = TopologyTestDriver(grouped_anew({"x": lambda row: 1}, {"x": "long"}, whole=True))
    driver.pipe_input(record(1, "a", 7))
    now = grouped_anew({"x": lambda row: "1"}, {"x": "string"}, whole=True)
    with pytest.raises(
        tg.CheckpointError, match=r"columns of other types than the rows of this plan.*Nothing was changed"
    ):
        restarted(driver, now).pipe_input(record(2, "a", 8))


def test_the_first_aggregate_that_depends_on_order() -> None:
    driver = restarted(after(final(), 1, 12), final(s=tg.last("v")))
    for ts, v in ((13, 5), (21, 6), (20, 7), (60, 8)):
        driver.pipe_input(record(ts, v=v))
    assert shown(driver, "n", "s") == [(0, 1, None), (10, 2, None), (20, 2, 7)]


@pytest.mark.parametrize("kind", [pa.float64(), pa.int64()], ids=str)
def test_the_same_aggregates_in_another_order_in_front_of_a_bound(kind: pa.DataType) -> None:
    """The window [17, 23] has the prior value of [14, 20]: n=1, s=2. The row that is replaced has n=2, s=1. It is
    another value, so its bytes count too.
    """
    schema = pa.schema([("k", pa.string()), ("ts", pa.int64()), ("v", kind)])
    stream = tg.stream("events", key="k", timestamp="ts", schema=schema).group_by_key()
    windowed = stream.windowed_by(tg.SlidingWindows.of_time_difference_and_grace("6 ms", "50 ms"))
    store, bound = tg.Materialized.as_("store"), tg.BufferConfig.max_bytes(999).shut_down_when_full()

    def plan(**aggregates: Any) -> tg.KTable:
        return windowed.agg(store, **aggregates).suppress(tg.Suppressed.until_window_closes(bound))

    before, now = plan(n=tg.count(), s=tg.sum("v")), plan(s=tg.sum("v"), n=tg.count())
    driver = TopologyTestDriver(before)
    for ts, v in ((20, 2), (23, -1)):
        driver.pipe_input(record(ts, v=v))
    found = []
    for table in (before, now):
        driver_of_table = restarted(driver, table)
        driver_of_table.pipe_input(record(23, v=4))
        size = driver_of_table.metrics()["suppression_buffer_size_current"]
        driver_of_table.drain()
        found.append((size, driver_of_table.read_output()))
    assert found[0] == found[1]


BEHIND_JOINS: dict[str, Any] = {
    "tumbling": (tg.TimeWindows.of_size_and_grace("10 ms", "50 ms"), (90, 100)),
    "hopping": (tg.TimeWindows.of_size_and_grace("10 ms", "50 ms").advance_by("5 ms"), (95, 105)),
    "sliding": (tg.SlidingWindows.of_time_difference_and_grace("6 ms", "50 ms"), (92, 98)),
    "sessions": (tg.SessionWindows.of_inactivity_gap_and_grace("5 ms", "50 ms"), (95, 98)),
}
"""Windows, and the last one that has a record at 95 and those at 97 and 98."""


@pytest.mark.parametrize("strategy", [None, FINAL], ids=["updates", "final"])
@pytest.mark.parametrize("kind", BEHIND_JOINS)
@pytest.mark.parametrize("merged", [False, True])
def test_a_new_aggregate_behind_a_join_is_null_where_it_would_be_partial(
    kind: str, strategy: Any, merged: bool
) -> None:
    """The join follows its slower side, which is at 11: its row at 95 is ahead of stream time."""
    windows, both = BEHIND_JOINS[kind]

    def table(**more: Any) -> tg.KTable:
        order: Any = {"partition": "partition", "offset": "ts", "stream_time": "min_partition", "idle_after": "1 day"}
        left, right, others = (tg.stream(n, key="k", timestamp="ts", **order) for n in ("left", "right", "others"))
        rows = left.join(right, tg.JoinWindows.of_time_difference_and_grace("200 ms", "5 ms"))
        grouped = (rows.merge(others) if merged else rows).group_by_key().windowed_by(windows)
        counted = grouped.agg(tg.Materialized.as_("store"), n=tg.count(), **more)
        return counted if strategy is None else counted.suppress(strategy)

    driver = TopologyTestDriver(table())
    driver.pipe_input({"k": "a", "partition": 0, "ts": 11, "y": 1}, "right")
    driver.pipe_input({"k": "a", "partition": 0, "ts": 95, "v": 1}, "left")
    driver.read_output()
    # The second change comes upon columns that have moved.
    for ts, more in ((97, {"s": tg.sum("v")}), (98, {"m": tg.max("v"), "s": tg.sum("v")})):
        driver = restarted(driver, table(**more))
        driver.pipe_input({"k": "a", "partition": 0, "ts": ts, "v": 7}, "left")
    driver.pipe_input({"k": "a", "partition": 0, "ts": 120, "v": 5}, "left")
    driver.drain()
    rows = {row["window"]: (row["n"], row["s"], row["m"]) for row in driver.read_output() if "m" in row}
    assert rows[both] == (3, None, None)
    assert [found for window, found in rows.items() if window[0] > 98] == [(1, 5, 5)] * (2 if kind == "hopping" else 1)


@pytest.mark.parametrize("join", [False, True])
@pytest.mark.parametrize("ordered", [False, True])
def test_records_in_another_order_are_refused_as_on_spark(join: bool, ordered: bool) -> None:
    """The driver numbers records that have no order, and remembers that the plan gave none."""

    def plan(ordered: bool) -> Any:
        order = {"partition": "p", "offset": "o"} if ordered else {}
        one, other = (tg.stream(name, key="k", timestamp="ts", stream_time="max", **order) for name in ("one", "other"))
        if join:
            return one.join(other, tg.JoinWindows.of_time_difference_with_no_grace("10 ms"))
        return one.group_by_key().windowed_by(TEN).count()

    driver = TopologyTestDriver(plan(ordered))
    assert driver.check_upgrade(plan(not ordered)).goes_on  # nothing is stored yet
    driver.pipe_input({"k": "a", "ts": 1, "p": 0, "o": 0, "v": 1}, "one")
    (change,) = driver.check_upgrade(plan(not ordered)).changes
    words = "partition and offset" if ordered else "timestamps"
    assert (change.what, change.before) == ("order", ", ".join([words] * (2 if join else 1)))
    with pytest.raises(tg.CheckpointError, match="order: records would be taken in another order"):
        TopologyTestDriver(plan(not ordered), state=driver.state())
    assert driver.check_upgrade(plan(ordered)).changes == ()


def test_a_plan_is_refused_in_its_first_batch_though_no_row_comes_to_the_operator_that_changed() -> None:
    """Otherwise it ran until a row came there: then operators in front had gone on, perhaps with no way back."""

    def summed(how: Any, grace: str = "0 ms") -> Any:
        windows = tg.TimeWindows.of_size_and_grace("10 ms", grace)
        events = tg.stream("events", key="k", timestamp="ts")
        counts = events.group_by_key().windowed_by(windows).agg(n=tg.count())
        closing = tg.Suppressed.until_window_closes(tg.BufferConfig.unbounded())
        return counts.suppress(closing).to_stream().group_by_key().agg(x=how).node

    def records(*times: int) -> list[Any]:
        return [(None, [{"k": "a", "ts": ts} for ts in times])]

    def tasks(plan: Any, before: Tasks | None = None) -> Tasks:
        run = Tasks(plan, 2, before)
        run.learn([{"k": "a", "ts": 0}])
        return run

    run = tasks(summed(tg.sum("n")))
    assert [row["x"] for row in run.batch(records(1, 2, 15))] == [2]
    with pytest.raises(tg.CheckpointError, match=r"x=sum\(n\).*x=max\(n\)"):
        tasks(summed(tg.max("n"), "1 ms"), run).batch(records(16))  # no window closes
    run = tasks(summed(tg.sum("n"), "1 ms"), run)
    assert run.batch(records(16)) == []
    assert [row["x"] for row in run.batch(records(25))] == [4]
