"""One operator on Spark: pack per input partition, shuffle a handful of blobs, step per task, observe."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import reduce

import pyarrow as pa
import pyspark
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from tidegate.errors import TidegateError
from tidegate.kernel.tuning import DEFAULT, Tuning
from tidegate.runtime.spark.frames.arrow import spark_schema
from tidegate.runtime.spark.frames.declared import is_streaming, known_by_name
from tidegate.runtime.spark.frames.names import numbered, numbers, quoted, renamed
from tidegate.runtime.spark.row_decoder import Counts, MapInArrow, Pack
from tidegate.runtime.spark.session import config
from tidegate.runtime.spark.tasks import in_partitions, task_numbers
from tidegate.runtime.spark.worker.processor import Stage, StageProcessor, static_step
from tidegate.runtime.spark.worker.wire import rows_of, wire_schema
from tidegate.spec.metrics import GRACE_NEEDED, PARTITION_TIMES, Formula, Term, formula

Columns = Sequence[Column] | Mapping[str, Column]

_PACKED = pa.schema([("task", pa.int32()), ("blob", pa.binary())])
_PACKED_ON_SPARK = spark_schema(_PACKED)
_COUNTED = pa.schema([*_PACKED, *((name, pa.int64()) for name in asdict(Counts()))])
_COUNTED_ON_SPARK = spark_schema(_COUNTED)


@dataclass(frozen=True)
class Input:
    """A DataFrame, the columns of it that are read, and the pack that makes blobs of them.

    columns   by the names that the pack uses; a list if these are the columns' own names
    observed  name of the observation with the sums of `Counts` of all packs; None if they count nothing
    """

    frame: DataFrame
    columns: Columns
    pack: Pack
    observed: str | None = None


def flow(
    inputs: Sequence[Input],
    *,
    stage: Stage,
    tasks: int,
    name: str = "tidegate",
    uses_timers: bool = False,
    marks: Callable[[], Iterable[tuple[int, bytes]]] | None = None,
    tuning: Tuning = DEFAULT,
) -> DataFrame:
    """Runs the inputs through their packs and `stage`: rows of `stage.output_schema`.

    A pack turns one input partition's batches into (task, blob) with task in 0..tasks-1, and counts records if its
    input is observed. It is called for an empty partition too, with no batches
    (test_pack_is_called_for_an_empty_partition), and otherwise gets batches of at most
    spark.sql.execution.arrow.maxRecordsPerBatch rows (test_arrow_batches_of_the_input).
    `stage` steps once per task and micro-batch. All are pickled. With `uses_timers` a stage also steps without blobs
    when the wall clock reaches its outcome's `wake_at`; Spark then makes batches without input all the time, and with
    `trigger(availableNow=True)` a single batch, whatever the limits of the sources. `marks` makes blobs that every
    batch has besides those of its rows.
    The stage's metrics arrive per batch as the observation `name` in StreamingQueryProgress.observedMetrics.
    """
    packed = reduce(DataFrame.union, [_packed(each, tasks) for each in inputs])
    streaming = is_streaming(inputs[0].frame)
    if uses_timers and streaming:
        packed = packed.union(_ticks(packed))
    if marks is not None:
        # repartition(1) makes one partition even where the input has none.
        packed = packed.repartition(1).mapInArrow(_marked(marks, tasks), _PACKED_ON_SPARK)
    wire = spark_schema(wire_schema(stage.output_schema, stage.metrics))
    grouped = packed.groupBy("task")
    if streaming:
        if not hasattr(grouped, "transformWithStateInPandas"):
            raise TidegateError(
                f"Spark Connect of pyspark {pyspark.__version__} has no stateful operator in Python. Use a session "
                "without Connect, or Spark 4.1 or later."
            )
        partitions = config.partitions(packed.sparkSession)
        out = grouped.transformWithStateInPandas(
            StageProcessor(stage, in_partitions(tasks, partitions), partitions, uses_timers=uses_timers, tuning=tuning),
            outputStructType=wire,
            outputMode="Update",
            # Not "EventTime": it drops rows by record time before the stage sees them.
            timeMode="ProcessingTime" if uses_timers else "None",
        )
    else:
        out = grouped.applyInArrow(static_step(stage, tuning), wire)
    return rows_of(observing(out, stage.metrics, name), stage.output_schema)


def _packed(given: Input, tasks: int) -> DataFrame:
    if isinstance(given.columns, Mapping):
        names = list(given.columns)
        selected = zip(given.columns.values(), numbers(names), strict=True)
        frame = known_by_name(given.frame.select(*(column.alias(name) for column, name in selected)), numbers(names))
    else:
        frame, names = numbered(given.frame.select(*given.columns))
    if given.observed is None:
        return frame.mapInArrow(_blobs(given.pack, names, tasks), _PACKED_ON_SPARK)
    counted = frame.mapInArrow(_blobs_and_counts(given.pack, names, tasks), _COUNTED_ON_SPARK)
    sums = [F.expr(f"coalesce(sum({name}), 0L) AS {name}") for name in asdict(Counts())]
    # The counts have a row of their own, without a task.
    return counted.observe(given.observed, *sums).where("task IS NOT NULL").select(*_PACKED.names)


def _ticks(packed: DataFrame) -> DataFrame:
    """An empty stream, from a source that has new data every second (decision 0010).

    After a restart Spark makes no batch, and so fires no timer, before a source has new data
    (tests/spark/test_wall_clock.py::test_rows_leave_without_input_and_after_a_restart).
    """
    seconds = packed.sparkSession.readStream.format("rate").option("rowsPerSecond", 1).load()
    nothing = [F.lit(None).cast(field.dataType).alias(field.name) for field in packed.schema]
    return seconds.where(F.lit(False)).select(*nothing)


def _blobs(pack: Pack, names: Sequence[str], tasks: int) -> MapInArrow:
    of_tasks = task_numbers(tasks)

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        yield from _rows(pack(renamed(batches, names), Counts()), of_tasks)

    return run


def _blobs_and_counts(pack: Pack, names: Sequence[str], tasks: int) -> MapInArrow:
    of_tasks = task_numbers(tasks)

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        counts = Counts()
        for row in _rows(pack(renamed(batches, names), counts), of_tasks):
            nothing = [pa.nulls(1, pa.int64())] * len(asdict(counts))
            yield pa.record_batch([*row.columns, *nothing], schema=_COUNTED)
        yield pa.RecordBatch.from_pylist([asdict(counts)], schema=_COUNTED)

    return run


def _marked(marks: Callable[[], Iterable[tuple[int, bytes]]], tasks: int) -> MapInArrow:
    of_tasks = task_numbers(tasks)

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        yield from batches
        yield from _rows(marks(), of_tasks)

    return run


def _rows(blobs: Iterable[tuple[int, bytes]], of_tasks: Sequence[int]) -> Iterator[pa.RecordBatch]:
    """A row for each blob, with the number that Spark's hash sends to the task's partition (`task_numbers`)."""
    for task, blob in blobs:
        yield pa.record_batch([pa.array([of_tasks[task]], pa.int32()), pa.array([blob], pa.binary())], schema=_PACKED)


def observing(out: DataFrame, metrics: Mapping[str, str], name: str) -> DataFrame:
    """`out` with the observation `name`: `metrics`, computed from the columns of numbers (`wire.outgoing`)."""
    # SQL text: each part of a formula made of columns would cost several messages to Spark's process.
    made = [F.expr(f"{combining(formula(metric, how))} AS {quoted(metric)}") for metric, how in metrics.items()]
    return out.observe(name, *made) if made else out


def combining(of: Formula) -> str:
    """SQL that combines the numbers of all tasks as `spec.metrics.combined` does."""
    over = _term(of.over)
    if of.under is None:
        as_it_is = of.over.how == "avg" or of.over.of in (GRACE_NEEDED, PARTITION_TIMES)
        return over if as_it_is else f"CAST({over} AS BIGINT)"
    # Each mention of a sum is one more aggregate, which costs every task and batch (decision 0062).
    under = _term(of.under)
    return f"{over} / {under}" if of.under.how == "number" else f"{over} / greatest({under}, 1D)"


def _term(term: Term) -> str:
    """SQL of a term; `how` is the name of an aggregate function in SQL too."""
    return str(int(term.of)) if term.how == "number" else f"{term.how}({quoted(term.of)})"
