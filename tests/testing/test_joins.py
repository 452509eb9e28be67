"""Joins in the driver: behaviour that the oracle does not show."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

import tidegate as tg
from tidegate.instants import MAX_MS
from tidegate.kernel.joins.stream_stream import StreamStreamJoin
from tidegate.kernel.state.state import State
from tidegate.plan import operation, with_row_ids
from tidegate.testing import TopologyTestDriver
from tidegate.testing.layout import Tasks

WINDOWS = tg.JoinWindows.of_time_difference_and_grace("10 ms", "5 ms")
SECONDS = tg.TimeWindows.of_size_with_no_grace("1 s")
ORDERS = pa.schema({"k": pa.string(), "ts": pa.int64(), "price": pa.int64()})
PAYMENTS = pa.schema({"k": pa.string(), "ts": pa.int64(), "paid": pa.int64()})
EXTRA = pa.schema({"k": pa.string(), "at": pa.int64(), "price": pa.int64()})


def orders(**more: Any) -> tg.KStream:
    return tg.stream("orders", key="k", timestamp="ts", **({"stream_time": "max", "schema": ORDERS} | more))


def payments(**more: Any) -> tg.KStream:
    return tg.stream("payments", key="k", timestamp="ts", **({"stream_time": "max", "schema": PAYMENTS} | more))


def prices(**more: Any) -> tg.KTable:
    return tg.table("prices", key="k", timestamp="ts", deleted="gone", **more)


def order(key: Any, ts: int, price: Any = 1) -> tuple[str, dict[str, Any]]:
    return "orders", {"k": key, "ts": ts, "price": price}


def payment(key: Any, ts: int, paid: Any = 1) -> tuple[str, dict[str, Any]]:
    return "payments", {"k": key, "ts": ts, "paid": paid}


def rows(driver: TopologyTestDriver, *records: tuple[str, dict[str, Any]]) -> list[dict[str, Any]]:
    for stream, record in records:
        driver.pipe_input(record, stream)
    return driver.read_output()


# -- columns of a row ----------------------------------------------------------------------------------------------


def test_a_row_has_the_columns_of_both_sides() -> None:
    driver = TopologyTestDriver(orders().join(payments(), WINDOWS))
    assert rows(driver, order("a", 1), payment("a", 3)) == [{"k": "a", "price": 1, "paid": 1, "timestamp": 3}]


def test_names_that_both_sides_have() -> None:
    other = tg.stream("others", key="k", timestamp="ts", schema=ORDERS, stream_time="max")
    with pytest.raises(tg.DefinitionError, match=r"both sides have a column 'price'"):
        orders().join(other, WINDOWS)
    joined = orders().join(other, WINDOWS, suffixes=("_asked", "_got"))
    driver = TopologyTestDriver(joined)
    (row,) = rows(driver, order("a", 1), ("others", {"k": "a", "ts": 1, "price": 2}))
    assert row == {"k": "a", "price_asked": 1, "price_got": 2, "timestamp": 1}


def test_a_name_that_is_not_known_to_clash_shows_when_records_come() -> None:
    left, right = (tg.stream(name, key="k", timestamp="ts", stream_time="max") for name in ("a", "b"))
    driver = TopologyTestDriver(left.join(right, WINDOWS))
    driver.pipe_input({"k": "x", "ts": 1, "v": 1}, "a")
    with pytest.raises(tg.DefinitionError, match="both sides have a column 'v'"):
        driver.pipe_input({"k": "x", "ts": 1, "v": 1}, "b")
    with pytest.raises(tg.DefinitionError, match="`suffixes` must know the columns of both sides"):
        left.join(right, WINDOWS, suffixes=("_l", "_r"))


@pytest.mark.parametrize(
    ("joiner", "wanted"),
    [
        (lambda left, right: {"open": left["price"] - (right or {"paid": 0})["paid"]}, [{"open": 3}, {"open": 7}]),
        (lambda key, left, right: {"who": f"{key}{left['price']}"}, [{"who": "a7"}, {"who": "a7"}]),
        ({"twice": pc.multiply(pc.field("left", "price"), 2)}, [{"twice": 14}, {"twice": 14}]),
        ({"known": lambda left, right: right is not None}, [{"known": True}, {"known": False}]),
    ],
)
def test_a_value_joiner_makes_the_value_columns(joiner: Any, wanted: list[dict[str, Any]]) -> None:
    driver = TopologyTestDriver(orders().left_join(payments(), WINDOWS, joiner))
    found = rows(driver, order("a", 1, 7), payment("a", 3, 4), order("a", 50, 7), order("b", 90))
    assert [{name: row[name] for name in row if name not in ("k", "timestamp")} for row in found] == wanted


def test_a_value_joiner_may_change_what_it_is_given() -> None:
    def joiner(left: Any, right: Any) -> Any:
        left["price"] += 1
        return {"price": left.pop("price")}

    driver = TopologyTestDriver(orders().join(payments(), WINDOWS, value_joiner=joiner))
    assert [row["price"] for row in rows(driver, order("a", 1, 7), payment("a", 3), payment("a", 4))] == [8, 8]


# -- waiting records -------------------------------------------------------------------------------------------------


def test_the_slower_side_holds_the_other_one_by_default(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.warns(tg.TidegateWarning, match="silent holds the other one back for ever"):
        orders(stream_time=None).left_join(payments(stream_time=None), WINDOWS)
    joined = orders(stream_time=None, idle_after="1 minute").left_join(payments(stream_time=None), WINDOWS)
    driver = TopologyTestDriver(joined)
    assert rows(driver, order("a", 1), order("b", 900)) == []
    tg.explain_pending(driver)
    assert "The right side holds stream time back: no record of it has come yet." in capsys.readouterr().out
    # A record of the slower side is not late: it finds its partner.
    assert [row["paid"] for row in rows(driver, payment("a", 2))] == [1]
    tg.explain_pending(driver)
    assert "The right side, partition 0 holds stream time back: it has come to 2 " in capsys.readouterr().out
    driver.advance_wall_clock("61 seconds")
    assert [row["k"] for row in rows(driver, order("c", 901), order("d", 2000))] == ["b", "c"]
    tg.explain_pending(driver)
    assert "right side" not in capsys.readouterr().out


def test_sides_that_say_different_clocks() -> None:
    slow = {"stream_time": "min_partition", "partition": "p", "offset": "o", "schema": None}
    with pytest.raises(tg.DefinitionError, match="'max' on the left and 'min_partition' on the right"):
        orders().join(payments(**slow), WINDOWS)
    one, other = orders(stream_time=None, idle_after="1 s"), payments(stream_time=None, idle_after="2 s")
    with pytest.raises(tg.DefinitionError, match="`idle_after` is 1 second on the left and 2 seconds on the right"):
        one.join(other, WINDOWS)


def test_what_is_stored_of_each_side() -> None:
    joined = orders().left_join(payments(), WINDOWS, materialized=tg.Materialized.as_("matched"))
    driver = TopologyTestDriver(joined)
    rows(driver, order("a", 1), payment("a", 3), order("b", 4))
    left = driver.read_state("matched-left")
    assert {row["k"]: (row["status"], row["until"]) for row in left} == {"a": ("joined", 16), "b": ("open", 19)}
    assert [row["paid"] for row in driver.read_state("matched-right")] == [1]
    assert driver.metrics()["open_left_records"] == 2
    assert rows(driver, order("c", 100)) == [{"k": "b", "price": 1, "paid": None, "timestamp": 4}]
    assert [row["k"] for row in driver.read_state("matched-left")] == ["c"]
    assert driver.read_state("matched-right") == []


def test_records_that_are_stored_together_close_one_by_one() -> None:
    """A record is open until one second behind it, that instant included."""
    driver = TopologyTestDriver(
        orders().left_join(payments(), tg.JoinWindows.of_time_difference_with_no_grace("1 second"))
    )
    rows(driver, order("a", 100), order("b", 101), order("c", 105))

    def behind(ts: int) -> tuple[list[int], set[str], list[int], float]:
        """The rows that leave at this stream time, the keys of the open records, the next close, the stored records."""
        left = [row["timestamp"] for row in rows(driver, payment("z", ts))]
        open_keys = {row["k"] for row in driver.read_state("join-left")}
        closes = [one.leaves_at for one in driver.pending().waiting]
        return left, open_keys, closes, driver.metrics()["open_left_records"]

    assert behind(1_100) == ([], {"a", "b", "c"}, [1_101], 3)
    assert behind(1_101) == ([100], {"b", "c"}, [1_102], 3)
    # No result leaves before the next close; the record behind it is at 105.
    assert behind(1_102) == ([101], {"c"}, [1_103], 3)
    assert behind(1_106) == ([105], set(), [], 0)


def test_a_drain_lets_out_what_is_open() -> None:
    driver = TopologyTestDriver(orders().outer_join(payments(), WINDOWS))
    rows(driver, order("a", 1), payment("b", 3))
    driver.drain()
    assert [(row["k"], row["price"], row["paid"]) for row in driver.read_output()] == [("a", 1, None), ("b", None, 1)]


def test_late_records_say_their_side() -> None:
    joined = orders().left_join(payments(), WINDOWS)
    driver = TopologyTestDriver(joined.late_records())
    rows(driver, order("a", 100), order("b", 100))
    (late,) = rows(driver, payment("a", 3))
    assert late == {
        "k": "a",
        "price": None,
        "paid": 1,
        "timestamp": 3,
        "side": "right",
        "reason": "late",
        "late_by": 97,
        "stream_time": 100,
    }
    for stream in (orders(), joined.filter(lambda row: True)):
        with pytest.raises(tg.DefinitionError, match="Only a join has late records"):
            stream.late_records()
    named = payments(schema=None).join(orders(schema=None), WINDOWS).late_records()
    driver = TopologyTestDriver(named)
    with pytest.raises(tg.DefinitionError, match="would have a value column 'side'"):
        driver.pipe_input({"k": "a", "ts": 1, "side": 1}, "orders")


def test_late_changes_of_a_table_say_the_tables_time() -> None:
    """It is the table's own time; late changes are not judged by the stream time of both inputs."""
    joined = orders().join(prices(history="10 ms"))
    driver = TopologyTestDriver(joined.late_records())
    for ts in (30, 5):
        driver.pipe_input({"k": "a", "ts": ts, "gone": False, "b": ts}, "prices")
        driver.pipe_input({"k": "a", "ts": 900, "price": 1}, "orders")
    late = [(row["side"], row["b"], row["late_by"], row["stream_time"]) for row in driver.read_output()]
    assert late == [("right", 5, 25, 30)]


