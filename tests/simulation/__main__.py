"""`python -m simulation --cases N --seed S`: a simulated cluster under faults, every result once (make simulate)."""

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
from dataclasses import dataclass, field

from simulation.runs import Case, report, run, smaller
from tidegate import TidegateWarning

CHUNK = 50
"""Cases that a process runs before it reports."""
MOST_REPORTS = 3


@dataclass
class Tally:
    """Totals over a number of cases."""

    cases: int = 0
    faulty: int = 0
    faults: Counter[str] = field(default_factory=Counter)
    failed: list[int] = field(default_factory=list)

    def add(self, other: Tally) -> None:
        """Add the totals of another tally."""
        self.cases += other.cases
        self.faulty += other.faulty
        self.faults.update(other.faults)
        self.failed += other.failed


def chunk(first: int, cases: int) -> Tally:
    """Run the cases from a seed on."""
    warnings.simplefilter("ignore", TidegateWarning)
    tally = Tally(cases)
    for seed in range(first, first + cases):
        outcome = run(Case(seed))
        tally.faults.update(outcome.adversary.counts)
        tally.faulty += bool(outcome.adversary.counts)
        if outcome.problem:
            tally.failed.append(seed)
    return tally


def simulate(cases: int, seed: int, jobs: int) -> Tally:
    """Run the cases in `jobs` processes, and print the progress every few seconds."""
    whole, began, said = Tally(), time.monotonic(), 0.0
    with ProcessPoolExecutor(jobs) as pool:
        starts = range(seed, seed + cases, CHUNK)
        running = [pool.submit(chunk, first, min(CHUNK, seed + cases - first)) for first in starts]
        for done in as_completed(running):
            part = done.result()
            whole.add(part)
            for failed in part.failed:
                print(f"seed {failed} fails", flush=True)
            now = time.monotonic() - began
            if now - said > 5 or whole.cases == cases:
                said = now
                rate = f"{whole.cases / now:.0f}/s, {whole.faults.total():,} faults, {len(whole.failed)} failed"
                print(f"{whole.cases:,} of {cases:,} cases, {rate}", flush=True)
    return whole


def main() -> int:
    parser = argparse.ArgumentParser(prog="simulation", description=__doc__)
    parser.add_argument("--cases", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=None, help="of the first case; each next one has the next number")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="processes; the cores if left out")
    given = parser.parse_args()
    seed = secrets.randbelow(10**9) if given.seed is None else given.seed
    warnings.simplefilter("ignore", TidegateWarning)
    print(f"seed {seed}, {given.jobs} processes", flush=True)
    try:
        whole = simulate(given.cases, seed, given.jobs)
    except BrokenProcessPool as error:
        print(f"a process died: {error}", file=sys.stderr)
        return 1
    for kind, count in whole.faults.most_common():
        print(f"  {count:>9,}  {kind}")
    for failed in sorted(whole.failed)[:MOST_REPORTS]:
        print(f"\n{report(smaller(Case(failed)))}\nrepeat the whole case: make simulate CASES=1 SEED={failed}")
    print(f"=== {whole.cases:,} cases, {whole.faulty:,} with faults, {len(whole.failed)} failed ===")
    return 1 if whole.failed else 0


if __name__ == "__main__":
    sys.exit(main())
