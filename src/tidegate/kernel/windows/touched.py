"""The entries (key and window) that the records of a batch touch."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from tidegate.kernel.aggregates.base import valid_rows
from tidegate.kernel.columns.arrays import Flags, Ints, array, concat_tables, ints
from tidegate.kernel.columns.groups import Groups
from tidegate.kernel.rows.grouping import codes
from tidegate.kernel.rows.layout import Layout
from tidegate.kernel.time.stream_time import NEVER


@dataclass(frozen=True)
class Touched:
    """The entries (key and window) that records touch, numbered from 0 in the order of their first records."""

    number: Ints
    """The entry of each record."""
    heads: pa.Table
    """Key and start of each entry."""
    values: pa.Array
    """The stored aggregate of each entry, null if there is none."""
    since: Ints
    """The stored timestamp of each entry, NEVER if there is none."""
    stored: Flags
    """Whether each entry was stored, also as a deleted one."""
    rest: pa.Table | None
    """The stored rows of other entries."""

    @classmethod
    def of(cls, layout: Layout, rows_before: pa.Table | None, rows: pa.Table) -> Touched:
        by = [*layout.keys, "start"]
        if rows_before is None:
            groups = Groups.of(codes([rows[name] for name in by]))
            size = len(groups.first)
            nothing = pa.nulls(size, layout.function_type)
            since, stored = np.full(size, NEVER), np.zeros(size, np.bool_)
            return cls(groups.number, rows.select(by).take(pa.array(groups.first)), nothing, since, stored, None)
        # Records come first, so that the entries that they touch get the lowest numbers.
        both = concat_tables([rows.select(by), rows_before.select(by)])
        groups = Groups.of(codes([both[name] for name in by]))
        number, of_rows_before = groups.number[: rows.num_rows], groups.number[rows.num_rows :]
        size = int(number.max(initial=-1)) + 1
        mine = np.flatnonzero(of_rows_before < size)
        place = np.full(size, -1)
        place[of_rows_before[mine]] = mine
        stored = place >= 0
        heads = both.take(pa.array(np.where(stored, rows.num_rows + place, groups.first[:size])))
        values = array(rows_before["s:0:0"]).take(pa.array(place, mask=~stored))
        since = np.where(stored, ints(rows_before["ts"])[place], NEVER)
        if layout.op.buffer is not None:
            since[~valid_rows(values)] = NEVER  # deleted, and there only for the room it takes
        rest = rows_before.select([*by, "ts", "s:0:0"]).filter(pa.array(of_rows_before >= size))
        return cls(number, heads, values, since, stored, rest)

    def with_rest(self, table: pa.Table) -> pa.Table:
        """All entries after the batch: `table` and the entries that the batch did not touch."""
        return table if self.rest is None else concat_tables([self.rest, table.select(self.rest.schema.names)])


def with_state(entries: pa.Table, stamps: pa.Array, values: pa.Array) -> pa.Table:
    """Entries with their state: timestamps (ms) and aggregates."""
    return entries.append_column("ts", stamps).append_column("s:0:0", values)


def with_deleted(entries: pa.Table) -> pa.Table:
    """Entries with a column `deleted`: whether the aggregate is null."""
    return entries.append_column("deleted", pa.array(~valid_rows(array(entries["s:0:0"]))))


def in_time(updates: pa.Table) -> pa.Table:
    """Updates in timestamp order, then by the start of their windows."""
    return updates.take(pa.array(np.lexsort((ints(updates["start"]), ints(updates["ts"])))))
