"""What an operator behind another one must give: the oracle of the first makes the records of that of the second."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Any

from hostile.case import Row
from hostile.chained import Again, Chained, Windowing
from hostile.joined_truth import JoinedTruth, WithTable
from hostile.kinds import same_key
from hostile.scenario import Scenario, Sliding
from hostile.tables_truth import Groups
from hostile.truth import BoundedOracle, SlidingOracle, Truth, close_all
from oracle import BuiltIn, Oracle, Topology
from oracle_join_batches import Arrival
from oracle_joins import StreamTableJoin


class ChainedTruth:
    """The rows of each batch, of a drain, and what was dropped."""

    def __init__(self, what: Chained, ticks: bool) -> None:
        self.what, self.in_driver = what, not ticks
        front = what.front
        self.first = Truth(front, ticks) if isinstance(front, Scenario) else JoinedTruth(front, ticks)
        self.second: Groups | Oracle | WithTable
        if isinstance(what.behind, Windowing):
            self.second = _oracle(what.behind)
        elif isinstance(what.behind, Again):
            self.second = WithTable(StreamTableJoin(what.behind.how))
        else:
            window = ("window",) if isinstance(front, Scenario) else ()
            self.second = Groups(what, what.behind, (*front.key, *window))

    def batch(self, number: int) -> list[Row]:
        """The rows of a batch. Raises Stopped, and is as before the batch."""
        return self._behind(self.first.batch(number), number)

    def drain(self) -> list[Row]:
        """What is left. Raises Stopped if it does not fit through a buffer."""
        rows = self._behind(self.first.drain(), None)
        if isinstance(self.second, Oracle) and self.second.topology.final:
            close_all(self.second)
            rows += self.second.batch([])
        return rows

    def readable(self) -> None:
        """The stores of a chain are compared by `testing/test_read_state`."""

    @property
    def drops(self) -> Counter[str]:
        """Why records and rows were dropped."""
        more = Counter[str]() if isinstance(self.second, Groups) else self.second.drops
        return Counter({reason: n for reason, n in (self.first.drops + more).items() if n})

    def _behind(self, rows: list[Row], number: int | None) -> list[Row]:
        # What one record makes is not merged.
        piped = self.in_driver and number is not None and len(self.what.batches[number]) == 1
        if isinstance(self.second, WithTable):
            return self._joined(self.second, rows, number)
        if isinstance(self.second, Groups):
            made = self.second.take([row | {"deleted": row.get("deleted", False)} for row in rows], piped)
            return [{name: value for name, value in row.items() if name != "deleted"} for row in made]
        behind = self.what.behind
        names = [
            *behind.by,
            *(name for name in (rows[0] if rows else ()) if name not in self.what.first.key),
            "timestamp",
        ]
        records = [{name: same_key(row[name]) if name in behind.by else row[name] for name in names} for row in rows]
        caching = self.second.topology
        self.second.topology = replace(caching, caching=not piped)
        made = self.second.batch(sorted(records, key=lambda row: row["timestamp"]))
        self.second.topology = caching
        return made

    def _joined(self, second: WithTable, rows: list[Row], number: int | None) -> list[Row]:
        """The rows and the changes of the table in a batch, None for that of a drain."""
        behind = self.what.behind
        assert isinstance(behind, Again)
        arrivals = [
            Arrival("left", _key(row, behind.by), _value(row, behind.by), row["timestamp"], 0, place)
            for place, row in enumerate(sorted(rows, key=lambda row: row["timestamp"]))
        ]
        table, mine = behind.table, len(self.what.first.sources)
        for place, record in enumerate([] if number is None else self.what.batches[number]):
            if number is not None and self.what.side_of(number, place) == mine:
                value = None if record[table.deleted or ""] else {name: record[name] for name in table.values}
                at = (record[table.order[0]], record[table.order[1]]) if table.order else (0, place)
                arrivals.append(Arrival("right", _key(record, behind.by), value, record[table.timestamp], *at))
        nothing = dict.fromkeys(table.values)
        return [
            dict(zip(behind.by, row.key, strict=True))
            | row.left
            | (row.right or nothing)
            | {"timestamp": row.timestamp}
            for row in second.batch(arrivals)
        ]


def _key(row: Row, by: tuple[str, ...]) -> tuple[Any, ...]:
    return tuple(None if row[name] is None else same_key(row[name]) for name in by)


def _value(row: Row, by: tuple[str, ...]) -> Row | None:
    """The values of a row, None if all are null."""
    values = {name: value for name, value in row.items() if name not in (*by, "timestamp")}
    return None if all(value is None for value in values.values()) else values


def _oracle(behind: Windowing) -> Oracle:
    aggregates: dict[str, Any] = {name: BuiltIn(what, column) for name, what, column in behind.calls}
    topology = Topology(behind.by, behind.windows, aggregates, behind.final, timestamp="timestamp")  # type: ignore[arg-type]
    return SlidingOracle(topology) if isinstance(behind.windows, Sliding) else BoundedOracle(topology)
