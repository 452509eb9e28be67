"""Why the rows of Kafka's stream-stream joins differ from ours: the deviations of SEMANTICS 7c, one switch each.

`Between` has Kafka's rules, except where a deviation is switched to our rule. With none switched it is Kafka's join,
with all of them it must be ours. A deviation explains a difference if the rows become ours only with its switch.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from oracle_joins import JoinedRow, KafkaStreamJoin, StreamJoin, Taken, null
from parity.cases import Json

DEVIATIONS = {
    "D1": "a record out of order but within grace leaves null-joined at once",
    "D2": "a closed record that left null-joined joins later",
    "D3": "a closed record joins while the store shows it; a late one is not counted",
    "D4": "null-joined rows leave later than due",
    "D5": "the same, where the sides reach differently far",
    "D6": "an open record is hidden by its store",
    "D7": "skipped records move stream time",
    "D8": "bounds of windows are clamped at 0",
    "legacy": "`JoinWindows.of`: a null-joined row leaves at once, whatever comes later",
}
"""Deviations of Kafka by name."""


@dataclass
class Between(KafkaStreamJoin):
    """Kafka's join with `ours` switched to our rules."""

    ours: frozenset[str] = frozenset()

    def __post_init__(self) -> None:
        self.legacy = self.legacy and "legacy" not in self.ours

    def _move(self, key: Any, value: Any, timestamp: int) -> None:
        if "D7" in self.ours and (null(key) or value is None):
            return
        super()._move(key, value, timestamp)

    def _bound(self, bound: int) -> int:
        return bound if "D8" in self.ours else super()._bound(bound)

    def _is_over(self, record: Taken) -> bool:
        if "D1" not in self.ours:
            return super()._is_over(record)
        return self._bound(record.timestamp + self.ahead(record.side)) + self.grace < self.stream_time

    def _shows(self, record: Taken) -> bool:
        if self._is_open(record):
            return "D6" in self.ours or super()._shows(record)
        final = "D2" if record.left_alone else "D3"
        return final not in self.ours and super()._shows(record)

    def _is_open(self, record: Taken) -> bool:
        return self.stream_time <= self.close(record)

    def _put(self, record: Taken) -> bool:
        drops = self.drops
        if record.value is None and "D7" in self.ours:
            return False
        put = super()._put(record)
        if not put and "D6" in self.ours and self._is_open(record):
            put, self.drops = True, drops
        if "D3" in self.ours:
            self.drops = drops + (record.value is not None and self.late(record.side, record.timestamp))
        return put

    def _nothing_due(self, arriving: str) -> bool:
        if "D4" in self.ours:
            self.min_time = min((record.timestamp for record in self.pending), default=self.min_time)
        if "D5" not in self.ours:
            return super()._nothing_due(arriving)
        reach = min(self.ahead(side) for side in ("left", "right") if self.preserves(side) or self.how == "inner")
        return self.min_time + reach + self.grace >= self.stream_time

    def _ends_at(self, seen_open: set[str]) -> bool:
        return "D5" not in self.ours and super()._ends_at(seen_open)


@dataclass(frozen=True)
class Outcome:
    """Rows after each record, and the number of dropped records."""

    rows: list[list[JoinedRow]]
    dropped: int


def explanation(topology: Json, records: Iterable[Json]) -> tuple[str, ...] | None:
    """The deviations that make Kafka's rows and drops differ from ours: () if they agree, None if others are needed.

    Each of them is needed: with any one of them switched back to Kafka's rule, the difference is there again. Kafka
    counts the drops of a self join twice, which is no deviation: for a self join only the rows are compared.
    """
    records = tuple(records)
    wanted = ours(topology, records)
    if _agree(topology, kafkas(topology, records), wanted):
        return ()
    switched = frozenset(DEVIATIONS)
    if not _agree(topology, between(topology, records, switched), wanted):
        return None
    for name in DEVIATIONS:
        if _agree(topology, between(topology, records, switched - {name}), wanted):
            switched -= {name}
    return tuple(name for name in DEVIATIONS if name in switched)


def ours(topology: Json, records: Iterable[Json]) -> Outcome:
    """Outcome of our rules, 7b."""
    join = StreamJoin(*_windows(topology), topology["how"], topology["self"])
    rows = _rows(join, records)
    return Outcome(rows, join.drops.total())


def kafkas(topology: Json, records: Iterable[Json]) -> Outcome:
    """Outcome of Kafka's rules, 7a."""
    return _kafka(KafkaStreamJoin(**_arguments(topology)), records)


def between(topology: Json, records: Iterable[Json], switched: frozenset[str] = frozenset()) -> Outcome:
    """Outcome of Kafka's rules, 7a, except that `switched` follow 7b."""
    return _kafka(Between(**_arguments(topology), ours=switched), records)


def _kafka(join: KafkaStreamJoin, records: Iterable[Json]) -> Outcome:
    rows = _rows(join, records)
    return Outcome(rows, join.drops)


def _arguments(topology: Json) -> Json:
    windows = dict(zip(("before", "after", "grace"), _windows(topology), strict=True))
    kind = {"how": topology["how"], "self_join": topology["self"], "legacy": topology["legacy"]}
    return windows | kind | {"in_memory": topology["store"] == "memory"}


def _windows(topology: Json) -> tuple[int, int, int]:
    return topology["before_ms"], topology["after_ms"], topology["grace_ms"]


def _rows(join: StreamJoin | KafkaStreamJoin, records: Iterable[Json]) -> list[list[JoinedRow]]:
    return [join.take(record["side"], record["key"], record["value"], record["ts"]) for record in records]


def _agree(topology: Json, one: Outcome, other: Outcome) -> bool:
    return one.rows == other.rows and (topology["self"] or one.dropped == other.dropped)
