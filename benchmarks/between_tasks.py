"""Time of a small micro-batch when Python's garbage collector spares the modules of a worker, and when it does not.

`python -m benchmarks.between_tasks`, with `PYTHONPATH=src` where tidegate is not installed. Final windowed totals of
1,000 records a batch, both ways in turns. In the second way each task unfreezes the objects that tidegate has spared,
so that the collection that pyspark starts after the task visits all objects.
"""

from __future__ import annotations

import argparse
import gc
import tempfile
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any
from unittest.mock import patch

import pyarrow as pa
from pyspark.sql import SparkSession

from benchmarks.contestant import FILES, Contestant
from benchmarks.inputs import Shape, write
from benchmarks.measure import Digest, digest, finished, progress_of
from benchmarks.options import arguments, save, say, session, versions
from benchmarks.workloads.tumbling import OURS
from benchmarks.wrapped import wrapped
from tidegate.runtime.spark import map_step, stateful_step
from tidegate.runtime.spark.map_step import Packer
from tidegate.runtime.spark.row_decoder import Counts
from tidegate.runtime.spark.worker import gc_freeze
from tidegate.runtime.spark.worker.processor import StageProcessor


def put_back() -> None:
    gc.unfreeze()
    gc_freeze._spared.modules = 0  # noqa: SLF001  (as in a worker that has spared nothing yet)


@dataclass(frozen=True)
class Unspared:
    pack: Packer

    def __call__(self, batches: Iterator[pa.RecordBatch], counts: Counts) -> Iterable[tuple[int, bytes]]:
        with patch.object(map_step, "spare_modules", put_back):
            yield from self.pack(batches, counts)


class UnsparedProcessor(StageProcessor):
    def handleInputRows(self, key: Any, rows: Iterator[Any], timerValues: Any) -> Iterator[Any]:  # noqa: N802, N803
        with patch.object(stateful_step, "spare_modules", put_back):
            yield from super().handleInputRows(key, rows, timerValues)


def collection(spark: SparkSession) -> tuple[int, float]:
    """Number of objects that a collection visits in a worker that spares none, and its time (ms)."""

    def collect(tasks: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        list(tasks)
        import pandas as pd  # noqa: F401  (as in a stateful task)

        put_back()
        gc.collect()
        took = []
        for _ in range(9):
            began = time.perf_counter()
            gc.collect()
            took.append((time.perf_counter() - began) * 1000)
        yield pa.RecordBatch.from_pydict({"objects": [len(gc.get_objects())], "ms": [median(took)]})

    (row,) = spark.range(0, 1, 1, 1).mapInArrow(collect, "objects long, ms double").collect()
    return row.objects, row.ms


def measure(spark: SparkSession, contestants: dict[str, Contestant], files: Path, turns: int) -> dict[str, list[float]]:
    """Milliseconds of the median micro-batch in each turn, by contestant."""
    found: dict[str, list[float]] = {name: [] for name in contestants}
    answers: set[Digest] = set()
    for turn in range(turns + 1):
        for name, contestant in contestants.items():
            with finished(spark, contestant, files, format="noop") as query:
                progress = progress_of(query)
            if contestant.answers:
                answers.add(Digest.all([digest(each) for each in progress]))
            if turn:  # the first warms up
                took = [each["durationMs"]["triggerExecution"] for each in progress if each["numInputRows"]]
                found[name].append(median(took[len(took) // 5 :]))
                say(f"  turn {turn}/{turns}  {name:28} {found[name][-1]:6.0f} ms")
    if len(answers) > 1:
        raise AssertionError(f"not the same rows: {answers}")
    return found


def main(argv: list[str] | None = None) -> int:
    options = arguments(argparse.ArgumentParser(description=__doc__), "between_tasks.json").parse_args(argv)
    batches, turns = (5, 1) if options.smoke else (30, 7)
    (ours,) = (each for each in OURS if each.name == FILES)
    with tempfile.TemporaryDirectory(prefix="tidegate-bench-") as scratch, session(options) as spark:
        files = write(Shape(1_000, 1_000, batches), Path(scratch))
        objects, ms = collection(spark)
        say(f"one collection in a worker: {objects:,} objects, {ms:.0f} ms")
        unspared = wrapped(ours, Unspared, UnsparedProcessor)
        found = measure(spark, {"spared": ours, "not spared": unspared}, files, turns)
        one = {"objects": objects, "ms": ms}
        report = {"batches": batches, "collection": one, "ms_a_batch": found, "versions": versions(spark)}
    for name, took in found.items():
        say(f"{name}: {median(took):.0f} ms a batch ({min(took):.0f} to {max(took):.0f})")
    ratios = [without / with_it for with_it, without in zip(found["spared"], found["not spared"], strict=True)]
    spread = f"the median of turns ({min(ratios):.2f} to {max(ratios):.2f})"
    say(f"sparing them is {median(ratios):.2f} times as fast, {spread}")
    save(report, options.json)
    return 0


if __name__ == "__main__":
    # As workers import it.
    from benchmarks import between_tasks  # noqa: PLW0406

    raise SystemExit(between_tasks.main())
