"""The order in which rows of a join of two streams leave (SEMANTICS 7b).

Rows are ordered by the record at which they leave; at one record first rows of closing records, then its pairs, then
its own null-joined row.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tidegate.kernel.columns.arrays import Ints, ints
from tidegate.kernel.columns.sorting import by_columns, by_several, in_one_piece
from tidegate.kernel.joins.arrivals import Arrived
from tidegate.kernel.joins.matching import Records
from tidegate.kernel.rows.layout import Layout
from tidegate.kernel.rows.results import serial
from tidegate.spec.windows import LEFT

_CLOSES, _PAIR, _OWN = 0, 1, 2
"""The rows that leave at a record, in this order: closing records, its pairs, its own null-joined row."""

At = tuple[Records, Ints]
"""Some records of a side: all its records, and the places of some in them."""

Part = tuple[pa.Table, pa.Table | None]
"""Rows that leave, and their sort columns if rows leave in order."""


def order_of_pairs(one: At, other: At) -> pa.Table:
    """The sort columns of pairs: a record's pairs leave by (timestamp, arrival) of the partner that came before it."""
    (records, rows), (others, partners) = one, other
    places, theirs = records.arrived[rows], others.arrived[partners]
    later = places > theirs
    return pa.table(
        {
            "place": np.maximum(places, theirs),
            "what": np.full(len(rows), _PAIR),
            "time": np.where(later, others.times[partners], records.times[rows]),
            "arrival": np.minimum(places, theirs),
        }
    )


def order_of_closing(layout: Layout, records: Records, number: int, rows: Ints, clock: tuple[Ints, int]) -> pa.Table:
    """The sort columns of null-joined rows: records close by (timestamp, right before left, key bytes, arrival)."""
    closing_times, each = clock
    closes, places = records.closes(rows), records.arrived[rows]
    at_once = (places >= 0) & (records.closing_times[rows] >= closes)
    columns: dict[str, Any] = {
        "place": np.where(at_once, places, np.searchsorted(closing_times, closes, side="left") * each),
        "what": np.where(at_once, _OWN, _CLOSES),
        "time": records.times[rows],
        "side": np.full(len(rows), 1 - number),
    }
    keys = records.rows.select(layout.keys).take(pa.array(rows))
    if layout.sorts:
        # A key without a type yet has the type of the other side's key.
        known = {name: not pa.types.is_null(keys[name].type) for name in layout.keys}
        columns |= {name: serial(keys[name]) if known[name] else keys[name] for name in layout.keys}
    columns["arrival"] = places
    return pa.table(columns)


def clock_of(arrivals: tuple[Arrived, Arrived], doubled: bool) -> tuple[Ints, int]:
    """The closing times of the records of the batch, in order, and the number of places per record (`doubled`: two)."""
    if doubled:
        return arrivals[LEFT].closing_times, 2
    places = np.concatenate([one.places for one in arrivals])
    closing_times = np.concatenate([one.closing_times for one in arrivals])
    return closing_times[np.argsort(places)], 1


def in_leaving_order(parts: list[Part]) -> pa.Table:
    """The rows of all parts in the order in which they leave."""
    by = pa.concat_tables([order for _, order in parts if order is not None], promote_options="default")
    keys = [one.name for one in by.schema if one.name.startswith("k:") and not pa.types.is_null(one.type)]
    names = [name for name in ("place", "what", "time", "side", *keys, "arrival") if name in by.schema.names]
    if keys:
        order = ints(by_columns(by.select(names)))
    else:
        # Only rows of closing records have a side; for pairs it is null.
        order = by_several([ints(pc.fill_null(by[name], 0)) for name in names])
    return in_one_piece([rows for rows, _ in parts], order)
