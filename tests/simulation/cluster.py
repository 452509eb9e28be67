"""A cluster in one process: a query runs a micro-batch in map tasks and in the tasks of each of its operators.

    map 0 --.      fetched in     task 0: version 3 -> rows, version 4 --.      map of the
    map 1 --+- blobs - any order - task 1: version 3 -> rows, version 4 --+- next operator ... - sink - commit
    map 2 --'                     task 2: version 3 -> rows, version 4 --'

Any of them may die and run again, or run twice. Nothing reaches the sink before all tasks are done; a batch that is not
committed is run again from the same versions, over the same records.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pyarrow as pa
from pyspark import cloudpickle

from simulation.attempts import Attempt, Fate, Operator, attempt
from simulation.faults import Adversary
from simulation.stores import Version, Wrong
from simulation.workers import Worker
from tidegate.kernel.exchange.packing import pack
from tidegate.kernel.rows.layout import Layout
from tidegate.kernel.stage import Stage, reasons
from tidegate.kernel.tuning import DEFAULT, Tuning
from tidegate.kernel.upgrade import drain
from tidegate.kernel.windows import expected_keys
from tidegate.plan import Edge, Node, Operation, graph, operation
from tidegate.testing.column_types import Types
from tidegate.testing.columns import to_batch
from tidegate.testing.inputs import Inputs
from tidegate.testing.records import Record

MOST_DEATHS = 3
"""Spark gives a task four attempts, so three may die."""

Blobs = dict[int, list[bytes]]


class BatchFailed(Exception):  # noqa: N818 - what Spark says
    """A batch stops before its end; the query must be restarted."""


@dataclass(frozen=True)
class Batch:
    """Entry of a batch in the offset log: its records, and the wall clock (ms). `splits`: records per map task."""

    number: int
    clock: int
    splits: Sequence[Sequence[Record]] = ()


@dataclass
class Result:
    """The rows of a batch, and its dropped records, counted by reason."""

    rows: list[pa.Table] = field(default_factory=list)
    drops: Counter[str] = field(default_factory=Counter)


@dataclass
class Cluster:
    """Workers and state stores. `stores[operator, task][i]` is the version after batch i - 1."""

    adversary: Adversary
    tasks: int
    on_spark: bool = False
    fresh: bool = False
    """Whether each attempt has a worker of its own."""
    contiguous: bool = False
    """Whether map tasks promise that each reads an unbroken stretch of each partition."""
    tuning: Tuning = DEFAULT
    stores: dict[tuple[int, int], dict[int, Version]] = field(default_factory=lambda: defaultdict(dict))
    workers: list[Worker] = field(default_factory=list)
    started: int = 0

    def start(self, table: Any, drains: bool = False) -> None:
        """Start a query in a new session: its workers remember nothing."""
        self.started += 1
        self.sources, self.operators = operators(table, self.tasks, drains, self.tuning)
        self._pickled = cloudpickle.dumps(self.operators)
        self._drains = drains
        self.workers = [Worker(n) for n in range(self.adversary.choose(f"workers of query {self.started}", (1, 2, 3)))]

    def run(self, batch: Batch, run: int) -> Result:
        """Run a batch for the `run`-th time. Raises BatchFailed."""
        at = f"batch {batch.number}{f', run {run}' if run else ''}"
        blobs: Blobs = defaultdict(list)
        result = Result()
        for place, operator in enumerate(self.operators):
            for number, records in enumerate(batch.splits):
                if records:
                    where = (
                        f"{at}, map {number}" if place == 0 else f"{at}, map {number} of records of operator {place}"
                    )
                    self._map(where, place, batch, records, blobs)
            if self._drains:
                for task, mark in drain.marks(operator.layout, operator.tasks):
                    blobs[task].append(mark)
            attempts = [
                self._task(f"{at}, operator {place}, task {task}", batch, place, task, blobs[task])
                for task in range(operator.tasks)
            ]
            for done in attempts:
                told = {reason: int(done.metrics.get(reason, 0)) for reason in reasons(operator.layout.op)}
                result.drops.update(told)
            if place + 1 == len(self.operators):
                result.rows = [table for done in attempts for table in done.tables]
            else:
                blobs = self._forwarded(f"{at}, map of operator {place + 1}", place + 1, batch, attempts)
        return result

    def version(self, place: int, task: int, number: int) -> Version:
        """Stored version of a task before a batch."""
        return self.stores[place, task].get(number, Version())

    # -- map tasks ---------------------------------------------------------------------------------------------------

    def _map(self, at: str, place: int, batch: Batch, records: Sequence[Record], blobs: Blobs) -> None:
        for number, source in enumerate(self.sources[place]):
            rows = source.rows(self.operators[place].layout.op, records, batch.clock)
            self._packed(f"{at}, source {number}" if number else at, place, [rows], blobs, source.number)

    def _packed(self, at: str, place: int, batches: list[pa.RecordBatch], blobs: Blobs, number: int) -> None:
        """Add the blobs of a map task, through attempts that die and that run twice."""
        faults = self.adversary
        for turn in range(MOST_DEATHS):
            if not faults.strikes("map dies", where := f"{at}, attempt {turn}"):
                break
            worker = self._worker(where)
            with worker.running():
                made = iter(self._pack(worker, place, batches, number))
                few = sum(1 for _, _ in zip(range(faults.choose(f"{where} dies", range(3))), made, strict=False))
            faults.happened("map dies", where, f"after {few} blobs, on worker {worker.name}")
        given = [self._pack_on(self._worker(at), place, batches, number)]
        if faults.strikes("map runs twice", at):
            given.append(self._pack_on(worker := self._worker(f"{at}, again"), place, batches, number))
            faults.happened("map runs twice", at, f"again on worker {worker.name}")
            if given[0] != given[1]:
                raise Wrong(f"{at}: two attempts of the map task give different blobs")
        for task in range(self.operators[place].tasks):
            mine = faults.choose(f"{at}, read by {task}", given)
            blobs[task] += [blob for its, blob in mine if its == task]

    def _pack_on(
        self, worker: Worker, place: int, batches: list[pa.RecordBatch], number: int
    ) -> list[tuple[int, bytes]]:
        with worker.running():
            return list(self._pack(worker, place, batches, number))

    def _pack(self, worker: Worker, place: int, batches: list[pa.RecordBatch], number: int) -> Any:
        operator = worker.plan(self.started, self._pickled)[place]
        unbroken = self.contiguous and number != operator.behind
        return pack(operator.inputs[number], batches, range(operator.tasks), unbroken)

    def _forwarded(self, at: str, place: int, batch: Batch, attempts: list[Attempt]) -> Blobs:
        """Blobs from the rows of the operator before: each of its tasks is a map task."""
        blobs: Blobs = defaultdict(list)
        layout, behind = self.operators[place].layout, self.operators[place].behind
        assert behind is not None
        for number, done in enumerate(attempts):
            tables = [_with_clock(layout.op, table, batch.clock) for table in done.tables]
            batches = [rows for table in tables for rows in table.combine_chunks().to_batches()]
            # Spark runs the map step without rows, too; it then makes no blob.
            self._packed(f"{at}, map {number}", place, batches, blobs, behind)
        return blobs

    # -- stateful tasks ----------------------------------------------------------------------------------------------

    def _task(self, at: str, batch: Batch, place: int, task: int, blobs: list[bytes]) -> Attempt:
        faults = self.adversary
        before, dead = self.version(place, task, batch.number), []
        for number in range(MOST_DEATHS):
            where = f"{at}, attempt {number}"
            made = self._attempt(where, place, task, before, batch, blobs, self._fate(where))
            died = self._died(where, made)
            if died is None:
                break
            dead.append(made)
            if died == "task dies after its commit":
                self.stores[place, task][batch.number + 1] = made.version
            if died == "batch fails":
                raise BatchFailed
        else:
            made = self._attempt(at, place, task, before, batch, blobs, Fate())
        kept = made
        if blobs and faults.strikes("task runs twice", at):
            again = self._attempt(f"{at}, again", place, task, before, batch, blobs, Fate())
            faults.happened("task runs twice", at)
            _same_rows(at, again, made)
            # The rows may come from one attempt and the state from the other: both write the same file.
            kept, made = faults.choose(f"{at}, rows and state", [(made, made), (made, again), (again, made)])
        self.stores[place, task][batch.number + 1] = kept.version or before
        for lost in dead:
            _same_rows(at, lost, made, partly=True)
        return made

    def _attempt(
        self, where: str, place: int, task: int, before: Version, batch: Batch, blobs: list[bytes], fate: Fate
    ) -> Attempt:
        faults = self.adversary
        worker = self._worker(where)
        if len(blobs) > 1 and faults.strikes("blobs out of order", where):
            faults.happened("blobs out of order", where)
            blobs = faults.shuffled(where, blobs)
        with worker.running():
            operator = worker.plan(self.started, self._pickled)[place]
            made = attempt(operator, task, before, blobs, batch.clock, self.on_spark, fate)
        if blobs:
            count = sum(table.num_rows for table in made.tables)
            end = "done" if made.alive else "dead"
            faults.tell(f"{where}: {len(blobs)} blobs on worker {worker.name}: {count} rows, {end}")
        return made

    def _fate(self, where: str) -> Fate:
        faults = self.adversary
        draw = lambda kind, most: faults.choose(f"{kind} {where}", range(most)) if faults.strikes(kind, where) else None  # noqa: E731
        return Fate(draw("fetch fails", 3), draw("state fails", 12), draw("task dies in its rows", 3))

    def _died(self, where: str, made: Attempt) -> str | None:
        """Name of the fault that loses an attempt; None if it survives."""
        faults = self.adversary
        if not made.alive:
            kinds = ("fetch fails", "state fails", "task dies in its rows")
            kind = next(kind for kind in kinds if faults.strikes(kind, where))
        elif not made.steps:
            return None
        else:
            kinds = ("task dies before its commit", "task dies after its commit", "batch fails")
            kind = next((kind for kind in kinds if faults.strikes(kind, where)), "")
        if not kind:
            return None
        faults.happened(kind, where, f"{len(made.tables)} tables of rows are lost")
        if faults.strikes("worker is lost", where):
            faults.happened("worker is lost", where)
            self.workers = [Worker(worker.name) for worker in self.workers]
        return kind

    def _worker(self, where: str) -> Worker:
        return Worker(0) if self.fresh else self.adversary.choose(f"worker of {where}", self.workers)


@dataclass(frozen=True)
class Source:
    """A stream that an operator reads as input `number`; `types` are the types of all streams of its side."""

    number: int
    edge: Edge
    inputs: Inputs
    types: Types

    @classmethod
    def of(cls, node: Node) -> list[Source]:
        """The streams of an operator; each is read by map tasks of its own."""
        streams = {side: tuple(edge.stream for edge in node.sources if edge.side == side) for side in (0, 1)}
        types = {side: Inputs.of(mine).types() for side, mine in streams.items() if mine}
        edges = [(number, edge) for number, edge in enumerate(node.edges) if edge.node is None]
        return [cls(number, edge, Inputs.of((edge.stream,)), types[edge.side]) for number, edge in edges]

    def rows(self, op: Operation, records: Sequence[Record], clock: int) -> pa.RecordBatch:
        """Rows of the operator's input for these records."""
        read = op.of_side(self.edge.side)
        batch = to_batch(read, self.types, self.inputs.take(list(records), None, 0), 0)
        return _with_clock(op, batch, clock)


