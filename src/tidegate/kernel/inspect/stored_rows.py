"""The rows of a store: an aggregation's results of open and closed windows, or the rows that a suppression holds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime

import numpy as np
import pyarrow as pa

from tidegate.errors import DefinitionError, in_one_line
from tidegate.instants import given_instant_ms, later_ms
from tidegate.kernel.choice import operator_of
from tidegate.kernel.columns.arrays import as_schema, concat_tables, ints
from tidegate.kernel.rows.closing import closed_at
from tidegate.kernel.rows.layout import Layout
from tidegate.kernel.state.state import State
from tidegate.kernel.state.store import Store
from tidegate.kernel.suppress import time_limit
from tidegate.kernel.suppress.time_buckets import BUFFER_TIME
from tidegate.kernel.upgrade import compatibility
from tidegate.kernel.upgrade.description import Described
from tidegate.kernel.windows import retention
from tidegate.plan import STATE_COLUMNS, Output
from tidegate.spec.columns import DELETED, END, SINCE, STATUS, UNTIL, public_name


def stores(described: Described) -> tuple[str, ...]:
    """The names of an operator's stores: of its aggregation or of the sides of its join, then of its suppressions."""
    op = described.layout.op
    own = operator_of(described.layout).own_stores or (op.name,)
    closing = any(output.kind == "final" and not output.limits for output in op.all_outputs)
    named = (*own, *(limit.store for limit in op.all_limits), *((op.buffer_name,) if closing else ()))
    return tuple(dict.fromkeys(named))


def chosen(found: Sequence[Described], store: str | None) -> tuple[int, str]:
    """The operator with the store `store`, as its place in `found`, and the name of the store.

    Of several operators the last one has it. Without a name the store is that of the last aggregation, or of the last
    operator if all are joins.

    found  the operators of a checkpoint, the last one first

    Raises DefinitionError if no operator has the store.
    """
    if store is None:
        last = next((place for place, described in enumerate(found) if not operator_of(described.layout).own_stores), 0)
        return last, stores(found[last])[0]
    known = [(place, name) for place, described in enumerate(found) for name in stores(described)]
    for place, name in known:
        if isinstance(store, str) and name == store:
            return place, name
    raise DefinitionError(
        f"There is no store {in_one_line(store)}. The stores are {', '.join(repr(name) for _, name in known)}. "
        'An aggregation names its own with Materialized.as_("name"), a suppression with .with_name("name").'
    )


def ended(earliest: int | datetime | None, latest: int | datetime | None) -> tuple[int | None, int | None]:
    """A range of window ends in ms, both ends included; None is open. Raises as `given_instant_ms`."""
    return (
        None if earliest is None else given_instant_ms(earliest, "ended_from"),
        None if latest is None else given_instant_ms(latest, "ended_to"),
    )


def schema(described: Described, store: str) -> pa.Schema:
    """The columns of a store's rows. An aggregation: result columns but `DELETED`, and `STATUS` ("open" or "closed").

    One side of a join: key, values and timestamp of its open records, `STATUS` ("open", or "joined" if the record has a
    partner already) and `UNTIL` (the last stream time at which it is open, ms).

    A buffer: result columns, `SINCE` (the time from which the limit counts; null for a window that waits to close) and
    `UNTIL` (the time at which the row leaves, by the clock of the limit), in ms.
    """
    operator = operator_of(described.layout)
    if store in operator.own_stores:
        return _with(store, operator.own_schema(store), pa.field(STATUS, pa.string()), pa.field(UNTIL, pa.int64()))
    if store == described.layout.op.name:
        rows = described.layout.so_far.result_schema
        # An aggregation stores no tombstones; a buffer holds them back as rows.
        if DELETED in rows.names:
            rows = rows.remove(rows.get_field_index(DELETED))
        return _with(store, rows, pa.field(STATUS, pa.string()))
    return _with(store, _buffered(described, store)[0], pa.field(SINCE, pa.int64()), pa.field(UNTIL, pa.int64()))


