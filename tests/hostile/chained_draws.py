"""Draws an operator behind a join or an aggregation."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import count
from typing import Any

from hostile.case import Source
from hostile.chained import Again, Chained, Windowing, value_kinds
from hostile.draws import Draw
from hostile.joined import Joining
from hostile.joined_draws import JoinDraw
from hostile.kinds import KEYS, VALUES
from hostile.scenario import Scenario
from hostile.tables import Regrouping
from oracle import NoWindows, Unlimited, Windows

Calls = tuple[tuple[str, str, str | None], ...]
LONG = "pa.int64()"


class ChainDraw(JoinDraw):
    """Draws a chain as the others draw its first operator."""

    def chained(self) -> Chained:
        """An operator behind another one."""
        if self.chance(0.25):
            return self.until_there(ChainDraw.again)
        if self.chance(0.25):
            return self.until_there(ChainDraw.merged)
        first = self.joins() if self.chance(0.5) else self.aggregation()
        tables = isinstance(first, Scenario) or first.family == "tables"
        if tables:
            return self.over(first, self.groups(first))
        # Time that goes on without records is a step of its own, behind which another one comes.
        first = replace(first, idle_advance=None)
        return self.over(first, self.windowed(first))

    def until_there(self, draw: Callable[[ChainDraw], Chained | None]) -> Chained:
        """What the first of these draws gives that gives anything."""
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

    def with_more(self, made: Chained, source: Source, values: list[tuple[str, str]]) -> Chained:
        """The same with records of one more source among the others."""
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

    def joins(self) -> Joining:
        """A join without late records, for those have another output."""
        return next(made for n in count() if not (made := self._another(JoinDraw, n).joining()).late)

    def aggregation(self) -> Scenario:
        """An aggregation whose updates are a table."""
        return next(made for n in count() if _is_table(made := self._another(Draw, n).scenario()))

    def _another(self, kind: type[Draw], number: int) -> Draw:
        return kind(self.seed, self.spark, f" {number}")

    def groups(self, first: Scenario | Joining) -> Regrouping:
        """A table grouped by a part of its key, or by a value; nothing depends on the order of changes."""
        kinds = value_kinds(first)
        able = [*first.key, *(name for name, kind in kinds.items() if kind in (LONG, "pa.string()"))]
        if isinstance(first, Scenario) and not isinstance(first.windows, NoWindows | Unlimited):
            able.append("window")
        by = tuple(self.random.sample(able, min(len(able), self.random.choice([1, 1, 1, 2]))))
        return Regrouping(by, "built-in", self.calls_of(first, ("count", "sum", "mean")))

    def windowed(self, first: Joining) -> Windowing:
        """Rows in windows; updates are counts, for rows of one key and instant have no order."""
        kinds = value_kinds(first)
        windows = self.windows()
        final = not isinstance(windows, NoWindows | Unlimited) and self.chance(0.7)
        able = [name for name, kind in kinds.items() if kind in {KEYS["long"].code, KEYS["string"].code}]
        anew = bool(able) and self.chance(0.25)
        by = (self.random.choice(able),) if anew else first.key
        calls = self.calls_of(first, ("count", "sum", "mean", "min", "max"))
        if not final:
            calls = (("how many", "count", None),)
        return Windowing(by, anew, windows, calls, final, final and self.chance(0.5))

    def calls_of(self, first: Scenario | Joining, able: tuple[str, ...]) -> Calls:
        """Aggregates over values."""
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
