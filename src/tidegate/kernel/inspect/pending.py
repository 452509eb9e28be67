"""Which windows wait for stream time, and until when."""

from __future__ import annotations

from dataclasses import replace

from tidegate.instants import MAX_MS, Window
from tidegate.kernel.columns.arrays import ints
from tidegate.kernel.rows.layout import Layout
from tidegate.kernel.state.state import State
from tidegate.kernel.suppress import keyed_strict_bound, time_limit
from tidegate.kernel.time.stream_time import NEVER
from tidegate.kernel.windows import window_log, window_table
from tidegate.spec.pending import SHOWN, Buffered, Pending, Waiting
from tidegate.spec.windows import SessionWindows, SlidingWindows


def pending(layout: Layout, state: State) -> Pending:
    """All that the operator of `state` holds back, with every window."""
    waits = layout.op.emits != "updates"
    found = open_windows(layout, state)
    waiting = [Waiting(window, at, at - state.stream_time) for window, at in found if waits and at < MAX_MS]
    slowest = slowest_partition(state) if state.partitions else None
    return Pending(
        layout.op.stream.name,
        None if state.stream_time == NEVER else state.stream_time,
        tuple(sorted(waiting, key=lambda one: (one.leaves_at, one.window or (0, 0)))),
        len(found),
        slowest,
        _buffered(layout, state),
    )


def open_windows(layout: Layout, state: State) -> list[tuple[Window, int]]:
    """Every window that is open to some key, and the stream time at which it closes."""
    return _keyed(layout, state) if layout.keyed else _aligned(layout, state)


def _buffered(layout: Layout, state: State) -> Buffered | None:
    for output in layout.op.told:
        if output.limit is None:
            continue
        limited = replace(layout.telling[output.kind], shape=output.before)
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
    if layout.op.windows is None:
        return told
    totals = state.logs.totals()
    told["open_windows"] = totals.windows
    next_close: int | None = None
    if layout.keyed:
        # A bucket without open windows closes at MAX_MS.
        next_close = _close_of_end(layout, totals.closes) if totals.windows else None
    elif totals.logs:
        start, closed = _first_open(layout, state)
        told["open_windows"] -= closed
        next_close = layout.aligned.close_ms(start)
    if layout.op.emits != "updates" and next_close is not None and next_close < MAX_MS:
        told["next_close"] = next_close
    if layout.op.stream.clock.slowest and (slowest := slowest_partition(state)) is not None:
        name, told["slowest_time"] = slowest
        if isinstance(name, int):
            told["slowest_partition"] = name
    return told


def slowest_partition(state: State) -> tuple[int | str, int] | None:
    """The partition that has come least far, and how far; where its time is that of the stream or less."""
    reached = [(at.time, str(name), name) for name, at in state.partitions.items() if name is not None]
    if not reached or min(reached)[0] > state.stream_time:
        return None
    time, _, name = min(reached)
    return name, time


def _first_open(layout: Layout, state: State) -> tuple[int, int]:
    """The start of the first window that is open, and how many that the index counts are closed.

    Those are windows of the first pane alone: what lies before it has been removed.
    """
    totals = state.logs.totals()
    if not layout.op.logs:
        return totals.first if totals.due == MAX_MS else totals.due, 0
    first = int(layout.panes.first_window(totals.first))
    start = max(first, int(layout.panes.first_open(state.closed_to)))
    return start, (start - first) // layout.panes.windows.advance_ms


def _starts(layout: Layout, state: State) -> list[int]:
    if layout.op.logs:
        return window_log.closing(layout, list(state.logs), state.closed_to, MAX_MS).tolist()
    return window_table.starts(layout, state)


def _aligned(layout: Layout, state: State) -> list[tuple[Window, int]]:
    if layout.op.windows is None:
        return []
    aligned = layout.aligned
    return [(Window(start, aligned.end_ms(start)), aligned.close_ms(start)) for start in _starts(layout, state)]


def _keyed(layout: Layout, state: State) -> list[tuple[Window, int]]:
    found: set[Window] = set()
    for bucket in state.logs:
        for rows in (keyed_strict_bound.split(layout, held)[0] for held in state.read(bucket)):
            bounds = zip(ints(rows["start"]).tolist(), ints(rows["end"]).tolist(), strict=True)
            found |= {Window(start, end) for start, end in bounds if _close_of_end(layout, end) > state.closed_to}
    return [(window, _close_of_end(layout, window.end)) for window in found]


def _close_of_end(layout: Layout, end_ms: int) -> int:
    """The stream time at which a window of a key with this end closes."""
    windows = layout.op.windows
    assert isinstance(windows, SlidingWindows | SessionWindows)
    return windows.close_of_end_ms(end_ms)
