"""Stored sliding windows and sessions, as a batch reads and writes them.

They lie in buckets (`windows.window_buckets`), or by key (`windows.windows_by_key`) if they are many beside the keys of
a batch. `windows.window_forms` chooses the form. A batch takes them in parts, each of whole keys:

    parts with records    the windows of the records' keys, and in buckets those of neighbouring keys
    parts that close      closing windows of other keys; they can leave while the next ones are read
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import pyarrow as pa

from tidegate.kernel.columns.arrays import Ints, ints
from tidegate.kernel.operator import OpenWindows
from tidegate.kernel.rows.layout import Layout
from tidegate.kernel.suppress.bounded_buffer import EMPTY, Content
from tidegate.kernel.suppress.suppression_metrics import Buffered
from tidegate.kernel.windows import sliding
from tidegate.spec.windows import SessionWindows


class Opens(NamedTuple):
    """The smallest end (ms) of an open window, `before` and `after` a batch."""

    before: float
    after: float


@dataclass(frozen=True)
class Loaded:
    """All windows of some keys.

    entries    entries of a bounded buffer; None if there is no such buffer
    unread     the buffer's entries that were not read
    looked_at  of windows stored by key, the time at which each is looked at next (ms)
    """

    rows: pa.Table
    entries: pa.Table | None = None
    unread: Content = EMPTY
    looked_at: Ints | None = None


class Part(Protocol):
    """Keys whose windows are read and written together."""

    @property
    def records(self) -> pa.Table | None:
        """The records of these keys in the batch; None if there are none."""

    @property
    def places(self) -> Ints | None:
        """The places of `records` among the batch's records; None if they are all of them."""

    def load(self) -> Loaded:
        """Read the windows of these keys."""

    def store(self, loaded: Loaded, rows: pa.Table, entries: pa.Table | None) -> None:
        """Replace the `loaded` windows by `rows`, and the `loaded` entries of the buffer by `entries`."""


class Parts(NamedTuple):
    """The parts of a batch: first parts with records, then parts in which windows only close."""

    with_records: Iterable[Part]
    closing: Iterable[Part] = ()


class StoredWindows(Protocol):
    """The windows of all keys in one of their forms."""

    def parts(self, records: pa.Table | None, divides: bool) -> Parts:
        """The parts of a batch with these records; `divides`: whether many records may be split into parts."""

    def read(self) -> Iterator[pa.Table]:
        """All windows, some at a time; closed windows may be among them."""

    def count_open(self) -> OpenWindows:
        """The number of open windows, and the earliest time at which one may close; reads no rows."""

    def buffered(self) -> Buffered:
        """The rows that wait for their window to close."""


def open_ms(layout: Layout) -> int:
    """The time for which a window takes records (ms), about."""
    windows = layout.keyed_windows
    reach = windows.inactivity_gap_ms if isinstance(windows, SessionWindows) else windows.time_difference_ms
    return reach + windows.grace_ms


def kept(layout: Layout, rows: pa.Table, opens: float) -> Any:
    """Flags of windows still needed if windows ending from `opens` on are open; sliding windows outlive their close."""
    windows = layout.keyed_windows
    return ints(rows["end"]) >= opens if isinstance(windows, SessionWindows) else sliding.kept(windows, rows, opens)


def no_windows(layout: Layout) -> pa.Table:
    """A table of windows without rows."""
    keys = [layout.schema.field(name) for name in layout.keys]
    bounds = [pa.field(name, pa.int64()) for name in ("start", "end", "ts")]
    return pa.schema([*keys, *bounds, *layout.state_fields]).empty_table()
