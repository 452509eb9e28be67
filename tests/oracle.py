"""Expected rows, computed slowly and plainly: one record after the other, whole lists, no Arrow, no tidegate.

Written from the texts only: SEMANTICS sections 1, 2 and 5 for windows, drops and emission, DESIGN section 2 for
stream time, batches and order. It shares no code with the code it judges.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from decimal import ROUND_HALF_UP, Decimal
from functools import reduce
from typing import Any

Row = dict[str, Any]
Key = tuple[Any, ...]


@dataclass(frozen=True)
class Windows:
    """[start, start + size) at every multiple of advance from 0 on; closed at stream time >= end + grace."""

    size: int
    advance: int
    grace: int

    def of(self, ts: int, stream_time: int = 0) -> list[tuple[int, int]]:
        """The windows that hold `ts`, ascending."""
        starts = range(0, ts + 1, self.advance) if ts < 10_000 else range(self._near(ts), ts + 1, self.advance)
        return [(start, start + self.size) for start in starts if start <= ts < start + self.size]

    def _near(self, ts: int) -> int:
        # Do not walk a million steps to an instant of today: start at some early enough multiple of advance.
        return max(0, (ts - self.size) // self.advance - 1) * self.advance

    def closed(self, end: int, stream_time: int) -> bool:
        return end <= stream_time - self.grace


@dataclass(frozen=True)
class NoWindows:
    """One result per key, for ever."""

    def of(self, ts: int, stream_time: int = 0) -> list[None]:
        return [None]

    def closed(self, end: int, stream_time: int) -> bool:
        return False


@dataclass(frozen=True)
class Batches:
    """The window of a record is the window of the stream time it sees; no record can be behind it (SEMANTICS 12)."""

    size: int
    grace: int = 0

    def of(self, ts: int, stream_time: int = 0) -> list[tuple[int, int]]:
        start = stream_time - stream_time % self.size
        return [(start, start + self.size)]

    def closed(self, end: int, stream_time: int) -> bool:
        return end <= stream_time


@dataclass(frozen=True)
class Unlimited:
    """[start, Long.MAX), never closed; an earlier record is in no window, which is no drop (SEMANTICS 2.5)."""

    start: int
    grace: int = 0

    def of(self, ts: int, stream_time: int = 0) -> list[tuple[int, int]]:
        return [(self.start, 2**63 - 1)] if ts >= self.start else []

    def closed(self, end: int, stream_time: int) -> bool:
        return False


@dataclass(frozen=True)
class Sessions:
    """Records of a key at most `gap` apart; [first, last], closed when stream time passes last + gap + grace."""

    gap: int
    grace: int

    def closed(self, end: int, stream_time: int) -> bool:
        return end < stream_time - self.grace - self.gap


@dataclass(frozen=True)
class BuiltIn:
    """An aggregate by name over a column; `scale` is that of a decimal column."""

    function: str
    column: str | None = None
    scale: int | None = None


@dataclass(frozen=True)
class Reduce:
    function: Callable[[Any, Any], Any]
    column: str


@dataclass(frozen=True)
class Fold:
    initializer: Callable[[], Any]
    aggregator: Callable[[Any, Row, Any], Any]
    merger: Callable[[Any, Any, Any], Any] | None = None


@dataclass(frozen=True)
class Topology:
    """A windowed aggregation; `aggregates` is one Reduce or Fold, or any number of built-in ones."""

    key: tuple[str, ...]
    windows: Windows | NoWindows | Batches | Unlimited | Sessions
    aggregates: dict[str, BuiltIn | Reduce | Fold]
    final: bool
    caching: bool = True
    timestamp: str = "ts"
    partition: str | None = None
    offset: str | None = None

    @property
    def deletes(self) -> bool:
        """Whether tombstones can be emitted: only among updates, if functions return None or sessions merge."""
        functions = any(not isinstance(a, BuiltIn) for a in self.aggregates.values())
        return not self.final and (functions or isinstance(self.windows, Sessions))


@dataclass
class Entry:
    """State of a key in a window: its records in order, its result and the result's timestamp."""

    timestamp: int
    records: list[Row] = field(default_factory=list)
    values: Row = field(default_factory=dict)


