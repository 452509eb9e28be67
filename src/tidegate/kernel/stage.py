"""One step of a stateful operator: the blobs of a micro-batch in, emitted rows out, new state into the store.

    decode blobs -> same plan? -> fold the chunks' stream times -> late by window -> log or table -> close -> save

A stage keeps no state between steps; all state is in the store.
"""

from __future__ import annotations

import json
from collections import Counter, deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from tidegate.errors import CheckpointError
from tidegate.instants import MAX_MS
from tidegate.kernel import outputs
from tidegate.kernel.choice import operator_of
from tidegate.kernel.exchange import to_stream
from tidegate.kernel.exchange.batch import Batch
from tidegate.kernel.exchange.blobs import Blob
from tidegate.kernel.exchange.join_batch import JoinBatch
from tidegate.kernel.inspect import pending
from tidegate.kernel.rows import results
from tidegate.kernel.rows.layout import Layout
from tidegate.kernel.state import frames
from tidegate.kernel.state.state import State
from tidegate.kernel.state.store import Store
from tidegate.kernel.suppress import suppression_metrics
from tidegate.kernel.time.stream_time import NEVER, lateness
from tidegate.kernel.upgrade import compatibility, description, drain
from tidegate.kernel.upgrade.flush import Flushed
from tidegate.kernel.windows import expected_keys, retention
from tidegate.plan import Operation
from tidegate.spec.metrics import GRACE_NEEDED, PARTITION_TIMES

DROPS = ("late", "null_key", "null_value", "bad_timestamp")
"""Reasons to drop a record. "late" counts (record, closed window) pairs."""


def reasons(op: Operation | None) -> tuple[str, ...]:
    """Reasons to drop a record of this operation: DROPS, and "future" if there is a `max_future_skew`."""
    return DROPS if op is None or op.stream.clock.max_future_skew_ms is None else (*DROPS, "future")


@dataclass
class Step:
    """Result of one step: rows of `Layout.output_schema` in parts, and metrics.

    parts: take every part, once. After the last part the step is over and its state is stored.
    metrics, set by then: records, late, null_key, null_value, bad_timestamp, emitted, open_windows (counts of this
    batch; the first task alone reports the first five of all map tasks, each task adds `late` of its keys), stream_time
    (ms), lateness_sum, record_lateness_max (ms, over `records`), and those of `kernel.suppress.suppression_metrics`.
    wake_at, set by then: the wall clock (ms) at which a step is due even if no record comes, None if none is.
    """

    parts: Iterator[pa.Table] = field(default_factory=lambda: iter(()))
    metrics: dict[str, Any] = field(default_factory=dict)
    wake_at: int | None = None

    @cached_property
    def rows(self) -> pa.Table:
        """All parts as one table."""
        return pa.concat_tables(self.parts)


