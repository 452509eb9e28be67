"""The timelines of docs/suppress: the rows that a suppression buffers, from when to when, and the rows it emits."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from tools.pages.pictures import (
    INK,
    KEYS,
    LANE,
    LATE,
    LEAVES,
    PALE,
    Scale,
    axis_of,
    flag,
    grid,
    head,
    legend,
    records,
    swatch,
)
from tools.pages.svg import Drawing
from tools.pages.timeline import Moment

EARLY = "#bf8700"
GROUP = 30
"""Height of a panel's title (pixels)."""


@dataclass
class Wait:
    """One stay of a key in the buffer: from its first update to the emitted row, in seconds of stream time."""

    key: str
    since: float
    updates: list[int] = field(default_factory=list)
    left: float | None = None
    row: int = 0
    early: bool = False


@dataclass(frozen=True)
class Panel:
    """One suppression over the records; `holds`: buffered keys after each record, `bound`: the most of them."""

    name: str
    waits: list[Wait]
    holds: list[int]
    bound: int | None = None
    stopped: Moment | None = None


def panel(name: str, moments: Sequence[Moment], limit: float | None = None, bound: int | None = None) -> Panel:
    """The panel of a suppression, from its emitted rows; rows emitted before `limit` (seconds) are early."""
    waiting: dict[str, Wait] = {}
    waits, holds = [], []
    for moment in moments:
        if moment.key not in waiting:
            waits.append(waiting.setdefault(moment.key, Wait(moment.key, moment.at)))
        waiting[moment.key].updates.append(moment.number)
        for row in moment.rows:
            wait = waiting.pop(row["key"])
            wait.left, wait.row = moment.stream_time, row["n"]
            wait.early = limit is not None and moment.stream_time - wait.since < limit
        holds.append(len(waiting))
    return Panel(name, waits, holds, bound, next((moment for moment in moments if moment.failed), None))


def draw_buffered(title: str, subtitle: str, scale: Scale, moments: Sequence[Moment], panels: Sequence[Panel]) -> str:
    """The picture as SVG; `moments` has all records."""
    drawing = head(title, subtitle)
    axis = axis_of(moments, scale)
    bounded = any(panel.bound is not None for panel in panels)
    keys = sorted({moment.key for moment in moments})
    each = GROUP + LANE * len(keys) + (24 if bounded else 0)
    bottom = axis + 30 + each * len(panels)
    grid(drawing, scale, axis, bottom)
    for i, one in enumerate(panels):
        _panel(drawing, scale, one, keys, axis + 30 + each * i, moments)
        if bounded:
            _holds(drawing, scale, one, axis + 30 + each * (i + 1) - 14, moments)
    records(drawing, scale, moments, axis)
    marks = [
        ("waits in the buffer", lambda x, y: drawing.rect(x, y - 8, 24, 8, fill=KEYS["A"][1], edge=KEYS["A"][0])),
        ("an update that is replaced or leaves", lambda x, y: drawing.circle(x + 15, y - 4, 6, fill="#fff", edge=INK)),
        ("leaves, its last update", lambda x, y: swatch(drawing, x, y, LEAVES)),
    ]
    if any(wait.early for one in panels for wait in one.waits):
        marks.append(("leaves early", lambda x, y: swatch(drawing, x, y, EARLY)))
    legend(drawing, bottom + 22, marks)
    return drawing.text(bottom + 44)


def _panel(drawing: Drawing, scale: Scale, one: Panel, keys: list[str], top: float, moments: Sequence[Moment]) -> None:
    at = {moment.number: moment.at for moment in moments}
    drawing.line(20, top, drawing.width - 20, top, "#d0d7de")
    drawing.rect(18, top + 5, 7.3 * len(one.name) + 6, 17, fill="#ffffff")
    drawing.write(20, top + 19, one.name, weight="bold")
    for i, key in enumerate(keys):
        middle = top + GROUP + LANE * i + 12
        drawing.write(20, middle + 4.5, key, color=KEYS[key][0])
        for wait in one.waits:
            if wait.key == key:
                _wait(drawing, scale, wait, middle, at, one.stopped)


def _wait(
    drawing: Drawing, scale: Scale, wait: Wait, middle: float, at: dict[int, float], stopped: Moment | None
) -> None:
    strong, pale = KEYS[wait.key]
    until = wait.left if wait.left is not None else stopped.at if stopped else scale.last
    start, end = scale.x(wait.since), scale.within(until)
    drawing.rect(start, middle - 6, max(end - start, 1), 12, fill=pale, edge=strong)
    for number in wait.updates:
        x = scale.x(at[number])
        drawing.circle(x, middle, 8, fill="#ffffff", edge=strong)
        drawing.write(x, middle + 3.8, str(number), size=10.5, color=strong, anchor="middle")
    if wait.left is not None:
        shift = 9 if wait.left == max(at[number] for number in wait.updates) else 0
        flag(drawing, end + shift, middle, str(wait.row), EARLY if wait.early else LEAVES)
    elif stopped is None:
        drawing.write(end - 6, middle + 3.8, "waits", size=10.5, color=strong, anchor="end")


def _holds(drawing: Drawing, scale: Scale, one: Panel, y: float, moments: Sequence[Moment]) -> None:
    """Draw the number of buffered keys after each record, as a row of numbers below the panel."""
    drawing.write(20, y + 4, "keys that wait", size=12, color=PALE)
    for moment, held in zip(moments, one.holds, strict=False):
        x = scale.x(moment.at)
        full = one.bound is not None and held == one.bound
        if one.stopped and moment.number == one.stopped.number:
            _stop(drawing, x, y, f"record {moment.number} would be one too many: BufferFullError")
            return
        drawing.write(x, y + 4, str(held), size=12, color=INK if full else PALE, anchor="middle", weight="bold")


def _stop(drawing: Drawing, x: float, y: float, text: str) -> None:
    for way in (-1, 1):
        drawing.line(x - 5, y - 5 * way, x + 5, y + 5 * way, LATE, thick="2.5")
    drawing.write(x + 12, y + 4.5, text, size=12, color=LATE)
