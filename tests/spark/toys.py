"""The smallest pack and stages that show the behaviour of the plumbing."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any
from zlib import crc32

import pyarrow as pa

from tidegate.runtime.spark.row_decoder import Counts


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

    @property
    def parts(self) -> Iterator[pa.Table]:
        return iter([self.rows])


@dataclass
class CountPack:
    """Counts the first column's values per input partition; one blob for every task, also without rows."""

    tasks: int

    def __call__(self, batches: Iterator[pa.RecordBatch], counts: Counts) -> Iterator[tuple[int, bytes]]:
        total: Counter[str] = Counter()
        for batch in batches:
            total.update(batch.column(0).to_pylist())
        for task in range(self.tasks):
            mine = {key: n for key, n in total.items() if crc32(key.encode()) % self.tasks == task}
            yield task, encode(counts_table(mine))


@dataclass
class CountStage:
    """Counts per key since the start; emits a row per key of the batch; fails at the key `poison`."""

    poison: str | None = None
    output_schema: pa.Schema = pa.schema([("key", pa.string()), ("n", pa.int64())])
    metrics: dict[str, str] = field(default_factory=lambda: {"records": "sum", "keys": "max", "blobs": "sum"})

    def begin(self, store: Any, blobs: Iterable[bytes], end_of_input: bool = False) -> Outcome:
        stored = store.get("meta")
        total = Counter(dict(zip(*decode(stored).to_pydict().values(), strict=True)) if stored else {})
        came: Counter[str] = Counter()
        blobs = list(blobs)
        for blob in blobs:
            came.update(dict(zip(*decode(blob).to_pydict().values(), strict=True)))
        total.update(came)
        store.put("meta", encode(counts_table(total)))
        if self.poison in came:
            raise ValueError(f"the key {self.poison!r} is poison")
        metrics = {"records": sum(came.values()), "keys": len(total), "blobs": len(blobs)}
        return Outcome(counts_table({key: total[key] for key in sorted(came)}), metrics)


@dataclass
class RawPack:
    """Sends to every task: `repeat` blobs of `size` zeros, or the sizes of the batches of its partition."""

    tasks: int
    repeat: int = 1
    size: int = 0

    def __call__(self, batches: Iterator[pa.RecordBatch], counts: Counts) -> Iterator[tuple[int, bytes]]:
        seen = ",".join(str(batch.num_rows) for batch in batches) or "none"
        for task in range(self.tasks):
            for _ in range(self.repeat):
                yield task, bytes(self.size) if self.size else seen.encode()


@dataclass
class EchoStage:
    """One row per blob: its length, and its text when it is short."""

    output_schema: pa.Schema = pa.schema([("length", pa.int64()), ("text", pa.string())])
    metrics: dict[str, str] = field(default_factory=lambda: {"steps": "sum", "blobs": "sum"})
    ballast: bytes = b""

    def begin(self, store: Any, blobs: Iterable[bytes], end_of_input: bool = False) -> Outcome:
        blobs = list(blobs)
        texts = [blob.decode() if len(blob) < 1000 else None for blob in blobs]
        rows = pa.table([[len(blob) for blob in blobs], texts], schema=self.output_schema)
        return Outcome(rows, {"steps": 1, "blobs": len(blobs)})


@dataclass
class ProcessPack:
    """Sends the number of its process to every task."""

    tasks: int

    def __call__(self, batches: Iterator[pa.RecordBatch], counts: Counts) -> Iterator[tuple[int, bytes]]:
        for _ in batches:
            pass
        for task in range(self.tasks):
            yield task, str(os.getpid()).encode()


@dataclass
class ProcessStage:
    """One row per blob: the process that sent it, and the one that reads it."""

    output_schema: pa.Schema = pa.schema([("mapped", pa.int64()), ("stepped", pa.int64())])
    metrics: dict[str, str] = field(default_factory=dict)

    def begin(self, store: Any, blobs: Iterable[bytes], end_of_input: bool = False) -> Outcome:
        mapped = [int(blob) for blob in blobs]
        return Outcome(pa.table([mapped, [os.getpid()] * len(mapped)], schema=self.output_schema))


@dataclass
class TaskStage:
    """One row per step: the name of the task that its store tells."""

    operator: str = ""
    output_schema: pa.Schema = pa.schema([("task", pa.string())])
    metrics: dict[str, str] = field(default_factory=dict)

    def begin(self, store: Any, blobs: Iterable[bytes], end_of_input: bool = False) -> Outcome:
        for _ in blobs:
            pass
        return Outcome(pa.table([[store.task]], schema=self.output_schema))


@dataclass
class FixedStage:
    """Returns its table in every step."""

    table: pa.Table
    metrics: dict[str, str] = field(default_factory=dict)

    @property
    def output_schema(self) -> pa.Schema:
        return self.table.schema

    def begin(self, store: Any, blobs: Iterable[bytes], end_of_input: bool = False) -> Outcome:
        return Outcome(self.table)


@dataclass
class StoreStage:
    """Drives a store through `script`, one line per batch, and emits the lengths of the values it reads."""

    script: list[list[tuple[Any, ...]]]
    output_schema: pa.Schema = pa.schema([("told", pa.string())])
    metrics: dict[str, str] = field(default_factory=dict)

    def begin(self, store: Any, blobs: Iterable[bytes], end_of_input: bool = False) -> Outcome:
        batch = int(store.get("meta") or b"0")
        store.put("meta", str(batch + 1).encode())
        told = [self._do(store, *call) for call in self.script[batch]]
        return Outcome(pa.table([[text for text in told if text]], schema=self.output_schema))

    def _do(self, store: Any, verb: str, window: int, segment: int, size: int = 0) -> str | None:
        if verb == "write":
            # Varied bytes, so that parts in the wrong order would show.
            store.write(window, segment, bytes(i % 251 for i in range(1000)) * (size // 1000))
        elif verb == "remove":
            store.remove(window, segment)
        else:
            value = store.read(window, segment)
            return f"{len(value)} {crc32(value)} {type(value).__name__}"
        return None
