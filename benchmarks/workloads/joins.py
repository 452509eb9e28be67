"""J1 and J2: joins of two streams, inner, left and outer, with few and with many pairs a record, few and many keys."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import pyarrow as pa
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

import tidegate as tg
from benchmarks.contestant import BARE_MAP, FILES, IN_MEMORY, ROCKSDB, Contestant, Frame, from_files, source, streamed
from benchmarks.join_race import JoinRace
from benchmarks.joined_rows import Rows, differing, joined
from benchmarks.measure import finished
from benchmarks.race import Bar
from benchmarks.two_sides import GRACE_MS, SIDES, Shape, Stretch, span_for, write

HOWS = ("inner", "left", "outer")
PAIRS = (0.3, 1, 5)
WINDOW_MS = 30_000

FORMAT = "spark.sql.streaming.join.stateFormatVersion"
MEMORY_FORMAT, ROCKSDB_FORMATS = 2, (2, 3, 4)
"""State formats of Spark 4.3, which rejects 1. Formats 3 and 4 have one store with column families and need only
RocksDB; with its in-memory store Spark uses 2 in any case. Spark 4.1 has no 4."""

MEMORY_BATCHES, ROCKSDB_BATCHES = 4, 3
"""Number of micro-batches that Spark's own join runs."""


def asked(left: tg.KStream, right: tg.KStream, how: str, window_ms: int) -> tg.KStream:
    """The query of all of these workloads."""
    windows = tg.JoinWindows.of_time_difference_and_grace(f"{window_ms} milliseconds", f"{GRACE_MS} milliseconds")
    return left.join(right, windows, how=how)  # type: ignore[arg-type]


def tidegate(
    spark: SparkSession, folder: Path, how: str, window_ms: int, opened: Callable[..., tg.KStream]
) -> DataFrame:
    left, right = (opened(spark, folder / side, name=side, stream_time="max") for side in SIDES)
    rows: DataFrame = asked(left, right, how, window_ms).to_df()
    return rows.select("user", "amount", "price", "timestamp")


def _sides(spark: SparkSession, folder: Path) -> tuple[DataFrame, DataFrame]:
    """Both sides with a watermark of the grace, and with different column names."""
    grace = f"{GRACE_MS} milliseconds"
    left, right = (source(spark, folder / side).withWatermark("ts", grace) for side in SIDES)
    return (
        left.select("user", "ts", "amount"),
        right.select(F.col("user").alias("user_r"), F.col("ts").alias("ts_r"), "price"),
    )


def _meet(window_ms: int) -> Column:
    return F.expr(
        f"user = user_r AND ts_r BETWEEN ts - INTERVAL {window_ms / 1000} SECONDS "
        f"AND ts + INTERVAL {window_ms / 1000} SECONDS"
    )


def _shown(pairs: DataFrame) -> DataFrame:
    return pairs.select(
        F.coalesce("user", "user_r").alias("user"), "amount", "price", F.greatest("ts", "ts_r").alias("timestamp")
    )


def spark_native(spark: SparkSession, folder: Path, how: str, window_ms: int) -> DataFrame:
    left, right = _sides(spark, folder)
    return _shown(left.join(right, _meet(window_ms), how))


def spark_bucketed(spark: SparkSession, folder: Path, window_ms: int) -> DataFrame:
    """Spark's join with time buckets of twice the window; a left record is in the one or two that its window touches.

    So Spark compares fewer records of a key. For inner joins only: a record in two buckets would be emitted twice
    without a partner.
    """
    left, right = _sides(spark, folder)
    reach = 2 * window_ms

    def bucket(ms: Column) -> Column:
        return F.floor(ms / F.lit(reach))

    ms = F.unix_millis("ts")
    first, last = bucket(ms - window_ms), bucket(ms + window_ms)
    left = left.withColumn("bucket", F.explode(F.sequence(first, last)))
    right = right.withColumn("bucket_r", bucket(F.unix_millis("ts_r")))
    return _shown(left.join(right, _meet(window_ms) & F.expr("bucket = bucket_r"), "inner"))


