"""Rows held back by a suppression that the plan no longer has: they leave first, in the first batch without it.

For a time limit they are the rows that waited, in the order in which they would have left, after the table's steps that
they had not taken yet. For `until_window_closes` they are the results so far of open windows, as the updates that the
table would have given by now.

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
from tidegate.plan import Operation, Output
from tidegate.spec.columns import DELETED


@dataclass
class Flushed:
    """Rows that leave before those of the batch: `results` of the aggregation, and rows from `behind` removed limits.

    behind  by (output, number of the next limit that the rows come to, or the number of limits if they leave)
    """

    results: list[pa.Table] = field(default_factory=list)
    behind: dict[tuple[str, int], pa.Table] = field(default_factory=dict)


def removed_limits(old: Operation, new: Operation) -> list[tuple[Output, int]]:
    """The limits of the old plan, as (output, number there), whose rows cannot wait for a limit of the new plan.

    A limit goes on at its own place, behind the same output and by the same clock.
    """
    limited = [[output for output in op.all_outputs if output.limits] for op in (old, new)]
    alone = all(len(outputs) == 1 for outputs in limited)
    goes_on = {
        ("" if alone else output.name, limit.place, limit.how.clock) for output in limited[1] for limit in output.limits
    }
    return [
        (output, number)
        for output in limited[0]
        for number, limit in enumerate(output.limits)
        if ("" if alone else output.name, limit.place, limit.how.clock) not in goes_on
    ]


def closing_removed(old: Layout, new: Layout) -> bool:
    """Whether final results become updates: the old plan emits only final results, the new plan only updates."""
    had, has = ({output.kind for output in layout.op.all_outputs} for layout in (old, new))
    return "final" in had and "updates" not in had and "updates" in has and "final" not in has


def way_of(what: Described, layout: Layout, limited: Output, number: int) -> tuple[Output, int] | None:
    """The output by which the rows of a removed limit leave, and the number of its steps that they have taken.

    None if there is no such output, or if it would give them other columns than they have.
    """
    outputs = [output for output in layout.op.all_outputs if output.kind != "late"]
    mine = [output for output in outputs if output.name == limited.name] or (outputs if len(outputs) == 1 else [])
    if not mine:
        return None
    place = limited.limits[number].place
    all_steps, applied, buffered = mine[0].steps, what.steps[place], what.buffered[place]
    if applied > len(all_steps):
        return None
    shape = _shape(layout, mine[0], applied).result_schema
    same = all(name in shape.names and _alike(buffered.field(name), shape.field(name)) for name in _values(buffered))
    return (mine[0], applied) if same else None


def _values(schema: pa.Schema) -> list[str]:
    return [name for name in schema.names if name != DELETED]


def _alike(one: pa.Field, other: pa.Field) -> bool:
    return pa.types.is_null(one.type) or pa.types.is_null(other.type) or one.type == other.type


def _shape(layout: Layout, output: Output, applied: int) -> Layout:
    """The layout of an output's rows after `applied` of its steps."""
    return replace(layout.for_kind[output.kind], shape=output.steps[:applied])


def behind_limits(what: Described, layout: Layout, state: State) -> dict[tuple[str, int], pa.Table]:
    """Empty the removed limits. Returns the rows that waited for them (`Flushed.behind`).

    The rows go on to the limits of the plan behind theirs. The rows of the last limit are the oldest.
    """
    found: dict[tuple[str, int], list[pa.Table]] = {}
    for limited, number in reversed(removed_limits(what.layout.op, layout.op)):
        way = way_of(what, layout, limited, number)
        assert way is not None
        output, applied = way
        shape, limit = _shape(layout, output, applied), limited.limits[number]
        as_it_was = replace(shape, op=replace(shape.op, outputs=(), limits=(limit,), after=()))
        rows = time_limit.empty(as_it_was, state.store)
        old_values.forget(layout, state, state.old_values_of_limit(limit.place))
        rows = rows.take(result_keys.in_order(shape, rows, np.zeros(rows.num_rows, np.int64), ints(rows[BUFFER_TIME])))
        following = range(number + 1, len(output.limits))
        to = next((n for n in following if len(output.steps_before(n)) >= applied), len(output.limits))
        left = output.steps_before(to)[applied:]
        part = map_filter.on_results(left, _as(shape.result_schema, rows), layout.op.key)
        found.setdefault((output.name, to), []).append(part)
    return {way: pa.concat_tables(parts, promote_options="default") for way, parts in found.items()}


def _as(schema: pa.Schema, rows: pa.Table) -> pa.Table:
    """The rows with the columns of `schema`: columns that were added while rows waited are null, DELETED is false."""
    for wanted in schema:
        if wanted.name not in rows.schema.names:
            deleted = wanted.name == DELETED
            nothing = pa.repeat(False, rows.num_rows) if deleted else pa.nulls(rows.num_rows, wanted.type)
            rows = rows.append_column(wanted, nothing)
    return rows.select(schema.names).cast(schema)


def open_results(layout: Layout, state: State) -> Iterator[pa.Table]:
    """The results so far of every open window, as updates; `state` is already rewritten for the plan."""
    for rows in operator_of(layout).stored_rows(state):
        if "deleted" not in rows.schema.names:
            rows = rows.append_column("deleted", pa.repeat(pa.scalar(False), rows.num_rows))
        yield results.for_kind(layout, "updates", rows.sort_by([("ts", "ascending"), ("start", "ascending")]))
