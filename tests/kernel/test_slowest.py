"""The stream time of the slowest partition: what a record sees, and the start of the next batch."""

from __future__ import annotations

import numpy as np

from tidegate.kernel.time.slowest_partition import Reached, SlowestFold, is_idle, reports_more, with_inputs
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


def test_a_record_that_moves_no_time_ends_the_silence_of_its_partition() -> None:
    step = fold({A: Reached(10, 0), B: Reached(30, 900)}, chunk(A, 7), stream_time=10, now=1_000)
    assert step.partitions[A] == Reached(10, 1_000)
    assert step.stream_time == 10


def reports(time: int, *times: int) -> Chunk:
    """The chunk of a join whose rows have these times, and whose stream time is `time`."""
    rows = chunk(A, *times) if times else Chunk(partition=A, first=0, last=0, max_ts=NEVER, rows=0)
    rows.reported = time
    return rows


def test_a_join_that_has_not_begun_holds_the_others_back() -> None:
    step = fold({B: Reached(30, 900)}, reports(NEVER), now=1_000)
    assert step.partitions[A] == Reached(NEVER, 1_000)
    assert step.stream_time == NEVER


def test_a_join_that_reports_the_same_time_again_is_silent() -> None:
    assert fold({A: Reached(10, 950)}, reports(10), stream_time=10, now=1_000).partitions == {A: Reached(10, 950)}
    assert fold({A: Reached(10, 950)}, reports(11), stream_time=10, now=1_000).partitions == {A: Reached(11, 1_000)}


def test_rows_of_a_join_see_the_time_that_it_had_reported_before() -> None:
    step = fold({A: Reached(10, 900), B: Reached(40, 900)}, reports(20, 35, 38), stream_time=10, now=1_000)
    assert step.ceilings.tolist() == [10]
    assert step.partitions[A] == Reached(20, 1_000)


def test_a_join_without_partitions_that_has_not_begun_holds_the_others_back() -> None:
    rows = reports(NEVER)
    rows.partition, rows.source = None, 1
    assert fold({"0:b": Reached(30, 900)}, rows, now=1_000).partitions["1"] == Reached(NEVER, 1_000)


def test_an_input_without_partitions_sees_the_time_that_it_had_reached() -> None:
    rows = chunk(A, 11)
    rows.partition = None
    assert fold({"0": Reached(16, 0), B: Reached(40, 0)}, rows, stream_time=16).before(rows) == 16


def test_whether_a_join_reports_more() -> None:
    assert [reports_more(reports(time), {A: Reached(10, 0)}) for time in (9, 10, 11)] == [False, False, True]
    assert reports_more(reports(NEVER), {})
    assert not reports_more(chunk(A, 11), {})


def test_a_partition_is_idle_when_it_was_silent_for_the_whole_time() -> None:
    assert [is_idle(Reached(10, 900), now, 100) for now in (999, 1_000)] == [False, True]
    assert not is_idle(Reached(10, 0), 10**9, None)


def test_silence_counts_from_the_first_batch_that_asks_for_the_wall_clock() -> None:
    before = {A: Reached(10, NEVER), B: Reached(30, 950)}
    step = fold(before, chunk(B, 40), stream_time=10, now=1_000)
    assert step.partitions == {A: Reached(10, 1_000), B: Reached(40, 1_000)}
    assert step.stream_time == 10


def test_inputs_that_were_heard_of() -> None:
    known = {"0": Reached(5, 0), "1:a": Reached(6, 0), "20:a": Reached(7, 0)}
    assert with_inputs(known, ["0", "1", "2"], 9) == known | {"2": Reached(NEVER, 9)}
