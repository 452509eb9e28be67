"""Runs a plan on the DataFrames of its streams: columns in, operators, rows out under public names."""

from __future__ import annotations

import time
import warnings
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial, reduce
from typing import Any

import pyarrow as pa
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import BooleanType, LongType, StructField, StructType

from tidegate.errors import DefinitionError, TidegateWarning, warn
from tidegate.instants import show_ms
from tidegate.kernel.columns.arrays import as_schema
from tidegate.kernel.exchange.decoding import read
from tidegate.kernel.exchange.packing import combines, pack, with_schema
from tidegate.kernel.rows.layout import Layout
from tidegate.kernel.rows.map_filter import WALL_CLOCK
from tidegate.kernel.stage import Stage, Step
from tidegate.kernel.tuning import DEFAULT, Tuning
from tidegate.kernel.upgrade import drain
from tidegate.kernel.windows import expected_keys
from tidegate.plan import Edge, Node, Operation, Plan, Stream, graph, operation, with_row_ids
from tidegate.runtime.spark.flow import Input, flow
from tidegate.runtime.spark.frames import contiguous, order
from tidegate.runtime.spark.frames.arrow import arrow_schema, as_spark_reads, check_known
from tidegate.runtime.spark.frames.carried import check_carried
from tidegate.runtime.spark.frames.columns import check_columns
from tidegate.runtime.spark.frames.declared import bound, in_pipeline, is_streaming
from tidegate.runtime.spark.frames.names import check_apart, col
from tidegate.runtime.spark.frames.public import public, public_names
from tidegate.runtime.spark.raw import Counts, Raw, RowDecoder, columns_read
from tidegate.runtime.spark.session import config
from tidegate.runtime.spark.stateless import check_typed, pickled, stepped
from tidegate.runtime.spark.tasks import place_of
from tidegate.runtime.spark.worker import text_of_times as times
from tidegate.runtime.spark.worker.garbage import spare_modules
from tidegate.runtime.spark.worker.memory import MOST_BYTES, MOST_JOIN_BYTES, give_back, keep
from tidegate.spec.aggregates import Cogroup
from tidegate.spec.columns import ROW
from tidegate.spec.metrics import at_place, of_store, timed

MOST_STATIC_TASKS = 64
"""Most tasks over a static DataFrame, which has no checkpoint that fixes their number; more only cost."""

MOST_KEY_BYTES = 600_000
"""Most bytes of expected keys: they travel inside the stateful step, which must stay below 1 MB (processor.Stage)."""


