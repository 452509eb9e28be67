"""Writes the reports as files for a streaming source: one file is one micro-batch."""

from __future__ import annotations

import os
from pathlib import Path

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

SCHEMA = pa.schema(
    [
        ("partition", pa.int32()),
        ("offset", pa.int64()),
        ("origin", pa.string()),
        ("dest", pa.string()),
        ("departure", pa.timestamp("us", "UTC")),
        ("dep_delay", pa.int32()),
    ]
)
"""All reports are in one source partition. So only the reports before a report decide whether it is late, and the cuts
between batches cannot change a row."""

SPARK_SCHEMA = "partition int, offset long, origin string, dest string, departure timestamp, dep_delay int"


def cut(reports: pd.DataFrame, size: int, folder: Path) -> int:
    """Write the reports to `folder` as files of `size` reports, in order. Returns the number of files."""
    folder.mkdir(parents=True)
    table = pa.Table.from_pandas(reports[SCHEMA.names], schema=SCHEMA, preserve_index=False)
    starts = range(0, len(table), size)
    for number, start in enumerate(starts):
        path = folder / f"{number:05}.parquet"
        pq.write_table(table.slice(start, size), path)
        # Spark reads files by modification time; on a fast disk several files could have the same one.
        os.utime(path, (number, number))
    return len(starts)
