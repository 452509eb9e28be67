"""Whole numbers in as few bytes as their range needs, for the way through a shuffle and a socket.

Counts, window starts and timestamps of one batch lie close together: as differences from the smallest they take one
to four bytes of their eight. The smallest values are in the schema's metadata, so that a reader needs nothing else.
"""

from __future__ import annotations

import json

import numpy as np
import pyarrow as pa

from tidegate.kernel.columns.arrays import with_column

_BASES = b"tidegate.bases"
_WIDTHS = (np.uint8, np.uint16, np.uint32)


def narrowed(table: pa.Table) -> pa.Table:
    """`table` with its long columns as differences from their smallest value, where that is narrower."""
    bases: dict[str, int] = {}
    for index, field in enumerate(table.schema):
        column = table.column(index)
        if field.type != pa.int64() or column.null_count or not len(column):
            continue
        values = column.to_numpy()
        low, high = int(values.min()), int(values.max())
        width = next((w for w in _WIDTHS if high - low <= np.iinfo(w).max), None)
        if width is not None:
            table = table.set_column(index, field.name, pa.array((values - low).astype(width)))
            bases[field.name] = low
    metadata = table.schema.metadata or {}
    return table.replace_schema_metadata({**metadata, _BASES: json.dumps(bases)}) if bases else table


def widened(table: pa.Table) -> pa.Table:
    """The table that `narrowed` was given. Raises ValueError for a column that it did not make."""
    metadata = dict(table.schema.metadata or {})
    bases = json.loads(metadata.pop(_BASES, b"{}"))
    for name, low in bases.items():
        if not pa.types.is_unsigned_integer(table[name].type) or table[name].null_count or type(low) is not int:
            raise ValueError(f"the column {name!r} is {table[name].type} from {low!r}, not whole numbers from one")
        values = table[name].to_numpy().astype(np.int64)
        values += low
        table = with_column(table, name, pa.array(values))
    return table.replace_schema_metadata(metadata or None) if bases else table