@dataclass(frozen=True)
class Packer:
    """The map step. Spark calls it once per input partition."""

    layout: Layout
    tasks: int
    order_as_one: bool = False
    branch: Stream | None = None
    """The stream whose rows the worker turns into the kernel's columns; None if Spark has done so already."""
    row_decoder: RowDecoder | None = None
    """Decodes records into rows; None if Spark hands over rows."""
    contiguous: bool = False
    """Whether a task reads an unbroken stretch of each partition (runtime.spark.frames.contiguous)."""
    given: pa.Schema | None = None
    """The types of rows from Spark in front of steps, with timestamps in UTC; None if there are no such rows."""

    def __call__(self, batches: Iterator[pa.RecordBatch], counts: Counts) -> Iterator[tuple[int, bytes]]:
        spare_modules()
        keep()
        if self.row_decoder is not None:
            batches = yield from self.row_decoder.packed(batches)
            batches = self.row_decoder.keeping_dictionaries(self._kept).rows(batches, counts)
        if self.order_as_one:
            batches = order.unpacked(batches, self.layout.schema.field("partition").type)
        yield from pack(self.layout, map(self._read, batches), range(self.tasks), self.contiguous)

    def _read(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        if self.branch is None:
            return batch
        rows = pa.Table.from_batches([batch])
        if self.given is not None:
            rows = as_schema(rows, self.given)  # Spark's rows are in the time zone of the session
        rows = read(self.layout.op, self.branch, rows)
        for field in self.layout.schema:
            if field.name not in rows.schema.names:
                rows = rows.append_column(field, pa.nulls(rows.num_rows, field.type))
        rows = with_schema(rows.select(self.layout.schema.names), self.layout)
        return rows.combine_chunks().to_batches()[0]

    @property
    def _kept(self) -> frozenset[str]:
        """The columns that need not be decoded: keys of rows that are combined, if no step reads them."""
        assert self.branch is not None
        keeps = combines(self.layout) and not self.branch.steps
        return frozenset(self.layout.op.key) if keeps else frozenset()


@dataclass(frozen=True)
class SparkStage:
    """The stateful step. Spark calls it once per task and micro-batch. `text`: whether times of rows leave as text."""

    stage: Stage
    text: bool = False

    @property
    def output_schema(self) -> pa.Schema:
        schema = self.stage.layout.output_schema
        return times.with_text(schema) if self.text else schema

    @property
    def metrics(self) -> Mapping[str, str]:
        op = self.stage.layout.op
        if len(op.all_limits) == 1:
            return op.numbers | {f"next_due_{op.limit.clock}": "min", "limit_clock": "max"}
        limited = {}
        for limit in op.all_limits:
            for name, how in ((f"next_due_{limit.how.clock}", "min"), ("limit_clock", "max")):
                limited[of_store(name, limit.store)] = f"{how}({at_place(name, limit.place)})"
        return op.numbers | limited

    def begin(
        self,
        store: Any,
        blobs: Iterable[bytes],
        end_of_input: bool = False,
        wall_clock: int | None = None,
        number: int | None = None,
    ) -> Step:
        task = 0 if number is None else place_of(number, self.stage.tasks)
        step = self.stage.begin(store, blobs, end_of_input, wall_clock, task)
        step.parts = self._measured(step, step.parts)
        return step

    def _measured(self, step: Step, parts: Iterator[pa.Table]) -> Iterator[pa.Table]:
        spare_modules()
        keep(MOST_JOIN_BYTES if self.stage.layout.op.joins_streams else MOST_BYTES)
        began = time.time()
        try:
            yield from times.as_text(parts) if self.text else parts
        finally:
            if any(not limit.how.buffer.bounded for limit in self.stage.layout.op.all_limits):
                give_back()
        # The worker's clock is for metrics alone: no row depends on it. Rows avoid Spark's current_timestamp() too if
        # they can: it is a constant in the generated code, which Spark then compiles anew in every batch.
        step.metrics.update(timed(step.metrics, began * 1000, time.time() * 1000))


def check_frame(stream: Any, deleted: str | None = None) -> DataFrame:
    """The DataFrame of a stream, with the declared columns.

    Raises DefinitionError if a column of the stream, or the column `deleted` of a table, does not fit.
    """
    frame = bound(stream.frame, stream.schema)
    check_columns(replace(stream, frame=frame), deleted)
    return frame


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
    inputs = _of_one_type(node, [_edge(op, edge, drains, tuning, observed) for edge in node.edges])
    frame = inputs[0].frame
    streaming = is_streaming(frame)
    config.check(frame.sparkSession, streaming=streaming)
    for stream in op.sides or (op.stream,):
        if not stream.ordered and not stream.from_upstream:
            _warn_unordered(op, stream, streaming)
    _check_alike(node, inputs)
    tasks = task_count(op, frame)
    layout = _layout(node, inputs, tuning)
    check_known(layout.output_schema, "A row of the result has a column", "Let the step or function give another type.")
    if op.regroup is None:
        check_apart(public_names(layout.output_schema.names), frame.sparkSession, "A row of the result has")
    else:
        values = [name.removeprefix("v:") for name in layout.output_schema.names if name.startswith("v:")]
        check_apart(values, frame.sparkSession, f"A row that the operator of {op.stream.name!r} emits has")
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
        name=_apart(op.stream.name, observed),
        wakes=op.uses_timers,
        marks=partial(drain.marks, layout, tasks) if drains else None,
        tuning=tuning,
    )
    return out, layout


