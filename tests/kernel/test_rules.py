"""Rules over literal columns, to the millisecond: what closes, what is looked up when, which versions count."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import tidegate as tg
from tidegate.instants import MAX_MS
from tidegate.kernel.exchange.batch import Batch
from tidegate.kernel.exchange.old_values import closed_and_gone
from tidegate.kernel.exchange.time_progress import TimeProgress
from tidegate.kernel.joins import stream_table, table_table
from tidegate.kernel.joins.arrivals import Progress
from tidegate.kernel.joins.table_rows import STORED, Versions
from tidegate.kernel.rows.layout import Layout
from tidegate.kernel.suppress.strict_bound import after_each
from tidegate.kernel.time.stream_time import NEVER
from tidegate.kernel.windows import window_log
from tidegate.plan import operation


def ints(*numbers: int) -> Any:
    return np.array(numbers, np.int64)


def flags(text: str) -> Any:
    """A flag for each character: whether it is an x."""
    return np.array([letter == "x" for letter in text])


# -- windows that close --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("panes", "before", "closes_at", "starts"),
    [
        ([0, 10], NEVER, MAX_MS, [0, 5, 10]),
        ([0, 10], NEVER, 15, [0, 5]),
        ([0, 10], NEVER, 14, [0]),
        ([0, 10], NEVER, 9, []),
        ([0, 10], 9, 20, [0, 5, 10]),
        ([0, 10], 10, 20, [5, 10]),
        ([0, 5], NEVER, MAX_MS, [0, 5]),
        ([5, 10], NEVER, MAX_MS, [0, 5, 10]),
        ([0, 30], NEVER, MAX_MS, [0, 25, 30]),
    ],
)
def test_windows_of_panes_that_close(panes: list[int], before: int, closes_at: int, starts: list[int]) -> None:
    """Windows [0, 10), [5, 15), [10, 20) ... of panes of 5."""
    windows = tg.TimeWindows.of_size_with_no_grace("10 ms").advance_by("5 ms")
    table = tg.stream("events", key="k", timestamp="ts").group_by_key().windowed_by(windows).count()
    layout = Layout(operation(table.node), pa.schema({"k:k": pa.string(), "ts": pa.int64()}))
    assert window_log.closing(layout, panes, before, closes_at).tolist() == starts


# -- buffers -------------------------------------------------------------------------------------------------------


def test_the_content_of_a_strict_buffer_after_each_record() -> None:
    """Windows that close at 10 and 20 hold 3 and 4; each record comes before the windows that it closes leave."""
    closes, change, seen = ints(20, 30, 30, 30), ints(1, 2, 1, 1), ints(9, 10, 19, 20)
    assert after_each(ints(10, 20), ints(3, 4), closes, change, seen).tolist() == [8, 7, 8, 4]


def test_windows_that_are_closed_and_have_no_row_that_waits() -> None:
    counts = (
        tg.stream("events", key="k", timestamp="ts")
        .group_by_key()
        .windowed_by(tg.TimeWindows.of_size_with_no_grace("10 ms"))
    )
    limits = {}
    for clock in ("stream", "wall"):
        how = tg.Suppressed.until_time_limit("10 ms", tg.BufferConfig.unbounded(), clock=clock)
        limits[clock] = operation(counts.count().suppress(how).node).all_limits

    def gone(clock: str, leaves: int | None = None) -> int:
        state: Any = SimpleNamespace(stream_time=50, due={} if leaves is None else {0: (leaves, 0)})
        return closed_and_gone(state, limits[clock])

    # A row that leaves at 45 has waited since 35.
    assert (gone("stream", 45), gone("stream", 70), gone("stream"), gone("wall")) == (35, 50, 50, 50)
    assert gone("wall", 45) == NEVER


# -- progress of time ----------------------------------------------------------------------------------------------


def test_the_stream_time_that_updates_find() -> None:
    """The records a 10, b 12, c 12, a 15."""
    a, b, c = (np.uint64(key) for key in (1, 2, 3))
    progress = TimeProgress.of(ints(12, 15, 10, 12), np.array([b, a, a, c]), ints(2, 0, 3, 1))
    assert (progress.times.tolist(), progress.first.tolist()) == ([10, 12, 15], [a, b, a])

    def found(now: int, *updates: tuple[int, Any]) -> tuple[list[int], list[bool]]:
        times, keys = ints(*(time for time, _ in updates)), np.array([key for _, key in updates], np.uint64)
        before, makes = progress.before(now, times, keys)
        return before.tolist(), makes.tolist()

    assert found(7, (10, a), (12, b), (12, c), (15, a)) == ([7, 10, 12, 12], [True, True, False, True])
    assert found(7, (12, c), (12, b)) == ([12, 10], [False, True])
    # Of several updates of a key at one time the first one moves time.
    assert found(7, (12, b), (12, b)) == ([10, 12], [True, False])
    assert found(12, (10, a), (12, b), (15, a)) == ([12, 12, 12], [False, False, True])
    assert found(7, (11, b), (16, a)) == ([11, 16], [False, False])


def test_the_partitions_that_lag_most() -> None:
    def times(*chunks: tuple[int | str | None, int, int]) -> list[list[int | str]]:
        """Of chunks: partition, largest timestamp, number of records."""
        made = [SimpleNamespace(partition=name, max_ts=time, rows=rows) for name, time, rows in chunks]
        batch: Any = SimpleNamespace(chunks=made)
        return Batch.partition_times(batch)

    assert times(("b", 30, 1), ("b", 20, 2), ("a", 25, 1), ("c", NEVER, 0), (None, 7, 1)) == [["a", 25], ["b", 30]]
    assert times(*((n, 1_000 - n, 1) for n in range(100))) == [[n, 1_000 - n] for n in range(99, 35, -1)]


# -- lookups of a stream in a table --------------------------------------------------------------------------------


def test_when_records_are_looked_up() -> None:
    """The stream's time is 10 before the batch, 12 from its place 2 on, and 20 from its place 5 on."""
    due_at_once, due, waits = ("at once", False), ("due", False), ("due", True)
    cases: list[tuple[int, int, bool, int, tuple[str, bool]]] = [
        # time of the lookup, place of the record (-1: it waited), whether it has a key; place of the lookup
        (12, -1, True, 2, due),
        (13, -1, True, 5, due),
        (21, -1, True, MAX_MS, waits),
        (9, -1, True, -1, due),  # was due by a longer grace
        (11, 3, True, 3, due_at_once),
        (12, 3, True, 3, due),
        (10, 2, True, 2, due_at_once),
        (20, 5, True, 5, due),
        (20, 4, True, 5, due),
        (21, 4, True, MAX_MS, waits),
        (99, 4, False, 4, due_at_once),
    ]
    times, own, keyed = (np.array(column) for column in list(zip(*cases, strict=True))[:3])
    progress = Progress(10, ints(2, 5), ints(12, 20))
    places, what, waiting = stream_table._lookups(times, own, own >= 0, keyed, progress, 9)
    assert places.tolist() == [case[3] for case in cases]
    named = ["at once" if one == stream_table._AT_ONCE else "due" for one in what]
    assert list(zip(named, waiting.tolist(), strict=True)) == [case[4] for case in cases]


