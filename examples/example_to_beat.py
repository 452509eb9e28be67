"""Six records through Spark's own windowed aggregation and through tidegate, side by side.

Key A has an event at minutes 10, 11, 13, 11, 14 and 10, in this order of arrival. Windows of 2 minutes wait 2 minutes
for late events, and a window with fewer than 4 events raises an alert.

    minute  10  11  13  11  14  10
                        |   |   too late: its window closed when 14 arrived
                        |   closes [10, 12): 12 + 2 minutes of grace
                        late, but within the grace: counts

So the count of [10, 12) is 3 and the alert is due. Spark tests a record against the watermark of earlier batches, in
fact of the batch before the last. So the record that is too late counts, whether the six arrive in one micro-batch or
each in its own, and no alert is raised. Then an event of another key at minute 20 moves time on and closes all windows
before it. Run it: `python examples/example_to_beat.py`
"""

from __future__ import annotations

import os
import sys
import tempfile
import warnings
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import tidegate as tg

SIZE = GRACE = "2 minutes"
ALERT_BELOW = 4

RECORDS = [("A", 10), ("A", 11), ("A", 13), ("A", 11), ("A", 14), ("A", 10)]
MOVES_TIME_ON = ("B", 20)
RIGHT = {10: 3, 12: 1, 14: 1}
"""Window start (minute) -> final count of key A."""

Counts = dict[int, int]


def spark_native(events: DataFrame) -> DataFrame:
    return events.withWatermark("ts", GRACE).groupBy("user", F.window("ts", SIZE)).agg(F.count("*").alias("count"))


def tidegate(events: DataFrame) -> DataFrame:
    counts = (
        tg.stream(events, key="user", timestamp="ts", partition="partition", offset="offset")
        .group_by_key()
        .windowed_by(tg.TimeWindows.of_size_and_grace(SIZE, GRACE))
        .count()
    )
    final: DataFrame = counts.suppress(tg.Suppressed.until_window_closes(tg.BufferConfig.unbounded())).to_df()
    return final


def results(spark: SparkSession, contestant: Callable[[DataFrame], DataFrame], per_batch: int) -> tuple[Counts, Counts]:
    """The counts that `contestant` has emitted for key A after the six records, and after time has moved on."""
    name = f"beat_{contestant.__name__}_{per_batch}"
    with tempfile.TemporaryDirectory(prefix="tidegate-example-") as scratch:
        folder, checkpoint = Path(scratch, "events"), Path(scratch, "checkpoint")
        folder.mkdir()
        for at in range(0, len(RECORDS), per_batch):
            _write(folder, at, RECORDS[at : at + per_batch])
        schema = spark.read.parquet(str(folder)).schema
        events = spark.readStream.schema(schema).option("maxFilesPerTrigger", 1).parquet(str(folder))
        writer = contestant(events).writeStream.format("memory").queryName(name)
        query = writer.option("checkpointLocation", str(checkpoint)).start()
        try:
            query.processAllAvailable()
            at_first = _emitted(spark, name)
            _write(folder, len(RECORDS), [MOVES_TIME_ON])
            query.processAllAvailable()
            return at_first, _emitted(spark, name)
        finally:
            query.stop()
            spark.catalog.dropTempView(name)


def _write(folder: Path, offset: int, records: list[tuple[str, int]]) -> None:
    """Write one file, which is one micro-batch; its first record has the offset `offset` in source partition 0."""
    table = pa.table(
        {
            "user": [key for key, _ in records],
            "ts": pa.array([_at(minute) for _, minute in records], pa.timestamp("us", tz="UTC")),
            "partition": pa.array([0] * len(records), pa.int32()),
            "offset": pa.array(range(offset, offset + len(records)), pa.int64()),
        }
    )
    path = folder / f"{offset}.parquet"
    hidden = folder / f".{offset}.parquet"  # the source must not see an incomplete file
    pq.write_table(table, hidden)
    os.utime(hidden, (offset, offset))  # the source reads the oldest first
    hidden.rename(path)


def _at(minute: int) -> datetime:
    return datetime(2026, 1, 1, tzinfo=UTC) + timedelta(minutes=minute)


def _emitted(spark: SparkSession, name: str) -> Counts:
    rows = spark.table(name).where("user = 'A'").selectExpr("minute(window.start) AS start", "count").collect()
    return {row["start"]: row["count"] for row in sorted(rows)}


def table(after_six: list[Counts], at_end: list[Counts]) -> str:
    """The table; `after_six` and `at_end`: by Spark in one batch and in six, by tidegate in one batch and in six."""
    lines = [
        "                   right    Spark's own          tidegate",
        "window of A                 1 batch  6 batches   1 batch  6 batches",
    ]
    for title, found in [("after the six records", after_six), ("once time has moved on", at_end)]:
        lines.append(f"{title}:")
        for start, right in RIGHT.items():
            if title.startswith("once") or any(start in counts for counts in found):
                cells = [str(counts.get(start, "-")) for counts in found]
                lines.append(f"  [{start}, {start + 2})".ljust(19) + f"{right:>5}" + _row(cells))
    alerts = ["yes" if at.get(10, ALERT_BELOW) < ALERT_BELOW else "no" for at in at_end]
    lines.append(f"alert for [10, 12)   {'yes':>3}" + _row(alerts))
    return "\n".join(lines)


def _row(cells: list[str]) -> str:
    return "".join(cell.rjust(width) for cell, width in zip(cells, (11, 11, 10, 11), strict=True))


def compare(spark: SparkSession) -> tuple[list[Counts], list[Counts]]:
    """The four columns of the table, after the six records and at the end."""
    one_batch, six_batches = len(RECORDS), 1
    columns = [
        results(spark, contestant, per_batch)
        for contestant in (spark_native, tidegate)
        for per_batch in (one_batch, six_batches)
    ]
    return [first for first, _ in columns], [last for _, last in columns]


def main() -> None:
    # By default workers run the `python3` of the PATH; pyspark 4.3 warns that it does not fully support pandas 3.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    warnings.filterwarnings("ignore", category=FutureWarning)
    builder = (
        SparkSession.builder.master("local[2]")
        .appName("example-to-beat")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.sql.session.timeZone", "UTC")
    )
    spark = tg.configure(builder).getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    try:
        print(table(*compare(spark)))
    finally:
        spark.stop()


if __name__ == "__main__":
    main()
