"""Draws a join: two sources whose records meet, miss and come late."""

from __future__ import annotations

from dataclasses import replace
from itertools import accumulate

from hostile.case import Case, Row, Source, Step
from hostile.draws import FAR_ORIGINS, ORIGINS, PYTHONS_LAST, AnyCase, Draw
from hostile.joined import Joining
from hostile.kinds import KEYS, VALUES

HOWS = {"streams": ("inner", "left", "outer"), "table": ("inner", "left"), "tables": ("inner", "left", "outer")}
SUFFIXES = (("_l", "_r"), ("", "_r"), (" of left", "."), ("`", "\U0001f600"))


class JoinDraw(Draw):
    """Draws a join as `Draw` draws an aggregation."""

    def joining(self) -> Joining:
        """A join with its records."""
        random = self.random
        family = random.choice(["streams", "streams", "self", "table", "table", "tables"])
        self.keys = self.key_columns()
        ordered = self.spark or self.chance(0.8)
        key = self.name() if family != "tables" and self.chance(0.15) else ""
        self.drawn: list[tuple[Source, list[tuple[str, str]]]] = []
        for number in range(1 if family == "self" else 2):
            self.drawn.append(self.source(family, number, ordered, key))
        how = random.choice(HOWS.get(family, HOWS["streams"]))
        history = random.choice([None, 0, 3, 10, 40]) if family == "table" else None
        made = Joining(
            seed=self.seed,
            family=family,
            inputs=tuple(source for source, _ in self.drawn),
            how=how,
            suffixes=random.choice(SUFFIXES),
            joiner=self.chance(0.2),
            reach=self.reach(),
            slowest=(family == "streams" or (family in ("self", "table") and ordered)) and self.chance(0.5),
            history=history,
            grace=None if history is None else random.choice([None, 0, *[min(history, 5)] * 3]),
            late=family in ("streams", "self") and self.chance(0.3),
            batches=[],
            sides=[],
            clocks=[],
            splits=[],
        )
        made = replace(made, step=None if made.late else self.behind(made))
        self.clock = self.origin = self.begin_of(made)
        self.pools = self.key_pools()
        return self.guarding(self.clocking(self.with_records(made)))

    def clocking(self, made: Joining) -> Joining:
        """Sometimes lets the wall clock move the streams of a join."""
        if made.family == "tables" or self.chance(0.5 if made.family == "table" else 0.7):
            return made
        random = self.random
        if len(made.batches) > 1 and self.chance(0.8):
            made = self.emptied(made, random.randrange(1, len(made.batches)))
        after = [None, 5, 20] if self.spark else [None, 5, 20, 300]
        made = replace(made, clocks=list(accumulate(random.choice([0, 1, 5, 20, 300]) for _ in made.batches)))
        ordered = all(source.order for source in made.inputs)
        made = replace(made, idle_after=random.choice(after) if made.slowest and ordered else None)
        made = replace(made, idle_advance=random.choice([None, 3, 11, 200]))
        return self.in_step(made) if self.spark and made.clocked else made

    def guarding(self, made: Joining) -> Joining:
        """Sometimes skips records of a stream that are too far ahead of the wall clock."""
        if made.family == "tables" or made.late or not self.chance(0.05 if self.spark else 0.2):
            return made
        random, clocks = self.random, made.clocks
        if not made.clocked:
            clocks = list(accumulate(random.choice([0, 1, 5, 20]) for _ in made.batches))
        guarded = replace(made, skew=self.origin + random.choice([0, 5, 30, 100]), clocks=clocks)
        return self.in_step(guarded) if self.spark and not made.clocked else guarded

    def reach(self) -> tuple[int, int, int]:
        """Reach before and after a record, within which it finds partners, and the grace (ms)."""
        random = self.random
        before = random.choice([0, random.randint(-4, 8), random.randint(-4, 40)])
        after = random.randint(max(-4, -before), random.choice([8, 40]))
        after = max(after, -before)
        return before, after, random.choice([0, random.randint(0, 6), random.randint(5, 40)])

    def source(self, family: str, number: int, ordered: bool, key: str) -> tuple[Source, list[tuple[str, str]]]:
        """A source, and the kinds of its value columns; some have the name of one of the other side."""
        random = self.random
        values = [(self.shared() if number and self.chance(0.5) else self.name(), "long")]
        values += [(self.name(), random.choice(list(VALUES))) for _ in range(random.choice([0, 1, 2]))]
        apart = self.chance(0.3)
        timestamp = self.name() if apart else "ts"
        order = ((self.name(), self.name()) if apart else ("partition", "offset")) if ordered else None
        is_table = family == "tables" or (family == "table" and number == 1)
        columns = tuple((name, VALUES[kind].code) for name, kind in values)
        source = Source(
            tuple((name, KEYS[kind].code) for name, kind in self.keys),
            columns,
            timestamp,
            order,
            () if is_table else self.steps_of(values, columns, key),
            self.name() if is_table else None,
        )
        if is_table and key:
            # The other side has a new key. A table cannot change its key, so its own key gets that name and type.
            source = replace(source, keys=((key, "pa.string()"),))
        return source, values

    def shared(self) -> str:
        """A value column of the left side."""
        ((source, _), *_) = self.drawn
        return self.random.choice([name for name, kind in source.columns if kind == VALUES["long"].code])

    def steps_of(
        self, values: list[tuple[str, str]], columns: tuple[tuple[str, str], ...], key: str
    ) -> tuple[Step, ...]:
        """Steps in front of the join."""
        steps = []
        if self.chance(0.2):
            steps.append(Step("filter", "Kept", self.random.choice([n for n, k in values if k in ("long", "string")])))
        if self.chance(0.25):
            what = "Cut" if self.chance(0.1 if self.spark else 0.25) else "Doubled"
            steps.append(Step("map_values", what, values[0][0], columns))
        if key:
            steps.append(Step("select_key", "Keyed", values[0][0], name=key))
        return tuple(steps)

    def behind(self, made: Joining) -> Step | None:
        """A step of the rows."""
        if not self.chance(0.25):
            return None
        names = ["pair"] if made.joiner else [name for side in made.renamed for name in side.values()]
        column = self.random.choice(names)
        if self.chance(0.5):
            return Step("filter", "Short", column)
        return Step("map_values", "Relabeled", column, (("label", "pa.string()"), ("__n", "pa.int64()")))

    # -- the streams -------------------------------------------------------------------------------------------------

    def with_records(self, made: AnyCase, most_partitions: int = 3) -> AnyCase:
        """A case with records, batches, splits and restarts; `clock`, `origin` and `pools` are drawn."""
        random = self.random
        many = [n for n in (1, 1, 2, 3) if n <= most_partitions]
        partitions = [random.choice(many) if source.order else 1 for source, _ in self.drawn]
        self.places = [[random.choice([0, 5, 2**40]) for _ in range(count)] for count in partitions]
        self.gaps = random.choice([[1], [1, 1, 3], [1, 1000]])
        drawn = [self.batch_of(made) for _ in range(3 if self.spark else random.randint(1, 5))]
        batches = [[record for _, record in batch] for batch in drawn]
        return replace(
            made,
            batches=batches,
            sides=[[side for side, _ in batch] for batch in drawn] if len(made.sources) > 1 else [],
            clocks=[0] * len(batches),
            restarts=frozenset(n for n in range(1, len(batches)) if self.chance(0.3)),
            drains=self.chance(0.4),
            tasks=random.choice([1, 2, 2, 3, 5]),
            splits=[self.split_of(batch) for batch in batches],
        )

    def begin_of(self, made: Joining) -> int:
        functions = made.joiner or made.step or any(source.steps for source in made.inputs)
        far = (PYTHONS_LAST - 5_000,) if self.spark and functions else FAR_ORIGINS
        return self.random.choice(far if self.chance(0.1) else ORIGINS)

    def batch_of(self, made: Case) -> list[tuple[int, Row]]:
        sides = self.random.choice([[0], [1], [0, 1], [0, 1], [0, 0, 0, 1], [0, 1, 1, 1]])
        size = self.random.choice([0, 1, 2, 4, 8, 14])
        return [self.record_of(made, self.random.choice(sides) % len(made.sources)) for _ in range(size)]

    def record_of(self, made: Case, side: int) -> tuple[int, Row]:
        """A record of a side: mostly in order, some far back, some that are skipped."""
        random, (source, values) = self.random, self.drawn[side]
        self.clock += random.choice([0, 0, 0, 1, 2, 5, 20])
        ts = max(self.origin, self.clock - random.choice([0, 0, 0, 1, 3, 7, 15, 40]))
        record: Row = {}
        pool = random.choice(self.pools)
        for (name, _), drawn in zip(source.keys, pool, strict=False):
            record[name] = drawn
        if source.deleted and any(s.name for other in made.sources for s in other.steps):
            record = {source.keys[0][0]: random.choice(["0", "1", "2", "-3", "10"])}
        for name, kind in values:
            record[name] = None if self.chance(0.15) else VALUES[kind].draw(random)
        if self.chance(0.05):
            record |= dict.fromkeys((name for name, _ in values), None)
        record[source.timestamp] = ts
        if source.deleted:
            record[source.deleted] = random.choice([None, False, False, True])
        if source.order:
            at = random.randrange(len(self.places[side]))
            record |= {source.order[0]: at, source.order[1]: self.places[side][at]}
            self.places[side][at] += random.choice(self.gaps)
        flaw = random.randrange(25)
        if flaw == 0:
            record[random.choice(source.keys)[0]] = None
        elif flaw == 1:
            # Give the record a key: which of two flaws is counted is not defined.
            keyed = {step.column for step in source.steps if step.how == "select_key"}
            record |= {name: 1 for name in keyed if record[name] is None}
            record[source.timestamp] = random.choice([None, -1, -(10**9)])
        return side, record

    def split_of(self, batch: list[Row]) -> list[int]:
        readers = 2 if self.spark else self.random.choice([1, 2, 3])
        if self.chance(0.4):
            return [self.random.randrange(readers) for _ in batch]
        at = self.random.randint(0, len(batch))
        return [0 if n < at else readers - 1 for n in range(len(batch))]
