"""Tables without windows on Spark: real streaming queries against the oracle and the test driver."""

from __future__ import annotations

import sys
from datetime import timedelta
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

import tidegate as tg
from oracle import Row
from properties import cases
from properties.comparing import assert_same, placed, run_oracle
from seeds import first
from tidegate.testing import TopologyTestDriver

pytest.importorskip("pyspark")

from pyspark import cloudpickle
from pyspark.sql import SparkSession

from spark.replay import EPOCH, Replay, collect, table_of, with_offsets

pytestmark = pytest.mark.spark

# Workers cannot import test modules: send the functions themselves.
cloudpickle.register_pickle_by_value(cases)
cloudpickle.register_pickle_by_value(sys.modules[__name__])

few = settings(
    max_examples=3,
    derandomize=True,
    deadline=None,
    phases=[Phase.generate],
    suppress_health_check=list(HealthCheck),
)
SCHEMA = pa.schema({**cases.SCHEMA, "ts": pa.timestamp("us", "UTC")})


@few
@given(case=cases.cases(plain=True, ordered=True), data=st.data())
def test_random_aggregations_without_windows(spark: SparkSession, case: cases.Case, data: Any) -> None:
    """Several source partitions, each batch read by several map tasks, two tasks, a restart in the middle."""
    batches = data.draw(cases.partitioned(max_partitions=3, latest=cases.latest_on_spark(case)))
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


# -- stateless steps ----------------------------------------------------------------------------------------------


def label(row: Row) -> Row:
    return {"v": row["v"] * 2, "label": f"{row['k']}{row['ts'].second}"}


def test_steps_in_front_of_an_aggregation_run_in_the_map_step(spark: SparkSession, tmp_path: Path) -> None:
    """As in the driver for the same records; a filter leaves chunks of offsets unchanged."""

    def topology(source: Any) -> tg.KTable:
        return (
            tg.stream(source, key="k", timestamp="ts", partition="partition", offset="offset")
            .filter(pc.field("v") != 2)
            .map_values(label, types={"v": "long", "label": "string"})
            .select_key(lambda row: row["label"][0].upper(), name="letter")
            .group_by_key()
            .agg(v=tg.sum("v"), labels=tg.collect_list("label"))
        )

    many = [records(*[("ab"[n % 2], n, 1_000 * n) for n in range(start, start + 50)]) for start in (0, 50)]
    batches = with_offsets(many)
    replayed = Replay(spark, tmp_path, SMALL, lambda frame: topology(frame).to_df()).run(batches)
    driver = TopologyTestDriver(topology("events"))
    for batch, rows in zip(batches, replayed.rows, strict=True):
        driver.pipe_batch([{**row, "ts": EPOCH + timedelta(milliseconds=row["ts"])} for row in batch])
        assert sorted(rows, key=lambda row: row["letter"]) == sorted(driver.read_output(), key=lambda r: r["letter"])


def test_merged_streams_and_steps_behind_a_table(spark: SparkSession, tmp_path: Path) -> None:
    """The odd and the even rows of the file are inputs of their own, each with a partition 0."""

    def topology(frame: Any) -> Any:
        ordered = {"key": "k", "timestamp": "ts", "partition": "partition", "offset": "offset"}
        odd = tg.stream(frame.where("v % 2 = 1"), name="odd", **ordered).map_values({"v": pc.field("v") * 10})
        even = tg.stream(frame.where("v % 2 = 0"), name="even", **ordered)
        table = odd.merge(even).group_by_key().agg(v=tg.sum("v")).filter(pc.field("v") < 100)
        return table.map_values({"half": pc.field("v") / 2}).to_df()

    batches = with_offsets([records(("a", 1, 0), ("a", 2, 1), ("b", 4, 2)), records(("a", 11, 9), ("b", 1, 3))])
    replayed = Replay(spark, tmp_path, SMALL, topology, name="odd").run(batches)
    assert [sorted(rows, key=lambda row: row["k"]) for rows in replayed.rows] == [
        [
            {"k": "a", "half": 6, "timestamp": 1, "deleted": False},
            {"k": "b", "half": 2, "timestamp": 2, "deleted": False},
        ],
        [
            {"k": "a", "half": None, "timestamp": 9, "deleted": True},
            {"k": "b", "half": 7, "timestamp": 3, "deleted": False},
        ],
    ]


def test_a_stream_that_is_not_aggregated_is_a_dataframe_too(spark: SparkSession) -> None:
    frame = spark.createDataFrame(table_of(with_offsets(BATCHES)[0], SMALL))
    plain = tg.stream(frame, key="k", timestamp="ts").filter(pc.field("v") > 1).map_values({"w": pc.field("v") + 1})
    assert sorted((row["k"], row["w"]) for row in plain.to_df().collect()) == [("a", 4), ("b", 3)]
    assert plain.to_df().columns == ["k", "ts", "w"]
    untyped = tg.stream(frame, key="k", timestamp="ts").map_values(label)
    with pytest.raises(tg.DefinitionError, match="Spark must know the types of columns"):
        untyped.to_df()


