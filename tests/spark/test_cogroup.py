"""Cogroup on Spark: the rows of the driver, and every record once with several map tasks, tasks and a restart."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pytest

import tidegate as tg
from tidegate.testing import TopologyTestDriver

pytest.importorskip("pyspark")

from pyspark import cloudpickle
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from spark.replay import Replay, schema_of, with_offsets

pytestmark = pytest.mark.spark

SCHEMA = schema_of(side=pa.string(), k=pa.string(), click=pa.string(), view=pa.int64())


def clicked(key: str, row: dict[str, Any], found: list[str]) -> list[str]:
    return sorted([*found, f"<{row['click']}"])


def viewed(key: str, row: dict[str, Any], found: list[str]) -> list[str]:
    assert "click" not in row
    return sorted([*found, f">{row['view']}"])


cloudpickle.register_pickle_by_value(__import__(__name__, fromlist=["x"]))


def cogrouped(clicks: Any, views: Any) -> tg.KTable:
    windowed = clicks.cogroup(clicked).cogroup(views, viewed)
    windows = tg.TimeWindows.of_size_and_grace("10 ms", "5 ms")
    on_close = windowed.windowed_by(windows).emit_strategy(tg.EmitStrategy.on_window_close())
    return on_close.aggregate(list, type="array<string>", name="told")


def on_spark(frame: DataFrame) -> DataFrame:
    order = {"partition": "partition", "offset": "offset", "stream_time": "max"}
    clicks = frame.where(F.col("side") == "clicks").drop("side", "view")
    views = frame.where(F.col("side") == "views").drop("side", "click")
    grouped = [
        tg.stream(one, key="k", timestamp="ts", name=name, **order).group_by_key()
        for one, name in ((clicks, "clicks"), (views, "views"))
    ]
    return cogrouped(*grouped).to_df()


def shown(row: Any) -> tuple[Any, ...]:
    return row["k"], row["window"].start, tuple(row["told"])


def test_final_rows(spark: SparkSession, tmp_path: Path) -> None:
    random, now = Random(18), 0
    records = []
    for n in range(60):
        now += random.choice([0, 1, 2, 6])
        row = {"side": random.choice(["clicks", "views"]), "k": random.choice("abcd"), "ts": now}
        records.append(row | {"click": f"c{n}" if row["side"] == "clicks" else None, "view": n})
    records.append({"side": "views", "k": "z", "ts": 10_000, "view": 1})
    driver = TopologyTestDriver(
        cogrouped(
            *(
                tg.stream(name, key="k", timestamp="ts", stream_time="max").group_by_key()
                for name in ("clicks", "views")
            )
        )
    )
    for row in records:
        own = "click" if row["side"] == "clicks" else "view"
        driver.pipe_input({name: row.get(name) for name in ("k", "ts", own)}, row["side"])
    wanted = Counter(map(shown, driver.read_output()))
    batches = with_offsets([records[at : at + 16] for at in range(0, len(records), 16)])
    splits = [[batch[0::2], batch[1::2]] for batch in batches]
    replay = Replay(spark, tmp_path, SCHEMA, on_spark, files_per_batch=2, name="clicks")
    runs = [replay.run_split(part) for part in (splits[:2], splits[2:])]
    assert Counter(shown(row) for run in runs for rows in run.rows for row in rows) == wanted
    assert sum(run.dropped() for run in runs) == 0


def test_keys_of_other_types_are_refused(spark: SparkSession) -> None:
    clicks = spark.createDataFrame([("a", 1, 0)], "k string, ts long, click long")
    views = spark.createDataFrame([(1, 1, 0)], "k long, ts long, view long")
    frames = [frame.withColumn("ts", F.timestamp_millis("ts")) for frame in (clicks, views)]
    one, other = (
        tg.stream(frame, key="k", timestamp="ts", name=name).group_by_key()
        for frame, name in zip(frames, ("clicks", "views"), strict=True)
    )
    with pytest.raises(tg.DefinitionError, match="cogroup: the column 'k' is string in 'clicks' and int64 in 'views'"):
        one.cogroup(clicked).cogroup(other, viewed).aggregate(list, type="array<string>").to_df()


def test_whole_records_of_merged_streams_with_other_columns_are_refused(spark: SparkSession) -> None:
    clicks = spark.createDataFrame([("a", 1, 0)], "k string, ts long, click long")
    views = spark.createDataFrame([("a", 1, 0)], "k string, ts long, view long")
    one, other = (
        tg.stream(frame.withColumn("ts", F.timestamp_millis("ts")), key="k", timestamp="ts", name=name)
        for frame, name in ((clicks, "clicks"), (views, "views"))
    )
    lists = one.merge(other).group_by_key().aggregate(list, lambda key, row, found: found, type="array<string>")
    with pytest.raises(tg.DefinitionError, match=r"^merge: 'clicks' has the column 'click' and 'views' has not"):
        lists.to_df()


def test_static_frames(spark: SparkSession) -> None:
    clicks = spark.createDataFrame([("a", 1, "x"), ("b", 2, "y"), (None, 3, "z")], "k string, ts long, click string")
    views = spark.createDataFrame([("a", 4, 7), ("c", 5, None)], "k string, ts long, view long")
    frames = [frame.withColumn("ts", F.timestamp_millis("ts")) for frame in (clicks, views)]
    one, other = (
        tg.stream(frame, key="k", timestamp="ts", name=name).group_by_key()
        for frame, name in zip(frames, ("clicks", "views"), strict=True)
    )
    table = one.cogroup(clicked).cogroup(other, viewed).aggregate(list, type="array<string>", name="told")
    assert {row["k"]: row["told"] for row in table.to_df().collect()} == {"a": ["<x", ">7"], "b": ["<y"]}
