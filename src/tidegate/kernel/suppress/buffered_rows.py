"""The rows that a time limit holds back, in a form that can be read without the plan."""

from __future__ import annotations

import pyarrow as pa

from tidegate.kernel.rows.layout import Layout
from tidegate.kernel.state.store import Store
from tidegate.kernel.suppress import time_limit
from tidegate.kernel.suppress.time_buckets import BUFFER_TIME
from tidegate.spec.columns import SINCE


def rows(layout: Layout, schema: pa.Schema, store: Store) -> pa.Table:
    """The rows in the buffer, of `schema` and with `SINCE`: the time (ms) from which each key's limit counts."""
    if not time_limit.known(layout, store):
        return schema.append(pa.field(SINCE, pa.int64())).empty_table()
    buffered = time_limit.waiting(layout, store)
    for field in schema:
        if field.name not in buffered.schema.names:  # an aggregate that was added while the rows waited
            buffered = buffered.append_column(field, pa.nulls(buffered.num_rows, field.type))
    return buffered.select([*schema.names, BUFFER_TIME]).rename_columns([*schema.names, SINCE])
