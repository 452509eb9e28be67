"""Forwards the rows that an operator emits to the next operator, as records of a stream.

The next operator takes a batch in timestamp order. Rows at the same time come in the order of their keys, final results
in the order in which windows leave, rows of one key as they left. So the task of a row makes no difference.

Behind the rows of a join that goes by its slowest partition comes a row that is no record: `kept` is false, `ts` is the
stream time of the join (ms), and `empty` says whether no record came to the join.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tidegate.kernel.columns.arrays import array, as_schema, ints
from tidegate.kernel.rows import row_ids
from tidegate.kernel.rows.layout import Layout, check_atomic
from tidegate.spec.columns import DELETED, END, OURS, ROW_ID, START, TIMESTAMP


def to_records(layout: Layout, rows: pa.Table) -> pa.Table:
    """Records (`Layout.forwarded`) of result rows; a tombstone's value is null."""
    regroup = layout.op.regroup
    assert regroup is not None
    for name in (*regroup.key, *(regroup.values or ())) if layout.half_known else ():
        if name not in rows.schema.names:
            rows = rows.append_column(name, pa.nulls(rows.num_rows))
    if layout.op.row_ids and layout.op.joined is None:
        bounds = [name for name in (START, END) if name in rows.schema.names]
        rows = rows.append_column(ROW_ID, row_ids.of_results(rows.select(layout.op.key), rows.select(bounds)))
    columns: dict[str, Any] = {
        name: rows[column] for name, column in layout.repartitioned_columns(rows.schema.names).items()
    }
    check_atomic(rows.schema, regroup.key)
    columns |= {name: rows[column] for name, column in layout.order_of_forwarded.items()}
    names = rows.schema.names
    deleted = empty = array(rows[DELETED]) if DELETED in names else pa.repeat(False, rows.num_rows)
    values = regroup.value_columns or [n for n in names if n not in regroup.non_values and not n.startswith(OURS)]
    if values:
        nulls = np.logical_and.reduce([rows[name].is_null().to_numpy() for name in values])
        empty = pc.or_(empty, pa.array(nulls, pa.bool_()))
    if regroup.table:
        columns |= {"o:rank": pa.array(np.maximum.accumulate(ints(rows[TIMESTAMP]))), "deleted": deleted}
    columns |= {"ts": rows[TIMESTAMP], "empty": empty, "place": pa.array(np.arange(rows.num_rows))}
    if layout.op.passes_time:
        columns["kept"] = pa.repeat(True, rows.num_rows)
    return as_schema(pa.table(columns), layout.forwarded) if layout.typed else pa.table(columns)


def with_time(records: pa.Table, stream_time: int, without_records: bool) -> pa.Table:
    """The records, and behind them a row with the stream time (ms) of the operator that emitted them.

    without_records  whether no record came to the operator (`Chunk.without_records`)
    """
    last = {"ts": stream_time, "kept": False, "empty": without_records}
    values = [pa.array([last.get(field.name)], field.type) for field in records.schema]
    return pa.concat_tables([records, pa.Table.from_arrays(values, schema=records.schema)])
