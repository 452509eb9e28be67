"""The input of a join: two folders of files, left and right, whose micro-batches come at the same times.

Event time goes on from batch to batch, with a few seconds of disorder and no late records. The last micro-batch has one
pair of records per partition, so far ahead that it closes all earlier records: after it every contestant has emitted
all null-joined rows. Files of a side have names and times as in `inputs`.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa

from benchmarks.inputs import FIRST_MS, HALVES, Int64s, key_names, table, write_halves

SIDES = ("left", "right")
VALUES = ("amount", "price")
"""The value column of each side."""

GRACE_MS = 10_000
DISORDER_MS = 3_000
"""Below the grace: out of order, never late."""
AFTER_ALL_MS = 60_000


@dataclass(frozen=True)
class Stretch:
    """Equal micro-batches: their number, and the rows of a side and the event time (ms) of each."""

    batches: int
    rows: int
    span_ms: int


@dataclass(frozen=True)
class Shape:
    """Parameters of a generated input; equal shapes give equal files."""

    keys: int
    window_ms: int
    """Records at most this far apart are pairs."""
    stretches: tuple[Stretch, ...]
    seed: int = 2026
    hot_percent: tuple[int, int] = (0, 0)
    """Percentage of the records of each side that have the first key, besides its share of the others."""

    @property
    def batches(self) -> list[Stretch]:
        """A stretch for each micro-batch, without the closing one."""
        return [Stretch(1, each.rows, each.span_ms) for each in self.stretches for _ in range(each.batches)]

    @property
    def name(self) -> str:
        """The name of its folder."""
        stretches = "_".join(f"{each.batches}x{each.rows}x{each.span_ms}" for each in self.stretches)
        hot = "-hot-{}-{}".format(*self.hot_percent) if any(self.hot_percent) else ""
        return f"joins-{self.keys}-{self.window_ms}-{stretches}-{self.seed}{hot}"


@dataclass(frozen=True)
class Half:
    """The columns of one file; keys are numbers."""

    partition: int
    key: Int64s
    ts_ms: Int64s
    value: Int64s
    first_offset: int


def span_for(pairs: float, rows: int, keys: int, window_ms: int) -> int:
    """Event time (ms) of a batch in which a record has about `pairs` partners."""
    return round(rows / keys * 2 * window_ms / pairs)


def halves(shape: Shape, side: int) -> Iterator[Half]:
    """The files of one side in the order in which they are read; the last HALVES are the closing micro-batch."""
    began_ms, offset = FIRST_MS, 0
    for batch, of in enumerate(shape.batches):
        rows = of.rows // HALVES
        for partition in range(HALVES):
            # A generator of its own for each file: a longer shape has the first batches of a shorter one.
            rng = np.random.default_rng([shape.seed, batch, side, partition])
            ts_ms = began_ms + np.arange(rows) * of.span_ms // rows - rng.integers(0, DISORDER_MS, rows)
            key = rng.integers(0, shape.keys, rows)
            value = rng.integers(1, 10_000, rows)
            key[rng.integers(0, 100, rows) < shape.hot_percent[side]] = 0
            yield Half(
                partition=partition,
                key=key,
                ts_ms=np.maximum(ts_ms, FIRST_MS),
                value=value,
                first_offset=offset,
            )
        began_ms += of.span_ms
        offset += rows
    closing = np.array([began_ms + shape.window_ms + 2 * GRACE_MS + AFTER_ALL_MS])
    for partition in range(HALVES):
        yield Half(partition, np.array([partition]), closing, np.array([1]), offset)


def write(shape: Shape, folder: Path) -> Path:
    """Write both sides of `shape` as Parquet below `folder`, unless that was done before; returns their folder."""
    target = folder / shape.name
    if all((target / f"{side}.done").exists() for side in SIDES):
        return target
    names = pa.array(key_names(np.arange(shape.keys)))
    for side, (name, value) in enumerate(zip(SIDES, VALUES, strict=True)):
        write_halves(target / name, (_table(half, names, value) for half in halves(shape, side)))
    return target


def _table(half: Half, names: pa.Array, value: str) -> pa.Table:
    rows = table(names.take(pa.array(half.key)), half.ts_ms, half.value, half.partition, half.first_offset)
    return rows.rename_columns([value if name == "amount" else name for name in rows.column_names])


def first(files: Path, batches: int | None) -> Path:
    """A folder with the first `batches` micro-batches of `files` and the closing one; None: all."""
    of_side = {side: sorted((files / side).glob("*.parquet")) for side in SIDES}
    if batches is None or (batches + 1) * HALVES >= len(of_side[SIDES[0]]):
        return files
    target = files.with_name(f"{files.name}-first-{batches}")
    for side, paths in of_side.items():
        (target / side).mkdir(parents=True, exist_ok=True)
        for path in [*paths[: batches * HALVES], *paths[-HALVES:]]:
            if not (target / side / path.name).exists():
                os.link(path, target / side / path.name)
    return target
