"""`python -m tidegate doctor`: checks part by part whether this machine can run tidegate on Spark."""

from __future__ import annotations

import shutil
from textwrap import fill

from tidegate.runtime.spark.session.doctor import Finding, findings

MISSING = 1


def run() -> int:
    """Print the finding about each part, with the remedy. Returns 0 if all parts fit, 1 if one does not."""
    found = list(findings())
    width = min(shutil.get_terminal_size().columns, 120)
    for finding in found:
        print(_shown(finding, width))
    problems = sum(finding.problem is not None for finding in found)
    print(f"{problems} of {len(found)} parts need something." if problems else "Everything a query needs is here.")
    return MISSING if problems else 0


def _shown(finding: Finding, width: int) -> str:
    line = f"{'ok  ' if finding.problem is None else 'FIX '}  {finding.part:<18} {finding.found}"
    if finding.problem is None:
        return line
    return f"{line}\n{fill(finding.problem, width, initial_indent=' ' * 6, subsequent_indent=' ' * 6)}"
