"""Draws an operator behind a join or an aggregation."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import count, islice
from typing import Any

from hostile.case import Source, Step
from hostile.chained import Again, Chained, Meeting, Windowing, value_kinds
from hostile.draws import PYTHONS_LAST, Draw
from hostile.joined import Joining
from hostile.joined_draws import JoinDraw
from hostile.kinds import KEYS, VALUES
from hostile.scenario import Call, Scenario, Sliding
from hostile.tables import Regrouping
from oracle import Batches, NoWindows, Unlimited, Windows
from oracle_suppress import Limit

Calls = tuple[tuple[str, str, str | None], ...]
LONG, STRING = "pa.int64()", "pa.string()"
DIARY = 'pa.list_(pa.struct([("at", pa.int64()), ("said", pa.list_(pa.string()))]))'
"""The type of `functions.Diary`."""

REDUCES = {LONG: "summed", STRING: "later"}
"""Reducers whose result does not depend on the order."""


class ChainDraw(JoinDraw):
    """Draws a chain of two operators."""

    def chained(self) -> Chained:
        """An operator behind another one, sometimes behind time limits."""
        way = self.random.choice([ChainDraw.again, ChainDraw.merged, ChainDraw.met, None, None])
        if way is not None:
            return self.behind_limits(self.until_there(way))
        first = self.joins() if self.chance(0.5) else self.aggregation()
        tables = isinstance(first, Scenario) or first.family == "tables"
        if tables:
            return self.behind_limits(self.over(first, self.groups(first)))
        # Idle time is a step of its own, which an operator behind would see: leave it out.
        first = replace(first, idle_advance=None)
        return self.behind_limits(self.by_functions(self.over(first, self.windowed(first))))

    def until_there(self, draw: Callable[[ChainDraw], Chained | None]) -> Chained:
        """First result of this draw that is not None, over new random numbers per turn."""
        turns = (ChainDraw(self.seed, self.spark, f" {n}") for n in count())
        return next(made for turn in turns if (made := draw(turn)) is not None)

    def merged(self) -> Chained | None:
        """Rows of a join merged with records, in windows; None for tables, other keys, and without order."""
        first = self.joining()
        keyed = any(step.how == "select_key" for source in first.sources for step in source.steps)
        if first.family == "tables" or keyed or any(source.order is None for source in first.sources):
            return None
        first = replace(first, late=False, idle_after=None, idle_advance=None)
        known = {VALUES[kind].code: kind for kind in ("long", "string")}
        kinds = {name: known[code] for name, code in value_kinds(first).items() if code in known}
        if not kinds:
            return None
        calls: list[tuple[str, str, str | None]] = [("made 0", "count", None)]
        for number, (name, kind) in enumerate(kinds.items(), 1):
            able = ("sum", "max", "count") if kind == "long" else ("count",)
            calls.append((f"made {number}", self.random.choice(able), name))
        values = list(kinds.items())
        others = Source(
            keys=first.sources[0].keys,
            columns=tuple((name, VALUES[kind].code) for name, kind in values),
            timestamp=self.name(),
            order=(self.name(), self.name()),
        )
        size = self.random.randint(1, 30)
        advance = self.random.choice([size, self.random.randint(1 + size // 8, size)])
        windows = Windows(size, advance, self.random.choice([0, 6, 20, 100]))
        behind = Windowing(first.key, False, windows, tuple(calls), True, self.chance(0.5), others, self.chance(0.5))
        return self.with_more(self.over(first, behind), others, values)

    def again(self) -> Chained | None:
        """A join of streams, or of a stream with a table, whose rows are joined with another table; None for tables."""
        first = self.joining()
        if first.family == "tables":
            return None
        first, left = replace(first, late=False, idle_advance=None), first.sources[0]
        keyed = left.key != tuple(name for name, _ in left.keys)
        values = [(self.name(), "long"), (self.name(), "string")]
        table = Source(
            keys=((left.key[0], "pa.string()"),) if keyed else left.keys,
            columns=tuple((name, VALUES[kind].code) for name, kind in values),
            timestamp=self.name(),
            order=(self.name(), self.name()) if left.order else None,
            deleted=self.name(),
        )
        history = self.random.choice([None, 0, 10, 40])
        grace = None if history is None else self.random.choice([None, 0, *[min(history, 5)] * 3])
        made = self.over(first, Again(first.key, table, self.random.choice(["inner", "left"]), history, grace))
        return self.with_more(made, table, values)

    def met(self) -> Chained | None:
        """Rows of a join, or changes of an aggregation, joined with a stream; None for tables and other keys."""
        aggregates = self.chance(0.5)
        first: Scenario | Joining = Draw.scenario(self) if aggregates else self.joining()
        keyed = any(step.how == "select_key" for source in first.sources for step in source.steps)
        if keyed or first.sources[0].order is None:
            return None
        if isinstance(first, Joining):
            if first.family == "tables":
                return None
            first, slowest = replace(first, late=False, idle_after=None, idle_advance=None), first.slowest
        else:
            if not _is_table(first):
                return None
            self.drawn, self.places = [(first.sources[0], self.values)], [[0]]
            slowest = self.chance(0.5)
        values = [(self.name(), self.random.choice(list(VALUES))) for _ in range(self.random.choice([1, 2]))]
        stream = Source(
            keys=first.sources[0].keys,
            columns=tuple((name, VALUES[kind].code) for name, kind in values),
            timestamp=self.name(),
            order=(self.name(), self.name()),
        )
        how = self.random.choice(["inner", "left", "outer"])
        made = self.over(first, Meeting(first.key, stream, how, self.reach(), slowest))
        return self.with_more(made, stream, values)

    def behind_limits(self, made: Chained) -> Chained:
        """The same, sometimes behind time limits, if the order of their input is known."""
        behind = made.behind
        if isinstance(behind, Windowing) and behind.final and self.chance(0.3):
            measured = self.random.choice(["first_update", "latest_update", "window_start"])
            able = _without_bound if isinstance(behind.windows, Sliding) else _emits_early
            return replace(made, limits=self.limits(measured, able))
        one_change = isinstance(made.first, Joining) or _one_window(made.first)
        if isinstance(behind, Regrouping) and one_change and not made.clocked and self.chance(0.4):
            measured = self.random.choice(["first_update", "latest_update"])
            return self.one_by_one(replace(made, limits=self.limits(measured, _without_bound)))
        return made

    def limits(self, measured: str, able: Callable[[Limit], bool]) -> tuple[Limit, ...]:
        """One or two limits."""
        drawn = filter(able, (self.limit(measured) for _ in count()))
        return tuple(islice(drawn, self.random.choice([1, 1, 2])))

    def one_by_one(self, made: Chained) -> Chained:
        """One record per batch: results of a limit are defined per update."""
        each = [(n, i) for n, batch in enumerate(made.batches) for i in range(len(batch))][: 4 if self.spark else 40]
        return replace(
            made,
            batches=[[made.batches[n][i]] for n, i in each],
            sides=[[made.sides[n][i]] for n, i in each] if made.sides else [],
            splits=[[made.splits[n][i]] for n, i in each],
            clocks=[made.clocks[n] for n, _ in each],
            restarts=frozenset(n for n in range(1, len(each)) if self.chance(0.2)),
        )

    def with_more(self, made: Chained, source: Source, values: list[tuple[str, str]]) -> Chained:
        """The same with records of `source` among the others."""
        first = made.first
        self.drawn.append((source, values))
        self.places.append([0])
        side = len(first.sources)
        batches, sides, splits = [], [], []
        for batch, mine, split in zip(
            first.batches, first.sides or [[0] * len(batch) for batch in first.batches], first.splits, strict=True
        ):
            times = [record[first.sources[one].timestamp] for one, record in zip(mine, batch, strict=True)]
            self.clock = max([self.origin, *(time for time in times if time is not None)])
            whole = list(zip(batch, mine, split, strict=True))
            for _ in range(self.random.choice([0, 1, 2, 4])):
                at = self.random.randint(0, len(whole))
                whole.insert(at, (self.record_of(made, side)[1], side, 0))
            batches.append([record for record, _, _ in whole])
            sides.append([one for _, one, _ in whole])
            splits.append([reader for _, _, reader in whole])
        return replace(made, batches=batches, sides=sides, splits=splits)

    @staticmethod
    def over(first: Scenario | Joining, behind: Any) -> Chained:
        """The chain over the records of its first operator."""
        named = ("seed", "batches", "sides", "clocks", "restarts", "drains", "tasks", "splits")
        return Chained(first=first, behind=behind, **{name: getattr(first, name) for name in named})

    def clocking(self, made: Joining) -> Joining:
        """A join of streams goes by its records alone: the operator behind it does not know what it is told."""
        return super().clocking(made) if made.family == "table" else made

    def guarding(self, made: Joining) -> Joining:
        """A join without `max_future_skew`: that setting also skips records of a join behind it."""
        return made

    def joins(self) -> Joining:
        """A join without late records: late records would be a second output."""
        return next(made for n in count() if not (made := self._another(JoinDraw, n).joining()).late)

    def aggregation(self) -> Scenario:
        """An aggregation whose updates are a table."""
        return next(made for n in count() if _is_table(made := self._another(Draw, n).scenario()))

    def _another(self, kind: type[Draw], number: int) -> Draw:
        return kind(self.seed, self.spark, f" {number}")

    def groups(self, first: Scenario | Joining) -> Regrouping:
        """A table grouped by a part of its key, or by a value; nothing depends on the order of changes."""
        kinds = value_kinds(first)
        able = [*first.key, *(name for name, kind in kinds.items() if kind in (LONG, STRING))]
        if isinstance(first, Scenario) and not isinstance(first.windows, NoWindows | Unlimited):
            able.append("window")
        by = tuple(self.random.sample(able, min(len(able), self.random.choice([1, 1, 1, 2]))))
        if self.chance(0.4) and not self.too_far(first):
            return self.functions_of_groups(first, by)
        return Regrouping(by, "built-in", self.calls_of(first, ("count", "sum", "mean")))

    def windowed(self, first: Joining) -> Windowing:
        """Rows in windows. Updates are counts, because rows of one key and instant have no order."""
        kinds = value_kinds(first)
        windows = self.windows()
        if first.slowest and isinstance(windows, Batches):
            windows = Windows(windows.size, windows.size, 0)
        final = not isinstance(windows, NoWindows | Unlimited) and self.chance(0.7)
        able = [name for name, kind in kinds.items() if kind in {KEYS["long"].code, KEYS["string"].code}]
        anew = bool(able) and self.chance(0.25)
        by = (self.random.choice(able),) if anew else first.key
        calls = self.calls_of(first, ("count", "sum", "mean", "min", "max"))
        if not final:
            calls = (("how many", "count", None),)
        return Windowing(by, anew, windows, calls, final, final and self.chance(0.5))

    def too_far(self, first: Scenario | Joining) -> bool:
        """Whether Spark cannot call functions, because some instants are no datetimes."""
        named = [source.timestamp for source in first.sources]
        sides = first.sides or [[0] * len(batch) for batch in first.batches]
        pairs = (
            pair for batch, mine in zip(first.batches, sides, strict=True) for pair in zip(batch, mine, strict=True)
        )
        return self.spark and any((record[named[side]] or 0) > PYTHONS_LAST - 3_000 for record, side in pairs)

    def by_functions(self, made: Chained) -> Chained:
        """The same, sometimes with a function over final results; rows of one key and instant have no order."""
        first, behind = made.first, made.behind
        if not isinstance(behind, Windowing) or behind.others is not None or not isinstance(first, Joining):
            return made
        if not behind.final or self.too_far(first) or self.chance(0.3):
            return made
        kinds = {name: kind for name, kind in value_kinds(first).items() if kind is not None}
        able = [(name, kind) for name, kind in kinds.items() if kind in REDUCES]
        if able and self.chance(0.4):
            column, kind = self.random.choice(able)
            return replace(made, behind=replace(behind, function=Call("made", "reduce", REDUCES[kind], column, kind)))
        if first.step is not None:
            return made
        # A function behind another operator does not get the time of a row, so a step makes the time a value.
        step = Step("map_values", "Timed", "at", (*kinds.items(), ("at", LONG)))
        call = Call("made", "aggregate", "Diary", (self.random.choice(list(kinds)), "at"), DIARY)
        return replace(made, first=replace(first, step=step), behind=replace(behind, function=call))

    def functions_of_groups(self, first: Scenario | Joining, by: tuple[str, ...]) -> Regrouping:
        """Functions over the rows of a group, whose changes of one instant have no order."""
        kinds = value_kinds(first)
        counts = [call.name for call in getattr(first, "calls", ()) if call.what == "count" and call.name in kinds]
        if counts and self.chance(0.8):
            # A count is never null: a group that begins with a null is deleted, and then the order would matter.
            return Regrouping(by, "reduce", (), "made", "Weight", self.random.choice(counts), LONG)
        column, kind = self.random.choice(list(kinds.items()))
        if kind == LONG and self.chance(0.5):
            return Regrouping(by, "aggregate", (), "made", "Weight", column, LONG)
        return Regrouping(by, "aggregate", (), "made", "Shelf", column, "pa.list_(pa.string())")

    def calls_of(self, first: Scenario | Joining, able: tuple[str, ...]) -> Calls:
        """Built-in aggregates over the value columns."""
        made = []
        kinds = value_kinds(first)
        for number in range(self.random.choice([1, 1, 2, 3])):
            column, kind = self.random.choice(list(kinds.items()))
            what = self.random.choice(able if kind == LONG else ("count",))
            made.append((f"made {number}", what, None if what == "count" and self.chance(0.3) else column))
        return tuple(made)


def _is_table(made: Scenario) -> bool:
    (output, *others) = made.outputs
    return not others and output.kind == "updates" and output.limit is None and not output.name and made.idle is None


def _one_window(made: Scenario) -> bool:
    """Whether a record is in at most one window, so that it makes one change."""
    windows = made.windows
    return isinstance(windows, NoWindows | Batches | Unlimited) or (
        isinstance(windows, Windows) and windows.size == windows.advance
    )


def _emits_early(limit: Limit) -> bool:
    return limit.strategy == "emit_early"


def _without_bound(limit: Limit) -> bool:
    return limit.max_records is None and limit.max_bytes is None
