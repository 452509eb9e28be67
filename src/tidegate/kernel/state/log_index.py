"""The index of the logs of a store: a sorted map from the number of a log to its entry (`Log`), in pages.

A batch reads and writes the pages that it touches. A page has up to `Tuning.page_logs` logs, or up to `fanout` pages of
the level below; the meta frame of the state holds the highest level. Every entry has the totals of the logs below it,
and the earliest bound: when one of these logs must be looked at. So totals, due logs and the first logs are found
without reading other pages.

    level 2    in the meta frame       [0 ...]                        [8,640,000 ...]
    level 1    window 0, segment -2    [0 ...]  [960,000 ...]  ...
    level 0    window 0, segment -1    0: 1 segment, 3 rows    60,000: 2 segments, 9 rows    ...

A page is a segment of its own in the store: under its first number, at the segment -1 - level.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from tidegate.instants import MAX_MS
from tidegate.kernel.columns.arrays import Ints
from tidegate.kernel.state import frames
from tidegate.kernel.state.store import DictStore, Store


class Log(NamedTuple):
    """The entry of one log: its segments, its rows, its bytes in the store.

    A large window has rows and no segment: its rows lie in runs of its own (windows.window_runs).

    base     a number whose meaning depends on the log:
                 log of a window or pane, range of hashes    rows after the last compaction
                 retained results (windows.retention)        the largest closing time of a result (ms)
                 time bucket (suppress.time_buckets)         the earliest buffer time of a row (ms)
    windows  number of windows of its rows; only open ones for sessions and sliding windows
    waits    a number whose meaning depends on the log:
                 bucket in front of a bounded buffer         entries that wait
                 time bucket                                 keys that wait
                 pane, retained results                      appends since the last compaction (State.put_together)
    counts   bytes of the entries of a bounded buffer
    closes   earliest end of an open window of a bucket (ms)
    due      when the log must be looked at (ms), if its number does not say it: for a bucket, the earliest end of a
             window that is to leave or to be removed; for a stretch of windows, the start of the earliest one
    """

    segments: int = 0
    rows: int = 0
    base: int = 0
    size: int = 0
    windows: int = 1
    waits: int = 0
    counts: int = 0
    closes: int = MAX_MS
    due: int = MAX_MS


class Totals(NamedTuple):
    """The totals of many logs: the first and the last number, sums, and the earliest of each bound."""

    first: int = 0
    last: int = -1
    logs: int = 0
    rows: int = 0
    size: int = 0
    windows: int = 0
    waits: int = 0
    counts: int = 0
    closes: int = MAX_MS
    due: int = MAX_MS


Shares = Callable[[int, int], int]
"""Number of windows that two neighbouring logs share, given the numbers of the logs."""


def _nothing_shared(_one: int, _other: int) -> int:
    return 0


@dataclass(eq=False)
class _Page:
    """A page, read from the store on first use. Once it is stored, `name` is no larger than any number in it."""

    level: int
    name: int
    logs: dict[int, Log] | None = None
    pages: list[_Page] | None = None
    totals: Totals | None = None
    changed: bool = False
    stored: bool = False
    order: list[int] | None = None


@dataclass(eq=False)
class LogIndex:
    """The logs of a store by number, in ascending order."""

    store: Store = field(default_factory=DictStore)
    _root: _Page = field(default_factory=lambda: _Page(0, 0, logs={}))
    shares: Shares = _nothing_shared

    @classmethod
    def load(cls, store: Store, saved: dict[str, Any] | None) -> LogIndex:
        """The index that `save` returned; empty if there is none."""
        if not saved:
            return cls(store)
        level, entries = saved["level"], saved["entries"]
        if level == 0:
            return cls(store, _Page(0, 0, logs={number: Log(*rest) for number, *rest in entries}))
        pages = [_Page(level - 1, name, totals=Totals(*totals), stored=True) for name, *totals in entries]
        return cls(store, _Page(level, 0, pages=pages))

    def save(self) -> dict[str, Any]:
        """Write the pages that have changed; returns the content for the meta frame, empty for an empty index."""
        self._arrange()
        for page in self._root.pages or ():
            self._write(page)
        if self._root.logs is not None:
            entries = [[number, *_shortened(self._root.logs[number], Log())] for number in _numbers(self._root)]
        else:
            entries = [[page.name, *_shortened(self._totals(page), Totals())] for page in self._pages(self._root)]
        return {"level": self._root.level, "entries": entries} if entries else {}

    def totals(self) -> Totals:
        """The totals of all logs."""
        return self._totals(self._root)

    def __len__(self) -> int:
        return self.totals().logs

    def __bool__(self) -> bool:
        return bool(self._root.logs) or len(self) > 0

    def __contains__(self, number: int) -> bool:
        return self.get(number) is not None

    def __getitem__(self, number: int) -> Log:
        found = self.get(number)
        if found is None:
            raise KeyError(number)
        return found

    def get(self, number: int) -> Log | None:
        """The log of this number, None if there is none."""
        return self._logs(self._path(number)[-1]).get(number)

    def __setitem__(self, number: int, log: Log) -> None:
        path = self._path(number)
        logs = self._logs(path[-1])
        if number not in logs:
            path[-1].order = None
        logs[number] = log
        self._touch(path)

    def pop(self, number: int) -> Log | None:
        """Remove the log of this number and return it, None if there is none."""
        path = self._path(number)
        found = self._logs(path[-1]).pop(number, None)
        if found is not None:
            path[-1].order = None
            self._touch(path)
        return found

    def __iter__(self) -> Iterator[int]:
        return iter([number for page in self._leaves(self._root) for number in _numbers(page)])

    def items(self) -> list[tuple[int, Log]]:
        """All numbers and logs; reads every page."""
        return [(n, self._logs(page)[n]) for page in self._leaves(self._root) for n in _numbers(page)]

    def leading(self, wanted: Callable[[int], bool]) -> list[int]:
        """The numbers in ascending order, up to the first one that is not `wanted`."""
        found: list[int] = []
        self._lead(self._root, wanted, found)
        return found

    def due_before(self, bound: float) -> list[int]:
        """The numbers of the logs that must be looked at before `bound`."""
        found: list[int] = []
        self._due(self._root, bound, found)
        return found

    def floors(self, wanted: Ints) -> Ints:
        """For each number the largest log number up to it; the first log if there is none; 0 if the index is empty."""
        return self._floors(self._root, wanted)

    def _floors(self, page: _Page, wanted: Ints) -> Ints:
        if page.level == 0:
            self._logs(page)
            numbers = np.array(_numbers(page) or [0], np.int64)
            return numbers[np.maximum(np.searchsorted(numbers, wanted, side="right") - 1, 0)]
        pages = [below for below in self._pages(page) if self._totals(below).logs]
        if not pages:
            return np.zeros(len(wanted), np.int64)
        # Not by name: a page keeps its name when its first log is removed.
        firsts = np.array([self._totals(below).first for below in pages], np.int64)
        at = np.maximum(np.searchsorted(firsts, wanted, side="right") - 1, 0)
        found = np.empty(len(wanted), np.int64)
        for place in np.unique(at).tolist():
            mine = at == place
            found[mine] = self._floors(pages[place], wanted[mine])
        return found

    def _lead(self, page: _Page, wanted: Callable[[int], bool], found: list[int]) -> bool:
        """Append the leading numbers of a page to `found`; returns whether to go on behind the page."""
        totals = self._totals(page)
        if not totals.logs:
            return True
        if not wanted(totals.first):
            return False
        if page.level > 0:
            return all(self._lead(below, wanted, found) for below in self._pages(page))
        self._logs(page)
        for number in _numbers(page):
            if not wanted(number):
                return False
            found.append(number)
        return True

    def _due(self, page: _Page, bound: float, found: list[int]) -> None:
        if self._totals(page).due >= bound:
            return
        if page.level == 0:
            logs = self._logs(page)
            found += [number for number in _numbers(page) if logs[number].due < bound]
        else:
            for below in self._pages(page):
                self._due(below, bound, found)

    def _path(self, number: int) -> list[_Page]:
        """The pages from the root down to the one that has this number, or would have it."""
        path = [self._root]
        while path[-1].level > 0:
            pages = self._pages(path[-1])
            names = path[-1].order
            if names is None:
                names = path[-1].order = [page.name for page in pages]
            path.append(pages[max(bisect_right(names, number) - 1, 0)])
        return path

    def _touch(self, path: list[_Page]) -> None:
        for page in path:
            page.totals, page.changed = None, True

    def _leaves(self, page: _Page) -> Iterator[_Page]:
        if page.level == 0:
            self._logs(page)
            yield page
        else:
            for below in self._pages(page):
                yield from self._leaves(below)

    def _totals(self, page: _Page) -> Totals:
        if page.totals is None:
            parts = [self._totals(below) for below in page.pages or ()] if page.level else _each(page)
            page.totals = _together([part for part in parts if part.logs], self.shares)
        return page.totals

    def _logs(self, page: _Page) -> dict[int, Log]:
        if page.logs is None:
            numbers = self._read(page, len(Log._fields))
            page.logs = {number: Log(*rest) for number, *rest in numbers}
        return page.logs

    def _pages(self, page: _Page) -> list[_Page]:
        if page.pages is None:
            numbers = self._read(page, len(Totals._fields))
            page.pages = [_Page(page.level - 1, name, totals=Totals(*rest), stored=True) for name, *rest in numbers]
        return page.pages

    def _read(self, page: _Page, width: int) -> list[list[int]]:
        frame = self.store.read(page.name, -1 - page.level)
        _, (table,) = frames.decode(frames.SEGMENT, frame)
        columns = table["entries"].to_numpy().reshape(width + 1, -1)
        # `_write` stores each number as the difference from the one before it.
        entries: list[list[int]] = np.cumsum(columns, axis=1).T.tolist()
        return entries

    def _write(self, page: _Page) -> None:
        """Store a page and the pages below it, if they have changed."""
        if not page.changed:
            return
        for below in page.pages or ():
            self._write(below)
        if page.logs is not None:
            columns = np.array([(number, *page.logs[number]) for number in _numbers(page)], np.int64).T
        else:
            columns = np.array([(below.name, *self._totals(below)) for below in self._pages(page)], np.int64).T
        differences = np.diff(columns, axis=1, prepend=0)
        table = pa.table({"entries": pa.array(differences.ravel())})
        self.store.write(page.name, -1 - page.level, frames.encode(frames.SEGMENT, {}, table))
        page.changed, page.stored = False, True

    def _arrange(self) -> None:
        """Split pages that are too large, remove empty pages, and adjust the height of the tree."""
        root, most = self._root, self.store.tuning.root_entries
        if not root.changed:
            return
        if root.level == 0:
            if len(self._logs(root)) <= most:
                return
            tops = self._parts(root, last=True)
        else:
            pages = self._pages(root)
            tops = [part for page in pages for part in self._parts(page, last=page is pages[-1])]
        while len(tops) > most:
            tops = self._grouped(tops, tops[0].level + 1, last=True)
        while len(tops) == 1 and tops[0].level > 0:
            (top,) = tops
            tops = self._pages(top)  # read before the page is gone
            self._remove(top)
        self._root = _Page(tops[0].level + 1, 0, pages=tops, changed=True) if tops else _Page(0, 0, logs={})
        if 0 < self.totals().logs <= most // 2:
            logs = dict(self.items())
            self._remove_below(self._root)
            self._root = _Page(0, 0, logs=logs, changed=True)

    def _parts(self, page: _Page, last: bool) -> list[_Page]:
        """The pages that a page is split into."""
        if not page.changed:
            return [page]
        page.order = None
        if page.level > 0:
            pages = self._pages(page)
            below = [part for one in pages for part in self._parts(one, last and one is pages[-1])]
            return self._named(page, self._grouped(below, page.level, last))
        numbers = _numbers(page)
        logs = self._logs(page)
        cuts = _cuts(len(numbers), self.store.tuning.page_logs, last)
        parts = [numbers[low:high] for low, high in pairwise(cuts)]
        return self._named(page, [_Page(0, part[0], logs={n: logs[n] for n in part}) for part in parts])

    def _grouped(self, pages: list[_Page], level: int, last: bool) -> list[_Page]:
        cuts = _cuts(len(pages), self.store.tuning.fanout, last)
        return [_Page(level, pages[low].name, pages=pages[low:high], changed=True) for low, high in pairwise(cuts)]

    def _named(self, page: _Page, parts: list[_Page]) -> list[_Page]:
        """The parts of a page with their names; the first part keeps the page's, unless a smaller number was added."""
        if parts and page.stored:
            parts[0].name = min(page.name, parts[0].name)
        for part in parts:
            part.changed, part.stored = True, page.stored and part.name == page.name
        if page.stored and not any(part.stored for part in parts):
            self._remove(page)
        return parts

    def _remove(self, page: _Page) -> None:
        if page.stored:
            self.store.remove(page.name, -1 - page.level)

    def _remove_below(self, page: _Page) -> None:
        for below in self._pages(page) if page.level else ():
            self._remove_below(below)
            self._remove(below)


