"""The stream time of the slowest partition: what a record sees, and the start of the next batch."""

from __future__ import annotations

import numpy as np

from tidegate.kernel.time.slowest_partition import Reached, SlowestFold, with_inputs
from tidegate.kernel.time.stream_time import NEVER, Chunk, header

A, B, C = "a", "b", "c"


def chunk(partition: str, *times: int, first: int = 0) -> Chunk:
    ts = np.array(times, np.int64)
    offsets = np.arange(first, first + len(ts))
    return header(partition, offsets, ts, np.maximum.accumulate(ts), ts >= 0, scattered=False)


def fold(reached: dict[str, Reached], *chunks: Chunk, stream_time: int = NEVER, now: int = 0) -> SlowestFold:
    return SlowestFold(list(chunks), stream_time, dict(reached), now, idle_after_ms=100)


def test_the_example_of_the_docstring() -> None:
    before = {A: Reached(10, 900), B: Reached(14, 950), C: Reached(12, 0)}
    step = fold(before, chunk(A, 11, 16, 13), chunk(B, 15), stream_time=10, now=1_000)
    assert step.ceilings.tolist() == [14, 10]
    assert step.stream_time == 15
    assert step.partitions == {A: Reached(16, 1_000), B: Reached(15, 1_000), C: Reached(12, 0)}


def test_a_new_partition_holds_the_others_back_at_once() -> None:
    step = fold({A: Reached(50, 0)}, chunk(A, 60), chunk(B, 3), stream_time=50)
    assert step.ceilings.tolist() == [NEVER, 50]
    assert step.stream_time == 50  # it never goes back
    assert fold(step.partitions, chunk(A, 70), stream_time=50).stream_time == 50


def test_a_partition_with_the_number_of_an_input_as_its_name_counts() -> None:
    step = fold({}, chunk("0", 5), chunk("1", 95))
    assert step.partitions == {"0": Reached(5, 0), "1": Reached(95, 0)}
    assert fold(step.partitions, chunk("1", 96), stream_time=5).stream_time == 5


def test_an_input_that_was_silent_has_the_time_of_its_partitions() -> None:
    silent = with_inputs({}, ["0", "1"], 0)
    first = chunk("1:a", 7)
    first.source = 1
    assert fold(silent, first).partitions == {"0": Reached(NEVER, 0), "1:a": Reached(7, 0)}


def test_one_partition_is_held_back_by_nobody() -> None:
    step = fold({A: Reached(5, 0)}, chunk(A, 7), chunk(A, 9, first=1), stream_time=5)
    assert step.stream_time == 9
    assert [step.before(part) for part in (chunk(A, 7), chunk(A, 9, first=1))] == [5, 7]
    assert min(step.ceilings) > 10**15


def test_a_partition_without_a_valid_record_says_nothing() -> None:
    assert fold({A: Reached(5, 0)}, chunk(A, 9), chunk(B, -1), stream_time=5).stream_time == 9


def test_an_idle_partition_comes_back_with_its_next_record() -> None:
    before = {A: Reached(10, 0), B: Reached(30, 900)}
    assert fold(before, chunk(B, 40), stream_time=10, now=1_000).stream_time == 40
    step = fold(before, chunk(A, 12), chunk(B, 40), stream_time=10, now=1_000)
    assert step.stream_time == 12
    assert step.ceilings.tolist() == [30, 10]


def test_no_partition_that_is_awake_leaves_time_where_it_is() -> None:
    assert fold({A: Reached(10, 0), B: Reached(30, 0)}, stream_time=10, now=1_000).stream_time == 10
