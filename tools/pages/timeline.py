"""The output of the test driver, record by record: the content of all pictures."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import tidegate as tg
from tidegate.testing import TopologyTestDriver

SECOND = 1_000

Row = dict[str, Any]


@dataclass(frozen=True)
class Moment:
    """One record and its emitted rows. Times in seconds; `number` counts from 1."""

    number: int
    key: str
    at: float
    stream_time: float
    late: int
    rows: tuple[Row, ...]
    failed: str = ""


def play(table: Any, records: Sequence[tuple[str, float]], values: Sequence[Any] = ()) -> list[Moment]:
    """The moments of a topology over the records (key, second), one by one.

    Records have the columns key, ts (ms), n (their number) and value. A record at which the query stops is the last.
    """
    driver = TopologyTestDriver(table)
    moments: list[Moment] = []
    for number, (key, at) in enumerate(records, 1):
        dropped = driver.dropped
        record = {"key": key, "ts": int(at * SECOND), "n": number, "value": values[number - 1] if values else number}
        try:
            driver.pipe_input(record)
        except tg.BufferFullError as error:
            moments.append(Moment(number, key, at, moments[-1].stream_time, 0, (), str(error)))
            break
        stream_time = driver.metrics()["stream_time"] / SECOND
        rows = tuple(driver.read_output())
        moments.append(Moment(number, key, at, stream_time, driver.dropped - dropped, rows))
    return moments


def stream() -> Any:
    return tg.stream("events", key="key", timestamp="ts")


def table() -> Any:
    return tg.table("events", key="key", timestamp="ts")


def updates(windows: Any) -> Any:
    """Every update of a count per window, with the numbers of the records in it as `of`."""
    kept = tg.Materialized.as_("store").with_caching_disabled()
    windowed = stream().group_by_key().windowed_by(windows)
    return windowed.agg(count=tg.count(), of=tg.collect_list("n"), materialized=kept)


def final(windows: Any) -> Any:
    return updates(windows).suppress(tg.Suppressed.until_window_closes(tg.BufferConfig.unbounded()))
