"""Missing offsets: another task may have read them, and each record still sees its partition's time up to itself.

Many gaps make a chunk scattered; here one is enough, so that short streams have scattered chunks as well.
"""

from __future__ import annotations

from itertools import count
from typing import Any
from unittest import mock

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from oracle import Row
from properties import cases
from properties.cases import Case
from properties.comparing import assert_same, assert_same_drops, flat, placed, run_oracle
from tidegate.errors import InputError
from tidegate.kernel.exchange import batch, chunk_headers, slices
from tidegate.kernel.exchange.packing import pack
from tidegate.kernel.time import stream_time
from tidegate.kernel.tuning import Tuning
from tidegate.testing import layout

RUNS = st.sampled_from([0, 1, 2, Tuning().offset_runs])
"""More runs than this of consecutive offsets make a chunk scattered; with 0 every chunk is."""


COUNTED = Case(
    cases.Topology(
        key=("k",),
        windows=cases.Windows(10, 10, 0),
        aggregates={"n": cases.BuiltIn("count", None)},
        final=True,
        partition="partition",
        offset="offset",
    )
)
"""Final counts per window of 10 ms, without grace."""


@st.composite
def gapped(draw: Any) -> list[list[Row]]:
    """Batches of a stream in which offsets are missing: some, every second one, most of a stretch."""
    batches = draw(cases.partitioned(max_partitions=3))
    steps = draw(st.sampled_from([[2], [1, 2], [1, 1, 1, 7], [1, 1_000, 10**9]]))
    next_offset: dict[int, int] = {}
    for record in flat(batches):
        record["offset"] = next_offset.get(record["partition"], 0)
        next_offset[record["partition"]] = record["offset"] + draw(st.sampled_from(steps))
    return batches


def check(case: Case, batches: list[list[Row]], splits: list[list[list[Row]]], tasks: int, **how: Any) -> None:
    wanted, drops = run_oracle(case.topology, batches)
    rows, dropped = layout.run(case.table(), batches, tasks=tasks, splits=splits, **how)
    assert_same(case, splits, placed(case.topology, rows), placed(case.topology, flat(wanted)))
    assert_same_drops(case, splits, dropped, drops)


@pytest.mark.parametrize("kind", cases.ALL_KINDS)
@given(batches=gapped(), tasks=st.integers(1, 4), runs=RUNS, interleaved=st.booleans(), data=st.data())
def test_without_a_promise_another_map_task_may_have_read_what_is_missing(
    kind: str, batches: list[list[Row]], tasks: int, runs: int, interleaved: bool, data: Any
) -> None:
    case = data.draw(cases.cases(ordered=True, kind=kind))
    splits = data.draw(cases.splits(batches, interleaved=interleaved))
    check(case, batches, splits, tasks, tuning=Tuning(offset_runs=runs))


@pytest.mark.parametrize("kind", cases.ALL_KINDS)
@given(batches=gapped(), tasks=st.integers(1, 4), data=st.data())
def test_with_the_promise_a_stretch_of_a_partition_is_one_chunk(
    kind: str, batches: list[list[Row]], tasks: int, data: Any
) -> None:
    case = data.draw(cases.cases(ordered=True, kind=kind))
    splits = data.draw(cases.splits(batches, interleaved=False))
    check(case, batches, splits, tasks, contiguous=True)


@pytest.mark.parametrize("promise", [False, True])
@given(batches=gapped(), runs=RUNS, data=st.data())
def test_a_batch_that_is_packed_again_gives_the_same_blobs(
    promise: bool, batches: list[list[Row]], runs: int, data: Any
) -> None:
    """Spark may run a batch again, or a map task twice."""
    case = data.draw(cases.cases(ordered=True))
    splits = data.draw(cases.splits(batches, interleaved=not promise))
    packed: list[list[tuple[int, bytes]]] = []

    def twice(*given: Any) -> list[tuple[int, bytes]]:
        once, again = list(pack(*given)), list(pack(*given))
        assert once == again
        packed.append(once)
        return once

    with mock.patch.object(layout, "pack", twice):
        check(case, batches, splits, 3, contiguous=promise, tuning=Tuning(offset_runs=runs))
    assert bool(packed) == bool(flat(batches))


TRIPS = st.lists(st.lists(st.tuples(st.integers(0, 60), st.integers(0, 40)), max_size=8), max_size=3)
"""Batches of records that become two each: the start, and the time until the end."""


def ends(trips: list[list[tuple[int, int]]]) -> list[list[Row]]:
    """Starts and ends of trips: two records with one offset."""
    record = {"k": "a", "j": 1, "n": 1, "x": 0.0, "d": None, "s": "x", "b": True, "partition": 0}
    offset = count()
    numbered = [[(next(offset), *trip) for trip in batch] for batch in trips]
    return [
        [{**record, "ts": ts, "offset": at} for at, start, more in batch for ts in (start, start + more)]
        for batch in numbered
    ]


