"""The windows of keys as a batch takes them out of the store and puts them back: sliding windows and sessions.

They lie in buckets (`windows.window_buckets`), or where they are many beside the keys of a batch by key
(`windows.windows_by_key`). `windows.window_forms` decides which. A batch takes them in parts, each of whole keys:

    parts with records    the windows of their keys, and in buckets those of their neighbours
    parts that close      windows of other keys, which must leave; they can leave while the next ones are read
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import numpy as np
import pyarrow as pa

from tidegate.kernel.columns.arrays import Ints, ints
from tidegate.kernel.operator import OpenWindows
from tidegate.kernel.rows.layout import Layout
from tidegate.kernel.suppress.suppression_metrics import Held
from tidegate.kernel.windows import sliding
from tidegate.spec.windows import SessionWindows, SlidingWindows


class Opens(NamedTuple):
    """The smallest end (ms) of a window that is open, `before` a batch and `after` it."""

    before: float
    after: float


@dataclass(frozen=True)
class Loaded:
    """Windows of some keys, all those that they have.

    entries    of a buffer with a bound; None if there is none
    aside      entries of the buffer that were not read, and their bytes
    looked_at  where windows are stored by key, when each is looked at next (ms)
    """

    rows: pa.Table
    entries: pa.Table | None = None
    aside: tuple[int, int] = (0, 0)
    looked_at: Ints | None = None


class Part(Protocol):
    """Keys whose windows are read and written together."""

    @property
    def records(self) -> pa.Table | None:
        """Their records in the batch, None if there are none."""

    @property
    def places(self) -> Ints | None:
        """Where the records are among those of the batch; None if they are all."""

    def load(self) -> Loaded:
        """Their windows."""

    def store(self, loaded: Loaded, rows: pa.Table, entries: pa.Table | None) -> None:
        """Let `rows` be their windows, and `entries` those of the buffer, where so far they were `loaded`."""


class Parts(NamedTuple):
    """The parts that a batch must take: first those with records, then those in which windows close alone."""

    with_records: Iterable[Part]
    closing: Iterable[Part] = ()


class StoredWindows(Protocol):
    """The windows of all keys in one of their forms."""

    def parts(self, records: pa.Table | None, divides: bool) -> Parts:
        """The parts of a batch with these records; `divides`: whether many records may come in several."""

    def read(self) -> Iterator[pa.Table]:
        """All windows, some at a time; those that have closed may be among them."""

    def count_open(self) -> OpenWindows:
        """How many are open, and when the first one closes at the earliest; nothing is read for it."""

    def buffered(self) -> Held:
        """What waits for its window to close."""


def definition(layout: Layout) -> SlidingWindows | SessionWindows:
    """The definition of the windows."""
    windows = layout.op.windows
    assert isinstance(windows, SlidingWindows | SessionWindows)
    return windows


def open_ms(layout: Layout) -> int:
    """For how long a window takes records, about (ms)."""
    windows = definition(layout)
    reach = windows.inactivity_gap_ms if isinstance(windows, SessionWindows) else windows.time_difference_ms
    return reach + windows.grace_ms


def kept(layout: Layout, rows: pa.Table, opens: float) -> Any:
    """Which windows are of use when those that end from `opens` on are open: sliding ones outlive their close."""
    windows = definition(layout)
    return ints(rows["end"]) >= opens if isinstance(windows, SessionWindows) else sliding.kept(windows, rows, opens)


def no_windows(layout: Layout) -> pa.Table:
    """A table of windows without rows."""
    keys = [layout.schema.field(name) for name in layout.keys]
    bounds = [pa.field(name, pa.int64()) for name in ("start", "end", "ts")]
    return pa.schema([*keys, *bounds, *layout.state_fields]).empty_table()


def undeleted(rows: pa.Table) -> pa.Table:
    """Windows as the operator has them: none of them is deleted."""
    return rows.append_column("deleted", pa.array(np.zeros(rows.num_rows, bool)))
