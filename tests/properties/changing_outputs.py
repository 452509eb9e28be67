"""An aggregation in windows with several outputs, whose plan changes between batches: drawn at random, as code.

Outputs come and go, get other names, and turn from updates to final results and back. Time limits and steps come, go
and change; so do the grace, the aggregates, the retention and the clock.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from random import Random
from typing import Any, NamedTuple

import pyarrow as pa

import tidegate as tg
from properties.composed_plans import UNBOUNDED, chance

Row = dict[str, Any]

SCHEMA = pa.schema(
    [
        ("k", pa.string()),
        ("ts", pa.int64()),
        ("v", pa.int64()),
        ("w", pa.string()),
        ("p", pa.int32()),
        ("o", pa.int64()),
    ]
)
WINDOWS = {
    "tumbling": 'tg.TimeWindows.of_size_and_grace("{size} ms", "{grace} ms")',
    "hopping": 'tg.TimeWindows.of_size_and_grace("{size} ms", "{grace} ms").advance_by("{half} ms")',
    "sliding": 'tg.SlidingWindows.of_time_difference_and_grace("{size} ms", "{grace} ms")',
    "sessions": 'tg.SessionWindows.of_inactivity_gap_and_grace("{size} ms", "{grace} ms")',
}
AGGREGATES = {
    "n": "tg.count()",
    "sum": 'tg.sum("v")',
    "least": 'tg.min("v")',
    "last": 'tg.last("v")',
    "all": 'tg.collect_list("w")',
    "most": 'tg.max("w")',
    "mean": 'tg.mean("v")',
}
BUFFERS = (
    UNBOUNDED,
    "tg.BufferConfig.max_records(5_000)",
    "tg.BufferConfig.max_bytes(10**8)",
    "tg.BufferConfig.max_records(5_000).shut_down_when_full()",
    "tg.BufferConfig.max_records(1).spill_to_disk_when_full()",
    "tg.BufferConfig.max_bytes(500).spill_to_disk_when_full()",
)
FINAL = (UNBOUNDED, BUFFERS[3], *BUFFERS[4:])
STEPS = (
    '.map_values({"n": "n"})',
    '.map_values({"n": lambda row: row["n"], "one": lambda row: 1}, types={"n": "long", "one": "long"})',
)
LATE = None
"""An output of late records."""


@dataclass(frozen=True)
class Limit:
    """A time limit."""

    ms: int
    clock: str
    buffer: str
    name: str | None

    @property
    def code(self) -> str:
        named = "" if self.name is None else f".with_name({self.name!r})"
        return f'.suppress(tg.Suppressed.until_time_limit("{self.ms} ms", {self.buffer}, clock={self.clock!r}){named})'


@dataclass(frozen=True)
class Shown:
    """An output of results.

    final  the buffer of final results; "" for updates
    steps  numbers of steps in front of the limits, behind the first limit, and behind all of them
    """

    final: str = ""
    limits: tuple[Limit, ...] = ()
    steps: tuple[int, int, int] = (0, 0, 0)

    @property
    def code(self) -> str:
        front, between, behind = ("".join((STEPS * 2)[:many]) for many in self.steps)
        limits = [limit.code for limit in self.limits]
        closes = f".suppress(tg.Suppressed.until_window_closes({self.final}))" if self.final else ""
        return "".join([closes, front, *limits[:1], between if limits else "", *limits[1:], behind])


@dataclass(frozen=True, kw_only=True, repr=False)
class Aggregation:
    """The plan.

    retention  ms, None if there is none
    expected   expected keys
    clock      arguments of the stream
    outputs    by name; one called "" is the only one
    """

    kind: str
    size: int
    grace: int
    declared: bool
    caching: bool
    retention: int | None
    aggregates: tuple[str, ...]
    expected: tuple[str, ...] = ()
    clock: str = ""
    outputs: Mapping[str, Shown | None] = field(default_factory=lambda: {"": Shown()})

    def __repr__(self) -> str:
        schema = ", schema=SCHEMA" if self.declared else ""
        stream = f'tg.stream("events", key="k", timestamp="ts", partition="p", offset="o"{schema}{self.clock})'
        windows = WINDOWS[self.kind].format(size=self.size, grace=self.grace, half=max(1, self.size // 2))
        store = 'tg.Materialized.as_("store")' + ("" if self.caching else ".with_caching_disabled()")
        store += "" if self.retention is None else f'.with_retention("{self.retention} ms")'
        named = ", ".join(f"{name}={AGGREGATES[name]}" for name in self.aggregates)
        expects = f", expect_keys={[{'k': key} for key in self.expected]!r}" if self.expected else ""
        counts = f"counts = {stream}.group_by_key().windowed_by({windows}).agg({store}, {named}{expects})"
        shown = {n: "counts" + (".late_records()" if one is LATE else one.code) for n, one in self.outputs.items()}
        together = ", ".join(f"{name}={code}" for name, code in shown.items())
        return f"{counts}\nresult = {shown.get('', f'tg.outputs({together})')}"

    def made(self) -> Any:
        """The result of the plan."""
        space: Row = {"tg": tg, "SCHEMA": SCHEMA}
        exec(repr(self), space)
        return space["result"]

    @property
    def results(self) -> dict[str, Shown]:
        """The outputs of results, by name."""
        return {name: one for name, one in self.outputs.items() if one is not LATE}

    @property
    def by_wall_clock(self) -> bool:
        """Whether rows wait for the wall clock."""
        return any(limit.clock == "wall" for one in self.results.values() for limit in one.limits)

    @property
    def plainest(self) -> Aggregation:
        """The same aggregation with every update as its only output."""
        return replace(self, outputs={"": Shown()}, expected=())


class Moment(NamedTuple):
    """A batch; the plan may have changed before it, and the wall clock has gone on (ms)."""

    plan: Aggregation
    changed: bool
    wait: int
    records: list[Row]


class Draw:
    """Draws plans and what changes in them; `many`: for several tasks, so without what takes a single one."""

    def __init__(self, random: Random) -> None:
        self.random, self.many = random, chance(random, 60)

    def plan(self) -> Aggregation:
        random = self.random
        names = [""] if chance(random, 30) else random.sample("abc", random.choice([1, 2, 2, 3]))
        outputs: dict[str, Shown | None] = {name: self.output() for name in names}
        if "" not in outputs and chance(random, 40):
            outputs["late"] = LATE
        some = ["n", *random.sample([*AGGREGATES][1:], random.choice([0, 0, 1, 2]))]
        plan = Aggregation(
            kind=random.choice([*WINDOWS]),
            size=random.choice([1, 4, 10, 17]),
            grace=random.choice([0, 3, 10, 50]),
            declared=chance(random, 60),
            caching=chance(random, 60),
            retention=random.choice([None, None, 70, 100]),
            aggregates=tuple(random.sample(some, len(some))),
            clock=self.clock(),
            outputs=outputs,
        )
        return tidy(plan)

    def output(self) -> Shown:
        random, final = self.random, self.random.choice(["", random_final(self.random)])
        most = random.choice([0, 0, 0, 1, 1, 2])
        most = min(most, 0 if final else 1) if self.many else most
        return Shown(final, tuple(self.limit() for _ in range(most)))

    def limit(self) -> Limit:
        random = self.random
        clock, name = random.choice(["stream", "stream", "stream", "wall"]), random.choice([None, None, "x", "y"])
        return Limit(random.choice([0, 3, 10, 40, 200]), clock, random.choice(BUFFERS), name)

    def clock(self) -> str:
        random = self.random
        said = random.choice(["", ', stream_time="max"', *[', stream_time="min_partition"'] * 2])
        if "min" in said and chance(random, 50):
            said += f', idle_after="{random.choice([1_000, 5_000])} ms"'
        return said + random.choice(["", "", "", f', max_future_skew="{random.choice([20, 1_000, 10**6])} ms"'])

    def changed(self, plan: Aggregation) -> Aggregation:
        """The plan with one to three changes."""
        ways: list[Callable[[Aggregation], Aggregation]] = [
            lambda plan: replace(plan, grace=self.random.choice([0, 3, 10, 50, 120])),
            lambda plan: replace(plan, retention=self.random.choice([None, 70, 130, 1_000])),
            lambda plan: replace(plan, clock=self.clock()),
            lambda plan: replace(plan, caching=not plan.caching),
            self.more_aggregates,
            self.other_outputs,
            self.other_names,
            *[self.other_limits, self.other_kind] * 2,
            self.other_steps,
            lambda plan: replace(plan, expected=self.random.choice([(), ("x",), ("x", "a")])),
        ]
        for _ in range(self.random.choice([1, 1, 2, 3])):
            plan = self.random.choice(ways)(plan)
        return tidy(plan)

    def more_aggregates(self, plan: Aggregation) -> Aggregation:
        """One more, or another order."""
        rest = [name for name in AGGREGATES if name not in plan.aggregates]
        more = [self.random.choice(rest)] if rest and chance(self.random, 60) else []
        some = [*plan.aggregates, *more]
        return replace(plan, aggregates=tuple(self.random.sample(some, len(some))))

    def other_outputs(self, plan: Aggregation) -> Aggregation:
        """An output comes or goes, or late records do."""
        random, outputs = self.random, dict(plan.outputs)
        if "" in outputs:
            return plan
        if chance(random, 30):
            if outputs.pop("late", 0) == 0:
                outputs["late"] = LATE
        elif len(plan.results) == 1 or chance(random, 60):
            outputs.setdefault(random.choice("abcd"), self.output())
        else:
            del outputs[random.choice([*plan.results])]
        return replace(plan, outputs=outputs)

    def other_names(self, plan: Aggregation) -> Aggregation:
        """An output has another name, or all of them another order."""
        random, outputs = self.random, dict(plan.outputs)
        if "" not in outputs and chance(random, 50):
            old, new = random.choice([*plan.results]), random.choice("efgh")
            outputs = {new if name == old else name: one for name, one in outputs.items()}
        return replace(plan, outputs={name: outputs[name] for name in random.sample([*outputs], len(outputs))})

    def other_limits(self, plan: Aggregation) -> Aggregation:
        """A limit comes, goes, or becomes another one."""
        name, one = self.random.choice([*plan.results.items()])
        limits = [*one.limits]
        if limits and chance(self.random, 70):
            at = self.random.randrange(len(limits))
            limits[at : at + 1] = [self.limit()] if chance(self.random, 50) else []
        elif not self.many or not (limits or one.final):
            limits.append(self.limit())
        return replace(plan, outputs={**plan.outputs, name: replace(one, limits=tuple(limits))})

    def other_kind(self, plan: Aggregation) -> Aggregation:
        """Updates become final results, final results updates."""
        name, one = self.random.choice([*plan.results.items()])
        final = "" if one.final else random_final(self.random)
        limits = () if final and self.many else one.limits
        return replace(plan, outputs={**plan.outputs, name: replace(one, final=final, limits=limits)})

    def other_steps(self, plan: Aggregation) -> Aggregation:
        name, one = self.random.choice([*plan.results.items()])
        steps = [*one.steps]
        steps[self.random.randrange(3)] = self.random.choice([0, 1, 2])
        return replace(plan, outputs={**plan.outputs, name: replace(one, steps=(steps[0], steps[1], steps[2]))})

    def batches(self) -> list[tuple[int, list[Row]]]:
        """Pauses (ms) and the records behind them, of two partitions with gaps."""
        random, made, offsets, latest = self.random, [], [0, 0], 100
        for _ in range(random.choice([3, 5, 8, 12])):
            records = []
            for _ in range(random.choice([0, 1, 1, 2, 4, 7])):
                ts = max(0, latest + random.choice([0, 1, 2, 5, 9, -3, -10, -30, 20, 60]))
                latest = ts if chance(random, 20) else max(latest, ts)
                partition, key = random.randrange(2), random.choice("aaabbc")
                values = {"v": random.choice([None, 1, 2, -3, 7]), "w": random.choice([None, "x", "yy", ""])}
                records.append({"k": key, "ts": ts, **values, "p": partition, "o": offsets[partition]})
                offsets[partition] += random.choice([1, 1, 3])
            made.append((random.choice([0, 0, 5, 20, 1_000, 9_000]), records))
        return made


def random_final(random: Random) -> str:
    """A buffer for final results."""
    return random.choice(FINAL)


def tidy(plan: Aggregation) -> Aggregation:
    """The plan with at most one limit of each name, and with expected keys only where windows give them."""
    used: set[str | None] = set()
    outputs: dict[str, Shown | None] = {}
    for name, one in plan.outputs.items():
        limits = []
        for limit in () if one is LATE else one.limits:
            limits.append(replace(limit, name=None) if limit.name in used else limit)
            used.add(limit.name)
        outputs[name] = one if one is LATE else replace(one, limits=tuple(limits))
    able = plan.kind in ("tumbling", "hopping") and any(one.final for one in plan.results.values())
    return replace(plan, outputs=outputs, expected=plan.expected if able else ())
