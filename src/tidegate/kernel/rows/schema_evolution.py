"""State that an earlier plan wrote, as the columns of today's plan: aggregates that moved, and those that were added.

A segment names the state columns of an aggregate by its slot, which stays when aggregates are added or reordered; the
rest of the kernel names them by its place in the plan. An aggregate that a segment does not have is put in as over one
null: a state like any other, which `results.finish` never shows.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

FROM_THE_START = -1
"""`Column.since` of an aggregate that was in the first plan."""

BORN = "born"
"""In rows of keys without closing windows: the change before which the key began, 0 for the first plan."""


@dataclass(frozen=True)
class Column:
    """Where an aggregate's state is kept, and since when: stream time (ms), or the number of the change for `BORN`."""

    slot: int
    since: int = FROM_THE_START


@dataclass(frozen=True)
class Fitting:
    """How stored rows become rows of the plan and back. `blank` is one row with the state of an aggregate over null."""

    columns: tuple[Column, ...]
    blank: pa.Table
    born: bool = False

    def inward(self, rows: pa.Table) -> pa.Table:
        """Rows of the plan, of stored ones."""
        there = {f"s:{column.slot}": f"s:{index}" for index, column in enumerate(self.columns)}
        rows = rows.rename_columns([_moved(name, there) for name in rows.schema.names])
        for name in self.blank.schema.names:
            if name not in rows.schema.names:
                nothing = self.blank[name].take(pa.array(np.zeros(rows.num_rows, np.int64)))
                rows = rows.append_column(name, nothing)
        if self.born and BORN not in rows.schema.names:
            rows = rows.append_column(BORN, pa.array(np.zeros(rows.num_rows, np.int64)))
        return rows

    def outward(self, rows: pa.Table) -> pa.Table:
        """Rows to store, of the plan's."""
        there = {f"s:{index}": f"s:{column.slot}" for index, column in enumerate(self.columns)}
        return rows.rename_columns([_moved(name, there) for name in rows.schema.names])


def _moved(name: str, there: dict[str, str]) -> str:
    place, _, part = name.rpartition(":")
    return f"{there[place]}:{part}" if place in there else name