def with_history(side: str, filtered: bool) -> tg.KStream | tg.KTable:
    table = tg.table("prices", key="k", timestamp="ts", schema=ORDERS, history="5 ms")
    if filtered:
        table = table.filter(pc.field("price") > 0)
    if side == "stream":
        return payments().left_join(table)
    return table.outer_join(tg.table("payments", key="k", timestamp="ts", schema=PAYMENTS))


CHANGES = [{"k": "a", "ts": 12, "price": 1}, {"k": "b", "ts": 30, "price": 1}]


@pytest.mark.parametrize("side", ["stream", "table"])
@pytest.mark.parametrize("filtered", [False, True])
def test_a_change_is_not_late_by_the_changes_behind_it(side: str, filtered: bool) -> None:
    """The other input is ahead, so both changes see one stream time; the first one counts all the same."""
    driver = TopologyTestDriver(with_history(side, filtered))
    driver.pipe_input(payment("c", 70)[1], "payments")
    driver.pipe_batch(CHANGES, "prices")
    assert driver.drops["late"] == 0
    assert {row["k"] for row in driver.read_state("join-right" if side == "stream" else "join-left")} == {"a", "b"}
    driver.pipe_batch([CHANGES[1] | {"ts": 60}, CHANGES[0] | {"ts": 50}], "prices")
    assert driver.drops["late"] == 1


@pytest.mark.parametrize("side", ["stream", "table"])
def test_a_change_at_the_beginning_of_the_history_counts(side: str) -> None:
    driver = TopologyTestDriver(with_history(side, filtered=False))
    for change, late in ((price("a", 30, 1), 0), (price("b", 25, 1), 0), (price("c", 24, 1), 1)):
        driver.pipe_input(change[1], "prices")
        assert driver.drops["late"] == late
    assert {row["k"] for row in driver.read_state("join-right" if side == "stream" else "join-left")} == {"a", "b"}


@pytest.mark.parametrize("side", ["stream", "table"])
@pytest.mark.parametrize("tasks", [1, 3])
def test_a_change_without_an_offset_is_not_late_by_its_own_batch(side: str, tasks: int) -> None:
    """As on Spark: the records of a batch without partition and offset come in the order of their timestamps."""
    many = Tasks(with_history(side, filtered=False).node, tasks)
    many.batch([("payments", [payment("c", 70)[1]])])
    many.batch([("prices", CHANGES[::-1])])
    assert many.dropped[0]["late"] == 0


