"""W1 as a Bytewax dataflow: two processes, each reads one source partition; windows are folded per key."""

from __future__ import annotations

import mmap
import os
import socket
import sys
import time
from collections.abc import Callable, Iterable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import bytewax.operators as op
import pyarrow as pa
from bytewax._bytewax import cluster_main
from bytewax.dataflow import Dataflow
from bytewax.inputs import FixedPartitionedSource, StatefulSourcePartition
from bytewax.operators.windowing import EventClock, TumblingWindower, fold_window
from bytewax.outputs import DynamicSink, StatelessSinkPartition

from benchmarks.inputs import FIRST_MS, GRACE_MS, SIZE_MS
from benchmarks.peers.contract import Report, Task, installed, pieces, task

ORIGIN = datetime.fromtimestamp(FIRST_MS / 1000, UTC)
LEAD = timedelta(seconds=2)
"""The most event time that one partition may be ahead of another. Bytewax reads each as fast as it can; a key has
records in both, and its records in the slower partition would be late."""

Value = tuple[datetime, int]
"""Timestamp and amount."""
Totals = tuple[int, int]


class Progress:
    """The event time to which each partition has been read, in memory that the processes share."""

    def __init__(self, partitions: int) -> None:
        self._micros = memoryview(mmap.mmap(-1, 8 * partitions)).cast("q")
        self.began = 0.0
        """Time of the first read of this process (`time.monotonic`); 0 before."""

    def ahead(self, partition: int) -> bool:
        return self._micros[partition] > min(self._micros) + LEAD // timedelta(microseconds=1)

    def read_to(self, partition: int, micros: int) -> None:
        self._micros[partition] = micros


class Partition(StatefulSourcePartition[tuple[str, Value], None]):
    def __init__(self, number: int, files: tuple[Path, ...], progress: Progress) -> None:
        self._number, self._pieces, self._progress = number, pieces(files), progress

    def next_batch(self) -> Iterable[tuple[str, Value]]:
        progress = self._progress
        progress.began = progress.began or time.monotonic()
        if progress.ahead(self._number):
            return []
        piece = next(self._pieces, None)
        if piece is None:
            progress.read_to(self._number, sys.maxsize)
            raise StopIteration
        user, ts, amount = piece.columns
        progress.read_to(self._number, ts[-1].cast(pa.int64()).as_py())
        values = zip(ts.to_pylist(), amount.to_pylist(), strict=True)
        return list(zip(user.to_pylist(), values, strict=True))

    def snapshot(self) -> None:
        """No state: nothing is recovered."""


class Files(FixedPartitionedSource[tuple[str, Value], None]):
    def __init__(self, work: Task, progress: Progress) -> None:
        self._halves, self._progress = work.halves(), progress

    def list_parts(self) -> list[str]:
        return [str(number) for number in range(len(self._halves))]

    def build_part(self, step_id: str, for_part: str, resume_state: None) -> Partition:
        return Partition(int(for_part), self._halves[int(for_part)], self._progress)


class Lines(StatelessSinkPartition[tuple[str, tuple[int, Totals]]]):
    def __init__(self, path: Path) -> None:
        self._file = path.open("w", encoding="utf-8")
        self._file.write("user,start,count,total\n")

    def write_batch(self, items: list[tuple[str, tuple[int, Totals]]]) -> None:
        self._file.writelines(
            f"{user},{FIRST_MS + window * SIZE_MS},{count},{total}\n" for user, (window, (count, total)) in items
        )

    def close(self) -> None:
        self._file.close()


class Output(DynamicSink[tuple[str, tuple[int, Totals]]]):
    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def build(self, step_id: str, worker_index: int, worker_count: int) -> Lines:
        return Lines(self._folder / f"{worker_index}.csv")


def add(totals: Totals, value: Value) -> Totals:
    count, total = totals
    return count + 1, total + value[1]


def dataflow(work: Task, progress: Progress) -> Dataflow:
    # The watermark of EventClock also moves with the system's time. The input is historical: with a clock that stands
    # still and no timers, only timestamps move the watermark (docstring of EventClock: now_getter and to_system_utc).
    now = datetime.now(UTC)
    never: Callable[[datetime], None] = lambda _: None  # noqa: E731
    clock = EventClock(
        lambda value: value[0], timedelta(milliseconds=GRACE_MS), now_getter=lambda: now, to_system_utc=never
    )
    windows = TumblingWindower(length=timedelta(milliseconds=SIZE_MS), align_to=ORIGIN)
    flow = Dataflow("w1")
    rows = op.input("files", flow, Files(work, progress))
    # A sum needs no order; unordered, no record is queued (docstring of fold_window: ordered).
    folded = fold_window("window", rows, clock, windows, lambda: (0, 0), add, _merged, ordered=False)
    op.output("rows", folded.down, Output(work.output))
    return flow


def _merged(one: Totals, other: Totals) -> Totals:
    return one[0] + other[0], one[1] + other[1]


def main() -> None:
    work = task()
    progress = Progress(len(work.halves()))
    flow = dataflow(work, progress)
    # Processes, not threads: a dataflow of Python functions holds the interpreter's lock.
    addresses = _addresses(work.parallelism)
    number = next((n for n in range(1, work.parallelism) if os.fork() == 0), 0)
    cluster_main(flow, addresses, number, worker_count_per_proc=1)
    if number:
        return
    for _ in addresses[1:]:
        if os.wait()[1]:
            raise SystemExit("a process of the cluster failed")
    seconds = time.monotonic() - progress.began
    settings = {
        "processes": str(work.parallelism),
        "workers of each": "1",
        "rows read at a time": "512",
        "recovery": "no",
    }
    Report(work.rows(), seconds, None, installed("bytewax", "pyarrow"), settings).say()


def _addresses(processes: int) -> list[str]:
    free = [socket.create_server(("127.0.0.1", 0)) for _ in range(processes)]
    found = [f"127.0.0.1:{each.getsockname()[1]}" for each in free]
    for each in free:
        each.close()
    return found


if __name__ == "__main__":
    main()
