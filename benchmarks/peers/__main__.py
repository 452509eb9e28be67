"""Tidegate against other engines, on the same input in one session; pip and Maven fetch the engines.

`make bench-peers` is the whole measurement, `make bench-peers BENCH_ARGS="--peers flink"` a part of it, `--smoke` a
trial. It measures with Spark's settings as installed, and with tuned settings (`--settings tuned`: these alone). Other
engines run beside tidegate both times.
"""

from __future__ import annotations

import argparse

from benchmarks.options import arguments
from benchmarks.peers.joined_files import JF
from benchmarks.peers.joined_topics import J5
from benchmarks.peers.over_files import W8
from benchmarks.peers.over_kafka import W7, W9, W12, connector
from benchmarks.suite import Workload, carry_out, choices

WORKLOADS: tuple[Workload, ...] = (W7, W8, W9, W12, J5, JF)
OVER_KAFKA = {each.name: each for each in (W7, W9, W12, J5)}


def names() -> list[str]:
    """The choices of `--peers`; in W8 and JF tidegate always runs."""
    over_kafka = {each.name for workload in OVER_KAFKA.values() for each in workload.contestants()}
    return sorted(over_kafka | {each.name for each in (*W8.peers, *JF.peers)})


def main(argv: list[str] | None = None) -> int:
    parser = arguments(argparse.ArgumentParser(prog="make bench-peers", description=__doc__), "peers.json")
    choices(parser, WORKLOADS)
    parser.add_argument("--peers", nargs="+", choices=names(), default=[], help="by name; all if left out")
    options = parser.parse_args(argv)
    needed = not options.only or OVER_KAFKA.keys() & set(options.only)
    return carry_out(WORKLOADS, options, tuple(options.peers), connector() if needed else None)


if __name__ == "__main__":
    raise SystemExit(main())
