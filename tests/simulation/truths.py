"""Expected results: from the oracle over the whole stream, or from a run without faults."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Protocol

from oracle import Row, Topology
from properties.test_forwarded_rows import Oracles
from properties.test_upgrades import Upgraded
from simulation.cluster import Cluster
from simulation.faults import Adversary
from simulation.query import Query
from simulation.scenarios import Plan, Scenario
from tidegate.testing.rows import to_rows


class Truth(Protocol):
    """Expected rows and drops."""

    def start(self, plan: Plan) -> None:
        """Continue with another plan."""

    def batch(self, number: int) -> list[Row]:
        """The rows of a batch."""

    def drain(self) -> list[Row]:
        """The rows of a drain."""

    @property
    def drops(self) -> Mapping[str, int]:
        """Dropped records, counted by reason."""


def truth(scenario: Scenario) -> Truth:
    """The expected results of a scenario."""
    kinds = {"oracle": Defined, "chain": Chained, "one task": Undisturbed, "same tasks": Undisturbed}
    return kinds[scenario.truth](scenario)


@dataclass(frozen=True)
class _Over:
    """Windows that have all closed."""

    def closed(self, end: int, stream_time: int) -> bool:
        return True


def _alike(one: Topology, other: Topology) -> bool:
    """Whether two topologies are equal, with their aggregates in the same order: it is the order of the columns."""
    return one == other and list(one.aggregates) == list(other.aggregates)


class Defined:
    """The oracle under plans that change."""

    def __init__(self, scenario: Scenario) -> None:
        self._scenario = scenario
        self._upgraded = Upgraded.of(scenario.plans[0].case)
        self._next: Plan | None = None

    def start(self, plan: Plan) -> None:
        self._next = plan

    def batch(self, number: int) -> list[Row]:
        records = self._scenario.batches[number]
        if records:
            self._take_over()
        return self._upgraded.batch(records)

    def _take_over(self) -> None:
        # A plan that takes no batch leaves no trace.
        if self._next is not None and not _alike(self._next.case.topology, self._upgraded.oracle.topology):
            self._upgraded.change(self._next.case)
        self._next = None

    def drain(self) -> list[Row]:
        self._take_over()
        oracle = self._upgraded.oracle
        if not oracle.topology.final:
            return []
        oracle.topology = replace(oracle.topology, windows=_Over())  # type: ignore[arg-type]
        return self._upgraded.batch([])

    @property
    def drops(self) -> Mapping[str, int]:
        return self._upgraded.oracle.drops


class Chained:
    """Two chained oracles."""

    def __init__(self, scenario: Scenario) -> None:
        self._scenario = scenario
        self._oracles = Oracles(scenario.plans[0].case)

    def start(self, plan: Plan) -> None:
        raise NotImplementedError

    def batch(self, number: int) -> list[Row]:
        return self._oracles.batch(self._scenario.batches[number])

    def drain(self) -> list[Row]:
        raise NotImplementedError

    @property
    def drops(self) -> Mapping[str, int]:
        return self._oracles.first.drops + self._oracles.second.drops


class Undisturbed:
    """The same plan on a cluster without faults: each attempt in a process of its own, in order, once."""

    def __init__(self, scenario: Scenario) -> None:
        alike = scenario.truth == "same tasks"
        calm = Adversary(scenario.seed, enabled=frozenset())
        cluster = Cluster(calm, scenario.tasks if alike else 1, scenario.on_spark, fresh=True)
        deal = (lambda number, _: scenario.dealt(number, 0)) if alike else (lambda n, _: [scenario.batches[n]])
        self._query = Query(cluster, deal, scenario.clocks)
        self._plan = scenario.plans[0]
        self._query.start(self._plan.table())

    def start(self, plan: Plan) -> None:
        self._plan = plan
        self._query.start(plan.table())

    def batch(self, number: int) -> list[Row]:
        self._query.batch()
        return rows(self._query, number)

    def drain(self) -> list[Row]:
        first = self._query.committed
        self._query.drain(self._plan.table())
        return [row for number in range(first, self._query.committed) for row in rows(self._query, number)]

    @property
    def drops(self) -> Mapping[str, int]:
        return self._query.drops


def rows(query: Query, number: int) -> list[Row]:
    """The sink's rows of a batch, in the public shape."""
    return [row for table in query.sink.batches[number].rows for row in to_rows(table)]


def nonzero(drops: Mapping[str, int]) -> Counter[str]:
    return Counter({reason: count for reason, count in drops.items() if count})
