"""Rows per second by the size of a batch, the number of keys, of windows and of tasks.

Final counts and sums of tumbling windows over Parquet files that tidegate's workers read, one quantity at a time; tasks
in one process, and on a standalone cluster of two workers that is started on this machine. `make bench-growth` measures
all axes, `--only` some of them, `--full` also the ends of the ranges; `--smoke` is a trial. All points are measured in
turns, until 15 minutes are over, 40 with `--full`, or `--minutes`; a point is the median of its turns. `make
bench-page` draws them.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from tests.cluster.standalone import Cluster, packed

import tidegate as tg
from benchmarks.contestant import Contestant, from_files
from benchmarks.inputs import Shape, write
from benchmarks.measure import run
from benchmarks.options import arguments, save, say, session, size_of, versions

ROWS, KEYS, BATCHES = 1_000_000, 100_000, 5
SPAN_MS = 60_000
MINUTES = {"smoke": 15.0, "default": 15.0, "full": 40.0}
TURNS = {"smoke": 1, "default": 3, "full": 3}
IN_ONE_PROCESS = 0.75
"""Share of the time for the axes in one process if an axis on a cluster is measured too."""


@dataclass(frozen=True)
class Axis:
    """One quantity and its values, by the size of the measurement."""

    name: str
    label: str
    values: dict[str, tuple[int, ...]]
    cluster: bool = False
    """Whether it needs a standalone cluster."""


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
    Axis(
        "cluster",
        "tasks, on a cluster",
        {"smoke": (1, 2), "default": (1, 2, 4, 8), "full": (1, 2, 4, 8)},
        cluster=True,
    ),
)

WORKERS, SLOTS, MEMORY = 2, 4, "2g"
"""The cluster: its workers, and the slots and memory of each. All slots together are as many as the most tasks of its
axis, so that all tasks of a batch run at once."""
OF_CLUSTER = {"spark.driver.host": "127.0.0.1", "spark.executor.memory": MEMORY}


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
    settings = {"spark.sql.shuffle.partitions": str(value if axis in ("tasks", "cluster") else 2)}
    contestant = Contestant("tidegate", f"{axis} {value:,}", frame, settings)
    one = run(spark, contestant, write(shape(axis, value, smoke), folder))
    say(f"  {axis:8} {value:12,}  {one.rate / 1e6:8.4f} M rows/s  worker {one.worker_mib:,.0f} MiB")
    return {"value": value, "rows_per_s": round(one.rate), "worker_mib": round(one.worker_mib)}


def explored(spark: SparkSession, axes: list[Axis], size: str, turns: int, folder: Path, end: float) -> dict[str, Any]:
    """The points of `axes` as JSON, measured in `turns` turns; no measurement begins after `end` (`time.monotonic`)."""
    measured(spark, "tasks", 2, True, folder)  # starts workers, and compiles
    taken: dict[str, dict[int, list[dict[str, Any]]]] = {axis.name: defaultdict(list) for axis in axes}
    steps = ((turn, axis, value) for turn in range(turns) for axis in axes for value in axis.values[size])
    for turn, axis, value in steps:
        if time.monotonic() > end:
            say(f"  the time is up in turn {turn + 1} of {turns}: left out {axis.name} {value:,} and what follows")
            break
        taken[axis.name][value].append(measured(spark, axis.name, value, size == "smoke", folder))
    master = spark.sparkContext.master
    return {
        axis.name: {"label": axis.label, "points": list(map(together, points.values())), "master": master}
        for axis in axes
        if (points := taken[axis.name])
    }


def together(turns: list[dict[str, Any]]) -> dict[str, Any]:
    """One point from its turns: the median rate, all rates, and the largest memory (MiB)."""
    rates = [turn["rows_per_s"] for turn in turns]
    most = max(turn["worker_mib"] for turn in turns)
    return {"value": turns[0]["value"], "rows_per_s": round(median(rates)), "turns": rates, "worker_mib": most}


@contextmanager
def on_cluster(options: argparse.Namespace, folder: Path) -> Iterator[SparkSession]:
    """A session on a standalone cluster that ends with it; the package is shipped to its executors."""
    with Cluster(WORKERS, cores=SLOTS, memory=MEMORY) as cluster:
        there = argparse.Namespace(**{**vars(options), "master": cluster.url})
        with session(there, OF_CLUSTER) as spark:
            spark.addArtifacts(str(packed(folder)), pyfile=True)
            yield spark


def main(argv: list[str] | None = None) -> int:
    parser = arguments(argparse.ArgumentParser(prog="make bench-growth", description=__doc__), "growth.json")
    parser.add_argument("--full", action="store_true", help="the ends of the ranges")
    parser.add_argument("--only", nargs="+", choices=[axis.name for axis in AXES], default=[], help="axes")
    parser.add_argument("--repeat", type=int, help="turns of each point: 3")
    parser.add_argument("--minutes", type=float, help="begin no further point then: 15, with --full 40")
    options = parser.parse_args(argv)
    size = size_of(options)
    axes = [axis for axis in AXES if not options.only or axis.name in options.only]
    began = time.monotonic()
    seconds = 60 * (MINUTES[size] if options.minutes is None else options.minutes)
    both = len({axis.cluster for axis in axes}) > 1
    chosen = {"smoke": options.smoke, "full": options.full, "only": options.only, "repeat": options.repeat}
    report: dict[str, Any] = {"axes": {}, "settings": chosen, "size": size}
    with tempfile.TemporaryDirectory(prefix="tidegate-bench-growth-") as scratch:
        for cluster in (False, True):
            mine = [axis for axis in axes if axis.cluster == cluster]
            if not mine:
                continue
            place = on_cluster(options, Path(scratch)) if cluster else session(options)
            with place as spark:
                end = began + seconds * (IN_ONE_PROCESS if both and not cluster else 1)
                turns = options.repeat or TURNS[size]
                report["axes"] |= explored(spark, mine, size, turns, Path(scratch), end)
                report["versions"] = versions(spark)
    report["seconds"] = round(time.monotonic() - began)
    save(report, options.json)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
