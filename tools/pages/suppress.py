"""The pictures of docs/suppress."""

from __future__ import annotations

from typing import Any, Literal

import tidegate as tg
from tools.pages.pictures import Scale, draw, lanes_of, lanes_of_updates
from tools.pages.suppress_timelines import draw_buffered, panel
from tools.pages.timeline import play, table


def until_window_closes() -> str:
    windows = tg.TimeWindows.of_size_and_grace("10 seconds", "5 seconds")
    records = [("A", 1.0), ("A", 4.0), ("A", 8.0), ("A", 12.0), ("A", 6.0), ("A", 15.0), ("A", 26.0)]
    moments, lanes = lanes_of(windows, records)
    for lane, told in zip(lanes, lanes_of_updates(windows, records)[1], strict=True):
        lane.updates, lane.members, lane.held = told.updates, [], True
    return draw(
        "Until the window closes: 10 seconds, 5 seconds of grace",
        "The count of a window changes with every record; only the last one leaves, once no other can follow.",
        Scale(0, 40, 5),
        moments,
        lanes,
    )


def _limited(buffer: Any, limit: str, measured_from: Literal["first_update", "latest_update"] = "first_update") -> Any:
    return table().suppress(tg.Suppressed.until_time_limit(limit, buffer, clock="stream", measured_from=measured_from))


def until_time_limit() -> str:
    records = [("A", 2), ("A", 6), ("B", 9), ("A", 11), ("A", 16), ("A", 20), ("B", 23), ("B", 36)]
    roomy = tg.BufferConfig.max_records(1_000)
    first = play(_limited(roomy, "10 seconds"), records)
    latest = play(_limited(roomy, "10 seconds", "latest_update"), records)
    return draw_buffered(
        "Until a time limit of 10 seconds",
        "At most one row per key in 10 seconds of stream time. A row that leaves shows the number of its last update.",
        Scale(0, 45, 5),
        first,
        [panel('measured_from="first_update"', first), panel('measured_from="latest_update"', latest)],
    )


def buffers() -> str:
    records = [("A", 2), ("B", 5), ("A", 8), ("C", 11), ("B", 16), ("C", 20), ("A", 32)]
    bounded = tg.BufferConfig.max_records(2)
    eager = play(_limited(bounded, "15 seconds"), records)
    strict = play(_limited(bounded.shut_down_when_full(), "15 seconds"), records)
    free = play(_limited(tg.BufferConfig.unbounded(), "15 seconds"), records)
    return draw_buffered(
        "Buffers: a limit of 15 seconds, and room for two keys",
        "The same records through a buffer that emits early when full, one that stops, and one without a bound.",
        Scale(0, 40, 5),
        free,
        [
            panel("max_records(2)", eager, limit=15, bound=2),
            panel("max_records(2).shut_down_when_full()", strict, bound=2),
            panel("unbounded()", free),
        ],
    )
