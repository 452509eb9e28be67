"""The pictures of a topology: its flowchart, and its SVG, in which windows are to one scale."""

from __future__ import annotations

import re
from typing import Any
from xml.etree import ElementTree as ET

import pyarrow as pa
import pyarrow.compute as pc
import pytest

import tidegate as tg
from tidegate.plan import boxes
from tidegate.plan.drawn import to_scale

SVG = "{http://www.w3.org/2000/svg}"


def events(name: str = "events") -> tg.KStream:
    return tg.stream(name, key="k", timestamp="ts", partition="p", offset="o", stream_time="max")


HOURS = tg.TimeWindows.of_size_and_grace("1 hour", "30 minutes")


def counts(windows: Any = HOURS) -> tg.KTable:
    return events().group_by_key().windowed_by(windows).agg(n=tg.count())


FINAL = tg.Suppressed.until_window_closes(tg.BufferConfig.unbounded())
JOIN = tg.JoinWindows.of_time_difference_and_grace("10 minutes", "5 minutes")


def test_flowchart() -> None:
    assert counts().suppress(FINAL).describe("mermaid") == (
        "flowchart TD\n"
        '    b0[("events<br>key k<br>time ts<br>order p, o")]\n'
        '    b1["aggregate<br>n = count()<br>by k<br>emits each window once, when it closes<br>'
        'TimeWindows of 1 hour<br>grace 30 minutes"]\n'
        "    b0 --> b1\n"
        '    b2[/"suppress<br>until window closes, buffer unbounded"/]\n'
        "    b1 --> b2"
    )


def test_outputs_share_their_operator() -> None:
    table = counts()
    drawn = boxes(tg.outputs(raw=table, final=table.suppress(FINAL), late=table.late_records()).node)
    kinds = [(box.kind, box.inputs) for box in drawn]
    assert kinds == [
        ("source", ()),
        ("operator", (0,)),
        ("output", (1,)),
        ("buffer", (1,)),
        ("output", (3,)),
        ("step", (1,)),
        ("output", (5,)),
    ]
    assert "emits updates and final rows" in drawn[1].details


def test_a_join_has_two_inputs_and_a_stream_joined_with_itself_one() -> None:
    def joined(other: tg.KStream) -> tg.KStream:
        return events().join(other, JOIN)

    assert [box.inputs for box in boxes(joined(events("views")).node)] == [(), (), (0, 1)]
    behind = joined(events("views")).group_by_key().count()
    assert [box.kind for box in boxes(behind.node)] == ["source", "source", "operator", "operator"]
    stream = events()
    assert len(boxes(stream.join(stream, JOIN).node)) == 2


def test_steps_and_merged_streams() -> None:
    merged = events().filter(lambda row: True).merge(events("others")).group_by_key().count()
    assert [box.title.split("(")[0] for box in boxes(merged.node)] == [
        "events",
        "filter",
        "others",
        "merge",
        "aggregate",
    ]


@pytest.mark.parametrize(
    "table",
    [
        events(),
        counts(),
        counts(tg.TimeWindows.of_size_and_grace("1 hour", "5 minutes").advance_by("10 minutes")).suppress(FINAL),
        counts(tg.SlidingWindows.of_time_difference_and_grace("1 hour", "5 minutes")),
        counts(tg.SessionWindows.of_inactivity_gap_and_grace("1 hour", "5 minutes")),
        counts(tg.BatchWindows.of_size("1 hour")),
        counts(tg.UnlimitedWindows.start_on(0)),
        events().join(events("views"), JOIN.after("0 s")),
        events().group_by_key().count().group_by("k").agg(n=tg.sum("count")),
        tg.table("prices", key="k", timestamp="ts"),
    ],
    ids=repr,
)
def test_the_picture_stands_alone_and_says_what_it_shows(table: tg.KTable) -> None:
    root = ET.fromstring(table.describe("svg"))
    assert root.findtext(f"{SVG}desc") == table.describe()
    assert root.get("role") == "img"
    width, height = map(float, (root.get("viewBox") or "").split()[2:])
    for rect in root.iter(f"{SVG}rect"):
        if "x" in rect.attrib:
            assert float(rect.get("x", 0)) + float(rect.get("width", 0)) <= width
            assert float(rect.get("y", 0)) + float(rect.get("height", 0)) <= height
    assert "prefers-color-scheme:dark" in table.describe("svg")
    text = table._repr_html_()
    assert not re.search(r"<script|<link|<img|src=|url\((?!#)|https?:(?!//www.w3.org/2000/svg)", text)


