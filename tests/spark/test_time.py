"""Settings that move stream time, in real queries: each equals the test driver."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import tidegate as tg
from tidegate.testing import TopologyTestDriver

pytest.importorskip("pyspark")

from pyspark.sql import SparkSession

from spark.replay import Replay, Row, collect, schema_of, table_of
from spark.test_wall_clock import Run

pytestmark = pytest.mark.spark

FINAL = tg.Suppressed.until_window_closes(tg.BufferConfig.unbounded())
SCHEMA = schema_of(user=pa.string())


def counts(source: Any, **arguments: Any) -> tg.KTable:
    stream = tg.stream(source, key="user", timestamp="ts", partition="partition", offset="offset", **arguments)
    windows = tg.TimeWindows.of_size_with_no_grace("10 ms")
    return stream.group_by_key().windowed_by(windows).count().suppress(FINAL)


def records(partition: int, offset: int, **times: int) -> list[Row]:
    """Records of one partition from `offset` on: user and timestamp."""
    return [
        {"user": user, "ts": ts, "partition": partition, "offset": offset + i}
        for i, (user, ts) in enumerate(times.items())
    ]


def short(rows: list[Row]) -> list[tuple[Any, ...]]:
    return sorted((row["user"], row["window"].start, row["count"]) for row in rows)


def test_the_slowest_partition_decides(spark: SparkSession, tmp_path: Path) -> None:
    """Two partitions, one far ahead, read by two map tasks; a restart between the batches."""
    batches = [
        [records(0, 0, A=5, B=55), records(1, 0, C=3)],
        [records(0, 2, A=7), records(1, 1, C=12, D=1)],
        [records(1, 3, C=58)],
    ]
    driver = TopologyTestDriver(counts("events", stream_time="min_partition"))
    wanted = []
    for files in batches:
        driver.pipe_batch([record for file in files for record in file])
        wanted.append(short(driver.read_output()))
    assert wanted == [[], [("A", 0, 2), ("C", 0, 1)], [("C", 10, 1)]]
    assert driver.drops["late"] == 1

    replay = Replay(
        spark, tmp_path, SCHEMA, lambda frame: counts(frame, stream_time="min_partition").to_df(), files_per_batch=2
    )
    first, second = replay.run_split(batches[:1]), replay.run_split(batches[1:])
    assert [short(rows) for rows in [*first.rows, *second.rows]] == wanted
    assert first.dropped() + second.dropped() == 1


def test_a_row_for_every_expected_key(spark: SparkSession, tmp_path: Path) -> None:
    """Keys from a static DataFrame, over two tasks; other keys after a restart."""
    first = [f"user-{i}" for i in range(20)]
    batches = [[records(0, 0, a=5, b=12)], [records(0, 2, c=31)]]

    def topology(names: list[str]) -> Any:
        keys = spark.createDataFrame([(name, 1) for name in names], "user string, more int")

        def on(frame: Any) -> Any:
            stream = tg.stream(frame, key="user", timestamp="ts", partition="partition", offset="offset")
            windows = tg.TimeWindows.of_size_with_no_grace("10 ms")
            return stream.group_by_key().windowed_by(windows).count(expect_keys=keys).suppress(FINAL).to_df()

        return on

    replay = Replay(spark, tmp_path, SCHEMA, topology(first))
    [rows] = replay.run_split(batches[:1]).rows
    assert short(rows) == sorted([("a", 0, 1), *((name, 0, 0) for name in first)])
    replay.topology = topology(["c", "d"])
    [rows] = replay.run_split(batches[1:]).rows
    assert short(rows) == [("b", 10, 1), ("c", 10, 0), ("c", 20, 0), ("d", 10, 0), ("d", 20, 0)]


def test_keys_that_are_expected_from_a_timer_on(spark: SparkSession, tmp_path: Path) -> None:
    """No record comes after the restart: each of two tasks knows its own keys nevertheless."""
    users = [f"user-{i}" for i in range(8)]

    def topology(keys: list[str] | None, idle_advance: str) -> Any:
        def on(frame: Any) -> Any:
            order = {"partition": "partition", "offset": "offset"}
            stream = tg.stream(frame, key="user", timestamp="ts", **order, idle_advance=idle_advance)
            windowed = stream.group_by_key().windowed_by(tg.TimeWindows.of_size_with_no_grace("1 second"))
            return windowed.count(expect_keys=keys).suppress(FINAL).to_df()

        return on

    replay = Replay(spark, tmp_path, SCHEMA, topology(None, "1 hour"))
    replay._write(records(0, 0, **dict.fromkeys(users[:3], 5)))
    assert Run(replay, lambda run: run.records > 0).rows == []
    replay.topology = topology(users, "1 second")
    run = Run(replay, lambda run: len(run.rows) >= len(users))
    assert run.records == 0
    assert short([row for row in run.rows if row["window"].start == 0]) == [
        (user, 0, int(user in users[:3])) for user in users
    ]


def test_expected_keys_at_the_end_of_a_static_frame(spark: SparkSession) -> None:
    frame = spark.createDataFrame(table_of(records(0, 0, a=5, b=12), SCHEMA))
    stream = tg.stream(frame, key="user", timestamp="ts", partition="partition", offset="offset")
    grouped = stream.group_by_key().windowed_by(tg.TimeWindows.of_size_with_no_grace("10 ms"))
    rows = collect(grouped.count(expect_keys=["b", "c"]).suppress(FINAL).to_df())
    assert short(rows) == [("a", 0, 1), ("b", 0, 0), ("b", 10, 1), ("c", 0, 0), ("c", 10, 0)]


def test_expected_keys_that_cannot_travel(spark: SparkSession) -> None:
    stream = tg.stream(
        spark.range(1).selectExpr("cast(id as string) user", "current_timestamp() ts"), key="user", timestamp="ts"
    )
    grouped = stream.group_by_key().windowed_by(tg.TimeWindows.of_size_with_no_grace("10 ms"))
    keys = spark.range(200_000).selectExpr("sha2(cast(id as string), 256) user")
    with pytest.raises(tg.DefinitionError, match="cannot travel with the operator"):
        grouped.count(expect_keys=keys).suppress(FINAL).to_df()
    streaming = spark.readStream.format("rate").load().selectExpr("cast(value as string) user")
    with pytest.raises(tg.DefinitionError, match="Use a static one"):
        grouped.count(expect_keys=streaming)


def test_a_clock_that_runs_ahead(spark: SparkSession, tmp_path: Path) -> None:
    """A record of the year 2200 moves no time; those of 2020 are compared with today."""
    now, far = 1_600_000_000_000, 7_258_118_400_000
    replay = Replay(spark, tmp_path, SCHEMA, lambda frame: counts(frame, max_future_skew="5 minutes").to_df())
    replayed = replay.run([records(0, 0, A=now, B=far, C=now + 10)])
    assert [short(rows) for rows in replayed.rows] == [[("A", now, 1)]]
    assert [(batch["future"], batch["late"], batch["stream_time"]) for batch in replayed.metrics] == [(1, 0, now + 10)]


def test_a_silent_partition_is_left_out_by_the_wall_clock(spark: SparkSession, tmp_path: Path) -> None:
    """The clock of a batch is Spark's: a millisecond has passed between any two."""
    arguments = {"stream_time": "min_partition", "idle_after": "1 millisecond"}
    replay = Replay(spark, tmp_path, SCHEMA, lambda frame: counts(frame, **arguments).to_df(), files_per_batch=2)
    replayed = replay.run_split([[records(0, 0, A=5, B=12), records(1, 0, C=3)], [records(0, 2, A=21)]])
    assert [short(rows) for rows in replayed.rows] == [[], [("A", 0, 1), ("B", 10, 1), ("C", 0, 1)]]


