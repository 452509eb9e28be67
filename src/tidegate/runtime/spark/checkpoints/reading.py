"""The rows of a store in a checkpoint as a DataFrame, through Spark's state reader.

Spark gives the entries of an operator's map (runtime.spark.worker.state) as bytes. The tasks that read them decode
them, one state partition at a time. The store holds a description of itself (`kernel.upgrade.description`), so no plan
is needed.
"""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager

import pyarrow as pa
from py4j.protocol import Py4JJavaError
from pyspark.errors import AnalysisException, PySparkException
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from tidegate.errors import CheckpointError
from tidegate.kernel.choice import operator_of
from tidegate.kernel.columns.arrays import as_schema
from tidegate.kernel.inspect import stored_rows
from tidegate.kernel.inspect.pending import pending as waits
from tidegate.kernel.state.state import State
from tidegate.kernel.state.store import DictStore
from tidegate.kernel.upgrade import description
from tidegate.kernel.upgrade.compatibility import evolved
from tidegate.kernel.upgrade.description import Described
from tidegate.plan import Operation
from tidegate.runtime.spark.frames.arrow import schema_as_spark_reads, spark_schema
from tidegate.runtime.spark.frames.public import public
from tidegate.runtime.spark.row_decoder import MapInArrow
from tidegate.runtime.spark.session.given import check_session
from tidegate.runtime.spark.worker.state import NAMED, NAMES, name_at, part_of
from tidegate.runtime.spark.worker.state_variable import LOG
from tidegate.spec.pending import Pending, together

_PLACE, _PART = ("window", "segment", "part"), ("parts", "value")
Ended = tuple[int | None, int | None]

_OURS = "transformWithState"
"""The beginning of the name that Spark has for an operator of ours."""

_NO_BATCH = "STDS_COMMITTED_BATCH_UNAVAILABLE"
"""The condition of the error of Spark's state reader for a checkpoint whose first batch was not committed."""

_FORMAT = "spark.sql.streaming.stateStore.checkpointFormatVersion"
"""The setting by which names of state files have an id behind the version. The checkpoint does not tell Spark's state
reader of it.
"""
_WITH_ID = re.compile(r'NumberFormatException: For input string: "\d+_[0-9a-f]+-')
"""The error of a session with the first format for names of the second one."""

_SCHEMA = "_stateSchema"
"""The folder with the schemas of an operator's state, whose files a checkpoint knows by their whole path."""

_QUOTED = re.compile(r"""[\s\x00-\x1f\x7f-\x9f"#%<>?\[\\\]^`{|}]""")
"""Characters that Java quotes in the path of a URI. Spark's state reader takes the quoted path for the name itself."""


def read_state(spark: SparkSession, checkpoint: str, store: str | None, ended: Ended) -> DataFrame:
    """The rows of a store as of the last batch; see `kernel.inspect.stored_rows.schema` for the columns.

    Raises CheckpointError if the checkpoint has no state of tidegate, DefinitionError for a store it does not have.
    """
    check_session(spark)
    found = _found(spark, checkpoint)
    if not found:
        raise nothing(checkpoint)
    place, name = stored_rows.chosen([described for _, described in found], store)
    return _rows(*found[place], name, ended)


def pending(spark: SparkSession, checkpoint: str) -> list[Pending]:
    """The `Pending` of each operator as of the last batch, upstream operators first."""
    operators = []
    for entries, described in _found(spark, checkpoint):
        with _readable(spark, checkpoint):
            rows = entries.mapInArrow(_pending_as_text(described), "pending string").collect()
        tasks = [json.loads(row[0]) for row in rows]
        if tasks:
            windows = {tuple(window) for task in tasks for window in task["windows"]}
            operators.append(together([Pending.from_dict(task["pending"]) for task in tasks], len(windows)))
    # Spark numbers operators from the sink.
    return operators[::-1]


def operators(spark: SparkSession, checkpoint: str) -> list[Operation]:
    """The operations in a checkpoint, upstream operators first.

    Raises CheckpointError if the checkpoint has no state of tidegate.
    """
    found = [described.layout.op for _, described in _found(spark, checkpoint)]
    if not found:
        raise nothing(checkpoint)
    return found[::-1]


