"""The pictures of docs/joins.md and docs/joins/tables.md: the pairs of records, and the emitted rows."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, Literal

import tidegate as tg
from tidegate.spec.windows import LEFT, RIGHT
from tidegate.testing import TopologyTestDriver
from tools.pages.pictures import (
    GRACE,
    GRID,
    INK,
    KEYS,
    LANE,
    LATE,
    LEAVES,
    PALE,
    WIDTH,
    Mark,
    Scale,
    axis_of,
    flag,
    grid,
    head,
    late_sign,
    legend,
    records,
    swatch,
)
from tools.pages.pictures import LEFT as MARGIN
from tools.pages.svg import Drawing
from tools.pages.timeline import SECOND, Moment

L, R = "left", "right"
COLORS = {L: "A", R: "B"}
"""The key of `KEYS` with the colours of each side."""
PAIR = "#57606a"
NONE = "\N{EN DASH}"

Come = tuple[str, float]
"""The side and the second of a record."""


def play(
    windows: Any, how: Literal["inner", "left", "outer"], arrivals: Sequence[Come], stream_time: Any = "max"
) -> list[Moment]:
    """The moments of a join over the records, one by one; the key of a moment is the colour of its side."""
    sides = {
        side: tg.stream(side, key="key", timestamp="ts", partition="p", offset="o", stream_time=stream_time)
        for side in (L, R)
    }
    driver = TopologyTestDriver(sides[L].join(sides[R], windows, how=how))
    moments = []
    for number, (side, at) in enumerate(arrivals, 1):
        dropped = driver.dropped
        driver.pipe_input({"key": "A", "ts": int(at * SECOND), "p": 0, "o": number, side[0]: number}, side)
        stream_time = max(driver.metrics()["stream_time"] / SECOND, 0)
        rows = tuple(driver.read_output())
        moments.append(Moment(number, COLORS[side], at, stream_time, driver.dropped - dropped, rows))
    return moments


def kinds() -> str:
    windows = tg.JoinWindows.of_time_difference_and_grace("10 seconds", "5 seconds")
    arrivals = [(L, 5), (R, 9), (L, 24), (R, 40), (L, 36), (R, 12), (R, 53), (L, 70)]
    return _timeline(
        "Inner, left and outer: records at most 10 seconds apart, 5 seconds of grace",
        "A pair leaves when its second record comes. A record without a partner leaves when nothing can join it.",
        Scale(0, 85, 5),
        windows,
        arrivals,
        {how: play(windows, how, arrivals) for how in ("inner", "left", "outer")},
    )


def reaches() -> str:
    windows = tg.JoinWindows.of_time_difference_and_grace("20 seconds", "5 seconds").before("0 seconds")
    arrivals = [(L, 10), (R, 18), (R, 8), (L, 34), (R, 45), (L, 40), (R, 66)]
    return _timeline(
        "A right record from 0 to 20 seconds after the left one, 5 seconds of grace",
        "Each side has its own reach: a left record waits for later ones, a right record only for late left ones.",
        Scale(0, 80, 5),
        windows,
        arrivals,
        {"outer": play(windows, "outer", arrivals)},
    )


def clocks() -> str:
    """Both stream times over the records in order of arrival, and the emitted rows."""
    windows = tg.JoinWindows.of_time_difference_with_no_grace("10 seconds")
    arrivals = [(L, 5), (L, 15), (R, 2), (L, 30), (L, 45), (R, 7), (R, 19), (L, 60), (R, 36), (R, 58)]
    found = {rule: play(windows, "left", arrivals, rule) for rule in ("max", "min_partition")}
    drawing = head(
        "A side that lags: a left join within 10 seconds, no grace",
        "The right side lags. The larger of the two times makes its records late; the smaller one waits for them.",
    )
    step = (WIDTH - MARGIN - 60) / len(arrivals)
    high, bottom, top = 65.0, 330.0, 90.0

    def x(number: int) -> float:
        return MARGIN + 25 + step * (number - 1)

    def y(at: float) -> float:
        return bottom - (bottom - top) * at / high

    for tick in range(0, int(high), 10):
        drawing.line(MARGIN, y(tick), WIDTH - 20, y(tick), GRID)
        drawing.write(MARGIN - 10, y(tick) + 4, f"{tick} s", size=11.5, color=PALE, anchor="end")
    drawing.write(20, top + 4, "event time", size=12, color=PALE)
    drawing.line(MARGIN, bottom, WIDTH - 20, bottom, INK, thick="1.2")
    looks = {"max": (LATE, "6 3"), "min_partition": (LEAVES, "1 0")}
    for rule, moments in found.items():
        _stream_time(drawing, moments, x, y, looks[rule])
    _numbered_records(drawing, found["max"], x, y, bottom)
    lane = bottom + 50
    for rule, moments in found.items():
        lane += _rows_by_arrival(drawing, lane, rule, looks[rule][0], moments, x)
    marks: list[Mark] = [
        ("left", lambda x, y: drawing.circle(x + 12, y - 4, 7, fill=KEYS["A"][0])),
        ("right", lambda x, y: drawing.circle(x + 12, y - 4, 7, fill=KEYS["B"][0])),
        *(_line_mark(drawing, rule, look) for rule, look in looks.items()),
        *_row_marks(drawing),
        ("too late", lambda x, y: late_sign(drawing, x + 12, y - 4)),
    ]
    legend(drawing, lane + 22, marks)
    return drawing.text(lane + 44)


def _stream_time(drawing: Drawing, moments: Sequence[Moment], x: Any, y: Any, look: tuple[str, str]) -> None:
    """Draw a stream time over the records."""
    color, dash = look
    for moment, after in zip(moments, [*moments[1:], None], strict=True):
        end = x(after.number) if after else WIDTH - 25
        drawing.line(x(moment.number), y(moment.stream_time), end, y(moment.stream_time), color, dash=dash)
        if after:
            drawing.line(end, y(moment.stream_time), end, y(after.stream_time), color, dash=dash)


def _numbered_records(drawing: Drawing, moments: Sequence[Moment], x: Any, y: Any, bottom: float) -> None:
    """Draw the records at their event times, and their numbers below."""
    for moment in moments:
        strong, _ = KEYS[moment.key]
        drawing.circle(x(moment.number), y(moment.at), 10, fill=strong)
        drawing.write(
            x(moment.number), y(moment.at) + 4.5, str(moment.number), size=12, color="#ffffff", anchor="middle"
        )
    drawing.write(20, bottom + 20, "records, numbered", size=12, color=PALE)
    drawing.write(20, bottom + 35, "as they arrive", size=12, color=PALE)
    for moment in moments:
        drawing.write(x(moment.number), bottom + 20, str(moment.number), size=12, color=PALE, anchor="middle")


def _line_mark(drawing: Drawing, rule: str, look: tuple[str, str]) -> Mark:
    return f'"{rule}"', lambda x, y: drawing.line(x, y - 4, x + 26, y - 4, look[0], dash=look[1], thick="2")


def _rows_by_arrival(drawing: Drawing, top: float, rule: str, color: str, moments: Sequence[Moment], x: Any) -> float:
    """Draw the rows emitted at each record under a clock, stacked; returns the height."""
    drawing.line(20, top, WIDTH - 20, top, GRID)
    drawing.write(20, top + 22, f'"{rule}"', size=12.5, color=color)
    tallest = 1
    for moment in moments:
        shown = [_text(row) for row in moment.rows]
        for i, text in enumerate(shown):
            box(drawing, x(moment.number), top + 18 + 23 * i, text)
        if moment.late:
            late_sign(drawing, x(moment.number) + 3, top + 18 + 23 * len(shown))
        tallest = max(tallest, len(shown) + bool(moment.late))
    return 14 + 23 * tallest


def box(drawing: Drawing, x: float, middle: float, text: str) -> None:
    """Draw a row, centred at x."""
    width = 7.2 * len(text) + 10
    drawing.rect(x - width / 2, middle - 9, width, 18, fill=_color(text), rx="3")
    drawing.write(x, middle + 4.5, text, size=12, color="#ffffff", anchor="middle", weight="bold")


def _timeline(
    title: str,
    subtitle: str,
    scale: Scale,
    windows: Any,
    arrivals: Sequence[Come],
    found: Mapping[str, Sequence[Moment]],
) -> str:
    """The picture as SVG: records above, a lane for the window of each, and the emitted rows of each join below."""
    drawing = head(title, subtitle)
    *_, moments = found.values()
    axis = axis_of(moments, scale)
    outputs = axis + 46 + LANE * len(moments)
    heights = [_most_at_once(told) for told in found.values()]
    bottom = outputs + sum(14 + 22 * height for height in heights)
    grid(drawing, scale, axis, bottom)
    for i, moment in enumerate(moments):
        side = LEFT if arrivals[i][0] == L else RIGHT
        _span(drawing, scale, windows, moment, side, axis + 40 + LANE * i, moments)
    y = outputs
    for (how, told), height in zip(found.items(), heights, strict=True):
        drawing.line(20, y, WIDTH - 20, y, GRID)
        drawing.write(20, y + 22, f'rows, how="{how}"', size=12.5, color=INK)
        _rows_in_time(drawing, scale, y + 18, told)
        y += 14 + 22 * height
    records(drawing, scale, moments, axis)
    marks: list[Mark] = [
        ("left", lambda x, y: drawing.rect(x, y - 10, 24, 12, fill=KEYS["A"][1], edge=KEYS["A"][0], rx="3")),
        ("right", lambda x, y: drawing.rect(x, y - 10, 24, 12, fill=KEYS["B"][1], edge=KEYS["B"][0], rx="3")),
        ("grace", lambda x, y: drawing.rect(x, y - 8, 24, 8, fill="#f6f8fa", edge=GRACE, dash="4 3")),
        *_row_marks(drawing),
    ]
    if any(moment.late for moment in moments):
        marks.append(("too late: counted", lambda x, y: late_sign(drawing, x + 12, y - 4)))
    legend(drawing, bottom + 22, marks)
    return drawing.text(bottom + 44)


def _span(
    drawing: Drawing, scale: Scale, windows: Any, moment: Moment, side: int, y: float, moments: Sequence[Moment]
) -> None:
    """Draw the times at which a record has partners, its grace, and its partners."""
    strong, pale = KEYS[moment.key]
    middle = y + 10
    start = moment.at - windows.back_ms(side) / SECOND
    end = moment.at + windows.ahead_ms(side) / SECOND
    closes = (windows.close_ms(side, int(moment.at * SECOND)) - 1) / SECOND
    drawing.write(20, middle + 4.5, f"{(L, R)[side]} {moment.number}, at {moment.at:g} s", size=12.5, color=strong)
    faded = {"opacity": "0.45"} if moment.late else {}
    drawing.rect(
        scale.within(start), y, scale.within(end) - scale.within(start), 20, fill=pale, edge=strong, rx="3", **faded
    )
    if closes > end:
        width = scale.within(closes) - scale.within(end)
        drawing.rect(scale.within(end), y + 4, width, 12, fill="#f6f8fa", edge=GRACE, dash="4 3", **faded)
    mine, theirs = ("l", "r") if side == LEFT else ("r", "l")
    met = {row[theirs] for m in moments for row in m.rows if row.get(mine) == moment.number and row.get(theirs)}
    for other in moments:
        if other.number in met:
            edge, _ = KEYS[other.key]
            drawing.circle(scale.x(other.at), middle, 7, fill="#ffffff", edge=edge, thick="1.5")
            drawing.write(scale.x(other.at), middle + 3.6, str(other.number), size=10, color=edge, anchor="middle")
    x = scale.x(moment.at)
    drawing.circle(x, middle, 8, fill="#ffffff" if moment.late else strong, edge=LATE if moment.late else strong)
    ink = LATE if moment.late else "#ffffff"
    drawing.write(x, middle + 3.8, str(moment.number), size=10.5, color=ink, anchor="middle", weight="bold")


def _rows_in_time(drawing: Drawing, scale: Scale, middle: float, moments: Sequence[Moment]) -> None:
    """Draw a flag for each row at the stream time of its emission; flags of one time are below one another."""
    placed: dict[float, int] = {}
    for moment in moments:
        for row in moment.rows:
            text = _text(row)
            level = placed.get(moment.stream_time, 0)
            placed[moment.stream_time] = level + 1
            flag(drawing, scale.within(moment.stream_time), middle + 22 * level, text, _color(text))


def _most_at_once(moments: Sequence[Moment]) -> int:
    """The largest number of flags below one another."""
    counts = Counter(moment.stream_time for moment in moments for _ in moment.rows)
    return max(counts.values(), default=1)


def _text(row: Mapping[str, Any]) -> str:
    return "+".join(NONE if row.get(side) is None else str(row[side]) for side in ("l", "r"))


def _color(text: str) -> str:
    return LEAVES if NONE in text else PAIR


def _row_marks(drawing: Drawing) -> list[Mark]:
    return [
        ("a pair leaves", lambda x, y: swatch(drawing, x, y, PAIR)),
        ("a null-joined row leaves", lambda x, y: swatch(drawing, x, y, LEAVES)),
    ]


def of_table() -> str:
    """Records of a stream look up a table: the latest row, the row as of the record, and as of it with a grace."""
    arrivals = [(R, 5), (L, 12), (R, 20), (L, 28), (L, 17), (R, 25), (L, 41), (R, 55), (R, 22), (L, 60), (L, 75)]
    grace = 10
    found = {
        "the latest row": look_up(arrivals),
        "as of the record": look_up(arrivals, history="30 seconds"),
        "as of, with grace": look_up(arrivals, history="30 seconds", grace=f"{grace} seconds"),
    }
    drawing = head(
        "A stream joined with a table: a history of 30 seconds, 10 seconds of grace",
        "A row is the number of the stream record + that of the change that it found.",
    )
    scale = Scale(0, 85, 5)
    *_, moments = found.values()
    asking = [moment for moment in moments if moment.key == COLORS[L]]
    axis = axis_of(moments, scale)
    outputs = axis + 46 + LANE * (1 + len(asking))
    heights = [_most_at_once(told) for told in found.values()]
    bottom = outputs + sum(14 + 22 * height for height in heights)
    grid(drawing, scale, axis, bottom)
    _versions(drawing, scale, moments, axis + 40)
    for i, moment in enumerate(asking, 1):
        _lookup(drawing, scale, moment, grace, axis + 40 + LANE * i, moments)
    y = outputs
    for (rule, told), height in zip(found.items(), heights, strict=True):
        drawing.line(20, y, WIDTH - 20, y, GRID)
        drawing.write(20, y + 22, rule, size=12.5, color=INK)
        _rows_in_time(drawing, scale, y + 18, told)
        y += 14 + 22 * height
    records(drawing, scale, moments, axis)
    marks: list[Mark] = [
        ("of the stream", lambda x, y: drawing.circle(x + 12, y - 4, 7, fill=KEYS["A"][0])),
        ("a row of the table", lambda x, y: drawing.rect(x, y - 10, 24, 12, fill=KEYS["B"][1], edge=KEYS["B"][0])),
        ("grace", lambda x, y: drawing.rect(x, y - 8, 24, 8, fill="#f6f8fa", edge=GRACE, dash="4 3")),
        ("a row leaves", lambda x, y: swatch(drawing, x, y, PAIR)),
        ("older than the history: counted", lambda x, y: late_sign(drawing, x + 12, y - 4)),
    ]
    legend(drawing, bottom + 22, marks)
    return drawing.text(bottom + 44)


def look_up(arrivals: Sequence[Come], *, history: str | None = None, grace: str | None = None) -> list[Moment]:
    """The moments of a left join with a table over the records; their stream time is the stream's alone."""
    changes = tg.table(R, key="key", timestamp="ts", history=history)
    driver = TopologyTestDriver(tg.stream(L, key="key", timestamp="ts").left_join(changes, grace=grace))
    moments: list[Moment] = []
    own = 0.0
    for number, (side, at) in enumerate(arrivals, 1):
        dropped = driver.dropped
        driver.pipe_input({"key": "A", "ts": int(at * SECOND), side[0]: number}, side)
        own = max(own, at) if side == L else own
        rows = tuple(driver.read_output())
        moments.append(Moment(number, COLORS[side], at, own, driver.dropped - dropped, rows))
    return moments


