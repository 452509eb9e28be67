"""Several outputs of one aggregation on Spark: one stateful operator, the rows of the test driver."""

from __future__ import annotations

from datetime import UTC, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import tidegate as tg
from tidegate.testing import TopologyTestDriver

pytest.importorskip("pyspark")

from pyspark.sql import DataFrame, SparkSession

from spark.replay import EPOCH, Replay, collect, schema_of, table_of, with_offsets

pytestmark = pytest.mark.spark

FINAL = tg.Suppressed.until_window_closes(tg.BufferConfig.unbounded())
SCHEMA = schema_of(user=pa.string(), x=pa.int64())
BATCHES = with_offsets(
    [
        [{"user": "a", "ts": 1, "x": 1}, {"user": "b", "ts": 4, "x": 2}, {"user": "a", "ts": 2, "x": 3}],
        [{"user": "a", "ts": 17, "x": 4}, {"user": "b", "ts": 3, "x": 5}, {"user": None, "ts": 18, "x": 6}],
        [{"user": "b", "ts": 40, "x": 7}, {"user": "a", "ts": 20, "x": 8}, {"user": "a", "ts": None, "x": 9}],
    ]
)


def tables(source: Any, windows: Any) -> dict[str, Any]:
    events = tg.stream(source, key="user", timestamp="ts", partition="partition", offset="offset", name="stream")
    sums = events.group_by_key().windowed_by(windows).agg(n=tg.count(), total=tg.sum("x"))
    return {"raw": sums, "final": sums.suppress(FINAL), "late": sums.late_records()}


def as_piped(row: dict[str, Any]) -> dict[str, Any]:
    """The late record with its timestamp as it was piped into the driver."""
    return row | {"ts": row["ts"] and (row["ts"].astimezone(UTC) - EPOCH) // timedelta(milliseconds=1)}


def place(row: dict[str, Any]) -> tuple[str, ...]:
    return tuple(map(repr, (row["output"], row.get("window"), row["user"], row["timestamp"], row)))


@pytest.mark.parametrize(
    "windows",
    [
        tg.TimeWindows.of_size_and_grace("10 ms", "5 ms"),
        pytest.param(tg.SessionWindows.of_inactivity_gap_and_grace("5 ms", "3 ms"), marks=pytest.mark.full),
    ],
    ids=["time", "sessions"],
)
def test_outputs_are_those_of_the_driver(spark: SparkSession, tmp_path: Path, windows: Any) -> None:
    def topology(events: DataFrame) -> DataFrame:
        frame: DataFrame = tg.to_df(**tables(events, windows))
        return frame

    driver = TopologyTestDriver(tables("events", windows))
    wanted = []
    for batch in BATCHES:
        driver.pipe_batch(batch)
        wanted.append(sorted(driver.read_output(), key=place))
    replayed = Replay(spark, tmp_path, SCHEMA, topology).run(BATCHES)
    got = [sorted(map(as_piped, rows), key=place) for rows in replayed.rows]
    assert got == wanted
    assert replayed.dropped() == driver.dropped
    (state,) = (tmp_path / "checkpoint" / "state").iterdir()
    assert state.name == "0"  # one stateful operator


def test_late_records_of_a_second_operator(spark: SparkSession, tmp_path: Path) -> None:
    def topology(events: Any) -> dict[str, Any]:
        sums = tables(events, tg.TimeWindows.of_size_and_grace("10 ms", "30 ms"))["raw"]
        again = sums.to_stream().group_by("n").windowed_by(tg.TimeWindows.of_size_with_no_grace("10 ms"))
        times = again.agg(times=tg.count())
        return {"times": times, "late": times.late_records()}

    def ordered(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
        return sorted(rows, key=lambda row: tuple(map(repr, row.values())))

    batches = with_offsets(
        [
            [{"user": "a", "ts": 17, "x": 4}, {"user": "b", "ts": 40, "x": 7}],
            [{"user": "a", "ts": 18, "x": 1}, {"user": "b", "ts": 41, "x": 2}, {"user": "b", "ts": 29, "x": 3}],
        ]
    )
    driver = TopologyTestDriver(topology("events"))
    wanted = []
    for batch in batches:
        driver.pipe_batch(batch)
        wanted.append(ordered(driver.read_output()))
    replayed = Replay(spark, tmp_path, SCHEMA, lambda events: tg.to_df(**topology(events))).run(batches)
    assert list(map(ordered, replayed.rows)) == wanted
    late = [(row["user"], row["total"]) for rows in wanted for row in rows if row["output"] == "late"]
    assert sorted(late) == [("a", 5), ("b", 3)]


def test_a_static_frame_gives_every_output(spark: SparkSession) -> None:
    events = spark.createDataFrame(table_of([row for batch in BATCHES for row in batch], SCHEMA))
    frame = tg.to_df(**tables(events, tg.TimeWindows.of_size_and_grace("10 ms", "5 ms")))
    rows = collect(frame)
    assert {row["output"] for row in rows} == {"raw", "final", "late"}
    final = {(row["user"], row["window"].start): row["total"] for row in rows if row["output"] == "final"}
    assert final == {("a", 0): 4, ("b", 0): 2, ("a", 10): 4, ("b", 40): 7}


def test_of_two_dataframes_there_is_no_one_operator(spark: SparkSession) -> None:
    one, two = (spark.createDataFrame([("a", EPOCH)], "user string, ts timestamp") for _ in range(2))
    counts = [
        tg.stream(frame, key="user", timestamp="ts")
        .group_by_key()
        .windowed_by(tg.BatchWindows.of_size("1 second"))
        .count()
        for frame in (one, two)
    ]
    with pytest.raises(tg.DefinitionError, match="they differ in their stream"):
        tg.to_df(raw=counts[0], final=counts[1].suppress(FINAL))


def test_a_late_record_is_whole_whatever_its_columns_are(spark: SparkSession) -> None:
    """Unread columns travel unchanged: microseconds, zones, nested ones."""
    made = """
        SELECT 'a' AS user, ts, partition, offset, ts + INTERVAL 7 MICROSECONDS AS at,
               timestamp_ntz'2026-01-01 01:02:03.000004' AS local, date'2026-01-02' AS day,
               cast(1.5 AS decimal(10, 2)) AS price, array(1, 2) AS list, map('x', 1) AS map,
               struct(ts AS ts, 'y' AS y, array(ts) AS many) AS nested, cast(null AS string) AS missing,
               true AS flag, binary('z') AS bytes, 1.5D AS number
        FROM VALUES (timestamp_millis(50), 0, 0), (timestamp_millis(1), 0, 1) AS t(ts, partition, offset)
    """
    events = spark.sql(made)
    stream = tg.stream(events, key="user", timestamp="ts", partition="partition", offset="offset")
    windows = tg.TimeWindows.of_size_with_no_grace("10 ms")
    late = stream.group_by_key().windowed_by(windows).count().late_records().to_df()
    assert late.columns[:6] == ["user", "window", "timestamp", "reason", "late_by", "stream_time"]
    (got,) = late.select(*events.columns).collect()
    (wanted,) = events.where("offset = 1").collect()
    assert got.asDict(recursive=True) == wanted.asDict(recursive=True)
    assert dict(late.dtypes) | dict(events.dtypes) == dict(late.dtypes)
