"""Suppression until a time limit: rows it must hold and emit, written from SEMANTICS section 6 alone.

By the wall clock, which SEMANTICS 14.7 adds, the time of an update is that of its batch.

One update after the other, whole lists, no heap: it searches all buffered entries each time.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from oracle import Row, serialized

Values = tuple[Any, ...]


class Full(Exception):  # noqa: N818 - what the operator calls it
    """A strict buffer holds more than its bound."""


@dataclass(frozen=True)
class Limit:
    """`measured_from` and `clock` as in the public interface; `strategy` is "emit_early", "shut_down" or
    "spill_to_disk".
    """

    ms: int
    max_records: int | None = None
    strategy: str = "emit_early"
    measured_from: str = "first_update"
    max_bytes: int | None = None
    clock: str = "stream"


@dataclass
class Waiting:
    """The newest update of a key and window, its buffer time and the key's value before it was buffered."""

    place: Any
    time: int
    row: Row
    prior: Values | None
    size: int


@dataclass
class Suppression:
    """Takes the rows that its parent forwards. `key` are the key columns, `by_end` whether windows are sessions.

    `initial` are the parent's values for a key (and window) without an entry; None if there are none. `difference`
    is that of sliding windows, of which some are made of others.
    """

    limit: Limit
    key: tuple[str, ...]
    by_end: bool = False
    stream_time: int = -1
    held: dict[Any, Waiting] = field(default_factory=dict)
    initial: Values | None = None
    forwarded: dict[Any, Values | None] = field(default_factory=dict)
    difference: int | None = None
    stamps: dict[Any, int] = field(default_factory=dict)
    wall: int = 0

    def take(self, row: Row, at: int = -1, *, again: bool = False) -> list[Row]:
        """One update, made by a record at time `at`; returns the rows that leave because of it. Raises Full.

        again  whether that record has made an update of this window before: a sliding window that is the right one of
               the record in front of it and its own left one begins twice (SEMANTICS 3.1)
        """
        self.stream_time = max(self.stream_time, row["timestamp"])
        place = self._place(row)
        measured = self.wall if self.limit.clock == "wall" else row["timestamp"]
        if self.limit.measured_from == "window_start" and "window" in row:
            measured = row["window"][0]
        known = self.held.get(place)
        if known is not None and self.limit.measured_from != "latest_update":
            measured = known.time
        old, new = self._change(place, row, at, again)
        prior = old if known is None else known.prior
        size = 16 + self._key_bytes(row) + bytes_of(prior) + (0 if old == prior else bytes_of(old)) + bytes_of(new)
        self.held[place] = Waiting(place, measured, row, prior, size)
        leaving = self._due()
        while self._over():
            if self.limit.strategy == "shut_down":
                raise Full
            leaving.append(self._pop())
        return leaving

    def pass_time(self, ts: int) -> list[Row]:
        """A record of this time came without an update from the parent: the rows that leave."""
        self.stream_time = max(self.stream_time, ts)
        return self._due()

    def pass_wall_time(self, wall: int) -> list[Row]:
        """The wall clock has moved: the rows that leave by it."""
        self.wall = wall
        return self._due() if self.limit.clock == "wall" else []

    def _due(self) -> list[Row]:
        leaving = []
        now = self.wall if self.limit.clock == "wall" else self.stream_time
        while self.held and self._oldest().time <= now - self.limit.ms:
            leaving.append(self._pop())
        return leaving

    def _change(self, place: Any, row: Row, at: int, again: bool) -> tuple[Values | None, Values | None]:
        """Old and new value: what the parent forwarded before, and forwards now (SEMANTICS 1)."""
        aside = {*self.key, "window", "timestamp", "deleted"}
        new = None if row.get("deleted") else tuple(value for name, value in row.items() if name not in aside)
        old = self.forwarded.get(place)
        if self.by_end:
            # A session's row carries no old value, its tombstone does (SEMANTICS 4).
            old = old if new is None else None
        elif old is None or again:
            old = self.initial if again else self._begins(place, at)
        self.forwarded[place], self.stamps[place] = new, row["timestamp"]
        return old, new

    def _begins(self, place: Any, at: int) -> Values | None:
        """Old value of a window's first update; for sliding windows by SEMANTICS 3.1."""
        if self.difference is None:
            return self.initial
        *key, start, end = place
        if start == at + 1:
            return None
        earlier = [p for p in self.forwarded if p[:-2] == (*key,) and p[-1] < at and self.forwarded[p] is not None]
        newest = max(earlier, key=lambda p: p[-1], default=None)
        if end != at or newest is None or self.stamps[newest] < at - self.difference:
            return self.initial
        return self.forwarded[newest]

    def _key_bytes(self, row: Row) -> int:
        bounds = 0 if "window" not in row else 16 if self.by_end else 8
        return sum(bytes_of((row[column],)) for column in self.key) + bounds

    def _over(self) -> bool:
        most, size = self.limit.max_records, self.limit.max_bytes
        if self.limit.strategy == "spill_to_disk":
            return False
        many = most is not None and len(self.held) > most
        return many or (size is not None and sum(waiting.size for waiting in self.held.values()) > size)

    def _oldest(self) -> Waiting:
        return min(self.held.values(), key=lambda waiting: (waiting.time, waiting.place))

    def _pop(self) -> Row:
        return self.held.pop(self._oldest().place).row

    def _place(self, row: Row) -> Any:
        """Key and window, as their serialized bytes sort: of a session its end comes before its start."""
        start, end = row.get("window", (0, 0))
        key = serialized(tuple(row[column] for column in self.key))
        return (*key, end, start) if self.by_end else (*key, start, end)


def bytes_of(values: Values | None) -> int:
    """Strings by their UTF-8, numbers by their eight bytes, nothing for null."""
    lengths = (len(value.encode()) if isinstance(value, str) else 8 for value in values or () if value is not None)
    return sum(lengths)
