"""`python -m crash --kills 50 [--seed N]`: a pipeline on a standalone cluster under `kill -9` of its processes."""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
from pathlib import Path

from cluster.standalone import Cluster
from crash.kills import Crashes


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=50)
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(10**6))
    chosen = parser.parse_args()
    print(f"seed {chosen.seed}", flush=True)
    with tempfile.TemporaryDirectory(prefix="tidegate-crash-") as folder, Cluster() as cluster:
        verdict = Crashes(Path(folder), chosen.seed, cluster, lambda line: print(line, flush=True)).run(chosen.kills)
    print(verdict)
    return 0 if verdict.right else 1


if __name__ == "__main__":
    sys.exit(main())
