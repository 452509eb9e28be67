"""What leaves an operator: the rows of its one table, or of several outputs with the name of each."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from tidegate.kernel import suppression
from tidegate.kernel.batch import Batch
from tidegate.kernel.layout import Layout
from tidegate.kernel.store import Store
from tidegate.plan import Output


def run(layout: Layout, store: Store, rows: pa.Table, batch: Batch) -> pa.Table:
    """The rows that leave, of `Layout.output_schema`, given those that the aggregation made (`results.told`).

    An output with a time limit holds its rows back. Raises BufferFullError if it shuts down when full and is.
    """
    parts = [(output, _held_back(layout, output, store, _of(layout, rows, output), batch)) for output in layout.op.told]
    if not layout.op.outputs:
        return parts[0][1]
    named = [part.append_column("__output", pa.repeat(output.name, part.num_rows)) for output, part in parts]
    shape = layout.output_schema.empty_table()
    return pa.concat_tables([shape, *named], promote_options="default").cast(layout.output_schema)


def _of(layout: Layout, rows: pa.Table, output: Output) -> pa.Table:
    if layout.op.emits != "both":
        return rows
    schema = layout.telling[output.kind].result_schema
    if rows.num_rows == 0:
        return schema.empty_table()
    return rows.filter(pc.equal(rows["__kind"], output.kind)).select(schema.names)


def _held_back(layout: Layout, output: Output, store: Store, rows: pa.Table, batch: Batch) -> pa.Table:
    if output.limit is None:
        return rows
    records = sum(chunk.rows for chunk in batch.chunks)
    return suppression.run(layout.telling[output.kind], store, rows, batch.fold.stream_time, records)
