"""The versions of the rows of a table in a join, as sorted runs in ranges of hashes of the key (`joins.sorted_runs`).

A batch adds its versions as a run. Those that count no longer are dropped when all runs of a range become one: when the
last run has grown as large as those before it, and at the latest when the range has twice the versions that it had
after it was last put together. A range with many rows is cut into several then. The index has of each range: `rows`,
how many count, as far as that is known; `base`, how many there were when it was last put together.

    range from 0         run of a million versions | run of 30,000 | run of 1,000
    range from 2**31     run of 900,000 | run of 28,000 | run of 3,000 | run of 1,000

A range is named by the upper half of its first hash, as a bucket of `state.hash_tree` is.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from tidegate.kernel.columns.arrays import Ints
from tidegate.kernel.joins.copies import distinct, upper_halves
from tidegate.kernel.joins.run_merging import Between, InTable, Sorted, merged_parts
from tidegate.kernel.joins.sorted_runs import Contents, Left, Part, SortedRuns
from tidegate.kernel.joins.sorted_runs import unmerged as unmerged_runs
from tidegate.kernel.state.hash_tree import FILLED, Hashes
from tidegate.kernel.state.log_index import Log, LogIndex
from tidegate.kernel.state.state import State
from tidegate.kernel.state.store import Section
from tidegate.kernel.state.tables import TABLE_LEFT, TABLE_RIGHT
from tidegate.spec.windows import LEFT

_SIGN = 1 << 31
"""An upper half is stored as a signed number: the smallest is that of the first range."""

_ORDER = ("h",)


@dataclass(frozen=True)
class TableRuns:
    """The versions of one table, by range of hashes."""

    index: LogIndex
    runs: SortedRuns

    @classmethod
    def of(cls, state: State, side: int) -> TableRuns:
        """The table on a side of a join."""
        index, table = (state.logs, TABLE_LEFT) if side == LEFT else (state.right, TABLE_RIGHT)
        return cls(index, SortedRuns(Section(state.store, table), _ORDER))

    def find(self, hashes: Hashes) -> Iterator[pa.Table]:
        """The versions of the keys with these hashes, those of a key in the order in which they came.

        Versions of some other keys may be among them.
        """
        asked = np.unique(_stored(hashes))
        ranges, first = np.unique(self._ranges(asked), return_index=True)
        for number, wanted in zip(ranges.tolist(), np.split(asked, first[1:]), strict=False):
            for run in self.runs.every(number) if self._log(number).segments else ():
                if len(at := run.with_hashes(wanted)):
                    yield run.take(at)

    def add(self, rows: pa.Table, hashes: Hashes, more: Ints, left: Left) -> None:
        """Take versions in the order in which they came, of keys with these hashes.

        more  how many rows more the table has by each of them
        left  which of the versions of some keys count
        """
        stored = _stored(hashes)
        own = self._ranges(stored)
        order = np.argsort(own, kind="stable")
        rows = rows.append_column("h", pa.array(stored)).take(pa.array(order))
        numbers, first = np.unique(own[order], return_index=True)
        ends = [*first[1:].tolist(), len(order)]
        for number, low, end in zip(numbers.tolist(), first.tolist(), ends, strict=True):
            self._add(number, rows.slice(low, end - low), int(more[order[low:end]].sum()), left)

    def reduce(self, left: Left) -> None:
        """Drop the versions that count no longer, of all ranges."""
        for number in self.index:
            if self._log(number).segments:
                self._put_together(number, self.runs.contents(number).runs, [], self._log(number).rows, left)

    def read(self, left: Left) -> Iterator[pa.Table]:
        """The versions that count, some at a time."""
        for number in self.index:
            if self._log(number).segments:
                parts = self.runs.contents(number).runs
                runs = [self.runs.run(number, at, part) for at, part in enumerate(parts)]
                yield from map(left, merged_parts(runs, self.runs.tuning.block_rows, _ORDER))

    # -- ranges ------------------------------------------------------------------------------------------------------

    def _log(self, number: int) -> Log:
        return self.index.get(number) or Log()

    def _ranges(self, stored: Ints) -> Ints:
        return self.index.floors(upper_halves(stored).astype(np.int64) + _SIGN)

    def _add(self, number: int, rows: pa.Table, more: int, left: Left) -> None:
        log, came = self._log(number), InTable.of(rows, _ORDER)
        parts = self.runs.contents(number).runs if log.segments else []
        before, count = sum(part.rows for part in parts), rows.num_rows
        kept, merged = unmerged_runs(parts, count, before + count)
        if kept == 0 or before + count > 2 * log.base:
            self._put_together(number, parts, [came], log.rows + more, left)
            return
        runs: list[Sorted] = [self.runs.run(number, kept + at, part) for at, part in enumerate(merged)]
        segments = range(kept, kept + max(1, len(merged)))
        part = self.runs.write(number, segments, merged, *self.runs.merged([*runs, came]))
        self.runs.say(number, Contents([*parts[:kept], part], []))
        size = log.size + part.size - sum(gone.size for gone in merged)
        self.index[number] = log._replace(segments=kept + 1, rows=log.rows + more, size=size)

    def _put_together(self, number: int, parts: list[Part], came: list[Sorted], count: int, left: Left) -> None:
        """Let what is left of the versions of a range be one run, or one of each part if `count` rows are too many."""
        runs = [*(self.runs.run(number, at, part) for at, part in enumerate(parts)), *came]
        cuts = self._cuts(number, runs, count)
        for low, end in zip([None, *cuts], [*cuts, None], strict=True):
            if low is None:
                self._let_be(number, parts, runs, (low, end), left)
            else:
                self._let_be(low + _SIGN, [], runs, (low, end), left)

    def _let_be(self, number: int, parts: list[Part], runs: list[Sorted], between: Between, left: Left) -> None:
        """Let what is left of some runs be all that a range has, which has these parts so far."""
        frame, rows, copy = self.runs.reduced(runs, left, between)
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
        if count <= most:
            return []
        parts = int(-(-count // max(1, most * FILLED)))
        high = max((run.high for run in runs), key=len)
        at = distinct(high[np.arange(1, parts) * len(high) // parts])
        found: list[int] = at[at.astype(np.int64) + _SIGN > number].tolist()
        return found


def _stored(hashes: Hashes) -> Ints:
    """Hashes as signed numbers of the same order."""
    found: Ints = (hashes ^ np.uint64(1 << 63)).view(np.int64)
    return found
