"""Keys whose sessions may be computed for a whole batch at once."""

from __future__ import annotations

import numpy as np
import pytest

import tidegate as tg
from tidegate.kernel.time.stream_time import NEVER
from tidegate.kernel.tuning import Tuning
from tidegate.kernel.windows.session_batch import stretches
from tidegate.testing import TopologyTestDriver

A, B = 0, 1
Member = tuple[int, int, int, int]  # key, start, end, stream time at its arrival


def taken(grace: str, *members: Member) -> tuple[list[int], list[int]]:
    """The stretch of each member, and the keys whose records must be taken in order."""
    windows = tg.SessionWindows.of_inactivity_gap_and_grace("5 ms", grace)
    codes, start, end, seen = (np.array(column, np.int64) for column in zip(*members, strict=True))
    stretch, in_order = stretches(windows, codes, start, end, seen)
    return stretch.tolist(), sorted(set(codes[in_order].tolist()))


def test_neighbours_within_the_gap_are_one_session() -> None:
    assert taken("0 ms", (A, 0, 0, 0), (A, 5, 5, 5), (A, 11, 11, 11)) == ([0, 0, 1], [])


def test_keys_are_apart() -> None:
    assert taken("0 ms", (A, 0, 0, 0), (B, 1, 1, 1)) == ([0, 1], [])


def test_a_stored_session_reaches_to_its_end() -> None:
    assert taken("0 ms", (A, 0, 20, NEVER), (A, 3, 3, 22), (A, 25, 25, 25)) == ([0, 0, 0], [A])
    assert taken("20 ms", (A, 0, 20, NEVER), (A, 3, 3, 22), (A, 25, 25, 25)) == ([0, 0, 0], [])


@pytest.mark.parametrize(("grace", "in_order"), [("0 ms", [A]), ("1 ms", [])])
def test_a_session_that_closed_before_its_neighbour_came(grace: str, in_order: list[int]) -> None:
    """A@0, B@6, A@5 with a gap of 5: without grace 0 is closed at 6."""
    assert taken(grace, (A, 0, 0, 0), (B, 6, 6, 6), (A, 5, 5, 6))[1] == in_order


def test_a_record_that_is_late_by_itself() -> None:
    assert taken("0 ms", (A, 0, 0, 6), (B, 6, 6, 6))[1] == [A]


def test_every_bucket_of_many_records_is_read() -> None:
    """Each user's stored session goes on, however few records are looked up at a time."""
    windows = tg.SessionWindows.of_inactivity_gap_and_grace("5 ms", "0 ms")
    counted = tg.stream("events", key="user", timestamp="ts").group_by_key().windowed_by(windows).agg(n=tg.count())
    table = counted.suppress(tg.Suppressed.until_window_closes(tg.BufferConfig.unbounded()))
    driver = TopologyTestDriver(table, tuning=Tuning(lookup_records=3))
    users = [f"user-{n}" for n in range(200)]
    for ts in (0, 1):
        driver.pipe_batch([{"user": user, "ts": ts} for user in users])
    driver.pipe_input({"user": "another", "ts": 100})
    assert [row["n"] for row in driver.read_output()] == [2] * len(users)
