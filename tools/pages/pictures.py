"""The timelines of docs/windows: records above, a lane for each window below, and the time of its result."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

import tidegate as tg
from tools.pages.svg import Drawing
from tools.pages.timeline import SECOND, Moment, final, play, updates

WIDTH = 860
LEFT, RIGHT = 150, 40
"""Room for the names of lanes, and for marks after the last tick (pixels)."""
TOP = 78
LANE = 34

INK, PALE, GRID = "#24292f", "#6e7781", "#e4e8ec"
KEYS = {"A": ("#1f6feb", "#dbe9ff"), "B": ("#b35900", "#ffe8cc"), "C": ("#8250df", "#ece0ff")}
"""A strong and a pale colour for each key."""
LEAVES, LATE, GRACE = "#1a7f37", "#cf222e", "#9aa4ae"

Place = tuple[str, int, int]
"""Key, start and end of a window."""


@dataclass(frozen=True)
class Scale:
    """Converts seconds to pixels."""

    first: float
    last: float
    step: float

    def x(self, at: float) -> float:
        return LEFT + (at - self.first) / (self.last - self.first) * (WIDTH - LEFT - RIGHT)

    def within(self, at: float) -> float:
        return self.x(min(max(at, self.first), self.last))


@dataclass
class Lane:
    """A window of a key: its bounds (seconds), its gap and grace, its records, and its result.

    waits    (end in seconds, "grace" or "gap") of the times after the window's end
    left     stream time at which its result was emitted, and the text of the result
    gone     number of the record that merged this session into another
    updates  stream time and text of every update; `held` if none of them is emitted
    """

    key: str
    start: float
    end: float
    waits: list[tuple[float, str]] = field(default_factory=list)
    members: list[int] = field(default_factory=list)
    left: tuple[float, str] | None = None
    gone: int | None = None
    updates: list[tuple[float, str]] = field(default_factory=list)
    held: bool = False


def head(title: str, subtitle: str) -> Drawing:
    drawing = Drawing(WIDTH, title)
    drawing.write(20, 30, title, size=17, weight="bold")
    drawing.write(20, 51, subtitle, color=PALE)
    return drawing


def draw(
    title: str,
    subtitle: str,
    scale: Scale,
    moments: Sequence[Moment],
    lanes: Sequence[Lane],
    *,
    ignored: Sequence[int] = (),
    words: Mapping[str, str] = MappingProxyType({}),
) -> str:
    """The whole picture as SVG.

    ignored  numbers of records that belong to no window
    words    words of the legend by the default words that they replace
    """
    drawing = head(title, subtitle)
    axis = axis_of(moments, scale)
    bottom = axis + 34 + LANE * len(lanes)
    grid(drawing, scale, axis, bottom)
    _guides(drawing, scale, moments, lanes, axis)
    for i, lane in enumerate(lanes):
        _lane(drawing, scale, lane, axis + 40 + LANE * i, moments)
    records(drawing, scale, moments, axis, ignored)
    _legend(drawing, bottom + 22, lanes, moments, words)
    return drawing.text(bottom + 44)


def axis_of(moments: Sequence[Moment], scale: Scale) -> float:
    """The y of the time axis, below the highest stack of records."""
    return TOP + 38 + 25 * max(_stacked(moments, scale).values())


def _stacked(moments: Sequence[Moment], scale: Scale) -> dict[int, int]:
    """The level of each record by its number: records of about the same time are stacked, and hide no other."""
    rows: dict[int, int] = {}
    for moment in moments:
        near = [rows[m.number] for m in moments if m.number in rows and abs(scale.x(m.at) - scale.x(moment.at)) < 23]
        rows[moment.number] = next(row for row in range(len(moments)) if row not in near)
    return rows


def records(
    drawing: Drawing, scale: Scale, moments: Sequence[Moment], axis: float, ignored: Sequence[int] = ()
) -> None:
    """Draw the records above the axis."""
    drawing.write(20, TOP + 15, "records, numbered", size=12, color=PALE)
    drawing.write(20, TOP + 30, "as they arrive", size=12, color=PALE)
    rows = _stacked(moments, scale)
    for moment in moments:
        y = axis - 16 - 25 * rows[moment.number]
        _record(drawing, scale.x(moment.at), y, moment, ignored=moment.number in ignored)


def grid(drawing: Drawing, scale: Scale, axis: float, bottom: float) -> None:
    """Draw the axis with its ticks, and a line down from each tick."""
    tick = scale.first
    while tick <= scale.last:
        drawing.line(scale.x(tick), axis, scale.x(tick), bottom, GRID)
        drawing.write(scale.x(tick), axis + 17, f"{tick:g} s", size=11.5, color=PALE, anchor="middle")
        tick += scale.step
    drawing.line(LEFT - 8, axis, WIDTH - RIGHT + 12, axis, INK, thick="1.2")
    drawing.write(20, axis + 17, "event time", size=12, color=PALE)


def _guides(drawing: Drawing, scale: Scale, moments: Sequence[Moment], lanes: Sequence[Lane], axis: float) -> None:
    """Draw lines from each record that moved stream time down to the results that it let be emitted."""
    for moment in moments:
        leaving = [i for i, lane in enumerate(lanes) if lane.left and lane.left[0] == moment.stream_time]
        if leaving and moment.at == moment.stream_time:
            x = scale.x(moment.at)
            drawing.line(x, axis + 24, x, axis + 40 + LANE * max(leaving) + 4, LEAVES, dash="2 3", thick="1.3")


def _record(drawing: Drawing, x: float, y: float, moment: Moment, *, ignored: bool) -> None:
    strong, _ = KEYS[moment.key]
    if moment.late or ignored:
        edge = LATE if moment.late else PALE
        drawing.circle(x, y, 10.5, fill="#ffffff", edge=edge, thick="1.6", **({} if moment.late else {"dash": "3 2"}))
        drawing.write(x, y + 4.5, str(moment.number), size=12, color=edge, anchor="middle", weight="bold")
        if moment.late:
            _cross(drawing, x + 10, y - 9)
    else:
        drawing.circle(x, y, 10.5, fill=strong)
        drawing.write(x, y + 4.5, str(moment.number), size=12, color="#ffffff", anchor="middle", weight="bold")


def _lane(drawing: Drawing, scale: Scale, lane: Lane, y: float, moments: Sequence[Moment]) -> None:
    strong, pale = KEYS[lane.key]
    middle = y + 10
    open_end = lane.end > scale.last
    start, end = scale.within(lane.start), scale.within(lane.end)
    drawing.write(20, middle + 4.5, _name(lane), size=12.5, color=strong)
    if end - start < 22:
        start, end = (start + end) / 2 - 11, (start + end) / 2 + 11
    faded = {"opacity": "0.45"} if lane.gone else {}
    drawing.rect(start, y, end - start, 20, fill=pale, edge=strong, rx="3", **faded)
    if open_end:
        drawing.polygon([(end, y - 3), (end + 16, middle), (end, y + 23)], strong)
    behind = end
    for until, kind in [] if lane.gone else lane.waits:
        to = scale.within(until)
        look = {"dash": "4 3"} if kind == "grace" else {"dash": "1 3"}
        drawing.rect(behind, y + 4, max(to - behind, 0), 12, fill="#f6f8fa", edge=GRACE, **look)
        behind = to
    _members(drawing, scale, lane, middle, moments)
    for x, text in lane.updates:
        flag(drawing, scale.x(x), middle, text, GRACE if lane.held else strong)
    if lane.gone:
        drawing.write(end + 14, middle + 4.5, f"merged by record {lane.gone}", size=12, color=PALE)
    if lane.left:
        flag(drawing, scale.within(lane.left[0]), middle, lane.left[1], LEAVES)
    elif not lane.gone and (lane.held or not lane.updates):
        behind = scale.within(max([lane.end, *(until for until, _ in lane.waits)])) + 8
        if behind + 62 > WIDTH:
            drawing.write(start - 8, middle + 4.5, "still open", size=12, color=PALE, anchor="end")
        else:
            drawing.write(behind, middle + 4.5, "still open", size=12, color=PALE)


def _name(lane: Lane) -> str:
    if lane.start == lane.end:
        return f"{lane.key}  at {lane.start:g} s"
    return (
        f"{lane.key}  from {lane.start:g} s on" if lane.end > 10**9 else f"{lane.key}  {lane.start:g} to {lane.end:g} s"
    )


def _members(drawing: Drawing, scale: Scale, lane: Lane, middle: float, moments: Sequence[Moment]) -> None:
    at = {moment.number: moment.at for moment in moments}
    strong, _ = KEYS[lane.key]
    placed: list[float] = []
    for number in lane.members:
        x = scale.x(at[number])
        while any(abs(x - other) < 15 for other in placed):
            x += 15
        placed.append(x)
        if not lane.start <= at[number] <= lane.end:
            drawing.line(x, middle, scale.within(lane.start), middle, strong, dash="2 2")
        drawing.circle(x, middle, 7, fill="#ffffff", edge=strong)
        drawing.write(x, middle + 3.6, str(number), size=10, color=strong, anchor="middle")


def flag(drawing: Drawing, x: float, middle: float, text: str, color: str) -> None:
    """Draw a box with a result, which points at the instant of its emission."""
    width = 7.2 * len(text) + 12
    if x + 8 + width > WIDTH - 4:
        x = WIDTH - 12 - width
    drawing.polygon([(x, middle), (x + 7, middle - 5), (x + 7, middle + 5)], color)
    drawing.rect(x + 6, middle - 9, width, 18, fill=color, rx="3")
    drawing.write(x + 6 + width / 2, middle + 4.5, text, size=12, color="#ffffff", anchor="middle", weight="bold")


Mark = tuple[str, Callable[[float, float], None]]
"""A word of the legend, and the function that draws its sign at x and the baseline y."""


def _legend(
    drawing: Drawing, y: float, lanes: Sequence[Lane], moments: Sequence[Moment], words: Mapping[str, str]
) -> None:
    kinds = {kind for lane in lanes for _, kind in lane.waits}
    marks: list[Mark] = [
        ("window", lambda x, y: drawing.rect(x, y - 10, 24, 12, fill=KEYS["A"][1], edge=KEYS["A"][0], rx="3"))
    ]
    if "gap" in kinds:
        marks.append(("gap", lambda x, y: drawing.rect(x, y - 8, 24, 8, fill="#f6f8fa", edge=GRACE, dash="1 3")))
    if "grace" in kinds:
        marks.append(("grace", lambda x, y: drawing.rect(x, y - 8, 24, 8, fill="#f6f8fa", edge=GRACE, dash="4 3")))
    if any(lane.updates for lane in lanes):
        held = any(lane.held for lane in lanes)
        color = GRACE if held else KEYS["A"][0]
        marks.append(
            ("an update, held back" if held else "an update leaves", lambda x, y: swatch(drawing, x, y, color))
        )
    if any(lane.left for lane in lanes):
        marks.append(("the final result leaves", lambda x, y: swatch(drawing, x, y, LEAVES)))
    if any(moment.late for moment in moments):
        marks.append(("too late: dropped and counted", lambda x, y: late_sign(drawing, x + 12, y - 4)))
    legend(drawing, y, [(words.get(text, text), mark) for text, mark in marks])


def legend(drawing: Drawing, y: float, marks: Sequence[Mark]) -> None:
    """Draw signs and words in a row, on the baseline y."""
    x = 20.0
    for text, mark in marks:
        mark(x, y)
        drawing.write(x + 31, y, text, size=12, color=PALE)
        x += 31 + 6.1 * len(text) + 20


def swatch(drawing: Drawing, x: float, y: float, color: str) -> None:
    """Draw a small flag for the legend."""
    drawing.polygon([(x, y - 4), (x + 6, y - 9), (x + 6, y + 1)], color)
    drawing.rect(x + 6, y - 10, 18, 12, fill=color, rx="3")


def late_sign(drawing: Drawing, x: float, y: float) -> None:
    """Draw the sign of a record that is too late."""
    drawing.circle(x - 3, y + 1, 7, fill="#ffffff", edge=LATE, thick="1.5")
    _cross(drawing, x + 5, y - 5)


def _cross(drawing: Drawing, x: float, y: float) -> None:
    drawing.circle(x, y, 5.5, fill="#ffffff")
    for way in (-1, 1):
        drawing.line(x - 3.5, y - 3.5 * way, x + 3.5, y + 3.5 * way, LATE, thick="2")


# -- from the driver's rows to lanes --------------------------------------------------------------------------------


def lanes_of(windows: Any, records: Sequence[tuple[str, float]]) -> tuple[list[Moment], list[Lane]]:
    """The moments, and a lane for every window that ever existed, in order, with its final result if it has one."""
    told = play(final(windows), records)
    lanes: dict[Place, Lane] = {}
    for moment in play(updates(windows), records):
        for row in moment.rows:
            place = _place(row)
            if row.get("deleted"):
                lanes[place].gone = moment.number
                continue
            lane = lanes.setdefault(place, _lane_of(windows, place))
            lane.members, lane.gone = row["of"], None
    for moment in told:
        for row in moment.rows:
            lanes[_place(row)].left = moment.stream_time, f"count {row['count']}"
            assert row["of"] == lanes[_place(row)].members
    return told, [lanes[place] for place in sorted(lanes)]


def lanes_of_updates(windows: Any, records: Sequence[tuple[str, float]]) -> tuple[list[Moment], list[Lane]]:
    """The moments, and a lane for every window with its emitted updates."""
    told = play(updates(windows), records)
    lanes: dict[Place, Lane] = {}
    for moment in told:
        for row in moment.rows:
            lane = lanes.setdefault(_place(row), _lane_of(windows, _place(row)))
            lane.updates.append((moment.stream_time, str(row["count"])))
    return told, [lanes[place] for place in sorted(lanes)]


def _place(row: dict[str, Any]) -> Place:
    return row["key"], row["window"].start, row["window"].end


def _lane_of(windows: Any, place: Place) -> Lane:
    key, start, end = place
    waits = []
    until = end / SECOND
    if isinstance(windows, tg.SessionWindows):
        until += windows.inactivity_gap_ms / SECOND
        waits.append((until, "gap"))
    if windows.grace_ms:
        waits.append((until + windows.grace_ms / SECOND, "grace"))
    return Lane(key, start / SECOND, end / SECOND, waits)
