"""Quix Streams on several cores as its guide advises: a process per core, in one consumer group."""

from __future__ import annotations

import re
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

import psutil
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from benchmarks.inputs import GRACE_MS, SIZE_MS, Shape
from benchmarks.measure import Run, busy_when_quiet, peaks
from benchmarks.peers import environment, marks
from benchmarks.peers.topics import Result, Topics, batches_of, result

HERE = Path(__file__).parent
REQUIREMENTS = HERE / "requirements.txt"
VERSION = re.findall(r"^quixstreams==(.+)$", REQUIREMENTS.read_text(), re.MULTILINE)[0]
PROCESSES = 2
BATCHES = 3
"""Micro-batches of the input that it runs: it is slow."""
MINUTES = 30


@dataclass
class Quix:
    name: str = "quix"
    label: str = f"Quix Streams {VERSION}, {PROCESSES} processes"
    settings: dict[str, str] = field(
        default_factory=lambda: {
            "processes": str(PROCESSES),
            "closing_strategy": "partition",
            "changelog_topics": "yes",
            "state": "RocksDB",
            "others": "benchmarks/peers/quix/application.py",
        }
    )
    final: bool = True
    every: bool = False
    _turn: int = field(default=0, init=False, repr=False)

    def shape(self, shape: Shape) -> Shape:
        return replace(shape, batches=min(BATCHES, shape.batches))

    def run(self, topics: Topics, shape: Shape) -> tuple[Run, Result]:
        python, busy = environment.python(self.name), busy_when_quiet()
        self._turn += 1
        source, output = topics.input(shape), topics.output()
        with tempfile.TemporaryDirectory(prefix="tidegate-quix-") as scratch:
            folder = Path(scratch)
            given = [topics.servers, source, output, f"quix-{self._turn}"]
            windows = [str(SIZE_MS), str(GRACE_MS)]
            commands = [
                [str(python), str(HERE / "application.py"), *given, str(folder / f"state-{number}"), *windows]
                for number in range(PROCESSES)
            ]
            with running(commands, folder) as processes, peaks(*processes) as peak:
                for process in processes:
                    if process.wait(MINUTES * 60):
                        raise RuntimeError("Quix Streams failed:\n" + (folder / "log").read_text()[-3000:])
            read = [progress((folder / f"out-{number}").read_text()) for number in range(PROCESSES)]
        try:
            found = result(written(topics.records(output)), shape)
        finally:
            topics.remove(output)
        batches = batches_of(shape)
        return marks.run(batches, marks.reached(read, marks.marks(batches)), found.last_ms, peak, busy), found

    def stop(self) -> None:
        """Nothing to stop: its processes end with each turn."""


@contextmanager
def running(commands: list[list[str]], folder: Path) -> Iterator[list[psutil.Popen]]:
    """Processes that write into files out-0, out-1, ... and one log; killed afterwards if they still run."""
    started: list[psutil.Popen] = []
    try:
        with (folder / "log").open("ab") as log:
            for number, command in enumerate(commands):
                with (folder / f"out-{number}").open("wb") as out:
                    started.append(psutil.Popen(command, cwd=folder, stdout=out, stderr=log))
        yield started
    finally:
        for process in started:
            if process.poll() is None:
                process.kill()
                process.wait()


def progress(said: str) -> list[tuple[int, int]]:
    """(records, ms) from the output of application.py."""
    pairs = (line.split() for line in said.splitlines())
    return [(int(records), int(at)) for records, at in pairs]


def written(records: DataFrame) -> DataFrame:
    """The records of its topic in the columns of `result`."""
    value = F.from_json(F.col("value").cast("string"), "start LONG, count LONG, total LONG").alias("of")
    user, arrived = F.col("key").cast("string").alias("user"), F.unix_millis("timestamp").alias("arrived_ms")
    return records.select(user, value, "partition", "offset", arrived).select(
        "user", "of.start", "of.count", "of.total", "partition", "offset", "arrived_ms"
    )
