"""What a suppression until a time limit holds back, as rows that can be read without the plan."""

from __future__ import annotations

import pyarrow as pa

from tidegate.kernel import suppression
from tidegate.kernel.layout import Layout
from tidegate.kernel.shelves import BUFFER_TIME
from tidegate.kernel.store import Store
from tidegate.spec.columns import SINCE


def rows(layout: Layout, schema: pa.Schema, store: Store) -> pa.Table:
    """The rows in the buffer, of `schema` and with `SINCE`: the time (ms) from which each key's limit counts."""
    if store.get("buffer") is None:
        return schema.append(pa.field(SINCE, pa.int64())).empty_table()
    held = suppression.waiting(layout, store)
    for field in schema:
        if field.name not in held.schema.names:  # an aggregate that was added while the rows waited
            held = held.append_column(field, pa.nulls(held.num_rows, field.type))
    return held.select([*schema.names, BUFFER_TIME]).rename_columns([*schema.names, SINCE])
