"""V: W1 over inputs that differ in one thing each: keys, source partitions, files, row groups, columns, order."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path

import numpy as np
import pyarrow as pa

from benchmarks.contestant import BARE_MAP, SPARKS_OWN, ours, sparks_own
from benchmarks.inputs import DISORDER_MS, FIRST_MS, HALVES, Int64s, key_names, table, write_files
from benchmarks.race import Bar, Race
from benchmarks.workloads import tumbling

KEYS = 100_000
ROWS = {"smoke": 4_800, "default": 960_000, "full": 960_000}
"""Rows of a micro-batch, which spans a minute."""
BATCHES = {"smoke": 3, "default": 6, "full": 10}
SPAN_MS = 60_000
HOT_SHARE = 0.2
ZIPF = 1.2


@dataclass(frozen=True)
class Input:
    """The layout of a micro-batch."""

    keys: str = "uniform"
    """uniform, zipf, or hot (one key has a fifth of the rows)."""
    partitions: int = 4
    """Source partitions; several per file or several files per partition: one number divides the other."""
    files: int = HALVES
    row_group: int = 1_000_000
    """The largest number of rows in a row group of a file."""
    payload: int = 0
    """Number of columns that no contestant reads."""
    disorder_ms: int = DISORDER_MS


INPUTS = {
    "V-partitions-2": ("2 source partitions, a file each", Input(partitions=2)),
    "V-partitions-4": ("4 source partitions, two in a file", Input()),
    "V-partitions-16": ("16 source partitions, a file each", Input(partitions=16, files=16)),
    "V-files": ("4 source partitions in 8 files with row groups of 20,000", Input(files=8, row_group=20_000)),
    "V-zipf": ("keys by Zipf's law", Input(keys="zipf")),
    "V-hot": ("one key has a fifth of the rows", Input(keys="hot")),
    "V-wide": ("12 columns, of which 3 are read", Input(payload=9)),
    "V-sorted": ("timestamps in order", Input(disorder_ms=0)),
}


def write(of: Input, size: str, folder: Path) -> Path:
    """The folder of the files of `of`; written once."""
    name = "-".join(f"{name}={value}" for name, value in asdict(of).items())
    tables = _files(of, ROWS[size], BATCHES[size])
    return write_files(folder / f"varied-{size}-{name}", tables, of.files, of.row_group)


def _files(of: Input, rows: int, batches: int) -> Iterator[pa.Table]:
    """A table per file, of parts: each has rows of one partition, whose offsets go on from part to part."""
    rng = np.random.default_rng(2026)
    names = pa.array(key_names(np.arange(KEYS)))
    parts = max(of.partitions, of.files)
    each = rows // parts
    for batch in range(batches):
        files: list[list[pa.Table]] = [[] for _ in range(of.files)]
        for part in range(parts):
            turn, partition = divmod(part, of.partitions)
            turns = parts // of.partitions
            first = (batch * turns + turn) * each
            # The parts of a partition are consecutive in event time too.
            steady = FIRST_MS + batch * SPAN_MS + (turn * each + np.arange(each)) * SPAN_MS // (turns * each)
            ts_ms = np.maximum(steady - rng.integers(0, of.disorder_ms + 1, each), FIRST_MS)
            user = names.take(pa.array(_keys(of, rng, each)))
            made = table(user, ts_ms, rng.integers(1, 10_000, each), partition, first)
            for number in range(of.payload):
                made = made.append_column(f"payload_{number}", pa.array(rng.random(each)))
            files[part % of.files].append(made)
        yield from (_mixed(parts_of_file) for parts_of_file in files)


def _keys(of: Input, rng: np.random.Generator, rows: int) -> Int64s:
    if of.keys == "zipf":
        return np.asarray(rng.zipf(ZIPF, rows) % KEYS, dtype=np.int64)
    keys = rng.integers(0, KEYS, rows)
    if of.keys == "hot":
        keys[rng.random(rows) < HOT_SHARE] = 0
    return keys


def _mixed(parts: list[pa.Table]) -> pa.Table:
    """The rows of `parts` in turn, as if the partitions were read together."""
    whole = pa.concat_tables(parts)
    rows = parts[0].num_rows
    return whole.take(pa.array(np.arange(whole.num_rows).reshape(len(parts), rows).T.ravel()))


def _race(name: str, title: str, of: Input) -> Race:
    contestants = (
        *ours(tumbling.final_totals, files=of.files),
        *sparks_own(partial(tumbling.spark_native, files=of.files)),
        tumbling.floor(of.files),
    )
    bars = (Bar(2.0, SPARKS_OWN), Bar(0.85, (BARE_MAP,), ("tidegate",)))
    return Race(name, f"W1 over {title}", partial(write, of), contestants, bars)


VARIED = tuple(_race(name, title, of) for name, (title, of) in INPUTS.items())
