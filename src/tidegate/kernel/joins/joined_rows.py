"""Rows of a join: the key, the values of both sides by the names that the plan gives them, and a timestamp."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from tidegate.kernel.columns.arrays import Ints, array
from tidegate.kernel.joins.arrivals import Bools
from tidegate.kernel.rows.layout import Layout
from tidegate.spec.columns import DELETED, TIMESTAMP
from tidegate.spec.joined import SIDES
from tidegate.spec.windows import LEFT, RIGHT


def side_columns(layout: Layout, side: int) -> list[str]:
    """The columns of a side: those of the key and of its values."""
    return [*layout.keys, *(f"v:{name}" for name in layout.values_of(side))]


def conformed(rows: pa.Table, columns: list[str]) -> pa.Table:
    """These columns; one that a side had not yet when the rows were stored is null."""
    for name in columns:
        if name not in rows.schema.names:
            rows = rows.append_column(name, pa.nulls(rows.num_rows))
    return rows.select(columns)


def taken(rows: pa.Table, at: Ints) -> pa.Table:
    """The rows at these places; a place below 0 gives a row of nulls."""
    if not len(at) or at.min() >= 0:
        return rows.take(pa.array(at))
    return rows.take(pa.array(at, mask=at < 0))


def joined_rows(
    layout: Layout,
    keys: pa.Table,
    sides: tuple[pa.Table | None, pa.Table | None],
    times: Ints,
    *,
    missing: tuple[Bools | None, Bools | None] = (None, None),
    deleted: Bools | None = None,
) -> pa.Table:
    """Rows of `Layout.result_schema` (without steps).

    sides    columns `v:name` of either side, None if it is missing in all rows
    missing  in which rows a side is missing, None if in none; their values are null already
    deleted  which rows are tombstones, where the rows are a table
    """
    joined = layout.op.joined
    assert joined is not None
    columns: dict[str, Any] = {name: keys[f"k:{name}"] for name in layout.op.key}
    types = [layout.values_of(side) for side in (LEFT, RIGHT)]
    if joined.values is not None:
        for side in (LEFT, RIGHT):
            columns[SIDES[side]] = _struct(types[side], sides[side], len(times), missing[side])
    else:
        for named, types_of, table in zip(joined.names(*map(list, types)), types, sides, strict=True):
            for name, kind in types_of.items():
                columns[named[name]] = pa.nulls(len(times), kind) if table is None else table[f"v:{name}"]
    columns[TIMESTAMP] = pa.array(times)
    if deleted is not None:
        columns[DELETED] = pa.array(deleted)
    return pa.table(columns).cast(layout.result_schema)


def _struct(types: dict[str, pa.DataType], table: pa.Table | None, rows: int, missing: Bools | None) -> pa.Array:
    kind = pa.struct(list(types.items()))
    if table is None:
        return pa.nulls(rows, kind)
    mask = None if missing is None else pa.array(missing)
    if not types:
        gone = np.zeros(rows, bool) if missing is None else missing
        return pa.array([None if one else {} for one in gone.tolist()], kind)
    values = [array(table[f"v:{name}"]).cast(t) for name, t in types.items()]
    return pa.StructArray.from_arrays(values, fields=list(kind), mask=mask)
