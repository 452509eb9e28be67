"""W1 in Flink SQL: a window table-valued function over files, by PyFlink with a cluster inside its JVM."""

from __future__ import annotations

import time

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from py4j.java_gateway import JavaObject
from pyflink.common import Configuration, WatermarkStrategy
from pyflink.common.typeinfo import TypeInformation
from pyflink.datastream import DataStream, StreamExecutionEnvironment
from pyflink.datastream.connectors.file_system import FileSource
from pyflink.datastream.connectors.hybrid_source import HybridSource
from pyflink.datastream.formats.parquet import ParquetColumnarRowInputFormat
from pyflink.table import DataTypes, Schema, StreamTableEnvironment
from pyflink.table.types import DataType

from benchmarks.inputs import GRACE_MS, SIZE_MS
from benchmarks.peers.contract import Report, Task, installed, millis, task

WATERMARK_MS = 200
"""Interval of watermarks, Flink's default: shorter times cannot be measured."""
TELLING = 10
"""A rate after the warm-up is reported if its time is at least this many watermark intervals."""

KEY_AND_TIME = {"user": DataTypes.STRING(), "ts": DataTypes.TIMESTAMP(3)}

SINK = """
CREATE TABLE final (`user` STRING, `start` BIGINT, `count` BIGINT, total BIGINT, left_at TIMESTAMP_LTZ(3))
WITH ('connector' = 'filesystem', 'path' = '{path}', 'format' = 'parquet', 'parquet.utc-timezone' = 'true')
"""

QUERY = f"""
INSERT INTO final
SELECT
  `user`,
  1000 * CAST(TIMESTAMPDIFF(SECOND, TIMESTAMP '1970-01-01 00:00:00', window_start) AS BIGINT),
  COUNT(*),
  SUM(amount),
  CURRENT_ROW_TIMESTAMP()
FROM TABLE(TUMBLE(TABLE events, DESCRIPTOR(ts), INTERVAL '{SIZE_MS // 1000}' SECOND(3)))
GROUP BY `user`, window_start, window_end
"""


def settings(work: Task) -> dict[str, str]:
    """Flink's settings; window functions always have mini-batches and two phases (page "Performance Tuning")."""
    return {
        "parallelism.default": str(work.parallelism),
        # "can be enabled ... for better performance" if no operator keeps its input objects (page "Execution
        # Configuration"); the operators of SQL do not.
        "pipeline.object-reuse": "true",
        "pipeline.auto-watermark-interval": f"{WATERMARK_MS} ms",
        # The heap is faster as long as state fits (page "State Backends"). RocksDB and the buffers of the aggregation
        # use managed memory: of 8 GB, which Spark has too, more than the 128 MB meant for trials.
        "state.backend.type": work.state,
        "taskmanager.memory.managed.size": "2 gb",
    }


class Given(TypeInformation):
    """A type known to Java: PyFlink cannot infer the type of a HybridSource, because of its generics."""

    def __init__(self, of: JavaObject) -> None:
        super().__init__()
        self._j_typeinfo = of

    def get_java_type_info(self) -> JavaObject:
        return self._j_typeinfo


def source(environment: StreamExecutionEnvironment, work: Task, columns: dict[str, DataType]) -> DataStream:
    """Reads the files of one micro-batch side by side, then the files of the next.

    A FileSource reads its files in no order, so most rows would be late. A HybridSource reads sources one after another
    (its page in "DataStream Connectors"). The SQL connector cannot.
    """
    row = DataTypes.ROW([DataTypes.FIELD(name, type) for name, type in columns.items()])
    form = ParquetColumnarRowInputFormat(row, is_utc_timestamp=True)
    first, *others = (
        FileSource.for_bulk_file_format(form, *map(str, together)).build()
        for together in zip(*work.halves(), strict=True)
    )
    builder = HybridSource.builder(first)
    for files in others:
        builder = builder.add_source(files)
    given = Given(form._j_bulk_format.getProducedType())
    return environment.from_source(builder.build(), WatermarkStrategy.no_watermarks(), "files", given)


def view(
    tables: StreamTableEnvironment,
    name: str,
    work: Task,
    value: str,
    environment: StreamExecutionEnvironment,
    grace_ms: int,
) -> None:
    """The files of `work` as the table `name`: user, ts and the number `value`, with a watermark of the grace."""
    columns = {**KEY_AND_TIME, value: DataTypes.BIGINT()}
    schema = Schema.new_builder()
    for column, type in columns.items():
        schema = schema.column(column, type)
    schema = schema.watermark("ts", f"ts - INTERVAL '{grace_ms // 1000}' SECOND").build()
    tables.create_temporary_view(name, tables.from_data_stream(source(environment, work, columns), schema))


def started(work: Task) -> tuple[StreamExecutionEnvironment, StreamTableEnvironment]:
    configuration = Configuration()
    for name, value in settings(work).items():
        configuration.set_string(name, value)
    configuration.set_string("pipeline.jars", ";".join(jar.as_uri() for jar in work.jars))
    environment = StreamExecutionEnvironment.get_execution_environment(configuration)
    return environment, StreamTableEnvironment.create(environment)


def main() -> None:
    work = task()
    environment, tables = started(work)
    view(tables, "events", work, "amount", environment, GRACE_MS)
    tables.execute_sql(SINK.format(path=work.output.as_uri()))
    began = time.time()
    tables.execute_sql(QUERY).wait()
    seconds = time.time() - began
    Report(work.rows(), seconds, warm(work, began, seconds), installed("apache-flink"), settings(work)).say()


def written(work: Task, columns: list[str]) -> pa.Table:
    """Columns of the rows that the query wrote."""
    files = (path for path in work.output.iterdir() if not path.name.startswith("."))
    return pa.concat_tables([pq.read_table(path, columns=columns) for path in files])


def warm(work: Task, began: float, seconds: float) -> tuple[int, float] | None:
    """(rows, seconds) at the emission of the first window that closes after `warm_up_rows` rows; None: unknown."""
    rows = written(work, ["start", "left_at"])
    left = pa.table({"start": rows["start"], "left_ms": millis(rows["left_at"])})
    for window in left.group_by("start").aggregate([("left_ms", "min")]).sort_by("start").to_pylist():
        read = rows_until(work, window["start"] + SIZE_MS + GRACE_MS)
        after = window["left_ms_min"] / 1000 - began
        if read is not None and read >= work.warm_up_rows:
            return (read, after) if telling(seconds - after) else None
    return None


def telling(seconds: float) -> bool:
    """Whether a rate over `seconds` says something."""
    return seconds >= TELLING * WATERMARK_MS / 1000


def rows_until(work: Task, stream_time_ms: int) -> int | None:
    """Number of rows until all source partitions reach `stream_time_ms`; None: not all do."""
    rows = 0
    for half in work.halves():
        ts = np.concatenate([millis(pq.read_table(path, columns=["ts"])["ts"]).to_numpy() for path in half])
        reached = np.flatnonzero(ts >= stream_time_ms)
        if not len(reached):
            return None
        rows += int(reached[0]) + 1
    return rows


if __name__ == "__main__":
    main()
