"""The histogram of graces: a slice tells the same as record by record, within its bound, and sums over a day."""

from __future__ import annotations

from collections import Counter
from random import Random

import numpy as np
import pytest

import tidegate as tg
from tidegate.instants import ROUND_MS
from tidegate.kernel.columns.arrays import ints
from tidegate.kernel.inspect.graces import HOUR_MS, GraceHistory, Graces
from tidegate.kernel.time import window_graces
from tidegate.kernel.time.panes import Panes
from tidegate.kernel.time.stream_time import NEVER, running_max
from tidegate.spec.metrics import OF_JOIN, OF_SESSIONS, OF_TIME

HOUR = 3_600_000


def drawn(rows: int, seed: int, most: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    random = np.random.default_rng(seed)
    ts = np.maximum(np.arange(rows) * 3 - random.integers(0, most, rows) * (random.random(rows) < 0.3), 0)
    starts = np.sort(np.append(0, random.integers(1, rows, 3)))
    chunk = np.repeat(np.arange(4), np.diff(np.append(starts, rows)))
    return ts, running_max(ts, starts), chunk


@pytest.mark.parametrize("seed", range(20))
def test_few_times_are_told_as_they_are(seed: int) -> None:
    panes = Panes(tg.TimeWindows(10, 5, 0))
    ts, seen, chunk = drawn(300, seed, Random(seed).choice([1, 20, 2_000]))
    pane = panes.pane(ts)
    counts = window_graces.counted(panes, pane, seen, chunk, np.arange(300))
    got = Counter(
        {
            (c, s, p): n
            for c, _, s, p, n in zip(*(counts[name].to_pylist() for name in counts.schema.names), strict=True)
        }
    )
    assert got == Counter(zip(chunk.tolist(), seen.tolist(), pane.tolist(), strict=True))
    assert counts.num_rows == len(got)
    first = {key: i for i, key in reversed(list(enumerate(zip(chunk.tolist(), seen.tolist(), strict=True))))}
    assert counts["offset"].to_pylist() == [
        first[c, s] for c, s in zip(*(counts[n].to_pylist() for n in ("chunk", "chunk_time")), strict=True)
    ]


@pytest.mark.parametrize("most", [1, 20, 2_000, 10**12])
@pytest.mark.parametrize("seed", range(20))
def test_combined_rows_tell_the_same(seed: int, most: int) -> None:
    """Holds for any stream time before each chunk, and for any number of panes."""
    windows = Random(seed).choice([tg.TimeWindows(10, 5, 7), tg.TimeWindows(30, 30, 0), tg.TimeWindows(7, 3, 1_000)])
    panes = Panes(windows)
    ts, seen, chunk = drawn(3_000, seed, most)
    pane = panes.pane(ts + 10**12)
    seen = seen + 10**12
    is_open = panes.first_open(seen) <= panes.last_window(pane)
    cells, n = np.unique(np.stack([chunk, pane])[:, is_open], axis=1, return_counts=True)
    offset = np.arange(3_000)
    counts = window_graces.counted_combined(panes, pane, seen, chunk, offset, (cells[0], cells[1], n), is_open)
    before = 10**12 + np.array([0, 500, 4_000, 20_000])
    grown = ints(counts["chunk_time"])
    live = window_graces.histogram(
        windows, ints(counts["pane"]), np.maximum(grown, before[ints(counts["chunk"])]), ints(counts["n"])
    )
    if most < 10**12:
        assert live == window_graces.histogram(windows, pane, np.maximum(seen, before[chunk]), np.ones(3_000, np.int64))
    assert min(live) >= 0
    assert counts.num_rows <= window_graces.MOST_CELLS


def test_many_times_and_far_panes_stay_within_their_bound() -> None:
    panes = Panes(tg.TimeWindows(10, 10, 0))
    for most in (20, 10**12):
        ts, seen, chunk = drawn(50_000, 1, most)
        ts = ts + 10**12 * (most == 10**12)
        counts = window_graces.counted(panes, panes.pane(ts), seen, chunk, np.arange(50_000))
        assert counts.num_rows <= window_graces.MOST_CELLS
        assert sum(counts["n"].to_pylist()) == 50_000
        times = set(zip(counts["chunk"].to_pylist(), counts["chunk_time"].to_pylist(), strict=True))
        assert len(times) <= window_graces.PLACES + 4
        # Times that are combined count as the latest of them.
        assert max(counts["chunk_time"].to_pylist()) == int(seen.max())


def test_without_an_order_a_batch_is_taken_in_timestamp_order() -> None:
    panes = Panes(tg.TimeWindows(10, 10, 0))
    ts = np.array([25, 3, 7, 25])
    counts = window_graces.counted(panes, panes.pane(ts), ts, np.zeros(4, np.int64), None)
    assert counts.select(["chunk_time", "pane", "n"]).to_pylist() == [
        {"chunk_time": NEVER, "pane": 20, "n": 2},
        {"chunk_time": NEVER, "pane": 0, "n": 2},
    ]


def test_no_rows() -> None:
    nothing = np.zeros(0, np.int64)
    windows = tg.TimeWindows(10, 10, 7)
    assert window_graces.counted(Panes(windows), nothing, nothing, nothing, nothing).num_rows == 0
    assert window_graces.histogram(windows, nothing, nothing, nothing) == [OF_TIME, 10, 10, 7, 0]


def test_a_histogram_has_few_classes_and_says_which_pairs_are_late_today() -> None:
    windows = tg.TimeWindows(HOUR, HOUR, 777_777)
    seen = np.unique(np.geomspace(HOUR, 2**61, 100_000).astype(np.int64))
    counts = window_graces.histogram(windows, np.zeros(len(seen), np.int64), seen, np.full(len(seen), 2))
    kind, _, _, grace, pairs, *flat = counts
    assert kind == OF_TIME
    assert (grace, pairs) == (777_777, 2 * len(seen))
    assert len(flat) // 2 < 300
    live = Graces(grace, pairs, dict(zip(flat[::2], flat[1::2], strict=True)))
    for one in (0, 777_777, *ROUND_MS):
        assert live.late(one) == 2 * int((seen >= HOUR + one).sum())


def test_a_history_keeps_a_day() -> None:
    history = GraceHistory()
    history.add([OF_TIME, 60, 60, 5, 100, 10, 1], 0.5 * HOUR_MS)
    history.add([OF_TIME, 60, 60, 6, 50, 20, 3], 23.5 * HOUR_MS)
    assert history.last_day(23.9 * HOUR_MS) == Graces(6, 150, {10: 1, 20: 3})
    assert history.last_day(24.1 * HOUR_MS) == Graces(6, 50, {20: 3})
    assert history.last_day(90 * HOUR_MS) == Graces(6, 0, {})
    assert history.last_day(90 * HOUR_MS).share(0) == 0


def test_a_history_keeps_a_day_if_the_clock_is_set_back() -> None:
    history = GraceHistory()
    history.add([OF_TIME, 60, 60, 5, 100, 10, 1], 900 * HOUR_MS)
    history.add([OF_TIME, 60, 60, 5, 50, 20, 3], HOUR_MS)
    assert history.last_day(2 * HOUR_MS).total == 150
    history.add([OF_TIME, 60, 60, 5, 7, 20, 3], 30 * HOUR_MS)
    assert history.last_day(30 * HOUR_MS) == Graces(5, 7, {20: 3})


def test_of_sessions_it_begins_anew_with_another_grace() -> None:
    """A record taken under a grace of 60 counts as if it needed 60: such counts say nothing about a grace of 30."""
    for kind, total in ((OF_SESSIONS, 50), (OF_JOIN, 150)):
        history = GraceHistory()
        for _ in range(2):
            history.add([kind, 0, 0, 60, 50, 60, 7], 0)
        assert (history.last_day(0).total, history.last_day(0).late(30)) == (100, 14)
        history.add([kind, 0, 0, 30, 50, 30, 2], 0)
        assert (history.last_day(0).total, history.last_day(0).late(30)) == (total, 14 * (kind == OF_JOIN))


@pytest.mark.parametrize(("target", "enough"), [(0.5, 0), (0.03, 10), (0.01, 30_000), (0, 60_000)])
def test_the_shortest_round_grace_that_is_enough(target: float, enough: int) -> None:
    assert Graces(0, 100, {7: 1, 9: 1, 26_000: 2, 60_000: 1}).enough(target) == enough


@pytest.mark.parametrize("grace", [0, 7, 25_000, 777_777, 2**50 + 3, 2**63 - 1])
def test_classes_are_those_that_advice_has_but_wider(grace: int) -> None:
    random = np.random.default_rng(grace % 1_000)
    values = np.concatenate([np.arange(1, 5_000), 2 ** random.integers(1, 52, 2_000) + random.integers(-1, 2, 2_000)])
    ends = window_graces.class_ends(grace)
    exact = np.unique(np.array([*ROUND_MS, grace], np.int64))
    assert len(ends) < 300
    assert (ends[np.searchsorted(ends, values)] == window_graces.class_of(values, exact, window_graces.LIVE_BITS)).all()
    n = random.integers(-3, 4, len(values))
    many = window_graces.classed(grace, values, n)
    assert dict(zip(ends.tolist(), many.tolist(), strict=True)) == {
        end: int(n[(values <= end) & (values > before)].sum())
        for before, end in zip([0, *ends[:-1].tolist()], ends.tolist(), strict=True)
    }
    assert window_graces.classed(grace, np.array([2**63 - 1]))[-1] == 1
