"""A table given as its changes: every upsert and tombstone is forwarded, in the order in which they came."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from tidegate.kernel.columns.arrays import as_schema
from tidegate.kernel.exchange.batch import Batch
from tidegate.kernel.operator import Operator
from tidegate.kernel.rows.layout import Layout
from tidegate.kernel.rows.map_filter import CLOSING_TIME
from tidegate.kernel.state.state import State
from tidegate.spec.columns import DELETED, TIMESTAMP


class Changelog(Operator):
    """Forwards the changes of a table; stores nothing."""

    def process(self, state: State, batch: Batch, closes_at: int) -> Iterable[pa.Table]:
        return [_changes(self.layout, batch)]


def _changes(layout: Layout, batch: Batch) -> pa.Table:
    """The changes of the batch as result rows; a tombstone's value columns are null. Nothing is late."""
    records = batch.records()
    if records is None:
        return layout.result_schema.empty_table()
    columns: dict[str, Any] = {name: records[f"k:{name}"] for name in layout.op.key}
    values = {name: records[f"v:{name}"] for name in layout.result_types}
    if layout.op.deleted is None:
        columns |= values | {TIMESTAMP: records["ts"]}
    else:
        deleted = records["deleted"]
        kept = {name: pc.if_else(deleted, pa.scalar(None, column.type), column) for name, column in values.items()}
        columns |= kept | {TIMESTAMP: records["ts"], DELETED: deleted}
    rows = as_schema(pa.table(columns), layout.result_schema)
    return rows.append_column(CLOSING_TIME, records["closing_time"]) if layout.op.buffers_by_stream_time else rows
