"""The inputs of an operator on Spark: DataFrames, the columns of them that the kernel reads, and their types."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import reduce
from typing import Any

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import BooleanType, LongType, StructField, StructType

from tidegate.errors import DefinitionError, warn
from tidegate.kernel.exchange.decoding import read
from tidegate.kernel.rows.layout import Layout
from tidegate.kernel.rows.map_filter import WALL_CLOCK
from tidegate.plan import Node, Operation, Stream
from tidegate.runtime.spark.flow import Input
from tidegate.runtime.spark.frames import packed_offset
from tidegate.runtime.spark.frames.arrow import arrow_schema, schema_as_spark_reads
from tidegate.runtime.spark.frames.carried import check_carried
from tidegate.runtime.spark.frames.columns import check_columns
from tidegate.runtime.spark.frames.contiguous import Origin, repeats_offsets
from tidegate.runtime.spark.frames.declared import bound, in_pipeline, is_streaming
from tidegate.runtime.spark.frames.names import col
from tidegate.runtime.spark.map_step import Packer
from tidegate.runtime.spark.row_decoder import Undecoded, columns_read
from tidegate.spec.aggregates import Cogroup
from tidegate.spec.columns import ROW


def check_frame(stream: Any, deleted: str | None = None) -> DataFrame:
    """The DataFrame of a stream, with the declared columns.

    Raises DefinitionError if a column of the stream, or the column `deleted` of a table, does not fit.
    """
    frame = bound(stream.frame, stream.schema)
    check_columns(replace(stream, frame=frame), deleted)
    return frame


@dataclass(frozen=True)
class OperatorInput:
    """A DataFrame that an operator reads: the `columns` that are read, and the `schema` of the kernel's columns.

    `branch`, `contiguous` and `given` are those of the Packer.

    repeats    whether several map tasks may read records with one offset
    undecoded  the source whose records the workers decode, the columns of its rows, and the name of its observation;
               `frame` has the rows that Spark would make of them
    """

    frame: DataFrame
    columns: dict[str, Column]
    schema: pa.Schema
    packs_offset: bool = False
    branch: Stream | None = None
    contiguous: bool = False
    repeats: bool = False
    undecoded: tuple[Undecoded, pa.Schema, str | None] | None = None
    given: pa.Schema | None = None

    def packed(self, layout: Layout, tasks: int) -> Input:
        """The input with its map step."""
        if self.repeats:
            # Another map task may have read records among any of these, so each one is compared with them.
            layout = replace(layout, tuning=replace(layout.tuning, offset_runs=0))
        packer = Packer(layout, tasks, self.packs_offset, self.branch, contiguous=self.contiguous, given=self.given)
        if self.undecoded is None:
            return Input(self.frame, self.columns, packer)
        source, wanted, observed = self.undecoded
        # Rows have the clock of the batch only behind Spark.
        frame, row_decoder = source.for_workers(wanted, observed, None if layout.op.needs_wall_clock else packer)
        columns = {name: col(name) for name in frame.columns} | self.columns
        return Input(frame, columns, replace(packer, row_decoder=row_decoder), row_decoder.observed)


def reading_stream(op: Operation, branch: Stream, observed: Counter[str]) -> OperatorInput:
    """The input with the records of `branch`; `observed`: number of observations of the query by name."""
    frame: DataFrame = branch.frame
    check_carried(frame, _carried(op, branch, tuple(frame.columns)))
    if branch.undecoded is not None:
        return _undecoded(op, branch, observed)
    origin = Origin.of(frame, branch.partition, branch.offset)
    if origin.several:
        _warn_several_topics(origin.topics, branch.partition)
    # Each question to Spark's process takes time, and nothing repeats offsets in an unbroken stretch.
    repeats = not origin.contiguous and repeats_offsets(frame, branch.partition, branch.offset)
    if op.stream.is_source:
        columns = _read_columns(op, frame)
        schema = _schema(op, frame, columns)
        if packs_offset := packed_offset.packs(op.stream, frame):
            columns = _with_packed_offset(op.stream, columns)
        return OperatorInput(frame, columns, schema, packs_offset, contiguous=origin.contiguous, repeats=repeats)
    columns = {name: col(name) for name in frame.columns} | wall_clock(op, WALL_CLOCK)
    given = _schema(op, frame, columns)
    schema = read(op, branch, given.empty_table()).schema
    read_by = OperatorInput(frame, columns, schema, contiguous=origin.contiguous, repeats=repeats)
    return replace(read_by, branch=branch.unbound, given=given)


def _warn_several_topics(topics: tuple[str, ...], partition: str | None) -> None:
    warn(
        f"The source reads the topics {','.join(topics)!r}, and its column {partition!r} has the partitions of all "
        "of them: records of partition 0 of one topic and of another count as records of one partition, so they "
        "can be late by each other, and no slow one is waited for. Use tg.kafka.source, or "
        f'df.withColumn("{partition}", F.concat_ws("-", "topic", "{partition}")).'
    )


def _undecoded(op: Operation, branch: Stream, observed: Counter[str]) -> OperatorInput:
    """`reading_stream` of a source whose records the workers decode."""
    read_of = columns_read(op, branch, tuple(branch.frame.columns))
    wanted = arrow_schema(branch.frame.select(*map(col, read_of)).schema)
    name = branch.undecoded.observed
    columns = wall_clock(op, WALL_CLOCK)
    schema = read(op, branch, pa.schema([*wanted, *((name, pa.int64()) for name in columns)]).empty_table()).schema
    undecoded = branch.undecoded, wanted, None if name is None else observation(name, observed)
    promised = branch.undecoded.contiguous
    return OperatorInput(branch.frame, columns, schema, branch=branch.unbound, contiguous=promised, undecoded=undecoded)


def _carried(op: Operation, branch: Stream, names: tuple[str, ...]) -> tuple[str, ...]:
    """The columns whose values reach the operator; of other columns it learns at most whether they are null."""
    if branch.undecoded is not None or not op.stream.is_source:
        return tuple(columns_read(op, branch, names))
    return (*op.key, *op.input_columns(names), *op.other_columns(names))


def with_types_of_spark(entry: OperatorInput) -> OperatorInput:
    """The input with the types as which Spark reads its columns: types do not differ in what may be null.

    Of `split` no text is null, and of a list in JSON each may be. Merged inputs have one type, and so have a checkpoint
    and the query that goes on from it.
    """
    return replace(entry, schema=schema_as_spark_reads(entry.schema))


def check_alike(node: Node, inputs: list[OperatorInput]) -> None:
    """Raise DefinitionError for streaming inputs beside static ones, and for inputs of one side whose types differ."""
    cogroups = isinstance(node.op.function, Cogroup)
    called = "join" if node.op.joined is not None else "cogroup" if cogroups else "merge"
    for number, (edge, entry) in enumerate(zip(node.edges, inputs, strict=True)):
        mine = [i for i, other in enumerate(node.edges) if other.side == edge.side]
        first = next((i for i in mine if node.edges[i].node is None), mine[0])
        if is_streaming(entry.frame) != is_streaming(inputs[0].frame):
            raise DefinitionError(
                f"{called}: of {node.edges[0].stream.name!r} and {edge.stream.name!r} one is a streaming DataFrame and "
                f"the other a static one. {called.capitalize()} streams with streams."
            )
        for field in inputs[first].schema if number != first else ():
            if field.name.startswith(f"v:{ROW}") or (edge.node is not None and field.name not in entry.schema.names):
                continue  # the record of a cogroup's input as one column; rows of another operator have no offsets
            name = field.name.partition(":")[2] or field.name
            if field.name not in entry.schema.names:
                raise DefinitionError(
                    f"{called}: {node.edges[first].stream.name!r} has the column {name!r} and {edge.stream.name!r} has "
                    "not, and the operator takes whole records. Leave it out, or give it to both, with map_values."
                )
            theirs = entry.schema.field(field.name).type
            if theirs != field.type:
                raise DefinitionError(
                    f"{called}: the column {name!r} is {field.type} in "
                    f"{node.edges[first].stream.name!r} and {theirs} in {edge.stream.name!r}. Cast one of them."
                )


def _read_columns(op: Operation, frame: DataFrame) -> dict[str, Column]:
    """The columns of `frame` that the kernel reads, under the kernel's names (kernel.rows.layout)."""
    names = tuple(frame.columns)
    columns = {f"k:{name}": col(name) for name in op.key}
    columns |= {f"v:{name}": col(name) for name in op.input_columns(names)}
    if op.skips_null_values and (value := op.counts_as_value(names)):
        columns["empty"] = reduce(Column.__and__, [col(name).isNull() for name in value])
    columns |= {f"r:{name}": col(name) for name in op.other_columns(names)}
    if op.deleted is not None:
        # A column of type void is always null: no row is deleted.
        columns["deleted"] = col(op.deleted).cast("boolean")
    # unix_millis floors, so microseconds are truncated to the millisecond they lie in.
    columns["ts"] = F.unix_millis(col(op.stream.timestamp))
    columns |= wall_clock(op, "wall_clock")
    if op.stream.partition is not None and op.stream.offset is not None:
        columns["partition"] = col(op.stream.partition)
        columns["offset"] = col(op.stream.offset).cast("long")
    return columns


