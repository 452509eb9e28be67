"""Cost of sliding windows and sessions of a hot key, counted and not timed."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

import tidegate as tg
from tidegate.kernel.aggregates.base import Accumulator
from tidegate.kernel.aggregates.extremes import Extreme
from tidegate.kernel.aggregates.ordered import First, Last
from tidegate.kernel.aggregates.sums import Count, Sum
from tidegate.kernel.windows import sliding, sliding_batch
from tidegate.kernel.windows.lineage import Entries
from tidegate.testing import TopologyTestDriver

WINDOWS = tg.SlidingWindows.of_time_difference_and_grace("10 minutes", "1 hour")
FINAL = tg.Suppressed.until_window_closes(tg.BufferConfig.unbounded())
ORIGIN = 10_000_000_000


def windowed() -> Any:
    return tg.stream("events", key="k", timestamp="ts").group_by_key().windowed_by(WINDOWS)


def hot(n: int) -> list[dict[str, Any]]:
    """Records of one key in any order, all within one difference: each shares a window with every other."""
    records = [{"k": "A", "ts": ORIGIN + i, "v": i} for i in range(n)]
    Random(n).shuffle(records)
    return records


class Work:
    """Counts rows that accumulators read, and records that are taken one by one."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.rows = self.one_by_one = 0
        for kind in (Count, Sum, Extreme, First, Last):
            for name in ("merge_runs", "scan_runs"):
                patch.setattr(kind, name, self._counting(getattr(kind, name)))
        patch.setattr(Sum, "scan_at", self._counting(Sum.scan_at))
        apply = sliding.apply

        def counted(*given: Any) -> Any:
            self.one_by_one += 1
            return apply(*given)

        patch.setattr(sliding, "apply", counted)

    def _counting(self, method: Any) -> Any:
        def counted(acc: Accumulator, state: list[Any], *given: Any) -> Any:
            self.rows += len(state[0])
            return method(acc, state, *given)

        return counted


@pytest.mark.parametrize("way", ["final", "updates"])
def test_built_in_aggregates_of_a_hot_key_cost_by_record(way: str, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = {}
    for n in (1_000, 10_000):
        with monkeypatch.context() as patch:
            work = Work(patch)
            aggregates = {"n": tg.count(), "s": tg.sum("v"), "m": tg.max("v"), "f": tg.first("v"), "l": tg.last("v")}
            table = windowed().agg(**aggregates)
            driver = TopologyTestDriver(table.suppress(FINAL) if way == "final" else table)
            for low in range(0, n, n // 2):
                driver.pipe_batch(hot(n)[low : low + n // 2])
            driver.drain()
            assert len(driver.read_output()) >= 2 * n - 1
            assert work.one_by_one == 0
            rows[n] = work.rows
    assert rows[1_000] > 0
    assert rows[10_000] <= 11 * rows[1_000]


@pytest.mark.parametrize("way", ["every update", "a buffer with a bound"])
def test_a_session_of_a_hot_key_costs_by_record(way: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each record makes an update of all records so far: the aggregates of one update go on in the next one."""
    sessions = tg.SessionWindows.of_inactivity_gap_and_grace("10 minutes", "1 hour")
    grouped = tg.stream("events", key="k", timestamp="ts").group_by_key().windowed_by(sessions)
    aggregates = {"n": tg.count(), "s": tg.sum("v"), "m": tg.max("v"), "f": tg.first("v"), "l": tg.last("v")}
    table = grouped.agg(**aggregates, materialized=tg.Materialized.as_("sums").with_caching_disabled())
    if way == "a buffer with a bound":
        bound = tg.BufferConfig.max_records(1_000_000).shut_down_when_full()
        table = grouped.agg(**aggregates).suppress(tg.Suppressed.until_window_closes(bound))
    rows = {}
    for n in (200, 2_000):
        with monkeypatch.context() as patch:
            work, driver = Work(patch), TopologyTestDriver(table)
            driver.pipe_batch(hot(n))
            driver.drain()
            last = driver.read_output()[-1]
            assert (last["n"], last["s"], last["m"]) == (n, n * (n - 1) // 2, n - 1)
            rows[n] = work.rows
    assert rows[200] > 0
    assert rows[2_000] <= 11 * rows[200]


def test_functions_are_called_once_per_record_and_window() -> None:
    calls = 0

    def add(key: str, row: dict[str, Any], aggregate: int) -> int:
        nonlocal calls
        calls += 1
        return aggregate + 1

    driver = TopologyTestDriver(windowed().aggregate(int, add, type="long", name="n").suppress(FINAL))
    driver.pipe_batch(sorted(hot(200), key=lambda record: record["ts"]))
    driver.drain()
    # In order, only a window that ends with a record is made of another one: it goes on with the one before it.
    assert calls <= sum(row["n"] for row in driver.read_output())


class Looked(dict[Any, Any]):
    """Windows of a key; counts look-ups by place."""

    times = 0

    def __getitem__(self, place: Any) -> Any:
        Looked.times += 1
        return super().__getitem__(place)


@pytest.mark.parametrize(
    "windows",
    [
        tg.SlidingWindows.of_time_difference_and_grace("10 ms", "1 hour"),
        tg.SessionWindows.of_inactivity_gap_and_grace("4 ms", "1 hour"),
    ],
    ids=["sliding", "session"],
)
def test_a_record_looks_at_the_windows_it_meets_alone(windows: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """The look-ups do not grow with the windows of its key if records are taken one by one."""
    monkeypatch.setattr(sliding_batch, "applies", lambda *_: False)
    make = Entries.__init__

    def counting(entries: Entries) -> None:
        make(entries)
        entries.at = Looked()

    monkeypatch.setattr(Entries, "__init__", counting)
    looked = {}
    for n in (200, 2_000):
        Looked.times = 0
        grouped = tg.stream("events", key="k", timestamp="ts").group_by_key().windowed_by(windows)
        driver = TopologyTestDriver(grouped.agg(n=tg.count()))
        records = [{"k": "A", "ts": ORIGIN + 5 * i} for i in range(n)]
        Random(n).shuffle(records)
        driver.pipe_batch(records)
        looked[n] = Looked.times
    assert 0 < looked[2_000] <= 11 * looked[200]
