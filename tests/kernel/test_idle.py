"""Stream time without input: its starting point, its steps, and the same value in all tasks."""

from __future__ import annotations

import pyarrow as pa
import pytest

import tidegate as tg
from tidegate.instants import MAX_MS
from tidegate.kernel.exchange.packing import pack
from tidegate.kernel.rows.layout import Layout
from tidegate.kernel.stage import Stage
from tidegate.kernel.state.state import State
from tidegate.kernel.state.store import DictStore
from tidegate.kernel.time.idle import Idle
from tidegate.plan import operation


def test_the_example_of_the_docstring() -> None:
    idle = Idle()
    assert idle.advance(60, True, 0, 10, alone=True) == 10
    told = [idle.advance(60, False, now, 10, alone=True) for now in (59, 60, 70, 75)]
    assert told == [10, 10, 20, 25]
    assert idle.advance(60, True, 80, 25, alone=True) == 25
    assert idle.advance(60, False, 140, 25, alone=True) == 25
    assert idle.advance(60, False, 141, 25, alone=True) == 26


def test_several_tasks_move_at_their_common_ticks_alone() -> None:
    """A task that steps earlier, because of a timer of its own, must not be ahead of the others."""
    idle = Idle()
    idle.advance(60_000, True, 0, 10, alone=False)
    assert idle.tick == 66_000
    assert idle.advance(60_000, False, 65_000, 10, alone=False) == 10
    assert idle.advance(60_000, False, 66_000, 10, alone=False) == 6_010
    assert idle.tick == 72_000
    assert idle.advance(60_000, False, 71_999, 6_010, alone=False) == 6_010
    assert idle.advance(60_000, False, 72_000, 6_010, alone=False) == 12_010
    idle.advance(60_000, True, 72_500, 12_010, alone=False)
    assert idle.tick == 138_500


def test_a_shorter_time_counts_from_the_restart_on() -> None:
    idle = Idle()
    idle.advance(3_600_000, True, 0, 10, alone=False)
    assert idle.tick == 3_960_000
    assert idle.advance(1_000, False, 5_000, 10, alone=False) == 4_010
    assert idle.tick == 5_100
    soon = Idle()
    soon.advance(3_600_000, True, 0, 10, alone=False)
    assert soon.advance(1_000, False, 1_050, 10, alone=False) == 10
    assert soon.tick == 1_100
    longer = Idle()
    longer.advance(1_000, True, 0, 10, alone=False)
    assert longer.advance(3_600_000, False, 5_000, 10, alone=False) == 10
    assert longer.tick == 3_960_000


def test_time_stops_at_the_last_instant() -> None:
    idle = Idle()
    assert idle.advance(60, True, 0, MAX_MS - 10, alone=True) == MAX_MS - 10
    assert [idle.advance(60, False, now, MAX_MS - 10, alone=True) for now in (65, 75)] == [MAX_MS - 5, MAX_MS]


def test_nothing_moves_before_the_first_record() -> None:
    assert Idle().advance(60, False, 10**9, -1, alone=True) == -1


@pytest.mark.parametrize(("kept", "stream_time"), [(True, 4_000), (False, 14_000)])
def test_records_that_a_step_before_filters_out_are_no_input(kept: bool, stream_time: int) -> None:
    """Filtered records do not stop the idle clock, and a batch of nothing else does not move stream time."""
    windows = tg.TimeWindows.of_size_with_no_grace("1 hour")
    stream = tg.stream("events", key="k", timestamp="ts", partition="p", offset="o", idle_advance="1 minute")
    table = stream.group_by_key().windowed_by(windows).count()
    store = DictStore()

    def step(now: int, *records: tuple[int, int, bool]) -> int:
        columns = {
            "k:k": pa.array(["A"] * len(records), pa.string()),
            "ts": pa.array([ts for ts, _, _ in records], pa.int64()),
            "partition": pa.array([0] * len(records), pa.int32()),
            "offset": pa.array([offset for _, offset, _ in records], pa.int64()),
            "kept": pa.array([keep for _, _, keep in records], pa.bool_()),
            "wall_clock": pa.array([now] * len(records), pa.int64()),
        }
        batch = pa.RecordBatch.from_pydict(columns)
        layout = Layout(operation(table.node), batch.schema)
        blobs = [blob for _, blob in pack(layout, [batch], [0])]
        Stage(layout).step(store, blobs, wall_clock=now)
        return State.load(store, layout.identity, 1).stream_time

    assert step(0, (4_000, 0, True)) == 4_000
    assert step(65_000, (4_000, 1, kept)) == 4_000
    assert step(70_000) == stream_time
