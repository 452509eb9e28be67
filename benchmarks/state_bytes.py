"""The time to write and to read a megabyte of state between Python and Spark: in eight bits a byte, and in seven.

`python -m benchmarks.state_bytes`, with `PYTHONPATH=src` where tidegate is not installed. One task, one map state in
RocksDB, values of the size into which `runtime/spark/worker/state.py` cuts them.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle

from benchmarks.options import arguments, save, say, session, versions
from tidegate.runtime.spark.worker import seven_bit
from tidegate.runtime.spark.worker.memory import keep

if TYPE_CHECKING:
    import pandas as pd

MEGABYTE, VALUES, BATCHES, WARM = 1 << 20, 4, 7, 2
FORMS: dict[str, tuple[Callable[[bytes], bytes], Callable[[bytes], bytes]]] = {
    "eight bits": (bytes, bytes),
    "seven bits": (seven_bit.pack, seven_bit.unpack),
}


class _Values(StatefulProcessor):
    def __init__(self, size: int) -> None:
        self._size = size

    def init(self, handle: StatefulProcessorHandle) -> None:
        keep()
        self._map = handle.getMapState("values", "at int", "value binary")

    def handleInputRows(self, key: Any, rows: Iterator[Any], timerValues: Any) -> Iterator[pd.DataFrame]:  # noqa: N802, N803
        import pandas as pd

        for _ in rows:
            pass
        values = [os.urandom(self._size) for _ in range(VALUES)]
        for form, (to, back) in FORMS.items():
            began = time.perf_counter()
            for at, value in enumerate(values):
                self._map.updateValue((at,), (to(value),))
            wrote = time.perf_counter()
            read = [back((self._map.getValue((at,)) or (b"",))[0]) for at in range(VALUES)]
            took = time.perf_counter()
            assert read == values, form
            yield pd.DataFrame({"form": [form], "write": [wrote - began], "read": [took - wrote]})

    def close(self) -> None:
        pass


def measure(spark: SparkSession, size: int, folder: Path) -> dict[str, dict[str, float]]:
    """Median milliseconds per megabyte, by form and by "written" or "read"."""
    found: dict[str, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))

    def note(frame: DataFrame, batch: int) -> None:
        for form, wrote, read in frame.collect():
            if batch >= WARM:
                found[form]["written"].append(wrote)
                found[form]["read"].append(read)

    ticks = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 1).load()
    grouped = ticks.selectExpr("0 as task").groupBy("task")
    rows = grouped.transformWithStateInPandas(_Values(size), "form string, write double, read double", "Update", "None")
    query = rows.writeStream.outputMode("update").option("checkpointLocation", str(folder)).foreachBatch(note).start()
    try:
        while sum(len(each["read"]) for each in found.values()) < BATCHES * len(FORMS):
            if query.awaitTermination(1):
                raise RuntimeError("the query ended by itself")
    finally:
        query.stop()
    per_mb = 1000 * MEGABYTE / (size * VALUES)
    return {form: {what: median(took) * per_mb for what, took in each.items()} for form, each in found.items()}


def main(argv: list[str] | None = None) -> int:
    options = arguments(argparse.ArgumentParser(description=__doc__), "state_bytes.json").parse_args(argv)
    size = MEGABYTE // 64 if options.smoke else 4 * MEGABYTE
    with session(options) as spark, tempfile.TemporaryDirectory() as folder:
        found = measure(spark, size, Path(folder))
        report: dict[str, Any] = {"bytes": size, "ms_per_mb": found, "versions": versions(spark)}
    for form, took in found.items():
        say(f"{form}: {took['written']:.1f} ms a megabyte written, {took['read']:.1f} read")
    save(report, options.json)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