def memories(spark: SparkSession, checkpoint: str) -> list[list[DictStore]]:
    """By operator, upstream ones first: the named values of each task's store, without its segments.

    An operator that no row has reached yet has no store. Raises CheckpointError if the checkpoint has no state of
    tidegate.
    """
    found = []
    for entries in _operators(spark, checkpoint):
        with _readable(spark, checkpoint):
            found.append(_stores(entries.where(F.col("window") == NAMED).toArrow().to_batches()))
    if all(store.get(description.LAYOUT) is None for stores in found for store in stores):
        raise nothing(checkpoint)
    return found[::-1]


def partitions(spark: SparkSession, checkpoint: str) -> int:
    """Number of shuffle partitions that a checkpoint is bound to. Raises CheckpointError if it has no state."""
    found = _listed(spark, checkpoint, "numPartitions")
    if not found:
        raise nothing(checkpoint)
    return int(found[0][0])


def _pending_as_text(described: Described) -> MapInArrow:
    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for store in _stores(batches):
            if (state := State.open(store)) is not None:
                layout = evolved(state, described.layout)
                windows = [window for window, _ in operator_of(layout).open_windows(state)]
                text = json.dumps({"pending": waits(layout, state).to_dict(), "windows": windows})
                yield pa.record_batch([pa.array([text])], ["pending"])

    return run


def nothing(checkpoint: str) -> CheckpointError:
    """The error for a checkpoint that has no state of tidegate."""
    return CheckpointError(
        f"{checkpoint!r} has no state that can be read: no batch of a tidegate query was committed there, or by "
        "a version that did not describe its state. Run a batch with this one, or name another checkpointLocation."
    )


def _check_path(checkpoint: str) -> None:
    if (found := _QUOTED.search(checkpoint)) is not None:
        raise CheckpointError(
            f"The state in {checkpoint!r} cannot be read: if the path of a checkpoint has the character {found[0]!r}, "
            "Spark's state reader looks for another folder. Rename the folder while no query runs, or make a link to "
            "it (ln -s), and give a path without this character; a query goes on under either."
        )


def _found(spark: SparkSession, checkpoint: str) -> list[tuple[DataFrame, Described]]:
    found = []
    for operator in _operators(spark, checkpoint):
        with _readable(spark, checkpoint):
            described = _described(operator)
        if described is not None:
            found.append((operator, described))
    return found


@contextmanager
def _readable(spark: SparkSession, checkpoint: str) -> Iterator[None]:
    """Raises CheckpointError with the reason if Spark cannot read the state in there."""
    try:
        yield
    except (Py4JJavaError, PySparkException) as error:
        raise _unreadable(spark, checkpoint, error) from error


def _unreadable(spark: SparkSession, checkpoint: str, error: Exception) -> CheckpointError:
    reason = _reason(error)
    if _WITH_ID.search(reason) is not None:
        if spark.conf.get(_FORMAT, "1") == "2":
            return CheckpointError(
                f"The query of {checkpoint!r} has {_FORMAT} = 2, and the state reader of Spark {spark.version} cannot "
                "read such a state, with the setting either. A query goes on there; read its state with a later Spark."
            )
        return CheckpointError(
            f"The query of {checkpoint!r} has {_FORMAT} = 2, and this session has not, so Spark cannot read the "
            f'state. Call spark.conf.set("{_FORMAT}", "2") before (in the shell: --conf {_FORMAT}=2).'
        )
    if _SCHEMA in reason:
        return CheckpointError(
            f"The state in {checkpoint!r} cannot be read: {reason}. Spark keeps the path of this file in the "
            "checkpoint. If the checkpoint was moved, or the original of this copy is gone, put it back at its old "
            f"path, or copy the folder {_SCHEMA} of its state to the old path, for a query too."
        )
    return CheckpointError(
        f"The state in {checkpoint!r} cannot be read: {reason}. Is a file missing or damaged? Restore it "
        "from a copy of the checkpoint. If a query runs there, it may have removed files meanwhile: call it again."
    )


def _operators(spark: SparkSession, checkpoint: str) -> Iterator[DataFrame]:
    """The entries of every stateful operator that may be ours: (task, window, segment, part, parts, value)."""
    _check_path(checkpoint)
    _ = spark.streams  # before 4.3 the reader needs the state store's coordinator, which this starts
    listed = _listed(spark, checkpoint, "operatorId", "operatorName", "numPartitions")
    for number, partitions in sorted((number, many) for number, name, many in listed if name.startswith(_OURS)):
        reader = spark.read.format("statestore").option("operatorId", number).option("stateVarName", LOG)
        try:
            entries = reader.load(checkpoint)
        except AnalysisException:
            continue  # an operator that is not ours and has no such variable
        except Py4JJavaError as error:
            raise _unreadable(spark, checkpoint, error) from error
        except PySparkException as error:
            if error.getCondition() != _NO_BATCH:
                raise
            return
        if {"task", *_PLACE, *_PART} <= _fields(entries):
            at = [F.col("user_map_key")[name].alias(name) for name in _PLACE]
            holds = [F.col("user_map_value")[name].alias(name) for name in _PART]
            with _readable(spark, checkpoint):
                _check_partitions(entries, partitions, checkpoint)
            yield entries.select(F.col("key")["task"].alias("task"), *at, *holds)


