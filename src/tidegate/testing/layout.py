"""The same topology over several map tasks and several stateful tasks, as Spark lays it out, without Spark."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import zip_longest
from typing import Any

import pyarrow as pa

from tidegate.dsl import Result
from tidegate.kernel import expected
from tidegate.kernel.layout import Layout
from tidegate.kernel.packing import pack
from tidegate.kernel.stage import Stage, Step, reasons
from tidegate.kernel.store import DictStore
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
) -> tuple[list[dict[str, Any]], dict[str, int]]:
    """Rows and drops of a stream whose batch i was read by map tasks that got splits[i][0], splits[i][1], ...

    `batches` are the same records by batch, from which the types are learned. `clocks` is the wall clock (ms) of each
    batch, where the plan needs it: in a batch without records the tasks step whose timers have expired.
    """
    op, *behind = chain(operation(table.node))
    tasks = 1 if any(one.alone for one in (op, *behind)) else tasks
    types = Types.of(op.stream.schema)
    for batch in batches:
        types.learn(batch)
    stores = [DictStore() for _ in range(tasks)]
    wakes: list[int | None] = [None] * tasks
    stores_behind = [[DictStore() for _ in range(tasks)] for _ in behind]
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
            for task, blob in pack(layout, [batch], range(tasks)):
                blobs[task].append(blob)
        made = []
        for task, (store, mine) in enumerate(zip(stores, blobs, strict=True)):
            due = wakes[task]
            if layout is None or (not mine and (clock is None or due is None or due > clock)):
                continue
            keys = None if op.expects is None else expected.pack(layout, op.expects)
            step = Stage(layout, tasks, keys).step(store, mine, wall_clock=clock)
            wakes[task] = step.wake_at
            made.append(step)
            drops.update({reason: int(step.metrics.get(reason, 0)) for reason in reasons(op)})
        for next_op, held in zip(behind, stores_behind, strict=True):
            made = _behind(next_op, made, held) if made else made
        rows += [row for step in made for row in to_rows(step.rows)]
    return rows, dict(drops)


def _behind(op: Operation, steps: list[Step], stores: list[DictStore]) -> list[Step]:
    """The next operator of a chain: each task of the one before it is read by a map task."""
    layout = Layout(op, steps[0].rows.schema)
    tasks = range(len(stores))
    keys = None if op.expects is None else expected.pack(layout, op.expects)
    blobs = [dict(pack(layout, step.rows.combine_chunks().to_batches(), tasks)) for step in steps]
    return [Stage(layout, len(stores), keys).step(stores[t], [own[t] for own in blobs if t in own]) for t in tasks]
