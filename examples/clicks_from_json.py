"""Clicks in JSON files, counted per page and minute, each count once; unreadable lines become dead letters.

Files come into a folder, each with a minute of clicks, and may share a modification time. They are read in the order of
time and name, however they are split into micro-batches. A second query writes the malformed lines, with file and line.

    folder of JSON files  ->  tg.files.source  ->  final counts     ->  Parquet
                                               ->  dead letters     ->  Parquet

Run it: `python examples/clicks_from_json.py`
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
import warnings
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

import tidegate as tg

# (page, second of the file's minute); the third file has a click that is too late, and the last a line that is cut off.
MINUTES = [
    [("home", 5), ("home", 50), ("shop", 59)],
    [("home", 10), ("shop", 20)],
    [("shop", 1), ("home", -100), ("shop", 40)],
    [("home", 30)],
]


def clicks(spark: SparkSession, folder: Path) -> tg.files.FileStream:
    return tg.files.source(
        spark,
        str(folder / "clicks"),
        format="json",
        schema="page string, clicked_at timestamp",
        key="page",
        timestamp="clicked_at",
        options={"maxFilesPerTrigger": "1"},
    )


def counts(stream: tg.KStream) -> DataFrame:
    windows = tg.TimeWindows.of_size_and_grace("1 minute", "30 seconds")
    table = stream.group_by_key().windowed_by(windows).count()
    frame: DataFrame = table.suppress(tg.Suppressed.until_window_closes(tg.BufferConfig.unbounded())).to_df()
    return frame


def run(frame: DataFrame, folder: Path, name: str, mode: str) -> None:
    """Read all present files, and end; the next run goes on after them."""
    # Appending writes each batch once: Spark's sink of files keeps a log of its batches.
    query = (
        frame.writeStream.format("parquet")
        .outputMode(mode)
        .option("path", str(folder / name))
        .option("checkpointLocation", str(folder / "checkpoints" / name))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()


def write_clicks(folder: Path) -> None:
    (folder / "clicks").mkdir(parents=True)
    for minute, given in enumerate(MINUTES):
        lines = [json.dumps({"page": page, "clicked_at": _at(minute * 60 + second)}) for page, second in given]
        if minute == len(MINUTES) - 1:
            lines.append('{"page": "home", "clicked_at": "2026-01-')
        path = folder / "clicks" / f"{minute:04}.json"
        path.write_text("\n".join(lines) + "\n")
        os.utime(path, (1_767_225_600, 1_767_225_600))  # all at once, as a copy or an object store may leave them


def _at(second: int) -> str:
    return f"2026-01-01T{12 + second // 3600:02}:{second // 60 % 60:02}:{second % 60:02}Z"


def main() -> None:
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    warnings.filterwarnings("ignore", category=FutureWarning)
    builder = (
        SparkSession.builder.master("local[2]")
        .appName("clicks-from-json")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.sql.session.timeZone", "UTC")
    )
    spark = tg.configure(builder).getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    try:
        with tempfile.TemporaryDirectory(prefix="tidegate-clicks-") as scratch:
            folder = Path(scratch)
            write_clicks(folder)
            tables(spark, folder)
            spark.read.parquet(str(folder / "counts")).orderBy("window", "page").show(truncate=False)
            spark.read.parquet(str(folder / "dead")).select("file", "line", "reason").show(truncate=False)
    finally:
        spark.stop()


def tables(spark: SparkSession, folder: Path) -> None:
    """Run both queries over all present files."""
    stream = clicks(spark, folder)
    assert stream.dead_letters is not None
    run(counts(stream), folder, "counts", "append")
    run(stream.dead_letters, folder, "dead", "append")


if __name__ == "__main__":
    main()
