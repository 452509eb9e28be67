"""Spark's side of a step: it hands a task's blobs to the kernel and takes the rows.

Spark starts a stateful operator in a process of its own, which unpickles the processor and calls `init` alone. This
module imports neither Arrow nor the kernel before a task needs them: otherwise that process, and with it each start of
a query, took a second longer.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Any, Protocol

from pyspark import TaskContext, cloudpickle
from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle

from tidegate.kernel.tuning import DEFAULT, Tuning
from tidegate.runtime.spark.worker import state_variable

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa

    from tidegate.runtime.spark.worker.state import SparkStore

# Longest time until a timer (ms): after a restart with a shorter limit a later timer would be too late.
LOOK_AGAIN_MS = 10_000

QUERY_ID = "sql.streaming.queryId"
"""Spark's property of a job, and of its tasks, with the id of the streaming query, which the checkpoint keeps."""

MOST_KEYS = 64
"""Most tasks whose state a task without rows looks for; each costs two round trips to the JVM."""

_CHECKED: set[str] = set()
"""Names of tasks whose state this worker has compared with the plan."""


class Outcome(Protocol):
    """Result of one step: rows of `Stage.output_schema` in parts, which are iterated once; then one number per metric,
    and the wall clock to wake at (ms; see `flow`).
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
    `metrics` says by metric how the numbers of tasks are combined (`spec.metrics.formula`).
    `begin`: `number` is the number that Spark has for the task (`tasks.task_numbers`), in a step without blobs.
    """

    @property
    def output_schema(self) -> pa.Schema: ...
    @property
    def metrics(self) -> Mapping[str, str]: ...
    def begin(
        self,
        store: Any,
        blobs: Iterable[bytes],
        end_of_input: bool = False,
        wall_clock: int | None = None,
        number: int | None = None,
    ) -> Outcome: ...
    def refuse(self, store: Any) -> bool: ...


