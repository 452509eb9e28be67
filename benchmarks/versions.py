"""Two versions of tidegate in turns: is this one slower than the version of another checkout?

    git worktree add FOLDER COMMIT
    python -m benchmarks.versions --before FOLDER --only W1 W11 --turns 3

Each turn of a version is a process of its own over the same files, with the benchmarks and the package of its checkout.
The versions begin alternately. All rows of a contestant must be equal in both versions; rows of W10 are not compared. A
ratio is the speed of this version over the speed of the other one in the same turn; the median ratio is quoted. The
exit status is 1 if a median ratio is below 0.95.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.measure import Digest
from benchmarks.options import save, say
from benchmarks.warming import SECONDS
from benchmarks.workloads.varied import VARIED

ROOT = Path(__file__).resolve().parents[1]
WORKLOADS = ("W1", "W2", "W3", "W4", "W6", "W9", "W10", "W11")
BY_NAME = tuple(each.name for each in VARIED)
"""These run only by name."""
ALWAYS = "by_hand"
"""Earlier versions always run it in W6. So both run it: in a version that runs more, Java has compiled more."""
OURS = (
    "tidegate",
    "tidegate_files",
    "tidegate_unordered",
    "tidegate_bounded",
    "tidegate_every",
    "tidegate_reduce",
    "tidegate_aggregate",
    "tidegate_arrow",
    "tidegate_built_in",
)
"""The contestants of tidegate, in any workload of both versions."""
BAR = 0.95


@dataclass(frozen=True)
class Turn:
    """One turn of a version: speed, largest worker (MiB) and digest of the rows, by contestant."""

    speeds: dict[str, float]
    workers: dict[str, int]
    digests: dict[str, Digest]


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.versions", description=__doc__.splitlines()[0])
    parser.add_argument("--before", type=Path, required=True, help="a checkout of the other version")
    parser.add_argument("--only", nargs="+", choices=(*WORKLOADS, *BY_NAME), default=WORKLOADS, help="workloads")
    parser.add_argument("--contestants", nargs="+", choices=OURS, default=OURS, help="which of ours; all if left out")
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--warm-up", type=int, default=SECONDS, help="seconds of each contestant before a turn")
    size = parser.add_mutually_exclusive_group()
    size.add_argument("--smoke", dest="size", action="store_const", const=["--smoke"], default=[], help="a trial")
    size.add_argument("--full", dest="size", action="store_const", const=["--full"], help="the larger sizes")
    parser.add_argument("--json", type=Path, default=Path("benchmarks/results/versions.json"))
    options = parser.parse_args(argv)
    folders = {"before": options.before.resolve(), "now": ROOT}
    given = [*options.size, "--warm-up", str(options.warm_up), "--contestants", *options.contestants, ALWAYS]
    found: dict[str, Any] = {}
    with tempfile.TemporaryDirectory(prefix="tidegate-bench-versions-") as scratch:
        for workload in options.only:
            turns: dict[str, list[Turn]] = {version: [] for version in folders}
            for number in range(options.turns):
                for version in sorted(folders, reverse=number % 2 == 1):
                    one = turn(folders[version], workload, Path(scratch), given)
                    turns[version].append(one)
                    say(f"  {workload} turn {number + 1}/{options.turns}  {version:7} {_speeds(one)}")
            found[workload] = compared(turns)
            for name, each in found[workload].items():
                verdict = "" if each["ratio"] >= BAR else f"  BELOW {BAR}"
                say(f"{workload:4} {name:20} {each['ratio']:.2f} of before; worker {each['worker_mib']} MiB{verdict}")
            save({"workloads": found, "turns": options.turns, "size": options.size}, options.json)
    return 0 if all(each["ratio"] >= BAR for one in found.values() for each in one.values()) else 1


def turn(folder: Path, workload: str, scratch: Path, given: list[str]) -> Turn:
    """One turn of a workload by the version in `folder`; raises CalledProcessError with its output if it fails."""
    report = scratch / "run.json"
    report.unlink(missing_ok=True)
    command = [sys.executable, "-m", "benchmarks.suite", "--only", workload, "--repeat", "1", "--json", str(report)]
    command += ["--data", str(scratch / "data"), *given]
    environment = {**os.environ, "PYTHONPATH": f"{folder / 'src'}{os.pathsep}{folder}"}
    python = {"PYSPARK_PYTHON": sys.executable, "PYSPARK_DRIVER_PYTHON": sys.executable}
    done = subprocess.run(command, cwd=folder, env=environment | python, capture_output=True, text=True, check=False)
    if done.returncode:
        say(done.stdout + done.stderr)
        done.check_returncode()
    contestants = json.loads(report.read_text(encoding="utf-8"))["workloads"][workload]["contestants"]
    return Turn(
        {name: _speed(each) for name, each in contestants.items()},
        {name: each.get("peak_worker_mib", 0) for name, each in contestants.items()},
        {name: _of_run(each["runs"][0]) for name, each in contestants.items() if "runs" in each},
    )


def _of_run(run: dict[str, Any]) -> Digest:
    """The digest of all rows of a run, in any micro-batch."""
    return Digest.all([Digest(**one) for one in run["digests"]])


def _speed(contestant: dict[str, Any]) -> float:
    """Rows per second; in a workload of delays the inverse of the p99 delay (1/s)."""
    return contestant["rows_per_s"] if "rows_per_s" in contestant else 1000 / contestant["p99_ms"]


def _speeds(one: Turn) -> str:
    return "  ".join(f"{name} {speed:,.4g}" for name, speed in one.speeds.items())


def compared(turns: dict[str, list[Turn]]) -> dict[str, Any]:
    """The median ratio, all ratios, and the largest worker of this version (MiB), by contestant of both versions.

    Raises AssertionError if the rows of the versions differ.
    """
    before, now = turns["before"], turns["now"]
    found = {}
    for name in now[0].speeds:
        if name not in before[0].speeds:
            say(f"  {name} is not in the version before")
            continue
        digests = [one.digests.get(name) for one in (*before, *now)]
        if any(digest != digests[0] for digest in digests):
            raise AssertionError(f"{name} gives other rows in one of the versions")
        ratios = [round(b.speeds[name] / a.speeds[name], 3) for a, b in zip(before, now, strict=True)]
        worker = max(one.workers[name] for one in now)
        found[name] = {"ratio": median(ratios), "ratios": ratios, "worker_mib": worker}
    return found


if __name__ == "__main__":
    raise SystemExit(main())
