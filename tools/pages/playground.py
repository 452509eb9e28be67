"""The data of the playground: examples through the test driver, for each choice of windows, grace and suppression."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import tidegate as tg
from tidegate.testing import TopologyTestDriver
from tools.pages import DOCS
from tools.pages.timeline import SECOND, stream

DATA = DOCS / "assets" / "playground-data.js"

EXAMPLES = {
    "Out of order, then too late": [("A", 1), ("A", 6), ("A", 12), ("A", 8), ("A", 15), ("A", 4), ("A", 24), ("A", 36)],
    "Two users, one stream time": [("A", 2), ("B", 5), ("A", 9), ("B", 14), ("A", 7), ("B", 22), ("A", 13), ("B", 38)],
    "Visits with pauses": [("A", 1), ("A", 4), ("A", 12), ("A", 8), ("B", 18), ("A", 21), ("A", 19), ("B", 37)],
}
WINDOWS: dict[str, Callable[[str], Any]] = {
    "Tumbling, 10 s": lambda grace: tg.TimeWindows.of_size_and_grace("10 s", grace),
    "Hopping, 10 s every 5 s": lambda grace: tg.TimeWindows.of_size_and_grace("10 s", grace).advance_by("5 s"),
    "Sessions, gap 5 s": lambda grace: tg.SessionWindows.of_inactivity_gap_and_grace("5 s", grace),
}
GRACES = (0, 3, 8)
SUPPRESSIONS = ("Updates", "Final results", "A time limit of 10 s")


def data() -> str:
    """The text of the file that the page loads."""
    runs = {
        f"{example}/{windows}/{grace}": _run(records, WINDOWS[windows](f"{grace} s"))
        for example, records in EXAMPLES.items()
        for windows in WINDOWS
        for grace in GRACES
    }
    choices = {
        "example": list(EXAMPLES),
        "windows": list(WINDOWS),
        "grace": list(GRACES),
        "suppression": list(SUPPRESSIONS),
    }
    text = json.dumps({"choices": choices, "runs": runs}, separators=(",", ":")).replace('},{"key"', '},\n{"key"')
    return f'// Made by "make docs" from the test driver.\nwindow.PLAYGROUND = {text};\n'


def _run(records: list[tuple[str, int]], windows: Any) -> list[dict[str, Any]]:
    """A step for each record: stream time, the windows after it, and the rows emitted under each suppression."""
    kept = tg.Materialized.as_("store").with_caching_disabled()
    counts = stream().group_by_key().windowed_by(windows).count(materialized=kept)
    unbounded = tg.BufferConfig.unbounded()
    limit = tg.Suppressed.until_time_limit("10 s", unbounded, clock="stream")
    tables = (counts, counts.suppress(tg.Suppressed.until_window_closes(unbounded)), counts.suppress(limit))
    drivers = [TopologyTestDriver(tg.outputs(rows=table, late=counts.late_records())) for table in tables]
    there: dict[tuple[str, int, int], int] = {}
    steps = []
    for key, at in records:
        left, late = [], []
        for number, driver in enumerate(drivers):
            driver.pipe_input({"key": key, "ts": at * SECOND})
            rows = driver.read_output()
            left.append([_row(row) for row in rows if row["output"] == "rows"])
            late = [_bounds(row) for row in rows if row["output"] == "late"]
            for row in rows if number == 0 else ():
                if row["output"] == "rows":
                    _keep(there, row)
        stream_time = int(drivers[0].metrics()["stream_time"])
        known = [[*window, count, _close(windows, window) // SECOND] for window, count in sorted(there.items())]
        steps.append(
            {"key": key, "at": at, "stream": stream_time // SECOND, "windows": known, "late": late, "left": left}
        )
    return steps


def _keep(there: dict[tuple[str, int, int], int], row: dict[str, Any]) -> None:
    """Store the count of a window in `there`, or remove a session that was merged into another one."""
    start, end = _bounds(row)
    if row.get("deleted"):
        there.pop((row["key"], start, end), None)
    else:
        there[row["key"], start, end] = row["count"]


def _row(row: dict[str, Any]) -> list[Any]:
    return [row["key"], *_bounds(row), None if row.get("deleted") else row["count"]]


def _bounds(row: dict[str, Any]) -> list[int]:
    return [int(row["window"].start) // SECOND, int(row["window"].end) // SECOND]


def _close(windows: Any, window: tuple[str, int, int]) -> int:
    """The stream time at which a window closes, rounded up to whole seconds."""
    _, start, end = window
    if isinstance(windows, tg.SessionWindows):
        return windows.close_of_end_ms(end * SECOND) - 1 + SECOND
    close: int = windows.close_ms(start * SECOND)
    return close