def _numbers(page: _Page) -> list[int]:
    """The numbers of the logs of a page that was read, ascending."""
    if page.order is None:
        assert page.logs is not None
        page.order = sorted(page.logs)
    return page.order


def _cuts(count: int, most: int, last: bool) -> list[int]:
    """Places that split `count` entries: full parts at the end of the index, where it grows; else even parts."""
    if not count:
        return [0]
    parts = -(-count // most)
    return [*range(0, count, most), count] if last else [count * part // parts for part in range(parts + 1)]


def _each(page: _Page) -> list[Totals]:
    assert page.logs is not None
    return [
        Totals(n, n, 1, log.rows, log.size, log.windows, log.waits, log.counts, log.closes, log.due)
        for n, log in ((n, page.logs[n]) for n in _numbers(page))
    ]


def _together(parts: list[Totals], shares: Shares) -> Totals:
    if not parts:
        return Totals()
    shared = 0 if shares is _nothing_shared else sum(shares(one.last, two.first) for one, two in pairwise(parts))
    return Totals(
        first=parts[0].first,
        last=parts[-1].last,
        logs=sum(part.logs for part in parts),
        rows=sum(part.rows for part in parts),
        size=sum(part.size for part in parts),
        windows=sum(part.windows for part in parts) - shared,
        waits=sum(part.waits for part in parts),
        counts=sum(part.counts for part in parts),
        closes=min(part.closes for part in parts),
        due=min(part.due for part in parts),
    )


def _shortened(entry: tuple[int, ...], defaults: tuple[int, ...]) -> list[int]:
    """An entry without the defaults at its end."""
    length = len(entry)
    while length and entry[length - 1] == defaults[length - 1]:
        length -= 1
    return list(entry[:length])
