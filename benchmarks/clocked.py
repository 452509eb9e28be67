"""Clocks around tidegate's own functions in the Python workers. The package itself has no clocks.

Each task of a clocked query writes the seconds of its clock to a file of a folder. Only for queries with one operator:
in a chain a task would have two clocks.
"""

from __future__ import annotations

import json
from collections.abc import Generator, Iterator
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.streaming.stateful_processor import StatefulProcessorHandle

from benchmarks.clock import Clock, Record
from benchmarks.contestant import Contestant
from benchmarks.wrapped import wrapped
from tidegate.runtime.spark.map_step import Packer
from tidegate.runtime.spark.row_decoder import Counts, RowDecoder
from tidegate.runtime.spark.worker.processor import StageProcessor
from tidegate.runtime.spark.worker.state import SparkStore


def tell(clock: Clock, kind: str, folder: str) -> None:
    """Write the record of `clock` to `folder`, in a file named by the kind and the id of this task."""
    context = TaskContext.get()
    assert context is not None
    found = clock.record(kind, context.taskAttemptId())
    Path(folder, f"{kind}-{found.task}.json").write_text(json.dumps(asdict(found)))


def records(folder: Path) -> dict[int, Record]:
    """The records that tasks wrote to `folder`, by task id."""
    found = [Record(**json.loads(path.read_text())) for path in folder.glob("*.json")]
    return {each.task: each for each in found}


@dataclass(frozen=True)
class TimedDecoder(RowDecoder):
    row_decoder: RowDecoder
    clock: Clock

    def packed(self, batches: Iterator[pa.RecordBatch]) -> Generator[tuple[int, bytes], None, Iterator[pa.RecordBatch]]:
        return self.row_decoder.packed(batches)

    def rows(self, batches: Iterator[pa.RecordBatch], counts: Counts) -> Iterator[pa.RecordBatch]:
        return self.clock.pulled(self.row_decoder.rows(batches, counts), "scan")


@dataclass(frozen=True)
class TimedPack:
    """The map step; waiting for input counts as "Arrow out", and Spark's work with its blobs as "shuffle"."""

    pack: Packer
    folder: str

    def __call__(self, batches: Iterator[pa.RecordBatch], counts: Counts) -> Iterator[tuple[int, bytes]]:
        clock = Clock("pack")
        row_decoder = None if self.pack.row_decoder is None else TimedDecoder(self.pack.row_decoder, clock)
        blobs = replace(self.pack, row_decoder=row_decoder)(clock.pulled(batches, "Arrow out"), counts)
        yield from clock.lent(blobs, "shuffle")
        tell(clock, "map", self.folder)


class TimedStore(SparkStore):
    def __init__(self, variable: Any, clock: Clock) -> None:
        super().__init__(variable)
        self._clock = clock

    def get(self, name: str) -> bytes | None:
        with self._clock.at("state read"):
            return super().get(name)

    def read(self, window: int, segment: int) -> bytes:
        with self._clock.at("state read"):
            return super().read(window, segment)

    def write(self, window: int, segment: int, value: bytes) -> None:  # `put` calls this too
        with self._clock.at("state write"):
            super().write(window, segment, value)

    def remove(self, window: int, segment: int) -> None:
        with self._clock.at("state write"):
            super().remove(window, segment)


class TimedProcessor(StageProcessor):
    """The stateful step, from Spark's opening of its state until its last row is taken."""

    def __init__(self, *given: Any, folder: str) -> None:
        super().__init__(*given)
        self._folder = folder

    def init(self, handle: StatefulProcessorHandle) -> None:
        self._clock = Clock("state load")
        super().init(handle)

    def _store(self, number: int) -> TimedStore:
        return TimedStore(self._variable, self._clock)

    def handleInputRows(self, key: Any, rows: Iterator[Any], timerValues: Any) -> Iterator[Any]:  # noqa: N802, N803
        clock = self._clock
        clock.switch("kernel")
        frames = super().handleInputRows(key, clock.pulled(rows, "shuffle"), timerValues)
        yield from clock.lent(frames, "Arrow in")
        tell(clock, "stateful", self._folder)

    def _frames(self, outcome: Any) -> Iterator[Any]:
        outcome.parts = self._clock.pulled(outcome.parts, "kernel")
        return self._clock.pulled(super()._frames(outcome), "Arrow in")


def clocked(contestant: Contestant, folder: Path) -> Contestant:
    """`contestant` with clocks in its tasks, which write their records to `folder`."""
    folder.mkdir(parents=True)
    return wrapped(contestant, partial(TimedPack, folder=str(folder)), partial(TimedProcessor, folder=str(folder)))
