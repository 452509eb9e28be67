"""The results of sliding windows and sessions with each grace.

If all windows of a part of the records are complete with a grace, they are the complete windows. The records of other
parts are replayed one by one for each grace, by the rules of the operators (`kernel.windows`).

Counts by name; G is a grace in ms. `results` (complete windows), `wait/G`, `stream_wait/G`, `open/G` and the counts of
alerts are as in `advice.results`. Besides these:
    out/G          rows that leave before the end of the recording
    incomplete/G   rows of `out/G` that lack a record of their complete window
    missing/G      complete windows that have closed without a row
    still_open/G   windows that are open when the recording ends
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa

from tidegate.advice.alerts import Alerting
from tidegate.advice.counts import Tally
from tidegate.advice.keyed import Complete, in_turn
from tidegate.advice.ordered import least
from tidegate.advice.results import RunningMax, count_leaving
from tidegate.kernel.columns.arrays import Flags, Ints
from tidegate.kernel.columns.groups import neighbours
from tidegate.kernel.columns.runs import expanded
from tidegate.kernel.rows.grouping import lift, merge
from tidegate.kernel.windows import sessions, sliding
from tidegate.kernel.windows.lineage import Entries
from tidegate.spec.windows import KeyedWindows, SessionWindows

Node = tuple[int, int, int, Any]
"""Content of a window: the sum of the marks of its records, the stream time (ms) that the first of them saw, the last
added record, and the node (or nodes) that it was added to."""
_MARKS = 2**64


@dataclass(frozen=True)
class Rows:
    """The windows that exist with a grace; times in ms.

    start, end, first   bounds, and the stream time that the first record saw
    window              the number of the complete window of a row; -1 for none
    whole               whether the row has all records of that window
    nodes               the content of rows that are not whole; None for the others
    """

    start: Ints
    end: Ints
    first: Ints
    window: Ints
    whole: Flags
    nodes: list[Node | None]


@dataclass(frozen=True)
class Recording:
    """Records of some keys in the order of arrival, with their complete windows; times in ms.

    mark    a random number per record: sums of marks identify sets of records
    first   per complete window, the stream time that the first of its records saw
    whole   per complete window, the sum of the marks of its records
    """

    windows: KeyedWindows
    ts: Ints
    seen: Ints
    complete: Complete
    mark: np.ndarray[tuple[int], np.dtype[np.uint64]]
    first: Ints
    whole: np.ndarray[tuple[int], np.dtype[np.uint64]]

    @classmethod
    def of(cls, windows: KeyedWindows, key: Ints, ts: Ints, seen: Ints) -> Recording:
        complete = Complete.of(windows, key, ts, seen)
        mark = np.random.default_rng(4713).integers(0, _MARKS, len(ts), np.uint64)
        up_to = np.concatenate((np.zeros(1, np.uint64), np.cumsum(mark[complete.order], dtype=np.uint64)))
        first = least(seen[complete.order], complete.low, complete.high)
        return cls(windows, ts, seen, complete, mark, first, up_to[complete.high] - up_to[complete.low])

    def rows(self, grace_ms: int) -> Rows:
        """The windows with a grace (ms) after all records have arrived."""
        complete = self.complete
        lacks = complete.needed > grace_ms
        same = np.flatnonzero(~lacks[complete.part_of_window])
        # A part with a single record has one window, or none if the record is late.
        found = list(self._replayed(lacks, grace_ms))
        columns: list[Any] = list(zip(*found, strict=True)) if found else [[]] * 6
        theirs = [np.array(column, np.int64) for column in columns[:4]]
        mine = [complete.start[same], complete.end[same], self.first[same], same]
        whole = np.array(columns[4], bool)
        nodes: list[Node | None] = [None] * len(same)
        nodes += [None if ok else node for ok, node in zip(columns[4], columns[5], strict=True)]
        start, end, first, window = (np.concatenate(both) for both in zip(mine, theirs, strict=True))
        return Rows(start, end, first, window, np.concatenate((np.ones(len(same), bool), whole)), nodes)

    def _replayed(self, parts: Flags, grace_ms: int) -> Iterator[tuple[int, int, int, int, bool, Node]]:
        """(start, end, first, window, whole, node) of each window of these parts, as in `Rows`."""
        windows, complete = replace(self.windows, grace_ms=grace_ms), self.complete
        # Both functions have the same signature, but for the kind of windows.
        take: Any = sessions.apply if isinstance(windows, SessionWindows) else sliding.apply
        part_of_window = complete.part_of_window
        for rows in in_turn(complete, parts, self.seen):
            entries, adding = Entries(), _Adding()
            ts, seen, mark = (column[rows].tolist() for column in (self.ts, self.seen, self.mark))
            for row, at, time, own in zip(rows.tolist(), ts, seen, mark, strict=True):
                adding.record = (own, time, row, None)
                take(windows, entries, at, windows.open_from_ms(time), adding)
            low, high = self._windows_of(int(rows[0]), part_of_window)
            whole = self.whole[low:high].tolist()
            known = {start: nth for nth, start in enumerate(complete.start[low:high].tolist())}
            for entry in entries.at.values():
                nth = 0 if isinstance(windows, SessionWindows) else known.get(entry.start, -1)
                window, same = (low + nth, entry.node[0] % _MARKS == whole[nth]) if nth >= 0 else (-1, False)
                yield entry.start, entry.end, entry.node[1], window, same, entry.node

    def _windows_of(self, row: int, part_of_window: Ints) -> tuple[int, int]:
        """The windows of a record's part: the first number, and the last number + 1."""
        part = self._part_of_row[row]
        low, high = np.searchsorted(part_of_window, [part, part + 1])
        return int(low), int(high)

    @cached_property
    def _part_of_row(self) -> Ints:
        found = np.empty(len(self.ts), np.int64)
        found[self.complete.order] = self.complete.part
        return found