@given(trips=TRIPS)
def test_map_tasks_that_share_offsets_see_the_records_of_one_another(trips: list[list[tuple[int, int]]]) -> None:
    batches = ends(trips)
    check(COUNTED, batches, [[batch[::2], batch[1::2]] for batch in batches], 2, tuning=Tuning(offset_runs=0))


@pytest.mark.parametrize("promise", [False, True])
@given(trips=TRIPS, size=st.integers(1, 5), runs=RUNS)
def test_records_with_one_offset_are_packed_together(
    promise: bool, trips: list[list[tuple[int, int]]], size: int, runs: int
) -> None:
    """Arrow cuts the rows of a map task between them, and so did a slice that is full."""

    def in_pieces(of: Any, batches: Any, *how: Any) -> Any:
        return pack(of, [one.slice(at, size) for one in batches for at in range(0, one.num_rows, size)], *how)

    batches = ends(trips)
    with mock.patch.object(layout, "pack", in_pieces):
        tuning = Tuning(offset_runs=runs, slice_rows=size)
        check(COUNTED, batches, [[batch] for batch in batches], 2, contiguous=promise, tuning=tuning)


def test_a_promise_that_is_broken_is_noticed() -> None:
    """Map tasks read a partition in turns, though the source promises unbroken stretches."""
    record = {"k": "a", "j": 1, "n": 1, "x": 0.0, "d": None, "s": "x", "b": True, "partition": 0}
    records = [{**record, "ts": 5 * i, "offset": 2 * i} for i in range(4)]
    with pytest.raises(InputError, match="in turns: offsets 0 to 4, and 2 to 6"):
        layout.run(COUNTED.table(), [records], tasks=2, splits=[[records[::2], records[1::2]]], contiguous=True)


# --- mutations -----------------------------------------------------------------------------------------------------


def points_do_not_travel(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(chunk_headers, "points", lambda chunks, counts: None)


def only_the_end_travels(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(stream_time, "_at_which_windows_close", lambda grew, closing: grew[-1:])


def windows_close_a_step_later(patch: pytest.MonkeyPatch) -> None:
    def later(grew: Any, closing: Any) -> Any:
        at = closing[grew]
        return grew[np.append(np.append(True, at[1:-1] < at[2:]), True)[: len(grew)]]

    patch.setattr(stream_time, "_at_which_windows_close", later)


def a_gap_is_no_gap(patch: pytest.MonkeyPatch) -> None:
    cut = stream_time.cut
    patch.setattr(slices, "cut", lambda partition, offset, runs, _: cut(partition, offset, runs, True))


def offsets_are_ignored(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(batch.Batch, "_before_rows", batch.Batch._before_chunks)


def times_are_off_by_one(patch: pytest.MonkeyPatch) -> None:
    read = chunk_headers.read

    def later(*blob: Any) -> Any:
        chunks = read(*blob)
        for chunk in chunks:
            chunk.points = chunk.points + np.array([0, 1])
        return chunks

    patch.setattr(chunk_headers, "read", later)


@pytest.mark.parametrize(
    "plant",
    [
        points_do_not_travel,
        only_the_end_travels,
        windows_close_a_step_later,
        a_gap_is_no_gap,
        offsets_are_ignored,
        times_are_off_by_one,
    ],
)
def test_what_is_wrong_is_found(plant: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows of one partition dealt out to two map tasks; windows close in the middle of both.

    Of several keys: the first task gets more points than the others, for the lateness metric.
    """
    record = {"j": 1, "n": 1, "x": 0.0, "d": None, "s": "x", "b": True, "partition": 0}
    times = [(0, 0), (1, 2), (0, 9), (1, 3), (0, 3), (1, 10), (0, 4), (1, 11), (0, 8), (1, 20), (0, 15), (1, 12)]
    times += [(0, 30), (1, 31), (0, 29), (1, 28)]
    dealt = [(task, {**record, "k": key, "ts": ts}) for task, ts in times for key in "abcd"]
    for i, (_, row) in enumerate(dealt):
        row["offset"] = 2 * i
    records = [row for _, row in dealt]
    splits = [[[row for task, row in dealt if task == mine] for mine in (0, 1)]]
    check(COUNTED, [records], splits, 2, tuning=Tuning(offset_runs=0))
    plant(monkeypatch)
    with pytest.raises((AssertionError, InputError)):
        check(COUNTED, [records], splits, 2, tuning=Tuning(offset_runs=0))
