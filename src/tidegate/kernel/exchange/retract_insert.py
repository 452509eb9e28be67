"""Groups a table anew: a change retracts the old row from its group, then inserts the new row into its own group.

The operator of the table keeps the last row that left for each key (and window), the old value of the next row
(`exchange.old_values`), with the columns that its groups read. It emits halves of changes, in order: `sign` -1 retracts
a row, 1 inserts one. A half that is `silent` is followed by the other half of its change in the same group, and makes
no update of its own.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from tidegate.errors import CheckpointError, DefinitionError
from tidegate.kernel.columns.arrays import flags, ints
from tidegate.kernel.exchange import old_values
from tidegate.kernel.rows import grouping
from tidegate.kernel.rows.layout import CHANGE_COLUMNS, Layout
from tidegate.kernel.state.state import State
from tidegate.spec.columns import DELETED, END, LIVE, START, TIMESTAMP, public_name
from tidegate.spec.types import is_atomic
from tidegate.spec.upgrade import CHOICES


def to_changes(layout: Layout, state: State, rows: pa.Table) -> pa.Table:
    """Changes (`Layout.repartitioned_columns`, `CHANGE_COLUMNS`) of the result rows that a table emits, in order."""
    _check_groups(layout, rows)
    # A column that the groups do not read is not kept: a step may give it another type.
    read = layout.repartitioned_columns(rows.schema.names).values()
    kept = {*layout.op.key, START, END, *read, TIMESTAMP, DELETED}
    rows = rows.select([name for name in rows.schema.names if name in kept])
    try:
        closed_through = old_values.closed_and_gone(state, layout.op.all_limits)
        found = old_values.replace(layout, state.old_values, rows, closed_through)
    except pa.ArrowTypeError as error:
        raise CheckpointError(
            "The rows that changes take out of their groups have columns of other types than the rows of this plan: "
            f"{error}. Nothing was changed: the old plan can go on from the checkpoint. {CHOICES}"
        ) from None
    return _halves(layout, state, found)


def _check_groups(layout: Layout, rows: pa.Table) -> None:
    """Raise DefinitionError if the rows of a table lack a column by which they are grouped."""
    assert layout.op.regroup is not None
    for name in layout.op.regroup.key:
        if name not in rows.schema.names or not is_atomic(rows[name].type):
            raise DefinitionError(f"group_by: the table has no column {public_name(name)!r} that can be a key.")


def _halves(layout: Layout, state: State, found: old_values.Replaced) -> pa.Table:
    """For each change, the half that retracts the old row, then the half that inserts the new row."""
    assert layout.op.regroup is not None
    rows, old, new = found.rows, found.before, found.new
    groups = [rows[name] for name in layout.op.regroup.key]
    grouped = np.logical_and.reduce([column.is_valid().to_numpy() for column in groups])
    codes = np.full(rows.num_rows, -1)
    codes[grouped] = grouping.codes([column.filter(pa.array(grouped)) for column in groups])
    takes, puts = found.has & grouped[old], (flags(rows[LIVE]) & grouped)[new]
    silent = takes & puts & (codes[old] == codes[new])
    at = np.stack([old, new], axis=1).ravel()
    when = np.repeat(ints(rows[TIMESTAMP])[new], 2)
    exists = np.stack([takes, puts], axis=1).ravel()
    columns: dict[str, Any] = {"ts": when, "sign": np.tile(np.array([-1, 1], np.int64), len(new))}
    columns["silent"] = np.stack([silent, np.zeros(len(new), bool)], axis=1).ravel()
    # A change comes after all earlier changes of its task: its rank never decreases.
    columns["rank"] = np.maximum.accumulate(when)
    # Two halves stay together, whatever other tasks have at the same rank.
    columns["place"] = (np.arange(len(when)) // 2 * state.tasks + state.task) * 2 + np.arange(len(when)) % 2
    assert set(columns) == set(CHANGE_COLUMNS)
    names = layout.repartitioned_columns(rows.schema.names)
    of_rows = {name: rows[column].take(pa.array(at)) for name, column in names.items()}
    made = pa.table(of_rows | {name: pa.array(column) for name, column in columns.items()})
    return made.filter(pa.array(exists))