def test_records_that_wait_for_a_table() -> None:
    """Number, keys and due times of waiting records; changes of the table move nothing."""
    driver = TopologyTestDriver(orders().left_join(prices(history="1 minute"), grace="10 ms"))
    assert driver.pending().lookups is None
    rows(driver, order("b", 5), order("a", 7), order("a", 5), ("prices", {"k": "a", "ts": 900, "gone": False, "b": 1}))
    found = driver.pending()
    assert found.lookups == tg.Lookups(15, 7, 3)
    assert found.lookups.first == (("k 'a'", 15), ("k 'b'", 15), ("k 'a'", 17))
    assert str(found).splitlines()[1:] == [
        (
            "  3 records wait for changes of the table; the first is looked up when the time of the stream, now 7 "
            "(1970-01-01T00:00:00.007+00:00), is 15 (1970-01-01T00:00:00.015+00:00): 8 milliseconds to go"
        ),
        "    k 'a': 15 (1970-01-01T00:00:00.015+00:00)",
        "    k 'b': 15 (1970-01-01T00:00:00.015+00:00)",
        "    k 'a': 17 (1970-01-01T00:00:00.017+00:00)",
        "  A later record of the stream moves its time on; changes of the table do not.",
    ]
    # Part of a stretch has left; the others are shown.
    assert len(rows(driver, order("c", 16))) == 2
    assert driver.pending().lookups == tg.Lookups(17, 16, 2)
    assert [row["until"] for row in driver.read_state("join-left")] == [17, 26]
    rows(driver, order(None, 400))
    assert driver.pending().lookups == tg.Lookups(17, 16, 2)
    driver.drain()
    assert driver.pending().lookups is None
    latest = TopologyTestDriver(orders().left_join(prices(history="1 minute")))
    rows(latest, order("b", 5))
    assert latest.pending().lookups is None


# -- changed plans ---------------------------------------------------------------------------------------------------


def with_grace(grace: str, how: Any = "left") -> tg.KStream:
    windows = tg.JoinWindows.of_time_difference_and_grace("100 ms", grace)
    return orders().join(payments(), windows, how)


def test_a_longer_grace_does_not_open_what_has_closed() -> None:
    before = TopologyTestDriver(with_grace("0 ms"))
    assert [row["k"] for row in rows(before, order("a", 2), order("b", 105))] == ["a"]
    assert "closed stay closed" in str(before.check_upgrade(with_grace("50 ms")))
    after = TopologyTestDriver(with_grace("50 ms"), state=before.state())
    assert [row["k"] for row in rows(after, payment("a", 20), payment("b", 20))] == ["b"]
    assert [row["k"] for row in after.read_state("join-left")] == ["b"]


def test_a_shorter_grace_lets_out_what_it_closes() -> None:
    before = TopologyTestDriver(with_grace("50 ms"))
    assert rows(before, order("a", 2), order("b", 105)) == []
    after = TopologyTestDriver(with_grace("0 ms"), state=before.state())
    assert [(row["k"], row["paid"]) for row in rows(after, payment("a", 20))] == [("a", None)]


@pytest.mark.parametrize("how", ["inner", "outer"])
def test_another_kind_of_join_is_refused(how: str) -> None:
    before = TopologyTestDriver(with_grace("0 ms"))
    rows(before, order("a", 2))
    after = TopologyTestDriver(with_grace("0 ms", how), state=before.state())
    with pytest.raises(tg.CheckpointError, match=f"join: 'left' -> '{how}'"):
        rows(after, order("a", 3))


def looking_up(history: str | None = "1 minute", grace: str | None = None) -> tg.KStream:
    table = tg.table("prices", key="k", timestamp="ts", schema=ORDERS, history=history)
    return orders().left_join(table, grace=grace, suffixes=("", "_now"))


def price(key: str, ts: int, price: int) -> tuple[str, dict[str, Any]]:
    return "prices", {"k": key, "ts": ts, "price": price}


def found(driver: TopologyTestDriver, *records: tuple[str, dict[str, Any]]) -> list[tuple[int, Any]]:
    return [(row["timestamp"], row["price_now"]) for row in rows(driver, *records)]


def changed(driver: TopologyTestDriver, topology: tg.KStream, says: str) -> TopologyTestDriver:
    """The driver goes on under another plan, as the check announced."""
    upgrade = driver.check_upgrade(topology)
    assert upgrade.goes_on
    assert says in str(upgrade)
    return TopologyTestDriver(topology, state=driver.state())


def test_a_shorter_grace_looks_up_what_has_waited_for_it_before_the_next_batch() -> None:
    driver = TopologyTestDriver(looking_up(grace="20 ms"))
    assert found(driver, price("a", 0, 1), order("a", 5), order("a", 12), order("a", 20)) == []
    driver = changed(driver, looking_up(grace="10 ms"), "are looked up before the next batch")
    assert driver.pending().lookups == tg.Lookups(15, 20, 3)
    # The change of the next batch comes after them.
    assert found(driver, price("a", 4, 2)) == [(5, 1)]
    assert [row["until"] for row in driver.read_state("join-left")] == [22, 30]
    assert found(driver, order("b", 22)) == [(12, 2)]
    # Without any grace all the others leave.
    driver = changed(driver, looking_up(), "are looked up before the next batch")
    assert found(driver, price("a", 21, 3)) == [(20, 2), (22, None)]
    assert driver.read_state("join-left") == []
    assert found(driver, order("a", 22)) == [(22, 3)]


def test_without_a_grace_records_ahead_of_the_slowest_partition_leave_too() -> None:
    def by_the_slowest(grace: str | None) -> tg.KStream:
        slowest = orders(stream_time="min_partition", partition="p", offset="o", schema=None)
        return slowest.left_join(prices(history="1 minute"), grace=grace)

    def placed(partition: int, ts: int) -> tuple[str, dict[str, Any]]:
        return "orders", {"k": "a", "ts": ts, "p": partition, "o": ts}

    # 12 and 17 are near each other, 90 is far ahead.
    driver = TopologyTestDriver(by_the_slowest("40 ms"))
    assert rows(driver, placed(1, 12), placed(0, 17), placed(0, 90)) == []
    driver = changed(driver, by_the_slowest(None), "are looked up before the next batch")
    left = rows(driver, ("prices", {"k": "a", "ts": 13, "gone": False, "b": 5}))
    assert [row["timestamp"] for row in left] == [12, 17, 90]
    assert driver.read_state("join-left") == []
    assert [row["b"] for row in rows(driver, placed(0, 91))] == [5]


