"""Runs a plan on the DataFrames of its streams: columns in, operators, rows out under public names."""

from __future__ import annotations

import warnings
from collections import Counter
from dataclasses import replace
from functools import partial

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from tidegate.errors import DefinitionError, TidegateWarning, warn
from tidegate.instants import show_ms
from tidegate.kernel.rows.layout import Layout
from tidegate.kernel.stage import Stage
from tidegate.kernel.tuning import DEFAULT, Tuning
from tidegate.kernel.upgrade import drain
from tidegate.kernel.windows import expected_keys
from tidegate.plan import Edge, Node, Operation, Plan, Stream, graph, operation, with_row_ids
from tidegate.runtime.spark.flow import flow
from tidegate.runtime.spark.frames.arrow import check_known
from tidegate.runtime.spark.frames.declared import is_streaming
from tidegate.runtime.spark.frames.names import check_apart, col
from tidegate.runtime.spark.frames.public import public, public_names
from tidegate.runtime.spark.inputs import (
    OperatorInput,
    check_alike,
    observation,
    reading_stream,
    wall_clock,
    with_types_of_spark,
)
from tidegate.runtime.spark.session import config
from tidegate.runtime.spark.stateful_step import SparkStage
from tidegate.runtime.spark.stateless import check_typed, pickled, stepped

MOST_STATIC_TASKS = 64
"""Most tasks over a static DataFrame, which has no checkpoint that fixes their number; more only cost."""

MOST_KEY_BYTES = 600_000
"""Most bytes of expected keys: they travel inside the stateful step, which must stay below 1 MB (processor.Stage)."""


def to_df(
    table: Plan, drains: bool = False, row_ids: bool = False, tuning: Tuning = DEFAULT, *, text_of_times: bool = False
) -> DataFrame:
    """The rows of `table`: key columns, `window`, value columns, `timestamp`, and `deleted` if rows can be deleted.

    Metrics of each micro-batch are in `observedMetrics` under the name of the stream. `drains`: whether this is the
    last run over a checkpoint (`runtime.spark.checkpoints.draining`). `row_ids`: whether rows have a column `ROW_ID`;
    raises DefinitionError if they cannot have it. `text_of_times`: whether `window` and `timestamp` of an operator's
    rows are text, as JSON shows them.
    """
    if isinstance(table, Stream) and table.table is None and not row_ids:
        return stepped(table)
    node = graph(_identified(table) if row_ids else operation(table))
    out, layout = _operate(node, drains, tuning, text=text_of_times)
    return out.select(*public(layout.output_schema.names, text=text_of_times))


def _identified(table: Plan) -> Operation:
    """The operation of `table` with row ids; raises DefinitionError if its rows cannot have ids."""
    of_source = isinstance(table, Stream) and table.table is None
    if of_source or (op := with_row_ids(operation(table))) is None:
        raise DefinitionError(
            "`row_ids` is True, but only rows of a join have ids of the records that made them, and only if each "
            'of its streams has partition="partition", offset="offset", or is another such join. Leave it out.'
        )
    return op


