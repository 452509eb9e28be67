"""The stream time after a micro-batch, by the clock of the stream (`spec.clock`)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from tidegate.kernel.state.state import State
from tidegate.kernel.time.idle import Idle
from tidegate.kernel.time.slowest_partition import SlowestFold, reports_more, with_inputs
from tidegate.kernel.time.stream_time import NEVER, Chunk, Fold
from tidegate.spec.clock import Clock


def fold(
    clock: Clock,
    chunks: Sequence[Chunk],
    has_records: bool,
    state: State,
    stream_time: int,
    inputs: Iterable[str] = (),
) -> Fold:
    """The stream time before each chunk and after the batch; `stream_time`: before the batch (ms).

    has_records  whether the batch had any record; one that a step before removed is none
    inputs       inputs that hold the slowest partition's time back until they are heard of (`with_inputs`)
    """
    if not clock.slowest:
        largest = Fold(chunks, stream_time)
        if chunks:  # without records a task on Spark does not step
            # Partitions of an earlier clock hold nothing back. Those ahead of stream time stay, because they have the
            # time of the newest record (`State.newest`).
            state.partitions = {name: at for name, at in state.partitions.items() if at.time > largest.stream_time}
        return largest
    if not (has_records or any(reports_more(chunk, state.partitions) for chunk in chunks)):
        # Only batches with records check which partitions are idle.
        return Fold([replace(chunk, reported=None) for chunk in chunks], stream_time)
    now = state.wall_clock if clock.needs_wall_clock else NEVER
    reached = with_inputs(state.partitions, inputs, now)
    found = SlowestFold(list(chunks), stream_time, reached, now, clock.idle_after_ms)
    state.partitions = found.partitions
    return found


def advanced(clock: Clock, chunks: Sequence[Chunk], has_records: bool, state: State, stream_time: int) -> int:
    """The stream time (ms) after the step, moved on if the input is idle; `has_records`: whether it had any record."""
    if clock.idle_advance_ms is None:
        state.idle = Idle()
        return stream_time
    if not has_records and not all(chunk.without_records for chunk in chunks):
        return stream_time  # all records were filtered out: the input is not silent, and the operator got none
    alone = state.tasks == 1
    return state.idle.advance(clock.idle_advance_ms, has_records, state.wall_clock, stream_time, alone=alone)