def test_a_longer_grace_lets_wait_longer_but_nothing_twice() -> None:
    driver = TopologyTestDriver(looking_up(grace="10 ms"))
    assert found(driver, price("a", 0, 1), order("a", 10), order("a", 19), order("a", 20)) == [(10, 1)]
    driver = changed(driver, looking_up(grace="30 ms"), "wait 20 milliseconds longer")
    assert driver.pending().lookups == tg.Lookups(49, 20, 2)
    # At 10 and before, the wait was over; after 10 it is not.
    assert found(driver, order("a", 10, 2), order("a", 11)) == [(10, 1)]
    assert found(driver, order("b", 40), price("a", 3, 2)) == []
    assert found(driver, order("b", 49)) == [(11, 2), (19, 2)]


def test_a_longer_history_does_not_bring_back_what_is_gone() -> None:
    driver = TopologyTestDriver(looking_up("10 ms"))
    changes = [price("a", ts, ts) for ts in (5, 6, 30)]
    assert found(driver, *changes, order("a", 10)) == [(10, None)]
    driver = changed(driver, looking_up("1 minute"), "those older than the shorter history are gone")
    # The history still begins at 20: an older record or change does not use the longer history.
    assert found(driver, order("a", 10), order("a", 19), order("a", 20)) == [(10, None), (19, None), (20, 6)]
    assert found(driver, price("a", 19, 19), order("a", 20)) == [(20, 6)]
    assert driver.drops["late"] == 1
    assert found(driver, price("a", 20, 20), price("b", 500, 0), order("a", 20), order("a", 31)) == [(20, 20), (31, 30)]
    # A second change does not bring versions back either.
    driver = changed(driver, looking_up("2 minutes"), "goes on")
    assert found(driver, order("a", 19), order("a", 20)) == [(19, None), (20, 20)]


def test_a_shorter_history_counts_at_once() -> None:
    driver = TopologyTestDriver(looking_up("1 minute"))
    assert found(driver, *(price("a", ts, ts) for ts in (5, 30)), price("b", 40, 1), order("a", 29)) == [(29, 5)]
    driver = changed(driver, looking_up("10 ms"), "versions older than the new history count no longer")
    assert found(driver, order("a", 29), order("a", 30)) == [(29, None), (30, 30)]


def test_the_latest_row_becomes_the_first_version() -> None:
    driver = TopologyTestDriver(looking_up(None))
    assert found(driver, price("a", 30, 30), price("a", 10, 10), price("b", 40, 40), order("a", 5)) == [(5, 10)]
    driver = changed(driver, looking_up("20 ms", "5 ms"), "the last row of each key is the first version")
    asked = [order("a", 9), order("a", 10), order("b", 39), order("b", 40)]
    assert found(driver, *asked, order("c", 90)) == [(9, None), (10, 10), (39, None), (40, 40)]
    assert found(driver, price("a", 50, 50), order("a", 49), order("a", 50)) == [(49, 10), (50, 50)]


def test_each_change_of_the_batch_with_which_a_history_begins_is_a_version() -> None:
    driver = TopologyTestDriver(looking_up(None))
    rows(driver, price("a", 1, 1))
    driver = changed(driver, looking_up("1 minute"), "versions are kept from now on")
    driver.pipe_batch([change for _, change in (price("a", 10, 10), price("a", 20, 20))], "prices")
    assert found(driver, order("a", 9), order("a", 19), order("a", 20)) == [(9, 1), (19, 10), (20, 20)]


def test_versions_do_not_say_which_row_came_last() -> None:
    driver = TopologyTestDriver(looking_up("1 minute"))
    rows(driver, price("a", 1, 1))
    assert not driver.check_upgrade(looking_up(None)).goes_on
    with pytest.raises(tg.CheckpointError, match="nothing says which one came last"):
        rows(TopologyTestDriver(looking_up(None), state=driver.state()), order("a", 5))
    assert not driver.check_upgrade(orders().join(payments(), WINDOWS)).goes_on


def test_another_grace_before_any_record_of_the_stream() -> None:
    driver = TopologyTestDriver(looking_up(grace="10 ms"))
    rows(driver, price("a", 0, 1))
    driver = changed(driver, looking_up(grace="30 ms"), "wait 20 milliseconds longer")
    assert found(driver, order("a", 0), order("a", 5), order("a", 29)) == []
    assert found(driver, order("a", 30)) == [(0, 1)]


# -- before and behind other operators -------------------------------------------------------------------------------


def test_rows_of_a_join_are_aggregated_and_joined_again() -> None:
    joined = orders().outer_join(payments(), WINDOWS)
    minutes = tg.TimeWindows.of_size_and_grace("20 ms", "40 ms")
    final = tg.Suppressed.until_window_closes(tg.BufferConfig.unbounded())
    counted = joined.filter(lambda row: row["price"] is not None).group_by_key().windowed_by(minutes).count()
    driver = TopologyTestDriver(counted.suppress(final))
    found = rows(driver, order("a", 1), payment("a", 3), payment("a", 4), order("a", 200), order("a", 300))
    assert [(row["k"], row["count"], tuple(row["window"])) for row in found] == [("a", 2, (0, 20))]
    assert "StreamStreamJoin orders join payments" in counted.describe()

    refunds = tg.stream("refunds", key="k", timestamp="ts", stream_time="max", schema=PAYMENTS)
    again = TopologyTestDriver(joined.join(refunds.map_values({"b": "paid"}), WINDOWS, "left"))
    found = rows(again, order("a", 1), payment("a", 3), ("refunds", {"k": "a", "ts": 5, "paid": 9}))
    assert [(row["price"], row["paid"], row["b"], row["timestamp"]) for row in found] == [(1, 1, 9, 5)]


@pytest.mark.parametrize("side", ["left", "right"])
def test_a_join_of_tables_emits_each_row_that_a_single_record_makes(side: str) -> None:
    """A record in two hopping windows makes two rows, and so two counts; of a batch of records the last one leaves."""
    windows = tg.TimeWindows.of_size_with_no_grace("10 ms").advance_by("5 ms")
    counts = orders().group_by_key().windowed_by(windows).count().to_stream().group_by_key().count("n")
    joined = counts.left_join(prices()) if side == "left" else prices().outer_join(counts)
    driver = TopologyTestDriver(joined)
    assert [row["n"] for row in rows(driver, order("a", 7))] == [1, 2]
    driver.pipe_batch([order("a", 7)[1], order("a", 8)[1]], "orders")
    assert [row["n"] for row in driver.read_output()] == [4]


