"""The smallest pack and stages that show what the plumbing does."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any
from zlib import crc32

import pyarrow as pa


def encode(table: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return sink.getvalue().to_pybytes()


def decode(blob: bytes) -> pa.Table:
    return pa.ipc.open_stream(blob).read_all()


def counts_table(counts: dict[str, int]) -> pa.Table:
    return pa.table({"key": pa.array(list(counts), pa.string()), "n": pa.array(list(counts.values()), pa.int64())})


@dataclass
class Outcome:
    rows: pa.Table
    metrics: dict[str, int | float] = field(default_factory=dict)


@dataclass
class CountPack:
    """Counts the first column's values per input partition; one blob for every task, also when there is nothing."""

    tasks: int

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[tuple[int, bytes]]:
        total: Counter[str] = Counter()
        for batch in batches:
            total.update(batch.column(0).to_pylist())
        for task in range(self.tasks):
            mine = {key: n for key, n in total.items() if crc32(key.encode()) % self.tasks == task}
            yield task, encode(counts_table(mine))


@dataclass
class CountStage:
    """Rows per key since the start, one row per key that came; fails when it meets the key `poison`."""

    poison: str | None = None
    output_schema: pa.Schema = pa.schema([("key", pa.string()), ("n", pa.int64())])
    metrics: dict[str, str] = field(default_factory=lambda: {"records": "sum", "keys": "max", "blobs": "sum"})

    def step(self, store: Any, blobs: list[bytes], end_of_input: bool = False) -> Outcome:
        stored = store.get("meta")
        total = Counter(dict(zip(*decode(stored).to_pydict().values(), strict=True)) if stored else {})
        came: Counter[str] = Counter()
        for blob in blobs:
            came.update(dict(zip(*decode(blob).to_pydict().values(), strict=True)))
        total.update(came)
        store.put("meta", encode(counts_table(total)))
        if self.poison in came:
            raise ValueError(f"the key {self.poison!r} is poison")
        metrics = {"records": sum(came.values()), "keys": len(total), "blobs": len(blobs)}
        return Outcome(counts_table({key: total[key] for key in sorted(came)}), metrics)
