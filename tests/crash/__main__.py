"""`python -m crash --kills 50 [--seed N] [--pipeline join]`: `kill -9` of pipelines on a standalone cluster.

Each of the pipelines is killed so often, one after the other: one that counts in windows, and one with a join. The
third one, `--pipeline sinks`, writes to Delta tables and PostgreSQL.
"""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
from contextlib import nullcontext
from functools import partial
from pathlib import Path

from cluster.standalone import Cluster
from crash.kills import PIPELINES, WITH_FILES, Crashes
from crash.sinks_feed import database


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=50)
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(10**6))
    parser.add_argument("--pipeline", choices=PIPELINES, help="this one alone")
    chosen = parser.parse_args()
    print(f"seed {chosen.seed}", flush=True)
    say = partial(print, flush=True)
    right = True
    for name in [chosen.pipeline] if chosen.pipeline else WITH_FILES:
        with (
            tempfile.TemporaryDirectory(prefix="tidegate-crash-") as folder,
            nullcontext() if name in WITH_FILES else database(Path(folder)),
            Cluster() as cluster,
        ):
            verdict = Crashes(Path(folder), chosen.seed, cluster, say, name).run(chosen.kills)
        say(f"{name}: {verdict}")
        right &= verdict.right
    return 0 if right else 1


if __name__ == "__main__":
    sys.exit(main())
