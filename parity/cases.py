"""Random cases: a topology and its records, both from one seed."""

from __future__ import annotations

import json
import random
from dataclasses import dataclass, replace
from typing import Any

Json = dict[str, Any]

KEYS = ("A", "B", "AA", "b", "é", "A0", "")
"""Keys that begin one another, and bytes above 127: rows that leave together are ordered by serialized key."""


@dataclass(frozen=True)
class Case:
    """A topology and its records: key, value, ts, batch.

    topology: kind, windows, aggregation, deletes, emit, suppress, store; before, steps: stateless steps of the stream
    and of the table; regroup: aggregation of the groups of the table's rows.
    """

    seed: int
    topology: Json
    records: tuple[Json, ...]

    def with_records(self, records: tuple[Json, ...]) -> Case:
        return replace(self, records=records)

    def shown(self) -> str:
        """The case as lines that can be read and parsed."""
        lines = [f"seed {self.seed}", json.dumps(self.topology, ensure_ascii=False)]
        return "\n  ".join(lines + [json.dumps(record, ensure_ascii=False) for record in self.records])


def generate(seed: int) -> Case:
    """The case of a seed."""
    rng = random.Random(seed)
    # Kafka's stores cut time into segments of a minute and more: some cases must be long enough to span several.
    scale = rng.choice((1, 1, 1, 1, 1000, 30_000))
    windows = _windows(rng, scale) if rng.random() < 0.8 else None
    if windows:
        topology = _over_windows(rng, windows, scale)
    else:
        topology = _plain(rng, scale) if rng.random() < 0.4 else _table(rng, scale)
    # Drawn by generators of their own: the seeds keep the meaning they had before there were steps.
    topology = _in_a_row(random.Random(f"in a row {seed}"), topology, scale)
    topology = _stepped(random.Random(f"steps {seed}"), topology)
    return Case(seed, topology, _records(rng, topology, length(windows, scale)))


def length(windows: Json | None, scale: int) -> int:
    """Unit of the steps of time (ms)."""
    if windows is None or windows["type"] == "unlimited":
        return 10 * scale
    return int(windows.get("size_ms") or windows.get("time_difference_ms") or windows["gap_ms"])


