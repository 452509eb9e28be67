"""Cost of missing offsets between map tasks and tasks, in bytes: rows filtered out, compacted, transactional.

If the source promises that a map task reads an unbroken stretch of each partition, they cost nothing. Without the
promise another map task may have read the missing offsets, so each row travels with its offset, and every task must
know when time passed: then the bytes are bounded per row, and do not follow the number of tasks.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import tidegate as tg
from tidegate.kernel.exchange.packing import pack
from tidegate.kernel.rows.layout import Layout
from tidegate.plan import operation

ROWS, KEYS = 60_000, 200
SPAN_MS = 120_000

MINUTES = tg.TimeWindows.of_size_and_grace("1 minute", "10 seconds")
FINAL = tg.Suppressed.until_window_closes(tg.BufferConfig.unbounded())
SESSIONS = tg.SessionWindows.of_inactivity_gap_and_grace("30 seconds", "10 seconds")

TOPOLOGIES: dict[str, Callable[[tg.KGroupedStream], tg.KTable]] = {
    "tumbling, final": lambda g: g.windowed_by(MINUTES).agg(n=tg.count(), total=tg.sum("amount")).suppress(FINAL),
    "hopping, updates": lambda g: g.windowed_by(MINUTES.advance_by("20 seconds")).count(),
    "sessions": lambda g: g.windowed_by(SESSIONS).count(),
    "without windows": lambda g: g.agg(total=tg.sum("amount")),
}


def every_second() -> Any:
    return np.arange(ROWS) * 2


def random_half() -> Any:
    return np.flatnonzero(np.random.default_rng(1).random(ROWS * 2 + 4_000) < 0.5)[:ROWS]


def compacted() -> Any:
    """Only the newest record of each key is left: the older a stretch, the fewer records it has."""
    lengths = np.random.default_rng(2).geometric(np.linspace(0.01, 1, ROWS))
    return np.cumsum(lengths)


GAPS = {"every second": every_second, "random half": random_half, "compacted": compacted}


def records(offset: Any, random: bool = False) -> pa.RecordBatch:
    """Ordered records of one partition; with `random`, keys, amounts and times are random."""
    number, rng = np.arange(ROWS), np.random.default_rng(3)
    key = rng.integers(0, KEYS, ROWS) if random else number % KEYS
    ts = number * SPAN_MS // ROWS - (rng.integers(0, 5_000, ROWS) if random else 0)
    return pa.record_batch(
        {
            "k:user": [f"user-{n:06}" for n in key],
            "v:amount": pa.array(rng.integers(0, 100, ROWS) if random else number % 100, pa.int64()),
            "ts": pa.array(np.maximum(ts, 0), pa.int64()),
            "partition": pa.array(np.zeros(ROWS, np.int32)),
            "offset": pa.array(offset, pa.int64()),
        }
    )


def layout(topology: str) -> Layout:
    stream = tg.stream("events", key="user", timestamp="ts", partition="partition", offset="offset")
    op = operation(TOPOLOGIES[topology](stream.group_by_key()).node)
    return Layout(op, records(np.arange(ROWS)).schema, sorts=False)


@cache
def without_gaps(topology: str, tasks: int, *, random: bool = False) -> int:
    """Bytes of records whose offsets have no gaps."""
    return bytes_of(topology, records(np.arange(ROWS), random), tasks)


def bytes_of(topology: str, given: pa.RecordBatch, tasks: int, contiguous: bool = False) -> int:
    packed = pack(layout(topology), [given], range(tasks), contiguous)
    return sum(len(blob) for _, blob in packed)


@pytest.mark.parametrize("tasks", [8, 32])
@pytest.mark.parametrize("gaps", GAPS)
@pytest.mark.parametrize("topology", TOPOLOGIES)
def test_gaps_cost_nothing_where_the_source_is_contiguous(topology: str, gaps: str, tasks: int) -> None:
    offset = GAPS[gaps]()
    for random in (False, True):
        without = without_gaps(topology, tasks, random=random)
        found = bytes_of(topology, records(offset, random), tasks, contiguous=True)
        # The offsets need wider numbers if records travel one by one: four bytes instead of two.
        assert found <= 1.02 * without + (2 * ROWS if topology == "sessions" else 0)


@pytest.mark.parametrize("tasks", [8, 32])
@pytest.mark.parametrize("gaps", GAPS)
@pytest.mark.parametrize(("topology", "a_row"), [("hopping, updates", 0.5), ("sessions", 1.1), ("without windows", 0)])
def test_regular_rows_cost_about_twice_the_bytes_without_a_promise(
    topology: str, a_row: float, gaps: str, tasks: int
) -> None:
    """`a_row`: bytes of a row beyond. Numbers without gaps have a common step, which is left out."""
    without = without_gaps(topology, tasks)
    # Rows that travel one by one have a table of their own, which takes a kilobyte to name its columns.
    assert bytes_of(topology, records(GAPS[gaps]()), tasks) <= 2 * without + 1_024 * tasks + a_row * ROWS


@pytest.mark.parametrize("gaps", GAPS)
@pytest.mark.parametrize("random", [False, True])
def test_rows_that_cannot_be_combined_cost_a_few_bytes_each(gaps: str, random: bool) -> None:
    """Key (8 bits), offset, time, amount (7 bits): random values cannot be left out."""
    few, many = (bytes_of("tumbling, final", records(GAPS[gaps](), random), tasks) for tasks in (8, 32))
    assert few <= 7 * ROWS
    # The bytes that every task gets besides its rows do not grow with the number of rows.
    assert many - few <= 24 * 10_000


@pytest.mark.parametrize("gaps", GAPS)
def test_a_point_travels_only_where_a_window_closes(gaps: str) -> None:
    """Each of eight tasks gets the points; time grows at every record, and two windows close."""
    few, many = (bytes_of("without windows", records(GAPS[gaps]()), tasks) for tasks in (1, 8))
    assert many - few <= 7 * 8_000
