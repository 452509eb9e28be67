"""Random streams on Spark and in the driver: the same rows of each micro-batch, for operators that the oracle lacks.

Some in `make test`, all in `make test-spark`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pytest

import tidegate as tg
from tidegate.testing import TopologyTestDriver

pytest.importorskip("pyspark")

from pyspark.sql import DataFrame, SparkSession

from sizes import SMALL
from spark.replay import Replay, Row
from tidegate.runtime.spark.to_spark import to_df

pytestmark = pytest.mark.spark

SCHEMA = pa.schema(
    {
        "k": pa.string(),
        "n": pa.int64(),
        "gone": pa.bool_(),
        "ts": pa.timestamp("us", "UTC"),
        "partition": pa.int32(),
        "offset": pa.int64(),
    }
)
SLIDING = tg.SlidingWindows.of_time_difference_and_grace("6 ms", "4 ms")
SESSIONS = tg.SessionWindows.of_inactivity_gap_and_grace("4 ms", "3 ms")
HOPPING = tg.TimeWindows.of_size_and_grace("8 ms", "3 ms").advance_by("4 ms")


def windowed(source: Any, windows: Any) -> Any:
    stream = tg.stream(source, key="k", timestamp="ts", partition="partition", offset="offset")
    return stream.group_by_key().windowed_by(windows).agg(n=tg.count(), of=tg.collect_list("n"))


def changes(source: Any) -> Any:
    order = {"partition": "partition", "offset": "offset"}
    return tg.table(source, key="k", timestamp="ts", deleted="gone", name="stream", **order)


def limited(table: Any, records: int) -> Any:
    buffer = tg.BufferConfig.max_records(records)
    return table.suppress(tg.Suppressed.until_time_limit("9 ms", buffer, clock="stream"))


def unbounded(table: Any) -> Any:
    return table.suppress(tg.Suppressed.until_time_limit("9 ms", tg.BufferConfig.unbounded(), clock="stream"))


def again(table: Any) -> Any:
    windows = tg.TimeWindows.of_size_and_grace("20 ms", "5 ms")
    return table.to_stream().group_by("n").windowed_by(windows).agg(times=tg.count(), keys=tg.collect_list("k"))


def in_bytes(table: Any, size: int) -> Any:
    buffer = tg.BufferConfig.max_bytes(size)
    return table.suppress(tg.Suppressed.until_time_limit("30 ms", buffer, clock="stream"))


def final(table: Any, buffer: tg.StrictBuffer | None = None) -> Any:
    return table.suppress(tg.Suppressed.until_window_closes(buffer or tg.BufferConfig.unbounded()))


TOPOLOGIES: dict[str, Callable[[Any], Any]] = {
    "sliding, final": lambda source: final(windowed(source, SLIDING)),
    "sliding, updates": lambda source: windowed(source, SLIDING),
    "sessions, updates": lambda source: windowed(source, SESSIONS),
    "hopping behind a limit": lambda source: limited(windowed(source, HOPPING), 5),
    "final sessions behind a limit": lambda source: limited(final(windowed(source, SESSIONS)), 2),
    "a table behind a limit": lambda source: limited(changes(source), 3),
    "a table behind a limit, in two tasks": lambda source: unbounded(changes(source)),
    "hopping behind a limit, in two tasks": lambda source: unbounded(windowed(source, HOPPING)),
    "final, aggregated again": lambda source: again(final(windowed(source, HOPPING))),
    "a table behind a limit in bytes": lambda source: in_bytes(changes(source), 90),
    "final sessions, in a strict buffer": lambda source: final(
        windowed(source, SESSIONS), tg.BufferConfig.max_records(10_000).shut_down_when_full()
    ),
    "sliding, final, in a strict buffer": lambda source: final(
        windowed(source, SLIDING), tg.BufferConfig.max_bytes(10_000_000).shut_down_when_full()
    ),
    "final, in a strict buffer": lambda source: final(
        windowed(source, HOPPING), tg.BufferConfig.max_records(10_000).shut_down_when_full()
    ),
}


def stream(seed: int) -> list[list[Row]]:
    """Micro-batches of records of two partitions: disorder, ties, jumps, null keys and values."""
    random = Random(seed)
    now, offsets = 0, [0, 0]
    batches = []
    for _ in range(5):
        batch = []
        for _ in range(random.randint(1, 12)):
            now = max(now, ts := max(0, now + random.choice((0, 1, 2, 3, 5, -4, -15, 30))))
            partition = random.randint(0, 1)
            value = None if random.random() < 0.1 else random.randint(0, 99)
            key = None if random.random() < 0.05 else random.choice("abcd")
            record = {"k": key, "n": value, "gone": value is None, "ts": ts}
            batch.append({**record, "partition": partition, "offset": offsets[partition]})
            offsets[partition] += 1
        batches.append(batch)
    return batches


def counted(rows: list[Row]) -> Counter[str]:
    return Counter(str(sorted(row.items())) for row in rows)


QUICK = (
    "sliding, final",
    "a table behind a limit in bytes",
    "a table behind a limit, in two tasks",
    "final, aggregated again",
)
CASES = [
    pytest.param(name, seed, marks=() if seed == 1 and name in QUICK else pytest.mark.full)
    for name in TOPOLOGIES
    for seed in (1, 2, 3)
]


@pytest.mark.parametrize(("name", "seed"), CASES)
def test_spark_gives_what_the_driver_gives(name: str, seed: int, spark: SparkSession, tmp_path: Path) -> None:
    """Each batch is read by two map tasks, with a restart in the middle; the sizes of the kernel are small on Spark."""
    batches = stream(seed)
    driver = TopologyTestDriver(TOPOLOGIES[name]("events"))
    wanted = []
    for batch in batches:
        driver.pipe_batch(batch)
        wanted.append(driver.read_output())

    def topology(frame: DataFrame) -> DataFrame:
        return to_df(TOPOLOGIES[name](frame).node, tuning=SMALL)

    replay = Replay(spark, tmp_path, SCHEMA, topology, files_per_batch=2)
    splits = [[[r for r in batch if r["partition"] == part] for part in (0, 1)] for batch in batches]
    runs = [replay.run_split(part) for part in (splits[:2], splits[2:])]
    got = [rows for run in runs for rows in run.rows]
    for at, (rows, expected) in enumerate(zip(got, wanted, strict=True)):
        assert counted(rows) == counted(expected), f"batch {at} of seed {seed}: {batches[: at + 1]}"
    assert sum(run.dropped() for run in runs) == driver.dropped
    assert any(wanted), "a stream that lets nothing out shows nothing"
