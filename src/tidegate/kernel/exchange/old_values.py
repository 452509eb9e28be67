"""Old values of a table: each row replaces the last row of its key (and window) that left before it.

An operator that needs old values keeps the last row that left for each key, in a table of its own (`state.keyed_runs`).
It keeps no row of a window that no record can change any more.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tidegate.kernel.columns.arrays import Flags, Ints, array, concat_tables, flags
from tidegate.kernel.columns.groups import last_rows, previous_rows
from tidegate.kernel.rows import result_keys
from tidegate.kernel.rows.closing import closed_at
from tidegate.kernel.rows.layout import Layout
from tidegate.kernel.state.keyed_runs import KeyedRuns
from tidegate.kernel.state.log_index import LogIndex
from tidegate.kernel.state.state import State
from tidegate.kernel.time.stream_time import NEVER
from tidegate.plan import Limit
from tidegate.spec.columns import DELETED, LIVE, TIMESTAMP

_NOT_KEPT = (LIVE, DELETED, TIMESTAMP)

_PREFIX = "r:"
"""Prefix of each stored column."""


@dataclass(frozen=True)
class Replaced:
    """Old and new `rows`, with the column `LIVE`: whether a row is no tombstone.

    new     places of the new rows, which lie behind the old ones
    before  for each new row, the place of the row that it replaces, if it has one
    has     for each new row, whether it replaces a row that was live
    """

    rows: pa.Table
    new: Ints
    before: Ints
    has: Flags


def replace(layout: Layout, index: LogIndex, rows: pa.Table, closed_through: int) -> Replaced:
    """Store new rows (`layout.result_schema`, in order) as old values. Returns the rows that they replace.

    index      the ranges of the old values
    closed_through  no further row comes of windows that close up to this stream time (ms): their last rows are not kept
    """
    stored = _stored_values(layout, index, closed_through)
    rows, hashes = rows.append_column(LIVE, _live(rows)), result_keys.key_hashes(layout, rows)
    many = rows.num_rows > 0 and stored.are_many(hashes)
    old = _rows_of_all_windows(layout, stored) if many else _last_versions(layout, stored.find(hashes))
    old = None if old is None else _as_emitted(old)
    both = rows if old is None else concat_tables([_with_columns_of(old, rows), rows])
    codes = np.unique(result_keys.codes(layout, both), return_inverse=True)[1]
    before, has = previous_rows(codes)
    live = flags(both[LIVE])
    new = np.arange(both.num_rows - rows.num_rows, both.num_rows)
    if rows.num_rows:
        last = last_rows(codes)
        last = last if many else last[last >= new[0]]
        mine, had = both.take(pa.array(last)), np.isin(codes[last], codes[: new[0]])
        stays = live[last] & _open(layout, closed_through, mine)
        if many:
            mine = mine.filter(pa.array(stays))
            stored.replace(_stored(mine, np.zeros(mine.num_rows, bool)), result_keys.key_hashes(layout, mine))
        else:
            _keep(layout, stored, mine, had, stays)
    return Replaced(both, new, before[new], (has & live[before])[new])


def closed_and_gone(state: State, limits: Iterable[Limit]) -> int:
    """The stream time (ms) up to which windows have closed and have no row that waits for these limits.

    The limits have taken the rows of this batch. A row begins to wait before its window closes, by stream time. So a
    window that closes no later than the first waiting row began to wait has no row there. Of a limit by the wall clock
    this is known only while nothing waits.
    """
    closed_through = state.stream_time
    for limit in limits:
        if limit.place in state.due:
            leaves, _ = state.due[limit.place]
            closed_through = min(closed_through, leaves - limit.how.limit_ms) if limit.how.clock == "stream" else NEVER
    return closed_through


def forget(layout: Layout, index: LogIndex) -> None:
    """Drop all old values."""
    _stored_values(layout, index, NEVER).forget()


def _stored_values(layout: Layout, index: LogIndex, closed_through: int) -> KeyedRuns:
    """The old values: the last row of each key and window, as long as it can change."""
    return KeyedRuns.of(index, index.store, partial(_current, layout, closed_through))


def _open(layout: Layout, closed_through: int, rows: pa.Table) -> Flags:
    """Whether each of these rows can still change."""
    if closed_through == NEVER or layout.op.windows is None:
        return np.ones(rows.num_rows, bool)
    found: Flags = closed_at(layout, rows) > closed_through
    return found


def _current(layout: Layout, closed_through: int, versions: pa.Table) -> pa.Table:
    """The last version of each key and window that is not closed, without versions that are `deleted`."""
    rows = _as_emitted(versions)
    last = last_rows(result_keys.codes(layout, rows))
    found = versions.take(pa.array(last[_open(layout, closed_through, rows)[last]]))
    return found.filter(pc.invert(found["deleted"]))


def _keep(layout: Layout, stored: KeyedRuns, rows: pa.Table, had: Flags, stays: Flags) -> None:
    """Store the rows that stay, and deletions of the others; one row for each key. `had`: whether its key has a row."""
    matters = stays | had
    rows, stays, had = rows.filter(pa.array(matters)), stays[matters], had[matters]
    if rows.num_rows:
        stored.add(_stored(rows, ~stays), result_keys.key_hashes(layout, rows), stays.astype(np.int64) - had)


def _rows_of_all_windows(layout: Layout, stored: KeyedRuns) -> pa.Table | None:
    """The last versions of all keys, also of windows that this batch closes."""
    return KeyedRuns(stored.index, stored.runs, partial(_current, layout, NEVER)).whole()


def _last_versions(layout: Layout, parts: Iterable[pa.Table]) -> pa.Table | None:
    """The last versions in `parts`, also of windows that this batch closes: its rows still replace them."""
    found = list(parts)
    return _current(layout, NEVER, concat_tables(found)) if found else None


def _stored(rows: pa.Table, deleted: Flags) -> pa.Table:
    """Rows that left as versions to store; `deleted`: whether a version says that there is no row."""
    rows = rows.drop_columns([name for name in _NOT_KEPT if name in rows.schema.names])
    return rows.rename_columns([f"{_PREFIX}{name}" for name in rows.schema.names]).append_column(
        "deleted", pa.array(deleted)
    )


def _as_emitted(versions: pa.Table) -> pa.Table:
    """Stored versions as the rows that left."""
    rows = versions.drop_columns(["h", "deleted"])
    return rows.rename_columns([name.removeprefix(_PREFIX) for name in rows.schema.names])


def _live(rows: pa.Table) -> Any:
    if DELETED not in rows.schema.names:
        return pa.repeat(pa.scalar(True), rows.num_rows)
    return pc.invert(array(rows[DELETED]))


def _with_columns_of(old: pa.Table, rows: pa.Table) -> pa.Table:
    """Old values with the columns of the new `rows`."""
    not_kept = {LIVE: pa.scalar(True), DELETED: pa.scalar(False), TIMESTAMP: pa.scalar(0, pa.int64())}
    for field in rows.schema:
        if field.name not in old.schema.names:
            # A column that is not stored, or that was added after these rows.
            value = not_kept.get(field.name)
            column = pa.nulls(old.num_rows, field.type) if value is None else pa.repeat(value, old.num_rows)
            old = old.append_column(field.name, column)
    return old.select(rows.schema.names)
