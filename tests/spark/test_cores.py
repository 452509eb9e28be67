"""A query that restarts on another number of cores goes on with the same tasks."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import tidegate as tg

pytest.importorskip("pyspark")

from spark.replay import Replay, schema_of, with_offsets
from tidegate.testing import TopologyTestDriver

pytestmark = [pytest.mark.spark, pytest.mark.slow]

SCHEMA = schema_of(k=pa.string())
BATCHES = with_offsets(
    [
        [{"k": f"k{n}", "ts": n} for n in range(14)],
        [{"k": f"k{n % 5}", "ts": n} for n in range(10, 28)],
        [{"k": f"k{n % 3}", "ts": n} for n in range(25, 60)],
    ]
)


def counts(source: Any) -> tg.KTable:
    events = tg.stream(source, key="k", timestamp="ts", partition="partition", offset="offset", name="stream")
    windows = tg.TimeWindows.of_size_and_grace("10 ms", "5 ms")
    final = tg.Suppressed.until_window_closes(tg.BufferConfig.unbounded())
    return events.group_by_key().windowed_by(windows).agg(n=tg.count()).suppress(final)


def batch_on(cores: int, path: Path, number: int) -> list[str]:
    """The rows of a batch, in a Spark of its own."""
    told = subprocess.run(
        [sys.executable, "-c", f"from spark.test_cores import main; main({cores}, {str(path)!r}, {number})"],
        capture_output=True,
        text=True,
        check=True,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
    )
    rows: list[str] = json.loads(told.stdout.splitlines()[-1])
    return rows


def main(cores: int, path: str, number: int) -> None:
    """The program that `batch_on` starts."""
    from pyspark.sql import SparkSession

    builder: Any = SparkSession.builder.master(f"local[{cores}]").config("spark.ui.enabled", "false")
    spark = tg.configure(builder.config("spark.sql.shuffle.partitions", "3")).getOrCreate()
    query = Replay(spark, Path(path), SCHEMA, lambda events: counts(events).to_df())
    query.written = number
    rows = query.run(BATCHES[number : number + 1]).rows
    sys.stdout.write("\n" + json.dumps(sorted(repr(row) for batch in rows for row in batch)) + "\n")


def test_cores_may_change_between_restarts(tmp_path: Path) -> None:
    driver = TopologyTestDriver(counts("events"))
    for number, cores in enumerate((2, 1, 3)):
        driver.pipe_batch(BATCHES[number])
        assert batch_on(cores, tmp_path, number) == sorted(map(repr, driver.read_output()))
