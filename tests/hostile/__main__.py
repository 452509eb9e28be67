"""`python -m hostile --cases N --seed S`: topologies of hostile users, on driver and layouts (make test-random)."""

from __future__ import annotations

import argparse
import os
import secrets
import sys
import time
import warnings
from collections import Counter
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool

from hostile.drawn import scenario
from hostile.runs import chunk, report, run, smaller

CHUNK = 25
"""Cases that a process runs before it reports."""
MOST_REPORTS = 3


def main() -> int:
    parser = argparse.ArgumentParser(prog="hostile", description=__doc__)
    parser.add_argument("--cases", type=int, default=2_000)
    parser.add_argument("--seed", type=int, default=None, help="of the first case; each next one has the next number")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="processes; the cores if left out")
    parser.add_argument("--reports", type=int, default=MOST_REPORTS, help="failing cases to show")
    given = parser.parse_args()
    seed = secrets.randbelow(10**9) if given.seed is None else given.seed
    warnings.simplefilter("ignore")
    print(f"seed {seed}, {given.jobs} processes", flush=True)
    try:
        counts, failed = _all(given.cases, seed, given.jobs)
    except BrokenProcessPool as error:
        print(f"a process died: {error}", file=sys.stderr)
        return 1
    for kind, count in sorted(counts.items()):
        print(f"  {count:>9,}  {kind}")
    for number in sorted(failed)[: given.reports]:
        what = smaller(scenario(number), lambda other: bool(run(other).problem))
        print(f"\n{report(what, run(what).problem)}\nrepeat the whole case: make test-random CASES=1 SEED={number}")
    print(f"=== {given.cases:,} cases, {counts['rows']:,} rows, {len(failed)} failed {sorted(failed)[:30] or ''} ===")
    return 1 if failed else 0


def _all(cases: int, seed: int, jobs: int) -> tuple[Counter[str], list[int]]:
    counts: Counter[str] = Counter()
    failed: list[int] = []
    began, said, done_cases = time.monotonic(), 0.0, 0
    with ProcessPoolExecutor(jobs) as pool:
        sizes = {first: min(CHUNK, seed + cases - first) for first in range(seed, seed + cases, CHUNK)}
        running = {pool.submit(chunk, first, size): size for first, size in sizes.items()}
        for done in as_completed(running):
            part, failures = done.result()
            counts.update(part)
            failed += failures
            done_cases += running[done]
            now = time.monotonic() - began
            if now - said > 5 or done_cases == cases:
                said = now
                print(f"{done_cases:,} of {cases:,} cases, {done_cases / now:.0f}/s, {len(failed)} failed", flush=True)
    return counts, failed


if __name__ == "__main__":
    sys.exit(main())
