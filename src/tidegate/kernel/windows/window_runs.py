"""A large window as rows by key (`windows.rows_by_key`): a batch with few of its keys reads and writes their rows.

A number of the store has no room for both the start of a window and the hash of a key. So windows are numbered as they
become large. Each has a frame with its number and the index of its runs:

    windows                  60,000: one segment    120,000: no segment, but a frame {"number": 7, "ranges": ...}
    rows of large windows    from 7 * 2**32 on: runs of the window that begins at 120,000 ms
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa

from tidegate.kernel.rows.layout import Layout
from tidegate.kernel.state import frames
from tidegate.kernel.state.log_index import Log, LogIndex
from tidegate.kernel.state.state import State
from tidegate.kernel.state.store import Section
from tidegate.kernel.state.tables import CONTENTS_SEGMENT, WINDOW_RUNS
from tidegate.kernel.windows.rows_by_key import RowsByKey

_RANGES = 32
"""Bits of the number of a range of hashes."""


def has_runs(state: State, start: int) -> bool:
    """Whether the window that begins at `start` (ms) is stored as runs."""
    log = state.logs.get(start)
    return log is not None and log.segments == 0


@dataclass(frozen=True)
class WindowRuns:
    """The rows of the window that begins at `start` (ms)."""

    state: State
    start: int
    number: int
    rows: RowsByKey

    @classmethod
    def of(cls, layout: Layout, state: State, start: int) -> WindowRuns:
        """The rows of a window that `has_runs`."""
        saved, _ = frames.decode(frames.SEGMENT, state.store.read(start, CONTENTS_SEGMENT))
        return cls._of(layout, state, start, saved["number"], saved["ranges"])

    @classmethod
    def new(cls, layout: Layout, state: State, start: int) -> WindowRuns:
        """Runs for a window that has none yet, with the next number."""
        number, state.large_windows = state.large_windows, state.large_windows + 1
        return cls._of(layout, state, start, number, None)

    @classmethod
    def _of(cls, layout: Layout, state: State, start: int, number: int, ranges: dict[str, Any] | None) -> WindowRuns:
        section = Section(state.store, replace(WINDOW_RUNS, top=WINDOW_RUNS.place(number << _RANGES)))
        rows = RowsByKey.of(layout, LogIndex.load(section, ranges), section, state.evolution)
        return cls(state, start, number, rows)

    def add(self, stored: pa.Table | None, rows: pa.Table) -> None:
        """`RowsByKey.add` with fewer rows than the window has, so that the window does not become empty."""
        self.rows.add(stored, rows)
        self._save()

    def replace(self, rows: pa.Table) -> None:
        """Replace the rows of the window by `rows`, at least one."""
        self.rows.replace(rows)
        self._save()

    def forget(self) -> None:
        """Remove the window."""
        index = self.rows.versions.index
        self.rows.versions.forget()
        index.save()  # removes its pages
        self.state.store.remove(self.start, CONTENTS_SEGMENT)
        self.state.logs.pop(self.start)

    def _save(self) -> None:
        index = self.rows.versions.index
        totals = index.totals()
        frame = frames.encode(frames.SEGMENT, {"number": self.number, "ranges": index.save()})
        self.state.store.write(self.start, CONTENTS_SEGMENT, frame)
        self.state.logs[self.start] = Log(rows=totals.rows, size=totals.size)
