"""Sessions of many keys at once, where the order of the records cannot matter.

Stored sessions and records of a key, sorted by start, form stretches with no more than the gap between neighbours. A
stretch is one session in every order of arrival, if each member was still open when the neighbour that it joins came:
then every record found the session of the records before it. A key with a stretch that fails this, or with a record
that was late by itself, goes to `sessions.apply`, record by record.

    gap 5, no grace: A@0, B@6, A@5 gives A two sessions: B closes the session at 0 before 5 comes. A is taken in order.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from tidegate.kernel.columns import radix_sort
from tidegate.kernel.columns.arrays import Flags, Ints, array, ints, with_column
from tidegate.kernel.columns.groups import Groups
from tidegate.kernel.rows import grouping
from tidegate.kernel.rows.layout import Layout
from tidegate.kernel.time.stream_time import NEVER
from tidegate.spec.windows import SessionWindows

_ROOM = 2**62


def applies(layout: Layout) -> bool:
    """Whether only the last state of a session counts: final results of aggregates that no order can change."""
    at_the_end = layout.op.emits == "final" and layout.op.buffer is None
    return isinstance(layout.op.windows, SessionWindows) and at_the_end and layout.op.combinable


def apply(
    layout: Layout, stored: pa.Table, stored_codes: Ints, records: pa.Table, codes: Ints
) -> tuple[pa.Table, Flags, Flags]:
    """The sessions of the keys that can be merged at once; flags of the stored rows and records of all other keys.

    `stored_codes` and `codes` number the keys of `stored` and of `records`.
    """
    windows = layout.op.windows
    assert isinstance(windows, SessionWindows)
    members = _members(layout, stored, records)
    closing_time = np.concatenate((np.full(len(stored_codes), NEVER), ints(records["closing_time"])))
    start, end = ints(members["start"]), ints(members["end"])
    stretch, in_order = stretches(windows, np.concatenate((stored_codes, codes)), start, end, closing_time)
    if in_order.any():
        members, stretch = members.filter(pa.array(~in_order)), stretch[~in_order]
    return _merged(layout, members, stretch), in_order[: len(stored_codes)], in_order[len(stored_codes) :]


def stretches(windows: SessionWindows, codes: Ints, start: Ints, end: Ints, closing_time: Ints) -> tuple[Ints, Flags]:
    """The stretch of each member, and flags of the members whose key must be taken in order.

    A member is a stored session or a record; `codes` number the keys. `closing_time` is the stream time that decides
    which sessions are closed for a record, NEVER for a stored session. Stretches are numbered from 0.
    """
    low = int(start.min())
    span = int(end.max()) - low + 1
    if int(codes.max(initial=0)) * span > _ROOM:
        return np.zeros(len(codes), np.int64), np.ones(len(codes), np.bool_)
    # All keys lie on one axis, each with a span of its own.
    own = codes * span
    begins, reach = own + (start - low), own + (end - low)
    order = radix_sort.argsort(begins)
    own, begins, reach = own[order], begins[order], reach[order]
    now: Any = closing_time[order]
    furthest = np.maximum.accumulate(reach)
    before = np.concatenate((own[:1] - 1, furthest[:-1]))
    joins = (before >= own) & (begins - before <= windows.inactivity_gap_ms)
    # The earlier member that reaches furthest: the next member joins it.
    place = np.maximum.accumulate(np.where(reach == furthest, np.arange(len(order)), 0))
    later: Any = np.maximum(now[1:], now[place[:-1]])
    to_time = low - own
    open_by_itself = (now == NEVER) | (reach + to_time >= windows.open_from_ms(now))
    open_when_joined = np.minimum(reach, before)[1:] + to_time[1:] >= windows.open_from_ms(later)
    stretch = np.empty(len(order), np.int64)
    stretch[order] = np.cumsum(~joins) - 1
    unsafe = ~open_by_itself
    unsafe[1:] |= joins[1:] & ~open_when_joined
    if not unsafe.any():
        return stretch, unsafe
    in_order = np.zeros(int(codes.max()) + 1, np.bool_)
    in_order[codes[order[unsafe]]] = True
    return stretch, in_order[codes]


def _merged(layout: Layout, members: pa.Table, stretch: Ints) -> pa.Table:
    """One session per stretch (key, start, end, ts, state); `members` have the same columns."""
    if members.num_rows == 0:
        return members
    groups = Groups.of(stretch)
    rows = grouping.merge(layout, members, [*layout.keys, "start"], groups)
    rows = with_column(rows, "start", groups.fold(array(members["start"]), "min"))
    end = groups.fold(array(members["end"]), "max")
    # The timestamp of a session is its end.
    rows = with_column(rows, "ts", end).append_column("end", end)
    return rows.select(members.schema.names)


def _members(layout: Layout, stored: pa.Table, records: pa.Table) -> pa.Table:
    """Stored sessions, then records as sessions of one instant."""
    lifted = grouping.lift(layout, records)
    ts = ints(records["ts"])
    columns = {name: lifted[name] for name in layout.keys} | {"start": ts, "end": ts, "ts": ts}
    fresh = pa.table(columns | {name: lifted[name] for name in layout.state})
    both = [stored.select(fresh.schema.names), fresh] if stored.num_rows else [fresh]
    return pa.concat_tables(both, promote_options="default")
