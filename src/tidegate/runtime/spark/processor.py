"""Where Spark hands a task's blobs to the kernel and takes its rows back."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Protocol

import pyarrow as pa
from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle

from tidegate.runtime.spark.as_pandas import as_pandas
from tidegate.runtime.spark.state import SparkStore
from tidegate.spec.metrics import formula

if TYPE_CHECKING:
    import pandas as pd

# 0 for a row of the result; n for the n-th number that a task tells, which is then in the column VALUE.
KIND, VALUE = "_kind", "_value"
ROW = 0
# Rows to a frame: enough to drown the cost per frame, few enough that a frame of wide rows fits in memory twice.
SLICE_ROWS = 100_000
# A timer is set no further ahead than this: after a restart with a shorter limit it would be too late.
LOOK_AGAIN_MS = 10_000


class Outcome(Protocol):
    """What a step gives back: rows of `Stage.output_schema` in parts, to be taken once, and, when they are taken, one
    number per metric, and when to wake (see `flow`).
    """

    @property
    def parts(self) -> Iterator[pa.Table]: ...
    @property
    def metrics(self) -> Mapping[str, int | float]: ...
    @property
    def wake_at(self) -> int | None: ...


class Stage(Protocol):
    """The kernel as Spark sees it; it is pickled into the plan.

    Pickled it must stay below 1 MB: Spark ships larger functions as broadcasts, which the process that starts a
    stateful operator cannot read (test_a_stage_must_stay_below_a_megabyte).
    `metrics` names each metric and how tasks are put together (`spec.metrics.formula`).
    """

    @property
    def output_schema(self) -> pa.Schema: ...
    @property
    def metrics(self) -> Mapping[str, str]: ...
    def begin(
        self, store: Any, blobs: list[bytes], end_of_input: bool = False, wall_clock: int | None = None
    ) -> Outcome: ...


def wire_schema(stage: Stage) -> pa.Schema:
    """The columns that leave the operator: the stage's own, the kind of row, and the value of a metric.

    A timestamp travels as integer microseconds: pandas on its way would read it in the session's time zone.
    """
    fields = [pa.field(field.name, wire_type(field.type)) for field in stage.output_schema]
    fields.append(pa.field(KIND, pa.int8()))
    fields.append(pa.field(VALUE, pa.float64()))
    return pa.schema(fields)


def told(stage: Stage) -> list[str]:
    """The numbers a task tells, in the order of their kinds: what the formulas of its metrics put together."""
    terms = (term for name, how in stage.metrics.items() for term in formula(name, how).terms)
    return list(dict.fromkeys(term.of for term in terms if term.how != "number"))


def wire_type(type_: pa.DataType) -> pa.DataType:
    return _each_timestamp(type_, lambda _: pa.int64())


def _each_timestamp(type_: pa.DataType, replace: Callable[[pa.DataType], pa.DataType]) -> pa.DataType:
    """`type_` with the timestamps in it replaced, at any depth of lists and structs."""
    if pa.types.is_timestamp(type_):
        return replace(type_)
    if pa.types.is_list(type_):
        return pa.list_(_each_timestamp(type_.value_type, replace))
    if pa.types.is_struct(type_):
        return pa.struct([(field.name, _each_timestamp(field.type, replace)) for field in type_])
    return type_


def outgoing(stage: Stage, outcome: Outcome) -> Iterator[pa.Table]:
    """The rows in slices, then a row per metric."""
    schema = wire_schema(stage)
    for rows in outcome.parts:
        for start in range(0, rows.num_rows, SLICE_ROWS):
            yield _wire_rows(rows.slice(start, SLICE_ROWS), schema)
    yield _metric_rows(stage, outcome.metrics, schema)


def _wire_rows(rows: pa.Table, schema: pa.Schema) -> pa.Table:
    n = rows.num_rows
    columns = []
    for field in schema:
        if field.name == KIND:
            columns.append(pa.repeat(pa.scalar(ROW, pa.int8()), n))
        elif field.name in rows.column_names:
            columns.append(_microseconds(rows.column(field.name)).cast(field.type))
        else:
            columns.append(pa.nulls(n, field.type))
    # In one piece: Spark takes a pandas column of several Arrow chunks for something that is no array
    # (tests/spark/test_conformance.py::test_random_streams_are_what_the_oracle_says).
    return pa.table(columns, schema=schema).combine_chunks()


def _microseconds(column: pa.ChunkedArray) -> pa.ChunkedArray:
    return column.cast(_each_timestamp(column.type, lambda stamp: pa.timestamp("us", stamp.tz)))


def _metric_rows(stage: Stage, metrics: Mapping[str, int | float], schema: pa.Schema) -> pa.Table:
    known = [(kind, float(metrics[name])) for kind, name in enumerate(told(stage), start=1) if name in metrics]
    kinds, values = zip(*known, strict=True) if known else ((), ())
    columns: dict[str, Any] = {KIND: kinds, VALUE: values}
    return pa.table(
        [pa.array(columns[f.name], f.type) if f.name in columns else pa.nulls(len(known), f.type) for f in schema],
        schema=schema,
    )


class StageProcessor(StatefulProcessor):
    """One task of a streaming operator: `handleInputRows` is one step of the stage.

    Spark calls it once per task and batch with all its rows, as one or several frames, in no certain order
    (tests/spark/test_plumbing.py::test_one_step_per_task_and_batch, with frames of one row each). What it raises fails
    the batch with nothing stored, and reaches the user in the StreamingQueryException
    (test_an_error_fails_the_batch_and_stores_nothing). A stage that `wakes` has at most one timer per task.
    """

    def __init__(self, stage: Stage, wakes: bool = False) -> None:
        self._stage = stage
        self._wakes = wakes

    def init(self, handle: StatefulProcessorHandle) -> None:
        self._handle = handle
        self._store = SparkStore(handle)

    def handleInputRows(self, key: Any, rows: Iterator[Any], timerValues: Any) -> Iterator[pd.DataFrame]:
        blobs = [blob for frame in rows for blob in frame["blob"]]
        outcome = self._stage.begin(self._store, blobs)
        yield from self._frames(outcome)
        if self._wakes:
            # Timers go off after the rows of their batch, and this step has done what they are for.
            self._rearm(outcome.wake_at, timerValues.getCurrentProcessingTimeInMs(), fired=None)

    def handleExpiredTimer(self, key: Any, timerValues: Any, expiredTimerInfo: Any) -> Iterator[pd.DataFrame]:
        # Spark passes these arguments by name. The time is that of the batch, as current_timestamp() has it.
        now = timerValues.getCurrentProcessingTimeInMs()
        outcome = self._stage.begin(self._store, [], wall_clock=now)
        yield from self._frames(outcome)
        # pyspark itself deletes the timer that fired, after this.
        self._rearm(outcome.wake_at, now, fired=expiredTimerInfo.getExpiryTimeInMs())

    def _rearm(self, wake_at: int | None, now: int, fired: int | None) -> None:
        wanted = None if wake_at is None else max(min(wake_at, now + LOOK_AGAIN_MS), now + 1)
        armed = list(self._handle.listTimers())
        for timer in armed:
            if timer not in (wanted, fired):
                self._handle.deleteTimer(timer)
        if wanted is not None and wanted not in armed:
            self._handle.registerTimer(wanted)

    def _frames(self, outcome: Outcome) -> Iterator[pd.DataFrame]:
        for table in outgoing(self._stage, outcome):
            yield as_pandas(table)

    def close(self) -> None:
        pass


def static_step(stage: Stage) -> Callable[[pa.Table], pa.Table]:
    """`stage` for `groupBy("task").applyInArrow` over a static frame: all its input in one step, then the end."""

    def run(table: pa.Table) -> pa.Table:
        from tidegate.kernel.store import DictStore

        outcome = stage.begin(DictStore(), table.column("blob").to_pylist(), end_of_input=True)
        return pa.concat_tables(outgoing(stage, outcome))

    return run
