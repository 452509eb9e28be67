"""The verdicts of docs/benchmarks.md in one table: which bars tidegate reaches, as installed and tuned.

The table is made from the sections of the page, so it has their numbers.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import NamedTuple

_VERDICT = re.compile(
    r"^\* (tidegate\w*)(?:, (as installed|tuned))?: ([\d.]+) times(?: ([^;]+))?; "
    r"wanted (at least|at most) ([\d.]+): (reached|\*\*not reached\*\*)",
    re.MULTILINE,
)
_SETTINGS = ("as installed", "tuned")
_HEAD = ("workload", "contestant", "beside", "wanted", *_SETTINGS)


class Verdict(NamedTuple):
    """A verdict on a contestant of tidegate; `others` is empty if it is measured against itself."""

    contestant: str
    settings: str
    times: str
    others: str
    bound: str
    bar: str
    reached: bool


def verdicts(section: str) -> list[Verdict]:
    """The verdicts of a section. A section with one column of speeds was measured tuned."""
    return [
        Verdict(contestant, settings or "tuned", times, others, bound, bar, verdict == "reached")
        for contestant, settings, times, others, bound, bar, verdict in _VERDICT.findall(section)
    ]


def table(sections: Iterable[tuple[str, str]]) -> str:
    """A row for each bar of these sections, by the names of their workloads; a number that misses its bar is bold."""
    rows: dict[tuple[str, ...], dict[str, str]] = {}
    for workload, section in sections:
        for of in verdicts(section):
            row = rows.setdefault((workload, of.contestant, of.others or "itself", f"{of.bound} {of.bar}"), {})
            row[of.settings] = of.times if of.reached else f"**{of.times}**"
    lines = [_HEAD, ("---",) * len(_HEAD)]
    lines += [(*row, *(rows[row].get(settings, "") for settings in _SETTINGS)) for row in sorted(rows, key=_in_order)]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)


def _in_order(row: tuple[str, ...]) -> list[str]:
    """Workloads by name, W9 before W10; the rows of one of them stay as they are."""
    return [part.zfill(3) if part.isdigit() else part for part in re.split(r"(\d+)", row[0])]
