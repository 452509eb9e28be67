"""Python workers with pages of 2 MiB, with compiled modules, from a zip, by themselves, in two pools: time and memory.

`python -m benchmarks.worker_pools`, with `PYTHONPATH=src` where tidegate is not installed. W1 and J1-left-1, both by
`tg.files.source`. Each way has a session of its own, because Spark keeps workers for a minute; the ways take turns. The
first query of a session starts the workers, and the second reuses them. Both have 1,000 records, and the time of their
first micro-batch counts. The first turn warms up the JVM and is not counted. `--only "first micro-batch" "next start"`
runs some of the queries, `--ways "pages of 2 MiB" "compiled modules"` some of the ways. Each is compared with the last.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path
from statistics import median
from typing import Any

from pyspark.sql import SparkSession

from benchmarks import two_sides
from benchmarks.contestant import FILES, Contestant
from benchmarks.inputs import Shape, write
from benchmarks.measure import WARM_UP, Digest, Run, run
from benchmarks.options import arguments, save, say, session, versions
from benchmarks.workloads import joins, tumbling
from tidegate.runtime.spark.daemon import PLAIN
from tidegate.runtime.spark.session.config import COMPILED, DAEMON, PATH, PRELOADED, SIMPLIFIED

PAGES = "spark.executorEnv.GLIBC_TUNABLES"
WAYS = {
    "pages of 2 MiB": {SIMPLIFIED: "false", **PRELOADED, **COMPILED, PAGES: "glibc.malloc.hugetlb=1"},
    "compiled modules": {SIMPLIFIED: "false", **PRELOADED, **COMPILED},
    "forked with all imported": {SIMPLIFIED: "false", **PRELOADED, PATH: ""},
    "one pool": {SIMPLIFIED: "false", DAEMON: PLAIN, PATH: ""},
    "two pools": {SIMPLIFIED: "true", DAEMON: PLAIN, PATH: ""},
}
"""The settings of decisions 0085, 0061, 0050 and 0046.

With two pools, map and stateful tasks have workers of their own.
"""
FIRST = "first micro-batch"
NEXT = "next start"
KEYS = 100_000
SIZES = {True: (2_000, 4), False: (1_000_000, 8)}
"""Rows of a micro-batch and number of micro-batches, in a trial (True) and otherwise."""


def inputs(scratch: Path, smoke: bool) -> dict[str, tuple[Contestant, Path]]:
    """Contestant and files of each query, in the order in which a session runs them."""
    rows, batches = SIZES[smoke]
    (windows,) = (each for each in tumbling.OURS if each.name == FILES)
    (pairs,) = (each for each in joins.ours("left", joins.WINDOW_MS) if each.name == FILES)
    size = "smoke" if smoke else "default"
    few = write(Shape(100, 1_000, 1), scratch)
    return {
        FIRST: (windows, few),
        NEXT: (windows, few),
        "W1": (windows, write(Shape(min(KEYS, rows), rows, batches), scratch)),
        "J1-left-1": (pairs, two_sides.write(joins.shapes(KEYS, 1)[size], scratch)),
    }


def turn(spark: SparkSession, of: dict[str, tuple[Contestant, Path]]) -> dict[str, Run]:
    return {name: run(spark, contestant, files) for name, (contestant, files) in of.items()}


def compared(found: dict[str, list[dict[str, Run]]]) -> dict[str, Any]:
    """JSON by query: the seconds of each way, its speed over the last way's in the same turn, and its memory (MiB).

    Raises AssertionError if the rows of the ways differ.
    """
    report: dict[str, Any] = {}
    last = list(found)[-1]
    for query in found[last][0]:
        runs = {way: [each[query] for each in turns] for way, turns in found.items()}
        answers = {Digest.all(one.digests) for each in runs.values() for one in each}
        if len(answers) > 1:
            raise AssertionError(f"{query}: not the same rows: {answers}")
        took = {way: [seconds(query, one) for one in each] for way, each in runs.items()}
        ratios = {
            way: [slow / one for one, slow in zip(took[way], took[last], strict=True)] for way in found if way != last
        }
        memory = {
            way: {
                "all": median(one.python_mib for one in each),
                "largest": max(one.worker_mib for one in each),
                "its own": max(one.own_mib for one in each),
            }
            for way, each in runs.items()
        }
        report[query] = {"seconds": took, "ratios": ratios, "mib": memory}
    return report


def seconds(query: str, run: Run) -> float:
    """Seconds of the first micro-batch of the first two queries, of all timed micro-batches of the others."""
    return run.seconds[0] if query in (FIRST, NEXT) else sum(run.seconds[WARM_UP:])


def main(argv: list[str] | None = None) -> int:
    parser = arguments(argparse.ArgumentParser(description=__doc__), "worker_pools.json")
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--only", nargs="+", default=[], help="queries")
    parser.add_argument("--ways", nargs="+", choices=list(WAYS), default=list(WAYS), metavar="WAY")
    options = parser.parse_args(argv)
    found: dict[str, list[dict[str, Run]]] = {way: [] for way in WAYS if way in options.ways}
    with tempfile.TemporaryDirectory(prefix="tidegate-bench-") as scratch:
        of = inputs(Path(scratch), options.smoke)
        of = {query: each for query, each in of.items() if not options.only or query in options.only}
        for number in range(options.turns + 1):
            for way in list(found)[:: -1 if number % 2 else 1]:
                with session(options, WAYS[way]) as spark:
                    one, ran_on = turn(spark, of), versions(spark)
                times = "  ".join(f"{query} {seconds(query, each):.1f} s" for query, each in one.items())
                say(f"  turn {number}/{options.turns}  {way:24} {times}")
                found[way] += [one] if number else []
    report = compared(found)
    for query, each in report.items():
        say(f"{query}, times as fast as with {list(found)[-1]}, and MiB")
        for way, mib in each["mib"].items():
            ratios = each["ratios"].get(way, [1.0])
            fast = f"{median(ratios):.2f} ({min(ratios):.2f} to {max(ratios):.2f})"
            sizes = f"all Python {mib['all']:.0f}, largest worker {mib['largest']:.0f}, of its own {mib['its own']:.0f}"
            say(f"  {way:24} {fast:20} {sizes}")
    save({"turns": options.turns, "queries": report, "versions": ran_on}, options.json)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
