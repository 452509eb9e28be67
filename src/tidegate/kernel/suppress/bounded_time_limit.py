"""Applies updates to the bounded buffer of a time limit.

A batch that never fills the buffer is applied at once (`kernel.suppress.within_bound`). Any other batch is applied one
update after the other, because each update may evict entries.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa

from tidegate.kernel.columns.arrays import Ints, concat_tables, ints
from tidegate.kernel.columns.groups import Groups
from tidegate.kernel.exchange.batch import MadeWindows
from tidegate.kernel.rows import result_keys
from tidegate.kernel.rows.layout import Layout
from tidegate.kernel.state.state import State
from tidegate.kernel.suppress import buffer_entries, strict_bound, suppression_metrics, within_bound
from tidegate.kernel.suppress.bounded_buffer import Bounded, Entry, Waited
from tidegate.kernel.suppress.buffer_entries import Sizes
from tidegate.kernel.suppress.suppression_metrics import SIZE, Evicted
from tidegate.kernel.suppress.time_buckets import BUFFER_TIME, due_until


def apply(
    layout: Layout,
    state: State,
    buffered: pa.Table,
    rows: pa.Table,
    clocks: Ints,
    made: MadeWindows | None,
    closed_through: int,
) -> tuple[Evicted, pa.Table]:
    """Put rows into a bounded buffer. Returns the rows that leave, in order, and the entries that stay.

    buffered  the waiting entries, in the order in which they leave
    clocks    the clock of the limit (ms) before and after each row, alternating, and at the end
    made      windows that the batch made of other windows
    closed_through  no further row comes of windows that close up to this stream time (ms)
    """
    if buffer_entries.counts_bytes(layout):
        rows = buffer_entries.with_prior(layout, state, rows, made, closed_through)
    both = concat_tables([buffered, rows])
    outcome = within_bound.apply(layout, state, both, buffered.num_rows, clocks) or _one_by_one(
        layout, state, both, buffered.num_rows, clocks
    )
    suppression_metrics.record_peaks(state, layout.op.limit.buffer, *outcome.most)
    return outcome.evicted, outcome.retained


def _one_by_one(layout: Layout, state: State, both: pa.Table, waited: int, clocks: Ints) -> within_bound.Outcome:
    buffer = Updates(layout, state, both, waited)
    leaving: list[int] = []
    times = zip(map(int, clocks[:-1:2]), map(int, clocks[1::2]), strict=True)
    for row, (before, now) in enumerate(times, waited):
        leaving += buffer.advance(before)
        leaving += buffer.apply(row, now)
    leaving += buffer.advance(int(clocks[-1]))
    since, shown = np.array(buffer.evicted, np.int64).reshape(-1, 2).T
    evicted = Evicted(both.take(pa.array(leaving, pa.int64())), since, shown)
    retained = buffer_entries.staying(both, buffer.waiting.entries())
    return within_bound.Outcome(evicted, retained, buffer.waiting.most)


class Updates:
    """Puts updates one by one into a bounded buffer. Rows are numbered: waiting entries first, then the new rows."""

    def __init__(self, layout: Layout, state: State, rows: pa.Table, waited: int) -> None:
        self.how = layout.op.limit
        self.layout = layout
        self.state = state
        self.since = ints(rows[BUFFER_TIME])
        self.names = result_keys.Names(layout, rows)
        self.keys = _first_of(result_keys.codes(layout, rows))
        self.sizes = Sizes(layout, rows)
        sizes = ints(rows[SIZE].slice(0, waited))
        bound = self.how.buffer.share(state.task, state.tasks)
        self.evicted: list[tuple[int, int]] = []
        """(buffer time, clock of the limit when it left) of each row that has left (ms)."""
        self.waiting = Bounded(bound, Waited(self.since[:waited], sizes, self.names.of))

    def apply(self, row: int, now: int) -> Iterator[int]:
        """Put an update that came when the clock of the limit was at `now`. Yields the rows that leave."""
        self.put(row)
        yield from self.advance(now)
        yield from self._shrink(now)

    def put(self, row: int) -> None:
        """Make a row the entry of its key."""
        key, time, first, waited = int(self.keys[row]), int(self.since[row]), row, 0
        waits = self.waiting.get(key)
        if waits is not None:
            first, waited = waits.prior, self.sizes.values[waits.row]
            time = time if self.how.measured_from == "latest_update" else waits.time
        size = int(self.sizes.of(row, first, waited))
        self.waiting.put(key, self.names.of(row), Entry(time, row, first, size))

    def advance(self, now: int) -> Iterator[int]:
        """Remove and yield the rows whose limit is reached when the clock of the limit is at `now`, oldest first."""
        until = due_until(now, self.how.limit_ms)
        while (oldest := self.waiting.oldest()) is not None and oldest[1] <= until:
            yield self._pop(oldest[0], now)

    def _shrink(self, now: int) -> Iterator[int]:
        while self.waiting.over:
            if self.waiting.bound.strategy == "shut_down":
                remedy = "a larger bound, a shorter limit or emit_early_when_full()"
                raise strict_bound.full(self.layout, self.state, self.waiting.records, self.waiting.size, remedy)
            oldest = self.waiting.oldest()
            assert oldest is not None
            yield self._pop(oldest[0], now)

    def _pop(self, key: int, now: int) -> int:
        entry = self.waiting.pop(key)
        self.evicted.append((entry.time, now))
        return entry.row


def _first_of(codes: Ints) -> Ints:
    """For each row the first row with the same code."""
    groups = Groups.of(codes)
    return groups.first[groups.number]
