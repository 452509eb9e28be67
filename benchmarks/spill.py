"""The cost of a suppression that spills: time of small batches on few and on many buffered keys, and memory.

Keys are buffered by a time limit with `max_bytes(64 MB).spill_to_disk_when_full()`. Then come batches of 10,000 updates
of random keys, and batches that also emit about as many rows. Every emitted row is compared with the expected one.
`make bench-spill` is the whole measurement, `make bench-spill BENCH_ARGS=--smoke` a trial.
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import numpy.typing as npt
import psutil
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import SparkSession

import tidegate as tg
from benchmarks.contestant import source
from benchmarks.inputs import HALVES
from benchmarks.measure import WARM_UP, sampling
from benchmarks.options import arguments, save, say, session, versions

Int64s = npt.NDArray[np.int64]

LIMIT_MS = 3_600_000
SPAN_MS = LIMIT_MS - 10_000
"""The first records of all keys are within this time, so that no key is emitted before the last one has come."""
BOUND_BYTES = 64_000_000
FIRST_FILE_S = 1_600_000_000
MOST_MIB = 400
MOST_RATIO = 1.3


@dataclass(frozen=True)
class Shape:
    """`keys` are buffered in batches of `load` rows; then `batches` of updates, and as many that emit rows."""

    keys: int
    load: int
    updates: int
    batches: int

    @property
    def leaving(self) -> int:
        """About the number of rows that a batch of the last kind emits."""
        return min(self.updates, self.keys // (4 * self.batches))


@dataclass(frozen=True)
class Found:
    """Seconds of the micro-batches of each kind, the largest memory of each process, and the number of emitted rows."""

    keys: int
    load_rows_per_s: float
    update_s: list[float]
    leave_s: list[float]
    left: int
    processes_mib: dict[str, float]

    @property
    def update_median_s(self) -> float:
        return median(self.update_s[WARM_UP:])

    @property
    def leave_median_s(self) -> float:
        return median(self.leave_s[1:])

    @property
    def largest_worker_mib(self) -> float:
        return max(size for name, size in self.processes_mib.items() if name.startswith("python"))


def since(shape: Shape, key: Int64s) -> Int64s:
    return key * SPAN_MS // shape.keys


def write(shape: Shape, folder: Path) -> dict[int, int]:
    """Write the files of `shape`; returns the value of each key that must be emitted."""
    folder.mkdir(parents=True)
    rng = np.random.default_rng(2026)
    value = np.zeros(shape.keys, np.int64)
    files = offset = 0

    def batch(key: Int64s, ts: Int64s, new: Int64s) -> None:
        nonlocal files, offset
        value[key] = new  # the last value of a key wins
        for half in np.array_split(np.arange(len(key)), HALVES):
            table = pa.table(
                {
                    "key": key[half],
                    "value": new[half],
                    "ts": pa.array(ts[half] * 1000, pa.timestamp("us", "UTC")),
                    "partition": pa.array(np.zeros(len(half), np.int32)),
                    "offset": offset + half,
                }
            )
            path = folder / f"{files:06}.parquet"
            pq.write_table(table, path)
            os.utime(path, (FIRST_FILE_S + files,) * 2)
            files += 1
        offset += len(key)

    for low in range(0, shape.keys, shape.load):
        key = np.arange(low, min(low + shape.load, shape.keys))
        batch(key, since(shape, key), key)
    now = SPAN_MS
    for n in range(shape.batches):
        key = rng.integers(0, shape.keys, shape.updates)
        batch(key, np.full(len(key), now), np.arange(len(key)) - (n + 1) * 10**6)
    expected = value.copy()
    for n in range(1, shape.batches + 1):
        # Only keys that are not emitted are updated here: so the emitted values do not depend on the number of tasks.
        key = rng.integers(shape.keys // 2, shape.keys, shape.updates)
        now = LIMIT_MS + int(since(shape, np.array([n * shape.leaving]))[0])
        batch(key, np.full(len(key), now), np.arange(len(key)))
    gone = np.flatnonzero(since(shape, np.arange(shape.keys)) + LIMIT_MS <= now)
    return dict(zip(gone.tolist(), expected[gone].tolist(), strict=True))


def run(spark: SparkSession, shape: Shape, folder: Path) -> Found:
    expected = write(shape, folder / "in")
    held = tg.Suppressed.until_time_limit(
        f"{LIMIT_MS} milliseconds", tg.BufferConfig.max_bytes(BOUND_BYTES).spill_to_disk_when_full(), clock="stream"
    )
    table = tg.table(
        source(spark, folder / "in"), key="key", timestamp="ts", partition="partition", offset="offset"
    ).suppress(held)
    with _peaks() as peaks:
        query = (
            table.to_df()
            .writeStream.trigger(availableNow=True)
            .outputMode("append")
            .option("checkpointLocation", str(folder / "checkpoint"))
            .option("path", str(folder / "out"))
            .format("parquet")
            .start()
        )
        query.awaitTermination()
    progress = [json.loads(each.json) for each in query.recentProgress]
    seconds = [each["durationMs"]["triggerExecution"] / 1000 for each in progress if each["numInputRows"] > 0]
    rows = spark.read.parquet(str(folder / "out")).select("key", "value").toPandas()
    _compare(dict(zip(rows["key"].tolist(), rows["value"].tolist(), strict=True)), len(rows), expected)
    update, leave = seconds[-2 * shape.batches : -shape.batches], seconds[-shape.batches :]
    loading = seconds[: -2 * shape.batches]
    timed = loading[min(WARM_UP, len(loading) - 1) :]
    return Found(shape.keys, shape.load * len(timed) / sum(timed), update, leave, len(rows), peaks)


def _compare(found: dict[int, int], rows: int, expected: dict[int, int]) -> None:
    wrong = [key for key in expected.keys() | found.keys() if expected.get(key) != found.get(key)]
    if wrong or rows != len(expected):
        raise AssertionError(f"{len(wrong)} keys are wrong, for example {wrong[:3]}; {rows} rows, not {len(expected)}")


@contextmanager
def _peaks() -> Iterator[dict[str, float]]:
    """The largest resident memory (MiB) of the JVM and of each Python worker, sampled."""
    peaks: dict[str, float] = {}

    def sample() -> None:
        for process in psutil.Process().children(recursive=True):
            try:
                # By its program: a process that the JVM forks has the name of a thread until it has started.
                name = f"{'java' if Path(process.exe()).name == 'java' else 'python'} {process.pid}"
                peaks[name] = round(max(peaks.get(name, 0.0), process.memory_info().rss / 2**20), 1)
            except (psutil.NoSuchProcess, psutil.AccessDenied):
                continue

    with sampling(sample):
        yield peaks


def show(found: list[Found], updates: int) -> None:
    say(f"\nbatches of {updates:,} updates on a buffer that spills, bound {BOUND_BYTES / 1e6:.0f} MB; seconds a batch")
    say(f"  {'keys':>12} {'load rows/s':>12} {'update':>8} {'letting out':>12} {'worker MiB':>12} {'JVM MiB':>9}")
    for each in found:
        jvm = max(size for name, size in each.processes_mib.items() if name.startswith("java"))
        say(
            f"  {each.keys:12,} {each.load_rows_per_s:12,.0f} {each.update_median_s:8.3f} {each.leave_median_s:12.3f}"
            f" {each.largest_worker_mib:12,.0f} {jvm:9,.0f}"
        )
    if len(found) > 1:
        ratios = (
            found[-1].update_median_s / found[0].update_median_s,
            found[-1].leave_median_s / found[0].leave_median_s,
        )
        say(f"  an update costs {ratios[0]:.2f} times as much, one that lets rows out {ratios[1]:.2f} times")
        say(f"  wanted: at most {MOST_RATIO} times, at most {MOST_MIB} MiB a worker. All rows were as they must be.")


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--keys", type=int, nargs="+", default=[100_000, 20_000_000])
    parser.add_argument("--load", type=int, default=250_000, help="rows of a batch while the buffer fills")
    parser.add_argument("--updates", type=int, default=10_000)
    parser.add_argument("--batches", type=int, default=12)
    arguments(parser, "spill.json").set_defaults(memory="4g")
    options = parser.parse_args(argv)
    if options.smoke:
        options.keys, options.load, options.updates, options.batches = [500, 2_000], 1_000, 100, WARM_UP + 1
    found = []
    with session(options) as spark:
        for keys in options.keys:
            shape = Shape(keys, min(options.load, keys), options.updates, options.batches)
            with tempfile.TemporaryDirectory(prefix="tidegate-spill-") as scratch:
                found.append(run(spark, shape, Path(scratch)))
            show(found[-1:], shape.updates)
        of = versions(spark)
    show(found, options.updates)
    report: dict[str, Any] = {
        "bound_bytes": BOUND_BYTES,
        "updates": options.updates,
        "runs": [
            {**asdict(each), "update_median_s": each.update_median_s, "leave_median_s": each.leave_median_s}
            for each in found
        ],
        "versions": of,
    }
    save(report, options.json)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