@dataclass
class Oracle:
    """Takes batches of records, gives rows; `drops` counts by reason, `late` has late records with their windows.

    An entry of `late` is (record, window, stream time seen), of `skipped` (record, reason). A timestamp beyond
    `latest` is too far ahead of the wall clock; the caller moves `latest`.
    """

    topology: Topology
    stream_time: int = -1
    drops: Counter[str] = field(default_factory=Counter)
    late: list[tuple[Row, tuple[int, int], int]] = field(default_factory=list)
    skipped: list[tuple[Row, str]] = field(default_factory=list)
    entries: dict[tuple[Key, tuple[int, int]], Entry] = field(default_factory=dict)
    latest: int | None = None

    def batch(self, records: Iterable[Row]) -> list[Row]:
        """One micro-batch."""
        seen = self._seen([record for record in self._in_order(records) if self._good(record)])
        known = set(self.entries)
        updates = [row for stream_time, record in seen for row in self._record(stream_time, record)]
        self.stream_time = max([self.stream_time] + [stream_time for stream_time, _ in seen])
        final = self._close()
        if self.topology.final:
            return final
        if not self.topology.caching or len(seen) == 1:
            return updates
        # Created and deleted between two flushes: nothing is forwarded (SEMANTICS section 13).
        name = lambda row: (tuple(row[c] for c in self.topology.key), row.get("window"))  # noqa: E731
        return [row for row in self._last_per_key(updates) if not row.get("deleted") or name(row) in known]

    def _in_order(self, records: Iterable[Row]) -> list[Row]:
        """By source partition and offset; without them one partition, in the order given."""
        t = self.topology
        if t.offset is None:
            return list(records)
        return sorted(records, key=lambda record: (record[t.partition], record[t.offset]))

    def _good(self, record: Row) -> bool:
        """Records without a key or a usable timestamp are counted and change nothing, not even stream time."""
        timestamp = record.get(self.topology.timestamp)
        if any(record.get(column) is None for column in self.topology.key):
            self._skip(record, "null_key")
        elif timestamp is None or timestamp < 0:
            self._skip(record, "bad_timestamp")
        elif self._needs_value() and not self._has_value(record):
            self._skip(record, "null_value")
        elif self.latest is not None and timestamp > self.latest:
            self._skip(record, "future")
        else:
            return True
        return False

    def _needs_value(self) -> bool:
        return isinstance(self.topology.windows, NoWindows)

    def _has_value(self, record: Row) -> bool:
        """Without windows a record needs a value: some column that is not null, for reduce its own (SEMANTICS 15)."""
        t = self.topology
        (first, *_) = t.aggregates.values()
        aside = {*t.key, t.timestamp, t.partition, t.offset}
        columns = [first.column] if isinstance(first, Reduce) else [name for name in record if name not in aside]
        return any(record[column] is not None for column in columns)

    def _skip(self, record: Row, reason: str) -> None:
        self.drops[reason] += 1
        self.skipped.append((record, reason))

    def _seen(self, records: list[Row]) -> list[tuple[int, Row]]:
        """Every record with the stream time it sees, in the order they are taken."""
        t = self.topology
        seen = []
        for record in records:
            partition = record[t.partition] if t.partition else 0
            own = [r for r in records if not t.partition or r[t.partition] == partition]
            until = own[: next(i for i, r in enumerate(own) if r is record) + 1]
            stream_time = max([self.stream_time] + [r[t.timestamp] for r in until])
            seen.append((stream_time, partition, len(until), record))
        seen.sort(key=lambda item: item[:3])
        return [(stream_time, record) for stream_time, _, _, record in seen]

    def _record(self, stream_time: int, record: Row) -> list[Row]:
        """The updates one record makes, ascending by window; a closed window is one drop."""
        if isinstance(self.topology.windows, Sessions):
            return self._session(self.topology.windows, stream_time, record)
        rows = []
        for window in self.topology.windows.of(record[self.topology.timestamp], stream_time):
            if window and self.topology.windows.closed(window[1], stream_time):
                self.drops["late"] += 1
                self.late.append((record, window, stream_time))
            else:
                rows.append(self._update(window, record))
        return rows

    def _session(self, windows: Sessions, stream_time: int, record: Row) -> list[Row]:
        """The tombstones of the sessions that the record joins, and the session they become (SEMANTICS 4, 14.3)."""
        t = self.topology
        ts, key = record[t.timestamp], tuple(record[column] for column in t.key)
        alive = sorted((w for k, w in self.entries if k == key and not windows.closed(w[1], stream_time)), key=_by_end)
        found = [(start, end) for start, end in alive if start <= ts + windows.gap and end >= ts - windows.gap]
        merged = min([ts, *(w[0] for w in found)]), max([ts, *(w[1] for w in found)])
        if windows.closed(merged[1], stream_time):
            self.drops["late"] += 1
            self.late.append((record, merged, stream_time))
            return []
        was = [self.entries.pop((key, window)) for window in found]
        gone = [] if merged == (ts, ts) else zip(found, was, strict=True)
        rows = [self._row(key, w, Entry(w[1], [], dict.fromkeys(t.aggregates)), deleted=True) for w, _ in gone]
        records = [r for entry in was for r in entry.records] + [record]
        values = {name: _joined(a, name, was, records, key) for name, a in t.aggregates.items()}
        entry = Entry(merged[1], records, values)
        if not any(v is None and not isinstance(t.aggregates[n], BuiltIn) for n, v in values.items()):
            self.entries[key, merged] = entry
            return [*rows, self._row(key, merged, entry)]
        return [*rows, self._row(key, merged, entry, deleted=True)]

    def _update(self, window: tuple[int, int], record: Row) -> Row:
        t = self.topology
        key = tuple(record[column] for column in t.key)
        entry = self.entries.get((key, window))
        ts = record[t.timestamp]
        old = entry.values if entry else {}
        entry = entry or Entry(ts)
        entry.timestamp = max(entry.timestamp, ts)
        entry.records.append(record)
        entry.values = {name: _new(a, name, old, entry.records, key) for name, a in t.aggregates.items()}
        deleted = any(v is None and not isinstance(t.aggregates[n], BuiltIn) for n, v in entry.values.items())
        if deleted:
            self.entries.pop((key, window), None)
        else:
            self.entries[key, window] = entry
        return self._row(key, window, entry, deleted)

    def _row(self, key: Key, window: tuple[int, int], entry: Entry, deleted: bool = False) -> Row:
        t = self.topology
        place = {"window": window} if window else {}
        row = dict(zip(t.key, key, strict=True)) | place | entry.values | {"timestamp": entry.timestamp}
        return row | {"deleted": deleted} if t.deletes else row

    def _close(self) -> list[Row]:
        """Forget the closed windows; their rows in the order (start, key)."""
        closed = [at for at in self.entries if at[1] and self.topology.windows.closed(at[1][1], self.stream_time)]
        place = _by_end if isinstance(self.topology.windows, Sessions) else lambda window: window[0]
        closed.sort(key=lambda at: (place(at[1]), serialized(at[0])))
        return [self._row(*at, self.entries.pop(at)) for at in closed]

    def _last_per_key(self, updates: list[Row]) -> list[Row]:
        key = self.topology.key
        return list({(*(row[column] for column in key), row.get("window")): row for row in updates}.values())


