"""Expected rows of a join: the oracles of SEMANTICS 7b, 16 and 17, over a batch's records in the operator's order."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from copy import deepcopy
from dataclasses import dataclass, field
from typing import Any

from hostile import functions
from hostile.case import Row
from hostile.joined import SIDES, Joining
from hostile.kinds import same_key
from hostile.steps import Steps, Stopped
from hostile.stored import Misfit, stored
from hostile.truth import Idle
from oracle_join_batches import Arrival, JoinInBatches, Partition
from oracle_joins import TOMBSTONE, JoinedRow, StreamJoin, StreamTableJoin, TableTableJoin, null, skipped
from oracle_slowest import StreamsTime

END = 2**80
"""A time at which every record has closed."""


@dataclass
class Late:
    """A record that a join of streams dropped, and the stream time that it saw."""

    record: Arrival
    reason: str
    stream_time: int


@dataclass
class Watched(StreamJoin):
    """Keeps each dropped record in `refused`."""

    refused: list[Late] = field(default_factory=list)

    def take(
        self, side: str, key: Any, value: Any, timestamp: int | None, stream_time: int | None = None
    ) -> list[JoinedRow]:
        before = Counter(self.drops)
        rows = super().take(side, key, value, timestamp, stream_time)
        for reason in self.drops - before:
            self.refused.append(Late(Arrival(side, key, value, timestamp, 0, 0), reason, self.stream_time))
        return rows


@dataclass
class OneInput(JoinInBatches):
    """A stream with itself: no other side can be silent."""

    def _silent(self) -> list[Partition]:
        return []


@dataclass
class WithTable:
    """A join with a table, in batches: the table comes before the stream; of two tables the left one comes first."""

    join: StreamTableJoin | TableTableJoin
    stream_time: int = -1
    own: StreamsTime | None = None
    """The stream's own time, if its slowest partition decides; else None."""

    @property
    def drops(self) -> Counter[str]:
        return self.join.drops

    def batch(self, arrivals: list[Arrival], clock: int = 0, told: int | None = None) -> list[JoinedRow]:
        """Rows of a batch; `told`: stream time of the operator whose rows are the stream."""
        mine = [one for one in sorted(arrivals, key=lambda one: one.offset) if one.side == "left"]
        moves = [(one.partition, one.timestamp or 0 if self._moves(one) else -1) for one in mine]
        sees: dict[int, int] = {}
        if self.own is not None:
            seen = self.own.batch(moves, clock) if told is None else [self.own.now] * len(mine)
            sees = dict(zip(map(id, mine), seen, strict=True))
            self.own.now = max(self.own.now, -1 if told is None else told)
        first = {side: place for place, side in enumerate(SIDES if self._of_tables else SIDES[::-1])}
        times: dict[Partition, int] = {}
        seen = []
        for one in sorted(arrivals, key=lambda one: one.offset):
            mine = one.side, one.partition
            times[mine] = max(times.get(mine, -1), one.timestamp or -1 if self._moves(one) else -1)
            seen.append(((max(times[mine], self.stream_time), first[one.side], one.partition, one.offset), one))
        rows = []
        for _, one in sorted(seen, key=lambda entry: entry[0]):
            now = {"stream_time": sees[id(one)]} if id(one) in sees else {}
            rows += self.join.take(*one[:4], **now)
        self.stream_time = max([self.stream_time, *times.values()])
        return rows + self.passed(-1 if self.own is None else self.own.now)

    def passed(self, time: int) -> list[JoinedRow]:
        """Rows that are due when the stream's own time moves to `time`."""
        if self.own is not None:
            self.own.now = max(self.own.now, time)
        return self.join.advance(time) if isinstance(self.join, StreamTableJoin) else []

    @property
    def _of_tables(self) -> bool:
        return isinstance(self.join, TableTableJoin)

    def _moves(self, one: Arrival) -> bool:
        change = self._of_tables or one.side == "right"
        return not null(one.key) and skipped(one.key, "a value" if change else one.value, one.timestamp) is None


