"""The stream time that a record sees, combined from the parts that each map task knows."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate.errors import InputError
from tidegate.instants import MAX_MS
from tidegate.kernel.time.stream_time import NEVER, STEPS, Chunk, Fold, cut, header, lateness, most_steps, running_max

Records = list[tuple[int, int, int]]
"""(partition, offset, timestamp)"""


def ints(*values: int) -> np.ndarray:
    return np.array(values, np.int64)


def chunks_of(read: Records) -> list[tuple[Chunk, list[tuple[int, int, int]], list[int]]]:
    """The chunks of one map task with their records in order, and the stream time each record sees in its chunk."""
    if not read:
        return []
    partition, offset, ts = (np.array(column, np.int64) for column in zip(*read, strict=True))
    found = cut(partition, offset, 5)
    order = found.order if found.order is not None else np.arange(len(read))
    partition, offset, ts = partition[order], offset[order], ts[order]
    seen = running_max(ts, found.starts)
    out = []
    for n, (low, high) in enumerate(zip(found.starts, [*found.starts[1:], len(read)], strict=True)):
        part = slice(low, high)
        name = int(partition[low])
        valid = np.ones(high - low, bool)
        chunk = header(name, offset[part], ts[part], seen[part], valid, found.scattered[n])
        records = list(zip(partition[part].tolist(), offset[part].tolist(), ts[part].tolist(), strict=True))
        out.append((chunk, records, seen[part].tolist()))
    return out


# --- cutting -------------------------------------------------------------------------------------------------------


def test_a_run_of_offsets_is_one_chunk() -> None:
    """offsets 0 1 2 | 5 6 of partition 0, then 0 1 of partition 1."""
    found = cut(ints(0, 0, 0, 0, 0, 1, 1), ints(0, 1, 2, 5, 6, 0, 1), 5)
    assert found.order is None
    assert found.starts.tolist() == [0, 3, 5]
    assert found.scattered == [False, False, False]


def test_rows_out_of_order_are_sorted() -> None:
    found = cut(ints(1, 0, 0), ints(7, 4, 3), 5)
    assert found.order is not None
    assert found.order.tolist() == [2, 1, 0]
    assert found.starts.tolist() == [0, 2]


@pytest.mark.parametrize("ends", [(-(2**62) - 5, 2**62 + 5), (-(2**63), 2**63 - 1), (0, 2**63 - 1), (-(2**63), 0)])
def test_offsets_however_far_apart_have_a_gap_between_them(ends: tuple[int, int]) -> None:
    assert cut(np.zeros(2, np.int64), np.array(ends), 9).starts.tolist() == [0, 1]
    assert cut(np.zeros(2, np.int64), np.array([-(2**63), -(2**63) + 1]), 9).starts.tolist() == [0]


def test_an_offset_twice_is_no_gap() -> None:
    assert cut(ints(0, 0, 0), ints(3, 3, 4), 5).starts.tolist() == [0]


@pytest.mark.parametrize(("runs", "scattered"), [(5, False), (6, True)])
def test_many_runs_are_one_scattered_chunk(runs: int, scattered: bool) -> None:
    found = cut(np.zeros(runs, np.int64), np.arange(runs) * 2, 5)
    assert found.starts.tolist() == ([0] if scattered else list(range(runs)))
    assert set(found.scattered) == {scattered}


@pytest.mark.parametrize(("most_runs", "scattered"), [(29, True), (30, False)])
def test_short_runs_of_many_partitions_are_scattered(most_runs: int, scattered: bool) -> None:
    """A hundred partitions of ten records with gaps between them: nine hundred gaps, more than the square of 29."""
    found = cut(np.repeat(np.arange(100), 10), np.tile(np.arange(10) * 2, 100), most_runs)
    assert found.scattered == ([True] * 100 if scattered else [False] * 1_000)
    assert found.starts.tolist() == (np.arange(0, 1_000, 10) if scattered else np.arange(1_000)).tolist()


def test_long_runs_stay_chunks_however_many_there_are() -> None:
    """A thousand partitions of two runs of four records, and one of two runs of a single record."""
    of_eight = [0, 1, 2, 3, 9, 10, 11, 12]
    partition = np.append(np.repeat(np.arange(1_000), 8), [1_000, 1_000])
    found = cut(partition, np.array([*of_eight * 1_000, 0, 2]), 5)
    assert found.scattered == [*[False] * 2_000, True]


def test_the_running_maximum_begins_anew_in_each_chunk() -> None:
    assert running_max(ints(5, 3, 9, 1, 4, 2), ints(0, 3)).tolist() == [5, 5, 9, 1, 4, 4]


# --- folding -------------------------------------------------------------------------------------------------------


def dense(partition: int, first: int, last: int, max_ts: int) -> Chunk:
    return Chunk(partition, first, last, max_ts, last - first + 1, False, 0, 0.0, 0)


def test_chunks_of_two_tasks_in_the_order_of_their_offsets() -> None:
    """Offsets 0-3 and 7-8 were read by one task, 4-6 by another.

    offset       0 1 2 3 | 4 5 6 | 7 8
    largest ts      40   |  90   | 60
    seen before    10    |  40   | 90        10: the stream time of the batch before
    """
    one, two, three = dense(0, 0, 3, 40), dense(0, 7, 8, 60), dense(0, 4, 6, 90)
    fold = Fold([one, two, three], 10)
    assert [fold.before(chunk) for chunk in (one, three, two)] == [10, 40, 90]
    assert fold.stream_time == 90
    assert fold.before_batch == 10


def test_partitions_do_not_see_each_other_inside_a_batch() -> None:
    ahead, behind = dense(0, 0, 0, 100), dense(1, 5, 6, 20)
    fold = Fold([ahead, behind], NEVER)
    assert fold.before(behind) == NEVER
    assert fold.stream_time == 100
    # In the next batch they do.
    assert Fold([dense(1, 7, 7, 30)], fold.stream_time).before(dense(1, 7, 7, 30)) == 100


def test_partitions_are_numbered_in_their_natural_order() -> None:
    names = ["0:9", "0:10", "1", "01", "1²", "a", "", "²", "①", "٣", "-1", "9" * 5_000]
    in_order = ["0:9", "0:10", "01", "1", "9" * 5_000, "", "-1", "1²", "a", "²", "٣", "①"]
    assert numbered(names) == {name: number for number, name in enumerate(in_order)}
    assert numbered([11, 2, 3]) == {2: 0, 3: 1, 11: 2}


@given(st.lists(st.one_of(st.text("019:①²٣"), st.text()), unique=True), st.randoms(use_true_random=False))
def test_numbers_of_partitions_do_not_depend_on_the_order_of_chunks(names: list[str], random: Random) -> None:
    shuffled = random.sample(names, len(names))
    assert numbered(shuffled) == numbered(names)


def numbered(names: Sequence[int | str]) -> dict[int | str, int]:
    """The number of each partition, given a chunk of each."""
    fold = Fold([Chunk(name, 0, 0, 1, 1) for name in names], NEVER)
    return dict(zip(names, fold.partition_numbers.tolist(), strict=True))


def test_a_chunk_has_not_passed_before_itself() -> None:
    alone = dense(0, 3, 3, 100)
    assert Fold([alone], 10).before(alone) == 10


def test_stream_time_never_goes_back() -> None:
    fold = Fold([dense(0, 0, 0, 5)], 70)
    assert (fold.before(dense(0, 0, 0, 5)), fold.stream_time) == (70, 70)
    assert Fold([], 70).stream_time == 70


def test_without_order_no_record_is_late_because_of_its_batch() -> None:
    chunk = Chunk(None, 0, 0, 100, 1, False, 0, 0.0, 0)
    fold = Fold([chunk], 10)
    assert (fold.before(chunk), fold.stream_time) == (10, 100)


layouts = st.lists(
    st.tuples(st.integers(0, 2), st.integers(0, 50), st.integers(0, 3)),  # partition, timestamp, the task that reads it
    max_size=90,
)


@given(layouts, st.integers(NEVER, 60))
def test_however_tasks_are_laid_out_each_record_sees_its_partition(
    drawn: list[tuple[int, int, int]], before_batch: int
) -> None:
    tasks: dict[int, Records] = {0: [], 1: [], 2: [], 3: []}
    expected: dict[tuple[int, int], int] = {}
    latest: dict[int, int] = {}
    offsets: dict[int, int] = {}
    for partition, ts, task in drawn:
        offset = offsets[partition] = offsets.get(partition, -1) + 1
        tasks[task].append((partition, offset, ts))
        latest[partition] = max(latest.get(partition, before_batch), ts)
        expected[partition, offset] = latest[partition]
    pieces = [piece for read in tasks.values() for piece in chunks_of(read)]
    fold = Fold([chunk for chunk, _, _ in pieces], before_batch)
    for chunk, records, seen in pieces:
        for (partition, offset, _), own in zip(records, seen, strict=True):
            at = offset if chunk.scattered else chunk.first
            before = int(fold.before_offsets(partition, np.array([at]))[0])
            assert max(before, own) == expected[partition, offset]
    assert fold.stream_time == max([before_batch, *latest.values()])
    chunks = [chunk for chunk, _, _ in pieces]
    assert fold.before_each.tolist() == [fold.before(chunk) for chunk in chunks]
    assert fold.scattered.tolist() == [chunk.scattered for chunk in chunks]
    assert fold.partition_numbers.tolist() == [sorted(latest).index(chunk.partition) for chunk in chunks]
    if not fold.scattered.any():
        true = [expected[p, o] - ts for read in tasks.values() for p, o, ts in read]
        assert lateness(chunks, fold.before_each) == (sum(true), max([0, *true]))


# --- headers -------------------------------------------------------------------------------------------------------


def test_a_header_counts_only_valid_records() -> None:
    ts, valid = ints(5, -1, 9, 7), np.array([True, False, True, True])
    chunk = header(3, ints(10, 11, 12, 13), ts, ints(5, 5, 9, 9), valid, False)
    assert (chunk.partition, chunk.first, chunk.last, chunk.rows) == (3, 10, 13, 3)
    assert (chunk.max_ts, chunk.min_ts, chunk.late_sum, chunk.late_max) == (9, 5, 2.0, 2)
    assert lateness([chunk], ints(NEVER)) == (2.0, 2)
    # Had 20 passed before, they were 15, 11 and 13 late.
    assert lateness([chunk], ints(20)) == (39.0, 15)
    assert lateness([chunk, chunk], ints(NEVER, 20)) == (41.0, 15)


def test_a_chunk_without_a_valid_record_moves_nothing() -> None:
    chunk = header(0, ints(4), ints(-1), ints(-1), np.array([False]), False)
    assert (chunk.rows, chunk.max_ts, lateness([chunk], ints(50))) == (0, NEVER, (0.0, 0))
    assert Fold([chunk], 3).stream_time == 3


def test_a_scattered_chunk_sends_its_staircase() -> None:
    chunk = header(0, ints(0, 2, 4, 6), ints(5, 3, 9, 9), ints(5, 5, 9, 9), np.ones(4, bool), True)
    assert chunk.points.tolist() == [[0, 5], [4, 9]]


def test_headers_carry_fewer_steps_if_a_map_task_has_many() -> None:
    """The task that gets all of them would have ten million for ten thousand partitions."""
    assert [most_steps(chunks) for chunks in (0, 1, 4)] == [STEPS] * 3
    assert most_steps(25) == 163
    assert most_steps(1_000) == 32
    ts = np.arange(500, dtype=np.int64)
    of = header(0, ts, ts, ts, np.ones(len(ts), bool), True, np.zeros(len(ts), np.int64), 40)
    assert (len(of.steps), len(of.sample)) == (40, 40)


def test_more_steps_than_a_header_carries_are_put_together() -> None:
    ts = np.arange(STEPS * 3, dtype=np.int64) * 10
    chunk = header(0, np.arange(len(ts)), ts, ts, np.ones(len(ts), bool), False)
    assert len(chunk.steps) <= STEPS
    assert sum(n for _, n, _ in chunk.steps) == len(ts)
    # Exact again once everything in between had passed before.
    after = int(ts[-1]) + 1
    assert lateness([chunk], ints(after)) == (float((after - ts).sum()), after)


# --- promises and reports ------------------------------------------------------------------------------------------


def stretch(partition: str, first: int, last: int, contiguous: bool = True) -> Chunk:
    return Chunk(partition, first, last, 9, last - first + 1, contiguous=contiguous)


def test_stretches_of_one_partition_that_overlap_break_the_promise() -> None:
    Fold([stretch("a", 4, 6), stretch("b", 0, 9), stretch("a", 0, 4)], NEVER)
    Fold([stretch("a", 3, 6, contiguous=False), stretch("a", 0, 4, contiguous=False)], NEVER)
    with pytest.raises(InputError, match="the partition 'a' in turns: offsets 0 to 4, and 3 to 6"):
        Fold([stretch("a", 3, 6), stretch("b", 0, 9), stretch("a", 0, 4)], NEVER)
    with pytest.raises(InputError, match="in turns"):
        Fold([stretch("a", 3, 6, contiguous=False), stretch("a", 0, 4)], NEVER)


def test_records_of_an_operator_that_reports_its_time_see_the_time_before_the_batch() -> None:
    rows, records = Chunk("a", 0, 1, 60, 2, reported=30), Chunk("b", 0, 1, 20, 2)
    fold = Fold([rows, records], 10)
    assert fold.stream_time == 30
    assert fold.ceilings is not None
    assert fold.ceilings.tolist() == [10, MAX_MS]
    assert Fold([records], 10).ceilings is None


def test_the_first_record_of_a_batch_is_the_earliest_of_the_first_in_each_partition() -> None:
    chunks = [Chunk("a", n, n, 50, 1, first_record=[n, ts]) for n, ts in ((5, 3), (2, 40))]
    chunks += [Chunk("b", 0, 0, 50, 1, first_record=[0, 30]), Chunk("c", 0, 0, NEVER, 0)]
    assert Fold(chunks, NEVER).first_timestamp == 30
    assert Fold(chunks[:2], NEVER).first_timestamp == 40
    assert Fold(chunks[3:], NEVER).first_timestamp is None
