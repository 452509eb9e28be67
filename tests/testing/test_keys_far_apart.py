"""Keys of several whole numbers that lie far apart: the key code must not be as large as the range they span."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

import tidegate as tg
from tidegate.testing import TopologyTestDriver

SCHEMA = pa.schema([(name, pa.int64()) for name in ("a", "b", "ts", "n", "o")] + [("p", pa.int32())])
FAR = (0, 3, 2**30 + 1)
WINDOWS = {
    "time": tg.TimeWindows(10, 10, 5),
    "sessions": tg.SessionWindows(5, 5),
    "sliding": tg.SlidingWindows(5, 5),
    "none": None,
}
STRICT = tg.BufferConfig.max_records(1_000).shut_down_when_full()
BUFFERS = [tg.BufferConfig.unbounded(), tg.BufferConfig.max_records(50), tg.BufferConfig.max_bytes(5_000), STRICT]


def counts(windows: Any) -> tg.KTable:
    stream = tg.stream("e", key=["a", "b"], timestamp="ts", partition="p", offset="o", schema=SCHEMA)
    grouped = stream.group_by_key()
    return grouped.count() if windows is None else grouped.windowed_by(windows).count()


def run(table: tg.KTable) -> set[tuple[int, int]]:
    """The keys of the rows that leave: three batches with a record of each key, and a drain."""
    driver = TopologyTestDriver(table)
    for number in range(3):
        keys = enumerate((a, b) for a in FAR for b in FAR)
        driver.pipe_batch(
            {"a": a, "b": b, "ts": 20 * number, "n": 1, "o": 9 * number + at, "p": 0} for at, (a, b) in keys
        )
    driver.drain()
    return {(row["a"], row["b"]) for row in driver.read_output()}


@pytest.mark.parametrize("kind", WINDOWS)
def test_updates_final_results_and_limits(kind: str) -> None:
    every = {(a, b) for a in FAR for b in FAR}
    table = counts(WINDOWS[kind])
    assert run(table) == every
    for buffer in BUFFERS:
        assert run(table.suppress(tg.Suppressed.until_time_limit("5 ms", buffer, clock="stream"))) == every
    for strict in () if kind == "none" else (tg.BufferConfig.unbounded(), STRICT):
        assert run(table.suppress(tg.Suppressed.until_window_closes(strict))) == every