def test_the_last_windows_come_out_while_no_record_comes(spark: SparkSession, tmp_path: Path) -> None:
    """Both tasks emit their rows once, without input, and a later record is judged by the advanced stream time."""
    replay = Replay(spark, tmp_path, SCHEMA, lambda frame: counts(frame, idle_advance="1 second").to_df())
    users = [f"user-{i}" for i in range(8)]
    replay._write(records(0, 0, **dict.fromkeys(users, 5)))
    # When the progress shows a batch it is committed, and does not run again.
    run = Run(replay, lambda run: run.told("emitted") >= len(users))
    assert short(run.rows) == [(user, 0, 1) for user in users]
    replay._write(records(0, len(users), **dict.fromkeys(users, 6)))
    assert Run(replay, lambda run: run.told("late") == len(users)).rows == []


def test_a_query_says_what_it_waits_for(spark: SparkSession, tmp_path: Path) -> None:
    replay = Replay(
        spark, tmp_path, SCHEMA, lambda frame: counts(frame, stream_time="min_partition").to_df(), files_per_batch=2
    )
    replay._write(records(0, 0, A=4, B=55))
    replay._write(records(7, 0, C=3))
    query = (
        replay.topology(replay._source())
        .writeStream.outputMode("update")
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .trigger(availableNow=True)
        .foreachBatch(lambda frame, batch: frame.collect())
        .start()
    )
    assert query.awaitTermination(180)
    assert tg.explain_pending(query) == [tg.Pending("stream", 3, (tg.Waiting(None, 10, 7),), 2, (7, 3))]