# -- tables that are grouped anew -----------------------------------------------------------------------------------


def moves(seed: int) -> list[list[Row]]:
    """Changes of 12 keys that move between 4 groups, in batches of several source partitions."""
    random = Random(seed)
    offsets = [0, 0, 0]
    batches = []
    for _ in range(3):
        batch = []
        for _ in range(40):
            partition = random.randrange(3)
            row = {"k": f"k{4 * partition + random.randrange(4)}", "g": random.choice("wxyz"), "n": random.randrange(9)}
            row |= {"gone": random.random() < 0.2, "ts": random.randrange(100) * 1_000}
            batch.append(row | {"partition": partition, "offset": offsets[partition]})
            offsets[partition] += 1
        batches.append(batch)
    return batches


MOVES = pa.schema(
    {
        "k": pa.string(),
        "g": pa.string(),
        "n": pa.int64(),
        "gone": pa.bool_(),
        "ts": pa.timestamp("us", "UTC"),
        "partition": pa.int32(),
        "offset": pa.int64(),
    }
)


def grouped_moves(source: Any) -> tg.KGroupedTable:
    table = tg.table(source, key="k", timestamp="ts", deleted="gone", partition="partition", offset="offset")
    return table.group_by("g")


def spell_in(key: Any, row: Row, aggregate: str) -> str:
    return "".join(sorted(f"{aggregate}{row['k'][1:]},"))


def spell_out(key: Any, row: Row, aggregate: str) -> str:
    for letter in f"{row['k'][1:]},":
        aggregate = aggregate.replace(letter, "", 1)
    return aggregate


@pytest.mark.parametrize("how", first(1, ["functions", "built in"]))
def test_counts_move_between_groups(how: str, spark: SparkSession, tmp_path: Path) -> None:
    """Two chained operators, two tasks each, a restart in between: batch by batch the rows of the driver."""

    def topology(source: Any) -> tg.KTable:
        grouped = grouped_moves(source)
        if how == "built in":
            return grouped.agg(count=tg.count(), total=tg.sum("n"), mean=tg.mean("n"))
        return grouped.aggregate(str, spell_in, spell_out, type="string")

    batches = moves(7)
    replay = Replay(spark, tmp_path, MOVES, lambda frame: topology(frame).to_df(), name="table by g")
    runs = [replay.run(batches[:2]), replay.run(batches[2:])]
    got = [rows for run in runs for rows in run.rows]
    driver = TopologyTestDriver(topology("table"))
    for batch, rows in zip(batches, got, strict=True):
        driver.pipe_batch([{**row, "ts": EPOCH + timedelta(milliseconds=row["ts"])} for row in batch])
        assert sorted(rows, key=lambda row: row["g"]) == sorted(driver.read_output(), key=lambda row: row["g"])


def test_grouped_windows_of_a_static_frame(spark: SparkSession) -> None:
    (rows,) = with_offsets([records(("a", 1, 0), ("a", 1, 1_000), ("b", 1, 12_000), ("a", 1, 13_000))])
    windows = tg.TimeWindows.of_size_with_no_grace("10 seconds")
    counts = stream(spark.createDataFrame(table_of(rows, SMALL))).windowed_by(windows).count()
    got = collect(counts.group_by("count").count("windows").to_df())
    assert sorted((row["count"], row["windows"]) for row in got) == [(1, 2), (2, 1)]


def test_a_window_is_a_part_of_the_key(spark: SparkSession, tmp_path: Path) -> None:
    """Counts per window, joined per key and window, summed per window: batch by batch the rows of the driver."""

    def topology(source: Any) -> tg.KTable:
        order = {"partition": "partition", "offset": "offset"}
        grouped = tg.stream(source, key="k", timestamp="ts", **order).group_by_key()
        windows = tg.TimeWindows.of_size_and_grace("10 seconds", "1 minute")
        joined = grouped.windowed_by(windows).count().join(grouped.windowed_by(windows).agg(n=tg.sum("v")))
        return joined.group_by("window").agg(keys=tg.count(), total=tg.sum("n"))

    drawn = [(key, n, 1_000 * ((n * 7) % 33)) for n, key in enumerate("abcabcbbacdb")]
    batches = with_offsets([records(*drawn[:5]), records(*drawn[5:9]), records(*drawn[9:])])
    replay = Replay(spark, tmp_path, SMALL, lambda frame: topology(frame).to_df(), name="stream by window")
    runs = [replay.run(batches[:2]), replay.run(batches[2:])]
    driver, newest = TopologyTestDriver(topology("stream")), {}
    for batch, rows in zip(batches, [rows for run in runs for rows in run.rows], strict=True):
        driver.pipe_batch([{**row, "ts": EPOCH + timedelta(milliseconds=row["ts"])} for row in batch])
        wanted = driver.read_output()
        newest |= {row["window"]: row for row in wanted}
        assert sorted(rows, key=lambda row: row["window"]) == sorted(wanted, key=lambda row: row["window"])
    static = topology(spark.createDataFrame(table_of([row for batch in batches for row in batch], SMALL)))
    assert {row["window"]: row for row in collect(static.to_df())} == newest
