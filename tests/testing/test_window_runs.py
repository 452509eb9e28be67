"""Large windows are stored by key: their rows equal those of windows that each batch reads and writes whole."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import tidegate as tg
from seeds import first
from tidegate.kernel.exchange.packing import pack
from tidegate.kernel.rows import grouping
from tidegate.kernel.rows.layout import Layout
from tidegate.kernel.stage import Stage
from tidegate.kernel.state import sorted_runs
from tidegate.kernel.state.copies import Copies
from tidegate.kernel.state.log_index import Log
from tidegate.kernel.state.state import State
from tidegate.kernel.state.store import DictStore
from tidegate.kernel.state.tables import WINDOW_RUNS
from tidegate.kernel.tuning import Tuning
from tidegate.plan import operation
from tidegate.testing import TopologyTestDriver

EVENTS = pa.schema([("user", pa.string()), ("ts", pa.int64()), ("n", pa.int64()), ("p", pa.int32()), ("o", pa.int64())])
SMALL = Tuning(
    whole_rows=3,
    whole_times=2,
    range_rows=6,
    bucket_rows=4,
    block_rows=4,
    part_rows=5,
    copy_bytes=3_000,
    file_bytes=100,
    page_logs=3,
    fanout=3,
    root_entries=2,
)
FEWEST = Tuning(
    whole_rows=0,
    read_whole_rows=0,
    whole_times=1,
    range_rows=1,
    block_rows=1,
    copy_bytes=0,
    page_logs=2,
    fanout=2,
)
WHOLE = Tuning(whole_rows=1 << 60)

TEN = tg.TimeWindows.of_size_and_grace("10 ms", "5 ms")
CLOSES = tg.Suppressed.until_window_closes(tg.BufferConfig.unbounded())


def events(windows: Any = TEN) -> Any:
    of = {"key": "user", "timestamp": "ts", "partition": "p", "offset": "o", "schema": EVENTS}
    return tg.stream("events", **of).group_by_key().windowed_by(windows)


def ordered(windowed: Any) -> tg.KTable:
    return windowed.agg(tg.Materialized.as_("store"), a=tg.first("n"), z=tg.last("n"), all=tg.collect_list("n"))


def summed(windowed: Any, materialized: tg.Materialized | None = None) -> tg.KTable:
    return windowed.agg(materialized or tg.Materialized.as_("store"), n=tg.count(), total=tg.sum("n"))


def joined(windowed: Any) -> tg.KTable:
    """A Python function whose rows disappear when it returns None, and come again."""

    def aggregator(_key: Any, row: dict[str, Any], so_far: str) -> str | None:
        return None if row["n"] == 0 else f"{so_far}{row['n']};"

    return windowed.aggregate(str, aggregator, type="string", materialized=tg.Materialized.as_("store"))


def both(windowed: Any) -> tg.Outputs:
    table = joined(windowed)
    return tg.outputs(early=table, final=table.suppress(CLOSES))


TOPOLOGIES: dict[str, Callable[[], Any]] = {
    "sum": lambda: summed(events()),
    "sum, every update": lambda: summed(events(), tg.Materialized.as_("store").with_caching_disabled()),
    "sum of hopping windows": lambda: summed(events(TEN.advance_by("5 ms"))),
    "sum of windows without end": lambda: summed(events(tg.UnlimitedWindows.start_on(0))),
    "sum of batch windows": lambda: summed(events(tg.BatchWindows.of_size("10 ms"))),
    "sum of batch windows, final": lambda: summed(events(tg.BatchWindows.of_size("10 ms"))).suppress(CLOSES),
    "first, last, all": lambda: ordered(events()),
    "first, last, all, final": lambda: ordered(events()).suppress(CLOSES),
    "function": lambda: joined(events()),
    "function, final": lambda: joined(events()).suppress(CLOSES),
    "function, updates and final": lambda: both(events(TEN.advance_by("5 ms"))),
    "sum, grouped anew": lambda: summed(events()).group_by("total").agg(tg.Materialized.as_("groups"), m=tg.count()),
}


def drawn(draw: random.Random, users: int, batches: int) -> Iterator[list[dict[str, Any]]]:
    """Batches with few and with many of the keys, most of them in the newest windows; some are late."""
    offset = 0
    for number in range(batches):
        now, batch = number * 4, []
        for _ in range(draw.choice([0, 1, 2, 3, 60])):
            user, offset = f"user {draw.randrange(users)}", offset + 1
            ts = max(0, now - draw.choice([0, 1, 3, 12, 30]) + draw.randrange(4))
            batch.append({"user": user, "ts": ts, "n": draw.randrange(4), "p": 0, "o": offset})
        yield batch


def large(driver: TopologyTestDriver) -> list[Log]:
    """The logs of windows stored by key; an empty range of a table has no segment either, but no window."""
    found = [State.open(store) for store in driver.state().stores]
    return [log for state in found if state for _, log in state.logs.items() if log.segments == 0 and log.windows]


def places(driver: TopologyTestDriver) -> list[int]:
    """Places of large windows' rows in the store."""
    return [place for store in driver.state().stores for place, _ in store.log if place >= WINDOW_RUNS.top]