def test_records_that_a_shorter_grace_no_longer_lets_wait() -> None:
    progress, stored = Progress(10, ints(2), ints(20)), flags("..")
    places, _, waiting = stream_table._lookups(ints(25, 26), ints(-1, -1), stored, ~stored, progress, 25)
    assert (places.tolist(), waiting.tolist()) == ([-1, MAX_MS], [False, True])


def versions(times: Any, deleted: Any) -> Versions:
    rows = pa.table({"k:k": pa.nulls(len(times), pa.string())})
    return Versions(rows, times, np.full(len(times), STORED), deleted)


@pytest.mark.parametrize(("begin", "kept"), [(6, [2, 3, 5, 6]), (5, [1, 2, 3, 5, 6]), (2, [0, 1, 2, 3, 5, 6])])
def test_versions_within_the_history_of_a_table(begin: int, kept: list[int]) -> None:
    """The later ones, a deletion too, and the row at the beginning of the history."""
    codes, stored = ints(0, 0, 0, 0, 1, 1, 2), versions(ints(1, 4, 6, 8, 2, 3, 1), flags("...xx.."))
    assert sorted(stream_table._versions_within(begin, stored, codes).tolist()) == kept


# -- joins of tables -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("begin", "kept"), [(6, [2, 3]), (5, [1, 2, 3])])
def test_the_last_versions_of_a_table_with_a_history(begin: int, kept: list[int]) -> None:
    """Of deletions those that a late change within the history may meet."""
    last = table_table._last_versions(begin, versions(ints(1, 5, 9, 4), flags(".xx.")), ints(0, 0, 1, 2))
    assert sorted(last.tolist()) == kept


def test_versions_that_are_the_newest_of_their_key_when_they_come() -> None:
    codes, times = ints(0, 0, 0, 0, 1, 1, 1), ints(5, 7, 6, 7, 3, 3, 2)
    assert table_table._growing(codes, times).tolist() == flags("xx.xxx.").tolist()
