"""Draws an aggregation: a topology of a hostile user, and a stream that meets every boundary."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import accumulate
from random import Random
from typing import Any, TypeVar

from hostile import kinds
from hostile.case import Case
from hostile.functions import REMOVED
from hostile.kinds import KEYS, NESTED, NUMBERS, OF_BOTH, ORDERED, VALUES, Kind
from hostile.scenario import AnyWindows, Call, Output, Row, Scenario, Sliding, Step
from oracle import Batches, NoWindows, Sessions, Unlimited, Windows
from oracle_suppress import Limit

AnyCase = TypeVar("AnyCase", bound=Case)

FOREVER = 2**63 - 1
SPARKS_LAST = FOREVER // 1000
"""The last millisecond of a Spark timestamp, which counts microseconds."""

PYTHONS_LAST = 253_402_300_799_999
"""The last millisecond of Python's datetimes, which functions are given on Spark: the end of the year 9999."""

SPARKS_BATCHES = 4
SAME_CLOCK = 50
"""Cases on Spark by the wall clock: batches of each, and number of neighbouring seeds that share one clock."""

HOARD = 30
"""Records of a batch of many keys."""

ORIGINS = (0, 0, 0, 0, 7, 1_700_000_000_000, 1_700_000_000_000)
FAR_ORIGINS = (2**53 - 30, SPARKS_LAST - 5_000)
BEYOND_SPARK = (2**62, FOREVER - 5_000)

FUNCTIONS: dict[str, tuple[tuple[str, ...], str]] = {
    "Appending": (("long",), "pa.list_(pa.int64())"),
    "Growing": (("struct", "list", "structs", "map", "binary", "times", *OF_BOTH), "pa.list_({})"),
    "Story": (("string",), 'pa.struct([("n", pa.int64()), ("seen", pa.list_(pa.string()))])'),
    "Tally": (("string", "long", "boolean"), "pa.map_(pa.string(), pa.int64())"),
    "Events": (
        ("long", "string", "struct", "decimal", "times", *OF_BOTH),
        'pa.list_(pa.struct([("s", {}), ("i", pa.int64())]))',
    ),
    "Numbers": (("long",), "pa.int64()"),
    "Halves": (("long",), "pa.int64()"),
    "Failing": (("long",), "pa.int32()"),
    "Wide": (("long",), "pa.int64()"),
    "Doubles": (("long",), "pa.float64()"),
    "Singles": (("long",), "pa.float32()"),
    "History": (("long", "string"), "pa.string()"),
    "Titles": (("long", "string"), "pa.string()"),
    "Money": (("long",), "pa.decimal128(20, 2)"),
    "Cents": (("long",), "pa.decimal128(20, 2)"),
    "Flags": (("long", "struct", "binary"), "pa.bool_()"),
    "Moments": (("long",), 'pa.timestamp("us", "UTC")'),
}
"""Classes of functions: the kinds of columns that they read, and the declared type of the aggregate."""

RAISING = ("Halves", "Failing", "Wide", "Titles", "Cents", "Cut", "averaged")
"""Functions that may raise and stop a query."""

REDUCES = {
    "string": ("joined",),
    "list": ("extended",),
    "struct": ("merged",),
    "map": ("overlaid",),
    "long": ("added", "averaged"),
}


