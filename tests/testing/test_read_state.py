"""Rows of a store: open windows, closed ones within the retention, and entries of a buffer."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given
from hypothesis import strategies as st

import tidegate as tg
from tidegate.kernel.state.state import State
from tidegate.kernel.tuning import Tuning
from tidegate.testing import TopologyTestDriver, Window

FINAL = tg.Suppressed.until_window_closes(tg.BufferConfig.unbounded())
LIMIT = tg.Suppressed.until_time_limit("6 ms", tg.BufferConfig.unbounded(), clock="stream").with_name("held")
RETENTION = 20
FEW = Tuning(bucket_segments=4)
SCHEMA = pa.schema([("k", pa.string()), ("ts", pa.int64()), ("x", pa.int64())])

# windows, and how long after its end a window closes (SEMANTICS 1.2: a tick later if the end belongs to it)
WINDOWS: dict[str, tuple[Any, int]] = {
    "tumbling": (tg.TimeWindows.of_size_and_grace("10 ms", "5 ms"), 5),
    "hopping": (tg.TimeWindows.of_size_and_grace("10 ms", "3 ms").advance_by("4 ms"), 3),
    "sessions": (tg.SessionWindows.of_inactivity_gap_and_grace("5 ms", "3 ms"), 5 + 3 + 1),
    "sliding": (tg.SlidingWindows.of_time_difference_and_grace("5 ms", "3 ms"), 3 + 1),
    "batch": (tg.BatchWindows.of_size("7 ms"), 0),
}
RECORDS = st.lists(
    st.fixed_dictionaries({"k": st.sampled_from("ab"), "ts": st.integers(0, 80), "x": st.integers(0, 9)}), max_size=20
)


def table(windows: Any, how: str = "built_in", retention: str | None = f"{RETENTION} ms") -> tg.KTable:
    store = tg.Materialized.as_("counts")
    store = store.with_retention(retention) if retention else store
    windowed = tg.stream("events", key="k", timestamp="ts", schema=SCHEMA).group_by_key().windowed_by(windows)
    if how == "built_in":
        return windowed.agg(store, n=tg.count(), total=tg.sum("x"))
    if how == "ordered":
        return windowed.agg(store, n=tg.count(), xs=tg.collect_list("x"))
    return windowed.aggregate(
        lambda: "0",
        lambda key, row, told: f"{told}+{row['x']}",
        type="string",
        merger=lambda key, a, b: f"{a}|{b}",
        materialized=store,
    )


def placed(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return sorted(rows, key=lambda row: (row["window"], row["k"]))


def plain(rows: list[dict[str, Any]], *names: str) -> list[dict[str, Any]]:
    return placed([{name: value for name, value in row.items() if name not in names} for row in rows])


@pytest.mark.parametrize("how", ["built_in", "ordered", "function"])
@pytest.mark.parametrize("emits", ["final", "updates", "both"])
@pytest.mark.parametrize("kind", WINDOWS)
@given(records=RECORDS, data=st.data())
def test_a_store_has_what_is_open_and_what_closed_within_retention(
    kind: str, emits: str, how: str, records: list[Any], data: st.DataObject
) -> None:
    """Open windows are those that a close would emit; closed ones were emitted less than the retention ago."""
    windows, wait = WINDOWS[kind]
    base = table(windows, how)
    final = base.suppress(FINAL)
    topology: Any = {"final": final, "updates": base, "both": {"raw": base, "final": final}}[emits]
    driver, reference = TopologyTestDriver(topology), TopologyTestDriver(table(windows, how, None).suppress(FINAL))
    told: list[Any] = []
    rest, now = records, -1
    while rest:
        size = data.draw(st.integers(1, 5), label="batch")
        batch, rest = rest[:size], rest[size:]
        driver.pipe_batch(batch)
        reference.pipe_batch(batch)
        now = max(now, *(record["ts"] for record in batch))
        told += reference.read_output()
        if data.draw(st.booleans(), label="restart"):
            driver = TopologyTestDriver(topology, state=driver.state())
        rows = driver.read_state("counts")
        closing = TopologyTestDriver(table(windows, how, None).suppress(FINAL), state=reference.state())
        closing.pipe_input({"k": "z", "ts": 10_000, "x": 0})
        assert plain([r for r in rows if r["status"] == "open"], "status") == placed(closing.read_output())
        kept = [row for row in told if row["window"].end + wait + RETENTION > now]
        assert plain([r for r in rows if r["status"] == "closed"], "status") == placed(kept)
        assert driver.read_state() == rows


@pytest.mark.parametrize("kind", WINDOWS)
def test_nothing_is_kept_for_longer(kind: str) -> None:
    """When the retention of all windows is over, no log of them is left in the store."""
    windows, _ = WINDOWS[kind]
    driver = TopologyTestDriver(table(windows).suppress(FINAL))
    for ts in range(0, 60, 12):
        driver.pipe_input({"k": "a", "ts": ts, "x": 1})
    state = State.open(driver.state().stores[0])
    assert state is not None
    assert state.closed
    assert any(name < 0 for name, _ in driver.state().stores[0].log)
    driver.pipe_input({"k": "a", "ts": 10_000, "x": 1})
    assert {row["status"] for row in driver.read_state()} == {"open"}
    assert not any(name < 0 for name, _ in driver.state().stores[0].log)


def test_results_of_many_batches_are_kept_in_few_segments() -> None:
    """With a segment for each batch a retention of a month would have millions."""
    driver = TopologyTestDriver(table(WINDOWS["tumbling"][0], retention="1 day").suppress(FINAL), tuning=FEW)
    for n in range(200):
        driver.pipe_input({"k": "a", "ts": 10 * n, "x": n})
    assert [row["total"] for row in driver.read_state() if row["status"] == "closed"] == list(range(198))
    assert sum(name < 0 for name, _ in driver.state().stores[0].log) <= 4 * 4


def test_without_retention_nothing_closed_is_kept() -> None:
    driver = TopologyTestDriver(table(WINDOWS["tumbling"][0], retention=None).suppress(FINAL))
    for ts in (1, 16):
        driver.pipe_input({"k": "a", "ts": ts, "x": ts})
    assert driver.read_state() == [
        {"k": "a", "window": Window(10, 20), "n": 1, "total": 16, "timestamp": 16, "status": "open"}
    ]


def test_a_longer_retention_begins_with_what_is_there() -> None:
    """Retention is not part of the plan's identity."""
    windows, _ = WINDOWS["tumbling"]
    driver = TopologyTestDriver(table(windows).suppress(FINAL))
    for ts in (1, 16, 30):
        driver.pipe_input({"k": "a", "ts": ts, "x": ts})
    longer = TopologyTestDriver(table(windows, retention="1 minute").suppress(FINAL), state=driver.state())
    longer.pipe_input({"k": "a", "ts": 50, "x": 1})
    closed = [row["window"].start for row in longer.read_state() if row["status"] == "closed"]
    assert sorted(closed) == [0, 10, 30]


