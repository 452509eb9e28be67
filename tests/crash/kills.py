"""Kills a running pipeline at random moments, starts it again, and compares what its sink holds in the end.

What is right comes from the test driver, one batch per input file, in which nothing ever fails.
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
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import psutil
import pyarrow as pa
import pyarrow.parquet as pq

from crash.pipeline import SCHEMA, stream, topology
from tidegate.testing import TopologyTestDriver

ROOT = Path(__file__).parents[2]
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
FIRST_FILE_S = 1_600_000_000

ROWS, KEYS, PARTITIONS = 400, 20, 2
AHEAD = 3
"""Files that always wait to be taken."""
VICTIMS = ("driver", "worker", "worker")
"""A kill of the driver costs a start; workers are killed twice as often."""
MOST_COMMITS, MOST_SECONDS = 3, 1.5
"""A kill comes up to so many batches, and then so many seconds, after the one before it."""
PATIENCE_S = 900

Row = dict[str, Any]


@dataclass
class Verdict:
    """What the sink holds beside what it should hold."""

    killed: Counter[str]
    starts: int
    batches: int
    results: int
    late: int
    missing: int
    twice_or_wrong: int

    @property
    def right(self) -> bool:
        return not self.missing and not self.twice_or_wrong and self.results > 0 and self.late > 0

    def __str__(self) -> str:
        kills = ", ".join(f"{n} of a {victim}" for victim, n in sorted(self.killed.items()))
        return (
            f"{self.killed.total()} kills ({kills}), {self.starts} starts, {self.batches} batches, "
            f"{self.results} final results and {self.late} late records expected: "
            f"{self.missing} missing, {self.twice_or_wrong} twice or wrong"
        )


@dataclass
class Crashes:
    """One pipeline in a folder of its own; its seed decides whom a kill meets, and when."""

    folder: Path
    seed: int
    say: Callable[[str], None] = lambda _line: None
    starts: int = field(default=0, init=False)

    def __post_init__(self) -> None:
        self._random = random.Random(self.seed)
        self._files: list[list[Row]] = []
        self._offsets = [0] * PARTITIONS
        self._killed: Counter[str] = Counter()
        (self.folder / "in").mkdir()

    def run(self, kills: int) -> Verdict:
        process: subprocess.Popen[bytes] | None = None
        try:
            while self._killed.total() < kills:
                if process is None or process.poll() is not None:
                    process = self._start()
                if not self._wait(process):
                    continue  # too many of its workers were killed: the query has ended, as it should
                victim = self._kill(process)
                if victim is not None:
                    self._killed[victim] += 1
                    self.say(f"kill {self._killed.total()}: a {victim}, after batch {self._committed() - 1}")
        finally:
            if process is not None:
                self._end(process)
        self._feed(1, closing=True)
        last = self._start("--end")
        try:
            assert last.wait(PATIENCE_S) == 0, f"the last run failed:\n{self._log()}"
        finally:
            self._end(last)
        return self._verdict()

    # --- the process --------------------------------------------------------------------------------------------

    def _start(self, *arguments: str) -> subprocess.Popen[bytes]:
        self.starts += 1
        path = os.pathsep.join(str(part) for part in (ROOT / "src", ROOT / "tests"))
        with (self.folder / "log").open("ab") as log:
            return subprocess.Popen(
                [sys.executable, "-m", "crash.pipeline", str(self.folder), *arguments],
                env={**os.environ, "PYTHONPATH": path, "PYSPARK_PYTHON": sys.executable},
                cwd=self.folder,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def _wait(self, process: subprocess.Popen[bytes]) -> bool:
        """Until some batches later; whether the process is still there."""
        target = self._committed() + self._random.randint(0, MOST_COMMITS)
        rest = self._random.uniform(0, MOST_SECONDS)
        end = time.monotonic() + PATIENCE_S
        while self._committed() < target:
            self._feed(self._committed() + AHEAD - len(self._files))
            if process.poll() is not None:
                return False
            assert time.monotonic() < end, f"no batch within {PATIENCE_S} s:\n{self._log()}"
            time.sleep(0.1)
        time.sleep(rest)
        return process.poll() is None

    def _kill(self, process: subprocess.Popen[bytes]) -> str | None:
        victim = self._random.choice(VICTIMS)
        if victim == "driver":
            self._end(process)
            return victim
        workers = _workers(process)
        if not workers:
            return None
        try:
            self._random.choice(workers).kill()
        except psutil.NoSuchProcess:
            return None
        return victim

    @staticmethod
    def _end(process: subprocess.Popen[bytes]) -> None:
        """`kill -9` of the Python driver, its JVM and all that it started, at once."""
        family = _family(process)
        for each in family:
            try:
                each.send_signal(signal.SIGKILL)
            except psutil.NoSuchProcess:
                continue
        process.wait()
        psutil.wait_procs(family, timeout=60)

    def _committed(self) -> int:
        """How many batches are done."""
        # Spark keeps the newest hundred alone.
        commits = (self.folder / "checkpoint" / "commits").glob("[0-9]*")
        return max((int(path.name) + 1 for path in commits if path.name.isdecimal()), default=0)

    def _log(self) -> str:
        return (self.folder / "log").read_text(errors="replace")[-4000:]

    # --- input and output ---------------------------------------------------------------------------------------

    def _feed(self, files: int, *, closing: bool = False) -> None:
        """Write so many more input files; a closing one is late enough to close every window before it."""
        for _ in range(files):
            number = len(self._files)
            rows = [self._row(number, row) for row in range(ROWS)]
            if closing:
                rows = [self._row(number + 100, row) for row in range(PARTITIONS)]
            self._files.append(rows)
            stamps = [{**row, "ts": EPOCH + timedelta(milliseconds=row["ts"])} for row in rows]
            hidden = self.folder / "in" / f".{number:06}.parquet"
            pq.write_table(pa.Table.from_pylist(stamps, SCHEMA), hidden)
            # The source takes the oldest first.
            os.utime(hidden, (FIRST_FILE_S + number, FIRST_FILE_S + number))
            hidden.rename(hidden.with_name(hidden.name[1:]))

    def _row(self, number: int, row: int) -> Row:
        """Files are four seconds apart and their records up to twenty seconds behind, so some are late."""
        partition = row % PARTITIONS
        offset = self._offsets[partition]
        self._offsets[partition] += 1
        behind = self._random.choice((0, 0, 1_000, 4_000, 20_000))
        return {
            "k": f"key-{self._random.randrange(KEYS)}",
            "v": self._random.randrange(1_000),
            "ts": 100_000 + number * 4_000 + self._random.randrange(4_000) - behind,
            "partition": partition,
            "offset": offset,
        }

    def _verdict(self) -> Verdict:
        driver = TopologyTestDriver(topology(stream("events")))
        for rows in self._files:
            driver.pipe_batch(rows)
        wanted = Counter(_told(row) for row in driver.read_output())
        got = Counter(_told(row) for row in pq.read_table(self.folder / "result.parquet").to_pylist())
        outputs = Counter(row[0] for row in wanted.elements())
        return Verdict(
            killed=self._killed,
            starts=self.starts,
            batches=self._committed(),
            results=outputs["final"],
            late=outputs["late"],
            missing=(wanted - got).total(),
            twice_or_wrong=(got - wanted).total(),
        )


def _family(process: subprocess.Popen[bytes]) -> list[psutil.Process]:
    """All of its session: where the parent of a worker was killed, the worker goes on without one."""
    return [each for each in psutil.process_iter() if _session(each.pid) == process.pid]


def _session(pid: int) -> int | None:
    try:
        return os.getsid(pid)
    except ProcessLookupError:
        return None


def _workers(process: subprocess.Popen[bytes]) -> list[psutil.Process]:
    """Its Python workers: what Spark's JVM started, and what that forked."""
    found = []
    for each in _family(process):
        try:
            if each.pid != process.pid and "python" in each.name():
                found.append(each)
        except psutil.NoSuchProcess:
            continue
    return found


def _told(row: Row) -> tuple[Any, ...]:
    """What makes a row of either output the one it is, from Spark or from the driver."""
    window = row["window"]
    start = window["start"] if isinstance(window, dict) else window.start
    names = ("output", "k", "n", "total", "last", "v", "offset", "partition", "reason", "late_by")
    return (*(_plain(row.get(name)) for name in names), _plain(start), _plain(row.get("timestamp")))


def _plain(value: Any) -> Any:
    """Instants as milliseconds, which is how the driver has them."""
    if isinstance(value, datetime):
        aware = value if value.tzinfo else value.replace(tzinfo=UTC)
        return (aware - EPOCH) // timedelta(milliseconds=1)
    return value
