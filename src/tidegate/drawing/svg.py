"""Parts of SVG pictures: lines of text, and bars of time to scale."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

CHARACTER = 7.2
"""The width of a character in units of the picture: of a wide one, because the font is not known."""
LINE = 18


@dataclass(frozen=True)
class Bar:
    """A stretch of time in a row: `kind` is "window", "grace" or "gap"; `open`: it has no end."""

    start: float
    length: float
    kind: str
    label: str = ""
    open: bool = False


HATCH = (
    '<pattern id="tg-grace" width="6" height="6" patternUnits="userSpaceOnUse" patternTransform="rotate(45)">'
    '<rect width="6" height="6" class="paper"/><line x1="0" y1="0" x2="0" y2="6" class="hatch"/></pattern>'
)
STYLE = (
    "text{fill:var(--ink)}.quiet{fill:var(--quiet)}.paper{fill:var(--paper)}.hatch{stroke:var(--two);stroke-width:2}"
    ".window{fill:var(--one);stroke:var(--one)}.grace{fill:url(#tg-grace);stroke:var(--two)}"
    ".gap{fill:none;stroke:var(--three);stroke-dasharray:3 3}.mark{stroke:var(--ink);stroke-width:2}"
)
"""CSS rules for the parts of a picture; a page puts its own class in front of each."""


def text(x: float, y: float, words: str, *, bold: bool = False, quiet: bool = False) -> str:
    """A line of text."""
    look = (' font-weight="600"' if bold else "") + (' class="quiet"' if quiet else "")
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="start"{look}>{escape(words)}</text>'


def bars(rows: Sequence[Sequence[Bar]], x: float, y: float, wide: float, mark: tuple[float, str] | None = None) -> str:
    """Rows of bars, one above the other, on one scale; `mark` is an instant and its name."""
    ends = [bar.start + bar.length for row in rows for bar in row]
    scale = wide / max(*ends, 1.0)
    drawn = []
    for number, row in enumerate(rows):
        top = y + number * LINE
        for bar in row:
            length = max(bar.length * scale, 2.0)
            place = f'x="{x + bar.start * scale:.1f}" y="{top:.1f}" width="{length:.1f}" height="{LINE - 6}"'
            drawn.append(f'<rect class="{bar.kind}" {place}/>')
            if bar.open:
                end = x + bar.start * scale + length
                drawn.append(f'<path class="window" d="M{end:.1f} {top - 2:.1f}l8 {LINE / 2 - 1}l-8 {LINE / 2 - 1}z"/>')
    if mark is not None:
        at = x + mark[0] * scale
        drawn.append(
            f'<line class="mark" x1="{at:.1f}" y1="{y - 4:.1f}" x2="{at:.1f}" y2="{y + len(rows) * LINE:.1f}"/>'
        )
        drawn.append(text(at + 4, y + len(rows) * LINE + 12, mark[1], quiet=True))
    return "".join(drawn)