def output(driver: TopologyTestDriver) -> list[str]:
    return sorted(map(repr, driver.read_output()))


@pytest.mark.parametrize("closes", [False, True])
def test_a_batch_of_keys_that_are_gone(closes: bool) -> None:
    """A function has deleted all rows of the batch's keys: a large window has versions of them, and no row."""
    table = joined(events())
    driver = TopologyTestDriver(table.suppress(CLOSES) if closes else table, tuning=SMALL)
    offsets = itertools.count()

    def pipe(user: str, n: int, ts: int = 1) -> None:
        driver.pipe_input({"user": user, "ts": ts, "n": n, "p": 0, "o": next(offsets)})

    driver.pipe_batch([{"user": f"user {n}", "ts": 1, "n": 1, "p": 0, "o": next(offsets)} for n in range(12)])
    pipe("user 0", 1)  # the window is stored by key from here on
    assert len(large(driver)) == 1
    pipe("user 3", 0)
    driver.read_output()
    pipe("user 3", 2)
    pipe("user 0", 2, ts=15)
    rows = {row["user"]: row["aggregate"] for row in driver.read_output() if row["window"].start == 0}
    others = {f"user {n}": "1;" for n in range(12)} | {"user 0": "1;1;"} if closes else {}
    assert rows == others | {"user 3": "2;"}