def bare_map(spark: SparkSession, folder: Path) -> DataFrame:
    def consume(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        rows = sum(batch.num_rows for batch in batches)
        yield pa.RecordBatch.from_pydict({"rows": pa.array([rows], pa.int64())})

    left, right = (source(spark, folder / side) for side in SIDES)
    return left.withColumnRenamed("amount", "price").union(right).mapInArrow(consume, "rows long")


def ours(how: str, window_ms: int) -> tuple[Contestant, Contestant]:
    """The two contestants of tidegate: over Spark's reader, and reading the files itself."""
    ask = partial(tidegate, how=how, window_ms=window_ms)
    return (
        Contestant("tidegate", "tidegate, partition and offset given", partial(ask, opened=streamed)),
        Contestant(FILES, "tidegate, the same by tg.files.source", partial(ask, opened=from_files)),
    )


def in_memory(how: str, window_ms: int, batches: int | None = MEMORY_BATCHES) -> Contestant:
    frame = partial(spark_native, how=how, window_ms=window_ms)
    return Contestant(
        "spark_memory", "Spark's own, in-memory store", frame, _of(MEMORY_FORMAT, IN_MEMORY), batches=batches
    )


def on_rocksdb(how: str, window_ms: int, version: int, batches: int | None = ROCKSDB_BATCHES) -> Contestant:
    frame = partial(spark_native, how=how, window_ms=window_ms)
    label = f"Spark's own, RocksDB, format {version}"
    return Contestant(f"spark_rocksdb_{version}", label, frame, _of(version, ROCKSDB), batches=batches)


def bucketed(window_ms: int) -> Contestant:
    frame: Frame = partial(spark_bucketed, window_ms=window_ms)
    settings = _of(MEMORY_FORMAT, IN_MEMORY)
    return Contestant("spark_bucketed", "Spark's own, with a time bucket", frame, settings, batches=MEMORY_BATCHES)


def _of(version: int, store: dict[str, str]) -> dict[str, str]:
    return {**store, FORMAT: str(version)}


FLOOR = Contestant(BARE_MAP, "bare mapInArrow (floor)", bare_map, answers=False)


# -- against a direct computation ---------------------------------------------------------------------------------

SMALL = Shape(keys=100, window_ms=WINDOW_MS, stretches=(Stretch(3, 1_000, 120_000),))


def collected(spark: SparkSession, contestant: Contestant, folder: Path) -> Rows:
    """The rows that the query of `contestant` emits."""
    name = f"joined_{contestant.name}"
    with finished(spark, contestant, folder, format="memory", name=name):
        rows = spark.table(name).selectExpr("user", "amount", "price", "unix_millis(timestamp) AS ts").collect()
        spark.catalog.dropTempView(name)
    return Counter((row["user"], row["amount"], row["price"], row["ts"]) for row in rows)


@dataclass(frozen=True)
class Check:
    """Returns a sentence per contestant; AssertionError unless all emit the rows of the direct computation."""

    how: str
    shape: Shape = SMALL

    def __call__(self, contestants: list[Contestant], spark: SparkSession, folder: Path) -> dict[str, str]:
        files, wanted = write(self.shape, folder), joined(self.shape, self.how)
        answering = [each for each in contestants if each.answers]
        for contestant in answering:
            if wrong := differing(collected(spark, contestant, files), wanted):
                raise AssertionError(f"{contestant.label}: {wrong} of {wanted.total()} rows differ from what is right")
        return {each.name: f"{wanted.total():,} rows equal to a direct computation" for each in answering}


# -- the races ----------------------------------------------------------------------------------------------------


def shapes(keys: int, pairs: float) -> dict[str, Shape]:
    def of(keys: int, rows: int, batches: int) -> Shape:
        return Shape(keys, WINDOW_MS, (Stretch(batches, rows, span_for(pairs, rows, keys, WINDOW_MS)),))

    return {
        "smoke": of(keys // 500, 2_000, 4),
        "default": of(keys, 1_000_000, 5),
        "full": of(keys, 1_000_000, 10),
    }


SPARKS = ("spark_memory", *(f"spark_rocksdb_{version}" for version in ROCKSDB_FORMATS), "spark_bucketed")


def race(
    name: str, title: str, how: str, keys: int, pairs: float, bars: tuple[float, float], formats: bool
) -> JoinRace:
    """`formats`: whether Spark also runs its disk-based store in all formats, which takes many times as long."""
    return JoinRace(
        name,
        title,
        shapes(keys, pairs),
        (
            *ours(how, WINDOW_MS),
            in_memory(how, WINDOW_MS),
            *((on_rocksdb(how, WINDOW_MS, version) for version in ROCKSDB_FORMATS) if formats else ()),
            *([bucketed(WINDOW_MS)] if how == "inner" else []),
            FLOOR,
        ),
        tuple(Bar(at_least, SPARKS, (name,)) for at_least, name in zip(bars, ("tidegate", FILES), strict=True)),
        Check(how) if pairs == 1 else None,
        repeat=3,
    )


J1 = tuple(
    race(
        f"J1-{how}-{pairs}",
        f"{how} join, ±30 s, grace 10 s, 100 k keys, 1 M rows a batch and side, pairs a record: {pairs}",
        how,
        100_000,
        pairs,
        (7.0, 12.0),
        formats=(how, pairs) == ("left", 1),
    )
    for how in HOWS
    for pairs in PAIRS
)


HOT_PERCENT = 10


def hot_shape(keys: int, rows: int, batches: int) -> Shape:
    """One key has a tenth of the records of both sides, and each has ten partners: one per record over all keys."""
    of_hot = rows * HOT_PERCENT // 100
    stretch = Stretch(batches, rows, span_for(10, of_hot, 1, WINDOW_MS))
    return Shape(keys, WINDOW_MS, (stretch,), hot_percent=(HOT_PERCENT, HOT_PERCENT))


J1_HOT = JoinRace(
    "J1-hot",
    "left join, ±30 s, grace 10 s, 100 k keys of which one has a tenth of the records, 1 M rows a batch and side",
    {
        "smoke": hot_shape(200, 2_000, 4),
        "default": hot_shape(100_000, 1_000_000, 5),
        "full": hot_shape(100_000, 1_000_000, 10),
    },
    # Not Spark's own join: for each record it compares all open records of the key, 100 k here.
    (*ours("left", WINDOW_MS), FLOOR),
    (),
    Check("left", hot_shape(100, 1_000, 3)),
    repeat=3,
)
J2 = race("J2", "J1-left-1 with 2 M keys", "left", 2_000_000, 1, (4.0, 6.0), formats=True)
