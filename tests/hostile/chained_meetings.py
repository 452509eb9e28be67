"""Rows of a join of streams whose left side is the rows of another operator."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from hostile.case import Row
from hostile.chained import Meeting
from hostile.kinds import same_key
from oracle_join_batches import SIDES, Arrival, JoinInBatches, Partition
from oracle_joins import JoinedRow, StreamJoin

ROWS: Partition = ("left", 0)
"""All rows are in one partition."""


@dataclass
class RowsMeet(JoinInBatches):
    """`told`: stream time of the join that made the rows; None if only the rows' timestamps show it."""

    told: int | None = None

    @classmethod
    def of(cls, behind: Meeting) -> RowsMeet:
        """The join of a case."""
        return cls(lambda: StreamJoin(*behind.reach, behind.how), behind.slowest)

    def _seen(self, arrivals: list[Arrival]) -> list[tuple[int, Arrival]]:
        if self.told is None:
            return super()._seen(arrivals)
        before = {ROWS: -1} | self.times
        self.times = dict(before)
        found = super()._seen([one for one in arrivals if one.side != "left"])
        # A row sees the stream time of the join in front, as it was after the previous batch.
        others = [before.get(name, -1) for name in [*self.times, *self._silent()] if name != ROWS]
        now = max(self.stream_time, min([before[ROWS], *others]))
        self.times[ROWS] = max(before[ROWS], self.told)
        found += [(now, one) for one in arrivals if one.side == "left"]
        return sorted(found, key=lambda one: (one[0], SIDES.index(one[1].side), one[1].partition, one[1].offset))


def arrivals(behind: Meeting, rows: list[Row], records: list[Row]) -> list[Arrival]:
    """The rows, which come in the order of their timestamps, and the records of the stream."""
    stream = behind.stream
    assert stream.order is not None
    found = [
        Arrival("left", _key(row, behind.by), _value(row, behind.by), row["timestamp"], 0, place)
        for place, row in enumerate(sorted(rows, key=lambda row: row["timestamp"]))
    ]
    for record in records:
        value = {name: record[name] for name in stream.values}
        at = (record[stream.order[0]], record[stream.order[1]])
        found.append(Arrival("right", _key(record, behind.by), _unless_null(value), record[stream.timestamp], *at))
    return found


def shown(behind: Meeting, names: tuple[str, ...], rows: list[JoinedRow]) -> list[Row]:
    """The rows of the join in the public shape; `names` are the value columns of its left side."""
    return [
        dict(zip(behind.by, row.key, strict=True))
        | (row.left or dict.fromkeys(names))
        | (row.right or dict.fromkeys(behind.stream.values))
        | {"timestamp": row.timestamp}
        for row in rows
    ]


def _key(row: Row, by: tuple[str, ...]) -> tuple[Any, ...]:
    return tuple(None if row[name] is None else same_key(row[name]) for name in by)


def _value(row: Row, by: tuple[str, ...]) -> Row | None:
    """The values of a row, without its window; None for a deleted row."""
    aside = (*by, "timestamp", "window", "deleted")
    return None if row.get("deleted") else _unless_null({n: value for n, value in row.items() if n not in aside})


def _unless_null(values: Row) -> Row | None:
    """Values, None if all are null."""
    return None if all(value is None for value in values.values()) else values
