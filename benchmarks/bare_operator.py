"""A stateful Python operator that does nothing: what any such operator of Spark costs in a micro-batch."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle

from benchmarks.contestant import BARE_OPERATOR, Contestant, source

TASKS = 2
"""As many as the shuffle partitions of the benchmarks."""


class Nothing(StatefulProcessor):
    """Reads and writes one number per task, and emits no rows."""

    def init(self, handle: StatefulProcessorHandle) -> None:
        self.rows = handle.getValueState("rows", "rows long")

    def handleInputRows(self, key: Any, rows: Iterator[Any], timerValues: Any) -> Iterator[pd.DataFrame]:  # noqa: N802, N803
        before = self.rows.get()
        self.rows.update((sum(int(frame["rows"].sum()) for frame in rows) + (before[0] if before else 0),))
        yield pd.DataFrame({"rows": []}, dtype="int64")

    def close(self) -> None:
        pass


def bare_operator(spark: SparkSession, folder: Path) -> DataFrame:
    def count(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        rows = sum(batch.num_rows for batch in batches)
        yield pa.RecordBatch.from_pydict({"task": list(range(TASKS)), "rows": [rows] * TASKS})

    read = source(spark, folder).select("user", "ts", "amount", "partition", "offset")
    counted = read.mapInArrow(count, "task long, rows long").groupBy("task")
    return counted.transformWithStateInPandas(Nothing(), "rows long", "Update", "None")


CONTESTANT = Contestant(BARE_OPERATOR, "bare mapInArrow, then transformWithStateInPandas", bare_operator, answers=False)
