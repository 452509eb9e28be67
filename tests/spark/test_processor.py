"""Input of a step without Spark: `StageProcessor` between the frames of its calls and the kernel."""

from __future__ import annotations

import time
import weakref
from collections.abc import Iterable, Iterator
from types import MappingProxyType, SimpleNamespace
from typing import Any
from unittest.mock import Mock

import pandas as pd
import pyarrow as pa
import pytest

from tidegate.runtime.spark import stateful_step
from tidegate.runtime.spark.tasks import place_of, task_numbers
from tidegate.runtime.spark.worker.processor import MOST_KEYS, StageProcessor

BLOBS = 5
TASKS = 7


class Blob:
    """Stands for the bytes of a blob; a weak reference shows whether it is still alive."""


class Watching:
    """A step that drops each blob before it takes the next."""

    output_schema = pa.schema([("n", pa.int64())])
    metrics = MappingProxyType({})

    def __init__(self) -> None:
        self.held: list[int] = []

    def begin(self, store: Any, blobs: Iterable[Any], *_: Any) -> Any:
        came = []
        for blob in blobs:
            came.append(weakref.ref(blob))
            del blob
            # The frame of a blob may live until the next frame comes.
            self.held.append(sum(each() is not None for each in came))
        return SimpleNamespace(parts=iter(()), metrics={}, wake_at=None)


class Waking:
    """A step of a timer, whose metric is the number of its task."""

    output_schema = pa.schema([("n", pa.int64())])
    metrics = MappingProxyType({"task": "max"})

    def begin(self, store: Any, blobs: Iterable[Any], wall_clock: int, number: int) -> Any:
        return SimpleNamespace(parts=iter(()), metrics={"task": place_of(number, TASKS)}, wake_at=None)


def frames() -> Iterator[pd.DataFrame]:
    for _ in range(BLOBS):
        yield pd.DataFrame({"blob": [Blob()]})


def test_a_blob_is_let_go_of_when_the_step_is_done_with_it() -> None:
    processor: Any = StageProcessor(Watching(), {}, 1)
    processor.init(Mock())
    list(processor.handleInputRows(("0",), frames(), None))
    assert processor._stage.held == [1] * BLOBS


def test_a_timer_says_which_task_steps() -> None:
    processor: Any = StageProcessor(Waking(), {}, TASKS, uses_timers=True)
    processor.init(Mock(**{"listTimers.return_value": []}))
    for task, number in enumerate(task_numbers(TASKS)):
        [frame] = processor.handleExpiredTimer(key=(number,), timerValues=Mock(), expiredTimerInfo=Mock())
        assert frame["task"].tolist() == [task]


@pytest.mark.parametrize("tasks", [4, MOST_KEYS + 1])
def test_a_task_looks_for_its_state_under_the_likely_number_first(tasks: int) -> None:
    """A union counts the partitions of the frames in front: those of other operators by whole multiples."""
    numbers = {partition: 10 * partition for partition in range(tasks)}
    processor: Any = StageProcessor(Watching(), numbers, tasks)
    assert list(processor._keys_at(2)) == [20]
    for partition in (tasks + 2, 5 * tasks + 2):
        looked = list(processor._keys_at(partition))
        assert looked[0] == 20
        assert sorted(looked) == (sorted(numbers.values()) if tasks <= MOST_KEYS else [20])


def test_a_partition_without_a_task_looks_under_all_numbers_in_a_union_alone() -> None:
    processor: Any = StageProcessor(Watching(), {1: 7, 4: 9}, 5)
    assert list(processor._keys_at(0)) == []
    assert list(processor._keys_at(5)) == [7, 9]
    assert list(processor._keys_at(9)) == [9, 7]


def test_a_clock_that_is_set_in_a_step_does_not_change_how_long_the_step_took(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = iter((5_000.0, 2_000.0))
    monkeypatch.setattr(stateful_step, "time", SimpleNamespace(time=lambda: next(clock), monotonic=time.monotonic))
    step = SimpleNamespace(parts=iter(()), metrics={"stream_time": 10, "emit_final_records": 1})
    op = SimpleNamespace(joins_streams=False, all_limits=())
    stage = SimpleNamespace(begin=lambda *_: step, layout=SimpleNamespace(op=op))
    made = stateful_step.SparkStage(stage).begin(None, [])  # type: ignore[arg-type]
    assert list(made.parts) == []
    assert 0 <= step.metrics["emit_final_latency"] < 60_000
