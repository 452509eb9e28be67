"""The same topology over several map tasks and several stateful tasks, as Spark lays it out, without Spark."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import zip_longest
from typing import Any

import pyarrow as pa

from tidegate.dsl import Result
from tidegate.kernel.exchange.packing import pack
from tidegate.kernel.rows.layout import Layout
from tidegate.kernel.stage import Stage, Step, reasons
from tidegate.kernel.state.store import DictStore
from tidegate.kernel.windows import expected_keys
from tidegate.plan import Operation, chain, operation
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
) -> tuple[list[dict[str, Any]], dict[str, int]]:
    """Rows and drops of a stream whose batch i was read by map tasks that got splits[i][0], splits[i][1], ...

    `batches` are the same records by batch, from which the types are learned. `clocks` is the wall clock (ms) of each
    batch, where the plan needs it: in a batch without records the tasks step whose timers have expired.
    `contiguous`: the source promises that each map task reads an unbroken stretch of each partition, as `pack` has it.
    """
    op, *after = chain(operation(table.node))
    tasks = 1 if any(one.single_task for one in (op, *after)) else tasks
    types = Types.of(op.stream.schema)
    for batch in batches:
        types.learn(batch)
    stores = [DictStore() for _ in range(tasks)]
    wakes: list[int | None] = [None] * tasks
    behind = [_Behind(one, [DictStore() for _ in range(tasks)], [None] * tasks) for one in after]
    rows: list[dict[str, Any]] = []
    drops: Counter[str] = Counter()
    layout: Layout | None = None
    for parts, clock in zip_longest(splits, clocks[: len(splits)]):
        blobs: list[list[bytes]] = [[] for _ in range(tasks)]
        for part in parts:
            if not part:
                continue
            batch = to_batch(op, types, part, 0)
            if op.needs_wall_clock:
                batch = batch.append_column("wall_clock", pa.array([clock] * len(part), pa.int64()))
            layout = Layout(op, batch.schema)
            for task, blob in pack(layout, [batch], range(tasks), contiguous):
                blobs[task].append(blob)
        made = []
        for task, (store, mine) in enumerate(zip(stores, blobs, strict=True)):
            due = wakes[task]
            if layout is None or (not mine and (clock is None or due is None or due > clock)):
                continue
            keys = None if op.expects is None else expected_keys.pack(layout, op.expects)
            step = Stage(layout, tasks, keys).step(store, mine, wall_clock=clock)
            wakes[task] = step.wake_at
            made.append(step)
            drops.update({reason: int(step.metrics.get(reason, 0)) for reason in reasons(op)})
        for one in behind:
            made = one.take(made, clock)
        rows += [row for step in made for row in to_rows(step.rows)]
    return rows, dict(drops)


@dataclass
class _Behind:
    """An operator behind another one, task by task."""

    op: Operation
    stores: list[DictStore]
    wakes: list[int | None]
    layout: Layout | None = None

    def take(self, steps: list[Step], clock: int | None) -> list[Step]:
        """Step every task, each task of the operator before being read by a map task; or those that are due."""
        blobs: list[dict[int, bytes]] = []
        for step in steps:
            rows = step.rows
            if self.op.needs_wall_clock:
                rows = rows.append_column("wall_clock", pa.array([clock] * rows.num_rows, pa.int64()))
            self.layout = Layout(self.op, rows.schema)
            blobs.append(dict(pack(self.layout, rows.combine_chunks().to_batches(), range(len(self.stores)))))
        made: list[Step] = []
        for task, (store, due) in enumerate(zip(self.stores, self.wakes, strict=True)):
            if self.layout is None or (not steps and (clock is None or due is None or due > clock)):
                continue
            keys = None if self.op.expects is None else expected_keys.pack(self.layout, self.op.expects)
            mine = [own[task] for own in blobs if task in own]
            now = clock if self.op.needs_wall_clock else None
            step = Stage(self.layout, len(self.stores), keys).step(store, mine, wall_clock=now)
            self.wakes[task] = step.wake_at
            made.append(step)
        return made
