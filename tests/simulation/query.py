"""A query on the cluster over its whole life: batches, a sink that knows its batches, restarts, upgrades, a drain."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from simulation.cluster import Batch, BatchFailed, Cluster, Result, as_text
from simulation.stores import Wrong, opened
from tidegate.errors import CheckpointError
from tidegate.kernel.state.state import DRAINED, State
from tidegate.kernel.upgrade.drain import BEGUN
from tidegate.testing.records import Record

MOST_RUNS = 4
"""Most runs of a batch with faults; the next run has none."""
MOST_CALLS = 20
"""Most calls of a drain that dies."""
MOST_BATCHES = 3
"""Most batches of a drain (runtime.spark.checkpoints.draining)."""

Deal = Callable[[int, int], Sequence[Sequence[Record]]]
"""Records of each map task, by the number of the batch and of its run."""


@dataclass
class Sink:
    """Takes each batch once, as `foreachBatch` with a transaction by batch number does."""

    batches: dict[int, Result] = field(default_factory=dict)

    def take(self, number: int, result: Result) -> None:
        """Take the rows of a batch; a later run must give the rows of the first one."""
        known = self.batches.setdefault(number, result)
        if as_text(known.rows) != as_text(result.rows):
            was, now = as_text(known.rows), as_text(result.rows)
            raise Wrong(f"batch {number} is run again and has other rows: {was - now} are gone, {now - was} are new")


@dataclass
class Query:
    """A query and its checkpoint: versions in the cluster, and the number of committed batches."""

    cluster: Cluster
    deal: Deal
    clocks: Sequence[int]
    sink: Sink = field(default_factory=Sink)
    committed: int = 0
    drops: Counter[str] = field(default_factory=Counter)
    runs: Counter[int] = field(default_factory=Counter)
    dead: int = 0

    def start(self, table: Any, drains: bool = False) -> None:
        """Start it, or restart it from its checkpoint."""
        self.table = table
        self.cluster.start(table, drains)

    def batch(self) -> None:
        """Run the next batch until it is committed."""
        while not self._run():
            self.start(self.table)

    def interrupted(self) -> None:
        """Plan the next batch, and die somewhere in it or after its sink."""
        if not self._run(commits=False):
            self.cluster.adversary.tell(f"batch {self.committed}: the query is dead")

    def drain(self, table: Any) -> None:
        """Call `tg.drain` until the drain is over."""
        for call in range(MOST_CALLS):
            self.cluster.adversary.tell(f"drain, call {call}")
            if self._drained(table, call):
                return
        raise Wrong("a drain does not end")

    def _drained(self, table: Any, call: int) -> bool:
        for _ in range(MOST_BATCHES):
            self.start(table, drains=True)
            if self.states == {DRAINED}:
                return True
            kind, where = "drain dies", f"batch {self.committed} of drain, call {call}"
            faults = self.cluster.adversary
            if call < MOST_RUNS and faults.strikes(kind, where):
                faults.happened(kind, where)
                self._run(commits=faults.choose(where, (True, False)))
                return False
            if not self._run():
                return False
            self._stranger()
        return self.states == {DRAINED}

    @property
    def states(self) -> set[str]:
        """Drain states over all tasks: "", begun or done."""
        found = set()
        for place, operator in enumerate(self.cluster.operators):
            for task in range(operator.tasks):
                version = self.cluster.version(place, task, self.committed)
                state = State.open(opened(version, self.cluster.on_spark))
                found.add("" if state is None else state.drain)
        return found

    def _stranger(self) -> None:
        """Another run over a checkpoint in a drain must be refused, and change nothing."""
        faults = self.cluster.adversary
        records = [record for split in self.deal(0, 0) for record in split]
        where = f"before batch {self.committed}"
        if not records or not self.states & {BEGUN, DRAINED}:
            return
        if not faults.strikes("stranger on a drained checkpoint", where):
            return
        faults.happened("stranger on a drained checkpoint", where)
        quiet = type(faults)(0, frozenset())
        stranger = replace(self.cluster, adversary=quiet, fresh=True, workers=[], started=0)
        stranger.start(self.table)
        try:
            stranger.run(Batch(self.committed, self.clocks[-1], [records]), 0)
        except CheckpointError:
            return
        raise Wrong(f"{where}: a query takes records of a checkpoint whose drain has begun")

    def _run(self, commits: bool = True) -> bool:
        """Run the next batch once; returns whether it is committed."""
        faults, number = self.cluster.adversary, self.committed
        run = self.runs[number]
        self.runs[number] += 1
        where = f"batch {number}, run {run}"
        clock = self.clocks[min(number, len(self.clocks) - 1)]
        splits = self.deal(number, run) if number < len(self.clocks) else ()
        last = run >= MOST_RUNS
        try:
            result = (self._calm if last else self.cluster).run(Batch(number, clock, splits), run)
        except BatchFailed:
            return False
        if not last and faults.strikes("driver dies before the sink", where):
            faults.happened("driver dies before the sink", where)
            return False
        self.sink.take(number, result)
        faults.tell(f"{where}: {sum(result_rows.num_rows for result_rows in result.rows)} rows in the sink")
        if not commits or (not last and faults.strikes("driver dies behind the sink", where)):
            faults.happened("driver dies behind the sink", where)
            return False
        self.committed += 1
        self.drops.update(result.drops)
        return True

    @property
    def _calm(self) -> Cluster:
        quiet = replace(self.cluster.adversary, enabled=frozenset())
        calm = replace(self.cluster, adversary=quiet)
        calm.__dict__.update(
            {n: v for n, v in vars(self.cluster).items() if n.startswith(("_", "operators", "sources"))}
        )
        return calm
