"""The query: reads files of reports and writes final hours, with an alert for unusually few departures."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd

import tidegate as tg
from tidegate.demo.alerts import FEWEST_SCHEDULED
from tidegate.demo.replay import SPARK_SCHEMA, cut
from tidegate.demo.topology import KEY, OFFSET, PARTITION, TIMESTAMP, final_departures

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

NAME = "reports"
POLL_S = 0.1


@dataclass
class Counts:
    """The query's own metrics, summed over all batches so far."""

    batches: int = 0
    records: int = 0
    late: int = 0
    bad_timestamps: int = 0
    emitted: int = 0
    stream_time: int = -1

    def add(self, records: int, metrics: Mapping[str, Any]) -> None:
        self.batches += 1
        self.records += records
        self.late += metrics["late"]
        self.bad_timestamps += metrics["bad_timestamp"]
        self.emitted += metrics["emitted"]
        self.stream_time = metrics["stream_time"]


@dataclass(frozen=True)
class Run:
    """The result of one replay: the emitted rows, sorted, and the query's metrics.

    `rows`: origin, start, timestamp (UTC), departures, mean_delay, scheduled, alert.
    """

    batch_size: int
    rows: pd.DataFrame
    counts: Counts
    seconds: float


@dataclass(frozen=True)
class Replay:
    """The inputs of a replay; `folder` is its own folder for files."""

    spark: SparkSession
    reports: pd.DataFrame
    timetable: pd.DataFrame
    grace: str
    folder: Path
    batch_size: int
    on_batch: Callable[[Counts, int], None] = field(default=lambda _counts, _batches: None)

    def run(self) -> Run:
        """Replay all reports and wait for the end. Raises the error of a failed query."""
        batches = cut(self.reports, self.batch_size, self.folder / "reports")
        self.timetable.to_parquet(self.folder / "timetable.parquet", index=False)
        started = time.monotonic()
        counts = self._follow(self._start(), batches)
        seconds = time.monotonic() - started
        return Run(self.batch_size, _rows(self.spark, self.folder / "results"), counts, seconds)

    def _start(self) -> StreamingQuery:
        reports = (
            self.spark.readStream.schema(SPARK_SCHEMA)
            .option("maxFilesPerTrigger", 1)
            .parquet(str(self.folder / "reports"))
        )
        stream = tg.stream(reports, key=KEY, timestamp=TIMESTAMP, partition=PARTITION, offset=OFFSET, name=NAME)
        final = final_departures(stream, self.grace).to_df()
        timetable = self.spark.read.parquet(str(self.folder / "timetable.parquet"))
        return (
            with_alerts(final, timetable)
            .writeStream.format("parquet")
            .option("path", str(self.folder / "results"))
            .option("checkpointLocation", str(self.folder / "checkpoint"))
            .queryName(f"departures, {self.batch_size} reports a batch")
            .trigger(availableNow=True)
            .start()
        )

    def _follow(self, query: StreamingQuery, batches: int) -> Counts:
        counts = Counts()
        for records, metrics in _progress(query):
            counts.add(records, metrics)
            self.on_batch(counts, batches)
        return counts


def with_alerts(final: DataFrame, timetable: DataFrame) -> DataFrame:
    """Final rows with the columns `scheduled` and `alert`: plain Spark, after tidegate.

    A final row leaves once, so an alert is raised once and never withdrawn.
    """
    from pyspark.sql import functions as F

    rows = final.select(KEY, F.col("window.start").alias("start"), "departures", "mean_delay", "timestamp")
    scheduled = F.coalesce("scheduled", F.lit(0)).alias("scheduled")
    joined = rows.join(F.broadcast(timetable), [KEY, "start"], "left").select(*rows.columns, scheduled)
    few = F.col("departures") * 2 < F.col("scheduled")
    return joined.withColumn("alert", (F.col("scheduled") >= FEWEST_SCHEDULED) & few)


def _progress(query: StreamingQuery) -> Iterator[tuple[int, Mapping[str, Any]]]:
    """The number of records and the observed metrics of each batch, when it ends."""
    from tidegate.runtime.spark.checkpoints.pending import observed

    seen = -1
    running = True
    while running:
        # Check before reading the progress, so that the last batch is read too.
        running = query.isActive
        for progress in query.recentProgress:
            metrics = dict(observed(progress)).get(NAME)
            if progress.batchId > seen and metrics is not None:
                seen = progress.batchId
                yield progress.numInputRows, metrics
        time.sleep(POLL_S if running else 0)
    query.awaitTermination()


def _rows(spark: SparkSession, path: Path) -> pd.DataFrame:
    from pyspark.sql import functions as F

    # As integers: timestamps would be converted to the time zone of the session.
    instants = {name: F.unix_millis(name) for name in ("start", "timestamp")}
    rows = spark.read.parquet(str(path)).withColumns(instants).toPandas()
    for name in instants:
        rows[name] = pd.to_datetime(rows[name], unit="ms", utc=True)
    return rows.sort_values([KEY, "start"], ignore_index=True)
