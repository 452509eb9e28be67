"""A Python process that nobody has used yet: it has loaded, allocated and started nothing."""

from __future__ import annotations

import os
import subprocess
import sys


def printed(program: str, *arguments: str) -> list[str]:
    """The words that `program` prints in a process of its own, which finds what this one does."""
    path = os.pathsep.join(path for path in sys.path if path)
    command = [sys.executable, "-c", program, *arguments]
    done = subprocess.run(command, env={**os.environ, "PYTHONPATH": path}, capture_output=True, text=True, check=True)
    return done.stdout.split()
