"""Kills a running pipeline at random moments, starts it again, and compares the rows of its sink at the end.

The pipeline is one process with a Spark of its own, or the driver of a standalone cluster.
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import psutil

from cluster.standalone import Cluster
from crash.feed import Compared, Feed
from crash.join_feed import JoinFeed
from crash.sinks_feed import SinksFeed

ROOT = Path(__file__).parents[2]
AHEAD = 3
"""Number of files that always wait to be taken."""
VICTIMS = ("driver", "worker", "worker")
"""A kill of the driver costs a start, so workers are killed twice as often."""
CLUSTER_VICTIMS = ("driver", "worker", "worker", "executor", "executor")
MOST_COMMITS, MOST_SECONDS = 2, 3.0
"""A kill comes at most this many batches, and then this many seconds, after the kill before it."""
PATIENCE_S = 900
PIPELINES: dict[str, tuple[str, Callable[[Path, random.Random], Feed | JoinFeed]]] = {
    "windows": ("crash.pipeline", Feed),
    "join": ("crash.join_pipeline", JoinFeed),
    "sinks": ("crash.sinks_pipeline", SinksFeed),
}
"""Pipelines that can be killed, by name: module and feed."""
WITH_FILES = ("windows", "join")
"""Pipelines whose sink is Spark's file sink; "sinks" needs a PostgreSQL."""


@dataclass
class Verdict:
    """Kills and starts of the pipeline, and the comparison of its sink at the end."""

    killed: Counter[str]
    starts: int
    batches: int
    compared: Compared

    @property
    def right(self) -> bool:
        return self.compared.right

    def __str__(self) -> str:
        kills = ", ".join(f"{n} of a {victim}" for victim, n in sorted(self.killed.items()))
        return f"{self.killed.total()} kills ({kills}), {self.starts} starts, {self.batches} batches, {self.compared}"


@dataclass
class Pipeline:
    """Processes that run `module` in `folder`, one after the other; their output is in `folder`/log."""

    folder: Path
    arguments: tuple[str, ...] = ()
    module: str = "crash.pipeline"
    starts: int = field(default=0, init=False)
    process: subprocess.Popen[bytes] | None = field(default=None, init=False)

    def start(self, *arguments: str) -> None:
        self.starts += 1
        path = os.pathsep.join([str(ROOT / "src"), str(ROOT / "tests"), os.environ.get("PYTHONPATH", "")])
        with (self.folder / "log").open("ab") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", self.module, str(self.folder), *self.arguments, *arguments],
                env={**os.environ, "PYTHONPATH": path, "PYSPARK_PYTHON": sys.executable},
                cwd=self.folder,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def to_the_end(self) -> int:
        """Take all files and collect the rows of the sink; returns the exit code."""
        self.start("--end")
        assert self.process is not None
        try:
            return self.process.wait(PATIENCE_S)
        finally:
            self.end()

    @property
    def runs(self) -> bool:
        return self.process is not None and self.process.poll() is None

    def end(self) -> None:
        """`kill -9` of the Python driver, its JVM and all their processes, at once."""
        if self.process is None:
            return
        family = self.family()
        for each in family:
            try:
                each.send_signal(signal.SIGKILL)
            except psutil.NoSuchProcess:
                continue
        self.process.wait()
        psutil.wait_procs(family, timeout=60)

    def family(self) -> list[psutil.Process]:
        """All processes of its session: a worker whose parent was killed goes on without a parent."""
        assert self.process is not None
        return [each for each in psutil.process_iter() if _session(each.pid) == self.process.pid]

    def python_workers(self) -> list[psutil.Process]:
        """Python processes that Spark's JVM started, and their forks."""
        assert self.process is not None
        return [each for each in self.family() if each.pid != self.process.pid and _is_python(each)]

    def committed(self) -> int:
        """Number of committed batches."""
        # Spark keeps only the newest hundred, so the largest number counts.
        commits = (self.folder / "checkpoint" / "commits").glob("[0-9]*")
        return max((int(path.name) + 1 for path in commits if path.name.isdecimal()), default=0)

    def log(self, most: int = 4000) -> str:
        return (self.folder / "log").read_text(errors="replace")[-most:]


@dataclass
class Crashes:
    """One pipeline in a folder of its own; its seed decides the victim and the time of each kill."""

    folder: Path
    seed: int
    cluster: Cluster | None = None
    say: Callable[[str], None] = lambda _line: None
    pipeline: str = "windows"

    def __post_init__(self) -> None:
        self._random = random.Random(self.seed)
        self._killed: Counter[str] = Counter()
        module, feed = PIPELINES[self.pipeline]
        self._feed = feed(self.folder, self._random)
        self._pipeline = Pipeline(self.folder, () if self.cluster is None else ("--master", self.cluster.url), module)

    def run(self, kills: int) -> Verdict:
        try:
            while self._killed.total() < kills:
                if not self._pipeline.runs:
                    self._pipeline.start()
                if not self._wait():
                    continue  # too many of its workers were killed, so the query has ended, as it should
                victim = self._kill()
                if victim is not None:
                    self._killed[victim] += 1
                    self.say(f"kill {self._killed.total()}: a {victim}, after batch {self._pipeline.committed() - 1}")
        finally:
            self._pipeline.end()
        self._feed.write(1, closing=True)
        assert self._pipeline.to_the_end() == 0, f"the last run failed:\n{self._pipeline.log()}"
        compared = self._feed.compared(self.folder / "result.parquet")
        return Verdict(self._killed, self._pipeline.starts, self._pipeline.committed(), compared)

    def _wait(self) -> bool:
        """Wait some batches and seconds; returns whether the process still runs."""
        pipeline = self._pipeline
        target = pipeline.committed() + self._random.randint(0, MOST_COMMITS)
        rest = self._random.uniform(0, MOST_SECONDS)
        end = time.monotonic() + PATIENCE_S
        while (committed := pipeline.committed()) < target:
            self._feed.write(committed + AHEAD - len(self._feed.files))
            if not pipeline.runs:
                return False
            assert time.monotonic() < end, f"no batch within {PATIENCE_S} s:\n{pipeline.log()}"
            time.sleep(0.1)
        time.sleep(rest)
        return pipeline.runs

    def _kill(self) -> str | None:
        victim = self._random.choice(VICTIMS if self.cluster is None else CLUSTER_VICTIMS)
        if victim == "driver":
            self._pipeline.end()
            return victim
        candidates = self._candidates(victim)
        if not candidates:
            return None
        try:
            self._random.choice(candidates).kill()
        except psutil.NoSuchProcess:
            return None
        return victim

    def _candidates(self, victim: str) -> list[psutil.Process]:
        if self.cluster is None:
            return self._pipeline.python_workers()
        return self.cluster.executors() if victim == "executor" else self.cluster.python_workers()


def _is_python(process: psutil.Process) -> bool:
    try:
        return "python" in process.name()
    except psutil.NoSuchProcess:
        return False


def _session(pid: int) -> int | None:
    try:
        return os.getsid(pid)
    except ProcessLookupError:
        return None
