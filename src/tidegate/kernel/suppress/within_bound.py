"""A batch that never fills a bounded buffer: the same rows leave as without a bound, and the content is counted.

Only the count shows whether the buffer was filled: it is taken after each update, over all entries that still wait.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pyarrow as pa

from tidegate.kernel.columns.arrays import Ints, ints
from tidegate.kernel.rows import result_keys
from tidegate.kernel.rows.layout import Layout
from tidegate.kernel.state.state import State
from tidegate.kernel.suppress import buffer_entries
from tidegate.kernel.suppress.bounded_buffer import Entries, exceeds
from tidegate.kernel.suppress.buffer_entries import Sizes
from tidegate.kernel.suppress.suppression_metrics import SIZE, Evicted
from tidegate.kernel.suppress.time_buckets import BUFFER_TIME, expire


class Outcome(NamedTuple):
    """The result of a batch in a bounded buffer.

    evicted   the rows that leave, in order
    retained  the entries that stay, in the order in which they would leave
    most      the largest number of records and of bytes, each taken after a put (SEMANTICS 10)
    """

    evicted: Evicted
    retained: pa.Table
    most: tuple[int, int]


def apply(layout: Layout, state: State, both: pa.Table, waited: int, clocks: Ints) -> Outcome | None:
    """Put rows into a bounded buffer; None if they would exceed the bound.

    both    the `waited` entries that wait, then the new rows
    clocks  the clock of the limit (ms) before and after each row, alternating, and at the end
    """
    how = layout.op.limit
    codes, since = result_keys.codes(layout, both), ints(both[BUFFER_TIME])
    # Row i comes between the clock at 2 i and the clock at 2 i + 1.
    step = np.concatenate([np.full(waited, -1), 2 * np.arange(both.num_rows - waited) + 1])
    restarts = how.measured_from == "latest_update"
    expired, rest = expire(codes, step, since, clocks, how.limit_ms, restarts)
    first, before = _in_turn(codes, np.concatenate([expired.rows, rest.rows]))
    sizes = _sizes(Sizes(layout, both), ints(both[SIZE].slice(0, waited)), first, before)
    new_rows = slice(waited, None)
    new = before[new_rows] < 0
    grown = sizes[new_rows] - np.where(new, 0, sizes[before[new_rows]])
    most = (
        _most(waited, new.astype(np.int64), expired.steps, np.ones(len(expired.rows), np.int64)),
        _most(int(sizes[:waited].sum()), grown, expired.steps, sizes[expired.rows]),
    )
    if exceeds(how.buffer.share(state.task, state.tasks), *most):
        return None
    leaving = both.take(pa.array(expired.rows))
    order = result_keys.in_order(layout, leaving, expired.since, expired.steps)
    evicted = Evicted(leaving.take(order), expired.since[order], clocks[expired.steps[order]])
    keys = both.select(result_keys.columns(layout)).take(pa.array(rest.rows))
    at = np.asarray(result_keys.in_order(layout, keys, rest.since))
    rows = rest.rows[at]
    return Outcome(evicted, buffer_entries.staying(both, Entries(rows, first[rows], rest.since[at], sizes[rows])), most)


def _in_turn(codes: Ints, last: Ints) -> tuple[Ints, Ints]:
    """For each row the first row of its entry, and the row before it in the entry, -1 if it is the first.

    last  the row of each entry that left or stays; a later row of its key belongs to another entry
    """
    order = np.argsort(codes, kind="stable")
    ends = np.zeros(len(codes), np.bool_)
    ends[last] = True
    begins = np.append(True, ends[order[:-1]])[: len(codes)]
    place = np.arange(len(codes))
    first, before = np.empty(len(codes), np.int64), np.empty(len(codes), np.int64)
    first[order] = order[np.maximum.accumulate(np.where(begins, place, 0))]
    before[order] = np.where(begins, -1, order[place - 1])
    return first, before


def _sizes(of: Sizes, waited: Ints, first: Ints, before: Ints) -> Ints:
    """The bytes of the entry after each row; `waited` are those of the waiting entries."""
    new_rows = np.arange(len(waited), len(first))
    replaced = np.where(before[new_rows] < 0, 0, of.values[before[new_rows]])
    return np.concatenate([waited, of.of(new_rows, first[new_rows], replaced)])


def _most(waited: int, grown: Ints, steps: Ints, sizes: Ints) -> int:
    """The largest total after a row: `waited`, `grown` by each new row, less the `sizes` that left by then."""
    by_step = np.argsort(steps, kind="stable")
    removed = np.append(0, np.cumsum(sizes[by_step]))
    already = np.searchsorted(steps[by_step], 2 * np.arange(len(grown)), side="right")
    return int((waited + np.cumsum(grown) - removed[already]).max(initial=waited))
