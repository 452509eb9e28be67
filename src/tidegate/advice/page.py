"""The advice as one HTML page with tables and charts, without network and script, readable without colour."""

from __future__ import annotations

from collections.abc import Iterator
from html import escape
from typing import TYPE_CHECKING

from tidegate.advice import text as words
from tidegate.advice.charts import bars, curves, strip
from tidegate.drawing.style import FONT, variables

if TYPE_CHECKING:
    from tidegate.advice.advice import Advice

_STYLE = (
    variables(".tg,.tg-body")
    + f".tg{{font:15px/1.5 {FONT};color:var(--ink);background:var(--paper);max-width:1160px;margin:0 auto}}"
    + """
.tg{padding:24px}
.tg h1{font-size:24px;margin:0 0 4px}.tg h2{font-size:17px;margin:32px 0 8px}.tg p{margin:6px 0;max-width:80ch}
.tg .quiet{color:var(--quiet);font-size:13px}
.tg .answer{border:2px solid var(--ink);border-radius:6px;padding:12px 16px;
 margin:16px 0}.tg .answer b{font-size:20px}
.tg .wide{overflow-x:auto}.tg table{border-collapse:collapse;font-variant-numeric:tabular-nums;font-size:14px}
.tg th{font-weight:600;text-align:right;vertical-align:bottom;padding:4px 10px;border-bottom:2px solid var(--ink);
 white-space:pre}
.tg td{text-align:right;padding:3px 10px;border-bottom:1px solid var(--line);white-space:nowrap}
.tg td.note{text-align:left;font-weight:600}.tg tr.chosen td{font-weight:700;background:var(--soft)}
.tg ul{padding-left:20px;margin:6px 0}.tg li{margin:4px 0;max-width:85ch}
.tg .warn{border-left:4px solid var(--two);padding:2px 12px;margin:8px 0;background:var(--soft)}
.tg svg{width:100%;height:auto;display:block;margin:4px 0 8px}.tg svg text{fill:var(--ink);font-size:12px}
.tg svg .quiet{fill:var(--quiet)}.tg svg .axis{stroke:var(--line)}.tg svg .rule{stroke:var(--ink);stroke-dasharray:2 3}
.tg .figure{max-width:520px;margin-top:16px;font-size:13px}
.tg .two{display:grid;grid-template-columns:repeat(auto-fit,minmax(420px,1fr));gap:8px 32px}
@media (max-width:520px){.tg{padding:12px}.tg .two{grid-template-columns:1fr}}
.tg-body{background:var(--paper)}
@media print{.tg{padding:0;max-width:none}.tg svg{break-inside:avoid}}
"""
)


def page(answer: Advice) -> str:
    """The whole HTML file."""
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>Which grace? {escape(answer.windows)}</title>\n<style>body{{margin:0}}</style>\n</head>\n"
        f'<body class="tg-body">\n{fragment(answer)}\n</body>\n</html>\n'
    )


def fragment(answer: Advice) -> str:
    """The content as a part of another page, such as a notebook."""
    return f'<style>{_STYLE}</style>\n<div class="tg">\n' + "\n".join(_parts(answer)) + "\n</div>"


