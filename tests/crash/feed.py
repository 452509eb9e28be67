"""Input files with disorder, and a comparison of the rows in a sink with the rows of the test driver.

The driver takes one batch per file, and nothing fails in it.
"""

from __future__ import annotations

import os
import random
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from crash.pipeline import SCHEMA, stream, topology
from tidegate.testing import TopologyTestDriver

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
FIRST_FILE_S = 1_600_000_000
ROWS, KEYS, PARTITIONS = 400, 20, 2

Row = dict[str, Any]


@dataclass
class Compared:
    """Comparison of the rows in a sink with the expected rows, counted in `expected` by kind; no kind may be empty."""

    expected: Mapping[str, int]
    missing: int
    twice_or_wrong: int

    @property
    def right(self) -> bool:
        return not self.missing and not self.twice_or_wrong and all(self.expected.values())

    def __str__(self) -> str:
        kinds = " and ".join(f"{n} {kind}" for kind, n in self.expected.items())
        return f"{kinds} expected: {self.missing} missing, {self.twice_or_wrong} twice or wrong"


def compared(wanted: Counter[Any], got: Counter[Any], expected: Mapping[str, int]) -> Compared:
    return Compared(expected, (wanted - got).total(), (got - wanted).total())


def put(rows: list[Row], schema: pa.Schema, folder: Path, number: int) -> None:
    """Add a file of these rows atomically; the source takes the file with the lowest number first."""
    stamps = [{**row, "ts": EPOCH + timedelta(milliseconds=row["ts"])} for row in rows]
    hidden = folder / f".{number:06}.parquet"
    pq.write_table(pa.Table.from_pylist(stamps, schema), hidden)
    os.utime(hidden, (FIRST_FILE_S + number, FIRST_FILE_S + number))
    hidden.rename(hidden.with_name(hidden.name[1:]))


@dataclass
class Feed:
    """Files for the pipeline in `folder`/in, one per micro-batch; `random` decides their records."""

    folder: Path
    random: random.Random
    files: list[list[Row]] = field(default_factory=list, init=False)

    def __post_init__(self) -> None:
        self._offsets = [0] * PARTITIONS
        (self.folder / "in").mkdir()

    def write(self, files: int, *, closing: bool = False) -> None:
        """Write `files` more files; a closing file is late enough to close every window before it."""
        for _ in range(files):
            number = len(self.files)
            rows = [self._row(number, row) for row in range(ROWS)]
            if closing:
                rows = [self._row(number + 100, row) for row in range(PARTITIONS)]
            self.files.append(rows)
            put(rows, SCHEMA, self.folder / "in", number)

    def topology(self) -> Any:
        """The pipeline's topology over an unbound input."""
        return topology(stream("events"))

    def driver(self) -> TopologyTestDriver:
        """A driver that has seen all files."""
        driver = TopologyTestDriver(self.topology())
        for rows in self.files:
            driver.pipe_batch(rows)
        return driver

    def compared(self, result: Path) -> Compared:
        """Compares the rows of the Parquet file `result` with the rows of the driver."""
        wanted = Counter(_told(row) for row in self.driver().read_output())
        got = Counter(_told(row) for row in pq.read_table(result).to_pylist())
        outputs = Counter(row[0] for row in wanted.elements())
        return compared(wanted, got, {"final results": outputs["final"], "late records": outputs["late"]})

    def _row(self, number: int, row: int) -> Row:
        """A record; files are four seconds apart and records up to twenty seconds behind, so some records are late."""
        partition = row % PARTITIONS
        offset = self._offsets[partition]
        self._offsets[partition] += 1
        behind = self.random.choice((0, 0, 1_000, 4_000, 20_000))
        return {
            "k": f"key-{self.random.randrange(KEYS)}",
            "v": self.random.randrange(1_000),
            "ts": 100_000 + number * 4_000 + self.random.randrange(4_000) - behind,
            "partition": partition,
            "offset": offset,
        }


def _told(row: Row) -> tuple[Any, ...]:
    """Columns of a row of either output, comparable between Spark and the driver."""
    window = row["window"]
    start = window["start"] if isinstance(window, dict) else window.start
    names = ("output", "k", "n", "total", "last", "v", "offset", "partition", "reason", "late_by")
    return (*(plain(row.get(name)) for name in names), plain(start), plain(row.get("timestamp")))


def plain(value: Any) -> Any:
    """Instants as milliseconds, as in the driver."""
    if isinstance(value, datetime):
        aware = value if value.tzinfo else value.replace(tzinfo=UTC)
        return (aware - EPOCH) // timedelta(milliseconds=1)
    return value
