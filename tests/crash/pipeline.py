"""The pipeline that gets killed: files in, final results and late records into a folder, each exactly once.

`python -m crash.pipeline FOLDER` runs forever; with `--end` it takes all files, and then collects the rows of the
sink into `FOLDER/result.parquet`. With `--master URL` it runs on a cluster, otherwise in this process.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

import tidegate as tg

SCHEMA = pa.schema(
    {
        "k": pa.string(),
        "v": pa.int64(),
        "ts": pa.timestamp("us", "UTC"),
        "partition": pa.int32(),
        "offset": pa.int64(),
    }
)
TASKS = 3
FAILURES = 3
"""Attempts of a task: Spark replaces a killed worker within the batch, and only a third failure ends the query."""


def topology(events: tg.KStream) -> Any:
    """Final counts and sums per key and ten seconds, and late records."""
    windows = tg.TimeWindows.of_size_and_grace("10 seconds", "5 seconds")
    totals = events.group_by_key().windowed_by(windows).agg(n=tg.count(), total=tg.sum("v"), last=tg.last("v"))
    final = totals.suppress(tg.Suppressed.until_window_closes(tg.BufferConfig.unbounded()))
    return tg.outputs(final=final, late=totals.late_records())


def stream(source: Any) -> tg.KStream:
    schema = SCHEMA if isinstance(source, str) else None
    return tg.stream(source, key="k", timestamp="ts", partition="partition", offset="offset", schema=schema)


def session(master: str | None, **settings: str) -> Any:
    """A Spark whose workers find the package and this module at their paths on this machine."""
    from pyspark.sql import SparkSession

    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    builder = (
        SparkSession.builder.master(master or f"local[2,{FAILURES}]")
        .config("spark.task.maxFailures", str(FAILURES))
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.executorEnv.PYTHONPATH", os.environ.get("PYTHONPATH", ""))
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.sql.shuffle.partitions", str(TASKS))
        .config("spark.sql.session.timeZone", "UTC")
    )
    for name, value in settings.items():
        builder = builder.config(name, value)
    return tg.configure(builder).getOrCreate()


def counted(spark: Any, folder: Path) -> Any:
    return topology(stream(files(spark, SCHEMA, folder / "in"))).to_df()


def files(spark: Any, schema: pa.Schema, folder: Path) -> Any:
    """Stream of the files in a folder, one file per micro-batch."""
    empty = spark.createDataFrame(schema.empty_table()).schema
    return spark.readStream.schema(empty).option("maxFilesPerTrigger", 1).parquet(str(folder))


def arguments() -> argparse.Namespace:
    """The arguments of the command line."""
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("--end", action="store_true")
    parser.add_argument("--master")
    return parser.parse_args()


def take(writer: Any, chosen: argparse.Namespace) -> None:
    """Run the query of this writer, forever or until all files are taken."""
    writer = writer.option("checkpointLocation", str(chosen.folder / "checkpoint"))
    query = (writer.trigger(availableNow=True) if chosen.end else writer).start()
    query.awaitTermination()


def run(rows: Callable[[Any, Path], Any], **settings: str) -> None:
    """Write the stream that `rows` makes of a Spark and a folder into a sink, by the arguments of the command line."""
    chosen = arguments()
    folder, spark = chosen.folder, session(chosen.master, **settings)
    take(rows(spark, folder).writeStream.format("parquet").option("path", str(folder / "out")), chosen)
    # Read through Spark: its sink log tells which files count, and excludes files of a killed batch.
    pq.write_table(spark.read.parquet(str(folder / "out")).toArrow(), folder / "result.parquet")
    spark.stop()


if __name__ == "__main__":
    run(counted)
