"""The verdicts of docs/benchmarks.md in one table: which bars tidegate reaches, as installed and tuned.

The table is made from the sections of the page, so it has their numbers.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

_VERDICT = re.compile(
    r"^\* (tidegate\w*)(?:, (as installed|tuned))?: ([\d.]+) times(?: ([^;]+))?; "
    r"wanted (at least|at most) ([\d.]+): (reached|\*\*not reached\*\*)",
    re.MULTILINE,
)
_SETTINGS = ("as installed", "tuned")
_HEAD = ("workload", "contestant", "beside", "wanted", *_SETTINGS)


def table(sections: Iterable[tuple[str, str]]) -> str:
    """A row for each bar of these sections, by the names of their workloads; a number that misses its bar is bold."""
    rows: dict[tuple[str, ...], dict[str, str]] = {}
    for workload, section in sections:
        for contestant, settings, times, others, least, bar, verdict in _VERDICT.findall(section):
            row = rows.setdefault((workload, contestant, others or "itself", f"{least} {bar}"), {})
            # A section with one column of speeds was measured tuned.
            row[settings or "tuned"] = times if verdict == "reached" else f"**{times}**"
    lines = [_HEAD, ("---",) * len(_HEAD)]
    lines += [(*row, *(rows[row].get(settings, "") for settings in _SETTINGS)) for row in sorted(rows, key=_in_order)]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)


def _in_order(row: tuple[str, ...]) -> list[str]:
    """Workloads by name, W9 before W10; the rows of one of them stay as they are."""
    return [part.zfill(3) if part.isdigit() else part for part in re.split(r"(\d+)", row[0])]