def test_rows_of_a_join_are_merged_with_records() -> None:
    """The merged rows are filtered, mapped, keyed anew and joined once more, like the records they are merged with."""
    extra = tg.stream("extra", key="k", timestamp="at", stream_time="max", schema=EXTRA)
    joined = orders().join(payments(), WINDOWS)
    records = (order("a", 1), payment("a", 2, 3), ("extra", {"k": "a", "at": 3, "price": 10}))
    merged = extra.merge(joined)
    doubled = merged.map_values({"v": pc.field("price") * 2})
    cases: list[tuple[tg.KGroupedStream, str, list[tuple[int, int, int]]]] = [
        (merged.group_by_key(), "price", [(1, 1, 2), (2, 11, 3)]),
        (joined.merge(extra).group_by_key(), "price", [(1, 1, 2), (2, 11, 3)]),
        (merged.filter(pc.field("price") > 1).group_by_key(), "price", [(1, 10, 3)]),
        (doubled.group_by_key(), "v", [(1, 2, 2), (2, 22, 3)]),
        (merged.group_by("price"), "price", [(1, 1, 2), (1, 10, 3)]),
    ]
    for grouped, column, wanted in cases:
        driver = TopologyTestDriver(grouped.agg(n=tg.count(), sum=tg.sum(column)))
        assert [(row["n"], row["sum"], row["timestamp"]) for row in rows(driver, *records)] == wanted
    driver = TopologyTestDriver(joined.merge(joined).group_by_key().agg(n=tg.count()))
    assert [row["n"] for row in rows(driver, *records[:2])] in ([2], [1, 2])
    narrow = extra.merge(joined.map_values({"price": "price"}))
    found = rows(TopologyTestDriver(narrow.join(payments(), WINDOWS)), *records, payment("a", 4, 7))
    pairs = sorted((row["timestamp"], row["price"], row["paid"]) for row in found)
    again = joined.merge(extra.map_values({"price": "price", "paid": "price"})).left_join(
        payments(), WINDOWS, suffixes=("", "_again")
    )
    assert [row["paid_again"] for row in rows(TopologyTestDriver(again), *records)] == [3, 3]
    assert pairs == [(2, 1, 3), (3, 10, 3), (4, 1, 3), (4, 1, 7), (4, 1, 7), (4, 10, 7)]


def test_changes_of_a_table_are_merged_with_records() -> None:
    totals = orders().group_by_key().agg(price=tg.sum("price")).to_stream()
    extra = tg.stream("extra", key="k", timestamp="at", stream_time="max", schema=EXTRA)
    driver = TopologyTestDriver(totals.merge(extra).group_by_key().agg(sum=tg.sum("price")))
    found = rows(driver, order("a", 1), ("extra", {"k": "a", "at": 3, "price": 10}), order("a", 2, 4))
    assert [(row["sum"], row["timestamp"]) for row in found] == [(1, 1), (11, 3), (16, 3)]


def test_what_of_a_join_cannot_be_merged() -> None:
    extra = tg.stream("extra", key="k", timestamp="at", stream_time="max", schema=EXTRA)
    merged = extra.merge(orders().join(payments(), WINDOWS))
    with pytest.raises(tg.DefinitionError, match="nothing stands behind it"):
        TopologyTestDriver(merged)
    with pytest.raises(tg.DefinitionError, match="merge: the key of 'orders join payments' is"):
        orders().join(payments(), WINDOWS).merge(extra.select_key("price"))
    rows_of_both = merged.join(payments(), WINDOWS)
    assert with_row_ids(operation(rows_of_both.node)) is None
    with pytest.raises(tg.DefinitionError, match="cogroup: one stream is of a table's changes"):
        extra.group_by_key().cogroup(lambda key, row, found: row).cogroup(
            merged.group_by_key(), lambda key, row, found: row
        )


def of_partitions(name: str, value: str) -> tg.KStream:
    fields = {"k": pa.string(), "ts": pa.int64(), value: pa.int64(), "p": pa.int32(), "o": pa.int64()}
    return tg.stream(
        name, key="k", timestamp="ts", partition="p", offset="o", schema=pa.schema(fields), idle_after="1 minute"
    )


def test_windows_behind_a_join_wait_for_its_slower_side_and_not_for_its_rows() -> None:
    joined = of_partitions("orders", "price").join(of_partitions("payments", "paid"), WINDOWS)
    closing = tg.TimeWindows.of_size_and_grace("10 ms", "15 ms")
    counted = joined.group_by_key().windowed_by(closing).emit_strategy(tg.EmitStrategy.on_window_close()).count()
    driver = TopologyTestDriver(counted)
    offsets = iter(range(100))

    def counts(stream: str, ts: int, partition: int = 0, key: str = "a") -> list[tuple[int, int]]:
        record = {"k": key, "ts": ts, "p": partition, "o": next(offsets)}
        found = rows(driver, (stream, {**record, "price" if stream == "orders" else "paid": 1}))
        return [(row["window"].start, row["count"]) for row in found]

    assert [counts("orders", 1), counts("payments", 2), counts("orders", 4)] == [[], [], []]
    assert [counts("orders", 100, 1), counts("payments", 101, 1)] == [[], []]  # a pair at 101
    assert counts("payments", 5) == []  # two pairs at 5
    assert [counts("orders", 24, key="b"), counts("payments", 24, key="c")] == [[], []]
    assert counts("orders", 25, key="b") == []
    assert counts("payments", 26, key="c") == [(0, 3 + 1)]  # no row is near 25
    assert driver.drops["late"] == 0


def test_batch_windows_behind_a_join_go_by_the_largest_timestamp() -> None:
    size = tg.BatchWindows.of_size("10 ms")
    joined = of_partitions("orders", "price").join(of_partitions("payments", "paid"), WINDOWS)
    slowest = orders(stream_time="min_partition", partition="p", offset="o", schema=None)
    looked_up = slowest.join(prices(history="1 minute"))
    others = tg.stream("others", key="k", timestamp="at", stream_time="max")
    for rows_of_join, name in (
        (joined, "orders join payments"),
        (looked_up, "orders join prices"),
        (joined.merge(others), "orders join payments"),
    ):
        with pytest.raises(tg.DefinitionError) as caught:
            rows_of_join.group_by_key().windowed_by(size)
        assert str(caught.value) == (
            "BatchWindows of 10 milliseconds put every record into the window of the stream time it sees, and rows of "
            f"{name!r} see the time of its slowest partition before their batch. Use TimeWindows, or give the streams "
            'of the join stream_time="max".'
        )
    counted = orders().join(payments(), WINDOWS).group_by_key().windowed_by(size).count()
    found = rows(TopologyTestDriver(counted), order("a", 12), payment("a", 17))
    assert [(row["window"].start, row["count"]) for row in found] == [(10, 1)]


