"""Several outputs of one aggregation on Spark: one stateful operator, the rows of the test driver."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import tidegate as tg
from tidegate.testing import TopologyTestDriver

pytest.importorskip("pyspark")

from pyspark.sql import DataFrame, SparkSession

from spark.replay import EPOCH, Replay, collect, table_of, with_offsets

pytestmark = pytest.mark.spark

FINAL = tg.Suppressed.until_window_closes(tg.BufferConfig.unbounded())
SCHEMA = pa.schema(
    {
        "user": pa.string(),
        "ts": pa.timestamp("us", "UTC"),
        "x": pa.int64(),
        "partition": pa.int32(),
        "offset": pa.int64(),
    }
)
BATCHES = with_offsets(
    [
        [{"user": "a", "ts": 1, "x": 1}, {"user": "b", "ts": 4, "x": 2}, {"user": "a", "ts": 2, "x": 3}],
        [{"user": "a", "ts": 17, "x": 4}, {"user": "b", "ts": 3, "x": 5}, {"user": None, "ts": 18, "x": 6}],
        [{"user": "b", "ts": 40, "x": 7}, {"user": "a", "ts": 20, "x": 8}, {"user": "a", "ts": None, "x": 9}],
    ]
)


def tables(source: Any, windows: Any) -> dict[str, tg.KTable]:
    events = tg.stream(source, key="user", timestamp="ts", partition="partition", offset="offset", name="stream")
    sums = events.group_by_key().windowed_by(windows).agg(n=tg.count(), total=tg.sum("x"))
    return {"raw": sums, "final": sums.suppress(FINAL)}


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
    assert [sorted(rows, key=place) for rows in replayed.rows] == wanted
    assert replayed.dropped() == driver.dropped
    (state,) = (tmp_path / "checkpoint" / "state").iterdir()
    assert state.name == "0"  # one stateful operator


def test_a_static_frame_gives_every_output(spark: SparkSession) -> None:
    events = spark.createDataFrame(table_of([row for batch in BATCHES for row in batch], SCHEMA))
    frame = tg.to_df(**tables(events, tg.TimeWindows.of_size_and_grace("10 ms", "5 ms")))
    rows = collect(frame)
    assert {row["output"] for row in rows} == {"raw", "final"}
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
