"""Departures with the weather at their time: a stream joined with a table, as of the record, with a grace.

The flights that left New York in 2013 are reported when they land, so a report comes 20 minutes to 12 hours after the
departure. The weather is observed each hour, and an observation is published an hour later. Both are replayed as
streams of files, a week in each micro-batch.

    joined as of the departure   the table keeps versions (`history`), and a departure waits an hour for them (`grace`)
    joined with the latest row   a join without a history finds the observation that was read last

Each row of the first join is compared with `pandas.merge_asof`. It takes about two minutes:
`python examples/departures_and_weather.py`
"""

from __future__ import annotations

import os
import sys
import tempfile
import warnings
from pathlib import Path

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import tidegate as tg
from tidegate.demo import flights

GRACE, HISTORY = "1 hour", "1 day"
PUBLISHED_AFTER = pd.Timedelta(hours=1)

DEPARTURES = pa.schema(
    {
        "partition": pa.int32(),
        "offset": pa.int64(),
        "origin": pa.string(),
        "departure": pa.timestamp("us", "UTC"),
        "report": pa.int64(),
        "dep_delay": pa.int32(),
    }
)
WEATHER = pa.schema(
    {
        "partition": pa.int32(),
        "offset": pa.int64(),
        "origin": pa.string(),
        "observed": pa.timestamp("us", "UTC"),
        "miles": pa.float64(),
    }
)
MILES = [0, 1, 3, 10, float("inf")]


def departures() -> pd.DataFrame:
    """The reports of flights in order of arrival, with the instant `came`."""
    reports = flights.reports(flights.read_flights())
    departure = reports["departure"].dt.as_unit("us")
    return reports.assign(departure=departure, report=reports["offset"], came=reports["reported"])


def weather() -> pd.DataFrame:
    """The observations in order of publication, with the instant `came`."""
    read = pd.read_csv(flights.packaged_flights().with_name("weather.csv"))
    observed = pd.to_datetime(read["time_hour"], utc=True).dt.as_unit("us")
    frame = pd.DataFrame(
        {"origin": read["origin"], "observed": observed, "miles": read["visib"], "came": observed + PUBLISHED_AFTER}
    )
    frame = frame.sort_values("came", kind="stable", ignore_index=True)
    return frame.assign(partition=0, offset=frame.index)


def join_on_spark(departed: DataFrame, observed: DataFrame, history: str | None) -> DataFrame:
    """Each departure with the visibility: as of the departure, or of the latest row without a `history`."""
    table = tg.table(
        observed, key="origin", timestamp="observed", partition="partition", offset="offset", history=history
    )
    stream = tg.stream(departed, key="origin", timestamp="departure", partition="partition", offset="offset")
    return stream.left_join(table, grace=GRACE if history else None).to_df()


def as_of(departed: pd.DataFrame, observed: pd.DataFrame) -> pd.Series:
    """The visibility at each departure by pandas, by report."""
    left = departed.dropna(subset=["departure"]).sort_values("departure", kind="stable")
    right = observed.sort_values("observed", kind="stable")[["origin", "observed", "miles"]]
    found = pd.merge_asof(left, right, left_on="departure", right_on="observed", by="origin")
    return found.set_index("report")["miles"].sort_index()


def replay(spark: SparkSession, departed: pd.DataFrame, observed: pd.DataFrame, history: str | None) -> pd.DataFrame:
    """The rows of the join, by report: dep_delay and miles."""
    with tempfile.TemporaryDirectory(prefix="tidegate-example-") as scratch:
        folder = Path(scratch)
        weeks = range(1 + max(int(_week(frame).max()) for frame in (departed, observed)))
        _write(departed, DEPARTURES, folder / "departures", weeks)
        _write(observed, WEATHER, folder / "weather", weeks)
        query = (
            join_on_spark(_stream(spark, folder / "departures"), _stream(spark, folder / "weather"), history)
            .writeStream.format("parquet")
            .option("path", str(folder / "joined"))
            .option("checkpointLocation", str(folder / "checkpoint"))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()
        rows = spark.read.parquet(str(folder / "joined"))
        found = rows.select("report", "dep_delay", "miles", F.unix_millis("timestamp").alias("ms")).toPandas()
    if not found["report"].is_unique:
        raise AssertionError("a departure came out twice")
    return found.set_index("report").sort_index()


def _week(frame: pd.DataFrame) -> pd.Series:
    return (frame["came"] - pd.Timestamp("2013-01-01", tz="UTC")) // pd.Timedelta(days=7)


def _write(frame: pd.DataFrame, schema: pa.Schema, folder: Path, weeks: range) -> None:
    """Write one file for each week, which is one micro-batch, also for weeks without rows."""
    folder.mkdir()
    of_frame = _week(frame)
    for week in weeks:
        table = pa.Table.from_pandas(frame[of_frame == week][schema.names], schema=schema, preserve_index=False)
        path = folder / f"{week:02}.parquet"
        pq.write_table(table, path)
        os.utime(path, (week, week))  # the source reads the oldest first


def _stream(spark: SparkSession, folder: Path) -> DataFrame:
    schema = spark.read.parquet(str(folder)).schema
    return spark.readStream.schema(schema).option("maxFilesPerTrigger", 1).parquet(str(folder))


def differences(rows: pd.DataFrame, right: pd.Series) -> int:
    """Number of rows with a wrong visibility."""
    found, wanted = rows["miles"], right.reindex(rows.index)
    return int((found.ne(wanted) & ~(found.isna() & wanted.isna())).sum())


def missing(rows: pd.DataFrame, right: pd.Series, departed: pd.DataFrame) -> tuple[int, int]:
    """Numbers of departures without a row: those that still wait for the end of the grace, and the other ones."""
    times = departed.set_index("report")["departure"].reindex(right.index)
    waits = times > times.max() - pd.Timedelta(GRACE)
    without = ~right.index.isin(rows.index)
    return int((without & waits).sum()), int((without & ~waits).sum())


def table(rows: pd.DataFrame) -> str:
    """A table of departures and their delays by visibility."""
    labels = ["below 1 mile", "1 to 3", "3 to 10", "10 miles"]
    by = pd.cut(rows["miles"], MILES, right=False, labels=labels)
    lines = ["visibility     departures   mean delay   an hour or more late"]
    for label, group in rows.groupby(by, observed=False)["dep_delay"]:
        lines.append(f"{label:13}{len(group):>12,}{group.mean():>9.1f} min{(group >= 60).mean():>23.1%}")
    return "\n".join(lines)


def main(spark: SparkSession, departed: pd.DataFrame, observed: pd.DataFrame) -> int:
    right = as_of(departed, observed)
    rows = replay(spark, departed, observed, HISTORY)
    wrong = differences(rows, right)
    waiting, lost = missing(rows, right, departed)
    print(table(rows))
    print(
        f"As of the departure: {len(rows):,} rows, {wrong:,} other than pandas.merge_asof; {lost:,} missing, "
        f"{waiting:,} of the last hour wait."
    )
    latest = replay(spark, departed, observed, None)
    print(f"With the latest row: {differences(latest, right):,} of {len(latest):,} rows have another visibility.")
    return 1 if wrong or lost else 0


if __name__ == "__main__":
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    warnings.filterwarnings("ignore", "PySpark does not yet fully support pandas", FutureWarning)
    builder = SparkSession.builder.master("local[2]").config("spark.ui.showConsoleProgress", "false")
    session = tg.configure(builder.config("spark.sql.shuffle.partitions", "2")).getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    try:
        sys.exit(main(session, departures(), weather()))
    finally:
        session.stop()