def _check_partitions(entries: DataFrame, partitions: int, checkpoint: str) -> None:
    """Raise CheckpointError if Spark finds fewer partitions of a state than it had: it reads the others without a word.

    It notices a missing partition unless that is the last one. Spark Connect does not tell the number.
    """
    try:
        found = entries.rdd.getNumPartitions()
    except (AttributeError, NotImplementedError):
        return
    if found < partitions:
        raise CheckpointError(
            f"The state in {checkpoint!r} cannot be read: its list of operators has {partitions} partitions of a "
            f"state, and {found} are there. Restore the folders of the others from a copy of the checkpoint."
        )


def _listed(spark: SparkSession, checkpoint: str, *columns: str) -> list[Row]:
    """These columns of Spark's list of the stateful operators in a checkpoint; empty if there is no list.

    Raises CheckpointError if Spark cannot look there.
    """
    try:
        return spark.read.format("state-metadata").load(checkpoint).select(*columns).distinct().collect()
    except AnalysisException:
        return []
    except (Py4JJavaError, PySparkException) as error:
        raise CheckpointError(
            f"Spark cannot look at {checkpoint!r}: {_reason(error)}. Name the checkpointLocation as the query does, "
            "and give the session the packages and settings of its store (--conf in the shell)."
        ) from error


def _reason(error: Exception) -> str:
    """The reason of an error in one line: of an error of Java its first cause."""
    if not isinstance(error, Py4JJavaError):
        return str(error).strip().split("\n")[0]
    cause = error.java_exception
    while (deeper := cause.getCause()) is not None:
        cause = deeper
    return str(cause.toString()).split("\n")[0]


def _fields(entries: DataFrame) -> set[str]:
    """The names inside the structs of a map's entries, as Spark's reader gives them."""
    structs = [field.dataType for field in entries.schema.fields]
    return {field.name for kind in structs if isinstance(kind, StructType) for field in kind.fields}


def _described(entries: DataFrame) -> Described | None:
    place = NAMES.index(description.LAYOUT)
    mine = entries.where((F.col("window") == NAMED) & (F.col("segment") == place))
    parts: dict[int, list[tuple[int, bytes]]] = defaultdict(list)
    for row in mine.select("task", "part", *_PART).collect():
        parts[row[0]].append((row[1], part_of(row[2], bytes(row[3]))))
    return description.read(_joined(next(iter(parts.values())))) if parts else None


def _joined(parts: list[tuple[int, bytes]]) -> bytes:
    return b"".join(value for _, value in sorted(parts))


def _rows(entries: DataFrame, described: Described, name: str, ended: Ended) -> DataFrame:
    schema = stored_rows.schema(described, name)
    rows = entries.mapInArrow(_decoder(described, name, ended), spark_schema(schema_as_spark_reads(schema)))
    return rows.select(*public(schema.names))


def _decoder(described: Described, name: str, ended: Ended) -> MapInArrow:
    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for store in _stores(batches):
            rows = stored_rows.rows(described, store, name, ended)
            yield from as_schema(rows, schema_as_spark_reads(rows.schema)).to_batches()

    return run


def _stores(batches: Iterator[pa.RecordBatch]) -> list[DictStore]:
    """The state of each task in memory, put together from its entries."""
    values: dict[int, dict[tuple[int, int], list[tuple[int, bytes]]]] = defaultdict(lambda: defaultdict(list))
    for batch in batches:
        entries = zip(*(column.to_pylist() for column in batch.columns), strict=True)
        for task, window, segment, part, parts, value in entries:
            values[task][window, segment].append((part, part_of(parts, value)))
    return [_store(entries) for entries in values.values()]


def _store(entries: dict[tuple[int, int], list[tuple[int, bytes]]]) -> DictStore:
    store = DictStore()
    for (window, segment), parts in entries.items():
        if window == NAMED:
            store.put(name_at(segment), _joined(parts))
        else:
            store.write(window, segment, _joined(parts))
    return store