def _schema(op: Operation, frame: DataFrame, columns: Mapping[str, Column]) -> pa.Schema:
    """The Arrow types of `columns` of `frame`: as Spark analyses them, or in a pipeline as they are declared."""
    if not in_pipeline():
        return arrow_schema(frame.select(*(column.alias(name) for name, column in columns.items())).schema)
    types = {field.name: field.dataType for field in frame.schema}
    computed = {"empty": BooleanType(), "deleted": BooleanType(), "partition": types.get(op.stream.partition or "")}
    fields = []
    for name in columns:
        given = types.get(name if not op.stream.is_source else name.partition(":")[2])
        fields.append(StructField(name, given or computed.get(name) or LongType()))
    return arrow_schema(StructType(fields))


def _with_packed_offset(stream: Stream, columns: Mapping[str, Column]) -> dict[str, Column]:
    """`columns` with partition and offset as one number (`frames.packed_offset`), because each column costs time."""
    assert stream.partition is not None
    assert stream.offset is not None
    others = {name: column for name, column in columns.items() if name not in ("partition", "offset")}
    packed = packed_offset.packed(col(stream.partition), col(stream.offset), (stream.partition, stream.offset))
    return others | {packed_offset.PACKED_OFFSET: packed}


def wall_clock(op: Operation, name: str) -> dict[str, Column]:
    """The wall clock as a column of this name, if the operation needs it: one value per micro-batch.

    The query's offset log keeps the value, so it is the same if the batch is run again.
    """
    return {name: F.unix_millis(F.current_timestamp())} if op.needs_wall_clock else {}


def observation(name: str, observed: Counter[str]) -> str:
    """The name of one more observation, with a number behind it if `name` is taken: Spark takes each name once."""
    observed[name] += 1
    return name if observed[name] == 1 else f"{name} {observed[name]}"
