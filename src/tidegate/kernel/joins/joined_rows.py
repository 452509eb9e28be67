"""Rows of a join: the key, the values of both sides by the names that the plan gives them, and a timestamp."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from tidegate.kernel.columns.arrays import Flags, Ints, array, as_schema, as_type
from tidegate.kernel.rows import row_ids
from tidegate.kernel.rows.layout import ID_COLUMN, Layout
from tidegate.spec.columns import DELETED, ROW_ID, TIMESTAMP
from tidegate.spec.joined import SIDES
from tidegate.spec.windows import LEFT, RIGHT


def side_columns(layout: Layout, side: int) -> list[str]:
    """The columns of a side: the key, its values, and the id if its records have ids."""
    ids = [ID_COLUMN] if layout.has_ids(side) else []
    return [*layout.keys, *(f"v:{name}" for name in layout.values_of(side)), *ids]


def conformed(rows: pa.Table, columns: list[str]) -> pa.Table:
    """These columns of the rows; a column that was added after the rows were stored is null."""
    for name in columns:
        if name not in rows.schema.names:
            rows = rows.append_column(name, pa.nulls(rows.num_rows))
    return rows.select(columns)


def take_or_null(rows: pa.Table, at: Ints) -> pa.Table:
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
    missing: tuple[Flags | None, Flags | None] = (None, None),
    deleted: Flags | None = None,
    ids: Any = None,
) -> pa.Table:
    """Rows of `Layout.result_schema` (without steps).

    sides    columns `v:name` of either side, None if it is missing in all rows
    missing  in which rows a side is missing, None if in none; their values are null already
    deleted  which rows are tombstones, where the rows are a table
    ids      ids of the rows, if they have any; by default made from the records of both sides
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
    if layout.has_row_ids:
        columns[ROW_ID] = _ids(layout, sides) if ids is None else ids
    columns[TIMESTAMP] = pa.array(times)
    if deleted is not None:
        columns[DELETED] = pa.array(deleted)
    return as_schema(pa.table(columns), layout.result_schema)


def _ids(layout: Layout, sides: tuple[pa.Table | None, pa.Table | None]) -> Any:
    if not layout.has_ids(RIGHT):
        looks_up = sides[LEFT]
        assert looks_up is not None
        return looks_up[ID_COLUMN]
    return row_ids.of_sides(*(None if side is None else side[ID_COLUMN] for side in sides))


def _struct(types: dict[str, pa.DataType], table: pa.Table | None, rows: int, missing: Flags | None) -> pa.Array:
    kind = pa.struct(list(types.items()))
    if table is None:
        return pa.nulls(rows, kind)
    mask = None if missing is None else pa.array(missing)
    if not types:
        gone = np.zeros(rows, bool) if missing is None else missing
        return pa.array([None if one else {} for one in gone.tolist()], kind)
    values = [as_type(array(table[f"v:{name}"]), t) for name, t in types.items()]
    return pa.StructArray.from_arrays(values, fields=list(kind), mask=mask)
