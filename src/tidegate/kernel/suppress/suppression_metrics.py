"""Metrics of a step about suppressions and final results, under the names of `spec.metrics.NUMBERS`.

No rows are read for them: counts and bytes come from the indexes of logs and buckets.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tidegate.instants import later_ms
from tidegate.kernel.columns.arrays import Ints, ints
from tidegate.kernel.state.state import State
from tidegate.plan import Operation
from tidegate.spec.columns import OURS, TIMESTAMP
from tidegate.spec.metrics import BUFFER_SIZES, FILL, at_place, change_of
from tidegate.spec.suppressed import Buffer, UntilTimeLimit

if TYPE_CHECKING:
    from tidegate.kernel.suppress.time_buckets import TimeBuckets

UPDATED = OURS + "updated"
"""The column with the wall clock (ms) at the last update of a waiting row, if no other column has it."""

_FULL = "suppression_buffer_fill"

SIZE = OURS + "size"
"""The column with the bytes of an entry in a buffer with a bound."""


@dataclass(frozen=True)
class Evicted:
    """Rows that left a time limit; `since`: buffer times (ms), `shown`: the clock of the limit when each left (ms)."""

    rows: pa.Table
    since: Ints
    shown: Ints


class Buffered(NamedTuple):
    """Waiting rows: their number, their bytes, and the bytes of those that are only on disk."""

    rows: int
    size: int
    spilled: int


def of_limit(entries: pa.Table, buckets: TimeBuckets) -> Buffered:
    """The rows that wait for a time limit: entries of a bounded buffer, and time buckets of an unbounded one."""
    spilled = sum(log.size for log in buckets.logs.values())
    size = int(ints(entries[SIZE]).sum()) if entries.num_rows else 0
    return Buffered(entries.num_rows + buckets.keys, size + spilled, spilled)


def record_buffered(state: State, now: Buffered, before: Buffered) -> None:
    """Set the metrics of waiting rows, and of their change in this step."""
    state.step_metrics |= dict(zip(BUFFER_SIZES, now, strict=True))
    state.step_metrics |= {change_of(name): new - old for name, new, old in zip(BUFFER_SIZES, now, before, strict=True)}


def record_peaks(state: State, buffer: Buffer, records: int, size: int) -> None:
    """Set the metrics of the largest content of a bounded buffer within this step, and of its fill."""
    state.step_metrics |= {"suppression_buffer_count_max": records, "suppression_buffer_size_max": size}
    record_fill(state, buffer, records, size)


def record_fill(state: State, buffer: Buffer, records: int, size: int) -> None:
    """Set the metric of the fill of a bounded buffer. Of several buffers the fullest counts."""
    mine = buffer.share(state.task, state.tasks)
    parts = [(records, mine.max_records), (size, mine.max_bytes)]
    full = max(min(content / max(bound, 1), 1.0) for content, bound in parts if bound is not None)
    state.step_metrics[_FULL] = max(state.step_metrics.get(_FULL, 0), int(full * FILL))


def beside(others: dict[str, float], own: dict[str, float]) -> dict[str, float]:
    """The metrics of a single limit, beside those of the operator in front of it."""
    fill = [metrics[_FULL] for metrics in (others, own) if _FULL in metrics]
    return others | own | ({_FULL: max(fill)} if fill else {})


def of_limits(others: dict[str, float], own: dict[str, float], place: int) -> dict[str, float]:
    """The metrics of several limits combined, and besides the `own` metrics of the limit at this place."""
    # The largest content of an unbounded buffer within a step is not known; its content at the end stands for it.
    for peak in ("suppression_buffer_count", "suppression_buffer_size"):
        own.setdefault(f"{peak}_max", own[f"{peak}_current"])
    together = {
        name: _together(name, others[name], number) if name in others else number for name, number in own.items()
    }
    return others | together | {at_place(name, place): number for name, number in own.items()}


def _together(name: str, one: float, other: float) -> float:
    if name == _FULL:
        return max(one, other)
    return min(one, other) if name == "overtime_min" else one + other


def record_final(state: State, rows: int) -> None:
    """Count final results that have left; of several outputs each counts."""
    state.step_metrics["emit_final_records"] = state.step_metrics.get("emit_final_records", 0) + rows


def overtime(how: UntilTimeLimit, evicted: Evicted) -> dict[str, float]:
    """The least and the total wait (ms) of rows after their last update: KIP-328's limit less the observed lateness."""
    if not evicted.rows.num_rows:
        return {}
    due = np.minimum(evicted.shown, later_ms(evicted.since, how.limit_ms))
    waited = np.maximum(due - _updated(how, evicted), 0)
    return {"overtime_min": int(waited.min()), "overtime_sum": int(waited.sum())}


def _updated(how: UntilTimeLimit, evicted: Evicted) -> Ints:
    """The time of each row's last update, by the clock of the limit (ms)."""
    if how.measured_from == "latest_update":
        return evicted.since
    if how.clock == "stream":
        return ints(evicted.rows[TIMESTAMP])
    updated = evicted.rows[UPDATED]
    # Rows that an earlier version of tidegate held back have a null: they count as never updated.
    return ints(pc.coalesce(updated, pa.array(evicted.since))) if updated.null_count else ints(updated)


def of_step(op: Operation, state: State, before: Buffered, now: Buffered) -> dict[str, float]:
    """The metrics of this step, given the rows that waited for their window `before` it and wait `now`.

    With time limits these are the metrics of suppressions, and a strict buffer in front of them counts in the fill.
    """
    if op.all_limits and op.buffer is not None:
        record_fill(state, op.buffer, now.rows, now.size)
    if not op.all_limits and "suppression" in op.measured:
        record_buffered(state, now, before)
        if op.buffer is not None and _FULL not in state.step_metrics:
            record_peaks(state, op.buffer, now.rows, now.size)
        state.step_metrics["suppression_emit"] = state.step_metrics.get("emit_final_records", 0)
    return {**state.step_metrics, "tasks": state.tasks, "tasks_heard": 1}