@pytest.mark.parametrize("seed", first(2, [0, 12, 1]), ids=["0", "a batch updates and closes many windows", "1"])
@pytest.mark.parametrize("sizes", [SMALL, FEWEST], ids=["small", "fewest"])
@pytest.mark.parametrize("name", TOPOLOGIES)
def test_rows_are_those_of_whole_windows(name: str, sizes: Tuning, seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    draw, made = random.Random(seed), TOPOLOGIES[name]
    tunings = [sizes, WHOLE]
    drivers = [TopologyTestDriver(made(), tuning=tuning) for tuning in tunings]
    most = 0
    for batch in drawn(draw, draw.choice([5, 30, 100]), 16):
        if draw.random() < 0.2:
            drivers = [
                TopologyTestDriver(made(), state=driver.state(), tuning=tuning)
                for driver, tuning in zip(drivers, tunings, strict=True)
            ]
        if draw.random() < 0.2:
            monkeypatch.setattr(sorted_runs, "COPIES", Copies())
        for driver in drivers:
            driver.pipe_batch(batch)
        by_key, whole = drivers
        one, other = output(by_key), output(whole)
        assert one == other
        assert sorted(map(repr, by_key.read_state("store"))) == sorted(map(repr, whole.read_state("store")))
        # Bytes differ, and so do metrics before the first records.
        same = ("open_windows", "buffer_records", "late")
        assert [by_key.metrics().get(one) for one in same] == [whole.metrics().get(one) for one in same]
        assert not large(whole)
        most = max(most, len(large(by_key)))
        assert bool(places(by_key)) == bool(large(by_key))
    assert most > 0
    for driver in drivers:
        driver.drain()
    assert output(drivers[0]) == output(drivers[1])
    assert not places(drivers[0]) or "without end" in name


def rows_of(users: int, n: int, ts: int = 1) -> list[dict[str, Any]]:
    return [{"user": f"user {u}", "ts": ts, "n": n, "p": 0, "o": 1_000 * n + u} for u in range(users)]


def test_a_batch_with_few_of_the_keys_stores_a_window_by_key_and_one_with_many_whole() -> None:
    driver = TopologyTestDriver(summed(events()), tuning=SMALL)
    seen = []
    for n, users in enumerate((20, 10, 9, 20, 20, 2)):
        driver.pipe_batch(rows_of(users, n))
        seen.append([log.rows for log in large(driver)])
    assert seen == [[], [], [20], [], [], [20]]
    assert {row["total"] for row in driver.read_state("store")} == {0 + 1 + 2 + 3 + 4 + 5, 0 + 1 + 2 + 3 + 4, 8, 7}


def test_a_small_window_is_stored_whole() -> None:
    driver = TopologyTestDriver(summed(events()))
    for n, users in enumerate((10_000, 1)):
        driver.pipe_batch(rows_of(users, n))
    assert large(driver) == []
    driver.pipe_batch(rows_of(10_001, 3))
    driver.pipe_batch(rows_of(1, 4))
    assert [log.rows for log in large(driver)] == [10_001]


def test_keys_of_one_hash(monkeypatch: pytest.MonkeyPatch) -> None:
    """All keys have the same hash, so that batches find the rows of all keys."""
    monkeypatch.setattr(grouping, "key_hash", lambda _layout, rows: np.zeros(rows.num_rows, np.uint64))
    driver = TopologyTestDriver(joined(events()), tuning=SMALL)
    driver.pipe_batch(rows_of(8, 1))
    driver.pipe_batch(rows_of(3, 2))
    assert [log.rows for log in large(driver)] == [8]
    assert [row["aggregate"] for row in driver.read_state("store")].count("1;2;") == 3
    driver.pipe_batch([row | {"o": row["o"] + 3_000} for row in rows_of(7, 0)])
    assert [log.rows for log in large(driver)] == [1]
    assert [row["user"] for row in driver.read_state("store")] == ["user 7"]
    driver.pipe_batch([row | {"o": row["o"] + 5_000} for row in rows_of(8, 0)[7:]])
    assert driver.read_state("store") == []
    assert large(driver) == places(driver) == []
    assert driver.metrics()["open_windows"] == 0


@pytest.mark.parametrize("closes", [False, True], ids=["updates", "final"])
def test_a_window_that_closes_leaves_nothing(closes: bool) -> None:
    table = joined(events())
    driver = TopologyTestDriver(table.suppress(CLOSES) if closes else table, tuning=SMALL)
    driver.pipe_batch(rows_of(30, 1))
    driver.pipe_batch(rows_of(2, 2))
    assert large(driver)
    driver.read_output()
    # This batch changes the window and closes it.
    driver.pipe_batch([*rows_of(3, 3), {"user": "z", "ts": 90, "n": 1, "p": 0, "o": 9_000}])
    wanted = [f"{'1;' if u >= 0 else ''}{'2;' if u < 2 else ''}{'3;' if u < 3 else ''}" for u in range(30)]
    found = {row["user"]: row["aggregate"] for row in driver.read_output()}
    mine = [found.get(f"user {u}") for u in range(30)]
    assert mine == (wanted if closes else [*wanted[:3], *[None] * 27])
    assert places(driver) == []


def strict(table: tg.KTable) -> tg.KTable:
    return table.suppress(tg.Suppressed.until_window_closes(tg.BufferConfig.max_records(999).shut_down_when_full()))


UPGRADES: dict[str, tuple[Callable[[], Any], Callable[[], Any]]] = {
    "a bound": (lambda: summed(events()), lambda: strict(summed(events()))),
    "a bound of a function": (lambda: joined(events()).suppress(CLOSES), lambda: strict(joined(events()))),
    "final results": (lambda: summed(events()), lambda: summed(events()).suppress(CLOSES)),
    "a longer grace": (
        lambda: summed(events()),
        lambda: summed(events(tg.TimeWindows.of_size_and_grace("10 ms", "9 ms"))),
    ),
    "another aggregate": (
        lambda: summed(events(tg.UnlimitedWindows.start_on(0))),
        lambda: events(tg.UnlimitedWindows.start_on(0)).agg(
            tg.Materialized.as_("store"), most=tg.max("n"), n=tg.count(), total=tg.sum("n")
        ),
    ),
}


@pytest.mark.parametrize("way", UPGRADES)
@pytest.mark.parametrize("back", [False, True], ids=["to it", "back"])
def test_a_plan_that_changes_goes_on_from_large_windows(way: str, back: bool) -> None:
    plans = UPGRADES[way][::-1] if back else UPGRADES[way]
    if back and way == "another aggregate":
        return  # A column that is gone is refused.
    draw = random.Random(7)
    tunings = [SMALL, WHOLE]
    drivers = [TopologyTestDriver(plans[0](), tuning=tuning) for tuning in tunings]
    seen = False
    for number, batch in enumerate(drawn(draw, 30, 24)):
        if number in (12, 14):
            seen = seen or bool(large(drivers[0]))
            drivers = [
                TopologyTestDriver(plans[1](), state=driver.state(), tuning=tuning)
                for driver, tuning in zip(drivers, tunings, strict=True)
            ]
        for driver in drivers:
            driver.pipe_batch(batch)
        assert output(drivers[0]) == output(drivers[1])
        one, other = (sorted(map(repr, driver.read_state("store"))) for driver in drivers)
        assert one == other
    assert seen or back


def test_final_results_of_a_large_window_leave_in_parts() -> None:
    op = operation(joined(events()).suppress(CLOSES).node)
    rows = pa.table({"k:user": [f"{n}" for n in range(40)], "v:n": [1] * 40, "ts": [1] * 40})
    rows = rows.append_column("partition", pa.array([0] * 40, pa.int32())).append_column("offset", pa.array(range(40)))
    layout = Layout(op, rows.schema, sorts=False, tuning=SMALL)
    stage, store = Stage(layout), DictStore(tuning=SMALL)
    for part in (rows, rows.slice(0, 2)):
        stage.step(store, [dict(pack(layout, part.to_batches(), [0]))[0]])
    step = stage.begin(store, [], end_of_input=True)
    parts = [part.num_rows for part in step.parts]
    assert sum(parts) == 40
    assert len(parts) > 3
    assert max(parts) <= SMALL.part_rows + SMALL.block_rows
    assert [place for place, _ in store.log if place >= WINDOW_RUNS.top] == []
