"""tidegate: decides when a streaming result may leave. Windowed aggregation with final results on Spark."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any, TypeVar

from tidegate.arguments import flag_of, has, location_of
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
from tidegate.dsl import frames as _frames
from tidegate.errors import (
    AggregationError,
    BufferFullError,
    CheckpointError,
    DefinitionError,
    DefinitionTypeError,
    InputError,
    TidegateError,
    TidegateWarning,
    in_one_line,
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
from tidegate.spec.missing import MissingNameError, has_pyspark, refuse, require_pyspark
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
    from tidegate.advice.limits import LimitAdvice
    from tidegate.advice.partners import JoinAdvice
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
    "advise_join",
    "advise_limit",
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
    """Print and return the rows that wait, the stream time they wait for, and the partition that holds it back.

    Args:
        of: A running StreamingQuery, or a TopologyTestDriver. A query answers from its last progress, without reading
            state; the driver knows every window.
        checkpoint: The checkpoint of the query. With it the state is read: every window, and the keys that a time limit
            holds back.

    Returns:
        One `Pending` per operator.

    Raises:
        CheckpointError: The checkpoint cannot be read.
        DefinitionTypeError: `of` is neither a StreamingQuery nor a TopologyTestDriver, or `checkpoint` is no path.

    Examples:
        >>> counts = events.group_by_key().windowed_by(tg.TimeWindows.of_size_and_grace("10 ms", "5 ms")).count()
        >>> driver = TopologyTestDriver(
        ...     counts.suppress(tg.Suppressed.until_window_closes(tg.BufferConfig.unbounded()))
        ... )
        >>> driver.pipe_input({"user": "A", "ts": 3})
        >>> [pending] = tg.explain_pending(driver)
        events: stream time is 3 (1970-01-01T00:00:00.003+00:00).
          window 0 to 10 ms waits for stream time 15 (1970-01-01T00:00:00.015+00:00): 12 milliseconds to go
          A record with a later timestamp, of any key and partition, moves stream time on.
    """
    if has(of, "recentProgress"):
        from tidegate.runtime.spark.checkpoints.pending import pending as of_query

        found = of_query(of, None if checkpoint is None else location_of(checkpoint, "checkpoint"))
    elif has(of, "pending_of_chain"):
        driver: Any = of
        found = driver.pending_of_chain()
    else:
        raise DefinitionTypeError(
            f"`of` is {in_one_line(of)}, neither a StreamingQuery nor a TopologyTestDriver. Give the query that "
            "start() returned, or a driver that records were piped to."
        )
    print("\n".join(map(str, found)) or "No micro-batch has finished yet: call it again after the first one.")  # noqa: T201 - that is what it is for
    return found


def configure(spark_or_builder: Session, *, faster: bool = False) -> Session:
    """Set the Spark settings that tidegate needs on a session or a session builder, and return it.

    The state store becomes RocksDB with changelog checkpointing: the operator cannot run on the default store. A
    platform's own RocksDB store stays. Arrow batches for Python get up to 50,000 rows, unless the session has changed
    Spark's default. Tracebacks of Python functions are not simplified, so that all tasks share their Python workers;
    a builder that sets this keeps its choice. A builder whose Spark runs on this machine alone also gets workers with
    the Python of this process, unless PYSPARK_PYTHON names another one, and settings that shorten each batch: workers
    that are forked with everything imported, socket files instead of TCP, and files of a checkpoint that start no
    programs. docs/operations.md lists the settings with their prices.

    Args:
        spark_or_builder: A SparkSession, or a builder of one.
        faster: Add settings that save time per batch and have a price: no checksum files beside checkpoint files and,
            on a builder of a cluster's session, socket files.

    Returns:
        The session or the builder.

    Raises:
        TidegateError: Spark, Java, a package, the Kafka connector or the Python of workers does not fit. The message
            has the remedy, as `tidegate doctor` has in the shell.
        DefinitionTypeError: `spark_or_builder` is neither, or `faster` is not True or False.

    Examples:
        ```python
        spark = tg.configure(SparkSession.builder.config("spark.sql.shuffle.partitions", "4")).getOrCreate()
        ```
    """
    require_pyspark("tidegate.configure")
    from tidegate.runtime.spark.session.config import configure as configure_spark

    return configure_spark(spark_or_builder, faster=flag_of(faster, "faster"))


def __getattr__(name: str) -> Any:
    """Import a module that needs Spark (`_WITH_SPARK`) at its first use. Raises MissingNameError without pyspark."""
    if name not in _WITH_SPARK:
        refuse(f"module {__name__!r}", name, _UNTIL_THEN)
    require_pyspark(f"tidegate.{name}", MissingNameError)
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
    """Read the rows of a store in a checkpoint, as of the last committed batch, as a static DataFrame.

    The store of an aggregation has the result rows of its windows with `status`: "open" (so far) or "closed" (final,
    within the retention). The store of a suppression has the rows that it holds back: their limit counts from `since`,
    and they leave at `until`.

    Args:
        spark: The session.
        checkpoint: The checkpointLocation of the query.
        store: The name of the store: `Materialized.as_("name")` of an aggregation, `.with_name("name")` of a
            suppression. Left out, the store of the last aggregation.
        ended_from: Only windows that ended at this time or later (KIP-825's findSessions); epoch milliseconds or a
            datetime.
        ended_to: Only windows that ended at this time or earlier.

    Returns:
        The DataFrame.

    Raises:
        CheckpointError: There is no state to read.
        DefinitionError: The checkpoint has no store of this name.
        DefinitionTypeError: `ended_from` or `ended_to` is no instant, or another argument is of the wrong kind.

    Examples:
        ```python
        waiting = tg.read_state(spark, "/data/checkpoints/alerts").where("status = 'open'")
        ```
    """
    require_pyspark("tidegate.read_state")
    from tidegate.kernel.inspect.stored_rows import ended
    from tidegate.runtime.spark.checkpoints.reading import read_state as read_state_of

    return read_state_of(spark, location_of(checkpoint, "checkpoint"), store, ended(ended_from, ended_to))


def advise(
    records: Any,
    *,
    key: str | Sequence[str],
    timestamp: str,
    windows: TimeWindows | SlidingWindows | SessionWindows,
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
    """Compute the cost of each grace for a recorded stream: late records, wrong rows, changed alerts, and the wait.

    `Advice.order` says which order of the records is assumed (docs/choosing-a-grace.md).

    Args:
        records: A static Spark DataFrame; an Arrow table, a pandas or polars frame; or the path of a Parquet, CSV or
            JSON lines file, or of a folder of them, which is read without Spark.
        key: As of `tg.stream`.
        timestamp: As of `tg.stream`; also epoch milliseconds, or text in ISO 8601.
        windows: Tumbling, hopping or sliding windows, or sessions, with today's grace.
        partition: As of `tg.stream`.
        offset: As of `tg.stream`.
        arrival: The column with the arrival time of a record (Kafka's own timestamp). It gives the order between
            partitions, waits by the wall clock, clocks that run ahead, and idle gaps.
        trigger: With `arrival`, the interval of the batches; left out, the shortest.
        graces: The graces to compare; left out, graces that fit the data.
        aggregates: The aggregates of a result by name, as of `agg`; left out, `count`.
        alert: The condition of an alert: text such as "count < 10", an expression of pyarrow.compute, or a function of
            an Arrow table (key columns, `start` and `end` in ms, aggregates) that returns a boolean for each row.
        target: The share of (record, window) pairs that the chosen grace may leave late.
        format: The format of files whose names do not say it: "parquet", "csv" or "json".

    Returns:
        The advice. It prints as a page of text and shows as a picture in a notebook.

    Raises:
        DefinitionError: The arguments are invalid.
        DefinitionTypeError: An argument has the wrong type.
        InputError: The records cannot be read.
        AggregationError: `alert` is a function that raises.

    Examples:
        >>> recorded = pa.table({"user": ["A"] * 6, "ts": [10, 11, 13, 11, 14, 10]})
        >>> windows = tg.TimeWindows.of_size_and_grace("2 ms", "2 ms")
        >>> advice = tg.advise(recorded, key="user", timestamp="ts", windows=windows)
        >>> [(cost.grace, cost.late) for cost in advice.costs]
        [(0, 2), (2, 1), (5, 0)]
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
    if has(records, "sparkSession"):
        from tidegate.runtime.spark.advising.stream import advise_frame

        return advise_frame(question, records)
    return advise_table(question, files.recording(question, records, format))


def advise_join(
    left: Any,
    right: Any,
    *,
    key: str | Sequence[str],
    timestamp: str,
    right_timestamp: str | None = None,
    partition: str | None = None,
    offset: str | None = None,
    arrival: str | None = None,
    trigger: Duration | None = None,
    stream_time: str = "min_partition",
    target: float = 0.01,
    format: str | None = None,
) -> JoinAdvice:
    """Compute how many partners each size of join windows finds for records of two recorded streams.

    The sizes follow from the distances between records of a key. With `arrival` the answer also has the grace that the
    pairs of the chosen windows need.

    Args:
        left: An Arrow table, a pandas or polars frame, or the path of a Parquet, CSV or JSON lines file or of a folder
            of them; or a static Spark DataFrame, if `right` is one too.
        right: The other side.
        key: The columns of the join key, with the same names on both sides.
        timestamp: The column with the event time, as of `tg.advise`.
        right_timestamp: The column with the event time of the right side, if its name differs.
        partition: As of `tg.stream`, with the same name on both sides.
        offset: As of `tg.stream`, with the same name on both sides.
        arrival: The column with the arrival time of a record, with the same name on both sides.
        trigger: With `arrival`, the interval of the batches; left out, the shortest.
        stream_time: With `arrival`, the stream time of the join: "min_partition" or "max".
        target: The share of left records with partners that the chosen windows may leave without one; also the share of
            pairs that the grace may lose.
        format: The format of files whose names do not say it: "parquet", "csv" or "json".

    Returns:
        The advice. It prints as text.

    Raises:
        DefinitionError: The arguments are invalid, or a column does not exist.
        DefinitionTypeError: An argument has the wrong type.
        InputError: The records cannot be read.

    Examples:
        >>> clicks = pa.table({"ad": ["a", "b"], "ts": [10_000, 20_000]})
        >>> buys = pa.table({"ad": ["a", "b"], "ts": [14_000, 21_000]})
        >>> tg.advise_join(clicks, buys, key="ad", timestamp="ts").after
        5000
    """
    from tidegate.advice import files
    from tidegate.advice.here import as_table
    from tidegate.advice.partners import advise_sides, question

    times = (timestamp, timestamp if right_timestamp is None else right_timestamp)
    asked = [
        question(key, time, partition=partition, offset=offset, arrival=arrival, trigger=trigger) for time in times
    ]
    if has(left, "sparkSession") or has(right, "sparkSession"):
        from tidegate.runtime.spark.advising.joins import advise_frames

        return advise_frames((left, right), (asked[0], asked[1]), target, stream_time)
    tables = [as_table(files.recording(one, side, format)) for side, one in zip((left, right), asked, strict=True)]
    return advise_sides(tables[0], tables[1], (asked[0], asked[1]), target, stream_time)


def advise_limit(
    records: Any,
    *,
    key: str | Sequence[str],
    timestamp: str,
    windows: TimeWindows | None = None,
    partition: str | None = None,
    offset: str | None = None,
    arrival: str | None = None,
    limits: Sequence[Duration] | None = None,
    max_records: Sequence[int] | None = None,
    format: str | None = None,
) -> LimitAdvice:
    """Compute how many updates of a recorded stream `Suppressed.until_time_limit` saves, and how long rows wait.

    The limit is by stream time and counts from the first update. Each record makes an update, as in the test driver
    without batches. A query on Spark with caching forwards fewer updates: one per key and batch.

    Args:
        records: An Arrow table, a pandas or polars frame, or the path of a Parquet, CSV or JSON lines file or of a
            folder of them; or a static Spark DataFrame.
        key: As of `tg.stream`.
        timestamp: As of `tg.advise`.
        windows: Tumbling or hopping windows with their grace; left out, groups without windows.
        partition: As of `tg.stream`.
        offset: As of `tg.stream`.
        arrival: As of `tg.advise`: it gives the order between partitions.
        limits: The time limits to compare; left out, limits that fit the data.
        max_records: Bounds of the buffer to compare, besides an unbounded one; not for Spark DataFrames.
        format: The format of files whose names do not say it: "parquet", "csv" or "json".

    Returns:
        The advice. It prints as text.

    Raises:
        DefinitionError: The arguments are invalid, or a column does not exist.
        DefinitionTypeError: An argument has the wrong type.
        InputError: The records cannot be read.

    Examples:
        >>> prices = pa.table({"article": ["A", "A", "B", "A", "A"], "ts": [2_000, 6_000, 9_000, 11_000, 16_000]})
        >>> found = tg.advise_limit(prices, key="article", timestamp="ts", limits=["5 seconds"], max_records=[1])
        >>> [(cost.max_records, cost.rows, cost.early, cost.wait_p95) for cost in found.costs]
        [(None, 3, 0, 7000), (1, 3, 1, 7000)]
    """
    from tidegate.advice import files
    from tidegate.advice.here import as_table
    from tidegate.advice.limits import advise_updates, question

    asked = question(
        key, timestamp, windows, partition=partition, offset=offset, arrival=arrival, limits=limits, bounds=max_records
    )
    if has(records, "sparkSession"):
        from tidegate.runtime.spark.advising.limits import advise_limit_frame

        return advise_limit_frame(asked, records)
    return advise_updates(asked, as_table(files.recording(asked.about, records, format)))


def check_upgrade(spark: SparkSession, checkpoint: str, table: Result) -> Upgrade:
    """Compare a plan with a checkpoint: can a query with this plan go on from it? The checkpoint is only read.

    Args:
        spark: The session.
        checkpoint: The checkpointLocation of the query.
        table: The table of the query, or `tg.outputs(...)` of several. It is bound to streaming DataFrames or to names
            (`tg.stream("events", ...)`), with the same columns for key, timestamp, partition and offset. With names,
            column types and the number of tasks are not compared.

    Returns:
        The changes, and whether a query with the plan can go on.

    Raises:
        CheckpointError: There is no state to read.
        DefinitionTypeError: An argument is of the wrong kind.

    Examples:
        ```python
        events = tg.stream("events", key="user", timestamp="ts", partition="partition", offset="offset")
        print(tg.check_upgrade(spark, "/data/checkpoints/alerts", build(events)))
        ```
    """
    require_pyspark("tidegate.check_upgrade")
    from tidegate.runtime.spark.checkpoints.upgrade_check import check_upgrade as check

    return check(spark, location_of(checkpoint, "checkpoint"), table)


def drain(
    table: Result, checkpoint: str, write: Callable[[DataFrame], DataStreamWriter], *, row_ids: bool = False
) -> None:
    """Emit everything that a stopped query holds, in its last batches: all windows close and all buffers empty.

    If it fails, call it again: it goes on where it stopped and repeats no batch with other rows.

    Args:
        table: The table of the query, bound to its streaming DataFrames. No new records are read from them.
        checkpoint: Its checkpointLocation. Afterwards no plan starts on it, and draining it again does nothing.
        write: A function that returns the DataStreamWriter of the rows, as for the query itself, but without trigger
            and checkpoint.
        row_ids: As in `to_df`, for a join whose rows are written by `tg.kafka.sink`.

    Raises:
        CheckpointError: There is no state to drain.
        DefinitionTypeError: `table` is no table of streaming DataFrames, `write` gives no DataStreamWriter, or another
            argument is of the wrong kind.
        TidegateError: The session is one of Spark Connect, which cannot plan batches.

    Examples:
        ```python
        def write(rows):
            return rows.writeStream.outputMode("update").foreachBatch(save)

        tg.drain(final, "/data/checkpoints/alerts", write)
        ```
    """
    require_pyspark("tidegate.drain")
    from tidegate.runtime.spark.checkpoints.draining import drain as drained

    drained(table, location_of(checkpoint, "checkpoint"), write, flag_of(row_ids, "row_ids"))


def _to_spark(table: Plan, row_ids: bool, text_of_times: bool) -> DataFrame:
    from tidegate.runtime.spark.to_spark import to_df

    return to_df(table, row_ids=row_ids, text_of_times=text_of_times)


def _check_frame(stream: Stream, deleted: str | None = None) -> DataFrame:
    if not has_pyspark():  # only then: showing a Spark DataFrame may ask its server
        raise DefinitionTypeError(
            f"`source` is {in_one_line(stream.frame)} ({type(stream.frame).__name__}), not the name of an input to be "
            "bound later, and a Spark DataFrame needs pyspark. Run: pip install 'tidegate[spark]'"
        )
    from tidegate.runtime.spark.inputs import check_frame

    return check_frame(stream, deleted)


# Spark is imported only when there is a DataFrame: the kernel and the driver run without it.
_frames.to_spark = _to_spark
_frames.check_frame = _check_frame
