"""Memory of Python workers before their first record, several of them forked from one daemon as Spark does it.

`python -m benchmarks.workers`, with `PYTHONPATH=src` where tidegate is not installed; Linux only. Each way is a daemon
that has imported some modules and forks workers, which import more modules step by step. Their memory is read from
/proc/PID/smaps_rollup while all of them live. Rss counts a page in every worker that has it; Pss divides it among the
workers that share it; private pages belong to one worker alone.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Sequence
from typing import NamedTuple

from benchmarks.options import say

STEPS = {
    "nothing": "pass",
    "pyspark.worker": "import pyspark.worker",
    "numpy": "import numpy",
    "pyarrow": "import pyarrow",
    "pyarrow.compute": "import pyarrow.compute",
    "pandas": "import pandas",
    "the map step": "import tidegate.runtime.spark.to_spark",
    "the stateful step": "import tidegate.runtime.spark.worker.state",
}
"""The imports of a worker, in order."""

DAEMON = """
import gc, json, os, sys
before, steps, workers = json.loads(sys.argv[1])
for code in before:
    exec(code)
if before:
    gc.freeze()
def held(pid):
    with open(f"/proc/{pid}/smaps_rollup") as lines:
        found = {line.split(":")[0]: int(line.split()[1]) for line in lines if line.rstrip().endswith("kB")}
    return found["Rss"], found["Pss"], found["Private_Clean"] + found["Private_Dirty"]
threads = len(os.listdir("/proc/self/task"))
pipes = []
for _ in range(workers):
    (come, go), (ready, answered) = os.pipe(), os.pipe()
    if os.fork() == 0:
        for code in steps:
            os.read(come, 1)
            exec(code)
            loaded = {name.partition(".")[0] for name in sys.modules}
            os.write(answered, b"1" if "pandas" in loaded else b"0")
        os.read(come, 1)
        os._exit(0)
    pipes.append((go, ready))
children = [int(pid) for pid in open(f"/proc/self/task/{os.getpid()}/children").read().split()]
found = []
for _ in steps:
    for go, _ready in pipes:
        os.write(go, b"1")
    pandas = [os.read(ready, 1) for _go, ready in pipes]
    found.append([*map(sum, zip(*map(held, children))), pandas[0] == b"1"])
print(json.dumps([found, threads]))
for go, _ in pipes:
    os.write(go, b"1")
"""


class Held(NamedTuple):
    """Memory of all workers together (KiB), and whether pandas is loaded."""

    rss: int
    pss: int
    private: int
    pandas: bool


def measured(before: Sequence[str], workers: int) -> tuple[list[Held], int]:
    """Memory of the workers after each of STEPS, and threads of their daemon, which runs the code of `before` first."""
    # By default Arrow starts a thread at its import, and a process with threads cannot be forked safely.
    quiet = {"JE_ARROW_MALLOC_CONF": "background_thread:false"} if before else {}
    env = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join(filter(None, sys.path)), **quiet}
    given = json.dumps([list(before), list(STEPS.values()), workers])
    ran = subprocess.run([sys.executable, "-c", DAEMON, given], env=env, check=True, capture_output=True, text=True)
    found, threads = json.loads(ran.stdout)
    return [Held(*one) for one in found], threads


def main(arguments: Sequence[str] | None = None) -> None:
    """The command `python -m benchmarks.workers`."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.workers", description=(__doc__ or "").partition("\n")[0]
    )
    parser.add_argument("--workers", type=int, default=4)
    given = parser.parse_args(arguments)
    ways = {"as Spark forks them": [], "all imported before the fork": list(STEPS.values())}
    for name, before in ways.items():
        found, threads = measured(before, given.workers)
        say(
            f"\n{name}; threads of the daemon: {threads}. MiB of {given.workers} workers together, behind each import\n"
        )
        say("| | Rss | Pss | private | pandas |\n|---|---|---|---|---|")
        for step, held in zip(STEPS, found, strict=True):
            sizes = " | ".join(f"{size / 1024:.0f}" for size in held[:3])
            say(f"| {step} | {sizes} | {'loaded' if held.pandas else ''} |")


if __name__ == "__main__":
    main()
