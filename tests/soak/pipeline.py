"""The pipeline of the soak: `crash.pipeline` into a sink that is sometimes slow, with its own measurements.

`python -m soak.pipeline FOLDER` runs forever; with `--end` until all files are taken. A batch is one Parquet file in
FOLDER/out, written anew if the batch runs again. FOLDER/told has a JSON line per batch and per look at the heap.
"""

from __future__ import annotations

import argparse
import gc
import json
import threading
import time
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

import tidegate as tg
from crash.pipeline import SCHEMA, session, stream, topology

SLOW_EVERY, SLOW_S = 10, 2.0
LOOK_S, COLLECTIONS = 5, 3
SETTINGS = {
    # Histories that Spark keeps must fill within minutes: its defaults of a hundred batches, a thousand jobs or ten
    # minutes are longer than a life of the soak.
    "spark.sql.streaming.minBatchesToRetain": "20",
    "spark.sql.streaming.stateStore.maintenanceInterval": "15s",
    "spark.sql.streaming.fileSource.log.cleanupDelay": "30s",
    "spark.sql.streaming.numRecentProgressUpdates": "50",
    # This cache has an entry for each file that was ever read, up to 250 MB.
    "spark.sql.hive.filesourcePartitionFileCacheSize": "0",
    "spark.sql.ui.retainedExecutions": "20",
    "spark.ui.retainedJobs": "20",
    "spark.ui.retainedStages": "20",
    "spark.ui.retainedTasks": "100",
    # Touch the whole heap at the start: its used part is a series of its own, and resident memory shows the rest.
    "spark.driver.memory": "1g",
    "spark.driver.extraJavaOptions": "-Xms1g -XX:+AlwaysPreTouch",
}


class Sink:
    """Writes a batch whole or not at all, and keeps the length of its artificial pauses."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.slept: dict[int, float] = {}
        folder.mkdir(exist_ok=True)

    def __call__(self, frame: Any, batch: int) -> None:
        hidden = self._folder / f".{batch:06}.parquet"
        pq.write_table(frame.toArrow(), hidden)
        if batch % SLOW_EVERY == 0:
            time.sleep(SLOW_S)
        self.slept[batch] = SLOW_S if batch % SLOW_EVERY == 0 else 0
        hidden.replace(hidden.with_name(hidden.name[1:]))


def tell(folder: Path, spark: Any, query: Any, sink: Sink) -> None:
    """Append new measurements at each look, until the query has ended."""
    seen, jvm = -1, spark._jvm.java.lang
    while query.isActive:
        time.sleep(LOOK_S)
        # A batch's DataFrame lies in a Python reference cycle, and keeps its plan in the JVM until a collection.
        gc.collect()
        lines: list[dict[str, Any]] = [{"heap": min(in_use(jvm) for _ in range(COLLECTIONS))}]
        for progress in query.recentProgress:
            if progress.batchId > seen and progress.observedMetrics:
                seen = progress.batchId
                took = progress.durationMs["triggerExecution"] / 1000 - sink.slept.pop(seen, 0)
                lines.append({"batch_seconds": took, "state": progress.observedMetrics["stream"]["spilled_bytes"]})
        with (folder / "told").open("a") as file:
            file.writelines(json.dumps({"time": time.time(), **line}) + "\n" for line in lines)


def in_use(jvm: Any) -> int:
    """Used bytes of the heap after a collection, including those of the running batch since."""
    jvm.System.gc()
    runtime = jvm.Runtime.getRuntime()
    return int(runtime.totalMemory() - runtime.freeMemory())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--end", action="store_true")
    chosen = parser.parse_args()
    folder, spark = chosen.folder, session(None, **SETTINGS)
    fields = spark.createDataFrame(SCHEMA.empty_table()).schema
    files = spark.readStream.schema(fields).option("maxFilesPerTrigger", 1).option("cleanSource", "delete")
    sink = Sink(folder / "out")
    # The page of `tidegate watch`, at a free port; its address is in FOLDER/page.
    served = tg.metrics.serve(spark, port=0)
    (folder / "page").write_text(served.page)
    events = stream(files.parquet(str(folder / "in")))
    writer = topology(events).to_df().writeStream.foreachBatch(sink)
    writer = writer.option("checkpointLocation", str(folder / "checkpoint"))
    query = (writer.trigger(availableNow=True) if chosen.end else writer).start()
    threading.Thread(target=tell, args=(folder, spark, query, sink), daemon=True).start()
    query.awaitTermination()
    spark.stop()


if __name__ == "__main__":
    main()
