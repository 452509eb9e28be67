"""Missing offsets on Spark: the plan tells whether the source is contiguous, and the rows are the same either way."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import tidegate as tg
from tidegate.kernel.tuning import Tuning

pytest.importorskip("pyspark")

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from spark.replay import Replay, schema_of
from tidegate.runtime.spark.frames import contiguous
from tidegate.runtime.spark.frames.contiguous import Origin, repeats_offsets
from tidegate.testing import TopologyTestDriver

pytestmark = pytest.mark.spark


@pytest.fixture
def topic(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> Callable[..., DataFrame]:
    """A source that counts as Kafka's, with its columns `value` and `timestamp` for partition and offset."""
    monkeypatch.setattr(contiguous, "SOURCES", ("rate",))
    monkeypatch.setattr(contiguous, "PARTITION", "value")
    monkeypatch.setattr(contiguous, "OFFSET", "timestamp")

    def read(subscribe: str | None = "clicks") -> DataFrame:
        reader = spark.readStream.format("rate")
        return (reader if subscribe is None else reader.option("subscribe", subscribe)).load()

    return read


def reads_contiguously(frame: DataFrame, partition: str = "value", offset: str = "timestamp") -> bool:
    return Origin.of(frame, partition, offset).contiguous


KEEPING: dict[str, Callable[[DataFrame], DataFrame]] = {
    "as it is": lambda df: df,
    "where": lambda df: df.where("value % 2 = 0").where(F.rand() < 0.5),
    "another column": lambda df: df.withColumn("more", F.col("value") + 1),
    "as a long": lambda df: df.withColumn("value", F.col("value").cast("long")),
    "observed": lambda df: df.observe("numbers", F.count(F.lit(1))),
    "a watermark": lambda df: df.withWatermark("timestamp", "1 second"),
    "an alias": lambda df: df.alias("clicks").where("clicks.value > 0"),
}
CHANGING: dict[str, Callable[[DataFrame], DataFrame]] = {
    "repartition": lambda df: df.repartition(2),
    "coalesce": lambda df: df.coalesce(1),
    "union": lambda df: df.union(df),
    "a constant partition": lambda df: df.withColumn("value", F.lit(0)),
    "fewer partitions": lambda df: df.withColumn("value", F.col("value") % 2),
    "narrower offsets": lambda df: df.withColumn("value", F.col("value").cast("int")),
    "the other way round": lambda df: df.toDF("value", "timestamp"),
    "mapInArrow": lambda df: df.mapInArrow(lambda batches: batches, df.schema),
    "distinct": lambda df: df.dropDuplicates(),
    "exploded": lambda df: df.select("value", "timestamp", F.explode(F.array(F.lit(1), F.lit(2)))),
}


@pytest.mark.parametrize("name", KEEPING)
def test_what_keeps_rows_in_their_tasks_and_order(topic: Callable[..., DataFrame], name: str) -> None:
    assert reads_contiguously(KEEPING[name](topic()))


@pytest.mark.parametrize("name", CHANGING)
def test_what_may_not(topic: Callable[..., DataFrame], name: str) -> None:
    assert not reads_contiguously(CHANGING[name](topic()))


def test_columns_of_other_names(topic: Callable[..., DataFrame]) -> None:
    renamed = topic().select(F.col("value").alias("p"), F.col("timestamp").alias("o"))
    assert reads_contiguously(renamed.where("p > 1"), "p", "o")
    assert not reads_contiguously(renamed, "o", "p")
    assert not reads_contiguously(renamed, "p", "nothing")


def test_numbers_of_partitions_are_those_of_one_topic(topic: Callable[..., DataFrame]) -> None:
    assert Origin.of(topic(), "value", "timestamp") == Origin(("clicks",), contiguous=True)
    assert Origin.of(topic(None), "value", "timestamp") == Origin()
    several = topic("clicks,views")
    assert Origin.of(several, "value", "timestamp") == Origin(("clicks", "views"), several=True)
    # The code that the warning recommends.
    named = several.withColumn("topic", F.lit("clicks")).withColumn("value", F.concat_ws("-", "topic", "value"))
    assert Origin.of(named, "value", "timestamp") == Origin()


@pytest.mark.filterwarnings("error")
def test_partitions_of_several_topics_have_a_warning(topic: Callable[..., DataFrame]) -> None:
    def count(frame: DataFrame) -> None:
        time = F.col("timestamp")
        records = frame.select("value", time.cast("long").alias("offset"), time.alias("ts"), F.lit("A").alias("k"))
        stream = tg.stream(records, key="k", timestamp="ts", partition="value", offset="offset")
        stream.group_by_key().count().to_df()

    count(topic("clicks"))
    with pytest.warns(tg.TidegateWarning, match=r"reads the topics 'clicks,views', and its column .value. has the par"):
        count(topic("clicks,views"))


def test_a_union_of_two_topics_has_the_partitions_of_both(topic: Callable[..., DataFrame]) -> None:
    clicks, views = topic("clicks"), topic("views")
    renamed = clicks.select(F.col("timestamp").alias("o"), F.col("value").alias("p"))
    unions = [
        (clicks.union(views), "value", "timestamp"),
        (
            clicks.where("value > 1").unionByName(views.select("value", "timestamp")).where("value > 2"),
            "value",
            "timestamp",
        ),
        (clicks.union(clicks.union(views)), "value", "timestamp"),
        (renamed.union(views), "p", "o"),
    ]
    for frame, partition, offset in unions:
        assert Origin.of(frame, partition, offset) == Origin(("clicks", "views"), several=True)
    # One topic in two ways, and the code that the warning recommends.
    named = [each.select(F.concat_ws("-", F.lit("t"), "value").alias("value"), "timestamp") for each in (clicks, views)]
    for fine in (clicks.where("value > 1").union(clicks.where("value < 1")), named[0].union(named[1])):
        found = Origin.of(fine, "value", "timestamp")
        assert (found.several, found.contiguous) == (False, False)


