"""Tables without windows on Spark: real streaming queries against the oracle and the test driver."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

import tidegate as tg
from oracle import Row
from properties import cases
from properties.comparing import assert_same, placed, run_oracle

pytest.importorskip("pyspark")

from pyspark import cloudpickle
from pyspark.sql import SparkSession

from spark.replay import Replay, collect, table_of, with_offsets

pytestmark = pytest.mark.spark

# Workers cannot import test modules: send the functions themselves.
cloudpickle.register_pickle_by_value(cases)

few = settings(
    max_examples=3,
    derandomize=True,
    deadline=None,
    phases=[Phase.generate],
    suppress_health_check=list(HealthCheck),
)
SCHEMA = pa.schema({**cases.SCHEMA, "ts": pa.timestamp("us", "UTC")})


@few
@given(case=cases.cases(plain=True, ordered=True), batches=cases.partitioned(max_partitions=3), data=st.data())
def test_random_aggregations_without_windows(
    spark: SparkSession, case: cases.Case, batches: list[list[Row]], data: Any
) -> None:
    """Several source partitions, each batch read by several map tasks, two tasks, a restart in the middle."""
    splits = data.draw(cases.splits(batches, interleaved=data.draw(st.booleans())))
    wanted, drops = run_oracle(case.topology, batches)
    with TemporaryDirectory() as folder:
        replay = Replay(spark, Path(folder), SCHEMA, lambda frame: case.table(frame).to_df(), files_per_batch=3)
        half = len(splits) // 2
        runs = [replay.run_split(part) for part in (splits[:half], splits[half:]) if part]
    got = [rows for run in runs for rows in run.rows]
    for rows, expected in zip(got, wanted, strict=True):
        assert_same(case, splits, placed(case.topology, rows), placed(case.topology, expected))
    assert sum(run.dropped() for run in runs) == sum(drops.values())


def records(*rows: tuple[str, int | None, int]) -> list[Row]:
    return [{"k": k, "v": v, "ts": ts} for k, v, ts in rows]


SMALL = pa.schema(
    {
        "k": pa.string(),
        "v": pa.int64(),
        "ts": pa.timestamp("us", "UTC"),
        "partition": pa.int32(),
        "offset": pa.int64(),
    }
)
BATCHES = [
    records(("a", 1, 1_000), ("b", 2, 2_000), ("a", 3, 500)),
    records(("a", None, 9_000), ("b", 5, 3_000)),
    records(("a", 4, 4_000)),
]


def stream(frame: Any) -> tg.KGroupedStream:
    return tg.stream(frame, key="k", timestamp="ts", partition="partition", offset="offset").group_by_key()


def test_rows_have_no_window_and_the_shape_of_the_driver(spark: SparkSession, tmp_path: Path) -> None:
    replay = Replay(spark, tmp_path, SMALL, lambda frame: stream(frame).agg(n=tg.count(), v=tg.sum("v")).to_df())
    replayed = replay.run(with_offsets(BATCHES))
    assert [sorted(rows, key=lambda row: row["k"]) for rows in replayed.rows] == [
        [{"k": "a", "n": 2, "v": 4, "timestamp": 1_000}, {"k": "b", "n": 1, "v": 2, "timestamp": 2_000}],
        [{"k": "b", "n": 2, "v": 7, "timestamp": 3_000}],
        [{"k": "a", "n": 3, "v": 8, "timestamp": 4_000}],
    ]
    assert replayed.dropped() == 1


def test_a_static_frame_gives_each_key_once(spark: SparkSession) -> None:
    (rows,) = with_offsets([[row for batch in BATCHES for row in batch]])
    table = stream(spark.createDataFrame(table_of(rows, SMALL))).count()
    got = sorted(collect(table.to_df()), key=lambda row: row["k"])
    assert got == [{"k": "a", "count": 3, "timestamp": 4_000}, {"k": "b", "count": 2, "timestamp": 3_000}]


def test_a_time_limit_behind_a_count(spark: SparkSession, tmp_path: Path) -> None:
    held = tg.Suppressed.until_time_limit("2 seconds", tg.BufferConfig.unbounded(), clock="stream")
    replay = Replay(spark, tmp_path, SMALL, lambda frame: stream(frame).count().suppress(held).to_df())
    replayed = replay.run(with_offsets(BATCHES))
    assert replayed.rows == [
        [],
        [{"k": "a", "count": 2, "timestamp": 1_000}],
        [{"k": "b", "count": 2, "timestamp": 3_000}],
    ]