BEHIND: dict[str, Callable[[tg.KTable], Any]] = {
    "steps": lambda counts: (
        counts.to_stream().filter(lambda row: row["n"] > 1).map_values({"twice": pc.field("n") * 2})
    ),
    "another key": lambda counts: counts.to_stream().select_key(lambda row: f"{row['k']}{row['n']}", name="kn"),
    "another aggregation": lambda counts: counts.to_stream().filter(pc.field("n") > 1).group_by("n").count(),
    "behind a limit": lambda counts: counts.suppress(LIMIT).to_stream().filter(lambda row: row["n"] > 1),
    "a merge": lambda counts: (
        counts.to_stream().filter(pc.field("n") > 1).merge(counts.to_stream()).group_by("n").count()
    ),
}


@pytest.mark.parametrize("behind", BEHIND.values(), ids=BEHIND)
def test_the_changes_of_a_table_with_a_retention_pass_the_same_steps(behind: Callable[[tg.KTable], Any]) -> None:
    rows = []
    for retention in (None, "1 hour"):
        driver = TopologyTestDriver(behind(table(WINDOWS["tumbling"][0], retention=retention)))
        for ts in (1, 2, 3, 16, 17, 40):
            driver.pipe_input({"k": "a", "ts": ts, "x": ts})
        rows.append(driver.read_output())
    assert rows[1] == rows[0] != []


