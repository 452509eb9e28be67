"""Runs the smallest size of a benchmark."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from spark.session import quick

ROOT = Path(__file__).parents[2]


def smoke(benchmark: str, report: Path, *more: str) -> tuple[str, dict[str, Any]]:
    """What the smallest run of a benchmark prints, and the numbers that it leaves in `report`."""
    # A process of its own, as the targets of make have it: a benchmark needs a session with its own settings.
    done = subprocess.run(
        [sys.executable, "-m", benchmark, "--smoke", "--json", str(report), "--memory", "1g", *more],
        cwd=ROOT,
        env={**quick(report.with_suffix(".spark")), "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout, json.loads(report.read_text())
