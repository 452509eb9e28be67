"""The advice as text for a terminal: a table of graces, the choice with its test, causes, and other findings."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from textwrap import fill
from typing import TYPE_CHECKING

from tidegate.instants import show_ms

if TYPE_CHECKING:
    from tidegate.advice.advice import Advice, Cost

WIDTH = 110
_UNITS = ((86_400_000, "d"), (3_600_000, "h"), (60_000, "min"), (1_000, "s"), (1, "ms"))
_NOTHING = "-"
_LEAST = 1e-6
"""Smaller shares would be written with powers of ten."""


def text(answer: Advice) -> str:
    """The whole text, about forty lines."""
    return "\n".join(_lines(answer))


def short(ms: float | None) -> str:
    """A duration in at most two units: "6 h 55 min", "1.5 s", "0"; a dash for None."""
    if ms is None:
        return _NOTHING
    left = round(ms)
    if left < 0:
        return f"-{short(-left)}"
    for place, (size, unit) in enumerate(_UNITS):
        if left >= size:
            whole, rest = divmod(left, size)
            smaller, name = _UNITS[min(place + 1, len(_UNITS) - 1)]
            if unit == "s":
                return f"{left / size:.3g} s" if rest else f"{whole} s"
            part = rest // smaller if rest else 0
            return f"{whole} {unit} {part} {name}" if part else f"{whole} {unit}"
    return "0"


def share(value: float | None) -> str:
    """A share in percent, with two digits if it is below 1 %; a dash for None."""
    if value is None:
        return _NOTHING
    if 0 < value < _LEAST:
        return f"<{100 * _LEAST:.4f}%"
    return f"{value:.1%}" if value >= 0.01 or value == 0 else f"{100 * value:.2g}%"


def size(count: int | None) -> str:
    """A number of bytes with a unit; a dash for None."""
    if count is None:
        return _NOTHING
    value, units = float(count), ["B", "kB", "MB", "GB", "TB"]
    while value >= 999.5 and len(units) > 1:  # it would be rounded to 1e+03
        value, units = value / 1000, units[1:]
    return f"{value:.0f} {units[0]}" if units[0] == "B" else f"{value:.3g} {units[0]}"


def number(count: int | None) -> str:
    """A whole number with separators; a dash for None."""
    return _NOTHING if count is None else f"{count:,}"


def columns(answer: Advice) -> list[tuple[str, list[str]]]:
    """The columns of the table of graces: a heading of at most two lines, and a cell for each grace."""
    costs = answer.costs
    found = [
        ("grace", [short(cost.grace) for cost in costs]),
        ("late", [number(cost.late) for cost in costs]),
        ("of all", [share(cost.late_share) for cost in costs]),
        ("wrong\nrows", [number(cost.wrong) for cost in costs]),
        ("of\nrows", [number(cost.results + cost.missing) for cost in costs]),
    ]
    if any(cost.alerts is not None for cost in costs):
        found += [
            ("alerts", [number(cost.alerts) for cost in costs]),
            ("false", [number(cost.false_alerts) for cost in costs]),
            ("missed", [number(cost.missed_alerts) for cost in costs]),
        ]
    if any(cost.wait is not None for cost in costs):
        found.append(("a row waits\n(median)", [short(cost.wait) for cost in costs]))
        found.append(("\n(95 %)", [short(cost.wait_p95) for cost in costs]))
    found += [
        ("in stream\ntime", [short(cost.stream_wait) for cost in costs]),
        ("open\nwindows", [number(cost.open_windows) for cost in costs]),
        ("state", [size(cost.state_bytes) for cost in costs]),
    ]
    return found


def marks(answer: Advice, cost: Cost) -> str:
    """The marks of a grace in the table: "chosen", "today"."""
    found = ["chosen"] if cost.grace == answer.choice.grace else []
    return ", ".join(found + (["today"] if cost.grace == answer.today else []))


def aligned(rows: Sequence[Sequence[str]]) -> list[str]:
    """Rows of a table as aligned lines of text; the first row has the headings."""
    widths = [max(len(row[place]) for row in rows) for place in range(len(rows[0]))]
    return ["  ".join(cell.rjust(width) for cell, width in zip(row, widths, strict=True)) for row in rows]


def _lines(answer: Advice) -> Iterator[str]:
    skipped = ", ".join(f"{number(many)} {reason}" for reason, many in answer.skipped.items() if many)
    yield f"{answer.windows}: {number(answer.records)} records" + (f" (skipped: {skipped})" if skipped else "")
    yield from _filled(answer.order, "  ")
    yield ""
    if answer.records:
        yield from _table(answer)
        yield ""
        yield from _filled(chosen(answer), "")
        for sentence in [*causes(answer), *others(answer)]:
            yield from _filled(sentence, "  ", "* ")
    for warning in answer.warnings:
        yield from _filled(warning, "  ", "! ")


def _filled(sentence: str, indent: str, mark: str = "") -> list[str]:
    return fill(sentence, WIDTH, initial_indent=mark or indent, subsequent_indent=indent).split("\n")


def _table(answer: Advice) -> Iterator[str]:
    listed = columns(answer)
    heads = [[*heading.split("\n"), ""][:2] for heading, _ in listed]
    cells = [[*head, *column] for head, (_, column) in zip(heads, listed, strict=True)]
    widths = [max(map(len, column)) for column in cells]
    notes = ["", "", *(marks(answer, cost) for cost in answer.costs)]
    for row, note in zip(zip(*cells, strict=True), notes, strict=True):
        yield "  ".join([*(cell.rjust(width) for cell, width in zip(row, widths, strict=True)), note]).rstrip()


def chosen(answer: Advice) -> str:
    """The choice in sentences."""
    choice = answer.choice
    said = (
        f"Chosen: {show_ms(choice.grace)}, the shortest round grace that leaves at most {share(answer.target)} late on "
        f"the first 80 % ({share(choice.share)}). {short(choice.enough)} would do there; with other parts like these "
        f"{short(choice.low)} to {short(choice.high)} (95 %)."
    )
    if choice.tested is None:
        return said
    return (
        f"{said} On the last 20 % it leaves {share(choice.tested)} late "
        f"({share(choice.tested_low)} to {share(choice.tested_high)})."
    )


def causes(answer: Advice) -> Iterator[str]:
    """The causes of late records with today's grace, a sentence for each known cause."""
    today = answer.cost(answer.today)
    if not today.late:
        yield f"With the grace of today, {short(answer.today)}, no record is late."
        return
    own = f"{number(today.late_by_own)} would be ({share(today.late_by_own / today.late)})"
    yield (
        f"With the grace of today, {short(answer.today)}, {number(today.late)} are late. "
        f"By the time of their own partition alone {own}: disorder, which grace cures."
    )
    if today.late_by_slowest is not None:
        cured = today.late - today.late_by_slowest
        cure = f"{number(cured)} ({share(cured / today.late)})"
        yield f'stream_time="min_partition" would cure {cure}: it waits for the slowest partition.'
    if today.late_by_guarded is not None and answer.guard is not None:
        cured = today.late - today.late_by_guarded
        yield (
            f'max_future_skew="{show_ms(answer.guard)}" would cure {number(cured)} ({share(cured / today.late)}): '
            f"clocks that run ahead. It keeps {number(answer.future)} records out."
        )


