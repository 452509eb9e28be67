"""One attempt of a task: its input, its rows, the place where it dies; in the kernel, or through Spark's processor."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from simulation.stores import Calls, Died, Handle, KernelStore, Version, Wrong
from tidegate.kernel.rows.layout import Layout
from tidegate.kernel.stage import Stage
from tidegate.runtime.spark.stateful_step import SparkStage
from tidegate.runtime.spark.tasks import task_numbers
from tidegate.runtime.spark.worker.processor import StageProcessor
from tidegate.runtime.spark.worker.wire import ROWS, WHOLE_ROWS, outgoing


@dataclass(frozen=True)
class Operator:
    """A stateful operator as it travels to the workers."""

    layout: Layout
    stage: Stage
    inputs: tuple[Layout, ...]
    """Layouts that pack its inputs."""
    behind: int | None = None
    """Number of the input that has the rows of the operator before; None if none has."""

    @property
    def tasks(self) -> int:
        return self.stage.tasks


@dataclass(frozen=True)
class Fate:
    """Place where an attempt dies: before this blob, this call of the store, or this table of rows; None: not there."""

    blobs: int | None = None
    calls: int | None = None
    tables: int | None = None


@dataclass
class Attempt:
    """Result of an attempt. `version` is None if it did not reach its commit."""

    tables: list[pa.Table] = field(default_factory=list)
    metrics: dict[str, Any] = field(default_factory=dict)
    version: Version | None = None
    steps: bool = True

    @property
    def alive(self) -> bool:
        return self.version is not None


def attempt(
    operator: Operator, task: int, version: Version, blobs: Sequence[bytes], clock: int, on_spark: bool, fate: Fate
) -> Attempt:
    """A task attempt over a version of its store, up to its end or its death."""
    made = Attempt()
    calls = Calls(fate.calls)
    run = _on_spark if on_spark else _in_kernel
    try:
        tables = run(operator, task, version, _until(blobs, fate.blobs), bool(blobs), clock, calls, made)
        for number, table in enumerate(tables):
            if number == fate.tables:
                tables.close()
                return Attempt(made.tables)
            made.tables.append(table)
    except Died:
        return Attempt(made.tables)
    return made


def _until(blobs: Sequence[bytes], fails_at: int | None) -> Iterator[bytes]:
    for number, blob in enumerate(blobs):
        if number == fails_at:
            raise Died
        yield blob


def _in_kernel(
    operator: Operator,
    task: int,
    version: Version,
    blobs: Iterator[bytes],
    came: bool,
    clock: int,
    calls: Calls,
    made: Attempt,
) -> Iterator[pa.Table]:
    store = KernelStore(version, calls, operator.layout.tuning)
    expired = operator.layout.op.uses_timers and any(due < clock for due in version.timers)
    if came or expired:
        step = operator.stage.begin(store, blobs, wall_clock=clock if expired else None, task=task)
        yield from (table for table in step.parts if table.num_rows)
        store.timers = set() if step.wake_at is None else {step.wake_at}
        made.metrics = dict(step.metrics)
    else:
        made.steps = False
    made.version = store.version()


class _Processor(StageProcessor):
    """Spark's processor, whose tables do not become pandas frames."""

    def _frames(self, outcome: Any) -> Iterator[Any]:
        return outgoing(self._stage.output_schema, self._stage.metrics, outcome, self._tuning)


@dataclass(frozen=True)
class _Time:
    """Spark's time values: of the batch, and of a timer."""

    now: int
    fired: int = 0

    def getCurrentProcessingTimeInMs(self) -> int:
        return self.now

    def getExpiryTimeInMs(self) -> int:
        return self.fired


def _on_spark(
    operator: Operator,
    task: int,
    version: Version,
    blobs: Iterator[bytes],
    came: bool,
    clock: int,
    calls: Calls,
    made: Attempt,
) -> Iterator[pa.Table]:
    handle = Handle(version, calls)
    stage = SparkStage(operator.stage)
    uses_timers, tuning = operator.layout.op.uses_timers, operator.layout.tuning
    processor = _Processor(stage, {}, partitions=1, uses_timers=uses_timers, tuning=tuning)
    processor.init(handle)  # type: ignore[arg-type]
    made.steps = False
    key = (task_numbers(operator.tasks)[task],)
    if came:
        # One blob per frame; Spark may cut frames anywhere.
        frames = ({"blob": [blob]} for blob in blobs)
        yield from _received(stage, processor.handleInputRows(key, frames, _Time(clock)), made)
    for due in list(handle.listTimers()):
        if due < clock:
            yield from _received(stage, processor.handleExpiredTimer(key, _Time(clock), _Time(clock, due)), made)
            handle.deleteTimer(due)
    made.version = handle.version()
    _whole(made.version)


def _whole(version: Version) -> None:
    """Check that every value in the store has all of its parts, and no more."""
    for window, segment, part in version.data:
        first = version.data.get((window, segment, 0))
        if first is None or part >= abs(first[0]):
            raise Wrong(f"part {part} of segment {segment} at {window} ms stays in the store without its value")


def _received(stage: SparkStage, tables: Iterator[pa.Table], made: Attempt) -> Iterator[pa.Table]:
    """The rows in the tables that cross to Spark; writes the task's metrics into `made`."""
    made.steps = True
    for table in tables:
        lists = table[ROWS if table[WHOLE_ROWS].null_count else WHOLE_ROWS].combine_chunks()
        numbers = table.drop_columns([ROWS, WHOLE_ROWS]).slice(table.num_rows - 1).to_pylist()[0]
        if numbers and lists.null_count:
            made.metrics = {name: value or 0 for name, value in numbers.items()}
        elif len(rows := lists.flatten()):
            yield pa.Table.from_struct_array(rows).cast(stage.output_schema)
