"""Processor time of the process in which Spark starts a stateful operator, with its modules from two places.

`python -m benchmarks.starting`, with `PYTHONPATH=src` where tidegate is not installed. Spark starts this process once
for each operator and start of a query; it imports pyspark, unpickles the processor and calls its `init`. Spark puts
pyspark.zip, which has no compiled modules, first on its path. "with the kernel" also imports the modules that the
processor needed before it was sealed. All ways take turns.
"""

from __future__ import annotations

import argparse
import os
import resource
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from statistics import median

import pyarrow as pa
import pyspark
from pyspark.serializers import CPickleSerializer
from pyspark.sql.streaming.stateful_processor_util import TransformWithStateInPandasUdfUtils

import tidegate as tg
from benchmarks.options import say
from tidegate.kernel.rows.layout import Layout
from tidegate.kernel.stage import Stage
from tidegate.plan import operation
from tidegate.runtime.spark.stateful_step import SparkStage
from tidegate.runtime.spark.worker.processor import StageProcessor

STARTED = """
import sys
import pyspark.sql.streaming.transform_with_state_driver_worker
from pyspark.serializers import CPickleSerializer
class Handle:
    def getMapState(self, name, key, value): return name
udf = CPickleSerializer().loads(sys.stdin.buffer.read())
udf.__self__._stateful_processor.init(Handle())
"""
KERNEL = "import pandas, tidegate.runtime.spark.worker.state, tidegate.runtime.spark.to_spark\n"


def processor() -> bytes:
    """The bytes of an operator that Spark sends to the process."""
    counts = tg.stream("events", key="k", timestamp="ts").group_by_key().count()
    layout = Layout(operation(counts.node), pa.schema({"k:k": pa.string(), "ts": pa.int64()}))
    started = StageProcessor(SparkStage(Stage(layout)), {0: 0}, 1)
    udf = TransformWithStateInPandasUdfUtils(started, "None").transformWithStateUDF
    packed: bytes = CPickleSerializer().dumps(udf)  # type: ignore[no-untyped-call]
    return packed


def started(program: str, zipped: bool, given: bytes) -> float:
    """Processor seconds of one process that runs `program` on `given`."""
    lib = sorted((Path(pyspark.__file__).parent / "python" / "lib").glob("*.zip")) if zipped else []
    path = os.pathsep.join([*map(str, lib), *(part for part in sys.path if part)])
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([sys.executable, "-c", program], input=given, env={**os.environ, "PYTHONPATH": path}, check=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.starting", description=__doc__.splitlines()[0])
    parser.add_argument("--turns", type=int, default=9)
    turns, given = parser.parse_args(argv).turns, processor()
    ways: dict[str, tuple[str, bool]] = {
        "with the kernel, pyspark.zip": (KERNEL + STARTED, True),
        "as it is, pyspark.zip": (STARTED, True),
        "as it is, the installed package": (STARTED, False),
    }
    found: dict[str, list[float]] = {way: [] for way in ways}
    for turn in range(turns):
        for way in list(ways)[:: 1 if turn % 2 else -1]:
            found[way].append(started(*ways[way], given))
    for way, seconds in found.items():
        say(f"{way}: {median(seconds):.2f} s of a processor ({min(seconds):.2f} to {max(seconds):.2f})")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
