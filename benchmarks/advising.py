"""Measures `tg.advise` over large recordings on Spark: `python -m benchmarks.advising --rows 2000000 50000000`.

Several sizes show whether the time grows in proportion to the records. The recording has sixteen partitions, one of
them a minute behind; 100,000 keys, one with a tenth of the records; disorder of some seconds; windows of a minute. It
is written as Parquet first; writing is not measured.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql import functions as F

import tidegate as tg
from benchmarks.measure import peaks
from tidegate.advice.advice import Advice

PARTITIONS, KEYS = 16, 100_000
_PER_SECOND = 2_000


def recording(spark: SparkSession, rows: int) -> Any:
    """Records drawn by a hash of their number: the same in every run."""
    drawn = [F.pmod(F.xxhash64("id", F.lit(salt)), F.lit(1_000_000)) for salt in range(4)]
    arrived = F.lit(1_700_000_000_000) + F.floor(F.col("id") * F.lit(1000 / _PER_SECOND)).cast("long")
    partition = F.col("id") % PARTITIONS
    behind = F.floor(-F.log((drawn[0] + 1) / 1_000_000) * 3_000).cast("long")
    behind = behind + F.when(partition == PARTITIONS - 1, 60_000).otherwise(0)
    return spark.range(rows).select(
        F.when(drawn[1] < 100_000, F.lit("hot")).otherwise(F.concat(F.lit("k"), drawn[2] % KEYS)).alias("key"),
        F.timestamp_millis(arrived - behind).alias("ts"),
        partition.cast("int").alias("partition"),
        F.floor(F.col("id") / PARTITIONS).alias("offset"),
        F.timestamp_millis(arrived).alias("arrived"),
    )


def measured(spark: SparkSession, rows: int, alert: str | None) -> tuple[Advice, float, dict[str, float]]:
    """The advice about a recording of `rows` records, its seconds, and the largest memory (MiB, `measure.peaks`)."""
    with TemporaryDirectory() as folder:
        path = str(Path(folder, "events"))
        recording(spark, rows).write.parquet(path)
        began = time.monotonic()
        with peaks() as peak:
            advice = tg.advise(
                spark.read.parquet(path),
                key="key",
                timestamp="ts",
                partition="partition",
                offset="offset",
                arrival="arrived",
                trigger="10 seconds",
                windows=tg.TimeWindows.of_size_and_grace("1 minute", "10 seconds"),
                alert=alert,
            )
        return advice, time.monotonic() - began, peak


def main() -> None:
    """Print the advice, and for each size the seconds and the largest memory of the JVM, of all workers and of one."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("--rows", type=int, nargs="+", default=[10_000_000], help="several sizes run one after another")
    parser.add_argument("--alert", action="store_true", help="with a predicate over results")
    parsed = parser.parse_args()
    builder: Any = SparkSession.builder
    builder = builder.master("local[*]").config("spark.ui.enabled", "false").config("spark.driver.memory", "2g")
    spark = tg.configure(builder.config("spark.sql.shuffle.partitions", "8")).getOrCreate()
    lines = []
    for rows in parsed.rows:
        advice, took, peak = measured(spark, rows, "count > 100" if parsed.alert else None)
        print(advice)
        most = ", ".join(f"{kind} {mib:,.0f}" for kind, mib in peak.items())
        lines.append(f"{rows:,} records in {took:.0f} s, {took / rows * 1e6:.1f} µs each; MiB at most: {most}")
    print("\n".join(lines))
    spark.stop()


if __name__ == "__main__":
    main()
