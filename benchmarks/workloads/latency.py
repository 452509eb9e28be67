"""W10: the delay of final results, at 1,000 records a second and with batches as short as possible.

A thread puts a file of 100 records into the source's folder every 100 ms, the same files for every contestant. Windows
are a second long, without grace. The delay of a result is the time from the arrival of the record whose timestamp
closes its window until Spark passes the row to the sink. It excludes the time until the window ends, up to a second.
"""

from __future__ import annotations

import shutil
import tempfile
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import tidegate as tg
from benchmarks.contestant import IN_MEMORY, ROCKSDB, SPARKS_OWN, Contestant
from benchmarks.inputs import FIRST_MS, key_names, table
from benchmarks.measure import settings
from benchmarks.options import Options, say

SIZE, SIZE_MS = "1 second", 1_000
EVERY_MS = 100
RATE = 1_000
KEYS = 100
BAR = 1.2

SECONDS = {"smoke": 8, "default": 20, "full": 120}
TURNS = {"smoke": 1, "default": 2, "full": 2}
WARM_UP_S = {"smoke": 3, "default": 8, "full": 20}


@dataclass(frozen=True)
class Delays:
    """Milliseconds from the arrival of the closing record to each row, the rows, and the number of micro-batches."""

    ms: list[float]
    rows: dict[tuple[str, int], tuple[int, int]]
    batches: int


def _source(spark: SparkSession, folder: Path) -> DataFrame:
    schema = "user string, ts timestamp, amount long, partition int, offset long"
    return spark.readStream.schema(schema).parquet(str(folder))


def tidegate(spark: SparkSession, folder: Path) -> DataFrame:
    return _final(tg.stream(_source(spark, folder), key="user", timestamp="ts", partition="partition", offset="offset"))


def tidegate_files(spark: SparkSession, folder: Path) -> DataFrame:
    order: dict[str, Any] = {"partition": "partition", "offset": "offset"}
    return _final(tg.files.source(spark, str(folder), key="user", timestamp="ts", **order))


def _final(stream: tg.KStream) -> DataFrame:
    windows = tg.TimeWindows.of_size_with_no_grace(SIZE)
    totals = stream.group_by_key().windowed_by(windows).agg(count=tg.count(), total=tg.sum("amount"))
    final: DataFrame = totals.suppress(tg.Suppressed.until_window_closes(tg.BufferConfig.unbounded())).to_df()
    return final.select("user", "window", "count", "total")


def spark_native(spark: SparkSession, folder: Path) -> DataFrame:
    return (
        _source(spark, folder)
        .withWatermark("ts", "0 seconds")
        .groupBy("user", F.window("ts", SIZE))
        .agg(F.count("*").alias("count"), F.sum("amount").alias("total"))
    )


CONTESTANTS = (
    Contestant("tidegate", "tidegate, partition and offset given", tidegate),
    Contestant("tidegate_files", "tidegate, the same by tg.files.source", tidegate_files),
    Contestant("spark_memory", "Spark's own, in-memory store", spark_native, IN_MEMORY),
    Contestant("spark_rocksdb", "Spark's own, RocksDB, changelog", spark_native, ROCKSDB),
)


