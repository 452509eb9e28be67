"""Random topologies and streams for the cluster, each from one number, and the source of the expected results."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import timedelta
from decimal import Decimal
from random import Random
from typing import Any

import tidegate as tg
from oracle import Batches, BuiltIn, NoWindows, Row, Sessions, Topology, Unlimited, Windows
from oracle_suppress import Limit
from properties import cases, test_forwarded_rows, test_grouped_tables, test_suppression
from properties.cases import Case

Table = Callable[[], Any]


@dataclass(frozen=True)
class Plan:
    """A plan that a query is started with: a table of tidegate, and its topology if the oracle knows it."""

    table: Table
    case: Any = None
    says: str = ""


@dataclass(frozen=True)
class Scenario:
    """A stream in batches, and the plans for it, the first from the beginning.

    contiguous  whether map tasks promise that each reads an unbroken stretch of each partition
    truth  "oracle": the definition; "chain": two chained oracles; "one task": the same plan over one map task and one
           task, without faults; "same tasks": over the same layout, without faults
    """

    family: str
    plans: list[Plan]
    batches: list[list[Row]]
    clocks: list[int]
    truth: str
    tasks: int
    on_spark: bool
    drains: bool
    interleaved: bool
    contiguous: bool
    seed: int

    def dealt(self, number: int, parts: int) -> list[list[Row]]:
        """Records of each map task in a batch; another `parts` gives another split."""
        random = Random(f"deal {self.seed} {number} {parts}")
        deal = _dealt if self.interleaved else _chunked
        return deal(random, self.batches[number], random.choice([1, 1, 2, 2, 3]))


def scenario(seed: int) -> Scenario:
    """The scenario of a seed."""
    random = Random(f"scenario {seed}")
    family = random.choices(list(FAMILIES), [weight for weight, _ in FAMILIES.values()])[0]
    plans, truth, ordered = FAMILIES[family][1](random)
    batches = _batches(random, ordered)
    clock, clocks = 0, []
    for _ in batches:
        # Even, because limits are odd: nothing is due exactly at a batch's time.
        clock += 2 * random.choice([0, 1, 5, 5, 20])
        clocks.append(clock)
    interleaved = random.random() < 0.4
    return Scenario(
        family,
        plans,
        batches,
        clocks,
        truth,
        tasks=random.choice([1, 1, 2, 2, 3]),
        on_spark=random.random() < 0.25,
        drains=random.random() < 0.4 and truth != "chain",
        interleaved=interleaved,
        contiguous=not interleaved and random.random() < 0.5,
        seed=seed,
    )


# -- plans ---------------------------------------------------------------------------------------------------------


def _windows(random: Random, kind: str) -> Any:
    grace = random.choice([0, 0, random.randint(0, 6), random.randint(5, 40)])
    if kind == "session":
        return Sessions(random.choice([random.randint(1, 4), random.randint(1, 12)]), grace)
    if kind == "batch":
        return Batches(random.choice([random.randint(1, 12), random.randint(10, 60)]))
    if kind == "unlimited":
        return Unlimited(random.choice([0, 5]))
    if kind == "plain":
        return NoWindows()
    size = random.choice([random.randint(1, 12), random.randint(10, 60)])
    advance = random.choice([size, random.randint(1 + size // 6, size)])
    return Windows(size, advance, grace)


def _aggregates(random: Random, functions: bool) -> dict[str, Any]:
    if functions and random.random() < 0.3:
        return {"out": cases.FUNCTIONS[random.choice(sorted(cases.FUNCTIONS))][0]}
    return {f"v{i}": a for i, a in enumerate(random.sample(cases.BUILT_IN, random.choice([1, 1, 2, 4])))}


def _case(random: Random, kind: str, final: bool, functions: bool = True, ordered: bool = True) -> Case:
    windows = _windows(random, kind)
    topology = Topology(
        key=random.choice([("k",), ("k",), ("j",), ("k", "j")]),
        windows=windows,
        aggregates=_aggregates(random, functions),
        final=final and not isinstance(windows, Unlimited | NoWindows),
        caching=random.random() < 0.5,
        partition="partition" if ordered else None,
        offset="offset" if ordered else None,
    )
    return Case(topology, through_suppress=random.random() < 0.5)


def _of(case: Case) -> Plan:
    return Plan(case.table, case, f"{case.topology}, through suppress: {case.through_suppress}")


def _kind(random: Random) -> str:
    return random.choice(["time", "time", "time", "session", "session", "batch", "unlimited", "plain"])


def aggregation(random: Random) -> tuple[list[Plan], str, bool]:
    """Windows of every kind and none, updates and final results; other graces and more aggregates later."""
    functions = random.random() < 0.4
    case = _case(random, _kind(random), random.random() < 0.6, functions)
    plans = [_of(case)]
    for _ in range(0 if functions else random.choice([0, 1, 2])):
        case = _changed(random, case)
        plans.append(_of(case))
    return plans, "oracle", True


def _changed(random: Random, case: Case) -> Case:
    windows, aggregates = case.topology.windows, dict(case.topology.aggregates)
    if isinstance(windows, Windows | Sessions) and random.random() < 0.7:
        windows = replace(windows, grace=random.choice([windows.grace + random.randint(0, 60), random.randint(0, 40)]))
    if random.random() < 0.7:
        more = {f"w{len(aggregates)}": random.choice(cases.BUILT_IN)}
        logs = isinstance(windows, Windows) and case.topology.final
        if not (logs and any(map(_ordered, more.values())) and not any(map(_ordered, aggregates.values()))):
            aggregates |= more
        aggregates = dict(random.sample(list(aggregates.items()), len(aggregates)))
    return replace(case, topology=replace(case.topology, windows=windows, aggregates=aggregates))


def _ordered(aggregate: BuiltIn) -> bool:
    return aggregate.function in ("first", "last", "collect_list")


def turns(random: Random) -> tuple[list[Plan], str, bool]:
    """Final results become updates, and updates final results."""
    case = _case(random, random.choice(["time", "session", "batch"]), True, functions=False)
    both = [case, replace(case, topology=replace(case.topology, final=False))]
    random.shuffle(both)
    return [_of(one) for one in both], "one task", True


def _limit(random: Random) -> Any:
    bound = random.choice([None, None, None, random.randint(0, 5)])
    measured = random.choice(["first_update", "first_update", "latest_update", "window_start"])
    limit = Limit(random.choice([0, 1, 2 * random.randint(1, 15) + 1]), bound, "emit_early", measured)
    if bound is not None and random.random() < 0.3:
        limit = replace(limit, strategy="spill_to_disk")
    return limit


def limit(random: Random) -> tuple[list[Plan], str, bool]:
    """Rows that wait for a time limit, by both clocks; other limits later, or none."""
    ordered = random.random() < 0.8
    clock = random.choice(["stream", "stream", "wall"])
    case = _case(random, _kind(random), clock == "stream" and random.random() < 0.2, ordered=ordered)
    case = replace(case, topology=replace(case.topology, caching=random.random() < 0.5))
    first = _limit(random)
    if isinstance(case.topology.windows, NoWindows) and first.measured_from == "window_start":
        first = replace(first, measured_from="first_update")
    limits: list[Any] = [first]
    if random.random() < 0.4:
        limits.append(replace(first, ms=2 * random.randint(0, 20) + 1))
    if clock == "stream" and first.max_records is None and not case.topology.final and random.random() < 0.2:
        limits.append(None)
    return [_limited(case, one, clock) for one in limits], "one task", ordered


def _limited(case: Case, limit: Any, clock: str) -> Plan:
    if limit is None:
        return _of(case)
    how = replace(test_suppression.suppressed(limit), clock=clock)
    return Plan(lambda: case.table().suppress(how), case, f"{_of(case).says}, {limit}, clock: {clock}")


def changelog(random: Random) -> tuple[list[Plan], str, bool]:
    """A table whose changes wait."""
    clock, first = random.choice(["stream", "wall"]), replace(_limit(random), measured_from="first_update")
    how = replace(test_suppression.suppressed(first), clock=clock)
    order = {"partition": "partition", "offset": "offset"}
    table = lambda: tg.table("changes", key="k", timestamp="ts", deleted="b", schema=_schema(), **order).suppress(how)  # noqa: E731
    return [Plan(table, None, f"a table, {first}, clock: {clock}")], "one task", True


def _schema() -> Any:
    return cases.pa.schema(list(cases.SCHEMA.items()))


def forwarded(random: Random) -> tuple[list[Plan], str, bool]:
    """An aggregation of the changes of another."""
    first = _case(random, random.choice(["plain", "time", "session", "batch"]), random.random() < 0.5)
    first = replace(first, topology=replace(first.topology, key=("k",), aggregates=test_forwarded_rows.FIRST))
    kind = random.choice(["plain", "time", "session", "batch", "unlimited"])
    second = _case(random, kind, random.random() < 0.5, ordered=False)
    key = random.choice([("k",), ("s2",), ("s2", "n2")])
    topology = replace(second.topology, key=key, aggregates=test_forwarded_rows.SECOND, timestamp="timestamp")
    chain = test_forwarded_rows.Chain(first, replace(second, topology=topology, through_suppress=False))
    says = f"{first.topology}\nthen {topology}"
    return [Plan(chain.table, chain, says)], random.choice(["chain", "same tasks"]), True


def regrouped(random: Random) -> tuple[list[Plan], str, bool]:
    """A table that is grouped anew."""
    kind, caching = random.choice(sorted(test_grouped_tables.KINDS)), random.random() < 0.5
    store = tg.Materialized.as_("store") if caching else tg.Materialized.as_("store").with_caching_disabled()
    if random.random() < 0.5:
        kind = random.choice(["count", "aggregate"])
        order = {"partition": "partition", "offset": "offset"}
        build = lambda: test_grouped_tables.KINDS[kind].build(  # noqa: E731
            tg.table("changes", key="k", timestamp="ts", deleted="b", schema=_schema(), **order).group_by("s"), store
        )
        return [Plan(build, None, f"a table grouped anew: {kind}, caching: {caching}")], "same tasks", True
    case = _case(random, random.choice(["plain", "time"]), False, functions=False)
    aggregates = {"n2": BuiltIn("count"), "s2": BuiltIn("last", "s")}
    case = replace(case, topology=replace(case.topology, key=("k",), aggregates=aggregates))
    build = lambda: case.table().group_by("s2").agg(c=tg.count(), t=tg.sum("n2"), materialized=store)  # noqa: E731
    return [Plan(build, case, f"{case.topology} grouped by s2, caching: {caching}")], "same tasks", True


def sliding(random: Random) -> tuple[list[Plan], str, bool]:
    """Sliding windows, as updates and final."""
    difference, grace = _ms(random.randint(1, 12)), _ms(random.choice([0, 3, 20]))
    windows = tg.SlidingWindows.of_time_difference_and_grace(difference, grace)
    final, functions = random.random() < 0.6, random.random() < 0.3
    ordered = random.random() < 0.8

    def table() -> Any:
        grouped = _stream(ordered).group_by_key().windowed_by(windows)
        if functions:
            made = grouped.aggregate(cases.nothing, cases.history, type="string")
        else:
            made = grouped.agg(n=tg.count(), t=tg.sum("n"), l=tg.collect_list("s"), m=tg.max("n"))
        return made.suppress(tg.Suppressed.until_window_closes(tg.BufferConfig.unbounded())) if final else made

    return [Plan(table, None, f"{windows}, final: {final}, functions: {functions}")], "one task", ordered


def _stream(ordered: bool, **clock: Any) -> Any:
    order = {"partition": "partition", "offset": "offset"} if ordered else {}
    return tg.stream("events", key="k", timestamp="ts", schema=_schema(), **order, **clock)


def outputs(random: Random) -> tuple[list[Plan], str, bool]:
    """Several outputs of one aggregation: updates, final results, late records, with a retention."""
    kind = random.choice(["time", "session", "batch"])
    case = _case(random, kind, False)
    case = replace(case, topology=replace(case.topology, key=("k",), caching=random.random() < 0.5))
    chosen = random.sample(["raw", "final", "late", "limited"], random.randint(1, 4))
    limit = replace(_limit(random), max_records=None, strategy="emit_early")

    def table() -> Any:
        updates = case.table()
        made = {
            "raw": updates,
            "final": updates.suppress(tg.Suppressed.until_window_closes(tg.BufferConfig.unbounded())),
            "late": updates.late_records(),
            "limited": updates.suppress(test_suppression.suppressed(limit)),
        }
        return tg.outputs(**{name: made[name] for name in chosen})

    return [Plan(table, case, f"{case.topology} as {chosen}, {limit}")], "one task", True


def clocks(random: Random) -> tuple[list[Plan], str, bool]:
    """Stream time that goes on without records, that waits for the slowest partition, or takes no leap."""
    clock: dict[str, Any] = random.choice(
        [
            {"idle_advance": _ms(random.choice([3, 11]))},
            {"stream_time": "min_partition"},
            {"stream_time": "min_partition", "idle_after": _ms(7)},
            {"max_future_skew": _ms(21)},
        ]
    )
    case = _case(random, random.choice(["time", "session"]), True)
    case = replace(case, clock=clock)
    return [Plan(case.table, case, f"{case.topology}, {clock}")], "same tasks", True


def expecting(random: Random) -> tuple[list[Plan], str, bool]:
    """Rows for keys that had no record."""
    case = _case(random, "time", True)
    keys = [{"k": "a"}, {"k": "zz"}]
    case = replace(case, topology=replace(case.topology, key=("k",)), expect_keys=keys)
    return [Plan(case.table, case, f"{case.topology}, expects {keys}")], "one task", True


def joins(random: Random) -> tuple[list[Plan], str, bool]:
    """A stream with itself: inner, left and outer, in windows that reach back and ahead; other graces later."""
    ordered, how = random.random() < 0.8, random.choice(["inner", "left", "outer"])
    before, after = random.randint(0, 20), random.randint(0, 20)
    graces = [random.choice([0, 5, 30]) for _ in range(random.choice([1, 1, 2]))]

    def plan(grace: int) -> Plan:
        windows = tg.JoinWindows.of_time_difference_and_grace(_ms(before), _ms(grace)).after(_ms(after))

        def table() -> Any:
            stream = _stream(ordered, stream_time="max")
            return stream.join(stream, windows, how, suffixes=("_l", "_r"))

        return Plan(table, None, f"{how} join of the stream with itself in {windows}, grace {grace}")

    return [plan(grace) for grace in graces], "same tasks", ordered


def streams(random: Random) -> tuple[list[Plan], str, bool]:
    """Two streams that differ, each with a part of the records; their rows at times in windows, or merged with records.

    Other graces come later.
    """
    how, clock = random.choice(["inner", "left", "outer"]), random.choice(["max", "min_partition"])
    before, after = random.randint(0, 20), random.randint(0, 20)
    behind, final = random.choice(["", "", "windows", "merged", "merged last"]), random.random() < 0.7
    graces = [random.choice([0, 5, 30]) for _ in range(1 if behind else random.choice([1, 1, 2]))]

    def part(odd: bool) -> Any:
        return _stream(True, stream_time=clock).filter(lambda row: bool((row["j"] or 0) % 2) == odd)

    def plan(grace: int) -> Plan:
        windows = tg.JoinWindows.of_time_difference_and_grace(_ms(before), _ms(grace)).after(_ms(after))

        def table() -> Any:
            right = part(False).map_values({"other": lambda row: row["n"]}, types={"other": "long"})
            joined = part(True).join(right, windows, how)
            if not behind:
                return joined
            others = _stream(True, stream_time=clock).map_values(
                {"other": lambda row: row["j"]}, types={"other": "long"}
            )
            merged = {"merged": lambda: joined.merge(others), "merged last": lambda: others.merge(joined)}
            rows = merged.get(behind, lambda: joined)()
            grouped = rows.group_by_key().windowed_by(tg.TimeWindows.of_size_and_grace("10 ms", "20 ms"))
            if final:
                grouped = grouped.emit_strategy(tg.EmitStrategy.on_window_close())
            return grouped.agg(n=tg.count(), o=tg.max("other"))

        says = f"{how} join of two streams in {windows}, grace {grace}, {clock}, behind: {behind or 'nothing'}, {final}"
        return Plan(table, None, says)

    return [plan(grace) for grace in graces], "same tasks", True


def tables(random: Random) -> tuple[list[Plan], str, bool]:
    """A stream with a table, or two tables: each record is one of both sides."""
    how = random.choice(["inner", "left", "outer"])
    history, caching = random.choice([None, 3, 20]), random.random() < 0.5
    wait = None if history is None or random.random() < 0.5 else random.choice([0, min(history, 5)])
    of_tables, clock = random.random() < 0.4, random.choice(["max", "min_partition"])
    order = {"partition": "partition", "offset": "offset"}
    store = tg.Materialized.as_("store") if caching else tg.Materialized.as_("store").with_caching_disabled()

    def changes(deleted: str | None, **more: Any) -> Any:
        said = {} if deleted is None else {"deleted": deleted}
        return tg.table("events", key="k", timestamp="ts", schema=_schema(), **said, **order, **more)

    def table() -> Any:
        if of_tables:
            return changes("b").join(changes(None), how=how, suffixes=("_l", "_r"), materialized=store)
        other = changes("b") if history is None else changes("b", history=_ms(history))
        waits = {} if wait is None else {"grace": _ms(wait)}
        which = "inner" if how == "inner" else "left"
        return _stream(True, stream_time=clock).join(other, how=which, suffixes=("_l", "_r"), **waits)

    says = f"{how}, of two tables: {of_tables}, history {history}, grace {wait}, {clock}, caching: {caching}"
    return [Plan(table, None, says)], "one task", True


def inputs(random: Random) -> tuple[list[Plan], str, bool]:
    """Two streams, each with a part of the records, merged or in a cogroup."""
    kind, cogroups, caching = _kind(random), random.random() < 0.5, random.random() < 0.5
    windows = _case(random, kind, False, functions=False)
    final = random.random() < 0.5 and kind not in ("unlimited", "plain")
    store = tg.Materialized.as_("store") if caching else tg.Materialized.as_("store").with_caching_disabled()

    def part(odd: bool) -> Any:
        return _stream(True).filter(lambda row: bool((row["j"] or 0) % 2) == odd)

    def table() -> Any:
        if cogroups:
            added = lambda key, row, text: f"{text}{row['s']}"  # noqa: E731
            counted = lambda key, row, text: f"{text}{row['j']};"  # noqa: E731
            grouped = part(True).group_by_key().cogroup(added).cogroup(part(False).group_by_key(), counted)
        else:
            grouped = part(True).merge(part(False)).group_by_key()
        if kind != "plain":
            grouped = grouped.windowed_by(windows._windows())
        if final:
            grouped = grouped.emit_strategy(tg.EmitStrategy.on_window_close())
        if not cogroups:
            return grouped.agg(n=tg.count(), last=tg.last("s"), materialized=store)
        merger = {"merger": lambda key, one, other: f"{one}|{other}"} if kind == "session" else {}
        return grouped.aggregate(lambda: "", type="string", name="text", materialized=store, **merger)

    says = f"{windows.topology.windows}, cogroup: {cogroups}, final: {final}, caching: {caching}"
    return [Plan(table, None, says)], "one task", True


FAMILIES: dict[str, tuple[int, Callable[[Random], tuple[list[Plan], str, bool]]]] = {
    "aggregation": (45, aggregation),
    "turns": (5, turns),
    "limit": (16, limit),
    "changelog": (4, changelog),
    "forwarded": (8, forwarded),
    "regrouped": (6, regrouped),
    "sliding": (6, sliding),
    "outputs": (6, outputs),
    "clocks": (5, clocks),
    "expecting": (3, expecting),
    "joins": (6, joins),
    "streams": (4, streams),
    "tables": (6, tables),
    "inputs": (6, inputs),
}


def _ms(value: int) -> timedelta:
    return timedelta(milliseconds=value)


# -- streams -------------------------------------------------------------------------------------------------------

_VALUES: dict[str, list[Any]] = {
    "n": [None, 0, 1, -3, 10**12],
    "x": [None, 0.0, -1.5, 0.1, 1e6, float("nan"), float("inf")],
    "d": [None, Decimal("0.001"), Decimal("-7.250"), Decimal("12345.678")],
    "s": [None, "x", "y", "", "ü", "zz"],
    "b": [False, False, True],
}
_KEYS = ["a", "b", "ab", "", "ü", "\U0001f600", "\ufb01"]


def _batches(random: Random, ordered: bool) -> list[list[Row]]:
    clock = origin = random.choice([0, 0, 0, 7, 1_700_000_000_000])
    keys, numbers = random.sample(_KEYS, random.randint(1, 4)), [random.randint(0, 300) for _ in range(3)]
    offsets = [random.randint(0, 5) for _ in range(random.choice([1, 2, 3]))]
    batches: list[list[Row]] = []
    for _ in range(random.choice([1, 2, 2, 3, 4])):
        batch = []
        for _ in range(random.choice([0, 1, 2, 4, 8, 14])):
            steps = [0, random.randint(0, 4), random.randint(-6, 6), random.randint(-40, 0), random.randint(15, 60)]
            ts = max(origin, clock + random.choice(steps))
            clock = max(clock, ts)
            partition = random.randrange(len(offsets))
            record = {name: random.choice(values) for name, values in _VALUES.items()}
            record |= {"k": random.choice(keys), "j": random.choice(numbers), "ts": ts}
            record |= {"partition": partition, "offset": offsets[partition]}
            offsets[partition] += random.choice([1, 1, 3])
            batch.append(_flawed(random, record))
        batches.append(batch)
    return batches


def _flawed(random: Random, record: Row) -> Row:
    flaw = random.randrange(25)
    if flaw == 0:
        record[random.choice(["k", "j"])] = None
    elif flaw == 1:
        record["ts"] = random.choice([None, -1, -(10**9)])
    return record


def _dealt(random: Random, batch: list[Row], tasks: int) -> list[list[Row]]:
    inputs: list[list[Row]] = [[] for _ in range(tasks)]
    for record in batch:
        random.choice(inputs).append(record)
    return inputs


def _chunked(random: Random, batch: list[Row], tasks: int) -> list[list[Row]]:
    inputs: list[list[Row]] = [[] for _ in range(tasks)]
    for partition in sorted({record["partition"] for record in batch}):
        own = [r for r in batch if r["partition"] == partition]
        ends = sorted(random.randint(0, len(own)) for _ in range(tasks - 1))
        for task, low, high in zip(random.sample(range(tasks), tasks), [0, *ends], [*ends, len(own)], strict=True):
            inputs[task] += own[low:high]
    return inputs