def laid_out(node: Node) -> tuple[Layout, int]:
    """The layout and the number of tasks of an operator on the DataFrames of its streams; starts nothing."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", TidegateWarning)
        out, layout = _operate(node)
    return layout, task_count(node.op, out)


def _operate(
    node: Node,
    drains: bool = False,
    tuning: Tuning = DEFAULT,
    observed: Counter[str] | None = None,
    *,
    text: bool = False,
) -> tuple[DataFrame, Layout]:
    """Runs an operator and those upstream of it: its rows under the kernel's names, and its layout.

    observed  number of observations of the query by name; operators and inputs have observations
    text      whether times of the rows are text
    """
    op, observed = node.op, Counter() if observed is None else observed
    check_typed(
        [
            *(s for edge in node.sources for s in edge.stream.steps),
            *(step for output in op.all_outputs for step in output.steps),
        ]
    )
    inputs = [with_types_of_spark(_edge(op, edge, drains, tuning, observed)) for edge in node.edges]
    frame = inputs[0].frame
    streaming = is_streaming(frame)
    config.check(frame.sparkSession, streaming=streaming)
    for stream in op.sides or (op.stream,):
        if not stream.ordered and not stream.from_upstream:
            _warn_unordered(op, stream, streaming)
    check_alike(node, inputs)
    tasks = task_count(op, frame)
    layout = _layout(node, inputs, tuning)
    _check_rows(layout, frame.sparkSession)
    keys = None if op.expects is None else _shipped(expected_keys.pack(layout, op.expects))
    stage = SparkStage(Stage(layout, tasks, keys, drains), text)
    size = len(pickled(stage, op.stream.name))
    if streaming:
        _check_size(size, op.stream.name, frame.sparkSession)
    out = flow(
        [
            entry.packed(layout.of_input(edge, entry.schema), tasks)
            for edge, entry in zip(node.edges, inputs, strict=True)
        ],
        stage=stage,
        tasks=tasks,
        name=observation(op.stream.name, observed),
        uses_timers=op.uses_timers,
        marks=partial(drain.marks, layout, tasks) if drains else None,
        tuning=tuning,
    )
    return out, layout


def _layout(node: Node, inputs: list[OperatorInput], tuning: Tuning) -> Layout:
    """The layout of an operator, without its DataFrames: the layout travels to the workers, DataFrames cannot."""
    sides = tuple(side.unbound for side in node.op.sides)
    op = replace(node.op, stream=node.op.stream.unbound, expects=None, sides=sides)
    read = [(edge, entry.schema) for edge, entry in zip(node.edges, inputs, strict=True)]
    return Layout.of_inputs(op, read, sorts=False, tuning=tuning)


def _check_rows(layout: Layout, spark: SparkSession) -> None:
    """Raise DefinitionError if Spark cannot have the columns of the emitted rows."""
    schema, op = layout.output_schema, layout.op
    check_known(schema, "A row of the result has a column", "Let the step or function give another type.")
    if op.regroup is None:
        check_apart(public_names(schema.names), spark, "A row of the result has")
    else:
        values = [name.removeprefix("v:") for name in schema.names if name.startswith("v:")]
        check_apart(values, spark, f"A row that the operator of {op.stream.name!r} emits has")


def _edge(op: Operation, edge: Edge, drains: bool, tuning: Tuning, observed: Counter[str]) -> OperatorInput:
    """One input of an operator: a source, or the rows of the operator upstream."""
    read = op.of_side(edge.side)
    if edge.node is None:
        return reading_stream(read, edge.stream, observed)
    frame, layout = _operate(edge.node, drains, tuning, observed)
    # The kernel's own name: rows of an operator have the kernel's columns. Rows of a user have WALL_CLOCK.
    clock = wall_clock(op, "wall_clock")
    columns = {name: col(name) for name in layout.output_schema.names} | clock
    return OperatorInput(frame, columns, pa.schema([*layout.output_schema, *((name, pa.int64()) for name in clock)]))


def _shipped(keys: bytes) -> bytes:
    """`keys`; raises DefinitionError if they are too large to travel with the operator."""
    if len(keys) > MOST_KEY_BYTES:
        raise DefinitionError(
            f"`expect_keys` takes {len(keys):,} bytes packed, and more than {MOST_KEY_BYTES:,} cannot travel with the "
            "operator. Expect fewer keys, or shorter ones, or join the results with the keys after the sink."
        )
    return keys


def _check_size(size: int, name: str, spark: SparkSession) -> None:
    """Raise DefinitionError if Spark would ship a stage of so many bytes as a broadcast (`worker.processor.Stage`)."""
    most = config.largest_function(spark)
    if most is not None and size > most:
        raise DefinitionError(
            f"The operator of {name!r} takes {size:,} bytes pickled, with its functions "
            f"and the data that they refer to, and Spark hands a stateful operator at most {most:,}. Let functions "
            "refer to less: join large data with the records before tg.stream, or import it from a module of the "
            f'workers. Or set {config.LARGEST_FUNCTION} to more before Spark starts, for example to "16m".'
        )


def task_count(op: Operation, frame: DataFrame) -> int:
    """Number of tasks of the operator; the number is part of a streaming operator's checkpoint."""
    partitions = config.partitions(frame.sparkSession)
    return op.spread_over(partitions if is_streaming(frame) else min(partitions, MOST_STATIC_TASKS))


def _warn_unordered(op: Operation, stream: Stream, streaming: bool) -> None:
    if streaming:
        warn(
            f"The stream {stream.name!r} has no partition and offset, so each micro-batch is taken in timestamp "
            "order: no record is late because of its own batch, and results depend on where batches are cut. Give "
            'partition="partition", offset="offset" for results that do not. Kafka\'s source has both; '
            "tg.files.source(..., ordered=True) and tg.files.ordered make both of files, tg.delta.source of a table "
            "(docs/order.md has each source)."
        )
    elif op.windows is not None and op.windows.grace_ms:
        warn(
            f"The grace of {show_ms(op.windows.grace_ms)} is not used: {stream.name!r} is a static DataFrame "
            "without partition and offset, which is taken in timestamp order, so no record is late. Give "
            'partition="partition", offset="offset" for the results a stream would have, or windows without grace.'
        )