def test_sessions_by_the_range_in_which_they_ended() -> None:
    """KIP-825's findSessions: both bounds included, open sessions and closed ones."""
    driver = TopologyTestDriver(table(WINDOWS["sessions"][0]))
    for ts in (0, 4, 20, 40):
        driver.pipe_input({"k": "a", "ts": ts, "x": 1})
    ends = [row["window"].end for row in driver.read_state(ended_from=4, ended_to=20)]
    assert sorted(ends) == [20]  # 4 closed at 13 and was readable until 33
    assert [row["window"].end for row in driver.read_state(ended_from=21)] == [40]
    assert {row["window"].end for row in driver.read_state(ended_to=40)} == {20, 40}
    assert driver.read_state(ended_from=21, ended_to=39) == []


def test_what_a_buffer_holds_and_since_when() -> None:
    driver = TopologyTestDriver(table(WINDOWS["tumbling"][0]).suppress(LIMIT))
    for ts in (1, 3, 12):
        driver.pipe_input({"k": "a", "ts": ts, "x": ts})
    (row,) = driver.read_state("held")
    assert row == {"k": "a", "window": Window(10, 20), "n": 1, "total": 12, "timestamp": 12, "since": 12, "until": 18}
    assert {row["window"].start for row in driver.read_state("counts")} == {0, 10}


def test_what_waits_for_its_window_to_close() -> None:
    """An aggregation that knows its final results has no second buffer: its open windows are the waiting rows."""
    named = FINAL.with_name("until closed")
    driver = TopologyTestDriver(table(WINDOWS["tumbling"][0]).suppress(named))
    driver.pipe_input({"k": "a", "ts": 3, "x": 2})
    (row,) = driver.read_state("until closed")
    assert row == {"k": "a", "window": Window(0, 10), "n": 1, "total": 2, "timestamp": 3, "since": None, "until": 15}


def test_a_table_without_windows_is_readable_and_has_no_ends() -> None:
    grouped = tg.stream("events", key="k", timestamp="ts", schema=SCHEMA).group_by_key()
    driver = TopologyTestDriver(grouped.agg(tg.Materialized.as_("totals"), total=tg.sum("x")))
    assert driver.read_state() == []
    driver.pipe_batch([{"k": k, "ts": 1, "x": x} for k, x in (("a", 1), ("b", 2), ("a", 3))])
    rows = driver.read_state("totals")
    assert sorted((row["k"], row["total"], row["status"]) for row in rows) == [("a", 4, "open"), ("b", 2, "open")]
    with pytest.raises(tg.DefinitionError, match="this store has none"):
        driver.read_state("totals", ended_to=3)


@pytest.mark.parametrize("kind", [*WINDOWS, "none"])
def test_only_a_buffer_shows_which_rows_are_deleted(kind: str) -> None:
    """An aggregation stores no tombstones, with windows or without; a time limit holds them back."""
    grouped = tg.stream("events", key="k", timestamp="ts").group_by_key()
    grouped = grouped if kind == "none" else grouped.windowed_by(WINDOWS[kind][0])
    sums = grouped.reduce(lambda a, b: a + b, "x", name="sum", materialized=tg.Materialized.as_("sums"))
    driver = TopologyTestDriver(sums.suppress(LIMIT))
    driver.pipe_input({"k": "a", "ts": 6, "x": 7})
    window = [] if kind == "none" else ["window"]
    assert list(driver.read_state("sums")[0]) == ["k", *window, "sum", "timestamp", "status"]
    assert list(driver.read_state("held")[0]) == ["k", *window, "sum", "timestamp", "deleted", "since", "until"]


def test_a_changelog_keeps_nothing_but_what_waits() -> None:
    prices = tg.table("prices", key="k", timestamp="ts", deleted="gone")
    driver = TopologyTestDriver(prices.suppress(LIMIT))
    driver.pipe_input({"k": "a", "ts": 1, "price": 5, "gone": False})
    driver.pipe_input({"k": "b", "ts": 2, "price": 6, "gone": True})
    assert driver.read_state("table") == []
    held = [(row["k"], row["price"], row["deleted"], row["since"]) for row in driver.read_state("held")]
    assert sorted(held) == [("a", 5, False, 1), ("b", None, True, 2)]


