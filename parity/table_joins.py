"""Random joins with tables: Kafka's against the oracles of SEMANTICS 16 and 17. They do not run tidegate yet.

In a join of a stream with a table the stream is left, the table right. Null values of tables are tombstones.

Kafka differs from 16.2 in one point. A tombstone at the timestamp of its key's newest version replaces that version.
If no earlier version ends there, Kafka's store then forgets the tombstone too: an older version that comes later
becomes the newest. `ForgetfulHistory` does the same.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import Any

from oracle_joins import History, JoinedRow, StreamTableJoin, TableTableJoin
from parity.cases import KEYS, Case, Json
from parity.rules import Ask

KINDS = ("stream_table_join", "table_table_join")


def is_drawn(seed: int) -> bool:
    """Whether a seed gives a join with a table, if they are drawn among other cases: a twentieth of the seeds does."""
    return random.Random(f"is a table join {seed}").random() < 0.05


def generate(seed: int) -> Case:
    """The join of a seed."""
    rng = random.Random(f"table join {seed}")
    # A few must be long enough to span several segments of versions.
    scale = rng.choice((1,) * 9 + (20_000,))
    topology = _stream_table(rng, scale) if rng.random() < 0.6 else _table_table(rng, scale)
    return Case(seed, topology, _records(rng, topology, scale))


def _stream_table(rng: random.Random, scale: int) -> Json:
    history = rng.choice((None, rng.randint(0, 12) * scale))
    grace = None if history is None or rng.random() < 0.4 else rng.randint(0, history // scale) * scale
    return {
        "kind": "stream_table_join",
        "how": rng.choice(("inner", "left")),
        "history_ms": {"right": history},
        "grace_ms": grace,
        "store": rng.choice(("memory", "rocksdb")),
        "suppress": None,
    }


def _table_table(rng: random.Random, scale: int) -> Json:
    def history() -> int | None:
        return rng.choice((None, None, rng.randint(0, 12) * scale))

    return {
        "kind": "table_table_join",
        "how": rng.choice(("inner", "left", "outer")),
        "history_ms": {"left": history(), "right": history()},
        "store": rng.choice(("memory", "rocksdb")),
        "suppress": None,
    }


def _records(rng: random.Random, topology: Json, scale: int) -> tuple[Json, ...]:
    keys = rng.sample(KEYS, rng.randint(1, 3))
    null_keys, late = rng.choice((0.0, 0.08)), rng.choice((0.0, 0.3, 0.6))
    now = rng.choice((0, rng.randint(0, 4), rng.randint(0, 100)))
    records = []
    for number in range(rng.randint(3, 40)):
        now += rng.choice((0, 0, 1, 1, 1, 2, 5, 20))
        back = rng.randint(0, rng.choice((3, 9, 25))) if rng.random() < late else 0
        ts = max(0, (now - back) * scale + (rng.randint(-1, 1) if scale > 1 else 0))
        side = rng.choice(("left", "right"))
        key = None if rng.random() < null_keys and _may_be_null(topology, side) else rng.choice(keys)
        value = None if rng.random() < 0.25 else str(number)
        records.append({"side": side, "key": key, "value": value, "ts": ts})
    return tuple(records)


def _may_be_null(topology: Json, side: str) -> bool:
    """Whether a key may be null; not of a stream's record that waits: Kafka's left join then throws (16.5)."""
    return side == "right" or topology.get("grace_ms") is None


def differences(case: Case, ask: Ask) -> list[str]:
    """Differences between Kafka and the oracle, one line each; empty if they agree."""
    join = kafkas(case.topology)
    rows = [shown(join.take(record["side"], record["key"], record["value"], record["ts"])) for record in case.records]
    answer = ask(case.topology, case.records)
    for at, (theirs, wanted) in enumerate(zip(answer["raw"], rows, strict=True)):
        if theirs != wanted:
            return [f"record {at}:\n    Kafka  {theirs}\n    oracle {wanted}"]
    dropped = join.drops.total()
    return [] if answer["dropped"] == dropped else [f"Kafka dropped {answer['dropped']}, the oracle {dropped}"]


class ForgetfulHistory(History):
    """The versions of a table's keys in Kafka's store."""

    def __init__(self, kept: int | None) -> None:
        super().__init__(kept)
        self.stores: dict[Any, Intervals] = {}

    def add(self, key: Any, value: Any, timestamp: int) -> None:
        super().add(key, value, timestamp)
        if self.kept is not None and self.stores.setdefault(key, Intervals()).put(value, timestamp):
            self.versions[key] = [version for version in self.versions[key] if version.timestamp < timestamp]


@dataclass
class Intervals:
    """A key in Kafka's versioned store: start of the newest value, and intervals of the values before it (ms).

    A tombstone that is the newest version has no entry of its own: the interval before it ends there.
    """

    newest: int | None = None
    ends: dict[int, int] = field(default_factory=dict)  # by the start of an interval

    def put(self, value: Any, timestamp: int) -> bool:
        """Put a version; returns whether it is a tombstone that is forgotten at once."""
        if self.newest is not None and timestamp >= self.newest:
            if timestamp > self.newest:
                self.ends[self.newest] = timestamp
            self.newest = None if value is None else timestamp
            return value is None and not self._is_known(timestamp)
        around = [start for start, end in self.ends.items() if start <= timestamp < end]
        later = [start for start in (*self.ends, self.newest) if start is not None and start > timestamp]
        if around:
            end = self.ends[around[0]]
            self.ends |= {around[0]: timestamp, timestamp: end}
        elif later:
            self.ends[timestamp] = min(later)
        elif value is None:
            self.ends[timestamp] = timestamp
        else:
            self.newest = timestamp
        return False

    def _is_known(self, timestamp: int) -> bool:
        return any(start >= timestamp or end == timestamp for start, end in self.ends.items())


def kafkas(topology: Json) -> StreamTableJoin | TableTableJoin:
    """The join of section 16 or 17, with the stores of Kafka."""
    join = oracle(topology)
    if isinstance(join, StreamTableJoin):
        join.table = ForgetfulHistory(join.history)
    else:
        join.tables = {side: ForgetfulHistory(table.kept) for side, table in join.tables.items()}
    return join


def oracle(topology: Json) -> StreamTableJoin | TableTableJoin:
    """The join of section 16 or 17."""
    history = topology["history_ms"]
    if topology["kind"] == "stream_table_join":
        return StreamTableJoin(topology["how"], history["right"], topology["grace_ms"])
    return TableTableJoin(topology["how"], {side: kept for side, kept in history.items() if kept is not None})


def shown(rows: list[JoinedRow]) -> list[Json]:
    """Rows of an oracle as the jar shows them."""
    return [{"key": row.key, "value": _text(row), "timestamp_ms": row.timestamp} for row in rows]


def _text(row: JoinedRow) -> str | None:
    return None if row.deleted else "+".join("null" if side is None else side for side in (row.left, row.right))


def family(case: Case) -> str:
    """Kind of the join."""
    topology = case.topology
    history = any(kept is not None for kept in topology["history_ms"].values())
    grace = topology.get("grace_ms") is not None
    more = ", history" * history + ", grace" * grace
    return f"{topology['kind'].replace('_', ' ').replace(' join', '')} join, {topology['how']}{more}"
