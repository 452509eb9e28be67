"""Runs a peer's program in its environment, compares the rows that it wrote, and measures its time and memory."""

from __future__ import annotations

import os
import subprocess
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import psutil
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.parquet as pq

from benchmarks.agreement import Rows, differing
from benchmarks.measure import WARM_UP, busy_when_quiet, peaks, rows_of
from benchmarks.options import say
from benchmarks.peers import environment
from benchmarks.peers.contract import Report, Task, command
from benchmarks.peers.environment import HERE
from benchmarks.race import UnableError

ROOT = HERE.parents[1]
PARALLELISM = 2
RUN_SECONDS = 3_600
COMPARED = "every row equal to a direct computation, of a small input and of each timed run"
LAST_WORDS = 600


@dataclass(frozen=True)
class Peer:
    name: str
    label: str
    engine: str
    """Its folder, with program.py and requirements.txt."""
    state: str = ""
    """The state backend of its program, if there is a choice."""
    batches: int | None = None
    """Number of micro-batches of the input that a slow peer runs; None: all."""
    settings: dict[str, str] = field(default_factory=dict)
    """Settings and versions that the program reported in its last run."""
    file: str = "program.py"

    @property
    def program(self) -> Path:
        return HERE / self.engine / self.file

    def interpreter(self) -> Path:
        """The interpreter of its environment, which is installed if missing. Raises UnableError."""
        return environment.python(self.engine)

    def jars(self) -> tuple[Path, ...]:
        return tuple(environment.jars(self.engine))


@dataclass(frozen=True)
class PeerRun:
    """A run as `race.Timed`, and the report of the program."""

    rows: list[int]
    report: Report
    jvm_mib: float
    python_mib: float
    worker_mib: float
    busy_before_percent: float

    @property
    def seconds(self) -> list[float]:
        return [self.report.seconds]

    @property
    def rate(self) -> float:
        return self.report.rate

    @property
    def median_rate(self) -> None:
        """A peer has no micro-batches."""


def run(peer: Peer, files: Path, right: tuple[Rows, Rows]) -> PeerRun:
    """Run `peer` over `files`; `right`: the final rows, and the rows of windows still open at the end.

    Raises AssertionError if it wrote other rows, UnableError if it failed.
    """
    return checked(peer, files, lambda output: require(peer.label, rows_in(peer.label, output), *right))


def able(peers: Sequence[Peer], trial: Callable[[Peer], object]) -> tuple[list[Peer], dict[str, str]]:
    """Peers whose `trial` over a small input gave the right rows, and the errors of those that cannot run."""
    found, unable = [], {}
    for each in peers:
        try:
            trial(each)
        except UnableError as error:
            unable[each.name] = str(error)
            say(f"  {each.name} is not measured: {error}")
        else:
            found.append(each)
            say(f"  {each.name}: the rows of a small input are equal")
    return found, unable


def checked(peer: Peer, files: Path, check: Callable[[Path], None], window_ms: int = 0) -> PeerRun:
    """Run `peer` over `files`; `check` raises AssertionError if the rows in its folder are wrong.

    Raises AssertionError too if it read other rows, UnableError if it failed.
    """
    rows = rows_of(files)
    busy = busy_when_quiet()
    with tempfile.TemporaryDirectory(prefix="tidegate-peer-") as folder:
        output = Path(folder) / "rows"
        output.mkdir()
        task = Task(files, output, PARALLELISM, sum(rows[:WARM_UP]), peer.state, peer.jars(), window_ms)
        report, peak = _carried_out(peer, task, Path(folder) / "log")
        if report.rows != sum(rows):
            raise AssertionError(f"{peer.label} read {report.rows:,} of {sum(rows):,} rows")
        check(output)
    return PeerRun(rows, report, peak["java"], peak["python"], peak["worker"], busy)


def _carried_out(peer: Peer, task: Task, log: Path) -> tuple[Report, dict[str, float]]:
    # No packages of this process, and no telemetry: Pathway sends it only if these variables name a receiver.
    unset = ("PYTHONPATH", "PYTHONHOME", "PATHWAY_LICENSE_KEY", "PATHWAY_MONITORING_SERVER")
    variables = {name: value for name, value in os.environ.items() if name not in unset}
    with log.open("w") as file:
        process = subprocess.Popen(
            [str(peer.interpreter()), str(peer.program), *command(task)],
            cwd=task.output.parent,
            env={**variables, "PYTHONPATH": str(ROOT)},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=file,
            text=True,
        )
        with peaks(psutil.Process(process.pid)) as peak:
            try:
                said, _ = process.communicate(timeout=RUN_SECONDS)
            except BaseException as error:
                _end(process)
                if isinstance(error, subprocess.TimeoutExpired):
                    raise UnableError(f"{peer.label} did not finish within {RUN_SECONDS} s") from None
                raise
    last = log.read_text(errors="replace")[-LAST_WORDS:].strip()
    if process.returncode:
        raise UnableError(f"{peer.label} ended with status {process.returncode}, and said: {last}")
    try:
        return Report.parsed(said), peak
    except (ValueError, TypeError, KeyError):
        raise UnableError(f"{peer.label} did not tell how long it took; it said: {said[-LAST_WORDS:]} {last}") from None


def _end(process: subprocess.Popen[str]) -> None:
    """Kill the process and its children: Flink's JVM, Bytewax's second process."""
    for one in [*psutil.Process(process.pid).children(recursive=True), process]:
        one.kill()
    process.wait()


def rows_in(label: str, folder: Path) -> Rows:
    """The rows that a program wrote to `folder`; AssertionError if it wrote a window twice."""
    tables = [
        (pyarrow.csv.read_csv(path) if path.suffix == ".csv" else pq.read_table(path)).select(
            ["user", "start", "count", "total"]
        )
        for path in sorted(folder.iterdir())
        if path.stat().st_size and not path.name.startswith((".", "_"))
    ]
    if not tables:
        return {}
    whole = pa.concat_tables(tables, promote_options="permissive")
    users = whole["user"].to_pylist()
    starts, counts, totals = (pc.cast(whole[name], pa.int64()).to_pylist() for name in ("start", "count", "total"))
    found = dict(zip(zip(users, starts, strict=True), zip(counts, totals, strict=True), strict=True))
    if len(found) != len(whole):
        raise AssertionError(f"{label}: {len(whole)} rows for {len(found)} windows, final was not final")
    return found


def require(label: str, rows: Rows, closed: Rows, still_open: Rows) -> None:
    """AssertionError unless `rows` are all closed windows, and none or all of the open windows.

    Some engines close every window at the end of their input.
    """
    more = {place: row for place, row in rows.items() if place not in closed}
    right = closed | still_open if more else closed
    if rows != right:
        raise AssertionError(
            f"{label}: {differing(rows, right)} of {len(right)} rows differ from the direct computation"
        )
