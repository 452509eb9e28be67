"""One record and the sessions of its key, to the millisecond: which sessions it joins, and whether it is late."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

import tidegate as tg
from tidegate.kernel.windows import sessions
from tidegate.kernel.windows.lineage import Entries, Entry

WINDOWS = tg.SessionWindows.of_inactivity_gap_with_no_grace("5 ms")


class Names:
    """An aggregate is a text: the names of its records."""

    def __call__(self, window: tuple[int, int], node: str | None, fresh: bool) -> str:
        return (node or "") + "x"

    def join(self, window: tuple[int, int], nodes: Sequence[str]) -> str | None:
        return "".join(nodes) or None


def of(*stored: tuple[int, int, str]) -> Entries:
    entries = Entries()
    for start, end, node in stored:
        entries.put(sessions.place(start, end), Entry(start, end, end, node))
    return entries


def applied(entries: Entries, ts: int, open_from: int = 0) -> tuple[list[Any], list[tuple[int, int]]]:
    """The updates of a record at `ts`: (start, end, timestamp, aggregate); and the closed windows."""
    updates, late = sessions.apply(WINDOWS, entries, ts, open_from, Names())
    return [(each.start, each.end, each.ts, each.node) for each in updates], late


def after(entries: Entries) -> list[tuple[int, int, str]]:
    return [(each.start, each.end, each.node) for each in (entries.at[place] for place in entries.places)]


@pytest.mark.parametrize(
    ("stored", "ts", "updates"),
    [
        ((10, 12), 17, [(10, 12, 12, None), (10, 17, 17, "ax")]),
        ((10, 12), 18, [(18, 18, 18, "x")]),
        ((10, 12), 5, [(10, 12, 12, None), (5, 12, 12, "ax")]),
        ((10, 12), 4, [(4, 4, 4, "x")]),
        ((10, 12), 11, [(10, 12, 12, None), (10, 12, 12, "ax")]),
        ((10, 10), 10, [(10, 10, 10, "ax")]),
    ],
)
def test_a_record_joins_a_session_up_to_the_gap_away(stored: tuple[int, int], ts: int, updates: list[Any]) -> None:
    assert applied(of((*stored, "a")), ts) == (updates, [])


def test_a_record_bridges_sessions_in_the_order_of_their_ends() -> None:
    entries = of((0, 1, "a"), (10, 12, "c"), (4, 6, "b"), (20, 20, "d"))
    # It reaches the sessions from 3 to 13: not the one at 0, and not the one at 20.
    assert applied(entries, 8) == ([(4, 6, 6, None), (10, 12, 12, None), (4, 12, 12, "bcx")], [])
    assert after(entries) == [(0, 1, "a"), (4, 12, "bcx"), (20, 20, "d")]
    assert applied(entries, 16) == ([(4, 12, 12, None), (20, 20, 20, None), (4, 20, 20, "bcxdx")], [])
    assert after(entries) == [(0, 1, "a"), (4, 20, "bcxdx")]


def test_a_closed_session_is_not_found() -> None:
    entries = of((0, 3, "a"))
    assert applied(entries, 8, open_from=4) == ([(8, 8, 8, "x")], [])
    assert applied(of((0, 3, "a")), 8, open_from=3) == ([(0, 3, 3, None), (0, 8, 8, "ax")], [])


def test_the_end_of_the_merged_session_decides_whether_a_record_is_late() -> None:
    entries = of((6, 7, "a"))
    assert applied(entries, 3, open_from=7) == ([(6, 7, 7, None), (3, 7, 7, "ax")], [])
    assert applied(of((6, 7, "a")), 3, open_from=8) == ([], [(3, 3)])
    assert applied(of(), 3, open_from=3) == ([(3, 3, 3, "x")], [])
    assert applied(of(), 3, open_from=4) == ([], [(3, 3)])
