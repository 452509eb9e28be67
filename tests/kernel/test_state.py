"""The state of a task: its contents between batches, and the plan and tasks that it belongs to."""

from __future__ import annotations

import pyarrow as pa
import pytest

import tidegate as tg
from tidegate.errors import CheckpointError
from tidegate.kernel.exchange.packing import pack
from tidegate.kernel.rows.layout import Layout
from tidegate.kernel.stage import Stage
from tidegate.kernel.state.state import State
from tidegate.kernel.state.store import DictStore
from tidegate.kernel.time.stream_time import NEVER
from tidegate.plan import operation

IDENTITY = {"key": "user", "windows": "TimeWindows of 1 minute"}
SCHEMA = pa.schema([("k:user", pa.string()), ("ts", pa.int64()), ("partition", pa.int64()), ("offset", pa.int64())])


def rows(*values: int) -> pa.Table:
    return pa.table({"v": pa.array(values, pa.int64())})


def layout(size: str = "1 minute", grace: str = "0 ms", name: str = "count", schema: pa.Schema = SCHEMA) -> Layout:
    source = tg.stream("events", key="user", timestamp="ts", partition="partition", offset="offset")
    windows = tg.TimeWindows.of_size_and_grace(size, grace)
    table = source.group_by_key().windowed_by(windows).count(name)
    final = table.suppress(tg.Suppressed.until_window_closes(tg.BufferConfig.unbounded()))
    return Layout(operation(final.node), schema)


def blobs(of: Layout, tasks: int, *records: tuple[str, int]) -> list[list[bytes]]:
    users, times = [list(column) for column in zip(*records, strict=True)]
    offsets = list(range(len(records)))
    batch = pa.record_batch([users, times, [0] * len(records), offsets], names=SCHEMA.names).cast(of.schema)
    packed = dict(pack(of, [batch], range(tasks)))
    return [[packed[task]] for task in range(tasks)]


def test_a_new_state() -> None:
    state = State.load(DictStore(), IDENTITY, 2)
    assert (state.stream_time, state.logs.items()) == (NEVER, [])


def test_what_is_saved_is_loaded() -> None:
    store = DictStore()
    state = State.load(store, IDENTITY, 2)
    state.stream_time = 7
    state.append(0, rows(1, 2))
    state.append(0, rows(3))
    state.append(60_000, rows(4))
    state.save()
    again = State.load(store, IDENTITY, 2)
    assert again.stream_time == 7
    assert again.logs.items() == state.logs.items()
    assert [part["v"].to_pylist() for part in again.read(0)] == [[1, 2], [3]]
    assert [part["v"].to_pylist() for part in again.read(60_000)] == [[4]]
    assert again.read(120_000) == []


def test_a_replaced_log_leaves_nothing_behind() -> None:
    store = DictStore()
    state = State.load(store, IDENTITY, 2)
    for n in range(3):
        state.append(0, rows(n))
    state.replace(0, rows(5, 6))
    assert list(store.log) == [(0, 0)]
    assert (state.logs[0].segments, state.logs[0].rows, state.logs[0].base) == (1, 2, 2)
    state.append(0, rows(7))
    assert [part["v"].to_pylist() for part in state.read(0)] == [[5, 6], [7]]
    state.forget(0)
    assert (store.log, state.logs.items()) == ({}, [])
    state.forget(0)


def test_another_number_of_tasks_is_refused() -> None:
    store = DictStore()
    State.load(store, IDENTITY, 2).save()
    before = store.copy()
    with pytest.raises(CheckpointError) as caught:
        State.load(store, IDENTITY, 3)
    assert str(caught.value) == (
        "The checkpoint was written by 2 tasks and this query runs 3: keys would be looked for in the wrong one. "
        "Nothing was changed. Set spark.sql.shuffle.partitions to 2 and restart, or start with a new checkpoint."
    )
    assert store == before


def test_a_damaged_state_is_refused() -> None:
    store = DictStore()
    State.load(store, IDENTITY, 2).save()
    store.put("meta", store.values["meta"][:-1])
    with pytest.raises(CheckpointError, match="What should be an operator's state cannot be read: its checksum does"):
        State.load(store, IDENTITY, 2)


INT_KEY = pa.schema([("k:user", pa.large_string()), *list(SCHEMA)[1:]])


@pytest.mark.parametrize(
    ("other", "differs"),
    [
        (layout(size="2 minutes"), "windows: 'TimeWindows of 1 minute' -> 'TimeWindows of 2 minutes'"),
        (layout(name="n"), "aggregation: 'count=count()' -> 'n=count()'"),
        (layout(schema=INT_KEY), "types: 'user string' -> 'user large_string'"),
    ],
)
def test_a_step_of_another_plan_changes_nothing(other: Layout, differs: str) -> None:
    store = DictStore()
    mine = layout()
    Stage(mine).step(store, blobs(mine, 1, ("A", 5))[0])
    before = store.copy()
    with pytest.raises(CheckpointError) as caught:
        Stage(other).step(store, blobs(other, 1, ("A", 120_000))[0])
    assert f"written by another plan ({differs}). Nothing was changed" in str(caught.value)
    assert store == before
    # The old plan then goes on.
    step = Stage(mine).step(store, blobs(mine, 1, ("A", 60_000))[0])
    assert step.rows["count"].to_pylist() == [1]


def test_a_step_over_another_number_of_tasks_changes_nothing() -> None:
    store = DictStore()
    mine = layout()
    Stage(mine, 2).step(store, blobs(mine, 2, ("A", 5))[0])
    before = store.copy()
    with pytest.raises(CheckpointError, match="written by 2 tasks and this query runs 3"):
        Stage(mine, 3).step(store, blobs(mine, 3, ("A", 6))[0])
    assert store == before


@pytest.mark.parametrize(("packer", "tasks"), [(layout(name="n"), 1), (layout(), 2)])
def test_a_blob_of_another_run_is_refused(packer: Layout, tasks: int) -> None:
    store = DictStore()
    with pytest.raises(CheckpointError) as caught:
        Stage(layout()).step(store, blobs(packer, tasks, ("A", 5))[0])
    assert str(caught.value) == (
        "A blob was packed by another plan or for another number of tasks than the operator that reads it. "
        "Nothing was changed. Stop the query and start it again from one process."
    )
    assert store == DictStore()
