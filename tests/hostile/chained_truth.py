"""What an operator behind another one must give: the oracle of the first makes the records of that of the second."""

from __future__ import annotations

from collections import Counter
from typing import Any

from hostile.case import Row
from hostile.chained import Chained, Windowing
from hostile.joined_truth import JoinedTruth
from hostile.kinds import same_key
from hostile.scenario import Scenario, Sliding
from hostile.tables_truth import Groups
from hostile.truth import BoundedOracle, SlidingOracle, Truth, close_all
from oracle import BuiltIn, Oracle, Topology


class ChainedTruth:
    """The rows of each batch, of a drain, and what was dropped."""

    def __init__(self, what: Chained, ticks: bool) -> None:
        self.what = what
        front = what.front
        self.first = Truth(front, ticks) if isinstance(front, Scenario) else JoinedTruth(front)
        self.second: Groups | Oracle
        if isinstance(what.behind, Windowing):
            self.second = _oracle(what.behind)
        else:
            window = ("window",) if isinstance(front, Scenario) else ()
            self.second = Groups(what, what.behind, (*front.key, *window))

    def batch(self, number: int) -> list[Row]:
        """The rows of a batch. Raises Stopped, and is as before the batch."""
        return self._behind(self.first.batch(number))

    def drain(self) -> list[Row]:
        """What is left. Raises Stopped if it does not fit through a buffer."""
        rows = self._behind(self.first.drain())
        if isinstance(self.second, Oracle) and self.second.topology.final:
            close_all(self.second)
            rows += self.second.batch([])
        return rows

    def readable(self) -> None:
        """The stores of a chain are compared by `testing/test_read_state`."""

    @property
    def drops(self) -> Counter[str]:
        """Why records and rows were dropped."""
        more = self.second.drops if isinstance(self.second, Oracle) else Counter[str]()
        return Counter({reason: n for reason, n in (self.first.drops + more).items() if n})

    def _behind(self, rows: list[Row]) -> list[Row]:
        if isinstance(self.second, Groups):
            made = self.second.take([row | {"deleted": row.get("deleted", False)} for row in rows])
            return [{name: value for name, value in row.items() if name != "deleted"} for row in made]
        behind = self.what.behind
        names = [
            *behind.by,
            *(name for name in (rows[0] if rows else ()) if name not in self.what.first.key),
            "timestamp",
        ]
        records = [{name: same_key(row[name]) if name in behind.by else row[name] for name in names} for row in rows]
        return self.second.batch(sorted(records, key=lambda row: row["timestamp"]))


def _oracle(behind: Windowing) -> Oracle:
    aggregates: dict[str, Any] = {name: BuiltIn(what, column) for name, what, column in behind.calls}
    topology = Topology(behind.by, behind.windows, aggregates, behind.final, timestamp="timestamp")  # type: ignore[arg-type]
    return SlidingOracle(topology) if isinstance(behind.windows, Sliding) else BoundedOracle(topology)
