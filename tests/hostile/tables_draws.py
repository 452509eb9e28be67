"""Draws a table given as its changes, and groups of it."""

from __future__ import annotations

from dataclasses import replace

from hostile.case import Step
from hostile.draws import FAR_ORIGINS, ORIGINS, PYTHONS_LAST
from hostile.joined_draws import JoinDraw
from hostile.kinds import KEYS, NUMBERS, VALUES
from hostile.tables import Changes, Regrouping
from oracle_suppress import Limit

BAGS = {"Ledger": "pa.string()", "Bag": "pa.list_({})", "Balance": "pa.int64()"}
"""Functions of groups, and the type of the aggregate."""


class TableDraw(JoinDraw):
    """Draws a table as `JoinDraw` draws a join."""

    def changes(self) -> Changes:
        """A table with its changes."""
        random = self.random
        self.keys = self.key_columns()
        source, values = self.source("tables", 0, self.spark or self.chance(0.8), "")
        if self.chance(0.25):
            source = replace(source, deleted=None)
        self.drawn = [(source, values)]
        made = Changes(
            seed=self.seed, source=source, step=self.step(values), batches=[], sides=[], clocks=[], splits=[]
        )
        if self.chance(0.7):
            made = self.grouped(made, values)
        if self.chance(0.3):
            limits = tuple(self.limit_of(made) for _ in range(random.choice([1, 1, 2])))
            if made.grouping is not None and self.chance(0.6):
                made = replace(made, limits_behind=limits)
            else:
                made = replace(made, limits=limits)
        return self.with_changes(made)

    def step(self, values: list[tuple[str, str]]) -> Step | None:
        """A step of the table."""
        if not self.chance(0.25):
            return None
        column = self.random.choice([name for name, _ in values])
        if self.chance(0.5):
            return Step("filter", "Short", column)
        return Step("map_values", "Relabeled", column, (("label", "pa.string()"), ("__n", "pa.int64()")))

    def grouped(self, made: Changes, values: list[tuple[str, str]]) -> Changes:
        """The table grouped by columns of its key and values."""
        random = self.random
        kinds = dict(values) if made.step is None or not made.step.types else {"label": "string", "__n": "long"}
        able = [name for name, kind in kinds.items() if kind in KEYS] + [name for name, _ in self.keys]
        by = tuple(random.sample(able, min(len(able), random.choice([1, 1, 1, 2]))))
        column, kind = random.choice(list(kinds.items()))
        family = random.choice(["built-in", "aggregate", "aggregate", "reduce"])
        caching = self.chance(0.5)
        if family == "reduce" and kind in ("string", "long"):
            what = {"string": "Ledger", "long": "Balance"}[kind]
            found = Regrouping(by, family, (), self.name(), what, column, VALUES[kind].code, caching)
        elif family == "aggregate":
            what = random.choice(["Ledger", "Bag", *(["Balance"] if kind == "long" else [])])
            code = BAGS[what].format(VALUES[kind].code)
            found = Regrouping(by, family, (), self.name(), what, column, code, caching)
        else:
            calls = tuple(self.call(kinds) for _ in range(random.choice([1, 1, 2, 3])))
            found = Regrouping(by, "built-in", calls, caching=caching)
        made = replace(made, grouping=found)
        if not self.chance(0.2):
            return made
        step = Step("filter", "Short", found.columns[0])
        return replace(made, step_behind=step)

    def call(self, kinds: dict[str, str]) -> tuple[str, str, str | None]:
        """A built-in aggregate that can be taken back."""
        column, kind = self.random.choice(list(kinds.items()))
        able = ["count", *(["sum", "mean"] if kind in NUMBERS else [])]
        return self.name(), self.random.choice(able), None if self.chance(0.2) and able == ["count"] else column

    def limit_of(self, made: Changes) -> Limit:
        """A limit of rows without windows."""
        return self.limit(self.random.choice(["first_update", "first_update", "latest_update"]))

    def with_changes(self, made: Changes) -> Changes:
        random = self.random
        limited = made.limits or made.limits_behind
        functions = made.step or made.step_behind or (made.grouping and made.grouping.family != "built-in")
        far = (PYTHONS_LAST - 5_000,) if self.spark and functions else FAR_ORIGINS
        self.clock = self.origin = random.choice(far if self.chance(0.1) else ORIGINS)
        self.pools = self.key_pools()
        made = self.with_records(made, 1 if limited else 3)
        commutes = made.grouping is None or (made.grouping.family == "built-in" and made.grouping.caching)
        if not limited and not commutes and not self.spark and self.chance(0.5):
            return replace(made, tasks=1)
        if not limited and commutes:
            return made
        # One record per batch: limits are defined per update, and changes of keys in different tasks have no order.
        each = [(n, i) for n, batch in enumerate(made.batches) for i in range(len(batch))][: 4 if self.spark else 40]
        return replace(
            made,
            # A drain emits many rows at once, whose order matters here.
            tasks=1 if made.limits and not commutes else made.tasks,
            batches=[[made.batches[n][i]] for n, i in each],
            splits=[[made.splits[n][i]] for n, i in each],
            clocks=[0] * len(each),
            restarts=frozenset(n for n in range(1, len(each)) if self.chance(0.2)),
        )