def test_rows_of_two_joins_wait_for_each_other() -> None:
    one, other = (of_partitions(name, value) for name, value in (("orders", "price"), ("payments", "paid")))
    third = of_partitions("refunds", "back")
    both = one.join(other, WINDOWS).merge(one.join(third, WINDOWS))
    closing = tg.TimeWindows.of_size_and_grace("10 ms", "15 ms")
    counted = both.group_by_key().windowed_by(closing).emit_strategy(tg.EmitStrategy.on_window_close()).count()
    driver = TopologyTestDriver(counted)
    values = {"orders": "price", "payments": "paid", "refunds": "back"}

    def counts(*records: tuple[str, int]) -> list[int]:
        whole = [(name, {"k": "a", "ts": ts, "p": 0, "o": ts, values[name]: 1}) for name, ts in records]
        return [row["count"] for row in rows(driver, *whole)]

    assert counts(("orders", 1), ("payments", 2), ("refunds", 2)) == []
    assert counts(("orders", 500), ("payments", 500)) == []  # the join with refunds is at 2
    assert counts(("refunds", 3)) == []
    assert counts(("refunds", 40)) == [3]
    assert driver.drops["late"] == 0


def test_a_join_behind_a_join_waits_for_the_slower_side_of_both() -> None:
    first = of_partitions("orders", "price").join(of_partitions("payments", "paid"), WINDOWS)
    driver = TopologyTestDriver(first.left_join(of_partitions("refunds", "back"), WINDOWS))
    offsets = iter(range(100))

    def backs(stream: str, ts: int, partition: int = 0) -> list[tuple[int, int | None]]:
        value = {"orders": "price", "payments": "paid", "refunds": "back"}[stream]
        found = rows(driver, (stream, {"k": "a", "ts": ts, "p": partition, "o": next(offsets), value: ts}))
        return [(row["timestamp"], row["back"]) for row in found]

    for stream, ts, partition in (("orders", 1, 0), ("refunds", 1, 0), ("orders", 300, 1), ("payments", 301, 1)):
        assert backs(stream, ts, partition) == []
    assert backs("refunds", 200) == []
    # The pair at 301 does not close windows that the slow payments still fill.
    assert backs("payments", 2) == [(2, 1)]
    assert [backs("orders", 250), backs("payments", 250)] == [[], []]
    assert backs("refunds", 310) == [(310, 310)]
    assert [backs("orders", 400), backs("payments", 400)] == [[], [(250, None)]]


def test_columns_that_no_record_has_shown_yet_are_null_behind_a_join() -> None:
    joined = orders(schema=None).outer_join(payments(schema=None), WINDOWS)
    windows = tg.TimeWindows.of_size_and_grace("10 ms", "50 ms")
    totals = joined.group_by_key().windowed_by(windows).agg(asked=tg.sum("price"), paid=tg.sum("paid"))
    driver = TopologyTestDriver(totals)
    found = rows(driver, order("a", 1), order("a", 30), payment("a", 31, 4))
    assert [(row["asked"], row["paid"]) for row in found] == [(1, None), (1, 4)]
    driver = TopologyTestDriver(joined.group_by("shop").count())
    rows(driver, order("a", 1))
    with pytest.raises(tg.DefinitionError, match="no column 'shop', only k, price, paid"):
        rows(driver, payment("a", 1))


def test_streams_that_were_merged_filtered_and_keyed_anew() -> None:
    shops = tg.stream("shops", key="shop", timestamp="ts", stream_time="max").select_key("k")
    cards = tg.stream("cards", key="k", timestamp="ts", stream_time="max")
    cash = tg.stream("cash", key="k", timestamp="ts", stream_time="max")
    driver = TopologyTestDriver(shops.join(cards.merge(cash).filter(lambda row: row["paid"] > 1), WINDOWS))
    rows(driver, ("shops", {"shop": "s", "k": "a", "ts": 1}))
    found = rows(driver, *((name, {"k": "a", "ts": 2, "paid": n}) for name, n in (("cards", 1), ("cash", 2))))
    assert [(row["shop"], row["paid"]) for row in found] == [("s", 2)]


def test_changes_of_a_table_join_a_stream() -> None:
    counts = orders().group_by_key().count().to_stream()
    driver = TopologyTestDriver(counts.join(payments(), WINDOWS))
    found = rows(driver, order("a", 1), order("a", 2), payment("a", 3))
    assert [(row["count"], row["timestamp"]) for row in found] == [(1, 3), (2, 3)]


# -- tables ----------------------------------------------------------------------------------------------------------


def test_a_table_with_steps_and_one_that_is_aggregated() -> None:
    priced = prices().map_values({"price_now": "price"}).filter(lambda row: row["price_now"] > 1)
    driver = TopologyTestDriver(payments(schema=None).left_join(priced))
    changes = [("prices", {"k": "a", "ts": 0, "price": n, "gone": False}) for n in (5, 1)]
    rows(driver, changes[0])
    assert [row["price_now"] for row in rows(driver, payment("a", 1))] == [5]
    rows(driver, changes[1])
    assert [row["price_now"] for row in rows(driver, payment("a", 1))] == [None]

    total = orders().group_by_key().agg(n=tg.count())
    driver = TopologyTestDriver(payments().join(total))
    assert [row["n"] for row in rows(driver, order("a", 1), order("a", 1), payment("a", 0), payment("b", 0))] == [2]


def test_the_column_of_deletions_is_no_value() -> None:
    named = {"key": "k", "timestamp": "ts", "deleted": "gone"}
    known = {"k": pa.string(), "ts": pa.int64(), "gone": pa.bool_()}
    one, other = (tg.table(name, schema=pa.schema({**known, name: pa.int64()}), **named) for name in ("a", "b"))
    driver = TopologyTestDriver(one.join(other))
    found = rows(driver, *((name, {"k": "x", "ts": 1, name: 2, "gone": False}) for name in ("a", "b")))
    assert found == [{"k": "x", "a": 2, "b": 2, "timestamp": 1, "deleted": False}]