def test_names_cannot_be_markup() -> None:
    hostile = tg.stream('<b>"&`#', key="k", timestamp="ts").group_by_key().count()
    assert '[("#lt;b#gt;#quot;#amp;#96;#35;<br>' in hostile.describe("mermaid")
    titles = [e.text for e in ET.fromstring(hostile.describe("svg")).iter(f"{SVG}text")]
    assert '<b>"&`#' in titles


@pytest.mark.parametrize(
    ("windows", "rows"),
    [
        (tg.TimeWindows.of_size_and_grace("10 s", "5 s"), [[(0, 10, "window"), (10, 5, "grace")]] * 2),
        (tg.SlidingWindows.of_time_difference_with_no_grace("10 s"), [[(0, 10, "window")]]),
        (
            tg.SessionWindows.of_inactivity_gap_and_grace("10 s", "2 s"),
            [[(0, 10, "window"), (10, 10, "gap"), (20, 2, "grace")]],
        ),
        (tg.JoinWindows.of_time_difference_and_grace("10 s", "2 s"), [[(0, 20, "window"), (20, 2, "grace")]]),
        (
            tg.JoinWindows.of_time_difference_and_grace("10 s", "2 s").before("-4 s"),
            [[(4, 6, "window"), (10, 2, "grace")]],
        ),
    ],
    ids=str,
)
def test_windows_are_to_scale(windows: Any, rows: list[list[tuple[int, int, str]]]) -> None:
    step = getattr(windows, "advance_ms", 0) // 1000
    expected = [[(start + n * step, length, kind) for start, length, kind in row] for n, row in enumerate(rows)]
    drawn = to_scale(windows).rows
    assert [[(bar.start / 1000, bar.length / 1000, bar.kind) for bar in row] for row in drawn] == expected


@pytest.mark.parametrize(("format", "shown"), [("png", "'png'"), (["svg"], r"\['svg'\]")])
def test_an_unknown_format(format: Any, shown: str) -> None:
    with pytest.raises(tg.DefinitionError, match=rf"`format` is {shown}. Use one of 'text', 'mermaid', 'svg'."):
        counts().describe(format)


def test_a_join_shows_the_columns_of_its_rows() -> None:
    """As its text does: the suffixes of equal names or the value joiner, and the versions that tables keep."""
    schema = pa.schema([("k", pa.string()), ("ts", pa.int64()), ("v", pa.int64())])
    one, other = (tg.stream(name, key="k", timestamp="ts", schema=schema, stream_time="max") for name in ("a", "b"))
    tables = [tg.table(name, key="k", timestamp="ts", schema=schema, history="1 hour") for name in ("c", "d")]
    summed = {"sum": pc.field("left", "v") + pc.field("right", "v")}
    for joined, lines in (
        (one.join(other, JOIN, value_joiner=summed), ["inner join", f"values value_joiner(sum = {summed['sum']})"]),
        (one.join(other, JOIN, suffixes=("_a", "_b")), ["inner join", "suffixes '_a' and '_b'"]),
        (
            tables[0].join(tables[1], suffixes=("_c", "_d")),
            ["inner join of tables", "left versions of 1 hour", "right versions of 1 hour", "suffixes '_c' and '_d'"],
        ),
    ):
        box = next(box for box in boxes(joined.node) if box.title.startswith("join"))
        assert list(box.details[: len(lines)]) == lines
        assert lines[-1].partition("(")[0] in joined.describe("mermaid")
