"""What one record costs over many open windows, counted: bytes and segments, pages among them, and lines of Python.

Each topology has a window for each record, or some, all of them open. A batch of one record then touches one window, or
those that hold it. What it reads, writes and executes at 10,000 and at 100,000 windows is at most twice what it does at
1,000.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import tidegate as tg
from kernel.test_cost import lines_executed
from tidegate.instants import duration_ms
from tidegate.kernel.exchange.packing import pack
from tidegate.kernel.rows.layout import Layout
from tidegate.kernel.stage import Stage
from tidegate.kernel.state.store import DictStore
from tidegate.kernel.tuning import DEFAULT, Tuning
from tidegate.plan import operation

FEW, MANY = 1_000, (10_000, pytest.param(100_000, marks=pytest.mark.slow))
MINUTE = 60_000

LONG = "3650 days"
FINAL = tg.Suppressed.until_window_closes(tg.BufferConfig.unbounded())
LIMIT = tg.Suppressed.until_time_limit(LONG, tg.BufferConfig.unbounded(), clock="stream")
TUMBLING = tg.TimeWindows.of_size_and_grace("1 minute", LONG)
HOPPING = TUMBLING.advance_by("15 seconds")
SESSIONS = tg.SessionWindows.of_inactivity_gap_and_grace("1 minute", LONG)
SLIDING = tg.SlidingWindows.of_time_difference_and_grace("1 minute", LONG)


def windowed(windows: Any) -> Callable[[tg.KStream], tg.TimeWindowedKStream]:
    return lambda s: s.group_by_key().windowed_by(windows)


def windowed_count(windows: tg.TimeWindows) -> Callable[[tg.KStream], tg.KTable]:
    return lambda s: windowed(windows)(s).count()


def added(table: Any, **how: Any) -> tg.KTable:
    done: tg.KTable = table.aggregate(lambda: 0, lambda _k, row, total: total + row["amount"], type="long", **how)
    return done


def by_hand(table: Any) -> tg.KTable:
    done: tg.KTable = table.reduce(lambda total, amount: total + amount, "amount", "total")
    return done


TOPOLOGIES: dict[str, Callable[[tg.KStream], tg.KTable]] = {
    "tumbling, final": lambda s: windowed(TUMBLING)(s).count().suppress(FINAL),
    "hopping, final": lambda s: windowed(HOPPING)(s).count().suppress(FINAL),
    "tumbling, updates": lambda s: windowed(TUMBLING)(s).count(),
    "hopping, updates": lambda s: windowed(HOPPING)(s).count(),
    "tumbling, a bound": lambda s: (
        windowed(TUMBLING)(s)
        .count()
        .suppress(tg.Suppressed.until_window_closes(tg.BufferConfig.max_records(1_000_000).shut_down_when_full()))
    ),
    "reduce, final": lambda s: by_hand(windowed(TUMBLING)(s)).suppress(FINAL),
    "aggregate, updates": lambda s: added(windowed(TUMBLING)(s)),
    "sessions, final": lambda s: windowed(SESSIONS)(s).count().suppress(FINAL),
    "sessions, updates": lambda s: windowed(SESSIONS)(s).count(),
    "sessions, reduce": lambda s: by_hand(windowed(SESSIONS)(s)).suppress(FINAL),
    "sessions, a bound": lambda s: (
        windowed(SESSIONS)(s)
        .count()
        .suppress(tg.Suppressed.until_window_closes(tg.BufferConfig.max_records(1_000_000).shut_down_when_full()))
    ),
    "sliding, final": lambda s: windowed(SLIDING)(s).count().suppress(FINAL),
    "sliding, updates": lambda s: windowed(SLIDING)(s).count(),
    "a time limit": lambda s: windowed(TUMBLING)(s).count().suppress(LIMIT),
}


@dataclass
class Cost:
    read: int = 0
    written: int = 0
    segments: int = 0
    lines: int = 0


class CountingStore(DictStore):
    """Counts what is read from it and written to it."""

    def __init__(self, tuning: Tuning = DEFAULT) -> None:
        super().__init__(tuning=tuning)
        self.cost = Cost()

    def get(self, name: str) -> bytes | None:
        found = super().get(name)
        self.cost.read += len(found or b"")
        return found

    def put(self, name: str, value: bytes) -> None:
        self.cost.written += len(value)
        super().put(name, value)

    def read(self, window: int, segment: int) -> bytes:
        found = super().read(window, segment)
        self.cost.read += len(found)
        self.cost.segments += 1
        return found

    def write(self, window: int, segment: int, value: bytes) -> None:
        self.cost.written += len(value)
        self.cost.segments += 1
        super().write(window, segment, value)

    def remove(self, window: int, segment: int) -> None:
        self.cost.segments += 1
        super().remove(window, segment)


def records(number: Any, offset: int) -> pa.RecordBatch:
    """The records of these numbers: each has a key and a minute of its own."""
    number = np.asarray(number, np.int64)
    return pa.record_batch(
        {
            "k:user": pa.array([f"user-{n:06}" for n in number.tolist()]),
            "v:amount": pa.array(number % 97),
            "ts": pa.array(number * MINUTE),
            "partition": pa.array(np.zeros(len(number), np.int32)),
            "offset": pa.array(offset + np.arange(len(number))),
        }
    )


class Query:
    def __init__(self, build: Callable[[tg.KStream], tg.KTable], windows: int) -> None:
        stream = tg.stream("events", key="user", timestamp="ts", partition="partition", offset="offset")
        self.layout = Layout(operation(build(stream).node), records([0], 0).schema, sorts=False)
        self.store, self.stage, self.piped = CountingStore(), Stage(self.layout), 0
        if windows:
            self.pipe(np.arange(windows))

    def pipe(self, numbers: Any) -> Cost:
        """The cost of a batch of these records."""
        blobs = [blob for _, blob in pack(self.layout, [records(numbers, self.piped)], [0])]
        self.piped += len(numbers)
        self.store.cost = Cost()
        steps: list[Any] = []
        run = lambda: steps.append(self.stage.step(self.store, blobs))  # noqa: E731
        lines = lines_executed(run) if len(numbers) == 1 else run() or 0
        self.metrics = steps[0].metrics
        self.store.cost.lines = lines
        return self.store.cost


def cost_of_one(build: Callable[[tg.KStream], tg.KTable], windows: int) -> Cost:
    query = Query(build, windows)
    # The first small batch divides the bucket that the large one left; that happens once to each.
    query.pipe([windows // 2])
    assert query.metrics["open_windows"] >= windows
    return query.pipe([windows // 2])


@pytest.mark.parametrize("windows", MANY)
@pytest.mark.parametrize("topology", TOPOLOGIES)
def test_the_cost_of_a_record_does_not_follow_the_open_windows(topology: str, windows: int) -> None:
    each = HOPPING.size_ms // HOPPING.advance_ms if topology.startswith("hopping") else 1
    few, many = (cost_of_one(TOPOLOGIES[topology], count // each) for count in (FEW, windows))
    for what in vars(few):
        assert getattr(many, what) <= 2 * getattr(few, what), (what, few, many)


@pytest.mark.parametrize("topology", ["tumbling, final", "hopping, final", "tumbling, updates", "reduce, final"])
def test_the_cost_of_a_close_does_not_follow_the_open_windows(topology: str) -> None:
    """The oldest windows close and new ones begin: pages at both ends of the index change."""

    def cost(windows: int) -> Cost:
        query = Query(TOPOLOGIES[topology], windows)
        newest = duration_ms(LONG, "") // MINUTE + 1
        query.pipe([newest])
        before = query.metrics["open_windows"]
        found = query.pipe([newest + 1])
        assert query.metrics["open_windows"] == before  # as many have begun as have closed
        return found

    few, many = cost(FEW), cost(10_000)
    for what in vars(few):
        assert getattr(many, what) <= 2 * getattr(few, what), (what, few, many)


@pytest.mark.filterwarnings("ignore:A window of 1 day:tidegate.TidegateWarning")
def test_one_record_in_many_windows_reads_and_writes_few_tables() -> None:
    """A day by a second is 86,400 windows, 300 times those of a day by five minutes."""
    day = tg.TimeWindows.of_size_and_grace("1 day", LONG)
    costs = []
    for advance, many in (("5 minutes", 288), ("1 second", 86_400)):
        query = Query(windowed_count(day.advance_by(advance)), 0)
        query.pipe([10_000])
        costs.append(query.pipe([10_000]))
        assert query.metrics["open_windows"] == many
        assert costs[-1].segments <= 2 * (Tuning().most_tables + 1)
    assert costs[1].lines <= 2 * costs[0].lines
    assert costs[1].written <= 300 * costs[0].written
