"""The same measurement with this tidegate and with another checkout's, each in a process of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]


def sources(before: Path | None) -> dict[str, Path]:
    """The source folder of each version: "before" if a checkout is given, and "now"."""
    return ({"before": before.resolve() / "src"} if before is not None else {}) | {"now": ROOT / "src"}


def measured(module: str, source: Path, arguments: Sequence[str]) -> Any:
    """The JSON that `python -m module arguments` prints with the tidegate of the folder `source`."""
    environment = {**os.environ, "PYTHONPATH": f"{source}{os.pathsep}{ROOT}"}
    command = [sys.executable, "-m", module, *arguments]
    done = subprocess.run(command, env=environment, check=True, capture_output=True, text=True)
    return json.loads(done.stdout)
