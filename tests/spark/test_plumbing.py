"""Claims about Spark that the runtime relies on, each pinned by one test."""

from __future__ import annotations

import datetime as dt
import json
import sys
from decimal import Decimal
from pathlib import Path
from typing import Any
from zlib import crc32

import pyarrow as pa
import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from seeds import first
from spark.toys import (
    CountPack,
    CountStage,
    EchoStage,
    FixedStage,
    ProcessPack,
    ProcessStage,
    RawPack,
    StoreStage,
    TaskStage,
)
from tidegate.errors import TidegateError, TidegateWarning
from tidegate.runtime.spark.flow import Input, flow
from tidegate.runtime.spark.session import config, installed
from tidegate.runtime.spark.tasks import spark_hash, task_numbers

pytestmark = pytest.mark.spark

TASKS = 2


class Batches:
    """A Parquet source that grows by one file at a time, and a sink that keeps rows batch by batch."""

    def __init__(self, spark: SparkSession, path: Path) -> None:
        self.spark, self.path = spark, path
        self.rows: list[list[dict[str, Any]]] = []
        self.observed: list[dict[str, Any]] = []

    def write(self, *keys: str) -> None:
        frame = self.spark.createDataFrame([(key,) for key in keys], "key string")
        frame.coalesce(1).write.mode("append").parquet(str(self.path / "in"))

    def source(self, **options: str) -> DataFrame:
        return self.spark.readStream.schema("key string").options(**options).parquet(str(self.path / "in"))

    def drain(self, frame: DataFrame) -> None:
        """Run the available data to its end, as after a restart."""
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
    return flow([Input(frame, [F.col("key")], CountPack(TASKS))], stage=stage or CountStage(), tasks=TASKS)


def echoed(frame: DataFrame, pack: RawPack, stage: EchoStage | None = None) -> DataFrame:
    return flow([Input(frame, [F.col("key")], pack)], stage=stage or EchoStage(), tasks=TASKS)


def as_dict(rows: list[dict[str, Any]]) -> dict[str, int]:
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


@pytest.mark.parametrize("frame_rows", ["10000", "1"])
def test_one_step_per_task_and_batch(spark: SparkSession, batches: Batches, frame_rows: str) -> None:
    name = "spark.sql.execution.arrow.maxRecordsPerBatch"
    before = spark.conf.get(name)
    batches.write("a")
    batches.write("b")
    try:
        spark.conf.set(name, frame_rows)
        batches.drain(echoed(batches.source(), RawPack(TASKS, repeat=3)))
    finally:
        spark.conf.set(name, before)
    (told,) = batches.observed
    assert told["steps"] == TASKS
    assert told["blobs"] >= TASKS * 3


def test_an_error_fails_the_batch_and_stores_nothing(batches: Batches) -> None:
    batches.write("a")
    batches.drain(counted(batches.source()))
    batches.write("a", "bad")
    with pytest.raises(StreamingQueryException, match="ValueError: the key 'bad' is poison"):
        batches.drain(counted(batches.source(), CountStage(poison="bad")))
    batches.drain(counted(batches.source()))
    assert [as_dict(rows) for rows in batches.rows if rows] == [{"a": 1}, {"a": 2, "bad": 1}]


def test_pack_is_called_for_an_empty_partition(spark: SparkSession) -> None:
    # Not of literal rows: Spark would see in the plan that none is left, and make no partition.
    frame = spark.range(0, 3, 1, 3).selectExpr("cast(id as string) key").where("key = 'nobody'")
    rows = echoed(frame, RawPack(TASKS)).collect()
    assert rows
    assert {row.text for row in rows} == {"none"}


def test_arrow_batches_of_the_input(spark: SparkSession) -> None:
    config.configure(spark)
    most = int(spark.conf.get(config.ARROW_ROWS))
    assert most == (50_000 if installed.spark_version() >= config.SPARK_BOUNDS_ARROW_BYTES else 10_000)
    frame = spark.range(0, 2 * most + 5_000, 1, 1).selectExpr("cast(id as string) key")
    rows = echoed(frame, RawPack(TASKS)).collect()
    assert {row.text for row in rows} == {f"{most},{most},5000"}


