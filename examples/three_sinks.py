"""One aggregation, three outputs, three sinks, each row in its sink exactly once.

Payments per shop and minute: `raw` has the counts as they grow (for a dashboard), `final` has each count once (for the
books), and `late` has whole payments that came too late for their minute (for review). One query computes all three;
its one stateful operator stores the counts once.

    tg.to_df(raw=..., final=..., late=...)  ->  foreachBatch(frame, batch id)  ->  a folder per output

Each row is written exactly once, because a failed batch is run again with the same id and the same rows: the rows of
batch n go to a place named by n and replace its content. This works with any sink that can replace the rows of batch n:
a folder per batch, as here; a table with a column `batch` in one transaction (delete, insert). `tg.sinks` does it for
Delta tables and PostgreSQL: see exactly_once.py.

`persist` is necessary: each write is a Spark job of its own, and would run the stateful operator again.

Run it: `python examples/three_sinks.py`
"""

from __future__ import annotations

import os
import sys
import tempfile
import warnings
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import tidegate as tg

OUTPUTS = ("raw", "final", "late")
COLUMNS = {
    "raw": ("shop", "window", "count", "total", "timestamp"),
    "final": ("shop", "window", "count", "total", "timestamp"),
    "late": ("shop", "window", "reason", "late_by", "payment", "amount", "paid_at"),
}
"""Columns of each sink. Rows of the one DataFrame have the columns of all outputs; those of other outputs are null."""

# (shop, second, amount), two micro-batches
BATCHES = [
    [("north", 10, 5), ("north", 70, 7), ("south", 75, 2)],
    [("north", 130, 1), ("north", 20, 9), ("south", 50, 4), ("south", 200, 3)],
]


def counted(payments: DataFrame) -> tg.KTable:
    """Payments per shop and minute."""
    return (
        tg.stream(payments, key="shop", timestamp="paid_at", partition="partition", offset="offset")
        .group_by_key()
        .windowed_by(tg.TimeWindows.of_size_and_grace("1 minute", "30 seconds"))
        .agg(count=tg.count(), total=tg.sum("amount"))
    )


def outputs(payments: DataFrame) -> DataFrame:
    counts = counted(payments)
    final = counts.suppress(tg.Suppressed.until_window_closes(tg.BufferConfig.unbounded()))
    frame: DataFrame = tg.to_df(raw=counts, final=final, late=counts.late_records())
    return frame


def to_sinks(folder: Path) -> Callable[[DataFrame, int], None]:
    """A foreachBatch function that writes each output below `folder`, a batch as a partition of its own."""

    def write(frame: DataFrame, batch: int) -> None:
        frame.persist()
        try:
            for output in OUTPUTS:
                rows = frame.where(F.col("output") == output).select(*COLUMNS[output])
                # Overwrites the rows of a batch that failed after writing some of them.
                rows.write.mode("overwrite").parquet(str(folder / output / f"batch={batch}"))
        finally:
            frame.unpersist()

    return write


def run(spark: SparkSession, folder: Path, write: Callable[[DataFrame, int], None] | None = None) -> None:
    """Read all payments below `folder`/payments, each file a micro-batch, and end."""
    source = str(folder / "payments")
    payments = (
        spark.readStream.schema(spark.read.parquet(source).schema).option("maxFilesPerTrigger", 1).parquet(source)
    )
    query = (
        outputs(payments)
        .writeStream.foreachBatch(write or to_sinks(folder))
        .outputMode("update")
        .option("checkpointLocation", str(folder / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()


def write_payments(folder: Path) -> None:
    """Write the input, a file for each micro-batch."""
    (folder / "payments").mkdir(parents=True)
    offset = 0
    for number, batch in enumerate(BATCHES):
        rows: dict[str, Any] = {
            "payment": [f"p{offset + i}" for i in range(len(batch))],
            "shop": [shop for shop, _, _ in batch],
            "amount": pa.array([amount for _, _, amount in batch], pa.int64()),
            "paid_at": pa.array([_at(second) for _, second, _ in batch], pa.timestamp("us", tz="UTC")),
            "partition": pa.array([0] * len(batch), pa.int32()),
            "offset": pa.array(range(offset, offset + len(batch)), pa.int64()),
        }
        path = folder / "payments" / f"{number}.parquet"
        pq.write_table(pa.table(rows), path)
        os.utime(path, (number, number))  # the source reads the oldest first
        offset += len(batch)


def _at(second: int) -> datetime:
    return datetime(2026, 1, 1, tzinfo=UTC) + timedelta(seconds=second)


def sink(spark: SparkSession, folder: Path, output: str) -> DataFrame:
    """The rows of a sink."""
    return spark.read.parquet(str(folder / output))


def main() -> None:
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    warnings.filterwarnings("ignore", category=FutureWarning)
    builder = (
        SparkSession.builder.master("local[2]")
        .appName("three-sinks")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.sql.session.timeZone", "UTC")
    )
    spark = tg.configure(builder).getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    try:
        with tempfile.TemporaryDirectory(prefix="tidegate-sinks-") as scratch:
            folder = Path(scratch)
            write_payments(folder)
            run(spark, folder)
            for output in OUTPUTS:
                print(f"{output}:")
                sink(spark, folder, output).orderBy("batch", "window", "shop").show(truncate=False)
    finally:
        spark.stop()


if __name__ == "__main__":
    main()
