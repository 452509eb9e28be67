"""Close times of the windows of rows."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from tidegate.kernel.columns.arrays import Ints, ints
from tidegate.kernel.rows.layout import Layout
from tidegate.spec.columns import END, START
from tidegate.spec.windows import SessionWindows, SlidingWindows


def closed_at(layout: Layout, rows: pa.Table) -> Ints:
    """The first stream time (ms) at which the window of each row is closed, by the windows' own rule."""
    if layout.keyed:
        return close_of_ends(layout, ints(rows[END]))
    starts: Any = ints(rows[START])
    return np.broadcast_to(layout.aligned.close_ms(starts), rows.num_rows)


def close_of_ends(layout: Layout, ends: Ints) -> Ints:
    """The first stream time (ms) at which each sliding window, or session, with one of these ends is closed."""
    windows = layout.op.windows
    assert isinstance(windows, SlidingWindows | SessionWindows)
    return windows.close_of_end_ms(ends)  # type: ignore[arg-type, return-value]