def _apart(name: str, observed: Counter[str]) -> str:
    """The name of one more observation, with a number behind it if `name` is taken: Spark takes each name once."""
    observed[name] += 1
    return name if observed[name] == 1 else f"{name} {observed[name]}"


def _layout(node: Node, inputs: list[_Input], tuning: Tuning) -> Layout:
    """The layout of an operator, without its DataFrames: the layout travels to the workers, DataFrames cannot."""
    sides = tuple(side.unbound for side in node.op.sides)
    op = replace(node.op, stream=node.op.stream.unbound, expects=None, sides=sides)
    read = [(edge, entry.schema) for edge, entry in zip(node.edges, inputs, strict=True)]
    return Layout.of_inputs(op, read, sorts=False, tuning=tuning)


def _edge(op: Operation, edge: Edge, drains: bool, tuning: Tuning, observed: Counter[str]) -> _Input:
    """One input of an operator: a source, or the rows of the operator upstream."""
    read = op.of_side(edge.side)
    if edge.node is None:
        return _input(read, edge.stream, observed)
    frame, layout = _operate(edge.node, drains, tuning, observed)
    # The kernel's own name: rows of an operator have the kernel's columns. Rows of a user have WALL_CLOCK.
    clock = _wall_clock(op, "wall_clock")
    columns = {name: col(name) for name in layout.output_schema.names} | clock
    return _Input(frame, columns, pa.schema([*layout.output_schema, *((name, pa.int64()) for name in clock)]))


@dataclass(frozen=True)
class _Input:
    """A DataFrame that an operator reads: the `columns` that are read, and the `schema` of the kernel's columns.

    `branch`, `contiguous` and `given` are those of the Packer.

    repeats    whether several map tasks may read records with one offset
    undecoded  the source whose records the workers decode, the columns of its rows, and the name of its observation;
               `frame` has the rows that Spark would make of them
    """

    frame: DataFrame
    columns: dict[str, Column]
    schema: pa.Schema
    order_as_one: bool = False
    branch: Stream | None = None
    contiguous: bool = False
    repeats: bool = False
    undecoded: tuple[Raw, pa.Schema, str | None] | None = None
    given: pa.Schema | None = None

    def packed(self, layout: Layout, tasks: int) -> Input:
        """The input with its map step."""
        if self.repeats:
            # Another map task may have read records among any of these, so each one is compared with them.
            layout = replace(layout, tuning=replace(layout.tuning, offset_runs=0))
        packer = Packer(layout, tasks, self.order_as_one, self.branch, contiguous=self.contiguous, given=self.given)
        if self.undecoded is None:
            return Input(self.frame, self.columns, packer)
        raw, wanted, observed = self.undecoded
        # Rows have the clock of the batch only behind Spark.
        frame, row_decoder = raw.for_workers(wanted, observed, None if layout.op.needs_wall_clock else packer)
        columns = {name: col(name) for name in frame.columns} | self.columns
        return Input(frame, columns, replace(packer, row_decoder=row_decoder), row_decoder.observed)


def _input(op: Operation, branch: Stream, observed: Counter[str]) -> _Input:
    frame: DataFrame = branch.frame
    check_carried(frame, _carried(op, branch, tuple(frame.columns)))
    if branch.raw is not None:
        return _of_raw(op, branch, observed)
    is_contiguous = contiguous.reads_contiguously(frame, branch.partition, branch.offset)
    # Each question to Spark's process takes time, and nothing repeats offsets in an unbroken stretch.
    repeats = not is_contiguous and contiguous.repeats_offsets(frame, branch.partition, branch.offset)
    if op.stream.is_source:
        columns = input_columns(op, frame)
        schema = _schema(op, frame, columns)
        as_one = order.packs(op.stream, frame)
        shipped = shipped_columns(op, frame, columns)
        return _Input(frame, shipped, schema, as_one, contiguous=is_contiguous, repeats=repeats)
    columns = {name: col(name) for name in frame.columns} | _wall_clock(op, WALL_CLOCK)
    raw = _schema(op, frame, columns)
    schema = read(op, branch, raw.empty_table()).schema
    unbound = branch.unbound
    return _Input(frame, columns, schema, branch=unbound, contiguous=is_contiguous, repeats=repeats, given=raw)


