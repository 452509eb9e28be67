"""What the Spark side rests on, each claim pinned by one test."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from toys import CountPack, CountStage

from tidegate.runtime.spark.flow import flow
from tidegate.runtime.spark.tasks import spark_hash, task_numbers

TASKS = 2


class Batches:
    """A Parquet source that grows by one file at a time, and a sink that remembers rows batch by batch."""

    def __init__(self, spark: SparkSession, path: Path) -> None:
        self.spark, self.path = spark, path
        self.rows: list[list[dict]] = []
        self.observed: list[dict] = []

    def write(self, *keys: str) -> None:
        frame = self.spark.createDataFrame([(key,) for key in keys], "key string")
        frame.coalesce(1).write.mode("append").parquet(str(self.path / "in"))

    def source(self, **options: str) -> DataFrame:
        return self.spark.readStream.schema("key string").options(**options).parquet(str(self.path / "in"))

    def drain(self, frame: DataFrame) -> None:
        """Run what is there to its end, as after a restart."""
        query = (
            frame.writeStream.outputMode("update")
            .option("checkpointLocation", str(self.path / "checkpoint"))
            .trigger(availableNow=True)
            .foreachBatch(lambda batch, _: self.rows.append([row.asDict() for row in batch.collect()]))
            .start()
        )
        try:
            query.awaitTermination(60)
            self.observed += [p.observedMetrics["tidegate"].asDict() for p in query.recentProgress if p.observedMetrics]
        finally:
            query.stop()


@pytest.fixture
def batches(spark: SparkSession, tmp_path: Path) -> Batches:
    return Batches(spark, tmp_path)


def counted(frame: DataFrame, stage: CountStage | None = None) -> DataFrame:
    return flow(
        frame, columns=[F.col("key")], pack=CountPack(TASKS), stage=stage or CountStage(), tasks=TASKS
    )


def as_dict(rows: list[dict]) -> dict[str, int]:
    return {row["key"]: row["n"] for row in rows}


def test_spark_hash_is_sparks_own(spark: SparkSession) -> None:
    numbers = [0, 1, 2, 41, -1, -7, 2**31 - 1, -(2**31)]
    frame = spark.createDataFrame([(n,) for n in numbers], "n int").select("n", F.hash("n").alias("h"))
    assert {row.n: row.h for row in frame.collect()} == {n: spark_hash(n) for n in numbers}


@pytest.mark.parametrize("n", [1, 2, 3, 8, 64])
def test_every_task_gets_its_own_shuffle_partition(spark: SparkSession, n: int) -> None:
    frame = spark.createDataFrame([(number,) for number in task_numbers(n)], "task int")
    placed = frame.repartition(n, "task").select("task", F.spark_partition_id().alias("p")).collect()
    assert sorted((row.p, row.task) for row in placed) == list(enumerate(task_numbers(n)))


def test_state_goes_on_from_the_checkpoint(batches: Batches) -> None:
    batches.write("a", "b", "a")
    batches.drain(counted(batches.source()))
    batches.write("a", "c")
    batches.drain(counted(batches.source()))
    assert [as_dict(rows) for rows in batches.rows] == [{"a": 2, "b": 1}, {"a": 3, "c": 1}]


def test_metrics_are_observed_per_batch(batches: Batches) -> None:
    batches.write("a", "b", "a")
    batches.write("c")
    batches.drain(counted(batches.source(maxFilesPerTrigger="1")))
    assert [m["records"] for m in batches.observed] in ([3, 1], [1, 3])


def test_a_static_frame_needs_no_state_store(spark: SparkSession) -> None:
    frame = spark.createDataFrame([("a",), ("b",), ("a",)], "key string").repartition(3)
    assert as_dict([row.asDict() for row in counted(frame).collect()]) == {"a": 2, "b": 1}
