"""Advice about an Arrow table in memory, computed in this process."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from tidegate.advice.advice import Advice, Found
from tidegate.advice.alerts import Alerting, count_alerts
from tidegate.advice.counts import Counts, Tally
from tidegate.advice.keyed_results import Recording, count_keyed
from tidegate.advice.keys import Keys, numbered_keys
from tidegate.advice.lateness import Records, lateness, parts
from tidegate.advice.order import MOST_PARTITIONS, Times, batches, delivered, in_order, see
from tidegate.advice.question import Question
from tidegate.advice.recorded import Recorded
from tidegate.advice.results import Grouped, RunningMax, count_keys, count_results
from tidegate.arguments import has
from tidegate.errors import InputError, in_one_line
from tidegate.kernel.columns.arrays import Ints, ints
from tidegate.kernel.columns.given import REFUSALS, as_arrow
from tidegate.kernel.columns.groups import neighbours
from tidegate.kernel.rows.grouping import lift, merge
from tidegate.kernel.rows.layout import Layout
from tidegate.kernel.time.window_graces import without_grace
from tidegate.spec.windows import KeyedWindows, TimeWindows

GUARDS_MS = (1_000, 10_000, 60_000, 300_000, 900_000, 3_600_000, 86_400_000)
"""Candidates for `max_future_skew` (ms): the shortest one that skips almost no record is used."""
CLOCKS_AHEAD = 0.001
"""The largest share of records that the guard may skip."""
PAIRS = 1 << 24
"""About how many (record, window) pairs are processed at once; a single key is never split."""
_SAMPLE = 20_000


def advise_table(question: Question, records: Any) -> Advice:
    """The advice about an Arrow table, or a frame that Arrow can read.

    Raises InputError if `records` is no table, and the errors of `Recorded.of`.
    """
    table = as_table(records)
    recorded = Recorded.of(question, table)
    read = InOrder.of(question, recorded)
    records = read.records
    tally = lateness(question.windows, records, question.exact)
    tally.number("with_slowest", int(records.seen.slowest is not None))
    found = Found(question, recorded.skipped, tally, recorded.partitions, read.guard, read.gaps, read.waited)
    choice = found.choice()
    graces = np.array(found.graces(choice), np.int64)
    points = RunningMax.of(records.seen.largest, records.wall)
    key = records.key, read.keys
    results = of_keys(question, read.rows, key, records.ts, records.seen.largest, points, graces)
    return found.advice(choice, results)


def of_keys(
    question: Question,
    rows: pa.Table,
    key: tuple[Ints, Keys],
    ts: Ints,
    seen: Ints,
    points: RunningMax,
    graces: Ints,
) -> Tally:
    """The counts of `advice.results` for these keys, from all of their records in the order of arrival.

    rows    k:, v: and ts columns
    key     the number of each row's key, and the keys by number
    ts      timestamps (ms); `seen` the stream times that the records saw (ms)
    graces  in ms
    """
    exact = np.unique(np.concatenate([graces, question.exact]))
    tally = Tally(exact)
    windows = question.windows
    overlap = -(-windows.size_ms // windows.advance_ms) if isinstance(windows, TimeWindows) else 1
    for chosen, low, high in _by_keys(key[0], len(key[1]), overlap):
        mine = rows if chosen is None else rows.take(pa.array(chosen))
        number, times, sees = (column if chosen is None else column[chosen] for column in (key[0], ts, seen))
        some = number - low, key[1].part(low, high)
        tally.merge(_of_some(question, mine, some, (times, sees), points, graces, exact))
    _sample_state(tally, Layout(question.operation, rows.schema), rows)
    return tally


def _of_some(
    question: Question,
    rows: pa.Table,
    key: tuple[Ints, Keys],
    times: tuple[Ints, Ints],
    points: RunningMax,
    graces: Ints,
    exact: Ints,
) -> Tally:
    """`of_keys` for keys that fit into memory; `times`: timestamps, and the stream times seen (ms)."""
    windows, listed = question.windows, [int(grace) for grace in graces]
    alerting = None
    if question.alert is not None:
        alerting = Alerting(Layout(question.operation, rows.schema), question.alert)
    tally = count_keys(windows, *key, *times, exact)
    if not isinstance(windows, TimeWindows):
        return tally.merge(count_keyed(Recording.of(windows, key[0], *times), points, listed, exact, alerting, rows))
    grouped = Grouped.of(without_grace(windows), key[0], *times)
    tally.merge(count_results(grouped, points, listed, exact))
    if alerting is not None:
        end = int(points.time[-1]) if len(points.time) else 0
        tally.merge(count_alerts(alerting, rows, times[1], grouped, listed, end, exact))
    return tally


def _by_keys(key: Ints, keys: int, overlap: int) -> Iterator[tuple[Ints | None, int, int]]:
    """Ranges of keys with at most about PAIRS pairs: (row numbers, first key, last key + 1); None means all rows."""
    if len(key) * overlap <= PAIRS:
        yield None, 0, keys
        return
    order, sizes = np.argsort(key, kind="stable"), np.bincount(key, minlength=keys)
    ends = np.append(0, np.cumsum(sizes))
    for low, high in neighbours(sizes, PAIRS // overlap):
        yield np.sort(order[ends[low] : ends[high]]), low, high


def _sample_state(tally: Tally, layout: Layout, rows: pa.Table) -> None:
    """Count the state rows of a sample of records, and their bytes before compression (`state_rows`, `state_bytes`)."""
    some = rows.slice(0, _SAMPLE)
    if not some.num_rows:
        return
    lifted = lift(layout, some)
    if isinstance(layout.op.windows, KeyedWindows):
        # Each window is its own row with its bounds, and each record makes at least one window for a while.
        tally.number("state_rows", some.num_rows)
        tally.number("state_bytes", lifted.select([*layout.keys, "ts", *layout.state]).nbytes + 16 * some.num_rows)
        return
    pane = layout.panes.pane(some["ts"].to_numpy())
    merged = merge(layout, lifted.append_column("pane", pa.array(pane)), ["pane", *layout.keys])
    tally.number("state_rows", merged.num_rows)
    tally.number("state_bytes", merged.nbytes)


@dataclass(frozen=True)
class InOrder:
    """A recording in the order in which its records are read.

    rows    the columns of the records
    keys    the keys by number
    gaps    the gaps between arrivals (ms); None without arrivals
    waited  the number of records that waited for a smaller offset
    guard   the guard of `guard_of` (ms)
    """

    records: Records
    rows: pa.Table
    keys: Keys
    gaps: Counts | None
    waited: int
    guard: int | None

    @classmethod
    def of(cls, question: Question, recorded: Recorded) -> InOrder:
        arrived = recorded.arrived
        ready, waited = delivered(arrived)
        batch = batches(ready, question.trigger_ms, len(arrived.ts))
        order = in_order(batch, arrived)
        arrived, batch = arrived.take(order), batch[order]
        ready = None if ready is None else ready[order]
        guard = future = None
        if ready is not None:
            guard = guard_of([int((arrived.ts > ready + ms).sum()) for ms in GUARDS_MS], len(batch))
            future = None if guard is None else arrived.ts > ready + guard
        partitions = len(recorded.partitions)
        slowest = 1 < partitions <= MOST_PARTITIONS and ready is not None
        seen, _ = see(arrived.ts, arrived.partition, batch, Times.at_start(partitions), future=future, slowest=slowest)
        wall = None if ready is None else wall_of(batch, ready, question.trigger_ms)
        part = parts(np.arange(len(batch)), len(batch))
        rows = recorded.rows.take(pa.array(order))
        key, keys = numbered_keys(rows)
        records = Records(key, arrived.ts, arrived.partition, part, seen, future, wall)
        gaps = None if ready is None else Counts.of(ints(pa.array(np.diff(np.sort(ready)))))
        return cls(records, rows, keys, gaps, waited, guard)


def wall_of(batch: Ints, ready: Ints, trigger_ms: int | None) -> Ints:
    """The time at which the batch of each record is done (ms): at the end of its trigger, or at once."""
    return ready if trigger_ms is None else (batch + 1) * trigger_ms


def guard_of(ahead: list[int], records: int) -> int | None:
    """The guard (ms), from the numbers of records further ahead than each of GUARDS_MS; None if no clock runs ahead."""
    if not ahead or not ahead[0]:
        return None
    fits = (ms for ms, many in zip(GUARDS_MS, ahead, strict=True) if many <= CLOCKS_AHEAD * records)
    return next(fits, GUARDS_MS[-1])


def as_table(records: Any) -> pa.Table:
    """The records as an Arrow table. Raises InputError if Arrow cannot read them."""
    why = ", which is no table"
    if has(records, "__arrow_c_stream__"):
        try:
            return as_arrow(records)
        except REFUSALS as error:
            why = f", which Arrow cannot read: {error}"
    raise InputError(
        f"The recording is {in_one_line(records)}{why}. Give an Arrow table, a pandas or polars frame, a static Spark "
        "DataFrame, or the path of a Parquet, CSV or JSON file."
    )