def _by_end(window: tuple[int, int]) -> tuple[int, int]:
    return window[1], window[0]


def serialized(key: Key) -> tuple[bytes, ...]:
    """The bytes that order keys, column by column: UTF-8, big-endian two's complement (SEMANTICS section 1)."""
    return tuple(
        v if isinstance(v, bytes) else v.to_bytes(8, "big", signed=True) if isinstance(v, int) else str(v).encode()
        for v in key
    )


def _new(aggregate: BuiltIn | Reduce | Fold, name: str, old: Row, records: list[Row], key: Key) -> Any:
    """The value after the last of `records`, `old` being the values before it (empty: no entry)."""
    if isinstance(aggregate, BuiltIn):
        return compute(aggregate, records)
    record = records[-1]
    if isinstance(aggregate, Reduce):
        value = record.get(aggregate.column)
        return aggregate.function(old[name], value) if old else value
    before = old[name] if old else aggregate.initializer()
    return aggregate.aggregator(key[0] if len(key) == 1 else key, record, before)


def _joined(aggregate: BuiltIn | Reduce | Fold, name: str, was: list[Entry], records: list[Row], key: Key) -> Any:
    """The value of a session merged from others: merge their values, then add the last of `records`."""
    if isinstance(aggregate, BuiltIn):
        return compute(aggregate, records)
    values = [entry.values[name] for entry in was]
    if isinstance(aggregate, Reduce):
        values.append(records[-1].get(aggregate.column))
        # If the reducer gave None there is no aggregate: the next value is taken as it is (SEMANTICS 2.2, 4).
        return reduce(lambda old, new: new if old is None else aggregate.function(old, new), values)
    shown = key[0] if len(key) == 1 else key
    merged = aggregate.initializer()
    for value in values:
        assert aggregate.merger is not None
        merged = aggregate.merger(shown, merged, value)
    return aggregate.aggregator(shown, records[-1], merged)


