"""A log of closing times: the hashes of keys, in time buckets by the end of one of their windows.

A window has one entry. If the end of the window has moved when the entry is due, as the end of a growing session does,
the window gets another entry; if the window is gone, its entry has no effect. So a batch reads only the due entries and
the windows of their keys.

A time bucket is wide until it begins to be due. Then its entries move to narrow buckets, so that a batch reads few
entries that are not due yet. The number of a time bucket only says which entries lie together.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from tidegate.instants import MAX_MS
from tidegate.kernel.columns.arrays import Hashes, Ints, concat_tables, ints
from tidegate.kernel.columns.hash64 import from_upper_half, upper_half
from tidegate.kernel.columns.runs import coarser
from tidegate.kernel.state.state import State

_FURTHEST = 2**56
"""The largest number of a time bucket: the store has no room for more."""


@dataclass(frozen=True)
class ClosingTimes:
    """The closing times of one task.

    logs   the time buckets; `due` in the index is the earliest time in each
    width  of a narrow time bucket (ms)
    """

    logs: State
    width: int

    @classmethod
    def of(cls, state: State, open_ms: int) -> ClosingTimes:
        """The closing times in a state whose windows are open for `open_ms`."""
        return cls(state.of_logs(state.closing), max(1, open_ms // state.store.tuning.buckets_per_level**2))

    def add(self, hashes: Hashes, times: Ints, reached: float) -> None:
        """Add entries for keys with these hashes at these times (ms). Every time lies after `reached`."""
        if not len(times):
            return
        rows = pa.table({"h": pa.array(upper_half(hashes).astype(np.uint32)), "at": pa.array(times)})
        numbers = self._numbers(times, reached)
        order = np.argsort(numbers, kind="stable")
        names, first = np.unique(numbers[order], return_index=True)
        rows = rows.take(pa.array(order))
        for name, low, end in zip(names.tolist(), first.tolist(), [*first[1:].tolist(), len(order)], strict=True):
            self._append(name, rows.slice(low, end - low))

    def take_due(self, before: float) -> Hashes:
        """Drop the entries earlier than `before`. Returns their distinct hashes in order, with lower halves of 0."""
        found = [np.zeros(0, np.uint32)]
        for name in self.logs.logs.due_before(before):
            rows = concat_tables(self.logs.read(name))
            self.logs.forget(name)
            due = ints(rows["at"]) < before
            found.append(rows["h"].to_numpy()[due])
            rest = rows.filter(pa.array(~due))
            self.add(from_upper_half(rest["h"].to_numpy()), ints(rest["at"]), before)
        return from_upper_half(np.unique(np.concatenate(found)))

    def earliest(self) -> int:
        """The earliest time of an entry (ms)."""
        return self.logs.logs.totals().due

    def forget(self) -> None:
        """Drop all entries."""
        for name in list(self.logs.logs):
            self.logs.forget(name)

    def _numbers(self, times: Ints, reached: float) -> Ints:
        many = self.logs.store.tuning.buckets_per_level
        narrow = np.minimum(times // self.width, _FURTHEST)
        wide = narrow // many * many
        begun = reached // self.width // many * many
        # Windows that wait for a slow partition may span hours. Then buckets are wider: each is stored on its own.
        return coarser(np.where(wide <= begun, narrow, wide), 2 * many)

    def _append(self, name: int, rows: pa.Table) -> None:
        known = self.logs.logs.get(name)
        due = min(int(ints(rows["at"]).min()), MAX_MS if known is None else known.due)
        self.logs.append(name, rows)
        most = self.logs.store.tuning.bucket_segments
        # Each bucket is compacted after a different number of batches.
        if self.logs.logs[name].segments > most + name % most:
            self.logs.replace(name, concat_tables(self.logs.read(name)))
        self.logs.note(name, due=due)
