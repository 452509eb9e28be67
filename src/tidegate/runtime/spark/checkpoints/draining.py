"""The last run over a checkpoint: two empty micro-batches, of which the second emits everything.

Spark makes no batch if no source has new data, so both are planned beforehand: an entry in the query's offset log with
the offsets of the last one, as Spark itself writes for a batch without data. Spark runs a batch that it finds planned
and not committed.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from py4j.protocol import Py4JError, Py4JJavaError
from pyspark.sql import DataFrame, SparkSession

from tidegate.dsl import Result
from tidegate.errors import CheckpointError, DefinitionTypeError, TidegateError, in_one_line
from tidegate.kernel.state.state import State
from tidegate.runtime.spark.checkpoints.reading import memories
from tidegate.runtime.spark.session.installed import checkpointing
from tidegate.runtime.spark.to_spark import to_df

_MOST_BATCHES = 3
"""One that was planned before, one that begins the drain and one that ends it."""


def drain(table: Any, checkpoint: str, write: Callable[[DataFrame], Any], row_ids: bool = False) -> None:
    """See `tg.drain`."""
    if not isinstance(table, Result):
        raise DefinitionTypeError(f"`table` is {table!r}, not a table or outputs of tidegate. Give what you run.")
    if not callable(write):
        raise DefinitionTypeError(
            f"`write` is {in_one_line(write)}, not a function of the rows. Give for example "
            'lambda rows: rows.writeStream.format("parquet").option("path", "/data/counts").'
        )
    rows = to_df(table.node, drains=True, row_ids=row_ids)
    if not rows.isStreaming:
        raise DefinitionTypeError("`table` is of static DataFrames, whose windows all close anyway: use to_df().")
    spark = rows.sparkSession
    for _ in range(_MOST_BATCHES):
        if _done(spark, checkpoint):
            return
        writer = _writer(write, rows)
        _plan(spark, checkpoint)
        # `once` runs the planned batch and no other, however much there is to read.
        query = writer.option("checkpointLocation", checkpoint).trigger(once=True).start()
        try:
            query.awaitTermination()
        finally:
            query.stop()  # behind Ctrl-C it would go on
    if not _done(spark, checkpoint):
        raise CheckpointError(f"{checkpoint!r} is not drained: its batches do not follow each other. Call it again.")


def _writer(write: Callable[[DataFrame], Any], rows: DataFrame) -> Any:
    """The writer that `write` gives. Raises DefinitionTypeError if it gives another value."""
    writer = write(rows)
    if not (hasattr(writer, "option") and hasattr(writer, "trigger")):
        raise DefinitionTypeError(
            f"`write` gives {in_one_line(writer)}, not the DataStreamWriter of the rows. Return rows.writeStream with "
            "its format and options, and do not start it."
        )
    return writer


def _done(spark: SparkSession, checkpoint: str) -> bool:
    opened = [State.open(store) for stores in memories(spark, checkpoint) for store in stores]
    return all(state is not None and state.drained for state in opened)


def _plan(spark: SparkSession, checkpoint: str) -> None:
    """Plan an empty batch, unless one is planned."""
    offsets, commits = (_log(spark, name, f"{checkpoint}/{folder}") for name, folder in _FOLDERS)
    last = offsets.getLatestBatchId().get()
    committed = commits.getLatestBatchId()
    if committed.isDefined() and committed.get() == last:
        offsets.add(last + 1, offsets.get(last).get())


_FOLDERS = (("OffsetSeqLog", "offsets"), ("CommitLog", "commits"))


def _log(spark: SparkSession, name: str, folder: str) -> Any:
    jvm = getattr(spark, "_jvm", None)
    session = getattr(spark, "_jsparkSession", None)
    if jvm is None or session is None:
        raise TidegateError(
            "tg.drain plans batches in the checkpoint, which Spark Connect cannot. Use a session without it."
        )
    made = getattr(jvm, f"{checkpointing()}.{name}")
    # Since Spark 4.3 the constructor has a flag for logs that are only read.
    for arguments in ((session, folder, False), (session, folder)):
        try:
            return made(*arguments)
        except Py4JJavaError:
            raise
        except Py4JError:  # no such constructor
            continue
    raise TidegateError(f"this Spark's {name}, in which tg.drain plans its batches, is made in another way.")
