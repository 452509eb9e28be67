"""Versions of rows by key, as sorted runs in ranges of hashes of the key (`state.sorted_runs`).

A batch adds its versions as a run, and merges it with the last runs as long as these are no larger. A compaction merges
all runs of a range and drops obsolete versions. It happens when the range has 1.5 to 2 times the versions that it had
after its last compaction. It also cuts a range with many rows into several. The index has for each range: `rows`, the
number of current versions, as far as known; `base`, the number of versions after the last compaction.

    range from 0         run of a million versions | run of 30,000 | run of 1,000
    range from 2**31     run of 900,000 | run of 28,000 | run of 3,000 | run of 1,000

A range is named by the upper half of its first hash, as a bucket of `state.hash_tree` is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tidegate.kernel.columns import radix_sort
from tidegate.kernel.columns.arrays import Hashes, Ints, concat_tables
from tidegate.kernel.columns.groups import last_rows, neighbours
from tidegate.kernel.columns.hash64 import HALF_BITS
from tidegate.kernel.columns.row_bytes import Extents, has_form
from tidegate.kernel.rows import grouping
from tidegate.kernel.rows.schema_evolution import SchemaEvolution
from tidegate.kernel.state.copies import Run, distinct, upper_halves
from tidegate.kernel.state.hash_tree import FILLED
from tidegate.kernel.state.log_index import Log, LogIndex
from tidegate.kernel.state.run_merging import InTable, Sorted, merged_parts
from tidegate.kernel.state.sorted_runs import Contents, Current, Part, SortedRuns, unmerged
from tidegate.kernel.state.store import Store

_SIGN = 1 << 31
"""Upper halves are stored as signed numbers; with this added they number the ranges from 0 on."""

_ORDER = ("h",)

_OF_MANY = 2
"""A batch that touches one of so many rows of a range, or more, makes no copies of its runs: they would be wasted."""


@dataclass(frozen=True)
class Evolved:
    """A run whose rows `as_now` converts when they are read."""

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


class OfRange(NamedTuple):
    """New versions of a range, sorted by hash, and by how many rows they change the number of rows of the table."""

    number: int
    versions: pa.Table
    more: int


@dataclass(frozen=True)
class KeyedRuns:
    """The versions of one table, by range of hashes.

    current    the current versions of some keys; it is given all versions of these keys, in order of arrival
    evolution  converts stored rows to rows of the plan, where they differ
    """

    index: LogIndex
    runs: SortedRuns
    current: Current
    evolution: SchemaEvolution | None = None

    @classmethod
    def of(cls, index: LogIndex, store: Store, current: Current, evolution: SchemaEvolution | None = None) -> KeyedRuns:
        """The versions in a part of a store."""
        return cls(index, SortedRuns(store, _ORDER), current, evolution)

    def find(self, hashes: Hashes) -> Iterator[pa.Table]:
        """The versions of the keys with these hashes, for each key in order of arrival.

        Versions of some other keys may be among them.
        """
        asked = distinct(np.sort(_in_order(hashes)))
        ranges, first = np.unique(self._ranges(asked), return_index=True)
        for number, wanted in zip(ranges.tolist(), np.split(asked, first[1:]), strict=False):
            log = self._log(number)
            if log.segments:
                few = not _many(len(wanted), log.rows)
                for run in map(self._evolved, self.runs.every(number, keeps=few)):
                    if len(at := run.with_hashes(wanted)):
                        yield run.take(at)

    def divided(self, rows: pa.Table, hashes: Hashes, most: int) -> list[tuple[pa.Table, Hashes]]:
        """Rows and the hashes of their keys, by whole ranges with about `most` rows together; rows keep their order."""
        if len(hashes) <= most:
            return [(rows, hashes)]
        ranges = list(self.index) or [0]
        at = np.searchsorted(ranges, self._ranges(_in_order(hashes)))
        together = list(neighbours(np.bincount(at, minlength=len(ranges)), most))
        number = np.repeat(np.arange(len(together)), [high - low for low, high in together])[at]
        parts = radix_sort.split(rows, number, len(together))
        return [(part, hashes[number == one]) for one, part in enumerate(parts) if part.num_rows]

    def add(self, rows: pa.Table, hashes: Hashes, more: Ints) -> None:
        """Add versions in order of arrival; `hashes` are those of their keys.

        more  by how many rows each version changes the number of rows of the table
        """
        self.add_by_range(self.by_range(rows, hashes, more))

    def by_range(self, rows: pa.Table, hashes: Hashes, more: Ints) -> list[OfRange]:
        """Versions as `add` takes them, for `add_by_range`: a caller may free its own rows in between.

        One sort serves all ranges: a range is a slice of the sorted versions.
        """
        stored = _in_order(hashes)
        order = np.argsort(stored, kind="stable")
        rows = rows.append_column("h", pa.array(stored)).take(pa.array(order))
        numbers, first = np.unique(self._ranges(stored[order]), return_index=True)
        ends = [*first.tolist(), len(order)][1:]
        return [
            OfRange(number, rows.slice(low, end - low), int(more[order[low:end]].sum()))
            for number, low, end in zip(numbers.tolist(), first.tolist(), ends, strict=True)
        ]

    def add_by_range(self, added: Iterable[OfRange]) -> None:
        """Add the versions of each range."""
        for one in added:
            self._add(*one)

    def reduce(self) -> None:
        """Compact all ranges: drop obsolete versions."""
        for number in self.index:
            if self._log(number).segments:
                self._put_together(number, self.runs.contents(number).runs, [], self._log(number).rows, copies=False)

    def read(self) -> Iterator[pa.Table]:
        """The current versions, in blocks."""
        for number in self.index:
            if self._log(number).segments:
                runs = self._stored(number, self.runs.contents(number).runs)
                yield from map(self.current, merged_parts(runs, self.runs.tuning.block_rows, _ORDER))

    def are_many(self, hashes: Hashes) -> bool:
        """Whether these keys are so many that `whole` and `replace` take less time than `find` and `add`.

        Not if the table is so large that reading it whole takes much memory.
        """
        rows = self.index.totals().rows
        if not _many(len(hashes), rows):
            return False
        keys = count_keys(hashes)
        return _many(keys, rows) and rows + keys <= self.runs.tuning.read_whole_rows

    def whole(self) -> pa.Table | None:
        """The current versions, None if there are none. Nothing but a newer version may make a version obsolete."""
        parts: list[pa.Table] = []
        for number in self.index:
            stored = self.runs.contents(number).runs if self._log(number).segments else []
            runs = self._stored(number, stored)
            # A single run has one version of each key.
            current = self.current if len(runs) > 1 else _as_they_are
            parts += map(current, merged_parts(runs, self.runs.tuning.block_rows, _ORDER)) if runs else ()
        return concat_tables(parts) if parts else None

    def replace(self, rows: pa.Table, hashes: Hashes) -> None:
        """Replace all versions by these rows, one for each key."""
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
                new = InTable(rows.slice(low, end - low))
                self._let_be_all(number, parts, [new], end - low, _as_they_are, copies=False)

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
        """The runs of these parts of a range; `first` is the segment of the first part."""
        return [self._evolved(self.runs.run(number, first + at, part)) for at, part in enumerate(parts)]

    def _evolved(self, run: Sorted) -> Sorted:
        return run if self.evolution is None else Evolved(run, self.evolution.from_stored)

    def _to_stored(self, rows: pa.Table) -> pa.Table:
        return rows if self.evolution is None else self.evolution.to_stored(rows)

    def _add(self, number: int, rows: pa.Table, more: int) -> None:
        """Add versions to a range, sorted by hash: as a run, merged with small runs, or by a compaction."""
        log, new = self._log(number), InTable(rows)
        parts = self.runs.contents(number).runs if log.segments else []
        before, count = sum(part.rows for part in parts), rows.num_rows
        if before + count >= _versions_at_compaction(number, log.base):
            self._put_together(number, parts, [new], log.rows + more, copies=not _many(count, log.rows))
            return
        # The run of the last compaction waits for the next one.
        kept, merged = unmerged(parts[1:], count, before + count)
        kept += 1
        runs = [*self._stored(number, merged, kept), new]
        made = self.runs.merged(runs) if self.evolution is None else self.runs.reduced(runs, self._to_stored)
        part = self.runs.write(number, range(kept, kept + max(1, len(merged))), merged, *made)
        self.runs.say(number, Contents([*parts[:kept], part], []))
        size = log.size + part.size - sum(one.size for one in merged)
        self.index[number] = log._replace(segments=kept + 1, rows=log.rows + more, size=size)

    def _put_together(self, number: int, parts: list[Part], new: list[Sorted], count: int, copies: bool) -> None:
        """Compact a range: its current versions become one run, or several ranges if `count` rows are too many.

        copies  whether to make copies of the new runs
        """
        self._let_be_all(number, parts, [*self._stored(number, parts), *new], count, self.current, copies)

    def _let_be_all(
        self, number: int, parts: list[Part], runs: list[Sorted], count: int, current: Current, copies: bool
    ) -> None:
        """Replace the `parts` of a range by the `current` versions of `runs`, cut into several if too many."""
        cuts = self._cuts(number, runs, count)
        for low, end in zip([None, *cuts], [*cuts, None], strict=True):
            made = self.runs.reduced(runs, lambda rows: self._to_stored(current(rows)), (low, end), copies=copies)
            if low is None:
                self._let_be(number, parts, *made)
            else:
                self._let_be(low + _SIGN, [], *made)

    def _let_be(self, number: int, parts: list[Part], frame: bytes, rows: int, copy: Run | None) -> None:
        """Replace the `parts` of a range by a frame of so many rows."""
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
        """The upper halves, as stored, at which a range with `count` rows is cut into several."""
        most = self.runs.tuning.range_rows
        if count > (small := min(most, self.runs.tuning.bucket_rows)):
            # Rows that can have no copies are read by whole ranges.
            most = most if all(has_form(extent.type) for extent in runs[-1].columns.values()) else small
        if count <= most:
            return []
        parts = int(-(-count // max(1, most * FILLED)))
        high = max((run.high for run in runs), key=len)
        at = distinct(high[np.arange(1, parts) * len(high) // parts])
        found: list[int] = at[at.astype(np.int64) + _SIGN > number].tolist()
        return found


def last_versions(keys: Sequence[str], rows: pa.Table) -> pa.Table:
    """The last version of each key, of versions in order of arrival; none for a key whose last one is `deleted`."""
    last = rows.take(pa.array(last_rows(grouping.codes([rows[name] for name in keys]))))
    return last.filter(pc.invert(last["deleted"]))


def count_keys(hashes: Hashes) -> int:
    """The number of distinct hashes. (`np.unique` takes ten times as long.)"""
    return len(distinct(np.sort(_in_order(hashes))))


def _many(count: int, rows: int) -> bool:
    """Whether a batch touches so many of these rows that it decodes their runs and makes no copies."""
    return count * _OF_MANY >= rows


def _versions_at_compaction(number: int, base: int) -> int:
    """The number of versions at which a range is compacted that had `base` after its last compaction.

    Ranges grow alike, and one batch should not compact all of them. So the first range may have twice its versions, and
    the last one 1.5 times.
    """
    return 2 * base - (base * number >> HALF_BITS + 1)


def _as_they_are(rows: pa.Table) -> pa.Table:
    return rows


def _in_order(hashes: Hashes) -> Ints:
    """Hashes as signed numbers of the same order."""
    found: Ints = (hashes ^ np.uint64(1 << 63)).view(np.int64)
    return found
