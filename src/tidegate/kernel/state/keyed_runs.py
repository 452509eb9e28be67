"""The versions of rows by key, as sorted runs in ranges of hashes of the key (`state.sorted_runs`).

A batch adds its versions as a run. Those that count no longer are dropped when all runs of a range become one: when the
last run has grown as large as those before it, and at the latest when the range has twice the versions that it had
after it was last put together. A range with many rows is cut into several then. The index has of each range: `rows`,
how many count, as far as that is known; `base`, how many there were when it was last put together.

    range from 0         run of a million versions | run of 30,000 | run of 1,000
    range from 2**31     run of 900,000 | run of 28,000 | run of 3,000 | run of 1,000

A range is named by the upper half of its first hash, as a bucket of `state.hash_tree` is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tidegate.kernel.columns.arrays import Ints, concat_tables
from tidegate.kernel.columns.groups import last_rows
from tidegate.kernel.columns.row_bytes import Extents, has_form
from tidegate.kernel.rows import grouping
from tidegate.kernel.rows.schema_evolution import Fitting
from tidegate.kernel.state.copies import Run, distinct, upper_halves
from tidegate.kernel.state.hash_tree import FILLED, Hashes
from tidegate.kernel.state.log_index import Log, LogIndex
from tidegate.kernel.state.run_merging import InTable, Sorted, merged_parts
from tidegate.kernel.state.sorted_runs import Contents, Left, Part, SortedRuns, unmerged
from tidegate.kernel.state.store import Store

_SIGN = 1 << 31
"""An upper half is stored as a signed number: the smallest is that of the first range."""

_ORDER = ("h",)

_OF_MANY = 2
"""Where a batch has one of so many of the rows of a range, copies of its runs would be made for nothing."""


@dataclass(frozen=True)
class Fitted:
    """A run whose rows are given `as_now`."""

    run: Sorted
    as_now: Callable[[pa.Table], pa.Table]

    @property
    def high(self) -> npt.NDArray[np.int32]:
        return self.run.high

    @property
    def columns(self) -> Extents:
        return self.run.columns

    def with_hashes(self, wanted: Ints) -> Ints:
        return self.run.with_hashes(wanted)

    def take(self, at: Ints) -> pa.Table:
        return self.as_now(self.run.take(at))

    def part(self, low: int, high: int) -> pa.Table:
        return self.as_now(self.run.part(low, high))

    def blocks(self) -> Iterator[pa.Table]:
        return map(self.as_now, self.run.blocks())


@dataclass(frozen=True)
class KeyedRuns:
    """The versions of one table, by range of hashes.

    left     which versions of some keys count; it is given all those of the keys, in the order in which they came
    fitting  how stored rows become rows of the plan, where they differ
    """

    index: LogIndex
    runs: SortedRuns
    left: Left
    fitting: Fitting | None = None

    @classmethod
    def of(cls, index: LogIndex, store: Store, left: Left, fitting: Fitting | None = None) -> KeyedRuns:
        """Those in a part of a store."""
        return cls(index, SortedRuns(store, _ORDER), left, fitting)

    def find(self, hashes: Hashes) -> Iterator[pa.Table]:
        """The versions of the keys with these hashes, those of a key in the order in which they came.

        Versions of some other keys may be among them.
        """
        asked = distinct(np.sort(_in_order(hashes)))
        ranges, first = np.unique(self._ranges(asked), return_index=True)
        for number, wanted in zip(ranges.tolist(), np.split(asked, first[1:]), strict=False):
            log = self._log(number)
            if log.segments:
                few = not _many(len(wanted), log.rows)
                for run in map(self._fitted, self.runs.every(number, keeps=few)):
                    if len(at := run.with_hashes(wanted)):
                        yield run.take(at)

    def add(self, rows: pa.Table, hashes: Hashes, more: Ints) -> None:
        """Take versions in the order in which they came, of keys with these hashes.

        They are sorted at once: a range is a slice of them.

        more  how many rows more the table has by each of them
        """
        stored = _in_order(hashes)
        order = np.argsort(stored, kind="stable")
        rows = rows.append_column("h", pa.array(stored)).take(pa.array(order))
        numbers, first = np.unique(self._ranges(stored[order]), return_index=True)
        ends = [*first[1:].tolist(), len(order)]
        for number, low, end in zip(numbers.tolist(), first.tolist(), ends, strict=True):
            self._add(number, rows.slice(low, end - low), int(more[order[low:end]].sum()))

    def reduce(self) -> None:
        """Drop the versions that count no longer, of all ranges."""
        for number in self.index:
            if self._log(number).segments:
                self._put_together(number, self.runs.contents(number).runs, [], self._log(number).rows, copies=False)

    def read(self) -> Iterator[pa.Table]:
        """The versions that count, some at a time."""
        for number in self.index:
            if self._log(number).segments:
                runs = self._stored(number, self.runs.contents(number).runs)
                yield from map(self.left, merged_parts(runs, self.runs.tuning.block_rows, _ORDER))

    def are_many(self, hashes: Hashes) -> bool:
        """Whether keys with these hashes are so many that `whole` and `replace` take less than `find` and `add`."""
        rows = self.index.totals().rows
        return _many(len(hashes), rows) and _many(count_keys(hashes), rows)

    def whole(self) -> pa.Table | None:
        """The versions that count, None if there are none. What counts must not change but by other versions."""
        parts: list[pa.Table] = []
        for number in self.index:
            stored = self.runs.contents(number).runs if self._log(number).segments else []
            runs = self._stored(number, stored)
            # A run alone has no versions of a key but one.
            left = self.left if len(runs) > 1 else _as_they_are
            parts += map(left, merged_parts(runs, self.runs.tuning.block_rows, _ORDER)) if runs else ()
        return concat_tables(parts) if parts else None

    def replace(self, rows: pa.Table, hashes: Hashes) -> None:
        """Let these rows, each of a key of its own, be all that there is."""
        stored = _in_order(hashes)
        order = np.argsort(stored, kind="stable")
        rows = rows.append_column("h", pa.array(stored)).take(pa.array(order))
        own, numbers = self._ranges(stored[order]), list(self.index) or [0]
        ends = np.searchsorted(own, numbers, side="right").tolist()
        for number, low, end in zip(numbers, [0, *ends], ends, strict=False):
            parts = self.runs.contents(number).runs if self._log(number).segments else []
            if low == end:
                self._empty(number, parts)
            else:
                came = InTable(rows.slice(low, end - low))
                self._let_be_all(number, parts, [came], end - low, _as_they_are, copies=False)

    def forget(self) -> None:
        """Drop all versions."""
        for number in list(self.index):
            if self._log(number).segments:
                self.runs.forget(number, self.runs.contents(number).runs)
            self.index.pop(number)

    # -- ranges ------------------------------------------------------------------------------------------------------

    def _log(self, number: int) -> Log:
        return self.index.get(number) or Log()

    def _ranges(self, stored: Ints) -> Ints:
        return self.index.floors(upper_halves(stored).astype(np.int64) + _SIGN)

    def _stored(self, number: int, parts: list[Part], first: int = 0) -> list[Sorted]:
        """These runs of a range, of which the first is at a segment."""
        return [self._fitted(self.runs.run(number, first + at, part)) for at, part in enumerate(parts)]

    def _fitted(self, run: Sorted) -> Sorted:
        return run if self.fitting is None else Fitted(run, self.fitting.inward)

    def _outward(self, rows: pa.Table) -> pa.Table:
        return rows if self.fitting is None else self.fitting.outward(rows)

    def _add(self, number: int, rows: pa.Table, more: int) -> None:
        """Take versions of a range, which are sorted by hash."""
        log, came = self._log(number), InTable(rows)
        parts = self.runs.contents(number).runs if log.segments else []
        before, count = sum(part.rows for part in parts), rows.num_rows
        kept, merged = unmerged(parts, count, before + count)
        if kept == 0 or before + count > 2 * log.base:
            self._put_together(number, parts, [came], log.rows + more, copies=not _many(count, log.rows))
            return
        runs = [*self._stored(number, merged, kept), came]
        made = self.runs.merged(runs) if self.fitting is None else self.runs.reduced(runs, self._outward)
        part = self.runs.write(number, range(kept, kept + max(1, len(merged))), merged, *made)
        self.runs.say(number, Contents([*parts[:kept], part], []))
        size = log.size + part.size - sum(gone.size for gone in merged)
        self.index[number] = log._replace(segments=kept + 1, rows=log.rows + more, size=size)

    def _put_together(self, number: int, parts: list[Part], came: list[Sorted], count: int, copies: bool) -> None:
        """Let what is left of the versions of a range be one run, or one of each part if `count` rows are too many.

        copies  whether there are to be copies of them
        """
        self._let_be_all(number, parts, [*self._stored(number, parts), *came], count, self.left, copies)

    def _let_be_all(
        self, number: int, parts: list[Part], runs: list[Sorted], count: int, left: Left, copies: bool
    ) -> None:
        """Let what is `left` of some runs be all that a range has, which has these parts so far."""
        cuts = self._cuts(number, runs, count)
        for low, end in zip([None, *cuts], [*cuts, None], strict=True):
            made = self.runs.reduced(runs, lambda rows: self._outward(left(rows)), (low, end), copies=copies)
            if low is None:
                self._let_be(number, parts, *made)
            else:
                self._let_be(low + _SIGN, [], *made)

    def _let_be(self, number: int, parts: list[Part], frame: bytes, rows: int, copy: Run | None) -> None:
        """Let a frame of so many rows be all that a range has, which has these parts so far."""
        if not rows:
            self._empty(number, parts)
            return
        part = self.runs.write(number, range(max(1, len(parts))), parts, frame, rows, copy)
        self.runs.say(number, Contents([part], []))
        self.index[number] = Log(segments=1, rows=rows, base=rows, size=part.size)

    def _empty(self, number: int, parts: list[Part]) -> None:
        self.index[number] = Log(windows=0)
        self.runs.forget(number, parts)

    def _cuts(self, number: int, runs: list[Sorted], count: int) -> list[int]:
        """The upper halves, as they are stored, at which a range with so many rows is cut."""
        most = self.runs.tuning.range_rows
        if count > (small := min(most, self.runs.tuning.bucket_rows)):
            # Of rows that have no copies a batch reads whole ranges.
            most = most if all(has_form(extent.type) for extent in runs[-1].columns.values()) else small
        if count <= most:
            return []
        parts = int(-(-count // max(1, most * FILLED)))
        high = max((run.high for run in runs), key=len)
        at = distinct(high[np.arange(1, parts) * len(high) // parts])
        found: list[int] = at[at.astype(np.int64) + _SIGN > number].tolist()
        return found


def last_versions(keys: Sequence[str], rows: pa.Table) -> pa.Table:
    """Of versions in the order in which they came the last one of each key, unless it says that there is no row."""
    last = rows.take(pa.array(last_rows(grouping.codes([rows[name] for name in keys]))))
    return last.filter(pc.invert(last["deleted"]))


def count_keys(hashes: Hashes) -> int:
    """How many keys these are the hashes of. (`np.unique` takes ten times as long.)"""
    return len(distinct(np.sort(_in_order(hashes))))


def _many(count: int, rows: int) -> bool:
    """Whether so many of some rows are asked for or change that their runs are decoded, and not copied."""
    return count * _OF_MANY >= rows


def _as_they_are(rows: pa.Table) -> pa.Table:
    return rows


def _in_order(hashes: Hashes) -> Ints:
    """Hashes as signed numbers of the same order."""
    found: Ints = (hashes ^ np.uint64(1 << 63)).view(np.int64)
    return found