def test_a_joined_table_is_a_table() -> None:
    other = tg.table("stock", key="k", timestamp="ts", deleted="gone")
    both = prices().join(other)
    driver = TopologyTestDriver(both.group_by("price").agg(n=tg.count()))
    given = [("prices", {"k": key, "ts": 1, "price": 5, "gone": False}) for key in "ab"]
    given += [("stock", {"k": key, "ts": 2, "pieces": 1, "gone": False}) for key in "ab"]
    found = rows(driver, *given, ("prices", {"k": "a", "ts": 3, "price": 7, "gone": False}))
    assert [(row["price"], row["n"]) for row in found] == [(5, 1), (5, 2), (5, 1), (7, 1)]
    late = both.suppress(tg.Suppressed.until_time_limit("10 ms", tg.BufferConfig.unbounded(), clock="stream"))
    driver = TopologyTestDriver(late)
    assert rows(driver, *given) == []
    driver.drain()
    assert [row["k"] for row in driver.read_output()] == ["a", "b"]


@pytest.mark.parametrize(
    ("build", "says"),
    [
        (lambda: payments().join(prices(), WINDOWS), "a table has no windows to meet in"),
        (lambda: payments().join(prices(), how="outer"), "only records of the stream make rows"),
        (lambda: payments().outer_join(prices()), "only records of the stream make rows"),
        (lambda: payments().join(prices(), grace="1 s"), "the table has no history"),
        (lambda: payments().join(prices(history="1 ms"), grace="1 s"), "a history of 1 millisecond"),
        (lambda: payments().join(prices(history="1 s"), grace="-1 ms"), "must not be negative"),
        (lambda: payments().join(orders(), WINDOWS, grace="1 s"), "is for joins with a table"),
        (lambda: prices(history="-1 s"), "`history` is -1 second"),
        (lambda: payments().join(orders()), "`windows` is None"),
        (lambda: payments().join(orders(), "5 minutes"), "`windows` is '5 minutes'. Use JoinWindows"),
        (lambda: payments().left_join(orders(), "5 minutes"), "`windows` is '5 minutes'. Use JoinWindows"),
        (lambda: payments().join(orders(), "left"), "`windows` is 'left'. Use JoinWindows"),
        (lambda: payments().left_join(prices(history="1 s"), "1 s"), "the time to wait for the table as grace=..."),
        (lambda: payments().join(5), "neither a stream nor a table"),
        (lambda: payments().join(SimpleNamespace(isStreaming=False)), "If it is static, join it by Spark"),
        (lambda: prices().join(payments()), "A stream is joined with a table"),
        (
            lambda: orders().join(payments().select_key("paid"), WINDOWS),
            "the key of 'orders' is k and that of 'payments' paid",
        ),
        (
            lambda: payments().join(orders().group_by_key().windowed_by(SECONDS).count()),
            "the key of 'payments' is k and that of 'orders' k, window",
        ),
    ],
)
def test_what_cannot_be_joined(build: Any, says: str) -> None:
    with pytest.raises(tg.TidegateError, match=says):
        build()


def test_a_stream_of_which_no_record_has_a_key_joins_nothing() -> None:
    """Without a schema the type of such a key is not known."""
    events = tg.stream("events", key="k", timestamp="ts", stream_time="max")
    driver = TopologyTestDriver(events.left_join(events, WINDOWS, suffixes=("_left", "_right")))
    records = [("events", {"k": None, "ts": ts, "v": ts}) for ts in (0, 1, 2)]
    assert [(row["v_left"], row["v_right"]) for row in rows(driver, *records)] == [(0, None), (1, None), (2, None)]
    assert [row["v_right"] for row in rows(driver, ("events", {"k": "A", "ts": 2, "v": 3}))] == [3]


@pytest.mark.parametrize("key", ["A", 1, True, b"A", 1.5])
@pytest.mark.parametrize("how", ["left", "outer"])
def test_a_side_whose_keys_are_all_null_so_far(key: Any, how: Any) -> None:
    """Without schemas the keys of one side have a type, those of the other side none yet."""
    left, right = (tg.stream(name, key="k", timestamp="ts", stream_time="max") for name in ("orders", "payments"))
    driver = TopologyTestDriver(left.join(right, WINDOWS, how))
    found = rows(driver, payment(key, 1), order(None, 2), order(None, 50), order(key, 51), payment(key, 52))
    wanted = [(None, 2, None), (None, 50, None), *([(key, 1, 1)] if how == "outer" else []), (key, 52, 1)]
    assert [(row["k"], row["timestamp"], row["paid"]) for row in found] == wanted


@pytest.mark.parametrize("kind", [pa.int8(), pa.int32(), pa.int64(), pa.float32(), pa.float64(), pa.string()])
def test_a_null_key_leaves_in_order_whatever_its_type(kind: pa.DataType) -> None:
    schema = pa.schema([("k", kind), ("v", pa.int64()), ("ts", pa.int64())])
    left, right = (tg.stream(name, key="k", timestamp="ts", schema=schema, stream_time="max") for name in "ab")
    windows = tg.JoinWindows.of_time_difference_with_no_grace("0 ms")
    driver = TopologyTestDriver(left.left_join(right, windows, suffixes=("", "_r")))
    one, two = pa.array([1, 2]).cast(kind).to_pylist()
    driver.pipe_batch([{"k": k, "v": n, "ts": 5} for n, k in enumerate([None, two, None, one])], "a")
    assert [(row["k"], row["v"]) for row in driver.read_output()] == [(None, 0), (None, 2)]
    driver.pipe_batch([{"k": k, "v": n, "ts": 9} for n, k in enumerate([None, two])], "a")
    assert [(row["k"], row["v"]) for row in driver.read_output()] == [(None, 0), (one, 3), (two, 1)]


# -- a stream with a part of itself --------------------------------------------------------------------------------

FEW, MANY = pc.field("price") < 3, pc.field("price") >= 3
PARTS = {
    "filter": (lambda s: s.filter(FEW), lambda s: s.filter(MANY)),
    "an expression and a function": (lambda s: s.filter(FEW), lambda s: s.filter(lambda row: row["price"] >= 3)),
    "a function and an expression": (lambda s: s.filter(lambda row: row["price"] < 3), lambda s: s.filter(MANY)),
    "map_values": (
        lambda s: s.filter(FEW).map_values({"price": pc.field("price")}),
        lambda s: s.filter(MANY).map_values({"price": pc.field("price") * 1}),
    ),
    "behind a table": (
        lambda s: s.filter(FEW).group_by_key().reduce(max, "price").to_stream(),
        lambda s: s.filter(MANY).group_by_key().reduce(max, "price").to_stream(),
    ),
}


@pytest.mark.filterwarnings("ignore::tidegate.TidegateWarning")
@pytest.mark.parametrize("parts", PARTS.values(), ids=PARTS)
def test_parts_of_a_stream_chosen_by_expressions_join(parts: Any) -> None:
    """The join of two parts is one of two streams: no record meets itself."""
    few, many = (part(orders()) for part in parts)
    driver = TopologyTestDriver(few.join(many, WINDOWS, suffixes=("_few", "_many")))
    found = rows(driver, order("a", 1, 2), order("a", 2, 5), order("a", 3, 6))
    assert [(row["price_few"], row["price_many"]) for row in found] == [(2, 5), (2, 6)]


