"""`python -m hostile.spark_main --cases N --seed S`: topologies of hostile users, on Spark (make test-spark-random)."""

from __future__ import annotations

import argparse
import os
import secrets
import sys
import time
import warnings
from contextlib import ExitStack

# Without it workers run the `python3` on PATH, which need not be the one of this environment.
os.environ.setdefault("PYSPARK_PYTHON", sys.executable)

from pyspark.sql import SparkSession

from hostile import runs
from hostile.on_spark import PENDING_ON_SPARK, Finding, check, groups, session, smaller
from hostile.runs import report
from kafka.broker import Broker, jars

SIZE = 6
"""Scenarios of a query."""
MOST_REPORTS = 3
LINE = 1_500
"""Characters of a problem that are printed at once; a smaller case follows at the end."""


def main() -> int:
    parser = argparse.ArgumentParser(prog="hostile.spark_main", description=__doc__)
    parser.add_argument("--cases", type=int, default=300)
    parser.add_argument("--seed", type=int, default=None, help="of the first case; each next one has the next number")
    parser.add_argument("--size", type=int, default=SIZE, help="cases of a query")
    parser.add_argument("--kafka", action="store_true", help="records of a real broker where a case allows it")
    given = parser.parse_args()
    seed = secrets.randbelow(10**9) if given.seed is None else given.seed
    warnings.simplefilter("ignore")
    print(f"seed {seed}, up to {given.size} cases in a query", flush=True)
    with ExitStack() as stack:
        servers = stack.enter_context(Broker()).servers if given.kafka else ""
        return _checked(session(jars("connector") if given.kafka else ()), given, seed, servers)


def _checked(spark: SparkSession, given: argparse.Namespace, seed: int, servers: str) -> int:
    began, done, queries, found = time.monotonic(), 0, 0, list[Finding]()
    for group in groups(seed, given.cases, given.size):
        for finding in check(spark, group, servers):
            print(f"seed {finding.what.seed} fails: {finding.problem[:LINE]}", flush=True)
            found.append(finding)
        done, queries = done + len(group), queries + 1
        rate = (time.monotonic() - began) / done
        print(f"{done:,} of {given.cases:,} cases, {rate:.1f} s each, {len(found)} failed", flush=True)
    for finding in found[:MOST_REPORTS]:
        print(f"\n{_told(spark, finding, servers)}", flush=True)
        again = "test-kafka-random" if servers else "test-spark-random"
        print(f"repeat the whole case: make {again} CASES=1 SEED={finding.what.seed}")
    for shape, reason in PENDING_ON_SPARK.items():
        print(f"not drawn: {shape} ({reason})")
    failed = sorted(finding.what.seed for finding in found)
    print(f"=== {given.cases:,} cases in {queries:,} queries, {len(failed)} failed {failed or ''} ===")
    spark.stop()
    return 1 if found else 0


def _told(spark: SparkSession, finding: Finding, servers: str) -> str:
    without_spark = runs.run(finding.what)
    if without_spark.problem:
        what = runs.smaller(finding.what, lambda other: bool(runs.run(other).problem))
        return report(what, f"without Spark too, {runs.run(what).problem}")
    what = smaller(spark, finding.what, servers=servers)
    (again, *_) = check(spark, [what], servers) or [finding]
    return report(again.what, again.problem)


if __name__ == "__main__":
    sys.exit(main())
