"""The rows of sliding windows by a direct computation, as columns: dicts of ten million windows would take gigabytes.

Shares no code with tidegate. Valid only without late records: then the windows of a key follow from the timestamps of
its records. One window ends with each record, and one begins a millisecond after each record if it has a record.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

import numpy as np
import numpy.typing as npt

from benchmarks.agreement import Rows
from benchmarks.inputs import GRACE_MS, Int64s, Shape, halves, key_names

DIFFERENCE_MS = 10_000


@dataclass(frozen=True, eq=False)
class Windows:
    """Windows with their starts (ms), counts and totals, ordered by key and start; keys are numbers."""

    key: Int64s
    start: Int64s
    count: Int64s
    total: Int64s

    @classmethod
    def ordered(cls, key: Int64s, start: Int64s, count: Int64s, total: Int64s) -> Windows:
        """Windows from columns in any order."""
        order = np.lexsort((start, key))
        return cls(key[order], start[order], count[order], total[order])

    def __len__(self) -> int:
        return len(self.key)

    def columns(self) -> tuple[Int64s, Int64s, Int64s, Int64s]:
        return self.key, self.start, self.count, self.total

    def where(self, chosen: npt.NDArray[np.bool_]) -> Windows:
        return Windows(*(column[chosen] for column in self.columns()))

    def equals(self, other: Windows) -> bool:
        return all(np.array_equal(a, b) for a, b in zip(self.columns(), other.columns(), strict=True))

    def without(self, other: Windows) -> Rows:
        """The rows of these windows that are not in `other`."""
        mine, others = (np.rec.fromarrays(each.columns()) for each in (self, other))
        return self.where(~np.isin(mine, others)).as_rows()

    def as_rows(self) -> Rows:
        """The windows as a dict, for few of them."""
        starts, counts, totals = (column.tolist() for column in (self.start, self.count, self.total))
        places = zip(key_names(self.key), starts, strict=True)
        return dict(zip(places, zip(counts, totals, strict=True), strict=True))


@cache
def of_every_window(shape: Shape) -> Windows:
    """The rows of all windows of `shape`, which must have no late records."""
    if shape.late_share:
        raise ValueError("late records leave windows out that their times alone would make")
    every = list(halves(shape))
    key, ts, amount = (np.concatenate([getattr(half, name) for half in every]) for name in ("key", "ts_ms", "amount"))
    # All keys on one time line, each further from the next than two windows are long.
    first = int(ts.min()) - DIFFERENCE_MS
    stretch = int(ts.max()) - first + 2 * DIFFERENCE_MS + 2
    place = key * stretch + (ts - first)
    order = np.argsort(place)
    place = place[order]
    before = np.concatenate((np.zeros(1, np.int64), np.cumsum(amount[order])))

    def to(ends: Int64s) -> Int64s:
        return np.searchsorted(place, ends, side="right")

    starts = np.concatenate((place - DIFFERENCE_MS, place + 1))
    starts = np.unique(starts)
    low, high = to(starts - 1), to(starts + DIFFERENCE_MS)
    starts, low, high = (column[low < high] for column in (starts, low, high))
    return Windows(starts // stretch, starts % stretch + first, high - low, before[high] - before[low])


def closed(shape: Shape) -> Windows:
    """The final rows: the windows that are closed at the end of the input."""
    stream_time = max(int(half.ts_ms.max()) for half in halves(shape))
    every = of_every_window(shape)
    return every.where(every.start + DIFFERENCE_MS < stream_time - GRACE_MS)