class StageProcessor(StatefulProcessor):
    """One task of a streaming operator: `handleInputRows` is one step of the stage.

    Spark calls it once per task and batch with all its rows, as one or several frames, in no certain order
    (tests/spark/test_plumbing.py::test_one_step_per_task_and_batch, with frames of one row each). An exception fails
    the batch with nothing stored, and reaches the user in the StreamingQueryException
    (test_an_error_fails_the_batch_and_stores_nothing). With `uses_timers` there is at most one timer per task.
    """

    def __init__(
        self,
        stage: Stage,
        keys: Mapping[int, int],
        partitions: int,
        *,
        uses_timers: bool = False,
        tuning: Tuning = DEFAULT,
    ) -> None:
        """`keys`: number of the task by shuffle partition (`tasks.in_partitions`), of which there are `partitions`."""
        self._sealed: bytes = cloudpickle.dumps(stage)  # type: ignore[no-untyped-call]
        self._keys = keys
        self._partitions = partitions
        self._uses_timers = uses_timers
        self._tuning = tuning

    def init(self, handle: StatefulProcessorHandle) -> None:
        self._handle = handle
        self._stepped = False
        self._variable = state_variable.opened(handle)

    @cached_property
    def _stage(self) -> Stage:
        stage: Stage = cloudpickle.loads(self._sealed)
        return stage

    def _store(self, number: int) -> SparkStore:
        """The state of the task with this number."""
        from tidegate.runtime.spark.worker.state import SparkStore

        return SparkStore(self._variable, self._tuning, self._name(number))

    def _name(self, number: int) -> str:
        """A name that tells a task from the others that the worker runs: query, operator, partition and number.

        Spark has one partition for several tasks behind a `coalesce`, and if there are fewer tasks than partitions.
        """
        operator, task = hash(self._sealed), TaskContext.get()
        if task is None:  # a step that runs without Spark, as in tests/simulation
            return f"{operator}, {number}"
        return f"{task.getLocalProperty(QUERY_ID)}, {operator}, {task.partitionId()}, {number}"

    def handleInputRows(self, key: Any, rows: Iterator[Any], timerValues: Any) -> Iterator[pd.DataFrame]:
        self._stepped = True
        # One by one: a blob is freed when the step is done with it.
        blobs = (blob for frame in rows for blob in frame["blob"])
        if not self._uses_timers:
            yield from self._frames(self._stage.begin(self._store(key[0]), blobs))
            return
        # Marks of a drain have no wall clock. If a drain runs a batch again in which a timer fired, the rows that were
        # emitted then must be emitted again.
        now = timerValues.getCurrentProcessingTimeInMs()
        expired = any(due < now for due in self._handle.listTimers())
        outcome = self._stage.begin(self._store(key[0]), blobs, wall_clock=now if expired else None)
        yield from self._frames(outcome)
        # Timers fire after the rows of their batch, and this step has done their work.
        self._rearm(outcome.wake_at, now, fired=None)

    def handleExpiredTimer(self, key: Any, timerValues: Any, expiredTimerInfo: Any) -> Iterator[pd.DataFrame]:
        self._stepped = True
        # Spark passes these arguments by name. The time is the batch's, as current_timestamp() has it.
        now = timerValues.getCurrentProcessingTimeInMs()
        outcome = self._stage.begin(self._store(key[0]), [], wall_clock=now, number=key[0])
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
        from tidegate.runtime.spark.worker.as_pandas import as_pandas
        from tidegate.runtime.spark.worker.wire import outgoing

        for table in outgoing(self._stage.output_schema, self._stage.metrics, outcome, self._tuning):
            yield as_pandas(table)

    def close(self) -> None:
        """Ends the task. Refuses a checkpoint of another plan, or whose drain has begun, if no step could refuse it.

        If the operator in front emits nothing in a batch, no task steps. If the plan cannot go on here, the operators
        in front must not go on either: the old plan may not fit their new state.

        A drain may have planned the batch, which then failed in its sink. Spark would commit it without the rows that
        it emitted: some checkpoint file managers keep the state that the drain wrote.
        """
        task = TaskContext.get()  # None in the process that starts an operator, which has no state
        if self._stepped or task is None:
            return
        from tidegate.kernel.upgrade.drain import refuse

        for key in self._keys_at(task.partitionId()):
            # Without rows Spark sets no key, and state is read by key.
            self._handle._statefulProcessorApiClient.set_implicit_key((key,))  # noqa: SLF001 - pyspark has no public way
            name = self._name(key)
            if (refuse if name in _CHECKED else self._stage.refuse)(self._store(key)):
                _CHECKED.add(name)
                return

    def _keys_at(self, partition: int) -> Iterator[int]:
        """Numbers of the tasks that may have state here, the likely one first, given the partition that Spark tells.

        Without a union it is the shuffle partition. A `DataFrame.union` counts the partitions of the frames in front
        too: as many as ours for another operator, any number for other frames. So from our number of partitions on,
        there is a union, and all tasks are possible; of more than MOST_KEYS only the likely one is given. Below it
        nothing else is looked for, because most such tasks are the empty partitions of an ordinary batch.
        """
        likely = self._keys.get(partition % self._partitions)
        if likely is not None:
            yield likely
        if partition >= self._partitions and len(self._keys) <= MOST_KEYS:
            yield from (key for key in self._keys.values() if key != likely)


def static_step(stage: Stage, tuning: Tuning) -> Callable[[pa.Table], pa.Table]:
    """`stage` for `groupBy("task").applyInArrow` over a static frame: all its input in one step, then the end."""

    def run(table: pa.Table) -> pa.Table:
        import pyarrow as pa

        from tidegate.kernel.state.store import DictStore
        from tidegate.runtime.spark.frames.arrow import with_large_types
        from tidegate.runtime.spark.worker.wire import outgoing

        blobs = table.column("blob")
        outcome = stage.begin(DictStore(tuning=tuning), blobs.to_pylist(), end_of_input=True)
        out = pa.concat_tables(outgoing(stage.output_schema, stage.metrics, outcome, tuning))
        if pa.types.is_large_binary(blobs.type):  # Spark then takes large types alone
            out = with_large_types(out)
        return out

    return run
