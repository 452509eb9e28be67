"""`python -m soak --minutes 60`: a live pipeline, a picture of its resources, and whether they stay flat."""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

from soak.picture import draw
from soak.soak import Soak


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=60)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--output", type=Path, default=Path("output"))
    chosen = parser.parse_args()
    chosen.output.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="tidegate-soak-") as folder:
        soak = Soak(Path(folder), chosen.minutes * 60, chosen.seed, lambda line: print(line, flush=True))
        verdict = soak.run()
    draw(soak, verdict, chosen.output / "soak.png")
    print(f"drawn: {chosen.output / 'soak.png'}")
    print(verdict)
    return 0 if verdict.right else 1


if __name__ == "__main__":
    sys.exit(main())
