"""Random joins of two streams: Kafka's against its rules (SEMANTICS 7a), tidegate's against ours (7b).

Three comparisons of each case, row by row with order and timestamps:
1. the jar with `KafkaStreamJoin`, the oracle of Kafka's rules;
2. tidegate's driver with `StreamJoin`, the oracle of ours;
3. the two oracles with each other: deviations of 7c must explain each difference (deviations.py).
"""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

import pyarrow as pa

import tidegate as tg
from oracle_joins import JoinedRow, StreamJoin
from parity import deviations
from parity.cases import KEYS, Case, Json
from parity.rules import Ask
from tidegate.testing import TopologyTestDriver

SCHEMA = pa.schema({"key": pa.string(), "value": pa.string(), "ts": pa.int64()})


def is_drawn(seed: int) -> bool:
    """Whether a seed gives a join, if joins are drawn among other cases: a fifth of the seeds does."""
    return random.Random(f"is a join {seed}").random() < 0.2


def generate(seed: int) -> Case:
    """The join of a seed."""
    rng = random.Random(f"join {seed}")
    # A few must be long enough to span several segments of stores on disk, of a minute and more.
    scale = rng.choice((1,) * 9 + (20_000,))
    before = rng.randint(-4, 8)
    after = rng.randint(max(-4, -before), 8)
    self_join = rng.random() < 0.15
    topology = {
        "kind": "stream_join",
        "how": rng.choice(("inner", "left", "left", "outer", "outer")),
        "before_ms": before * scale,
        "after_ms": after * scale,
        "grace_ms": rng.choice((0, rng.randint(0, 6))) * scale,
        "self": self_join,
        "legacy": rng.random() < 0.1,
        "store": rng.choice(("memory", "rocksdb")),
        "suppress": None,
    }
    return Case(seed, topology, _records(rng, self_join, scale))


def _records(rng: random.Random, self_join: bool, scale: int) -> tuple[Json, ...]:
    """Records of both sides as they come: mostly in order, some far back, some that are skipped."""
    keys = rng.sample(KEYS, rng.randint(1, 3))
    nulls = rng.choice((0.0, 0.0, 0.08))
    late = rng.choice((0.0, 0.3, 0.6))
    now = rng.choice((0, rng.randint(0, 4), rng.randint(0, 100)))
    records = []
    for number in range(rng.randint(3, 30)):
        now += rng.choice((0, 0, 1, 1, 1, 2, 5, 20))
        back = rng.randint(0, rng.choice((3, 9, 25))) if rng.random() < late else 0
        ts = max(0, now - back) * scale
        if scale > 1:
            ts = max(0, ts + rng.randint(-1, 1))
        key = None if rng.random() < nulls else rng.choice(keys)
        value = None if rng.random() < nulls else str(number)
        side = "left" if self_join else rng.choice(("left", "right"))
        records.append({"side": side, "key": key, "value": value, "ts": ts})
    return tuple(records)


@dataclass(frozen=True)
class Compared:
    """Unexpected differences, one line each, and the deviations that make Kafka's rows differ from ours."""

    found: list[str]
    deviations: tuple[str, ...] = ()
    rows_differ: bool = False


def compared(case: Case, ask: Ask) -> Compared:
    """The three comparisons of a case."""
    found = _jar(case, ask) + _driver(case)
    explained = deviations.explanation(case.topology, case.records)
    if explained is None:
        return Compared([*found, "no deviation of SEMANTICS 7c explains why Kafka's rules and ours differ"])
    rows = (rules(case.topology, case.records).rows for rules in (deviations.kafkas, deviations.ours))
    return Compared(found, explained, next(rows) != next(rows))


def _jar(case: Case, ask: Ask) -> list[str]:
    answer = ask(case.topology, case.records)
    rules = deviations.kafkas(case.topology, case.records)
    found = _first("7a", "Kafka", answer["raw"], "oracle", shown(rules.rows))
    if not case.topology["self"] and answer["dropped"] != rules.dropped:
        found.append(f"7a: Kafka dropped {answer['dropped']}, the oracle {rules.dropped}")
    return found


