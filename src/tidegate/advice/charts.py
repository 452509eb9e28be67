"""Small charts as SVG text. Lines differ by dash and mark, bars by filling; each has its name beside it.

The charts are readable without colour, and need no scripts and no fonts. Colours are CSS variables of the page.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from html import escape

_WIDTH, _HEIGHT = 500, 220
_LEFT, _RIGHT, _TOP, _BOTTOM = 88, 100, 36, 36
_COLORS = ("var(--one)", "var(--two)", "var(--three)")
_DASHES = ("", "7 4", "2 3")
_HATCH = (
    '<defs><pattern id="tg-hatch" width="6" height="6" patternUnits="userSpaceOnUse" patternTransform="rotate(45)">'
    '<rect width="6" height="6" fill="var(--paper)"/><line x1="0" y1="0" x2="0" y2="6" stroke="var(--one)" '
    'stroke-width="3"/></pattern></defs>'
)

Shown = Callable[[float], str]


def curves(
    names: Sequence[str],
    lines: Sequence[tuple[str, Sequence[float | None]]],
    shown: Shown,
    marks: Mapping[str, str],
) -> str:
    """A line chart over named positions, from 0 up; `marks` are words at some of the positions."""
    top = max((value for _, line in lines for value in line if value is not None), default=0.0) or 1.0
    drawn = [_axis(top, shown), *_places(names, marks)]
    ends: list[tuple[float, str, str]] = []
    for number, (name, line) in enumerate(lines):
        color, dash = _COLORS[number % 3], _DASHES[number % 3]
        points = [(_x(i, len(names)), _y(value, top)) for i, value in enumerate(line) if value is not None]
        if not points:
            continue
        path = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
        drawn.append(f'<polyline points="{path}" fill="none" stroke="{color}" stroke-width="2.5"{_dashed(dash)}/>')
        drawn += [_mark(number, x, y, color) for x, y in points]
        ends.append((points[-1][1], name, color))
    drawn += _labels(ends)
    return _svg(drawn, f"{', '.join(name for name, _ in lines)} by {names[0]} to {names[-1]}")


def bars(
    names: Sequence[str], values: Sequence[float | None], shown: Shown, *, every: int, after: int | None = None
) -> str:
    """A bar for each value; None leaves a gap. Every `every`-th bar has its name; bars from `after` on are hatched."""
    top = max((value for value in values if value is not None), default=0.0) or 1.0
    room = (_WIDTH - _LEFT - 16) / len(names)
    drawn = [_HATCH, _axis(top, shown, _WIDTH - 16)]
    for i, value in enumerate(values):
        x = _LEFT + i * room
        if i % every == 0:
            place = f'x="{x + room / 2:.1f}" y="{_HEIGHT - _BOTTOM + 16}"'
            drawn.append(f'<text {place} text-anchor="middle">{names[i]}</text>')
        if value is not None:
            y, wide = _y(value, top), max(room - 2, 1)
            fill = "url(#tg-hatch)" if after is not None and i >= after else "var(--one)"
            size = f'width="{wide:.1f}" height="{_HEIGHT - _BOTTOM - y:.1f}"'
            drawn.append(f'<rect x="{x + 1:.1f}" y="{y:.1f}" {size} fill="{fill}" stroke="var(--one)"/>')
    return _svg(drawn, f"late share from {names[0]} to {names[-1]}")


def strip(listed: Sequence[tuple[str, float, str]], shown: Shown) -> str:
    """Horizontal bars from (name, value, filling); the filling is "solid", "hatched" or "open"."""
    top = max((value for _, value, _ in listed), default=0.0) or 1.0
    fills = {"solid": "var(--one)", "hatched": "url(#tg-hatch)", "open": "var(--paper)"}
    wide, left, step = 760, 240, 26
    drawn = [_HATCH]
    for row, (name, value, filling) in enumerate(listed):
        y = 4 + row * step
        length = max(value / top * (wide - left - 90), 0.5)
        drawn.append(f'<text x="{left - 10}" y="{y + 14}" text-anchor="end">{escape(name)}</text>')
        drawn.append(
            f'<rect x="{left}" y="{y}" width="{length:.1f}" height="18" fill="{fills[filling]}" stroke="var(--one)"/>'
        )
        drawn.append(f'<text x="{left + length + 8:.1f}" y="{y + 14}">{escape(shown(value))}</text>')
    return _svg(drawn, "late records by cause", wide, 8 + len(listed) * step)


def _svg(drawn: Sequence[str], title: str, width: int = _WIDTH, height: int = _HEIGHT) -> str:
    head = f'<svg viewBox="0 0 {width} {height}" role="img" aria-label="{escape(title)}">'
    return head + "".join(drawn) + "</svg>"


def _x(place: int, places: int) -> float:
    return _LEFT + (_WIDTH - _LEFT - _RIGHT) * (place / (places - 1) if places > 1 else 0.5)


def _y(value: float, top: float) -> float:
    return _HEIGHT - _BOTTOM - (_HEIGHT - _TOP - _BOTTOM) * value / top


def _axis(top: float, shown: Shown, right: float = _WIDTH - _RIGHT) -> str:
    drawn = []
    for part in (0.0, 0.5, 1.0):
        y = _y(part * top, top)
        drawn.append(f'<line class="axis" x1="{_LEFT}" y1="{y:.1f}" x2="{right}" y2="{y:.1f}"/>')
        drawn.append(
            f'<text class="quiet" x="{_LEFT - 6}" y="{y + 4:.1f}" text-anchor="end">{escape(shown(part * top))}</text>'
        )
    return "".join(drawn)


def _places(names: Sequence[str], marks: Mapping[str, str]) -> list[str]:
    """Names below the axis, as many as fit, and a dotted line at each mark."""
    drawn, free = [], -1.0
    order = sorted(range(len(names)), key=lambda i: (names[i] not in marks, i))
    taken: list[float] = []
    for i in order:
        x, half = _x(i, len(names)), 3.4 * len(names[i]) + 4
        if all(abs(x - other) > half + 20 for other in taken):
            taken.append(x)
            drawn.append(
                f'<text x="{x:.1f}" y="{_HEIGHT - _BOTTOM + 16}" text-anchor="middle">{escape(names[i])}</text>'
            )
    for name, mark in sorted(marks.items(), key=lambda one: names.index(one[0])):
        x = _x(names.index(name), len(names))
        drawn.append(f'<line class="rule" x1="{x:.1f}" y1="{_TOP - 18}" x2="{x:.1f}" y2="{_HEIGHT - _BOTTOM}"/>')
        y = _TOP - 22 if x > free else _HEIGHT - _BOTTOM + 30
        drawn.append(f'<text x="{x:.1f}" y="{y}" text-anchor="middle">{escape(mark)}</text>')
        free = x + 50
    return drawn


def _labels(ends: list[tuple[float, str, str]]) -> list[str]:
    """The name of each line at its end; names never overlap."""
    drawn, last = [], float(_HEIGHT)
    for y, name, color in sorted(ends, reverse=True):
        last = min(y, last - 14)
        drawn.append(f'<text x="{_WIDTH - _RIGHT + 8}" y="{last + 4:.1f}" style="fill:{color}">{escape(name)}</text>')
    return drawn


def _mark(number: int, x: float, y: float, color: str) -> str:
    look = f'fill="{color}"' if number == 0 else f'fill="var(--paper)" stroke="{color}" stroke-width="1.5"'
    if number == 1:
        return f'<rect x="{x - 3.5:.1f}" y="{y - 3.5:.1f}" width="7" height="7" {look}/>'
    if number == 2:
        return f'<path d="M{x:.1f} {y - 5:.1f}l5 9h-10z" {look}/>'
    return f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3.5" {look}/>'


def _dashed(dash: str) -> str:
    return f' stroke-dasharray="{dash}"' if dash else ""
