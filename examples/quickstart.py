"""Requests per user and minute: JSON files in, final counts out as Parquet."""

import json
import sys
from pathlib import Path

from pyspark.sql import SparkSession

import tidegate as tg

MINUTE = 60_000


def build(requests: tg.KStream) -> tg.KTable:
    """Requests per user in each minute, once, ten seconds after the minute has ended."""
    minutes = tg.TimeWindows.of_size_and_grace("1 minute", "10 seconds")
    return requests.group_by_key().windowed_by(minutes).emit_strategy(tg.EmitStrategy.on_window_close()).count()


def write_some(folder: Path) -> None:
    """Seven requests, one of them out of order and one of them too late."""
    folder.mkdir(parents=True, exist_ok=True)
    requests = [("A", 5), ("A", 40), ("B", 50), ("A", 62), ("A", 55), ("B", 75), ("A", 20)]
    lines = [json.dumps({"user": user, "ts": second * 1000}) for user, second in requests]
    (folder / "requests.json").write_text("\n".join(lines), encoding="utf-8")


def main(here: Path) -> None:
    write_some(here / "requests")
    builder = SparkSession.builder.master("local[2]").config("spark.sql.shuffle.partitions", "2")
    spark = tg.configure(builder).getOrCreate()
    requests = tg.files.source(
        spark, str(here / "requests"), key="user", timestamp="ts", format="json", schema="user string, ts long"
    )
    rows = build(requests).to_df()
    writer = rows.writeStream.outputMode("append").format("parquet").option("path", str(here / "counts"))
    writer = writer.option("checkpointLocation", str(here / "checkpoint"))
    writer.trigger(availableNow=True).start().awaitTermination()
    found = spark.read.parquet(str(here / "counts")).orderBy("user")
    for row in found.collect():
        print(row["user"], row["window"]["start"].minute, row["count"])


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "quickstart"))
