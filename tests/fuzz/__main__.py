"""`python -m fuzz`: many cases of damaged bytes and odd definitions, and none that crashes (make test-fuzz)."""

from __future__ import annotations

import argparse
import secrets
import sys
import time
import warnings
from random import Random

from fuzz.cases import CASES
from tidegate import TidegateWarning


def run(cases: int, seed: int) -> int:
    """Run this many cases; prints each failure with the seed that repeats it, and returns the number of failures."""
    failed = 0
    for name, (case, share) in CASES.items():
        began = time.monotonic()
        many = cases * share // 100
        wrong = 0
        for number in range(many):
            try:
                case(Random(f"{seed} {name} {number}"))
            except Exception as error:
                wrong += 1
                if wrong <= 5:
                    print(f"{name}, case {number} of seed {seed}: {type(error).__name__}: {error}", file=sys.stderr)
        print(f"{name}: {many:,} cases, {wrong} failed, {time.monotonic() - began:.0f} s", flush=True)
        failed += wrong
    return failed


def main() -> int:
    parser = argparse.ArgumentParser(prog="fuzz", description=__doc__)
    parser.add_argument("--cases", type=int, default=1_000_000)
    parser.add_argument("--seed", type=int, default=None, help="repeats the cases of an earlier run")
    given = parser.parse_args()
    seed = secrets.randbelow(1 << 32) if given.seed is None else given.seed
    warnings.simplefilter("ignore", TidegateWarning)
    print(f"seed {seed}")
    failed = run(given.cases, seed)
    print(f"=== {given.cases:,} cases, {failed} failed ===")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
