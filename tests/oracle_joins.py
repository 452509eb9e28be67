"""Expected rows of joins, computed slowly and plainly: one record after the other, whole lists, no Arrow, no tidegate.

Written from SEMANTICS alone: StreamJoin from 7b, KafkaStreamJoin from 7a, StreamTableJoin from 16, TableTableJoin
from 17. It shares no code with the code it judges. It forgets nothing: the join must know what it may forget.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

LONG_MAX = 2**63 - 1
TOMBSTONE = "a null value means something in a table, and is no reason to skip it"


class JoinedRow(NamedTuple):
    """An emitted row; a missing side is None. Only for tables: a tombstone is `deleted` and has no sides."""

    key: Any
    left: Any
    right: Any
    timestamp: int
    deleted: bool = False


@dataclass(eq=False)
class Taken:
    """A record as it was taken; `arrival` numbers them over both sides."""

    side: str
    key: Any
    value: Any
    timestamp: int
    arrival: int
    joined: bool = False
    left_alone: bool = False

    def alone(self) -> JoinedRow:
        """Its null-joined row."""
        return _sides(self, None, self.timestamp)

    def with_(self, other: Taken) -> JoinedRow:
        return _sides(self, other.value, max(self.timestamp, other.timestamp))

    def place(self) -> tuple[int, bool, tuple[bytes, ...], int]:
        """The order of closing records: timestamp, right before left, key bytes, arrival."""
        return self.timestamp, self.side == "left", key_bytes(self.key), self.arrival


@dataclass
class StreamStream:
    """Meaning of the arguments of both stream-stream joins: section 7, first paragraph."""

    before: int
    after: int
    grace: int
    how: str = "inner"
    self_join: bool = False
    stream_time: int = -1

    def ahead(self, side: str) -> int:
        """A, how far after a record of `side` its partners may be."""
        return self.after if side == "left" else self.before

    def back(self, side: str) -> int:
        """B, how far before a record of `side` its partners may be."""
        return self.before if side == "left" else self.after

    def close(self, record: Taken) -> int:
        """7b: a record is open while S <= this, and closed for good after that."""
        return record.timestamp + self.ahead(record.side) + self.grace

    def late(self, side: str, timestamp: int) -> bool:
        """7b.4: S > t + A + max(B, 0) + g."""
        return self.stream_time > timestamp + self.ahead(side) + max(self.back(side), 0) + self.grace

    def preserves(self, side: str) -> bool:
        return self.how == "outer" or (self.how == "left" and side == "left")

    def copies(self, side: str) -> tuple[str, ...]:
        """Sides of a record: in a self join it comes as left and then as right (7a.10, 7b.6)."""
        return ("left", "right") if self.self_join else (side,)


@dataclass
class StreamJoin(StreamStream):
    """Our rules, 7b; the numbers in the comments are its own.

    `how` is "inner", "left" or "outer"; `drops` counts by reason. With `self_join` a record's side says nothing.
    """

    drops: Counter[str] = field(default_factory=Counter)
    taken: list[Taken] = field(default_factory=list)
    closed_to: int = -1
    """Records have closed up to this stream time, by a shorter grace than now."""

    def change(self, grace: int) -> None:
        """Change the grace: what has closed stays closed; what a shorter grace closes leaves with the next record."""
        if self.stream_time >= 0:
            self.closed_to = max(self.closed_to, self.stream_time) + grace - self.grace
        self.grace = grace

    def closed(self, record: Taken) -> bool:
        """Whether a record is closed: by S, or since before the grace grew."""
        return max(self.stream_time, self.closed_to) > self.close(record)

    def late(self, side: str, timestamp: int) -> bool:
        """7b.4: S > t + A + max(B, 0) + g; S as in `closed`."""
        reach = self.ahead(side) + max(self.back(side), 0) + self.grace
        return max(self.stream_time, self.closed_to) > timestamp + reach

    def take(
        self, side: str, key: Any, value: Any, timestamp: int | None, stream_time: int | None = None
    ) -> list[JoinedRow]:
        """The rows of one record; `stream_time` is the S that it sees, without it the largest timestamp so far."""
        alone = [copy for copy in self.copies(side) if self.preserves(copy)]
        # 1: counted, and moves nothing. 6: in a self join counted only if both copies are skipped.
        reason = skipped(key, value, timestamp, preserved=bool(alone))
        if reason is not None:
            self.drops[reason] += 1
            return []
        assert timestamp is not None
        if null(key):
            # 1: has no partner; leaves at once, is not counted, moves nothing.
            return [_row(copy, key, value, None, timestamp) for copy in alone]
        rows = self.advance(timestamp if stream_time is None else stream_time)
        for copy in self.copies(side):
            rows += self._come(Taken(copy, key, value, timestamp, len(self.taken)))
        # 4, and 6: late if all copies are late.
        if all(self.late(copy, timestamp) for copy in self.copies(side)):
            self.drops["late"] += 1
        return rows

    def advance(self, stream_time: int) -> list[JoinedRow]:
        """S moves, by any record: closed records leave. S never goes back (1)."""
        self.stream_time = max(self.stream_time, stream_time)
        return self._leave()

    def meet(self, one: Taken, other: Taken) -> bool:
        """Equal keys, and in each other's window, as defined and not clamped at 0 (2)."""
        if one.side == other.side or one.key != other.key:
            return False
        left, right = (one, other) if one.side == "left" else (other, one)
        return left.timestamp - self.before <= right.timestamp <= left.timestamp + self.after

    def _come(self, record: Taken) -> list[JoinedRow]:
        """2 and 5: its pairs, by (timestamp, arrival) of the other; then (3) itself, if it closed without a pair."""
        found = [i for i in self.taken if self.meet(i, record) and not self.closed(i)]
        found.sort(key=lambda other: (other.timestamp, other.arrival))
        for other in found:
            other.joined = record.joined = True
        self.taken.append(record)
        return [record.with_(other) for other in found] + self._leave()

    def _leave(self) -> list[JoinedRow]:
        """3: a preserved record that closed and joined nothing leaves, once; 5: in the order of `place`."""
        alone = [
            record
            for record in self.taken
            if self.preserves(record.side) and not record.joined and not record.left_alone and self.closed(record)
        ]
        for record in alone:
            record.left_alone = True
        return [record.alone() for record in sorted(alone, key=Taken.place)]


