"""The command line of a peer's program, and the one line that the program prints at its end.

The programs import this module in environments of their own, which have only numpy and pyarrow for certain.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from importlib.metadata import version
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

READ_ROWS = 512
"""Rows that a program reads at a time from Parquet by Arrow: 3 s of event time in the smallest input."""


@dataclass(frozen=True)
class Task:
    input: Path
    """A folder with the files of `benchmarks.inputs`, or of a join with the folders of `benchmarks.two_sides`."""
    output: Path
    """An empty folder for the final rows, as .csv or Parquet: user, start (ms), count, total; of a join user, amount
    and price."""
    parallelism: int
    warm_up_rows: int
    """Rows of the warm-up, which are not counted."""
    state: str
    """The state backend of a program that has the choice."""
    jars: tuple[Path, ...] = ()
    window_ms: int = 0
    """Of a join: records at most this far apart are pairs."""

    def halves(self) -> list[tuple[Path, ...]]:
        """The files by source partition, each in the order in which it is read."""
        files = sorted(self.input.glob("*.parquet"))
        numbers = sorted({_partition(path) for path in files})
        return [tuple(path for path in files if _partition(path) == number) for number in numbers]

    def rows(self) -> int:
        """Number of rows of all files."""
        return sum(pq.read_metadata(path).num_rows for half in self.halves() for path in half)


@dataclass(frozen=True)
class Report:
    """The time of a program, from its first row read (or the start of its job) to its last result."""

    rows: int
    seconds: float
    warm: tuple[int, float] | None
    """(rows, seconds) at a moment when the program had read at least its `warm_up_rows`; None: unknown."""
    versions: dict[str, str] = field(default_factory=dict)
    settings: dict[str, str] = field(default_factory=dict)

    @property
    def rate(self) -> float:
        """Rows per second after `warm`."""
        rows, seconds = self.warm or (0, 0.0)
        return (self.rows - rows) / (self.seconds - seconds)

    def say(self) -> None:
        print(json.dumps(asdict(self)), flush=True)

    @staticmethod
    def parsed(output: str) -> Report:
        """From the output of a program; raises ValueError if its last line is not from `say`."""
        fields = json.loads((output.splitlines() or [""])[-1])
        warm = fields.pop("warm")
        return Report(**fields, warm=None if warm is None else (int(warm[0]), float(warm[1])))


def task() -> Task:
    """The task of this program, from its command line."""
    parser = argparse.ArgumentParser()
    parser.add_argument("input", type=Path)
    parser.add_argument("output", type=Path)
    parser.add_argument("--parallelism", type=int, default=2)
    parser.add_argument("--warm-up-rows", type=int, default=0)
    parser.add_argument("--state", default="")
    parser.add_argument("--window-ms", type=int, default=0)
    parser.add_argument("--jars", type=lambda jars: tuple(map(Path, filter(None, jars.split(os.pathsep)))), default=())
    return Task(**vars(parser.parse_args()))


def command(task: Task) -> list[str]:
    """The arguments that `task()` reads."""
    options = {
        "--parallelism": task.parallelism,
        "--warm-up-rows": task.warm_up_rows,
        "--state": task.state,
        "--window-ms": task.window_ms,
        "--jars": os.pathsep.join(map(str, task.jars)),
    }
    return [str(task.input), str(task.output), *(f"{name}={value}" for name, value in options.items())]


def pieces(files: tuple[Path, ...]) -> Iterator[pa.RecordBatch]:
    """The columns user, ts and amount of `files`, READ_ROWS rows at a time."""
    for path in files:
        with pq.ParquetFile(path) as file:
            yield from file.iter_batches(READ_ROWS, columns=["user", "ts", "amount"])


def millis(ts: pa.Array | pa.ChunkedArray) -> pa.Array | pa.ChunkedArray:
    """Epoch milliseconds of UTC timestamps of any unit."""
    return ts.cast(pa.timestamp("ms", ts.type.tz), safe=False).cast(pa.int64())


def installed(*packages: str) -> dict[str, str]:
    return {"python": platform.python_version(), **{name: version(name) for name in packages}}


def _partition(path: Path) -> str:
    return path.stem.rsplit("-", 1)[1]