class JoinedTruth:
    """Expected rows of each batch and of a drain, and expected drops by reason."""

    def __init__(self, what: Joining, ticks: bool = False) -> None:
        self.what, self.ticks = what, ticks
        self.idle = Idle(what.idle_advance, ticks)
        self.steps = [Steps.of(what, source) for source in what.sources]
        self.behind = None if what.step is None else what.functions(what.step.made)
        self.taken = 0
        self.late: list[Late] = []
        self.future = 0
        self.join = self._join()

    def _join(self) -> Any:
        what = self.what
        if what.family == "table":
            # Without a grace no record waits, whatever the clock.
            own = StreamsTime(what.idle_after) if what.slowest else None
            return WithTable(StreamTableJoin(what.how, what.history, what.grace or None), own=own)
        if what.family == "tables":
            return WithTable(TableTableJoin(what.how))
        made = OneInput if what.family == "self" else JoinInBatches
        new: Callable[[], StreamJoin] = lambda: Watched(  # noqa: E731
            *what.reach, what.how, what.family == "self", refused=self.late
        )
        return made(new, what.slowest, idle_after=what.idle_after)

    def batch(self, number: int) -> list[Row]:
        """Rows of a batch. Raises Stopped after a rollback to the state before the batch."""
        before, late, idle, future = deepcopy(self.join), list(self.late), deepcopy(self.idle), self.future
        try:
            made = self._joined(number)
            return self._shown(made) + self._late()
        except (Misfit, functions.Failed):
            self.join, self.late[:], self.idle, self.future = before, late, idle, future
            self._watch()
            raise Stopped("AggregationError") from None

    def _joined(self, number: int) -> list[JoinedRow]:
        clock, arrivals = self.what.clocks[number], self._arrivals(number)
        # Changes of a table do not move the clock of the stream.
        whole = self.what.family in ("streams", "self")
        came = any(whole or one.side == "left" for one in arrivals)
        # Records that a filter removes do not arrive, but time does not go on in their batch either.
        sides = [self.what.side_of(number, place) for place in range(len(self.what.batches[number]))]
        read = any(whole or side == 0 for side in sides)
        taken = [one for one in arrivals if not self._ahead(one, clock)]
        self.future += len(arrivals) - len(taken)
        if self.what.family == "tables":
            return self.join.batch(taken)
        # In the driver the time that passes before a batch is a step of its own.
        passed = -1 if self.ticks and read else self.idle.reached(clock)
        rows = self.join.passed(passed) if not self.ticks else []
        rows += self.join.batch(taken, clock, came=came) if whole else self.join.batch(taken, clock)
        if self.ticks:
            rows += self.join.passed(passed)
        if came:
            self.idle.came(self._now(), clock)
        return rows

    def _now(self) -> int:
        """The stream time that goes on without records: of both streams, or of the stream that meets a table."""
        if isinstance(self.join, WithTable):
            return self.join.join.stream_time if self.join.own is None else self.join.own.now
        return self.join.stream_time

    def _watch(self) -> None:
        """Make the copies of the joins write their drops into `self.late`."""
        for join in getattr(self.join, "joins", {}).values():
            join.refused = self.late

    @property
    def time(self) -> int:
        """Stream time of the join, by the slowest partition: the clock of an operator behind it."""
        if isinstance(self.join, WithTable):
            return -1 if self.join.own is None else max(-1, self.join.own.now - (self.what.grace or 0))
        return self.join.stream_time

    def drain(self) -> list[Row]:
        """Rows of a drain: every record closes, and records that wait for a table are looked up."""
        if isinstance(self.join, WithTable):
            join = self.join.join
            return self._shown(join.advance(END) if isinstance(join, StreamTableJoin) else [])
        return self._shown([row for join in self.join.joins.values() for row in join.advance(END)])

    def readable(self) -> None:
        """Stores of joins are compared by `properties/test_joins`."""

    @property
    def drops(self) -> Counter[str]:
        """Dropped records, counted by reason."""
        return Counter({reason: n for reason, n in (self.join.drops | {"future": self.future}).items() if n})

    def _ahead(self, one: Arrival, clock: int) -> bool:
        """Whether a record is too far ahead of the wall clock, and nothing else is a reason to skip it."""
        what = self.what
        if what.skew is None or one.timestamp is None or one.timestamp <= clock + what.skew:
            return False
        if what.family == "table" and one.side == "right":
            return skipped(one.key, TOMBSTONE, one.timestamp) is None
        left = one.side == "left" or what.family == "self"
        preserved = what.how == "outer" or (what.how == "left" and left)
        return skipped(one.key, one.value, one.timestamp, preserved) is None

    # -- records in, rows out --------------------------------------------------------------------------------------

    def _arrivals(self, number: int) -> list[Arrival]:
        what, found = self.what, []
        for place, record in enumerate(what.batches[number]):
            side = what.side_of(number, place)
            source = what.sources[side]
            if (stepped := self.steps[side].run(record)) is None:
                continue
            key = tuple(None if stepped[name] is None else same_key(stepped[name]) for name in source.key)
            value: Row | None = {name: stepped[name] for name in source.values}
            if source.deleted is not None:
                value = None if record[source.deleted] else value
            elif all(part is None for part in value.values()):
                value = None
            at = (record[source.order[0]], record[source.order[1]]) if source.order else (0, self.taken + place)
            found.append(Arrival(SIDES[side], key, value, stepped[source.timestamp], *at))
        self.taken += len(what.batches[number])
        return found

    def _shown(self, rows: list[JoinedRow]) -> list[Row]:
        return [made for row in rows if (made := self._row(row)) is not None]

    def _row(self, row: JoinedRow) -> Row | None:
        what = self.what
        aside: Row = dict(zip(what.key, row.key, strict=True)) | {"timestamp": row.timestamp}
        if what.family == "tables":
            aside["deleted"] = row.deleted
        values = self._values(row)
        if row.deleted:
            values = dict.fromkeys(values)
        if what.step is not None and self.behind is not None and not row.deleted:
            found = self.behind(deepcopy(aside | values))
            if what.step.how == "filter":
                if not found:
                    return None if what.family != "tables" else aside | dict.fromkeys(values) | {"deleted": True}
            else:
                values = {name: stored(found.get(name), what.functions(kind)) for name, kind in what.step.types}
        elif what.step is not None and what.step.types:
            values = dict.fromkeys(name for name, _ in what.step.types)
        return aside | values | ({"output": "joined"} if what.late else {})

    def _values(self, row: JoinedRow) -> Row:
        what = self.what
        if what.joiner:
            if row.deleted:
                return dict.fromkeys(("pair", "parts"))
            found = functions.Paired()(deepcopy(row.left), deepcopy(row.right))
            return {"pair": found["pair"], "parts": list(found["parts"])}
        left, right = what.renamed
        return self._renamed(left, row.left) | self._renamed(right, row.right)

    @staticmethod
    def _renamed(names: dict[str, str], value: Row | None) -> Row:
        return {named: None if value is None else value[name] for name, named in names.items()}

    def _late(self) -> list[Row]:
        found, self.late[:] = list(self.late), []
        if not self.what.late:
            return []
        rows = []
        for one in found:
            side = 0 if one.record.side == "left" else 1
            names = self.what.renamed
            values = self._renamed(names[side], one.record.value)
            if self.what.joiner:  # a joiner only joins pairs
                values = {SIDES[side]: one.record.value or dict.fromkeys(self.what.sources[side].values)}
            timestamp = None if one.reason == "bad_timestamp" else one.record.timestamp
            said = {"side": "both" if self.what.family == "self" else SIDES[side], "reason": one.reason}
            late_by = one.stream_time - (one.record.timestamp or 0) if one.reason == "late" else None
            said |= {"late_by": late_by, "stream_time": one.stream_time, "timestamp": timestamp, "output": "late"}
            rows.append(dict(zip(self.what.key, one.record.key, strict=True)) | values | said)
        return rows
