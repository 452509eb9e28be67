"""How rows per second grow or shrink with the size of a batch, the number of keys, of open windows and of tasks.

Final counts and sums of tumbling windows over Parquet files that tidegate's workers read, one quantity at a time.
`make bench-growth` is the measurement (`--smoke` a trial, `--full` the ends of the ranges), `make bench-page` draws.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession

import tidegate as tg
from benchmarks.contestant import Contestant, from_files
from benchmarks.inputs import Shape, write
from benchmarks.measure import run
from benchmarks.options import arguments, save, say, session, versions

ROWS, KEYS, BATCHES = 1_000_000, 100_000, 5
SPAN_MS = 60_000


@dataclass(frozen=True)
class Axis:
    """One quantity and its values, by size of the measurement."""

    name: str
    label: str
    values: dict[str, tuple[int, ...]]


AXES = (
    Axis(
        "batch",
        "rows of a batch",
        {
            "smoke": (1_000, 2_000),
            "default": (1_000, 10_000, 100_000, 1_000_000),
            "full": (1_000, 10_000, 100_000, 1_000_000, 5_000_000),
        },
    ),
    Axis(
        "keys",
        "keys",
        {
            "smoke": (100, 1_000),
            "default": (1_000, 10_000, 100_000, 1_000_000),
            "full": (1_000, 10_000, 100_000, 1_000_000, 5_000_000, 20_000_000),
        },
    ),
    Axis(
        "windows",
        "windows that a batch is in",
        {"smoke": (1, 4), "default": (1, 10, 100), "full": (1, 10, 100, 1_000)},
    ),
    Axis("tasks", "tasks, on two cores", {"smoke": (1, 2), "default": (1, 2, 8), "full": (1, 2, 4, 8, 16, 32, 64)}),
)


def question(spark: SparkSession, folder: Path, window_ms: int) -> DataFrame:
    windows = tg.TimeWindows.of_size_and_grace(f"{window_ms} milliseconds", f"{SPAN_MS // 2} milliseconds")
    totals = from_files(spark, folder).group_by_key().windowed_by(windows)
    table = totals.agg(count=tg.count(), total=tg.sum("amount"))
    final: DataFrame = table.suppress(tg.Suppressed.until_window_closes(tg.BufferConfig.unbounded())).to_df()
    return final.select("user", "window", "count", "total")


def shape(axis: str, value: int, smoke: bool) -> Shape:
    rows = 2_000 if smoke else ROWS
    keys = 100 if smoke else KEYS
    rows, keys = value if axis == "batch" else rows, value if axis == "keys" else keys
    return Shape(keys, rows, BATCHES, batch_span_ms=SPAN_MS)


def measured(spark: SparkSession, axis: str, value: int, smoke: bool, folder: Path) -> dict[str, Any]:
    window_ms = SPAN_MS // value if axis == "windows" else 2 * SPAN_MS
    frame = partial(question, window_ms=window_ms)
    settings = {"spark.sql.shuffle.partitions": str(value if axis == "tasks" else 2)}
    contestant = Contestant("tidegate", f"{axis} {value:,}", frame, settings)
    one = run(spark, contestant, write(shape(axis, value, smoke), folder))
    say(f"  {axis:8} {value:12,}  {one.rate / 1e6:8.4f} M rows/s  worker {one.worker_mib:,.0f} MiB")
    return {"value": value, "rows_per_s": round(one.rate), "worker_mib": round(one.worker_mib)}


def main(argv: list[str] | None = None) -> int:
    parser = arguments(argparse.ArgumentParser(prog="make bench-growth", description=__doc__), "growth.json")
    parser.add_argument("--full", action="store_true", help="the ends of the ranges")
    parser.add_argument("--only", nargs="+", choices=[axis.name for axis in AXES], default=[])
    options = parser.parse_args(argv)
    size = "smoke" if options.smoke else "full" if options.full else "default"
    began, found = time.monotonic(), {}
    spark = session(options)
    with tempfile.TemporaryDirectory(prefix="tidegate-bench-growth-") as scratch:
        try:
            measured(spark, "tasks", 2, True, Path(scratch))  # starts workers, and compiles
            for axis in AXES:
                if options.only and axis.name not in options.only:
                    continue
                points = [
                    measured(spark, axis.name, value, options.smoke, Path(scratch)) for value in axis.values[size]
                ]
                found[axis.name] = {"label": axis.label, "points": points}
            report = {"axes": found, "versions": versions(spark), "size": size}
        finally:
            spark.stop()
    report["seconds"] = round(time.monotonic() - began)
    save(report, options.json)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