@dataclass(frozen=True)
class Stage:
    """The stateful operator of a layout, spread over `tasks` tasks."""

    layout: Layout
    tasks: int = 1
    expected: bytes | None = None
    """Packed keys that get a final row in every window (`kernel.windows.expected_keys.pack`)."""
    drains: bool = False
    """Whether this run drains the checkpoint (`kernel.upgrade.drain`)."""

    def step(
        self,
        store: Store,
        blobs: Iterable[bytes],
        end_of_input: bool = False,
        wall_clock: int | None = None,
        task: int = 0,
    ) -> Step:
        """Process a micro-batch. `end_of_input`: the input is over, so every window closes.

        Blobs carry the wall clock if the plan needs it, and the number of the task; `wall_clock` (ms) and `task` give
        them if no record came.

        Raises CheckpointError before anything is stored if `store` belongs to another plan. After BufferFullError or
        AggregationError the caller must discard the store, as Spark does after a failed batch.
        """
        step = self.begin(store, blobs, end_of_input, wall_clock, task)
        _ = step.rows
        return step

    def begin(
        self,
        store: Store,
        blobs: Iterable[bytes],
        end_of_input: bool = False,
        wall_clock: int | None = None,
        task: int = 0,
    ) -> Step:
        """`step`, run while the caller takes the parts: a window that is too large for memory is never there whole."""
        step = Step()
        step.parts = self._emit(step, store, blobs, end_of_input, wall_clock, task)
        return step

    def refuse(self, store: Store) -> bool:
        """Raise CheckpointError as `begin` does, in a task that gets no rows. Returns whether the task has state."""
        found = drain.refuse(store)
        if found:
            compatibility.load(store, self.layout, self.tasks)
        return found

    def _emit(
        self, step: Step, store: Store, blobs: Iterable[bytes], end_of_input: bool, wall_clock: int | None, task: int
    ) -> Iterator[pa.Table]:
        loaded = compatibility.load(store, self.layout, self.tasks)
        state, layout = loaded.state, loaded.layout
        end_of_input = drain.advance(state, self.drains) or end_of_input
        flushed = compatibility.start(loaded)
        received = self._decode(blobs, layout, task)
        batch = received.batch
        state.task = batch.task
        # The clock of the driver's machine may be set back; the wall clock of the state never goes back.
        state.wall_clock = max(state.wall_clock, batch.wall_clock, NEVER if wall_clock is None else wall_clock)
        operator = operator_of(layout)
        time_before = operator.time_of_rows(state)
        batch.newest_before = state.newest
        operator.move_time(state, batch)
        batch.closed_through = state.closed_through
        # MAX_MS is the end of the input: a record of that very instant closes nothing that is open to later records.
        state.closed_through = max(state.closed_through, min(state.stream_time, MAX_MS - 1))
        closes_at = MAX_MS if end_of_input else state.closed_through
        buffered = operator.buffered(state)
        made = operator.process(state, batch, closes_at)
        emitted, wake_at = 0, None
        for rows in self._parts(state, flushed, layout, made):
            if self.expected is not None:
                rows = expected_keys.add_missing(layout, state, batch, rows, self.expected, closes_at)
            if layout.op.retention_ms is not None or state.closed:
                retention.keep(layout, state, outputs.of_kind(layout, rows, "final"))
            rows, wake_at = outputs.emit(layout, state, rows, batch, flushed, end_of_input)
            emitted += rows.num_rows
            yield _with_time(rows, batch, time_before, operator.time_of_rows(state)) if layout.op.passes_time else rows
        metrics = received.metrics() | {"emitted": emitted, "stream_time": operator.shown_time(state)}
        metrics |= pending.metrics(layout, state)
        metrics |= suppression_metrics.of_step(layout.op, state, buffered, operator.buffered(state))
        if not loaded.is_described:
            description.write(layout, state)
        state.save()
        step.metrics |= metrics
        step.wake_at = min((time for time in (wake_at, state.idle.tick) if time not in (None, NEVER)), default=None)

    def _parts(self, state: State, flushed: Flushed, layout: Layout, made: Iterable[pa.Table]) -> Iterable[pa.Table]:
        """The operator's rows in parts that can leave alone, each as soon as it is made; or all rows as one part."""
        op = self.layout.op
        looked_at = self.expected is not None or op.retention_ms is not None or state.closed or self.layout.sorts
        if looked_at or flushed.results or flushed.of_limits or op.all_limits or op.regroup or op.named:
            return [results.concat(layout, list(made))]
        # If only late records leave, they leave once, when the operator has taken all records.
        return deque(made, maxlen=1) if op.keeps_late else made

    def _decode(self, blobs: Iterable[bytes], layout: Layout, task: int) -> _Received:
        batch = Batch(layout) if layout.op.joined is None else JoinBatch(layout)
        batch.task = task
        drops: Counter[str] = Counter()
        first = False
        # The shuffle delivers blobs in any order. Sorted, a replayed batch gives the same rows to the last bit.
        waiting = sorted(blobs, reverse=True)
        while waiting:
            meta, tables = frames.opened(frames.BLOB, waiting.pop())
            _same_run(meta, self.layout.digest, self.tasks)
            if meta["chunks"]:  # a blob without chunks is a mark (`drain.marks`)
                batch.receive(Blob.of(meta, tables))
            batch.task = meta["task"]
            batch.note_records(meta)
            batch.wall_clock = max(batch.wall_clock, meta.get("wall_clock", NEVER))
            drops.update(meta["drops"])
            first = first or meta["first"]
        return _Received(batch, {reason: drops[reason] for reason in reasons(self.layout.op)}, first)


class _Received(NamedTuple):
    """The decoded blobs of a batch.

    drops  the number of records that map tasks dropped and that this task counts, by reason
    first  whether this task reports the metrics of all map tasks
    """

    batch: Batch
    drops: dict[str, int]
    first: bool

    def metrics(self) -> dict[str, Any]:
        """Metrics of the records, when the operator has processed them."""
        metrics: dict[str, Any] = self.drops | {"late": self.drops["late"] + self.batch.dropped_late}
        metrics |= _reported_once(self.batch) if self.first else {"records": 0, "lateness_sum": 0.0}
        return metrics | ({GRACE_NEEDED: self.batch.graces()} if self.batch.reports_graces else {})


def _with_time(rows: pa.Table, batch: Batch, before: int, now: int) -> pa.Table:
    """The rows with the stream time (ms) for the next operator, `before` the batch and `now`."""
    without_records = all(chunk.without_records for chunk in batch.chunks)
    # Without records a task on Spark steps only if its clock asks for it.
    return rows if without_records and now == before else to_stream.with_time(rows, now, without_records)


def _reported_once(batch: Batch) -> dict[str, Any]:
    """Metrics from the headers of all chunks; only one task reports them."""
    # A partition that was excluded, or is new, may be behind the stream time before the batch.
    total, highest = lateness(batch.chunks, np.maximum(batch.fold.before_each, batch.fold.before_batch))
    records, times = sum(chunk.rows for chunk in batch.chunks), batch.partition_times()
    numbers = {"records": records, "lateness_sum": total, "record_lateness_max": highest}
    return numbers | ({PARTITION_TIMES: json.dumps(times)} if times else {})


def _same_run(meta: dict[str, Any], plan: str, tasks: int) -> None:
    if meta["plan"] != plan or meta["tasks"] != tasks:
        raise CheckpointError(
            "A blob was packed by another plan or for another number of tasks than the operator that reads it. "
            "Nothing was changed. Stop the query and start it again from one process."
        )
