"""Draws an operator behind a join or an aggregation."""

from __future__ import annotations

from itertools import count

from hostile.chained import Chained, Windowing, value_kinds
from hostile.draws import Draw
from hostile.joined import Joining
from hostile.joined_draws import JoinDraw
from hostile.kinds import KEYS
from hostile.scenario import Scenario
from hostile.tables import Regrouping
from oracle import NoWindows, Unlimited

Calls = tuple[tuple[str, str, str | None], ...]
LONG = "pa.int64()"


class ChainDraw(JoinDraw):
    """Draws a chain as the others draw its first operator."""

    def chained(self) -> Chained:
        """An operator behind another one."""
        first = self.joins() if self.chance(0.5) else self.aggregation()
        tables = isinstance(first, Scenario) or first.family == "tables"
        behind = self.groups(first) if tables else self.windowed(first)
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
