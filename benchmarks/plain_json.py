"""The cost of plain JSON in a worker: objects that are written alike, and the same by the parser.

`python -m benchmarks.plain_json`, with `PYTHONPATH=src` where tidegate is not installed. The records of D1, without
Spark: from bytes to columns, as they go back to Spark. Ways take turns. Decision 0069 quotes the table.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable

import numpy as np
import pyarrow as pa
from pyspark.sql.types import LongType, StringType, StructField, StructType, TimestampType

from benchmarks.in_turns import medians
from benchmarks.inputs import FIRST_MS, key_names
from tidegate.runtime.spark.kafka.handed_over import AT
from tidegate.runtime.spark.kafka.plain import Reader
from tidegate.runtime.spark.worker.memory import keep

ROWS, SMOKE_ROWS, KEYS, FRAME, TURNS = 1_000_000, 1_000, 100_000, 50_000, 7
FIELDS = StructType(
    [StructField("user", StringType()), StructField("ts", TimestampType()), StructField("amount", LongType())]
)
WANTED = pa.schema([("user", pa.string()), ("ts", pa.timestamp("us", "UTC")), ("amount", pa.int64())])


class Parsing(Reader):
    """Parses all objects."""

    def _alike(self, texts: pa.Array) -> None:
        return None


def values(rows: int, others: int) -> list[pa.RecordBatch]:
    """Values of records, in frames; of every hundred, `others` have their fields in another order."""
    draw = np.random.default_rng(7)
    users = key_names(draw.integers(0, KEYS, rows))
    seconds = FIRST_MS // 1000 + draw.integers(0, 60, rows)
    times = np.datetime_as_string(seconds.astype("datetime64[s]"))
    amounts = draw.integers(1, 10_000, rows)
    texts = [
        f'{{"user":"{user}","ts":"{ts}Z","amount":{amount}}}'
        if place % 100 >= others
        else f'{{"ts":"{ts}Z","user":"{user}","amount":{amount}}}'
        for place, (user, ts, amount) in enumerate(zip(users, times, amounts, strict=True))
    ]
    parts = (pa.array(texts[at : at + FRAME], pa.binary()) for at in range(0, rows, FRAME))
    return [pa.record_batch([part], ["value"]) for part in parts]


def seconds(reader: Reader, frames: list[pa.RecordBatch]) -> float:
    began = time.perf_counter()
    # Plain records of a frame come back as one row, with their number.
    read = sum(made.column(AT)[0].as_py() for made in reader(iter(frames)))
    took = time.perf_counter() - began
    assert read == sum(frame.num_rows for frame in frames), "all are plain"
    return took


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--smoke", action="store_true", help="few records")
    rows = SMOKE_ROWS if parser.parse_args(argv).smoke else ROWS
    keep()
    alike, mixed = values(rows, 0), values(rows, 10)
    names = {name: name for name in WANTED.names}
    reader, parsing = (kind(WANTED, FIELDS, names, None) for kind in (Reader, Parsing))
    ways: dict[str, Callable[[], float]] = {
        "all written alike": lambda: seconds(reader, alike),
        "a tenth in another order": lambda: seconds(reader, mixed),
        "by the parser": lambda: seconds(parsing, alike),
    }
    for name, took in medians(ways, TURNS).items():
        print(f"{name:28}{took / rows * 1e6:6.2f} µs of a core per record")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