def test_a_store_that_is_not_there() -> None:
    driver = TopologyTestDriver(table(WINDOWS["tumbling"][0]))
    driver.pipe_input({"k": "a", "ts": 1, "x": 1})
    with pytest.raises(tg.DefinitionError, match=r"There is no store 'sums'. The stores are 'counts'."):
        driver.read_state("sums")
    with pytest.raises(tg.DefinitionTypeError, match="`ended_from` is 'now'"):
        driver.read_state(ended_from="now")  # type: ignore[arg-type]


def test_windows_that_ended_at_no_instant() -> None:
    """NaT is later than nothing and earlier than nothing: it would select no window."""
    driver = TopologyTestDriver(table(WINDOWS["tumbling"][0]))
    driver.pipe_input({"k": "a", "ts": 1, "x": 1})
    with pytest.raises(tg.DefinitionTypeError, match="`ended_from` is NaT"):
        driver.read_state(ended_from=pd.NaT)  # type: ignore[arg-type]
    with pytest.raises(tg.DefinitionError, match="`ended_to` is 9223372036854775808: more milliseconds than 64 bits"):
        driver.read_state(ended_to=2**63)


@pytest.mark.parametrize(
    ("kind", "shortest", "what"),
    [
        ("tumbling", 15, r"size \(10 milliseconds\) plus grace \(5 milliseconds\)"),
        ("sessions", 8, r"gap \(5 milliseconds\) plus grace \(3 milliseconds\)"),
        ("sliding", 13, r"twice the time difference \(10 milliseconds\) plus grace \(3 milliseconds\)"),
        ("batch", 7, r"size \(7 milliseconds\)"),
    ],
)
def test_a_retention_shorter_than_the_windows_need_is_refused_with_the_numbers(
    kind: str, shortest: int, what: str
) -> None:
    windows, _ = WINDOWS[kind]
    table(windows, retention=f"{shortest} ms")
    with pytest.raises(tg.DefinitionError, match=what) as caught:
        table(windows, retention=f"{shortest - 1} ms")
    assert f"The retention of {shortest - 1} milliseconds is shorter" in str(caught.value)
    assert f"together {shortest} milliseconds" in str(caught.value)


def test_a_retention_must_be_a_duration_and_have_a_use() -> None:
    with pytest.raises(tg.DefinitionError, match="must be larger than zero"):
        tg.Materialized.as_("x").with_retention("0 ms")
    for grouped in (
        tg.stream("events", key="k", timestamp="ts").group_by_key(),
        tg.stream("events", key="k", timestamp="ts").group_by_key().windowed_by(tg.UnlimitedWindows.start_on(0)),
    ):
        with pytest.warns(tg.TidegateWarning, match="is not used"):
            grouped.count(tg.Materialized.as_("x").with_retention("1 day"))


def test_a_buffer_holds_rows_as_they_come_to_it() -> None:
    """After the steps before the suppression, before those behind it; the aggregation's store has neither."""
    twice = table(WINDOWS["tumbling"][0]).map_values({"twice": pc.field("n") * 2})
    driver = TopologyTestDriver(twice.suppress(LIMIT).filter(pc.field("twice") > 100))
    driver.pipe_input({"k": "a", "ts": 1, "x": 7})
    (held,) = driver.read_state("held")
    assert held == {"k": "a", "window": Window(0, 10), "twice": 2, "timestamp": 1, "since": 1, "until": 7}
    (row,) = driver.read_state("counts")
    assert (row["n"], row["total"]) == (1, 7)


@pytest.mark.parametrize("bound", [tg.BufferConfig.unbounded(), tg.BufferConfig.max_records(9)])
def test_a_buffer_is_read_behind_a_step_that_gives_a_column_another_type(bound: Any) -> None:
    counts = tg.stream("events", key="k", timestamp="ts").group_by_key().count()
    texts = counts.map_values({"count": lambda row: f"<{row['count']}>"}, types={"count": "string"})
    limit = tg.Suppressed.until_time_limit("6 ms", bound, clock="stream").with_name("held")
    driver = TopologyTestDriver(texts.suppress(limit))
    assert driver.read_state("held") == []
    driver.pipe_input({"k": "a", "ts": 1})
    (held,) = driver.read_state("held")
    assert held == {"k": "a", "count": "<1>", "timestamp": 1, "since": 1, "until": 7}


