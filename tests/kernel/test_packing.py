"""The rows of a map task as its blobs carry them."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import tidegate as tg
from tidegate.kernel.columns import runs
from tidegate.kernel.columns.arrays import ints
from tidegate.kernel.exchange.packing import pack
from tidegate.kernel.rows import grouping
from tidegate.kernel.rows.layout import Layout
from tidegate.kernel.stage import Stage
from tidegate.kernel.state import frames
from tidegate.kernel.state.store import DictStore
from tidegate.plan import operation
from tidegate.spec.columns import START

TASKS, ROWS, WIDTH_MS = 3, 500, 10
STREAM = tg.stream("events", key="user", timestamp="ts", partition="partition", offset="offset")
WINDOWS = tg.TimeWindows.of_size_and_grace("10 ms", "20 ms")
FINAL = tg.Suppressed.until_window_closes(tg.BufferConfig.unbounded())


def records(ts: Any, number: int = 0) -> pa.RecordBatch:
    """Records with these timestamps, of forty users, with consecutive offsets of the partition `number`."""
    users = np.random.default_rng(number).integers(0, 40, len(ts))
    return pa.record_batch(
        {
            "k:user": pa.array([f"user-{user}" for user in users]),
            "ts": pa.array(ts, pa.int64()),
            "partition": pa.array(np.full(len(ts), number, np.int32)),
            "offset": pa.array(np.arange(len(ts))),
        }
    )


def laid_out(batch: pa.RecordBatch) -> Layout:
    table = STREAM.group_by_key().windowed_by(WINDOWS).agg(n=tg.count()).suppress(FINAL)
    return Layout(operation(table.node), batch.schema, sorts=False)


def rows_by_task(batch: pa.RecordBatch) -> tuple[dict[int, pa.Table], Counter[str]]:
    """The combined rows of each task, and what was dropped."""
    found: dict[int, pa.Table] = {}
    drops: Counter[str] = Counter()
    for task, blob in pack(laid_out(batch), [batch], range(TASKS)):
        meta, tables = frames.decode(frames.BLOB, blob)
        drops.update(meta["drops"])
        found |= {} if 0 in meta["empty"] else {task: tables[0]}
    return found, drops


def by_hand(*batches: pa.RecordBatch) -> Counter[tuple[str, int]]:
    """The number of records of each user and window."""
    rows = [row for batch in batches for row in batch.to_pylist()]
    return Counter((row["k:user"], row["ts"] // WIDTH_MS * WIDTH_MS) for row in rows)


def test_the_rows_of_a_task_come_pane_by_pane() -> None:
    batch = records(np.random.default_rng(7).integers(100, 130, ROWS))
    found, drops = rows_by_task(batch)
    seen: Counter[tuple[str, int]] = Counter()
    for task, rows in found.items():
        pane = ints(rows["pane"])
        assert len(np.flatnonzero(np.diff(pane))) == len(np.unique(pane)) - 1
        assert (grouping.key_hash(laid_out(batch), rows) % np.uint64(TASKS) == task).all()
        for user, at, n in zip(rows["k:user"].to_pylist(), pane.tolist(), rows["n"].to_pylist(), strict=True):
            seen[user, at] += n
    assert seen == by_hand(batch)
    assert drops["late"] == 0


@pytest.mark.parametrize(("latest", "late"), [(129, 0), (130, 1)])
def test_a_record_is_late_once_its_window_has_closed(latest: int, late: int) -> None:
    """The window [100, 110) closes at 130 ms."""
    found, drops = rows_by_task(records([100, latest, 109]))
    assert drops["late"] == late
    assert sum(int(ints(rows["n"]).sum()) for rows in found.values()) == 3 - late


@pytest.mark.parametrize("fewest_rows", [1, 10**6], ids=["in runs", "sorted"])
def test_rows_of_a_pane_are_put_together(monkeypatch: pytest.MonkeyPatch, fewest_rows: int) -> None:
    monkeypatch.setattr(runs, "_FEWEST_ROWS", fewest_rows)
    batches = [records(np.random.default_rng(number).integers(100, 130, ROWS), number) for number in range(2)]
    layout, store = laid_out(batches[0]), DictStore()
    blobs = [dict(pack(layout, [batch], [0]))[0] for batch in batches]
    rows = [row for part in Stage(layout).begin(store, blobs, end_of_input=True).parts for row in part.to_pylist()]
    assert {(row["user"], row[START]): row["n"] for row in rows} == by_hand(*batches)


@pytest.mark.parametrize("windows", [WINDOWS, WINDOWS.advance_by("5 ms")], ids=["tumbling", "hopping"])
@pytest.mark.parametrize("suppresses", [True, False])
def test_the_slowest_partition_keeps_windows_open(windows: tg.TimeWindows, suppresses: bool) -> None:
    """By the time of its own partition the record at 105 ms is late, but the other partition is at 100 ms."""
    order = {"partition": "partition", "offset": "offset"}
    stream = tg.stream("events", key="user", timestamp="ts", **order, stream_time="min_partition")
    batches = [records([100, 500, 105]), records([100], number=1)]
    batches = [batch.set_column(0, "k:user", pa.array(["all"] * len(batch))) for batch in batches]
    counts = stream.group_by_key().windowed_by(windows).agg(n=tg.count())
    table = counts.suppress(FINAL) if suppresses else counts
    layout = Layout(operation(table.node), batches[0].schema, sorts=False)
    blobs = [dict(pack(layout, [batch], [0]))[0] for batch in batches]
    step = Stage(layout).begin(DictStore(), blobs, end_of_input=True)
    rows = [row for part in step.parts for row in part.to_pylist()]
    assert max(row["n"] for row in rows if row[START] == 100) == 3
