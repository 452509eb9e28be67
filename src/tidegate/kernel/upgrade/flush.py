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
from typing import TypeGuard

import pyarrow as pa
import pyarrow.compute as pc

from tidegate.kernel.choice import operator_of
from tidegate.kernel.columns.arrays import as_schema, concat_tables, ints, with_column
from tidegate.kernel.exchange import old_values
from tidegate.kernel.rows import map_filter, result_keys, results
from tidegate.kernel.rows.layout import Layout
from tidegate.kernel.state.state import State
from tidegate.kernel.state.store import Store
from tidegate.kernel.suppress import time_limit
from tidegate.kernel.suppress.time_buckets import BUFFER_TIME
from tidegate.kernel.upgrade.description import Described
from tidegate.plan import Limit, Operation, Output
from tidegate.spec.columns import DELETED, ROW_ID


@dataclass
class Flushed:
    """Rows that leave before those of the batch.

    results    results of the aggregation
    outputs    the names of the outputs by which `results` leave
    of_limits  rows of removed limits, by (output, number of the next limit that the rows come to, or the number of
               limits if they leave)
    """

    results: list[pa.Table] = field(default_factory=list)
    outputs: frozenset[str] = frozenset()
    of_limits: dict[tuple[str, int], pa.Table] = field(default_factory=dict)


@dataclass(frozen=True)
class OfLimit:
    """A limit of an output: the limit `number` there."""

    output: Output
    number: int

    @property
    def limit(self) -> Limit:
        return self.output.limits[self.number]


def limits(old: Operation, new: Operation) -> list[tuple[OfLimit, OfLimit | None]]:
    """Each limit of the old plan, and the limit of the new plan at its place, for the same output and clock, if any.

    The only output with limits may have another name in the new plan.
    """
    limited = [[output for output in op.all_outputs if output.limits] for op in (old, new)]
    alone = all(len(outputs) == 1 for outputs in limited) and _renamed(old, limited[0][0], new, limited[1][0])
    had, has = (
        {
            ("" if alone else output.name, limit.place, limit.how.clock): OfLimit(output, number)
            for output in outputs
            for number, limit in enumerate(output.limits)
        }
        for outputs in limited
    )
    return [(one, has.get(at)) for at, one in had.items()]


def _renamed(old: Operation, had: Output, new: Operation, has: Output) -> bool:
    """Whether an output of the new plan can be that of the old plan under another name: each has a name of its own."""
    names = [{output.name for output in op.all_outputs} for op in (old, new)]
    return had.name not in names[1] and has.name not in names[0]


def moves(old: Operation, new: Operation) -> bool:
    """Whether a limit of the old plan has no limit of the new plan at its place, for the same output and clock."""
    return any(now is None for _, now in limits(old, new))


def removed_limits(old: Operation, new: Operation) -> list[OfLimit]:
    """The limits of the old plan whose rows cannot wait for a limit of the new plan."""
    return [one for one, now in limits(old, new) if not _takes_on(now, one)]


def _takes_on(now: OfLimit | None, one: OfLimit) -> TypeGuard[OfLimit]:
    """Whether the rows that wait for a limit can wait for the limit of the new plan: it takes rows of the same kind."""
    return now is not None and now.output.kind == one.output.kind


def loses_rows(described: Described, layout: Layout, store: Store, one: OfLimit, now: OfLimit | None) -> bool:
    """Whether rows wait for a limit of the old plan (`limits`) that the new plan can neither keep nor let out."""
    fits = (
        _same_rows(described, layout, one, now) if _takes_on(now, one) else way_of(described, layout, one) is not None
    )
    return not fits and time_limit.holds_rows(store, one.limit.place)


def _same_rows(described: Described, layout: Layout, one: OfLimit, now: OfLimit) -> bool:
    """Whether rows that come to a limit take as many steps as those that wait there, and have their columns."""
    place, schema = one.limit.place, layout.of_limit(now.output, now.number).result_schema
    same_steps = described.steps[place] == len(now.output.steps_before(now.number))
    same_deletions = (DELETED in described.buffered[place].names) == (DELETED in schema.names)
    return same_steps and same_deletions and _fits(described, layout, one, schema)


def closing_removed(old: Operation, new: Operation) -> frozenset[str]:
    """The names of the outputs that emit updates now, and emitted final results in the old plan.

    They are all outputs if the old plan emits only final results and the new plan only updates, whatever their names.
    """
    had = {output.name: output.kind for output in old.all_outputs if output.kind != "late"}
    has = {output.name: output.kind for output in new.all_outputs if output.kind != "late"}
    if set(had.values()) == {"final"} and set(has.values()) == {"updates"}:
        return frozenset(has)
    return frozenset(name for name, kind in has.items() if kind == "updates" and had.get(name) == "final")


def way_of(described: Described, layout: Layout, one: OfLimit) -> tuple[Output, int] | None:
    """The output by which the rows of a removed limit leave, and the number of its steps that they have taken.

    None if there is no such output, or if it would give them other columns than they have.
    """
    outputs = [output for output in layout.op.all_outputs if output.kind != "late"]
    mine = [output for output in outputs if output.name == one.output.name]
    if len(outputs) == 1 and _renamed(described.layout.op, one.output, layout.op, outputs[0]):
        mine = outputs
    if not mine:
        return None
    applied = described.steps[one.limit.place]
    if applied > len(mine[0].steps):
        return None
    fits = _fits(described, layout, one, _shape(layout, mine[0], applied).result_schema)
    return (mine[0], applied) if fits else None


