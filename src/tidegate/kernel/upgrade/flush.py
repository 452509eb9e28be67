"""What a suppression that the plan no longer has held back: rows that leave first, in the first batch without it.

Of a time limit they are the rows that waited, in the order in which they would have left, behind those steps of the
table that they had not taken yet. Of `until_window_closes` they are the results so far of the windows that are open,
as the updates that such a table would have given by now.

    limit 10 by stream time    A@1 and B@3 wait
    no limit from then on      the next batch gives A@1, B@3, and its own updates behind them
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace

import numpy as np
import pyarrow as pa

from tidegate.kernel.choice import operator_of
from tidegate.kernel.columns.arrays import ints
from tidegate.kernel.exchange import old_values
from tidegate.kernel.rows import map_filter, result_keys, results
from tidegate.kernel.rows.layout import Layout
from tidegate.kernel.state.state import State
from tidegate.kernel.suppress import time_limit
from tidegate.kernel.suppress.time_buckets import BUFFER_TIME
from tidegate.kernel.upgrade.description import Described
from tidegate.plan import Output
from tidegate.spec.columns import DELETED
from tidegate.spec.suppressed import UntilTimeLimit


@dataclass
class Flushed:
    """Rows that leave before those of the batch: `results` of the aggregation, `behind` the limit of an output."""

    results: list[pa.Table] = field(default_factory=list)
    behind: dict[str, pa.Table] = field(default_factory=dict)


def limit_gone(old: UntilTimeLimit | None, new: UntilTimeLimit | None) -> bool:
    """Whether what waited for the old limit cannot wait for the new one: there is none, or it has another clock."""
    return old is not None and (new is None or new.clock != old.clock)


def closing_gone(old: Layout, new: Layout) -> bool:
    """Whether results waited for their windows to close, and are now told before that and not again."""
    had, has = ({output.kind for output in layout.op.all_outputs} for layout in (old, new))
    return "final" in had and "updates" not in had and "updates" in has and "final" not in has


def way_of(what: Described, layout: Layout) -> tuple[Output, int] | None:
    """The output that rows of a limit that is gone leave by, and how many of its steps they have taken.

    None if there is no such output, or if it would give them other columns than they have.
    """
    limited = next(output for output in what.layout.op.all_outputs if output.limit is not None)
    told = [output for output in layout.op.all_outputs if output.kind != "late"]
    mine = [output for output in told if output.name == limited.name] or (told if len(told) == 1 else [])
    if not mine:
        return None
    all_steps = (*mine[0].before, *mine[0].after)
    taken = what.steps if what.steps is not None else None if all_steps else 0
    if taken is None or taken > len(all_steps):
        return None
    shape = _shape(layout, mine[0], taken).result_schema
    same = all(name in shape.names and _alike(what.held.field(name), shape.field(name)) for name in _told(what.held))
    return (mine[0], taken) if same else None


def _told(held: pa.Schema) -> list[str]:
    return [name for name in held.names if name != DELETED]


def _alike(one: pa.Field, other: pa.Field) -> bool:
    return pa.types.is_null(one.type) or pa.types.is_null(other.type) or one.type == other.type


def _shape(layout: Layout, output: Output, taken: int) -> Layout:
    """The layout of an output's rows once they have taken so many of its steps."""
    return replace(layout.for_kind[output.kind], shape=(*output.before, *output.after)[:taken])


def behind_limit(what: Described, layout: Layout, state: State) -> dict[str, pa.Table]:
    """The rows that waited for a limit which is gone, by output; nothing waits any more."""
    found = way_of(what, layout)
    limit = what.layout.op.limit
    assert found is not None
    assert limit is not None
    output, taken = found
    shape = _shape(layout, output, taken)
    as_it_was = replace(shape, op=replace(shape.op, limit=limit))
    rows = time_limit.empty(as_it_was, state.store)
    old_values.forget(state, state.came)
    rows = rows.take(result_keys.in_order(shape, rows, np.zeros(rows.num_rows, np.int64), ints(rows[BUFFER_TIME])))
    left = (*output.before, *output.after)[taken:]
    return {output.name: map_filter.on_results(left, _as(shape.result_schema, rows), layout.op.key)}


def _as(schema: pa.Schema, rows: pa.Table) -> pa.Table:
    """Rows that may lack columns that were added while they waited."""
    for wanted in schema:
        if wanted.name not in rows.schema.names:
            deleted = wanted.name == DELETED
            nothing = pa.repeat(False, rows.num_rows) if deleted else pa.nulls(rows.num_rows, wanted.type)
            rows = rows.append_column(wanted, nothing)
    return rows.select(schema.names).cast(schema)


def open_results(layout: Layout, state: State) -> Iterator[pa.Table]:
    """The results so far of every open window, as updates; `state` is already as the plan keeps it."""
    for rows in operator_of(layout).stored_rows(state):
        if "deleted" not in rows.schema.names:
            rows = rows.append_column("deleted", pa.repeat(pa.scalar(False), rows.num_rows))
        yield results.for_kind(layout, "updates", rows.sort_by([("ts", "ascending"), ("start", "ascending")]))
