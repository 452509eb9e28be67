"""The output of a task on its way to Spark: its rows in lists of some hundred, then its numbers for the metrics.

Spark evaluates the metrics of `observe` for every row that passes, which costs more than the rows themselves. So a list
of rows passes as one row, and `rows_of` takes it apart afterwards (decision 0018).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from tidegate.kernel.columns.arrays import array, as_schema, as_type
from tidegate.kernel.tuning import DEFAULT, Tuning
from tidegate.runtime.spark.frames.arrow import as_spark_reads, schema_as_spark_reads, spark_type
from tidegate.runtime.spark.frames.names import col
from tidegate.spec.metrics import GRACE_NEEDED, PARTITION_TIMES, formula

if TYPE_CHECKING:
    from tidegate.runtime.spark.worker.processor import Outcome

# The columns of lists. Of a list in the second one no row has a null: Spark copies every value of a list, and need not
# ask for each whether it is null (decision 0067). Each number of a task has a column of its own, null beside lists.
ROWS, WHOLE_ROWS = "_rows", "_whole_rows"
# Most bytes of a list, about: Spark holds a list whole.
LIST_BYTES = 1 << 20
LARGEST_LONG = 2**63 - 1
# The largest double that a long holds: the instant 2^63 - 1 would become 2^63, which Spark refuses to cast.
LARGEST_DOUBLE = float(2**63 - 1024)


def wire_schema(rows: pa.Schema, metrics: Mapping[str, str]) -> pa.Schema:
    """The columns that leave an operator with these rows and metrics.

    A timestamp travels as integer microseconds: pandas would read it in the session's time zone.
    """
    numbers = [pa.field(name, kind) for name, kind in _term_types(metrics).items()]
    return pa.schema([*(pa.field(name, _lists(rows, name)) for name in (ROWS, WHOLE_ROWS)), *numbers])


def _lists(rows: pa.Schema, column: str) -> pa.DataType:
    """The type of the lists in `column`."""

    def nullable(type_: pa.DataType) -> bool:
        return column == ROWS or pa.types.is_null(type_)  # a void column has nothing but nulls

    return pa.list_(pa.struct([pa.field(one.name, _wire_type(one.type), nullable(one.type)) for one in rows]))


def _wire_type(type_: pa.DataType) -> pa.DataType:
    return _each_timestamp(as_spark_reads(type_))


def _each_timestamp(type_: pa.DataType) -> pa.DataType:
    """`type_` with integers instead of the timestamps in it, at any depth of lists and structs."""
    if pa.types.is_timestamp(type_):
        return pa.int64()
    if pa.types.is_list(type_):
        return pa.list_(_each_timestamp(type_.value_type))
    if pa.types.is_struct(type_):
        return pa.struct([(field.name, _each_timestamp(field.type)) for field in type_])
    return type_


_KINDS = {GRACE_NEEDED: pa.list_(pa.int64()), PARTITION_TIMES: pa.string()}
"""Types of metrics that are no numbers."""


def _term_types(metrics: Mapping[str, str]) -> dict[str, pa.DataType]:
    """Types of the numbers of a task, by name: the terms that the formulas of `metrics` combine over tasks.

    A term of max or min is a whole number and stays exact: an instant may lie beyond 2^53 ms. Terms of sums travel as
    doubles, because a sum may be more than a long holds.
    """
    types: dict[str, pa.DataType] = {}
    for name, how in metrics.items():
        for term in formula(name, how).terms:
            if name in _KINDS:
                types[name] = _KINDS[name]
            elif term.how in ("max", "min"):
                types.setdefault(term.of, pa.int64())
            elif term.how != "number":
                types[term.of] = pa.float64()
    return types


def outgoing(
    rows: pa.Schema, metrics: Mapping[str, str], outcome: Outcome, tuning: Tuning = DEFAULT
) -> Iterator[pa.Table]:
    """The rows of `outcome`, some lists of them at a time, then its numbers."""
    schema = wire_schema(rows, metrics)
    for part in outcome.parts:
        for start in range(0, part.num_rows, tuning.frame_rows):
            frame = part.slice(start, tuning.frame_rows)
            yield _wire(_in_lists(frame, schema, tuning.list_rows), schema)
    numbers = {
        name: pa.array([_number(outcome.metrics.get(name), kind)], kind) for name, kind in _term_types(metrics).items()
    }
    yield _wire(numbers, schema)


def _number(number: Any, kind: pa.DataType) -> Any:
    """A number as it travels: a long, or the nearest double that a long holds; a value of `_KINDS` as it is."""
    if number is None or kind in _KINDS.values():
        return number
    return min(int(number), LARGEST_LONG) if pa.types.is_int64(kind) else min(float(number), LARGEST_DOUBLE)


def _in_lists(part: pa.Table, schema: pa.Schema, most: int) -> dict[str, pa.Array]:
    """The rows of `part` in lists of up to `most`, by the name of their column."""
    row = schema.field(ROWS).type.value_type
    read = as_schema(part, schema_as_spark_reads(part.schema))
    columns = [array(as_type(read.column(field.name), field.type)) for field in row]
    name = ROWS if any(column.null_count for column in columns) else WHOLE_ROWS
    step = max(1, min(most, LIST_BYTES * part.num_rows // (part.nbytes + 1)))
    starts = pa.array([*range(0, part.num_rows, step), part.num_rows], pa.int32())
    lists = schema.field(name).type
    rows = pa.StructArray.from_arrays(columns, fields=list(lists.value_type))
    return {name: pa.ListArray.from_arrays(starts, rows, type=lists)}


def _wire(columns: Mapping[str, pa.Array], schema: pa.Schema) -> pa.Table:
    length = max((len(column) for column in columns.values()), default=0)
    return pa.table(
        [as_type(columns[f.name], f.type) if f.name in columns else pa.nulls(length, f.type) for f in schema],
        schema=schema,
    )


def rows_of(out: DataFrame, rows: pa.Schema) -> DataFrame:
    """The rows, with the columns of `rows`, in the lists that `outgoing` made."""
    taken_apart = out.select(F.inline(F.coalesce(WHOLE_ROWS, ROWS)))
    rows = schema_as_spark_reads(rows)
    if all(_wire_type(field.type) == field.type for field in rows):
        return taken_apart  # Spark plans each node of a query anew in every batch
    return taken_apart.select(*[_public(field) for field in rows])


def _public(field: pa.Field) -> Column:
    return _instants(col(field.name), field.type).alias(field.name)


def _instants(column: Column, type_: pa.DataType) -> Column:
    """`column` with integer microseconds made timestamps again where `type_` has timestamps."""
    if _wire_type(type_) == type_ or pa.types.is_map(type_):
        return column
    if pa.types.is_timestamp(type_):
        epoch = F.expr("timestamp_ntz'1970-01-01'")
        return F.timestamp_micros(column) if type_.tz else F.timestamp_add("MICROSECOND", column, epoch)
    if pa.types.is_list(type_):
        return F.transform(column, lambda item: _instants(item, type_.value_type))
    # Fields get numbers as names: names may differ by case alone, and Spark would find two. A cast goes by place.
    wire = [_wire_type(field.type) for field in type_]
    fields = column.cast(spark_type(pa.struct([(f"f{place}", kind) for place, kind in enumerate(wire)])))
    parts = [_instants(fields.getField(f"f{place}"), field.type).alias(field.name) for place, field in enumerate(type_)]
    return F.when(column.isNotNull(), F.struct(*parts))
