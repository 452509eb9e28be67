"""The join pipeline that gets killed: orders and payments in, pairs and unpaid orders out.

`python -m crash.join_pipeline FOLDER [--end] [--master URL]`, as `crash.pipeline`.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa

import tidegate as tg
from crash.pipeline import files, run

SIDES = ("left", "right")
BEFORE_MS, AFTER_MS, GRACE_MS = 5_000, 10_000, 5_000
KEEP = {"spark.sql.streaming.minBatchesToRetain": "1000000"}
"""Keep all offsets: at the end `crash.join_feed` reads the files of every batch from them."""


def schema(side: str) -> pa.Schema:
    """Schema of a side: the column with the record's number has the name of the side."""
    return pa.schema(
        {
            "k": pa.string(),
            side: pa.int64(),
            "ts": pa.timestamp("us", "UTC"),
            "partition": pa.int32(),
            "offset": pa.int64(),
        }
    )


def topology(left: Any, right: Any) -> tg.KStream:
    """The join; `left` and `right` are names of inputs or DataFrames. The slowest of all partitions decides closing."""
    sides = [
        tg.stream(
            source,
            key="k",
            timestamp="ts",
            partition="partition",
            offset="offset",
            name=name,
            schema=schema(name) if isinstance(source, str) else None,
            stream_time="min_partition",
        )
        for name, source in zip(SIDES, (left, right), strict=True)
    ]
    after = tg.JoinWindows.of_time_difference_and_grace(f"{AFTER_MS} ms", f"{GRACE_MS} ms")
    return sides[0].left_join(sides[1], after.before(f"{BEFORE_MS} ms"))


def joined(spark: Any, folder: Path) -> Any:
    return topology(*(files(spark, schema(side), folder / "in" / side) for side in SIDES)).to_df()


if __name__ == "__main__":
    run(joined, **KEEP)