def _parts(answer: Advice) -> Iterator[str]:
    skipped = ", ".join(f"{many:,} skipped ({reason})" for reason, many in answer.skipped.items() if many)
    of = ", ".join([f"{answer.records:,} records", *([skipped] if skipped else [])])
    yield f"<h1>Which grace?</h1><p>{escape(answer.windows)}, {of}.</p>"
    if not answer.records:
        yield from _warnings(answer)
        return
    first, _, rest = words.chosen(answer).partition(", the ")
    yield f'<div class="answer"><b>{escape(first)}</b><p>The {escape(rest)}</p></div>'
    yield from _warnings(answer)
    yield "<h2>What each grace costs</h2>"
    yield _table(answer)
    yield '<div class="two">'
    yield from _price(answer)
    yield "</div>"
    yield "<h2>Why records are late</h2>"
    yield _causes(answer)
    yield _listed(words.causes(answer))
    yield "<h2>Is it the same all the time?</h2>"
    yield '<div class="two">'
    for which, with_grace in enumerate(("without any grace", f"with {words.short(answer.choice.grace)}")):
        parts = [None if pair is None else pair[which] for pair in answer.parts]
        places = [f"{100 * part // len(parts)} %" for part in range(len(parts))]
        drawing = bars(places, parts, words.share, every=10, after=len(parts) * 4 // 5)
        yield _figure(f"Late share {with_grace}, by part of the stream (hatched: tested on)", drawing)
        hours = [None if pair is None else pair[which] for pair in answer.hours]
        drawing = bars([str(hour) for hour in range(len(hours))], hours, words.share, every=3)
        yield _figure(f"Late share {with_grace}, by hour of the day (UTC)", drawing)
    yield "</div>"
    yield "<h2>What else the stream says</h2>"
    yield _listed(words.others(answer))
    yield _sessions(answer)
    yield f'<p class="quiet">{escape(answer.order)}</p>'


def _warnings(answer: Advice) -> Iterator[str]:
    for warning in answer.warnings:
        yield f'<p class="warn"><b>Note.</b> {escape(warning)}</p>'


def _listed(sentences: Iterator[str]) -> str:
    return "<ul>" + "".join(f"<li>{escape(sentence)}</li>" for sentence in sentences) + "</ul>"


def _figure(title: str, drawing: str) -> str:
    return f'<div class="figure"><b>{escape(title)}</b>{drawing}</div>'


def _table(answer: Advice) -> str:
    listed = words.columns(answer)
    head = "".join(f"<th>{escape(heading.strip())}</th>" for heading, _ in listed)
    rows = []
    for place, cost in enumerate(answer.costs):
        cells = "".join(f"<td>{escape(column[place])}</td>" for _, column in listed)
        note = escape(words.marks(answer, cost))
        which = " class=chosen" if cost.grace == answer.choice.grace else ""
        rows.append(f'<tr{which}><td class="note">{note}</td>{cells}</tr>')
    body = f"<thead><tr><th></th>{head}</tr></thead><tbody>{''.join(rows)}</tbody>"
    return f'<div class="wide"><table>{body}</table></div>'


def _price(answer: Advice) -> Iterator[str]:
    names = [words.short(cost.grace) for cost in answer.costs]
    marks = {words.short(cost.grace): words.marks(answer, cost) for cost in answer.costs if words.marks(answer, cost)}
    rows = [cost.results + cost.missing for cost in answer.costs]
    wrong = [cost.wrong / many if many else 0.0 for cost, many in zip(answer.costs, rows, strict=True)]
    shares = [("late records", [cost.late_share for cost in answer.costs]), ("wrong rows", wrong)]
    if any(cost.alerts is not None for cost in answer.costs):
        changed = [
            (cost.changed_alerts or 0) / max((cost.alerts or 0) + (cost.missed_alerts or 0), 1) for cost in answer.costs
        ]
        shares.append(("changed alerts", changed))
    yield _figure("Longer graces lose less", curves(names, shares, words.share, marks))
    waits = [("in stream time", [cost.stream_wait for cost in answer.costs])]
    if any(cost.wait is not None for cost in answer.costs):
        waits.insert(0, ("by arrivals", [cost.wait for cost in answer.costs]))
    yield _figure("and every row waits longer (median)", curves(names, waits, words.short, marks))


def _causes(answer: Advice) -> str:
    today = answer.cost(answer.today)
    found: list[tuple[str, float, str]] = [("late today", today.late, "solid")]
    if today.late_by_slowest is not None:
        found.append(('with stream_time="min_partition"', today.late_by_slowest, "hatched"))
    if today.late_by_guarded is not None and answer.guard is not None:
        found.append((f"with max_future_skew of {words.short(answer.guard)}", today.late_by_guarded, "hatched"))
    found.append(("by their own partition alone", today.late_by_own, "hatched"))
    found.append((f"with the chosen grace of {words.short(answer.choice.grace)}", answer.chosen.late, "open"))
    return strip(found, lambda many: words.number(round(many)))


def _sessions(answer: Advice) -> str:
    curve = list(answer.sessions.gaps.items())
    if len(curve) < 3:
        return ""
    names = [words.short(gap) for gap, _ in curve]
    marks = {} if answer.sessions.bend is None else {words.short(answer.sessions.bend): "bend"}
    points = [("sessions", [float(many) for _, many in curve])]
    return _figure("Sessions by inactivity gap", curves(names, points, lambda many: words.number(round(many)), marks))
