"""Which windows wait for stream time, and until when."""

from __future__ import annotations

from dataclasses import replace

from tidegate.instants import MAX_MS
from tidegate.kernel.choice import operator_of
from tidegate.kernel.rows.layout import Layout
from tidegate.kernel.state.state import State
from tidegate.kernel.suppress import time_limit
from tidegate.kernel.time.slowest_partition import is_idle
from tidegate.kernel.time.stream_time import NEVER
from tidegate.spec.joined import SIDES
from tidegate.spec.pending import SHOWN, Buffered, Pending, Waiting


def pending(layout: Layout, state: State) -> Pending:
    """All that the operator of `state` holds back, with every window."""
    waits = layout.op.emits != "updates"
    found = operator_of(layout).open_windows(state)
    waiting = [Waiting(window, at, at - state.stream_time) for window, at in found if waits and at < MAX_MS]
    if (closes := operator_of(layout).next_close(state)) is not None:
        waiting.append(Waiting(None, closes, closes - state.stream_time))
    slowest = slowest_partition(layout, state) if state.partitions else None
    return Pending(
        layout.op.stream.name,
        None if state.stream_time == NEVER else state.stream_time,
        tuple(sorted(waiting, key=lambda one: (one.leaves_at, one.window or (0, 0)))),
        len(found),
        slowest if slowest is None or layout.op.joined is None else (_side(str(slowest[0])), slowest[1]),
        _buffered(layout, state),
    )


def _side(partition: str) -> str:
    """What people call a partition of one input of a join."""
    side, _, rest = partition.partition(":")
    return f"{SIDES[int(side)]} side{f', partition {rest}' if rest else ''}"


def _buffered(layout: Layout, state: State) -> Buffered | None:
    for output in layout.op.all_outputs:
        if output.limit is None:
            continue
        limited = replace(layout.for_kind[output.kind], shape=output.before)
        if (found := time_limit.first_due(limited, state.store, SHOWN)) is not None:
            keys, first, shown = found
            now = state.wall_clock if output.limit.clock == "wall" else shown
            return Buffered(output.limit.clock, first[0][1], first[0][1] - now, keys, tuple(first))
    return None


def metrics(layout: Layout, state: State) -> dict[str, float]:
    """open_windows, and where results wait, the time at which the next ones leave: `next_close`,
    of a time limit `next_due_stream` or `next_due_wall`, and what its clock shows, `limit_clock`.
    """
    told: dict[str, float] = {"open_windows": 0}
    if state.due is not None and layout.op.limit is not None:
        told[f"next_due_{layout.op.limit.clock}"], told["limit_clock"] = state.due
    told |= operator_of(layout).counts(state)
    if (closes := operator_of(layout).next_close(state)) is not None:
        told["next_close"] = closes
    if layout.op.stream.clock.slowest and (slowest := slowest_partition(layout, state)) is not None:
        name, told["slowest_time"] = slowest
        if layout.op.joined is not None:
            told["slowest_side"] = int(str(name).partition(":")[0])
        elif isinstance(name, int):
            told["slowest_partition"] = name
    if layout.op.windows is None:
        return told
    told["open_windows"], next_close = operator_of(layout).count_open(state)
    if layout.op.emits != "updates" and next_close is not None and next_close < MAX_MS:
        told["next_close"] = next_close
    return told


def slowest_partition(layout: Layout, state: State) -> tuple[int | str, int] | None:
    """The partition that has come least far, and how far; where its time is that of the stream or less."""
    idle_after = layout.op.stream.clock.idle_after_ms
    awake = [(name, at) for name, at in state.partitions.items() if not is_idle(at, state.wall_clock, idle_after)]
    reached = [(at.time, str(name), name) for name, at in awake if name is not None]
    if not reached or min(reached)[0] > state.stream_time:
        return None
    time, _, name = min(reached)
    return name, time
