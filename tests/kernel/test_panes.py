"""Panes: the arithmetic of time windows over arrays, against the timeline and against the windows one by one."""

from __future__ import annotations

import numpy as np
import pytest

import tidegate as tg
from tidegate.kernel.time.panes import Panes


def panes(size: int, advance: int, grace: int = 0) -> Panes:
    windows = tg.TimeWindows.of_size_and_grace(f"{size} ms", f"{grace} ms")
    return Panes(windows.advance_by(f"{advance} ms"))


SHAPES = [(10, 10, 0), (10, 5, 0), (10, 5, 3), (10, 4, 0), (10, 4, 7), (7, 1, 2), (1, 1, 0), (12, 9, 40)]


def test_the_timeline() -> None:
    """Size 10, advance 4, grace 3: panes are gcd(10, 4) = 2 long.

    time      0 . 2 . 4 . 6 . 8 . 10. 12. 14. 16. 18. 20. 22
    panes     |0  |2  |4  |6  |8  |10 |12 |14 |16 |18 |20
    window 0  [===================)..^13
    window 4          [===================)..^17
    window 8                  [===================)..^21
    window 12                         [===================)..^25
    """
    timeline = panes(10, 4, 3)
    assert timeline.width_ms == 2
    assert timeline.shared
    assert timeline.pane(np.array([0, 1, 2, 9, 10, 11])).tolist() == [0, 0, 2, 8, 10, 10]
    assert timeline.first_window(np.array([0, 2, 8, 10, 12, 14])).tolist() == [0, 0, 0, 4, 4, 8]
    assert timeline.last_window(np.array([0, 2, 4, 8, 10, 12])).tolist() == [0, 0, 4, 8, 8, 12]
    assert list(timeline.held_by(4)) == [4, 6, 8, 10, 12]
    # 0 closes at 13, 4 at 17, 8 at 21.
    assert timeline.first_open(np.array([-1, 0, 12, 13, 16, 17, 21])).tolist() == [0, 0, 0, 4, 4, 8, 12]


def test_a_tumbling_window_is_its_own_pane() -> None:
    timeline = panes(10, 10)
    assert (timeline.width_ms, timeline.shared) == (10, False)
    assert list(timeline.held_by(20)) == [20]


@pytest.mark.parametrize(("size", "advance", "grace"), SHAPES)
def test_panes_against_the_windows_themselves(size: int, advance: int, grace: int) -> None:
    timeline = panes(size, advance, grace)
    times = np.arange(60)
    pane = timeline.pane(times)
    first, last = timeline.first_window(pane), timeline.last_window(pane)
    for ts in times:
        starts = [window.start for window in timeline.windows.windows_for(int(ts))]
        assert list(range(int(first[ts]), int(last[ts]) + 1, advance)) == starts
        for start in starts:
            assert int(pane[ts]) in timeline.held_by(start)


@pytest.mark.parametrize(("size", "advance", "grace"), SHAPES)
def test_open_and_closed_against_the_close_rule(size: int, advance: int, grace: int) -> None:
    timeline = panes(size, advance, grace)
    for now in range(-1, 80):
        every = range(0, 200, advance)
        still = next(start for start in every if timeline.windows.close_ms(start) > now)
        assert timeline.first_open(now) == still
        for ts in range(0, 60, 7):
            starts = [window.start for window in timeline.windows.windows_for(ts)]
            closed = [start for start in starts if timeline.windows.close_ms(start) <= now]
            assert timeline.closed(starts[0], starts[-1], timeline.first_open(now)) == len(closed)


def test_far_from_zero() -> None:
    timeline = panes(60_000, 20_000, 1)
    ts = 2**62
    start = timeline.last_window(timeline.pane(ts))
    assert start <= ts < start + 20_000
    assert timeline.first_open(ts) == next(s for s in range(int(start) - 80_000, ts, 20_000) if s + 60_001 > ts)
