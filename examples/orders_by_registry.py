"""Orders of a Kafka topic with schemas in a registry, their sum per customer and hour, each sum once.

Old and new producers may write side by side: each order is read by the schema that it names. Unreadable records go to a
table of their own, with the number of the schema and the reason.

    Kafka, by a schema registry  ->  tg.kafka.source  ->  final sums  ->  Parquet
                                                      ->  dead letters  ->  Parquet

Run it: `python examples/orders_by_registry.py localhost:9092 http://localhost:8081`, with `tidegate[registry]`. The
newest schema of `orders-value` has a `customer`, an `amount` and the time `ordered_at`, in Avro "timestamp-millis".
"""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path
from typing import Any

import pyspark
from pyspark.sql import DataFrame, SparkSession

import tidegate as tg

TOPIC = "orders"


def orders(spark: SparkSession, servers: str, url: str, topic: str = TOPIC) -> Any:
    """The stream of orders, which also has the dead letters."""
    return tg.kafka.source(
        spark, servers, topic, key="customer", value=tg.kafka.schema_registry(url), timestamp="ordered_at"
    )


def sums(stream: Any) -> DataFrame:
    windows = tg.TimeWindows.of_size_and_grace("1 hour", "15 minutes")
    table = stream.group_by_key().windowed_by(windows).agg(orders=tg.count(), total=tg.sum("amount"))
    frame: DataFrame = table.suppress(tg.Suppressed.until_window_closes(tg.BufferConfig.unbounded())).to_df()
    return frame


def run(stream: Any, folder: Path) -> None:
    """Read all present records, and end; the next run goes on after them."""
    queries = []
    for name, frame in (("sums", sums(stream)), ("dead", stream.dead_letters)):
        writer = frame.writeStream.format("parquet").outputMode("append").option("path", str(folder / name))
        writer = writer.option("checkpointLocation", str(folder / "checkpoints" / name)).trigger(availableNow=True)
        queries.append(writer.start())
    for query in queries:
        query.awaitTermination()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("servers", help="the brokers, as localhost:9092")
    parser.add_argument("url", help="the schema registry, as http://localhost:8081")
    parser.add_argument("--folder", default="output/orders", help="where the results go")
    options = parser.parse_args()
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    builder = (
        SparkSession.builder.appName("orders-by-registry")
        .config("spark.jars.packages", f"org.apache.spark:spark-sql-kafka-0-10_2.13:{pyspark.__version__}")
        .config("spark.sql.shuffle.partitions", "4")
    )
    spark = tg.configure(builder).getOrCreate()
    try:
        run(orders(spark, options.servers, options.url), Path(options.folder))
        for name in ("sums", "dead"):
            spark.read.parquet(str(Path(options.folder) / name)).show(truncate=False)
    finally:
        spark.stop()


if __name__ == "__main__":
    main()
