"""Runs a topology in several map tasks and several stateful tasks, as Spark does, without Spark."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import zip_longest
from typing import Any

import pyarrow as pa

from tidegate.dsl import Result
from tidegate.kernel.exchange import decoding
from tidegate.kernel.exchange.packing import pack
from tidegate.kernel.inspect.graces import GraceHistory
from tidegate.kernel.rows.layout import Layout
from tidegate.kernel.stage import Stage, Step, reasons
from tidegate.kernel.state.store import DictStore
from tidegate.kernel.tuning import DEFAULT, Tuning
from tidegate.kernel.upgrade import drain
from tidegate.kernel.windows import expected_keys
from tidegate.plan import Edge, Node, Plan, Stream, graph, operation
from tidegate.spec.metrics import GRACE_NEEDED
from tidegate.testing.column_types import Types
from tidegate.testing.columns import to_batch
from tidegate.testing.inputs import Inputs
from tidegate.testing.packing import with_clock
from tidegate.testing.records import Record
from tidegate.testing.rows import to_rows

Read = tuple[str | None, Sequence[Record]]
"""Input of a map task: the name of the input (None: every input), and the records."""


def run(
    table: Result,
    batches: Sequence[Sequence[Record]],
    *,
    tasks: int,
    splits: Sequence[Sequence[Sequence[Record]]],
    clocks: Sequence[int] = (),
    contiguous: bool = False,
    sides: Sequence[Sequence[int]] = (),
    tuning: Tuning = DEFAULT,
) -> tuple[list[dict[str, Any]], dict[str, int]]:
    """Rows and drops of a stream; in batch i the map tasks read splits[i][0], splits[i][1], ...

    `batches` are the same records by batch, from which the types are learned. `clocks` is the wall clock (ms) of each
    batch, if the plan needs it: in a batch without records only tasks with expired timers step.
    `contiguous`: each map task reads an unbroken range of offsets of each partition, as in `pack`.
    `tuning`: sizes inside the kernel, small in tests of tidegate itself.
    `sides`: in a join, the side of splits[i][j]; both sides have the columns of `batches`.
    """
    topology = Tasks(table.node, tasks, contiguous=contiguous, tuning=tuning)
    for batch in batches:
        topology.learn(batch)
    names = {edge.side: edge.stream.name for node in topology.nodes for edge in node.sources}
    rows: list[dict[str, Any]] = []
    for number, (parts, clock) in enumerate(zip_longest(splits, clocks[: len(splits)])):
        inputs = [names[side] for side in sides[number]] if sides else [None] * len(parts)
        rows += topology.batch(zip(inputs, parts, strict=True), clock)
    return rows, dict(topology.dropped[0])


class Tasks:
    """A topology in several tasks, batch by batch.

    before    the topology before an upgrade or restart, from whose stores this one goes on
    as_spark  each operator gets as many tasks as on Spark, and rows of different keys are in no order
    drains    whether this is a drain
    tuning    sizes inside the kernel
    dropped   by operator, upstream first: late and skipped records, by reason
    graces    by operator: the graces that its records needed, if its tasks report them
    numbers   by operator: the numbers that its tasks reported of the last batch, by task (`spec.metrics`)
    """

    def __init__(
        self,
        plan: Plan,
        tasks: int,
        before: Tasks | None = None,
        *,
        contiguous: bool = False,
        as_spark: bool = False,
        drains: bool = False,
        tuning: Tuning = DEFAULT,
    ) -> None:
        self.nodes = graph(operation(plan)).upstream_first
        single = any(node.op.single_task for node in self.nodes)
        counts = [node.op.spread_over(tasks) if as_spark else 1 if single else tasks for node in self.nodes]
        options = _Options(contiguous, not as_spark, drains, tuning)
        made: dict[int, _Operator] = {}
        for node, count in zip(self.nodes, counts, strict=True):
            made[id(node)] = _Operator(node, count, [made.get(id(edge.node)) for edge in node.edges], options)
        self.operators = list(made.values())
        self.dropped: list[Counter[str]] = [Counter() for _ in self.nodes]
        self.graces = [GraceHistory() for _ in self.nodes]
        self.numbers: list[list[dict[str, Any]]] = [[] for _ in self.nodes]
        for mine, theirs in zip(self.operators, before.operators if before else (), strict=before is not None):
            mine.stores, mine.wakes = theirs.stores, theirs.wakes

    def learn(self, records: Sequence[Record]) -> None:
        """Learn the types of columns without a declared schema."""
        for operator in self.operators:
            for source in operator.sources:
                source.learn(records)

    def batch(self, read: Iterable[Read], clock: int | None = None) -> list[dict[str, Any]]:
        """Run a micro-batch and return its rows; a failed batch does not change the stores."""
        return self._step([one for one in read if one[1]], clock)

    def drain(self) -> list[dict[str, Any]]:
        """The rows of the two batches of a drain."""
        return self._step([], None) + self._step([], None)

    def _step(self, read: Sequence[Read], clock: int | None) -> list[dict[str, Any]]:
        micro_batch = _Batch(self.operators, read, clock)
        leaving = self.nodes[-1].walk(micro_batch.step)
        self.numbers = [[one.metrics for one in steps] for steps in micro_batch.made]
        for operator, (stores, wakes), steps, dropped, graces in zip(
            self.operators, micro_batch.kept, micro_batch.made, self.dropped, self.graces, strict=True
        ):
            operator.stores, operator.wakes = stores, wakes
            for one in steps:
                dropped.update({reason: int(one.metrics.get(reason, 0)) for reason in reasons(operator.op)})
                if GRACE_NEEDED in one.metrics:
                    graces.add(one.metrics[GRACE_NEEDED], 0)
        return [row for one in leaving for row in to_rows(one.rows)]


@dataclass
class _Batch:
    """A micro-batch on its way through the operators: the steps, stores and timers of each one."""

    operators: list[_Operator]
    read: Sequence[Read]
    clock: int | None
    made: list[list[Step]] = field(default_factory=list)
    kept: list[tuple[list[DictStore], list[int | None]]] = field(default_factory=list)

    def step(self, node: Node, upstream: list[list[Step] | None]) -> list[Step]:
        """Run the next operator, upstream first."""
        inputs = [(edge, steps) for edge, steps in zip(node.edges, upstream, strict=True) if steps is not None]
        operator = self.operators[len(self.made)]
        self.kept.append(([store.copy() for store in operator.stores], [*operator.wakes]))
        self.made.append(operator.take(*self.kept[-1], self.read, inputs, self.clock))
        return self.made[-1]


@dataclass
class _Source:
    """A source stream of an operator, after its steps; `types` are the types of all streams of its side."""

    edge: Edge
    inputs: Inputs
    types: Types

    @property
    def side(self) -> int:
        """The side of a join."""
        return self.edge.side

    @classmethod
    def of(cls, node: Node) -> list[_Source]:
        """The source streams of an operator. Each has its own map tasks."""
        sources = []
        for side in dict.fromkeys(edge.side for edge in node.sources):
            edges = [edge for edge in node.sources if edge.side == side]
            types = Inputs.of(tuple(edge.stream for edge in edges)).types()
            sources += [cls(edge, Inputs.of((edge.stream,)), types) for edge in edges]
        return sources

    def learn(self, records: Sequence[Record]) -> None:
        if not self.types.declared:
            self.types.learn(self.inputs.take(records, None, 0), self.inputs.declared(None))


@dataclass(frozen=True)
class _Options:
    contiguous: bool
    sorts: bool
    drains: bool
    tuning: Tuning


class _Operator:
    """An operator in several tasks, each with its own store; `before` are the operators of its edges."""

    def __init__(self, node: Node, tasks: int, before: list[_Operator | None], options: _Options) -> None:
        self.op, self.node, self.before, self.options = node.op, node, before, options
        self.sources = _Source.of(node)
        self.stores = [DictStore(tuning=options.tuning) for _ in range(tasks)]
        self.wakes: list[int | None] = [None] * tasks

    @cached_property
    def layout(self) -> Layout:
        """The layout, from the columns of all inputs, even those without a record."""
        op, sorts, tuning = replace(self.op, expects=None), self.options.sorts, self.options.tuning
        inputs = [(edge, with_clock(op, rows, 0).schema) for edge, rows in self._without_records]
        return Layout.of_inputs(op, inputs, sorts=sorts, tuning=tuning)

    @cached_property
    def _without_records(self) -> list[tuple[Edge, pa.Table]]:
        """An empty table with the columns of each input."""
        behind = zip(self.node.edges, self.before, strict=True)
        return [
            *((source.edge, self._read(source, [])) for source in self.sources),
            *((edge, operator.layout.output_schema.empty_table()) for edge, operator in behind if operator is not None),
        ]

    def take(
        self,
        stores: list[DictStore],
        wakes: list[int | None],
        read: Sequence[Read],
        upstream: list[tuple[Edge, list[Step]]],
        clock: int | None,
    ) -> list[Step]:
        """Step every task with input, or with an expired timer. Each part of `read` and each upstream task is one map
        task.
        """
        inputs = [
            (source.edge, self._read(source, part))
            for source in self.sources
            for name, part in read
            if source.inputs.reads(name)
        ]
        inputs += [(edge, step.rows) for edge, steps in upstream for step in steps]
        blobs: list[list[bytes]] = [[] for _ in stores]
        for edge, found in inputs:
            rows = with_clock(self.op, found, clock)
            batches = rows.combine_chunks().to_batches()
            layout = self.layout.of_input(edge, rows.schema)
            for task, blob in pack(layout, batches, range(len(blobs)), self.options.contiguous):
                blobs[task].append(blob)
        if self.options.drains:
            for task, blob in drain.marks(self.layout, len(blobs)):
                blobs[task].append(blob)
        made: list[Step] = []
        for task, (store, mine, due) in enumerate(zip(stores, blobs, wakes, strict=True)):
            keys = None if self.op.expects is None else expected_keys.pack(self.layout, self.op.expects)
            stage = Stage(self.layout, len(stores), keys, self.options.drains)
            if not mine and (clock is None or due is None or due > clock):
                stage.refuse(store)
                continue
            now = clock if self.op.needs_wall_clock else None
            step = stage.step(store, mine, wall_clock=now, task=task)
            wakes[task] = step.wake_at
            made.append(step)
        return made

    def _read(self, source: _Source, records: Sequence[Record]) -> pa.Table:
        op = self.op.of_side(source.side)
        rows = pa.Table.from_batches([to_batch(op, source.types, source.inputs.take(records, None, 0), 0)])
        for place, column in enumerate(rows.schema):
            if column.name in ("empty", "deleted"):  # without a record they have no type
                rows = rows.set_column(place, column.name, rows[column.name].cast(pa.bool_()))
        if not any(decoding.filters(branch) for branch in op.stream.branches):
            return rows
        rows = rows.append_column("kept", pa.repeat(True, rows.num_rows))
        return _filtered_out(source.edge.stream, records, rows.schema) if records and not rows.num_rows else rows


def _filtered_out(stream: Stream, records: Sequence[Record], schema: pa.Schema) -> pa.Table:
    """A row for records that were all filtered out: as on Spark, the tasks hear of them, so their input is not idle."""
    known: dict[str, Any] = {"ts": -1, "kept": False}
    if stream.partition is not None and stream.offset is not None:
        partition, offset = (records[-1][name] for name in (stream.partition, stream.offset))
        known |= {"partition": decoding.numbered(stream, pa.array([partition]))[0].as_py(), "offset": offset}
    return pa.table({field.name: pa.array([known.get(field.name)], field.type) for field in schema}, schema)
