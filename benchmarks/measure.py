"""Runs one streaming query to the end of its input and measures its time and memory."""

from __future__ import annotations

import json
import os
import shutil
import tempfile
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

import psutil
import pyarrow.parquet as pq
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.query import StreamingQuery

from benchmarks.contestant import Contestant
from benchmarks.inputs import batch_of
from benchmarks.two_sides import SIDES

WARM_UP = 2
"""Batches that are not counted: the first starts the Python workers, the second still compiles."""
SAMPLE_S = 0.25
QUIET_PERCENT = 20
"""Use of the CPU before a run; above it something else runs, and the numbers mean little."""
QUIET_S = 0.4
LONGEST_WAIT_S = 5.0
"""A run waits so long for the processors: Java still compiles and collects what the run before it has left."""


@dataclass(frozen=True)
class Digest:
    """Digest of emitted rows in any order: their number, and the sum and the exclusive or of their hashes."""

    rows: int = 0
    total: int = 0
    xor: int = 0

    @staticmethod
    def all(digests: list[Digest]) -> Digest:
        whole = Digest()
        for one in digests:
            whole = Digest(whole.rows + one.rows, whole.total + one.total, whole.xor ^ one.xor)
        return whole


@dataclass(frozen=True)
class Run:
    """Rows and seconds of each micro-batch with input, digests, the largest memory (MiB), and the CPU use before (%).

    worker_mib is the largest Python worker (resident), python_mib all workers (shared memory counted once), own_mib the
    largest worker without shared memory.
    """

    rows: list[int]
    seconds: list[float]
    digests: list[Digest]
    """One per micro-batch, also for those without input at the end."""
    jvm_mib: float
    python_mib: float
    worker_mib: float
    busy_before_percent: float
    own_mib: float = 0.0

    @property
    def timed_rates(self) -> list[float]:
        return [rows / seconds for rows, seconds in zip(self.rows[WARM_UP:], self.seconds[WARM_UP:], strict=True)]

    @property
    def rate(self) -> float:
        """Rows per second over all timed batches together: expensive batches, which close a window, and cheap ones."""
        return sum(self.rows[WARM_UP:]) / sum(self.seconds[WARM_UP:])

    @property
    def median_rate(self) -> float:
        return median(self.timed_rates)


@contextmanager
def settings(spark: SparkSession, wanted: dict[str, str]) -> Iterator[None]:
    """Set `wanted` in the session meanwhile. A query keeps the settings of its start, so a start is enough."""
    before = {name: spark.conf.get(name, None) for name in wanted}
    for name, value in wanted.items():
        spark.conf.set(name, value)
    try:
        yield
    finally:
        for name, old in before.items():
            if old is None:
                spark.conf.unset(name)
            else:
                spark.conf.set(name, old)


@contextmanager
def finished(spark: SparkSession, contestant: Contestant, folder: Path, **sink: str) -> Iterator[StreamingQuery]:
    """The finished query of `contestant` over all files in `folder`; its checkpoint is deleted afterwards."""
    checkpoint = tempfile.mkdtemp(prefix="tidegate-bench-")
    try:
        with settings(spark, contestant.settings_in(spark)):
            frame = contestant.frame(spark, folder)
            writer = (digested(frame) if contestant.answers else frame).writeStream.trigger(availableNow=True)
            writer = writer.outputMode(contestant.mode).option("checkpointLocation", checkpoint)
            for option, value in sink.items():
                writer = writer.queryName(value) if option == "name" else writer.format(value)
            query = writer.start()
            query.awaitTermination()
        yield query
    finally:
        shutil.rmtree(checkpoint, ignore_errors=True)


def digested(frame: DataFrame) -> DataFrame:
    """`frame` with the digest of its rows in the metrics of each micro-batch."""
    return frame.observe("digest", *_digesting(frame))


def digest_of(frame: DataFrame) -> Digest:
    """The digest of the rows of a static frame."""
    (row,) = frame.agg(*_digesting(frame)).collect()
    return Digest(row["rows"], row["total"] or 0, row["xor"] or 0)


def _digesting(frame: DataFrame) -> list[Column]:
    whole = F.xxhash64(*frame.columns)
    return [
        F.count(F.lit(1)).alias("rows"),
        F.sum(whole.bitwiseAND(F.lit(0xFFFFFFFF))).alias("total"),
        F.bit_xor(whole).alias("xor"),
    ]


