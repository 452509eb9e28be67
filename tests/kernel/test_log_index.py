"""The index of logs in pages: a sorted map that reads and writes only the pages it touches."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from tidegate.instants import MAX_MS
from tidegate.kernel.state.log_index import Log, LogIndex, Totals
from tidegate.kernel.state.store import DictStore
from tidegate.kernel.time.panes import Panes
from tidegate.kernel.tuning import Tuning
from tidegate.spec.windows import TimeWindows

LOGS = st.builds(
    Log,
    segments=st.integers(1, 3),
    rows=st.integers(0, 9),
    base=st.integers(0, 9),
    size=st.integers(0, 99),
    windows=st.integers(0, 3),
    waits=st.integers(0, 3),
    counts=st.integers(0, 99),
    closes=st.one_of(st.just(MAX_MS), st.integers(0, 50)),
    due=st.one_of(st.just(MAX_MS), st.integers(0, 50)),
)
CHANGES = st.lists(
    st.dictionaries(st.one_of(st.integers(0, 40), st.integers(0, 2**62)), st.one_of(st.none(), LOGS), max_size=12),
    max_size=12,
)


def small() -> DictStore:
    """A store whose pages have few entries, so that a few logs need several levels."""
    return DictStore(tuning=Tuning(page_logs=3, fanout=3, root_entries=2))


def totals_of(logs: dict[int, Log]) -> Totals:
    numbers, every = sorted(logs), logs.values()
    if not numbers:
        return Totals()
    sums = (sum(getattr(log, name) for log in every) for name in ("rows", "size", "windows", "waits", "counts"))
    earliest = (min(getattr(log, name) for log in every) for name in ("closes", "due"))
    return Totals(numbers[0], numbers[-1], len(logs), *sums, *earliest)


def restarted(index: LogIndex) -> LogIndex:
    return LogIndex.load(index.store, index.save())


@given(batches=CHANGES, bound=st.integers(0, 51))
def test_it_is_a_sorted_map(batches: list[dict[int, Log | None]], bound: int) -> None:
    index, wanted = LogIndex(small()), dict[int, Log]()
    for changes in batches:
        for number, log in changes.items():
            if log is None:
                assert index.pop(number) == wanted.pop(number, None)
            else:
                index[number] = wanted[number] = log
        for seen in (index, index := restarted(index)):
            numbers = sorted(wanted)
            assert seen.totals() == totals_of(wanted)
            assert (len(seen), bool(seen)) == (len(wanted), bool(wanted))
            assert seen.leading(lambda number: number <= bound) == [n for n in numbers if n <= bound]
            assert seen.due_before(bound) == [n for n in numbers if wanted[n].due < bound]
            assert [seen.get(number) for number in changes] == [wanted.get(number) for number in changes]
        assert index.items() == [(n, wanted[n]) for n in sorted(wanted)]
        assert list(index) == sorted(wanted)


ENDS = st.one_of(st.integers(0, 80), st.integers(0, 9).map(lambda page: 9 * page))
"""Ends of ranges; a page of level 1 that was filled in order begins at a multiple of 9."""
RANGES = st.tuples(ENDS, ENDS).map(lambda ends: range(min(ends), max(ends)))


@given(batches=st.lists(st.tuples(st.booleans(), RANGES), max_size=8))
def test_ranges_come_and_go_where_pages_have_not_been_read(batches: list[tuple[bool, range]]) -> None:
    """As windows close: pages that a batch does not touch stay in the store, unread, even if their neighbours go."""
    store, saved, wanted = small(), dict[str, Any](), set[int]()
    for comes, numbers in batches:
        index = LogIndex.load(store, saved)
        for number in numbers:
            if comes:
                index[number] = Log(1)
            else:
                index.pop(number)
        wanted = wanted | set(numbers) if comes else wanted - set(numbers)
        saved = index.save()
        # Read by a fresh index: `index` would remember its pages.
        assert list(LogIndex.load(store, saved)) == sorted(wanted)
    assert len(store.log) <= 2 * len(wanted)


def test_the_last_page_of_a_level_was_not_read() -> None:
    """The other page becomes empty, and the tree lower: the page must be read before it is removed."""
    store = small()
    index = LogIndex(store)
    for number in range(20):
        index[number] = Log(1)
    saved = index.save()
    assert saved["level"] == 2
    index = LogIndex.load(store, saved)
    for number in range(18):
        index.pop(number)
    saved = index.save()
    assert list(LogIndex.load(store, saved)) == [18, 19]
    assert saved["level"] == 1


@given(batches=CHANGES)
def test_a_page_that_is_empty_is_removed(batches: list[dict[int, Log | None]]) -> None:
    index = LogIndex(small())
    for changes in batches:
        for number in changes:
            index[number] = Log(1)
        index = restarted(index)
    for number in list(index):
        index.pop(number)
    assert index.save() == {}
    assert index.store == small()


NUMBERS = st.integers(0, 99)


@given(batches=st.lists(st.tuples(st.lists(NUMBERS, max_size=20), st.lists(NUMBERS, max_size=9)), max_size=8))
def test_the_bucket_of_a_number(batches: list[tuple[list[int], list[int]]]) -> None:
    """The largest number up to it, wherever buckets were removed; the first bucket if there is none."""
    index, numbers = LogIndex(small()), set[int]()
    for added, removed in batches:
        for number in added:
            index[number] = Log(1)
        for number in removed:
            index.pop(number)
        numbers = (numbers | set(added)) - set(removed)
        first = min(numbers, default=0)
        floors = [max((number for number in numbers if number <= one), default=first) for one in range(110)]
        for seen in (index, index := restarted(index)):
            assert seen.floors(np.arange(110)).tolist() == floors


def test_the_first_bucket_of_a_page_was_removed() -> None:
    """Its numbers belong to the last bucket of the page before, not to the bucket behind it."""
    store = small()
    index = LogIndex(store)
    for number in range(0, 120, 10):
        index[number] = Log(1)
    index = restarted(index)
    assert {30, 60} <= {name for name, segment in store.log if segment == -1}
    for gone in (30, 60, 70, 80):
        index.pop(gone)
    for seen in (index, restarted(index)):
        assert seen.floors(np.array([29, 35, 40, 59, 60, 85, 90])).tolist() == [20, 20, 40, 50, 50, 50, 90]


@given(batches=st.lists(st.sets(st.integers(0, 60), max_size=9), max_size=6), gone=st.sets(st.integers(0, 60)))
def test_windows_that_panes_share_count_once(batches: list[set[int]], gone: set[int]) -> None:
    panes = Panes(TimeWindows(20, 5, 0))
    index, wanted = LogIndex(small(), shares=panes.windows_shared), set[int]()
    for batch in batches:
        wanted |= batch
        for number in batch:
            index[5 * number] = Log(windows=panes.windows_of(5 * number))
        index = restarted(index)
        index.shares = panes.windows_shared
    for number in gone & wanted:
        index.pop(5 * number)
    windows = {w for n in wanted - gone for w in range(panes.first_window(5 * n), panes.last_window(5 * n) + 1, 5)}
    assert index.totals().windows == len(windows)


def test_a_change_writes_the_pages_on_the_way_to_it() -> None:
    store = small()
    index = LogIndex(store)
    for number in range(200):
        index[number] = Log(1)
    saved = index.save()
    levels = saved["level"]
    assert levels >= 4
    before = dict(store.log)
    index = LogIndex.load(store, saved)
    index[100] = Log(2)
    index.save()
    assert len([place for place in store.log if store.log[place] is not before.get(place)]) == levels


def test_windows_that_come_in_order_fill_their_pages() -> None:
    store = small()
    index = LogIndex(store)
    for number in range(300):
        index[number] = Log(1)
        if number % 2:
            index = restarted(index)
    index.save()
    leaves = sorted(window for window, segment in store.log if segment == -1)
    assert {later - one for one, later in pairwise(leaves)} == {3}