def _carried(op: Operation, branch: Stream, names: tuple[str, ...]) -> tuple[str, ...]:
    """The columns whose values reach the operator; of other columns it learns at most whether they are null."""
    if branch.raw is not None or not op.stream.is_source:
        return tuple(columns_read(op, branch, names))
    return (*op.key, *op.input_columns(names), *op.other_columns(names))


def _of_raw(op: Operation, branch: Stream, observed: Counter[str]) -> _Input:
    read_of = columns_read(op, branch, tuple(branch.frame.columns))
    wanted = arrow_schema(branch.frame.select(*map(col, read_of)).schema)
    name = branch.raw.observed
    columns = _wall_clock(op, WALL_CLOCK)
    schema = read(op, branch, pa.schema([*wanted, *((name, pa.int64()) for name in columns)]).empty_table()).schema
    undecoded = branch.raw, wanted, None if name is None else _apart(name, observed)
    promised = branch.raw.contiguous
    return _Input(branch.frame, columns, schema, branch=branch.unbound, contiguous=promised, undecoded=undecoded)


def _of_one_type(node: Node, inputs: list[_Input]) -> list[_Input]:
    """The inputs, in which a column has one type if Spark takes its types for one.

    Types may differ in what may be null: of `split` no text is, and of a list in JSON each may be.
    """
    given = list(zip(node.edges, inputs, strict=True))
    kinds: dict[tuple[int, str], set[pa.DataType]] = defaultdict(set)
    for edge, entry in given:
        for field in entry.schema:
            kinds[edge.side, field.name].add(field.type)

    def of_one_type(side: int, field: pa.Field) -> pa.Field:
        return field if len(kinds[side, field.name]) == 1 else field.with_type(as_spark_reads(field.type))

    return [
        replace(entry, schema=pa.schema([of_one_type(edge.side, field) for field in entry.schema]))
        for edge, entry in given
    ]


def _check_alike(node: Node, inputs: list[_Input]) -> None:
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


def input_columns(op: Operation, frame: DataFrame) -> dict[str, Column]:
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
    columns |= _wall_clock(op, "wall_clock")
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


def shipped_columns(op: Operation, frame: DataFrame, columns: Mapping[str, Column]) -> dict[str, Column]:
    """`columns` as they leave Spark. Each column costs time: partition and offset are packed into one if possible."""
    partition, offset = op.stream.partition, op.stream.offset
    if partition is None or offset is None or not order.packs(op.stream, frame):
        return dict(columns)
    kept = {name: column for name, column in columns.items() if name not in ("partition", "offset")}
    return kept | {order.ORDER: order.packed(col(partition), col(offset), (partition, offset))}


def task_count(op: Operation, frame: DataFrame) -> int:
    """Number of tasks of the operator; the number is part of a streaming operator's checkpoint."""
    partitions = config.partitions(frame.sparkSession)
    return op.spread_over(partitions if is_streaming(frame) else min(partitions, MOST_STATIC_TASKS))


def _wall_clock(op: Operation, name: str) -> dict[str, Column]:
    """The wall clock as a column of this name, if the operation needs it: one value per micro-batch.

    The query's offset log keeps the value, so it is the same if the batch is run again.
    """
    return {name: F.unix_millis(F.current_timestamp())} if op.needs_wall_clock else {}


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
