"""Pictures for docs/benchmarks.md: lines over a quantity, and the speeds of joins beside their bars.

They are drawn from the tables and verdicts of the page, so a picture shows the numbers beside it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from math import floor as floor_of
from math import log10
from pathlib import Path

from tools.pages.svg import Drawing

from benchmarks.page_verdicts import verdicts

FOLDER = "benchmarks"
"""The folder of the pictures, seen from the page."""
INK, GRID, BELOW = "#24292f", "#d0d7de", "#bc4c00"
LINES = ("#0969da", "#1a7f37", "#bc4c00", "#8250df", "#57606a", "#bf8700")
WIDTH, LEFT, RIGHT, TOP, PLOT, PITCH = 560, 64, 24, 44, 200, 18
LABELS = {"tidegate": "over Spark", "tidegate_files": "by files", "tidegate_consumed": "by librdkafka"}
LOGARITHMIC = 20
"""Values that differ by more than this factor are drawn on a logarithmic scale."""

_OPEN = re.compile(r"(.*), ([\d,]+) open")

Points = dict[str, dict[int, float]]
"""A value by line and quantity, such as seconds of a batch by contestant and number of open entries."""


def points(section: str) -> Points:
    """The last column of seconds in a table whose rows are named "CONTESTANT, N open"; empty if it is another table."""
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in section.splitlines() if line[:1] == "|"]
    seconds = [at for at, title in enumerate(rows[0]) if title.startswith("seconds a batch")] if rows else []
    found: Points = {}
    for row in rows[2:] if seconds else ():
        if (label := _OPEN.fullmatch(row[0])) and row[seconds[-1]]:
            found.setdefault(label[1], {})[int(label[2].replace(",", ""))] = float(row[seconds[-1]])
    return found


def with_picture(name: str, section: str, folder: Path) -> str:
    """The section with its picture behind its table, if it is a table over open entries; writes the picture."""
    if not (found := points(section)):
        return section
    folder.mkdir(exist_ok=True)
    (folder / f"{name}.svg").write_text(lines(f"{name}: seconds of a batch", "open entries", found), encoding="utf-8")
    picture = f"![{name}: seconds of a batch over open entries]({FOLDER}/{name}.svg)"
    text = [line for line in section.splitlines() if not line.startswith(f"![{name}:")]
    last = max(at for at, line in enumerate(text) if line[:1] == "|")
    before, after = text[: last + 1], "\n".join(text[last + 1 :]).strip("\n")
    return "\n".join([*before, "", picture, "", after]).rstrip()


def lines(what: str, quantity: str, found: Points) -> str:
    """An SVG of values over a quantity, whose values stand at equal distances."""
    entries = sorted({at for line in found.values() for at in line})
    values = [value for line in found.values() for value in line.values()]
    logarithmic = max(values) > LOGARITHMIC * min(values)
    low = 10.0 ** floor_of(log10(min(values))) if logarithmic else 0.0
    floor, step = TOP + PLOT, (WIDTH - LEFT - RIGHT) / max(1, len(entries) - 1)

    def height(value: float) -> float:
        share = log10(value / low) / log10(max(values) / low) if logarithmic else value / max(values)
        return floor - share * PLOT

    drawing = Drawing(WIDTH, f"{what} over {quantity}")
    scale = ", logarithmic," if logarithmic else ""
    drawing.write(16, 24, f"{what}{scale} over {quantity}", size=14, weight="bold")
    ticks = [low * 10**n for n in range(9) if low * 10**n <= max(values)] if logarithmic else [0, max(values) / 2]
    for tick in [*ticks, max(values)]:
        drawing.line(LEFT, height(tick), WIDTH - RIGHT, height(tick), GRID)
        drawing.write(LEFT - 6, height(tick) + 4, f"{tick:.2g}", size=11, anchor="end")
    for at, number in enumerate(entries):
        anchor = "start" if at == 0 else "end" if at == len(entries) - 1 else "middle"
        drawing.write(LEFT + at * step, floor + PITCH, f"{number:,}", size=11, anchor=anchor, color=INK)
    for row, (label, line) in enumerate(found.items()):
        color = LINES[row % len(LINES)]
        places = [(LEFT + entries.index(at) * step, height(value)) for at, value in sorted(line.items())]
        for (x1, y1), (x2, y2) in zip(places, places[1:], strict=False):
            drawing.line(x1, y1, x2, y2, color, thick="2")
        for x, y in places:
            drawing.circle(x, y, 4, fill=color)
        y = floor + PITCH * (row + 2.5)
        drawing.rect(LEFT, y - 9, 10, 10, fill=color)
        drawing.write(LEFT + 16, y, label, size=12)
    return drawing.text(floor + PITCH * (len(found) + 3))


@dataclass(frozen=True)
class Speed:
    """A verdict of the page: `contestant` is `times` as fast as the fastest of others, and `wanted` was the bar."""

    race: str
    contestant: str
    times: float
    wanted: float


def speeds(race: str, section: str) -> list[Speed]:
    """The verdicts of a section on speeds, as measured tuned."""
    return [
        Speed(race, of.contestant, float(of.times), float(of.bar))
        for of in verdicts(section)
        if of.settings == "tuned" and of.bound == "at least"
    ]


def beside_bars(title: str, found: Iterable[Speed]) -> str:
    """An SVG with a rectangle for each speed and a mark at its bar; a speed below its bar has another color."""
    every, edge, tall = list(found), 190, 20
    drawing = Drawing(WIDTH + 120, title)
    drawing.write(16, 24, title, size=14, weight="bold")
    scale = (WIDTH - edge) / max(max(each.times, each.wanted) for each in every)
    y, before = float(TOP), ""
    for each in every:
        if each.race != before:
            y += 8 if before else 0
            drawing.write(16, y + 13, each.race, size=12, weight="bold")
            before = each.race
        reached = each.times >= each.wanted
        drawing.write(edge - 6, y + 13, LABELS.get(each.contestant, each.contestant), size=11, anchor="end")
        drawing.rect(edge, y + 2, each.times * scale, tall - 6, fill=LINES[0] if reached else BELOW)
        mark = edge + each.wanted * scale
        drawing.line(mark, y - 1, mark, y + tall - 1, INK, thick="2")
        end = edge + max(each.times, each.wanted) * scale
        drawing.write(end + 6, y + 13, f"{each.times:g} (wanted {each.wanted:g})", size=11)
        y += tall
    return drawing.text(y + 12)