def test_other_sources_promise_nothing(spark: SparkSession) -> None:
    rate = spark.readStream.format("rate").option("subscribe", "clicks").load()
    assert not reads_contiguously(rate)
    static = spark.createDataFrame([(0, 0)], "value int, timestamp long")
    assert not reads_contiguously(static)
    assert Origin.of(rate, None, None) == Origin()


SCHEMA = schema_of(user=pa.string())


def counts(source: Any) -> tg.KTable:
    windows = tg.TimeWindows.of_size_with_no_grace("10 ms")
    stream = tg.stream(source, name="stream", key="user", timestamp="ts", partition="partition", offset="offset")
    final = tg.Suppressed.until_window_closes(tg.BufferConfig.unbounded())
    return stream.group_by_key().windowed_by(windows).count().suppress(final)


def rows_of(batches: Any) -> list[list[tuple[Any, ...]]]:
    return [sorted((row["user"], row["window"].start, row["count"]) for row in batch) for batch in batches]


def test_a_filter_before_the_stream_on_files_that_hold_a_partition_in_turns(
    spark: SparkSession, tmp_path: Path
) -> None:
    """Each file has more gaps than `offset_runs`, two files make a batch, and one of them moves time for both."""
    many = 8 * Tuning().offset_runs
    batches = [
        [
            {"user": "abc"[i % 3], "ts": 20 * b + i * 25 // many - i % 5 * (i % 2), "partition": 0}
            | {"offset": b * many + i}
            for i in range(many)
        ]
        for b in range(3)
    ]
    for batch in batches:
        for row in batch:
            row["ts"] = max(row["ts"], 0)
    kept = [[row for row in batch if row["offset"] % 3] for batch in batches]
    driver = TopologyTestDriver(counts("stream"))
    wanted = []
    for batch in kept:
        driver.pipe_batch(batch)
        wanted.append(driver.read_output())
    replay = Replay(
        spark, tmp_path, SCHEMA, lambda frame: counts(frame.where("offset % 3 != 0")).to_df(), files_per_batch=2
    )
    found = replay.run_split([[batch[::2], batch[1::2]] for batch in batches])
    assert driver.dropped > 0
    assert found.dropped() == driver.dropped
    start = lambda row: row["window"].start  # noqa: E731
    assert [len(batch) for batch in found.rows] == [len(batch) for batch in wanted]
    assert [[(r["user"], r["count"]) for r in sorted(b, key=lambda r: (r["user"], start(r)))] for b in found.rows] == [
        [(r["user"], r["count"]) for r in sorted(b, key=lambda r: (r["user"], start(r)))] for b in wanted
    ]


def exploded(frame: DataFrame) -> DataFrame:
    return frame.select("value", "timestamp", F.explode(F.array(F.lit(1), F.lit(2))).alias("item"))


def unpivoted(frame: DataFrame) -> DataFrame:
    return frame.withColumns({"a": F.lit(1), "b": F.lit(2)}).unpivot(["value", "timestamp"], ["a", "b"], "what", "item")


def another(frame: DataFrame) -> DataFrame:
    return frame.sparkSession.readStream.format("rate").option("rowsPerSecond", 7).load()


REPEATING: dict[str, Callable[[DataFrame], DataFrame]] = {
    "a union with itself": lambda df: df.union(df),
    "a union of views": lambda df: (
        df.where("value > 3").unionByName(df.withColumn("value", F.col("value") + 0)).limit(9)
    ),
    "exploded and shuffled": lambda df: exploded(df).where("item > 1").repartition(2),
    "unpivoted and shuffled": lambda df: unpivoted(df).dropDuplicates().where("item > 1"),
}
ONCE: dict[str, Callable[[DataFrame], DataFrame]] = {
    "as it is": lambda df: df,
    "shuffled": lambda df: df.repartition(2).dropDuplicates(),
    "exploded": lambda df: exploded(df.repartition(2)).where("item > 1"),
    "unpivoted": unpivoted,
    "a union of two sources": lambda df: exploded(df).union(exploded(another(df))),
}


@pytest.mark.parametrize("name", [*REPEATING, *ONCE])
def test_frames_whose_tasks_may_read_one_offset(spark: SparkSession, name: str) -> None:
    frame = (REPEATING | ONCE)[name](spark.readStream.format("rate").load())
    assert repeats_offsets(frame, "value", "timestamp") == (name in REPEATING)
    assert not repeats_offsets(frame, "value", None)


def test_a_union_of_two_views_of_one_source(spark: SparkSession, tmp_path: Path) -> None:
    """A trip is two records, which two map tasks read: a start is late by the end of an earlier trip."""
    all_trips = [{"user": "abc"[i % 3], "ts": i, "end": i + i * 7 % 20, "partition": 0, "offset": i} for i in range(40)]
    trips = [all_trips[:20], all_trips[20:]]
    driver = TopologyTestDriver(counts("stream"))
    wanted = []
    for batch in trips:
        driver.pipe_batch([{**trip, "ts": trip[when]} for trip in batch for when in ("ts", "end")])
        wanted.append(driver.read_output())

    def both(frame: DataFrame) -> DataFrame:
        return counts(frame.drop("end").union(frame.withColumn("ts", F.col("end")).drop("end"))).to_df()

    schema = schema_of(user=pa.string(), end=pa.timestamp("us", "UTC"))
    found = Replay(spark, tmp_path, schema, both).run(trips)
    assert found.dropped() == driver.dropped > 0
    assert rows_of(found.rows) == rows_of(wanted)
