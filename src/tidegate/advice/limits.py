"""The effect of a time limit: the updates that `until_time_limit` saves, and how long the other ones wait.

A recording is processed record by record: each record updates its key, or each of its open windows. The rules are those
of SEMANTICS 6.2, with a limit by stream time from the first waiting update on.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from heapq import heappop, heappush
from html import escape
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from tidegate.advice.counts import Counts
from tidegate.advice.here import InOrder
from tidegate.advice.keys import numbered_keys
from tidegate.advice.question import Question, several
from tidegate.advice.recorded import Recorded
from tidegate.advice.text import aligned, number, share, short
from tidegate.errors import DefinitionTypeError, in_one_line
from tidegate.instants import Duration, later_ms, rounded_up, show_ms
from tidegate.kernel.columns.arrays import Ints
from tidegate.kernel.columns.runs import expanded
from tidegate.kernel.columns.sorting import by_columns
from tidegate.kernel.rows.results import serial
from tidegate.kernel.time.panes import Panes
from tidegate.kernel.time.stream_time import NEVER
from tidegate.spec.suppressed import BufferConfig, Suppressed
from tidegate.spec.windows import TimeWindows

_SHARES = (0.25, 0.5, 0.75, 0.9, 0.99)


@dataclass(frozen=True)
class LimitCost:
    """The effect of a time limit on the updates; times in ms.

    Attributes:
        limit: The time limit.
        max_records: The bound of the buffer, which emits rows early when it is full; None for none.
        rows: The number of rows that leave before the recording ends.
        early: The number of these rows that leave because the buffer is full.
        waiting: The number of rows that still wait at the end.
        saved: The share of the updates that never leave.
        wait: The median wait of a row in stream time, from its first update on; None if no row left.
        wait_p95: The 95 % quantile of these waits.
        most: The most rows that waited at once. A larger bound changes nothing.
    """

    limit: int
    max_records: int | None
    rows: int
    early: int
    waiting: int
    saved: float
    wait: float | None
    wait_p95: int | None
    most: int


@dataclass(frozen=True)
class LimitAdvice:
    """The updates of a recording that time limits save.

    Attributes:
        windows: The windows; None for groups without windows.
        records: The number of records that are not skipped.
        skipped: The number of other records, by reason.
        updates: The number of updates that the records make.
        costs: The effect of each limit, and of each bound of its buffer.

    Examples:
        >>> prices = pa.table({"article": ["A", "A", "B", "A", "A"], "ts": [2_000, 6_000, 9_000, 11_000, 16_000]})
        >>> found = tg.advise_limit(prices, key="article", timestamp="ts", limits=["10 seconds"])
        >>> (found.updates, found.costs[0].rows, found.costs[0].waiting, found.costs[0].saved)
        (5, 1, 1, 0.6)
    """

    windows: str | None
    records: int
    skipped: dict[str, int]
    updates: int
    costs: list[LimitCost]

    def json(self) -> str:
        """All numbers.

        Returns:
            JSON.

        Examples:
            >>> prices = pa.table({"article": ["A"], "ts": [2_000]})
            >>> tg.advise_limit(prices, key="article", timestamp="ts").json()[:13]
            '{"format": 1,'
        """
        return json.dumps({"format": 1} | asdict(self))

    def __str__(self) -> str:
        skipped = ", ".join(f"{number(many)} {reason}" for reason, many in self.skipped.items() if many)
        of = "Updates of groups" if self.windows is None else f"Updates of {self.windows}"
        lines = [f"{of}: {number(self.records)} records" + (f" (skipped: {skipped})" if skipped else "")]
        lines.append(f"  They make {number(self.updates)} updates, one by one. Waits are in stream time.")
        if not self.costs:
            return "\n".join(lines)
        rows = [("limit", "max_records", "rows leave", "full", "saved", "a row waits", "(95 %)", "wait at once")]
        rows += [
            (
                short(cost.limit),
                "no bound" if cost.max_records is None else number(cost.max_records),
                number(cost.rows),
                number(cost.early),
                share(cost.saved),
                short(cost.wait),
                short(cost.wait_p95),
                number(cost.most),
            )
            for cost in self.costs
        ]
        return "\n".join([*lines, "", *aligned(rows)])

    def _repr_html_(self) -> str:
        return f"<pre>{escape(str(self))}</pre>"


@dataclass(frozen=True)
class LimitQuestion:
    """The question of `tg.advise_limit`. `about` says how to read the recording; its windows count only if `windowed`.
    `limits` in ms.
    """

    about: Question
    windowed: bool
    limits: tuple[int, ...]
    bounds: tuple[int, ...]

    @property
    def windows(self) -> TimeWindows | None:
        """The windows; None for groups without windows."""
        windows = self.about.windows
        return windows if self.windowed and isinstance(windows, TimeWindows) else None


def question(
    key: str | Sequence[str],
    timestamp: str,
    windows: Any,
    *,
    limits: Sequence[Duration] | None = None,
    bounds: Sequence[int] | None = None,
    **order: Any,
) -> LimitQuestion:
    """The checked question. Raises DefinitionError or DefinitionTypeError."""
    if windows is not None and not isinstance(windows, TimeWindows):
        raise DefinitionTypeError(
            f"`windows` is {in_one_line(windows)}. Time limits are looked at of tumbling and hopping windows: use "
            "tg.TimeWindows.of_size_and_grace(size, grace), or leave windows= out for groups without windows."
        )
    about = Question.of(key, timestamp, windows or TimeWindows.of_size_with_no_grace("1 day"), **order)
    about = replace(about, skips_null_values=windows is None)
    many = [BufferConfig.max_records(bound).max_records for bound in several(bounds, "max_records")]
    unbounded = BufferConfig.unbounded()
    limited = [
        Suppressed.until_time_limit(limit, unbounded, clock="stream").limit_ms for limit in several(limits, "limits")
    ]
    return LimitQuestion(
        about, windows is not None, tuple(limited), tuple(bound for bound in many if bound is not None)
    )


def advise_updates(asked: LimitQuestion, records: pa.Table) -> LimitAdvice:
    """The advice about an Arrow table. Raises the errors of `Recorded.of`."""
    recorded = Recorded.of(asked.about, records)
    read = InOrder.of(asked.about, recorded)
    ts = read.records.ts
    now = np.maximum.accumulate(ts)
    before = np.concatenate((np.full(1, NEVER), now))[:-1]
    updates = Updates.of(asked.windows, Taken(np.arange(len(now)), ts, before, now), _ranks(read.rows))
    costs = []
    for limit in sorted(set(asked.limits or usual(Counts.of(updates.between)))):
        costs.append(_without_bound(updates, limit, Reached.of(now, np.arange(len(now)))))
        costs += [_cost(updates, limit, bound) for bound in sorted(set(asked.bounds), reverse=True)]
    return advice_of(asked, len(now), recorded.skipped, len(updates.name), costs)


def advice_of(
    asked: LimitQuestion, records: int, skipped: dict[str, int], updates: int, costs: list[LimitCost]
) -> LimitAdvice:
    """The advice about a recording, from the numbers of its records and updates and the costs of the limits."""
    windows = asked.windows
    said = None if windows is None else f"{windows}, grace {show_ms(windows.grace_ms)}"
    return LimitAdvice(said, records, skipped, updates, costs if updates else [])


def usual(between: Counts) -> list[int]:
    """Round limits (ms), from the times between two updates of a name; empty without such times."""
    return [rounded_up(2 * between.quantile(part)) or 1 for part in _SHARES] if between.total else []


class Taken(NamedTuple):
    """Records in order: the position of each among all (`rank`), its timestamp, stream time before and after it; ms."""

    rank: Ints
    ts: Ints
    before: Ints
    now: Ints


@dataclass(frozen=True)
class Reached:
    """The stream times of a recording (`time`, ascending, ms), and the `rank` of the first record that reached each."""

    time: Ints
    rank: Ints

    @classmethod
    def of(cls, now: Ints, rank: Ints) -> Reached:
        """From the stream time after each record, ascending."""
        first = np.flatnonzero(np.diff(now, prepend=NEVER))
        return cls(now[first], rank[first])


@dataclass(frozen=True)
class Updates:
    """Updates one by one.

    name           the number of the key and window; rows of one buffer time leave in the order of these numbers
    rank           the rank of the record that makes the update
    since          the timestamp of the row: the largest of its key and window so far (ms)
    before, now    stream time before and after the record (ms)
    """

    name: Ints
    rank: Ints
    since: Ints
    before: Ints
    now: Ints

    @property
    def between(self) -> Ints:
        """The times between two updates of a name (ms)."""
        order = np.argsort(self.name, kind="stable")
        same = self.name[order][1:] == self.name[order][:-1]
        return np.diff(self.since[order])[same]

    def __iter__(self) -> Iterator[tuple[int, int, int, int]]:
        columns = (self.name, self.since, self.before, self.now)
        return zip(*(column.tolist() for column in columns), strict=True)

    @classmethod
    def of(cls, windows: TimeWindows | None, came: Taken, key: Ints) -> Updates:
        """The updates of all records of some keys. `key`: a number per record."""
        record, start = np.arange(len(came.ts)), np.zeros(len(came.ts), np.int64)
        if windows is not None:
            record, start = _windows_of(windows, came.ts, came.now)
        _, name = np.unique(np.stack([key[record], start]), axis=1, return_inverse=True)
        name = np.asarray(name, np.int64).reshape(-1)
        order = np.argsort(name, kind="stable")
        since = np.empty(len(order), np.int64)
        # A running maximum per name, for all names at once: (name, index of the timestamp) as one number.
        distinct, place = np.unique(came.ts[record][order], return_inverse=True)
        most = np.maximum.accumulate(name[order] * len(distinct) + place)
        since[order] = distinct[most % max(len(distinct), 1)]
        # In a record with several windows, stream time advances at the first one.
        again = np.diff(record, prepend=-1) == 0
        seen = np.where(again, came.now[record], came.before[record])
        return cls(name, came.rank[record], since, seen, came.now[record])


def _windows_of(windows: TimeWindows, ts: Ints, now: Ints) -> tuple[Ints, Ints]:
    """(record, start) of every open window of each record, in the order of the updates."""
    panes = Panes(windows)
    pane = panes.pane(ts)
    first = panes.first_window(pane)
    many = (panes.last_window(pane) - first) // windows.advance_ms + 1
    record, start = np.repeat(np.arange(len(ts)), many), expanded(first, many, windows.advance_ms)
    is_open = start >= panes.first_open(now)[record]
    return record[is_open], start[is_open]


def _ranks(rows: pa.Table) -> Ints:
    """A number per record: the rank of its key by serialized key."""
    number, keys = numbered_keys(rows)
    order = by_columns(pa.table({name: serial(keys.rows[name]) for name in keys.rows.schema.names})).to_numpy()
    rank = np.empty(len(keys), np.int64)
    rank[order] = np.arange(len(keys))
    return rank[number]


@dataclass(frozen=True)
class Waited:
    """Rows of a buffer without a bound: the waits of the rows that left (`waits`, ms), the number of rows that wait at
    the end (`waiting`), and the ranks of the records at which rows `entered` and `left`.
    """

    waits: Ints
    waiting: int
    entered: Ints
    left: Ints

    @classmethod
    def of(cls, updates: Updates, limit: int, reached: Reached) -> Waited:
        """The waits with a limit (ms). Without a bound each row leaves by stream time alone, whatever others do."""
        order = np.argsort(updates.name, kind="stable")
        due = np.asarray(later_ms(updates.since, limit), np.int64)
        first = order[_first_of_rows(updates, order, due)]
        entered, place = updates.rank[first], np.searchsorted(reached.time, due[first])
        leaves = place < len(reached.time)
        first, place = first[leaves], place[leaves]
        time = np.maximum(reached.time[place], updates.now[first])
        left = np.maximum(reached.rank[place], updates.rank[first])
        return cls(np.maximum(time - updates.since[first], 0), int((~leaves).sum()), entered, left)


def _first_of_rows(updates: Updates, order: Ints, due: Ints) -> Ints:
    """The positions in `order` (by name) of updates that find no row of their name in the buffer."""
    found: list[int] = []
    last, until = -1, NEVER
    columns = (updates.name, due, updates.before, updates.now)
    for place, (name, end, before, now) in enumerate(zip(*(column[order].tolist() for column in columns), strict=True)):
        if name != last or until <= before:
            found.append(place)
            last, until = name, end
        if until <= now:
            # The row leaves together with this update.
            until = NEVER
    return np.array(found, np.int64)


def most_of(entered: Ints, left: Ints) -> tuple[int, int]:
    """The number of rows that entered minus the number that left, at the end; and its maximum over the records."""
    rank, place = np.unique(np.concatenate((entered, left)), return_inverse=True)
    steps = np.bincount(place[: len(entered)], minlength=len(rank)) - np.bincount(
        place[len(entered) :], minlength=len(rank)
    )
    return int(steps.sum()), int(np.cumsum(steps).max(initial=0))


def _without_bound(updates: Updates, limit: int, reached: Reached) -> LimitCost:
    rows = Waited.of(updates, limit, reached)
    _, most = most_of(rows.entered, rows.left)
    return cost_of(limit, None, Counts.of(rows.waits), 0, rows.waiting, most, len(updates.name))


def _cost(updates: Updates, limit: int, bound: int) -> LimitCost:
    found = _simulated(updates, limit, bound)
    waits = Counts.of(np.array(found.waits, np.int64))
    return cost_of(limit, bound, waits, found.early, found.waiting, found.most, len(updates.name))


def cost_of(
    limit: int, bound: int | None, waits: Counts, early: int, waiting: int, most: int, updates: int
) -> LimitCost:
    """The cost of a limit, from the waits of rows and their numbers."""
    return LimitCost(
        limit=limit,
        max_records=bound,
        rows=waits.total,
        early=early,
        waiting=waiting,
        saved=1 - (waits.total + waiting) / max(updates, 1),
        wait=waits.median(),
        wait_p95=waits.quantile(0.95) if waits.total else None,
        most=most,
    )


class _Simulated(NamedTuple):
    """The work of a bounded buffer.

    waits    the waits of rows that left (ms)
    early    the number of rows that left because the buffer was full
    waiting  the number of rows that wait at the end
    most     the most rows that waited at once
    """

    waits: list[int]
    early: int
    waiting: int
    most: int


def _simulated(updates: Updates, limit: int, bound: int) -> _Simulated:
    """Updates, one by one, in front of a bounded buffer."""
    buffer: set[int] = set()
    oldest: list[tuple[int, int]] = []
    waits: list[int] = []
    early = most = 0

    def pop(now: int) -> None:
        since, name = heappop(oldest)
        buffer.remove(name)
        waits.append(max(now - since, 0))

    for name, since, before, now in updates:
        while oldest and oldest[0][0] <= before - limit:
            pop(before)
        if name not in buffer:
            buffer.add(name)
            heappush(oldest, (since, name))
        while oldest and oldest[0][0] <= now - limit:
            pop(now)
        most = max(most, len(buffer))
        while len(buffer) > bound:
            pop(now)
            early += 1
    return _Simulated(waits, early, len(buffer), min(most, bound))