def _windows(rng: random.Random, scale: int) -> Json:
    size = rng.randint(1, 20) * scale
    grace = rng.choice((0, 0, 1, rng.randint(1, 20), rng.randint(1, 60))) * rng.choice((1, scale))
    kind = rng.choice(("time",) * 8 + ("sliding",) * 4 + ("session",) * 4 + ("unlimited",))
    if kind == "unlimited":
        return {"type": "unlimited", "start_ms": rng.choice((0, rng.randint(0, 30) * scale))}
    if kind == "sliding":
        return {"type": "sliding", "time_difference_ms": size, "grace_ms": grace}
    if kind == "session":
        return {"type": "session", "gap_ms": size, "grace_ms": grace}
    # At most twenty windows to a record.
    advance = size if rng.random() < 0.5 else rng.randint(max(1, size // 20), size)
    return {"type": "time", "size_ms": size, "advance_ms": advance, "grace_ms": grace}


def _over_windows(rng: random.Random, windows: Json, scale: int) -> Json:
    emit, held, aggregation = "update", None, _aggregation(rng)
    outputs = ["update", "update", "limit", "limit"]
    if windows["type"] != "unlimited":  # an unlimited window never closes
        outputs += ["close", "close", "final", "final", "limit of final"]
    match rng.choice(outputs):
        case "close":
            emit = "close"
        case "final":
            # Other windows cannot have a bound yet (docs/notyet.md).
            bounded = windows["type"] == "time" and rng.random() < 0.3
            most = rng.randint(1, 12) if bounded else None
            held = {"kind": "until_window_closes", "max_records": most, "strict": True}
        case "limit":
            held = _limit(rng, scale)
        case "limit of final":
            emit, held = "close", _limit(rng, scale)
    return {"kind": "windowed", "windows": windows, "emit": emit, "suppress": held, **aggregation}


def _plain(rng: random.Random, scale: int) -> Json:
    """An aggregation without windows."""
    held = _limit(rng, scale) if rng.random() < 0.5 else None
    return {"kind": "plain", "emit": "update", "suppress": held, **_aggregation(rng)}


def _aggregation(rng: random.Random) -> Json:
    function = rng.choice(("count", "reduce", "history", "history", "collect"))
    deletes = function in ("reduce", "history") and rng.random() < 0.2
    return {"aggregation": function, "deletes": deletes, "store": rng.choice(("memory", "memory", "rocksdb"))}


def _in_a_row(rng: random.Random, topology: Json, scale: int) -> Json:
    """Sometimes adds time limits behind the suppression, if Kafka's own suppress defines its rows (rules.py, 14.1)."""
    held = topology["suppress"]
    measured = topology.get("windows", {}).get("type", "time") == "time" or (
        held is not None and held["kind"] == "until_time_limit"
    )
    if held is None or not measured or rng.random() < 0.6:
        return topology
    behind = [_limit(rng, scale) for _ in range(rng.choice((1, 1, 2)))]
    return topology | {"suppress": held | {"behind": behind}}


def _stepped(rng: random.Random, topology: Json) -> Json:
    """Sometimes adds steps and groups."""
    if topology["kind"] != "table" and rng.random() < 0.1:
        topology = topology | {"before": rng.choices(("filter", "map"), k=rng.randint(1, 2))}
    if topology.get("aggregation") == "collect":
        return topology  # its values are lists
    session = topology["kind"] == "windowed" and topology["windows"]["type"] == "session"
    held = topology["suppress"]
    closes = topology.get("emit") == "close" or (held is not None and held["kind"] == "until_window_closes")
    if not (session and closes) and rng.random() < 0.15:
        topology = topology | {"steps": rng.choices(("filter", "map"), k=rng.randint(1, 3))}
    share = 0.6 if topology["kind"] == "table" else 0.3 if topology["kind"] == "plain" else 0.1
    regular = topology["kind"] != "windowed" or topology["windows"]["type"] in ("time", "unlimited")
    if regular and not closes and rng.random() < share:
        topology = topology | {"regroup": rng.choice(("count", "reduce", "history"))}
        if rng.random() < 0.6:
            topology = topology | {"suppress": None}
    elif held is not None and held["max_records"] is not None and _counted(topology) and rng.random() < 0.5:
        topology = topology | {"suppress": held | {"max_records": None, "max_bytes": rng.randint(0, 400)}}
    return topology


def _counted(topology: Json) -> bool:
    """Whether the case can have a bound in bytes and has Kafka's own filters, which count old values (rules.py, 15)."""
    time = topology["kind"] == "windowed" and topology["windows"]["type"] == "time"
    return "steps" not in topology and (time or topology["suppress"]["kind"] == "until_time_limit")


def _table(rng: random.Random, scale: int) -> Json:
    return {"kind": "table", "suppress": _limit(rng, scale), "store": "memory"}


def _limit(rng: random.Random, scale: int) -> Json:
    most = rng.choice((None, 0, 1, 2, 3, rng.randint(1, 12)))
    limit = rng.choice((0, 1, rng.randint(1, 20), rng.randint(1, 60))) * scale
    # A strict bound of zero is refused.
    strict = most is None or (rng.random() < 0.15 and most > 0)
    return {"kind": "until_time_limit", "limit_ms": limit, "max_records": most, "strict": strict}


def _records(rng: random.Random, topology: Json, step: int) -> tuple[Json, ...]:
    deletes = topology.get("deletes", False)
    many = rng.random() < 0.05
    keys = [f"{key}{i}" for key in KEYS for i in range(8)] if many else rng.sample(KEYS, rng.randint(1, 4))
    nulls = rng.choice((0.0, 0.0, 0.08))
    now = rng.choice((0, rng.randint(0, 3 * step), rng.randint(0, 50 * step)))
    batch = 0
    records = []
    for i in range(rng.randint(60, 120) if many else rng.randint(3, 26)):
        ts = max(0, now + _disorder(rng, step))
        now = max(now, ts)
        batch += rng.random() < 0.3
        key = None if rng.random() < nulls else rng.choice(keys)
        value = None if rng.random() < (0.25 if topology["kind"] == "table" else nulls) else str(i)
        if deletes and rng.random() < 0.2:
            value = "x"
        records.append({"key": key, "value": value, "ts": ts, "batch": batch})
    return tuple(records)


def _disorder(rng: random.Random, step: int) -> int:
    """Distance of a record from the newest one (ms): a tie, a step, a jump, or late by a little, an edge or a lot."""
    match rng.choice(("tie", "step", "step", "step", "edge", "edge", "jump", "late", "late", "very late")):
        case "tie":
            return 0
        case "step":
            return rng.randint(0, step)
        case "edge":
            return rng.choice((-1, 1)) * step + rng.randint(-1, 1)
        case "jump":
            return rng.randint(step, 6 * step)
        case "late":
            return -rng.randint(0, 2 * step)
    return -rng.randint(0, 8 * step)