def run(spark: SparkSession, contestant: Contestant, folder: Path) -> Run:
    busy = busy_when_quiet()
    with peaks() as peak, finished(spark, contestant, folder, format="noop") as query:
        progress = progress_of(query)
    if contestant.ends_workers:
        end_workers()
    batches = [each for each in progress if each["numInputRows"] > 0]
    return Run(
        rows=rows_of(folder),
        seconds=[each["durationMs"]["triggerExecution"] / 1000 for each in batches],
        digests=[digest(each) for each in progress],
        jvm_mib=peak["java"],
        python_mib=peak["python"],
        worker_mib=peak["worker"],
        busy_before_percent=busy,
        own_mib=peak["own"],
    )


def busy_when_quiet() -> float:
    """The use of the CPU (%) in the last QUIET_S, after a wait of up to LONGEST_WAIT_S until little else runs."""
    latest = time.monotonic() + LONGEST_WAIT_S
    while (busy := psutil.cpu_percent(QUIET_S)) > QUIET_PERCENT and time.monotonic() < latest:
        pass
    return busy


def progress_of(query: StreamingQuery) -> list[dict[str, Any]]:
    """Spark's progress report of each micro-batch."""
    return [json.loads(_as_json(each)) for each in query.recentProgress]


def digest(progress: dict[str, Any]) -> Digest:
    observed = progress.get("observedMetrics", {}).get("digest", {})
    return Digest(observed.get("rows") or 0, observed.get("total") or 0, observed.get("xor") or 0)


def rows_of(folder: Path) -> list[int]:
    """Number of rows of each micro-batch, of both sides if there are two. Spark counts files if it reads no rows."""
    sides = [side for name in SIDES if (side := folder / name).is_dir()] or [folder]
    rows: dict[str, int] = defaultdict(int)
    for path in (path for side in sides for path in side.glob("*.parquet")):
        rows[batch_of(path)] += pq.read_metadata(path).num_rows
    return [rows[batch] for batch in sorted(rows)]


def _as_json(progress: Any) -> str:
    return str(progress.json) if hasattr(progress, "json") else json.dumps(progress)


@contextmanager
def peaks(*of: psutil.Process) -> Iterator[dict[str, float]]:
    """The largest memory (MiB), sampled, of the processes that this one started, or of `of` and their children.

    `java` is the JVM (resident), `worker` the largest Python worker (resident), `python` all workers (shared memory
    counted once), `own` the largest worker without shared memory. Memory that an earlier query left to the JVM, and
    workers that Spark keeps for reuse, are included.
    """
    peak = {"java": 0.0, "python": 0.0, "worker": 0.0, "own": 0.0}

    def sample() -> None:
        now = _resident(of)
        for kind, before in peak.items():
            peak[kind] = max(before, now[kind])

    with sampling(sample):
        yield peak


@contextmanager
def sampling(sample: Callable[[], None]) -> Iterator[None]:
    """Call `sample` every SAMPLE_S seconds, in a thread of its own."""
    stop = threading.Event()

    def run() -> None:
        while not stop.wait(SAMPLE_S):
            sample()

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


def end_workers() -> None:
    """End the Python workers, which have nothing to do between two queries. The next query starts new ones."""
    of_java = {one.pid for one in _family(()) if _is_java(one)}
    ended = []
    for process in _family(()):
        # Workers are forked by daemons, which the JVM starts.
        with suppress(psutil.NoSuchProcess):
            if process.pid not in of_java and process.ppid() not in {*of_java, os.getpid()}:
                process.kill()
                ended.append(process)
    psutil.wait_procs(ended, timeout=10)


def _is_java(process: psutil.Process) -> bool:
    """Whether it is a JVM, by its program: a process that the JVM forks has another name until it has started."""
    try:
        return Path(process.exe()).name == "java"
    except (psutil.NoSuchProcess, psutil.AccessDenied):
        return False


def _resident(of: tuple[psutil.Process, ...]) -> dict[str, float]:
    found = {"java": 0.0, "python": 0.0, "worker": 0.0, "own": 0.0}
    for process in _family(of):
        try:
            if _is_java(process):
                found["java"] += process.memory_info().rss / 2**20
            else:
                full = process.memory_full_info()
                # Linux reports the share of a process in pages that forked workers share.
                found["python"] += getattr(full, "pss", full.rss) / 2**20
                found["worker"] = max(found["worker"], full.rss / 2**20)
                found["own"] = max(found["own"], full.uss / 2**20)
        except (psutil.NoSuchProcess, psutil.AccessDenied):
            continue
    return found


def _family(of: tuple[psutil.Process, ...]) -> list[psutil.Process]:
    if not of:
        return psutil.Process().children(recursive=True)
    found = []
    for one in of:
        try:
            found += [one, *one.children(recursive=True)]
        except psutil.NoSuchProcess:
            continue
    return found