def _driver(case: Case) -> list[str]:
    topology = case.topology
    windows = topology["before_ms"], topology["after_ms"], topology["grace_ms"]
    oracle = StreamJoin(*windows, topology["how"], topology["self"])
    driver = TopologyTestDriver(joined(topology))
    wanted, rows = [], []
    for record in case.records:
        key, value, ts = record["key"], record["value"], record["ts"]
        wanted.append(oracle.take(record["side"], key, value, ts))
        driver.pipe_input({"key": key, "value": value, "ts": ts}, record["side"])
        rows.append([_row(row) for row in driver.read_output()])
    found = _first("7b", "oracle", shown(wanted), "tidegate", rows)
    drops = {reason: count for reason, count in driver.drops.items() if count}
    if drops != dict(oracle.drops):
        found.append(f"7b: the oracle dropped {dict(oracle.drops)}, tidegate {drops}")
    return found


def joined(topology: Json) -> Any:
    """The join through tidegate's public interface; legacy or not."""
    left, right = (
        tg.stream(side, key="key", timestamp="ts", schema=SCHEMA, stream_time="max") for side in ("left", "right")
    )
    before, after, grace = (timedelta(milliseconds=topology[f"{name}_ms"]) for name in ("before", "after", "grace"))
    # The larger reach first: a window may not end before it starts, in between either.
    windows = tg.JoinWindows.of_time_difference_and_grace(max(before, after), grace).before(before).after(after)
    return left.join(
        left if topology["self"] else right,
        windows,
        how=topology["how"],
        value_joiner=lambda one, other: {"value": _text(one and one["value"], other and other["value"])},
        types={"value": "string"},
    )


def _row(output: Json) -> Json:
    return {"key": output["key"], "value": output["value"], "timestamp_ms": output["timestamp"]}


def shown(rows: list[list[JoinedRow]]) -> list[list[Json]]:
    """Rows of an oracle as the jar and the driver show them."""
    return [
        [{"key": row.key, "value": _text(row.left, row.right), "timestamp_ms": row.timestamp} for row in of_record]
        for of_record in rows
    ]


def _text(left: str | None, right: str | None) -> str:
    return "+".join("null" if side is None else side for side in (left, right))


def _first(name: str, one: str, wanted: list[list[Json]], other: str, rows: list[list[Json]]) -> list[str]:
    """Text of the first record after which rows differ, as a list; empty if none."""
    width = max(len(one), len(other))
    for at, (these, those) in enumerate(zip(wanted, rows, strict=True)):
        if these != those:
            return [f"{name}, record {at}:\n    {one:{width}} {these}\n    {other:{width}} {those}"]
    return []


def family(case: Case) -> str:
    """Kind of the join."""
    more = "".join(f", {name}" for name in ("self", "legacy") if case.topology[name])
    return f"stream join, {case.topology['how']}{more}"


@dataclass
class Tally:
    """Number of compared joins, and of joins with each deviation; `alone`: with no other."""

    cases: int = 0
    equal: int = 0
    rows_differ: int = 0
    deviations: Counter[str] = field(default_factory=Counter)
    alone: Counter[str] = field(default_factory=Counter)

    def take(self, result: Compared) -> list[str]:
        """Count a case without unexpected differences; returns these differences."""
        if result.found:
            return result.found
        self.cases += 1
        self.equal += not result.deviations
        self.rows_differ += result.rows_differ
        self.deviations.update(result.deviations)
        if len(result.deviations) == 1:
            self.alone.update(result.deviations)
        return []

    def lines(self) -> list[str]:
        """The summary of a run."""
        if not self.cases:
            return []
        rows, drops = self.rows_differ, self.cases - self.equal - self.rows_differ
        lines = [
            f"{self.cases} joins: {self.equal} equal to Kafka, {rows} with other rows, {drops} with other drops alone.",
            "Deviations of SEMANTICS 7c, and how many joins have each:",
        ]
        for name, meaning in deviations.DEVIATIONS.items():
            many, alone = self.deviations[name], self.alone[name]
            lines.append(f"  {many:6} {name:6} {meaning} ({alone} by it alone)")
        return lines
