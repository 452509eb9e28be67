"""The plan as a picture: the graph of its boxes as SVG, with the windows of each operator drawn to scale."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from textwrap import wrap
from typing import NamedTuple

from tidegate.drawing.style import FONT, variables
from tidegate.drawing.svg import CHARACTER, HATCH, LINE, STYLE, Bar, bars, text
from tidegate.instants import show_ms
from tidegate.plan.diagram import BUFFER, OPERATOR, SOURCE, Box, boxes
from tidegate.plan.nodes import Plan
from tidegate.plan.text import describe, headline
from tidegate.spec.windows import (
    BatchWindows,
    JoinWindows,
    SessionWindows,
    SlidingWindows,
    TimeWindows,
    UnlimitedWindows,
    Windows,
)

MOST_ROWS = 4
"""Number of overlapping windows in a drawing."""
_WIDEST = 62
"""The longest line of a box, in characters."""
_GAP, _EDGE, _PAD = 40, 12, 12
_STYLE = (
    variables(".tg-topology")
    + f".tg-topology{{background:var(--paper);font:13px {FONT};display:block;height:auto;max-width:100%}}"
    + "".join(f".tg-topology {rule}" + "}" for rule in STYLE.split("}") if rule)
    + ".tg-topology .box{fill:var(--soft);stroke:var(--line)}.tg-topology .operator{stroke:var(--ink);stroke-width:2}"
    + ".tg-topology .buffer{stroke:var(--two);stroke-width:2;stroke-dasharray:6 3}"
    + ".tg-topology .arrow{fill:none;stroke:var(--quiet);stroke-width:1.5}.tg-topology .head{fill:var(--quiet)}"
)


def svg(plan: Plan) -> str:
    """The topology as one SVG; its description is the alternative text."""
    return drawing(boxes(plan), headline(plan), describe(plan))


def html(plan: Plan) -> str:
    """The SVG for a notebook: it scrolls sideways if the page is too narrow."""
    return f'<div style="overflow-x:auto">{svg(plan)}</div>'


def drawing(listed: Sequence[Box], title: str, description: str) -> str:
    """The boxes as SVG, each below its inputs; screen readers read `description` instead of the picture."""
    placed = _placed(listed)
    wide = max((one.x + one.wide for one in placed), default=0.0) + _EDGE
    high = max((one.y + one.high for one in placed), default=0.0) + _EDGE
    drawn = [_arrow(placed[source], one) for one in placed for source in one.box.inputs]
    drawn += [_box(one) for one in placed]
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" class="tg-topology" viewBox="0 0 {wide:.0f} {high:.0f}" '
        f'width="{wide:.0f}" role="img"><title>{escape(title)}</title><desc>{escape(description)}</desc>'
        f"<style>{_STYLE}</style><defs>{HATCH}</defs>"
        f'<rect width="100%" height="100%" class="paper"/>{"".join(drawn)}</svg>'
    )


class Scale(NamedTuple):
    """A drawing of windows to scale.

    rows   the bars of windows with their grace
    mark   a marked instant with its name
    words  the drawing in words
    """

    rows: list[list[Bar]]
    mark: tuple[float, str] | None
    words: str


def to_scale(windows: Windows | JoinWindows) -> Scale:
    """The drawing of windows."""
    grace = windows.grace_ms
    late = f"; hatched, the grace of {show_ms(grace)}" if grace else "; no grace"
    if isinstance(windows, TimeWindows):
        size, advance = windows.size_ms, windows.advance_ms
        rows = [_row(number * advance, size, grace) for number in range(2 if advance == size else MOST_ROWS)]
        every = "" if advance == size else f", one every {show_ms(advance)}"
        return Scale(rows, None, f"windows of {show_ms(size)}{every}{late}")
    if isinstance(windows, SlidingWindows):
        size = windows.time_difference_ms
        return Scale([_row(0, size, grace)], (size, "record"), f"{show_ms(size)} up to a record{late}")
    if isinstance(windows, SessionWindows):
        gap = windows.inactivity_gap_ms
        session = [Bar(0, gap, "window"), Bar(gap, gap, "gap"), *_graced(2 * gap, grace)]
        words = f"a session, and dashed the gap of {show_ms(gap)} that ends it{late}"
        return Scale([session], (gap, "last record"), words)
    if isinstance(windows, JoinWindows):
        record = max(windows.before_ms, 0)
        rows = [_row(record - windows.before_ms, windows.before_ms + windows.after_ms, grace)]
        reach = f"{show_ms(windows.before_ms)} before to {show_ms(windows.after_ms)} after"
        return Scale(rows, (record, "left record"), f"partners from {reach} a left record{late}")
    if isinstance(windows, BatchWindows):
        size = windows.size_ms
        listed = [[Bar(number * size, size, "window" if number else "gap")] for number in range(2)]
        return Scale(listed, None, f"batches of {show_ms(size)}; one ends when a later one begins")
    assert isinstance(windows, UnlimitedWindows)
    return Scale([[Bar(0, 1, "window", open=True)]], None, "one window without an end")


def _row(start: int, size: int, grace: int) -> list[Bar]:
    return [Bar(start, size, "window"), *_graced(start + size, grace)]


def _graced(end: int, grace: int) -> list[Bar]:
    return [Bar(end, grace, "grace")] if grace else []


@dataclass
class _Placed:
    box: Box
    lines: list[str]
    wide: float
    high: float
    x: float = 0.0
    y: float = 0.0


def _placed(listed: Sequence[Box]) -> list[_Placed]:
    """Every box with its position: one centered row of boxes per distance from the sources."""
    placed = [_sized(box) for box in listed]
    rows: list[list[_Placed]] = []
    depth: list[int] = []
    for one in placed:
        depth.append(1 + max((depth[source] for source in one.box.inputs), default=-1))
        rows += [[] for _ in range(depth[-1] + 1 - len(rows))]
        rows[depth[-1]].append(one)
    whole = max((_across(row) for row in rows), default=0.0)
    y = float(_EDGE)
    for row in rows:
        x = _EDGE + (whole - _across(row)) / 2
        for one in row:
            one.x, one.y = x, y
            x += one.wide + _GAP
        y += max(one.high for one in row) + _GAP
    return placed


def _across(row: list[_Placed]) -> float:
    return sum(one.wide for one in row) + _GAP * (len(row) - 1)


def _sized(box: Box) -> _Placed:
    lines = [line for detail in box.details for line in wrap(detail, _WIDEST) or [""]]
    lines += [] if box.windows is None else wrap(to_scale(box.windows).words, _WIDEST)
    titles = wrap(box.title, _WIDEST) or [""]
    wide = max(*(len(line) * 1.15 for line in titles), *map(len, lines), 0) * CHARACTER + 2 * _PAD
    high = (len(titles) + len(lines)) * LINE + 2 * _PAD - 4
    if box.windows is not None:
        scale = to_scale(box.windows)
        wide, high = max(wide, 300), high + len(scale.rows) * LINE + (22 if scale.mark else 8)
    return _Placed(box, [*titles, "", *lines], wide, high)


def _box(one: _Placed) -> str:
    kind = one.box.kind if one.box.kind in (OPERATOR, BUFFER) else ""
    round_ = 16 if one.box.kind == SOURCE else 4
    place = f'x="{one.x:.1f}" y="{one.y:.1f}" width="{one.wide:.1f}" height="{one.high:.1f}" rx="{round_}"'
    drawn = [f'<rect class="box {kind}" {place}/>'.replace(' "', '"')]
    x, y, title = one.x + _PAD, one.y + _PAD + 10, True
    for line in one.lines:
        if not line and title:
            title = False
            continue
        drawn.append(text(x, y, line, bold=title, quiet=not title))
        y += LINE
    if one.box.windows is not None:
        scale = to_scale(one.box.windows)
        drawn.append(bars(scale.rows, x, y - 6, one.wide - 2 * _PAD - 10, scale.mark))
    return "".join(drawn)


def _arrow(source: _Placed, target: _Placed) -> str:
    x0, y0 = source.x + source.wide / 2, source.y + source.high
    x1, y1 = target.x + target.wide / 2, target.y - 7
    middle = (y0 + y1) / 2
    path = f"M{x0:.1f} {y0:.1f}C{x0:.1f} {middle:.1f} {x1:.1f} {middle:.1f} {x1:.1f} {y1:.1f}"
    return f'<path class="arrow" d="{path}"/><path class="head" d="M{x1 - 5:.1f} {y1:.1f}h10l-5 7z"/>'
