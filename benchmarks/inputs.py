"""The input of a benchmark: micro-batches of two Parquet files, made from a seed."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

Int64s = npt.NDArray[np.int64]

SIZE_MS = 120_000
GRACE_MS = 30_000
HALVES = 2
"""Source partitions, with one file each per micro-batch: Spark reads a file in one task, and there are two cores."""

FIRST_MS = 1_767_225_600_000  # 2026-01-01T00:00:00Z, where a window starts
DISORDER_MS = 20_000  # below the grace: out of order, never late
LATE_BY_MS = (SIZE_MS, 2 * SIZE_MS)


@dataclass(frozen=True)
class Shape:
    """Parameters of a generated input; equal shapes give equal files."""

    keys: int
    rows: int
    """Rows of one micro-batch."""
    batches: int
    late_share: float = 0.0
    batch_span_ms: int = 60_000
    """Event time of a micro-batch; with half a window, every second batch closes a window."""
    seed: int = 2026


@dataclass(frozen=True)
class Half:
    """The columns of one file; keys are numbers."""

    batch: int
    partition: int
    key: Int64s
    ts_ms: Int64s
    amount: Int64s
    offset: Int64s


def halves(shape: Shape) -> Iterator[Half]:
    """The files of `shape` in the order in which they are read."""
    rng = np.random.default_rng(shape.seed)
    rows = shape.rows // HALVES
    for batch in range(shape.batches):
        for partition in range(HALVES):
            yield Half(
                batch=batch,
                partition=partition,
                key=rng.integers(0, shape.keys, rows),
                ts_ms=_timestamps(shape, rng, batch, rows),
                amount=rng.integers(1, 10_000, rows),
                offset=np.arange(batch * rows, (batch + 1) * rows, dtype=np.int64),
            )


def _timestamps(shape: Shape, rng: np.random.Generator, batch: int, rows: int) -> Int64s:
    steady = FIRST_MS + batch * shape.batch_span_ms + np.arange(rows) * shape.batch_span_ms // rows
    ts = steady - rng.integers(0, DISORDER_MS, rows)
    late = rng.random(rows) < shape.late_share
    ts[late] -= rng.integers(*LATE_BY_MS, rows)[late]
    # No time before the first window: epoch milliseconds stay positive and windows aligned.
    return np.asarray(np.maximum(ts, FIRST_MS), dtype=np.int64)


def write(shape: Shape, folder: Path) -> Path:
    """Write `shape` as Parquet to a folder below `folder`, unless that was done before; returns the folder."""
    names = pa.array(key_names(np.arange(shape.keys)))
    name = "-".join(f"{name}={value}" for name, value in asdict(shape).items())
    return write_halves(folder / name, (_table(half, names) for half in halves(shape)))


def sized(shapes: dict[str, Shape]) -> Callable[[str, Path], Path]:
    """A function (size of the measurement, folder) that writes the shape of that size and returns its folder."""
    return lambda size, folder: write(shapes[size], folder)


def write_halves(target: Path, tables: Iterable[pa.Table]) -> Path:
    """Write one file per table, HALVES of which are a micro-batch, unless that was done before."""
    return write_files(target, tables, HALVES)


def write_files(target: Path, tables: Iterable[pa.Table], files: int, row_group: int | None = None) -> Path:
    """Write one file per table, `files` of which are a micro-batch, unless that was done before."""
    done = target.with_name(f"{target.name}.done")
    if done.exists():
        return target
    target.mkdir(parents=True, exist_ok=True)
    for number, table in enumerate(tables):
        path = target / f"batch-{number // files:04d}-{number % files}.parquet"
        pq.write_table(table, path, row_group_size=row_group)
        # The file source reads by modification time: all files of a batch have the same second.
        os.utime(path, (FIRST_MS // 1000 + number // files,) * 2)
    done.touch()
    return target


def batch_of(path: Path) -> str:
    """The part of a file name that is the same in a micro-batch; it sorts in the order of the micro-batches."""
    return path.name.rpartition("-")[0]


def key_names(keys: Int64s) -> list[str]:
    return [f"user-{key:07d}" for key in keys.tolist()]


def table(user: pa.Array, ts_ms: Int64s, amount: Int64s, partition: int, first_offset: int) -> pa.Table:
    """The columns of a file; offsets are consecutive from `first_offset` on."""
    rows = len(ts_ms)
    return pa.table(
        {
            "user": user,
            "ts": pa.array(ts_ms * 1000, pa.timestamp("us", tz="UTC")),
            "amount": pa.array(amount),
            "partition": pa.array(np.full(rows, partition, dtype=np.int32)),
            "offset": pa.array(np.arange(first_offset, first_offset + rows)),
        }
    )


def _table(half: Half, names: pa.Array) -> pa.Table:
    return table(names.take(pa.array(half.key)), half.ts_ms, half.amount, half.partition, int(half.offset[0]))
