"""Files of two joined streams, and a comparison of the rows in a sink with the rows of the oracle.

A batch takes a file of each stream, or of one stream while the other has none. The checkpoint names the files: Spark
writes them before the batch, and each attempt takes the same ones. The oracle gets batches of the same files.
"""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow.parquet as pq

from crash.feed import PARTITIONS, Compared, Row, compared, plain, put
from crash.join_pipeline import AFTER_MS, BEFORE_MS, GRACE_MS, SIDES, schema
from oracle_join_batches import Arrival, JoinInBatches
from oracle_joins import JoinedRow, StreamJoin

ROWS, KEYS = 100, 200
"""Few records and many keys, so that some records find no partner."""


@dataclass
class JoinFeed:
    """Files for the pipeline in `folder`/in/left and `folder`/in/right; `random` decides their records."""

    folder: Path
    random: random.Random
    files: list[dict[str, list[Row]]] = field(default_factory=list, init=False)
    drops: Counter[str] = field(default_factory=Counter, init=False)

    def __post_init__(self) -> None:
        self._offsets: Counter[tuple[str, int]] = Counter()
        self._records: Counter[str] = Counter()
        for side in SIDES:
            (self.folder / "in" / side).mkdir(parents=True)

    def write(self, files: int, *, closing: bool = False) -> None:
        """Write `files` more files of each stream; a closing file is late enough to close every record before it."""
        for _ in range(files):
            number = len(self.files)
            rows, at = (PARTITIONS, number + 100) if closing else (ROWS, number)
            made = {side: [self._row(side, at, row, closing) for row in range(rows)] for side in SIDES}
            self.files.append(made)
            for side in SIDES:
                put(made[side], schema(side), self.folder / "in" / side, number)

    def compared(self, result: Path) -> Compared:
        """Compares the rows of the Parquet file `result` with the oracle's rows, in the batches of the checkpoint."""
        wanted = Counter(self.wanted(taken(self.folder / "checkpoint")))
        rows = pq.read_table(result).to_pylist()
        got = Counter(JoinedRow(row["k"], row["left"], row["right"], plain(row["timestamp"])) for row in rows)
        alone = sum(n for row, n in wanted.items() if row.right is None)
        return compared(wanted, got, {"pairs": wanted.total() - alone, "null-joined rows": alone})

    def wanted(self, cuts: Sequence[tuple[int, ...]]) -> list[JoinedRow]:
        """Rows that must be emitted if each batch ends with these numbers of left and right files."""
        rows, before = [], (0,) * len(SIDES)
        oracle = JoinInBatches(lambda: StreamJoin(BEFORE_MS, AFTER_MS, GRACE_MS, "left"))
        for cut in cuts:
            rows += oracle.batch(self._arrivals(before, cut))
            before = cut
        assert before == (len(self.files),) * len(SIDES), f"files were left: {before} of {len(self.files)}"
        self.drops = oracle.drops
        return rows

    def _arrivals(self, first: tuple[int, ...], end: tuple[int, ...]) -> Iterator[Arrival]:
        for side, start, stop in zip(SIDES, first, end, strict=True):
            for made in self.files[start:stop]:
                for row in made[side]:
                    yield Arrival(side, row["k"], row[side], row["ts"], row["partition"], row["offset"])

    def _row(self, side: str, number: int, row: int, closing: bool) -> Row:
        """A record; files are 4 s apart, records up to 40 s behind: some are closed, some late, and few have no key."""
        partition = row % PARTITIONS
        offset, name = self._offsets[side, partition], self._records[side]
        self._offsets[side, partition] += 1
        self._records[side] += 1
        behind = 0 if closing else self.random.choice((0, 0, 0, 1_000, 4_000, 20_000, 40_000))
        keyless = not closing and self.random.randrange(50) == 0
        return {
            "k": None if keyless else f"key-{self.random.randrange(KEYS)}",
            side: name,
            "ts": 100_000 + number * 4_000 + self.random.randrange(4_000) - behind,
            "partition": partition,
            "offset": offset,
        }


def taken(checkpoint: Path) -> list[tuple[int, ...]]:
    """Numbers of left and right files taken up to the end of each batch, from Spark's offset log."""
    numbers = sorted(int(path.name) for path in (checkpoint / "offsets").glob("[0-9]*"))
    assert numbers == list(range(len(numbers))), "Spark has removed the offsets of early batches"
    return [_offsets((checkpoint / "offsets" / str(number)).read_text()) for number in numbers]


def _offsets(log: str) -> tuple[int, ...]:
    """Reads a version, Spark's metadata of the batch, and a line per source: "-" if the source had no file yet."""
    lines = log.splitlines()
    assert lines[0] == "v1", log
    return tuple(0 if line == "-" else json.loads(line)["logOffset"] + 1 for line in lines[2:])
