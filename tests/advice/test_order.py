"""Stream time that records see is the same in parts and in one piece, if each part starts from the times before it."""

from __future__ import annotations

from random import Random

import numpy as np
import pytest

from advice.recordings import drawn
from tidegate.advice import order
from tidegate.advice.order import Arrived, Times, batches, delivered, in_order, see


@pytest.mark.parametrize("seed", range(60))
def test_parts_see_what_the_whole_sees(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    recording, random = drawn(seed, least=1, bad=False), Random(seed)
    columns = ([r[name] for r in recording.records] for name in ("ts", "p", "o", "at"))
    records = Arrived(*(np.array(column, np.int64) for column in columns))
    ready, _ = delivered(records)
    batch = batches(ready, recording.trigger, len(records.ts))
    rows = in_order(batch, records)
    batch, records = batch[rows], records.take(rows)
    assert ready is not None
    future = records.ts > ready[rows] + 20
    start = Times.at_start(7)
    whole, after = see(records.ts, records.partition, batch, start, future=future, slowest=True)
    monkeypatch.setattr(order, "_CELLS", 1)
    times, low, parts = start, 0, []
    while low < len(batch):
        high = min(low + random.randrange(1, 9), len(batch))
        while high < len(batch) and batch[high] == batch[high - 1]:
            high += 1
        part = slice(low, high)
        found, times = see(
            records.ts[part], records.partition[part], batch[part], times, future=future[part], slowest=True
        )
        parts.append(found)
        low = high
    for name in ("largest", "own", "slowest", "guarded"):
        together = np.concatenate([getattr(part, name) for part in parts])
        assert together.tolist() == getattr(whole, name).tolist()
    assert (times.largest, times.slowest, times.guarded) == (after.largest, after.slowest, after.guarded)
    assert times.reached.tolist() == after.reached.tolist()


def test_an_offset_does_not_come_before_a_smaller_one() -> None:
    records = Arrived(*(np.array(column, np.int64) for column in ([5, 6, 7], [0, 0, 1], [1, 0, 0], [10, 90, 20])))
    ready, waited = delivered(records)
    assert ready is not None
    assert (ready.tolist(), waited) == ([90, 90, 20], 1)
