"""The pipeline whose sinks are databases: updates, final results and late records, each exactly once.

`python -m crash.sinks_pipeline FOLDER [--end] [--master URL]`, as `crash.pipeline`. FOLDER/postgres has the address of
a PostgreSQL.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import tidegate as tg
from crash.pipeline import SCHEMA, arguments, files, session, stream, take
from tidegate.runtime.spark.sinks import staging

INLINE_BYTES = 1 << 10
"""Small enough that some tasks hand over their rows and others stage them."""
ADDRESS = "postgres"


def topology(events: tg.KStream) -> tg.KOutputs:
    """Counts and sums per key and ten seconds: as updates (twice), as final results, and late records."""
    windows = tg.TimeWindows.of_size_and_grace("10 seconds", "5 seconds")
    totals = events.group_by_key().windowed_by(windows).agg(n=tg.count(), total=tg.sum("v"))
    final = totals.suppress(tg.Suppressed.until_window_closes(tg.BufferConfig.unbounded()))
    return tg.outputs(merged=totals, upserted=totals, final=final, late=totals.late_records())


def sinks(folder: Path) -> dict[str, Any]:
    """Each kind of sink has an output of its own."""
    url = (folder / ADDRESS).read_text()
    return {
        "merged": tg.sinks.Delta(folder / "merged"),
        "upserted": tg.sinks.Postgres(url, "upserted"),
        "final": tg.sinks.Delta(folder / "final"),
        "late": tg.sinks.Postgres(url, "late"),
    }


def main() -> None:
    chosen = arguments()
    staging.INLINE_BYTES = INLINE_BYTES
    spark = session(chosen.master)
    rows = topology(stream(files(spark, SCHEMA, chosen.folder / "in")))
    take(tg.sinks.write(rows, sinks(chosen.folder)), chosen)
    spark.stop()


if __name__ == "__main__":
    main()