def _fits(described: Described, layout: Layout, one: OfLimit, schema: pa.Schema) -> bool:
    """Whether rows that wait for a limit can be rows of `schema`.

    It may have more columns: new columns of the aggregation or of the table, `DELETED`, and ids of rows. The structs of
    a join may have more fields: new columns of its sides.
    """
    had, has = (made.for_kind[one.output.kind].result_types for made in (described.layout, layout))
    before, now = _types(described.buffered[one.limit.place]), _types(schema)
    free = {ROW_ID, DELETED, *(has.keys() - had.keys())}
    own = {name for name, kind in before.items() if had.get(name) == kind and has.get(name) == now.get(name)}
    lost = {name for name, kind in before.items() if name not in now or not _alike(kind, now[name], name in own)}
    return lost <= {ROW_ID} and now.keys() - before.keys() <= free


def _types(fields: pa.Schema | pa.StructType) -> dict[str, pa.DataType]:
    return {field.name: field.type for field in fields}


def _alike(had: pa.DataType, has: pa.DataType, grows: bool) -> bool:
    """Whether values of one type can be values of the other. A part of type null has no value yet: it is not known.

    A struct may have more fields if it `grows`, or if a part of it is not known: the next value may bring both.
    """
    if pa.types.is_null(had) or pa.types.is_null(has):
        return True
    if pa.types.is_struct(had) and pa.types.is_struct(has):
        before, now = _types(had), _types(has)
        grows = grows or any(map(pa.types.is_null, before.values()))
        same = before.keys() <= now.keys() if grows else list(before) == list(now)
        return same and all(_alike(kind, now[name], grows) for name, kind in before.items())
    if had.id != has.id or not had.num_fields or pa.types.is_fixed_size_list(had):
        return bool(had == has)
    return all(_alike(had.field(at).type, has.field(at).type, grows) for at in range(had.num_fields))


def _shape(layout: Layout, output: Output, applied: int) -> Layout:
    """The layout of an output's rows after `applied` of its steps."""
    return replace(layout.for_kind[output.kind], applied_steps=output.steps[:applied])


def empty_removed_limits(described: Described, layout: Layout, state: State) -> dict[tuple[str, int], pa.Table]:
    """Empty the removed limits, and compact others whose wait begins anew. Returns the rows that waited for the removed
    ones (`Flushed.of_limits`).

    The rows go on to the limits of the plan behind theirs. The rows of the last limit are the oldest.
    """
    found: dict[tuple[str, int], list[pa.Table]] = {}
    for one, now in reversed(limits(described.layout.op, layout.op)):
        if _takes_on(now, one) and _same_rows(described, layout, one, now):
            restarted, restarts = (of.limit.how.measured_from == "latest_update" for of in (one, now))
            if restarted != restarts:
                time_limit.compact(layout.of_limit(now.output, now.number), state.store, restarts=restarted)
            continue
        limit = one.limit
        old_values.forget(layout, state.old_values_of_limit(limit.place))
        if _takes_on(now, one):  # no row waits (`loses_rows`)
            continue
        way = way_of(described, layout, one)
        shape = layout if way is None else _shape(layout, *way)
        as_it_was = replace(shape, op=replace(shape.op, outputs=(), limits=(limit,), after=()))
        rows = time_limit.empty(as_it_was, state.store)
        if way is None:  # no row waited
            continue
        output, applied = way
        rows = rows.take(result_keys.in_order(shape, rows, ints(rows[BUFFER_TIME])))
        following = range(one.number + 1, len(output.limits))
        to = next((n for n in following if len(output.steps_before(n)) >= applied), len(output.limits))
        left = output.steps_before(to)[applied:]
        part = map_filter.on_results(left, _as(shape.result_schema, rows), layout.op.key)
        found.setdefault((output.name, to), []).append(part)
    return {way: concat_tables(parts) for way, parts in found.items()}


def _as(schema: pa.Schema, rows: pa.Table) -> pa.Table:
    """The rows with the columns of `schema`: columns that were added while rows waited are null, DELETED is false."""
    for wanted in schema:
        if wanted.name not in rows.schema.names:
            rows = rows.append_column(wanted, pa.nulls(rows.num_rows, wanted.type))
    if DELETED in schema.names:
        rows = with_column(rows, DELETED, pc.fill_null(rows[DELETED], False))
    return as_schema(rows.select(schema.names), schema)


def open_results(layout: Layout, state: State) -> Iterator[pa.Table]:
    """The results so far of every open window, as updates; `state` is already rewritten for the plan."""
    for rows in operator_of(layout).stored_rows(state):
        if "deleted" not in rows.schema.names:
            rows = results.marked_live(rows)
        yield results.for_kind(layout, "updates", rows.sort_by([("ts", "ascending"), ("start", "ascending")]))