@pytest.mark.parametrize("simplified", first(1, [False, True]))
def test_map_tasks_and_stateful_tasks_share_their_workers(
    batches: Batches, simplified: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They do not share them with simplified tracebacks: Spark then starts workers for each kind (decision 0046)."""
    spark = batches.spark
    # Another environment is another pool. Beside idle workers of earlier tests, map tasks may get one of these each
    # time, and stateful tasks others: so it was with five of them.
    monkeypatch.setitem(spark.sparkContext.environment, "TIDEGATE_TEST_POOL", str(simplified))
    before = spark.conf.get(config.SIMPLIFIED)
    assert before == "false"
    spark.conf.set(config.SIMPLIFIED, str(simplified).lower())
    try:
        for key in "abc":
            batches.write(key)
            batches.drain(
                flow([Input(batches.source(), [F.col("key")], ProcessPack(TASKS))], stage=ProcessStage(), tasks=TASKS)
            )
    finally:
        spark.conf.set(config.SIMPLIFIED, before)
    rows = [row for each in batches.rows for row in each]
    mapped, stepped = ({row[of] for row in rows} for of in ("mapped", "stepped"))
    assert mapped.isdisjoint(stepped) == simplified


def test_a_task_has_one_name_in_all_batches(spark: SparkSession, tmp_path: Path) -> None:
    """A worker tells copies of state apart by it, so other queries and other operators have other names."""
    names = []
    for folder, operator, keys in (("query", "one", "ab"), ("query", "other", "c"), ("another", "one", "a")):
        query = Batches(spark, tmp_path / folder)
        for key in keys:
            query.write(key)
        source = query.source(maxFilesPerTrigger="1")
        query.drain(flow([Input(source, [F.col("key")], RawPack(TASKS))], stage=TaskStage(operator), tasks=TASKS))
        first, last = ({row["task"] for row in query.rows[at]} for at in (0, -1))
        assert first == last
        names += sorted(first)
    assert len(set(names)) == len(names) == 3 * TASKS
    assert not any(name.startswith("None") for name in names)


def test_tasks_in_one_partition_have_names_of_their_own(batches: Batches) -> None:
    """Behind a `coalesce` Spark runs them one after the other: of one name they would drop each other's copies."""
    batches.write("a")
    frame = flow([Input(batches.source(), [F.col("key")], RawPack(TASKS))], stage=TaskStage(), tasks=TASKS)
    batches.drain(frame.coalesce(1))
    [rows] = batches.rows
    assert len({row["task"] for row in rows}) == TASKS


def test_a_large_blob_arrives_whole(batches: Batches) -> None:
    size = 70 << 20  # two of 128 MB at once are too much for Spark's default heap of 1 GB
    batches.write("a")
    source = batches.source()
    batches.drain(flow([Input(source, [F.col("key")], RawPack(1, size=size))], stage=EchoStage(), tasks=1))
    assert {row["length"] for rows in batches.rows for row in rows} == {size}


def test_a_stage_must_stay_below_a_megabyte(batches: Batches) -> None:
    batches.write("a")
    ballast = bytes(i * 7919 % 251 for i in range(1000)) * 2000
    with pytest.raises(StreamingQueryException, match="BROADCAST_VARIABLE_NOT_LOADED"):
        batches.drain(echoed(batches.source(), RawPack(TASKS), EchoStage(ballast=ballast)))


def test_the_store_cuts_and_joins_large_values(batches: Batches) -> None:
    large, small = 9_000_000, 3_000
    script = [
        [("write", 60_000, 0, large), ("write", -60_000, 1, 0), ("read", 60_000, 0), ("read", -60_000, 1)],
        [("read", 60_000, 0), ("write", 60_000, 0, small), ("remove", -60_000, 1)],
        [("read", 60_000, 0), ("write", 60_000, 0, large), ("remove", 60_000, 0), ("write", 60_000, 0, small)],
        [("read", 60_000, 0), ("read", -60_000, 1)],
    ]
    for _ in script[:-1]:
        batches.write("a")
        batches.drain(stored(batches.source(), script))
    batches.write("a")
    with pytest.raises(StreamingQueryException, match="no segment 1 of the window at -60000 ms"):
        batches.drain(stored(batches.source(), script))

    def value(size: int) -> str:
        return f"{size} {crc32(bytes(i % 251 for i in range(1000)) * (size // 1000))} bytes"

    assert [[row["told"] for row in rows] for rows in batches.rows] == [
        [value(large), value(0)],
        [value(large)],
        [value(small)],
    ]


def stored(source: DataFrame, script: list[list[tuple[Any, ...]]]) -> DataFrame:
    return flow([Input(source, [F.col("key")], RawPack(1))], stage=StoreStage(script), tasks=1)


NOON = dt.datetime(2026, 3, 29, 12, 30, tzinfo=dt.UTC)
ODD = pa.table(
    {
        "string": pa.array(["ä", None]),
        "flag": pa.array([True, None]),
        "byte": pa.array([1, None], pa.int8()),
        "int": pa.array([1, None], pa.int32()),
        "long": pa.array([2**62 + 1, None], pa.int64()),
        "float": pa.array([0.5, None], pa.float32()),
        "double": pa.array([float("nan"), None], pa.float64()),
        "decimal": pa.array([Decimal("12345678901234567890.12"), None], pa.decimal128(30, 2)),
        "date": pa.array([dt.date(2026, 3, 29), None]),
        "instant": pa.array([NOON, None], pa.timestamp("us", "UTC")),
        "binary": pa.array([b"\x00\xff", None], pa.binary()),
        "names": pa.array([["a", None], None], pa.list_(pa.string())),
        "longs": pa.array([[2**62 + 1, None], None], pa.list_(pa.int64())),
        "doubles": pa.array([[float("nan"), None, 0.1], None], pa.list_(pa.float64())),
        "measured": pa.array(
            [{"x": float("nan"), "n": None}, None], pa.struct([("x", pa.float64()), ("n", pa.int64())])
        ),
        "pair": pa.array([{"a": 1, "b": "x"}, None], pa.struct([("a", pa.int64()), ("b", pa.string())])),
        "instants": pa.array([[NOON, None], None], pa.list_(pa.timestamp("us", "UTC"))),
        "moments": pa.array(
            [{"at": NOON, "n": 1}, None], pa.struct([("at", pa.timestamp("ms", "UTC")), ("n", pa.int64())])
        ),
    }
)


@pytest.mark.parametrize(
    ("zone", "streaming"), [("UTC", True), ("America/New_York", True), ("America/New_York", False)]
)
def test_every_type_leaves_the_operator(spark: SparkSession, batches: Batches, zone: str, streaming: bool) -> None:
    batches.write("a")
    source = batches.source() if streaming else spark.read.schema("key string").parquet(str(batches.path / "in"))
    try:
        spark.conf.set("spark.sql.session.timeZone", zone)
        out = flow([Input(source, [F.col("key")], RawPack(1))], stage=FixedStage(ODD), tasks=1)
        # As text, in UTC: what collect() gives depends on the time zone of this process.
        options = {"ignoreNullFields": "false", "timeZone": "UTC"}
        told = out.select(F.to_json(F.struct("*"), options).alias("json"))
        if streaming:
            batches.drain(told)
            rows = [row["json"] for row in batches.rows[0]]
        else:
            rows = [row.json for row in told.collect()]
    finally:
        spark.conf.set("spark.sql.session.timeZone", "UTC")
    noon = "2026-03-29T12:30:00.000Z"
    first = {
        "string": "ä",
        "flag": True,
        "byte": 1,
        "int": 1,
        "long": 2**62 + 1,
        "float": 0.5,
        "double": "NaN",
        "decimal": Decimal("12345678901234567890.12"),
        "date": "2026-03-29",
        "instant": noon,
        "binary": "AP8=",
        "names": ["a", None],
        "longs": [2**62 + 1, None],
        "doubles": ["NaN", None, Decimal("0.1")],
        "measured": {"x": "NaN", "n": None},
        "pair": {"a": 1, "b": "x"},
        "instants": [noon, None],
        "moments": {"at": noon, "n": 1},
    }
    assert [json.loads(row, parse_float=Decimal) for row in rows] == [first, dict.fromkeys(first)]


def test_configure_makes_a_session_that_check_accepts(spark: SparkSession) -> None:
    config.check(spark)


def test_a_builder_is_configured_beside_an_active_session(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    """Spark refuses a default of the wrong type for a setting that a session leaves alone."""
    other = spark.newSession()
    other.conf.unset(config.ARROW_ROWS)
    monkeypatch.setattr(SparkSession, "getActiveSession", lambda: other)
    config.configure(SparkSession.builder)


def test_check_names_configure_when_rocksdb_is_missing(spark: SparkSession) -> None:
    other = spark.newSession()
    other.conf.set(config.PARTITIONS, "2")
    other.conf.set(config.PROVIDER, config.ROCKSDB.replace("RocksDB", "HDFSBacked"))
    config.check(other, streaming=False)
    with pytest.raises(TidegateError, match=r"HDFSBackedStateStoreProvider.*`tg\.configure\(spark\)`"):
        config.check(other)
    config.check(config.configure(other, faster=True))
    assert other.conf.get("spark.sql.streaming.checkpoint.fileChecksum.enabled") == "false"


def test_check_warns_of_two_hundred_partitions(spark: SparkSession) -> None:
    other = config.configure(spark.newSession())
    other.conf.set(config.PARTITIONS, "200")
    with pytest.warns(TidegateWarning, match="spark.sql.shuffle.partitions is 200, Spark's default"):
        config.check(other)


@pytest.mark.parametrize(("release", "message"), [("1.8.0_402", "is Java 8"), ("11.0.2", "is Java 11")])
def test_an_old_java_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, release: str, message: str) -> None:
    java = tmp_path / "bin" / "java"
    java.parent.mkdir()
    java.write_text("")
    java.chmod(0o755)
    (tmp_path / "release").write_text(f'IMPLEMENTOR="x"\nJAVA_VERSION="{release}"\n')
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(TidegateError, match=f"{message}: Spark needs Java 17 or later"):
        installed.require_java()


def test_a_missing_java_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(TidegateError, match=r"no Java was found.*Install one"):
        installed.require_java()


@pytest.mark.parametrize("package", ["pandas", "pyarrow", "google.protobuf"])
def test_a_missing_package_is_named(monkeypatch: pytest.MonkeyPatch, package: str) -> None:
    monkeypatch.delitem(sys.modules, "pyspark.sql.streaming.proto.StateMessage_pb2", raising=False)
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(TidegateError, match=r"cannot run here: .*pip install --upgrade pandas pyarrow 'protobuf"):
        installed.require_packages()