def test_a_part_that_is_chosen_twice_by_equal_expressions_is_one_stream() -> None:
    few, again = orders().filter(pc.field("price") < 3), orders().filter(pc.field("price") < 3)
    driver = TopologyTestDriver(few.join(again, WINDOWS, suffixes=("_l", "_r")))
    assert len(rows(driver, order("a", 1, 2), order("a", 2, 2), order("a", 3, 7))) == 4
    assert stored_records(driver) == [2, 0]


def test_joins_whose_value_joiners_are_expressions_join() -> None:
    def joined(left: Any) -> tg.KStream:
        return orders().join(payments(), WINDOWS, value_joiner={"sum": pc.field("left", "price") + left})

    both = joined(pc.field("left", "price")).join(joined(pc.field("right", "paid")), WINDOWS, suffixes=("_l", "_r"))
    (row,) = rows(TopologyTestDriver(both), order("a", 1, 2), payment("a", 1, 7))
    assert (row["sum_l"], row["sum_r"]) == (4, 9)


# -- a stream with itself ------------------------------------------------------------------------------------------


def itself(how: Any, windows: tg.JoinWindows = WINDOWS) -> tg.KStream:
    stream = orders()
    return stream.join(stream, windows, how=how, suffixes=("_l", "_r"))


@pytest.mark.parametrize("ts", [1_000, MAX_MS - 5])
def test_a_window_that_begins_after_the_record_leaves_it_out_at_the_last_instants_too(ts: int) -> None:
    cards = tg.stream("cards", key="k", timestamp="ts")
    later = tg.JoinWindows.of_time_difference_and_grace("20 ms", "1 second").before("-10 ms")
    driver = TopologyTestDriver(cards.join(cards, later, suffixes=("", "_next")))
    driver.pipe_input({"k": "A", "ts": ts, "n": 1})
    assert driver.read_output() == []


def stored_records(driver: TopologyTestDriver) -> list[int]:
    """Number of stored records of each side."""
    stored = driver.state().stores[0]
    state = State.open(stored)
    assert state is not None
    return [index.totals().rows for index in (state.logs, state.right)]


ITSELF = (order("a", 1, 1), order("b", 2, 2), order("a", 8, 3))


@pytest.mark.parametrize("how", ["inner", "left", "outer"])
def test_a_record_that_meets_its_own_stream_is_kept_once(how: Any) -> None:
    """The window reaches as far back as ahead; both sides can still be read and are counted."""
    once, twice = TopologyTestDriver(itself(how)), TopologyTestDriver(itself(how, WINDOWS.after("9 ms")))
    assert rows(once, *ITSELF) == rows(twice, *ITSELF)
    assert (stored_records(once), stored_records(twice)) == ([3, 0], [3, 3])
    assert (once.metrics()["open_left_records"], once.metrics()["open_right_records"]) == (3, 3)
    for side, preserved in (("left", how != "inner"), ("right", how == "outer")):
        assert [row["status"] for row in once.read_state(f"join-{side}")] == ["joined" if preserved else "open"] * 3
    once.pipe_input(*reversed(order("b", 500)))
    assert stored_records(once) == [1, 0]


@pytest.mark.parametrize("how", ["inner", "outer"])
def test_a_checkpoint_that_kept_every_record_twice_goes_on(how: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    later = (order("a", 9, 4), order("c", 3, 5), order("b", 100, 6))
    whole = TopologyTestDriver(itself(how))
    wanted = rows(whole, *ITSELF, *later)
    with monkeypatch.context() as patch:
        patch.setattr(StreamStreamJoin, "_once", False)
        before = TopologyTestDriver(itself(how))
        found = rows(before, *ITSELF)
        assert stored_records(before) == [3, 3]
    after = TopologyTestDriver(itself(how), state=before.state())
    assert found + rows(after, *later) == wanted
    assert stored_records(after) == stored_records(whole) == [1, 0]


def joined_counts(**clock: Any) -> tg.KStream:
    """Two tables of counts as streams, joined: `to_stream` takes no clock."""
    left, right = (
        tg.stream(name, key="k", timestamp="ts", **clock).group_by_key().count(name=f"n_{name}").to_stream()
        for name in ("a", "b")
    )
    return left.left_join(right, tg.JoinWindows.of_time_difference_with_no_grace("1 ms"))


@pytest.mark.parametrize(
    ("clock", "leave"),
    [({"stream_time": "max"}, [1, 2]), ({"stream_time": "min_partition", "partition": "p", "offset": "o"}, [])],
)
def test_a_join_behind_aggregations_has_the_clock_that_their_streams_say(
    clock: dict[str, Any], leave: list[int], recwarn: pytest.WarningsRecorder
) -> None:
    driver = TopologyTestDriver(joined_counts(**clock))
    for offset, ts in enumerate((1, 2, 9)):
        driver.pipe_input({"k": "A", "ts": ts, "p": 0, "o": offset}, "a")
    assert [row["timestamp"] for row in driver.read_output()] == leave
    assert not recwarn.list


def test_idle_after_of_the_streams_holds_in_a_join_behind_their_aggregations() -> None:
    clock = {"stream_time": "min_partition", "partition": "p", "offset": "o", "idle_after": "1 minute"}
    driver = TopologyTestDriver(joined_counts(**clock))
    driver.pipe_input({"k": "A", "ts": 1, "p": 0, "o": 0}, "a")
    driver.advance_wall_clock("2 minutes")
    for offset, ts in ((1, 5), (2, 9)):
        driver.pipe_input({"k": "A", "ts": ts, "p": 0, "o": offset}, "a")
    assert [row["timestamp"] for row in driver.read_output()] == [1, 5]


def test_streams_that_say_different_clocks_say_none_behind_their_aggregations() -> None:
    clocks: tuple[dict[str, Any], ...] = (
        {"stream_time": "max"},
        {"stream_time": "min_partition", "partition": "p", "offset": "o"},
    )
    left, right = (
        tg.stream(name, key="k", timestamp="ts", **clock).group_by_key().count(name=f"n_{name}").to_stream()
        for name, clock in zip("ab", clocks, strict=True)
    )
    with pytest.warns(tg.TidegateWarning, match="goes by the time of the slower side"):
        left.left_join(right, tg.JoinWindows.of_time_difference_with_no_grace("1 ms"))