def others(answer: Advice) -> Iterator[str]:
    """Sentences about the worst partitions and keys, idle input, and sessions."""
    today = short(answer.today)
    if len(answer.partitions) > 1 and any(late for _, _, late in answer.partitions):
        yield f"Worst partitions (late with {today}, of records): " + ", ".join(_worst(answer.partitions[:5]))
    if answer.keys:
        yield f"Worst keys (late with {today}): " + ", ".join(_worst(answer.keys[:5]))
    if (idle := answer.idle) is not None and idle.advance is not None:
        yield (
            f"Idle input: the longest gap between arrivals is {short(idle.longest)}, 99.9 % are at most "
            f'{short(idle.usual)}. idle_advance="{show_ms(idle.advance)}" would let results out in the '
            f"{number(idle.longer)} longer ones."
        )
    if answer.sessions.gaps:
        curve = ", ".join(f"{short(gap)}: {number(many)}" for gap, many in _some(list(answer.sessions.gaps.items())))
        bend = answer.sessions.bend
        yield f"Sessions by inactivity gap: {curve}." + (f" The curve bends most at {short(bend)}." if bend else "")


def _worst(listed: Sequence[tuple[str, int | None, int]]) -> list[str]:
    return [
        f"{name}: {number(late)}" + (f" of {number(records)}" if records is not None else "")
        for name, records, late in listed
    ]


def _some(curve: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """At most eight points of a curve, with both ends."""
    return curve if len(curve) <= 8 else [curve[i * (len(curve) - 1) // 7] for i in range(8)]
