"""Draws the parts of a micro-batch's time, and writes them as text.

A bar has the work of the driver, before and after the stages, then the map stage, then the stateful stage. The parts of
a stage are in order of time, except parts that take turns.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tools.pages.svg import Drawing

from benchmarks.split import DRIVER, MAP, MEANING, REST, STATEFUL, TASKS, dearest_of, median_of

WIDTH, SIDE, TOP = 760, 16, 52
BAR, PITCH = 20, 58
LEGEND_PITCH, LEGEND_COLUMNS = 18, 3
LETTER = 6.2
"""About the width of a digit in a segment (pixels)."""

FILLS = {
    "offsets and logs": "#8c959f",
    "planning": "#afb8c1",
    "around the stages": "#d0d7de",
    TASKS: "#eaeef2",
    "scan": "#54aeff",
    "Arrow out": "#80ccff",
    "pack": "#0550ae",
    "shuffle": "#8250df",
    "state load": "#ffd8b5",
    "state read": "#fb8f44",
    "kernel": "#1a7f37",
    "state write": "#e16f24",
    "Arrow in": "#4ac26b",
    "commit": "#bc4c00",
    REST: "#ffffff",
}
EDGE = "#57606a"
NAMES = {DRIVER: "driver", MAP: "map stage", STATEFUL: "stateful stage"}
OF_A_STAGE = (
    "Of a stage the parts are those of the task that ended last, and of those before it on its core; "
    "their sum is the whole micro-batch."
)
PICKS = {"median": median_of, "dearest": dearest_of}


def drawn(name: str, work: dict[str, Any]) -> str:
    """An SVG of the median micro-batch of each contestant, and of the slowest if it is another; to one scale."""
    drawing = Drawing(WIDTH, f"{name}: where the time of a micro-batch goes")
    drawing.write(SIDE, 26, f"{name}: where the time of a micro-batch goes", size=15, weight="bold")
    bars = list(_bars(work))
    scale = (WIDTH - 2 * SIDE) / max(batch["ms"] for _, batch in bars)
    for row, (label, batch) in enumerate(bars):
        y = TOP + row * PITCH
        drawing.write(SIDE, y, f"{label}: {batch['ms']:,} ms", size=12)
        _bar(drawing, y + 6, batch["parts"], scale)
    bottom = TOP + len(bars) * PITCH
    _legend(drawing, bottom)
    return drawing.text(bottom + LEGEND_PITCH * -(-len(FILLS) // LEGEND_COLUMNS) + 8)


def _bars(work: dict[str, Any]) -> list[tuple[str, dict[str, Any]]]:
    found = []
    for contestant in work["contestants"].values():
        picked = {which: pick(contestant["batches"]) for which, pick in PICKS.items()}
        if picked["dearest"] is picked["median"]:
            del picked["dearest"]
        found += [(f"{contestant['label']}, {which} batch", batch) for which, batch in picked.items()]
    return found


def _bar(drawing: Drawing, y: float, parts: list[list[Any]], scale: float) -> None:
    x = float(SIDE)
    for where in (DRIVER, MAP, STATEFUL):
        began = x
        for _, name, ms in (part for part in parts if part[0] == where):
            # A part that noise has made negative, by a millisecond or two, has no width.
            width = max(ms, 0.0) * scale
            drawing.rect(x, y, width, BAR, fill=FILLS[name], edge=EDGE, thick="0.4")
            text = f"{ms:,.0f}"
            if width > LETTER * len(text) + 4:
                drawing.write(x + width / 2, y + 14, text, size=10, anchor="middle", color=_ink(name))
            x += width
        if x - began > LETTER * len(NAMES[where]):
            drawing.line(began + 1, y + BAR + 4, x - 1, y + BAR + 4, EDGE)
            drawing.write((began + x) / 2, y + BAR + 15, NAMES[where], size=10, anchor="middle", color=EDGE)


def _ink(name: str) -> str:
    return "#ffffff" if name in ("pack", "shuffle", "kernel", "commit") else "#24292f"


def _legend(drawing: Drawing, top: float) -> None:
    for number, (name, fill) in enumerate(FILLS.items()):
        x = SIDE + number % LEGEND_COLUMNS * (WIDTH - 2 * SIDE) / LEGEND_COLUMNS
        y = top + number // LEGEND_COLUMNS * LEGEND_PITCH
        drawing.rect(x, y, 11, 11, fill=fill, edge=EDGE, thick="0.4")
        drawing.write(x + 17, y + 10, name, size=11)


def section(report: dict[str, Any], how: str, folder: Path) -> str:
    """The section of the page, with the sentence `how` on the measurement; pictures are written to `folder`."""
    folder.mkdir(exist_ok=True)
    lines = ["### Where the time goes", "", how, ""]
    lines += [OF_A_STAGE, ""]
    lines += ["| where | part | what is in it |", "|---|---|---|"]
    lines += [f"| {NAMES[where]} | {name} | {what} |" for (where, name), what in MEANING.items()]
    for name, work in report["workloads"].items():
        (folder / f"where-{name}.svg").write_text(drawn(name, work), encoding="utf-8")
        lines += ["", f"![{name}: where the time of a micro-batch goes]({folder.name}/where-{name}.svg)", ""]
        lines += [f"* {_largest(one)}" for one in work["contestants"].values()]
    return "\n".join(lines)


def _largest(contestant: dict[str, Any]) -> str:
    """A sentence on the largest parts of the median batch, and the rest that no part has."""
    one = median_of(contestant["batches"])
    parts = sorted(one["parts"], key=lambda part: -part[2])[:4]
    largest = ", ".join(f"{name} ({where}) {ms / one['ms']:.0%}" for where, name, ms in parts)
    rest = next(ms for _, name, ms in one["parts"] if name == REST)
    return f"{contestant['label']}: {one['ms']:,} ms; most in {largest}; {REST} {rest / one['ms']:z.1%}"
