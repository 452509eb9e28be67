"""One query, three sinks: updates in PostgreSQL, final results and late records in Delta tables, each row exactly once.

The payments and their counts are those of `three_sinks.py`, which writes the batches itself. Here `tg.sinks` writes
them: a sink stores the newest batch in the same transaction as its rows. If the query dies before its checkpoint has
the batch, the batch runs again, and the sink skips it.

    raw    ->  a table of PostgreSQL, in which an update replaces the row of its shop and minute (upsert)
    final  ->  a Delta table, to which each minute's result is appended once
    late   ->  a Delta table, to which each late payment is appended once

Run it: `python examples/exactly_once.py postgresql://user:password@localhost/database`. Without an address the updates
also go to a Delta table, by MERGE. It needs `pip install 'tidegate[delta,postgres]'`.
"""

from __future__ import annotations

import os
import sys
import tempfile
import warnings
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession

import tidegate as tg

sys.path.insert(0, str(Path(__file__).parent))

from three_sinks import counted, write_payments


def outputs(payments: DataFrame) -> tg.KOutputs:
    counts = counted(payments)
    final = counts.suppress(tg.Suppressed.until_window_closes(tg.BufferConfig.unbounded()))
    return tg.outputs(raw=counts, final=final, late=counts.late_records())


def sinks(folder: Path, url: str | None) -> dict[str, Any]:
    return {
        "raw": tg.sinks.Postgres(url, "payment_counts") if url else tg.sinks.Delta(folder / "raw"),
        "final": tg.sinks.Delta(folder / "final"),
        "late": tg.sinks.Delta(folder / "late"),
    }


def run(spark: SparkSession, folder: Path, url: str | None = None) -> None:
    """Read all payments below `folder`/payments, each file a micro-batch, and end."""
    source = str(folder / "payments")
    columns = spark.read.parquet(source).schema
    payments = spark.readStream.schema(columns).option("maxFilesPerTrigger", 1).parquet(source)
    writer = tg.sinks.write(outputs(payments), sinks(folder, url), checkpoint=str(folder / "checkpoint"))
    writer.trigger(availableNow=True).start().awaitTermination()


def main() -> None:
    from deltalake import DeltaTable

    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    warnings.filterwarnings("ignore", category=FutureWarning)
    url = sys.argv[1] if len(sys.argv) > 1 else None
    builder = SparkSession.builder.master("local[2]").appName("exactly-once").config("spark.ui.enabled", "false")
    spark = tg.configure(builder.config("spark.sql.shuffle.partitions", "2")).getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    try:
        with tempfile.TemporaryDirectory(prefix="tidegate-once-") as scratch:
            folder = Path(scratch)
            write_payments(folder)
            run(spark, folder, url)
            for output in ("final", "late") if url else ("raw", "final", "late"):
                print(f"{output}:")
                print(DeltaTable(folder / output).to_pyarrow_table().to_pandas().to_string(index=False))
    finally:
        spark.stop()


if __name__ == "__main__":
    main()
