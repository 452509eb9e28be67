"""Expected output of a scenario: oracles that take record by record, one for each output.

No code here knows the kernel. Functions get copies of all arguments, as if they had been serialized, and their result
becomes a value of its type at once (`hostile.stored`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from copy import deepcopy
from dataclasses import dataclass, field, replace
from typing import Any

from hostile import functions
from hostile.case import Case
from hostile.kinds import same_key, scale_of
from hostile.scenario import Call, Output, Row, Scenario, Sliding
from hostile.steps import Steps, Stopped, TableStep
from hostile.stored import Misfit, stored
from oracle import Batches, BuiltIn, Entry, Fold, Oracle, Reduce, Sessions, Topology, Windows, _new
from oracle_slowest import SlowOracle
from oracle_suppress import Full, Limit, Suppression
from properties.test_expected import ExpectingOracle


@dataclass
class Truth:
    """Expected rows of each batch and of a drain, and expected drops by reason.

    ticks  whether tasks look at the wall clock at instants that all of them know, as on Spark, and not in every batch
    """

    scenario: Scenario
    ticks: bool = False
    taken: list[tuple[list[Row], int]] = field(default_factory=list)
    left: list[Row] = field(default_factory=list)
    """Rows emitted before a batch that failed; they are read with the next batch."""

    def __post_init__(self) -> None:
        self._begin()

    def _begin(self) -> None:
        self.ways = [_Way.of(self.scenario, output) for output in self.scenario.outputs]
        (source,) = self.scenario.sources
        self.steps = Steps.of(self.scenario, source)
        self.idle = Idle(self.scenario.idle, self.ticks)

    def batch(self, number: int) -> list[Row]:
        """Rows of a batch, and of the time that passed before it. Raises Stopped after a rollback.

        In the driver the time that passes before a batch is a step of its own: its rows stay emitted even if the batch
        fails.
        """
        records, clock = self.scenario.batches[number], self.scenario.clocks[number]
        rows, self.left = self.left, []
        if self.scenario.idle is not None and not self.ticks:
            try:
                rows += self._batch([], clock)
            except Full:
                self.left = rows
                return self._failed("BufferFullError")
            self.taken.append(([], clock))
        before = list(rows)
        try:
            rows += self._batch(records, clock)
        except (Misfit, functions.Failed):
            self.left = before
            return self._failed("AggregationError")
        except Full:
            self.left = before
            return self._failed("AggregationError" if self._misfits(records, clock) else "BufferFullError")
        self.taken.append((records, clock))
        return rows

    def _failed(self, error: str) -> list[Row]:
        self._go_on()
        raise Stopped(error)

    def _misfits(self, records: list[Row], clock: int) -> bool:
        """Whether a function fails too: functions take all records of the batch before a buffer does."""
        self._go_on()
        for way in self.ways:
            way.oracle.__dict__["most"], way.suppressions = None, []
        try:
            self._batch(records, clock)
        except (Misfit, functions.Failed):
            return True
        return False

    def _go_on(self) -> None:
        """Roll back to the state before the batch."""
        self._begin()
        for records, clock in self.taken:
            self._batch(records, clock)

    def _batch(self, records: list[Row], clock: int) -> list[Row]:
        passed = -1 if records else self.idle.reached(clock)
        records = [
            self._grouping(self._of_input(record, stepped))
            for record in records
            if (stepped := self.steps.run(record)) is not None
        ]
        rows = []
        for way in self.ways:
            way.oracle.stream_time = max(way.oracle.stream_time, passed)
            if isinstance(way.oracle, SlowOracle):
                way.oracle.clock = clock
            if self.scenario.skew is not None:
                way.oracle.latest = clock + self.scenario.skew
            rows += way.batch(records)
            if not records:
                rows += way.passed()
        self.idle.after(self.ways[0].oracle, records, clock)
        return rows

    def drain(self) -> list[Row]:
        """Rows of a drain. Raises Stopped if a strict buffer is too small for them."""
        try:
            return self.left + [row for way in self.ways for row in way.drain()]
        except Full:
            raise Stopped("BufferFullError") from None

    @property
    def drops(self) -> Counter[str]:
        """Dropped records, counted by reason."""
        return Counter({reason: n for reason, n in self.ways[0].oracle.drops.items() if n})

    def readable(self) -> list[Row]:
        """Expected rows of the store: open windows, and closed ones within the retention."""
        oracle, retention = self.ways[0].oracle, self.scenario.retention
        emitted = oracle.emitted if isinstance(oracle, SlidingOracle) else set()
        rows = [oracle._row(*place, entry) for place, entry in oracle.entries.items() if place not in emitted]
        found = [row | {"status": "open"} for row in rows]
        if retention is not None:
            closes = lambda row: _closes(self.scenario.windows, row["window"][1])  # noqa: E731
            closed = [row for row in getattr(oracle, "closed", []) if closes(row) + retention > oracle.stream_time]
            found += [row | {"status": "closed"} for row in closed]
        return [{name: value for name, value in row.items() if name != "deleted"} for row in found]

    def _of_input(self, record: Row, stepped: Row) -> Row:
        """The record; with two inputs its partition names the input, because each input has partitions of its own."""
        if self.scenario.inputs == "one" or self.scenario.order is None:
            return stepped
        partition, number = self.scenario.order[0], (record[self.scenario.columns[0][0]] or 0) % 2
        return stepped | {partition: f"{number}:{stepped[partition]}"}

    def _grouping(self, record: Row) -> Row:
        return record | {name: same_key(record[name]) for name in self.scenario.key}


# -- ways out ----------------------------------------------------------------------------------------------------


@dataclass
class _Way:
    """One output: the oracle of the aggregation, and the step and limits behind it."""

    scenario: Scenario
    output: Output
    oracle: Oracle
    suppressions: list[Suppression]
    step: TableStep | None
    seen: int = 0
    skipped: int = 0

    @classmethod
    def of(cls, scenario: Scenario, output: Output) -> _Way:
        behind = [_suppression(scenario, limit) for limit in output.limits]
        step = None if output.step is None else TableStep.of(scenario, output.step, scenario.key)
        return cls(scenario, output, _oracle(scenario, output), behind, step)

    def batch(self, records: list[Row]) -> list[Row]:
        return self._out(self.oracle.batch(deepcopy(records)))

    def passed(self) -> list[Row]:
        """Rows that leave a buffer as time passes without records; behind final results their own time counts."""
        if not self.suppressions or self.output.final:
            return []
        first = self.suppressions[0]
        first.stream_time = max(first.stream_time, self.oracle.stream_time)
        waiting = sorted(first.held.values(), key=lambda one: (one.time, one.place))
        due = [one for one in waiting if one.time <= first.stream_time - first.limit.ms]
        for one in due:
            del first.held[one.place]
        return self._labeled(through(self.suppressions[1:], [one.row for one in due]))

    def drain(self) -> list[Row]:
        rows = []
        if self.output.final:
            close_all(self.oracle)
            rows = self._out(self.oracle.batch([]))
        return rows + self._labeled(drained(self.suppressions))

    def _out(self, rows: list[Row]) -> list[Row]:
        if self.output.kind == "late":
            return self._labeled(self._late())
        if self.step is not None:
            rows = [self.step.run(row) for row in rows]
        return self._labeled(through(self.suppressions, rows))

    def _labeled(self, rows: list[Row]) -> list[Row]:
        return [row | {"output": self.output.name} for row in rows] if self.output.name else rows

    def _late(self) -> list[Row]:
        late = [(self._own(record), *more) for record, *more in self.oracle.late[self.seen :]]
        skipped = [(self._own(record), reason) for record, reason in self.oracle.skipped[self.skipped :]]
        self.seen, self.skipped = len(self.oracle.late), len(self.oracle.skipped)
        rows = [
            record
            | {"window": window, "reason": "late", "stream_time": time}
            | {"late_by": time - record[self.scenario.timestamp], "timestamp": record[self.scenario.timestamp]}
            for record, window, time in late
        ]
        for record, reason in skipped:
            timestamp = None if reason == "bad_timestamp" else record[self.scenario.timestamp]
            nothing = dict.fromkeys(("window", "late_by"))
            rows.append(record | nothing | {"reason": reason, "timestamp": timestamp})
        return rows

    def _own(self, record: Row) -> Row:
        """A record with the partition number of its own input."""
        if self.scenario.inputs == "one" or self.scenario.order is None:
            return record
        partition = self.scenario.order[0]
        return record | {partition: int(record[partition].partition(":")[2])}


def _closes(windows: Any, end: int) -> int:
    """The stream time at which a window closes."""
    behind = {Windows: 0, Batches: 0, Sliding: 1, Sessions: 1}[type(windows)]
    return end + behind + windows.grace + (windows.gap if isinstance(windows, Sessions) else 0)


def close_all(oracle: Oracle) -> None:
    """Close every window, as at the end of the input."""
    windows: Any = _Over()
    if isinstance(oracle, ExpectingOracle):
        newest = oracle.newest if isinstance(oracle, SlowExpecting) else oracle.stream_time
        windows = _Begun.of(oracle.topology.windows, newest)
    oracle.topology = replace(oracle.topology, windows=windows)  # type: ignore[arg-type]


class _Over:
    """Windows that have all closed."""

    def closed(self, end: int, stream_time: int) -> bool:
        return True


@dataclass(frozen=True)
class _Begun(Windows):
    """Windows at the end of the input, if keys are expected: the last window is the last one of the newest record."""

    newest: int = -1

    @classmethod
    def of(cls, windows: Any, newest: int) -> _Begun:
        return cls(windows.size, windows.advance, windows.grace, newest)

    def closed(self, end: int, stream_time: int) -> bool:
        return end - self.size <= self.newest


def _suppression(scenario: Scenario, limit: Limit) -> Suppression:
    return Suppression(limit, scenario.key, isinstance(scenario.windows, Sessions))


def through(suppressions: list[Suppression], rows: list[Row]) -> list[Row]:
    """Rows that leave the last of these limits; each limit takes the rows that leave the one before it."""
    for suppression in suppressions:
        rows = [row for update in rows for row in suppression.take(update)]
    return rows


def everything(suppression: Suppression) -> list[Row]:
    waiting = sorted(suppression.held.values(), key=lambda waiting: (waiting.time, waiting.place))
    suppression.held = {}
    return [one.row for one in waiting]


def drained(suppressions: list[Suppression]) -> list[Row]:
    """All rows that wait in these limits, after the limits behind them."""
    return [row for n, one in enumerate(suppressions) for row in through(suppressions[n + 1 :], everything(one))]


@dataclass
class Idle:
    """Stream time that moves with the wall clock while no record comes (docs/semantics.md, idle input)."""

    after_ms: int | None
    ticks: bool
    heard: int | None = None
    stood: int = -1
    tick: int = -1

    def reached(self, clock: int) -> int:
        """Stream time after a batch without records; -1 if it does not move."""
        if self.after_ms is None or self.heard is None or (self.ticks and clock < self.tick):
            return -1
        self._next(clock)
        return self.stood + max(0, clock - self.heard - self.after_ms)

    def after(self, oracle: Oracle, records: list[Row], clock: int) -> None:
        if records:
            self.came(oracle.stream_time, clock)

    def came(self, stream_time: int, clock: int) -> None:
        """Records came at this wall clock, after which stream time is `stream_time`."""
        if self.after_ms is not None and stream_time >= 0:
            self.heard, self.stood = clock, stream_time
            self._next(clock)

    def _next(self, clock: int) -> None:
        """The next tick: a tenth of `after_ms` later, and at least a tenth of a second."""
        assert self.after_ms is not None
        assert self.heard is not None
        self.tick = max(clock, self.heard + self.after_ms) + max(self.after_ms // 10, 100)


# -- oracles -----------------------------------------------------------------------------------------------------


def _oracle(scenario: Scenario, output: Output) -> Oracle:
    windows = scenario.windows
    topology = Topology(
        key=scenario.key,
        windows=windows,  # type: ignore[arg-type]
        aggregates={call.name: aggregate_of(scenario, call) for call in scenario.calls},
        final=output.final,
        caching=scenario.caching,
        timestamp=scenario.timestamp,
        partition=scenario.order[0] if scenario.order else None,
        offset=scenario.order[1] if scenario.order else None,
    )
    if scenario.expects is not None:
        keys = [{name: same_key(value) for name, value in row.items()} for row in scenario.expects]
        if scenario.slowest:
            return SlowExpecting(topology, expected=keys, idle_after=scenario.idle_after)
        return ExpectingOracle(topology, expected=keys)
    most = _most(output)
    if scenario.slowest:
        slow = SlowSliding if isinstance(windows, Sliding) else SlowBounded
        return slow(topology, most=most, idle_after=scenario.idle_after)
    if isinstance(windows, Sliding):
        return SlidingOracle(topology, most=most)
    return BoundedOracle(topology, most=most)


def _most(output: Output) -> int | None:
    """The records that a strict buffer holds; None if no bound can be reached. An entry has at least 16 bytes."""
    if output.bound is None:
        return None
    what, bound = output.bound
    if what == "max_records":
        return bound
    return 0 if bound < 16 else None


def aggregate_of(what: Case, call: Call) -> BuiltIn | Reduce | Fold:
    """The aggregate of a call."""
    if call.family == "built-in":
        return BuiltIn(call.what, call.column, scale_of(call.kind))
    kind = what.functions(call.kind)
    if call.family == "reduce":
        assert call.column is not None
        function = getattr(functions, call.what)
        return Reduce(_serializing(function, kind), call.column)
    made = what.functions(f"f.{call.what}({call.column!r})")
    calls = (made.initializer, made.aggregator, made.merger)
    return Fold(*(_serializing(call, kind) for call in calls))


def _serializing(function: Callable[..., Any], kind: Any) -> Callable[..., Any]:
    """A function that gets copies of its arguments, and whose result is stored in type `kind`."""
    return lambda *given: stored(deepcopy(function(*deepcopy(given))), kind)


@dataclass
class BoundedOracle(Oracle):
    """Counts the entries of a strict buffer, record by record. Raises Full."""

    most: int | None = None
    waiting: set[Any] = field(default_factory=set)
    closed: list[Row] = field(default_factory=list)

    def _close(self) -> list[Row]:
        rows = super()._close()
        self.closed += rows
        return rows

    def _record(self, stream_time: int, record: Row) -> list[Row]:
        rows = self._updates(stream_time, record)
        if self.most is None:
            return rows
        windows: Any = self.topology.windows
        for row in rows:
            self.waiting.add((tuple(repr(row[name]) for name in self.topology.key), row["window"]))
        self.waiting = {place for place in self.waiting if not windows.closed(place[1][1], stream_time)}
        if len(self.waiting) > self.most:
            raise Full
        return rows

    def _updates(self, stream_time: int, record: Row) -> list[Row]:
        return super()._record(stream_time, record)


@dataclass
class SlidingOracle(BoundedOracle):
    """Sliding windows by SEMANTICS 3. Closed windows stay: a new window may begin with the records of a closed one."""

    emitted: set[Any] = field(default_factory=set)

    def _needs_value(self) -> bool:
        return True

    def _updates(self, stream_time: int, record: Row) -> list[Row]:
        turn = _Turn(self, stream_time, record)
        if turn.t + turn.d < turn.open_from:
            turn.drop(turn.t)
        elif turn.t < turn.d:
            turn.early()
        else:
            turn.regular()
        return turn.rows

    def _close(self) -> list[Row]:
        rows = []
        for place, entry in list(self.entries.items()):
            if place not in self.emitted and self.topology.windows.closed(place[1][1], self.stream_time):
                self.emitted.add(place)
                rows.append(self._row(*place, entry))
        self.closed += rows
        return rows


@dataclass
class SlowBounded(SlowOracle, BoundedOracle):
    """By the slowest partition."""


@dataclass
class SlowSliding(SlowOracle, SlidingOracle):
    """Sliding windows by the slowest partition."""


@dataclass
class SlowExpecting(ExpectingOracle, SlowOracle):
    """Expected keys, by the slowest partition."""

    @property
    def newest(self) -> int:
        """The newest record of all partitions."""
        return max([self.stream_time, *self.times.values()])


class _Turn:
    """Changes that one record makes to the sliding windows of its key, from their state before the record."""

    def __init__(self, oracle: SlidingOracle, stream_time: int, record: Row) -> None:
        windows: Any = oracle.topology.windows
        self.oracle, self.record, self.stream_time = oracle, record, stream_time
        self.d, self.t = windows.difference, record[oracle.topology.timestamp]
        self.open_from = stream_time - windows.grace
        self.key = tuple(record[column] for column in oracle.topology.key)
        mine = {window[0]: entry for (key, window), entry in oracle.entries.items() if key == self.key}
        self.before = {start: replace(entry, records=[*entry.records]) for start, entry in sorted(mine.items())}
        self.rows: list[Row] = []
        self.closed: set[int] = set()

    def regular(self) -> None:
        """Section 3.1."""
        candidate = left = previous = None
        for start in sorted(self.before, reverse=True):
            window = self.before[start]
            if not max(0, self.t - 2 * self.d) <= start <= self.t:
                continue
            if start + self.d > self.t:
                candidate = candidate or window
                self.add(start, window)
            elif start + self.d == self.t:
                self.add(start, window)
                if window.timestamp >= self.t:
                    return
                previous = window.timestamp
            else:
                left, previous = window, window.timestamp
                break
        if previous is not None and previous + 1 not in self.before and previous + 1 + self.d >= self.t:
            self.add(previous + 1, None)
        if self.t - self.d not in self.before:
            reaches = left is not None and left.timestamp >= self.t - self.d
            self.add(self.t - self.d, left if reaches else None, self.t)
        self.right(candidate)

    def early(self) -> None:
        """Section 3.2."""
        combined, candidate = self.before.get(0), None
        for start, window in self.before.items():
            if 0 < start <= self.t:
                candidate = window
                self.add(start, window)
        if candidate is None and combined is not None and combined.timestamp > self.t:
            candidate = combined
        self.right(candidate)
        if combined is not None and combined.timestamp < self.t and combined.timestamp + 1 not in self.before:
            self.add(combined.timestamp + 1, None)
        self.add(0, combined)

    def right(self, candidate: Entry | None) -> None:
        """The record's right window is a copy, without the record."""
        if self.t + 1 in self.before or candidate is None or candidate.timestamp <= self.t:
            return
        entry = Entry(candidate.timestamp, [*candidate.records], deepcopy(candidate.values))
        self.put(self.t + 1, entry)

    def add(self, start: int, base: Entry | None, timestamp: int | None = None) -> None:
        """Add the record to a window, or to a new window that begins with the records of `base`."""
        if start + self.d < self.open_from:
            self.drop(start)
            return
        newest = max(self.t, base.timestamp) if base is not None and timestamp is None else self.t
        entry = Entry(newest, [*(base.records if base else []), self.record])
        old = base.values if base else {}
        aggregates = self.oracle.topology.aggregates
        entry.values = {name: _new(a, name, old, entry.records, self.key) for name, a in aggregates.items()}
        self.put(start, entry)

    def put(self, start: int, entry: Entry) -> None:
        """Store the entry, or delete it; both emit a row."""
        aggregates, place = self.oracle.topology.aggregates, (start, start + self.d)
        deleted = any(v is None and not isinstance(aggregates[n], BuiltIn) for n, v in entry.values.items())
        if deleted:
            self.oracle.entries.pop((self.key, place), None)
        else:
            self.oracle.entries[self.key, place] = entry
        self.rows.append(self.oracle._row(self.key, place, entry, deleted))

    def drop(self, start: int) -> None:
        """One drop per window that is closed to the record, also if it is right and left window (SEMANTICS 2.4)."""
        if start not in self.closed:
            self.closed.add(start)
            self.oracle.drops["late"] += 1
            self.oracle.late.append((self.record, (start, start + self.d), self.stream_time))


__all__ = [
    "BoundedOracle",
    "Idle",
    "SlidingOracle",
    "Stopped",
    "Truth",
    "aggregate_of",
    "close_all",
    "drained",
    "through",
]
