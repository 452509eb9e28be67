"""What a suppression until a time limit holds back, as rows that can be read without the plan."""

from __future__ import annotations

import pyarrow as pa

from tidegate.kernel import suppression
from tidegate.kernel.layout import Layout
from tidegate.kernel.shelves import SINCE
from tidegate.kernel.store import Store


def rows(layout: Layout, schema: pa.Schema, store: Store) -> pa.Table:
    """The rows in the buffer, of `schema` and with `__since`: the time (ms) from which each key's limit counts."""
    if store.get("buffer") is None:
        return schema.append(pa.field("__since", pa.int64())).empty_table()
    held = suppression.waiting(layout, store)
    for field in schema:
        if field.name not in held.schema.names:  # an aggregate that was added while the rows waited
            held = held.append_column(field, pa.nulls(held.num_rows, field.type))
    return held.select([*schema.names, SINCE]).rename_columns([*schema.names, "__since"])