def operators(
    table: Any, tasks: int, drains: bool, tuning: Tuning = DEFAULT
) -> tuple[list[list[Source]], list[Operator]]:
    """Sources of each operator of a plan, and the operators as Spark lays them out; each reads the one before it."""
    made: list[Operator] = []
    nodes = graph(operation(table.node)).upstream_first
    sources = [Source.of(node) for node in nodes]
    for node, mine in zip(nodes, sources, strict=True):
        op = replace(
            node.op, stream=node.op.stream.unbound, expects=None, sides=tuple(one.unbound for one in node.op.sides)
        )
        schemas = {source.number: _schema(node.op, source) for source in mine}
        behind = next((number for number, edge in enumerate(node.edges) if edge.node is not None), None)
        if behind is not None:
            schemas[behind] = _behind(op, made[-1])
        read = [(edge, schemas[number]) for number, edge in enumerate(node.edges)]
        layout = Layout.of_inputs(op, read, sorts=False, tuning=tuning)
        inputs = tuple(layout.of_input(edge, schema) for edge, schema in read)
        keys = None if node.op.expects is None else expected_keys.pack(layout, node.op.expects)
        made.append(Operator(layout, Stage(layout, node.op.spread_over(tasks), keys, drains), inputs, behind))
    return sources, made


def _behind(op: Operation, before: Operator) -> pa.Schema:
    return _with_clock(op, before.layout.output_schema.empty_table(), 0).schema


def _schema(op: Operation, source: Source) -> pa.Schema:
    fields = source.rows(op, [], 0).schema
    # Without records Arrow cannot infer that this column is boolean.
    return pa.schema([field.with_type(pa.bool_()) if field.name in ("empty", "deleted") else field for field in fields])


def _with_clock(op: Operation, rows: Any, clock: int) -> Any:
    if not op.needs_wall_clock:
        return rows
    return rows.append_column("wall_clock", pa.array([clock] * rows.num_rows, pa.int64()))


def as_text(tables: list[pa.Table]) -> Counter[str]:
    """Rows as a multiset, exactly."""
    return Counter(repr(row) for table in tables for row in table.to_pylist())


def _same_rows(at: str, one: Attempt, other: Attempt, partly: bool = False) -> None:
    """`partly`: `one` died, and its rows are a part of the rows of `other`."""
    few, all_ = as_text(one.tables), as_text(other.tables)
    if (few - all_) if partly else few != all_:
        raise Wrong(f"{at}: two attempts give different rows:\n  {few - all_}\n  {all_ - few}")
