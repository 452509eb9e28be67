"""The pane of a record, the windows that hold a pane, and the windows that are open at a stream time.

A *pane* is a stretch of time that lies in the same windows as a whole: gcd(size, advance) long, so that overlapping
windows share the aggregates of the pane. A tumbling window is its own pane. All functions take and give numpy
arrays (or numbers) of epoch milliseconds; `windows` are named by their start.

        size 10, advance 5       panes  [0,5) [5,10) [10,15) ...
        window 5 = [5,15)               holds the panes 5 and 10
        pane 10                         lies in the windows 5 (its first) and 10 (its last)
"""

from __future__ import annotations

from dataclasses import dataclass
from math import gcd
from typing import Any

import numpy as np

from tidegate.spec.windows import TimeWindows


@dataclass(frozen=True)
class Panes:
    """The panes of time windows. The shape and the close rule are the windows' own (spec.windows)."""

    windows: TimeWindows

    @property
    def width_ms(self) -> int:
        """The length of a pane."""
        return gcd(self.windows.size_ms, self.windows.advance_ms)

    @property
    def shared(self) -> bool:
        """Whether a pane lies in more than one window."""
        return self.windows.advance_ms < self.windows.size_ms

    def pane(self, timestamp: Any) -> Any:
        """The pane of a record."""
        return timestamp // self.width_ms * self.width_ms

    def first_window(self, pane: Any) -> Any:
        """The earliest window that holds the pane; windows never start below 0."""
        if not self.shared:
            return np.maximum(pane, 0)
        advance = self.windows.advance_ms
        return np.maximum((pane - self.windows.size_ms) // advance * advance + advance, 0)

    def last_window(self, pane: Any) -> Any:
        """The latest window that holds the pane; advance <= size, so there is one."""
        return pane // self.windows.advance_ms * self.windows.advance_ms

    def first_open(self, stream_time: Any) -> Any:
        """The earliest window that is open at `stream_time`: the smallest start with close_ms(start) > stream_time."""
        advance = self.windows.advance_ms
        return np.maximum((stream_time - self.windows.close_ms(0)) // advance * advance + advance, 0)

    def closed(self, first: Any, last: Any, first_open: Any) -> Any:
        """Number of the windows first..last that lie before `first_open`, that is, are closed."""
        advance = self.windows.advance_ms
        return np.clip((first_open - first) // advance, 0, (last - first) // advance + 1)

    def held_by(self, window: int) -> range:
        """The panes a window holds."""
        return range(window, window + self.windows.size_ms, self.width_ms)

    def windows_of(self, pane: int) -> int:
        """Number of windows that hold the pane."""
        return int(self.last_window(pane) - self.first_window(pane)) // self.windows.advance_ms + 1

    def windows_shared(self, pane: int, later: int) -> int:
        """Number of windows that hold both panes."""
        return max(0, int(self.last_window(pane) - self.first_window(later)) // self.windows.advance_ms + 1)