def _with(store: str, rows: pa.Schema, *ours: pa.Field) -> pa.Schema:
    """The columns of rows and `ours`. Raises DefinitionError if rows have a column with the name of one of `ours`."""
    for field in ours:
        if (name := public_name(field.name)) in rows.names:
            raise DefinitionError(
                f"The store {store!r} has a column {name!r}, a name that rows of a store use themselves "
                f"({', '.join(STATE_COLUMNS)}), so that they cannot be read. Give the aggregate or the column another "
                "name."
            )
    return pa.schema([*rows, *ours])


def rows(
    described: Described, store: Store, name: str, ended: tuple[int | None, int | None] = (None, None)
) -> pa.Table:
    """The rows of the store `name`, whose windows end from `ended[0]` to `ended[1]` (ms, both included)."""
    layout, shape = described.layout, schema(described, name)
    state = State.open(store)
    if state is None:
        return shape.empty_table()
    layout = compatibility.evolved(state, layout)
    described = replace(described, layout=layout)
    operator = operator_of(layout)
    if name in operator.own_stores:
        found = operator.own_rows(state, name)
    else:
        found = _of_aggregation(layout, state) if name == layout.op.name else _of_buffer(described, state, name)
    found = as_schema(concat_tables([shape.empty_table(), *found]).select(shape.names), shape)
    return found if ended == (None, None) else _ending(found, *ended)


def _ending(found: pa.Table, earliest: int | None, latest: int | None) -> pa.Table:
    if END not in found.schema.names:  # windows of rows may be in the key alone
        raise DefinitionError("`ended_from` and `ended_to` are about windows, and this store has none. Leave them out.")
    end = ints(found[END])
    kept = np.ones(len(end), bool) if earliest is None else end >= earliest
    return found.filter(pa.array(kept if latest is None else kept & (end <= latest)))


def _of_aggregation(layout: Layout, state: State) -> list[pa.Table]:
    parts = [("open", part) for part in operator_of(layout).results_so_far(state)]
    if layout.op.windows is not None:
        parts.append(("closed", retention.rows(layout, state)))
    return [rows.append_column(STATUS, pa.repeat(status, rows.num_rows)) for status, rows in parts]


def _buffered(described: Described, store: str) -> tuple[pa.Schema, tuple[Output, int] | None]:
    """The columns of the rows that wait in a store, and the limit that they wait for: (output, number there)."""
    for output in described.layout.op.all_outputs:
        for number, limit in enumerate(output.limits):
            if limit.store == store:
                return described.buffered[limit.place], (output, number)
    return described.layout.so_far.result_schema, None


def _of_buffer(described: Described, state: State, store: str) -> list[pa.Table]:
    schema, limit = _buffered(described, store)
    if limit is not None:
        output, number = limit
        buffered = _waiting(described.layout.of_limit(output, number), schema, state.store)
        until = later_ms(ints(buffered[SINCE]), output.limits[number].how.limit_ms)
        return [buffered.append_column(UNTIL, pa.array(until))]
    parts = operator_of(described.layout).results_so_far(state)
    return [part.append_column(UNTIL, pa.array(closed_at(described.layout, part))) for part in parts]


def _waiting(layout: Layout, schema: pa.Schema, store: Store) -> pa.Table:
    """The rows that wait for a limit, of `schema` and with `SINCE`: the time (ms) from which a limit counts."""
    waiting = time_limit.waiting(layout, store)
    if not waiting.num_rows:
        return schema.append(pa.field(SINCE, pa.int64())).empty_table()
    for field in schema:
        if field.name not in waiting.schema.names:  # an aggregate that was added while the rows waited
            waiting = waiting.append_column(field, pa.nulls(waiting.num_rows, field.type))
    return waiting.select([*schema.names, BUFFER_TIME]).rename_columns([*schema.names, SINCE])
