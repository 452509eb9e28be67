"""The rows that an operator emits: rows of its one table, or rows of several outputs with the name of the output."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from tidegate.kernel.columns.arrays import as_schema, concat_tables
from tidegate.kernel.exchange import retract_insert, to_stream
from tidegate.kernel.exchange.batch import Batch
from tidegate.kernel.joins import late_records as late_in_joins
from tidegate.kernel.rows import map_filter, results
from tidegate.kernel.rows.layout import Layout
from tidegate.kernel.rows.map_filter import CLOSING_TIME
from tidegate.kernel.state.state import State
from tidegate.kernel.suppress import suppression_metrics, time_limit
from tidegate.kernel.upgrade.flush import Flushed
from tidegate.kernel.windows import late_records
from tidegate.plan import Output
from tidegate.spec.columns import KIND, OUTPUT, TIMESTAMP
from tidegate.spec.steps import Step


def emit(
    layout: Layout, state: State, rows: pa.Table, batch: Batch, flushed: Flushed, end_of_input: bool
) -> tuple[pa.Table, int | None]:
    """The emitted rows, of `Layout.output_schema`, from the rows that the operator made (`results.for_kind`).

    `flushed` has the rows that suppressions of an earlier plan held back; they leave first.

    An output with a time limit holds its rows back. The second value is the wall clock (ms) at which the next of them
    is due, None if none is. Raises BufferFullError if a buffer is full and shuts down when full.
    """
    parts, wake_at = [], None
    for output in layout.op.all_outputs:
        made = _first(flushed.results, rows) if output.name in flushed.outputs else rows
        part = _of(layout, made, output, batch)
        if output.kind == "final" and not output.limits:
            suppression_metrics.record_final(state, part.num_rows)
        if output.kind == "final" and output.limits and not layout.sorts:
            # A limit takes rows one by one and goes by their timestamps: sort them, whatever their stored form.
            part = results.in_order(layout, part)
        for number, limit in enumerate(output.limits):
            part = _behind_steps(layout, limit.before, part, flushed.of_limits.get((output.name, number)))
            if output.kind == "final" and number == 0:
                suppression_metrics.record_final(state, part.num_rows)
            part, due = _limited(layout, output, number, state, batch, part, end_of_input)
            wake_at = min((time for time in (wake_at, due) if time is not None), default=None)
        part = _behind_steps(layout, output.after, part, flushed.of_limits.get((output.name, len(output.limits))))
        parts.append(part)
    if layout.op.regroup is not None:
        if layout.op.regroup.changes:
            return retract_insert.to_changes(layout, state, parts[0]), wake_at
        return to_stream.to_records(layout, parts[0]), wake_at
    schema = layout.output_schema  # refuses late records that have a column of our names
    if not layout.op.named:
        return parts[0], wake_at
    named = [
        part.append_column(OUTPUT, pa.repeat(output.name, part.num_rows))
        for output, part in zip(layout.op.all_outputs, parts, strict=True)
    ]
    return as_schema(concat_tables([schema.empty_table(), *named]), schema), wake_at


def _behind_steps(layout: Layout, steps: tuple[Step, ...], part: pa.Table, flushed: pa.Table | None) -> pa.Table:
    """The rows of `part` after these steps; the rows `flushed` from a removed limit come before them."""
    part = map_filter.on_results(steps, part, layout.op.key)
    return part if flushed is None else _first([flushed], part)


def _limited(
    layout: Layout, output: Output, number: int, state: State, batch: Batch, part: pa.Table, end_of_input: bool
) -> tuple[pa.Table, int | None]:
    """`time_limit.suppress` for one limit of an output; the metrics of several limits are combined."""
    others, state.step_metrics = state.step_metrics, {}
    waiting = layout.of_limit(output, number)
    part, wake_at = time_limit.suppress(waiting, state, batch, part, end_of_input, output.limits[:number])
    if len(layout.op.all_limits) > 1:
        place = output.limits[number].place
        state.step_metrics = suppression_metrics.of_limits(others, state.step_metrics, place)
    else:
        state.step_metrics = suppression_metrics.beside(others, state.step_metrics)
    return part, wake_at


def _first(flushed: list[pa.Table], rows: pa.Table) -> pa.Table:
    """The rows `flushed`, then `rows`. If `rows` has the column `CLOSING_TIME`, `flushed` gets its timestamps there."""
    if CLOSING_TIME in rows.schema.names:
        flushed = [part.append_column(CLOSING_TIME, part[TIMESTAMP]) for part in flushed]
    return concat_tables([*flushed, rows])


def _of(layout: Layout, rows: pa.Table, output: Output, batch: Batch) -> pa.Table:
    if output.kind == "late":
        of_join = layout.op.joined is not None
        return late_in_joins.rows(layout, batch) if of_join else late_records.rows(layout, batch)
    found = of_kind(layout, rows, output.kind)
    if CLOSING_TIME in found.schema.names and not output.buffers_by_stream_time:
        # The column is there for another output.
        return found.drop_columns([CLOSING_TIME])
    return found


def of_kind(layout: Layout, rows: pa.Table, kind: str) -> pa.Table:
    """The rows of one kind, "updates" or "final", among the rows that the operator made (`results.for_kind`)."""
    if layout.op.emits != "both":
        return rows
    schema = layout.for_kind[kind].result_schema
    if rows.num_rows == 0:
        return schema.empty_table()
    return rows.filter(pc.equal(rows[KIND], kind)).select(schema.names)
