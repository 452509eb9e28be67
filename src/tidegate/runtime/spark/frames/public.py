"""The columns that leave an operator, under the names that users see: its window and its times made of numbers."""

from __future__ import annotations

from collections.abc import Iterable

from pyspark.sql import Column
from pyspark.sql import functions as F

from tidegate.runtime.spark.frames.arrow import MAX_TIMESTAMP_MS
from tidegate.runtime.spark.frames.names import col, quoted
from tidegate.spec.columns import (
    DELETED,
    END,
    LATE_BY,
    OUTPUT,
    REASON,
    SIDE,
    SINCE,
    START,
    STATUS,
    STREAM_TIME,
    TIMESTAMP,
    UNTIL,
    public_name,
)


def _shown(name: str, how: str = "{}") -> dict[str, str]:
    """SQL of a column of ours under its public name; as SQL, because each call of a Column is a message to Spark."""
    return {name: f"{how.format(quoted(name))} AS {quoted(public_name(name))}"}


_INSTANT = "timestamp_millis({})"
# The end is null for a window without an end, and for an end beyond the largest timestamp.
_END = f"CASE WHEN {{0}} <= {MAX_TIMESTAMP_MS}L THEN timestamp_millis({{0}}) END"


def _window(instant: str = _INSTANT, end: str = _END) -> str:
    bounds = f"struct({instant.format(quoted(START))} AS `start`, {end.format(quoted(END))} AS `end`)"
    return f"CASE WHEN {quoted(START)} IS NOT NULL THEN {bounds} END AS `window`"


_PUBLIC = {
    START: _window(),
    **_shown(OUTPUT),
    **_shown(TIMESTAMP, _INSTANT),
    **_shown(DELETED),
    **_shown(SIDE),
    **_shown(REASON),
    **_shown(LATE_BY),
    **_shown(STATUS),
    **_shown(SINCE, _INSTANT),
    **_shown(UNTIL, _END),
    **_shown(STREAM_TIME, _INSTANT),
}


_PUBLIC_TEXT = _PUBLIC | {START: _window("{}", "{}"), **_shown(TIMESTAMP)}


def public(names: Iterable[str], *, text: bool = False) -> list[Column]:
    """The columns that leave the operator under their public names (`plan.RESULT_COLUMNS`, `LATE_COLUMNS`).

    text  whether times are text (`worker.text_of_times`)
    """
    shown = _PUBLIC_TEXT if text else _PUBLIC
    return [F.expr(shown[name]) if name in shown else col(name) for name in names if name != END]


def public_names(names: Iterable[str]) -> list[str]:
    """The names of the columns that `public` gives."""
    return ["window" if name == START else public_name(name) for name in names if name != END]
