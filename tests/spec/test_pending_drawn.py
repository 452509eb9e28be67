"""`Pending` in a notebook and as JSON."""

from __future__ import annotations

import json
import re
from dataclasses import fields
from xml.etree import ElementTree as ET

import tidegate as tg
from tidegate.instants import Window

WAITING = (tg.Waiting(Window(0, 60_000), 90_000, 20_000), tg.Waiting(Window(60_000, 120_000), 150_000, 80_000))


def test_windows_are_drawn_to_the_scale_of_stream_time() -> None:
    html = tg.Pending("events", 70_000, WAITING, 2)._repr_html_()
    svg = ET.fromstring(html[html.index("<svg") : html.index("</svg>") + 6])
    drawn = [(e.get("class"), float(e.get("x", 0)), float(e.get("width", 0))) for e in svg.iter("rect") if e.get("x")]
    first, grace, second, _ = drawn
    scale = first[2] / 60_000
    assert [one[0] for one in drawn] == ["window", "grace"] * 2
    assert abs(grace[2] - 30_000 * scale) < 0.11
    assert abs(second[1] - first[1] - 60_000 * scale) < 0.11
    lines = [float(line.get("x1", 0)) for line in svg.iter("line") if line.get("class") == "mark"]
    assert abs(lines[0] - first[1] - 70_000 * scale) < 0.11
    assert "2 windows that wait, and stream time 70000" in (svg.get("aria-label") or "")
    assert "0 to 60000" in html
    assert not re.search(r"<script|<link|<img|src=|url\((?!#)|https?:", html)


def test_without_windows_it_is_its_text() -> None:
    for one in (
        tg.Pending("<b>", None, (), 0),
        tg.Pending("<b>", 5, (), 0, limits=(tg.Buffered("wall", 9, 4, 2, (("k", 9),)),)),
    ):
        html = one._repr_html_()
        assert "<svg" not in html
        assert "&lt;b&gt;: " in html
    assert "<svg" in tg.Pending("events", 5, (tg.Waiting(None, 9, 4),), 1)._repr_html_()


def test_it_comes_back_from_json() -> None:
    one = tg.Pending(
        "events",
        70_000,
        (*WAITING, tg.Waiting(None, 200_000, 130_000)),
        3,
        (4, 60_000),
        (tg.Buffered("wall", 9, 4, 2, (("k", 9),), "named"),),
        tg.Lookups(9, 4, 1, (("k", 9),)),
        "clicks join views",
    )
    assert all(getattr(one, each.name) != each.default for each in fields(one)), "each field has a value of its own"
    again = tg.Pending.from_dict(json.loads(json.dumps(one.to_dict())))
    assert again == one
    assert (again.limits[0].first, again.lookups and again.lookups.first) == ((("k", 9),), (("k", 9),))
    assert str(again) == str(one)


def test_an_operator_behind_a_join_still_names_the_join_after_json() -> None:
    one = tg.Pending("clicks", 5, (tg.Waiting(None, 9, 4),), 1, follows="clicks join views")
    again = tg.Pending.from_dict(json.loads(json.dumps(one.to_dict())))
    assert again == one
    assert "Its stream time is that of the join 'clicks join views'" in str(again)