def produce(folder: Path, seconds: int, stop: threading.Event) -> Callable[[], list[float]]:
    """Put files into `folder` on time, in a thread; returns a function that waits for the end and returns arrivals."""
    rng = np.random.default_rng(2026)
    rows = RATE * EVERY_MS // 1000
    names = pa.array(key_names(np.arange(KEYS)))
    arrived: list[float] = []

    def one(number: int) -> None:
        ts = FIRST_MS + number * EVERY_MS + np.arange(rows) * EVERY_MS // rows
        user = names.take(pa.array(rng.integers(0, KEYS, rows)))
        given = table(user, ts, rng.integers(1, 10_000, rows), 0, number * rows)
        hidden = folder / f"_{number:06}.parquet"  # Spark ignores names that begin with an underscore
        pq.write_table(given, hidden)
        hidden.rename(folder / f"{number:06}.parquet")

    def work() -> None:
        began = time.time()
        for number in range(seconds * 1000 // EVERY_MS):
            if stop.wait(max(0.0, began + number * EVERY_MS / 1000 - time.time())):
                return
            if number:
                one(number)
            arrived.append(time.time())

    one(0)  # before the query starts: it reads the schema from a file, which nobody may replace meanwhile
    thread = threading.Thread(target=work, daemon=True)
    thread.start()

    def done() -> list[float]:
        thread.join()
        return arrived

    return done


def delays(spark: SparkSession, contestant: Contestant, seconds: int, warm_up_s: int) -> Delays:
    """Run the query while records come; delays of the first `warm_up_s` seconds of event time do not count."""
    folder, stop = Path(tempfile.mkdtemp(prefix="tidegate-bench-latency-")), threading.Event()
    seen: list[tuple[float, list[Any]]] = []

    def take(batch: DataFrame, _number: int) -> None:
        rows = batch.selectExpr("user", "unix_millis(window.start) AS start", "count", "total").collect()
        seen.append((time.time(), rows))

    (folder / "in").mkdir()
    try:
        arrivals = produce(folder / "in", seconds, stop)
        with settings(spark, contestant.settings_in(spark)):
            writer = contestant.frame(spark, folder / "in").writeStream.outputMode("append")
            query = writer.option("checkpointLocation", str(folder / "checkpoint")).foreachBatch(take).start()
        arrived = arrivals()
        last = (seconds * 1000 // EVERY_MS - 1) * EVERY_MS // SIZE_MS * SIZE_MS - SIZE_MS + FIRST_MS
        _wait(query, lambda: any(row["start"] == last for _, rows in seen for row in rows))
        # Spark logs a thousand lines if it is stopped during a batch in Python.
        query.processAllAvailable()
        query.stop()
    finally:
        stop.set()
        shutil.rmtree(folder, ignore_errors=True)
    ms, found = [], {}
    for at, rows in seen:
        for row in rows:
            found[row["user"], row["start"]] = (row["count"], row["total"])
            closes = row["start"] + SIZE_MS - FIRST_MS
            if closes >= warm_up_s * 1000:
                ms.append(1000 * (at - arrived[closes // EVERY_MS]))
    return Delays(ms, found, len(seen))


def _wait(query: Any, reached: Callable[[], bool], seconds: int = 180) -> None:
    until = time.monotonic() + seconds
    while not reached():
        if (error := query.exception()) is not None:
            raise error
        if time.monotonic() > until:
            raise AssertionError(f"the last window did not close within {seconds} s")
        time.sleep(0.05)


class Latency:
    name = "W10"
    title = f"delay of final results, {RATE:,} records/s, a batch as soon as there is something; ms"

    def measure(self, spark: SparkSession, options: Options, folder: Path) -> dict[str, Any]:
        seconds, warm_up_s = SECONDS[options.size], WARM_UP_S[options.size]
        chosen = [each for each in CONTESTANTS if options.wants(each.name)]
        runs: dict[str, list[Delays]] = {each.name: [] for each in chosen}
        for turn in range((options.repeat or TURNS[options.size]) + 1):
            for contestant in chosen:
                one = delays(spark, contestant, seconds, warm_up_s)
                if turn:  # Java compiles in the first
                    runs[contestant.name].append(one)
        wanted = runs[chosen[0].name][0].rows
        for contestant in chosen:
            if any(one.rows != wanted for one in runs[contestant.name]):
                raise AssertionError(f"{contestant.label} gave other rows than {chosen[0].label}")
        agreed = f"{len(wanted):,} rows, equal in every run of {len(chosen)} contestants"
        say(f"  {agreed}\n  {'':40} {'p50':>8} {'p99':>8} {'ms a batch':>11}")
        found = {}
        for contestant in chosen:
            ms = np.concatenate([one.ms for one in runs[contestant.name]])
            p50, p99 = (round(float(np.percentile(ms, q)), 1) for q in (50, 99))
            batch_ms = round(
                1000 * seconds * len(runs[contestant.name]) / sum(one.batches for one in runs[contestant.name])
            )
            found[contestant.name] = {"label": contestant.label, "p50_ms": p50, "p99_ms": p99, "batch_ms": batch_ms}
            say(f"  {contestant.label:40} {p50:8,.0f} {p99:8,.0f} {batch_ms:11,}")
        return {"contestants": found, "agreement": {"timed runs": agreed}, "bars": _judged(found)}


def _judged(found: dict[str, dict[str, Any]]) -> list[dict[str, Any]]:
    others = [name for name in SPARKS_OWN if name in found]
    verdicts = []
    for name in ("tidegate", "tidegate_files"):
        if name not in found or not others:
            continue
        times = round(found[name]["p99_ms"] / min(found[other]["p99_ms"] for other in others), 2)
        verdict = "reached" if times <= BAR else "NOT reached"
        say(f"  {name}: its p99 is {times:.2f} times that of Spark's faster store; the bar of {BAR} is {verdict}")
        verdicts.append({"contestant": name, "others": others, "times": times, "at_most": BAR})
    return verdicts


W10 = Latency()