def compute(aggregate: BuiltIn, records: list[Row]) -> Any:  # noqa: C901 - one line per aggregate
    """A built-in aggregate of a list of records, nulls as Spark has them."""
    if aggregate.column is None:
        return len(records)
    every = [record.get(aggregate.column) for record in records]
    values = [value for value in every if value is not None]
    match aggregate.function:
        case "count":
            return len(values)
        case "first":
            return every[0]
        case "last":
            return every[-1]
        case "collect_list":
            return values
        case "approx_count_distinct":
            return len(set(values))
    if not values:
        return None
    match aggregate.function:
        case "sum":
            return sum(values[1:], values[0])
        case "min":
            return min(values, key=_nan_last)
        case "max":
            return max(values, key=_nan_last)
        case "mean":
            return _mean(values, aggregate.scale)
    raise AssertionError(f"no such aggregate: {aggregate.function}")


def _nan_last(value: Any) -> tuple[bool, Any]:
    nan = isinstance(value, float) and math.isnan(value)
    return nan, 0 if nan else value


def _mean(values: list[Any], scale: int | None) -> Any:
    if scale is None:
        return sum(values) / len(values)
    exact = sum(values, Decimal(0)) / len(values)
    return exact.quantize(Decimal(1).scaleb(-min(38, scale + 4)), ROUND_HALF_UP)


def same(a: Any, b: Any) -> bool:
    """Equal, floats to rounding and NaN like itself."""
    if isinstance(a, float) and isinstance(b, float):
        return (math.isnan(a) and math.isnan(b)) or math.isclose(a, b, rel_tol=1e-9, abs_tol=1e-9)
    if isinstance(a, dict) and isinstance(b, dict):
        return list(a) == list(b) and all(same(a[name], b[name]) for name in a)
    if isinstance(a, list) and isinstance(b, list):
        return len(a) == len(b) and all(same(x, y) for x, y in zip(a, b, strict=True))
    # True is not 1 here: a column of booleans must come back as booleans.
    return isinstance(a, bool) == isinstance(b, bool) and a == b


def by_place(rows: Iterable[Row], key: tuple[str, ...]) -> list[Row]:
    """Rows in the order (start, key), stable, for outputs without an order between keys."""
    return sorted(rows, key=lambda row: (row.get("window", ()), serialized(tuple(row[column] for column in key))))
