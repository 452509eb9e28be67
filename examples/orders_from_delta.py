"""Orders appended to a Delta table, their sum per shop and hour, each sum once, also after a stop of the query.

The orders are read in the order of the table's log. After a stop, the orders appended meanwhile come next. Writing the
table needs the package `deltalake`; reading it needs none.

    Delta table  ->  tg.delta.source  ->  final sums  ->  Parquet

Run it: `python examples/orders_from_delta.py`
"""

from __future__ import annotations

import os
import sys
import tempfile
import warnings
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

import tidegate as tg

# (shop, minute, amount); each list is appended at once. South's last order comes an hour too late.
APPENDED = [
    [("north", 5, 10), ("south", 10, 3), ("north", 55, 7)],
    [("north", 65, 1), ("south", 50, 4)],
    [("south", 125, 2), ("south", 20, 100)],
    [("north", 200, 1)],
]
KINDS = pa.schema([("shop", pa.string()), ("ordered_at", pa.timestamp("us", "UTC")), ("amount", pa.int64())])


def sums(spark: SparkSession, folder: Path) -> DataFrame:
    orders = tg.delta.source(
        spark,
        str(folder / "orders"),
        key="shop",
        timestamp="ordered_at",
        options={"startingVersion": "0", "maxFilesPerTrigger": "1"},
    )
    windows = tg.TimeWindows.of_size_and_grace("1 hour", "15 minutes")
    table = orders.group_by_key().windowed_by(windows).agg(orders=tg.count(), total=tg.sum("amount"))
    frame: DataFrame = table.suppress(tg.Suppressed.until_window_closes(tg.BufferConfig.unbounded())).to_df()
    return frame


def run(spark: SparkSession, folder: Path) -> None:
    """Read all present orders, and end; the next run goes on after them."""
    query = (
        sums(spark, folder)
        .writeStream.format("parquet")
        .outputMode("append")
        .option("path", str(folder / "sums"))
        .option("checkpointLocation", str(folder / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()


def append(folder: Path, orders: list[tuple[str, int, int]]) -> None:
    from deltalake import write_deltalake

    start = datetime(2026, 1, 1, 12, tzinfo=UTC)
    rows = [
        {"shop": shop, "ordered_at": start + timedelta(minutes=at), "amount": amount} for shop, at, amount in orders
    ]
    write_deltalake(str(folder / "orders"), pa.Table.from_pylist(rows, KINDS), mode="append")


def both_halves(spark: SparkSession, folder: Path) -> None:
    """Append and read half of the orders, then the other half in a second run."""
    for half in (APPENDED[:2], APPENDED[2:]):
        for orders in half:
            append(folder, orders)
        run(spark, folder)


def main() -> None:
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    warnings.filterwarnings("ignore", category=FutureWarning)
    builder = (
        SparkSession.builder.master("local[2]")
        .appName("orders-from-delta")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.sql.session.timeZone", "UTC")
    )
    spark = tg.configure(builder).getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    try:
        with tempfile.TemporaryDirectory(prefix="tidegate-orders-") as scratch:
            both_halves(spark, Path(scratch))
            spark.read.parquet(str(Path(scratch) / "sums")).orderBy("window", "shop").show(truncate=False)
    finally:
        spark.stop()


if __name__ == "__main__":
    main()
