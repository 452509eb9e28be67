"""A guard against loops over rows in a hot path: the kernel against a plain Python loop for the same work.

Both take processor time of this process alone, in turns, and the best of several counts: a busy machine slows both.
The columnar way takes a fraction of the loop's time; a second such loop in a hot path puts it above its share.
`test_cost.py` counts executed lines, which locates a loop; this test also sees loops in C over Python objects
(`to_pylist`, `pa.array` of a list), which execute no line.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import tidegate as tg
from tidegate.kernel.exchange.packing import pack
from tidegate.kernel.rows.layout import Layout
from tidegate.kernel.stage import Stage
from tidegate.kernel.state.store import DictStore
from tidegate.plan import operation

ROWS, KEYS = 100_000, 5_000
TURNS = 15
"""At most: a machine can be busy for some seconds, which slows the columns more than the loop."""
SPAN_MS = 60_000

FINAL = tg.Suppressed.until_window_closes(tg.BufferConfig.unbounded())
TUMBLING = tg.TimeWindows.of_size_and_grace("1 minute", "10 seconds")
TOTALS: dict[str, Any] = {"n": tg.count(), "total": tg.sum("amount")}

HOT: dict[str, tuple[float, Callable[[tg.KStream], tg.KTable]]] = {
    "tumbling, final": (1.0, lambda s: s.group_by_key().windowed_by(TUMBLING).agg(**TOTALS).suppress(FINAL)),
    "tumbling, updates": (1.0, lambda s: s.group_by_key().windowed_by(TUMBLING).agg(**TOTALS)),
    "a table": (1.0, lambda s: s.group_by_key().agg(**TOTALS)),
    "sessions, final": (
        2.0,
        lambda s: (
            s.group_by_key()
            .windowed_by(tg.SessionWindows.of_inactivity_gap_and_grace("5 seconds", "10 seconds"))
            .agg(**TOTALS)
            .suppress(FINAL)
        ),
    ),
}
"""Allowed share of the loop's time, about twice to four times the measured share."""


def batches() -> list[pa.RecordBatch]:
    """Two batches, the second of which closes the windows of the first."""
    number = np.arange(ROWS)
    names = np.array([f"user-{n:06}" for n in range(KEYS)], dtype=object)
    rng = np.random.default_rng(1)
    return [
        pa.record_batch(
            {
                "k:user": pa.array(names[rng.integers(0, KEYS, ROWS)]),
                "v:amount": pa.array(rng.integers(0, 100, ROWS)),
                "ts": pa.array(2 * batch * SPAN_MS + number * SPAN_MS // ROWS),
                "partition": pa.array(np.zeros(ROWS, np.int32)),
                "offset": pa.array(batch * ROWS + number),
            }
        )
        for batch in (0, 1)
    ]


def by_columns(layout: Layout, given: list[pa.RecordBatch]) -> float:
    stage, store = Stage(layout, tasks=1), DictStore()
    began = time.process_time()
    for batch in given:
        stage.step(store, [dict(pack(layout, [batch], [0]))[0]])
    return time.process_time() - began


def by_rows(given: list[pa.RecordBatch]) -> float:
    totals: dict[tuple[str, int], tuple[int, int]] = {}
    began = time.process_time()
    for batch in given:
        for key, amount, ts in zip(*(batch[name].to_pylist() for name in ("k:user", "v:amount", "ts")), strict=True):
            count, total = totals.get((key, ts // SPAN_MS), (0, 0))
            totals[key, ts // SPAN_MS] = (count + 1, total + amount)
    return time.process_time() - began


@pytest.mark.alone
@pytest.mark.parametrize("topology", HOT)
def test_columns_beat_a_loop_over_rows(topology: str) -> None:
    share, build = HOT[topology]
    given = batches()
    stream = tg.stream("events", key="user", timestamp="ts", partition="partition", offset="offset")
    layout = Layout(operation(build(stream).node), given[0].schema, sorts=False)
    ours, loop = [], []
    for _ in range(TURNS):
        ours.append(by_columns(layout, given))
        loop.append(by_rows(given))
        if min(ours) < share * min(loop):
            break
    assert min(ours) < share * min(loop)
