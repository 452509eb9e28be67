"""The same topology over several map tasks and several stateful tasks, as Spark lays it out, without Spark."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import zip_longest
from typing import Any

import pyarrow as pa

from tidegate.dsl import Result
from tidegate.kernel.exchange.packing import pack
from tidegate.kernel.rows.layout import Layout
from tidegate.kernel.stage import Stage, Step, reasons
from tidegate.kernel.state.store import DictStore
from tidegate.kernel.tuning import DEFAULT, Tuning
from tidegate.kernel.windows import expected_keys
from tidegate.plan import Node, graph, operation
from tidegate.testing.driver import to_rows
from tidegate.testing.inputs import Record, Types, to_batch


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
    """Rows and drops of a stream whose batch i was read by map tasks that got splits[i][0], splits[i][1], ...

    `batches` are the same records by batch, from which the types are learned. `clocks` is the wall clock (ms) of each
    batch, where the plan needs it: in a batch without records the tasks step whose timers have expired.
    `contiguous`: the source promises that each map task reads an unbroken stretch of each partition, as `pack` has it.
    `tuning`: sizes of the kernel, small ones in tests of tidegate itself.
    `sides`: of a join, the side of which the map task reads splits[i][j]; both have the columns of `batches`.
    """
    nodes = graph(operation(table.node)).upstream_first
    tasks = 1 if any(node.op.single_task for node in nodes) else tasks
    types = Types.of(nodes[0].edges[0].stream.schema)
    for batch in batches:
        types.learn(batch)
    operators = [_Operator(node, tasks, types, contiguous, tuning) for node in nodes]
    rows: list[dict[str, Any]] = []
    drops: Counter[str] = Counter()
    for number, (parts, clock) in enumerate(zip_longest(splits, clocks[: len(splits)])):
        read = list(zip(sides[number] if sides else [0] * len(parts), parts, strict=True))
        micro_batch = _Batch(operators, read, clock)
        leaving = nodes[-1].walk(micro_batch.step)
        for one in micro_batch.made[0]:
            drops.update({reason: int(one.metrics.get(reason, 0)) for reason in reasons(nodes[0].op)})
        rows += [row for one in leaving for row in to_rows(one.rows)]
    return rows, dict(drops)


@dataclass
class _Batch:
    """A micro-batch on its way through the operators."""

    operators: list[_Operator]
    read: list[tuple[int, Sequence[Record]]]
    clock: int | None
    made: list[list[Step]] = field(default_factory=list)

    def step(self, node: Node, upstream: list[list[Step] | None]) -> list[Step]:
        """Step the next operator, upstream first."""
        inputs = [(edge.side, steps) for edge, steps in zip(node.edges, upstream, strict=True) if steps is not None]
        operator = self.operators[len(self.made)]
        self.made.append(operator.take(self.read if node.sources else [], inputs, self.clock))
        return self.made[-1]


class _Operator:
    """An operator in several tasks, each with a store of its own."""

    def __init__(self, node: Node, tasks: int, types: Types, contiguous: bool, tuning: Tuning) -> None:
        self.op, self.node, self.types, self.contiguous, self.tuning = node.op, node, types, contiguous, tuning
        self.stores = [DictStore(tuning=tuning) for _ in range(tasks)]
        self.wakes: list[int | None] = [None] * tasks
        self.layout: Layout | None = None

    def take(
        self, read: list[tuple[int, Sequence[Record]]], upstream: list[tuple[int, list[Step]]], clock: int | None
    ) -> list[Step]:
        """Step every task: each part of what is read has a map task, and so has each task before; or those due."""
        inputs = [(side, self._with_clock(self._read(side, part), clock)) for side, part in read if part]
        inputs += [(side, self._with_clock(step.rows, clock)) for side, steps in upstream for step in steps]
        blobs: list[list[bytes]] = [[] for _ in self.stores]
        for side, rows in inputs:
            self.layout, layout = self._layouts(side, rows)
            for task, blob in pack(layout, rows.combine_chunks().to_batches(), range(len(blobs)), self.contiguous):
                blobs[task].append(blob)
        made: list[Step] = []
        for task, (store, mine, due) in enumerate(zip(self.stores, blobs, self.wakes, strict=True)):
            if self.layout is None or (not inputs and (clock is None or due is None or due > clock)):
                continue
            keys = None if self.op.expects is None else expected_keys.pack(self.layout, self.op.expects)
            now = clock if self.op.needs_wall_clock else None
            step = Stage(self.layout, len(self.stores), keys).step(store, mine, wall_clock=now)
            self.wakes[task] = step.wake_at
            made.append(step)
        return made

    def _read(self, side: int, records: Sequence[Record]) -> pa.Table:
        op = self.op if self.op.joined is None else self.op.of_side(side)
        return pa.Table.from_batches([to_batch(op, self.types, records, 0)])

    def _with_clock(self, rows: pa.Table, clock: int | None) -> pa.Table:
        if not self.op.needs_wall_clock:
            return rows
        return rows.append_column("wall_clock", pa.array([clock] * rows.num_rows, pa.int64()))

    def _layouts(self, side: int, rows: pa.Table) -> tuple[Layout, Layout]:
        """The layout of the operator, and the one that this input is packed by."""
        if self.op.joined is None:
            layout = Layout(self.op, rows.schema, tuning=self.tuning)
            return layout, layout
        count = len(self.op.sides)
        schemas = [
            rows.schema if n == side or self.op.sides[n].behind else self._read(n, []).schema for n in range(count)
        ]
        whole = Layout.of_join(self.op, schemas, tuning=self.tuning)
        return whole, whole.of_side(side, rows.schema)
