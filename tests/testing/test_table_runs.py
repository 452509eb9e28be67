"""Rows by key: new versions are added as runs, and superseded ones go when runs are merged."""

from __future__ import annotations

import random
import weakref
from collections import Counter
from typing import Any

import pyarrow as pa
import pytest

import tidegate as tg
from tidegate.kernel.state import sorted_runs
from tidegate.kernel.state.copies import Copies
from tidegate.kernel.state.frames import Encoded
from tidegate.kernel.state.keyed_runs import KeyedRuns, OfRange
from tidegate.kernel.state.sorted_runs import Part
from tidegate.kernel.state.state import State
from tidegate.kernel.state.store import Section
from tidegate.kernel.state.tables import TABLE_RIGHT
from tidegate.kernel.tuning import Tuning
from tidegate.kernel.windows.rows_by_key import RowsByKey
from tidegate.testing import TopologyTestDriver

ORDERS = pa.schema(
    [("user", pa.string()), ("ts", pa.int64()), ("amount", pa.int64()), ("p", pa.int32()), ("o", pa.int64())]
)
PRICES = pa.schema(
    [
        *[field for field in ORDERS if field.name != "amount"],
        pa.field("price", pa.int64()),
        pa.field("gone", pa.bool_()),
    ]
)
SMALL = Tuning(
    range_rows=6,
    read_whole_rows=60,
    block_rows=4,
    copy_bytes=3_000,
    file_bytes=100,
    page_logs=3,
    fanout=3,
    root_entries=2,
)


def lookups(schema: pa.Schema = PRICES, **table: Any) -> tg.KStream:
    order = {"key": "user", "timestamp": "ts", "partition": "p", "offset": "o"}
    prices = tg.table("prices", **order, deleted="gone", schema=schema, **table)
    return tg.stream("orders", **order, schema=ORDERS, stream_time="max").left_join(prices)


def ranges(driver: TopologyTestDriver) -> list[list[int]]:
    """Number of versions in each run of each range of the table."""
    return [[part.rows for part in parts] for parts in stored_runs(driver)]


def stored_runs(driver: TopologyTestDriver) -> list[list[Part]]:
    """The runs of each range of the table."""
    [store] = driver.state().stores
    state = State.open(store)
    if state is None:
        return []
    table = KeyedRuns.of(state.right, Section(state.store, TABLE_RIGHT), lambda rows: rows)
    there = [number for number in table.index if table.index[number].segments]
    return [table.runs.contents(number).runs for number in there]


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("tuning", [SMALL, Tuning()], ids=["small", "default"])
def test_every_lookup_finds_the_row_that_came_last(seed: int, tuning: Tuning, monkeypatch: pytest.MonkeyPatch) -> None:
    """With copies of the runs, without, and with rows that have lists, of which there are no copies."""
    draw = random.Random(seed)
    schema = PRICES if seed % 3 else PRICES.append(pa.field("list", pa.list_(pa.int64())))
    driver = TopologyTestDriver(lookups(schema), tuning=tuning)
    users, rows, offset = [f"user {n}" for n in range(draw.choice([3, 40, 200]))], dict[str, int](), 0
    runs, cuts = 0, 0
    for number in range(18):
        if draw.random() < 0.2:
            driver = TopologyTestDriver(lookups(schema), state=driver.state(), tuning=tuning)
        if draw.random() < 0.2:
            monkeypatch.setattr(sorted_runs, "COPIES", Copies())
        changes = []
        for _ in range(draw.choice([0, 1, 2, 3, 80])):
            user, gone, offset = draw.choice(users), draw.random() < 0.3, offset + 1
            ts, price = number * 10 + draw.randrange(12), draw.randrange(1_000)
            change = {"user": user, "ts": ts, "p": 0, "o": offset, "price": price, "gone": gone}
            changes.append(change if seed % 3 else change | {"list": [price]})
            rows.pop(user, None)
            if not gone:
                rows[user] = price
        driver.pipe_batch(changes, "prices")
        asked = [draw.choice(users) for _ in range(draw.choice([1, 5, 50]))]
        orders = []
        for user in asked:
            offset += 1
            orders.append({"user": user, "ts": number * 10, "amount": offset, "p": 0, "o": offset})
        driver.pipe_batch(orders, "orders")
        output = driver.read_output()
        assert seed % 3 or all(row["list"] == (None if row["price"] is None else [row["price"]]) for row in output)
        found = {(row["user"], row["amount"]): row["price"] for row in output}
        assert found == {(user, one["amount"]): rows.get(user) for user, one in zip(asked, orders, strict=True)}
        stored = driver.read_state("join-right")
        assert {row["user"]: row["price"] for row in stored} == rows
        assert len(stored) == len(rows)
        assert driver.metrics()["open_right_records"] == len(rows)
        found_runs = ranges(driver)
        runs, cuts = max([runs, *map(len, found_runs)]), max(cuts, len(found_runs))
        # A range has at most twice the versions that counted at its last merge, when it was also split.
        assert all(sum(of) <= 2 * max(of) for of in found_runs)
        assert all(of[0] <= max(tuning.range_rows, 80) for of in found_runs)
    assert runs > 1 or len(rows) < 4
    assert (cuts > 1) == (tuning is SMALL and len(users) > 3)


