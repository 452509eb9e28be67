"""`Pending` as a picture for notebooks: the next windows on one scale, with the current stream time."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING

from tidegate.drawing.style import FONT, variables
from tidegate.drawing.svg import HATCH, LINE, STYLE, Bar, bars
from tidegate.instants import show_instant, show_ms

if TYPE_CHECKING:
    from tidegate.spec.pending import Pending, Waiting

_WIDE = 560
_STYLE = (
    variables(".tg-pending")
    + f".tg-pending{{font:14px/1.5 {FONT};color:var(--ink);background:var(--paper);padding:12px;max-width:720px}}"
    + ".tg-pending svg{width:100%;height:auto;font-size:12px}"
    + ".tg-pending table{border-collapse:collapse;font-variant-numeric:tabular-nums}"
    + ".tg-pending td,.tg-pending th{text-align:left;padding:2px 12px 2px 0;border-bottom:1px solid var(--line)}"
    + ".tg-pending pre{font:inherit;white-space:pre-wrap;margin:0 0 8px}"
    + "".join(f".tg-pending {rule}" + "}" for rule in STYLE.split("}") if rule)
)


def html(one: Pending, shown: int) -> str:
    """`one` as an HTML fragment: its text, and its first windows as a drawing to scale and as a table."""
    first = one.waiting[:shown]
    drawn = _drawing(one, first) if one.stream_time is not None and first else ""
    table = _table(first) if first else ""
    return f'<style>{_STYLE}</style><div class="tg-pending"><pre>{escape(str(one))}</pre>{drawn}{table}</div>'


def _drawing(one: Pending, first: tuple[Waiting, ...]) -> str:
    now = one.stream_time or 0
    begin = min([now, *(wait.window.start for wait in first if wait.window is not None)])
    rows = [_row(wait, begin, now) for wait in first]
    high = len(rows) * LINE + 28
    title = f"{len(rows)} windows that wait, and stream time {show_instant(now)}; hatched, their grace"
    drawn = bars(rows, 4, 8, _WIDE - 90, (now - begin, "stream time"))
    return (
        f'<svg viewBox="0 0 {_WIDE} {high}" role="img" aria-label="{escape(title)}"><defs>{HATCH}</defs>{drawn}</svg>'
    )


def _row(wait: Waiting, begin: int, now: int) -> list[Bar]:
    if wait.window is None:
        return [Bar(now - begin, wait.leaves_at - now, "gap")]
    start, end = wait.window
    window = Bar(start - begin, min(end, wait.leaves_at) - start, "window")
    return [window, Bar(end - begin, wait.leaves_at - end, "grace")] if wait.leaves_at > end else [window]


def _table(first: tuple[Waiting, ...]) -> str:
    rows = "".join(
        f"<tr><td>{_window(wait)}</td><td>{escape(show_instant(wait.leaves_at))}</td>"
        f"<td>{escape(show_ms(wait.missing_ms))}</td></tr>"
        for wait in first
    )
    return f"<table><tr><th>window (ms)</th><th>leaves at stream time</th><th>to go</th></tr>{rows}</table>"


def _window(wait: Waiting) -> str:
    return "the next one" if wait.window is None else f"{wait.window.start} to {wait.window.end}"