def _versions(drawing: Drawing, scale: Scale, moments: Sequence[Moment], y: float) -> None:
    """Draw the rows of the table, each from its timestamp to the timestamp of the next."""
    strong, pale = KEYS[COLORS[R]]
    drawing.write(20, y + 14.5, "the table", size=12.5, color=strong)
    taken = sorted((m.at, m.number) for m in moments if m.key == COLORS[R] and not m.late)
    ends = [*(at for at, _ in taken[1:]), scale.last]
    for (at, number), end in zip(taken, ends, strict=True):
        drawing.rect(scale.x(at), y, scale.x(end) - scale.x(at), 20, fill=pale, edge=strong)
        drawing.write(scale.x(at) + 8, y + 14.5, str(number), size=12, color=strong, weight="bold")


def _lookup(drawing: Drawing, scale: Scale, moment: Moment, grace: float, y: float, moments: Sequence[Moment]) -> None:
    """Draw a record of the stream, the time it waits, and the change that it finds."""
    strong, _ = KEYS[moment.key]
    middle = y + 10
    drawing.write(20, middle + 4.5, f"record {moment.number}, at {moment.at:g} s", size=12.5, color=strong)
    if moment.stream_time <= moment.at + grace:
        width = scale.within(moment.at + grace) - scale.x(moment.at)
        drawing.rect(scale.x(moment.at), y + 4, width, 12, fill="#f6f8fa", edge=GRACE, dash="4 3")
    met = {row["r"] for m in moments for row in m.rows if row["l"] == moment.number and row["r"] is not None}
    for other in moments:
        if other.number in met:
            edge, _ = KEYS[other.key]
            drawing.line(scale.x(other.at), middle, scale.x(moment.at), middle, edge, dash="2 2")
            drawing.circle(scale.x(other.at), middle, 7, fill="#ffffff", edge=edge, thick="1.5")
            drawing.write(scale.x(other.at), middle + 3.6, str(other.number), size=10, color=edge, anchor="middle")
    drawing.circle(scale.x(moment.at), middle, 8, fill=strong)
    number = str(moment.number)
    drawing.write(scale.x(moment.at), middle + 3.8, number, size=10.5, color="#ffffff", anchor="middle", weight="bold")
