"""Program that the tests run on a cluster: `python app.py MASTER FOLDER ARCHIVE`; writes FOLDER/facts.json.

The Python of the workers (PYSPARK_PYTHON) has no tidegate. ARCHIVE has, and PYTHONPATH names it here.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

sys.path.append(str(Path(__file__).parents[1]))

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark import cloudpickle
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

import tidegate as tg
from crash import pipeline

CORES = 2
PATIENCE_S = 600
SETTINGS = {"spark.sql.shuffle.partitions": "2", "spark.sql.session.timeZone": "UTC"}
AT_START = {
    "spark.driver.host": "127.0.0.1",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.executor.memory": "1g",
}
CONNECT = "sc://"


def session(master: str, **settings: str) -> SparkSession:
    remote = master.startswith(CONNECT)
    builder = SparkSession.builder.remote(master) if remote else SparkSession.builder.master(master)
    for name, value in (SETTINGS if remote else SETTINGS | AT_START | settings).items():
        builder = builder.config(name, value)
    return tg.configure(builder).getOrCreate()


def places(spark: SparkSession) -> list[list[str]]:
    """For each executor that runs a task: its folder, and the place of tidegate in its Python, or the error."""

    def place(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        list(batches)
        time.sleep(1)  # so that one executor does not take all tasks
        try:
            import tidegate

            found = str(tidegate.__file__)
        except ImportError as error:
            found = f"ImportError: {error}"
        yield pa.record_batch([pa.array([str(Path.cwd())]), pa.array([found])], ["folder", "found"])

    rows = spark.range(0, CORES, 1, CORES).mapInArrow(place, "folder string, found string").collect()
    return sorted([row.folder, row.found] for row in rows)


def totals(spark: SparkSession, folder: Path) -> StreamingQuery:
    """Final results and late records of the files in FOLDER/in, which the workers read themselves."""
    events = tg.files.source(
        spark,
        str(folder / "in"),
        key="k",
        timestamp="ts",
        partition="partition",
        offset="offset",
        schema="k string, v long, ts timestamp, partition int, offset long",
        name="events",
        options={"maxFilesPerTrigger": "1"},
    )
    writer = pipeline.topology(events).to_df().writeStream.format("parquet").option("path", str(folder / "out"))
    query = writer.option("checkpointLocation", str(folder / "checkpoint")).trigger(availableNow=True).start()
    # Poll: over Connect a long call may be cut off on a busy machine.
    wait(lambda: not query.isActive)
    if failed := query.exception():
        raise failed
    return query


def files(spark: SparkSession, folder: Path) -> dict[str, Any]:
    """Facts from the query, its listener and its checkpoint; the rows go to result.parquet."""
    listener = tg.metrics.listen(spark)
    query = totals(spark, folder)
    pq.write_table(spark.read.parquet(str(folder / "out")).toArrow(), folder / "result.parquet")
    wait(listener.watched)
    checkpoint = str(folder / "checkpoint")
    return {
        "batches": len([one for one in query.recentProgress if one.observedMetrics]),
        "records": listener.metrics("events")["records_total"],
        "stream_time": tg.explain_pending(query)[0].stream_time,
        "stream_time_of_state": tg.explain_pending(query, checkpoint)[0].stream_time,
        "open": sorted([row.k, row.n] for row in tg.read_state(spark, checkpoint).collect()),
    }


def silence(spark: SparkSession, folder: Path) -> dict[str, Any]:
    """Windows that close by the wall clock when no record comes any more."""
    schema = pa.schema([("k", pa.string()), ("ts", pa.timestamp("us", "UTC"))])
    (folder / "silent").mkdir()
    records = pa.table([["a", "b"], [pa.scalar(time.time_ns() // 1000, pa.timestamp("us", "UTC"))] * 2], schema=schema)
    pq.write_table(records, folder / "silent" / "1.parquet")
    frame = spark.readStream.schema("k string, ts timestamp").parquet(str(folder / "silent"))
    events = tg.stream(frame, key="k", timestamp="ts", idle_advance="1 second", name="silent")
    counts = events.group_by_key().windowed_by(tg.TimeWindows.of_size_and_grace("1 second", "0 seconds")).count()
    final = counts.suppress(tg.Suppressed.until_window_closes(tg.BufferConfig.unbounded())).to_df()
    query = (
        final.writeStream.format("memory")
        .queryName("closed")
        .option("checkpointLocation", str(folder / "silent-checkpoint"))
        .start()
    )
    try:
        wait(lambda: spark.table("closed").count() >= 2 or not query.isActive)
        if failed := query.exception():
            raise failed
    finally:
        query.stop()
    return {"closed": sorted([row["k"], row["count"]] for row in spark.table("closed").collect())}


def wait(done: Callable[[], Any]) -> None:
    end = time.monotonic() + PATIENCE_S
    while not done():
        if time.monotonic() > end:
            raise TimeoutError(f"nothing within {PATIENCE_S} s")
        # Each look may be a job, on cores that the query needs.
        time.sleep(2)


def main() -> None:
    master, folder, archive = sys.argv[1], Path(sys.argv[2]), sys.argv[3]
    cloudpickle.register_pickle_by_value(pipeline)
    facts: dict[str, Any] = {}
    # First on one core, then the rest of the files on two; a Connect server keeps its cores.
    spark = session(master, **{"spark.cores.max": "1"})
    spark.addArtifacts(archive, pyfile=True)
    facts["first"] = len(totals(spark, folder).recentProgress)
    spark.stop()
    for file in (folder / "later").iterdir():
        file.rename(folder / "in" / file.name)
    spark = session(master, **{"spark.cores.max": str(CORES)})
    facts["before"] = places(spark)
    spark.addArtifacts(archive, pyfile=True)
    facts["after"] = places(spark)
    try:
        for part in (files, silence):
            facts[part.__name__] = part(spark, folder)
    finally:
        # A client with a listener ends only after its session.
        spark.stop()
    (folder / "facts.json").write_text(json.dumps(facts, indent=1))


if __name__ == "__main__":
    main()