class Draw:
    """Draws an aggregation, and the parts that all cases share: names, keys, records, splits."""

    def __init__(self, seed: int, spark: bool, turn: str = "") -> None:
        self.random = Random(f"hostile {seed}{turn}")
        self.seed = seed
        self.spark = spark
        self.used: set[str] = set()
        self.odd = self.random.choice([0.0, 0.2, 0.8])

    def chance(self, likely: float) -> bool:
        return self.random.random() < likely

    def name(self) -> str:
        """A name that no other column has."""
        pool = list(kinds.ODD if self.chance(self.odd) else kinds.PLAIN)
        if self.chance(self.odd / 4):
            pool = list(kinds.QUOTED)
            if not self.spark:
                pool += [name for pair in kinds.SAME_BUT_FOR_CASE for name in pair]
        free = [
            n for n in pool if n not in self.used and (not self.spark or n.lower() not in map(str.lower, self.used))
        ]
        chosen = self.random.choice(free) if free else f"c{len(self.used)}"
        self.used.add(chosen)
        return chosen

    # -- the topology ------------------------------------------------------------------------------------------------

    def key_columns(self) -> list[tuple[str, str]]:
        """One or two key columns, with their kinds."""
        drawn = self.random.sample(list(KEYS), self.random.choice([1, 1, 1, 2]))
        if self.chance(0.4):
            drawn[0] = "string"
        return [(self.name(), kind) for kind in dict.fromkeys(drawn)]

    def scenario(self) -> Scenario:
        """An aggregation."""
        random = self.random
        self.keys = self.key_columns()
        self.values = [(self.name(), "long")]
        self.values += [(self.name(), random.choice(list(VALUES))) for _ in range(random.choice([0, 1, 2, 4]))]
        self.timestamp = "ts" if self.chance(0.7) else self.name()
        self.used.add(self.timestamp)
        partition, offset = ("partition", "offset") if self.chance(0.7) else (self.name(), self.name())
        self.used |= {partition, offset}
        windows = self.windows()
        calls = self.calls(windows)
        steps = self.steps(calls)
        outputs = self.outputs(windows, calls, steps)
        idle = random.choice([3, 11, 200]) if self.chance(0.06) else None
        made = Scenario(
            seed=self.seed,
            keys=tuple((name, KEYS[kind].code) for name, kind in self.keys),
            columns=tuple((name, VALUES[kind].code) for name, kind in self.values),
            timestamp=self.timestamp,
            order=(partition, offset) if self.spark or self.chance(0.8) else None,
            steps=tuple(steps),
            windows=windows,
            calls=tuple(calls),
            outputs=tuple(outputs),
            caching=self.chance(0.5),
            retention=self.retention(windows),
            expects=None,
            idle=idle,
            typed=True,
            batches=[],
            sides=[],
            clocks=[],
            splits=[],
        )
        made = self.expecting(made)
        made = self.slowed(self.guarded(self.of_inputs(self.vectorized(self.stream(made)))))
        return self.in_step(made) if self.spark and made.clocked else made

    def in_step(self, made: AnyCase) -> AnyCase:
        """The same in as many batches and by the same clock as cases of near seeds, which share a query on Spark."""
        random, whole = Random(f"clock {self.seed // SAME_CLOCK}"), SPARKS_BATCHES
        empty = sorted(self.random.sample(range(whole), max(0, whole - len(made.batches))))
        batches, splits, sides = made.batches[:whole], made.splits[:whole], made.sides[:whole]
        for number in empty:
            batches.insert(number, [])
            splits.insert(number, [])
            if made.sides:
                sides.insert(number, [])
        clocks = list(accumulate(random.choice([0, 7, 7, 21, 301]) for _ in range(whole)))
        restarts = frozenset(n for n in made.restarts if n < whole)
        return replace(made, batches=batches, splits=splits, sides=sides, clocks=clocks, restarts=restarts)

    def guarded(self, made: Scenario) -> Scenario:
        """Sometimes skips records that are too far ahead of the wall clock."""
        if not self.chance(0.05 if self.spark else 0.2):
            return made
        near = self.origin + self.random.choice([0, 5, 30, 100])
        return replace(made, skew=self.random.choice([near, near, near, 0]))

    def slowed(self, made: Scenario) -> Scenario:
        """Sometimes makes the slowest partition the clock."""
        if made.order is None or isinstance(made.windows, Batches) or not self.chance(0.3):
            return made
        idle_after = self.random.choice([None, None, 5, 20] if self.spark else [None, 5, 5, 20, 300])
        idle = None if made.idle is None or self.spark or self.chance(0.5) else made.idle
        return self.quieter(replace(made, slowest=True, idle_after=idle_after, idle=idle))

    def quieter(self, made: Scenario) -> Scenario:
        """Sometimes lets one of several partitions fall silent: it holds the others back until it counts as idle."""
        assert made.order is not None
        partitions = sorted({record[made.order[0]] for batch in made.batches for record in batch})
        if len(partitions) < 2 or len(made.batches) < 2 or self.chance(0.2):
            return made
        silent, since = self.random.choice(partitions), self.random.randrange(1, len(made.batches))
        places = ((n, i) for n, batch in enumerate(made.batches) for i in range(len(batch)) if n >= since)
        made = made.without({(n, i) for n, i in places if made.batches[n][i][made.order[0]] == silent})
        return self.idle_without_records(made, since + 1)

    def idle_without_records(self, made: Scenario, number: int) -> Scenario:
        """Lets the silent partition, and no other, count as idle when a filter removes the whole batch `number`."""
        if made.idle_after is None or number >= len(made.batches) or self.spark:
            return made
        if not any(step.what == "Kept" for step in made.steps):
            (column, _), *_ = self.values
            made = replace(made, steps=(Step("filter", "Kept", column), *made.steps))
        heard, clocks = made.clocks[number - 2], made.clocks
        moved = [heard + made.idle_after // 2, heard + made.idle_after]
        later = [clock - clocks[number] + moved[-1] for clock in clocks[number + 1 :]]
        return self.emptied(replace(made, clocks=[*clocks[: number - 1], *moved, *later]), number)

    def emptied(self, made: AnyCase, number: int) -> AnyCase:
        """The case, with a batch of which filters in front remove all records."""
        removed = [
            {step.column: REMOVED[dict(source.columns)[step.column]] for step in source.steps if step.what == "Kept"}
            for source in made.sources
        ]
        emptied = [record | removed[made.side_of(number, i)] for i, record in enumerate(made.batches[number])]
        return replace(made, batches=[emptied if n == number else batch for n, batch in enumerate(made.batches)])

    def vectorized(self, made: Scenario) -> Scenario:
        """Sometimes makes the function work on Arrow arrays."""
        (call, *_) = made.calls
        if call.what != "Numbers" or isinstance(made.windows, Sessions | Sliding) or self.chance(0.3):
            return made
        return replace(made, calls=(replace(call, what="Sums", vectorized=True),))

    def of_inputs(self, made: Scenario) -> Scenario:
        """Sometimes spreads the records over two inputs; a function of a record says which."""
        if (self.spark and self.origin >= PYTHONS_LAST) or not self.chance(0.25):
            return made
        (call, *_) = made.calls
        cogroups = call.family == "aggregate" and not call.vectorized and not _late(made) and self.chance(0.8)
        return replace(made, inputs="cogroup" if cogroups else "merge")

    def windows(self) -> AnyWindows:
        random = self.random
        kind = random.choice(["time", "time", "hopping", "sliding", "sliding", "session", "session", "batch", "more"])
        grace = random.choice([0, 0, random.randint(0, 6), random.randint(5, 40), 10_000])
        if not self.spark and self.chance(0.05):
            grace = FOREVER
        if kind == "session":
            return Sessions(random.choice([random.randint(1, 4), random.randint(1, 12)]), grace)
        if kind == "batch":
            return Batches(random.choice([random.randint(1, 12), random.randint(10, 60)]))
        if kind == "sliding":
            return Sliding(random.choice([random.randint(0, 4), random.randint(1, 12), 30]), grace)
        if kind == "more":
            return random.choice([NoWindows(), NoWindows(), Unlimited(0), Unlimited(5)])
        size = random.choice([random.randint(1, 12), random.randint(10, 60)])
        return Windows(size, size if kind == "time" else random.randint(1 + size // 8, size), grace)

    def calls(self, windows: AnyWindows) -> list[Call]:
        random, family = self.random, self.random.choice(["built-in", "built-in", "aggregate", "aggregate", "reduce"])
        if family == "aggregate":
            return [self.aggregate(windows)]
        if family == "reduce" and (found := [(n, k) for n, k in self.values if k in REDUCES]):
            column, kind = random.choice(found)
            return [Call(self.name(), "reduce", random.choice(REDUCES[kind]), column, VALUES[kind].code)]
        return [self.built_in() for _ in range(random.choice([1, 1, 2, 4]))]

    def aggregate(self, windows: AnyWindows) -> Call:
        random = self.random
        what = random.choice(list(FUNCTIONS))
        if what in RAISING and self.chance(0.8 if self.spark else 0.4):
            what = random.choice(["Appending", "Numbers", "Doubles", "History"])
        wanted, code = FUNCTIONS[what]
        found = [(name, kind) for name, kind in self.values if kind in wanted]
        if not found:
            found = [(self.name(), random.choice(wanted))]
            self.values += found
        column, kind = random.choice(found)
        return Call(self.name(), "aggregate", what, column, code.format(VALUES[kind].code))

    def built_in(self) -> Call:
        random = self.random
        column, kind = random.choice(self.values)
        able = ["count", "first", "last", "collect_list"]
        if kind in ORDERED:
            able += ["min", "max"]
        if kind in NUMBERS:
            able += ["sum", "mean"]
        what = random.choice([*able, "count()"])
        if what == "count()":
            return Call(self.name(), "built-in", "count", None)
        return Call(self.name(), "built-in", what, column, VALUES[kind].code)

    def steps(self, calls: Sequence[Call]) -> list[Step]:
        """Steps in front: filters, new values, another key."""
        random, steps = self.random, []
        if not self.chance(0.25):
            return []
        if self.chance(0.5):
            steps.append(Step("filter", "Kept", random.choice([n for n, k in self.values if k in ("long", "string")])))
        if self.chance(0.5):
            what = "Cut" if self.chance(0.1 if self.spark else 0.25) else "Doubled"
            types = tuple((name, VALUES[kind].code) for name, kind in self.values)
            steps.append(Step("map_values", what, self.values[0][0], types))
        if self.chance(0.3):
            names = [name for name, kind in self.values if kind in ("long", "string")]
            steps.append(Step("select_key", "Keyed", random.choice(names), name=self.name()))
        return steps

    def outputs(self, windows: AnyWindows, calls: Sequence[Call], steps: Sequence[Step]) -> list[Output]:
        random = self.random
        closes = not isinstance(windows, Unlimited | NoWindows)
        way = random.choice(["updates", "final", "final", "several", "several", "limit", "bound"])
        if way == "several" and closes:
            names = random.sample(["raw", "final", "late"], random.choice([2, 3, 3]))
            return [self.output(name, {"raw": "updates"}.get(name, name)) for name in names]
        if way == "final" and closes:
            return [self.output("", "final", calls[0])]
        if way == "bound" and closes:
            bound = random.choice([("max_records", random.randint(1, 8)), ("max_records", 10_000)])
            if self.chance(0.4):
                bound = random.choice([("max_bytes", random.randint(1, 15)), ("max_bytes", 10_000_000)])
            return [Output("", "final", True, bound=bound)]
        if way == "limit":
            return [self.limited(windows, closes)]
        return [self.output("", "updates", calls[0])]

    def output(self, name: str, kind: str, call: Call | None = None) -> Output:
        suppresses = kind == "final" and (name != "" or self.chance(0.5))
        step = None
        if call is not None and self.chance(0.2):
            types = (("label", "pa.string()"), ("__n", "pa.int64()"))
            step = Step("map_values", "Relabeled", call.name, types)
            if kind == "updates" and self.chance(0.4):
                step = Step("filter", "Short", call.name)
        return Output(name, kind, suppresses, step=step)

    def limited(self, windows: AnyWindows, closes: bool) -> Output:
        random = self.random
        measured = random.choice(["first_update", "first_update", "latest_update", "window_start"])
        if isinstance(windows, NoWindows) and measured == "window_start":
            measured = "first_update"
        final = closes and self.chance(0.3)
        limit, *behind = [self.limit(measured) for _ in range(random.choice([1, 1, 1, 2, 2, 3]))]
        kind = "final limit" if final else "limit"
        return Output("", kind, final and self.chance(0.5), limit=limit, behind=tuple(behind))

    def limit(self, measured: str) -> Limit:
        random = self.random
        limit = Limit(random.choice([0, random.randint(1, 30)]), None, "emit_early", measured)
        bound = random.choice(["none", "none", "records", "bytes", "strict"])
        if bound == "records":
            limit = replace(limit, max_records=random.randint(0, 5))
        elif bound == "strict":
            limit = replace(limit, max_records=random.choice([1, 3, 10_000]), strategy="shut_down")
        elif bound == "bytes":
            limit = replace(limit, max_bytes=random.choice([1, 10, 10_000_000]))
        return limit

    def retention(self, windows: AnyWindows) -> int | None:
        if isinstance(windows, Unlimited | NoWindows) or not self.chance(0.3):
            return None
        least = {
            Windows: lambda w: w.size + w.grace,
            Batches: lambda w: w.size,
            Sessions: lambda w: w.gap + w.grace,
            Sliding: lambda w: 2 * w.difference + w.grace,
        }[type(windows)](windows)
        return None if least > FOREVER - 100 else max(1, least + self.random.choice([0, 5, 100, 1_000]))

    def expecting(self, made: Scenario) -> Scenario:
        """Sometimes expects keys, if all outputs are final results or late records of time windows."""
        able = isinstance(made.windows, Windows) and made.windows.grace < FOREVER and not made.steps
        if not able or any(o.kind not in ("final", "late") for o in made.outputs) or not self.chance(0.3):
            return made
        if any(o.bound for o in made.outputs):
            return made
        self.expects = True
        most = self.random.randint(0, 3)
        keys = [{name: KEYS[kind].draw(self.random) for name, kind in self.keys} for _ in range(most)]
        return replace(made, expects=tuple(_unique(keys)))

    # -- the stream --------------------------------------------------------------------------------------------------

    def stream(self, made: Scenario) -> Scenario:
        random = self.random
        limited = any(output.limit for output in made.outputs)
        final_limit = made.outputs[0].kind == "final limit"
        partitions = 1 if made.order is None else random.choice([1, 1, 2, 3])
        self.offsets = [random.choice([0, 5, 2**40]) for _ in range(partitions)]
        self.gaps = random.choice([[1], [1, 1, 3], [1, 2], [1, 1000]])
        self.clock = self.origin = self.begin(made)
        self.pools = self.key_pools()
        crowd = random.choice(["few", "few", "few", "one key", "many keys", "hoard", "wide"])
        many = random.choice([2, 3, 3]) if self.spark else random.randint(1, 4)
        batches = [self.batch(made, crowd) for _ in range(many)]
        if crowd == "hoard":
            # Many keys in a window; later batches have few of them.
            batches = [self.hoard(made, HOARD), *(self.hoard(made, random.randint(1, 3)) for _ in batches)]
        if limited and not final_limit:
            # One record per batch: results of a limit are defined per update.
            batches = [[record] for batch in batches for record in batch][: 4 if self.spark else 40]
        if made.idle is not None:
            batches = [part for batch in batches for part in (batch, *[[]] * random.choice([0, 0, 1, 2]))]
        # No sum of these idle gaps is an instant at which a task wakes: Spark wakes it behind that, a layout at it.
        gaps = [0, 1, 5, 20, 300] if made.idle is None else [0, 7, 7, 21, 301]
        clocks = list(accumulate(random.choice(gaps) for _ in batches))
        tasks = random.choice([1, 2, 2, 3, 5])
        return replace(
            made,
            batches=batches,
            clocks=clocks,
            restarts=frozenset(n for n in range(1, len(batches)) if self.chance(0.3)),
            drains=self.chance(0.4),
            tasks=tasks,
            splits=[self.split(made, batch) for batch in batches],
        )

    def begin(self, made: Scenario) -> int:
        far = [*FAR_ORIGINS] if self.spark else [*FAR_ORIGINS, *BEYOND_SPARK]
        functions = made.steps or made.calls[0].family == "aggregate" or any(o.step for o in made.outputs)
        if self.spark and functions:
            far = [PYTHONS_LAST - 5_000]
        return self.random.choice(far if self.chance(0.1) else ORIGINS)

    def key_pools(self) -> list[tuple[Any, ...]]:
        most = self.random.choice([1, 2, 3, 6])
        return [tuple(KEYS[kind].draw(self.random) for _, kind in self.keys) for _ in range(most)]

    def batch(self, made: Scenario, crowd: str) -> list[Row]:
        random = self.random
        size = random.choice([0, 1, 2, 4, 8, 14])
        if crowd == "one key" and self.chance(0.3):
            size = 60
        pool = self.pools[:1] if crowd == "one key" else self.pools
        if crowd == "many keys":
            pool = [tuple(KEYS[kind].draw(random) for _, kind in self.keys) for _ in range(20)]
        wide = [random.randint(0, 400)] if crowd == "wide" else []
        return [self.record(made, pool, wide) for _ in range(size)]

    def hoard(self, made: Scenario, size: int) -> list[Row]:
        """Records of many keys that are near each other."""
        drawn = [KEYS[kind] for _, kind in self.keys]
        pool = [tuple(kind.draw(self.random) for kind in drawn) for _ in range(size)]
        return [self.record(made, pool, [], near=True) for _ in range(size)]

    def record(self, made: Scenario, pool: list[tuple[Any, ...]], wide: list[int], near: bool = False) -> Row:
        random = self.random
        steps = [0, random.randint(0, 4), random.randint(-6, 6), random.randint(-40, 0), random.randint(15, 60), *wide]
        steps = [0, 0, random.randint(-2, 1)] if near else steps
        ts = max(self.origin, self.clock + random.choice(steps))
        self.clock = max(self.clock, ts)
        record: Row = dict(zip([name for name, _ in self.keys], random.choice(pool), strict=True))
        for name, kind in self.values:
            record[name] = None if random.random() < 0.15 else VALUES[kind].draw(random)
        if self.chance(0.03):
            record |= dict.fromkeys((name for name, _ in self.values), None)
        record[made.timestamp] = ts
        if made.order:
            at = random.randrange(len(self.offsets))
            record |= {made.order[0]: at, made.order[1]: self.offsets[at]}
            self.offsets[at] += random.choice(self.gaps)
        flaw = random.randrange(30)
        if flaw == 0:
            record[random.choice(self.keys)[0]] = None
        elif flaw == 1:
            # Give the record a key: which of two flaws is counted is not defined.
            keyed = {step.column for step in made.steps if step.how == "select_key"}
            record |= {n: VALUES[k].draw(random) for n, k in self.values if n in keyed and record[n] is None}
            record[made.timestamp] = random.choice([None, -1, -(10**9)])
        return record

    def split(self, made: Scenario, batch: list[Row]) -> list[int]:
        """Map task of each record: random, or each partition in one piece or two."""
        random = self.random
        readers = 2 if self.spark else random.choice([1, 2, 3])
        if self.chance(0.4):
            return [random.randrange(readers) for _ in batch]
        at = random.randint(0, len(batch))
        first, second = random.randrange(readers), random.randrange(readers)
        return [first if n < at else second for n in range(len(batch))]


def _late(made: Scenario) -> bool:
    return any(output.kind == "late" for output in made.outputs)


def _unique(keys: list[Row]) -> list[Row]:
    found: dict[str, Row] = {}
    for key in keys:
        found.setdefault(repr({name: kinds.same_key(value) for name, value in key.items()}), key)
    return list(found.values())


__all__ = ["NESTED", "Draw", "Kind"]