@dataclass
class KafkaStreamJoin(StreamStream):
    """Kafka's rules, 7a; the numbers in the comments are its own. `legacy` is `JoinWindows.of`, without the fix (9).

    One task, the wall clock of TopologyTestDriver (no throttle), and not the operator that `topology.optimization`
    makes of an inner self join. `drops` is one count, including puts that the stores refuse; in a self join each copy
    counts. `in_memory`: the stores are in memory. They refuse more than those on disk (7). A null value is a put there:
    it moves M, and it may be refused and counted, a second time for this record.
    """

    legacy: bool = False
    in_memory: bool = False
    drops: int = 0
    stored: list[Taken] = field(default_factory=list)
    pending: list[Taken] = field(default_factory=list)
    newest: dict[str, int] = field(default_factory=lambda: {"left": -1, "right": -1})  # M (7)
    min_time: int = LONG_MAX
    arrivals: int = 0

    def take(self, side: str, key: Any, value: Any, timestamp: int | None) -> list[JoinedRow]:
        """The rows of one record."""
        if timestamp is None or timestamp < 0:
            # Dropped before it reaches the join.
            self.drops += 1
            return []
        self._move(key, value, timestamp)
        rows = []
        for copy in self.copies(side):
            self.arrivals += 1
            rows += self._come(Taken(copy, key, value, timestamp, self.arrivals))
        return rows

    def _move(self, key: Any, value: Any, timestamp: int) -> None:
        """1: happens first, even if the record is then skipped."""
        self.stream_time = max(self.stream_time, timestamp)

    def _come(self, record: Taken) -> list[JoinedRow]:
        # 2
        if null(record.key) or record.value is None:
            if record.value is not None and self.preserves(record.side):
                return [record.alone()]
            self.drops += 1
            if self.in_memory and not null(record.key):
                self._put(record)
            return []
        # 3
        rows = self._scan(record.side) if record.timestamp == self.stream_time else []
        # 4
        for other in self._matches(record):
            rows.append(record.with_(other))
            self.pending = [p for p in self.pending if not _same_place(p, other)]
            record.joined = True
        # 5
        if not record.joined and self.preserves(record.side):
            rows += self._alone(record)
        # 6
        if self._put(record):
            self.stored.append(record)
        return rows

    def _alone(self, record: Taken) -> list[JoinedRow]:
        """5: the window is over, grace or not, or (9) legacy: leaves at once. Otherwise it is pending."""
        if self.legacy or self._is_over(record):
            record.left_alone = True
            return [record.alone()]
        self.pending.append(record)
        self.min_time = min(self.min_time, record.timestamp)
        return []

    def _is_over(self, record: Taken) -> bool:
        """5: whether its window is over, grace ignored."""
        return self._bound(record.timestamp + self.ahead(record.side)) < self.stream_time

    def _matches(self, record: Taken) -> list[Taken]:
        """4: bounds are clamped at 0; and only records that the other side's store still shows."""
        low = self._bound(record.timestamp - self.back(record.side))
        high = self._bound(record.timestamp + self.ahead(record.side))
        other = "right" if record.side == "left" else "left"
        found = [s for s in self.stored if s.side == other and s.key == record.key and low <= s.timestamp <= high]
        return sorted(filter(self._shows, found), key=lambda s: (s.timestamp, s.arrival))

    def _bound(self, bound: int) -> int:
        """4 and 5: a bound of a window."""
        return max(0, bound)

    def _shows(self, record: Taken) -> bool:
        """7: whether the store of its side still shows it."""
        return record.timestamp > self.newest[record.side] - self._retention()

    def _put(self, record: Taken) -> bool:
        """6 and 7: moves M; false, and counted, if the store of its side refuses it."""
        self.newest[record.side] = max(self.newest[record.side], record.timestamp)
        refused = self._refuses(record)
        self.drops += refused
        return not refused

    def _refuses(self, record: Taken) -> bool:
        """7: whether the record's segment has expired; in memory, whether the store would not show the record."""
        retention, newest = self._retention(), self.newest[record.side]
        if self.in_memory:
            return record.timestamp <= newest - retention
        segment = max(60_000, retention // 2)
        return record.timestamp // segment < (newest - retention) // segment

    def _scan(self, arriving: str) -> list[JoinedRow]:
        """8: pending records that leave null-joined."""
        if self._nothing_due(arriving):
            return []
        self.min_time = LONG_MAX
        seen_open: set[str] = set()
        rows = []
        for record in sorted(self.pending, key=Taken.place):
            self.min_time = record.timestamp
            if self._ends_at(seen_open):
                break
            if record.timestamp + self.ahead(record.side) + self.grace >= self.stream_time:
                seen_open.add(record.side)
            else:
                record.left_alone = True
                rows.append(record.alone())
                self.pending.remove(record)
        return rows

    def _nothing_due(self, arriving: str) -> bool:
        """8: whether the scan is skipped."""
        return self.min_time + self.ahead(arriving) + self.grace >= self.stream_time

    def _ends_at(self, seen_open: set[str]) -> bool:
        """8: the walk ends after an open record of each side."""
        return seen_open == {"left", "right"}

    def _retention(self) -> int:
        return self.before + self.after + self.grace


@dataclass(frozen=True)
class Version:
    """A row of a table, valid from its timestamp; a value of None is a tombstone."""

    timestamp: int
    arrival: int
    value: Any


@dataclass
class History:
    """The versions of a table's keys; `kept` is its history h, None for a plain table (16.1, 16.2)."""

    kept: int | None = None
    newest: int = -1
    begun: int = -1
    versions: dict[Any, list[Version]] = field(default_factory=dict)

    def refused(self, key: Any, timestamp: int | None) -> str | None:
        """Reason for dropping a change: no key (16.5), no usable timestamp, or older than N - h (16.2); else None."""
        reason = skipped(key, TOMBSTONE, timestamp)
        if reason is None and timestamp is not None and self.kept is not None and timestamp < self.begins():
            return "late"
        return reason

    def begins(self) -> int:
        """Start of the history (ms), which never goes back."""
        assert self.kept is not None
        return max(self.newest - self.kept, self.begun)

    def keep(self, history: int) -> None:
        """Change the history: dropped versions stay dropped; a plain table's last row becomes the first version."""
        if self.kept is None:
            self.versions = {key: versions[-1:] for key, versions in self.versions.items()}
            self.newest = -1
        else:
            self.begun = self.begins()
        self.kept = history

    def add(self, key: Any, value: Any, timestamp: int) -> None:
        versions = self.versions.setdefault(key, [])
        versions.append(Version(timestamp, len(versions), value))
        self.newest = max(self.newest, timestamp)

    def row(self, key: Any) -> Any:
        """The present row, None if there is none: the last to arrive, with a history the newest."""
        return getattr(self.version(key), "value", None)

    def version(self, key: Any) -> Version | None:
        versions = self.versions.get(key, [])
        if self.kept is None:
            return versions[-1] if versions else None
        return max(versions, key=_version_order, default=None)

    def at(self, key: Any, timestamp: int) -> Any:
        """The row that a stream record of this timestamp sees (16.1, 16.2)."""
        if self.kept is None:
            return self.row(key)
        versions = self.versions.get(key, [])
        if timestamp < self.begins():
            versions = sorted(versions, key=_version_order)[-1:]
        valid = [version for version in versions if version.timestamp <= timestamp]
        return getattr(max(valid, key=_version_order, default=None), "value", None)


@dataclass
class StreamTableJoin:
    """Section 16; the numbers in the comments are its own. Records of the stream are "left", changes "right".

    `how` is "inner" or "left"; without a `history` the latest row counts, without a `grace` no record waits.
    """

    how: str = "inner"
    history: int | None = None
    grace: int | None = None
    stream_time: int = -1
    drops: Counter[str] = field(default_factory=Counter)
    table: History = field(default_factory=History)
    waiting: list[Taken] = field(default_factory=list)
    arrivals: int = 0
    looked_up_to: int = -1

    def __post_init__(self) -> None:
        assert self.grace is None or (self.history is not None and self.history >= self.grace)  # 3
        self.table = History(self.history)

    def change(self, history: int | None, grace: int | None) -> list[JoinedRow]:
        """Change history and grace; a shorter grace emits due records. A record that was due does not wait again."""
        if self.history is None:
            self.stream_time = -1  # without a history its stream time was not kept
        if self.stream_time >= 0:
            self.looked_up_to = max(self.looked_up_to, self.stream_time) + (grace or 0) - (self.grace or 0)
        if history is not None and history != self.history:
            self.table.keep(history)
        self.history, self.grace = history, grace
        return self._leave()

    def take(
        self, side: str, key: Any, value: Any, timestamp: int | None, stream_time: int | None = None
    ) -> list[JoinedRow]:
        """The rows of one record; `stream_time` is the stream's own time that a record of the stream sees (3)."""
        self.arrivals += 1
        if side == "right":
            self._change(key, value, timestamp)
            return []
        reason = skipped(key, value, timestamp, preserved=self.how == "left")
        if reason is not None:
            self.drops[reason] += 1
            return []
        assert timestamp is not None
        if null(key):
            # 5: leaves at once, moves nothing, is not counted.
            return [JoinedRow(key, value, None, timestamp)]
        self.stream_time = max(self.stream_time, timestamp if stream_time is None else stream_time)
        record = Taken(side, key, value, timestamp, self.arrivals)
        over = self.grace is not None and timestamp + self.grace <= self.looked_up_to
        if self.grace is None or timestamp < self.stream_time - self.grace or over:
            return self._leave() + self._look_up(record)
        # The record may be due at once; it then leaves in one order with those that waited.
        self.waiting.append(record)
        return self._leave()

    def advance(self, stream_time: int) -> list[JoinedRow]:
        """Moves the stream's own time; due records leave."""
        self.stream_time = max(self.stream_time, stream_time)
        return self._leave()

    def _change(self, key: Any, value: Any, timestamp: int | None) -> None:
        reason = self.table.refused(key, timestamp)
        if reason is not None:
            self.drops[reason] += 1
            return
        assert timestamp is not None
        self.table.add(key, value, timestamp)

    def _leave(self) -> list[JoinedRow]:
        """3: records that are due at the stream's time, by (timestamp, key bytes, arrival); without a grace all are."""
        grace = self.grace
        due = [r for r in self.waiting if grace is None or self.stream_time >= r.timestamp + grace]
        self.waiting = [record for record in self.waiting if record not in due]
        return [row for record in sorted(due, key=Taken.place) for row in self._look_up(record)]

    def _look_up(self, record: Taken) -> list[JoinedRow]:
        row = self.table.at(record.key, record.timestamp)
        if row is None and self.how == "inner":
            return []  # 4
        return [JoinedRow(record.key, record.value, row, record.timestamp)]


@dataclass
class TableTableJoin:
    """Section 17, with caching off. `history` has the h of the sides that keep versions.

    A change that is not the newest version of its key is late, like one from before the history.
    """

    how: str = "inner"
    history: Mapping[str, int] = field(default_factory=dict)
    drops: Counter[str] = field(default_factory=Counter)
    tables: dict[str, History] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.tables = {side: History(self.history.get(side)) for side in ("left", "right")}

    def take(self, side: str, key: Any, value: Any, timestamp: int | None) -> list[JoinedRow]:
        """The rows of one change: one or none."""
        own = self.tables[side]
        reason = own.refused(key, timestamp)
        if reason is not None:
            self.drops[reason] += 1
            return []
        assert timestamp is not None
        had_a_row = own.row(key) is not None
        newest = own.version(key)
        own.add(key, value, timestamp)
        if own.kept is not None and newest is not None and timestamp < newest.timestamp:
            self.drops["late"] += 1
            return []
        return self._row(side, key, value, timestamp, had_a_row)

    def _row(self, side: str, key: Any, value: Any, timestamp: int, had_a_row: bool) -> list[JoinedRow]:
        """The table of section 17, line by line."""
        # The sides that may stand alone: the left of a left join, both of an outer join.
        other_side = "right" if side == "left" else "left"
        alone = {"inner": (), "left": ("left",), "outer": ("left", "right")}[self.how]
        other = self.tables[other_side].version(key)
        if other is None or other.value is None:
            if value is not None:
                return [_row(side, key, value, None, timestamp)] if side in alone else []
            return [_tombstone(key, timestamp)] if side in alone and had_a_row else []
        timestamp = max(timestamp, other.timestamp)
        if value is not None:
            return [_row(side, key, value, other.value, timestamp)]
        if other_side in alone:
            return [_row(other_side, key, other.value, None, timestamp)]
        return [_tombstone(key, timestamp)]


def key_bytes(key: Any) -> tuple[bytes, ...]:
    """The bytes that order keys, part by part: UTF-8; numbers big-endian, as unsigned bytes (section 1)."""
    parts = key if isinstance(key, tuple) else (key,)
    return tuple((part % 2**64).to_bytes(8, "big") if isinstance(part, int) else str(part).encode() for part in parts)


def null(key: Any) -> bool:
    return key is None or (isinstance(key, tuple) and any(part is None for part in key))


def skipped(key: Any, value: Any, timestamp: int | None, preserved: bool = False) -> str | None:
    """Reason why a record changes nothing, not even stream time; the first of several reasons counts. Else None.

    A null key is no reason if the side is preserved and there is a value to emit alone.
    """
    if null(key) and not (preserved and value is not None):
        return "null_key"
    if timestamp is None or timestamp < 0:
        return "bad_timestamp"
    return "null_value" if value is None else None


def _row(side: str, key: Any, value: Any, other: Any, timestamp: int) -> JoinedRow:
    return JoinedRow(key, value, other, timestamp) if side == "left" else JoinedRow(key, other, value, timestamp)


def _sides(record: Taken, other: Any, timestamp: int) -> JoinedRow:
    return _row(record.side, record.key, record.value, other, timestamp)


def _tombstone(key: Any, timestamp: int) -> JoinedRow:
    return JoinedRow(key, None, None, timestamp, deleted=True)


def _same_place(one: Taken, other: Taken) -> bool:
    return (one.timestamp, one.side, one.key) == (other.timestamp, other.side, other.key)


def _version_order(version: Version) -> tuple[int, int]:
    """Of two versions at one instant the later arrival counts."""
    return version.timestamp, version.arrival