def test_runs_of_about_one_size_become_one_and_a_range_is_put_together_when_it_has_doubled() -> None:
    driver = TopologyTestDriver(lookups())
    change = {"p": 0, "price": 1, "gone": False}
    driver.pipe_batch([change | {"user": f"{n}", "ts": 0, "o": n} for n in range(20)], "prices")
    seen = []
    for n in range(5):
        more = [change | {"user": f"{user}", "ts": n, "o": 100 + n, "price": n} for user in (7, 8, 9)]
        driver.pipe_batch(more, "prices")
        seen.append(ranges(driver))
    # 3 + 3 have as many bits as 3; 20 is merged with 12 and 3, whose versions of three keys are one each.
    assert seen == [[[20, 3]], [[20, 6]], [[20, 6, 3]], [[20, 12]], [[20, 12, 3]]]
    for n in range(5, 7):
        driver.pipe_batch([change | {"user": f"{user}", "ts": n, "o": 200 + n} for user in (7, 8, 9)], "prices")
    assert ranges(driver) == [[20]]
    assert len(driver.read_state("join-right")) == 20


def test_one_batch_does_not_compact_all_ranges(monkeypatch: pytest.MonkeyPatch) -> None:
    """Random keys let all ranges grow alike."""
    compacted: list[int] = []
    compact = KeyedRuns._put_together

    def counted(runs: KeyedRuns, number: int, *more: Any, **named: Any) -> None:
        compacted.append(number)
        compact(runs, number, *more, **named)

    monkeypatch.setattr(KeyedRuns, "_put_together", counted)
    draw, keys = random.Random(1), 8_000
    driver = TopologyTestDriver(lookups(), tuning=Tuning(range_rows=1_000))
    change = {"ts": 0, "p": 0, "price": 1, "gone": False}
    driver.pipe_batch([change | {"user": f"{n}", "o": n} for n in range(keys)], "prices")
    there = len(ranges(driver))
    assert there >= 8
    of_batch = []
    for number in range(15):
        compacted.clear()
        users = draw.sample(range(keys), keys // 13)
        offset = keys * (number + 1)
        driver.pipe_batch([change | {"user": f"{n}", "o": offset + at} for at, n in enumerate(users)], "prices")
        of_batch.append(len(set(compacted)))
    assert sum(of_batch) >= there
    assert max(of_batch) <= there / 3, of_batch


def test_a_range_is_empty_when_all_its_keys_are_deleted() -> None:
    driver = TopologyTestDriver(lookups())
    rows = [{"user": f"{n}", "ts": 0, "o": n, "p": 0, "price": 1, "gone": False} for n in range(20)]
    driver.pipe_batch(rows, "prices")
    driver.pipe_batch([row | {"o": 50, "gone": True} for row in rows], "prices")
    assert ranges(driver) == []
    assert driver.metrics()["open_right_records"] == 0
    driver.pipe_batch([row | {"o": 90} for row in rows[:3]], "prices")
    assert ranges(driver) == [[3]]


def test_nothing_is_remembered_of_a_key_that_has_no_row_and_gets_none() -> None:
    driver = TopologyTestDriver(lookups())
    change = {"ts": 1, "p": 0, "price": 1}
    driver.pipe_batch([change | {"user": "a", "o": 1, "gone": False}], "prices")
    driver.pipe_batch([change | {"user": "b", "o": 2, "gone": True}], "prices")
    assert ranges(driver) == [[1]]


def test_the_last_row_is_the_first_version_of_a_history() -> None:
    """Also if it came last and is older than the one before it, and if it is in a segment of its own."""
    driver = TopologyTestDriver(lookups())
    change = {"user": "a", "p": 0, "gone": False}
    first = [change | {"user": user, "ts": 100, "o": n, "price": n} for n, user in enumerate("abcd", 1)]
    driver.pipe_batch(first, "prices")
    driver.pipe_batch(
        [change | {"ts": 50, "o": 5, "price": 9}, change | {"user": "b", "ts": 110, "o": 6, "price": 9, "gone": True}],
        "prices",
    )
    assert ranges(driver) == [[4, 2]]
    driver = TopologyTestDriver(lookups(history="1 hour"), state=driver.state())
    rows = [("a", 9), ("c", 3), ("d", 4)]
    assert sorted((row["user"], row["price"]) for row in driver.read_state("join-right")) == rows
    order = {"ts": 200, "p": 0, "amount": 0}
    driver.pipe_batch([order | {"user": user, "o": n} for n, user in enumerate("ab", 10)], "orders")
    assert {row["user"]: row["price"] for row in driver.read_output()} == {"a": 9, "b": None}
    driver.pipe_batch([change | {"ts": 150, "o": 7, "price": 8}], "prices")
    found = sorted((row["user"], row["price"]) for row in driver.read_state("join-right"))
    assert found == [("a", 8), *rows]


def test_a_bucket_may_have_rows_from_before_a_column_was_added() -> None:
    driver = TopologyTestDriver(lookups())
    change = {"ts": 1, "p": 0, "gone": False}
    driver.pipe_batch([change | {"user": user, "o": n, "price": n} for n, user in enumerate("ab")], "prices")
    more = PRICES.append(pa.field("currency", pa.string()))
    driver = TopologyTestDriver(lookups(schema=more), state=driver.state())
    driver.pipe_batch([change | {"user": "b", "o": 5, "price": 5, "currency": "EUR"}], "prices")
    assert ranges(driver) == [[2, 1]]
    order = {"ts": 200, "p": 0, "amount": 0}
    driver.pipe_batch([order | {"user": user, "o": n} for n, user in enumerate("ab", 10)], "orders")
    assert [(row["user"], row["price"], row["currency"]) for row in driver.read_output()] == [
        ("a", 0, None),
        ("b", 5, "EUR"),
    ]


def test_keys_of_several_numbers_that_lie_far_apart() -> None:
    """The code of such a key can be as large as the product of its columns' ranges."""
    schema = pa.schema([(name, pa.int64()) for name in ("a", "b", "ts", "n", "o")] + [("p", pa.int32())])
    of = {"key": ["a", "b"], "timestamp": "ts", "partition": "p", "offset": "o", "schema": schema}
    table = tg.stream("orders", **of, stream_time="max").join(tg.table("prices", **of), suffixes=("", "_r"))
    driver = TopologyTestDriver(table)
    far = (0, 3, 2**30 + 1)
    rows = [{"a": a, "b": b, "ts": 1, "n": a - b, "o": 0, "p": 0} for a in far for b in far]
    for number in range(3):
        driver.pipe_batch([row | {"o": 9 * number + place} for place, row in enumerate(rows)], "prices")
    driver.pipe_batch(rows, "orders")
    assert [row["n_r"] for row in driver.read_output()] == [row["n"] for row in rows]
    assert driver.metrics()["open_right_records"] == 9


def both_tables(**histories: str) -> tg.KTable:
    order = {"key": "user", "timestamp": "ts", "partition": "p", "offset": "o", "deleted": "gone"}
    left, right = (
        tg.table(name, **order, schema=PRICES.set(4, pa.field(name, pa.int64())), **histories)
        for name in ("asks", "bids")
    )
    return left.outer_join(right)


@pytest.mark.parametrize("side", ["left", "right"])
def test_joined_tables_keep_nothing_of_keys_that_are_deleted(side: str) -> None:
    driver = TopologyTestDriver(both_tables())
    name = {"left": "asks", "right": "bids"}[side]
    rows = [{"user": f"{n}", "ts": 0, "o": n, "p": 0, name: 1, "gone": False} for n in range(20)]
    for batch in (rows, [row | {"o": 50, "gone": True} for row in rows]):
        driver.pipe_batch(batch, name)
    assert driver.metrics()[f"open_{side}_records"] == 0


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("histories", [{}, {"history": "20 ms"}], ids=["no history", "history"])
def test_tables_give_the_same_however_their_runs_are_cut_and_copied(seed: int, histories: dict[str, str]) -> None:
    draw = random.Random(seed)
    tunings = [SMALL, Tuning()]
    drivers = [TopologyTestDriver(both_tables(**histories), tuning=one) for one in tunings]
    most = 0
    for number in range(20):
        if draw.random() < 0.2:
            drivers = [
                TopologyTestDriver(both_tables(**histories), state=driver.state(), tuning=one)
                for driver, one in zip(drivers, tunings, strict=True)
            ]
        name = draw.choice(["asks", "bids"])
        changes = [
            {
                "user": f"user {draw.randrange(60)}",
                "ts": number * 10 + draw.randrange(40),
                "p": 0,
                "o": number * 100 + place,
                name: draw.randrange(1_000),
                "gone": draw.random() < 0.3,
            }
            for place in range(draw.choice([0, 1, 2, 3, 40]))
        ]
        for driver in drivers:
            driver.pipe_batch(changes, name)
        small, whole = (driver.read_output() for driver in drivers)
        assert small == whole
        for side in ("join-left", "join-right"):
            small, whole = (sorted(map(str, driver.read_state(side))) for driver in drivers)
            assert small == whole
        held = [driver.metrics()["open_right_records"] for driver in drivers]
        shown = len(drivers[1].read_state("join-right"))
        # After a restart there are no metrics before the first records.
        assert held == [shown] * 2 or not changes or (histories and min(held) >= shown)
        most = max(most, len(ranges(drivers[0])))
    assert len(ranges(drivers[1])) <= 1 < most


@pytest.mark.parametrize("copied", [True, False])
def test_a_copy_is_made_from_one_table_of_a_run_at_a_time(copied: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """A new worker makes copies of runs of a million rows. Rows with lists have no copies: a run is decoded whole."""
    schema = PRICES if copied else PRICES.append(pa.field("list", pa.list_(pa.int64())))
    rows = [{"user": f"{n}", "ts": 0, "o": n, "p": 0, "price": n, "gone": False} for n in range(40)]
    driver = TopologyTestDriver(lookups(schema), tuning=Tuning(block_rows=4))
    driver.pipe_batch(rows if copied else [row | {"list": [0]} for row in rows], "prices")
    monkeypatch.setattr(sorted_runs, "COPIES", copies := Copies())
    alive: list[weakref.ref[pa.Table]] = []
    together: list[int] = []
    decode = Encoded.table

    def table(one: Encoded) -> pa.Table:
        found = decode(one)
        alive.append(weakref.ref(found))
        together.append(sum(each() is not None for each in alive))
        return found

    monkeypatch.setattr(Encoded, "table", table)
    driver.pipe_batch([{"user": "7", "ts": 1, "amount": 1, "p": 0, "o": 1}], "orders")
    assert [row["price"] for row in driver.read_output()] == [7]
    assert len(copies.held) == copied
    assert (max(together) <= 3) == copied, together


def test_a_worker_drops_copies_of_runs_that_another_one_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two workers run the steps of a task, by turns or at random."""
    draw = random.Random(1)
    workers = [Copies(), Copies()]
    driver = TopologyTestDriver(lookups(), tuning=Tuning(read_whole_rows=0, block_rows=4))
    dropped = 0
    for number in range(40):
        worker = workers[number % 2 if number < 20 else draw.randrange(2)]
        monkeypatch.setattr(sorted_runs, "COPIES", worker)
        before = set(worker.held)
        users = [f"user {draw.randrange(100)}" for _ in range(draw.choice([1, 2, 30]))]
        prices = [
            {"user": user, "ts": number, "p": 0, "o": 100 * number + at, "price": at, "gone": False}
            for at, user in enumerate(users)
        ]
        driver.pipe_batch(prices, "prices")
        asked = {"user": users[0], "ts": number, "amount": 1, "p": 0, "o": number}
        driver.pipe_batch([asked], "orders")
        assert driver.read_output()[0]["price"] is not None
        [runs] = stored_runs(driver)
        assert set(worker.held) <= {run.digest for run in runs}
        assert set(worker.held) == {digest for digests in worker.by_partition.values() for digest in digests}
        dropped += len(before - set(worker.held))
    assert dropped > 20


def test_a_large_table_is_not_read_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its rows and the keys of the batch are counted together."""
    driver = TopologyTestDriver(counted(), tuning=Tuning(read_whole_rows=5))
    read: list[int] = []
    whole = KeyedRuns.whole
    monkeypatch.setattr(
        KeyedRuns, "whole", lambda versions: read.append(versions.index.totals().rows) or whole(versions)
    )
    for number, users in enumerate(("abc", "ab", "abc")):
        events = [{"user": user, "ts": number, "n": 10**number, "p": 0, "o": number} for user in users]
        driver.pipe_batch([event | {"o": 10 * number + at} for at, event in enumerate(events)])
        # Users by total: 2 of 3 users are 5 rows together, 3 of 3 are 6.
        assert (3 in read) == (number == 1), (number, read)
        read.clear()
    groups = {row["total"]: row["users"] for row in driver.read_state("groups")}
    assert groups == {1: 0, 11: 0, 101: 1, 111: 2}


def test_rows_that_are_sorted_are_freed_before_a_compaction(monkeypatch: pytest.MonkeyPatch) -> None:
    """A compaction takes as much memory as the rows of the batch."""
    given: list[weakref.ref[pa.Table]] = []
    by_range, put_together = RowsByKey.by_range, KeyedRuns._put_together
    compacted = []

    def kept(rows_by_key: RowsByKey, *rows: pa.Table | None) -> list[OfRange]:
        given[:] = [weakref.ref(one) for one in rows if one is not None]
        return by_range(rows_by_key, *rows)  # type: ignore[arg-type]

    def counted_freed(runs: KeyedRuns, *more: Any, **named: Any) -> None:
        compacted.append([one() is None for one in given])
        put_together(runs, *more, **named)

    monkeypatch.setattr(RowsByKey, "by_range", kept)
    monkeypatch.setattr(KeyedRuns, "_put_together", counted_freed)
    driver = TopologyTestDriver(total_of_users(), tuning=Tuning(read_whole_rows=0, block_rows=4))
    for number in range(6):
        users = [f"user {one}" for one in range(3 * number, 3 * number + 9)]
        events = [{"user": user, "ts": number, "n": 1, "p": 0, "o": 10 * number + at} for at, user in enumerate(users)]
        driver.pipe_batch(events)
    assert [True, True] in compacted
    assert all(all(freed) for freed in compacted)


EVENTS = pa.schema([("user", pa.string()), ("ts", pa.int64()), ("n", pa.int64()), ("p", pa.int32()), ("o", pa.int64())])


def total_of_users() -> tg.KTable:
    """The total of each user, without windows."""
    order: dict[str, Any] = {"key": "user", "timestamp": "ts", "partition": "p", "offset": "o"}
    return tg.stream("events", **order, schema=EVENTS).group_by_key().agg(total=tg.sum("n"))


def counted() -> tg.KTable:
    """Number of users per total: an aggregation without windows whose rows are grouped anew."""
    return total_of_users().group_by("total").agg(tg.Materialized.as_("groups"), users=tg.count())


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("tuning", [SMALL, Tuning()], ids=["small", "default"])
def test_rows_by_key_and_old_values_are_right_after_any_batches(
    seed: int, tuning: Tuning, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With few and with many of the keys in a batch, restarts, and lost copies."""
    draw = random.Random(seed)
    driver = TopologyTestDriver(counted(), tuning=tuning)
    totals, groups, offset = Counter[str](), Counter[int](), 0
    users = [f"user {n}" for n in range(draw.choice([3, 40, 200]))]
    for _ in range(16):
        if draw.random() < 0.2:
            driver = TopologyTestDriver(counted(), state=driver.state(), tuning=tuning)
        if draw.random() < 0.2:
            monkeypatch.setattr(sorted_runs, "COPIES", Copies())
        events = []
        for _ in range(draw.choice([0, 1, 3, 100])):
            user, n, offset = draw.choice(users), draw.choice([0, 1, 2, -1]), offset + 1
            events.append({"user": user, "ts": offset, "n": n, "p": 0, "o": offset})
            if user in totals:
                groups[totals[user]] -= 1
            totals[user] += n
            groups[totals[user]] += 1
        driver.pipe_batch(events)
        told = {row["total"]: row["users"] for row in driver.read_output()}
        assert all(groups[total] == users for total, users in told.items())
        stored = {row["user"]: row["total"] for row in driver.read_state("aggregate")}
        assert stored == dict(totals)
        assert {row["total"]: row["users"] for row in driver.read_state("groups") if row["users"]} == +groups


def test_a_row_that_goes_and_comes_again() -> None:
    """A deleted row has no old value left, so nothing is taken out of a group again."""
    order: dict[str, Any] = {"key": "user", "timestamp": "ts", "partition": "p", "offset": "o"}
    table = tg.table("prices", **order, deleted="gone", schema=PRICES)
    driver = TopologyTestDriver(table.group_by("price").agg(tg.Materialized.as_("groups"), users=tg.count()))
    row = {"user": "a", "ts": 1, "p": 0, "price": 7}
    for offset, gone in enumerate([False, True, True, False, False]):
        driver.pipe_batch([row | {"o": offset, "gone": gone}])
        assert [one["users"] for one in driver.read_state("groups")] == [0 if gone else 1]
