"""Late and skipped records of a join as rows, with their side.

The join decides which records are late (`JoinOperator.report_late`).
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tidegate.kernel.columns.arrays import Ints, as_schema, ints, with_column
from tidegate.kernel.exchange.batch import Batch
from tidegate.kernel.exchange.join_batch import JoinBatch
from tidegate.kernel.joins.joined_rows import conformed, joined_rows, side_columns
from tidegate.kernel.rows.layout import Layout
from tidegate.kernel.rows.record_times import arrival_times, known_times
from tidegate.spec.columns import LATE_BY, REASON, SIDE, STREAM_TIME, TIMESTAMP
from tidegate.spec.joined import SIDES
from tidegate.spec.windows import LEFT, RIGHT

BOTH = "both"
"""The side of a record of a stream that is joined with itself."""


def rows(layout: Layout, batch: Batch) -> pa.Table:
    """Rows of `Layout.late_schema`: one per late record, then one per record that was skipped."""
    assert isinstance(batch, JoinBatch)
    joined = layout.op.joined
    assert joined is not None
    parts = []
    for side, found in batch.dropped.items():
        name = BOTH if joined.self_join else SIDES[side]
        by = ints(arrival_times(found)) - ints(found["ts"])
        parts.append(_shaped(layout, found, side, name, pa.repeat("late", found.num_rows), by))
    for side in (LEFT,) if joined.self_join else (LEFT, RIGHT):
        name = BOTH if joined.self_join else SIDES[side]
        if (found := batch.side(side).skipped()) is not None:
            nothing = pa.nulls(found.num_rows, pa.int64())
            parts.append(_shaped(layout, found, side, name, found["reason"], nothing))
    return pa.concat_tables(parts) if parts else layout.late_schema.empty_table()


def _shaped(layout: Layout, found: pa.Table, side: int, name: str, reason: Any, by: Ints | pa.Array) -> pa.Table:
    mine = conformed(found, side_columns(layout, side))
    sides = (mine, None) if side == LEFT else (None, mine)
    deleted = None
    if layout.op.deletes:
        flags = found["deleted"] if "deleted" in found.schema.names else pa.repeat(False, found.num_rows)
        deleted = pc.fill_null(flags, False).to_numpy(zero_copy_only=False)
    made = joined_rows(layout, mine, sides, ints(found["ts"]), deleted=deleted)
    made = with_column(made, TIMESTAMP, known_times(found["ts"]))
    more = {SIDE: pa.repeat(name, found.num_rows), REASON: reason, LATE_BY: by}
    more |= {STREAM_TIME: known_times(arrival_times(found))}
    for column, values in more.items():
        made = made.append_column(column, pa.array(values) if isinstance(values, np.ndarray) else values)
    return as_schema(made.select(layout.late_schema.names), layout.late_schema)