def test_a_deleted_window_is_not_read_though_it_takes_room_in_a_strict_buffer() -> None:
    """The window emits nothing when it closes, so it is no result so far either."""
    windows = tg.TimeWindows.of_size_and_grace("10 ms", "5 ms")
    windowed = tg.stream("events", key="k", timestamp="ts").group_by_key().windowed_by(windows)
    sums = windowed.reduce(lambda a, b: a + b or None, "x", materialized=tg.Materialized.as_("sums"))
    buffer = tg.BufferConfig.max_records(10).shut_down_when_full()
    driver = TopologyTestDriver(sums.suppress(tg.Suppressed.until_window_closes(buffer)))
    driver.pipe_batch([{"k": "a", "ts": 1, "x": 5}, {"k": "a", "ts": 2, "x": -5}, {"k": "b", "ts": 3, "x": 1}])
    assert [(row["k"], row["x"]) for row in driver.read_state("sums")] == [("b", 1)]


@pytest.mark.parametrize("named", [False, True])
def test_in_a_chain_the_store_is_that_of_the_last_aggregation(named: bool) -> None:
    """So it is on Spark, which numbers operators from the sink; both stores may have one name."""
    stores = {"materialized": tg.Materialized.as_("times")} if named else {}
    per_key = table(WINDOWS["tumbling"][0], retention=None).suppress(FINAL)
    driver = TopologyTestDriver(per_key.to_stream().group_by("n").count("times", **stores))
    for ts in (1, 2, 20, 40):
        driver.pipe_input({"k": "a", "ts": ts, "x": 1})
    assert sorted((row["n"], row["times"]) for row in driver.read_state()) == [(1, 1), (2, 1)]
    assert [row["n"] for row in driver.read_state("counts")] == [1]
    assert [row["window"] for row in driver.read_state("suppress")] == [(40, 50)]
    last = "times" if named else "aggregate"
    with pytest.raises(tg.DefinitionError, match=rf"The stores are '{last}', 'counts', 'suppress'"):
        driver.read_state("other")


def test_of_two_stores_with_one_name_the_last_one_is_read() -> None:
    events = tg.stream("events", key="k", timestamp="ts", schema=SCHEMA)
    driver = TopologyTestDriver(events.group_by_key().count().group_by("count").count("keys"))
    driver.pipe_input({"k": "a", "ts": 1, "x": 1})
    assert [(row["count"], row["keys"]) for row in driver.read_state("aggregate")] == [(1, 1)]


def tables() -> tuple[tg.KTable, tg.KTable]:
    stock, prices = (tg.table(name, key="k", timestamp="ts", deleted="gone") for name in ("stock", "prices"))
    return stock, prices


def piped_tables(topology: tg.KTable) -> TopologyTestDriver:
    driver = TopologyTestDriver(topology)
    driver.pipe_input({"k": "a", "ts": 1, "pieces": 10, "gone": False}, "stock")
    driver.pipe_input({"k": "a", "ts": 2, "price": 4, "gone": False}, "prices")
    return driver


def test_rows_that_wait_behind_a_join_of_tables_are_read() -> None:
    """Beside the rows of both tables, and of each of several limits."""
    stock, prices = tables()
    driver = piped_tables(stock.join(prices).suppress(LIMIT))
    (row,) = driver.read_state("held")
    wanted = {"k": "a", "pieces": 10, "price": 4, "timestamp": 2, "deleted": False, "since": 2, "until": 8}
    assert row == wanted
    assert [row["pieces"] for row in driver.read_state("join-left")] == [10]
    slow = tg.Suppressed.until_time_limit("9 ms", tg.BufferConfig.max_records(5), clock="stream").with_name("slow")
    driver = piped_tables(stock.join(prices).suppress(LIMIT).suppress(slow))
    driver.pipe_input({"k": "b", "ts": 9, "price": 1, "gone": False}, "prices")
    assert [(row["price"], row["until"]) for row in driver.read_state("slow")] == [(4, 11)]
    with pytest.raises(tg.DefinitionError, match="The stores are 'join-left', 'join-right', 'held', 'slow'"):
        driver.read_state("other")


