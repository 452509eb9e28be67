"""State of an earlier plan in the columns of today's plan: aggregates may have moved, or been added.

A segment names the state columns of an aggregate by its slot, which stays when aggregates are added or reordered; the
rest of the kernel names them by its place in the plan. An aggregate that a segment lacks gets the state of one null
value: a state like any other, which `results.finish` never shows.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

FROM_THE_START = -1
"""`Column.added_at` of an aggregate that was in the first plan."""

PLAN_CHANGES = "born"
"""Column of rows of keys without closing windows: the number of plan changes before the key began.

Checkpoints have the column by this name.
"""


@dataclass(frozen=True)
class Column:
    """The slot of an aggregate's state, and when it was added: stream time (ms), or a number of `PLAN_CHANGES`."""

    slot: int
    added_at: int = FROM_THE_START


@dataclass(frozen=True)
class SchemaEvolution:
    """Converts stored rows to rows of the plan and back. `blank`: one row with the state of one null per aggregate."""

    columns: tuple[Column, ...]
    blank: pa.Table
    counts_plan_changes: bool = False

    def from_stored(self, rows: pa.Table) -> pa.Table:
        """Stored rows as rows of the plan."""
        there = {f"s:{column.slot}": f"s:{index}" for index, column in enumerate(self.columns)}
        rows = rows.rename_columns([_moved(name, there) for name in rows.schema.names])
        for name in self.blank.schema.names:
            if name not in rows.schema.names:
                nothing = self.blank[name].take(pa.array(np.zeros(rows.num_rows, np.int64)))
                rows = rows.append_column(name, nothing)
        if self.counts_plan_changes and PLAN_CHANGES not in rows.schema.names:
            rows = rows.append_column(PLAN_CHANGES, pa.array(np.zeros(rows.num_rows, np.int64)))
        return rows

    def to_stored(self, rows: pa.Table) -> pa.Table:
        """Rows of the plan as rows to store."""
        there = {f"s:{index}": f"s:{column.slot}" for index, column in enumerate(self.columns)}
        return rows.rename_columns([_moved(name, there) for name in rows.schema.names])


def _moved(name: str, there: dict[str, str]) -> str:
    place, _, part = name.rpartition(":")
    return f"{there[place]}:{part}" if place in there else name
