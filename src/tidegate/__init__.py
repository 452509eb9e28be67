"""tidegate: decides when a streaming result may leave. Windowed aggregation with final results on Spark."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from tidegate import dsl
from tidegate.dsl import (
    CogroupedKStream,
    KGroupedStream,
    KGroupedTable,
    KLateRecords,
    KOutputs,
    KStream,
    KTable,
    Result,
    SessionWindowedKStream,
    TimeWindowedKStream,
    outputs,
    stream,
    table,
    to_df,
)
from tidegate.errors import (
    AggregationError,
    BufferFullError,
    CheckpointError,
    DefinitionError,
    DefinitionTypeError,
    InputError,
    TidegateError,
    TidegateWarning,
)
from tidegate.instants import Window
from tidegate.plan import Plan, Stream
from tidegate.spec.aggregates import (
    approx_count_distinct,
    collect_list,
    count,
    first,
    last,
    max,
    mean,
    min,
    sum,
)
from tidegate.spec.emit import EmitStrategy
from tidegate.spec.materialized import Materialized
from tidegate.spec.missing import refuse
from tidegate.spec.pending import Buffered, Lookups, Pending, Waiting
from tidegate.spec.suppressed import BufferConfig, EagerBuffer, StrictBuffer, Suppressed
from tidegate.spec.upgrade import Change, Upgrade
from tidegate.spec.windows import (
    BatchWindows,
    JoinWindows,
    SessionWindows,
    SlidingWindows,
    TimeWindows,
    UnlimitedWindows,
)

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery
    from pyspark.sql.streaming.readwriter import DataStreamWriter

    from tidegate.advice.advice import Advice
    from tidegate.instants import Duration
    from tidegate.runtime.spark import debezium as debezium
    from tidegate.runtime.spark import delta as delta
    from tidegate.runtime.spark import files as files
    from tidegate.runtime.spark import kafka as kafka
    from tidegate.runtime.spark import metrics as metrics
    from tidegate.runtime.spark import sinks as sinks
    from tidegate.spec.aggregates import Aggregate
    from tidegate.testing import TopologyTestDriver

__version__ = "0.1.0"

__all__ = [
    "AggregationError",
    "BatchWindows",
    "BufferConfig",
    "BufferFullError",
    "Buffered",
    "Change",
    "CheckpointError",
    "CogroupedKStream",
    "DefinitionError",
    "DefinitionTypeError",
    "EagerBuffer",
    "EmitStrategy",
    "InputError",
    "JoinWindows",
    "KGroupedStream",
    "KGroupedTable",
    "KLateRecords",
    "KOutputs",
    "KStream",
    "KTable",
    "Lookups",
    "Materialized",
    "Pending",
    "SessionWindowedKStream",
    "SessionWindows",
    "SlidingWindows",
    "StrictBuffer",
    "Suppressed",
    "TidegateError",
    "TidegateWarning",
    "TimeWindowedKStream",
    "TimeWindows",
    "UnlimitedWindows",
    "Upgrade",
    "Waiting",
    "Window",
    "advise",
    "approx_count_distinct",
    "check_upgrade",
    "collect_list",
    "configure",
    "count",
    "drain",
    "explain_pending",
    "first",
    "last",
    "max",
    "mean",
    "min",
    "outputs",
    "read_state",
    "stream",
    "sum",
    "table",
    "to_df",
]


_WITH_SPARK = ("debezium", "delta", "files", "kafka", "metrics", "sinks")

_UNTIL_THEN = {
    "global_table": "Spark's own broadcast join with a static DataFrame, before tg.stream or behind to_df",
}

Session = TypeVar("Session")
"""A SparkSession, or a builder of one."""


def explain_pending(of: StreamingQuery | TopologyTestDriver, checkpoint: str | None = None) -> list[Pending]:
    """Print and return what waits, for what stream time, how far away that is, and which partition holds it back.

    `of` is a running StreamingQuery, whose last progress is asked (no state is read), or a TopologyTestDriver, which
    knows every window. Given the `checkpoint` of the query, its state is read: every window, and the keys that a time
    limit holds back. One `Pending` per operator. Raises DefinitionTypeError for anything else.
    """
    if hasattr(of, "recentProgress"):
        from tidegate.runtime.spark.pending import pending as of_query

        found = of_query(of, checkpoint)
    elif hasattr(of, "pending_of_chain"):
        found = of.pending_of_chain()
    else:
        raise DefinitionTypeError(f"`of` is {of!r}, neither a StreamingQuery nor a TopologyTestDriver.")
    print("\n".join(map(str, found)) or "No batch has told anything yet.")  # noqa: T201 - that is what it is for
    return found


def configure(spark_or_builder: Session, *, faster: bool = False) -> Session:
    """Set what tidegate needs of Spark on a session or a session builder, and return it.

    The RocksDB state store with changelog checkpointing: the operator cannot run on the default store. A RocksDB store
    that a platform brings stays. Rows go to Python in batches of up to 50,000, unless the session has another number
    than Spark's default. `faster` adds settings that save time per batch and have a price (no checksum files beside
    checkpoint files; on a builder, Unix sockets).

    Raises TidegateError, with what to do, if Spark, Java, a package, the Kafka connector or the Python of workers does
    not serve (`tidegate doctor` says the same from the shell).
    """
    from tidegate.runtime.spark.config import configure as configure_spark

    return configure_spark(spark_or_builder, faster=faster)


def __getattr__(name: str) -> Any:
    """What needs Spark, `tg.kafka` and its neighbours, when it is first asked for."""
    if name not in _WITH_SPARK:
        refuse(f"module {__name__!r}", name, _UNTIL_THEN)
    return importlib.import_module(f"tidegate.runtime.spark.{name}")


def __dir__() -> list[str]:
    return sorted([*__all__, *_WITH_SPARK, "__version__"])


def read_state(
    spark: SparkSession,
    checkpoint: str,
    store: str | None = None,
    *,
    ended_from: int | datetime | None = None,
    ended_to: int | datetime | None = None,
) -> DataFrame:
    """The rows of a store in a checkpoint, as of the last committed batch, as a static DataFrame.

    store  of an aggregation (`Materialized.as_("name")`): the result rows of its windows and `status`, "open" (so far)
           or "closed" (final, within the retention); of a suppression (`.with_name("name")`): the rows it holds back,
           `since` when their limit counts, and `until` when they leave. The aggregation's if left out.
    ended_from, ended_to
           only windows that ended then, both included (KIP-825's findSessions); epoch milliseconds or datetimes

    Raises CheckpointError if there is no state to read, DefinitionError for a store that the checkpoint does not have.
    """
    from tidegate.kernel.inspect.stored_rows import ended
    from tidegate.runtime.spark.reading import read_state as read_state_of

    return read_state_of(spark, str(checkpoint), store, ended(ended_from, ended_to))


def advise(
    records: Any,
    *,
    key: str | Sequence[str],
    timestamp: str,
    windows: TimeWindows,
    partition: str | None = None,
    offset: str | None = None,
    arrival: str | None = None,
    trigger: Duration | None = None,
    graces: Sequence[Duration] | None = None,
    aggregates: Mapping[str, Aggregate] | None = None,
    alert: Any = None,
    target: float = 0.001,
    format: str | None = None,
) -> Advice:
    """What each grace would have cost a recorded stream: late records, wrong rows, changed alerts, and the wait.

    records    a static Spark DataFrame; an Arrow table, a pandas or polars frame; or the path of a Parquet, CSV or JSON
               lines file, or of a folder of them, which is read without Spark
    windows    tumbling or hopping, with the grace of today
    key, timestamp, partition, offset
               as of `tg.stream`; a timestamp may also be epoch milliseconds, or text in ISO 8601
    arrival    the column that says when a record came (Kafka's own timestamp); it gives the order between partitions,
               waits by the clock, clocks that run ahead, and idle gaps
    trigger    with arrival, the interval of the batches; left out, the shortest
    graces     those of the table; left out, those that the data call for
    aggregates what a result holds, by name, as of `agg`; left out, `count`
    alert      which results raise an alert: text such as "count < 10", an expression of pyarrow.compute, or a function
               of an Arrow table (key columns, `start` and `end` in ms, aggregates) that gives a boolean for each row
    target     the share of (record, window) pairs that the chosen grace may leave late
    format     of files, where their names do not say it: "parquet", "csv" or "json"

    The order that is assumed is in `Advice.order` (docs/choosing-a-grace.md).
    Raises DefinitionError, DefinitionTypeError for a question that cannot mean anything, InputError for records that
    cannot be read.
    """
    from tidegate.advice import files
    from tidegate.advice.here import advise_table
    from tidegate.advice.question import Question

    question = Question.of(
        key,
        timestamp,
        windows,
        partition=partition,
        offset=offset,
        arrival=arrival,
        trigger=trigger,
        graces=graces,
        aggregates=aggregates,
        alert=alert,
        target=target,
    )
    if hasattr(records, "sparkSession"):
        from tidegate.runtime.spark.advising import advise_frame

        return advise_frame(question, records)
    if isinstance(records, str | PathLike):
        records = files.read(Path(records), question.columns, format)
    return advise_table(question, records)


def check_upgrade(spark: SparkSession, checkpoint: str, table: Result) -> Upgrade:
    """What would become of a checkpoint if `table` were started on it; the checkpoint is read and not touched.

    `table` is what a query is made of, bound to streaming DataFrames, or to names (`tg.stream("events", ...)`): then
    types of columns and the number of tasks are not compared. Several outputs are given as `tg.outputs(...)`.

    Raises CheckpointError if there is no state to read.
    """
    from tidegate.runtime.spark.checking import check_upgrade as check

    return check(spark, str(checkpoint), table)


def drain(
    table: Result, checkpoint: str, write: Callable[[DataFrame], DataStreamWriter], *, row_ids: bool = False
) -> None:
    """Let everything out that a stopped query holds, and end: windows close, buffers empty, in its last batches.

    table       what the query is made of, bound to its streaming DataFrames; nothing more is read of them
    checkpoint  its checkpointLocation; afterwards no plan starts on it, and draining it again does nothing
    write       gives the DataStreamWriter of the rows, as for the query itself, without trigger and checkpoint:
                `lambda rows: rows.writeStream.outputMode("update").foreachBatch(save)`
    row_ids     as of `to_df`: of a join whose rows go to `tg.kafka.sink`

    Call it again if it fails: it goes on where it was, and no batch is another one than before.
    Raises CheckpointError if there is no state to drain.
    """
    from tidegate.runtime.spark.draining import drain as drained

    drained(table, str(checkpoint), write, row_ids)


def _attach(table: Plan, row_ids: bool) -> DataFrame:
    from tidegate.runtime.spark.attach import to_df

    return to_df(table, row_ids=row_ids)


def _check_frame(stream: Stream, deleted: str | None = None) -> DataFrame:
    from tidegate.runtime.spark.attach import check_frame

    return check_frame(stream, deleted)


# Spark is imported when a DataFrame is at hand, not before: the kernel and the driver run without it.
dsl.attach = _attach
dsl.check_frame = _check_frame
