"""Expected rows of an operator behind another one: rows of the first oracle are records of the second."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field, replace
from typing import Any

from hostile import chained_meetings
from hostile.case import Row
from hostile.chained import Again, Chained, Meeting, Windowing, value_kinds
from hostile.chained_meetings import RowsMeet
from hostile.joined import Joining
from hostile.joined_truth import END, JoinedTruth, WithTable
from hostile.kinds import same_key
from hostile.scenario import Scenario, Sliding
from hostile.tables import Regrouping
from hostile.tables_truth import UNSEEN, Groups, Way
from hostile.truth import BoundedOracle, SlidingOracle, Truth, aggregate_of, close_all, drained, through
from oracle import BuiltIn, Oracle, Sessions, Topology
from oracle_join_batches import Arrival
from oracle_joins import JoinedRow, StreamTableJoin
from oracle_slowest import StreamsTime
from oracle_suppress import Suppression


class ChainedTruth:
    """Expected rows of each batch and of a drain, and expected drops by reason."""

    def __init__(self, what: Chained, ticks: bool) -> None:
        self.what, self.in_driver = what, not ticks
        front = what.front
        self.first = Truth(front, ticks) if isinstance(front, Scenario) else JoinedTruth(front, ticks)
        self.follows = isinstance(front, Joining) and front.slowest
        self.second: Groups | Oracle | WithTable | RowsMeet
        if isinstance(what.behind, Windowing):
            merges = what.behind.others is not None
            self.second = _merged(what.behind, self.follows) if merges else _oracle(what, what.behind, self.follows)
        elif isinstance(what.behind, Meeting):
            self.second = RowsMeet.of(what.behind)
        elif isinstance(behind := what.behind, Again):
            join = StreamTableJoin(behind.how, behind.history, behind.grace or None)
            self.second = WithTable(join, own=StreamsTime() if self.follows else None)
        else:
            window = ("window",) if isinstance(front, Scenario) else ()
            self.second = Groups(what, what.behind, (*front.key, *window))
        self.groups_behind = Way(what, what.key, None, what.limits)
        by_end = isinstance(getattr(what.behind, "windows", None), Sessions)
        self.limits = [Suppression(limit, what.key, by_end) for limit in what.limits]

    def batch(self, number: int) -> list[Row]:
        """Rows of a batch. Raises Stopped after a rollback to the state before the batch."""
        return self._behind(self.first.batch(number), number)

    def drain(self) -> list[Row]:
        """Rows of a drain. Raises Stopped if a strict buffer is too small for them."""
        rows = self._behind(self.first.drain(), None)
        if isinstance(self.second, Oracle) and self.second.topology.final:
            close_all(self.second)
            rows += through(self.limits, self.second.batch([])) + drained(self.limits)
        if isinstance(self.second, Groups):
            rows += self._groups(self.groups_behind.drain())
        if isinstance(self.second, WithTable) and isinstance(self.second.join, StreamTableJoin):
            rows += self._shown(self.second.join.advance(END))
        if isinstance(self.second, RowsMeet):
            rows += self._met([row for join in self.second.joins.values() for row in join.advance(END)])
        return rows

    def readable(self) -> None:
        """The stores of a chain are compared by `testing/test_read_state`."""

    @property
    def drops(self) -> Counter[str]:
        """Dropped records and rows, counted by reason."""
        more = Counter[str]() if isinstance(self.second, Groups) else self.second.drops
        return Counter({reason: n for reason, n in (self.first.drops + more).items() if n})

    def _behind(self, rows: list[Row], number: int | None) -> list[Row]:
        # Caching does not merge the changes of a single record.
        piped = self.in_driver and number is not None and len(self.what.batches[number]) == 1
        if isinstance(self.second, WithTable):
            return self._joined(self.second, rows, number)
        if isinstance(self.second, Groups):
            made = self.second.take([row | {"deleted": row.get("deleted", False)} for row in rows], piped)
            return self._groups(self.groups_behind.take(made))
        if isinstance(self.second, RowsMeet):
            return self._meeting(self.second, rows, number)
        return through(self.limits, self._windowed(self.second, rows, number, piped))

    def _groups(self, rows: list[Row]) -> list[Row]:
        """Rows of groups that are emitted; rows of built-in aggregates have no column `deleted`."""
        assert isinstance(self.what.behind, Regrouping)
        aside = {"deleted"} if self.what.behind.family == "built-in" else set()
        return [{n: value for n, value in row.items() if n not in aside} for row in rows if UNSEEN not in row]

    def _windowed(self, second: Oracle, rows: list[Row], number: int | None, piped: bool) -> list[Row]:
        """The rows of windows."""
        behind = self.what.behind
        if isinstance(behind, Windowing) and behind.others is not None:
            return self._merged(second, rows, number)
        names = [
            *behind.by,
            *(name for name in (rows[0] if rows else ()) if name not in self.what.first.key),
            "timestamp",
        ]
        records = [{name: same_key(row[name]) if name in behind.by else row[name] for name in names} for row in rows]
        caching = second.topology
        second.topology = replace(caching, caching=not piped)
        if isinstance(second, Following):
            second.told = self._told
        made = second.batch(sorted(records, key=lambda row: row["timestamp"]))
        second.topology = caching
        return made

    def _meeting(self, second: RowsMeet, rows: list[Row], number: int | None) -> list[Row]:
        """The rows of a join with a stream."""
        behind = self.what.behind
        assert isinstance(behind, Meeting)
        records = self._records(number)
        if self.follows:
            second.told = self._told
        return self._met(second.batch(chained_meetings.arrivals(behind, rows, records)))

    def _met(self, rows: list[JoinedRow]) -> list[Row]:
        assert isinstance(self.what.behind, Meeting)
        return chained_meetings.shown(self.what.behind, tuple(value_kinds(self.what.first)), rows)

    def _records(self, number: int | None) -> list[Row]:
        """The records of the last source in a batch."""
        if number is None:
            return []
        mine = len(self.what.first.sources)
        return [one for at, one in enumerate(self.what.batches[number]) if self.what.side_of(number, at) == mine]

    def _merged(self, second: Oracle, rows: list[Row], number: int | None) -> list[Row]:
        """The rows of windows over rows of the join and records; rows of the join have a partition of their own."""
        behind = self.what.behind
        assert isinstance(behind, Windowing)
        assert behind.others is not None
        others = behind.others
        names = (*behind.by, *others.values)
        found = [
            {name: row[name] for name in names} | {"timestamp": row["timestamp"], PARTITION: ROWS, OFFSET: place}
            for place, row in enumerate(sorted(rows, key=lambda row: row["timestamp"]))
        ]
        assert others.order is not None
        partition, offset = others.order
        found += [
            {name: record[name] for name in names}
            | {"timestamp": record[others.timestamp], PARTITION: f"records {record[partition]}", OFFSET: record[offset]}
            for record in self._records(number)
        ]
        if isinstance(second, MergedSlowest):
            second.told = self._told
        return second.batch([row | {name: same_key(row[name]) for name in behind.by} for row in found])

    def _joined(self, second: WithTable, rows: list[Row], number: int | None) -> list[Row]:
        """The joined rows of a batch, or of a drain if `number` is None."""
        behind = self.what.behind
        assert isinstance(behind, Again)
        arrivals = [
            Arrival("left", _key(row, behind.by), _value(row, behind.by), row["timestamp"], 0, place)
            for place, row in enumerate(sorted(rows, key=lambda row: row["timestamp"]))
        ]
        table = behind.table
        for place, record in enumerate(self._records(number)):
            value = None if record[table.deleted or ""] else {name: record[name] for name in table.values}
            at = (record[table.order[0]], record[table.order[1]]) if table.order else (0, place)
            arrivals.append(Arrival("right", _key(record, behind.by), value, record[table.timestamp], *at))
        return self._shown(second.batch(arrivals, told=self._told if self.follows else None))

    @property
    def _told(self) -> int:
        """Stream time of the join in front."""
        assert isinstance(self.first, JoinedTruth)
        return self.first.time

    def _shown(self, rows: list[JoinedRow]) -> list[Row]:
        """The rows of a join with a table."""
        behind = self.what.behind
        assert isinstance(behind, Again)
        nothing = dict.fromkeys(behind.table.values)
        return [
            dict(zip(behind.by, row.key, strict=True))
            | row.left
            | (row.right or nothing)
            | {"timestamp": row.timestamp}
            for row in rows
        ]


def _key(row: Row, by: tuple[str, ...]) -> tuple[Any, ...]:
    return tuple(None if row[name] is None else same_key(row[name]) for name in by)


def _value(row: Row, by: tuple[str, ...]) -> Row | None:
    """The values of a row, None if all are null."""
    values = {name: value for name, value in row.items() if name not in (*by, "timestamp")}
    return None if all(value is None for value in values.values()) else values


@dataclass
class Following(Oracle):
    """Goes by the join in front: its stream time after the previous batch decides lateness; `told` is its time now."""

    told: int = -1

    def _seen(self, records: list[Row]) -> list[tuple[int, Row]]:
        return [(self.stream_time, record) for record in records]

    def _close(self) -> list[Row]:
        self.stream_time = max(self.stream_time, self.told)
        return super()._close()


@dataclass
class FollowingBounded(Following, BoundedOracle):
    """Behind a join."""


@dataclass
class FollowingSliding(Following, SlidingOracle):
    """Sliding windows behind a join."""


PARTITION, OFFSET, ROWS = "@partition", "@offset", "rows"


@dataclass
class MergedSlowest(BoundedOracle):
    """By the slowest partition. Rows of a join are one partition from the beginning, with time `told`."""

    told: int = -1
    times: dict[str, int] = field(default_factory=lambda: {ROWS: -1})

    def _seen(self, records: list[Row]) -> list[tuple[int, Row]]:
        before, now = self.times, dict(self.times)
        names = {*before, *(record[PARTITION] for record in records)}
        seen = []
        for place, record in enumerate(records):
            mine = record[PARTITION]
            if mine != ROWS:
                now[mine] = max(now.get(mine, -1), record["timestamp"])
            own = before[ROWS] if mine == ROWS else now[mine]
            others = [before.get(name, -1) for name in names - {mine}]
            seen.append((max(self.stream_time, min([own, *others])), mine, place, record))
        now[ROWS] = max(now[ROWS], self.told)
        self.times = now
        return [(time, record) for time, _, _, record in sorted(seen, key=lambda one: one[:3])]

    def _close(self) -> list[Row]:
        self.stream_time = max(self.stream_time, min(self.times.values()))
        return super()._close()


def _merged(behind: Windowing, follows: bool) -> Oracle:
    aggregates: dict[str, Any] = {name: BuiltIn(what, column) for name, what, column in behind.calls}
    order = {"timestamp": "timestamp", "partition": PARTITION, "offset": OFFSET}
    topology = Topology(behind.by, behind.windows, aggregates, behind.final, **order)  # type: ignore[arg-type]
    return MergedSlowest(topology) if follows else BoundedOracle(topology)


def _oracle(what: Chained, behind: Windowing, follows: bool) -> Oracle:
    aggregates: dict[str, Any] = {name: BuiltIn(function, column) for name, function, column in behind.calls}
    if (call := behind.function) is not None:
        aggregates = {call.name: aggregate_of(what, call)}
    topology = Topology(behind.by, behind.windows, aggregates, behind.final, timestamp="timestamp")  # type: ignore[arg-type]
    if follows:
        return FollowingSliding(topology) if isinstance(behind.windows, Sliding) else FollowingBounded(topology)
    return SlidingOracle(topology) if isinstance(behind.windows, Sliding) else BoundedOracle(topology)
