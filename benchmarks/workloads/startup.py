"""START: the time from `start()` until the first micro-batch is done and the query has ended, with little input."""

from __future__ import annotations

import time
from pathlib import Path
from statistics import median
from typing import Any

from pyspark.sql import SparkSession

from benchmarks.inputs import Shape, write
from benchmarks.measure import finished
from benchmarks.options import Options, say
from benchmarks.race import prefix
from benchmarks.workloads.tumbling import OURS, SPARK

TURNS = {"smoke": 1, "default": 3, "full": 9}


class StartUp:
    name = "START"
    title = "from start() to the end of the first batch, 1,000 records; seconds"

    def measure(self, spark: SparkSession, options: Options, folder: Path) -> dict[str, Any]:
        files = prefix(write(Shape(100, 1_000, 2), folder), 1)
        contestants = [each for each in (*OURS, *SPARK) if options.wants(each.name)]
        seconds: dict[str, list[float]] = {each.name: [] for each in contestants}
        for turn in range(TURNS[options.size] + 1):
            for contestant in contestants:
                began = time.monotonic()
                with finished(spark, contestant, files, format="noop"):
                    took = time.monotonic() - began
                if turn:  # the first turn warms up the JVM
                    seconds[contestant.name].append(round(took, 3))
        found = {}
        for contestant in contestants:
            found[contestant.name] = {"label": contestant.label, "seconds": seconds[contestant.name]}
            say(f"  {contestant.label:40} {median(seconds[contestant.name]):8.2f} s")
        return {"contestants": found, "agreement": {}, "bars": []}


START = StartUp()