def test_windows_in_a_key_are_selected_by_their_end() -> None:
    """Rows of windows that are grouped again, and of windowed tables that are joined."""
    clicks, views = (
        tg.stream(name, key="k", timestamp="ts").group_by_key().windowed_by(WINDOWS["batch"][0]).count(name)
        for name in ("clicks", "views")
    )
    records = [{"k": k, "ts": ts} for k, ts in (("a", 1), ("b", 2), ("a", 8))]
    driver = TopologyTestDriver(clicks.group_by("window").agg(keys=tg.count()))
    driver.pipe_batch(records)
    assert [row["keys"] for row in driver.read_state(ended_to=7)] == [2]
    assert [row["keys"] for row in driver.read_state(ended_from=8)] == [1]
    driver = TopologyTestDriver(clicks.join(views))
    driver.pipe_batch(records, "clicks")
    assert [row["window"] for row in driver.read_state("join-left", ended_from=8)] == [(7, 14)]


def test_without_a_name_the_store_is_that_of_the_last_aggregation_also_in_front_of_a_join() -> None:
    users = tg.table("users", key="k", timestamp="ts")
    counts = table(WINDOWS["tumbling"][0], retention=None).suppress(FINAL)
    driver = TopologyTestDriver(counts.to_stream().left_join(users))
    for ts in (1, 20):
        driver.pipe_input({"k": "a", "ts": ts, "x": 1}, "events")
    driver.pipe_input({"k": "a", "ts": 1, "city": "Rome"}, "users")
    assert driver.read_state() == driver.read_state("counts")
    assert [row["city"] for row in driver.read_state("join-right")] == ["Rome"]
    stock, prices = tables()
    driver = piped_tables(stock.join(prices))
    assert driver.read_state() == driver.read_state("join-left")


@pytest.mark.parametrize("bound", [tg.BufferConfig.unbounded(), tg.BufferConfig.max_records(9).shut_down_when_full()])
@pytest.mark.parametrize("beside", ["updates", "a limit"])
def test_final_results_beside_another_output_are_read_by_their_name(beside: str, bound: Any) -> None:
    store = tg.Materialized.as_("counts").with_caching_disabled()
    windowed = tg.stream("events", key="k", timestamp="ts").group_by_key().windowed_by(WINDOWS["tumbling"][0])
    counts = windowed.agg(store, n=tg.count(), total=tg.sum("x"))
    early = counts if beside == "updates" else counts.map_values({"n": pc.field("n")}).suppress(LIMIT)
    final = counts.suppress(tg.Suppressed.until_window_closes(bound).with_name("until closed"))
    driver = TopologyTestDriver(tg.outputs(early=early, final=final))
    driver.pipe_input({"k": "a", "ts": 3, "x": 2})
    (row,) = driver.read_state("until closed")
    assert row == {"k": "a", "window": Window(0, 10), "n": 1, "total": 2, "timestamp": 3, "since": None, "until": 15}
    if beside == "a limit":
        (row,) = driver.read_state("held")
        assert row == {"k": "a", "window": Window(0, 10), "n": 1, "timestamp": 3, "since": 3, "until": 9}
    with pytest.raises(tg.DefinitionError, match=r"'until closed'\. An aggregation names its own"):
        driver.read_state("other")


@pytest.mark.parametrize("outputs", [False, True])
def test_a_suppression_behind_a_join_has_another_name_than_a_side(outputs: bool) -> None:
    """Their stores could not be told apart."""
    stock, prices = tables()
    joined = stock.join(prices)

    def limited(name: str) -> Any:
        named = joined.suppress(LIMIT.with_name(name))
        return tg.outputs(one=named, other=joined.suppress(LIMIT)) if outputs else named

    for name in ("join", "join-left", "join-right"):
        with pytest.raises(tg.DefinitionError, match=f"both called '{name}'"):
            limited(name)
