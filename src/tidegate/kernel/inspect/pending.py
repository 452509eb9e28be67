"""The windows and rows that wait for time to pass, and the times at which they leave."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa

from tidegate.instants import MAX_MS
from tidegate.kernel.choice import operator_of
from tidegate.kernel.columns.sorting import by_columns
from tidegate.kernel.rows.conversion import for_display
from tidegate.kernel.rows.layout import Layout
from tidegate.kernel.rows.results import serial
from tidegate.kernel.state.state import State
from tidegate.kernel.suppress import time_limit
from tidegate.kernel.time.slowest_partition import is_idle
from tidegate.kernel.time.stream_time import NEVER
from tidegate.spec.columns import UNTIL
from tidegate.spec.joined import SIDES
from tidegate.spec.metrics import at_place
from tidegate.spec.pending import SHOWN, Buffered, Lookups, Pending, Waiting


def pending(layout: Layout, state: State) -> Pending:
    """All windows, records and rows that the operator of `state` holds back."""
    waits = layout.op.emits != "updates"
    found = operator_of(layout).open_windows(state)
    waiting = [Waiting(window, at, at - state.stream_time) for window, at in found if waits and at < MAX_MS]
    if (closes := operator_of(layout).next_close(state)) is not None:
        waiting.append(Waiting(None, closes, closes - state.stream_time))
    slowest = slowest_partition(layout, state) if state.partitions else None
    now = operator_of(layout).shown_time(state)
    return Pending(
        name=layout.op.stream.name,
        stream_time=None if now == NEVER else now,
        waiting=tuple(sorted(waiting, key=lambda one: (one.leaves_at, one.window or (0, 0)))),
        open_windows=len(found),
        held_by=slowest if slowest is None or layout.op.joined is None else (_side(str(slowest[0])), slowest[1]),
        limits=tuple(_buffered(layout, state)),
        lookups=_lookups(layout, state),
        follows=layout.op.follows,
    )


def _lookups(layout: Layout, state: State) -> Lookups | None:
    operator = operator_of(layout)
    found, rows = operator.next_lookup(state), operator.lookups(state)
    if found is None or rows is None:
        return None
    order = by_columns(pa.table({UNTIL: rows[UNTIL]} | {name: serial(rows[name]) for name in layout.op.key}))
    first = rows.take(order[:SHOWN])
    keys = [time_limit.shown_key(row) for row in for_display(first.select(list(layout.op.key)))]
    return Lookups(*found, rows.num_rows, tuple(zip(keys, first[UNTIL].to_pylist(), strict=True)))


def _side(partition: str) -> str:
    """The name that people see of a partition of one input of a join."""
    side, _, rest = partition.partition(":")
    return f"{SIDES[int(side)]} side{f', partition {rest}' if rest else ''}"


def _buffered(layout: Layout, state: State) -> Iterator[Buffered]:
    several = len(layout.op.all_limits) > 1
    for output in layout.op.all_outputs:
        for number, limit in enumerate(output.limits):
            limited, clock = layout.of_limit(output, number), limit.how.clock
            if (held := time_limit.held_back(limited, state.store)) is not None:
                _, due = held.first[0]
                now, store = state.wall_clock if clock == "wall" else held.clock, limit.store if several else None
                yield Buffered(clock, due, due - now, held.keys, tuple(held.first), store)


def metrics(layout: Layout, state: State) -> dict[str, float]:
    """Metrics: `open_windows`; where results wait, the time (ms) at which the next ones leave: `next_close`.

    For a time limit `next_due_stream` or `next_due_wall`, and its clock, `limit_clock` (ms); for several time limits
    under names with their places.
    """
    found: dict[str, float] = {"open_windows": 0}
    for limit in layout.op.all_limits:
        if limit.place in state.due:
            names = (f"next_due_{limit.how.clock}", "limit_clock")
            if len(layout.op.all_limits) > 1:
                names = (at_place(names[0], limit.place), at_place(names[1], limit.place))
            found |= dict(zip(names, state.due[limit.place], strict=True))
    found |= operator_of(layout).counts(state)
    if (closes := operator_of(layout).next_close(state)) is not None:
        found["next_close"] = closes
    found |= _held_back(layout, state)
    if layout.op.windows is None:
        return found
    found["open_windows"], next_close = operator_of(layout).count_open(state)
    if layout.op.emits != "updates" and next_close is not None and next_close < MAX_MS:
        found["next_close"] = next_close
    return found


def _held_back(layout: Layout, state: State) -> dict[str, float]:
    """Metrics: `slowest_time`, and `slowest_partition` or `slowest_side`, if a partition holds stream time back;
    `follows_join` if stream time follows a join.
    """
    found: dict[str, float] = {} if layout.op.follows is None else {"follows_join": 1}
    if not layout.op.stream.clock.slowest or (slowest := slowest_partition(layout, state)) is None:
        return found
    name, found["slowest_time"] = slowest
    if layout.op.joined is not None:
        found["slowest_side"] = int(str(name).partition(":")[0])
    elif isinstance(name, int):
        found["slowest_partition"] = name
    return found


def slowest_partition(layout: Layout, state: State) -> tuple[int | str, int] | None:
    """The slowest partition that is not idle, and its time (ms); None if that time is beyond stream time."""
    idle_after = layout.op.stream.clock.idle_after_ms
    awake = [(name, at) for name, at in state.partitions.items() if not is_idle(at, state.wall_clock, idle_after)]
    reached = [(at.time, str(name), name) for name, at in awake if name is not None]
    if not reached or min(reached)[0] > operator_of(layout).shown_time(state):
        return None
    time, _, name = min(reached)
    return name, time