class _Adding:
    """Builds the content of windows while records arrive: the callback of `sessions.apply` and `sliding.apply`."""

    record: Node
    """The current record, as content of its own."""

    def __call__(self, _window: tuple[int, int], node: Node | None, fresh: bool) -> Node:
        own = self.record
        return own if node is None else (node[0] + own[0], node[1], own[2], node)

    def join(self, _window: tuple[int, int], nodes: Sequence[Node]) -> Node | None:
        """The content of merged sessions."""
        return (sum(node[0] for node in nodes), min(node[1] for node in nodes), -1, tuple(nodes)) if nodes else None


def _records(node: Node) -> list[int]:
    """The row numbers of a window's records, in the order of arrival."""
    found, stack = [], [node]
    while stack:
        _, _, record, rest = stack.pop()
        if record < 0:
            stack += rest
            continue
        found.append(record)
        if rest is not None:
            stack.append(rest)
    return sorted(found)


def count_keyed(
    recording: Recording,
    points: RunningMax,
    graces: Sequence[int],
    exact: Ints,
    alerting: Alerting | None,
    rows: pa.Table,
) -> Tally:
    """The counts of these results (see above). `rows`: the records of `recording`, with k:, v: and ts columns."""
    tally, complete = Tally(exact), recording.complete
    tally.number("results", len(complete.start))
    if not len(complete.start):
        return tally
    end, close = int(points.time[-1]), _close(recording, complete.end)
    raising = None if alerting is None else _Raising(alerting, rows, recording)
    if raising is not None:
        tally.number("alerts", int(raising.complete.sum()))
    for grace in graces:
        found = recording.rows(grace)
        closes = _close(recording, found.end)
        comes = closes <= end - grace
        tally.number(f"out/{grace}", int(comes.sum()))
        tally.number(f"incomplete/{grace}", int((comes & ~found.whole).sum()))
        tally.number(f"still_open/{grace}", int((~comes).sum()))
        due = close <= end - grace
        lacks = due.copy()
        lacks[found.window[found.window >= 0]] = False
        tally.number(f"missing/{grace}", int(lacks.sum()))
        count_leaving(tally, points, grace, closes, found.first, comes)
        if raising is not None:
            raised = raising.of(found) & comes
            tally.number(f"alerts/{grace}", int(raised.sum()))
            right = (found.window >= 0) & raising.complete[found.window]
            tally.number(f"false/{grace}", int((raised & ~right).sum()))
            alerted = np.zeros(len(due), bool)
            alerted[found.window[raised & right]] = True
            tally.number(f"missed/{grace}", int((raising.complete & due & ~alerted).sum()))
    return tally


def _close(recording: Recording, ends: Ints) -> Ints:
    """The stream times (ms) at which windows with these ends close without grace."""
    shape: Any = replace(recording.windows, grace_ms=0)
    return np.asarray(shape.close_of_end_ms(ends), np.int64)


class _Raising:
    """Decides which rows raise an alert: complete windows, and the windows of a grace."""

    def __init__(self, alerting: Alerting, rows: pa.Table, recording: Recording) -> None:
        self._alerting = alerting
        self._lifted = lift(alerting.layout, rows)
        complete = recording.complete
        self.complete = np.zeros(len(complete.start), bool)
        for low, high in neighbours(complete.high - complete.low, _AT_ONCE):
            size = complete.high[low:high] - complete.low[low:high]
            record = complete.order[expanded(complete.low[low:high], size, 1)]
            bounds = complete.start[low:high], complete.end[low:high]
            self.complete[low:high] = self._raised(record, size, *bounds)

    def of(self, found: Rows) -> Flags:
        """Whether each of these rows raises an alert."""
        raised = (found.window >= 0) & self.complete[found.window]
        others = np.flatnonzero(~found.whole)
        held = [_records(node) for node in found.nodes if node is not None]
        size = np.array([len(records) for records in held], np.int64)
        for low, high in neighbours(size, _AT_ONCE):
            mine = others[low:high]
            record = np.array([row for records in held[low:high] for row in records], np.int64)
            raised[mine] = self._raised(record, size[low:high], found.start[mine], found.end[mine])
        return raised

    def _raised(self, record: Ints, size: Ints, start: Ints, end: Ints) -> Flags:
        """Whether each window raises an alert: the first window has the first `size[0]` records, and so on."""
        layout, result = self._alerting.layout, np.repeat(np.arange(len(size)), size)
        taken = self._lifted.take(pa.array(record)).append_column("result", pa.array(result))
        whole = merge(layout, taken, ["result", *layout.keys])
        whole = whole.take(pa.array(np.argsort(whole["result"].to_numpy())))
        bounds = {"start": pa.array(start), "end": pa.array(end)}
        return self._alerting.raised(pa.table({name: whole[name] for name in whole.schema.names} | bounds))


_AT_ONCE = 1 << 22
"""About how many (window, record) pairs are aggregated at once; a single window is never split."""
