"""Ends and close times of the windows of rows."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from tidegate.kernel.columns.arrays import Ints, ints
from tidegate.kernel.rows.layout import Layout
from tidegate.spec.columns import END, START


def closed_at(layout: Layout, rows: pa.Table) -> Ints:
    """The first stream time (ms) at which the window of each row is closed, by the windows' own rule."""
    return close_of_ends(layout, ints(rows[END])) if layout.keyed else close_of_starts(layout, ints(rows[START]))


def is_closed(layout: Layout, start: int, stream_time: int) -> bool:
    """Whether the aligned window with this start is closed at a stream time (ms)."""
    return layout.aligned.close_ms(start) <= stream_time


def close_of_ends(layout: Layout, ends: Ints) -> Ints:
    """The first stream time (ms) at which each sliding window, or session, with one of these ends is closed."""
    return layout.keyed_windows.close_of_end_ms(ends)  # type: ignore[arg-type, return-value]


def close_of_starts(layout: Layout, starts: Ints) -> Ints:
    """The first stream time (ms) at which each aligned window with one of these starts is closed."""
    # Unlimited windows have one close, and one end, for all starts.
    closes: Any = layout.aligned.close_ms(starts)  # type: ignore[arg-type]
    return np.broadcast_to(closes, len(starts))


def end_of_starts(layout: Layout, starts: Ints) -> Ints:
    """The end (ms) of each aligned window with one of these starts."""
    ends: Any = layout.aligned.end_ms(starts)  # type: ignore[arg-type]
    return np.broadcast_to(ends, len(starts))
