"""Results of one step of an operator do not depend on the order in which the shuffle delivers its blobs."""

from __future__ import annotations

import pytest

import tidegate as tg
from tidegate.kernel.exchange.packing import pack
from tidegate.kernel.rows.layout import Layout
from tidegate.kernel.stage import Stage
from tidegate.kernel.state.store import DictStore
from tidegate.plan import operation
from tidegate.testing.column_types import Types
from tidegate.testing.columns import to_batch

WINDOWS = (
    tg.SlidingWindows.of_time_difference_and_grace("41 ms", "100 ms"),
    tg.SessionWindows.of_inactivity_gap_and_grace("41 ms", "100 ms"),
    tg.TimeWindows.of_size_and_grace("41 ms", "100 ms"),
)


@pytest.mark.parametrize("windows", WINDOWS, ids=lambda windows: type(windows).__name__)
def test_a_replayed_batch_gives_the_same_bits_in_any_order_of_its_blobs(windows: object) -> None:
    stream = tg.stream("s", key="k", timestamp="ts", partition="p", offset="o")
    counts = stream.group_by_key().windowed_by(windows).agg(total=tg.sum("x"))  # type: ignore[arg-type]
    op = operation(counts.node)
    values = [0.1, 1e16, 0.3, -1e16, 0.7, 1e-3]
    parts = [
        [{"k": "A", "ts": 100 + 3 * p + o, "x": values[2 * p + o], "p": p, "o": o} for o in range(2)] for p in range(3)
    ]
    types = Types.of(op.stream.schema)
    for part in parts:
        types.learn(part)
    batches = [to_batch(op, types, part, 0) for part in parts]
    layout = Layout(op, batches[0].schema)
    blobs = [dict(pack(layout, [batch], [0]))[0] for batch in batches]
    rows = [Stage(layout).step(DictStore(), order).rows for order in (blobs, blobs[::-1], [*blobs[1:], blobs[0]])]
    assert rows[0].num_rows > 0
    assert rows[1].equals(rows[0])
    assert rows[2].equals(rows[0])
