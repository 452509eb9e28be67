"""The report of a long benchmark: saved after each workload, and taken up again with `--resume`."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from benchmarks.options import AS_INSTALLED, TUNED

COLUMNS = {AS_INSTALLED: "as_installed", TUNED: "workloads"}
"""The key of a report under which the workloads of each of SETTINGS stand."""
MAY_DIFFER = ("only", "resume")
"""Options of a run that may differ from those of the report that the run resumes."""


class ResumeError(SystemExit):
    """Ends a run whose report cannot be resumed; the message says what differs and what to do."""


def begin(path: Path, options: Mapping[str, Any]) -> dict[str, Any]:
    """The report at `path` if `options` ask to resume one, else an empty one.

    ResumeError: other options measured the report.
    """
    if not options["resume"] or not path.exists():
        return {column: {} for column in COLUMNS.values()} | {"settings": dict(options), "versions": {}, "seconds": 0}
    report: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    before = report["settings"]
    _same(path, before, options)
    either = list(dict.fromkeys([*before["only"], *options["only"]]))
    # Without --only all workloads are chosen.
    report["settings"] = {**options, "only": either if before["only"] and options["only"] else []}
    return report


def measured_on(report: dict[str, Any], path: Path, versions: Mapping[str, str]) -> None:
    """Write `versions` into the report. ResumeError: its numbers come from another commit, package or machine."""
    if report["versions"]:
        _same(path, report["versions"], versions)
    report["versions"] = dict(versions)


def _same(path: Path, before: Mapping[str, Any], now: Mapping[str, Any]) -> None:
    for name in dict.fromkeys([*before, *now]):
        if name not in MAY_DIFFER and before.get(name) != now.get(name):
            raise ResumeError(
                f"{path} cannot be resumed: it was measured with {name} = {before.get(name)!r}, and this run has "
                f"{now.get(name)!r}. All numbers of a report are measured alike: leave out --resume to begin anew, or "
                f"name another file with --json."
            )
